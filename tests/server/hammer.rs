//! Many clients at once, clients that die and servers that stall: the bound holds.

use std::io::{Read, Write};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;
use resil_harness::Server;

use crate::driven::{SECOND_US, START_US, integer, numbers, say, set_clock, start_driven, text};

const CLIENTS: usize = 32;

/// Every client asks `times` times at once; the cells all of them got together.
fn hammer(server: &Server, line: &str, times: usize) -> i64 {
    let start = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        let client = || {
            let mut connection = server.connect();
            start.wait();
            (0..times).map(|_| numbers(&mut connection, line)[0]).sum::<i64>()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("every call is answered")).sum()
    })
}

#[test]
fn many_clients_get_exactly_the_capacity_while_time_stands() {
    let (server, _connection) = start_driven();
    assert_eq!(hammer(&server, "RES.GCRA g 100 60s BURST 777", 50), 777);
    assert_eq!(hammer(&server, "RES.GCRA u 100 60s BURST 1000 UPTO 7", 10), 1_000);
    assert_eq!(hammer(&server, "RES.GCRA t 500 60s AND 300 1h COST 3", 10), 300);
    assert_eq!(hammer(&server, "RES.WINDOW w 555 60s", 30), 555);
    assert_eq!(hammer(&server, "RES.MGCRA 2 a 400 60s 400 b 900 60s 900", 10), 400);
    assert_eq!(numbers(&mut server.connect(), "RES.GCRA.PEEK b 900 60s")[0], 500, "no refused call charged it");
}

#[test]
fn many_clients_get_exactly_each_steps_refill() {
    let (server, mut connection) = start_driven();
    // Three per second: a third of a second is a cell, though no whole number of microseconds.
    assert_eq!(hammer(&server, "RES.GCRA g 3 1s BURST 30", 2), 30);
    let mut granted = 0;
    for step in 1..=20 {
        let elapsed_us = step * 700_000;
        set_clock(&mut connection, START_US + elapsed_us);
        granted += hammer(&server, "RES.GCRA g 3 1s BURST 30", 1);
        assert_eq!(granted, 3 * elapsed_us / SECOND_US, "after {elapsed_us} us");
    }
}

#[test]
fn many_clients_together_get_exactly_what_leaves_the_window() {
    let (server, mut connection) = start_driven();
    let mut granted = Vec::new();
    for second in 0..25 {
        set_clock(&mut connection, START_US + second * SECOND_US);
        granted.push(hammer(&server, &format!("RES.WINDOW w 100 10s COST {}", 1 + second % 3), 1));
    }
    for last_ten in granted.windows(10) {
        assert!(last_ten.iter().sum::<i64>() <= 100, "{granted:?}");
    }
    assert!(granted.iter().sum::<i64>() >= 250, "{granted:?}");
}

#[test]
fn reservations_of_many_clients_are_spread_and_never_overlap() {
    let (server, _connection) = start_driven();
    let start = Barrier::new(CLIENTS);
    let mut turns_ms: Vec<i64> = thread::scope(|scope| {
        let client = || {
            let mut connection = server.connect();
            start.wait();
            let [granted, _, _, wait_ms, _] = numbers(&mut connection, "RES.GCRA g 1 1s RESERVE 1m")[..] else {
                panic!("five numbers")
            };
            assert_eq!(granted, 1);
            wait_ms
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    turns_ms.sort_unstable();
    assert_eq!(turns_ms, (0..CLIENTS as i64).map(|turn| turn * 1_000).collect::<Vec<_>>());
}

#[test]
fn a_client_that_dies_amid_a_pipeline_hurts_nobody() {
    let (server, mut connection) = start_driven();
    let take = redis::cmd("RES.GCRA").arg("g").arg(1_000_000).arg("1h").get_packed_command();
    for lost in 0..20 {
        let mut dying = server.raw();
        // Many whole calls and a torn one; then gone without reading a reply.
        dying.write_all(&take.repeat(50)).unwrap();
        dying.write_all(&take[..take.len() - lost]).unwrap();
        drop(dying);
    }
    let mut other = server.raw();
    other.write_all(&take).unwrap();
    let mut reply = [0; 4];
    other.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"*5\r\n");
    assert_eq!(text(&mut connection, "PING"), "PONG");
    // What a client sent may or may not have run when it was gone; more than it sent never does.
    let taken = 1_000_000 - numbers(&mut connection, "RES.GCRA.PEEK g 1000000 1h")[0];
    assert!((1..=20 * 51 + 1).contains(&taken), "{taken}");
}

#[test]
fn a_client_killed_while_others_ask_costs_them_nothing() {
    let (server, mut connection) = start_driven();
    let granted = thread::scope(|scope| {
        let asking = scope.spawn(|| hammer(&server, "RES.GCRA g 100 60s BURST 777", 50));
        for _ in 0..50 {
            let mut victim = server.connect();
            let id = integer(&mut victim, "CLIENT ID");
            say(&mut connection, &format!("CLIENT KILL ID {id}"));
        }
        asking.join().unwrap()
    });
    assert_eq!(granted, 777);
}

/// Asks without a break until `until`; the cells it got.
fn ask_until(connection: &mut Connection, line: &str, until: Instant) -> i64 {
    let mut granted = 0;
    while Instant::now() < until {
        granted += numbers(connection, line)[0];
    }
    granted
}

#[test]
fn a_server_that_stalls_under_traffic_keeps_the_bound() {
    let server = Server::fresh();
    let began = Instant::now();
    let until = began + Duration::from_millis(1_500);
    // Fifty per second in a bucket of ten; and a window of twenty in half a second.
    let (bucket, window) = thread::scope(|scope| {
        let ask = |line: &'static str| {
            let server = &server;
            move || ask_until(&mut server.connect(), line, until)
        };
        let buckets = [(); 4].map(|()| scope.spawn(ask("RES.GCRA g 50 1s BURST 10")));
        let windows = [(); 4].map(|()| scope.spawn(ask("RES.WINDOW w 20 500ms")));
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(150));
            server.pause();
            thread::sleep(Duration::from_millis(150));
            server.resume();
        }
        let sum = |clients: [thread::ScopedJoinHandle<'_, i64>; 4]| {
            clients.into_iter().map(|client| client.join().expect("every call is answered")).sum::<i64>()
        };
        (sum(buckets), sum(windows))
    });
    // Measured from outside, so that it is never shorter than what the server saw.
    let elapsed_ms = began.elapsed().as_millis() as i64 + 1;
    let most = 10 + 50 * elapsed_ms / 1_000;
    assert!(bucket <= most, "{bucket} cells in {elapsed_ms} ms, at most {most}");
    let windows_touched = elapsed_ms / 500 + 2;
    assert!(window <= 20 * windows_touched, "{window} cells in {windows_touched} windows");
    assert!(bucket >= 10 && window >= 20, "somebody was served");
}
