//! A connection that can be cut: bytes out, replies in, and the socket within reach.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Number(i64),
    Text(String),
    Error(String),
    Nil,
    List(Vec<Reply>),
}

impl Reply {
    pub fn number(&self, index: usize) -> i64 {
        match self.at(index) {
            Some(Self::Number(number)) => *number,
            other => panic!("a number at {index}, not {other:?} in {self:?}"),
        }
    }

    pub fn text(&self, index: usize) -> &str {
        match self.at(index) {
            Some(Self::Text(text)) => text,
            _ => "",
        }
    }

    fn at(&self, index: usize) -> Option<&Self> {
        match self {
            Self::List(elements) => elements.get(index),
            single => (index == 0).then_some(single),
        }
    }

    /// The verdict of a list, or an error's whole line.
    pub fn verdict(&self) -> &str {
        match self {
            Self::Error(line) => line,
            _ => self.text(0),
        }
    }
}

#[derive(Debug)]
pub struct Talk {
    stream: BufReader<TcpStream>,
}

impl Talk {
    pub fn to(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        if stream.local_addr()? == stream.peer_addr()? {
            // Nobody listens, and the system gave us that very port: we would talk to ourselves.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(256, stream) })
    }

    pub fn send(&mut self, line: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(&packed(line))
    }

    pub fn patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(patience))
    }

    pub fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(line.len().min(1));
        let number = || rest.parse::<i64>().map_err(|_| io::Error::other(format!("no number: {line:?}")));
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" if rest == "-1" => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" if rest == "-1" => Reply::Nil,
            "*" => Reply::List((0..number()?).map(|_| self.read()).collect::<io::Result<_>>()?),
            _ => return Err(io::Error::other(format!("not a reply: {line:?}"))),
        })
    }

    pub fn ask(&mut self, line: &str) -> io::Result<Reply> {
        self.send(line)?;
        self.read()
    }

    /// For tests that are sure of a reply.
    #[track_caller]
    pub fn say(&mut self, line: &str) -> Reply {
        self.ask(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Closes it the hard way: the peer gets a reset, and whatever is under way is gone.
    pub fn cut(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = size_of::<libc::linger>() as libc::socklen_t;
        let socket = self.stream.get_ref().as_raw_fd();
        // SAFETY: the socket is open, and the option is of the size that is said.
        unsafe {
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, std::ptr::from_ref(&linger).cast(), size);
        }
    }
}

pub fn packed(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
