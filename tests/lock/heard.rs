//! Heard: a bound lease is renewed while its connection is heard within the lease, and by nothing else.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::hearing::{Hearing, json};
use crate::scene::{Caller, Scene};

#[test]
fn one_heartbeat_keeps_a_hundred_short_leases() {
    let mut scene = Scene::real();
    let mut holder = Caller::new(&scene.server);
    for n in 0..100 {
        holder.connection.say(&format!("RES.LOCK ACQUIRE k{n} a 800ms BOUND"));
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        holder.send("RES.HEARTBEAT");
        assert_eq!(holder.reply(), "[100 []]");
        thread::sleep(Duration::from_millis(200));
    }
    // Silence: all are lost within a lease, and reported once.
    eventually("all are lost", SOON, || scene.main.info_number("resil", "bound") == 0);
    holder.send("RES.HEARTBEAT");
    let reported = holder.reply();
    assert_eq!(reported.matches(" expired]").count(), 100, "{reported}");
    holder.send("RES.HEARTBEAT");
    assert_eq!(holder.reply(), "[0 []]");
    assert_eq!(scene.main.info_number("resil", "sessions"), 0);
}

/// Any command of ours is a sign of life, whenever it comes within the lease.
#[test]
fn a_sign_of_life_late_in_the_lease_counts() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.connection.say("RES.LOCK ACQUIRE k a 600ms BOUND");
    for beat in 1..5 {
        scene.main.clock_at_ms(beat * 590);
        holder.send("RES.HEARTBEAT");
        assert_eq!(holder.reply(), "[1 []]", "beat {beat}");
    }
}

#[test]
fn a_silent_connection_loses_after_one_lease() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.connection.say("RES.LOCK ACQUIRE k a 1s BOUND");
    let mut next = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    scene.main.clock_at_ms(900);
    holder.connection.say("RES.LOCK CHECK k a");
    // The lease moves a third of it later, or sooner: here when it would end.
    scene.main.clock_at_ms(1_000);
    eventually("the lease has moved", SOON, || scene.ask("RES.LOCK INFO k").contains("remaining_ms 900 "));
    scene.main.clock_at_ms(1_899);
    assert_eq!(scene.who("k").0, ["a"]);
    scene.main.clock_at_ms(1_900);
    assert_eq!(next.verdict(), "GRANTED");
    holder.send("RES.HEARTBEAT");
    assert!(holder.reply().contains(" expired]"));
}

/// Other traffic is known to the second: it carries leases of three seconds, whenever in a second they began.
#[test]
fn plain_pings_carry_a_lease_of_three_seconds() {
    let mut scene = Scene::real();
    let mut holders: Vec<Caller> = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        if holders.len() < 10 && begun.elapsed() >= Duration::from_millis(100 * holders.len() as u64) {
            let n = holders.len();
            let mut holder = Caller::new(&scene.server);
            holder.connection.say(&format!("RES.LOCK ACQUIRE k{n} a 3s BOUND"));
            holders.push(holder);
        }
        for holder in &mut holders {
            holder.connection.say("PING");
        }
        thread::sleep(Duration::from_millis(100));
    }
    let held: Vec<bool> = (0..10).map(|n| scene.who(&format!("k{n}")).0 == ["a"]).collect();
    assert!(held.iter().all(|held| *held), "held after eight seconds of pings: {held:?}");
    eventually("silence loses them", SOON, || scene.main.info_number("resil", "bound") == 0);
}

#[test]
fn a_waiter_in_our_calls_is_heard() {
    let mut scene = Scene::real();
    let mut holder = Caller::new(&scene.server);
    holder.connection.say("RES.LOCK ACQUIRE mine a 200ms BOUND");
    scene.ask("RES.LOCK ACQUIRE theirs b 1h");
    holder.send("RES.LOCK ACQUIRE theirs a 1h WAIT 1s");
    assert_eq!(holder.verdict(), "TIMEOUT");
    assert_eq!(holder.connection.integer("RES.LOCK CHECK mine a"), 1);
}

#[test]
fn plain_leases_are_carried_by_nothing() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.connection.say("RES.LOCK ACQUIRE k a 1s");
    for ms in [300, 600, 900] {
        scene.main.clock_at_ms(ms);
        holder.connection.say("RES.HEARTBEAT");
    }
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.verdict("RES.LOCK ACQUIRE k b 1s"), "GRANTED");
}

/// The server hears of other traffic only when it looks. A sign of life that comes after a whole lease of silence moves no
/// lease: those that were looked at first end like all others.
#[test]
fn a_silence_ends_all_leases_in_session_and_keys() {
    const COUNT: usize = 200;
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:events");
    let mut holder = Caller::new(&scene.server);
    for n in 0..COUNT {
        holder.connection.say(&format!("RES.LOCK ACQUIRE k{n} a 10m BOUND"));
    }
    scene.main.clock_at_ms(3_600_000);
    let lost = hearing.exactly(COUNT);
    let keys: BTreeSet<String> = lost.iter().map(|(_, event)| json(event)["key"].to_string()).collect();
    assert_eq!(keys.len(), COUNT, "each is announced once");
    for n in 0..COUNT {
        assert_eq!(scene.ask(&format!("RES.LOCK CHECK k{n} a")), "0", "k{n}");
    }
    holder.send("RES.HEARTBEAT");
    let reported = holder.reply();
    assert_eq!((reported.matches(" expired]").count(), reported.starts_with("[0 ")), (COUNT, true), "{reported}");
}
