//! Keyspace notifications: one per change and key, by the primary, under the names the command's page lists.

use resil_harness::{Server, wait_for_sync};

use crate::driven::{SECOND_US, START_US, driven, numbers, say, set_clock, start_driven};
use crate::listener::Listener;
use resil_tests::pages;

/// A call and the `(event, key)`s it must be heard as.
const HEARD: &[(&str, &[(&str, &str)])] = &[
    ("RES.GCRA g 10 60s", &[("res.gcra.take", "g")]),
    ("RES.GCRA g 10 60s COST 3", &[("res.gcra.take", "g")]),
    ("RES.GCRA g 10 60s UPTO 2", &[("res.gcra.take", "g")]),
    ("RES.GCRA g 10 60s AND 20 1h", &[("res.gcra.take", "g")]),
    ("RES.GCRA g 10 60s COST 99", &[]),
    ("RES.GCRA g 10 60s REFUND 1", &[("res.gcra.refund", "g")]),
    ("RES.GCRA.PEEK g 10 60s", &[]),
    ("RES.GCRA none 10 60s REFUND 1", &[]),
    ("RES.GCRA r 1 60s", &[("res.gcra.take", "r")]),
    ("RES.GCRA r 1 60s", &[]),
    ("RES.GCRA r 1 60s RESERVE 2m", &[("res.gcra.take", "r")]),
    ("RES.MGCRA 1 a 10 60s 10 b 10 60s 10", &[("res.gcra.take", "a"), ("res.gcra.take", "b")]),
    ("RES.MGCRA 1 a 10 60s 10 r 1 60s 1", &[]),
    ("RES.WINDOW w 10 60s", &[("res.window.take", "w")]),
    ("RES.WINDOW w 10 60s UPTO 99", &[("res.window.take", "w")]),
    ("RES.WINDOW w 10 60s", &[]),
    ("RES.WINDOW.PEEK w 10 60s", &[]),
    ("CL.THROTTLE c 9 10 60", &[("res.gcra.take", "c")]),
    ("CL.THROTTLE c 9 10 60 -1", &[("res.gcra.refund", "c")]),
    ("CL.THROTTLE c 9 10 60 0", &[]),
    ("CL.THROTTLE c 9 10 60 11", &[]),
];

/// The same for breakers, whose every transition is also a message on `resil:events`: seconds to let pass before the
/// call, the call, and the states it must be heard to enter.
const TRANSITIONS: &[(i64, &str, &[&str])] = &[
    (0, "RES.BREAKER ADMIT breaker", &[]),
    (0, "RES.BREAKER TALLY breaker 0 me 1 OK 3 FAIL 1", &[]),
    (0, "RES.BREAKER TALLY breaker 0 me 2 OK 0 FAIL 5", &["open"]),
    (0, "RES.BREAKER TALLY breaker 0 me 3 OK 0 FAIL 5", &[]),
    (0, "RES.BREAKER ADMIT breaker", &[]),
    (0, "RES.BREAKER STATE breaker", &[]),
    (31, "RES.BREAKER ADMIT breaker", &["half-open"]),
    (0, "RES.BREAKER ADMIT breaker", &[]),
    (0, "RES.BREAKER RESET breaker", &["closed"]),
    (0, "RES.BREAKER FORCE breaker OPEN ACTOR me REASON test", &["forced-open"]),
    (0, "RES.BREAKER ADMIT breaker", &[]),
    (0, "RES.BREAKER FORCE breaker CLOSED", &["forced-closed"]),
    (0, "RES.BREAKER FORCE breaker METRICS", &["metrics"]),
    (0, "RES.BREAKER FORCE breaker DISABLED", &["disabled"]),
    (0, "RES.BREAKER FORCE breaker AUTO", &["closed"]),
    (0, "RES.BREAKER CONFIG breaker RATE 40", &[]),
];

/// Each event is heard under the key's name and under its own.
fn both_channels(heard: &[(&str, &str)]) -> Vec<(String, String)> {
    let both = |(event, key): &(&str, &str)| {
        [(format!("key:{key}"), (*event).to_owned()), (format!("event:{event}"), (*key).to_owned())]
    };
    heard.iter().flat_map(both).collect()
}

#[test]
fn every_change_is_notified_once_and_nothing_else_is() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to_notifications(&server);
    for (line, heard) in HEARD {
        say(&mut connection, line);
        assert_eq!(listener.notifications(), both_channels(heard), "{line}");
    }
}

#[test]
fn exactly_the_transitions_of_a_breaker_are_published() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to_notifications(&server);
    let mut events = Listener::to_channel(&server, "resil:events");
    let mut now_us = START_US;
    for (wait_s, line, entered) in TRANSITIONS {
        now_us += wait_s * SECOND_US;
        set_clock(&mut connection, now_us);
        say(&mut connection, line);
        let names: Vec<String> = entered.iter().map(|state| format!("res.breaker.{state}")).collect();
        let heard: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "breaker")).collect();
        assert_eq!(listener.notifications(), both_channels(&heard), "{line}");
        let messages: Vec<serde_json::Value> =
            events.messages().iter().map(|message| serde_json::from_str(message).expect("JSON")).collect();
        let reported: Vec<_> =
            messages.iter().map(|message| (message["service"].as_str(), message["new"].as_str())).collect();
        assert_eq!(reported, entered.iter().map(|state| (Some("breaker"), Some(*state))).collect::<Vec<_>>(), "{line}");
    }
}

#[test]
fn every_event_is_on_the_page_of_its_command() {
    let pages = pages();
    let of_limits =
        HEARD.iter().flat_map(|(line, heard)| heard.iter().map(move |(event, _)| (*line, (*event).to_owned())));
    let of_breakers = TRANSITIONS
        .iter()
        .flat_map(|(_, line, entered)| entered.iter().map(move |state| (*line, format!("res.breaker.{state}"))));
    for (line, event) in of_limits.chain(of_breakers) {
        let words: Vec<&str> = line.split(' ').collect();
        let page = pages.get(words[0]).filter(|page| page["keys"]["first"] != 0);
        let page = page.unwrap_or_else(|| &pages[&format!("{}|{}", words[0], words[1])]);
        let listed = page["events"].as_array().expect("a list");
        assert!(listed.contains(&serde_json::json!(event)), "{line} fires {event}, its page lists {listed:?}");
    }
}

#[test]
fn a_replica_applies_changes_without_notifying_them_again() {
    let (primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut listener = Listener::to_notifications(&replica);
    let mut events = Listener::to_channel(&replica, "resil:events");
    let lines = HEARD.iter().map(|(line, _)| line).chain(TRANSITIONS.iter().map(|(_, line, _)| line));
    for line in lines {
        say(&mut connection, line);
    }
    wait_for_sync(&primary, &replica);
    let heard = listener.notifications();
    assert!(!heard.iter().any(|(channel, event)| (channel.clone() + event).contains("res.")), "{heard:?}");
    assert_eq!(events.messages(), [""; 0]);
}

#[test]
fn a_transaction_notifies_each_of_its_changes_once() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to_notifications(&server);
    for line in ["MULTI", "RES.GCRA g 10 60s", "RES.GCRA g 10 60s COST 99", "RES.WINDOW w 10 60s", "EXEC"] {
        say(&mut connection, line);
    }
    assert_eq!(listener.notifications(), both_channels(&[("res.gcra.take", "g"), ("res.window.take", "w")]));
}

#[test]
fn nothing_is_notified_where_module_events_are_switched_off() {
    let (server, mut connection) = start_driven();
    let mut listener = Listener::to_notifications(&server);
    say(&mut connection, "CONFIG SET notify-keyspace-events KE$lshzxetg");
    numbers(&mut connection, "RES.GCRA g 10 60s");
    numbers(&mut connection, "RES.WINDOW w 10 60s");
    assert_eq!(listener.notifications(), []);
    say(&mut connection, "CONFIG SET notify-keyspace-events KEd");
    numbers(&mut connection, "RES.GCRA g 10 60s");
    assert_eq!(listener.notifications(), both_channels(&[("res.gcra.take", "g")]));
}

#[test]
fn a_clock_set_back_is_mended_once_and_notified_once() {
    let (server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA g 10 60s COST 10");
    numbers(&mut connection, "RES.WINDOW w 10 60s COST 10");
    let mut listener = Listener::to_notifications(&server);
    set_clock(&mut connection, START_US - 3_600 * SECOND_US);
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s"), [0, 10, 0, 6_000, 60_000]);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 10 60s"), [0, 10, 0, 61_000, 61_000]);
    assert_eq!(listener.notifications().len(), 4, "the mended state is a change");
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s"), [0, 10, 0, 6_000, 60_000]);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 10 60s"), [0, 10, 0, 61_000, 61_000]);
    assert_eq!(listener.notifications(), []);
}
