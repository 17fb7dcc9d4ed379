//! docs/events.md, held against the events of a server: every event that there is, every field, every example.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;
use resil_harness::ok;
use serde_json::{Map, Value, json};

use crate::driven::{START_US, say, set_clock, start_driven};
use crate::listener::Listener;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const BREAKER: &str = "resil:breaker:{payments}";
const LOCK: &str = "resil:lock:{reports}";
const LEDGER: &str = "resil:dlq:{orders}";
const POLICY: &str = "resil:policy:{checkout}";

type Event = Map<String, Value>;

/// A row of a table of the page.
#[derive(Debug)]
struct Field {
    kind: String,
    is_always: bool,
}

/// What the page says of one event.
#[derive(Debug, Default)]
struct Section {
    fields: BTreeMap<String, Field>,
    examples: Vec<Event>,
}

fn page() -> BTreeMap<String, Section> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md")).expect("the page");
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    let (mut heading, mut example) = (String::new(), None);
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.trim_matches('`').clone_into(&mut heading);
        } else if line == "```json" {
            example = Some(String::new());
        } else if line == "```"
            && let Some(text) = example.take()
        {
            let event = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
            sections.entry(heading.clone()).or_default().examples.push(event);
        } else if let Some(text) = &mut example {
            text.push_str(line);
        } else if let Some(row) = line.strip_prefix("| `")
            && let [name, kind, present, meaning] = row.trim_end_matches('|').splitn(4, '|').collect::<Vec<_>>()[..]
        {
            assert!(!meaning.trim().is_empty(), "{line}");
            let field = Field { kind: kind.trim().to_owned(), is_always: present.trim() == "always" };
            sections.entry(heading.clone()).or_default().fields.insert(name.trim().trim_matches('`').to_owned(), field);
        }
    }
    sections.retain(|_, section| !section.fields.is_empty());
    sections
}

fn fits(kind: &str, value: &Value) -> bool {
    let is_text = value.is_string() || value["b64"].is_string();
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "text" => is_text,
        "text or null" => is_text || value.is_null(),
        other => panic!("the page has a type {other}"),
    }
}

/// What a fleet and its operator do so that everything is published that can be.
fn everything_happens(shop: &mut Connection, operator: &mut Connection) {
    let tally = |sequence: &str, key: &str, correlation: &str, shop: &mut Connection| {
        let words =
            ["RES.BREAKER", "TALLY", key, "0", "me", sequence, "OK", "0", "FAIL", "5", "CORRELATION", correlation];
        ok(shop, &words);
    };
    tally("1", BREAKER, TRACE, shop);
    tally("1", "other", &format!("00-{TRACE}-00f067aa0ba902b7-01"), shop);
    tally("1", "third", "request-17", shop);
    ok(operator, &["RES.BREAKER", "FORCE", BREAKER, "OPEN", "ACTOR", "ann", "REASON", "bank maintenance"]);
    ok(operator, &["RES.BREAKER", "FORCE", BREAKER, "OPEN", "ACTOR", "bob", "REASON", "it takes longer"]);
    ok(operator, &["RES.BREAKER", "RESET", BREAKER]);
    ok(shop, &["RES.LOCK", "ACQUIRE", LOCK, "worker-7", "1h"]);
    ok(operator, &["RES.LOCK", "BREAK", LOCK, "ACTOR", "ann", "REASON", "deploy"]);
    for id in ["o-1", "o-2", "o-3"] {
        let words = ["RES.DLQ", "FAIL", LEDGER, id, "ERROR", "no stock for 7", "PAYLOAD", "p", "TYPE", "OrderCreated"];
        ok(shop, &[&words[..], &["AGGREGATE", "customer-9", "CLASS", "business", "FINAL"]].concat());
    }
    ok(operator, &["RES.DLQ", "SEEN", LEDGER, "1", "ACTOR", "ann", "CORRELATION", "change-118"]);
    let document = r#"{"retry":{"maxAttempts":3}}"#;
    ok(operator, &["RES.POLICY", "SET", POLICY, document, "ACTOR", "ann", "REASON", "first version"]);
    ok(operator, &["RES.POLICY", "DELETE", POLICY]);
    ok(shop, &["RES.LOCK", "ACQUIRE", "expires", "worker-8", "1s"]);
    ok(shop, &[b"RES.LOCK".as_slice(), b"ACQUIRE", b"bytes\xff", b"worker-9", b"1s"]);
    set_clock(operator, START_US + 2_000_000);
}

/// An event, but for what differs each time.
fn comparable(event: &Event) -> Event {
    let mut event = event.clone();
    let id = event.insert("event_id".to_owned(), json!("id"));
    if event.get("correlation") == id.as_ref() {
        event.insert("correlation".to_owned(), json!("id"));
    }
    event
}

#[test]
fn every_field_of_every_event_is_on_the_page() {
    let (server, mut operator) = start_driven();
    say(&mut operator, "ACL SETUSER shop on >secret +@all ~* &*");
    let mut shop = server.connect();
    say(&mut shop, "AUTH shop secret");
    let mut listener = Listener::to_channel(&server, "resil:*");
    everything_happens(&mut shop, &mut operator);
    let mut reported: Vec<Event> = Vec::new();
    resil_harness::eventually("leases have run out", crate::driven::SOON, || {
        let messages = listener.messages();
        reported.extend(messages.iter().map(|message| serde_json::from_str::<Event>(message).expect("a JSON map")));
        let owners: BTreeSet<_> = reported.iter().filter_map(|event| event.get("owner")?.as_str()).collect();
        owners.contains("worker-8") && owners.contains("worker-9")
    });
    let mut by_id: BTreeMap<String, Event> = BTreeMap::new();
    for event in reported {
        let id = event["event_id"].as_str().expect("a text").to_owned();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{event:?}");
        let before = by_id.insert(id, event.clone());
        assert!(before.is_none_or(|before| before == event), "two events with one id: {event:?}");
    }
    let (page, mut seen) = (page(), BTreeSet::new());
    let common = &page["Every event"];
    for event in by_id.values() {
        let name = event["event"].as_str().expect("a text");
        let section = page.get(name).unwrap_or_else(|| panic!("{name} is not on the page"));
        let documented = || common.fields.iter().chain(&section.fields);
        for (field, value) in event {
            let (_, said) =
                documented().find(|(known, _)| *known == field).unwrap_or_else(|| panic!("{field} of {name}"));
            assert!(fits(&said.kind, value), "{field} of {name} is no {}: {value}", said.kind);
            seen.insert((name.to_owned(), field.clone()));
        }
        for (field, _) in documented().filter(|(_, said)| said.is_always) {
            assert!(event.contains_key(field), "{name} has no {field}: {event:?}");
        }
    }
    let comparable_events: Vec<Event> = by_id.values().map(comparable).collect();
    for (name, section) in page.iter().filter(|(name, _)| *name != "Every event") {
        for field in section.fields.keys() {
            assert!(seen.contains(&(name.clone(), field.clone())), "no {name} had the {field} that the page tells of");
        }
        assert!(!section.examples.is_empty(), "{name} has no example");
        for example in section.examples.iter().map(comparable) {
            assert!(comparable_events.contains(&example), "no such event: {example:#?}\n{comparable_events:#?}");
        }
    }
    let of = |field: &str, value: &str| {
        let found = by_id.values().find(|event| event.get(field).and_then(Value::as_str) == Some(value));
        found.unwrap_or_else(|| panic!("no event with {field} {value}"))
    };
    assert_eq!(of("service", "other")["trace_id"], TRACE, "a whole traceparent has one, too");
    assert_eq!(of("service", "third").get("trace_id"), None);
    assert_eq!((&of("owner", "worker-8")["user"], &of("owner", "worker-7")["user"]), (&Value::Null, &json!("default")));
    assert_eq!(of("service", BREAKER)["user"], "shop");
    assert!(seen.contains(&("breaker".to_owned(), "trace_id".to_owned())));
}
