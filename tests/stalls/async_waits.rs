//! A hundred thousand asynchronous waiters on ten connections: what they cost, and what happens to all of them at once.

use std::time::Duration;

use redis::Connection;
use resil_harness::{Server, eventually};

use crate::async_client::AsyncClient;
use crate::driven::{SOON, Say, driven};
use crate::pinger::{during, leases, our_server};
use crate::{compare, size};

pub const CONNECTIONS: usize = 10;
/// What a waiter may cost in the server beyond its owner and its key.
const BYTES_MAX: i64 = 400;

pub fn connections(server: &Server) -> Vec<AsyncClient> {
    (0..CONNECTIONS).map(|_| AsyncClient::new(server)).collect()
}

/// Sends so many lines with ASYNC, in pipelines; each is answered with `verdict`.
fn ask_all(clients: &mut [AsyncClient], count: usize, line: impl Fn(usize) -> String, verdict: &str) {
    for (index, client) in clients.iter_mut().enumerate() {
        let numbers: Vec<usize> = (index..count).step_by(CONNECTIONS).collect();
        for some in numbers.chunks(1_000) {
            let lines: Vec<String> = some.iter().map(|number| format!("{} ASYNC", line(*number))).collect();
            client.send(&lines.join("\r\n"));
            for _ in some {
                let reply = client.reply();
                assert!(reply.starts_with(&format!("[{verdict} ")), "{reply}");
            }
        }
    }
}

/// So many asynchronous waiters, on ten connections; `line` is without ASYNC.
pub fn async_waiters(server: &Server, count: usize, line: impl Fn(usize) -> String) -> Vec<AsyncClient> {
    let mut clients = connections(server);
    ask_all(&mut clients, count, line, "QUEUED");
    clients
}

fn waiters(connection: &mut Connection) -> i64 {
    connection.info_number("resil", "async_waiters")
}

#[track_caller]
fn all_ended(connection: &mut Connection) {
    eventually("nobody waits", SOON * 3, || waiters(connection) == 0);
}

/// All of them have been notified, each once.
fn all_notified(clients: &mut [AsyncClient], count: usize) {
    let mut reported = 0;
    eventually("all were reported", SOON * 3, || {
        for client in clients.iter_mut() {
            client.poll();
            reported += client.take_late().len();
        }
        reported >= count
    });
    clients.iter_mut().for_each(AsyncClient::is_silent);
    assert_eq!(reported, count);
}

#[test]
fn a_hundred_thousand_waiters_cost_at_most_400_bytes_each() {
    const COUNT: usize = 100_000;
    for keys in [1, 1_000] {
        let server = our_server();
        let mut main = server.connect();
        for number in 0..keys {
            main.say(&format!("RES.LOCK ACQUIRE k{number} holder 10000s"));
        }
        let line = |number: usize, wait: &str| format!("RES.LOCK ACQUIRE k{} w{number} 10s WAIT {wait}", number % keys);
        let mut clients = connections(&server);
        // The buffers of the connections have their size already.
        ask_all(&mut clients, 10_000, |number| line(number, "0"), "TAKEN");
        let before = main.info_number("memory", "used_memory");
        ask_all(&mut clients, COUNT, |number| line(number, "500s"), "QUEUED");
        assert_eq!(waiters(&mut main), COUNT as i64);
        let texts = (0..COUNT).map(|number| format!("k{}w{number}", number % keys).len()).sum::<usize>() as i64;
        // A queue as such belongs to its key.
        let queues = 2_048 * keys as i64;
        let each = (main.info_number("memory", "used_memory") - before - texts - queues) / COUNT as i64;
        println!("a waiter of {COUNT} for {keys} keys costs {each} bytes");
        assert!(each <= BYTES_MAX, "a waiter of {COUNT} for {keys} keys costs {each} bytes");
        drop(clients);
        all_ended(&mut main);
    }
}

#[test]
fn closing_ten_thousand_waiters_is_no_stall() {
    let count = size(40_000, 100_000);
    for keys in [1, count] {
        let ours = || {
            let server = our_server();
            leases(&server, keys);
            let mut clients = async_waiters(&server, count, |number| {
                format!("RES.LOCK ACQUIRE k{} w{number} 10s WAIT 500s", number % keys)
            });
            during(&server, |connection| {
                // The first has the head of the queue.
                drop(clients.remove(0));
                let left = (count - count / CONNECTIONS) as i64;
                eventually("its waits have left", SOON, || waiters(connection) == left);
                drop(std::mem::take(&mut clients));
                all_ended(connection);
            })
        };
        compare(&format!("the close of connections that wait for {keys} keys"), || Duration::ZERO, ours);
    }
}

#[test]
fn a_release_beside_many_closing_waiters_is_no_stall() {
    let count = size(20_000, 90_000);
    let ours = || {
        let server = our_server();
        server.connect().say("RES.LOCK ACQUIRE k holder 10000s");
        let clients = async_waiters(&server, count, |number| format!("RES.LOCK ACQUIRE k w{number} 10s WAIT 500s"));
        let mut last = AsyncClient::new(&server);
        last.waits("RES.LOCK ACQUIRE k last 10s WAIT 500s");
        during(&server, |connection| {
            drop(clients);
            connection.say("RES.LOCK RELEASE k holder");
            assert_eq!(last.notified(), "last GRANTED");
            all_ended(connection);
        })
    };
    compare("a release beside the close of many", || Duration::ZERO, ours);
}

/// `end` ends the waits of all, which are for one key.
fn ends(hold: &str, wait: &str, end: &str) {
    let count = size(20_000, 100_000);
    let ours = || {
        let server = our_server();
        server.connect().say(hold);
        let mut clients = async_waiters(&server, count, |number| wait.replace("OWNER", &format!("w{number}")));
        let longest = during(&server, |connection| {
            connection.say(end);
            all_ended(connection);
        });
        all_notified(&mut clients, count);
        longest
    };
    compare(&format!("{end} with {count} asynchronous waiters"), || Duration::ZERO, ours);
}

const LOCK: &str = "RES.LOCK ACQUIRE k holder 10000s";

#[test]
fn a_release_for_many_asynchronous_readers_is_no_stall() {
    ends(LOCK, "RES.LOCK ACQUIRE k OWNER 10000s SHARED WAIT 500s", "RES.LOCK RELEASE k holder");
}

#[test]
fn deleting_a_lock_with_many_asynchronous_readers_is_no_stall() {
    ends(LOCK, "RES.LOCK ACQUIRE k OWNER 10000s SHARED WAIT 500s", "DEL k");
}

#[test]
fn a_text_over_many_asynchronous_waiters_is_no_stall() {
    ends(LOCK, "RES.LOCK ACQUIRE k OWNER 10000s WAIT 500s", "SET k text");
}

#[test]
fn a_demotion_with_many_asynchronous_waiters_is_no_stall() {
    ends(LOCK, "RES.LOCK ACQUIRE k OWNER 10000s WAIT 500s", "REPLICAOF 127.0.0.1 1");
}

#[test]
fn a_value_for_many_asynchronous_followers_is_no_stall() {
    let publish = "RES.SFLIGHT PUBLISH k holder 1h VALUE bytes";
    ends("RES.SFLIGHT JOIN k holder 10000s", "RES.SFLIGHT JOIN k OWNER 10s WAIT 500s", publish);
}

#[test]
fn a_result_for_many_asynchronous_duplicates_is_no_stall() {
    let commit = "RES.IDEMP COMMIT k holder 1h receipt";
    ends("RES.IDEMP BEGIN k holder 10000s", "RES.IDEMP BEGIN k OWNER 10s WAIT 500s", commit);
}

#[test]
fn many_asynchronous_waits_ending_together_are_no_stall() {
    let count = size(20_000, 100_000);
    let ours = || {
        let server = Server::start(driven().measured());
        let mut main = server.connect();
        main.clock_at_ms(0);
        main.say(LOCK);
        let mut clients = async_waiters(&server, count, |number| format!("RES.LOCK ACQUIRE k w{number} 10s WAIT 500s"));
        let longest = during(&server, |connection| {
            connection.clock_at_ms(500_000);
            all_ended(connection);
        });
        all_notified(&mut clients, count);
        longest
    };
    compare("the end of many waits", || Duration::ZERO, ours);
}

/// Each is counted behind those of its own priority, and behind those that have gained it.
#[test]
fn a_newcomer_among_many_that_have_aged_is_no_stall() {
    let count = size(20_000, 90_000);
    let ours = || {
        let server = Server::start(driven().measured());
        let mut main = server.connect();
        main.clock_at_ms(0);
        main.say("RES.BULKHEAD ENTER k holder 1 10000s");
        let enter = |owner: String, priority: u8| {
            format!("RES.BULKHEAD ENTER k {owner} 1 10s QUEUE 100000 PRIORITY {priority} WAIT 500s")
        };
        let clients = async_waiters(&server, count, |number| enter(format!("w{number}"), 9));
        main.clock_at_ms(400_000);
        let mut newcomer = AsyncClient::new(&server);
        let longest = during(&server, |_| {
            for number in 0..10 {
                assert_eq!(newcomer.waits(&enter(format!("new{number}"), 0)), (count + number + 1) as u64);
            }
        });
        drop(clients);
        longest
    };
    compare("a newcomer among many that have aged", || Duration::ZERO, ours);
}
