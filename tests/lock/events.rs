//! What is published: each loss exactly once, to everybody and on the owner's own channel, with all one needs to know.

use resil_harness::ok;
use serde_json::{Value as Json, json};

use crate::driven::{START_MS, START_US, Say};
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
fn every_loss_is_reported_once_with_its_reason() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:*");
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    scene.main.clock_at_ms(1_000);
    heard_once(&mut hearing, &loss("lock", "k", "a", 0, "expired", 1_000));
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST expired]");
    scene.ask("RES.LOCK ACQUIRE k b 1h");
    scene.ask("RES.LOCK BREAK k ACTOR ann REASON deploy");
    let mut broken = loss("lock", "k", "b", 1_000_000, "broken", 1_000);
    broken["actor"] = "ann".into();
    broken["note"] = "deploy".into();
    broken["user"] = "default".into();
    heard_once(&mut hearing, &broken);
    scene.ask("RES.LOCK BREAK k ACTOR ann");
    scene.ask("RES.LOCK ACQUIRE k c 1h");
    scene.main.say("DEL k");
    heard_once(&mut hearing, &loss("lock", "k", "c", 1_000_001, "absent", 1_000));
    let mut bound = scene.server.connect();
    bound.say("RES.BULKHEAD ENTER b d 2 1h BOUND");
    drop(bound);
    heard_once(&mut hearing, &loss("bulkhead", "b", "d", 1_000_002, "closed", 1_000));
    // What is let go is not lost.
    scene.ask("RES.LOCK ACQUIRE k e 1h");
    scene.ask("RES.LOCK RELEASE k e");
    scene.ask("RES.LOCK RELEASE k e");
    assert!(hearing.listen().is_empty());
    assert_eq!(scene.main.info_number("resil", "lock_lost"), 3);
    assert_eq!(scene.main.info_number("resil", "bulkhead_lost"), 1);
}

/// What leaves between two turns of the timer is noted in runs of what is alike.
#[test]
fn keys_that_leave_together_are_lost_with_own_reasons() {
    let mut scene = Scene::driven();
    for key in ["a", "b", "c", "d"] {
        scene.ask(&format!("RES.LOCK ACQUIRE {key} {key} 1h"));
    }
    scene.ask("RES.BULKHEAD ENTER e e 2 1h");
    scene.main.say("CONFIG SET maxmemory-policy allkeys-lru");
    let mut hearing = Hearing::to(&scene.server, "resil:events");
    let mut together = redis::pipe();
    for line in ["DEL a", "DEL e", "SWAPDB 0 1", "SELECT 1", "DEL b", "CONFIG SET maxmemory 1", "PING", "PING"] {
        let mut words = line.split(' ');
        let command = together.cmd(words.next().unwrap_or_default());
        for word in words {
            command.arg(word);
        }
        command.ignore();
    }
    together.cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).ignore();
    together.query::<()>(&mut scene.server.connect()).expect("every line succeeds");
    let mut lost: Vec<_> = hearing.exactly(5).iter().map(|(_, message)| parsed(message)).collect();
    lost.sort_by_key(|loss| loss["key"].to_string());
    let seen = lost.iter().map(|loss| format!("{} {} {}", loss["kind"], loss["key"], loss["reason"]).replace('"', ""));
    let wanted = ["lock a absent", "lock b absent", "lock c evicted", "lock d evicted", "bulkhead e absent"];
    assert_eq!(seen.collect::<Vec<_>>(), wanted);
}

/// An owner named `client:n` belongs to `client`, which hears all its losses on one channel.
#[test]
fn one_channel_carries_all_losses_of_a_client() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:lost:*");
    for (owner, channels) in [
        ("shop:1f:7", &["resil:lost:shop:1f", "resil:lost:shop:1f:7"][..]),
        ("shop:8", &["resil:lost:shop", "resil:lost:shop:8"]),
        ("shop:", &["resil:lost:shop", "resil:lost:shop:"]),
        ("shop", &["resil:lost:shop"]),
        (":9", &["resil:lost::9"]),
    ] {
        scene.ask(&format!("RES.LOCK ACQUIRE k {owner} 1h"));
        scene.ask("RES.LOCK BREAK k");
        let mut heard = hearing.exactly(channels.len());
        heard.sort();
        assert_eq!(heard.iter().map(|(channel, _)| channel.as_str()).collect::<Vec<_>>(), channels);
        assert!(heard.iter().all(|(_, message)| parsed(message)["owner"] == owner), "{heard:?}");
    }
}

#[test]
fn a_flush_tells_each_holder_exactly_once() {
    for flush in ["FLUSHALL", "FLUSHDB ASYNC"] {
        let mut scene = Scene::driven();
        let mut hearing = Hearing::to(&scene.server, "resil:*");
        scene.ask("RES.LOCK ACQUIRE k a 1h");
        scene.ask("RES.LOCK RENEW k a 1m");
        scene.ask("RES.LOCK RENEW k a 1s");
        scene.main.say(flush);
        heard_once(&mut hearing, &loss("lock", "k", "a", 0, "absent", 0));
        assert_eq!(scene.main.info_number("resil", "lock_lost"), 1);
    }
}

/// The holder must hear of it, whether the timer or the deletion comes first.
#[test]
fn an_ended_lease_whose_key_leaves_is_reported() {
    for leaves in ["DEL k", "FLUSHALL", "RENAME k other", "SET k text"] {
        for ask in ["RES.LOCK ACQUIRE k a 1s", "RES.BULKHEAD ENTER k a 2 1s"] {
            let mut scene = Scene::driven();
            let mut hearing = Hearing::to(&scene.server, "resil:events");
            scene.ask(ask);
            let later = format!("RES._CLOCK {}", START_US + 1_500_000);
            scene.at_once(&[&later, leaves]);
            let kind = if ask.starts_with("RES.LOCK") { "lock" } else { "bulkhead" };
            let (_, message) = &hearing.exactly(if leaves.starts_with("RENAME") { 2 } else { 1 })[0];
            assert_eq!(parsed(message), loss(kind, "k", "a", 0, "expired", 1_500), "{leaves}");
        }
    }
}

/// A lease ended before an operator came: the operator did not end it.
#[test]
fn a_breakers_actor_is_not_named_for_ended_leases() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:*");
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    let later = format!("RES._CLOCK {}", START_US + 2_000_000);
    assert_eq!(scene.at_once(&[&later, "RES.LOCK BREAK k ACTOR ann REASON why"]), "[OK 0]");
    heard_once(&mut hearing, &loss("lock", "k", "a", 0, "expired", 2_000));
}

#[test]
fn texts_that_are_not_utf8_are_reported_in_base64() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "resil:events");
    let owner: &[u8] = b"\xff\x00o";
    ok(&mut scene.main, &[b"RES.LOCK".as_slice(), b"ACQUIRE", b"k\xfe", owner, b"1s"]);
    ok(&mut scene.main, &[b"RES.LOCK".as_slice(), b"BREAK", b"k\xfe", b"ACTOR", b"\xfd"]);
    let heard = hearing.exactly(1);
    let message = parsed(&heard[0].1);
    assert_eq!(message["owner"], json!({"b64": "/wBv"}));
    assert_eq!(message["key"], json!({"b64": "a/4="}));
    assert_eq!(message["actor"], json!({"b64": "/Q=="}));
}

#[test]
fn grants_and_ends_are_notified_under_their_keys() {
    let mut scene = Scene::driven();
    let mut hearing = Hearing::to(&scene.server, "__keyevent@0__:res.*");
    let mut notified = |count| -> Vec<String> {
        let heard = hearing.exactly(count);
        heard
            .iter()
            .map(|(channel, key)| format!("{} {key}", channel.trim_start_matches("__keyevent@0__:res.")))
            .collect()
    };
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    scene.ask("RES.LOCK ACQUIRE k a 1s");
    scene.ask("RES.LOCK RENEW k a 2s");
    scene.ask("RES.LOCK ACQUIRE k b 1s");
    assert_eq!(notified(1), ["lock.granted k"]);
    let mut next = scene.waits("RES.LOCK ACQUIRE k b 1s WAIT 1m");
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(next.verdict(), "GRANTED");
    assert_eq!(notified(2), ["lock.released k", "lock.granted k"]);
    scene.main.clock_at_ms(1_000);
    assert_eq!(notified(1), ["lock.lost k"]);
    scene.ask("RES.BULKHEAD ENTER p a 1 1s");
    scene.ask("RES.BULKHEAD LEAVE p a");
    scene.ask("RES.BULKHEAD ENTER p b 1 1s");
    scene.main.clock_at_ms(2_000);
    assert_eq!(notified(4), ["bulkhead.granted p", "bulkhead.released p", "bulkhead.granted p", "bulkhead.lost p"]);
}
