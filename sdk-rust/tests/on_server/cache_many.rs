//! Many keys of a cache at once, on a real server: what is known comes in one reply for a hundred keys.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use resil::ConnectSettings;
use resil::cache::{CacheSettings, Cached, CallOptions, Loaded};
use resil_harness::{Cluster, Options, Server, ok};

const HOUR: Duration = Duration::from_secs(3_600);

async fn cache(url: &str, settings: CacheSettings) -> Cached {
    let client = ConnectSettings::new(url).command_timeout(Duration::from_secs(10)).connect().await.unwrap();
    client.cached("user", settings.ttl(HOUR)).unwrap()
}

/// How often the server was asked this.
fn asked(server: &Server, subcommand: &str) -> u64 {
    let stats: String = redis::from_redis_value(ok(&mut server.connect(), &["INFO", "commandstats"])).unwrap();
    let name = format!("cmdstat_res.sflight|{subcommand}:");
    let line = stats.lines().find(|line| line.to_lowercase().starts_with(&name));
    line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Gets them; what nobody has is loaded as `loaded <key>`, and counted.
async fn get_many(cache: &Cached, keys: &[String], loads: &Arc<AtomicU32>) -> Vec<String> {
    let loads = Arc::clone(loads);
    let loader = move |key: String| {
        loads.fetch_add(1, SeqCst);
        async move { Ok::<_, Infallible>(Some(Bytes::from(format!("loaded {key}")))) }
    };
    let loaded = cache.get_many(keys, loader).await.unwrap();
    loaded.into_iter().map(|loaded| String::from_utf8(loaded.into_value().unwrap().to_vec()).unwrap()).collect()
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|key| key.to_string()).collect()
}

async fn set_all(cache: &Cached, keys: &[String]) {
    for key in keys {
        cache.set(key, format!("set {key}"), CallOptions::new()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_known_keys_are_one_command() {
    let server = Server::start(Options::default());
    let (users, loads) = (cache(&server.url(), CacheSettings::new()).await, Arc::default());
    set_all(&users, &keys(250)).await;
    let got = get_many(&users, &keys(250), &loads).await;
    assert_eq!(got, keys(250).iter().map(|key| format!("set {key}")).collect::<Vec<_>>());
    assert_eq!((asked(&server, "mget"), asked(&server, "join"), loads.load(SeqCst)), (3, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_missing_is_joined_and_loaded() {
    let server = Server::start(Options::default());
    let (users, loads) = (cache(&server.url(), CacheSettings::new()).await, Arc::default());
    set_all(&users, &keys(8)).await;
    let got = get_many(&users, &keys(10), &loads).await;
    assert_eq!((&*got[7], &*got[8], &*got[9]), ("set 7", "loaded 8", "loaded 9"));
    assert_eq!((asked(&server, "join"), loads.load(SeqCst)), (2, 2));
    // What is out of date is loaded anew.
    users.invalidate_soft("3").await.unwrap();
    assert_eq!(get_many(&users, &keys(10), &loads).await.len(), 10);
    // The stale value is returned at once; the load goes on behind it.
    for _ in 0..10_000 {
        if loads.load(SeqCst) == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(loads.load(SeqCst), 3);
    // That there is nothing is known, too.
    let nothing = |_| async { Ok::<_, Infallible>(None) };
    for _ in 0..2 {
        assert_eq!(users.get_many(["x", "y"], nothing).await.unwrap(), [Loaded::NotFound, Loaded::NotFound]);
    }
    assert_eq!(asked(&server, "join"), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_too_large_for_one_reply_all_come() {
    let server = Server::start(Options::default());
    let (users, loads) = (cache(&server.url(), CacheSettings::new()).await, Arc::default());
    let large = "x".repeat(600 << 10);
    for key in keys(5) {
        users.set(&key, format!("{large}{key}"), CallOptions::new()).await.unwrap();
    }
    let got = get_many(&users, &keys(5), &loads).await;
    assert!(got.iter().zip(keys(5)).all(|(value, key)| value.ends_with(&format!("x{key}"))));
    assert_eq!((asked(&server, "mget"), asked(&server, "join"), loads.load(SeqCst)), (1, 3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_found_stays_in_the_local_tier() {
    let server = Server::start(Options::default());
    let (here, loads) = (cache(&server.url(), CacheSettings::new().local_ttl(HOUR)).await, Arc::default());
    let there = cache(&server.url(), CacheSettings::new()).await;
    set_all(&there, &keys(4)).await;
    // The tier is used once others can be heard.
    for _ in 0.. {
        get_many(&here, &keys(4), &loads).await;
        let before = asked(&server, "mget");
        assert!(before < 10_000, "the tier is never used");
        get_many(&here, &keys(4), &loads).await;
        if asked(&server, "mget") == before {
            break;
        }
    }
    there.set("2", "newer", CallOptions::new()).await.unwrap();
    for _ in 0..10_000 {
        if get_many(&here, &keys(4), &loads).await[2] == "newer" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("what others set is never seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_many_keys_come_from_every_part() {
    let cluster = Cluster::start(3, Options::default());
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis+cluster://{}", nodes.join(","));
    let (users, loads) = (cache(&url, CacheSettings::new()).await, Arc::default());
    set_all(&users, &keys(40)).await;
    let got = get_many(&users, &keys(50), &loads).await;
    let wanted =
        |key: String| if key.parse::<u32>().unwrap() < 40 { format!("set {key}") } else { format!("loaded {key}") };
    assert_eq!(got, keys(50).into_iter().map(wanted).collect::<Vec<_>>());
    assert_eq!(loads.load(SeqCst), 10);
}
