//! Waiting: in the server, in a queue, until it is one's turn, one's patience ends, or one is sent away.

use crate::driven::Say;
use crate::scene::{Caller, Scene, verdict};

/// What ends the holding of `a` in `k`.
pub const WAYS_TO_BECOME_FREE: [&str; 8] = [
    "RES.LOCK RELEASE k a",
    "RES.LOCK BREAK k",
    "DEL k",
    "UNLINK k",
    "FLUSHDB",
    "FLUSHALL",
    "FLUSHDB ASYNC",
    "FLUSHALL ASYNC",
];

#[test]
fn the_next_in_the_queue_has_it_at_once() {
    let mut scene = Scene::driven();
    for way in WAYS_TO_BECOME_FREE {
        assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 1h"), "GRANTED", "{way}");
        let mut next = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
        let mut last = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
        scene.ask(way);
        assert_eq!(next.verdict(), "GRANTED", "{way}");
        assert_eq!(scene.who("k"), (vec!["b".to_owned()], vec!["c".to_owned()]), "{way}");
        scene.ask("RES.LOCK RELEASE k b");
        assert_eq!(last.verdict(), "GRANTED", "{way}");
        next.is_in_step();
        last.is_in_step();
        scene.ask("RES.LOCK RELEASE k c");
        assert_eq!(scene.waiters(), 0, "{way}");
    }
}

#[test]
fn the_end_of_a_lease_hands_on_by_itself() {
    let mut scene = Scene::real();
    scene.ask("RES.LOCK ACQUIRE k a 100ms");
    let mut next = scene.waits("RES.LOCK ACQUIRE k b 50ms WAIT 5s");
    let mut last = scene.waits("RES.LOCK ACQUIRE k c 50ms WAIT 5s");
    // Nobody says anything any more.
    assert_eq!(next.verdict(), "GRANTED");
    assert_eq!(last.verdict(), "GRANTED");
    next.is_in_step();
    last.is_in_step();
}

#[test]
fn the_close_of_a_bound_holder_hands_on_by_itself() {
    let mut scene = Scene::driven();
    let mut holder = scene.server.connect();
    holder.say("RES.LOCK ACQUIRE k a 1h BOUND");
    let mut next = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    drop(holder);
    assert_eq!(next.verdict(), "GRANTED");
}

#[test]
fn a_waiting_writer_is_not_overtaken_and_readers_go_together() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k r0 1h SHARED");
    let mut writer = scene.waits("RES.LOCK ACQUIRE k w 1h WAIT 1m");
    assert_eq!(scene.ask("RES.LOCK ACQUIRE k r1 1h SHARED"), "[TAKEN r0 3600000 1]");
    let mut readers: Vec<Caller> =
        (1..4).map(|n| scene.waits(&format!("RES.LOCK ACQUIRE k r{n} 1h SHARED WAIT 1m"))).collect();
    let mut second = scene.waits("RES.LOCK ACQUIRE k w2 1h WAIT 1m");
    scene.ask("RES.LOCK RELEASE k r0");
    assert_eq!(writer.verdict(), "GRANTED");
    assert_eq!(scene.who("k").0, ["w"]);
    scene.ask("RES.LOCK RELEASE k w");
    for reader in &mut readers {
        assert_eq!(reader.verdict(), "GRANTED");
    }
    assert_eq!(scene.who("k"), (vec!["r1".into(), "r2".into(), "r3".into()], vec!["w2".into()]));
    for n in 1..4 {
        scene.ask(&format!("RES.LOCK RELEASE k r{n}"));
    }
    assert_eq!(second.verdict(), "GRANTED");
}

#[test]
fn readers_behind_a_writer_that_gives_up_are_let_in() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k r0 1h SHARED");
    let mut writer = scene.waits("RES.LOCK ACQUIRE k w 1h WAIT 1s");
    let mut reader = scene.waits("RES.LOCK ACQUIRE k r1 1h SHARED WAIT 1m");
    scene.main.clock_at_ms(1_000);
    assert_eq!(writer.reply(), "[TIMEOUT r0 3599000 1]");
    assert_eq!(reader.verdict(), "GRANTED");
}

#[test]
fn patience_ends_to_the_millisecond_and_in_its_own_order() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut long = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 2s");
    let mut short = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1s");
    scene.main.clock_at_us(999_999);
    assert_eq!(scene.who("k").1, ["b", "c"]);
    scene.main.clock_at_us(1_000_000);
    assert_eq!(short.reply(), "[TIMEOUT a 3599000 1]");
    assert_eq!(scene.who("k").1, ["b"]);
    scene.main.clock_at_ms(2_000);
    assert_eq!(long.reply(), "[TIMEOUT a 3598000 0]");
    short.is_in_step();
    long.is_in_step();
}

#[test]
fn patience_ends_by_the_real_clock_too() {
    let mut scene = Scene::real();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let begun = std::time::Instant::now();
    let mut waiter = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 100ms");
    assert_eq!(waiter.verdict(), "TIMEOUT");
    let waited = begun.elapsed().as_millis();
    assert!((100..1_000).contains(&waited), "{waited} ms");
}

#[test]
fn asking_again_keeps_the_position_and_supersedes_the_older_call() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut older = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1s");
    let mut other = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    let mut newer = Caller::new(&scene.server);
    newer.send("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    assert_eq!(older.verdict(), "-SUPERSEDED");
    older.is_in_step();
    assert_eq!(scene.who("k").1, ["b", "c"]);
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.who("k").1, ["b", "c"], "the new WAIT counts");
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(newer.verdict(), "GRANTED");
    scene.ask("RES.LOCK RELEASE k b");
    assert_eq!(other.verdict(), "GRANTED");
    newer.is_in_step();
}

#[test]
fn a_release_by_a_waiter_supersedes_its_call() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut leaves = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let mut stays = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    assert_eq!(scene.ask("RES.LOCK RELEASE k b FENCE 1"), "[LOST taken]", "a fence names no wait");
    assert_eq!(scene.who("k").1, ["b", "c"]);
    assert_eq!(scene.ask("RES.LOCK RELEASE k b"), "[RELEASED 0]");
    assert_eq!(leaves.verdict(), "-SUPERSEDED");
    leaves.is_in_step();
    assert_eq!(scene.who("k").1, ["c"]);
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(stays.verdict(), "GRANTED");
    assert_eq!(scene.ask("RES.LOCK CHECK k b"), "0");

    scene.ask("RES.BULKHEAD ENTER p a 1 1h");
    let mut leaves = scene.waits("RES.BULKHEAD ENTER p b 1 1h WAIT 1m QUEUE 5");
    assert_eq!(scene.ask("RES.BULKHEAD LEAVE p b"), "[RELEASED 0]");
    assert_eq!(leaves.verdict(), "-SUPERSEDED");
    assert_eq!(scene.ask("RES.BULKHEAD LEAVE p b"), "[LOST absent]");
}

#[test]
fn asking_again_without_waiting_leaves_the_queue() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut older = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let mut other = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    assert_eq!(scene.ask("RES.LOCK ACQUIRE k b 1h"), "[TAKEN a 3600000 1]");
    assert_eq!(older.verdict(), "-SUPERSEDED");
    assert_eq!(scene.who("k").1, ["c"]);
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(other.verdict(), "GRANTED");
    older.is_in_step();
}

#[test]
fn in_transactions_scripts_and_functions_nobody_waits() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    assert_eq!(scene.at_once(&["RES.LOCK ACQUIRE k b 1h WAIT 1m", "PING"]), "[[TAKEN a 3600000 0] PONG]");
    let call = "redis.call('RES.LOCK','ACQUIRE',KEYS[1],'b','1h','WAIT','1m')";
    assert_eq!(scene.ask(&format!("EVAL return({call}) 1 k")), "[TAKEN a 3600000 0]");
    let call = "redis.call('RES.LOCK','ACQUIRE',k[1],'b','1h','WAIT','1m')";
    let code = format!("#!lua name=lib\nredis.register_function('f', function(k) return {call} end)");
    resil_harness::ok(&mut scene.main, &["FUNCTION", "LOAD", &code]);
    assert_eq!(scene.ask("FCALL f 1 k"), "[TAKEN a 3600000 0]");
    let replies = scene.at_once(&["RES.BULKHEAD ENTER b x 1 1h", "RES.BULKHEAD ENTER b y 1 1h WAIT 1m"]);
    assert_eq!(replies, "[[GRANTED 1 0 3600000 0] [FULL 1 0 3600000]]");
    assert_eq!(scene.waiters(), 0);
}

#[test]
fn a_key_that_becomes_something_else_sends_its_waiters_away() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut waiter = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    scene.main.say("SET k text");
    assert_eq!(waiter.verdict(), "-TRYAGAIN");
    waiter.is_in_step();
    assert_eq!(scene.main.text("GET k"), "text");
}

#[test]
fn the_queue_has_an_end() {
    let mut scene = Scene::driven();
    scene.main.say("CONFIG SET resil.max-waiters 2");
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let _two: Vec<Caller> = (0..2).map(|n| scene.waits(&format!("RES.LOCK ACQUIRE k w{n} 1h WAIT 1m"))).collect();
    let reply = scene.ask("RES.LOCK ACQUIRE k late 1h WAIT 1m");
    assert_eq!(reply, "[TAKEN a 3600000 2]");
    assert_eq!(verdict(&reply), "TAKEN");
}
