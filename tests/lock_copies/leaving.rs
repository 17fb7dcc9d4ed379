//! Every way a key can leave: its holder is notified, once, and the first in the queue has it.

use resil_harness::{Flavor, Options, Server, eventually, ok};

use crate::asked::Asked;
use crate::driven::{SOON, Say};
use crate::scene::Scene;

fn handed_on_after(lines: &[&str]) {
    for line in lines {
        println!("{line}");
        let mut scene = Scene::fresh();
        scene.connection.say(line);
        scene.assert_handed_on("absent");
    }
}

#[test]
fn a_deleted_lock_is_handed_on() {
    handed_on_after(&["DEL k", "UNLINK k"]);
}

#[test]
fn a_lock_expired_by_a_user_is_handed_on() {
    handed_on_after(&["PEXPIRE k 1", "PEXPIREAT k 1"]);
}

#[test]
fn a_lock_renamed_away_is_handed_on() {
    let mut scene = Scene::fresh();
    scene.connection.say("RENAME k elsewhere");
    scene.assert_handed_on("absent");
    assert!(scene.connection.holds("elsewhere", "a"));
}

#[test]
fn a_lock_moved_to_another_database_is_handed_on() {
    let mut scene = Scene::fresh();
    assert_eq!(scene.connection.integer("MOVE k 3"), 1);
    scene.assert_handed_on("absent");
    scene.connection.say("SELECT 3");
    assert!(scene.connection.holds("k", "a"));
}

#[test]
fn a_flushed_lock_is_handed_on() {
    for line in ["FLUSHDB", "FLUSHDB ASYNC", "FLUSHALL", "FLUSHALL ASYNC"] {
        println!("{line}");
        let mut scene = Scene::patient();
        scene.connection.say(line);
        scene.assert_handed_on("absent");
    }
}

#[test]
fn a_flushed_lock_is_lost_exactly_once() {
    handed_on_after(&["FLUSHDB", "FLUSHDB ASYNC", "FLUSHALL", "FLUSHALL ASYNC"]);
}

#[test]
fn a_lock_deleted_in_transactions_or_scripts_is_handed_on() {
    let mut scene = Scene::fresh();
    for line in ["MULTI", "DEL k", "SET other text", "EXEC"] {
        scene.connection.say(line);
    }
    scene.assert_handed_on("absent");
    let mut scene = Scene::fresh();
    ok(&mut scene.connection, &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "k"]);
    scene.assert_handed_on("absent");
}

#[test]
fn a_migrated_lock_is_handed_on_and_held_there() {
    let other = Server::fresh();
    let mut scene = Scene::fresh();
    scene.connection.say(&format!("MIGRATE 127.0.0.1 {} k 0 5000", other.port()));
    scene.assert_handed_on("absent");
    let look = other.connect().look("k");
    assert_eq!((look.owners(), look.holders[0].fence), (vec!["a"], scene.fence));
}

/// Valkey 8.1 to 9.1.1 do not tell us of keys that were evicted or renamed: see `module/src/vendor.rs`.
pub fn tells_of_keys(flavor: &Flavor) -> bool {
    !flavor.is_valkey() || !((8, 1, 0)..(9, 1, 2)).contains(&flavor.version())
}

#[test]
fn an_evicted_lock_is_handed_on() {
    let mut scene = Scene::fresh();
    let used = scene.connection.info_number("memory", "used_memory");
    let mut filler = scene.server.connect();
    scene.connection.say(&format!("CONFIG SET maxmemory {} maxmemory-policy allkeys-lru", used + 2_000_000));
    let mut number = 0;
    eventually("the lock is evicted", SOON, || {
        // One at a time, so that a caller that has the lock next is not evicted with it.
        (0..500).any(|_| {
            number += 1;
            ok(&mut filler, &["SET".to_owned(), format!("filler:{number}"), "x".repeat(2_000)]);
            let evicted = filler.ask("RES.LOCK CHECK k a") == "0";
            if evicted {
                filler.say("CONFIG SET maxmemory 0");
            }
            evicted
        })
    });
    let reasons: &[&str] = if tells_of_keys(scene.server.flavor()) { &["evicted"] } else { &["absent", "evicted"] };
    scene.assert_handed_on_as(reasons);
}

#[test]
fn waiters_of_a_replaced_key_are_asked_to_retry() {
    for line in ["SET k text", "RENAME list k", "COPY list k REPLACE"] {
        println!("{line}");
        let mut scene = Scene::fresh();
        scene.connection.say("RPUSH list x");
        scene.connection.say(line);
        for waiter in &mut scene.waiters {
            let reply = waiter.reply();
            assert!(reply.starts_with("TRYAGAIN "), "{reply}");
        }
        scene.assert_reported_once(&["absent"]);
        assert!(scene.holder.ask("RES.LOCK RENEW k a 1h").starts_with("WRONGTYPE "));
    }
}

#[test]
fn a_bulkhead_that_leaves_lets_the_line_in() {
    for line in ["DEL b", "FLUSHALL", "RENAME b c", "MOVE b 5", "PEXPIRE b 1"] {
        println!("{line}");
        let server = Server::start(Options::default());
        let mut connection = server.connect();
        let mut ear = crate::asked::Ear::at(&server);
        for owner in ["a", "b"] {
            assert!(connection.ask(&format!("RES.BULKHEAD ENTER b {owner} 2 40s")).starts_with("GRANTED "));
        }
        let mut callers: Vec<crate::asked::Caller> = Vec::new();
        for index in 0..3 {
            let line = format!("RES.BULKHEAD ENTER b w{index} 2 1h WAIT 60s QUEUE 10");
            callers.push(crate::asked::Caller::calls(&server, &line));
            eventually("it stands in the queue", SOON, || connection.look_into("b").waiters.len() == index + 1);
        }
        connection.say(line);
        assert!(callers[0].reply().starts_with("GRANTED "));
        assert!(callers[1].reply().starts_with("GRANTED "));
        let look = connection.look_into("b");
        assert_eq!((look.owners(), look.waiters.len()), (vec!["w0", "w1"], 1));
        assert_eq!(ear.losses().len(), 2, "{:?}", ear.losses());
    }
}
