//! A shop in each language before one server, asked over plain HTTP/1.1, so that what is seen is what was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use resil_harness::{Options, Server};

use crate::worker::{LANGUAGES, Language, command};

/// For whatever has to happen; nothing in these tests takes a tenth of it.
const BOUND: Duration = Duration::from_secs(30);

/// What a server adds to every response by itself, no matter which handler made it.
const OF_THE_SERVER: [&str; 5] = ["connection", "content-length", "date", "keep-alive", "server"];

pub struct Shops {
    pub shops: Vec<Shop>,
    _server: Server,
}

impl Shops {
    pub fn in_each_language() -> Self {
        let server = Server::start(Options::default());
        Self { shops: LANGUAGES.map(|language| Shop::open(language, &server.url())).into(), _server: server }
    }
}

pub struct Shop {
    pub language: Language,
    port: u16,
    process: Child,
}

/// What is asked for. Every one is a `POST` of the same user.
#[derive(Clone, Default)]
pub struct Order<'a> {
    pub key: &'a str,
    pub target: &'a str,
    pub status: Option<u16>,
    pub body: &'a [u8],
}

/// Name and value.
pub type Header = (String, Vec<u8>);

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub is_replayed: bool,
    /// In order of their names, but for those that a server adds.
    pub headers: Vec<Header>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// Status, headers and body, whether it was given before or not.
    pub fn says(&self) -> (u16, &[Header], &[u8]) {
        (self.status, &self.headers, &self.body)
    }
}

impl Shop {
    fn open(language: Language, url: &str) -> Self {
        let mut command = command(language, "shop");
        let mut process = command
            .arg(url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("the shop in {language:?}, {command:?}: {error}"));
        let output = process.stdout.take().expect("it is piped");
        let mut shop = Self { language, port: 0, process };
        let (sender, port) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(output).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = port.recv_timeout(BOUND).unwrap_or_else(|_| panic!("the shop in {language:?} does not open"));
        shop.port = line.trim().parse().unwrap_or_else(|_| panic!("the shop in {language:?} says {line:?}"));
        shop
    }

    /// How many orders it has made.
    pub fn made(&self) -> usize {
        let reply = self.exchange(b"GET /made HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
        String::from_utf8_lossy(&reply.body).parse().expect("a number of orders")
    }

    pub fn ask(&self, order: &Order<'_>) -> Reply {
        let Order { key, target, status, body } = order;
        let mut head = format!("POST {target} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nx-user: ann\r\n");
        if !key.is_empty() {
            head += &format!("idempotency-key: {key}\r\n");
        }
        if let Some(status) = status {
            head += &format!("x-status: {status}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        self.exchange(&[head.as_bytes(), body].concat())
    }

    fn exchange(&self, request: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the shop is open");
        stream.set_read_timeout(Some(BOUND)).expect("a socket has timeouts");
        stream.write_all(request).expect("the shop listens");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap_or_else(|error| panic!("{:?} does not end: {error}", self.language));
        read(&said).unwrap_or_else(|| panic!("{:?}: no response: {}", self.language, String::from_utf8_lossy(&said)))
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(said: &[u8]) -> Option<Reply> {
    let end = said.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (&said[..end], &said[end + 4..]);
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let status = std::str::from_utf8(lines.next()?).ok()?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = String::from_utf8_lossy(&line[..colon]).to_ascii_lowercase();
        headers.push((name, line[colon + 1..].trim_ascii().to_vec()));
    }
    // All of it is known before it is sent: so its length is said, and it does not come in pieces.
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let is_whole = length.map_or(status == 204, |(_, length)| length == body.len().to_string().as_bytes());
    let is_replayed = headers.iter().any(|(name, value)| name == "idempotency-replayed" && value == b"true");
    headers.retain(|(name, _)| !OF_THE_SERVER.contains(&name.as_str()) && name != "idempotency-replayed");
    // Only the order among those of one name means something.
    headers.sort_by(|one, other| one.0.cmp(&other.0));
    is_whole.then(|| Reply { status, is_replayed, headers, body: body.to_vec() })
}
