//! What a key takes in memory, of the server's whole.

use resil_harness::{Server, ok};

use crate::line::{Line, command};
use crate::load::Reply;
use crate::stage::used_memory;

/// How many are made.
pub const KEYS: usize = 100_000;
/// Bytes of each key's name.
pub const KEY_BYTES: usize = 16;
const AT_ONCE: usize = 50;

/// Bytes of one key.
pub struct Weight {
    /// Of the server's whole memory, the name included.
    pub whole: f64,
    /// What MEMORY USAGE says.
    pub memory_usage: f64,
}

/// Makes every key by `commands`, in which `{k}` is its name and `{n}` ten digits of its number.
pub fn weigh(server: &Server, commands: &[(&str, Reply)]) -> Weight {
    let mut control = server.connect();
    ok(&mut control, &["FLUSHALL", "SYNC"]);
    let mut line = Line::to(server);
    line.ask(&command("PING"), Reply::line("+PONG"));
    let before = used_memory(&mut control);
    for first in (0..KEYS).step_by(AT_ONCE) {
        let numbers = first..first + AT_ONCE;
        let of = |number: usize| {
            let fill = move |text: &str| text.replace("{k}", &name(number)).replace("{n}", &format!("{number:010}"));
            commands.iter().flat_map(move |(text, _)| command(&fill(text)))
        };
        line.say(&numbers.clone().flat_map(of).collect::<Vec<u8>>());
        for (_, reply) in numbers.flat_map(|_| commands) {
            assert!(line.hear(*reply), "the key is new");
        }
    }
    let used = used_memory(&mut control) - before;
    let usage = ok(&mut control, &["MEMORY", "USAGE", &name(KEYS / 2)]);
    ok(&mut control, &["FLUSHALL", "SYNC"]);
    Weight { whole: used / KEYS as f64, memory_usage: redis::from_redis_value(usage).expect("the key is there") }
}

fn name(number: usize) -> String {
    format!("name:{number:011}")
}
