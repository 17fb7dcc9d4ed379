//! Answered and unblocked within one EXEC: the server holds a reply for a waiter that has not been notified yet, and the
//! waiter is unblocked or killed by hand. It gets exactly one reply, and nothing is held by nobody.

use resil_harness::eventually;

use crate::driven::{SOON, START_US, Say};
use crate::scene::{Caller, Scene, send};

fn scene_with_two_waiting() -> (Scene, Caller, Caller) {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let first = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let second = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    (scene, first, second)
}

/// Whatever the first was notified, it and the second go on as reported.
fn all_goes_on(mut scene: Scene, first: Option<(Caller, String)>, mut second: Caller) {
    let first_has_it = first.as_ref().is_some_and(|(_, reported)| reported.starts_with("[GRANTED"));
    if let Some((mut first, reported)) = first {
        let known = ["[GRANTED", "[TIMEOUT", "-UNBLOCKED"].iter().any(|known| reported.starts_with(known));
        assert!(known, "{reported}");
        first.is_in_step();
    }
    if first_has_it {
        assert_eq!(scene.who("k").0, ["b"]);
        scene.ask("RES.LOCK RELEASE k b");
    }
    assert_eq!(second.verdict(), "GRANTED");
    second.is_in_step();
    assert_eq!(scene.who("k"), (vec!["c".to_owned()], vec![]));
    assert_eq!(scene.waiters(), 0);
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
}

#[test]
fn released_and_unblocked() {
    for how in ["TIMEOUT", "ERROR"] {
        let (mut scene, mut first, second) = scene_with_two_waiting();
        scene.at_once(&["RES.LOCK RELEASE k a", &format!("CLIENT UNBLOCK {} {how}", first.id)]);
        let reported = first.reply();
        all_goes_on(scene, Some((first, reported)), second);
    }
}

#[test]
fn released_and_killed() {
    let (mut scene, mut first, second) = scene_with_two_waiting();
    scene.at_once(&["RES.LOCK RELEASE k a", &format!("CLIENT KILL ID {}", first.id)]);
    assert_eq!(first.reply(), "closed");
    all_goes_on(scene, None, second);
}

#[test]
fn released_and_unblocked_twice_and_killed() {
    let (mut scene, first, second) = scene_with_two_waiting();
    let id = first.id;
    let unblock = format!("CLIENT UNBLOCK {id} TIMEOUT");
    scene.at_once(&["RES.LOCK RELEASE k a", &unblock, &unblock, &format!("CLIENT KILL ID {id}")]);
    all_goes_on(scene, None, second);
}

#[test]
fn handed_a_lock_while_pushed_messages_wait_and_unblocked() {
    let mut scene = Scene::driven();
    // Redis 7.0 swallows the reply, and behind a pushed message that cannot be seen: docs/guarantees.md says so.
    if scene.server.flavor().name().contains("7.0") {
        return;
    }
    // Some servers let no subscriber wait; invalidations are pushed to those who are none.
    let mut modern = scene.server.connect_resp3();
    modern.say("CLIENT TRACKING on");
    modern.say("GET read");
    let modern = Caller::of(modern);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut first = scene.waits_as(modern, "RES.LOCK ACQUIRE k b 1h WAIT 1m");
    scene.at_once(&["SET read x", "RES.LOCK RELEASE k a", &format!("CLIENT UNBLOCK {} TIMEOUT", first.id)]);
    send(&mut first.connection, "ECHO in-step");
    let mut heard: Vec<String> = Vec::new();
    while heard.last().is_none_or(|last| last != "in-step" && last != "nothing") {
        heard.push(first.reply());
    }
    let replies = heard.iter().filter(|line| !line.starts_with('>')).count();
    assert_eq!(replies, 2, "one reply and the echo: {heard:?}");
    let granted = heard.iter().any(|line| line.starts_with("[GRANTED"));
    eventually("only the notified one holds", SOON, || (scene.who("k").0 == ["b"]) == granted);
}

#[test]
fn superseded_and_unblocked() {
    for how in ["TIMEOUT", "ERROR"] {
        let (mut scene, mut first, mut second) = scene_with_two_waiting();
        scene.at_once(&["RES.LOCK ACQUIRE k b 1h", &format!("CLIENT UNBLOCK {} {how}", first.id)]);
        let reported = first.verdict();
        assert!(["-SUPERSEDED", "TIMEOUT", "-UNBLOCKED"].contains(&reported.as_str()), "{how}: {reported}");
        first.is_in_step();
        scene.ask("RES.LOCK RELEASE k a");
        assert_eq!(second.verdict(), "GRANTED");
    }
}

#[test]
fn out_of_patience_and_unblocked() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut scene = Scene::driven();
        scene.ask("RES.LOCK ACQUIRE k a 1h");
        let mut waiter = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1s");
        let later = format!("RES._CLOCK {}", crate::driven::START_US + 2_000_000);
        scene.at_once(&[&later, "RES.LOCK RENEW k a 1h", &format!("CLIENT UNBLOCK {} {how}", waiter.id)]);
        let reported = waiter.verdict();
        assert!(["TIMEOUT", "-UNBLOCKED"].contains(&reported.as_str()), "{how}: {reported}");
        waiter.is_in_step();
    }
}

#[test]
fn a_permit_given_and_unblocked() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut scene = Scene::driven();
        scene.ask("RES.BULKHEAD ENTER b a 1 1h");
        let mut first = scene.waits("RES.BULKHEAD ENTER b x 1 1h WAIT 1m");
        let mut second = scene.waits("RES.BULKHEAD ENTER b y 1 1h WAIT 1m QUEUE 5");
        scene.at_once(&["RES.BULKHEAD LEAVE b a", &format!("CLIENT UNBLOCK {} {how}", first.id)]);
        if first.verdict() == "GRANTED" {
            scene.ask("RES.BULKHEAD LEAVE b x");
        }
        first.is_in_step();
        assert_eq!(second.verdict(), "GRANTED", "{how}");
    }
}

#[test]
fn a_key_deleted_as_its_lease_ends_is_handed_on() {
    let mut scene = Scene::driven();
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    let mut next = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    // Its timer is due before the deletion is looked at.
    scene.at_once(&["DEL k", &format!("RES._CLOCK {}", START_US + 1_000_000)]);
    assert_eq!(next.verdict(), "GRANTED");
    assert_eq!(scene.main.info_number("resil", "lock_lost"), 1, "a has lost it, and that is reported once");
}
