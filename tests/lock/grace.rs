//! BOUND GRACE: the close of its connection cuts a lease to the grace, and within it the same owner takes it back.

use redis::Connection;
use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::hearing::{Hearing, json};
use crate::scene::{Caller, Scene, fence, field, verdict};

/// The four ways to hold something: take it, take it back, and let another wait for it.
const HOLDINGS: [(&str, &str, &str); 4] = [
    ("RES.LOCK ACQUIRE k OWNER 1h", "RES.LOCK RENEW k OWNER 1h", "GRANTED"),
    ("RES.BULKHEAD ENTER k OWNER 1 1h", "RES.BULKHEAD RENEW k OWNER 1h", "GRANTED"),
    ("RES.IDEMP BEGIN k OWNER 1h", "RES.IDEMP RENEW k OWNER 1h", "RUN"),
    ("RES.SFLIGHT JOIN k OWNER 1h", "RES.SFLIGHT RENEW k OWNER 1h", "LEAD"),
];

fn of(line: &str, owner: &str) -> String {
    line.replace("OWNER", owner)
}

/// The connection closes, and the server has seen it.
fn close(main: &mut Connection, caller: Caller) {
    let id = caller.id;
    drop(caller);
    eventually("the server has seen the close", SOON, || main.text(&format!("CLIENT LIST ID {id}")).is_empty());
}

/// The second word of a verdict: its fence.
fn number(reply: &str) -> u64 {
    reply.split([' ', ']']).nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no fence: {reply}"))
}

#[test]
fn a_waiter_has_it_exactly_at_the_graces_end() {
    for (take, renew, granted) in HOLDINGS {
        let mut scene = Scene::driven();
        let mut holder = Caller::new(&scene.server);
        holder.send(&format!("{} BOUND GRACE 3s", of(take, "a")));
        assert_eq!(holder.verdict(), granted, "{take}");
        let mut waiter = scene.waits(&format!("{} WAIT 10m", of(take, "b")));
        close(&mut scene.main, holder);
        scene.main.clock_at_ms(2_999);
        assert_eq!((scene.waiters(), scene.main.info_number("resil", "bound")), (1, 0), "{take}");
        scene.main.clock_at_ms(3_000);
        assert_eq!(waiter.verdict(), granted, "{take}");
        let lost = scene.ask(&of(renew, "a"));
        assert!(["[LOST expired]", "[LOST taken]"].contains(&lost.as_str()), "{renew}: {lost}");
    }
}

#[test]
fn its_owner_regains_the_fence_over_another_connection() {
    for (take, renew, granted) in HOLDINGS {
        let mut scene = Scene::driven();
        let mut holder = Caller::new(&scene.server);
        holder.send(&format!("{} BOUND GRACE 3s", of(take, "a")));
        holder.reply();
        holder.send(&format!("{} BOUND GRACE 3s", of(renew, "a")));
        let first = number(&holder.reply());
        let mut waiter = scene.waits(&format!("{} WAIT 10m", of(take, "b")));
        close(&mut scene.main, holder);
        scene.main.clock_at_ms(2_000);
        let mut again = Caller::new(&scene.server);
        again.send(&format!("{} BOUND GRACE 3s", of(renew, "a")));
        assert_eq!(again.reply(), format!("[GRANTED {first} 3600000 0]"), "{renew}");
        scene.main.clock_at_ms(60_000);
        assert_eq!(scene.waiters(), 1, "{take}: the full lease counts again");
        close(&mut scene.main, again);
        scene.main.clock_at_ms(62_999);
        assert_eq!(scene.waiters(), 1, "{take}");
        scene.main.clock_at_ms(63_000);
        assert_eq!(waiter.verdict(), granted, "{take}: the grace counts from the second close");
    }
}

#[test]
fn an_old_connections_close_does_nothing_once_rebound() {
    let mut scene = Scene::driven();
    let mut old = Caller::new(&scene.server);
    old.send("RES.LOCK ACQUIRE k a 1h BOUND GRACE 3s");
    assert_eq!(old.verdict(), "GRANTED");
    let mut new = Caller::new(&scene.server);
    new.send("RES.LOCK RENEW k a 1h BOUND GRACE 3s");
    assert_eq!(new.verdict(), "GRANTED");
    close(&mut scene.main, old);
    scene.main.clock_at_ms(10_000);
    assert_eq!(new.connection.integer("RES.LOCK CHECK k a"), 1);
    assert_eq!(scene.main.info_number("resil", "bound"), 1);
}

#[test]
fn grace_zero_is_plain_bound() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.send("RES.LOCK ACQUIRE k a 1h BOUND GRACE 0");
    assert_eq!(holder.verdict(), "GRANTED");
    drop(holder);
    eventually("it is free", SOON, || scene.who("k").0.is_empty());
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1h"), "[LOST closed]");
}

#[test]
fn a_grace_never_lengthens_the_lease() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.send("RES.LOCK ACQUIRE k a 2s BOUND GRACE 1h");
    assert_eq!(holder.verdict(), "GRANTED");
    close(&mut scene.main, holder);
    scene.main.clock_at_ms(1_999);
    assert_eq!(scene.who("k").0, ["a"]);
    scene.main.clock_at_ms(2_000);
    eventually("it is free", SOON, || scene.who("k").0.is_empty());
}

#[test]
fn a_lock_bound_to_a_lost_connection_has_its_grace() {
    let mut scene = Scene::driven();
    let main = Caller::new(&scene.server);
    let id = main.id;
    scene.ask("RES.LOCK ACQUIRE k h 1h");
    let mut waiting = scene.waits(&format!("RES.LOCK ACQUIRE k a 1h WAIT 1m BOUNDTO {id} GRACE 3s"));
    close(&mut scene.main, main);
    scene.ask("RES.LOCK RELEASE k h");
    assert_eq!(waiting.verdict(), "GRANTED");
    scene.main.clock_at_ms(2_999);
    assert_eq!(scene.who("k").0, ["a"]);
    scene.main.clock_at_ms(3_000);
    eventually("it is free", SOON, || scene.who("k").0.is_empty());
}

#[test]
fn a_loss_at_the_graces_end_is_expired() {
    let mut scene = Scene::driven();
    let mut lost = Hearing::to(&scene.server, "resil:lost:a");
    let mut holder = Caller::new(&scene.server);
    holder.send("RES.LOCK ACQUIRE k a 1h BOUND GRACE 3s");
    let fence = fence(&holder.reply());
    close(&mut scene.main, holder);
    scene.main.clock_at_ms(2_999);
    lost.exactly(0);
    scene.main.clock_at_ms(3_000);
    let event = json(&lost.exactly(1)[0].1);
    assert_eq!((event["reason"].as_str(), event["fence"].as_u64()), (Some("expired"), Some(fence)));
}

#[test]
fn info_shows_the_grace_of_what_is_bound() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.send("RES.BULKHEAD ENTER k bound 9 1h BOUND GRACE 1500us");
    assert_eq!(holder.verdict(), "GRANTED");
    holder.send("RES.BULKHEAD ENTER k plain 9 1h BOUND");
    assert_eq!(holder.verdict(), "GRANTED");
    scene.ask("RES.BULKHEAD ENTER k free 9 1h");
    let redis::Value::Array(info) = scene.main.say("RES.BULKHEAD INFO k") else { panic!("a map") };
    let redis::Value::Array(rows) = &info[1] else { panic!("a list") };
    let shown: Vec<_> = rows.iter().map(|row| ["owner", "bound", "grace_ms"].map(|name| field(row, name))).collect();
    assert_eq!(shown, [["bound", "1", "2"], ["plain", "1", "0"], ["free", "0", "0"]]);
}

#[test]
fn inside_multi_a_grace_binds_to_that_connection() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    for line in ["MULTI", "RES.LOCK ACQUIRE k a 1h BOUND GRACE 3s"] {
        holder.send(line);
        holder.reply();
    }
    holder.send("EXEC");
    assert!(holder.reply().starts_with("[[GRANTED"));
    close(&mut scene.main, holder);
    scene.main.clock_at_ms(3_000);
    eventually("it is free", SOON, || scene.who("k").0.is_empty());
    let refused = scene.ask("EVAL return(redis.call('RES.LOCK','ACQUIRE','k','a','1h','BOUND','GRACE','3s')) 1 k");
    assert_eq!(verdict(&refused), "-ERR", "{refused}");
}
