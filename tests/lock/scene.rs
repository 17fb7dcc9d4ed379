//! A server, callers that may have to wait on it, and replies as one reads them in a terminal.
//!
//! A caller that waits is answered exactly once: `Caller::reply` reads one reply, and `Caller::is_in_step` knows that no
//! other is under way, because the next thing to arrive is the reply to its own question.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Options, Server, eventually};

use crate::driven::{SOON, START_US, Say, driven};

/// The first fence of a driven server, whose clock is far ahead of the real one by which it was started.
pub const FIRST: i64 = START_US;

/// Long beside a hand-over, short beside a hung test.
const REPLY_BOUND: Duration = Duration::from_secs(10);

/// A value as one reads it: `[GRANTED 17 30000 0]`, `{holders: [] ...}`, `nil`, `-CODE text`.
pub fn shown(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(shown).collect::<Vec<_>>().join(" ");
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Push { data, .. } => format!(">[{}]", list(data)),
        Value::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", shown(key), shown(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::ServerError(error) => format!("-{} {}", error.code(), error.details().unwrap_or_default()),
        other => format!("{other:?}"),
    }
}

/// Sends a line and reads nothing.
pub fn send(connection: &mut Connection, line: &str) {
    let mut command = redis::Cmd::new();
    line.split_whitespace().for_each(|word| {
        command.arg(word);
    });
    connection.send_packed_command(&command.get_packed_command()).expect("the connection is open");
}

/// What comes next, errors too; `closed` if the server hung up, `nothing` if nothing came in time.
pub fn receive(connection: &mut Connection) -> String {
    match connection.recv_response() {
        Ok(value) => shown(&value),
        Err(error) if error.is_timeout() => "nothing".to_owned(),
        Err(error) if error.is_connection_dropped() || error.is_io_error() => "closed".to_owned(),
        Err(error) => format!("-{} {}", error.code().unwrap_or("?"), error.detail().unwrap_or_default()),
    }
}

/// A connection with one question under way.
pub struct Caller {
    pub connection: Connection,
    pub id: u64,
}

impl Caller {
    pub fn new(server: &Server) -> Self {
        Self::of(server.connect())
    }

    pub fn of(mut connection: Connection) -> Self {
        connection.set_read_timeout(Some(REPLY_BOUND)).expect("a bound that is not zero");
        let id = connection.integer("CLIENT ID").unsigned_abs();
        Self { connection, id }
    }

    pub fn send(&mut self, line: &str) {
        send(&mut self.connection, line);
    }

    #[track_caller]
    pub fn reply(&mut self) -> String {
        receive(&mut self.connection)
    }

    /// The first word of the reply.
    #[track_caller]
    pub fn verdict(&mut self) -> String {
        verdict(&self.reply())
    }

    /// Nothing has come that was not read, and the next question is answered by its own reply.
    #[track_caller]
    pub fn is_in_step(&mut self) {
        self.send("ECHO in-step");
        assert_eq!(self.reply(), "in-step", "a reply too many, or one too few");
    }
}

/// `[GRANTED 17 ...]` is GRANTED, `-CODE text` is -CODE.
pub fn verdict(reply: &str) -> String {
    reply.trim_start_matches('[').split([' ', ']']).next().unwrap_or_default().to_owned()
}

/// A server and the connection that directs the scene.
pub struct Scene {
    pub server: Server,
    pub main: Connection,
}

impl Scene {
    /// The clock stands until the test sets it.
    pub fn driven() -> Self {
        let mut scene = Self::with(driven());
        scene.main.clock_at_ms(0);
        scene
    }

    /// The clock runs.
    pub fn real() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let server = Server::start(options);
        let main = server.connect();
        Self { server, main }
    }

    /// The reply to a line, as one reads it.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        send(&mut self.main, line);
        receive(&mut self.main)
    }

    /// The same without its numbers: `GRANTED`, `TAKEN`, `-DEADLOCK`.
    #[track_caller]
    pub fn verdict(&mut self, line: &str) -> String {
        verdict(&self.ask(line))
    }

    /// The fence of a lock's grant.
    #[track_caller]
    pub fn fence(&mut self, line: &str) -> u64 {
        fence(&self.ask(line))
    }

    /// All lines in one transaction; their replies.
    #[track_caller]
    pub fn at_once(&mut self, lines: &[&str]) -> String {
        self.main.say("MULTI");
        for line in lines {
            assert_eq!(self.ask(line), "QUEUED", "{line}");
        }
        self.ask("EXEC")
    }

    /// A connection of its own that asks, once it stands in the queue.
    #[track_caller]
    pub fn waits(&mut self, line: &str) -> Caller {
        let caller = Caller::new(&self.server);
        self.waits_as(caller, line)
    }

    #[track_caller]
    pub fn waits_as(&mut self, mut caller: Caller, line: &str) -> Caller {
        let before = self.waiters();
        caller.send(line);
        let main = &mut self.main;
        eventually(&format!("{line} stands in the queue"), SOON, || {
            main.info_number("resil", "blocked_waiters") > before
        });
        caller
    }

    /// How many calls wait, whatever for.
    pub fn waiters(&mut self) -> i64 {
        self.main.info_number("resil", "blocked_waiters")
    }

    #[track_caller]
    pub fn nobody_waits(&mut self) {
        let main = &mut self.main;
        eventually("nobody waits", SOON, || main.info_number("resil", "blocked_waiters") == 0);
    }

    /// Owners of those who hold the lock, and of those who wait for it.
    pub fn who(&mut self, key: &str) -> (Vec<String>, Vec<String>) {
        self.who_of("RES.LOCK", key)
    }

    pub fn who_of(&mut self, command: &str, key: &str) -> (Vec<String>, Vec<String>) {
        let info = self.main.say(&format!("{command} INFO {key} LIMIT 100000"));
        let owners = |list: &str| match value_of(&info, list) {
            Value::Array(rows) => rows.iter().map(|row| field(row, "owner")).collect(),
            other => panic!("not a list: {other:?}"),
        };
        (owners("holders"), owners("waiters"))
    }
}

/// A field of a map that RESP2 writes as a list.
pub fn field(row: &Value, name: &str) -> String {
    shown(value_of(row, name))
}

fn value_of<'a>(row: &'a Value, name: &str) -> &'a Value {
    let Value::Array(fields) = row else { panic!("not a map: {row:?}") };
    let at = fields.iter().step_by(2).position(|key| shown(key) == name).unwrap_or_else(|| panic!("no {name}"));
    &fields[2 * at + 1]
}

/// The second word of `[GRANTED fence ...]`.
#[track_caller]
pub fn fence(reply: &str) -> u64 {
    let mut words = reply.trim_matches(['[', ']']).split(' ');
    assert_eq!(words.next(), Some("GRANTED"), "{reply}");
    words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no fence in {reply}"))
}
