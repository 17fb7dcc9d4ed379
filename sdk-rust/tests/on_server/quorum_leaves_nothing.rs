//! What locks over several servers leave behind, however they end: nothing.

use std::time::{Duration, Instant};

use resil::Client;
use resil::lock::LockSettings;
use resil_harness::Server;

use super::quorum::{Five, eventually};

const NAMES: usize = 50;
const LEASE: Duration = Duration::from_secs(2);
/// What the allocator may keep once it has seen everything.
const GROWTH_KIB_MAX: u64 = 8 << 10;
/// An end is remembered for a minute, and forgotten within another one.
const FORGOTTEN_MS_MAX: i64 = 130_000;

/// In random places: when a call is given up, and what follows.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// How many of the names somebody holds there.
fn held(server: &Server) -> usize {
    let mut connection = server.connect();
    let is_held = |name: &usize| {
        let key = format!("resil:lock:{{row-{name}}}");
        let info: redis::Value = redis::cmd("RES.LOCK").arg(&["INFO", &key]).query(&mut connection).expect("a map");
        format!("{info:?}").contains("exclusive")
    };
    (0..NAMES).filter(is_held).count()
}

fn info_number(server: &Server, field: &str) -> i64 {
    let info: String = redis::cmd("INFO").arg("resil").query(&mut server.connect()).expect("a text");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("resil_{field}:")));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("no {field} in {info}"))
}

/// Connections that are subscribed to something.
fn subscribed(server: &Server) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).expect("a text");
    let is_subscribed = |word: &str| word.contains("sub=") && !word.ends_with("=0");
    list.lines().filter(|line| line.split(' ').any(is_subscribed)).count()
}

/// For how long the key stays that lives longest; -1 if one stays for ever.
fn longest_ms(server: &Server) -> i64 {
    let mut connection = server.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*row-*").query(&mut connection).expect("names");
    let left = |key: &String| redis::cmd("PTTL").arg(key).query::<i64>(&mut connection).expect("a number");
    let lefts: Vec<i64> = keys.iter().map(left).collect();
    if lefts.contains(&-1) { -1 } else { lefts.into_iter().max().unwrap_or(0) }
}

/// One acquisition, which ends in one of five ways.
async fn acquire(dice: &mut Dice, one: &Client, other: &Client) -> &'static str {
    let settings = || LockSettings::new().lease(LEASE).wait(Duration::from_secs(5));
    let name = format!("row-{}", dice.below(NAMES as u64));
    let (lock, same) = (one.lock(&name, settings()).unwrap(), other.lock(&name, settings()).unwrap());
    match dice.below(5) {
        0 => {
            let _ = lock.acquire().await.expect("in time").release().await;
            "released"
        }
        1 => {
            drop(lock.acquire().await.expect("in time"));
            "dropped"
        }
        2 => {
            let guard = lock.acquire().await.expect("in time");
            assert!(same.try_acquire().await.is_err(), "it is held");
            let waits = same.acquire();
            let (released, waited) = tokio::join!(guard.release(), waits);
            let _ = released;
            let _ = waited.expect("in time").release().await;
            "contended"
        }
        3 => {
            let given_up = tokio::time::timeout(Duration::from_micros(dice.below(1_500)), lock.acquire()).await;
            drop(given_up);
            "given up"
        }
        _ => {
            let guard = lock.acquire().await.expect("in time");
            let extended = guard.extend(LEASE);
            let _ = tokio::time::timeout(Duration::from_micros(dice.below(1_500)), extended).await;
            let released = guard.release();
            let _ = tokio::time::timeout(Duration::from_micros(dice.below(1_500)), released).await;
            "given up while it was renewed or released"
        }
    }
}

async fn acquisitions(count: usize) {
    let seed = std::env::var("RESIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(7, |now| now.subsec_nanos().into())
    });
    println!("seed: RESIL_SEED={seed}");
    let (mut five, mut dice) = (Five::start(), Dice(seed));
    let (one, other) = (five.client().await, five.client().await);
    let begun = Instant::now();
    let mut settled_kib = 0;
    let mut ways = std::collections::BTreeMap::<_, usize>::new();
    for at in 0..count {
        if at == count / 4 {
            settled_kib = resident_kib();
        }
        if at == count / 2 {
            five.freeze_one_and_close_another();
        }
        if at == count * 3 / 4 {
            five.bring_back();
        }
        *ways.entry(acquire(&mut dice, &one, &other).await).or_default() += 1;
    }
    let took = begun.elapsed();
    for (at, server) in five.servers.iter().enumerate() {
        // What was given up is released in the background; a server that was away has what is left until its lease ends.
        eventually(&format!("nobody holds anything at server {at}"), || held(server) == 0).await;
        for field in ["blocked_waiters", "async_waiters", "bound", "sessions"] {
            assert_eq!(info_number(server, field), 0, "{field} at server {at}");
        }
        assert_eq!(subscribed(server), 0, "subscriptions at server {at}");
        let longest = longest_ms(server);
        assert!((0..=FORGOTTEN_MS_MAX).contains(&longest), "a key stays for {longest} ms at server {at}");
    }
    let grown = resident_kib().saturating_sub(settled_kib);
    println!("{count} acquisitions in {took:?}, {ways:?}: the client grew by {grown} KiB from {settled_kib} KiB");
    assert!(grown <= GROWTH_KIB_MAX, "the client grew by {grown} KiB");
    let clients = |server: &Server| -> usize {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).expect("a text");
        list.lines().count()
    };
    one.shutdown(Duration::from_secs(1)).await;
    other.shutdown(Duration::from_secs(1)).await;
    for server in &five.servers {
        // The one that asks.
        eventually("no connection is left", || clients(server) == 1).await;
    }
    if count >= MANY {
        let is_empty = |server: &Server| redis::cmd("DBSIZE").query::<i64>(&mut server.connect()) == Ok(0);
        let until = Instant::now() + Duration::from_millis(FORGOTTEN_MS_MAX as u64);
        while !five.servers.iter().all(is_empty) {
            assert!(Instant::now() < until, "keys are left");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("no key is left");
    }
}

const MANY: usize = 10_000;

/// In a process of its own: its memory is measured, and other tests run beside this one.
async fn alone(test: &str, count: usize) {
    const ALONE: &str = "RESIL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return acquisitions(count).await;
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("this binary"));
    child.args(["--exact", &format!("quorum_leaves_nothing::{test}"), "--nocapture"]).env(ALONE, "1");
    let output = tokio::task::spawn_blocking(move || child.output()).await.expect("no panic").expect("it runs");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    println!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "it failed in a process of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_over_five_servers_leave_nothing_behind() {
    alone("locks_over_five_servers_leave_nothing_behind", 400).await;
}

/// `RESIL_SOAK=1` for the long version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_over_five_servers_leave_nothing_behind() {
    if std::env::var_os("RESIL_SOAK").is_none() {
        return println!("soak: not asked for; set RESIL_SOAK=1 to run it");
    }
    alone("ten_thousand_locks_over_five_servers_leave_nothing_behind", MANY).await;
}
