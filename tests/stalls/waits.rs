//! Many callers wait, each for a key of its own or all for one, while something happens to all of them.

use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use resil_harness::{Options, Server, eventually, ok};

use crate::crowds::{allow_many_files, nobody_waits, waiters};
use crate::driven::{SOON, Say, driven};
use crate::pinger::{all_lost, during, each, our_server};
use crate::{compare, size};

/// As many keys as waiters, each held by one and waited for by another.
fn one_waiter_each(server: &Server, count: usize) -> Vec<TcpStream> {
    allow_many_files();
    each(&mut server.connect(), count, |number| format!("RES.LOCK ACQUIRE k{number} holder 10000s"));
    waiters(server, count, |number| format!("RES.LOCK ACQUIRE k{number} waiter 10s WAIT 500s"))
}

#[test]
fn a_pause_of_writes_with_many_waiters_is_no_stall() {
    let count = size(2_000, 18_000);
    let ours = || {
        let server = our_server();
        let waiting = one_waiter_each(&server, count);
        let longest = during(&server, |connection| {
            connection.say("RES.LOCK ACQUIRE short holder 50ms");
            connection.say("CLIENT PAUSE 300 WRITE");
            sleep(Duration::from_millis(350));
        });
        drop(waiting);
        longest
    };
    compare("a pause of writes", || Duration::ZERO, ours);
}

#[test]
fn a_cluster_with_many_waiters_is_no_stall() {
    let count = size(2_000, 18_000);
    let ours = || {
        let server = Server::start(Options::default().measured().cluster().config("maxclients", "30000"));
        let mut admin = server.connect();
        ok(&mut admin, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        eventually("the cluster is up", SOON, || {
            admin.info_number("resil", "sessions") == 0 && {
                let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut admin).expect("info");
                info.contains("cluster_state:ok")
            }
        });
        let waiting = one_waiter_each(&server, count);
        let longest = during(&server, |connection| {
            connection.say("RES.LOCK ACQUIRE short holder 50ms");
            sleep(Duration::from_millis(500));
        });
        drop(waiting);
        longest
    };
    compare("waiters in a cluster", || Duration::ZERO, ours);
}

#[test]
fn many_readers_whose_connection_was_heard_are_no_stall() {
    let count = 20_000;
    let ours = || {
        let server = Server::start(driven().measured());
        let mut holder = server.connect();
        let mut main = server.connect();
        main.clock_at_ms(0);
        each(&mut holder, count, |number| format!("RES.LOCK ACQUIRE k o{number} 3s SHARED BOUND"));
        during(&server, |connection| {
            connection.clock_at_ms(900);
            holder.say("RES.HEARTBEAT");
            connection.clock_at_ms(3_000);
            connection.say("RES.LOCK ACQUIRE k another 1s SHARED");
            sleep(Duration::from_millis(300));
            assert_eq!(connection.say("RES.LOCK CHECK k o0"), redis::Value::Int(1), "it was heard");
        })
    };
    compare("readers that were heard", || Duration::ZERO, ours);
}

#[test]
fn a_silence_of_many_short_leases_is_no_stall() {
    let count = size(40_000, 200_000);
    let ours = || {
        let server = Server::start(driven().measured());
        let mut holder = server.connect();
        server.connect().clock_at_ms(0);
        each(&mut holder, count, |number| format!("RES.LOCK ACQUIRE k{number} owner 500ms BOUND"));
        during(&server, |connection| {
            connection.clock_at_ms(1_000);
            all_lost(connection, count);
        })
    };
    compare("a silence of short leases", || Duration::ZERO, ours);
}

#[test]
fn a_clock_set_back_under_many_waiters_is_no_stall() {
    allow_many_files();
    let count = size(2_000, 18_000);
    let ours = || {
        let server = Server::start(driven().measured().config("maxclients", "30000"));
        let mut main = server.connect();
        main.clock_at_ms(100_000);
        main.say("RES.LOCK ACQUIRE k holder 10000s");
        let waiting = waiters(&server, count, |number| format!("RES.LOCK ACQUIRE k w{number} 10s WAIT 500s"));
        let longest = during(&server, |connection| {
            connection.clock_at_ms(0);
            connection.say("RES.LOCK RENEW k holder 10000s");
            sleep(Duration::from_millis(200));
        });
        drop(waiting);
        main.say("DEL k");
        nobody_waits(&mut main);
        longest
    };
    compare("a clock that is set back", || Duration::ZERO, ours);
}

#[test]
fn a_larger_max_is_not_refused_while_many_are_served() {
    allow_many_files();
    let (server, count) = (our_server(), 1_500);
    let mut main = server.connect();
    main.say("RES.BULKHEAD ENTER k holder 1 10000s");
    let waiting =
        waiters(&server, count, |number| format!("RES.BULKHEAD ENTER k w{number} 1 10000s WAIT 500s QUEUE 5000"));
    let all = count + 2;
    let entered = crate::scene::shown(&main.say(&format!("RES.BULKHEAD ENTER k caller {all} 10000s")));
    assert!(entered.starts_with("[GRANTED "), "{entered}");
    nobody_waits(&mut main);
    let entered = crate::scene::shown(&main.say(&format!("RES.BULKHEAD ENTER k another {all} 10000s")));
    assert!(entered.starts_with("[FULL "), "all of them are in: {entered}");
    drop(waiting);
}
