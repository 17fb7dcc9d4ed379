//! On real servers: each way in, each way to be lost, and waits that survive what can be survived.

mod cluster_waits;
mod clusters;
mod connecting;
mod events;
mod losing;
mod waits;

use std::time::{Duration, Instant};

use resil_core::Span;
use resil_core::rate_limit::{Ask, Quota};
use resil_harness::{Server, ok};
use resil_wire::command::{Command, Reply};
use resil_wire::gcra::Gcra;
use resil_wire::holding::{Bind, InfoCall, OwnedCall, Wait};
use resil_wire::lock::{AcquireCall, Acquired};
use resil_wire::reply::Value;
use smallvec::smallvec;

use super::Redis;
use super::speech::field;
use crate::backend::Reach;
use crate::client::ConnectSettings;
use crate::error::Error;

/// Longer than anything here takes, on a machine that has much else to do.
const BOUND: Duration = Duration::from_secs(30);

async fn connect(url: &str) -> Result<Redis, Error> {
    Redis::connect(&ConnectSettings::new(url)).await
}

async fn connected(server: &Server) -> Redis {
    connect(&server.url()).await.expect("a server that is there")
}

fn take(key: &[u8]) -> Command<'_> {
    let quota = Quota::new(1_000_000, Span::from_secs(1), 1_000_000).expect("a valid quota");
    Command::Gcra(Gcra { key, quotas: smallvec![quota], ask: Ask::Take(1) })
}

async fn works(redis: &Redis, key: &str) {
    let reply = redis.call(&take(key.as_bytes())).await;
    assert!(matches!(&reply, Ok(Reply::Limit(reply)) if reply.granted == 1), "{reply:?}");
}

fn acquire<'a>(key: &'a str, owner: &'a str, wait: Duration) -> AcquireCall<'a> {
    AcquireCall {
        key: key.as_bytes(),
        owner: owner.as_bytes(),
        lease: Span::from_secs(60),
        wait: Wait::blocked(Span::from_ms(wait.as_millis() as i64)),
        shared: false,
        bind: Bind::None,
        meta: b"",
    }
}

fn lock<'a>(key: &'a str, owner: &'a str, wait: Duration) -> Command<'a> {
    Command::LockAcquire(acquire(key, owner, wait))
}

fn is_granted(reply: &Result<Reply, Error>) -> bool {
    matches!(reply, Ok(Reply::Acquired(Acquired::Granted { .. })))
}

async fn release(redis: &Redis, key: &str, owner: &str) {
    let call = OwnedCall { key: key.as_bytes(), owner: owner.as_bytes(), fence: None };
    let reply = redis.call(&Command::LockRelease(call)).await;
    assert!(matches!(reply, Ok(Reply::Released(_))), "{reply:?}");
}

/// How many hold the lock, and how many wait for it.
async fn holders_and_waiters(redis: &Redis, key: &str) -> (i64, i64) {
    let reply = redis.call(&Command::LockInfo(InfoCall { key: key.as_bytes(), limit: 100 })).await;
    let Ok(Reply::Map(map)) = reply else { panic!("{reply:?}") };
    let number = |name| field(&map, name).and_then(|value: Value| value.integer().ok()).expect("INFO has it");
    (number("holders_total"), number("waiters_total"))
}

/// Asks until it is so; panics with `what` when it is not within [`BOUND`].
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + BOUND;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn becomes(redis: &Redis, wanted: Reach) {
    let mut reach = redis.reach();
    let waited = tokio::time::timeout(BOUND, reach.wait_for(|reach| *reach == wanted)).await;
    assert!(matches!(waited, Ok(Ok(_))), "it did not become {wanted:?}");
}

/// Numbers of the connections that are blocked, or not, the asking one left out.
fn clients(server: &Server, flags: char) -> Vec<String> {
    let list: String = redis::from_redis_value(ok(&mut server.connect(), &["CLIENT", "LIST"])).expect("a text");
    let is_wanted = |line: &&str| !line.contains(" cmd=client|list") && word(line, "flags=").contains(flags);
    list.lines().filter(is_wanted).map(|line| word(line, "id=").to_owned()).collect()
}

fn word<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or_default()
}

fn kill_clients(server: &Server, ids: &[String]) {
    for id in ids {
        let _ = resil_harness::reply(&mut server.connect(), &["CLIENT", "KILL", "ID", id]);
    }
}

/// The number of the shared connection.
fn shared_id(redis: &Redis) -> String {
    match redis.bind() {
        Bind::To { client: id, .. } => id.to_string(),
        other => panic!("{other:?}"),
    }
}
