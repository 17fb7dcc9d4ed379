//! Two things in one turn of the server's loop. The server is stopped while they are sent, so that it finds both.

use std::thread;
use std::time::Duration;

use resil_harness::{Options, Server};

use crate::talk::{Reply, Talk};

fn talk(server: &Server) -> Talk {
    Talk::to(server.port()).expect("the server is there")
}

/// Long enough for a signal or a packet on this machine.
fn settle() {
    thread::sleep(Duration::from_millis(30));
}

/// Everything `act` sends reaches the server at once.
fn in_one_turn(server: &Server, act: impl FnOnce()) {
    settle();
    server.pause();
    settle();
    act();
    settle();
    server.resume();
}

#[test]
fn a_waiter_that_left_in_its_turn_is_skipped() {
    let server = Server::fresh();
    for round in 0..20 {
        let key = format!("k:{round}");
        let (mut holder, mut gone, mut next) = (talk(&server), talk(&server), talk(&server));
        holder.say(&format!("RES.LOCK ACQUIRE {key} holder 1m"));
        gone.send(&format!("RES.LOCK ACQUIRE {key} gone 1m WAIT 10s")).unwrap();
        settle();
        next.send(&format!("RES.LOCK ACQUIRE {key} next 1m WAIT 10s")).unwrap();
        in_one_turn(&server, || {
            holder.send(&format!("RES.LOCK RELEASE {key} holder")).unwrap();
            gone.cut();
        });
        assert_eq!(holder.read().expect("the server lives").verdict(), "RELEASED");
        assert_eq!(next.read().expect("the server lives").verdict(), "GRANTED");
    }
}

#[test]
fn an_owner_asking_as_its_connection_closes_hears_the_truth() {
    let server = Server::fresh();
    for (round, again) in ["ACQUIRE {key} me 1m BOUND", "RENEW {key} me 1m BOUND"].into_iter().enumerate() {
        let key = format!("k:{round}");
        let (mut first, mut second, mut other) = (talk(&server), talk(&server), talk(&server));
        first.say(&format!("RES.LOCK ACQUIRE {key} me 1m BOUND"));
        other.send(&format!("RES.LOCK ACQUIRE {key} other 1m WAIT 300ms")).unwrap();
        in_one_turn(&server, || {
            first.cut();
            settle();
            second.send(&format!("RES.LOCK {}", again.replace("{key}", &key))).unwrap();
        });
        let (mine, others) = (second.read().unwrap(), other.read().unwrap());
        let is_mine = second.say(&format!("RES.LOCK CHECK {key} me")) == Reply::Number(1);
        assert_eq!(
            mine.verdict() == "GRANTED",
            is_mine,
            "{again}: reported {mine:?}, {others:?}; CHECK says {is_mine}"
        );
        assert_ne!(mine.verdict(), others.verdict(), "{again}: reported {mine:?}, {others:?}");
    }
}

#[test]
fn an_owner_asking_as_its_grant_fails_hears_the_truth() {
    let server = Server::fresh();
    for round in 0..5 {
        let key = format!("k:{round}");
        let (mut holder, mut first, mut second, mut other) =
            (talk(&server), talk(&server), talk(&server), talk(&server));
        holder.say(&format!("RES.LOCK ACQUIRE {key} holder 1m"));
        first.send(&format!("RES.LOCK ACQUIRE {key} me 1m WAIT 10s")).unwrap();
        settle();
        other.send(&format!("RES.LOCK ACQUIRE {key} other 1m WAIT 300ms")).unwrap();
        in_one_turn(&server, || {
            holder.send(&format!("RES.LOCK RELEASE {key} holder")).unwrap();
            settle();
            first.cut();
            settle();
            second.send(&format!("RES.LOCK ACQUIRE {key} me 1m")).unwrap();
        });
        let (mine, others) = (second.read().expect("the server lives"), other.read().expect("the server lives"));
        let is_mine = second.say(&format!("RES.LOCK CHECK {key} me")) == Reply::Number(1);
        assert_eq!(mine.verdict() == "GRANTED", is_mine, "reported {mine:?}, {others:?}; CHECK says {is_mine}");
        assert_ne!(mine.verdict(), others.verdict(), "reported {mine:?}, {others:?}");
    }
}

#[test]
fn a_clock_set_back_costs_waiters_one_lease() {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let (mut holder, mut waiter) = (talk(&server), talk(&server));
    const START_MS: i64 = 1_800_000_000_000;
    let at = |ms: i64| format!("RES._CLOCK {}", (START_MS + ms) * 1_000);
    holder.say(&at(0));
    holder.say("RES.LOCK ACQUIRE k holder 10s");
    waiter.patience(Duration::from_secs(2)).unwrap();
    waiter.send("RES.LOCK ACQUIRE k waiter 10s WAIT 20s").unwrap();
    settle();
    // An hour back, and then ten seconds pass. Nobody asks for the key.
    holder.say(&at(-3_600_000));
    settle();
    holder.say(&at(-3_600_000 + 10_001));
    let reported = waiter.read().expect("a reply when the lease is over, not an hour later");
    assert_eq!(reported.verdict(), "GRANTED");
}
