//! A queue that delivers at least once, and a consumer that processes once.
//! `cargo run -p resil-tests --bin processed_events` (after `make module`).
//!
//! `RES.IDEMP ONCE` marks an event before it is processed: one round trip, one small key. Its TOKEN names the consumer,
//! so a consumer that died in between and gets the event again may still process it. Anybody else may not: where an
//! event must not be lost with its consumer, BEGIN and COMMIT mark it after.

use std::collections::BTreeMap;

use redis::{Connection, Value};
use resil_harness::{Server, ok};

struct Consumer<'a> {
    name: &'a str,
    connection: Connection,
}

impl Consumer<'_> {
    /// True if the event is this consumer's to process.
    fn is_new(&mut self, event: &str) -> bool {
        let key = format!("event:{event}");
        ok(&mut self.connection, &["RES.IDEMP", "ONCE", &key, "1d", "TOKEN", self.name]) == Value::Int(1)
    }

    /// The same with a record that is kept only when it is processed.
    fn begins(&mut self, event: &str) -> bool {
        let key = format!("work:{event}");
        let reply = ok(&mut self.connection, &["RES.IDEMP", "BEGIN", &key, self.name, "1m", "BOUND", "WAIT", "10s"]);
        matches!(reply, Value::Array(words) if words[0] == Value::BulkString(b"RUN".into()) || words[0] == Value::SimpleString("RUN".into()))
    }

    fn commits(&mut self, event: &str) {
        ok(&mut self.connection, &["RES.IDEMP", "COMMIT", &format!("work:{event}"), self.name, "1d", ""]);
    }
}

fn main() {
    let server = Server::fresh();
    let consumer = |name| Consumer { name, connection: server.connect() };

    // Ten events, three deliveries each, to consumers in turn.
    let names = ["ann", "bob", "cleo"];
    let mut consumers = names.map(consumer);
    let mut processed: BTreeMap<String, u32> = BTreeMap::new();
    for delivery in 0..30 {
        let event = (delivery * 7 % 10).to_string();
        let (turn, own) = (delivery / 10, &mut consumers);
        if own[turn].is_new(&event) {
            *processed.entry(event).or_default() += 1;
        }
    }
    let once = processed.values().filter(|times| **times == 1).count();
    println!("30 deliveries of 10 events: {once} were processed");

    // Ann dies after ONCE, before the effect. She comes back under her name, and gets the event again.
    consumer("ann").is_new("dropped");
    let mine = consumer("ann").is_new("dropped");
    println!(
        "a consumer that died before the effect: its own redelivery was {}",
        if mine { "processed" } else { "skipped" }
    );
    let others = consumer("bob").is_new("dropped");
    println!(
        "another consumer in its place: the event was {}",
        if others { "processed" } else { "skipped, and is lost" }
    );

    // With BEGIN the mark is set when the work is done.
    let mut dying = consumer("ann");
    assert!(dying.begins("careful"));
    drop(dying);
    let mut next = consumer("bob");
    if next.begins("careful") {
        next.commits("careful");
        println!("with BEGIN and COMMIT another consumer processed it");
    }
    assert!(!consumer("cleo").begins("careful"), "and nobody after it");
}
