//! A server with the replies that a test lists.
//!
//! Each command that arrives takes the next line of the script: a reply as the server would send it, an error, or silence.
//! When the script is over the server is away. What was asked is remembered in words.
//!
//! Replies are those of the protocol, in the order of the fields of each command's reply. A reply that is not of the shape the
//! command promises is an [`Error::Internal`], as it would be from a server.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use resil_wire::command::{Command, Reply as WireReply};
use resil_wire::reply::Value;

use crate::backend::scripted::{Replying, Scripted};
use crate::backend::{Backend, Reach};
use crate::client::{Client, ConnectSettings};
use crate::clock::Clock;
use crate::error::Error;

/// A reply, made of numbers, texts, `()` for null, and arrays of those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(Value);

impl Reply {
    /// An array of whatever: `Reply::array([1.into(), "text".into(), ().into()])`.
    pub fn array(elements: impl IntoIterator<Item = Self>) -> Self {
        Self(Value::Array(elements.into_iter().map(|element| element.0).collect()))
    }

    /// A map, as `INFO` and `STATE` commands reply.
    pub fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let pair = |(key, value): (&str, Self)| (Value::Text(key.as_bytes().to_vec()), value.0);
        Self(Value::Map(pairs.into_iter().map(pair).collect()))
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl From<i64> for Reply {
    fn from(number: i64) -> Self {
        Self(Value::Integer(number))
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self(Value::Text(text.as_bytes().to_vec()))
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self(Value::Null)
    }
}

impl<R: Into<Self>, const N: usize> From<[R; N]> for Reply {
    fn from(elements: [R; N]) -> Self {
        Self::array(elements.into_iter().map(Into::into))
    }
}

type Lines = Arc<Mutex<VecDeque<Result<Value, Error>>>>;

/// A server with the replies that a test lists. Clones share them.
///
/// ```
/// use resil::limiter::Limit;
/// use resil::testing::Script;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// // granted, capacity, remaining, retry after, reset after
/// let script = Script::new().reply([1, 10, 9, 0, 100]).reply([0, 10, 0, 700, 1_000]);
/// let limiter = script.connect().limiter("api", Limit::per_second(10))?;
/// assert!(limiter.check("alice").await?.is_granted());
/// assert!(!limiter.check("alice").await?.is_granted());
/// assert!(!limiter.check("alice").await?.is_granted(), "within 700 ms nobody is asked");
/// assert_eq!(script.asked().len(), 2);
/// assert_eq!(script.asked()[0][1], "resil:limit:api:{alice}");
/// # Ok::<(), resil::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Script {
    server: Scripted,
    lines: Lines,
    clock: Clock,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    pub fn new() -> Self {
        let (server, lines) = (Scripted::new(), Lines::default());
        let script = Arc::clone(&lines);
        let next = move |command: &Command<'_>| {
            let line = script.lock().pop_front();
            read(command, line.unwrap_or(Err(Error::BackendUnavailable("the script is over")))?)
        };
        server.lines.lock().by = Some(Replying(Box::new(next)));
        Self { server, lines, clock: Clock::system() }
    }

    /// Another clock than the machine's for the clients.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    /// The next command is answered so.
    pub fn reply(self, reply: impl Into<Reply>) -> Self {
        self.lines.lock().push_back(Ok(reply.into().0));
        self
    }

    /// The next command fails so.
    pub fn fail(self, error: Error) -> Self {
        self.lines.lock().push_back(Err(error));
        self
    }

    /// The next command finds nobody there.
    pub fn away(self) -> Self {
        self.fail(Error::BackendUnavailable("it is away, says the script"))
    }

    /// The connection is lost, as [`Client::health`] shows it and locks see it. Commands still take their lines.
    pub fn go_away(&self) {
        self.server.set_reach(Reach::Away);
    }

    /// The connection is there again, as it is at first.
    pub fn come_back(&self) {
        self.server.set_reach(Reach::Here);
    }

    /// A client of this server, as many as one likes.
    pub fn connect(&self) -> Client {
        let options = ConnectSettings::new("memory://").clock(self.clock.clone());
        Client::with_backend(Backend::Scripted(self.server.clone()), options)
    }

    /// The words of every command so far, its name first.
    pub fn asked(&self) -> Vec<Vec<String>> {
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        self.server.lines.lock().asked.iter().map(|words| words.iter().map(text).collect()).collect()
    }

    /// How many lines have not been said.
    pub fn left(&self) -> usize {
        self.lines.lock().len()
    }
}

fn read(command: &Command<'_>, reply: Value) -> Result<WireReply, Error> {
    match (command, &reply) {
        // Where replicas are waited for, how many have it is one more line.
        (Command::Heartbeat(_), Value::Integer(number)) => Ok(WireReply::Number(*number)),
        _ => command.read(reply).map_err(|unexpected| Error::Internal(unexpected.to_string())),
    }
}
