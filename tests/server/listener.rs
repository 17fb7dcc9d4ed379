//! A connection that only hears: notifications, invalidations and whatever else the server sends by itself.
//!
//! To know that nothing came one need not wait: what the server sent before it replies to a PING arrives before that
//! reply.

use redis::{Connection, Value};
use resil_harness::Server;

pub struct Listener(Connection);

impl Listener {
    /// Hears every keyspace notification of every database.
    pub fn to_notifications(server: &Server) -> Self {
        let mut listener = Self(server.connect());
        listener.send("CONFIG SET notify-keyspace-events KEA");
        listener.receive();
        listener.send("PSUBSCRIBE __key*__:*");
        listener.receive();
        listener
    }

    /// Hears what is published on one channel.
    pub fn to_channel(server: &Server, channel: &str) -> Self {
        let mut listener = Self(server.connect());
        listener.send(&format!("PSUBSCRIBE {channel}"));
        listener.receive();
        listener
    }

    /// Hears invalidations of what it read by `line`.
    pub fn to_invalidations_of(server: &Server, line: &str) -> Self {
        let mut listener = Self(server.connect_resp3());
        listener.send("CLIENT TRACKING on");
        listener.receive();
        listener.reads(line);
        listener
    }

    /// Reads again: an invalidation is sent once per read.
    pub fn reads(&mut self, line: &str) {
        self.send(line);
        let reply = self.receive();
        assert!(!matches!(reply, Value::Push { .. } | Value::ServerError(_)), "{line}: {reply:?}");
    }

    /// `(channel, message)` of every notification since the last time, its key space and database cut off:
    /// `("event:res.gcra.take", "key")` and `("key:name", "res.gcra.take")`.
    pub fn notifications(&mut self) -> Vec<(String, String)> {
        let heard = self.heard_until_pong();
        heard.into_iter().map(|value| notification(&value)).collect()
    }

    /// Every message since the last time.
    pub fn messages(&mut self) -> Vec<String> {
        self.heard_until_pong().iter().map(|value| published(value)[3].clone()).collect()
    }

    /// The keys of every invalidation since the last time.
    pub fn invalidated(&mut self) -> Vec<String> {
        let pushes = self.heard_until_pong();
        let keys = pushes.into_iter().flat_map(|push| match push {
            Value::Push { data, .. } => redis::from_redis_value::<Vec<Vec<String>>>(Value::Array(data)).unwrap(),
            other => panic!("expected a push, got {other:?}"),
        });
        keys.flatten().collect()
    }

    fn heard_until_pong(&mut self) -> Vec<Value> {
        self.send("PING");
        let mut heard = Vec::new();
        loop {
            match self.receive() {
                Value::SimpleString(pong) if pong == "PONG" => return heard,
                Value::Array(values) if values.first() == Some(&Value::BulkString(b"pong".to_vec())) => return heard,
                other => heard.push(other),
            }
        }
    }

    fn send(&mut self, line: &str) {
        let mut command = redis::Cmd::new();
        line.split_whitespace().for_each(|word| {
            command.arg(word);
        });
        self.0.send_packed_command(&command.get_packed_command()).expect("the connection is open");
    }

    fn receive(&mut self) -> Value {
        self.0.recv_response().expect("the server replies")
    }
}

/// `["pmessage", pattern, channel, message]`
fn published(value: &Value) -> [String; 4] {
    let words = redis::from_redis_value::<Vec<String>>(value.clone()).ok().and_then(|words| words.try_into().ok());
    words.unwrap_or_else(|| panic!("expected a published message, got {value:?}"))
}

/// The channel is `__keyevent@0__:res.gcra.take` or `__keyspace@0__:key`.
fn notification(value: &Value) -> (String, String) {
    let [_, _, channel, message] = published(value);
    let (space, rest) = channel.split_once(':').expect("a channel has a colon");
    let kind = if space.starts_with("__keyevent") { "event" } else { "key" };
    (format!("{kind}:{rest}"), message)
}
