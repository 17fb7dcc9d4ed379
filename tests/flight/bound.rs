//! Runs and leads that hang on a connection: kept by it, ended with it, and never left with one who is gone.

use std::collections::BTreeMap;

use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene, field};
use crate::seed::seeded;
use crate::talk::{all_wait, ask, number};

#[test]
fn a_bound_runner_lives_on_its_heartbeats() {
    let mut scene = Scene::real();
    let mut runner = scene.server.connect();
    ask(&mut runner, "RES.IDEMP BEGIN i a 400ms BOUND");
    ask(&mut runner, "RES.SFLIGHT JOIN s a 400ms BOUND");
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(ask(&mut runner, "RES.HEARTBEAT"), "[2 []]");
    }
    assert_eq!(scene.verdict("RES.IDEMP BEGIN i b 1s"), "BUSY");
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN s b 1s"), "BUSY");
    assert_eq!(ask(&mut runner, "RES.IDEMP COMMIT i a 1h x"), "[COMMITTED stored]");
    assert_eq!(ask(&mut runner, "RES.SFLIGHT PUBLISH s a 1h EMPTY"), "[PUBLISHED 0]");
    assert_eq!(ask(&mut runner, "RES.HEARTBEAT"), "[0 []]", "what is done hangs on nothing");
}

#[test]
fn a_bound_leader_hears_of_its_loss_by_heartbeat_once() {
    let mut scene = Scene::real();
    let mut bound = scene.server.connect();
    let run = number(&ask(&mut bound, "RES.IDEMP BEGIN i a 1h BOUND"), 1);
    let lead = number(&ask(&mut bound, "RES.SFLIGHT JOIN s a 1h BOUND"), 1);
    scene.ask("RES.SFLIGHT INVALIDATE s");
    assert_eq!(ask(&mut bound, "RES.HEARTBEAT"), format!("[1 [[s {lead} invalidated]]]"));
    scene.main.say("DEL i");
    eventually("it is notified", SOON, || {
        let beat = ask(&mut bound, "RES.HEARTBEAT");
        beat == format!("[0 [[i {run} absent]]]")
    });
    assert_eq!(ask(&mut bound, "RES.HEARTBEAT"), "[0 []]");
}

/// Leaders and followers close at once, again and again: what was handed to one who is gone is handed on.
#[test]
fn one_of_the_remaining_callers_runs_or_leads() {
    let mut rng = seeded("callers that close at once");
    for (begin, info, granted) in
        [("RES.IDEMP BEGIN", "RES.IDEMP INFO", "[RUN "), ("RES.SFLIGHT JOIN", "RES.SFLIGHT INFO", "[LEAD ")]
    {
        let mut scene = Scene::real();
        let mut callers: BTreeMap<String, Caller> = BTreeMap::new();
        for index in 0..60 {
            let mut caller = Caller::new(&scene.server);
            caller.send(&format!("{begin} k c{index} 1h WAIT 60s BOUND"));
            callers.insert(format!("c{index}"), caller);
            all_wait(&mut scene.main, index);
        }
        let mut last_fence = 0;
        let mut leader = "c0".to_owned();
        assert!(callers.get_mut("c0").unwrap().reply().starts_with(granted));
        while callers.len() > 1 {
            // The leader goes, and with it some of those who wait, the first in the queue among them.
            let mut going = vec![callers.remove(&leader)];
            let names: Vec<String> = callers.keys().cloned().collect();
            for name in names {
                if callers.len() > 1 && rng.u32(..4) == 0 {
                    going.push(callers.remove(&name));
                }
            }
            drop(going);
            let left: Vec<String> = callers.keys().cloned().collect();
            let field_name = if begin.contains("IDEMP") { "token" } else { "leader" };
            eventually("one who is there has it, and the others wait", SOON, || {
                let state = scene.main.say(&format!("{info} k"));
                leader = field(&state, field_name);
                left.contains(&leader) && scene.waiters() == left.len() as i64 - 1
            });
            let reported = callers.get_mut(&leader).unwrap().reply();
            assert!(reported.starts_with(granted) && number(&reported, 1) > last_fence, "{leader}: {reported}");
            last_fence = number(&reported, 1);
        }
        assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
    }
}
