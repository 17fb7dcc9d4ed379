//! What a ledger may grow to. Full is for new entries alone: what is in it can always be taken and ended.

use std::time::Duration;

use resil_harness::eventually;

use crate::driven::Say;
use crate::letters::{count, given, ledger, plain_delays, state};
use crate::scene::Scene;

#[test]
fn a_full_ledger_refuses_entries_and_serves_its_own() {
    let mut scene = ledger();
    scene.main.say("CONFIG SET resil.max-ledger-entries 1000");
    for n in 0..1_000 {
        let reply = scene.ask(&format!("RES.DLQ FAIL d m{n} ERROR e PAYLOAD p AGGREGATE a"));
        assert!(reply.starts_with("[RETRY 1 "), "{n}: {reply}");
        let alerts = scene.ask("RES.DLQ INFO d ALERTS").matches("kind full").count();
        assert_eq!(alerts, usize::from(n >= 799), "after {} entries", n + 1);
    }
    for line in ["RES.DLQ FAIL d new ERROR e PAYLOAD p", "RES.DLQ PARK d new AGGREGATE a PAYLOAD p"] {
        let error = scene.ask(line);
        assert!(error.starts_with("-FULL "), "{line}: {error}");
    }
    assert_eq!(scene.main.info_number("resil", "dlq_full"), 2);
    assert_eq!(scene.ask("RES.DLQ FAIL d m7 ERROR e PAYLOAD p"), "[KNOWN waiting 1]");
    scene.main.clock_at_ms(500);
    let (id, fence) = given(&scene.ask("RES.DLQ TAKE d t 10s")).remove(0);
    assert!(scene.ask(&format!("RES.DLQ FAIL d {id} ERROR e FENCE {fence}")).starts_with("[RETRY 2 "));
    let (id, fence) = given(&scene.ask("RES.DLQ TAKE d u 10s")).remove(0);
    assert_eq!(scene.ask(&format!("RES.DLQ DONE d {id} {fence}")), "[DONE]");
    assert!(scene.ask("RES.DLQ FAIL d new ERROR e PAYLOAD p").starts_with("[RETRY 1 "));
}

#[test]
fn bytes_bound_a_ledger_and_maxmemory_all_ledgers() {
    let mut scene = ledger();
    scene.main.say("CONFIG SET resil.max-ledger-bytes 100000");
    let payload = "p".repeat(1_000);
    let fill = |scene: &mut Scene, key: &str| {
        let mut failed = |n: usize| scene.ask(&format!("RES.DLQ FAIL {key} m{n} ERROR e PAYLOAD {payload}"));
        (0..400).map(&mut failed).take_while(|reply| !reply.starts_with("-FULL ")).count()
    };
    let filled = fill(&mut scene, "d");
    assert!((60..100).contains(&filled), "{filled} entries of 1,000 bytes in 100,000");
    assert!(count(&mut scene, "d", "bytes") <= 100_000);
    // All ledgers together: one percent of 20 MB.
    scene.main.say("CONFIG SET resil.max-ledger-bytes 100000000");
    scene.main.say("CONFIG SET maxmemory 20000000");
    scene.main.say("CONFIG SET resil.max-ledgers-percent 1");
    plain_delays(&mut scene, "other");
    let others = fill(&mut scene, "other");
    assert!((60..100).contains(&others), "{others} entries of 1,000 bytes in the other half of 200,000");
    assert!(scene.main.info_number("resil", "dlq_bytes") <= 200_000);
    let more = format!("RES.DLQ FAIL d more ERROR e PAYLOAD {payload}");
    assert!(scene.ask(&more).starts_with("-FULL "));
    scene.ask("DEL other");
    // Valkey frees what is deleted in the background.
    let is_freed = || scene.main.info_number("resil", "dlq_bytes") <= 100_000;
    eventually("what is deleted is freed", Duration::from_secs(10), is_freed);
    assert!(scene.ask(&more).starts_with("[RETRY 1 "));
}

#[test]
fn bytes_follow_keys_that_are_renamed_restored_and_flushed() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD pppp");
    let bytes = |scene: &mut Scene| scene.main.info_number("resil", "dlq_bytes");
    let one = bytes(&mut scene);
    assert_eq!(one, count(&mut scene, "d", "bytes"));
    let dump: Vec<u8> = redis::from_redis_value(scene.main.say("DUMP d")).expect("bytes");
    resil_harness::ok(&mut scene.main, &[b"RESTORE".as_slice(), b"e", b"0", &dump]);
    assert_eq!(bytes(&mut scene), 2 * one);
    resil_harness::ok(&mut scene.main, &[b"RESTORE".as_slice(), b"e", b"0", &dump, b"REPLACE"]);
    assert_eq!(bytes(&mut scene), 2 * one);
    scene.ask("RENAME e f");
    assert_eq!(bytes(&mut scene), 2 * one);
    scene.ask("DEBUG RELOAD");
    assert_eq!(bytes(&mut scene), 2 * one);
    scene.ask("UNLINK f");
    assert_eq!(bytes(&mut scene), one);
    // Valkey frees in the background by default.
    scene.ask("FLUSHALL SYNC");
    assert_eq!(bytes(&mut scene), 0);
}

/// From here on the server uses more than it may, and evicts nothing.
fn exhaust(scene: &mut Scene) {
    scene.main.say("SETRANGE filler 8000000 x");
    let used = scene.main.info_number("memory", "used_memory");
    scene.main.say(&format!("CONFIG SET maxmemory {} maxmemory-policy noeviction", used - 4_000_000));
    assert!(scene.main.refusal("SET plain text").starts_with("OOM "));
}

#[test]
fn at_maxmemory_nothing_comes_and_everything_can_end() {
    let mut scene = ledger();
    for n in 0..4 {
        scene.ask(&format!("RES.DLQ FAIL d m{n} ERROR e PAYLOAD p AGGREGATE a"));
    }
    scene.main.clock_at_ms(500);
    exhaust(&mut scene);
    for line in [
        "RES.DLQ FAIL d new ERROR e PAYLOAD p",
        "RES.DLQ PARK d new AGGREGATE a PAYLOAD p",
        "RES.DLQ FAIL none new ERROR e",
        "RES.DLQ TAKE d z 1s WAIT 1s",
        "RES.DLQ DIAGNOSE d g CATEGORY contract CAUSE c FIX f ACTOR ann",
    ] {
        let error = scene.ask(line);
        assert!(error.starts_with("-OOM "), "{line}: {error}");
    }
    assert_eq!(scene.main.integer("EXISTS none"), 0);
    assert_eq!(scene.ask("RES.DLQ FAIL d m1 ERROR e PAYLOAD p"), "[KNOWN waiting 1]", "the source may acknowledge it");
    let both = given(&scene.ask("RES.DLQ TAKE d t 10s COUNT 3"));
    assert_eq!(scene.ask("RES.DLQ RENEW d t 20s"), "[GRANTED 3 20000]");
    assert_eq!(scene.ask(&format!("RES.DLQ DONE d {} {}", both[0].0, both[0].1)), "[DONE]");
    assert_eq!(scene.ask(&format!("RES.DLQ RETURN d {} {}", both[1].0, both[1].1)), "[RETURNED]");
    let failed = scene.ask(&format!("RES.DLQ FAIL d {} ERROR e FENCE {}", both[2].0, both[2].1));
    assert!(failed.starts_with("[RETRY 2 "), "{failed}");
    assert_eq!(scene.ask("RES.DLQ HOLD d m3 ON ACTOR ann"), "1");
    assert_eq!(state(&mut scene, "d", "new"), "nil");
}

#[test]
fn where_keys_can_be_evicted_ledgers_take_nothing() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        scene.main.say(&format!("CONFIG SET maxmemory-policy {policy}"));
        for line in ["RES.DLQ FAIL d new ERROR e", "RES.DLQ FAIL fresh new ERROR e"] {
            let error = scene.ask(line);
            assert!(error.starts_with("-FULL maxmemory-policy could evict this ledger"), "{policy}: {error}");
        }
        assert_eq!(scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p"), "[KNOWN waiting 1]");
    }
    for policy in ["volatile-lru", "noeviction"] {
        scene.main.say(&format!("CONFIG SET maxmemory-policy {policy}"));
        let reply = scene.ask(&format!("RES.DLQ FAIL d {policy} ERROR e"));
        assert!(reply.starts_with("[RETRY 1 "), "{policy}: {reply}");
    }
}
