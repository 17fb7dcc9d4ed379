//! Many callers hold one key, or wait for it.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use redis::Connection;
use resil_harness::{Server, eventually};

use crate::driven::{SOON, Say};
use crate::pinger::{all_lost, during, each, on_cpu, our_server, plain_keys, plain_server};
use crate::{compare, size};

/// Each waiter is a connection: a file of ours, and a file of the server's.
pub fn allow_many_files() {
    // SAFETY: both calls only read or write the structure they are given.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

pub fn waiters(server: &Server, count: usize, line: impl Fn(usize) -> String) -> Vec<TcpStream> {
    let waiting = (0..count).map(|number| {
        let mut stream = server.raw();
        stream.write_all(format!("{}\r\n", line(number)).as_bytes()).expect("an open connection");
        stream
    });
    let waiting = waiting.collect();
    let mut main = server.connect();
    eventually("all of them wait", SOON * 3, || main.info_number("resil", "blocked_waiters") == count as i64);
    waiting
}

pub fn nobody_waits(connection: &mut Connection) {
    eventually("nobody waits", SOON, || connection.info_number("resil", "blocked_waiters") == 0);
}

/// What as many plain keys take to be deleted one by one in a single command.
fn plain_deletion(count: usize) -> Duration {
    let server = plain_server();
    plain_keys(&server, count);
    let names: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
    during(&server, |connection| drop(connection.say(&format!("DEL {}", names.join(" ")))))
}

#[test]
fn breaking_a_lock_of_many_readers_is_no_stall() {
    with_readers("BREAK", |connection, count| {
        assert_eq!(connection.integer("RES.LOCK BREAK k"), count as i64);
        assert_eq!(connection.integer("RES.LOCK CHECK k reader7"), 0, "nobody holds it from then on");
        connection.say("RES.LOCK ACQUIRE k writer 10000s");
        all_lost(connection, count);
        assert_eq!(connection.integer("RES.LOCK CHECK k writer"), 1, "nobody else was ended");
    });
}

/// Does something with a lock of very many readers, which is to hold the server no longer than with one.
fn with_readers(what: &str, act: impl Fn(&mut Connection, usize)) {
    let count = 100_000;
    let ours = || {
        let server = our_server();
        each(&mut server.connect(), count, |number| format!("RES.LOCK ACQUIRE k reader{number} 10000s SHARED"));
        during(&server, |connection| act(connection, count))
    };
    compare(what, || Duration::ZERO, ours);
}

#[test]
fn deleting_a_lock_of_many_readers_is_no_stall() {
    with_readers("DEL of one key", |connection, count| {
        connection.say("DEL k");
        all_lost(connection, count);
    });
}

#[test]
fn renaming_a_lock_of_many_readers_is_no_stall() {
    with_readers("RENAME", |connection, count| {
        connection.say("RENAME k other");
        assert_eq!(connection.integer("RES.LOCK CHECK other reader7"), 1, "they have it under its new name");
        all_lost(connection, count);
    });
    with_readers("MOVE", |connection, count| {
        connection.say("MOVE k 1");
        all_lost(connection, count);
    });
}

#[test]
fn showing_a_part_of_many_readers_is_no_stall() {
    with_readers("INFO", |connection, count| {
        for _ in 0..20 {
            let shown = crate::scene::shown(&connection.say("RES.LOCK INFO k LIMIT 10"));
            assert!(shown.contains(&format!("holders_total {count}")), "{shown}");
        }
    });
}

#[test]
fn a_release_that_wakes_many_is_no_stall() {
    allow_many_files();
    let count = size(2_000, 18_000);
    let ours = || {
        let server = our_server();
        server.connect().say("RES.LOCK ACQUIRE k writer 10000s");
        let waiting =
            waiters(&server, count, |number| format!("RES.LOCK ACQUIRE k reader{number} 10000s WAIT 500s SHARED"));
        let longest = during(&server, |connection| {
            connection.say("RES.LOCK RELEASE k writer");
            nobody_waits(connection);
        });
        drop(waiting);
        longest
    };
    compare("RELEASE", || plain_deletion(count), ours);
}

#[test]
fn a_text_over_many_waiters_is_no_stall() {
    allow_many_files();
    let count = size(2_000, 18_000);
    let ours = || {
        let server = our_server();
        server.connect().say("RES.LOCK ACQUIRE k writer 10000s");
        let waiting = waiters(&server, count, |number| format!("RES.LOCK ACQUIRE k w{number} 10000s WAIT 500s"));
        let longest = during(&server, |connection| {
            connection.say("SET k text");
            nobody_waits(connection);
        });
        drop(waiting);
        longest
    };
    compare("SET", || plain_deletion(count), ours);
}

#[test]
fn ids_made_to_share_a_hash_cost_no_more() {
    let count = size(8_000, 50_000) as u64;
    // With these first bytes and the public constants of XXH3 the next eight bytes do not count.
    let crafted =
        |number: u64| [&0xbe4b_a423_396c_feb8_u64.to_le_bytes()[..], &number.to_le_bytes(), &[b'x'; 16]].concat();
    let usual = |number: u64| format!("message {number:024}").into_bytes();
    let cost = |id: &dyn Fn(u64) -> Vec<u8>| {
        let server = our_server();
        let (mut connection, before) = (server.connect(), on_cpu(server.pid()));
        for from in (0..count).step_by(1_000) {
            let mut pipe = redis::pipe();
            for number in from..count.min(from + 1_000) {
                pipe.cmd("RES.DLQ").arg("FAIL").arg("d").arg(id(number)).arg("ERROR").arg("e").ignore();
            }
            pipe.query::<()>(&mut connection).expect("every failure is taken in");
        }
        on_cpu(server.pid()) - before
    };
    let (usual, crafted) = (cost(&usual), cost(&crafted));
    println!("{count} failures: {usual:?}, and {crafted:?} with ids that were made to share a hash");
    assert!(crafted < 3 * usual, "{crafted:?} for ids made to share a hash, {usual:?} for others");
}
