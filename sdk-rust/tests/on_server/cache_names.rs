//! Tags and local tiers of several processes (each a client with connections of its own), on a real server.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use resil::ConnectSettings;
use resil::cache::{CacheEntry, CacheSettings, Cached, CallOptions};
use resil_harness::{Cluster, Options, Server, ok};

const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than anything here takes, on a machine that has much else to do.
const BOUND: Duration = Duration::from_secs(60);

async fn cache(url: &str, local_ttl: Duration) -> Cached {
    let client = ConnectSettings::new(url).command_timeout(Duration::from_secs(10)).connect().await.unwrap();
    client.cached("user", CacheSettings::new().ttl(HOUR).local_ttl(local_ttl)).unwrap()
}

/// Gets `key`, or loads `value` with the tag `team`.
async fn get(cache: &Cached, key: &str, value: &str) -> String {
    let value = Bytes::from(value.to_owned());
    let loader = async move |_| Ok::<_, Infallible>(Some(CacheEntry::new(value).tag("team")));
    let loaded = cache.get_with(key, CallOptions::new(), loader).await.unwrap();
    String::from_utf8(loaded.into_value().unwrap().to_vec()).unwrap()
}

/// How often the server was asked for a value.
fn joins(server: &Server) -> u64 {
    let stats: String = redis::from_redis_value(ok(&mut server.connect(), &["INFO", "commandstats"])).unwrap();
    let line = stats.lines().find(|line| line.to_lowercase().starts_with("cmdstat_res.sflight|join:"));
    let calls = line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse().ok());
    calls.expect("it was asked for something")
}

/// Waits until the tier serves without asking: it is heard.
async fn tier_works(server: &Server, cache: &Cached, key: &str) {
    let begun = Instant::now();
    loop {
        let value = get(cache, key, "warm").await;
        let before = joins(server);
        assert_eq!(get(cache, key, "warm").await, value);
        if joins(server) == before {
            return;
        }
        assert!(begun.elapsed() < BOUND, "the local tier is never used");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_tier_hears_what_others_invalidate_within_100_ms() {
    let server = Server::start(Options::default());
    let (here, there) = (cache(&server.url(), HOUR).await, cache(&server.url(), Duration::ZERO).await);
    tier_works(&server, &here, "1").await;
    let mut took = Vec::new();
    for round in 0..20 {
        let value = format!("value {round}");
        match round % 4 {
            0 => there.invalidate("1").await.map(drop).unwrap(),
            1 => there.invalidate_tag("team").await.unwrap(),
            2 => there.clear().await.unwrap(),
            _ => there.set("1", value.clone(), CallOptions::new()).await.unwrap(),
        }
        let begun = Instant::now();
        while get(&here, "1", &value).await != value {
            assert!(begun.elapsed() < BOUND, "{round} is never heard of");
            tokio::task::yield_now().await;
        }
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_millis(100), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_invalidated_while_deaf_is_never_served() {
    let server = Server::start(Options::default());
    let here = cache(&server.url(), HOUR).await;
    let mut connection = server.connect();
    for round in 0..10 {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        here.invalidate("1").await.unwrap();
        get(&here, "1", &old).await;
        tier_works(&server, &here, "2").await;
        assert_eq!(get(&here, "1", "no").await, old);
        // The subscription is cut, and the value invalidated before it can be back: nobody is notified.
        redis::pipe()
            .atomic()
            .cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("pubsub")
            .cmd("RES.SFLIGHT")
            .arg("INVALIDATE")
            .arg("resil:cache:user:{1}")
            .arg("UNDER")
            .arg("resil:cache:{user}")
            .exec(&mut connection)
            .unwrap();
        // Once it is heard again the value is gone for good.
        let begun = Instant::now();
        while get(&here, "1", &new).await != new {
            assert!(begun.elapsed() < BOUND, "what was invalidated is served on");
            tokio::task::yield_now().await;
        }
        tier_works(&server, &here, "2").await;
        assert_eq!(get(&here, "1", "no").await, new);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_with_500_callers_each_load_once() {
    let server = Server::start(Options::default());
    let loads = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let users = cache(&server.url(), Duration::ZERO).await;
        for _ in 0..500 {
            let (users, loads) = (users.clone(), Arc::clone(&loads));
            tasks.push(tokio::spawn(async move {
                let loader = async move |_| {
                    loads.fetch_add(1, SeqCst);
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    Ok::<_, Infallible>(Some("Ada".into()))
                };
                users.get("42", loader).await.unwrap().into_value().unwrap()
            }));
        }
    }
    for task in tasks {
        assert_eq!(tokio::time::timeout(BOUND, task).await.unwrap().unwrap(), "Ada");
    }
    assert_eq!(loads.load(SeqCst), 1);
}

/// Seeded chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The judge: for each key when which version of the source was sure to be seen by everybody.
#[derive(Default)]
struct Judge {
    /// Of each key, the version that the last finished invalidation was made for, and when it had finished.
    sure: Mutex<BTreeMap<usize, Vec<(Instant, u64)>>>,
}

impl Judge {
    fn finished(&self, key: usize, version: u64) {
        self.sure.lock().entry(key).or_default().push((Instant::now(), version));
    }

    /// The least version that a get of `key` which began at `began` may return, if others are heard of within `slack`.
    fn least(&self, key: usize, began: Instant, slack: Duration) -> u64 {
        let sure = self.sure.lock();
        let old = |(at, _): &&(Instant, u64)| *at + slack < began;
        sure.get(&key).into_iter().flatten().filter(old).map(|(_, version)| *version).max().unwrap_or(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_never_go_back_behind_an_invalidation_whatever_is_cut() {
    let seed: u64 = std::env::var("RESIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("RESIL_SEED={seed}");
    const KEYS: usize = 4;
    // A message needs its time on a machine that has much else to do; a tier that is deaf is far beyond it.
    const SLACK: Duration = Duration::from_millis(1_500);
    let server = Server::start(Options::default());
    let source: Arc<[AtomicU64; KEYS]> = Arc::default();
    let judge = Arc::new(Judge::default());
    let until = Instant::now() + Duration::from_secs(6);
    let mut tasks = Vec::new();
    let reads = Arc::new(AtomicU64::new(0));
    for reader in 0..4 {
        // Two with a local tier, two without.
        let tier = if reader % 2 == 0 { HOUR } else { Duration::ZERO };
        let users = cache(&server.url(), tier).await;
        let (source, judge, reads) = (Arc::clone(&source), Arc::clone(&judge), Arc::clone(&reads));
        let mut rng = Chance(seed.wrapping_add(reader));
        tasks.push(tokio::spawn(async move {
            while Instant::now() < until {
                let first = rng.below(KEYS as u64) as usize;
                // One key, or several at once.
                let keys: Vec<usize> = (0..1 + rng.below(3) as usize).map(|more| (first + more) % KEYS).collect();
                let (began, source, pause) = (Instant::now(), Arc::clone(&source), rng.below(4));
                let loader = move |key: String| {
                    let source = Arc::clone(&source);
                    async move {
                        let key: usize = key.parse().unwrap();
                        let version = source[key].load(SeqCst);
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                        Ok::<_, Infallible>(Some(CacheEntry::new(version.to_string()).tag(format!("tag {}", key % 2))))
                    }
                };
                let names: Vec<String> = keys.iter().map(usize::to_string).collect();
                let loaded = users.get_many_with(&names, CallOptions::new(), loader).await.unwrap();
                let slack = if tier.is_zero() { Duration::ZERO } else { SLACK };
                for (key, loaded) in keys.into_iter().zip(loaded) {
                    let version = String::from_utf8(loaded.into_value().unwrap().to_vec()).unwrap();
                    let (version, least) = (version.parse::<u64>().unwrap(), judge.least(key, began, slack));
                    assert!(version >= least, "reader {reader} got {version} of {key}, and {least} was sure");
                }
                reads.fetch_add(1, SeqCst);
                if rng.below(8) == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }));
    }
    let writer = cache(&server.url(), Duration::ZERO).await;
    let mut rng = Chance(seed ^ 0xdead);
    let mut connection = server.connect();
    while Instant::now() < until {
        let key = rng.below(KEYS as u64) as usize;
        match rng.below(10) {
            0..5 => {
                let version = source[key].fetch_add(1, SeqCst) + 1;
                writer.invalidate(&key.to_string()).await.unwrap();
                judge.finished(key, version);
            }
            5..7 => {
                let tagged: Vec<usize> = (0..KEYS).filter(|other| other % 2 == key % 2).collect();
                let versions: Vec<u64> = tagged.iter().map(|key| source[*key].fetch_add(1, SeqCst) + 1).collect();
                writer.invalidate_tag(&format!("tag {}", key % 2)).await.unwrap();
                tagged.iter().zip(versions).for_each(|(key, version)| judge.finished(*key, version));
            }
            7 => {
                let versions: Vec<u64> = source.iter().map(|version| version.fetch_add(1, SeqCst) + 1).collect();
                writer.clear().await.unwrap();
                versions.into_iter().enumerate().for_each(|(key, version)| judge.finished(key, version));
            }
            8 => drop(ok(&mut connection, &["CLIENT", "KILL", "TYPE", "pubsub"])),
            _ => drop(ok(&mut connection, &["DEL", "resil:cache:{user}"])),
        }
        tokio::time::sleep(Duration::from_millis(1 + rng.below(40))).await;
    }
    for task in tasks {
        tokio::time::timeout(BOUND, task).await.expect("nobody is stuck").unwrap();
    }
    assert!(reads.load(SeqCst) > 500, "{} reads", reads.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_tags_and_names_reach_every_part() {
    let cluster = Cluster::start(3, Options::default());
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis+cluster://{}", nodes.join(","));
    let (here, there) = (cache(&url, Duration::ZERO).await, cache(&url, Duration::ZERO).await);
    let keys: Vec<String> = (0..64).map(|key| key.to_string()).collect();
    for (round, is_tag) in [(0, true), (1, false), (2, true)] {
        let (old, new) = (format!("old {round}"), format!("new {round}"));
        there.clear().await.unwrap();
        for key in &keys {
            assert_eq!(get(&here, key, &old).await, old);
        }
        if is_tag {
            there.invalidate_tag("team").await.unwrap()
        } else {
            there.clear().await.unwrap()
        }
        for key in &keys {
            assert_eq!(get(&here, key, &new).await, new);
        }
    }
}
