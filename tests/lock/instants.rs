//! The same millisecond: a lease and somebody's patience end together, or a waiter is gone as its turn comes. Ten
//! thousand times: everybody is answered exactly once, and nothing is held by nobody.

use std::thread;
use std::time::Duration;

use resil_harness::{Server, eventually};

use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene, verdict};
use crate::seed;

const THREADS: usize = 4;
const KEYS: usize = 100;
const ROUNDS: usize = 25;

/// Who waited at the instant the lease ends gets the place: the lease ends first.
#[test]
fn at_the_same_driven_instant_the_waiter_gets_it() {
    let mut scene = Scene::driven();
    let mut callers: Vec<Caller> = (0..KEYS).map(|_| Caller::new(&scene.server)).collect();
    for round in 0..20 {
        for key in 0..KEYS {
            assert_eq!(scene.verdict(&format!("RES.LOCK ACQUIRE k{key} h{round} 10ms")), "GRANTED");
        }
        for (key, caller) in callers.iter_mut().enumerate() {
            caller.send(&format!("RES.LOCK ACQUIRE k{key} w 1h WAIT 10ms"));
        }
        eventually("all stand in the queue", SOON, || scene.waiters() == KEYS as i64);
        scene.main.clock_at_ms((round + 1) * 10);
        for (key, caller) in callers.iter_mut().enumerate() {
            assert_eq!(caller.verdict(), "GRANTED");
            caller.is_in_step();
            assert_eq!(scene.verdict(&format!("RES.LOCK RELEASE k{key} w")), "RELEASED");
        }
    }
    assert_eq!(scene.waiters(), 0);
}

/// Leases of 20 ms, and waits that end within a few milliseconds around their end.
fn race(server: &Server, thread: usize, mut chance: fastrand::Rng) -> (usize, usize) {
    let mut main = Caller::new(server);
    let mut callers: Vec<Caller> = (0..KEYS).map(|_| Caller::new(server)).collect();
    let (mut granted, mut timed_out) = (0, 0);
    for round in 0..ROUNDS {
        for (key, caller) in callers.iter_mut().enumerate() {
            main.send(&format!("RES.LOCK ACQUIRE k{thread}:{key} h{round} 20ms"));
            caller.send(&format!("RES.LOCK ACQUIRE k{thread}:{key} w{round} 1h WAIT {}us", chance.u32(18_000..21_000)));
        }
        for (key, caller) in callers.iter_mut().enumerate() {
            let held = main.verdict();
            let reported = caller.verdict();
            // Whose call came first is chance; the waiter's may have, and then the holder's is TAKEN.
            match (held.as_str(), reported.as_str()) {
                ("GRANTED", "TIMEOUT") => timed_out += 1,
                ("GRANTED" | "TAKEN", "GRANTED") => granted += 1,
                other => panic!("k{thread}:{key}, round {round}: {other:?}"),
            }
            caller.is_in_step();
            if reported == "GRANTED" {
                caller.send(&format!("RES.LOCK RELEASE k{thread}:{key} w{round}"));
                assert_eq!(caller.verdict(), "RELEASED");
            }
        }
        // Free at once, or when the holder's lease ends.
        for key in 0..KEYS {
            main.send(&format!("RES.LOCK ACQUIRE k{thread}:{key} probe 1h WAIT 5s"));
            assert_eq!(main.verdict(), "GRANTED", "k{thread}:{key}, round {round}");
            main.send(&format!("RES.LOCK RELEASE k{thread}:{key} probe"));
            assert_eq!(main.verdict(), "RELEASED");
        }
        main.is_in_step();
    }
    (granted, timed_out)
}

#[test]
fn ten_thousand_leases_and_waits_end_once_each() {
    let mut scene = Scene::real();
    let mut chance = seed::seeded("leases and waits that end together");
    let server = &scene.server;
    let sums = thread::scope(|scope| {
        let racers: Vec<_> = (0..THREADS).map(|n| (n, chance.fork())).collect();
        let racers: Vec<_> =
            racers.into_iter().map(|(n, chance)| scope.spawn(move || race(server, n, chance))).collect();
        racers.into_iter().map(|racer| racer.join().expect("no racer fails")).collect::<Vec<_>>()
    });
    let (granted, timed_out) = sums.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(granted + timed_out, THREADS * KEYS * ROUNDS);
    seed::say(&format!("{granted} granted, {timed_out} timed out"));
    assert_eq!(scene.waiters(), 0);
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
}

/// All wait, and as their turn comes their sockets close. `lease` bounds what a reply into a dead socket can cost.
fn vanish_at_the_hand_over(bound: &str, lease: &str, rounds: usize) {
    let mut scene = Scene::real();
    let mut chance = seed::seeded("sockets that close at the hand-over");
    for round in 0..rounds {
        for key in 0..KEYS {
            assert_eq!(
                scene.verdict(&format!("RES.LOCK ACQUIRE k{key} h 1h WAIT 5s")),
                "GRANTED",
                "k{key}, round {round}"
            );
        }
        let mut callers: Vec<Caller> = (0..KEYS).map(|_| Caller::new(&scene.server)).collect();
        for (key, caller) in callers.iter_mut().enumerate() {
            caller.send(&format!("RES.LOCK ACQUIRE k{key} w{round} {lease} WAIT 1m {bound}"));
        }
        eventually("all stand in the queue", SOON, || scene.waiters() == KEYS as i64);
        let mut releaser = Caller::new(&scene.server);
        let pause = Duration::from_micros(chance.u64(0..400));
        thread::scope(|scope| {
            scope.spawn(|| (0..KEYS).for_each(|key| releaser.send(&format!("RES.LOCK RELEASE k{key} h"))));
            thread::sleep(pause);
            drop(callers);
        });
        (0..KEYS).for_each(|_| assert_eq!(releaser.verdict(), "RELEASED"));
    }
    scene.nobody_waits();
    for key in 0..KEYS {
        eventually("nobody holds", SOON, || scene.who(&format!("k{key}")).0.is_empty());
    }
    let taken_back = scene.main.info_number("resil", "grants_taken_back");
    seed::say(&format!("{taken_back} grants taken back"));
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
    assert_eq!(scene.main.info_number("resil", "bound"), 0);
}

#[test]
fn a_bound_waiter_that_vanishes_in_turn_holds_nothing() {
    vanish_at_the_hand_over("BOUND", "1h", 20);
}

#[test]
fn a_waiter_that_vanishes_in_turn_holds_only_its_lease() {
    vanish_at_the_hand_over("", "50ms", 20);
}

/// Killed by the same transaction that hands over: the grant is never written, so it is taken back though unbound.
#[test]
fn a_hundred_undeliverable_grants_are_handed_on() {
    let mut scene = Scene::driven();
    for round in 0..20 {
        scene.ask("RES.LOCK ACQUIRE k h 1h");
        let doomed: Vec<Caller> = (0..5).map(|n| scene.waits(&format!("RES.LOCK ACQUIRE k d{n} 1h WAIT 1m"))).collect();
        let mut heir = scene.waits("RES.LOCK ACQUIRE k heir 1h WAIT 1m");
        let mut lines = vec!["RES.LOCK RELEASE k h".to_owned()];
        lines.extend(doomed.iter().map(|caller| format!("CLIENT UNBLOCK {} ERROR", caller.id)));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        scene.at_once(&lines);
        for mut caller in doomed {
            assert_eq!(verdict(&caller.reply()), "-UNBLOCKED", "round {round}");
            caller.is_in_step();
        }
        assert_eq!(heir.verdict(), "GRANTED", "round {round}");
        scene.ask("RES.LOCK RELEASE k heir");
    }
    assert_eq!(scene.main.info_number("resil", "grants_taken_back"), 20);
}
