//! One breaker: failures anywhere are failures of all, the fleet trips it once, and then nobody calls.

use resil_harness::Server;
use serde_json::{Value as Json, json};

use crate::fleet::{Fleet, Heard};

/// Hears what is said on the server's channel of events.
struct Events(redis::Connection);

impl Events {
    fn of(server: &Server) -> Self {
        let mut connection = server.connect();
        let subscribe = redis::cmd("SUBSCRIBE").arg("resil:events").get_packed_command();
        connection.send_packed_command(&subscribe).expect("the connection is open");
        connection.recv_response().expect("the server replies");
        Self(connection)
    }

    /// All events of breakers since the last time. What the server sent before it replies to a PING arrives before that.
    fn heard(&mut self) -> Vec<Json> {
        let ping = redis::cmd("PING").get_packed_command();
        self.0.send_packed_command(&ping).expect("the connection is open");
        let mut events = Vec::new();
        loop {
            let reply = self.0.recv_response().expect("the server replies");
            let words: Vec<Vec<u8>> = redis::from_redis_value(reply).expect("a subscriber hears words");
            let [_, _, message] = words.as_slice() else { return events };
            let event: Json = serde_json::from_slice(message).expect("an event is JSON");
            if event["event"] == "breaker" {
                events.push(event);
            }
        }
    }
}

#[test]
fn failures_in_three_languages_trip_one_breaker_once() {
    let mut fleet = Fleet::of_each(2);
    let mut events = Events::of(&fleet.server);
    let ask = json!({ "do": "breaker", "name": "bank", "consecutive": 7 });

    // All are inside before the first of them fails, and more of them fail than it takes.
    let mut calls = Vec::new();
    for worker in (0..fleet.size()).chain(0..fleet.size()) {
        let tag = fleet.ask(worker, &ask);
        fleet.hear_inside(tag);
        calls.push((worker, tag));
    }
    let (first, rest) = calls.split_at(6);
    fail(&mut fleet, first);
    // Only all of them together can come to seven: no process fails more than twice.
    assert_eq!(events.heard(), Vec::<Json>::new(), "six failures are too few");
    fail(&mut fleet, rest);
    let heard = events.heard();
    let [event] = heard.as_slice() else { panic!("one trip is one event: {heard:?}") };
    assert_eq!((&event["previous"], &event["new"]), (&json!("closed"), &json!("open")));

    for worker in 0..fleet.size() {
        let tag = fleet.ask(worker, &ask);
        assert_eq!(fleet.hear(), (worker, Heard::Failed(tag, "CIRCUIT_OPEN".into())), "{:?}", fleet.language(worker));
    }
    assert_eq!(events.heard(), Vec::<Json>::new());
}

/// All of them at once; each must get its own error back.
fn fail(fleet: &mut Fleet, calls: &[(usize, crate::fleet::Tag)]) {
    for &(worker, tag) in calls {
        fleet.tell(worker, tag, &json!({ "fail": true }));
    }
    for _ in calls {
        let (worker, heard) = fleet.hear();
        assert!(matches!(&heard, Heard::Failed(_, code) if code == "OWN"), "{:?}: {heard:?}", fleet.language(worker));
    }
}
