//! The protocol by hand: a search for lost replies and broken lines must see and count every byte.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use resil_harness::Server;

/// The arguments of one call, its name first.
pub type Words = Vec<Vec<u8>>;

#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    Status(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

/// A connection that pipelines.
pub struct Client {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    batches: u64,
}

/// Words from anything that looks like a list of strings.
pub fn words<W: AsRef<[u8]>>(list: impl IntoIterator<Item = W>) -> Words {
    list.into_iter().map(|word| word.as_ref().to_vec()).collect()
}

/// Words as one types them, separated by spaces.
pub fn typed(line: &str) -> Words {
    words(line.split(' '))
}

/// A call as it goes over the wire.
pub fn encode(call: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", call.len()).as_bytes());
    for word in call {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A call for a panic message: printable and cut short.
pub fn shown(call: &[Vec<u8>]) -> String {
    let shown = |word: &Vec<u8>| match word.get(..200) {
        Some(start) => format!("{}...({} bytes)", start.escape_ascii(), word.len()),
        None => word.escape_ascii().to_string(),
    };
    call.iter().map(shown).collect::<Vec<_>>().join(" ")
}

impl Client {
    pub fn new(server: &Server) -> Self {
        let writer = server.raw();
        let reader = BufReader::with_capacity(1 << 16, writer.try_clone().expect("a socket can be cloned"));
        Self { writer, reader, batches: 0 }
    }

    pub fn call(&mut self, call: &[Vec<u8>]) -> Reply {
        self.pipeline([call]).remove(0)
    }

    pub fn typed(&mut self, line: &str) -> Reply {
        self.call(&typed(line))
    }

    /// Sends all calls at once and reads one reply for each. A marker sent behind them must come back right after
    /// the last reply: no reply is missing and none is too many.
    pub fn pipeline<'a>(&mut self, calls: impl IntoIterator<Item = &'a [Vec<u8>]>) -> Vec<Reply> {
        let mut bytes = Vec::new();
        let mut count = 0;
        for call in calls {
            encode(call, &mut bytes);
            count += 1;
        }
        self.batches += 1;
        let marker = format!("marker-{}", self.batches).into_bytes();
        encode(&[b"ECHO".to_vec(), marker.clone()], &mut bytes);
        self.writer.write_all(&bytes).expect("the server takes the calls");
        let replies = (0..count).map(|_| self.read()).collect();
        assert_eq!(self.read(), Reply::Bulk(marker), "exactly {count} replies were expected before the marker");
        replies
    }

    /// Sends calls whose replies are read one by one.
    pub fn send<'a>(&mut self, calls: impl IntoIterator<Item = &'a [Vec<u8>]>) {
        let mut bytes = Vec::new();
        calls.into_iter().for_each(|call| encode(call, &mut bytes));
        self.writer.write_all(&bytes).expect("the server takes the calls");
    }

    /// True if a reply, or the end of the connection, comes within `patience`.
    pub fn has_reply(&mut self, patience: Duration) -> bool {
        if !self.reader.buffer().is_empty() {
            return true;
        }
        let usual = self.writer.read_timeout().expect("a socket");
        self.writer.set_read_timeout(Some(patience)).expect("a bound that is not zero");
        let answered = self.writer.peek(&mut [0]).is_ok();
        self.writer.set_read_timeout(usual).expect("as it was");
        answered
    }

    /// The next reply.
    pub fn read(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_first().expect("a reply has a type");
        let number = || -> i64 {
            let text = std::str::from_utf8(rest).expect("a number is text");
            text.parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
        };
        match kind {
            b'+' => Reply::Status(rest.to_vec()),
            b'-' => Reply::Error(rest.to_vec()),
            b':' => Reply::Integer(number()),
            b'$' => self.bulk(number()),
            b'*' => match number() {
                -1 => Reply::Nil,
                len => Reply::Array((0..len).map(|_| self.read()).collect()),
            },
            _ => panic!("no reply starts with {:?}", line.escape_ascii().to_string()),
        }
    }

    fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).expect("the server replies");
        assert!(line.ends_with(b"\r\n"), "the connection ended within {:?}", line.escape_ascii().to_string());
        line.truncate(line.len() - 2);
        line
    }

    fn bulk(&mut self, len: i64) -> Reply {
        let Ok(len) = usize::try_from(len) else { return Reply::Nil };
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes).expect("the server sends all of it");
        bytes.truncate(len);
        Reply::Bulk(bytes)
    }
}

/// As one would read it in a terminal, not as numbers of bytes.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(line) => write!(f, "+{}", line.escape_ascii()),
            Self::Error(line) => write!(f, "-{}", line.escape_ascii()),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Nil => write!(f, "nil"),
            Self::Array(elements) => f.debug_list().entries(elements).finish(),
        }
    }
}

impl Reply {
    /// Text of a status, a bulk or an error; panics on anything else.
    pub fn text(&self) -> String {
        match self {
            Self::Status(bytes) | Self::Bulk(bytes) | Self::Error(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("expected text, got {other:?}"),
        }
    }

    /// Bytes of a bulk; panics on anything else.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("expected bytes, got {other:?}"),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// A flat array of integers.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let Self::Array(elements) = self else { return None };
        elements.iter().map(|element| if let Self::Integer(number) = element { Some(*number) } else { None }).collect()
    }
}
