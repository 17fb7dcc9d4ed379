//! A primary becomes a replica, a replica becomes a primary: who waited is sent away, who held still holds.

use std::time::Duration;

use redis::Connection;
use resil_harness::{Options, Server, eventually, wait_for_sync};

use crate::asked::{Asked, Ear};
use crate::driven::{SOON, Say, driven, start_driven};
use crate::scene::Scene;

/// A port where nobody listens: what is set as a replica of it stays alone with its data.
const NOWHERE: &str = "127.0.0.1 1";

#[test]
fn a_demotion_sends_everybody_away_and_hands_nothing_on() {
    let mut scene = Scene::fresh();
    scene.connection.hold("short b 400ms");
    let before = (scene.connection.digest("k"), scene.connection.digest("short"));
    scene.connection.say(&format!("REPLICAOF {NOWHERE}"));
    for waiter in &mut scene.waiters {
        let reply = waiter.reply();
        assert!(reply.starts_with("UNBLOCKED "), "{reply}");
    }
    assert_eq!(scene.connection.info_number("resil", "blocked_waiters"), 0);
    assert_eq!(scene.connection.info_number("resil", "bound"), 0, "what hangs on connections is forgotten");
    assert_eq!(scene.holder.ask("RES.HEARTBEAT"), "[0, ]");
    // Its holder's connection closes, a lease runs out: none of it is this server's business any more.
    drop(scene.holder);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!((scene.connection.digest("k"), scene.connection.digest("short")), before);
    assert_eq!(scene.connection.look("k").owners(), ["a"]);
    assert_eq!(scene.ear.losses(), Vec::<String>::new());
    // And it becomes a primary again: the lease that ran out is ended, without a command.
    scene.connection.say("REPLICAOF NO ONE");
    eventually("the end is noted", SOON, || scene.ear.losses().len() == 1);
    assert!(scene.ear.losses()[0].starts_with("short b ") && scene.ear.losses()[0].ends_with(" expired"));
    assert!(scene.connection.holds("k", "a"));
}

fn pair(options: Options) -> (Server, Server, Connection, Connection) {
    let (primary, connection) = start_driven();
    let replica = Server::replica_of(&primary, options);
    let mut on_replica = replica.connect();
    on_replica.clock_at_ms(0);
    (primary, replica, connection, on_replica)
}

#[test]
fn a_live_lease_restarts_at_a_promotion_and_ends() {
    let (mut primary, replica, mut connection, mut on_replica) = pair(driven());
    let fence = connection.hold("k a 10s");
    connection.hold("long a 60s");
    for number in 0..5 {
        connection.hold(&format!("shared r{number} 1{number}s SHARED"));
    }
    let dead = connection.hold("dead a 8s");
    wait_for_sync(&primary, &replica);
    primary.kill9();
    let mut ear = Ear::at(&replica);
    on_replica.clock_at_ms(9_000);
    on_replica.say("REPLICAOF NO ONE");
    assert_eq!(ear.hear_one(SOON), format!("dead a {dead} expired"), "what had ended stays so");
    let remaining = |on_replica: &mut Connection, key: &str| on_replica.look(key).holders[0].remaining_ms;
    assert_eq!(remaining(&mut on_replica, "k"), 10_000);
    assert_eq!(remaining(&mut on_replica, "long"), 60_000, "at least a whole lease");
    let of_all: Vec<i64> = on_replica.look("shared").holders.iter().map(|holder| holder.remaining_ms).collect();
    assert_eq!(of_all, [10_000, 11_000, 12_000, 13_000, 14_000]);
    on_replica.clock_at_ms(18_999);
    assert!(on_replica.holds("k", "a"));
    assert!(on_replica.ask("RES.LOCK ACQUIRE k b 1s").starts_with("TAKEN a 1 "));
    on_replica.clock_at_ms(19_000);
    eventually("it ends by itself", SOON, || ear.losses().contains(&format!("k a {fence} expired")));
    assert_eq!(ear.losses().iter().filter(|loss| loss.starts_with("k ")).count(), 1);
    assert!(on_replica.hold("k b 1s") > fence);
}

#[test]
fn without_grace_a_lease_ends_when_it_would_have() {
    let (mut primary, replica, mut connection, mut on_replica) = pair(driven().module_args(["promotion-grace", "no"]));
    let fence = connection.hold("k a 10s");
    wait_for_sync(&primary, &replica);
    primary.kill9();
    let mut ear = Ear::at(&replica);
    on_replica.clock_at_ms(9_000);
    on_replica.say("REPLICAOF NO ONE");
    assert_eq!(on_replica.look("k").holders[0].remaining_ms, 1_000);
    on_replica.clock_at_ms(9_999);
    assert!(on_replica.holds("k", "a"));
    on_replica.clock_at_ms(10_000);
    assert_eq!(ear.hear_one(SOON), format!("k a {fence} expired"));
}

#[test]
fn what_a_promotion_gives_is_passed_on_to_further_replicas() {
    let (mut primary, replica, mut connection, mut on_replica) = pair(driven());
    let last = Server::replica_of(&replica, driven());
    connection.hold("k a 10s");
    for number in 0..5 {
        connection.hold(&format!("shared r{number} 10s SHARED"));
    }
    wait_for_sync(&primary, &replica);
    wait_for_sync(&replica, &last);
    primary.kill9();
    on_replica.clock_at_ms(5_000);
    let before = digests(&mut last.connect());
    on_replica.say("REPLICAOF NO ONE");
    eventually("the leases are moved", SOON, || {
        wait_for_sync(&replica, &last);
        digests(&mut last.connect()) != before
    });
    wait_for_sync(&replica, &last);
    assert_eq!(digests(&mut last.connect()), digests(&mut on_replica));
}

fn digests(connection: &mut Connection) -> [String; 2] {
    [connection.digest("k"), connection.digest("shared")]
}

#[test]
fn a_replica_replies_by_its_own_clock_and_never_decides() {
    let (primary, replica, mut connection, mut on_replica) = pair(driven());
    let fence = connection.hold("k a 10s META m");
    connection.say("RES.BULKHEAD ENTER b a 2 10s");
    wait_for_sync(&primary, &replica);
    let before = (on_replica.digest("k"), on_replica.digest("b"));
    let applied = on_replica.info_number("resil", "applied");
    on_replica.clock_at_ms(4_000);
    assert!(on_replica.holds("k", "a"));
    assert_eq!(on_replica.ask(&format!("RES.LOCK CHECK k a FENCE {fence}")), "1");
    assert_eq!(on_replica.look("k").holders[0].remaining_ms, 6_000);
    assert_eq!(on_replica.look_into("b").owners(), ["a"]);
    on_replica.clock_at_ms(3_600_000);
    assert!(!on_replica.holds("k", "a"), "by its own clock the lease is over");
    assert!(on_replica.look("k").holders.is_empty());
    for line in [
        "RES.LOCK ACQUIRE k b 1s",
        "RES.LOCK ACQUIRE k b 1s WAIT 1s",
        "RES.LOCK RENEW k a 1s",
        "RES.LOCK RELEASE k a",
        "RES.LOCK BREAK k",
        "RES.BULKHEAD ENTER b b 2 1s",
        "RES.BULKHEAD LEAVE b a",
    ] {
        let error = on_replica.refusal(line);
        assert!(error.starts_with("READONLY "), "{line}: {error}");
    }
    for _ in 0..20 {
        on_replica.ask("PING");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((on_replica.digest("k"), on_replica.digest("b")), before);
    assert_eq!((connection.digest("k"), connection.digest("b")), before);
    assert_eq!(on_replica.info_number("resil", "applied"), applied);
    assert_eq!(on_replica.info_number("resil", "lock_lost"), 0);
    assert!(connection.holds("k", "a"));
}

#[test]
fn changing_roles_lose_no_lock_and_repeat_no_fence() {
    let (one, other) = (Server::fresh(), Server::fresh());
    let (mut here, mut there) = (one.connect(), other.connect());
    let mut last = 0;
    here.hold("kept a 1h");
    for turn in 0..3 {
        let (primary, replica) = if turn % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let (on_primary, on_replica) = if turn % 2 == 0 { (&mut here, &mut there) } else { (&mut there, &mut here) };
        on_primary.say("REPLICAOF NO ONE");
        on_replica.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        eventually("the link is up", SOON, || on_replica.info("replication", "master_link_status") == "up");
        let fence = on_primary.hold(&format!("k{turn} a 1h"));
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        assert!(on_primary.holds("kept", "a"));
        wait_for_sync(primary, replica);
        assert_eq!(on_primary.digest("kept"), on_replica.digest("kept"));
    }
}
