//! Transactions, scripts, access lists, replicas: where a call may come from, and what it may do there.

use redis::Value;
use resil_harness::{Options, Server, error_text, ok, wait_for_sync};

use crate::driven::Say;
use crate::scene::{Scene, shown};
use crate::talk::ask;

#[test]
fn inside_a_transaction_wait_means_do_not_wait() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN i a 10s");
    scene.ask("RES.SFLIGHT JOIN s a 10s");
    let reported = scene.at_once(&["RES.IDEMP BEGIN i b 1s WAIT 1m", "RES.SFLIGHT JOIN s b 1s WAIT 1m"]);
    assert_eq!(reported, "[[BUSY 10000 1] [BUSY 10000]]");
    assert_eq!(scene.waiters(), 0);
}

#[test]
fn inside_a_script_wait_means_do_not_wait() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN i a 10s");
    scene.ask("RES.SFLIGHT JOIN s a 10s");
    let script = "return {redis.call('RES.IDEMP', 'BEGIN', KEYS[1], 'b', '1s', 'WAIT', '1m'), \
                  redis.call('RES.SFLIGHT', 'JOIN', KEYS[2], 'b', '1s', 'WAIT', '1m')}";
    let reported = ok(&mut scene.main, &["EVAL", script, "2", "i", "s"]);
    assert_eq!(shown(&reported), "[[BUSY 10000 1] [BUSY 10000]]");
    // What a script decides is replicated and undone with nothing: the whole life of a key in one.
    let script = "redis.call('RES.IDEMP', 'BEGIN', KEYS[1], 'a', '1s') \
                  redis.call('RES.IDEMP', 'COMMIT', KEYS[1], 'a', '1h', 'by-script') \
                  return redis.call('RES.IDEMP', 'BEGIN', KEYS[1], 'b', '1s')";
    assert_eq!(shown(&ok(&mut scene.main, &["EVAL", script, "1", "whole"])), "[REPLAY ok by-script 0]");
}

#[test]
fn one_transaction_may_begin_and_commit_while_others_wait() {
    let mut scene = Scene::driven();
    scene.ask("RES.SFLIGHT JOIN s a 10s");
    let mut follower = scene.waits("RES.SFLIGHT JOIN s b 10s WAIT 1m");
    let reported =
        scene.at_once(&["RES.SFLIGHT PUBLISH s a 1m VALUE v", "RES.SFLIGHT INVALIDATE s", "RES.SFLIGHT GET s"]);
    assert_eq!(reported, "[[PUBLISHED 1] 1 [MISS]]");
    assert_eq!(follower.reply(), "[VALUE v 0 60000]");
    follower.is_in_step();
}

fn flags(scene: &mut Scene, command: &str) -> String {
    shown(&ok(&mut scene.main, &["COMMAND", "INFO", command]))
}

#[test]
fn what_only_reads_says_so_and_what_blocks_says_so() {
    let mut scene = Scene::driven();
    // Redis 7.0 has no categories for commands of modules.
    let named = flags(&mut scene, "RES.IDEMP|GET").contains("@");
    let category = |flags: &str, name: &str| !named || flags.contains(name);
    for command in ["RES.IDEMP|GET", "RES.IDEMP|INFO", "RES.SFLIGHT|GET", "RES.SFLIGHT|MGET", "RES.SFLIGHT|INFO"] {
        let flags = flags(&mut scene, command);
        assert!(flags.contains("readonly") && category(&flags, "@read") && !flags.contains("write"), "{flags}");
    }
    for command in ["RES.IDEMP|BEGIN", "RES.SFLIGHT|JOIN"] {
        let flags = flags(&mut scene, command);
        assert!(flags.contains("blocking") && category(&flags, "@write") && !flags.contains("denyoom"), "{flags}");
    }
    for command in [
        "RES.IDEMP|COMMIT",
        "RES.IDEMP|ABORT",
        "RES.IDEMP|RENEW",
        "RES.IDEMP|ONCE",
        "RES.SFLIGHT|PUBLISH",
        "RES.SFLIGHT|ABANDON",
        "RES.SFLIGHT|RENEW",
        "RES.SFLIGHT|INVALIDATE",
    ] {
        let flags = flags(&mut scene, command);
        assert!(flags.contains("write") && category(&flags, "@write") && !flags.contains("denyoom"), "{flags}");
        assert!(!flags.contains("blocking"), "{flags}");
    }
}

#[test]
fn acls_separate_readers_from_runners_and_keys() {
    let mut scene = Scene::driven();
    scene.main.say("ACL SETUSER reader on >pw ~mine:* resetchannels +res.idemp|get +res.sflight|get +res.sflight|mget");
    scene.main.say("ACL SETUSER runner on >pw ~mine:* resetchannels +res.idemp +res.sflight +ping");
    let mut reader = scene.server.connect();
    reader.say("AUTH reader pw");
    assert_eq!(ask(&mut reader, "RES.IDEMP GET mine:i"), "[MISS]");
    assert_eq!(ask(&mut reader, "RES.SFLIGHT GET mine:s"), "[MISS]");
    assert_eq!(ask(&mut reader, "RES.SFLIGHT MGET mine:name mine:s mine:t"), "[[MISS] [MISS]]");
    for line in [
        "RES.IDEMP BEGIN mine:i a 1s",
        "RES.IDEMP ONCE mine:i 1s",
        "RES.SFLIGHT JOIN mine:s a 1s",
        "RES.SFLIGHT INVALIDATE mine:s",
        "RES.IDEMP GET others:i",
        "RES.SFLIGHT GET others:s",
        "RES.SFLIGHT MGET mine:name mine:s others:s",
        "RES.SFLIGHT MGET others:name mine:s",
    ] {
        assert!(reader.refusal(line).starts_with("NOPERM"), "{line}");
    }
    let mut runner = scene.server.connect();
    runner.say("AUTH runner pw");
    assert!(ask(&mut runner, "RES.IDEMP BEGIN mine:i a 1s").starts_with("[RUN "));
    assert!(ask(&mut runner, "RES.SFLIGHT JOIN mine:s a 1s").starts_with("[LEAD "));
    for line in ["RES.IDEMP BEGIN others:i a 1s", "RES.SFLIGHT JOIN others:s a 1s"] {
        assert!(runner.refusal(line).starts_with("NOPERM"), "{line}");
    }
}

#[test]
fn a_replica_reads_and_refuses_to_decide() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let mut connection = primary.connect();
    ask(&mut connection, "RES.IDEMP BEGIN i a 1h FINGERPRINT f");
    ask(&mut connection, "RES.IDEMP BEGIN done a 1h");
    ask(&mut connection, "RES.IDEMP COMMIT done a 1h receipt");
    ask(&mut connection, "RES.SFLIGHT JOIN s a 1h");
    ask(&mut connection, "RES.SFLIGHT PUBLISH s a 1h VALUE v");
    wait_for_sync(&primary, &replica);
    let mut reader = replica.connect();
    assert!(ask(&mut reader, "RES.IDEMP GET i").starts_with("[BUSY "));
    assert_eq!(ask(&mut reader, "RES.IDEMP GET i FINGERPRINT g"), "[MISMATCH]");
    assert!(ask(&mut reader, "RES.IDEMP GET done").starts_with("[REPLAY ok receipt "));
    assert!(ask(&mut reader, "RES.SFLIGHT GET s").starts_with("[VALUE v "));
    assert!(matches!(reader.say("RES.IDEMP INFO i"), Value::Array(_)));
    assert!(matches!(reader.say("RES.SFLIGHT INFO s"), Value::Array(_)));
    for line in [
        "RES.IDEMP BEGIN i a 1h",
        "RES.IDEMP COMMIT i a 1h x",
        "RES.IDEMP ONCE o 1h",
        "RES.SFLIGHT JOIN s b 1s",
        "RES.SFLIGHT PUBLISH s a 1s EMPTY",
        "RES.SFLIGHT INVALIDATE s",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(error_text(&mut reader, &words).starts_with("READONLY"), "{line}");
    }
}
