//! Many leases hang on one connection.

use std::thread::sleep;
use std::time::{Duration, Instant};

use resil_harness::{Server, eventually};

use crate::driven::{SOON, Say, driven};
use crate::pinger::{all_lost, during, each, on_cpu, our_server, plain_keys, plain_server};
use crate::{compare, size};

/// Whether the server takes less than this share of a core for `time`.
fn share_of_a_core(server: &Server, time: Duration) -> f64 {
    let (began, before) = (Instant::now(), on_cpu(server.pid()));
    sleep(time);
    (on_cpu(server.pid()) - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

#[test]
fn closing_a_connection_with_many_leases_is_no_stall() {
    let count = size(40_000, 200_000);
    // As many plain keys, let go by their owner at once.
    let plain = || {
        let server = plain_server();
        plain_keys(&server, count);
        let names: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
        during(&server, |connection| drop(connection.say(&format!("UNLINK {}", names.join(" ")))))
    };
    let ours = || {
        let server = our_server();
        let mut holder = server.connect();
        each(&mut holder, count, |number| format!("RES.LOCK ACQUIRE k{number} owner 10000s BOUND"));
        during(&server, |connection| {
            drop(holder);
            all_lost(connection, count);
        })
    };
    compare("the close of a connection", plain, ours);
}

#[test]
fn many_short_bound_leases_of_a_living_connection_cost_little() {
    let count = size(20_000, 20_000);
    let server = our_server();
    let (mut holder, mut main) = (server.connect(), server.connect());
    main.say("RES.LOCK ACQUIRE gate somebody 10000s");
    each(&mut holder, count, |number| format!("RES.LOCK ACQUIRE k{number} owner 30s BOUND"));
    each(&mut holder, count, |number| format!("RES.LOCK RENEW k{number} owner 30ms BOUND"));
    // It waits in a call, and so it is there all the time.
    crate::scene::send(&mut holder, "RES.LOCK ACQUIRE gate owner 10s WAIT 100s");
    sleep(Duration::from_millis(500));
    let share = share_of_a_core(&server, Duration::from_secs(2));
    println!("{count} bound leases of 30 ms take {:.0} % of a core", share * 100.0);
    assert_eq!(main.info_number("resil", "bound"), count as i64, "all of them are still held");
    assert!(share < 0.25, "{count} bound leases of 30 ms take {:.0} % of a core", share * 100.0);
}

#[test]
fn closing_many_readers_of_one_lock_is_no_stall() {
    let count = size(20_000, 50_000);
    for grace in ["", " GRACE 50ms"] {
        let ours = || {
            let server = our_server();
            let mut holder = server.connect();
            each(&mut holder, count, |number| format!("RES.LOCK ACQUIRE k o{number} 10000s SHARED BOUND{grace}"));
            during(&server, |connection| {
                drop(holder);
                all_lost(connection, count);
                assert_eq!(connection.say("RES.LOCK CHECK k o0"), redis::Value::Int(0));
            })
        };
        compare(&format!("the close of a crowd of readers{grace}"), || Duration::ZERO, ours);
    }
}

#[test]
fn closing_a_connection_with_many_messages_is_no_stall() {
    let count = size(20_000, 50_000);
    for (crashes, grace) in [(1, ""), (3, ""), (1, " GRACE 50ms")] {
        let ours = || {
            let server = our_server();
            let (mut taker, mut main) = (server.connect(), server.connect());
            main.say(&format!("RES.DLQ CONFIG d CRASHES {crashes} JITTER none ACTOR a"));
            each(&mut main, count, |number| {
                format!("RES.DLQ FAIL d m{number} ERROR e TYPE t AGGREGATE a{} PAYLOAD p", number % 100)
            });
            let mut token = 0;
            eventually("all are taken", SOON, || {
                token += 1;
                taker.say(&format!("RES.DLQ TAKE d t{token} 1h COUNT 1000 BOUND{grace}"));
                dlq(&mut main, "taken") == count
            });
            during(&server, |connection| {
                drop(taker);
                let left = if crashes == 1 { "dead" } else { "waiting" };
                eventually("all have ended", SOON * 10, || dlq(connection, left) == count);
            })
        };
        let what = format!("the close of a taker, {crashes} crashes{grace}");
        compare(&what, || Duration::ZERO, ours);
    }
}

/// How many entries of the ledger `d` are there.
pub fn dlq(connection: &mut redis::Connection, place: &str) -> usize {
    let info: std::collections::HashMap<String, redis::Value> =
        redis::cmd("RES.DLQ").arg("INFO").arg("d").query(connection).expect("a ledger");
    redis::from_redis_value(info[place].clone()).expect("a number")
}

#[test]
fn a_clock_jump_over_many_leases_is_no_stall() {
    let count = size(40_000, 200_000);
    let ours = || {
        let server = Server::start(driven().measured());
        let mut holder = server.connect();
        server.connect().clock_at_ms(0);
        each(&mut holder, count, |number| format!("RES.LOCK ACQUIRE k{number} owner 10m BOUND"));
        during(&server, |connection| {
            connection.clock_at_ms(3_600_000);
            all_lost(connection, count);
            assert_eq!(connection.info_number("resil", "bound"), 0);
        })
    };
    compare("a jump of the clock", || Duration::ZERO, ours);
}
