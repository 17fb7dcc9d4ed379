//! Asynchronous waits: `WAIT d ASYNC` is answered at once, and the verdict comes later, in the one order of the queue.

use redis::Value;
use resil_harness::eventually;

use crate::async_client::{AsyncClient, Late};
use crate::driven::{SOON, Say, driven};
use crate::scene::{Caller, Scene, field, receive, send, verdict};
use crate::waiting::WAYS_TO_BECOME_FREE;

fn owners(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Waiters of both sorts, as INFO counts them.
fn all_waiters(scene: &mut Scene) -> i64 {
    scene.main.info_number("resil", "async_waiters") + scene.waiters()
}

#[track_caller]
fn nobody_waits_asynchronously(scene: &mut Scene) {
    let main = &mut scene.main;
    eventually("they have left", SOON, || main.info_number("resil", "async_waiters") == 0);
}

#[test]
fn a_wait_is_answered_now_and_judged_later() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    let granted = client.ask("RES.LOCK ACQUIRE k a 1h WAIT 1m ASYNC");
    assert!(granted.starts_with("[GRANTED "), "{granted}");
    assert_eq!(client.ask("RES.LOCK ACQUIRE k b 30s WAIT 1m ASYNC"), "[QUEUED 1]");
    assert_eq!(client.ask("RES.LOCK ACQUIRE k c 30s WAIT 1m ASYNC"), "[QUEUED 2]");
    assert_eq!(scene.who("k"), (owners(&["a"]), owners(&["b", "c"])));
    scene.main.clock_at_ms(12);
    assert_eq!(scene.ask("RES.LOCK RELEASE k a"), "[RELEASED 12]");
    let Late { kind, key, owner, reply } = client.late();
    assert_eq!((kind.as_str(), key.as_str(), owner.as_str()), ("lock", "k", "b"));
    assert!(reply.starts_with("[GRANTED ") && reply.ends_with(" 30000 12]"), "{reply}");
    // The connection is free all the while.
    assert_eq!(client.ask("RES.LOCK RELEASE k b"), "[RELEASED 0]");
    assert_eq!(client.notified(), "c GRANTED");
    client.is_silent();
    assert_eq!(all_waiters(&mut scene), 0);
}

#[test]
fn blocked_and_asynchronous_waiters_stand_in_one_queue() {
    let mut scene = Scene::driven();
    let (mut one, mut two) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    assert_eq!(one.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m"), 1);
    let mut c = scene.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    assert_eq!(two.waits("RES.LOCK ACQUIRE k d 1h WAIT 1m"), 3);
    let mut e = scene.waits("RES.LOCK ACQUIRE k e 1h WAIT 1m");
    assert_eq!(one.waits("RES.LOCK ACQUIRE k f 1h WAIT 1m"), 5);
    assert_eq!(scene.who("k").1, ["b", "c", "d", "e", "f"]);
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(one.notified(), "b GRANTED");
    scene.ask("RES.LOCK RELEASE k b");
    assert_eq!(c.verdict(), "GRANTED");
    scene.ask("RES.LOCK RELEASE k c");
    assert_eq!(two.notified(), "d GRANTED");
    scene.ask("RES.LOCK RELEASE k d");
    assert_eq!(e.verdict(), "GRANTED");
    scene.ask("RES.LOCK RELEASE k e");
    assert_eq!(one.notified(), "f GRANTED");
    one.is_silent();
    two.is_silent();
    c.is_in_step();
    e.is_in_step();
}

#[test]
fn readers_go_together_and_do_not_overtake_a_writer() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k r0 1h SHARED");
    assert_eq!(client.waits("RES.LOCK ACQUIRE k w 1h WAIT 1m"), 1);
    assert_eq!(client.ask("RES.LOCK ACQUIRE k r1 1h WAIT 1m ASYNC SHARED"), "[QUEUED 2]");
    let mut r2 = scene.waits("RES.LOCK ACQUIRE k r2 1h SHARED WAIT 1m");
    assert_eq!(client.ask("RES.LOCK ACQUIRE k r3 1h SHARED WAIT 1m ASYNC"), "[QUEUED 4]");
    scene.ask("RES.LOCK RELEASE k r0");
    assert_eq!(client.notified(), "w GRANTED");
    client.is_silent();
    scene.ask("RES.LOCK RELEASE k w");
    assert_eq!((client.notified(), client.notified()), ("r1 GRANTED".into(), "r3 GRANTED".into()));
    assert_eq!(r2.verdict(), "GRANTED");
}

#[test]
fn every_way_of_becoming_free_serves_an_asynchronous_waiter() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    for way in WAYS_TO_BECOME_FREE {
        assert_eq!(scene.verdict("RES.LOCK ACQUIRE k a 1h"), "GRANTED", "{way}");
        client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
        client.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
        scene.ask(way);
        assert_eq!(client.notified(), "b GRANTED", "{way}");
        assert_eq!(scene.who("k"), (owners(&["b"]), owners(&["c"])), "{way}");
        scene.ask("RES.LOCK RELEASE k b");
        assert_eq!(client.notified(), "c GRANTED", "{way}");
        client.is_silent();
        scene.ask("RES.LOCK RELEASE k c");
        assert_eq!(all_waiters(&mut scene), 0, "{way}");
    }
}

#[test]
fn leases_that_end_and_holders_that_close_hand_on() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 10s");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    scene.main.clock_at_ms(10_000);
    assert_eq!(client.notified(), "b GRANTED");
    let mut holder = scene.server.connect();
    holder.say("RES.LOCK ACQUIRE bound a 1h BOUND");
    client.waits("RES.LOCK ACQUIRE bound b 1h WAIT 1m");
    drop(holder);
    assert_eq!(client.notified(), "b GRANTED");
    client.is_silent();
}

#[test]
fn a_renamed_or_swapped_key_is_free_for_waiters() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    for way in ["RENAME k other", "SWAPDB 0 3", "MOVE k 4"] {
        scene.ask("RES.LOCK ACQUIRE k a 1h");
        client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
        scene.ask(way);
        assert_eq!(client.notified(), "b GRANTED", "{way}");
        assert_eq!(scene.who("k"), (owners(&["b"]), vec![]), "{way}");
        client.is_silent();
        scene.ask("FLUSHALL");
    }
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    scene.ask("SET k text");
    assert_eq!(client.notified(), "b -TRYAGAIN");
    client.is_silent();
    assert_eq!(all_waiters(&mut scene), 0);
}

#[test]
fn the_wait_ends_to_the_microsecond_of_its_own_deadline() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 2s");
    client.waits("RES.LOCK ACQUIRE k c 1h WAIT 1s");
    scene.main.clock_at_us(999_999);
    assert_eq!(scene.who("k").1, ["b", "c"]);
    client.is_silent();
    scene.main.clock_at_us(1_000_000);
    let late = client.late();
    assert_eq!((late.owner.as_str(), late.reply.as_str()), ("c", "[TIMEOUT a 3599000 1]"));
    scene.main.clock_at_ms(2_000);
    assert_eq!(client.late().reply, "[TIMEOUT a 3598000 0]");
    client.is_silent();
    assert_eq!(all_waiters(&mut scene), 0);
}

#[test]
fn an_owners_later_call_supersedes_in_its_position() {
    let mut scene = Scene::driven();
    let (mut one, mut two) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    one.waits("RES.LOCK ACQUIRE k b 1h WAIT 1s");
    one.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    // An asynchronous call supersedes an asynchronous one, a blocked call that, and the other way round.
    assert_eq!(two.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m"), 1);
    assert_eq!(one.notified(), "b -SUPERSEDED");
    let mut blocked = Caller::new(&scene.server);
    blocked.send("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    assert_eq!(two.notified(), "b -SUPERSEDED");
    assert_eq!(one.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m"), 1);
    assert_eq!(blocked.verdict(), "-SUPERSEDED");
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.who("k").1, ["b", "c"], "the new WAIT counts");
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(one.notified(), "b GRANTED");
    // A call without WAIT leaves the queue.
    let taken = two.ask("RES.LOCK ACQUIRE k c 1h");
    assert!(taken.starts_with("[TAKEN b "), "{taken}");
    assert_eq!(one.notified(), "c -SUPERSEDED");
    one.is_silent();
    two.is_silent();
    blocked.is_in_step();
    assert_eq!(all_waiters(&mut scene), 0);
}

#[test]
fn a_waiter_that_lets_go_leaves_the_queue() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    client.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    assert_eq!(client.ask("RES.LOCK RELEASE k b FENCE 1"), "[LOST taken]", "a fence names no wait");
    assert_eq!(client.ask("RES.LOCK RELEASE k b"), "[RELEASED 0]");
    assert_eq!(client.notified(), "b -SUPERSEDED");
    assert_eq!(scene.who("k").1, ["c"]);
    assert_eq!(client.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m"), 2, "it has lost its position");
    scene.ask("RES.BULKHEAD ENTER p a 1 1h");
    client.waits("RES.BULKHEAD ENTER p b 1 1h QUEUE 5 WAIT 1m");
    assert_eq!(client.ask("RES.BULKHEAD LEAVE p b"), "[RELEASED 0]");
    let late = client.late();
    assert_eq!((late.kind.as_str(), late.short().as_str()), ("bulkhead", "b -SUPERSEDED"));
    client.is_silent();
}

#[test]
fn queue_is_an_exact_bound_for_both_sorts_together() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.BULKHEAD ENTER p a 1 1h");
    assert_eq!(client.waits("RES.BULKHEAD ENTER p b 1 1h QUEUE 3 WAIT 1m"), 1);
    let _c = scene.waits("RES.BULKHEAD ENTER p c 1 1h WAIT 1m QUEUE 3");
    assert_eq!(client.waits("RES.BULKHEAD ENTER p d 1 1h QUEUE 3 WAIT 1m"), 3);
    let full = client.ask("RES.BULKHEAD ENTER p e 1 1h QUEUE 3 WAIT 1m ASYNC");
    assert!(!full.starts_with("[QUEUED") && !full.starts_with("[GRANTED"), "{full}");
    assert_eq!(scene.verdict("RES.BULKHEAD ENTER p e 1 1h WAIT 1m QUEUE 3"), verdict(&full));
    assert_eq!(scene.who_of("RES.BULKHEAD", "p").1, ["b", "c", "d"]);
    // Who has a position may ask again.
    assert_eq!(client.waits("RES.BULKHEAD ENTER p d 1 1h QUEUE 3 WAIT 1m"), 3);
    assert_eq!(client.notified(), "d -SUPERSEDED");
    scene.ask("RES.BULKHEAD LEAVE p a");
    assert_eq!(client.notified(), "b GRANTED");
    assert_eq!(client.waits("RES.BULKHEAD ENTER p e 1 1h QUEUE 3 WAIT 1m"), 3);
    client.is_silent();
}

#[test]
fn a_waiter_gains_a_priority_for_every_ageing() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.BULKHEAD ENTER p holder 1 1h");
    let enter =
        |owner: &str, priority: u8| format!("RES.BULKHEAD ENTER p {owner} 1 1h QUEUE 100 PRIORITY {priority} WAIT 10m");
    assert_eq!(client.waits(&enter("low", 9)), 1);
    assert_eq!(client.waits(&enter("high", 0)), 1, "0 goes before 9");
    scene.main.clock_at_ms(29_999);
    let mut blocked = scene.waits(&enter("seven", 7));
    assert_eq!(client.waits(&enter("nine", 9)), 4);
    scene.main.clock_at_ms(60_000);
    // `low` has waited 60 s: 7 by now, and it came before `seven`, which is 6 by now.
    assert_eq!(client.waits(&enter("eight", 8)), 5, "`nine` is 8 by now, and came first");
    let served: Vec<String> = scene.who_of("RES.BULKHEAD", "p").1;
    assert_eq!(served, ["high", "seven", "low", "nine", "eight"]);
    scene.main.clock_at_ms(9 * 30_000);
    assert_eq!(scene.who_of("RES.BULKHEAD", "p").1[..2], ["low".to_owned(), "high".to_owned()], "both are 0");
    scene.ask("RES.BULKHEAD LEAVE p holder");
    assert_eq!(client.notified(), "low GRANTED");
    scene.ask("RES.BULKHEAD LEAVE p low");
    assert_eq!(client.notified(), "high GRANTED");
    scene.ask("RES.BULKHEAD LEAVE p high");
    assert_eq!(blocked.verdict(), "GRANTED");
    client.is_silent();
}

#[test]
fn without_ageing_priorities_are_strict() {
    let mut scene = Scene::with(driven().module_args(["ageing", "0"]));
    scene.main.clock_at_ms(0);
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.BULKHEAD ENTER p holder 1 1h");
    client.waits("RES.BULKHEAD ENTER p low 1 1h QUEUE 9 PRIORITY 1 WAIT 10m");
    scene.main.clock_at_ms(599_000);
    assert_eq!(client.waits("RES.BULKHEAD ENTER p high 1 1h QUEUE 9 PRIORITY 0 WAIT 10m"), 1);
    scene.ask("RES.BULKHEAD LEAVE p holder");
    assert_eq!(client.notified(), "high GRANTED");
    client.is_silent();
}

#[test]
fn a_call_that_nobody_would_hear_is_refused() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::deaf(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    for line in [
        "RES.LOCK ACQUIRE k b 1h WAIT 1m ASYNC",
        "RES.LOCK ACQUIRE free b 1h WAIT 1m ASYNC",
        "RES.BULKHEAD ENTER p b 1 1h WAIT 1m ASYNC QUEUE 5",
        "RES.IDEMP BEGIN i b 1h WAIT 1m ASYNC",
        "RES.SFLIGHT JOIN s b 1h WAIT 1m ASYNC",
    ] {
        let refused = client.ask(line);
        assert!(
            refused.starts_with("-NOTLISTENING ") && refused.contains(&format!("resil:wait:{}", client.id)),
            "{refused}"
        );
    }
    assert_eq!(all_waiters(&mut scene), 0);
    assert_eq!(client.ask("RES.LOCK ACQUIRE k b 1h WAIT 0 ASYNC"), "[TAKEN a 3600000 0]", "nothing comes later");
    // A listener of another connection's channel is no listener of this one's.
    let other = AsyncClient::new(&scene.server);
    assert!(client.ask("RES.LOCK ACQUIRE k b 1h WAIT 1m ASYNC").starts_with("-NOTLISTENING "), "{}", other.id);
}

#[test]
fn resp2_hears_on_a_second_connection() {
    let mut scene = Scene::driven();
    let mut asks = Caller::new(&scene.server);
    let mut ear = scene.server.connect();
    send(&mut ear, &format!("SUBSCRIBE resil:wait:{}", asks.id));
    assert_eq!(receive(&mut ear), format!("[subscribe resil:wait:{} 1]", asks.id));
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    asks.send("RES.LOCK ACQUIRE k b 1h WAIT 1m ASYNC");
    assert_eq!(asks.reply(), "[QUEUED 1]");
    scene.ask("RES.LOCK RELEASE k a");
    let Ok(Value::Array(words)) = ear.recv_response() else { panic!("a message is an array") };
    let Value::BulkString(message) = &words[2] else { panic!("a message has a text: {words:?}") };
    assert_eq!(Late::of(message).short(), "b GRANTED");
    asks.is_in_step();
    // The wait hangs on the connection that asked.
    asks.send("RES.LOCK ACQUIRE k c 1h WAIT 1m ASYNC");
    assert_eq!(asks.reply(), "[QUEUED 1]");
    drop(asks);
    nobody_waits_asynchronously(&mut scene);
    assert_eq!(scene.who("k").1, Vec::<String>::new());
}

#[test]
fn a_grant_that_nobody_hears_is_handed_on() {
    let mut scene = Scene::driven();
    let (mut deaf, mut next) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    deaf.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    next.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    let id = deaf.id;
    deaf.send(&format!("UNSUBSCRIBE resil:wait:{id}"));
    deaf.is_silent();
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(next.notified(), "c GRANTED");
    assert_eq!(scene.who("k"), (owners(&["c"]), vec![]));
    deaf.is_silent();
    assert_eq!(all_waiters(&mut scene), 0);
}

#[test]
fn texts_that_are_not_utf8_come_back_as_they_were() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    let (key, holder, owner): (&[u8], &[u8], &[u8]) = (b"k\xff\x00\r\n", b"\xfe holder", b"\x80\"{o}\xc3");
    client.send_words(&[b"RES.LOCK", b"ACQUIRE", key, holder, b"1h"]);
    assert!(client.reply().starts_with("[GRANTED "));
    for (wait, reported) in [(&b"1s"[..], "TIMEOUT"), (b"1m", "GRANTED")] {
        client.send_words(&[b"RES.LOCK", b"ACQUIRE", key, owner, b"1h", b"WAIT", wait, b"ASYNC"]);
        assert_eq!(client.reply(), "[QUEUED 1]");
        if reported == "TIMEOUT" {
            scene.main.clock_at_ms(1_000);
        } else {
            client.send_words(&[b"RES.LOCK", b"RELEASE", key, holder]);
            assert_eq!(client.reply(), "[RELEASED 1000]");
        }
        let late = client.late();
        assert_eq!((late.key, late.owner), (key.escape_ascii().to_string(), owner.escape_ascii().to_string()));
        assert!(late.reply.starts_with(&format!("[{reported} ")), "{}", late.reply);
        if reported == "TIMEOUT" {
            assert!(late.reply.contains(&holder.escape_ascii().to_string()), "{}", late.reply);
        }
    }
    client.is_silent();
}

#[test]
fn a_bound_grant_hangs_on_the_connection_that_asked() {
    let mut scene = Scene::driven();
    let (mut one, mut two) = (AsyncClient::new(&scene.server), AsyncClient::new(&scene.server));
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    assert_eq!(one.ask("RES.LOCK ACQUIRE k b 1h WAIT 1m ASYNC BOUND"), "[QUEUED 1]");
    two.waits("RES.LOCK ACQUIRE k c 1h WAIT 1m");
    scene.ask("RES.LOCK RELEASE k a");
    assert_eq!(one.notified(), "b GRANTED");
    two.is_silent();
    drop(one);
    assert_eq!(two.notified(), "c GRANTED");
}

#[test]
fn info_shows_every_asynchronous_waiter_with_its_owner() {
    let mut scene = Scene::driven();
    let mut client = AsyncClient::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    for number in 0..50 {
        assert_eq!(client.waits(&format!("RES.LOCK ACQUIRE k w{number} 1h WAIT 1m")), number + 1);
    }
    let expected: Vec<String> = (0..50).map(|number| format!("w{number}")).collect();
    assert_eq!(scene.who("k").1, expected);
    assert_eq!(scene.main.info_number("resil", "async_waiters"), 50);
    let info = scene.main.say("RES.LOCK INFO k LIMIT 1");
    assert!(matches!(info, Value::Array(_)) && !field(&info, "waiters").is_empty());
    drop(client);
    nobody_waits_asynchronously(&mut scene);
    assert_eq!(scene.who("k").1, Vec::<String>::new());
}
