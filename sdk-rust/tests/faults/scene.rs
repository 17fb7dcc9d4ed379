//! A server, clients of it, and waiting with a bound.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use resil::{Client, ConnectSettings, Status};
use resil_harness::{Options, Server, ok};

/// Longer than anything here takes, on a machine that has much else to do.
pub const BOUND: Duration = Duration::from_secs(30);

/// What a loaded machine may add to a time that was promised.
pub const SLACK: Duration = Duration::from_millis(400);

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One that forgets nothing it has reported.
pub fn careful() -> Server {
    Server::start(Options::default().config("appendonly", "yes").config("appendfsync", "always"))
}

pub fn options(url: &str) -> ConnectSettings {
    seeded(ConnectSettings::new(url)).command_timeout(ms(500))
}

/// Its pauses are drawn from `RESIL_SEED`, or from a new seed. Printed, so that a test that fails shows it.
pub fn seeded(options: ConnectSettings) -> ConnectSettings {
    let seed = match std::env::var("RESIL_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("RESIL_SEED must be a number, got {text:?}")),
        Err(_) => RandomState::new().hash_one(()),
    };
    println!("RESIL_SEED={seed}");
    options.seed(seed)
}

pub async fn client(server: &Server) -> Client {
    options(&server.url()).connect().await.expect("a server that is there")
}

/// Asks until it is so; how long that took.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < BOUND, "waited in vain until {what}");
        tokio::time::sleep(ms(5)).await;
    }
    begun.elapsed()
}

/// What came of it, which must not take for ever, and how long it took.
pub async fn timed<F: Future>(what: &str, future: F) -> (F::Output, Duration) {
    let begun = Instant::now();
    let Ok(output) = tokio::time::timeout(BOUND, future).await else { panic!("{what} is stuck") };
    (output, begun.elapsed())
}

pub async fn becomes(client: &Client, status: Status) -> Duration {
    eventually(&format!("it is {status:?}"), async || client.health().overall == status).await
}

/// Every connection of a client to the server, as CLIENT LIST shows it; not the one that asks.
pub fn connections(server: &Server) -> Vec<String> {
    let list = ok(&mut server.connect(), &["CLIENT", "LIST"]);
    let list: String = redis::from_redis_value(list).expect("text");
    list.lines().filter(|line| !line.contains("cmd=client")).map(str::to_owned).collect()
}

/// How many wait in the server's queues, with a connection or without.
pub fn waiters(server: &Server) -> u64 {
    let info: String = redis::from_redis_value(ok(&mut server.connect(), &["INFO", "resil"])).expect("text");
    let count = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    ["resil_blocked_waiters:", "resil_async_waiters:"].into_iter().filter_map(count).sum()
}

/// Whether anybody listens for the verdicts of waits.
pub fn is_listened(server: &Server) -> bool {
    matches!(ok(&mut server.connect(), &["PUBSUB", "CHANNELS", "resil:wait:*"]), redis::Value::Array(all) if !all.is_empty())
}

/// Ends every connection that listens.
pub fn kill_listeners(server: &Server) {
    ok(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "pubsub"]);
}

/// All tasks end, and none with a panic.
pub async fn all_end<T: 'static>(mut tasks: tokio::task::JoinSet<T>) -> Vec<T> {
    let mut ended = Vec::new();
    let all = async {
        while let Some(task) = tasks.join_next().await {
            ended.push(task.expect("no panic"));
        }
    };
    assert!(tokio::time::timeout(2 * BOUND, all).await.is_ok(), "somebody is stuck");
    ended
}
