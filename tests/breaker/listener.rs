//! A connection that only hears: events on `resil:events` and keyspace notifications.
//!
//! To know that nothing came one need not wait: what the server sent before it replies to a PING arrives before that
//! reply.

use redis::{Connection, Value};
use resil_harness::Server;
use serde_json::Value as Json;

pub struct Listener {
    connection: Connection,
    channel: &'static str,
}

/// What came since the last time.
#[derive(Debug, PartialEq)]
pub struct Heard {
    /// Messages on its channel, `resil:events` unless another was named.
    pub events: Vec<Json>,
    /// The correlation of each. One that the server drew is not in `events`.
    pub correlations: Vec<Json>,
    /// The generation that each began in, where it was a transition.
    pub previous_generations: Vec<Json>,
    /// `(event, key)` of every notification under an event's name.
    pub notified: Vec<(String, Vec<u8>)>,
    /// `(key, event)` of every notification under a key's name.
    pub at_keys: Vec<(Vec<u8>, String)>,
}

impl Listener {
    pub fn to(server: &Server) -> Self {
        Self::on(server, "resil:events")
    }

    pub fn on(server: &Server, channel: &'static str) -> Self {
        let mut listener = Self { connection: server.connect(), channel };
        let subscribe = format!("SUBSCRIBE {channel}");
        for line in ["CONFIG SET notify-keyspace-events KEA", &subscribe, "PSUBSCRIBE __key*__:*"] {
            listener.send(line);
            listener.connection.recv_response().expect("the server replies");
        }
        listener
    }

    pub fn hear(&mut self) -> Heard {
        let mut heard = Heard {
            events: Vec::new(),
            correlations: Vec::new(),
            previous_generations: Vec::new(),
            notified: Vec::new(),
            at_keys: Vec::new(),
        };
        self.send("PING");
        loop {
            let words: Vec<Vec<u8>> = match self.connection.recv_response().expect("the server replies") {
                // In RESP2 a subscriber's PING is answered by an array.
                Value::Array(values) => redis::from_redis_value(Value::Array(values)).expect("words"),
                other => panic!("a subscriber hears arrays, not {other:?}"),
            };
            match words.as_slice() {
                [pong, _] if pong == b"pong" => return heard,
                [kind, channel, message] if kind == b"message" => {
                    assert_eq!(channel, self.channel.as_bytes());
                    let event = serde_json::from_slice(message).expect("an event is JSON in UTF-8");
                    heard.event(event);
                }
                [kind, _, channel, message] if kind == b"pmessage" => heard.notification(channel, message),
                other => panic!("not expected here: {other:?}"),
            }
        }
    }

    /// Only the events.
    pub fn events(&mut self) -> Vec<Json> {
        self.hear().events
    }

    fn send(&mut self, line: &str) {
        let mut command = redis::Cmd::new();
        line.split_whitespace().for_each(|word| {
            command.arg(word);
        });
        self.connection.send_packed_command(&command.get_packed_command()).expect("the connection is open");
    }
}

impl Heard {
    /// `__keyevent@0__:res.breaker.open` says the key, `__keyspace@0__:key` the event.
    fn event(&mut self, mut event: Json) {
        let fields = event.as_object_mut().expect("a map");
        let (id, user) = (fields.remove("event_id"), fields.remove("user"));
        assert!(id.as_ref().is_some_and(is_drawn) && user.is_some(), "what every event has: {fields:?}");
        let previous = fields.remove("previous_generation");
        assert_eq!(previous.is_some(), fields["previous"] != fields["new"], "transitions are a chain: {fields:?}");
        self.previous_generations.push(previous.unwrap_or_default());
        let correlation = fields.get("correlation").expect("every event has one").clone();
        if is_drawn(&correlation) {
            assert_eq!(Some(&correlation), id.as_ref(), "an event without a correlation has its own id there");
            fields.remove("correlation");
        }
        self.correlations.push(correlation);
        self.events.push(event);
    }

    fn notification(&mut self, channel: &[u8], message: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("events have names in UTF-8");
        let colon = channel.iter().position(|byte| *byte == b':').expect("a channel has a colon");
        let (space, rest) = (&channel[..colon], &channel[colon + 1..]);
        if space.starts_with(b"__keyevent") {
            self.notified.push((text(rest), message.to_vec()));
        } else {
            self.at_keys.push((rest.to_vec(), text(message)));
        }
    }

    /// Names of the notifications that are ours, whatever the key.
    pub fn of_breakers(&self) -> Vec<&str> {
        self.notified.iter().map(|(event, _)| event.as_str()).filter(|event| event.starts_with("res.")).collect()
    }
}

/// Whether the server made it: 32 hex digits.
pub fn is_drawn(correlation: &Json) -> bool {
    correlation.as_str().is_some_and(|text| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
