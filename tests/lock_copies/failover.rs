//! FAILOVER under a thousand bound locks with leases of half a second: it completes, and nobody gets a lock that its
//! holder still trusts in.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use redis::{Connection, Value};
use resil_harness::{Options, Server, eventually, wait_for_sync};

use crate::asked::{Asked, fence_in, spoken};
use crate::driven::{SOON, Say, driven, start_driven};

const LOCKS: usize = 1_000;
const LEASE: Duration = Duration::from_millis(500);

/// One call for every lock, in one go; a reply each, or nothing if the connection failed.
fn for_all(connection: &mut Connection, line: impl Fn(usize) -> String) -> Vec<String> {
    let mut pipeline = redis::pipe();
    for number in 0..LOCKS {
        let line = line(number);
        let mut command = redis::Cmd::new();
        line.split_whitespace().for_each(|word| {
            command.arg(word);
        });
        pipeline.add_command(command);
    }
    let packed = pipeline.get_packed_pipeline();
    let replies = redis::ConnectionLike::req_packed_commands(connection, &packed, 0, LOCKS);
    replies.unwrap_or_default().iter().map(spoken).collect()
}

fn say(connection: &mut Connection, line: &str) -> Option<Value> {
    let words: Vec<&str> = line.split_whitespace().collect();
    resil_harness::reply(connection, &words).ok()
}

/// From when until when each lock was trusted in.
type Trust = Vec<Vec<(Instant, Instant)>>;

/// Until when the holder trusts each of its locks, by its own clock: drift of 1 % and 2 ms is taken off.
fn trusted_from(sent: Instant) -> Instant {
    sent + LEASE - LEASE / 100 - Duration::from_millis(2)
}

/// Holds all locks, first at `servers[0]`; when nothing hangs on it there any more, it binds them again at the other.
/// Returns for each lock the intervals in which it was trusted, and the connection: its close would end what hangs on it.
fn holder(servers: [&Server; 2], stop: &AtomicBool, ready: &AtomicBool) -> (Trust, Connection) {
    let mut trusted: Trust = vec![Vec::new(); LOCKS];
    let mut at = 0;
    let mut connection = servers[at].connect();
    let sent = Instant::now();
    for (number, reply) in
        for_all(&mut connection, |n| format!("RES.LOCK ACQUIRE k{n} me 500ms BOUND")).iter().enumerate()
    {
        assert!(fence_in(reply).is_some(), "{reply}");
        trusted[number].push((Instant::now(), trusted_from(sent)));
    }
    ready.store(true, SeqCst);
    while !stop.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(80));
        let sent = Instant::now();
        let replies = for_all(&mut connection, |n| format!("RES.LOCK RENEW k{n} me 500ms BOUND"));
        for (number, reply) in replies.iter().enumerate() {
            if fence_in(reply).is_some() {
                trusted[number].push((sent, trusted_from(sent)));
            }
        }
        let bound = say(&mut connection, "RES.HEARTBEAT").map(|reply| spoken(&reply)).unwrap_or_default();
        if replies.is_empty() || bound.starts_with("[0, ") {
            // A caller that hangs up no longer trusts in what hung there.
            let now = Instant::now();
            trusted.iter_mut().flatten().for_each(|(_, until)| *until = now.min(*until));
            at = 1 - at;
            connection = servers[at].connect();
        }
    }
    (trusted, connection)
}

/// Tries to get every lock, everywhere, all the time. Returns `(lock, when the grant was known)`.
fn rival(servers: [&Server; 2], stop: &AtomicBool) -> Vec<(usize, Instant)> {
    let mut connections = servers.map(Server::connect);
    let mut grants = Vec::new();
    while !stop.load(SeqCst) {
        for (connection, server) in connections.iter_mut().zip(servers) {
            let replies = for_all(connection, |n| format!("RES.LOCK ACQUIRE k{n} rival 10s"));
            let known = Instant::now();
            if replies.is_empty() {
                *connection = server.connect();
            }
            grants.extend(replies.iter().enumerate().filter_map(|(n, reply)| fence_in(reply).map(|_| (n, known))));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    grants
}

#[test]
fn a_failover_with_a_thousand_locks_grants_nothing_twice() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let servers = [&primary, &replica];
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let ((trusted, connection), grants, took) = std::thread::scope(|scope| {
        let holding = scope.spawn(|| holder(servers, &stop, &ready));
        eventually("all are held", SOON, || ready.load(SeqCst));
        let trying = scope.spawn(|| rival(servers, &stop));
        std::thread::sleep(Duration::from_millis(700));
        let (mut old, mut new) = (primary.connect(), replica.connect());
        eventually("the replica is online", SOON, || old.info("replication", "slave0").contains("state=online"));
        let began = Instant::now();
        old.say(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 5000", replica.port()));
        eventually("the failover is over", SOON, || {
            old.info("replication", "master_failover_state") == "no-failover"
                && old.info("replication", "role") == "slave"
                && new.info("replication", "role") == "master"
        });
        let took = began.elapsed();
        std::thread::sleep(Duration::from_millis(900));
        stop.store(true, SeqCst);
        (holding.join().expect("the holder"), trying.join().expect("the rival"), took)
    });
    drop(connection);
    for (number, known) in &grants {
        let twice = trusted[*number].iter().find(|(from, until)| from < known && known < until);
        assert!(twice.is_none(), "k{number} was granted while its holder trusted in it");
    }
    let kept = (0..LOCKS).filter(|number| !grants.iter().any(|(lost, _)| lost == number)).count();
    println!("{kept} of {LOCKS} were kept in {took:?}");
    // The server waits for its replica's word, which may take a second: longer than these leases.
    if took < Duration::from_millis(300) {
        assert!(kept > LOCKS * 9 / 10, "{kept} of {LOCKS} were kept over a failover of {took:?}");
    }
    // A caller that holds on the new primary holds on its replica.
    let (mut old, mut new) = (primary.connect(), replica.connect());
    new.say("CLIENT KILL TYPE normal SKIPME yes");
    eventually("the old primary follows", SOON, || old.info("replication", "master_link_status") == "up");
    eventually("both say the same", SOON, || {
        (0..LOCKS).step_by(37).all(|number| {
            let key = format!("k{number}");
            old.digest(&key) == new.digest(&key)
        })
    });
    assert_eq!(old.info_number("resil", "apply_refused"), 0);
}

#[test]
fn a_failover_does_not_wait_for_what_timers_would_write() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let (mut old, mut new) = (primary.connect(), replica.connect());
    eventually("the replica is online", SOON, || old.info("replication", "slave0").contains("state=online"));
    // Every few milliseconds some lease ends or is to be renewed.
    let mut holder = primary.connect();
    for number in 0..300 {
        holder.hold(&format!("short{number} a {}ms BOUND", 20 + number));
        old.hold(&format!("lease{number} a {}ms", 20 + 3 * number));
    }
    // A replica that is stopped for a moment: the primary is paused until it has caught up.
    replica.pause();
    old.hold("last a 1h");
    old.say(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 10000", replica.port()));
    std::thread::sleep(Duration::from_millis(500));
    let offset = old.info_number("replication", "master_repl_offset");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        old.info_number("replication", "master_repl_offset"),
        offset,
        "something was written while it was paused"
    );
    replica.resume();
    eventually("the failover is over", SOON, || {
        old.info("replication", "role") == "slave" && new.info("replication", "role") == "master"
    });
    assert!(new.holds("last", "a"));
    eventually("the ends are noted there", SOON, || new.info_number("resil", "lock_lost") > 250);
}

/// What a holder may conclude from an acknowledged heartbeat, when the primary dies right after it: the stored end
/// follows up to a third of the lease later.
#[test]
fn an_acknowledged_heartbeat_keeps_its_worth_after_promotions() {
    let (mut primary, mut connection) = start_driven();
    let replica = Server::replica_of(&primary, driven());
    let mut on_replica = replica.connect();
    let mut holder = primary.connect();
    holder.hold("k a 30s BOUND");
    connection.clock_at_ms(9_900);
    assert_eq!(holder.ask("RES.HEARTBEAT"), "[1, ]");
    wait_for_sync(&primary, &replica);
    primary.kill9();
    // Twenty seconds later.
    on_replica.clock_at_ms(29_900);
    on_replica.say("REPLICAOF NO ONE");
    assert!(on_replica.ask("RES.LOCK ACQUIRE k b 30s").starts_with("TAKEN a "));
}
