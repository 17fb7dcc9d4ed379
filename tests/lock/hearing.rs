//! A connection that only hears what is published.
//!
//! What the server sent before it replies to a PING arrives before that reply: to know that nothing came one need not wait.

use redis::{Connection, Value};
use resil_harness::{Server, eventually};
use serde_json::Value as Json;

use crate::driven::{SOON, Say};
use crate::scene::send;

pub struct Hearing {
    connection: Connection,
    pub heard: Vec<(String, String)>,
}

impl Hearing {
    /// Hears every channel that fits one of the patterns.
    pub fn to(server: &Server, patterns: &str) -> Self {
        let mut connection = server.connect();
        connection.say("CONFIG SET notify-keyspace-events KEA");
        send(&mut connection, &format!("PSUBSCRIBE {patterns}"));
        for _ in patterns.split_whitespace() {
            connection.recv_response().expect("the server replies");
        }
        Self { connection, heard: Vec::new() }
    }

    /// Takes in what has been published by now.
    pub fn listen(&mut self) -> &[(String, String)] {
        send(&mut self.connection, "PING");
        loop {
            let value = self.connection.recv_response().expect("the server replies");
            let Value::Array(words) = value else { panic!("a subscriber hears arrays, not {value:?}") };
            let words: Vec<Vec<u8>> = redis::from_redis_value(Value::Array(words)).expect("words");
            let text = |at: usize| words[at].escape_ascii().to_string().replace("\\\"", "\"");
            match words.len() {
                2 => return &self.heard,
                _ => self.heard.push((text(2), text(3))),
            }
        }
    }

    /// Waits until so many were heard, and looks whether there are more.
    #[track_caller]
    pub fn exactly(&mut self, count: usize) -> Vec<(String, String)> {
        eventually(&format!("{count} messages were heard"), SOON, || self.listen().len() >= count);
        self.listen();
        assert_eq!(self.heard.len(), count, "{:#?}", self.heard);
        std::mem::take(&mut self.heard)
    }
}

/// The message of an event, without what every event has: an id, a correlation where none was given, and a user where there is none.
pub fn json(message: &str) -> Json {
    let mut event: Json = serde_json::from_str(message).unwrap_or_else(|error| panic!("{message}: {error}"));
    let fields = event.as_object_mut().expect("an event is a map");
    let id = fields.remove("event_id");
    let is_id = id.as_ref().and_then(Json::as_str).is_some_and(|id| id.len() == 32);
    assert!(is_id && fields.contains_key("user") && fields.contains_key("correlation"), "{message}");
    fields.retain(|name, value| match name.as_str() {
        "correlation" => Some(&*value) != id.as_ref(),
        "user" => !value.is_null(),
        _ => true,
    });
    event
}
