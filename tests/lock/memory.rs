//! Memory: what a lock costs, what works when there is none left, and what INFO counts.

use crate::driven::Say;
use crate::scene::Scene;

/// From here on the server uses more than it may, and evicts nothing.
fn exhaust(scene: &mut Scene) {
    scene.main.say("SETRANGE filler 8000000 x");
    let used = scene.main.info_number("memory", "used_memory");
    scene.main.say(&format!("CONFIG SET maxmemory {} maxmemory-policy noeviction", used - 4_000_000));
    assert!(scene.main.refusal("SET plain text").starts_with("OOM "));
}

#[test]
fn a_held_lock_is_small() {
    let mut scene = Scene::real();
    scene.ask("RES.LOCK ACQUIRE k worker-7 30s");
    let bytes = scene.main.integer("MEMORY USAGE k");
    assert!((50..400).contains(&bytes), "{bytes} bytes");
}

#[test]
fn at_maxmemory_holdings_last_and_nothing_new_begins() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    scene.ask("RES.BULKHEAD ENTER b a 2 1h");
    let mut waiter = scene.waits("RES.LOCK ACQUIRE k w 1h WAIT 1m");
    exhaust(&mut scene);
    for line in [
        "RES.LOCK ACQUIRE new a 1h",
        "RES.LOCK ACQUIRE new a 1h WAIT 1s",
        "RES.BULKHEAD ENTER new a 1 1h",
        "RES.BULKHEAD ENTER b c 2 1h",
    ] {
        let error = scene.ask(line);
        assert!(error.starts_with("-OOM "), "{line}: {error}");
    }
    assert_eq!(scene.main.integer("EXISTS new"), 0);
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 1h"), "GRANTED");
    assert_eq!(scene.verdict("RES.LOCK RENEW k a 1h"), "GRANTED");
    assert_eq!(scene.ask("RES.LOCK CHECK k a"), "1");
    assert_eq!(scene.verdict("RES.BULKHEAD RENEW b a 1h"), "GRANTED");
    assert_eq!(scene.verdict("RES.LOCK RELEASE k a"), "RELEASED");
    assert_eq!(waiter.verdict(), "GRANTED", "who waited is served");
    assert_eq!(scene.verdict("RES.BULKHEAD LEAVE b a"), "RELEASED");
    assert_eq!(scene.ask("RES.LOCK BREAK k"), "1");
}

/// A denial needs no memory.
#[test]
fn at_maxmemory_a_denial_is_still_a_denial() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    scene.ask("RES.BULKHEAD ENTER b a 1 1h");
    exhaust(&mut scene);
    assert_eq!(scene.ask("RES.LOCK ACQUIRE k b 1h"), "[TAKEN a 3600000 0]");
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b c 1 1h"), "[FULL 1 0 3600000]");
}

/// Leases that ended long before their time leave nothing behind.
#[test]
fn deleted_locks_leave_nothing_behind() {
    let mut scene = Scene::real();
    let churn = |scene: &mut Scene, from: usize| {
        let mut pipe = redis::pipe();
        for n in from..from + 20_000 {
            pipe.cmd("RES.LOCK").arg("ACQUIRE").arg(format!("lock:{n}")).arg("a").arg("1d").ignore();
            pipe.cmd("DEL").arg(format!("lock:{n}")).ignore();
        }
        pipe.query::<()>(&mut scene.main).expect("all are granted");
        scene.main.info_number("memory", "used_memory")
    };
    churn(&mut scene, 0);
    let before = churn(&mut scene, 20_000);
    let after = churn(&mut scene, 40_000);
    assert!(after - before < 200_000, "{} bytes more after 20,000 more locks that are gone", after - before);
}

#[test]
fn info_counts_what_happened() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    scene.ask("RES.LOCK ACQUIRE k b 1h");
    let mut waiter = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let mut impatient = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 5ms");
    assert_eq!(scene.main.info_number("resil", "lock_keys"), 1);
    assert_eq!(scene.waiters(), 2);
    scene.main.clock_at_ms(7);
    assert_eq!(impatient.verdict(), "TIMEOUT");
    scene.ask("RES.LOCK RENEW k a 1h");
    scene.ask("RES.LOCK RENEW k x 1h");
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(waiter.verdict(), "GRANTED");
    scene.ask("RES.LOCK BREAK k");
    for (field, wanted) in [
        ("lock_granted", 2),
        ("lock_denied", 1),
        ("lock_waited", 2),
        ("lock_timed_out", 1),
        ("lock_renewed", 1),
        ("lock_released", 1),
        ("lock_lost", 1),
        ("lock_stale", 1),
        ("blocked_waiters", 0),
        ("sessions", 0),
        ("bound", 0),
        ("internal_errors", 0),
    ] {
        assert_eq!(scene.main.info_number("resil", field), wanted, "{field}");
    }
    let waits = scene.main.info("resil", "resil_lock_wait_ms");
    assert!(waits.starts_with("count=1,sum=7,"), "{waits}");
    let holds = scene.main.info("resil", "resil_lock_hold_ms");
    assert!(holds.starts_with("count=2,sum=7,"), "{holds}");
}
