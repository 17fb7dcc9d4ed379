//! Dead letters come back only under a case, at a rate, verified; and leave only by a purge of what is old.

use crate::driven::Say;
use crate::letters::{count, dies, given, ledger, state, take};
use crate::scene::Scene;

const DAY_MS: i64 = 86_400_000;

/// A ledger with so many dead entries of `pay/no`, and case 1 about them.
fn dead(many: usize) -> Scene {
    let mut scene = ledger();
    for n in 0..many {
        dies(&mut scene, "d", &format!("m{n:03}"), "pay", "no");
    }
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.ask("RES.DLQ DIAGNOSE d pay/no CATEGORY infrastructure CAUSE c FIX f ACTOR ann"), "1");
    scene
}

#[test]
fn a_redrive_keeps_its_rate_with_any_number_of_takers() {
    let mut scene = dead(40);
    let started = scene.ask("RES.DLQ REDRIVE d 1 RATE 60 1m FIRST 40 ACTOR ann");
    assert!(started.starts_with("[STARTED 40 1 ["), "{started}");
    let mut instants = Vec::new();
    for step in 0..200 {
        let now = 1_000 + step * 100;
        scene.main.clock_at_ms(now);
        for taker in 0..5 {
            let reply = scene.ask(&format!("RES.DLQ TAKE d t{step}-{taker} 10m COUNT 100"));
            if reply.starts_with("[TAKEN") {
                assert_eq!(given(&reply).len(), 1, "{reply}");
                instants.push(now);
            }
        }
    }
    assert_eq!(instants.len(), 20, "one a second: {instants:?}");
    assert!(instants.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{instants:?}");
    // Idle time is not saved up.
    scene.main.clock_at_ms(400_000);
    let taken = (0..5).filter(|n| scene.ask(&format!("RES.DLQ TAKE d idle{n} 10m")).starts_with("[TAKEN")).count();
    assert_eq!(taken, 1);
}

#[test]
fn a_redrive_that_helps_nobody_stops_itself_and_says_so() {
    let mut scene = dead(30);
    scene.ask("RES.DLQ REDRIVE d 1 FIRST 4 ONESHOT ACTOR ann");
    let mut given_out = 0;
    for step in 0..30 {
        scene.main.clock_at_ms(2_000 + step * 1_000);
        let reply = scene.ask(&format!("RES.DLQ TAKE d t{step} 10s"));
        if reply.starts_with("[TAKEN") {
            let (id, fence) = given(&reply).remove(0);
            given_out += 1;
            let failed = scene.ask(&format!("RES.DLQ FAIL d {id} ERROR no FENCE {fence}"));
            assert!(failed.starts_with("[DEAD 2 "), "{failed}");
        }
    }
    assert_eq!(given_out, 4, "the first four, and no more");
    assert!(scene.ask("RES.DLQ INFO d ALERTS").contains("kind stopped"));
    assert!(scene.ask("RES.DLQ INFO d CASE 1").contains("phase failed"));
    assert_eq!(scene.ask("RES.DLQ REDRIVE d 1 ID m000 ACTOR ann"), "[REFUSED again]");
}

#[test]
fn a_waiting_taker_gets_the_next_turn_of_a_redrive() {
    let mut scene = dead(3);
    scene.ask("RES.DLQ REDRIVE d 1 RATE 6 1m ACTOR ann");
    assert_eq!(take(&mut scene, "d t 10m").0, "m000");
    let mut waiter = scene.waits("RES.DLQ TAKE d u 10m WAIT 1m");
    scene.main.clock_at_ms(10_999);
    scene.ask("PING");
    assert_eq!(scene.waiters(), 1);
    scene.main.clock_at_ms(11_000);
    let reply = waiter.reply();
    assert!(reply.starts_with("[TAKEN 10000 600000 [[m001 "), "{reply}");
}

#[test]
fn parked_entries_follow_one_at_a_time() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d head ERROR e PAYLOAD p AGGREGATE acc");
    for n in 1..=3 {
        assert_eq!(scene.ask(&format!("RES.DLQ PARK d p{n} AGGREGATE acc PAYLOAD p")), format!("[PARKED {n}]"));
    }
    scene.main.clock_at_ms(500);
    let mut taken = scene.ask("RES.DLQ TAKE d t0 10s COUNT 10");
    for next in ["p1", "p2", "p3"] {
        let all = given(&taken);
        assert_eq!(all.len(), 1, "{taken}");
        assert_eq!(scene.ask(&format!("RES.DLQ DONE d {} {}", all[0].0, all[0].1)), "[DONE]");
        assert_eq!(state(&mut scene, "d", next), "waiting");
        taken = scene.ask(&format!("RES.DLQ TAKE d t-{next} 10s COUNT 10"));
    }
    let all = given(&taken);
    scene.ask(&format!("RES.DLQ DONE d {} {}", all[0].0, all[0].1));
    assert_eq!(scene.ask("RES.DLQ PARK d p4 AGGREGATE acc PAYLOAD p"), "[FREE]");
}

#[test]
fn what_is_old_is_purged_and_what_is_held_stays() {
    let mut scene = ledger();
    for id in ["old", "held", "young"] {
        if id == "young" {
            (0..30).for_each(|half| scene.main.clock_at_ms(half * DAY_MS / 2));
        }
        dies(&mut scene, "d", id, "pay", "no");
    }
    scene.ask("RES.DLQ HOLD d held ON REASON law ACTOR ann");
    // A clock that goes on in hops below a day has not jumped.
    (30..190).for_each(|half| scene.main.clock_at_ms(half * DAY_MS / 2));
    assert_eq!(scene.ask("RES.DLQ PURGE d OLDER 90d STATE resolved ACTOR ann"), "[0 0]");
    assert_eq!(scene.ask("RES.DLQ PURGE d OLDER 90d ACTOR ann"), "[1 0]");
    assert_eq!(state(&mut scene, "d", "old"), "nil");
    assert_eq!((state(&mut scene, "d", "held"), state(&mut scene, "d", "young")), ("dead".into(), "dead".into()));
    assert_eq!(count(&mut scene, "d", "entries"), 2);
    // A jump: nobody knows how old anything is, for a day.
    scene.main.clock_at_ms(400 * DAY_MS);
    let refused = scene.ask("RES.DLQ PURGE d OLDER 90d ACTOR ann");
    assert!(refused.starts_with("-ERR the clock has jumped"), "{refused}");
    scene.main.clock_at_ms(400 * DAY_MS + DAY_MS / 2);
    assert!(scene.ask("RES.DLQ PURGE d OLDER 90d ACTOR ann").starts_with("-ERR the clock has jumped"));
    assert_eq!(state(&mut scene, "d", "young"), "dead");
    scene.main.clock_at_ms(401 * DAY_MS + 1);
    assert_eq!(scene.ask("RES.DLQ PURGE d OLDER 90d ACTOR ann"), "[1 0]");
    assert_eq!(state(&mut scene, "d", "held"), "dead");
}

#[test]
fn lists_continue_at_their_cursor_and_find_each_entry_once() {
    let mut scene = dead(25);
    dies(&mut scene, "d", "other", "mail", "no");
    for filter in ["STATE dead TYPE pay", "GROUP pay/no", "CLASS transient TYPE pay"] {
        let (mut cursor, mut ids) = ("0".to_owned(), Vec::new());
        loop {
            let page = scene.ask(&format!("RES.DLQ LIST d {filter} LIMIT 7 CURSOR {cursor}"));
            ids.extend(page.split("[id ").skip(1).filter_map(|row| row.split(' ').next()).map(str::to_owned));
            cursor = page.trim_start_matches('[').split(' ').next().unwrap_or("0").to_owned();
            if cursor == "0" {
                break;
            }
        }
        let wanted: Vec<String> = (0..25).map(|n| format!("m{n:03}")).collect();
        assert_eq!(ids, wanted, "{filter}");
    }
}
