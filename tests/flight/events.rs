//! What is published, notified and counted: each loss once, each transition under its key.

use serde_json::{Value as Json, json};

use crate::driven::{START_MS, Say};
use crate::hearing::{Hearing, json as parsed};
use crate::scene::{FIRST, Scene};

fn loss(kind: &str, key: &str, owner: &str, fence: i64, reason: &str, at_ms: i64) -> Json {
    json!({"event": "lost", "kind": kind, "key": key, "owner": owner, "fence": FIRST + fence, "reason": reason,
           "time_ms": START_MS + at_ms})
}

/// One loss is two messages: one for everybody, one for its owner.
#[track_caller]
fn heard_once(hearing: &mut Hearing, wanted: &Json) {
    let heard = hearing.exactly(2);
    let owner = wanted["owner"].as_str().expect("a text");
    let mut channels: Vec<&str> = heard.iter().map(|(channel, _)| channel.as_str()).collect();
    channels.sort_unstable();
    assert_eq!(channels, ["resil:events", &format!("resil:lost:{owner}")]);
    for (_, message) in &heard {
        assert_eq!(parsed(message), *wanted);
    }
}

#[test]
fn every_loss_is_reported_once_with_its_kind_and_reason() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:*");
    scene.ask("RES.IDEMP BEGIN i a 1s");
    scene.ask("RES.SFLIGHT JOIN s b 2s");
    scene.main.clock_at_ms(1_000);
    heard_once(&mut hearing, &loss("idempotency", "i", "a", 0, "expired", 1_000));
    scene.main.clock_at_ms(2_000);
    heard_once(&mut hearing, &loss("flight", "s", "b", 1, "expired", 2_000));
    scene.ask("RES.SFLIGHT JOIN s c 1h");
    scene.ask("RES.SFLIGHT INVALIDATE s");
    let mut invalidated = loss("flight", "s", "c", 2_000_000, "invalidated", 2_000);
    invalidated["user"] = "default".into();
    heard_once(&mut hearing, &invalidated);
    for (line, kind, fence) in [
        ("RES.IDEMP BEGIN x d 1h BOUND", "idempotency", 2_000_001),
        ("RES.SFLIGHT JOIN y d 1h BOUND", "flight", 2_000_002),
    ] {
        let mut bound = scene.server.connect();
        bound.say(line);
        drop(bound);
        let key = if kind == "flight" { "y" } else { "x" };
        heard_once(&mut hearing, &loss(kind, key, "d", fence, "closed", 2_000));
    }
    scene.ask("RES.IDEMP BEGIN i e 1h");
    scene.main.say("DEL i");
    heard_once(&mut hearing, &loss("idempotency", "i", "e", 2_000_003, "absent", 2_000));
    scene.ask("RES.SFLIGHT JOIN s e 1h");
    scene.main.say("FLUSHALL");
    heard_once(&mut hearing, &loss("flight", "s", "e", 2_000_004, "absent", 2_000));
    // What is done, given back or abandoned is not lost.
    scene.ask("RES.IDEMP BEGIN i f 1h");
    scene.ask("RES.IDEMP COMMIT i f 1h x");
    scene.ask("RES.IDEMP BEGIN j f 1h");
    scene.ask("RES.IDEMP ABORT j f");
    scene.ask("RES.SFLIGHT JOIN s f 1h");
    scene.ask("RES.SFLIGHT ABANDON s f");
    scene.ask("RES.SFLIGHT JOIN s g 1h");
    scene.ask("RES.SFLIGHT PUBLISH s g 1h VALUE v");
    scene.ask("RES.SFLIGHT INVALIDATE s");
    scene.main.say("DEL i j s");
    assert!(hearing.listen().is_empty(), "{:?}", hearing.heard);
    assert_eq!(scene.main.info_number("resil", "idemp_lost"), 3);
    assert_eq!(scene.main.info_number("resil", "sflight_lost"), 4);
}

#[test]
fn a_held_lapse_is_a_loss_too() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:*");
    scene.ask("RES.IDEMP BEGIN i a 1s ONLAPSE HOLD");
    scene.main.clock_at_ms(1_000);
    heard_once(&mut hearing, &loss("idempotency", "i", "a", 0, "expired", 1_000));
}

#[test]
fn transitions_are_notified_under_their_keys() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "__keyevent@0__:res.*");
    let mut notified = |wanted: &[&str]| {
        let heard = hearing.exactly(wanted.len());
        let names: Vec<String> = heard
            .iter()
            .map(|(channel, key)| format!("{} {key}", channel.trim_start_matches("__keyevent@0__:res.")))
            .collect();
        assert_eq!(names, wanted);
    };
    scene.ask("RES.IDEMP BEGIN k a 1s");
    scene.ask("RES.IDEMP BEGIN k a 1s");
    scene.ask("RES.IDEMP BEGIN k b 1s");
    notified(&["idemp.running k"]);
    scene.ask("RES.IDEMP ABORT k a");
    notified(&["idemp.aborted k"]);
    scene.ask("RES.IDEMP BEGIN k b 1s");
    scene.main.clock_at_ms(1_000);
    notified(&["idemp.running k", "idemp.lost k"]);
    scene.ask("RES.IDEMP BEGIN k c 1s");
    scene.ask("RES.IDEMP COMMIT k c 1h x");
    scene.ask("RES.IDEMP COMMIT k c 1h x");
    scene.ask("RES.IDEMP ONCE o 1h");
    scene.ask("RES.IDEMP ONCE o 1h");
    notified(&["idemp.running k", "idemp.committed k", "idemp.seen o"]);
    scene.ask("RES.SFLIGHT JOIN s a 1s");
    scene.ask("RES.SFLIGHT JOIN s b 1s");
    scene.ask("RES.SFLIGHT ABANDON s a");
    scene.ask("RES.SFLIGHT JOIN s b 1s");
    scene.main.clock_at_ms(2_000);
    notified(&["sflight.led s", "sflight.abandoned s", "sflight.led s", "sflight.lost s"]);
    scene.ask("RES.SFLIGHT JOIN s c 1s");
    scene.ask("RES.SFLIGHT PUBLISH s c 1h VALUE v");
    scene.ask("RES.SFLIGHT JOIN s d 1s");
    scene.ask("RES.SFLIGHT INVALIDATE s");
    scene.ask("RES.SFLIGHT INVALIDATE s");
    notified(&["sflight.led s", "sflight.published s", "sflight.invalidated s"]);
}

#[test]
fn a_passed_lead_is_an_end_and_a_beginning() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN s a 1h");
    let mut follower = scene.waits("RES.SFLIGHT JOIN s b 1h WAIT 1m");
    let mut hearing = Hearing::to(&scene.server, "__keyevent@0__:res.*");
    scene.ask("RES.SFLIGHT ABANDON s a");
    assert_eq!(follower.verdict(), "LEAD");
    let names: Vec<String> = hearing.exactly(2).into_iter().map(|(channel, _)| channel).collect();
    assert_eq!(names, ["__keyevent@0__:res.sflight.abandoned", "__keyevent@0__:res.sflight.led"]);
}

/// As commands/res.idemp.abort.json says.
#[test]
fn passed_work_is_an_end_and_a_beginning() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN k a 1h");
    let mut waiter = scene.waits("RES.IDEMP BEGIN k b 1h WAIT 1m");
    let mut hearing = Hearing::to(&scene.server, "__keyevent@0__:res.*");
    scene.ask("RES.IDEMP ABORT k a");
    assert_eq!(waiter.verdict(), "RUN");
    let names: Vec<String> = hearing.listen().iter().map(|(channel, _)| channel.clone()).collect();
    assert_eq!(names, ["__keyevent@0__:res.idemp.aborted", "__keyevent@0__:res.idemp.running"]);
}

#[test]
fn info_counts_what_happened() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN k a 1h");
    scene.ask("RES.IDEMP BEGIN k b 1h");
    let mut waiter = scene.waits("RES.IDEMP BEGIN k c 1h WAIT 1m");
    let mut impatient = scene.waits("RES.IDEMP BEGIN k d 1h WAIT 5ms");
    assert_eq!(scene.waiters(), 2);
    scene.main.clock_at_ms(7);
    assert_eq!(impatient.verdict(), "BUSY");
    scene.ask("RES.IDEMP RENEW k a 1h");
    scene.ask("RES.IDEMP RENEW k x 1h");
    scene.ask("RES.IDEMP COMMIT k a 1h r");
    assert_eq!(waiter.verdict(), "REPLAY");
    scene.ask("RES.IDEMP BEGIN k e 1h");
    scene.ask("RES.IDEMP ONCE o 1h");
    scene.ask("RES.IDEMP ONCE o 1h");
    scene.main.say("CONFIG SET resil.max-result 1");
    scene.ask("RES.IDEMP BEGIN l a 1h");
    scene.ask("RES.IDEMP COMMIT l a 1h long");
    for (field, wanted) in [
        ("idemp_keys", 3),
        ("idemp_granted", 2),
        ("idemp_denied", 1),
        ("idemp_waited", 2),
        ("idemp_timed_out", 1),
        ("idemp_renewed", 1),
        ("idemp_lost", 0),
        ("idemp_stale", 1),
        ("idemp_committed", 2),
        ("idemp_results_dropped", 1),
        ("idemp_once_first", 1),
        ("idemp_once_again", 1),
        ("blocked_waiters", 0),
        ("internal_errors", 0),
    ] {
        assert_eq!(scene.main.info_number("resil", field), wanted, "{field}");
    }
    let replayed = scene.main.info_number("resil", "idemp_replayed");
    assert!((1..=2).contains(&replayed), "at once, and perhaps to one who waited: {replayed}");
    scene.ask("RES.SFLIGHT JOIN s a 1h");
    scene.ask("RES.SFLIGHT JOIN s b 1h");
    scene.ask("RES.SFLIGHT PUBLISH s x 1h EMPTY");
    scene.ask("RES.SFLIGHT PUBLISH s a 1s VALUE v STALE 1h");
    scene.ask("RES.SFLIGHT GET s");
    scene.ask("RES.SFLIGHT JOIN s b 1h");
    scene.main.clock_at_ms(2_000);
    scene.ask("RES.SFLIGHT GET s");
    scene.ask("RES.SFLIGHT INVALIDATE s");
    for (field, wanted) in [
        ("sflight_keys", 1),
        ("sflight_granted", 1),
        ("sflight_denied", 1),
        ("sflight_hits", 2),
        ("sflight_published", 1),
        ("sflight_invalidated", 1),
        ("internal_errors", 0),
    ] {
        assert_eq!(scene.main.info_number("resil", field), wanted, "{field}");
    }
}

#[test]
fn no_field_of_info_is_written_twice() {
    let mut scene = Scene::driven();
    let report = scene.main.text("INFO resil");
    let mut names: Vec<&str> = report.lines().filter_map(|line| line.split(':').next()).collect();
    names.sort_unstable();
    let twice: Vec<&&str> =
        names.windows(2).filter(|pair| pair[0] == pair[1] && !pair[0].is_empty()).map(|pair| &pair[0]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
