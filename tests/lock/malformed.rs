//! What is wrong is refused with its name, and leaves everything as it was.

use redis::Value;
use resil_harness::{Options, Server, error_text};

use crate::driven::Say;
use crate::scene::Scene;

/// Lines, and a word of the error that says what was wrong. `KEY` is once a key that is not there, once a held one.
const LOCKS: &[(&str, &str)] = &[
    ("RES.LOCK", "wrong number of arguments"),
    ("RES.LOCK NOPE KEY", "unknown subcommand"),
    ("RES.LOCK ACQUIRE", "key"),
    ("RES.LOCK ACQUIRE KEY", "owner"),
    ("RES.LOCK ACQUIRE KEY a", "lease"),
    ("RES.LOCK ACQUIRE KEY a 0", "lease"),
    ("RES.LOCK ACQUIRE KEY a -5", "lease"),
    ("RES.LOCK ACQUIRE KEY a 9ms", "lease"),
    ("RES.LOCK ACQUIRE KEY a 9999us", "lease"),
    ("RES.LOCK ACQUIRE KEY a 86400001", "lease"),
    ("RES.LOCK ACQUIRE KEY a 2d", "lease"),
    ("RES.LOCK ACQUIRE KEY a 99999999999999999999", "lease"),
    ("RES.LOCK ACQUIRE KEY a 9223372036854775807d", "lease"),
    ("RES.LOCK ACQUIRE KEY a 1.5s", "lease"),
    ("RES.LOCK ACQUIRE KEY a nan", "lease"),
    ("RES.LOCK ACQUIRE KEY a 1w", "lease"),
    ("RES.LOCK ACQUIRE KEY a 1s WAIT", "WAIT"),
    ("RES.LOCK ACQUIRE KEY a 1s WAIT -1", "WAIT"),
    ("RES.LOCK ACQUIRE KEY a 1s WAIT 11m", "WAIT"),
    ("RES.LOCK ACQUIRE KEY a 1s WAIT inf", "WAIT"),
    ("RES.LOCK ACQUIRE KEY a 1s WAIT 1s WAIT 1s", "WAIT is given twice"),
    ("RES.LOCK ACQUIRE KEY a 1s SHARED SHARED", "SHARED is given twice"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND BOUND", "BOUND"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND BOUNDTO 1", "BOUND"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUNDTO", "BOUNDTO"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUNDTO 0", "BOUNDTO"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUNDTO -1", "BOUNDTO"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUNDTO x", "BOUNDTO"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUNDTO 99999999999999999999", "BOUNDTO"),
    ("RES.LOCK ACQUIRE KEY a 1s GRACE 1s", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND GRACE", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND GRACE -1", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND GRACE 2d", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND GRACE x", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND GRACE 1s GRACE 1s", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s BOUND SHARED GRACE 1s", "GRACE"),
    ("RES.LOCK ACQUIRE KEY a 1s META", "META"),
    ("RES.LOCK ACQUIRE KEY a 1s META x META y", "META is given twice"),
    ("RES.LOCK ACQUIRE KEY a 1s FENCE 1", "FENCE"),
    ("RES.LOCK ACQUIRE KEY a 1s surplus", "surplus"),
    ("RES.LOCK RENEW", "key"),
    ("RES.LOCK RENEW KEY", "owner"),
    ("RES.LOCK RENEW KEY a", "lease"),
    ("RES.LOCK RENEW KEY a 0", "lease"),
    ("RES.LOCK RENEW KEY a 2d", "lease"),
    ("RES.LOCK RENEW KEY a 1s FENCE", "FENCE"),
    ("RES.LOCK RENEW KEY a 1s FENCE 0", "FENCE"),
    ("RES.LOCK RENEW KEY a 1s FENCE -1", "FENCE"),
    ("RES.LOCK RENEW KEY a 1s FENCE 9007199254740992", "FENCE"),
    ("RES.LOCK RENEW KEY a 1s FENCE 1 FENCE 1", "FENCE is given twice"),
    ("RES.LOCK RENEW KEY a 1s RAISE", "RAISE"),
    ("RES.LOCK RENEW KEY a 1s RAISE 0", "RAISE"),
    ("RES.LOCK RENEW KEY a 1s RAISE 9007199254740992", "RAISE"),
    ("RES.LOCK RENEW KEY a 1s RAISE 1 RAISE 1", "RAISE is given twice"),
    ("RES.LOCK RENEW KEY a 1s WAIT 1s", "WAIT"),
    ("RES.LOCK RENEW KEY a 1s GRACE 1s", "GRACE"),
    ("RES.LOCK RENEW KEY a 1s BOUND GRACE 2d", "GRACE"),
    ("RES.LOCK RELEASE", "key"),
    ("RES.LOCK RELEASE KEY", "owner"),
    ("RES.LOCK RELEASE KEY a FENCE", "FENCE"),
    ("RES.LOCK RELEASE KEY a FENCE 0", "FENCE"),
    ("RES.LOCK RELEASE KEY a FENCE x", "FENCE"),
    ("RES.LOCK RELEASE KEY a surplus", "surplus"),
    ("RES.LOCK CHECK", "key"),
    ("RES.LOCK CHECK KEY", "owner"),
    ("RES.LOCK CHECK KEY a FENCE 0", "FENCE"),
    ("RES.LOCK CHECK KEY a b", "'b'"),
    ("RES.LOCK BREAK", "key"),
    ("RES.LOCK BREAK KEY ACTOR", "ACTOR"),
    ("RES.LOCK BREAK KEY REASON", "REASON"),
    ("RES.LOCK BREAK KEY ACTOR a ACTOR b", "ACTOR is given twice"),
    ("RES.LOCK BREAK KEY surplus", "surplus"),
    ("RES.LOCK INFO", "key"),
    ("RES.LOCK INFO KEY LIMIT", "LIMIT"),
    ("RES.LOCK INFO KEY LIMIT -1", "LIMIT"),
    ("RES.LOCK INFO KEY LIMIT 100001", "LIMIT"),
    ("RES.LOCK INFO KEY LIMIT 1 LIMIT 1", "LIMIT is given twice"),
    ("RES.LOCK HELP surplus", "surplus"),
    ("RES.HEARTBEAT surplus", "surplus"),
];

const BULKHEADS: &[(&str, &str)] = &[
    ("RES.BULKHEAD NOPE KEY", "unknown subcommand"),
    ("RES.BULKHEAD ENTER", "key"),
    ("RES.BULKHEAD ENTER KEY", "owner"),
    ("RES.BULKHEAD ENTER KEY a", "max"),
    ("RES.BULKHEAD ENTER KEY a 1", "lease"),
    ("RES.BULKHEAD ENTER KEY a 0 1s", "max"),
    ("RES.BULKHEAD ENTER KEY a -1 1s", "max"),
    ("RES.BULKHEAD ENTER KEY a 100001 1s", "max"),
    ("RES.BULKHEAD ENTER KEY a x 1s", "max"),
    ("RES.BULKHEAD ENTER KEY a 99999999999999999999 1s", "max"),
    ("RES.BULKHEAD ENTER KEY a 1 9ms", "lease"),
    ("RES.BULKHEAD ENTER KEY a 1 2d", "lease"),
    ("RES.BULKHEAD ENTER KEY a 1 1s WAIT 11m", "WAIT"),
    ("RES.BULKHEAD ENTER KEY a 1 1s QUEUE", "QUEUE"),
    ("RES.BULKHEAD ENTER KEY a 1 1s QUEUE -1", "QUEUE"),
    ("RES.BULKHEAD ENTER KEY a 1 1s QUEUE 1000001", "QUEUE"),
    ("RES.BULKHEAD ENTER KEY a 1 1s QUEUE 1 QUEUE 1", "QUEUE is given twice"),
    ("RES.BULKHEAD ENTER KEY a 1 1s PRIORITY", "PRIORITY"),
    ("RES.BULKHEAD ENTER KEY a 1 1s PRIORITY 10", "PRIORITY"),
    ("RES.BULKHEAD ENTER KEY a 1 1s PRIORITY -1", "PRIORITY"),
    ("RES.BULKHEAD ENTER KEY a 1 1s PRIORITY 1 PRIORITY 1", "PRIORITY is given twice"),
    ("RES.BULKHEAD ENTER KEY a 1 1s SHARED", "SHARED"),
    ("RES.BULKHEAD ENTER KEY a 1 1s BOUNDTO 0", "BOUNDTO"),
    ("RES.BULKHEAD RENEW KEY a", "lease"),
    ("RES.BULKHEAD RENEW KEY a 1s FENCE 0", "FENCE"),
    ("RES.BULKHEAD RENEW KEY a 1s RAISE 1", "RAISE"),
    ("RES.BULKHEAD LEAVE KEY", "owner"),
    ("RES.BULKHEAD LEAVE KEY a surplus", "surplus"),
    ("RES.BULKHEAD INFO KEY LIMIT x", "LIMIT"),
    ("RES.BULKHEAD HELP surplus", "surplus"),
];

/// The server itself counts arguments first, where it can.
#[track_caller]
fn is_refused(scene: &mut Scene, line: &str, word: &str) {
    let error = scene.main.refusal(line);
    let named = error.contains(word) || error.contains("wrong number of arguments");
    assert!(named && error.starts_with("ERR "), "{line}: {error}");
}

#[test]
fn malformed_calls_are_refused_by_name_and_change_nothing() {
    for (table, held) in [(LOCKS, "RES.LOCK ACQUIRE held a 1h"), (BULKHEADS, "RES.BULKHEAD ENTER held a 1 1h")] {
        let mut scene = Scene::driven();
        scene.ask(held);
        let before = scene.main.digest("held");
        let dirty = scene.main.info_number("persistence", "rdb_changes_since_last_save");
        for (line, word) in table {
            for key in ["none", "held"] {
                is_refused(&mut scene, &line.replace("KEY", key), word);
            }
        }
        assert_eq!(scene.main.integer("DBSIZE"), 1);
        assert_eq!(scene.main.digest("held"), before);
        assert_eq!(scene.main.info_number("persistence", "rdb_changes_since_last_save"), dirty);
        assert_eq!(scene.main.info_number("resil", "sessions"), 0);
        assert_eq!(scene.waiters(), 0);
    }
}

#[test]
fn texts_have_a_length() {
    let mut scene = Scene::driven();
    let (longest, too_long) = ("x".repeat(512), "x".repeat(513));
    for bad in ["", &too_long] {
        for words in [
            vec!["RES.LOCK", "ACQUIRE", "k", bad, "1s"],
            vec!["RES.LOCK", "RENEW", "k", bad, "1s"],
            vec!["RES.LOCK", "RELEASE", "k", bad],
            vec!["RES.LOCK", "CHECK", "k", bad],
            vec!["RES.BULKHEAD", "ENTER", "k", bad, "1", "1s"],
            vec!["RES.BULKHEAD", "LEAVE", "k", bad],
        ] {
            let error = error_text(&mut scene.main, &words);
            assert!(error.contains("owner") && error.contains("512"), "{error}");
        }
        for (name, words) in [
            ("META", vec!["RES.LOCK", "ACQUIRE", "k", "a", "1s", "META", bad]),
            ("ACTOR", vec!["RES.LOCK", "BREAK", "k", "ACTOR", bad]),
            ("REASON", vec!["RES.LOCK", "BREAK", "k", "REASON", bad]),
        ] {
            let error = error_text(&mut scene.main, &words);
            assert!(error.contains(name), "{error}");
        }
    }
    assert_eq!(scene.main.integer("DBSIZE"), 0);
    assert_eq!(scene.verdict(&format!("RES.LOCK ACQUIRE k {longest} 1s META {longest}")), "GRANTED");
    assert_eq!(scene.ask(&format!("RES.LOCK CHECK k {longest}")), "1");
}

#[test]
fn other_kinds_of_keys_are_left_alone() {
    let mut scene = Scene::driven();
    scene.main.say("SET text x");
    scene.ask("RES.LOCK ACQUIRE lock a 1h");
    scene.ask("RES.BULKHEAD ENTER bulkhead a 1 1h");
    let locks = [
        "ACQUIRE KEY a 1s",
        "ACQUIRE KEY a 1s WAIT 1s",
        "RENEW KEY a 1s",
        "RELEASE KEY a",
        "CHECK KEY a",
        "BREAK KEY",
        "INFO KEY",
    ];
    let bulkheads = ["ENTER KEY a 1 1s", "RENEW KEY a 1s", "LEAVE KEY a", "INFO KEY"];
    let wrong =
        locks.iter().flat_map(|line| ["text", "bulkhead"].map(|key| format!("RES.LOCK {}", line.replace("KEY", key))));
    let wrong = wrong.chain(
        bulkheads
            .iter()
            .flat_map(|line| ["text", "lock"].map(|key| format!("RES.BULKHEAD {}", line.replace("KEY", key)))),
    );
    for line in wrong {
        assert!(scene.main.refusal(&line).starts_with("WRONGTYPE "), "{line}");
    }
    assert_eq!(scene.main.text("GET text"), "x");
    assert_eq!(scene.ask("RES.LOCK CHECK lock a"), "1");
    assert_eq!(scene.main.text("TYPE lock"), "resil-lck");
    assert_eq!(scene.main.text("TYPE bulkhead"), "resil-blk");
}

#[test]
fn the_configuration_bounds_leases_and_waits() {
    let mut scene = Scene::driven();
    scene.main.say("CONFIG SET resil.max-lease 1000 resil.max-wait 500");
    is_refused(&mut scene, "RES.LOCK ACQUIRE k a 1001", "lease must be a duration from 10ms to 1s");
    is_refused(&mut scene, "RES.LOCK ACQUIRE k a 1s WAIT 501", "WAIT must be a duration");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 1s WAIT 500ms"), "GRANTED");
    is_refused(&mut scene, "RES.LOCK RENEW k a 2s", "lease");
    scene.main.say("CONFIG SET resil.max-lease 172800000");
    assert_eq!(scene.verdict("RES.LOCK RENEW k a 2d"), "GRANTED");
    for line in ["max-lease 9", "max-lease 0", "max-lease -1", "max-wait 0", "max-waiters 0", "max-lease 99999999999"] {
        scene.main.refusal(&format!("CONFIG SET resil.{line}"));
    }
    // At load, too.
    let server = Server::start(Options::default().module_args(["max-lease", "1000"]));
    assert!(server.connect().refusal("RES.LOCK ACQUIRE k a 1001").contains("lease"));
}

#[test]
fn an_operator_can_insist_that_nothing_is_evicted() {
    let mut scene = Scene::driven();
    scene.main.say("CONFIG SET resil.require-noeviction yes");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 1h"), "GRANTED");
    scene.main.say("CONFIG SET maxmemory-policy allkeys-lru");
    assert_eq!(scene.main.info_number("resil", "eviction_risk"), 1);
    for line in ["RES.LOCK ACQUIRE other a 1h", "RES.BULKHEAD ENTER other a 1 1h"] {
        assert!(scene.main.refusal(line).contains("maxmemory-policy"), "{line}");
    }
    assert_eq!(scene.verdict("RES.LOCK RENEW k a 1h"), "GRANTED");
    assert_eq!(scene.verdict("RES.LOCK RELEASE k a"), "RELEASED");
    scene.main.say("CONFIG SET maxmemory-policy noeviction");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE other a 1h"), "GRANTED");
    assert!(matches!(scene.main.say("EXISTS other"), Value::Int(1)));
}
