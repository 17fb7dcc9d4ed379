//! Every way a ledger can leave, or be replaced: takers that wait are answered once, and the counts stay true.

use resil_harness::{eventually, ok};

use crate::driven::{SOON, Say};
use crate::letters::{given, ledger};
use crate::scene::{Caller, Scene};

/// A ledger `d` with an entry that `a` has taken, one that is due in an hour, and three that wait.
fn crowd() -> (Scene, Vec<Caller>, u64) {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d taken ERROR e PAYLOAD p");
    scene.ask("RES.DLQ FAIL d later ERROR e PAYLOAD p AFTER 1h");
    scene.main.clock_at_ms(500);
    let fence = given(&scene.ask("RES.DLQ TAKE d a 1h"))[0].1;
    let waiters = (0..3).map(|n| scene.waits(&format!("RES.DLQ TAKE d w{n} 1h WAIT 10m"))).collect();
    (scene, waiters, fence)
}

#[test]
fn waiters_of_a_deleted_ledger_are_answered_once() {
    for line in
        ["DEL d", "UNLINK d", "PEXPIREAT d 1", "RENAME d e", "MOVE d 3", "FLUSHDB", "FLUSHALL", "FLUSHALL ASYNC"]
    {
        println!("{line}");
        let (mut scene, mut waiters, _) = crowd();
        scene.main.say(line);
        for waiter in &mut waiters {
            let reply = waiter.reply();
            assert_eq!(reply, "[TIMEOUT -1]", "{line}");
            waiter.is_in_step();
        }
        scene.nobody_waits();
        assert_eq!(scene.main.integer("EXISTS d"), 0, "{line}: it is not made anew by those who left");
        let elsewhere = ["RENAME d e", "MOVE d 3"].contains(&line);
        // A value may be freed on another thread.
        eventually("what is gone is not counted", SOON, || {
            let is_counted = scene.main.info_number("resil", "dlq_bytes") > 0;
            scene.main.info_number("resil", "dlq_keys") == i64::from(elsewhere) && is_counted == elsewhere
        });
    }
}

#[test]
fn a_ledger_that_was_moved_goes_on_where_it_is() {
    for (line, key) in [("RENAME d e", "e"), ("MOVE d 3", "d"), ("SWAPDB 0 3", "d")] {
        println!("{line}");
        let (mut scene, _waiters, fence) = crowd();
        scene.main.say(line);
        if key == "d" {
            scene.main.say("SELECT 3");
        }
        assert_eq!(scene.ask(&format!("RES.DLQ RENEW {key} a 1h")), "[GRANTED 1 3600000]", "{line}");
        assert_eq!(scene.ask(&format!("RES.DLQ DONE {key} taken {fence}")), "[DONE]", "{line}");
        // Its timer has come with it.
        let mut waiter = Caller::new(&scene.server);
        if key == "d" {
            waiter.connection.say("SELECT 3");
        }
        let mut waiter = scene.waits_as(waiter, &format!("RES.DLQ TAKE {key} z 1h WAIT 10m"));
        scene.main.clock_at_ms(600_500);
        assert_eq!(waiter.reply(), "[TIMEOUT 2999500]", "{line}");
    }
}

#[test]
fn waiters_of_a_replaced_key_are_asked_to_retry() {
    for line in ["SET d text", "RENAME list d"] {
        let (mut scene, mut waiters, _) = crowd();
        scene.main.say("RPUSH list x");
        scene.main.say(line);
        for waiter in &mut waiters {
            let reply = waiter.reply();
            assert!(reply.starts_with("-TRYAGAIN "), "{line}: {reply}");
            waiter.is_in_step();
        }
    }
}

#[test]
fn a_reload_or_equal_restore_keeps_waiters_waiting() {
    for is_reload in [true, false] {
        let (mut scene, mut waiters, fence) = crowd();
        if is_reload {
            scene.main.say("DEBUG RELOAD");
        } else {
            let dump: Vec<u8> = redis::from_redis_value(scene.main.say("DUMP d")).expect("a payload");
            ok(&mut scene.main, &[b"RESTORE", b"d".as_slice(), b"0", &dump, b"REPLACE"]);
        }
        for _ in 0..20 {
            scene.ask("PING");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(scene.waiters(), 3);
        assert_eq!(scene.ask(&format!("RES.DLQ RETURN d taken {fence}")), "[RETURNED]");
        let reply = waiters[0].reply();
        assert!(reply.contains("[[taken "), "{reply}");
    }
}

#[test]
fn a_ledger_that_is_emptied_stays_and_its_waiters_too() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d m ERROR e PAYLOAD p");
    scene.main.clock_at_ms(500);
    let fence = given(&scene.ask("RES.DLQ TAKE d t 1h"))[0].1;
    let mut waiter = scene.waits("RES.DLQ TAKE d w 1h WAIT 10m");
    scene.ask(&format!("RES.DLQ DONE d m {fence}"));
    assert_eq!(scene.waiters(), 1);
    scene.ask("RES.DLQ FAIL d n ERROR e PAYLOAD p");
    scene.main.clock_at_ms(1_000);
    assert_eq!(waiter.verdict(), "TAKEN");
}

#[test]
fn a_demotion_sends_those_who_wait_away() {
    let (mut scene, mut waiters, fence) = crowd();
    let before = scene.main.digest("d");
    scene.main.say("REPLICAOF 127.0.0.1 1");
    for waiter in &mut waiters {
        let reply = waiter.reply();
        assert!(reply.starts_with("-UNBLOCKED "), "{reply}");
    }
    assert_eq!(scene.main.digest("d"), before);
    scene.main.say("REPLICAOF NO ONE");
    assert_eq!(scene.ask(&format!("RES.DLQ DONE d taken {fence}")), "[DONE]");
}

#[test]
fn what_is_gone_is_freed() {
    let mut scene = Scene::real();
    let churn = |scene: &mut Scene| {
        for _ in 0..20 {
            let mut pipe = redis::pipe();
            for n in 0..500 {
                pipe.cmd("RES.DLQ").arg("FAIL").arg("d").arg(n).arg("ERROR").arg(format!("e{n}")).arg("PAYLOAD");
                pipe.arg("x".repeat(500)).ignore();
            }
            pipe.query::<()>(&mut scene.main).expect("all are new");
            scene.main.say("UNLINK d");
        }
        eventually("it is freed", SOON, || scene.main.info_number("memory", "lazyfree_pending_objects") == 0);
        scene.main.info_number("memory", "used_memory")
    };
    churn(&mut scene);
    let before = churn(&mut scene);
    let after = churn(&mut scene);
    assert!(after - before < 300_000, "{} bytes more after 10,000 more entries that are gone", after - before);
}
