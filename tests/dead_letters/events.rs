//! What the world hears: events, notifications, counters, the log.

use crate::driven::Say;
use crate::hearing::{Hearing, json};
use crate::letters::{dies, given, ledger};

#[test]
fn every_death_alert_and_governance_action_is_an_event() {
    let mut scene = ledger();
    let mut hearing = Hearing::to(&scene.server, "resil:events:d");
    scene.ask("RES.DLQ FAIL d m ERROR boom-7 PAYLOAD p TYPE pay AGGREGATE acc CLASS business FINAL");
    let heard = hearing.exactly(1);
    let dead = json(&heard[0].1);
    for (field, wanted) in [
        ("event", "dlq.dead"),
        ("ledger", "d"),
        ("id", "m"),
        ("type", "pay"),
        ("aggregate", "acc"),
        ("group", "pay/boom-<n>"),
        ("class", "business"),
        ("reason", "final"),
        ("error", "boom-7"),
    ] {
        assert_eq!(dead[field], wanted, "{dead}");
    }
    assert_eq!((dead["deaths"].as_i64(), dead["attempt"].as_i64()), (Some(1), Some(1)), "{dead}");
    // The third death of an aggregate is an alert.
    for id in ["n", "o"] {
        scene.ask(&format!("RES.DLQ FAIL d {id} ERROR x TYPE pay AGGREGATE acc FINAL"));
    }
    let heard = hearing.exactly(3);
    let alert = json(&heard[2].1);
    let fields = ["event", "kind", "severity", "subject"].map(|field| alert[field].as_str().unwrap_or_default());
    assert_eq!(fields, ["dlq.alert", "aggregate", "critical", "acc"], "{alert}");
    assert!(scene.ask("RES.DLQ INFO d ALERTS").contains("kind aggregate severity critical subject acc"));
    assert_eq!(scene.ask("RES.DLQ SEEN d 1 ACTOR ann CORRELATION c7"), "1");
    let heard = hearing.exactly(1);
    let audit = json(&heard[0].1);
    let fields = ["event", "user", "actor", "correlation"].map(|field| audit[field].as_str().unwrap_or_default());
    assert_eq!(fields, ["dlq.audit", "default", "ann", "c7"], "{audit}");
    assert!(audit["action"].as_str().is_some_and(|action| !action.is_empty()), "{audit}");
    // What is refused is neither audited nor published.
    assert_eq!(scene.ask("RES.DLQ SEEN d 1 ACTOR ann"), "0");
    assert_eq!(scene.ask("RES.DLQ REDRIVE d 9 ACTOR ann"), "[REFUSED case]");
    hearing.exactly(0);
}

#[test]
fn a_crash_that_nobody_asked_about_is_an_event_too() {
    let mut scene = ledger();
    scene.ask("RES.DLQ CONFIG d CRASHES 1 ACTOR ann");
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p TYPE pay");
    scene.main.clock_at_ms(500);
    scene.ask("RES.DLQ TAKE d t 10s");
    let mut hearing = Hearing::to(&scene.server, "resil:events:d");
    scene.main.clock_at_ms(10_500);
    resil_harness::eventually("the death is reported", crate::driven::SOON, || {
        hearing.listen().iter().any(|(_, message)| json(message)["event"] == "dlq.dead")
    });
    let reported =
        hearing.heard.iter().find(|(_, message)| json(message)["event"] == "dlq.dead").expect("it was there");
    assert_eq!(json(&reported.1)["reason"], "crash", "{}", reported.1);
    assert_eq!(scene.main.info_number("resil", "dlq_deaths"), 1);
}

#[test]
fn keyspace_notifications_follow_each_change() {
    let mut scene = ledger();
    let mut hearing = Hearing::to(&scene.server, "__keyevent@0__:res.dlq.*");
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let fence = given(&scene.ask("RES.DLQ TAKE d t 10s"))[0].1;
    scene.ask(&format!("RES.DLQ RETURN d m {fence}"));
    let fence = given(&scene.ask("RES.DLQ TAKE d t 10s"))[0].1;
    scene.ask(&format!("RES.DLQ DONE d m {fence}"));
    scene.ask("RES.DLQ CONFIG d CRASHES 2 ACTOR ann");
    let heard: Vec<String> = hearing.listen().iter().map(|(channel, _)| channel.clone()).collect();
    let words: Vec<&str> = heard.iter().filter_map(|channel| channel.split("res.dlq.").nth(1)).collect();
    assert_eq!(words, ["failed", "taken", "returned", "taken", "done", "governed"]);
}

#[test]
fn counters_count_what_was_answered() {
    let mut scene = ledger();
    let lines = [
        ("RES.DLQ FAIL d m ERROR e PAYLOAD p", "dlq_retried"),
        ("RES.DLQ FAIL d m ERROR e PAYLOAD p", "dlq_known"),
        ("RES.DLQ FAIL d m ERROR e PAYLOAD q", "dlq_conflicts"),
        ("RES.DLQ FAIL d f ERROR e PAYLOAD q AGGREGATE a FINAL", "dlq_died"),
        ("RES.DLQ PARK d g PAYLOAD q AGGREGATE a", "dlq_parked"),
        ("@", ""),
        ("RES.DLQ TAKE d t 10s", "dlq_taken"),
        ("RES.DLQ RETURN d m FENCE", "dlq_returned"),
        ("RES.DLQ RETURN d m 17", "dlq_stale"),
        ("RES.DLQ TAKE d t 10s", "dlq_taken"),
        ("RES.DLQ DONE d m FENCE", "dlq_done"),
        ("RES.DLQ DONE d m 17", "dlq_stale"),
    ];
    let (mut fence, mut wanted) = (0, std::collections::BTreeMap::<&str, i64>::new());
    for (line, counter) in lines {
        if line == "@" {
            scene.main.clock_at_ms(500);
            continue;
        }
        let reply = scene.ask(&line.replace("FENCE", &fence.to_string()));
        if reply.starts_with("[TAKEN") {
            fence = given(&reply)[0].1;
        }
        *wanted.entry(counter).or_default() += 1;
        for (counter, wanted) in &wanted {
            assert_eq!(scene.main.info_number("resil", counter), *wanted, "{counter} after {line}: {reply}");
        }
    }
    assert_eq!(scene.main.info_number("resil", "dlq_keys"), 1);
    assert!(scene.main.info_number("resil", "dlq_bytes") > 0);
    scene.ask("DEL d");
    assert_eq!(scene.main.info_number("resil", "dlq_keys"), 0);
    assert_eq!(scene.main.info_number("resil", "dlq_bytes"), 0);
    assert_eq!(scene.main.info_number("resil", "internal_errors"), 0);
}

#[test]
fn the_log_has_one_line_per_ledger_and_minute() {
    let mut scene = ledger();
    let lines = |scene: &crate::scene::Scene| scene.server.log().matches("dead letters in d").count();
    for id in 0..20 {
        dies(&mut scene, "d", &format!("m{id}"), "pay", "no");
    }
    assert_eq!(lines(&scene), 1);
    scene.main.clock_at_ms(60_000);
    dies(&mut scene, "d", "later", "pay", "no");
    assert_eq!(lines(&scene), 2);
    assert!(scene.server.log().contains("dead letters in d: 20 more"), "those between are in the next line");
}
