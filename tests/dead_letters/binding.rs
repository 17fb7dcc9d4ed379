//! Leases that lapse: of takers that fell silent, that were killed, and of messages that kill their takers.

use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::letters::{given, ledger, state, take};
use crate::scene::{Caller, Scene};

#[test]
fn a_lease_that_ends_silently_is_a_lapse() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let (_, fence) = take(&mut scene, "d t 10s");
    scene.main.clock_at_ms(10_500);
    // The backoff is that of attempt and lapses together.
    assert_eq!(scene.ask("RES.DLQ TAKE d u 10s"), "[NONE 1000]");
    assert_eq!(scene.ask("RES.DLQ RENEW d t 10s"), "[LOST absent]");
    // Its taker was only slow: its word counts until another has the entry.
    assert_eq!(scene.ask(&format!("RES.DLQ DONE d m {fence}")), "[DONE]");
    assert_eq!(state(&mut scene, "d", "m"), "done");
}

#[test]
fn a_message_that_kills_its_taker_dies_alone() {
    let mut scene = ledger();
    for id in ["bad", "good", "fine"] {
        scene.ask(&format!("RES.DLQ FAIL d {id} ERROR e PAYLOAD p"));
    }
    scene.main.clock_at_ms(500);
    assert_eq!(given(&scene.ask("RES.DLQ TAKE d t0 10s COUNT 10")).len(), 3);
    let mut now = 10_500;
    let mut lapses = 1;
    // All lapsed together; from now on each is given out alone.
    let mut done = Vec::new();
    while state(&mut scene, "d", "bad") != "dead" {
        now += 60_000;
        scene.main.clock_at_ms(now);
        for round in 0..4 {
            let reply = scene.ask(&format!("RES.DLQ TAKE d t{now}-{round} 10s COUNT 10"));
            if reply.starts_with("[NONE") {
                break;
            }
            let all = given(&reply);
            assert_eq!(all.len(), 1, "{reply}");
            if all[0].0 != "bad" {
                assert_eq!(scene.ask(&format!("RES.DLQ DONE d {} {}", all[0].0, all[0].1)), "[DONE]");
                done.push(all[0].0.clone());
            }
        }
        now += 10_000;
        scene.main.clock_at_ms(now);
        lapses += 1;
        assert!(lapses <= 3, "it died after {lapses} lapses");
    }
    assert_eq!((lapses, done.len()), (3, 2));
    let entry = scene.ask("RES.DLQ GET d bad");
    assert!(entry.contains("reason crash") && entry.contains("lapses 3"), "{entry}");
}

#[test]
fn the_entries_of_a_closed_connection_lapse_at_once() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.ask("RES.DLQ FAIL d n ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let mut taker = Caller::new(&scene.server);
    taker.send("RES.DLQ TAKE d t 1h COUNT 2 BOUND");
    assert_eq!(given(&taker.reply()).len(), 2);
    drop(taker);
    eventually("both lapse", SOON, || {
        state(&mut scene, "d", "m") == "waiting" && state(&mut scene, "d", "n") == "waiting"
    });
    scene.main.clock_at_ms(1_500);
    let reply = scene.ask("RES.DLQ TAKE d u 10s COUNT 2");
    assert!(reply.contains("[m ") && reply.contains(" 1 1 p ["), "one lapse, given out alone: {reply}");
    assert_eq!(given(&reply).len(), 1);
}

#[test]
fn grace_leaves_time_to_come_back() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let mut taker = Caller::new(&scene.server);
    taker.send("RES.DLQ TAKE d t 1h BOUND GRACE 5s");
    assert_eq!(given(&taker.reply()).len(), 1);
    drop(taker);
    eventually("its connection is known to be gone", SOON, || scene.main.info_number("resil", "sessions") == 0);
    assert_eq!(state(&mut scene, "d", "m"), "taken");
    // The same token on a new connection has it again.
    let mut back = Caller::new(&scene.server);
    back.send("RES.DLQ RENEW d t 1h BOUND GRACE 5s");
    assert_eq!(back.reply(), "[GRANTED 1 3600000]");
    scene.main.clock_at_ms(20_000);
    assert_eq!(state(&mut scene, "d", "m"), "taken");
    drop(back);
    eventually("its connection is known to be gone", SOON, || scene.main.info_number("resil", "sessions") == 0);
    scene.main.clock_at_ms(25_001);
    eventually("it lapses", SOON, || state(&mut scene, "d", "m") == "waiting");
}

#[test]
fn one_connection_can_be_bound_to_another() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let alive = Caller::new(&scene.server);
    let reply = scene.ask(&format!("RES.DLQ TAKE d t 1h BOUNDTO {}", alive.id));
    assert_eq!(given(&reply).len(), 1);
    drop(alive);
    eventually("it lapses", SOON, || state(&mut scene, "d", "m") == "waiting");
}

#[test]
fn a_waiter_is_bound_from_its_grant_on() {
    let mut scene = ledger();
    let mut waiter = scene.waits("RES.DLQ TAKE d t 1h WAIT 1m BOUND");
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    assert_eq!(waiter.verdict(), "TAKEN");
    drop(waiter);
    eventually("it lapses", SOON, || state(&mut scene, "d", "m") == "waiting");
}

#[test]
fn a_settled_batch_is_bound_no_longer() {
    let mut scene = Scene::driven();
    scene.ask("RES.DLQ CONFIG d JITTER none ACTOR a");
    for id in ["m", "n"] {
        scene.ask(&format!("RES.DLQ FAIL d {id} ERROR e PAYLOAD p"));
    }
    scene.main.clock_at_ms(500);
    let mut taker = Caller::new(&scene.server);
    taker.send("RES.DLQ TAKE d t 1h COUNT 2 BOUND");
    let both = given(&taker.reply());
    assert_eq!(scene.main.info_number("resil", "bound"), 1);
    scene.ask(&format!("RES.DLQ DONE d m {}", both[0].1));
    assert_eq!(scene.main.info_number("resil", "bound"), 1, "the other is still its own");
    assert!(scene.ask(&format!("RES.DLQ FAIL d n ERROR e FENCE {}", both[1].1)).starts_with("[RETRY 2 "));
    assert_eq!(scene.main.info_number("resil", "bound"), 0);
    drop(taker);
    scene.main.clock_at_ms(1_500);
    let reply = scene.ask("RES.DLQ TAKE d u 10s");
    assert!(reply.contains(" 2 0 p ["), "no lapse: {reply}");
}
