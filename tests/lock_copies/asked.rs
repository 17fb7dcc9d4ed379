//! What locks reply, as short lines; callers that wait; what is published of losses.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Server, eventually, reply};
use serde_json::Value as Json;

use crate::driven::SOON;

/// A reply as one would read it aloud: `GRANTED 17 1000 0`, `MOVED 7 127.0.0.1:6379`, `[1, [k 17 absent]]`.
pub fn spoken(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(values) => {
            let nested = values.iter().any(|value| matches!(value, Value::Array(_)));
            let words: Vec<String> = values.iter().map(spoken).collect();
            if nested { format!("[{}]", words.join(", ")) } else { words.join(" ") }
        }
        Value::ServerError(error) => format!("{} {}", error.code(), error.details().unwrap_or_default()),
        other => format!("{other:?}"),
    }
}

fn command(line: &str) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    line.split_whitespace().for_each(|word| {
        command.arg(word);
    });
    command
}

/// What a test asks of a lock.
pub trait Asked {
    /// Sends a line of words and gives whatever came, errors too.
    fn ask(&mut self, line: &str) -> String;
    /// Sends `RES.LOCK ACQUIRE <line>`, which must be granted, and gives the fence.
    fn hold(&mut self, line: &str) -> u64;
    fn holds(&mut self, key: &str, owner: &str) -> bool;
    fn look(&mut self, key: &str) -> Look;
    fn look_into(&mut self, key: &str) -> Look;
}

impl Asked for Connection {
    fn ask(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match reply(self, &words) {
            Ok(value) => spoken(&value),
            Err(error) => format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default()),
        }
    }

    #[track_caller]
    fn hold(&mut self, line: &str) -> u64 {
        let reply = self.ask(&format!("RES.LOCK ACQUIRE {line}"));
        fence_in(&reply).unwrap_or_else(|| panic!("ACQUIRE {line}: {reply}"))
    }

    #[track_caller]
    fn holds(&mut self, key: &str, owner: &str) -> bool {
        self.ask(&format!("RES.LOCK CHECK {key} {owner}")) == "1"
    }

    #[track_caller]
    fn look(&mut self, key: &str) -> Look {
        Look::of(resil_harness::ok(self, &["RES.LOCK", "INFO", key]))
    }

    #[track_caller]
    fn look_into(&mut self, key: &str) -> Look {
        Look::of(resil_harness::ok(self, &["RES.BULKHEAD", "INFO", key]))
    }
}

/// The fence of `GRANTED fence lease_ms waited_ms`.
pub fn fence_in(reply: &str) -> Option<u64> {
    reply.strip_prefix("GRANTED ")?.split(' ').next()?.parse().ok()
}

/// RES.LOCK INFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub holders: Vec<Holder>,
    pub waiters: Vec<String>,
    pub last_fence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub owner: String,
    pub fence: u64,
    pub remaining_ms: i64,
    pub bound: bool,
}

impl Look {
    fn of(value: Value) -> Self {
        let rows = |value: &Value| match value {
            Value::Array(rows) => rows.clone(),
            other => panic!("expected rows, got {other:?}"),
        };
        let number = |value: &Value, name: &str| spoken(&field(value, name)).parse::<i64>().expect("a number");
        let holders = rows(&field(&value, "holders")).into_iter().map(|row| Holder {
            owner: spoken(&field(&row, "owner")),
            fence: number(&row, "fence").cast_unsigned(),
            remaining_ms: number(&row, "remaining_ms"),
            bound: number(&row, "bound") == 1,
        });
        let waiters = rows(&field(&value, "waiters")).into_iter().map(|row| spoken(&field(&row, "owner")));
        let last_fence = number(&value, "last_fence");
        Self { holders: holders.collect(), waiters: waiters.collect(), last_fence: last_fence.cast_unsigned() }
    }

    /// Who holds, in the order of the grants.
    pub fn owners(&self) -> Vec<&str> {
        self.holders.iter().map(|holder| holder.owner.as_str()).collect()
    }
}

/// One field of a map, which RESP2 writes as an array.
fn field(map: &Value, name: &str) -> Value {
    let Value::Array(pairs) = map else { panic!("expected a map, got {map:?}") };
    let found = pairs.chunks(2).find(|pair| spoken(&pair[0]) == name);
    found.unwrap_or_else(|| panic!("no {name} in {map:?}"))[1].clone()
}

/// A connection whose call is not answered yet.
pub struct Caller(Connection);

impl Caller {
    /// Sends the line and does not wait for the reply.
    pub fn calls(server: &Server, line: &str) -> Self {
        Self::calls_in(server, 0, line)
    }

    /// The same in another database.
    pub fn calls_in(server: &Server, db: i32, line: &str) -> Self {
        let mut caller = Self(server.connect());
        if db != 0 {
            assert_eq!(caller.0.ask(&format!("SELECT {db}")), "OK");
        }
        caller.send(line);
        caller
    }

    pub fn send(&mut self, line: &str) {
        self.0.send_packed_command(&command(line).get_packed_command()).expect("the connection is open");
    }

    /// The reply; `closed` if the server hung up instead.
    pub fn reply(&mut self) -> String {
        match self.0.recv_response() {
            Ok(value) => spoken(&value),
            Err(error) if error.is_timeout() => panic!("no result within 30 s"),
            Err(error) => match error.code() {
                Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
                None => "closed".to_owned(),
            },
        }
    }

    /// The reply, or `nothing` if none comes in time.
    pub fn reply_within(&mut self, bound: Duration) -> String {
        self.0.set_read_timeout(Some(bound)).expect("a bound that is not zero");
        match self.0.recv_response() {
            Err(error) if error.is_timeout() => "nothing".to_owned(),
            Err(error) if error.code().is_none() => "closed".to_owned(),
            Err(error) => format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default()),
            Ok(value) => spoken(&value),
        }
    }

    /// The fence that was granted.
    #[track_caller]
    pub fn granted(&mut self) -> u64 {
        let reply = self.reply();
        fence_in(&reply).unwrap_or_else(|| panic!("expected a grant, got {reply}"))
    }
}

/// So many callers `w0, w1, ...` in the queue for the lock, in this order.
pub fn waiters(server: &Server, key: &str, number: usize, rest: &str) -> Vec<Caller> {
    let mut connection = server.connect();
    let before = connection.look(key).waiters.len();
    let line_up = |index: usize| {
        let caller = Caller::calls(server, &format!("RES.LOCK ACQUIRE {key} w{index} {rest}"));
        eventually("it stands in the queue", SOON, || connection.look(key).waiters.len() == before + index + 1);
        caller
    };
    (0..number).map(line_up).collect()
}

/// Hears of losses on `resil:events`.
pub struct Ear {
    connection: Connection,
    heard: Vec<String>,
}

impl Ear {
    pub fn at(server: &Server) -> Self {
        let mut ear = Self { connection: server.connect(), heard: Vec::new() };
        ear.send("SUBSCRIBE resil:events");
        ear.connection.recv_response().expect("the server replies");
        ear
    }

    fn send(&mut self, line: &str) {
        self.connection.send_packed_command(&command(line).get_packed_command()).expect("the connection is open");
    }

    /// Every loss so far, each as `key owner fence reason`. What was published before this is asked has been heard.
    pub fn losses(&mut self) -> Vec<String> {
        self.send("PING");
        loop {
            let words = match self.connection.recv_response().expect("the server replies") {
                Value::Array(words) => words,
                other => panic!("a subscriber hears arrays, not {other:?}"),
            };
            if spoken(&words[0]) == "pong" {
                return self.heard.clone();
            }
            let event: Json = serde_json::from_str(&spoken(&words[2])).expect("an event is JSON");
            if event["event"] == "lost" {
                let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
                self.heard.push(format!("{} {} {} {}", text("key"), text("owner"), event["fence"], text("reason")));
            }
        }
    }

    /// Waits for the first loss.
    #[track_caller]
    pub fn hear_one(&mut self, bound: Duration) -> String {
        eventually("a loss is published", bound, || !self.losses().is_empty());
        self.heard[0].clone()
    }
}
