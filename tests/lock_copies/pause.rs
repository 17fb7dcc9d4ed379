//! CLIENT PAUSE WRITE: nothing is written, so nothing is handed on; patience ends all the same.

use std::time::{Duration, Instant};

use resil_harness::{Server, eventually, wait_for_sync};

use crate::asked::{Asked, Caller, Ear, waiters};
use crate::driven::{SOON, Say};

const PAUSE: Duration = Duration::from_millis(1_500);

#[test]
fn patience_ends_during_a_pause() {
    let server = Server::fresh();
    let mut connection = server.connect();
    connection.hold("k a 1h");
    let mut callers = waiters(&server, "k", 2, "1h WAIT 300ms");
    connection.say(&format!("CLIENT PAUSE {} WRITE", PAUSE.as_millis()));
    let began = Instant::now();
    for caller in &mut callers {
        let reply = caller.reply();
        assert!(reply.starts_with("TIMEOUT a "), "{reply}");
    }
    assert!(began.elapsed() < PAUSE, "{:?}", began.elapsed());
}

#[test]
fn a_lease_that_ends_in_a_pause_is_handed_on() {
    const LEASE: Duration = Duration::from_millis(1_000);
    let server = Server::fresh();
    let replica = Server::replica_of(&server, resil_harness::Options::default());
    let (mut connection, mut ear) = (server.connect(), Ear::at(&server));
    wait_for_sync(&server, &replica);
    // A slow machine may get to the pause only after the lease: then it tries again, with another key.
    let paused_in_time = (0..20).find_map(|round| {
        let key = format!("k{round}");
        let asked = Instant::now();
        let fence = connection.hold(&format!("{key} a {}ms", LEASE.as_millis()));
        let callers = waiters(&server, &key, 1, "1h WAIT 60s");
        wait_for_sync(&server, &replica);
        let applied = replica.connect().info_number("resil", "applied");
        connection.say(&format!("CLIENT PAUSE {} WRITE", PAUSE.as_millis()));
        let began = Instant::now();
        if asked.elapsed() < LEASE {
            return Some((key, fence, callers, applied, began));
        }
        connection.say("CLIENT UNPAUSE");
        None
    });
    let (key, fence, mut callers, applied, began) = paused_in_time.expect("a pause within a lease");
    eventually("its lease is over", SOON, || !connection.holds(&key, "a"));
    std::thread::sleep(Duration::from_millis(100));
    let mut losses_of_it =
        || -> Vec<String> { ear.losses().into_iter().filter(|loss| loss.starts_with(&format!("{key} "))).collect() };
    let (losses, after) = (losses_of_it(), replica.connect().info_number("resil", "applied"));
    if began.elapsed() < PAUSE {
        assert_eq!(losses, Vec::<String>::new(), "nothing is decided");
        assert_eq!(after, applied, "nothing is written");
    }
    let granted = callers[0].granted();
    assert!(granted > fence);
    assert!(began.elapsed() >= PAUSE - Duration::from_millis(20), "{:?}", began.elapsed());
    assert_eq!(losses_of_it(), [format!("{key} a {fence} expired")]);
    wait_for_sync(&server, &replica);
    assert_eq!(connection.digest(&key), replica.connect().digest(&key));
}

#[test]
fn a_close_in_a_pause_costs_only_the_pause() {
    let server = Server::fresh();
    let (mut connection, mut holder) = (server.connect(), server.connect());
    holder.hold("k a 1h BOUND");
    let mut callers = waiters(&server, "k", 3, "1h WAIT 60s");
    connection.say(&format!("CLIENT PAUSE {} WRITE", PAUSE.as_millis()));
    let began = Instant::now();
    drop(holder);
    // The first in the queue goes, too.
    drop(callers.remove(0));
    callers[0].granted();
    assert!(began.elapsed() >= PAUSE - Duration::from_millis(20), "{:?}", began.elapsed());
    eventually("the other waits", SOON, || connection.look("k").waiters == ["w2"]);
    assert_eq!(connection.look("k").owners(), ["w1"]);
}

#[test]
fn a_holder_heard_throughout_a_pause_keeps_its_lock() {
    let server = Server::fresh();
    let (mut connection, mut holder, mut ear) = (server.connect(), server.connect(), Ear::at(&server));
    holder.hold("k a 500ms BOUND");
    let _callers = waiters(&server, "k", 1, "1h WAIT 60s");
    connection.say(&format!("CLIENT PAUSE {} WRITE", PAUSE.as_millis()));
    let began = Instant::now();
    while began.elapsed() < PAUSE + Duration::from_millis(400) {
        assert_eq!(holder.ask("RES.HEARTBEAT"), "[1, ]", "after {:?}: {:?}", began.elapsed(), ear.losses());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(connection.holds("k", "a"));
}

#[test]
fn a_heartbeat_answered_after_a_stall_tells_the_truth() {
    for _ in 0..5 {
        let server = Server::fresh();
        let mut connection = server.connect();
        let mut holder = Caller::calls(&server, "RES.LOCK ACQUIRE k a 200ms BOUND");
        holder.granted();
        server.pause();
        holder.send("RES.HEARTBEAT");
        std::thread::sleep(Duration::from_millis(400));
        server.resume();
        let reply = holder.reply();
        let holds = connection.holds("k", "a");
        let reported_lost = reply.starts_with("[0, [k ");
        assert!(reported_lost != holds, "it got {reply}, and that it holds is {holds}");
    }
}
