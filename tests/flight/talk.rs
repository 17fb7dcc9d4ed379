//! Crowds of callers, each a connection and a thread of its own.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use redis::Connection;
use resil_harness::{Server, eventually};

use crate::driven::{SOON, Say};
use crate::scene::{receive, send};

/// The reply to a line, as one reads it.
pub fn ask(connection: &mut Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}

/// The words of `[RUN 17 1 0]`.
pub fn words(reply: &str) -> Vec<&str> {
    reply.trim_start_matches('[').trim_end_matches(']').split(' ').collect()
}

/// The number at this place of `[RUN 17 1 0]`.
#[track_caller]
pub fn number(reply: &str, at: usize) -> i64 {
    words(reply).get(at).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number at {at} in {reply}"))
}

/// Waits until exactly so many wait.
#[track_caller]
pub fn all_wait(connection: &mut Connection, wanted: usize) {
    eventually(&format!("{wanted} wait"), SOON, || connection.info_number("resil", "blocked_waiters") == wanted as i64);
}

/// So many callers `c0, c1, ...`, a connection each, say `line` with their name in place of TOKEN. A caller that gets `lead`
/// (`LEAD`, `RUN`) does `act` with its connection, its name, and how many led before it; the others are done. Gives
/// what each heard in the end, and how many led.
pub fn crowd(
    server: &Server,
    size: usize,
    line: &str,
    lead: &str,
    act: impl Fn(&mut Connection, &str, usize) -> String + Sync,
) -> (Vec<String>, usize) {
    let connections: Vec<Connection> = (0..size).map(|_| server.connect()).collect();
    let leads = AtomicUsize::new(0);
    let one = |index: usize, mut connection: Connection| {
        let name = format!("c{index}");
        let reply = ask(&mut connection, &line.replace("TOKEN", &name));
        if !reply.starts_with(&format!("[{lead} ")) {
            assert_eq!(ask(&mut connection, "ECHO in-step"), "in-step", "one reply, not two");
            return reply;
        }
        act(&mut connection, &name, leads.fetch_add(1, SeqCst))
    };
    let replies = thread::scope(|scope| {
        let started = connections.into_iter().enumerate().map(|(index, connection)| {
            let builder = thread::Builder::new().stack_size(256 << 10);
            builder.spawn_scoped(scope, move || one(index, connection)).expect("a thread")
        });
        let started: Vec<_> = started.collect();
        started.into_iter().map(|caller| caller.join().expect("a caller that did not panic")).collect()
    });
    (replies, leads.into_inner())
}
