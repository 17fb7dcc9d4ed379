//! A waiter that leaves, in whatever way, leaves at once: one reply if it can still hear, and the next is served.

use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene};

/// A lock that `a` holds, the one who will leave, and one behind it.
fn scene_with_two_waiting() -> (Scene, Caller, Caller) {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let first = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let second = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    (scene, first, second)
}

fn the_second_is_served(mut scene: Scene, mut second: Caller) {
    eventually("only the second waits", SOON, || scene.who("k").1 == ["c"]);
    assert_eq!(scene.waiters(), 1);
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(second.verdict(), "GRANTED");
    second.is_in_step();
    assert_eq!(scene.who("k"), (vec!["c".to_owned()], vec![]));
    assert_eq!(scene.waiters(), 0);
}

#[test]
fn by_closing_its_connection() {
    let (scene, first, second) = scene_with_two_waiting();
    drop(first);
    the_second_is_served(scene, second);
}

#[test]
fn by_client_kill() {
    let (mut scene, mut first, second) = scene_with_two_waiting();
    scene.main.say(&format!("CLIENT KILL ID {}", first.id));
    assert_eq!(first.reply(), "closed");
    the_second_is_served(scene, second);
}

#[test]
fn by_client_unblock() {
    for (how, reply) in [("", "[TIMEOUT a 3600000 1]"), ("TIMEOUT", "[TIMEOUT a 3600000 1]"), ("ERROR", "-UNBLOCKED")] {
        let (mut scene, mut first, second) = scene_with_two_waiting();
        assert_eq!(scene.main.integer(&format!("CLIENT UNBLOCK {} {how}", first.id)), 1);
        let reported = first.reply();
        assert!(reported.starts_with(reply), "{how}: {reported}");
        first.is_in_step();
        the_second_is_served(scene, second);
    }
}

#[test]
fn by_its_waits_end_just_before_its_kill() {
    let (mut scene, mut first, second) = scene_with_two_waiting();
    scene.main.say(&format!("CLIENT UNBLOCK {} TIMEOUT", first.id));
    scene.main.outcome(&format!("CLIENT KILL ID {}", first.id));
    let reported = first.reply();
    assert!(reported.starts_with("[TIMEOUT") || reported == "closed", "{reported}");
    the_second_is_served(scene, second);
}

#[test]
fn everybody_at_once_leaves_nothing_behind() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    scene.ask("RES.BULKHEAD ENTER b a 1 1h");
    let mut all: Vec<Caller> = Vec::new();
    for n in 0..50 {
        all.push(scene.waits(&format!("RES.LOCK ACQUIRE k w{n} 1h WAIT 1m BOUND")));
        all.push(scene.waits(&format!("RES.BULKHEAD ENTER b w{n} 1 1h WAIT 1m QUEUE 100")));
    }
    assert_eq!(scene.waiters(), 100);
    drop(all);
    scene.nobody_waits();
    assert_eq!(scene.who("k"), (vec!["a".to_owned()], vec![]));
    assert_eq!(scene.who_of("RES.BULKHEAD", "b"), (vec!["a".to_owned()], vec![]));
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
}
