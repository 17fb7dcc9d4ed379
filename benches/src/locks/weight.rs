//! What a held lock takes in memory, beside a string with an expiry.

use resil_harness::{Server, ok};

use super::line::command;
use super::pairs::GRANTED;
use crate::load::Reply;
use crate::locks::line::Line;
use crate::stage::used_memory;

pub const LOCKS: usize = 100_000;
const KEY_BYTES: usize = 16;
const OWNER_BYTES: usize = 16;
const AT_ONCE: usize = 50;

/// Bytes of one held lock.
pub struct Weight {
    /// Of the server's whole memory, less the bytes of the key and of the owner.
    pub beyond_names: f64,
    /// What MEMORY USAGE says, names and all.
    pub memory_usage: f64,
}

pub fn ours(server: &Server) -> Weight {
    weigh(server, GRANTED, |number| format!("RES.LOCK ACQUIRE lock:{number:011} owner:{number:010} 1h"))
}

pub fn set_nx(server: &Server) -> Weight {
    let reply = Reply::line("+OK");
    weigh(server, reply, |number| format!("SET lock:{number:011} owner:{number:010} NX PX 3600000"))
}

fn weigh(server: &Server, reply: Reply, acquire: impl Fn(usize) -> String) -> Weight {
    let mut control = server.connect();
    ok(&mut control, &["FLUSHALL", "SYNC"]);
    let mut line = Line::to(server);
    line.ask(&command("PING"), Reply::line("+PONG"));
    let before = used_memory(&mut control);
    for first in (0..LOCKS).step_by(AT_ONCE) {
        let numbers = first..first + AT_ONCE;
        line.say(&numbers.clone().flat_map(|number| command(&acquire(number))).collect::<Vec<u8>>());
        for _ in numbers {
            assert!(line.hear(reply), "nobody else holds it");
        }
    }
    let used = used_memory(&mut control) - before;
    let key = format!("lock:{:011}", LOCKS / 2);
    let usage = ok(&mut control, &["MEMORY", "USAGE", &key]);
    ok(&mut control, &["FLUSHALL", "SYNC"]);
    Weight {
        beyond_names: used / LOCKS as f64 - (KEY_BYTES + OWNER_BYTES) as f64,
        memory_usage: redis::from_redis_value(usage).expect("the key is there"),
    }
}
