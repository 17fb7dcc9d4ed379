//! Why fences exist, in twenty lines of output. `cargo run -p resil-tests --bin fenced_store` (after `make module`).
//!
//! Two clerks put money into one account: read, add, write, each under the lock. One of them falls asleep between
//! reading and writing, longer than its lease lasts. No lock service in the world can wake it. The store can refuse it.

use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Server, ok};

const LEASE_MS: u64 = 200;

/// Something outside of Redis that is written to: a file, a table, a device.
struct Store {
    balance: i64,
    /// The highest fence seen, if the store looks at fences at all.
    highest: Option<u64>,
}

impl Store {
    fn write(&mut self, balance: i64, fence: u64) -> Result<(), String> {
        if let Some(highest) = &mut self.highest {
            if fence < *highest {
                return Err(format!("fence {fence} is below {highest}"));
            }
            *highest = fence;
        }
        self.balance = balance;
        Ok(())
    }
}

struct Clerk {
    name: &'static str,
    connection: Connection,
}

impl Clerk {
    fn says(&self, text: &str) {
        println!("  {:<5} {text}", self.name);
    }

    fn acquire(&mut self) -> u64 {
        let lease = format!("{LEASE_MS}ms");
        let Value::Array(reply) =
            ok(&mut self.connection, &["RES.LOCK", "ACQUIRE", "account", self.name, &lease, "WAIT", "5s"])
        else {
            panic!("a list")
        };
        let [_, Value::Int(fence), _, Value::Int(waited_ms)] = reply[..] else { panic!("not granted: {reply:?}") };
        let waited = if waited_ms > 0 { format!(" after waiting {waited_ms} ms") } else { String::new() };
        self.says(&format!("has the lock{waited}, fence {fence}"));
        fence as u64
    }

    fn release(&mut self, fence: u64) {
        let fence = fence.to_string();
        let reply = ok(&mut self.connection, &["RES.LOCK", "RELEASE", "account", self.name, "FENCE", &fence]);
        let Value::Array(reply) = reply else { panic!("a list") };
        let words: Vec<String> = reply.iter().map(plain).collect();
        self.says(&format!("lets go: {}", words.join(" ")));
    }

    fn write(&self, store: &mut Store, balance: i64, fence: u64) {
        match store.write(balance, fence) {
            Ok(()) => self.says(&format!("writes {balance}")),
            Err(reason) => self.says(&format!("writes {balance}: refused, {reason}")),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Ann deposits 10 and sleeps over her lease; Bob deposits 40. How many deposits does the account have at the end?
fn deposit(server: &Server, mut store: Store) -> i64 {
    let clerk = |name| Clerk { name, connection: server.connect() };
    let (mut ann, mut bob) = (clerk("ann"), clerk("bob"));
    let anns = ann.acquire();
    let seen = store.balance;
    ann.says(&format!("reads {seen}, and is stopped for longer than her lease of {LEASE_MS} ms"));
    sleep(Duration::from_millis(LEASE_MS / 2));
    // The lease ends by the server's clock, and the server hands the lock on.
    let bobs = bob.acquire();
    let read = store.balance;
    bob.says(&format!("reads {read}"));
    bob.write(&mut store, read + 40, bobs);
    bob.release(bobs);
    ann.says("wakes up, and still believes she holds the lock");
    ann.write(&mut store, seen + 10, anns);
    ann.release(anns);
    if store.balance < 140 {
        return store.balance;
    }
    // Refused, so she knows: once more from the start.
    let anns = ann.acquire();
    let seen = store.balance;
    ann.says(&format!("reads {seen}"));
    ann.write(&mut store, seen + 10, anns);
    ann.release(anns);
    store.balance
}

fn main() {
    let server = Server::fresh();
    println!("An account of 100. Ann deposits 10, Bob 40: it should be 150.\n");
    println!("A store that does not look at fences:");
    let balance = deposit(&server, Store { balance: 100, highest: None });
    println!("without fences: 1 of 2 deposits is in the account: {balance} instead of 150. An update was lost.\n");
    assert_eq!(balance, 110);
    println!("A store that refuses fences below the highest it has seen:");
    let balance = deposit(&server, Store { balance: 100, highest: Some(0) });
    println!("with fences: 2 of 2 deposits are in the account: {balance}. The stale write was refused.");
    assert_eq!(balance, 150);
}
