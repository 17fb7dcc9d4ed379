//! A thousand callers at once, a connection each: one loads, or runs, and all get what it brought.

use std::sync::Mutex;
use std::time::Instant;

use redis::Connection;
use resil_harness::Server;

use crate::child::Client;
use crate::driven::Say;
use crate::scene::Scene;
use crate::seed;
use crate::talk::{all_wait, ask, crowd, number};

const CROWD: usize = 1_000;
const JOIN: &str = "RES.SFLIGHT JOIN k TOKEN 1h WAIT 60s";
const BEGIN: &str = "RES.IDEMP BEGIN k TOKEN 1h WAIT 60s FINGERPRINT f";

fn publish(connection: &mut Connection, token: &str, what: &str) -> String {
    ask(connection, &format!("RES.SFLIGHT PUBLISH k {token} {what}"))
}

/// All but those who led got `wanted`.
#[track_caller]
fn all_got(replies: &[String], wanted: &str, leaders: usize) {
    let reported = replies.iter().filter(|reply| *reply == wanted).count();
    let others: Vec<&String> = replies.iter().filter(|reply| *reply != wanted).collect();
    assert_eq!(reported, replies.len() - leaders, "the others: {others:?}");
}

#[test]
fn a_thousand_callers_one_load_and_all_get_the_bytes() {
    let server = Server::fresh();
    let begun = Mutex::new(Instant::now());
    let (replies, loads) = crowd(&server, CROWD, JOIN, "LEAD", |connection, token, _| {
        all_wait(&mut server.connect(), CROWD - 1);
        *begun.lock().unwrap() = Instant::now();
        publish(connection, token, "1h VALUE the-bytes")
    });
    seed::say(&format!("PUBLISH to the last of {CROWD} followers: {:?}", begun.lock().unwrap().elapsed()));
    assert_eq!(loads, 1);
    assert!(replies.contains(&format!("[PUBLISHED {}]", CROWD - 1)));
    all_got(&replies, "[VALUE the-bytes 0 3600000]", 1);
}

/// A leader in a process of its own, killed when the whole crowd waits for it.
fn killed_half_way(rest: &str) {
    let mut scene = Scene::real();
    let mut leader = Client::of(&scene.server);
    leader.says(&format!("RES.SFLIGHT JOIN k child {rest}"));
    assert_eq!(leader.hears(), "LEAD");
    let first = leader.hears().parse::<i64>().expect("a fence");
    let (replies, loads) = std::thread::scope(|scope| {
        let main = &mut scene.main;
        scope.spawn(move || {
            all_wait(main, CROWD);
            leader.signal("KILL");
        });
        crowd(&scene.server, CROWD, JOIN, "LEAD", |connection, token, _| {
            let again = ask(connection, &format!("RES.SFLIGHT JOIN k {token} 1h"));
            assert!(number(&again, 1) > first, "{again}");
            publish(connection, token, "1h VALUE second")
        })
    });
    assert_eq!(loads, 1, "one by the child, one after it");
    assert!(replies.contains(&format!("[PUBLISHED {}]", CROWD - 1)), "nobody was failed");
    all_got(&replies, "[VALUE second 0 3600000]", 1);
    let late = scene.ask("RES.SFLIGHT PUBLISH k child 1h VALUE first");
    assert!(late.starts_with("[LOST "), "{late}");
    assert!(scene.ask("RES.SFLIGHT GET k").starts_with("[VALUE second "));
}

#[test]
fn a_killed_bound_leader_costs_one_more_load() {
    killed_half_way("1h BOUND");
}

#[test]
fn a_killed_unbound_leader_costs_one_more_load() {
    killed_half_way("3s");
}

#[test]
fn an_error_is_everybodys_and_nobody_tries_again() {
    for (ttl, kept) in [("0", false), ("1h", true)] {
        let server = Server::fresh();
        let (replies, loads) = crowd(&server, CROWD, JOIN, "LEAD", |connection, token, _| {
            all_wait(&mut server.connect(), CROWD - 1);
            publish(connection, token, &format!("{ttl} ERROR no-database"))
        });
        assert_eq!(loads, 1);
        all_got(&replies, "[ERROR no-database]", 1);
        let later = ask(&mut server.connect(), "RES.SFLIGHT JOIN k late 1h");
        assert!(later.starts_with(if kept { "[ERROR no-database]" } else { "[LEAD " }), "{later}");
    }
}

#[test]
fn nothing_found_is_everybodys() {
    let server = Server::fresh();
    let (replies, loads) = crowd(&server, CROWD, JOIN, "LEAD", |connection, token, _| {
        all_wait(&mut server.connect(), CROWD - 1);
        publish(connection, token, "1h EMPTY")
    });
    assert_eq!(loads, 1);
    all_got(&replies, "[EMPTY 0]", 1);
}

#[test]
fn an_abandoned_lead_is_the_next_followers_alone() {
    for rest in ["", " RETRY 300ms"] {
        let server = Server::fresh();
        let abandoned = Mutex::new(Instant::now());
        let (replies, loads) = crowd(&server, CROWD, JOIN, "LEAD", |connection, token, nth| {
            all_wait(&mut server.connect(), CROWD - 1 - nth);
            if nth == 0 {
                *abandoned.lock().unwrap() = Instant::now();
                return ask(connection, &format!("RES.SFLIGHT ABANDON k {token}{rest}"));
            }
            let pause = abandoned.lock().unwrap().elapsed().as_millis();
            assert!(rest.is_empty() || pause >= 290, "{pause} ms");
            publish(connection, token, "1h VALUE second")
        });
        assert_eq!(loads, 2);
        assert!(replies.contains(&"[ABANDONED]".to_owned()));
        all_got(&replies, "[VALUE second 0 3600000]", 2);
    }
}

#[test]
fn a_value_expired_before_it_came_is_unseen() {
    let server = Server::fresh();
    let (replies, loads) = crowd(&server, CROWD, JOIN, "LEAD", |connection, token, nth| {
        if nth > 0 {
            all_wait(&mut server.connect(), CROWD - 2);
            // Only now the first one is done, which began before.
            let late = publish(&mut server.connect(), "first", "1h VALUE old");
            assert_eq!(late, "[LOST taken]", "another token's");
            return publish(connection, token, "1h VALUE new");
        }
        let mut operator = server.connect();
        all_wait(&mut operator, CROWD - 1);
        assert_eq!(ask(&mut operator, "RES.SFLIGHT INVALIDATE k"), "1");
        let renewed = ask(connection, &format!("RES.SFLIGHT RENEW k {token} 1h"));
        assert_eq!(renewed, "[LOST invalidated]");
        publish(connection, token, "1h VALUE old")
    });
    assert_eq!(loads, 2);
    assert!(replies.contains(&"[LOST invalidated]".to_owned()));
    all_got(&replies, "[VALUE new 0 3600000]", 2);
}

#[test]
fn past_its_time_one_leads_and_others_get_stale() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN k first 1s");
    scene.ask("RES.SFLIGHT PUBLISH k first 1s VALUE old STALE 1m");
    scene.main.clock_at_ms(2_000);
    let (replies, loads) = crowd(&scene.server, CROWD, JOIN, "LEAD", |connection, token, _| {
        // Nobody waits: the rest are notified before anything was loaded.
        let seen = ask(connection, &format!("RES.SFLIGHT JOIN k {token} 1h"));
        assert!(seen.contains(" old "), "a leader gets the stale value, too: {seen}");
        seen
    });
    assert_eq!(loads, 1);
    all_got(&replies, "[STALE old 2000]", 1);
    assert_eq!(scene.main.info_number("resil", "sflight_waited"), 0);
}

#[test]
fn a_thousand_duplicates_one_run_and_all_get_its_result() {
    for (rest, kind) in [("", "ok"), (" ERROR", "error")] {
        let server = Server::fresh();
        let (replies, runs) = crowd(&server, CROWD, BEGIN, "RUN", |connection, token, _| {
            all_wait(&mut server.connect(), CROWD - 1);
            ask(connection, &format!("RES.IDEMP COMMIT k {token} 1h receipt-17{rest}"))
        });
        assert_eq!(runs, 1);
        assert!(replies.contains(&"[COMMITTED stored]".to_owned()));
        all_got(&replies, &format!("[REPLAY {kind} receipt-17 0]"), 1);
    }
}

#[test]
fn exactly_one_follows_a_killed_runner_and_knows() {
    for rest in ["1h BOUND", "2s"] {
        let mut scene = Scene::real();
        let mut runner = Client::of(&scene.server);
        runner.says(&format!("RES.IDEMP BEGIN k child {rest} FINGERPRINT f"));
        assert_eq!(runner.hears(), "RUN");
        let (replies, runs) = std::thread::scope(|scope| {
            let main = &mut scene.main;
            scope.spawn(move || {
                all_wait(main, CROWD);
                runner.signal("KILL");
            });
            crowd(&scene.server, CROWD, BEGIN, "RUN", |connection, token, _| {
                let again = ask(connection, &format!("RES.IDEMP BEGIN k {token} 1h"));
                assert_eq!(number(&again, 2), 2, "the attempt: {again}");
                ask(connection, &format!("RES.IDEMP COMMIT k {token} 1h second"))
            })
        });
        assert_eq!(runs, 1);
        all_got(&replies, "[REPLAY ok second 0]", 1);
        assert_eq!(scene.ask("RES.IDEMP COMMIT k child 1h first"), "[LOST taken]");
    }
}
