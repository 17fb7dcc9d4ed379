//! A key is the same wherever it comes back from: a replica, a file, a reload. Results and values survive.

use redis::Connection;
use resil_harness::{Options, Server, eventually, ok, wait_for_sync};

use crate::driven::{SOON, Say};
use crate::scene::Caller;
use crate::shapes::seen;
use crate::talk::{all_wait, ask, number};

/// Keys of every shape. Times are an hour, by the real clock, so that nothing changes by itself later.
fn fill(server: &Server) -> Vec<Caller> {
    let mut connection = server.connect();
    let mut say = |line: &str| {
        let reply = ask(&mut connection, line);
        assert!(!reply.starts_with('-') && !reply.starts_with("[LOST"), "{line}: {reply}");
    };
    for line in [
        "RES.IDEMP BEGIN running a 1h FINGERPRINT f KEEP 2h ONLAPSE HOLD",
        "RES.IDEMP BEGIN renewed a 10m",
        "RES.IDEMP RENEW renewed a 1h",
        "RES.IDEMP BEGIN aborted a 1h FINGERPRINT f",
        "RES.IDEMP ABORT aborted a",
        "RES.IDEMP BEGIN second a 1h FINGERPRINT f",
        "RES.IDEMP ABORT second a",
        "RES.IDEMP BEGIN second b 1h",
        "RES.IDEMP BEGIN lapsed a 10ms",
        "RES.IDEMP BEGIN held a 10ms ONLAPSE HOLD",
        "RES.IDEMP BEGIN done a 1h FINGERPRINT f",
        "RES.IDEMP COMMIT done a 1h receipt",
        "RES.IDEMP BEGIN failed a 1h",
        "RES.IDEMP COMMIT failed a 1h no ERROR",
        "RES.IDEMP ONCE once 1h",
        "RES.IDEMP ONCE token 1h TOKEN t",
        "RES.SFLIGHT JOIN led a 1h",
        "RES.SFLIGHT JOIN fresh a 1h",
        "RES.SFLIGHT PUBLISH fresh a 1h VALUE bytes STALE 1h",
        "RES.SFLIGHT JOIN softened a 1h",
        "RES.SFLIGHT PUBLISH softened a 1h VALUE bytes STALE 1h",
        "RES.SFLIGHT INVALIDATE softened SOFT",
        "RES.SFLIGHT JOIN again a 1h",
        "RES.SFLIGHT PUBLISH again a 1h VALUE bytes",
        "RES.SFLIGHT INVALIDATE again SOFT",
        "RES.SFLIGHT JOIN again b 1h",
        "RES.SFLIGHT JOIN empty a 1h",
        "RES.SFLIGHT PUBLISH empty a 1h EMPTY",
        "RES.SFLIGHT JOIN error a 1h",
        "RES.SFLIGHT PUBLISH error a 1h ERROR why",
        "RES.SFLIGHT JOIN paused a 1h",
        "RES.SFLIGHT ABANDON paused a RETRY 1h",
        "RES.SFLIGHT JOIN invalidated a 1h",
        "RES.SFLIGHT INVALIDATE invalidated",
        "RES.SFLIGHT JOIN expired a 10ms",
        "RES.SFLIGHT JOIN tagged a 1h UNDER name",
        "RES.SFLIGHT PUBLISH tagged a 1h UNDER name TAG good STALE 1h VALUE bytes",
        "RES.SFLIGHT JOIN tagged-old a 1h UNDER name",
        "RES.SFLIGHT PUBLISH tagged-old a 1h UNDER name TAG bad VALUE bytes",
        "RES.SFLIGHT JOIN led-under a 1h UNDER name",
        "RES.SFLIGHT CLEAR name TAG bad",
        "RES.SFLIGHT CLEAR name TAG soft SOFT",
        "RES.SFLIGHT SET set 1h UNDER name TAG good VALUE bytes",
    ] {
        say(line);
    }
    // Any bytes at all; the second too large to be kept.
    let key: &[u8] = b"\x00bin\xff\r\n";
    ok(&mut connection, &[b"RES.IDEMP".as_slice(), b"BEGIN", key, b"\xfe", b"1h", b"FINGERPRINT", b"\x00\xff"]);
    ok(&mut connection, &[b"RES.IDEMP".as_slice(), b"COMMIT", key, b"\xfe", b"1h", &vec![0xff; 100_000]]);
    ask(&mut connection, "RES.IDEMP BEGIN dropped a 1h");
    ok(&mut connection, &[b"RES.IDEMP".as_slice(), b"COMMIT", b"dropped", b"a", b"1h", &vec![b'x'; (1 << 20) + 1]]);
    ask(&mut connection, "RES.SFLIGHT JOIN large a 1h");
    let large = vec![0xfe; 3 << 20];
    ok(&mut connection, &[b"RES.SFLIGHT".as_slice(), b"PUBLISH", b"large", b"a", b"1h", b"VALUE", &large]);
    {
        let mut gone = server.connect();
        ask(&mut gone, "RES.IDEMP BEGIN closed a 1h BOUND");
        ask(&mut gone, "RES.SFLIGHT JOIN closed-flight a 1h BOUND");
    }
    let mut callers = vec![];
    for line in ["RES.IDEMP BEGIN running w 1h WAIT 10m", "RES.SFLIGHT JOIN led w 1h WAIT 10m"] {
        let mut caller = Caller::new(server);
        caller.send(line);
        callers.push(caller);
        all_wait(&mut connection, callers.len());
    }
    eventually("what was to end has ended", SOON, || {
        let lapsed = ask(&mut connection, "RES.IDEMP RENEW lapsed a 1h") == "[LOST expired]";
        let held = ask(&mut connection, "RES.IDEMP GET held") == "[HELD 1]";
        let closed = ask(&mut connection, "RES.IDEMP RENEW closed a 1h") == "[LOST closed]";
        let flown = ask(&mut connection, "RES.SFLIGHT RENEW closed-flight a 1h") == "[LOST closed]";
        lapsed && held && closed && flown && ask(&mut connection, "RES.SFLIGHT RENEW expired a 1h") == "[LOST expired]"
    });
    let mut before = seen(&mut connection);
    eventually("nothing changes any more", SOON, || {
        std::thread::sleep(std::time::Duration::from_millis(40));
        let now = seen(&mut connection);
        std::mem::replace(&mut before, now.clone()) == now
    });
    callers
}

/// What every key says of itself, without its times.
fn says(connection: &mut Connection) {
    for (line, wanted) in [
        ("RES.IDEMP GET done FINGERPRINT f", "[REPLAY ok receipt "),
        ("RES.IDEMP GET done FINGERPRINT g", "[MISMATCH]"),
        ("RES.IDEMP GET failed", "[REPLAY error no "),
        ("RES.IDEMP GET dropped", "[REPLAY ok nil "),
        ("RES.IDEMP GET held", "[HELD 1]"),
        ("RES.IDEMP GET running", "[BUSY "),
        ("RES.IDEMP GET aborted FINGERPRINT g", "[MISMATCH]"),
        ("RES.SFLIGHT GET fresh", "[VALUE bytes "),
        ("RES.SFLIGHT GET softened", "[STALE bytes "),
        ("RES.SFLIGHT GET again", "[STALE bytes "),
        ("RES.SFLIGHT GET empty", "[EMPTY "),
        ("RES.SFLIGHT GET error", "[ERROR why]"),
        ("RES.SFLIGHT GET paused", "[MISS]"),
        ("RES.SFLIGHT GET tagged UNDER name", "[VALUE bytes "),
        ("RES.SFLIGHT GET tagged-old UNDER name", "[MISS]"),
        ("RES.SFLIGHT GET set UNDER name", "[VALUE bytes "),
        ("RES.SFLIGHT GET large", "[VALUE \\xfe"),
    ] {
        let reply = ask(connection, line);
        assert!(reply.starts_with(wanted), "{line}: {}", &reply[..reply.len().min(200)]);
    }
}

/// They can be used as before, and fences grow.
fn goes_on(connection: &mut Connection, last_fence: i64) {
    for (line, wanted) in [
        ("RES.IDEMP ONCE once 1h", "0"),
        ("RES.IDEMP ONCE token 1h TOKEN t", "1"),
        ("RES.IDEMP BEGIN done z 1h", "[REPLAY ok receipt "),
        ("RES.IDEMP COMMIT running a 1h x", "[COMMITTED stored]"),
        ("RES.IDEMP COMMIT lapsed a 1h x", "[COMMITTED stored]"),
        ("RES.IDEMP COMMIT aborted a 1h x", "[LOST aborted]"),
        ("RES.IDEMP COMMIT second a 1h x", "[LOST taken]"),
        ("RES.SFLIGHT JOIN error z 1h", "[ERROR why]"),
        ("RES.SFLIGHT JOIN paused z 1h", "[BUSY "),
        ("RES.SFLIGHT JOIN again z 1h", "[STALE bytes "),
        ("RES.SFLIGHT PUBLISH led a 1h VALUE x", "[PUBLISHED "),
        ("RES.SFLIGHT PUBLISH invalidated a 1h VALUE x", "[LOST invalidated]"),
        ("RES.SFLIGHT PUBLISH led-under a 1h UNDER name TAG soft VALUE x", "[LOST invalidated]"),
    ] {
        let reply = ask(connection, line);
        assert!(reply.starts_with(wanted), "{line}: {reply}");
    }
    let run = ask(connection, "RES.IDEMP BEGIN aborted z 1h");
    assert!(number(&run, 1) > last_fence && number(&run, 2) == 2, "{run} after {last_fence}");
    let lead = ask(connection, "RES.SFLIGHT JOIN invalidated z 1h");
    assert!(number(&lead, 1) > number(&run, 1), "{lead} after {run}");
    assert_eq!(connection.info_number("resil", "apply_refused"), 0);
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
}

fn last_fence(connection: &mut Connection) -> i64 {
    let fence = number(&ask(connection, "RES.IDEMP BEGIN last-fence a 1h"), 1);
    connection.say("DEL last-fence");
    fence
}

fn with_file(preamble: &str) -> Options {
    Options::default()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", preamble)
}

fn rewrite_file(connection: &mut Connection) {
    connection.say("BGREWRITEAOF");
    eventually("the append-only file is rewritten", SOON, || {
        connection.info("persistence", "aof_rewrite_in_progress") == "0"
            && connection.info("persistence", "aof_rewrite_scheduled") == "0"
    });
}

#[track_caller]
fn assert_same_after(options: Options, again: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let callers = fill(&server);
    let mut connection = server.connect();
    let fence = last_fence(&mut connection);
    let before = seen(&mut connection);
    again(&mut server);
    let mut connection = server.connect();
    assert_eq!(seen(&mut connection), before);
    says(&mut connection);
    goes_on(&mut connection, fence);
    drop(callers);
}

#[test]
fn a_snapshot_brings_every_shape_back() {
    assert_same_after(Options::default(), Server::restart_after_save);
}

#[test]
fn a_reload_brings_every_shape_back() {
    assert_same_after(Options::default(), |server| drop(server.connect().say("DEBUG RELOAD")));
}

#[test]
fn a_file_of_changes_brings_every_shape_back() {
    assert_same_after(with_file("no"), Server::restart_after_kill);
}

#[test]
fn a_file_loaded_again_at_once_brings_every_shape_back() {
    assert_same_after(with_file("yes"), |server| drop(server.connect().say("DEBUG LOADAOF")));
}

#[test]
fn a_rewritten_file_restores_every_shape() {
    for preamble in ["no", "yes"] {
        assert_same_after(with_file(preamble), |server| {
            rewrite_file(&mut server.connect());
            server.restart_after_kill();
        });
    }
}

#[test]
fn a_replica_is_equal_in_every_shape() {
    let primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let _callers = fill(&primary);
    let before = seen(&mut primary.connect());
    wait_for_sync(&primary, &replica);
    assert_eq!(seen(&mut replica.connect()), before);
    says(&mut replica.connect());
    assert_eq!(replica.connect().info_number("resil", "apply_refused"), 0);
    let late = Server::replica_of(&primary, Options::default());
    assert_eq!(seen(&mut late.connect()), before, "by full synchronisation");
    says(&mut late.connect());
}

#[test]
fn a_dump_is_equal_on_another_server() {
    let (server, other) = (Server::fresh(), Server::fresh());
    let _callers = fill(&server);
    let (mut connection, mut on_other) = (server.connect(), other.connect());
    let before = seen(&mut connection);
    for (key, (_, expiry)) in &before {
        let dump: Vec<u8> = redis::from_redis_value(ok(&mut connection, &[b"DUMP".as_slice(), key])).expect("bytes");
        ok(&mut on_other, &[b"RESTORE".as_slice(), key, expiry.to_string().as_bytes(), &dump, b"ABSTTL"]);
    }
    assert_eq!(seen(&mut on_other), before);
    says(&mut on_other);
}
