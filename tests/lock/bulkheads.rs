//! Bulkheads: so many at once in the whole fleet, so many in the queue, and permits that come back by themselves.

use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene};

#[test]
fn at_most_max_are_inside_with_one_permit_each() {
    let mut scene = Scene::driven();
    for n in 1..=3 {
        assert_eq!(scene.ask(&format!("RES.BULKHEAD ENTER b o{n} 3 {n}s")), format!("[GRANTED {n} 0 {n}000 0]"));
    }
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b o4 3 1s"), "[FULL 3 0 1000]", "the first lease to end");
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b o3 3 1s"), "[GRANTED 3 0 3000 0]", "the same permit");
    assert_eq!(scene.ask("RES.BULKHEAD LEAVE b o1"), "[RELEASED 0]");
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b o4 3 9s"), "[GRANTED 3 0 9000 0]");
}

#[test]
fn a_smaller_max_evicts_nobody_and_larger_admits_more() {
    let mut scene = Scene::driven();
    for n in 0..4 {
        scene.ask(&format!("RES.BULKHEAD ENTER b o{n} 4 1h"));
    }
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b late 2 1h"), "[FULL 4 0 3600000]");
    assert_eq!(scene.who_of("RES.BULKHEAD", "b").0.len(), 4);
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b late 5 1h"), "[GRANTED 5 0 3600000 0]");
    let mut waiter = scene.waits("RES.BULKHEAD ENTER b small 2 1h WAIT 1m QUEUE 9");
    for owner in ["o0", "o1", "o2"] {
        scene.ask(&format!("RES.BULKHEAD LEAVE b {owner}"));
        assert_eq!(scene.who_of("RES.BULKHEAD", "b").1, ["small"]);
    }
    scene.ask("RES.BULKHEAD LEAVE b o3");
    assert_eq!(waiter.reply(), "[GRANTED 2 0 3600000 0]");
}

#[test]
fn a_raised_max_serves_those_with_the_old_one() {
    let mut scene = Scene::driven();
    scene.ask("RES.BULKHEAD ENTER b a 1 1h");
    let mut first = scene.waits("RES.BULKHEAD ENTER b b 1 1h WAIT 1m QUEUE 9");
    let mut second = scene.waits("RES.BULKHEAD ENTER b c 1 1h WAIT 1m QUEUE 9");
    let mut third = scene.waits("RES.BULKHEAD ENTER b d 1 1h WAIT 1m QUEUE 9");
    // Two who wait come before the caller who raised it.
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b e 3 1h"), "[FULL 3 1 3600000]");
    assert_eq!((first.verdict(), second.verdict()), ("GRANTED".to_owned(), "GRANTED".to_owned()));
    // A holder who renews by asking again with a larger one does the same.
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b a 4 1h"), "[GRANTED 4 0 3600000 0]");
    assert_eq!(third.verdict(), "GRANTED");
}

#[test]
fn inside_and_queued_are_never_more_than_max_and_queue() {
    let mut scene = Scene::driven();
    scene.ask("RES.BULKHEAD ENTER b a 2 1h");
    scene.ask("RES.BULKHEAD ENTER b b 2 1h");
    let _first = scene.waits("RES.BULKHEAD ENTER b c 2 1h WAIT 1m QUEUE 1");
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b d 2 1h WAIT 1m QUEUE 1"), "[FULL 2 1 3600000]");
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b d 2 1h WAIT 1m QUEUE 0"), "[FULL 2 1 3600000]");
    // Without QUEUE it is as long as max.
    let _second = scene.waits("RES.BULKHEAD ENTER b d 2 1h WAIT 1m");
    assert_eq!(scene.ask("RES.BULKHEAD ENTER b e 2 1h WAIT 1m"), "[FULL 2 2 3600000]");
    // Who waits already has its place.
    let mut again = Caller::new(&scene.server);
    again.send("RES.BULKHEAD ENTER b d 2 1h WAIT 1m QUEUE 0");
    scene.ask("RES.BULKHEAD LEAVE b a");
    scene.ask("RES.BULKHEAD LEAVE b b");
    assert_eq!(again.verdict(), "GRANTED");
}

#[test]
fn priorities_go_in_order_and_first_come_within() {
    let mut scene = Scene::driven();
    scene.ask("RES.BULKHEAD ENTER b a 1 1h");
    let mut queue: Vec<(String, Caller)> = Vec::new();
    for (owner, priority) in
        [("n1", ""), ("l", "PRIORITY 9"), ("h1", "PRIORITY 0"), ("n2", "PRIORITY 5"), ("h2", "PRIORITY 0")]
    {
        let caller = scene.waits(&format!("RES.BULKHEAD ENTER b {owner} 1 1h WAIT 1m QUEUE 9 {priority}"));
        queue.push((owner.to_owned(), caller));
    }
    let order = ["h1", "h2", "n1", "n2", "l"];
    assert_eq!(scene.who_of("RES.BULKHEAD", "b").1, order);
    let mut inside = "a";
    for next in order {
        scene.ask(&format!("RES.BULKHEAD LEAVE b {inside}"));
        let caller = queue.iter_mut().find(|(owner, _)| owner == next).expect("all wait");
        assert_eq!(caller.1.verdict(), "GRANTED", "{next}");
        inside = next;
    }
    queue.iter_mut().for_each(|(_, caller)| caller.is_in_step());
}

#[test]
fn a_waiter_in_vain_learns_how_things_stand() {
    let mut scene = Scene::driven();
    scene.ask("RES.BULKHEAD ENTER b a 1 5s");
    let mut waiter = scene.waits("RES.BULKHEAD ENTER b c 1 1h WAIT 2s");
    scene.main.clock_at_ms(2_000);
    assert_eq!(waiter.reply(), "[TIMEOUT 1 0 3000]");
    waiter.is_in_step();
}

#[test]
fn permits_come_back_by_themselves() {
    let mut scene = Scene::real();
    // At the end of a lease: nobody says anything.
    scene.ask("RES.BULKHEAD ENTER b a 1 100ms");
    let mut next = scene.waits("RES.BULKHEAD ENTER b c 1 1h WAIT 5s BOUND");
    assert_eq!(next.verdict(), "GRANTED");
    // At the close of the connection it hangs on.
    let mut last = scene.waits("RES.BULKHEAD ENTER b d 1 1h WAIT 5s");
    drop(next);
    assert_eq!(last.verdict(), "GRANTED");
    assert_eq!(scene.who_of("RES.BULKHEAD", "b").0, ["d"]);
    assert_eq!(scene.ask("RES.BULKHEAD RENEW b a 1s"), "[LOST expired]");
    assert_eq!(scene.ask("RES.BULKHEAD LEAVE b c"), "[LOST closed]");
    // With its key.
    let mut heir = scene.waits("RES.BULKHEAD ENTER b e 1 1h WAIT 5s");
    scene.main.say("DEL b");
    assert_eq!(heir.verdict(), "GRANTED");
    eventually("nobody waits", SOON, || scene.waiters() == 0);
}
