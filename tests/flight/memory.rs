//! Memory: what a key costs, and what works when there is none left.

use resil_harness::Server;

use crate::driven::Say;
use crate::scene::Scene;
use crate::seed;
use crate::talk::number;

const KEYS: usize = 100_000;

/// What so many keys of 16 bytes cost each, by the server's own measure; and by MEMORY USAGE of one.
fn cost(words: &[&str]) -> (f64, i64) {
    let server = Server::fresh();
    let mut connection = server.connect();
    let before = connection.info_number("memory", "used_memory");
    for part in 0..KEYS / 10_000 {
        let mut pipe = redis::pipe();
        for index in 0..10_000 {
            let mut command = redis::Cmd::new();
            for word in words {
                if *word == "KEY" {
                    command.arg(format!("event:{:010}", part * 10_000 + index));
                } else {
                    command.arg(*word);
                }
            }
            pipe.add_command(command).ignore();
        }
        pipe.query::<()>(&mut connection).expect("all are new");
    }
    // The buffers of this connection shrink again; what they take is small beside the keys.
    let after = connection.info_number("memory", "used_memory");
    ((after - before) as f64 / KEYS as f64, connection.integer("MEMORY USAGE event:0000000000"))
}

#[test]
fn an_event_that_was_seen_is_small() {
    let (once, usage) = cost(&["RES.IDEMP", "ONCE", "KEY", "1h"]);
    let (plain, plain_usage) = cost(&["SET", "KEY", "1", "NX", "PX", "3600000"]);
    seed::say(&format!(
        "ONCE: {once:.1} bytes a key of 16 bytes over {KEYS} keys (MEMORY USAGE {usage}); \
         SET NX PX: {plain:.1} (MEMORY USAGE {plain_usage})"
    ));
    assert!(once < 330.0, "{once} bytes");
    assert!((30..400).contains(&usage), "{usage} bytes");
}

/// From here on the server uses more than it may, and evicts nothing.
fn exhaust(scene: &mut Scene) {
    scene.main.say("SETRANGE filler 8000000 x");
    let used = scene.main.info_number("memory", "used_memory");
    scene.main.say(&format!("CONFIG SET maxmemory {} maxmemory-policy noeviction", used - 4_000_000));
    assert!(scene.main.refusal("SET plain text").starts_with("OOM "));
}

#[test]
fn at_maxmemory_nothing_new_begins_and_what_runs_can_end() {
    let mut scene = Scene::driven();
    for key in ["done", "aborted", "renewed"] {
        scene.ask(&format!("RES.IDEMP BEGIN {key} a 1h"));
    }
    scene.ask("RES.IDEMP ONCE seen 1h");
    scene.ask("RES.SFLIGHT JOIN led a 1h");
    scene.ask("RES.SFLIGHT JOIN failing a 1h");
    scene.ask("RES.SFLIGHT JOIN fresh a 1h");
    scene.ask("RES.SFLIGHT PUBLISH fresh a 1h VALUE v");
    let mut waiter = scene.waits("RES.IDEMP BEGIN done w 1h WAIT 1m");
    let mut follower = scene.waits("RES.SFLIGHT JOIN led w 1h WAIT 1m");
    let mut unlucky = scene.waits("RES.SFLIGHT JOIN failing w 1h WAIT 1m");
    exhaust(&mut scene);
    for line in [
        "RES.IDEMP BEGIN new a 1h",
        "RES.IDEMP BEGIN new a 1h WAIT 1s",
        "RES.IDEMP ONCE new 1h",
        "RES.SFLIGHT JOIN new a 1h",
    ] {
        let error = scene.ask(line);
        assert!(error.starts_with("-OOM "), "{line}: {error}");
    }
    assert_eq!(scene.main.integer("EXISTS new"), 0);
    assert_eq!(scene.ask("RES.IDEMP BEGIN done b 1h"), "[BUSY 3600000 1]");
    assert_eq!(scene.ask("RES.IDEMP ONCE seen 1h"), "0");
    assert_eq!(scene.verdict("RES.IDEMP RENEW renewed a 1h"), "GRANTED");
    assert_eq!(scene.ask("RES.IDEMP COMMIT done a 1h receipt"), "[COMMITTED dropped]");
    assert_eq!(waiter.reply(), "[REPLAY ok nil 0]");
    assert_eq!(scene.ask("RES.IDEMP BEGIN done b 1h"), "[REPLAY ok nil 0]", "that it is done is known");
    assert_eq!(scene.ask("RES.IDEMP ABORT aborted a"), "[ABORTED]");
    assert_eq!(scene.verdict("RES.SFLIGHT GET fresh"), "VALUE");
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN fresh b 1h"), "VALUE");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH led a 1h VALUE v"), "[PUBLISHED 1]");
    let reported = follower.reply();
    assert!(reported.starts_with("[VALUE v 0 "), "who waits has it: {reported}");
    assert_eq!(scene.ask("RES.SFLIGHT GET led"), "[MISS]", "and nothing is kept");
    assert_eq!(scene.ask("RES.SFLIGHT INVALIDATE fresh"), "1");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH failing a 1h ERROR down"), "[PUBLISHED 1]");
    assert_eq!(unlucky.reply(), "[ERROR down]");
    assert_eq!(scene.ask("RES.SFLIGHT JOIN failing b 1h"), "[ERROR down]", "an error keeps others from loading");
    // An empty result needs no memory.
    scene.main.say("CONFIG SET maxmemory 0");
    scene.ask("RES.IDEMP BEGIN later a 1h");
    assert_eq!(number(&scene.ask("RES.IDEMP BEGIN later a 1h"), 2), 1);
}

#[test]
fn keys_that_are_gone_leave_nothing_behind() {
    let mut scene = Scene::real();
    let churn = |scene: &mut Scene, from: usize| {
        let mut pipe = redis::pipe();
        for n in from..from + 10_000 {
            let (work, flight) = (format!("i:{n}"), format!("s:{n}"));
            pipe.cmd("RES.IDEMP").arg("BEGIN").arg(&work).arg("a").arg("1d").ignore();
            pipe.cmd("RES.IDEMP").arg("COMMIT").arg(&work).arg("a").arg("1d").arg("result").ignore();
            pipe.cmd("RES.SFLIGHT").arg("JOIN").arg(&flight).arg("a").arg("1d").ignore();
            pipe.cmd("DEL").arg(&work).arg(&flight).ignore();
        }
        pipe.query::<()>(&mut scene.main).expect("all are new");
        scene.main.info_number("memory", "used_memory")
    };
    churn(&mut scene, 0);
    let before = churn(&mut scene, 10_000);
    let after = churn(&mut scene, 20_000);
    assert!(after - before < 300_000, "{} bytes more after 20,000 more keys that are gone", after - before);
}

#[test]
fn values_that_come_and_go_leave_nothing_behind() {
    let mut scene = Scene::real();
    let value = "x".repeat(1 << 20);
    let round = |scene: &mut Scene| {
        scene.ask("RES.SFLIGHT JOIN k leader 1h");
        let mut followers: Vec<crate::scene::Caller> =
            (0..5).map(|index| scene.waits(&format!("RES.SFLIGHT JOIN k f{index} 1h WAIT 1m"))).collect();
        resil_harness::ok(&mut scene.main, &["RES.SFLIGHT", "PUBLISH", "k", "leader", "1h", "VALUE", &value]);
        let usage = scene.main.integer("MEMORY USAGE k");
        assert!((1 << 20..(1 << 20) + 4_096).contains(&usage), "{usage} bytes");
        followers.iter_mut().for_each(|follower| assert_eq!(follower.verdict(), "VALUE"));
        drop(followers);
        scene.ask("RES.SFLIGHT INVALIDATE k");
    };
    (0..5).for_each(|_| round(&mut scene));
    std::thread::sleep(std::time::Duration::from_millis(50));
    let before = scene.main.info_number("memory", "used_memory");
    (0..15).for_each(|_| round(&mut scene));
    let mut after = 0;
    resil_harness::eventually("memory is given back", crate::driven::SOON, || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        after = scene.main.info_number("memory", "used_memory");
        after - before < 1 << 20
    });
}
