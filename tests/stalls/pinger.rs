//! Asks a server again and again, and notes the longest stretch of its main thread between two replies.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use redis::Connection;
use resil_harness::{Options, Server, becomes_true, eventually, ok};

use crate::driven::{SOON, Say};

pub struct Pinger {
    stop: Arc<AtomicBool>,
    pings: Arc<AtomicU64>,
    thread: JoinHandle<Duration>,
}

impl Pinger {
    pub fn start(server: &Server) -> Self {
        let (stop, pings) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (mut connection, pid) = (server.connect(), server.pid());
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&pings));
        let thread = spawn(move || {
            let (mut longest, mut before) = (Duration::ZERO, on_cpu(pid));
            while !stopped.load(SeqCst) {
                ok(&mut connection, &["PING"]);
                let now = on_cpu(pid);
                longest = longest.max(now - before);
                before = now;
                counted.fetch_add(1, SeqCst);
            }
            longest
        });
        let pinger = Self { stop, pings, thread };
        pinger.a_few_more();
        pinger
    }

    /// Waits until some more pings were answered.
    pub fn a_few_more(&self) {
        let before = self.pings.load(SeqCst);
        eventually("pings are answered", SOON * 3, || self.pings.load(SeqCst) > before + 5);
    }

    /// The longest stretch between two replies.
    pub fn longest(self) -> Duration {
        self.a_few_more();
        self.stop.store(true, SeqCst);
        self.thread.join().expect("the server replies all the while")
    }
}

/// How long the main thread was on a processor so far.
pub fn on_cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).expect("a process of ours");
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("schedstat begins with a number");
    Duration::from_nanos(ns)
}

/// The longest hold while `act` is done.
pub fn during(server: &Server, act: impl FnOnce(&mut Connection)) -> Duration {
    let mut connection = server.connect();
    let pinger = Pinger::start(server);
    act(&mut connection);
    pinger.longest()
}

pub fn plain_server() -> Server {
    Server::start(Options::default().measured().without_module().config("maxclients", "30000"))
}

pub fn our_server() -> Server {
    Server::start(Options::default().measured().config("maxclients", "30000"))
}

/// Sends a line for each number, in pipelines.
pub fn each(connection: &mut Connection, count: usize, line: impl Fn(usize) -> String) {
    for from in (0..count).step_by(1_000) {
        let mut pipe = redis::pipe();
        for number in from..count.min(from + 1_000) {
            let line = line(number);
            let mut words = line.split(' ');
            let command = pipe.cmd(words.next().unwrap_or_default());
            words.for_each(|word| {
                command.arg(word);
            });
            command.ignore();
        }
        pipe.query::<()>(connection).expect("every line succeeds");
    }
}

/// As many plain keys, with an expiry, as ours have one, and about as large as a lock.
pub fn plain_keys(server: &Server, count: usize) {
    let value = "x".repeat(150);
    each(&mut server.connect(), count, |number| format!("SET k{number} {value} PX 10000000"));
}

/// So many locks are held.
pub fn leases(server: &Server, count: usize) {
    each(&mut server.connect(), count, |number| format!("RES.LOCK ACQUIRE k{number} owner 10000s"));
}

/// Waits until so many were announced as lost.
pub fn all_lost(connection: &mut Connection, count: usize) {
    let mut lost = 0;
    let all = becomes_true(SOON * 10, || {
        lost = connection.info_number("resil", "lock_lost");
        lost >= i64::try_from(count).unwrap_or(i64::MAX)
    });
    assert!(all, "{lost} of {count} losses were announced");
}
