//! A connection that waits asynchronously: it asks, and hears the verdicts of its waits between the replies.
//!
//! It reads the bytes itself, so that a message in the middle of a reply is seen as what it is.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis::Value;
use resil_harness::Server;
use resil_wire::late::LateVerdict;
use resil_wire::reply::Value as Reply;

use crate::scene::{shown, verdict};

/// Long beside a hand-over, short beside a hung test.
const BOUND: Duration = Duration::from_secs(20);

/// A verdict that came later, as one reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    pub kind: String,
    pub key: String,
    pub owner: String,
    /// `[GRANTED 17 30000 0]`, `-SUPERSEDED ...`
    pub reply: String,
}

impl Late {
    pub fn of(message: &[u8]) -> Self {
        let late = LateVerdict::from_json(message)
            .unwrap_or_else(|error| panic!("{error:?} in {}", String::from_utf8_lossy(message)));
        let reply = match &late.verdict {
            Ok(reply) => shown_reply(reply),
            Err(error) => format!("-{error}"),
        };
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        Self { kind: late.kind.clone(), key: text(&late.key), owner: text(&late.owner), reply }
    }

    /// `b GRANTED`
    pub fn short(&self) -> String {
        format!("{} {}", self.owner, verdict(&self.reply))
    }
}

fn shown_reply(reply: &Reply) -> String {
    match reply {
        Reply::Integer(number) => number.to_string(),
        Reply::Text(bytes) => bytes.escape_ascii().to_string(),
        Reply::Null => "nil".to_owned(),
        Reply::Array(elements) => format!("[{}]", elements.iter().map(shown_reply).collect::<Vec<_>>().join(" ")),
        Reply::Map(_) => panic!("no verdict is a map"),
    }
}

/// One value from the start of `bytes` and its length; `None` if it is not all there yet.
fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[1..end]).expect("the head of a value is text");
    let mut at = end + 2;
    let number = || line.parse::<i64>().unwrap_or_else(|_| panic!("not a length: {line:?}"));
    let elements = |count: i64, at: &mut usize| -> Option<Vec<Value>> {
        let one = |_| {
            let (value, length) = parse(&bytes[*at..])?;
            *at += length;
            Some(value)
        };
        (0..count).map(one).collect()
    };
    let value = match bytes[0] {
        b'+' => Value::SimpleString(line.to_owned()),
        b'-' => Value::SimpleString(format!("-{line}")),
        b':' => Value::Int(number()),
        b'_' => Value::Nil,
        b'$' | b'*' if line == "-1" => Value::Nil,
        b'$' | b'=' => {
            let length = usize::try_from(number()).expect("a length");
            let text = bytes.get(at..at + length + 2)?;
            at += length + 2;
            Value::BulkString(text[..length].to_vec())
        }
        b'*' | b'~' => Value::Array(elements(number(), &mut at)?),
        b'>' => Value::Push { kind: redis::PushKind::Message, data: elements(number(), &mut at)? },
        b'%' => Value::Array(elements(number() * 2, &mut at)?),
        other => panic!("no value begins with {:?}: {:?}", other as char, bytes.escape_ascii().to_string()),
    };
    Some((value, at))
}

/// A connection in RESP3 that listens to its own channel.
pub struct AsyncClient {
    pub stream: TcpStream,
    pub id: u64,
    bytes: Vec<u8>,
    replies: VecDeque<String>,
    late: VecDeque<Late>,
    pub is_closed: bool,
    /// The server ended a subscription.
    pub has_lost_a_channel: bool,
}

impl AsyncClient {
    pub fn new(server: &Server) -> Self {
        let mut client = Self::deaf(server);
        let id = client.id;
        client.send(&format!("SUBSCRIBE resil:wait:{id}"));
        // Confirmed by a push alone; what follows is a reply.
        client.in_step();
        client
    }

    /// It speaks RESP3 and listens to nothing.
    pub fn deaf(server: &Server) -> Self {
        let mut client = Self {
            stream: server.raw(),
            id: 0,
            bytes: Vec::new(),
            replies: VecDeque::new(),
            late: VecDeque::new(),
            is_closed: false,
            has_lost_a_channel: false,
        };
        client.ask("HELLO 3");
        client.id = client.ask("CLIENT ID").parse().expect("an id");
        client
    }

    pub fn send(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).expect("the connection is open");
    }

    /// Words that a line cannot have.
    pub fn send_words(&mut self, words: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        self.stream.write_all(&bytes).expect("the connection is open");
    }

    /// Reads what is there, waiting at most so long for the first byte.
    fn read(&mut self, bound: Duration) {
        self.stream.set_read_timeout(Some(bound.max(Duration::from_millis(1)))).expect("a bound that is not zero");
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.is_closed = true,
        }
        let mut from = 0;
        while let Some((value, length)) = self.bytes.get(from..).filter(|rest| !rest.is_empty()).and_then(parse) {
            from += length;
            match value {
                Value::Push { data, .. } => match &data[..] {
                    [Value::BulkString(kind), _, Value::BulkString(message)] if kind.ends_with(b"message") => {
                        self.late.push_back(Late::of(message));
                    }
                    [Value::BulkString(kind), ..] => self.has_lost_a_channel |= kind.ends_with(b"unsubscribe"),
                    _ => {}
                },
                reply => self.replies.push_back(shown(&reply)),
            }
        }
        self.bytes.drain(..from);
    }

    /// Reads what is there already.
    pub fn poll(&mut self) {
        self.read(Duration::from_millis(1));
    }

    /// The next reply; `closed` if the server hung up, `nothing` if none came in time.
    pub fn reply(&mut self) -> String {
        let end = Instant::now() + BOUND;
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return reply;
            }
            if self.is_closed {
                return "closed".to_owned();
            }
            if Instant::now() >= end {
                return "nothing".to_owned();
            }
            self.read(end.saturating_duration_since(Instant::now()));
        }
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.reply()
    }

    /// A wait that stands in its queue; its position.
    #[track_caller]
    pub fn waits(&mut self, line: &str) -> u64 {
        let reply = self.ask(&format!("{line} ASYNC"));
        let position = reply.strip_prefix("[QUEUED ").and_then(|rest| rest.trim_end_matches(']').parse().ok());
        position.unwrap_or_else(|| panic!("{line}: {reply}"))
    }

    /// The next verdict that comes later.
    #[track_caller]
    pub fn late(&mut self) -> Late {
        let end = Instant::now() + BOUND;
        loop {
            if let Some(late) = self.late.pop_front() {
                return late;
            }
            assert!(!self.is_closed, "the connection was closed");
            assert!(Instant::now() < end, "no verdict came");
            self.read(end.saturating_duration_since(Instant::now()));
        }
    }

    /// `b GRANTED`
    #[track_caller]
    pub fn notified(&mut self) -> String {
        self.late().short()
    }

    /// What has come so far.
    pub fn take_late(&mut self) -> Vec<Late> {
        self.late.drain(..).collect()
    }

    pub fn take_replies(&mut self) -> Vec<String> {
        self.replies.drain(..).collect()
    }

    #[track_caller]
    fn in_step(&mut self) {
        assert_eq!(self.ask("ECHO in-step"), "in-step", "a reply too many, or one too few");
    }

    /// Nothing more has come: the next reply is that to its own question, and no verdict waits to be read.
    #[track_caller]
    pub fn is_silent(&mut self) {
        self.in_step();
        assert_eq!(self.late, [], "a verdict too many");
    }
}
