//! Work that is done once, by a clock that stands: who runs, who learns what, and what a lapse means.

use resil_harness::{eventually, ok};

use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene};
use crate::talk::{all_wait, number};

fn scene_with_waiters(rest: &str, names: &[&str]) -> (Scene, Vec<Caller>) {
    let mut scene = Scene::driven();
    scene.ask(&format!("RES.IDEMP BEGIN k runner 10s {rest}"));
    let waiters = names.iter().map(|name| scene.waits(&format!("RES.IDEMP BEGIN k {name} 10s WAIT 1m"))).collect();
    (scene, waiters)
}

#[test]
fn a_waiter_gets_the_result_in_its_reply() {
    for (rest, kind) in [("", "ok"), ("ERROR", "error")] {
        let (mut scene, mut waiters) = scene_with_waiters("FINGERPRINT f", &["b", "c", "d"]);
        scene.ask(&format!("RES.IDEMP COMMIT k runner 1h receipt {rest}"));
        for waiter in &mut waiters {
            assert_eq!(waiter.reply(), format!("[REPLAY {kind} receipt 0]"));
            waiter.is_in_step();
        }
        scene.nobody_waits();
    }
}

#[test]
fn after_every_ending_exactly_one_runs_knowing_its_attempt() {
    let mut scene = Scene::driven();
    let mut runner = Caller::new(&scene.server);
    runner.send("RES.IDEMP BEGIN k runner 1h BOUND");
    let mut fence = number(&runner.reply(), 1);
    let names = ["b", "c", "d", "e"];
    let mut waiters: Vec<Caller> =
        names.iter().map(|name| scene.waits(&format!("RES.IDEMP BEGIN k {name} 10s WAIT 1m"))).collect();
    let ends: [&mut dyn FnMut(&mut Scene); 3] = [
        &mut |scene| drop(scene.ask("RES.IDEMP ABORT k b")),
        &mut |scene| scene.main.clock_at_ms(10_000),
        &mut |scene| drop(scene.ask("RES.IDEMP ABORT k d")),
    ];
    drop(runner);
    let mut attempt = 2;
    for (index, end) in ends.into_iter().enumerate() {
        let run = waiters[index].reply();
        assert_eq!((&run[..5], number(&run, 2)), ("[RUN ", attempt), "{run}");
        assert!(number(&run, 1) > fence);
        (fence, attempt) = (number(&run, 1), attempt + 1);
        waiters[index].is_in_step();
        all_wait(&mut scene.main, 3 - index);
        end(&mut scene);
    }
    assert_eq!(waiters[3].verdict(), "RUN");
    assert_eq!(scene.ask("RES.IDEMP COMMIT k c 1h x"), "[LOST taken]");
    assert_eq!(scene.ask("RES.IDEMP COMMIT k e 1h x"), "[COMMITTED stored]");
}

#[test]
fn an_abort_by_a_waiter_takes_it_out() {
    let (mut scene, mut waiters) = scene_with_waiters("", &["b", "c"]);
    assert_eq!(scene.ask("RES.IDEMP ABORT k b"), "[ABORTED]");
    assert_eq!(waiters[0].verdict(), "-SUPERSEDED");
    waiters[0].is_in_step();
    assert_eq!(scene.ask("RES.IDEMP ABORT k b"), "[LOST taken]", "it neither runs nor waits");
    all_wait(&mut scene.main, 1);
    scene.ask("RES.IDEMP ABORT k runner");
    assert_eq!(waiters[1].verdict(), "RUN");
}

#[test]
fn a_bound_runner_that_closes_is_followed_at_once() {
    let mut scene = Scene::real();
    let mut runner = Caller::new(&scene.server);
    runner.send("RES.IDEMP BEGIN k runner 1h BOUND");
    assert_eq!(runner.verdict(), "RUN");
    let mut waiter = scene.waits("RES.IDEMP BEGIN k b 1h WAIT 30s");
    let begun = std::time::Instant::now();
    drop(runner);
    assert_eq!(number(&waiter.reply(), 2), 2);
    assert!(begun.elapsed().as_millis() < 1_000, "{:?}", begun.elapsed());
}

#[test]
fn after_a_lapse_the_last_runner_may_still_commit() {
    let (mut scene, _) = scene_with_waiters("", &[]);
    scene.main.clock_at_ms(60_000);
    assert_eq!(scene.ask("RES.IDEMP GET k"), "[MISS]");
    assert_eq!(scene.ask("RES.IDEMP RENEW k runner 1s"), "[LOST expired]");
    assert_eq!(scene.ask("RES.IDEMP COMMIT k runner 1h late"), "[COMMITTED stored]");
    assert_eq!(scene.ask("RES.IDEMP BEGIN k b 1s"), "[REPLAY ok late 0]");
}

#[test]
fn held_work_waits_for_somebody_who_looks() {
    let (mut scene, mut waiters) = scene_with_waiters("ONLAPSE HOLD FINGERPRINT f", &["b", "c"]);
    scene.main.clock_at_ms(10_000);
    for waiter in &mut waiters {
        assert_eq!(waiter.reply(), "[HELD 1]", "nobody waits for a person");
        waiter.is_in_step();
    }
    assert_eq!(scene.ask("RES.IDEMP BEGIN k b 1s WAIT 1m"), "[HELD 1]");
    assert_eq!(scene.ask("RES.IDEMP BEGIN k runner 1s"), "[HELD 1]", "nor the one that fell silent");
    assert_eq!(scene.ask("RES.IDEMP BEGIN k b 1s FINGERPRINT g"), "[MISMATCH]");
    assert_eq!(scene.ask("RES.IDEMP ABORT k b"), "[LOST taken]");
    assert_eq!(scene.ask("RES.IDEMP ABORT k runner"), "[ABORTED]");
    assert_eq!(number(&scene.ask("RES.IDEMP BEGIN k b 1s"), 2), 2);
}

#[test]
fn another_request_under_the_key_is_a_mismatch() {
    let mut scene = Scene::driven();
    let mismatch = |scene: &mut Scene, phase: &str| {
        for line in [
            "RES.IDEMP BEGIN k z 1s FINGERPRINT other",
            "RES.IDEMP BEGIN k z 1s WAIT 1m FINGERPRINT other",
            "RES.IDEMP GET k FINGERPRINT other",
        ] {
            assert_eq!(scene.ask(line), "[MISMATCH]", "{phase}: {line}");
        }
    };
    scene.ask("RES.IDEMP BEGIN k a 10s FINGERPRINT f");
    mismatch(&mut scene, "running");
    scene.ask("RES.IDEMP ABORT k a");
    mismatch(&mut scene, "aborted");
    scene.ask("RES.IDEMP BEGIN k b 10s");
    mismatch(&mut scene, "running again, by one who said no fingerprint");
    scene.main.clock_at_ms(10_000);
    mismatch(&mut scene, "lapsed");
    scene.ask("RES.IDEMP BEGIN k c 10s ONLAPSE HOLD");
    scene.main.clock_at_ms(20_000);
    mismatch(&mut scene, "held");
    scene.ask("RES.IDEMP COMMIT k c 1h x");
    mismatch(&mut scene, "done");
    scene.main.clock_at_ms(20_000 + 3_600_000);
    assert_eq!(scene.verdict("RES.IDEMP BEGIN k z 1s FINGERPRINT other"), "RUN", "forgotten");
}

#[test]
fn a_waiter_with_another_request_learns_of_the_mismatch() {
    let (mut scene, _) = scene_with_waiters("", &[]);
    let mut first = scene.waits("RES.IDEMP BEGIN k b 10s WAIT 1m FINGERPRINT f");
    let mut other = scene.waits("RES.IDEMP BEGIN k c 10s WAIT 1m FINGERPRINT g");
    let mut same = scene.waits("RES.IDEMP BEGIN k d 10s WAIT 1m FINGERPRINT f");
    scene.ask("RES.IDEMP ABORT k runner");
    assert_eq!(first.verdict(), "RUN");
    scene.ask("RES.IDEMP COMMIT k b 1h x");
    assert_eq!(other.reply(), "[MISMATCH]");
    assert_eq!(same.reply(), "[REPLAY ok x 0]");
}

#[test]
fn a_record_without_a_runner_is_kept_its_time() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN k a 1s KEEP 10s");
    scene.main.clock_at_ms(10_999);
    assert_eq!(number(&scene.ask("RES.IDEMP BEGIN k b 1s KEEP 10s"), 2), 2);
    scene.main.clock_at_ms(22_000);
    assert_eq!(number(&scene.ask("RES.IDEMP BEGIN k c 1s"), 2), 1);
}

#[test]
fn a_waiters_patience_is_its_own() {
    let (mut scene, mut waiters) = scene_with_waiters("", &["b"]);
    let mut impatient = scene.waits("RES.IDEMP BEGIN k c 1s WAIT 100ms");
    scene.main.clock_at_ms(100);
    assert_eq!(impatient.reply(), "[BUSY 9900 1]");
    scene.ask("RES.IDEMP COMMIT k runner 1h x");
    assert_eq!(waiters[0].reply(), "[REPLAY ok x 0]");
}

#[test]
fn a_result_above_the_limit_is_dropped() {
    let (mut scene, mut waiters) = scene_with_waiters("", &["b"]);
    let large = "x".repeat((1 << 20) + 1);
    let committed = ok(&mut scene.main, &["RES.IDEMP", "COMMIT", "k", "runner", "1h", &large]);
    assert_eq!(crate::scene::shown(&committed), "[COMMITTED dropped]");
    assert_eq!(waiters[0].reply(), "[REPLAY ok nil 0]");
    assert_eq!(scene.ask("RES.IDEMP BEGIN k c 1s"), "[REPLAY ok nil 0]");
    assert_eq!(crate::scene::field(&scene.main.say("RES.IDEMP INFO k"), "result_bytes"), "-1");
    // At the limit it is kept.
    scene.ask("RES.IDEMP BEGIN l a 1s");
    let committed = ok(&mut scene.main, &["RES.IDEMP", "COMMIT", "l", "a", "1h", &large[1..]]);
    assert_eq!(crate::scene::shown(&committed), "[COMMITTED stored]");
}

#[test]
fn unblocked_or_killed_waiters_leave_and_the_next_runs() {
    for how in ["TIMEOUT", "ERROR", "KILL"] {
        let (mut scene, mut waiters) = scene_with_waiters("", &["b", "c"]);
        let id = waiters[0].id;
        match how {
            "KILL" => scene.main.say(&format!("CLIENT KILL ID {id}")),
            _ => scene.main.say(&format!("CLIENT UNBLOCK {id} {how}")),
        };
        let reported = waiters[0].reply();
        match how {
            "TIMEOUT" => assert_eq!(reported, "[BUSY 10000 1]"),
            "ERROR" => assert!(reported.starts_with("-UNBLOCKED"), "{reported}"),
            _ => assert_eq!(reported, "closed"),
        }
        eventually("it left", SOON, || scene.waiters() == 1);
        scene.ask("RES.IDEMP ABORT k runner");
        assert_eq!(waiters[1].verdict(), "RUN");
    }
}

#[test]
fn an_event_is_new_once() {
    let mut scene = Scene::driven();
    assert_eq!(scene.ask("RES.IDEMP ONCE e 1m TOKEN a"), "1");
    assert_eq!(scene.ask("RES.IDEMP ONCE e 1h TOKEN a"), "1", "its reply was lost");
    assert_eq!(scene.ask("RES.IDEMP ONCE e 1h TOKEN b"), "0");
    scene.main.clock_at_ms(59_999);
    assert_eq!(scene.ask("RES.IDEMP ONCE e 1h TOKEN b"), "0", "asking does not prolong");
    scene.main.clock_at_ms(60_000);
    assert_eq!(scene.ask("RES.IDEMP ONCE e 1h TOKEN b"), "1", "forgotten");
}
