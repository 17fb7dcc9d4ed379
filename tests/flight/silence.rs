//! What changes nothing says nothing: it is not replicated, dirties nothing, breaks no WATCH and creates no key.

use resil_harness::{Options, Server, wait_for_sync};

use crate::driven::Say;
use crate::scene::Scene;

const CHANGES_NOTHING: &[&str] = &[
    "RES.IDEMP BEGIN run b 1h",
    "RES.IDEMP BEGIN run a 1s",
    "RES.IDEMP BEGIN run b 1h FINGERPRINT g",
    "RES.IDEMP BEGIN done b 1h",
    "RES.IDEMP BEGIN done b 1h WAIT 1m",
    "RES.IDEMP COMMIT done a 1h again",
    "RES.IDEMP COMMIT run b 1h x",
    "RES.IDEMP COMMIT none b 1h x",
    "RES.IDEMP ABORT done a",
    "RES.IDEMP ABORT none a",
    "RES.IDEMP RENEW run b 1h",
    "RES.IDEMP RENEW none b 1h",
    "RES.IDEMP ONCE seen 1h",
    "RES.IDEMP ONCE seen 1h TOKEN t",
    "RES.IDEMP GET run",
    "RES.IDEMP GET done",
    "RES.IDEMP GET none",
    "RES.IDEMP INFO run",
    "RES.IDEMP INFO none",
    "RES.IDEMP HELP",
    "RES.SFLIGHT JOIN lead b 1h",
    "RES.SFLIGHT JOIN lead a 1s",
    "RES.SFLIGHT JOIN fresh b 1h",
    "RES.SFLIGHT JOIN fresh b 1h WAIT 1m",
    "RES.SFLIGHT JOIN error b 1h",
    "RES.SFLIGHT GET fresh",
    "RES.SFLIGHT GET none",
    "RES.SFLIGHT INFO fresh",
    "RES.SFLIGHT PUBLISH fresh a 1h VALUE again",
    "RES.SFLIGHT PUBLISH lead b 1h EMPTY",
    "RES.SFLIGHT PUBLISH none b 1h EMPTY",
    "RES.SFLIGHT ABANDON lead b",
    "RES.SFLIGHT RENEW lead b 1h",
    "RES.SFLIGHT INVALIDATE none",
];

const CHANGES: &[&str] = &[
    "RES.IDEMP RENEW run a 2h",
    "RES.IDEMP ABORT run a",
    "RES.IDEMP BEGIN run c 1h",
    "RES.IDEMP COMMIT run c 1h x",
    "RES.SFLIGHT RENEW lead a 2h",
    "RES.SFLIGHT PUBLISH lead a 1h VALUE x",
    "RES.SFLIGHT INVALIDATE lead SOFT",
    "RES.SFLIGHT JOIN lead c 1h",
    "RES.SFLIGHT ABANDON lead c",
    "RES.SFLIGHT INVALIDATE fresh",
];

#[test]
fn replies_are_silent_and_changes_are_not() {
    let mut scene = Scene::driven();
    let replica = Server::start(Options::default().config("replicaof", format!("127.0.0.1 {}", scene.server.port())));
    for line in [
        "RES.IDEMP BEGIN run a 1h FINGERPRINT f",
        "RES.IDEMP BEGIN done a 1h",
        "RES.IDEMP COMMIT done a 1h r",
        "RES.IDEMP ONCE seen 1h TOKEN t",
        "RES.SFLIGHT JOIN lead a 1h",
        "RES.SFLIGHT JOIN fresh a 1h",
        "RES.SFLIGHT PUBLISH fresh a 1h VALUE v",
        "RES.SFLIGHT JOIN error a 1h",
        "RES.SFLIGHT PUBLISH error a 1h ERROR why",
    ] {
        scene.ask(line);
    }
    wait_for_sync(&scene.server, &replica);
    // Besides ours, only the primary's own PING is written to the stream.
    scene.main.say("CONFIG SET repl-ping-replica-period 3600");
    let mut judged = |line: &str, silent: bool| {
        let mut watcher = scene.server.connect();
        watcher.say("WATCH run done seen lead fresh error none");
        let seen = |scene: &mut Scene| {
            let dirty = scene.main.info_number("persistence", "rdb_changes_since_last_save");
            (dirty, scene.main.info_number("replication", "master_repl_offset"))
        };
        let before = seen(&mut scene);
        scene.ask(line);
        let after = seen(&mut scene);
        watcher.say("MULTI");
        watcher.say("PING");
        let undisturbed = watcher.say("EXEC") != redis::Value::Nil;
        assert_eq!((before.0 == after.0, before.1 == after.1, undisturbed), (silent, silent, silent), "{line}");
    };
    for line in CHANGES_NOTHING {
        judged(line, true);
    }
    for line in CHANGES {
        judged(line, false);
    }
    assert_eq!(scene.main.integer("EXISTS none"), 0);
}

#[test]
fn one_who_waits_and_goes_changes_nothing() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN i a 1h");
    scene.ask("RES.SFLIGHT JOIN s a 1h");
    let before = [scene.main.digest("i"), scene.main.digest("s")];
    let dirty = scene.main.info_number("persistence", "rdb_changes_since_last_save");
    let mut waiters = [scene.waits("RES.IDEMP BEGIN i b 1h WAIT 1s"), scene.waits("RES.SFLIGHT JOIN s b 1h WAIT 1s")];
    scene.main.clock_at_ms(1_000);
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.verdict(), "BUSY"));
    drop(scene.waits("RES.IDEMP BEGIN i c 1h WAIT 1m"));
    scene.nobody_waits();
    drop(scene.waits("RES.SFLIGHT JOIN s c 1h WAIT 1m"));
    scene.nobody_waits();
    assert_eq!([scene.main.digest("i"), scene.main.digest("s")], before);
    assert_eq!(scene.main.info_number("persistence", "rdb_changes_since_last_save"), dirty);
}

/// Changes that nobody asked for are changes all the same: a lapse breaks a WATCH and reaches a client that caches.
#[test]
fn watchers_see_a_lapse_and_not_a_hit() {
    let mut scene = Scene::driven();
    for line in [
        "RES.IDEMP BEGIN i a 1s",
        "RES.SFLIGHT JOIN s a 1s",
        "RES.SFLIGHT JOIN fresh a 1s",
        "RES.SFLIGHT PUBLISH fresh a 1h VALUE v",
    ] {
        scene.ask(line);
    }
    let watched = |scene: &mut Scene, key: &str, act: &mut dyn FnMut(&mut Scene)| {
        let mut watcher = scene.server.connect();
        watcher.say(&format!("WATCH {key}"));
        act(scene);
        watcher.say("MULTI");
        watcher.say("PING");
        watcher.say("EXEC") == redis::Value::Nil
    };
    assert!(!watched(&mut scene, "fresh", &mut |scene| drop(scene.ask("RES.SFLIGHT JOIN fresh b 1s"))));
    let mut lapse = |scene: &mut Scene| {
        scene.main.clock_at_ms(1_000);
        let main = &mut scene.main;
        resil_harness::eventually("both ends are noted", crate::driven::SOON, || {
            main.info_number("resil", "idemp_lost") + main.info_number("resil", "sflight_lost") == 2
        });
    };
    assert!(watched(&mut scene, "i s", &mut lapse));
}
