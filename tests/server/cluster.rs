//! A cluster of three primaries: every key has one home, and a slot that moves takes its limits along.

use redis::{Connection, Value};
use resil_harness::{Cluster, Server, eventually, ok};

use crate::driven::{SOON, START_US, digest, driven, integer, numbers, outcome, refusal, say, set_clock, text};
use crate::pages::rows;
use crate::samples::{FILLED_US, Sample, fill_all_under};

const EVERY_COMMAND: &[&str] = &[
    "RES.GCRA {} 10 60s",
    "RES.GCRA.PEEK {} 10 60s",
    "RES.MGCRA 1 {} 10 60s 10",
    "CL.THROTTLE {} 9 10 60",
    "RES.WINDOW {}:w 10 60s",
    "RES.WINDOW.PEEK {}:w 10 60s",
];

fn node_id(node: &Server) -> String {
    text(&mut node.connect(), "CLUSTER MYID")
}

/// Some node that is not the home of the key.
fn stranger<'a>(cluster: &'a Cluster, home: &Server) -> &'a Server {
    cluster.nodes().iter().find(|node| node.port() != home.port()).expect("there are three")
}

#[test]
fn every_command_is_answered_at_home_and_redirected_elsewhere() {
    let cluster = Cluster::start(3, driven());
    for key in ["{a}", "{b}", "{c}", "{user:7}"] {
        let home = cluster.node_for_key(key);
        let moved = format!("MOVED {} 127.0.0.1:{}", cluster.slot_of(key), home.port());
        for line in EVERY_COMMAND.iter().map(|line| line.replace("{}", key)) {
            say(&mut home.connect(), &line);
            assert_eq!(refusal(&mut stranger(&cluster, home).connect(), &line), moved, "{line}");
        }
    }

    // Keys of different slots in one call are refused, though one node may own both.
    let error = refusal(&mut cluster.nodes()[0].connect(), "RES.MGCRA 1 a 10 60s 10 b 10 60s 10 c 10 60s 10");
    assert!(error.starts_with("CROSSSLOT "), "{error}");

    // A hash tag keeps limits of one subject together.
    let mut home = cluster.node_for_key("{user:9}").connect();
    set_clock(&mut home, START_US);
    let all = "RES.MGCRA 4 {user:9}:second 10 1s 10 {user:9}:minute 100 60s 100 {user:9}:hour 5 1h 5";
    assert_eq!(numbers(&mut home, all)[..2], [4, -1]);
    assert_eq!(numbers(&mut home, all)[..2], [0, 2], "the third refuses for all");
    assert_eq!(numbers(&mut home, "RES.GCRA.PEEK {user:9}:second 10 1s")[0], 6);
}

/// A slot with limits of every kind, its home, and where it shall go.
struct Move<'a> {
    slot: String,
    from: &'a Server,
    to: &'a Server,
    samples: Vec<Sample>,
}

impl<'a> Move<'a> {
    fn of(cluster: &'a Cluster, tag: &str) -> Self {
        let from = cluster.node_for_key(tag);
        let samples = fill_all_under(&mut from.connect(), tag);
        Self { slot: cluster.slot_of(tag).to_string(), from, to: stranger(cluster, from), samples }
    }

    fn digests(&self, connection: &mut Connection) -> Vec<String> {
        self.samples.iter().map(|sample| digest(connection, &sample.key)).collect()
    }

    /// All samples are at the new home, whole, and live on there.
    fn assert_arrived(&self, digests_before: &[String]) {
        let mut there = self.to.connect();
        eventually("the new home serves the slot", SOON, || {
            outcome(&mut there, &format!("EXISTS {}", self.samples[0].key)) == "int(1)"
        });
        assert_eq!(self.digests(&mut there), digests_before);
        set_clock(&mut there, FILLED_US);
        for sample in &self.samples {
            sample.assert_replies_like_twin_at(&mut there, &sample.key);
        }
        let moved = refusal(&mut self.from.connect(), &format!("RES.GCRA {} 10 60s", self.samples[0].key));
        assert!(moved.starts_with("MOVED "), "{moved}");
    }
}

#[test]
fn a_slot_moved_key_by_key_takes_its_limits_along() {
    let cluster = Cluster::start(3, driven());
    let moving = Move::of(&cluster, "{slot}");
    let (mut here, mut there) = (moving.from.connect(), moving.to.connect());
    let before = moving.digests(&mut here);
    let slot = &moving.slot;
    say(&mut there, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", node_id(moving.from)));
    say(&mut here, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", node_id(moving.to)));

    // Meanwhile: what is still here is answered here, what is not is asked for there.
    let key = &moving.samples[0].key;
    numbers(&mut here, &format!("RES.GCRA.PEEK {key} 100 60s"));
    let ask = format!("ASK {slot} 127.0.0.1:{}", moving.to.port());
    assert_eq!(refusal(&mut here, "RES.GCRA {slot}:new 10 60s"), ask);
    assert!(refusal(&mut there, "RES.GCRA {slot}:new 10 60s").starts_with("MOVED "));
    set_clock(&mut there, START_US);
    say(&mut there, "ASKING");
    assert_eq!(numbers(&mut there, "RES.GCRA {slot}:new 10 60s")[..3], [1, 10, 9]);
    let halves = format!("RES.MGCRA 1 {key} 100 60s 100 {{slot}}:new 10 60s 10");
    assert!(refusal(&mut here, &halves).starts_with("TRYAGAIN "), "one key is here, the other there");

    let port = moving.to.port().to_string();
    let keys: Vec<&str> = moving.samples.iter().map(|sample| sample.key.as_str()).collect();
    ok(&mut here, &[&["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"], keys.as_slice()].concat());
    assert_eq!(refusal(&mut here, &format!("RES.GCRA {key} 100 60s")), ask);
    let new_home = node_id(moving.to);
    for node in [moving.to, moving.from] {
        say(&mut node.connect(), &format!("CLUSTER SETSLOT {slot} NODE {new_home}"));
    }
    moving.assert_arrived(&before);
    assert_eq!(numbers(&mut there, "RES.GCRA.PEEK {slot}:new 10 60s")[0], 10, "a minute later it is full");
}

/// Not every server can.
fn moves_slots_as_a_whole(cluster: &Cluster) -> bool {
    let known = ok(&mut cluster.nodes()[0].connect(), &["COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"]);
    let can = known != Value::Array(vec![Value::Nil]);
    if !can {
        println!("skipped: this server cannot move a slot as a whole");
    }
    can
}

fn order_to_move(slot: &str, to: &Server) -> String {
    format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", node_id(to))
}

#[test]
fn a_slot_moved_as_a_whole_takes_its_limits_along() {
    let cluster = Cluster::start(3, driven());
    if !moves_slots_as_a_whole(&cluster) {
        return;
    }
    let moving = Move::of(&cluster, "{slot}");
    let before = moving.digests(&mut moving.from.connect());
    say(&mut moving.from.connect(), &order_to_move(&moving.slot, moving.to));
    moving.assert_arrived(&before);
    assert_eq!(integer(&mut moving.from.connect(), "DBSIZE"), 0);
}

#[test]
fn what_a_moving_slot_takes_is_taken_there() {
    let cluster = Cluster::start(3, driven());
    if !moves_slots_as_a_whole(&cluster) {
        return;
    }
    let from = cluster.node_for_key("{slot}");
    let to = stranger(&cluster, from);
    let (mut here, mut there) = (from.connect(), to.connect());
    set_clock(&mut here, START_US);
    set_clock(&mut there, START_US);
    for number in 0..200 {
        numbers(&mut here, &format!("RES.GCRA {{slot}}:{number} 10 1h"));
    }
    // A snapshot of half a second, so that much is taken meanwhile.
    say(&mut here, "CONFIG SET rdb-key-save-delay 2500");
    say(&mut here, &order_to_move(&cluster.slot_of("{slot}").to_string(), to));
    let mut granted = 0;
    let moved = loop {
        match resil_harness::reply(&mut here, &["RES.GCRA", "{slot}:busy", "1000000", "1h"]) {
            Ok(_) => granted += 1,
            Err(error) => break error.to_string(),
        }
        if granted % 10 == 0 {
            numbers(&mut here, "RES.WINDOW {slot}:w 100000 1h");
        }
    };
    eventually("the new home serves the slot", SOON, || outcome(&mut there, "EXISTS {slot}:busy") == "int(1)");
    assert_eq!(numbers(&mut there, "RES.GCRA.PEEK {slot}:busy 1000000 1h")[0], 1_000_000 - granted, "{moved}");
    assert_eq!(numbers(&mut there, "RES.WINDOW.PEEK {slot}:w 100000 1h")[0], 100_000 - granted / 10);
}

/// The keys that RES.LIST shows of a kind on a node, and who has held them longest.
fn shown(node: &Server) -> (Vec<String>, Vec<String>) {
    let mut connection = node.connect();
    let keys = |value: &Value, wanted: &str| {
        let mut found = Vec::new();
        collect_fields(value, wanted, &mut found);
        found.sort();
        found
    };
    let kinds = ["LOCK", "BREAKER", "RUN", "LOAD"];
    let mut listed = Vec::new();
    for kind in kinds {
        let mut of_kind: Vec<String> =
            rows(&mut connection, &format!("RES.LIST {kind}")).iter().map(|row| row["key"].clone()).collect();
        of_kind.sort();
        listed.extend(of_kind);
    }
    (listed, keys(&say(&mut connection, "RES.TOP HELD"), "key"))
}

/// The values of a field of all rows.
fn collect_fields(value: &Value, wanted: &str, found: &mut Vec<String>) {
    let Value::Array(elements) = value else { return };
    if let [Value::BulkString(name), Value::BulkString(key), ..] = elements.as_slice()
        && name == wanted.as_bytes()
    {
        found.push(String::from_utf8_lossy(key).into_owned());
    }
    elements.iter().for_each(|element| collect_fields(element, wanted, found));
}

#[test]
fn a_slot_that_moves_takes_its_rows_along() {
    let cluster = Cluster::start(3, driven());
    let from = cluster.node_for_key("{slot}");
    let (to, slot) = (stranger(&cluster, from), cluster.slot_of("{slot}").to_string());
    let (mut here, mut there) = (from.connect(), to.connect());
    for connection in [&mut here, &mut there] {
        set_clock(connection, START_US);
    }
    say(&mut here, "RES.LOCK ACQUIRE {slot}:lock worker-7 1h");
    say(&mut here, "RES.BREAKER FORCE {slot}:breaker OPEN FOR 1h THEN PROBE");
    say(&mut here, "RES.IDEMP BEGIN {slot}:run worker-8 2h");
    say(&mut here, "RES.IDEMP ONCE {slot}:seen 2h");
    say(&mut here, "RES.SFLIGHT JOIN {slot}:load worker-9 1h");
    let held = ["{slot}:lock", "{slot}:breaker", "{slot}:run", "{slot}:load"];
    let rows = || (held.map(str::to_owned).to_vec(), vec!["{slot}:lock".to_owned()]);
    assert_eq!((shown(from), shown(to)), (rows(), (Vec::new(), Vec::new())));
    say(&mut there, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", node_id(from)));
    say(&mut here, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", node_id(to)));
    let port = to.port().to_string();
    let moved = [&["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS", "{slot}:seen"][..], &held[..]].concat();
    ok(&mut here, &moved);
    // Between the two moves the key is where its value is.
    assert_eq!((shown(from), shown(to)), ((Vec::new(), Vec::new()), rows()));
    let new_home = node_id(to);
    for node in [to, from] {
        say(&mut node.connect(), &format!("CLUSTER SETSLOT {slot} NODE {new_home}"));
    }
    eventually("the new home serves the slot", SOON, || outcome(&mut there, "EXISTS {slot}:lock") == "int(1)");
    // What was asked of the key before goes on there: the fence is raised, the forced state ends as it was asked to.
    set_clock(&mut there, START_US + 1_000_000);
    let renew = format!("RES.LOCK RENEW {{slot}}:lock worker-7 1h RAISE {}", START_US + 2_000_000);
    let raised = outcome(&mut there, &renew);
    assert!(raised.contains(&(START_US + 2_000_000).to_string()), "{raised}");
    set_clock(&mut there, START_US + 3_700_000_000);
    assert!(outcome(&mut there, "RES.BREAKER STATE {slot}:breaker").contains("half-open"));
    assert_eq!(shown(to).0, ["{slot}:breaker", "{slot}:run"], "the leases of an hour have ended");
    say(&mut there, "RES.IDEMP COMMIT {slot}:run worker-8 2h done");
    assert_eq!(shown(to).0, ["{slot}:breaker"], "committed at its new home");
    assert_eq!(shown(from), (Vec::new(), Vec::new()));
}
