//! A replica takes over, or a server comes back: leases start anew, nobody is blamed, and a redrive keeps its pace.

use redis::Connection;
use resil_harness::{Server, eventually, wait_for_sync};

use crate::driven::{SOON, START_US, Say, driven};
use crate::letters::given;
use crate::scene::{receive, send};

fn ask(connection: &mut Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}

/// A primary and its replica, both at the same instant.
fn pair() -> (Server, Connection, Server, Connection) {
    let primary = Server::start(driven());
    let mut here = primary.connect();
    here.clock_at_ms(0);
    let replica = Server::replica_of(&primary, driven());
    let mut there = replica.connect();
    there.clock_at_ms(0);
    assert_eq!(ask(&mut here, "RES.DLQ CONFIG d JITTER none ACTOR ann"), "OK");
    (primary, here, replica, there)
}

fn promote(mut primary: Server, replica: &Server, there: &mut Connection, at_ms: i64) {
    wait_for_sync(&primary, replica);
    primary.kill9();
    there.clock_at_ms(at_ms);
    there.say("REPLICAOF NO ONE");
}

#[test]
fn leases_start_anew_and_their_lapses_are_not_counted() {
    let (primary, mut here, replica, mut there) = pair();
    ask(&mut here, "RES.DLQ FAIL d m ERROR e PAYLOAD p");
    here.clock_at_ms(500);
    let taken = given(&ask(&mut here, "RES.DLQ TAKE d t 10s"));
    promote(primary, &replica, &mut there, 9_000);
    // It had 1.5 s left; here it has all of its ten again.
    there.clock_at_ms(18_900);
    assert_eq!(ask(&mut there, "RES.DLQ GET d m STATE"), "taken");
    there.clock_at_ms(19_001);
    eventually("the lease ends", SOON, || ask(&mut there, "RES.DLQ GET d m STATE") == "waiting");
    let entry = ask(&mut there, "RES.DLQ GET d m");
    assert!(entry.contains("lapses 0"), "{entry}");
    assert_eq!(ask(&mut there, &format!("RES.DLQ DONE d m {}", taken[0].1)), "[DONE]", "its taker may still say so");
}

#[test]
fn what_is_known_can_be_waited_for() {
    let (primary, mut here, replica, _there) = pair();
    replica.pause();
    let fail = "RES.DLQ FAIL d m ERROR e PAYLOAD p";
    assert_eq!(ask(&mut here, fail), "[RETRY 1 500]");
    assert_eq!(ask(&mut here, "WAIT 1 200"), "0");
    // The source delivers it again, to another worker.
    let mut other = primary.connect();
    assert_eq!(ask(&mut other, fail), "[KNOWN waiting 1]");
    assert_eq!(ask(&mut other, "WAIT 1 200"), "0", "the replica does not have it");
    replica.resume();
    assert_eq!(ask(&mut other, fail), "[KNOWN waiting 1]");
    assert_eq!(ask(&mut other, "WAIT 1 20000"), "1");
    assert_eq!(ask(&mut replica.connect(), "RES.DLQ GET d m STATE"), "waiting");
}

#[test]
fn what_was_acknowledged_is_there_and_fences_grow() {
    let (primary, mut here, replica, mut there) = pair();
    for n in 0..30 {
        ask(&mut here, &format!("RES.DLQ FAIL d m{n} ERROR e PAYLOAD p{n}"));
    }
    here.clock_at_ms(500);
    let taken = given(&ask(&mut here, "RES.DLQ TAKE d t 1h COUNT 10"));
    for (id, fence) in &taken[..5] {
        assert_eq!(ask(&mut here, &format!("RES.DLQ DONE d {id} {fence}")), "[DONE]");
    }
    promote(primary, &replica, &mut there, 500);
    assert_eq!(
        ask(&mut there, &format!("RES.DLQ DONE d {} {}", taken[0].0, taken[0].1)),
        "[DONE]",
        "done again is done"
    );
    assert_eq!(ask(&mut there, &format!("RES.DLQ FAIL d {} ERROR e PAYLOAD p0", taken[0].0)), "[KNOWN done 0]");
    let again = given(&ask(&mut there, "RES.DLQ TAKE d t 1h COUNT 10"));
    assert_eq!(again, taken[5..], "the same token has the rest of its entries");
    let next = given(&ask(&mut there, "RES.DLQ TAKE d u 1h COUNT 100"));
    assert_eq!(next.len(), 20);
    assert!(next[0].1 > taken[9].1, "{} after {}", next[0].1, taken[9].1);
}

#[test]
fn a_redrive_keeps_its_pace_across_a_failover() {
    let (primary, mut here, replica, mut there) = pair();
    for n in 0..10 {
        ask(&mut here, &format!("RES.DLQ FAIL d m{n} ERROR no PAYLOAD p TYPE pay FINAL"));
    }
    here.clock_at_ms(1_000);
    ask(&mut here, "RES.DLQ DIAGNOSE d pay/no CATEGORY infrastructure CAUSE c FIX f ACTOR ann");
    assert!(ask(&mut here, "RES.DLQ REDRIVE d 1 RATE 1 1m ACTOR ann").starts_with("[STARTED 10 "));
    assert_eq!(given(&ask(&mut here, "RES.DLQ TAKE d t 1h"))[0].0, "m0");
    promote(primary, &replica, &mut there, 30_000);
    // The first minute has 31 s to go; a new primary may wait longer, never less.
    for at in [30_000, 45_000, 60_999] {
        there.clock_at_ms(at);
        let reply = ask(&mut there, "RES.DLQ TAKE d u 1h");
        assert!(reply.starts_with("[NONE "), "at {at}: {reply}");
    }
    let mut taken = 0;
    for second in 61..181 {
        there.clock_at_ms(second * 1_000);
        taken += usize::from(ask(&mut there, &format!("RES.DLQ TAKE d u{second} 1h")).starts_with("[TAKEN"));
    }
    assert!((1..=2).contains(&taken), "{taken} in two minutes");
}

#[test]
fn time_the_server_was_down_is_nobodys_lapse() {
    let at = |ms: i64| driven().module_args(["test-clock", &(START_US + ms * 1_000).to_string()]);
    let folder = tempfile::tempdir().expect("a folder");
    let with_file = |ms: i64| at(ms).config("appendonly", "yes").config("appendfsync", "always").dir(folder.path());
    let mut server = Server::start(with_file(0));
    let mut connection = server.connect();
    ask(&mut connection, "RES.DLQ CONFIG d JITTER none ACTOR ann");
    ask(&mut connection, "RES.DLQ FAIL d m ERROR e PAYLOAD p");
    connection.clock_at_ms(500);
    let taken = given(&ask(&mut connection, "RES.DLQ TAKE d t 10s"));
    server.kill9();
    drop(server);
    let server = Server::start(with_file(60_000));
    let mut connection = server.connect();
    connection.clock_at_ms(60_001);
    eventually("the lease is over", SOON, || ask(&mut connection, "RES.DLQ GET d m STATE") == "waiting");
    assert!(ask(&mut connection, "RES.DLQ GET d m").contains("lapses 0"));
    assert_eq!(ask(&mut connection, &format!("RES.DLQ DONE d m {}", taken[0].1)), "[DONE]");
}
