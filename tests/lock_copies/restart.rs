//! Leases survive a restart; queues and bindings do not.

use std::time::{Duration, Instant};

use resil_harness::{Options, Server};

use crate::asked::{Asked, Ear, waiters};
use crate::driven::{SOON, Say};

fn with_file() -> Options {
    Options::default().config("appendonly", "yes").config("appendfsync", "always")
}

fn bound_becomes_a_plain_lease(options: Options, restart: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let mut holder = server.connect();
    let fence = holder.hold("k a 2s BOUND");
    holder.hold("long a 1h BOUND");
    let began = Instant::now();
    restart(&mut server);
    let mut ear = Ear::at(&server);
    let mut connection = server.connect();
    let look = connection.look("long");
    assert_eq!((look.owners(), look.holders[0].bound), (vec!["a"], false));
    // Nobody asks for it: the search after the load has armed it.
    assert_eq!(ear.hear_one(SOON), format!("k a {fence} expired"));
    let late = began.elapsed();
    assert!(late >= Duration::from_millis(1_950) && late < Duration::from_secs(5), "{late:?}");
    assert_eq!(ear.losses().len(), 1);
    // The close of a connection that a former life knew does nothing.
    drop(holder);
    assert!(connection.holds("long", "a"));
    assert_eq!(connection.ask("RES.HEARTBEAT"), "[0, ]");
}

#[test]
fn a_bound_lock_from_a_snapshot_is_a_lease() {
    bound_becomes_a_plain_lease(Options::default(), Server::restart_after_save);
}

#[test]
fn a_bound_lock_from_a_file_is_a_lease() {
    bound_becomes_a_plain_lease(with_file(), Server::restart_after_kill);
}

#[test]
fn an_owner_that_comes_back_binds_its_lease_again() {
    let mut server = Server::start(with_file());
    let fence = server.connect().hold("k a 30s BOUND");
    // That connection was closed, so another holds now.
    let mut holder = server.connect();
    resil_harness::eventually("the first is closed", SOON, || !holder.holds("k", "a"));
    let second = holder.hold("k b 30s BOUND");
    assert!(second > fence);
    server.restart_after_kill();
    let mut holder = server.connect();
    let renewed = holder.ask("RES.LOCK RENEW k b 30s BOUND");
    assert_eq!(renewed.split(' ').nth(1), Some(second.to_string().as_str()), "{renewed}");
    assert_eq!(holder.ask("RES.HEARTBEAT"), "[1, ]");
    drop(holder);
    let mut connection = server.connect();
    resil_harness::eventually("it ends with its connection", SOON, || !connection.holds("k", "b"));
}

#[test]
fn nobody_waits_after_a_restart() {
    let mut server = Server::start(with_file());
    let mut connection = server.connect();
    let fence = connection.hold("k a 1h");
    let mut callers = waiters(&server, "k", 5, "1h WAIT 600s");
    server.restart_after_terminate();
    for caller in &mut callers {
        let reply = caller.reply();
        assert!(reply == "closed" || reply.starts_with("UNBLOCKED "), "{reply}");
    }
    let look = server.connect().look("k");
    assert_eq!((look.owners(), look.holders[0].fence, look.waiters.len()), (vec!["a"], fence, 0));
    assert_eq!(server.connect().info_number("resil", "blocked_waiters"), 0);
}

#[test]
fn a_lease_that_ended_while_down_ends_at_start() {
    let mut server = Server::start(with_file());
    let fence = server.connect().hold("k a 300ms");
    server.kill9();
    std::thread::sleep(Duration::from_millis(350));
    server.start_again();
    // The end may be noted before anybody can listen; the key tells.
    let mut connection = server.connect();
    assert!(!connection.holds("k", "a"));
    resil_harness::eventually("the end is counted", SOON, || connection.info_number("resil", "lock_lost") == 1);
    assert_eq!(connection.ask(&format!("RES.LOCK RENEW k a 1h FENCE {fence}")), "LOST expired");
    assert!(connection.hold("k b 1h") > fence);
}

#[test]
fn leases_in_every_database_are_found_after_a_load() {
    let mut server = Server::start(with_file());
    let mut connection = server.connect();
    for db in [0, 3, 15] {
        connection.say(&format!("SELECT {db}"));
        for number in 0..300 {
            connection.say(&format!("SET filler:{number} x"));
        }
        connection.hold("k a 1500ms");
        connection.say("RES.BULKHEAD ENTER b a 1 1500ms");
    }
    server.restart_after_kill();
    // Counted, not listened for: on a busy machine they may end before anybody listens.
    let mut connection = server.connect();
    let lost = |connection: &mut redis::Connection| {
        connection.info_number("resil", "lock_lost") + connection.info_number("resil", "bulkhead_lost")
    };
    resil_harness::eventually("all have ended without a command", SOON, || lost(&mut connection) == 6);
}
