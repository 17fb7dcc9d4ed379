//! Holding: who has it, under which fence, in which mode, and what one learns who has it no longer.

use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::scene::{FIRST, Scene, fence};

#[test]
fn the_same_owner_gets_the_same_grant_again() {
    let mut scene = Scene::driven();
    let first = scene.fence("RES.LOCK ACQUIRE k a 10s");
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.ask("RES.LOCK ACQUIRE k a 2s"), format!("[GRANTED {first} 9000 0]"), "never cut short");
    assert_eq!(scene.ask("RES.LOCK ACQUIRE k a 20s"), format!("[GRANTED {first} 20000 0]"));
    assert_eq!(scene.ask("RES.LOCK ACQUIRE k a 20s WAIT 5s"), format!("[GRANTED {first} 20000 0]"));
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), format!("[GRANTED {first} 1000 0]"), "RENEW does what it says");
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s FENCE 7"), "[LOST taken]");
    assert_eq!(scene.ask(&format!("RES.LOCK RENEW k a 3s FENCE {first}")), format!("[GRANTED {first} 3000 0]"));
}

#[test]
fn fences_grow_over_every_end_of_a_key() {
    let mut scene = Scene::real();
    let mut last = 0;
    let mut grows = |reply: &str, what: &str| {
        let now = fence(reply);
        assert!(now > last, "{what}: {now} after {last}");
        last = now;
    };
    let ends =
        ["RES.LOCK RELEASE k a", "RES.LOCK BREAK k", "DEL k", "FLUSHALL", "FLUSHDB ASYNC", "DEBUG RELOAD", "SET k x"];
    for end in ends.into_iter().cycle().take(35) {
        let granted = scene.ask("RES.LOCK ACQUIRE k a 1h");
        grows(&granted, end);
        scene.ask(end);
        scene.main.say("DEL k");
        let granted = scene.ask("RES.LOCK ACQUIRE other b 1h");
        grows(&granted, "another key");
        scene.main.say("DEL other");
    }
    assert!(last < 1 << 53);
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let mut scene = Scene::driven();
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k r1 10s SHARED"), "GRANTED");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k r2 10s SHARED"), "GRANTED");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k w 10s"), "TAKEN");
    scene.ask("RES.LOCK RELEASE k r1");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k w 10s"), "TAKEN");
    scene.ask("RES.LOCK RELEASE k r2");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k w 10s"), "GRANTED");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k r1 10s SHARED"), "TAKEN");
}

#[test]
fn a_writer_that_becomes_a_reader_lets_readers_in() {
    let mut scene = Scene::driven();
    let first = scene.fence("RES.LOCK ACQUIRE k w 10s");
    let mut reader = scene.waits("RES.LOCK ACQUIRE k r 10s SHARED WAIT 1m");
    assert_eq!(scene.fence("RES.LOCK ACQUIRE k w 10s SHARED"), first);
    assert_eq!(reader.verdict(), "GRANTED");
    assert_eq!(scene.who("k").0, ["w", "r"]);
}

#[test]
fn a_reader_becomes_the_writer_only_if_it_is_alone() {
    let mut scene = Scene::driven();
    let first = scene.fence("RES.LOCK ACQUIRE k r1 10s SHARED");
    scene.ask("RES.LOCK ACQUIRE k r2 10s SHARED");
    for wait in ["", "WAIT 10s"] {
        let refused = scene.ask(&format!("RES.LOCK ACQUIRE k r1 10s {wait}"));
        assert!(refused.starts_with("-DEADLOCK "), "{refused}");
    }
    scene.ask("RES.LOCK RELEASE k r2");
    let mut writer = scene.waits("RES.LOCK ACQUIRE k w 10s WAIT 5s");
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k r1 10s"), "-DEADLOCK", "somebody waits");
    scene.main.clock_at_ms(5_000);
    assert_eq!(writer.verdict(), "TIMEOUT");
    assert_eq!(scene.fence("RES.LOCK ACQUIRE k r1 10s"), first);
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k r3 10s SHARED"), "TAKEN");
}

#[test]
fn one_who_holds_no_longer_learns_why() {
    let mut scene = Scene::driven();
    // Expired, and then taken by another: its own end comes first.
    let old = scene.fence("RES.LOCK ACQUIRE k a 1s");
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.ask("RES.LOCK CHECK k a"), "0");
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST expired]");
    assert_eq!(scene.ask("RES.LOCK RELEASE k a"), "[LOST expired]");
    let new = scene.fence("RES.LOCK ACQUIRE k b 1h");
    assert!(new > old);
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST expired]");
    assert_eq!(scene.ask(&format!("RES.LOCK RELEASE k a FENCE {old}")), "[LOST expired]");
    assert_eq!(scene.ask("RES.LOCK RENEW k stranger 1s"), "[LOST taken]");
    // A minute later it is forgotten.
    scene.main.clock_at_ms(62_000);
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST taken]");
    assert_eq!(scene.ask("RES.LOCK BREAK k"), "1");
    assert_eq!(scene.ask("RES.LOCK RENEW k b 1s"), "[LOST broken]");
    assert_eq!(scene.ask("RES.LOCK RELEASE k b"), "[LOST broken]");
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST absent]");
    // Released: RELEASE again is RELEASED again, RENEW is not.
    scene.ask("RES.LOCK ACQUIRE k c 1h");
    scene.main.clock_at_ms(64_000);
    assert_eq!(scene.ask("RES.LOCK RELEASE k c FENCE 1"), "[LOST taken]");
    assert_eq!(scene.ask("RES.LOCK RELEASE k c"), "[RELEASED 2000]");
    assert_eq!(scene.ask("RES.LOCK RELEASE k c"), "[RELEASED 2000]");
    assert_eq!(scene.ask("RES.LOCK RENEW k c 1s"), "[LOST released]");
    // Closed.
    let mut bound = scene.server.connect();
    bound.say("RES.LOCK ACQUIRE k d 1h BOUND");
    drop(bound);
    eventually("the close is seen", SOON, || scene.who("k").0.is_empty());
    assert_eq!(scene.ask("RES.LOCK RENEW k d 1s"), "[LOST closed]");
    // Deleted.
    scene.ask("RES.LOCK ACQUIRE k e 1h");
    scene.main.say("DEL k");
    assert_eq!(scene.ask("RES.LOCK RENEW k e 1s"), "[LOST absent]");
}

#[test]
fn a_lease_that_has_ended_is_not_revived() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    scene.main.clock_at_us(999_999);
    assert_eq!(scene.ask("RES.LOCK CHECK k a"), "1");
    scene.main.clock_at_us(1_000_000);
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST expired]");
    assert_eq!(scene.fence("RES.LOCK ACQUIRE k a 1s"), FIRST as u64 + 1_000_000);
}

#[test]
fn a_lock_is_a_guard_in_transactions_and_scripts() {
    let mut scene = Scene::driven();
    let replies =
        scene.at_once(&["RES.LOCK ACQUIRE k a 10s WAIT 5s", "RES.LOCK ACQUIRE k b 10s WAIT 5s", "RES.LOCK CHECK k a"]);
    assert_eq!(replies, format!("[[GRANTED {FIRST} 10000 0] [TAKEN a 10000 0] 1]"));
    let script = "return{redis.call('RES.LOCK','CHECK',KEYS[1],'a'),redis.call('RES.LOCK','ACQUIRE',KEYS[1],'b','1s','WAIT','5s')}";
    assert_eq!(scene.ask(&format!("EVAL {script} 1 k")), "[1 [TAKEN a 10000 0]]");
    let bound = "return{redis.pcall('RES.LOCK','ACQUIRE',KEYS[1],'c','1s','BOUND')}";
    let refused = scene.ask(&format!("EVAL {bound} 1 free"));
    assert!(refused.contains("BOUND"), "{refused}");
    assert_eq!(scene.main.integer("EXISTS free"), 0);
    let mut waiter = scene.waits("RES.LOCK ACQUIRE k w 10s WAIT 1m");
    assert_eq!(scene.ask("EVAL return(redis.call('RES.LOCK','RELEASE',KEYS[1],'a')) 1 k"), "[RELEASED 0]");
    assert_eq!(waiter.verdict(), "GRANTED");
}
