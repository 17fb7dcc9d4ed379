//! What changes nothing says nothing: it is not replicated, dirties nothing, breaks no WATCH and creates no key.

use resil_harness::{Options, Server, wait_for_sync};

use crate::driven::Say;
use crate::scene::Scene;

const CHANGES_NOTHING: &[&str] = &[
    "RES.LOCK ACQUIRE k b 1h",
    "RES.LOCK ACQUIRE k b 1h SHARED",
    "RES.LOCK ACQUIRE k a 1s",
    "RES.LOCK CHECK k a",
    "RES.LOCK CHECK none a",
    "RES.LOCK INFO k",
    "RES.LOCK INFO none",
    "RES.LOCK RENEW none a 1s",
    "RES.LOCK RENEW k b 1s",
    "RES.LOCK RENEW k a 1s FENCE 7",
    "RES.LOCK RELEASE none a",
    "RES.LOCK RELEASE k b",
    "RES.LOCK BREAK none",
    "RES.LOCK HELP",
    "RES.BULKHEAD ENTER p b 1 1h",
    "RES.BULKHEAD ENTER p a 1 1s",
    "RES.BULKHEAD RENEW none a 1s",
    "RES.BULKHEAD LEAVE p b",
    "RES.BULKHEAD LEAVE none b",
    "RES.BULKHEAD INFO p",
    "RES.HEARTBEAT",
];

const CHANGES: &[&str] = &[
    "RES.LOCK RENEW k a 2h",
    "RES.LOCK RELEASE k a",
    "RES.LOCK ACQUIRE k c 1h",
    "RES.LOCK BREAK k",
    "RES.BULKHEAD LEAVE p a",
];

#[test]
fn denials_and_questions_are_silent_and_changes_are_not() {
    let mut scene = Scene::driven();
    let replica = Server::start(Options::default().config("replicaof", format!("127.0.0.1 {}", scene.server.port())));
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    scene.ask("RES.BULKHEAD ENTER p a 1 1h");
    wait_for_sync(&scene.server, &replica);
    // Besides ours, only the primary's own PING is written to the stream.
    scene.main.say("CONFIG SET repl-ping-replica-period 3600");
    let mut judged = |line: &str, silent: bool| {
        let mut watcher = scene.server.connect();
        watcher.say("WATCH k p none");
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
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let mut watcher = scene.server.connect();
    watcher.say("WATCH k");
    let dirty = scene.main.info_number("persistence", "rdb_changes_since_last_save");
    let before = scene.main.digest("k");
    let mut waiter = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1s");
    scene.main.clock_at_ms(1_000);
    assert_eq!(waiter.verdict(), "TIMEOUT");
    drop(scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m"));
    scene.nobody_waits();
    assert_eq!(scene.main.digest("k"), before);
    assert_eq!(scene.main.info_number("persistence", "rdb_changes_since_last_save"), dirty);
    watcher.say("MULTI");
    watcher.say("PING");
    assert_ne!(watcher.say("EXEC"), redis::Value::Nil);
}
