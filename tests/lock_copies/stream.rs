//! What timers do is one change per step in the file and on the way to replicas, in the right database, and nothing
//! when nothing changed.

use std::fs;

use redis::Connection;
use resil_harness::{Server, eventually, ok, wait_for_sync};

use crate::asked::{Asked, Caller, waiters};
use crate::driven::{SOON, Say, driven, start_with};

/// A driven server with a file that is always up to date.
fn written() -> (Server, Connection) {
    start_with(driven().config("appendonly", "yes").config("appendfsync", "always"))
}

/// Every command in the file so far: its name and its first argument, a change of the database included.
fn file(server: &Server) -> Vec<String> {
    let folder = fs::read_dir(server.dir().join("appendonlydir")).expect("the folder of the append-only file");
    let growing = folder.map(|entry| entry.unwrap().path()).find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let bytes = fs::read(growing.expect("a file of changes")).expect("it can be read");
    let mut rest = bytes.as_slice();
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let words: Vec<Vec<u8>> = (0..number(&mut rest, b'*')).map(|_| word(&mut rest)).collect();
        let shown: Vec<String> = words.iter().take(2).map(|word| word.escape_ascii().to_string()).collect();
        commands.push(shown.join(" "));
    }
    commands
}

fn number(rest: &mut &[u8], mark: u8) -> usize {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a whole line");
    let (line, after) = rest.split_at(end);
    assert_eq!(line[0], mark, "{}", line.escape_ascii());
    *rest = &after[2..];
    std::str::from_utf8(&line[1..]).unwrap().parse().expect("a length")
}

fn word(rest: &mut &[u8]) -> Vec<u8> {
    let len = number(rest, b'$');
    let (word, after) = rest.split_at(len);
    *rest = &after[2..];
    word.to_vec()
}

/// What `act` added to the file, without the frames of transactions.
fn added(server: &Server, act: impl FnOnce()) -> Vec<String> {
    let before = file(server).len();
    act();
    let frames = ["MULTI", "EXEC"];
    file(server).split_off(before).into_iter().filter(|line| !frames.contains(&line.as_str())).collect()
}

/// Lets timers that are due have their turn.
fn turn(connection: &mut Connection) {
    for _ in 0..15 {
        connection.ask("PING");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn a_leases_end_and_the_grant_are_one_change() {
    let (server, mut connection) = written();
    connection.say("SELECT 3");
    connection.hold("k a 10s");
    let mut waiting = Caller::calls_in(&server, 3, "RES.LOCK ACQUIRE k b 10s WAIT 60s");
    eventually("it waits", SOON, || connection.look("k").waiters.len() == 1);
    let mut other = server.connect();
    other.say("SET here x");
    let changes = added(&server, || {
        other.clock_at_ms(10_000);
        waiting.granted();
        turn(&mut other);
    });
    assert_eq!(changes, ["SELECT 3", "RES._APPLY k"]);
}

#[test]
fn a_renewal_is_one_change_if_somebody_was_heard() {
    let (server, mut connection) = written();
    let mut holder = server.connect();
    // Shorter than what plain traffic could carry.
    holder.hold("k a 2s BOUND");
    holder.say("RES.BULKHEAD ENTER b a 3 2s BOUND");
    assert_eq!(
        added(&server, || {
            connection.clock_at_ms(700);
            turn(&mut connection);
        }),
        Vec::<String>::new(),
        "it was not heard since"
    );
    let changes = added(&server, || {
        assert_eq!(holder.ask("RES.HEARTBEAT"), "[2, ]");
        turn(&mut connection);
    });
    assert_eq!(changes, Vec::<String>::new(), "a heartbeat alone changes nothing");
    let mut changes = added(&server, || {
        connection.clock_at_ms(1_367);
        turn(&mut connection);
    });
    changes.sort();
    assert_eq!(changes, ["RES._APPLY b", "RES._APPLY k"]);
    assert_eq!(connection.look("k").holders[0].remaining_ms, 1_333);
    assert_eq!(
        added(&server, || {
            connection.clock_at_ms(2_034);
            turn(&mut connection);
        }),
        Vec::<String>::new()
    );
}

#[test]
fn a_close_is_one_change_for_any_next_holder() {
    let (server, mut connection) = written();
    let mut holder = server.connect();
    holder.hold("k a 30s BOUND");
    let mut callers = waiters(&server, "k", 2, "30s WAIT 60s");
    let changes = added(&server, || {
        drop(holder);
        callers[0].granted();
        turn(&mut connection);
    });
    assert_eq!(changes, ["RES._APPLY k"]);
}

#[test]
fn what_changes_nothing_is_not_written() {
    let (server, mut connection) = written();
    connection.hold("k a 30s");
    connection.say("RES.BULKHEAD ENTER b a 1 30s");
    connection.hold("r a 30s");
    connection.say("RES.LOCK RELEASE r a");
    let changes = added(&server, || {
        for line in [
            "RES.LOCK ACQUIRE k b 30s",
            "RES.LOCK ACQUIRE k a 30s",
            "RES.LOCK ACQUIRE k a 10s",
            "RES.LOCK CHECK k a",
            "RES.LOCK INFO k",
            "RES.LOCK RENEW k b 30s",
            "RES.LOCK RELEASE k b",
            "RES.LOCK RELEASE r a",
            "RES.LOCK RENEW r a 30s",
            "RES.LOCK RELEASE none a",
            "RES.LOCK BREAK none",
            "RES.LOCK BREAK r",
            "RES.BULKHEAD ENTER b b 1 30s",
            "RES.BULKHEAD LEAVE b b",
            "RES.BULKHEAD LEAVE none b",
            "RES.HEARTBEAT",
        ] {
            connection.say(line);
        }
        let mut waiting = waiters(&server, "k", 2, "30s WAIT 5s");
        connection.clock_at_ms(5_000);
        assert!(waiting[0].reply().starts_with("TIMEOUT a 25000"));
        drop(waiting);
        turn(&mut connection);
    });
    assert_eq!(changes, Vec::<String>::new());
    assert_eq!(connection.integer("EXISTS none"), 0);
}

#[test]
fn ends_in_many_databases_are_written_where_they_happened() {
    let (server, mut connection) = written();
    let replica = Server::replica_of(&server, driven());
    for db in 0..16 {
        connection.say(&format!("SELECT {db}"));
        connection.hold(&format!("k{db} a 10s"));
        ok(&mut connection, &["RES.BULKHEAD", "ENTER", &format!("b{db}"), "a", "2", "10s"]);
    }
    let changes = added(&server, || {
        connection.clock_at_ms(10_000);
        eventually("all have ended", SOON, || connection.info_number("resil", "bulkhead_lost") == 16);
        turn(&mut connection);
    });
    let mut db = String::new();
    let mut ends: Vec<String> = Vec::new();
    for line in changes {
        if let Some(number) = line.strip_prefix("SELECT ") {
            db = number.to_owned();
            continue;
        }
        let name = line.strip_prefix("RES._APPLY ").unwrap_or_else(|| panic!("{line} is no change"));
        // The file was in the last database before.
        assert_eq!(&name[1..], if db.is_empty() { "15" } else { &db }, "{line}");
        ends.push(line);
    }
    assert_eq!(ends.len(), 32, "{ends:?}");
    ends.sort();
    ends.dedup();
    assert_eq!(ends.len(), 32, "{ends:?}");
    wait_for_sync(&server, &replica);
    let mut on_replica = replica.connect();
    for db in 0..16 {
        for connection in [&mut connection, &mut on_replica] {
            connection.say(&format!("SELECT {db}"));
        }
        for key in [format!("k{db}"), format!("b{db}")] {
            assert_eq!(on_replica.digest(&key), connection.digest(&key));
        }
    }
}

#[test]
fn a_replica_hears_each_step_once() {
    let (server, mut connection) = start_with(driven());
    let replica = Server::replica_of(&server, driven());
    let applied = |server: &Server| {
        wait_for_sync(server, &replica);
        replica.connect().info_number("resil", "applied")
    };
    let mut holder = server.connect();
    holder.hold("k a 30s BOUND");
    let mut callers = waiters(&server, "k", 3, "10s WAIT 600s");
    assert_eq!(applied(&server), 1, "those who wait are nobody's business");
    drop(holder);
    callers[0].granted();
    assert_eq!(applied(&server), 2);
    connection.clock_at_ms(10_000);
    callers[1].granted();
    assert_eq!(applied(&server), 3);
    connection.clock_at_ms(19_000);
    turn(&mut connection);
    assert_eq!(applied(&server), 3);
    connection.say("RES.LOCK BREAK k");
    callers[2].granted();
    assert_eq!(applied(&server), 4);
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    assert_eq!(replica.connect().digest("k"), connection.digest("k"));
}
