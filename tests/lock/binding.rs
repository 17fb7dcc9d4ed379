//! BOUND: what hangs on a connection goes with it. The last binding decides, and only one's own user can be bound to.

use redis::Value;
use resil_harness::eventually;

use crate::driven::{SOON, Say};
use crate::scene::{Caller, Scene, fence, shown, verdict};

#[test]
fn everything_that_hangs_on_a_connection_ends_when_it_closes() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    for n in 0..20 {
        holder.connection.say(&format!("RES.LOCK ACQUIRE k{n} a 1h BOUND"));
        holder.connection.say(&format!("RES.BULKHEAD ENTER b{n} a 1 1h BOUND"));
    }
    assert_eq!(scene.main.info_number("resil", "bound"), 40);
    assert_eq!(scene.main.info_number("resil", "sessions"), 1);
    drop(holder);
    eventually("all have ended", SOON, || (0..20).all(|n| scene.who(&format!("k{n}")).0.is_empty()));
    for n in 0..20 {
        assert_eq!(scene.verdict(&format!("RES.LOCK ACQUIRE k{n} b 1h")), "GRANTED");
        assert_eq!(scene.verdict(&format!("RES.BULKHEAD ENTER b{n} b 1 1h")), "GRANTED");
    }
    assert_eq!(scene.main.info_number("resil", "bound"), 0);
    assert_eq!(scene.main.info_number("resil", "sessions"), 0);
}

#[test]
fn a_rebound_lock_leaves_its_old_connection() {
    let mut scene = Scene::driven();
    for line in ["RES.LOCK ACQUIRE k a 1h BOUND", "RES.LOCK RENEW k a 1h BOUND"] {
        let mut old = scene.server.connect();
        old.say("RES.LOCK ACQUIRE k a 1h BOUND");
        let mut new = scene.server.connect();
        new.say(line);
        let id = old.integer("CLIENT ID");
        drop(old);
        eventually("the old one is gone", SOON, || scene.ask(&format!("CLIENT LIST ID {id}")).is_empty());
        assert_eq!(new.integer("RES.LOCK CHECK k a"), 1, "{line}");
        assert_eq!(verdict(&scene.ask("RES.LOCK ACQUIRE k b 1h")), "TAKEN", "{line}");
        drop(new);
        eventually("it is free", SOON, || scene.who("k").0.is_empty());
    }
}

#[test]
fn a_lock_can_bind_to_the_users_other_connection() {
    let mut scene = Scene::driven();
    let mut main = Caller::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k h 1h");
    let mut waiting = scene.waits(&format!("RES.LOCK ACQUIRE k a 1h WAIT 1m BOUNDTO {}", main.id));
    scene.ask("RES.LOCK RELEASE k h");
    assert_eq!(waiting.verdict(), "GRANTED");
    let id = waiting.id;
    drop(waiting);
    eventually("the waiting one is gone", SOON, || scene.ask(&format!("CLIENT LIST ID {id}")).is_empty());
    assert_eq!(scene.who("k").0, ["a"]);
    main.send("RES.HEARTBEAT");
    assert_eq!(main.reply(), "[1 []]");
    drop(main);
    eventually("it is free", SOON, || scene.who("k").0.is_empty());
}

#[test]
fn a_lock_bound_to_a_closed_connection_is_handed_on() {
    let mut scene = Scene::driven();
    let main = Caller::new(&scene.server);
    scene.ask("RES.LOCK ACQUIRE k h 1h");
    let mut waiting = scene.waits(&format!("RES.LOCK ACQUIRE k a 1h WAIT 1m BOUNDTO {}", main.id));
    let mut next = scene.waits("RES.LOCK ACQUIRE k b 1h WAIT 1m");
    let id = main.id;
    drop(main);
    eventually("it is gone", SOON, || scene.ask(&format!("CLIENT LIST ID {id}")).is_empty());
    scene.ask("RES.LOCK RELEASE k h");
    assert_eq!(waiting.verdict(), "GRANTED");
    assert_eq!(next.verdict(), "GRANTED");
    waiting.is_in_step();
    assert_eq!(scene.ask("RES.LOCK RENEW k a 1s"), "[LOST closed]");
}

#[test]
fn nobody_binds_to_a_stranger_or_to_nobody() {
    let mut scene = Scene::driven();
    scene.main.say("ACL SETUSER other on nopass ~* +@all");
    let mut stranger = Caller::new(&scene.server);
    stranger.connection.say("AUTH other x");
    for id in [stranger.id, 999_999_999] {
        for line in ["RES.LOCK ACQUIRE k a 1h", "RES.BULKHEAD ENTER k a 1 1h", "RES.LOCK ACQUIRE k a 1h WAIT 1m"] {
            let refused = scene.ask(&format!("{line} BOUNDTO {id}"));
            assert!(refused.starts_with("-ERR BOUNDTO"), "{refused}");
        }
    }
    assert_eq!(scene.main.integer("EXISTS k"), 0);
    assert_eq!(scene.main.info_number("resil", "sessions"), 0);
}

/// The binding hangs on the socket, not on what was set on it.
#[test]
fn reset_keeps_what_hangs_on_the_socket() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.connection.say("RES.LOCK ACQUIRE k a 1h BOUND");
    holder.send("RESET");
    assert_eq!(holder.reply(), "RESET");
    holder.send("RES.HEARTBEAT");
    assert_eq!(holder.reply(), "[1 []]");
    drop(holder);
    eventually("it is free", SOON, || scene.who("k").0.is_empty());
}

#[test]
fn what_is_released_elsewhere_hangs_no_longer() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    holder.connection.say("RES.LOCK ACQUIRE k a 1h BOUND");
    scene.ask("RES.LOCK RELEASE k a");
    holder.send("RES.HEARTBEAT");
    assert_eq!(holder.reply(), "[0 []]", "it let go itself: nothing was lost");
    scene.ask("RES.LOCK ACQUIRE k a 1h");
    let id = holder.id;
    drop(holder);
    eventually("it is gone", SOON, || scene.ask(&format!("CLIENT LIST ID {id}")).is_empty());
    assert_eq!(scene.who("k").0, ["a"], "the same owner's next grant is another one");
}

#[test]
fn a_heartbeat_tells_each_loss_once() {
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    let mut fences = Vec::new();
    for key in ["broken", "deleted", "kept", "flushed"] {
        holder.send(&format!("RES.LOCK ACQUIRE {key} a 1h BOUND"));
        fences.push(crate::scene::fence(&holder.reply()));
    }
    scene.ask("RES.LOCK BREAK broken");
    scene.main.say("DEL deleted");
    eventually("two are lost", SOON, || scene.main.info_number("resil", "bound") == 2);
    holder.send("RES.HEARTBEAT");
    assert_eq!(holder.reply(), format!("[2 [[broken {} broken] [deleted {} absent]]]", fences[0], fences[1]));
    holder.send("RES.HEARTBEAT");
    assert_eq!(holder.reply(), "[2 []]");
    scene.main.say("FLUSHALL");
    eventually("all are lost", SOON, || scene.main.info_number("resil", "bound") == 0);
    holder.send("RES.HEARTBEAT");
    let reported = holder.reply();
    assert!(reported.starts_with("[0 [") && reported.matches(" absent]").count() == 2, "{reported}");
    holder.send("RES.HEARTBEAT");
    assert_eq!(holder.reply(), "[0 []]");
}

/// The close of a connection with very many holdings in one key is made in parts. Nobody sees one of its own that is about to
/// end, and nobody is granted too much meanwhile.
#[test]
fn an_owner_regains_nothing_a_crowds_close_ends() {
    const COUNT: usize = 5_000;
    let mut scene = Scene::driven();
    let mut holder = Caller::new(&scene.server);
    let mut first = 0;
    for n in 0..COUNT {
        holder.send(&format!("RES.LOCK ACQUIRE k o{n} 1h SHARED BOUND"));
        first = fence(&holder.reply());
    }
    // One turn of the server: the close, and then what the last owner asks.
    let (id, last) = (holder.id, COUNT - 1);
    let mut other = scene.server.connect();
    let mut pipe = redis::pipe();
    pipe.cmd("CLIENT").arg("KILL").arg("ID").arg(id);
    pipe.cmd("RES.LOCK").arg("RENEW").arg("k").arg(format!("o{last}")).arg("1h");
    pipe.cmd("RES.LOCK").arg("ACQUIRE").arg("k").arg(format!("o{last}")).arg("1h").arg("SHARED");
    pipe.cmd("RES.LOCK").arg("ACQUIRE").arg("k").arg("writer").arg("1h");
    let replies: Vec<Value> = pipe.query(&mut other).expect("replies");
    assert!(shown(&replies[1]).starts_with("[LOST "), "{replies:?}");
    assert!(fence(&shown(&replies[2])) > first, "a new grant: {replies:?}");
    assert!(shown(&replies[3]).starts_with("[TAKEN "), "{replies:?}");
    eventually("the rest has ended", SOON, || scene.main.info_number("resil", "lock_lost") == COUNT as i64);
    assert_eq!(scene.who("k").0, [format!("o{last}")]);
    assert_eq!(scene.ask(&format!("RES.LOCK CHECK k o{last}")), "1");
}
