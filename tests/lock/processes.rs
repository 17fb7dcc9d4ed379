//! Clients that are processes of their own: killed without a goodbye, or stopped and woken too late.

use std::thread;
use std::time::{Duration, Instant};

use crate::child::Client;
use crate::driven::Say;
use crate::hearing::{Hearing, json};
use crate::scene::Scene;
use crate::seed;

/// How long after the kill the next one had it, in milliseconds.
fn killed(scene: &mut Scene, line: &str) -> u128 {
    let mut holder = Client::of(&scene.server);
    holder.says(line);
    assert_eq!(holder.hears(), "GRANTED");
    let mut next = scene.waits("RES.LOCK ACQUIRE k next 1h WAIT 20s");
    let begun = Instant::now();
    holder.signal("KILL");
    assert_eq!(next.verdict(), "GRANTED");
    let passed = begun.elapsed().as_millis();
    scene.ask("RES.LOCK RELEASE k next");
    passed
}

#[test]
fn a_killed_bound_holder_costs_milliseconds() {
    let mut scene = Scene::real();
    let mut figures: Vec<u128> = (0..7).map(|_| killed(&mut scene, "RES.LOCK ACQUIRE k a 1h BOUND")).collect();
    figures.sort_unstable();
    seed::say(&format!("kill -9 of a bound holder to the next grant: {figures:?} ms"));
    assert!(figures[3] < 50, "the median of {figures:?}");
    assert!(figures[6] < 500, "the worst of {figures:?}");
}

#[test]
fn a_killed_holder_that_was_not_bound_costs_its_lease() {
    let mut scene = Scene::real();
    let passed = killed(&mut scene, "RES.LOCK ACQUIRE k a 400ms");
    seed::say(&format!("kill -9 of a plain holder with a lease of 400 ms to the next grant: {passed} ms"));
    assert!(passed < 400 + 500, "{passed} ms");
}

#[test]
fn a_stopped_bound_holder_loses_it_and_learns_so() {
    let mut scene = Scene::real();
    let mut lost = Hearing::to(&scene.server, "resil:lost:*");
    let mut holder = Client::of(&scene.server);
    holder.says("RES.LOCK ACQUIRE k sleeper 500ms BOUND");
    assert_eq!(holder.hears(), "GRANTED");
    let fence = holder.hears();
    assert_eq!((holder.hears(), holder.hears()), ("500".to_owned(), "0".to_owned()));
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(100));
        holder.says("RES.HEARTBEAT");
        assert_eq!((holder.hears(), holder.hears()), ("1".to_owned(), String::new()), "it lives on its heartbeats");
    }
    let mut next = scene.waits("RES.LOCK ACQUIRE k next 1h WAIT 10s");
    let stopped = Instant::now();
    holder.signal("STOP");
    assert_eq!(next.verdict(), "GRANTED");
    let passed = stopped.elapsed().as_millis();
    assert!((300..1_500).contains(&passed), "{passed} ms after it was stopped");
    holder.signal("CONT");
    holder.says("RES.HEARTBEAT");
    let reported: Vec<String> = (0..4).map(|_| holder.hears()).collect();
    assert_eq!(reported, ["0", "k", &fence, "expired"]);
    holder.says("RES.HEARTBEAT");
    assert_eq!(holder.hears(), "0");
    let heard = lost.exactly(1);
    assert_eq!(heard[0].0, "resil:lost:sleeper");
    assert_eq!(json(&heard[0].1)["reason"], "expired");
    assert_eq!(scene.main.integer("RES.LOCK CHECK k next"), 1);
}
