//! A hit of a cache over the network beside a plain GET through the same client (redis-rs, one multiplexed connection), in turn; and many
//! keys at once beside MGET.
//!
//! `cargo run --release -p resil-benches --bin cache_hits [seconds]`: callers with a key each, so that none joins the flight of another. The
//! figures are medians of slices, and the ratios medians of ratios side by side.

use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use resil::cache::{CacheSettings, Cached};
use resil_harness::{Options, Server};

const CALLERS: usize = 64;
const SLICES: usize = 9;
const MANY: usize = 100;
const BYTES: usize = 100;
const TTL: Duration = Duration::from_secs(3_600);

/// Calls per second of all callers together.
async fn rate<F, Fut>(length: Duration, callers: usize, call: F) -> f64
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut count = 0_u64;
                while begun.elapsed() < length {
                    call(caller).await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.expect("no panic");
    }
    calls as f64 / begun.elapsed().as_secs_f64()
}

async fn cached(length: Duration, callers: usize, cached: &Cached) -> f64 {
    let cached = cached.clone();
    let get = move |caller: usize| {
        let cached = cached.clone();
        async move {
            let load = async |_| Ok::<_, Infallible>(Some("x".repeat(BYTES).into()));
            assert!(cached.get(&caller.to_string(), load).await.expect("a hit").is_found());
        }
    };
    rate(length, callers, get).await
}

async fn plain(length: Duration, callers: usize, connection: &MultiplexedConnection) -> f64 {
    let connection = connection.clone();
    let get = move |caller: usize| {
        let mut connection = connection.clone();
        async move {
            let found: Vec<u8> =
                redis::cmd("GET").arg(format!("plain:{caller}")).query_async(&mut connection).await.expect("GET");
            assert_eq!(found.len(), BYTES);
        }
    };
    rate(length, callers, get).await
}

async fn cached_many(length: Duration, cached: &Cached) -> f64 {
    let cached = cached.clone();
    let get = move |_| {
        let cached = cached.clone();
        async move {
            let load = |_| async { Ok::<_, Infallible>(Some("x".repeat(BYTES).into())) };
            let keys = (0..MANY).map(|key| key.to_string());
            assert_eq!(cached.get_many(keys, load).await.expect("hits").len(), MANY);
        }
    };
    rate(length, 4, get).await
}

async fn plain_many(length: Duration, connection: &MultiplexedConnection) -> f64 {
    let connection = connection.clone();
    let get = move |_| {
        let mut connection = connection.clone();
        async move {
            let keys: Vec<String> = (0..MANY).map(|key| format!("plain:{key}")).collect();
            let found: Vec<Vec<u8>> = redis::cmd("MGET").arg(keys).query_async(&mut connection).await.expect("MGET");
            assert_eq!(found.len(), MANY);
        }
    };
    rate(length, 4, get).await
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(24.0), |text| text.parse())?;
    let length = Duration::from_secs_f64(seconds / SLICES as f64 / 6.0);
    let server = Server::start(Options::default().measured());
    let users = resil::connect(&server.url()).await?.cached("user", CacheSettings::new().ttl(TTL))?;
    let connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let mut setting = connection.clone();
    for key in 0..MANY.max(CALLERS) {
        users.set(&key.to_string(), "x".repeat(BYTES), resil::cache::CallOptions::new()).await?;
        let () = redis::cmd("SET").arg(format!("plain:{key}")).arg("x".repeat(BYTES)).query_async(&mut setting).await?;
    }
    cached(length / 2, CALLERS, &users).await;
    plain(length / 2, CALLERS, &connection).await;
    let (mut alone, mut together, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SLICES {
        for (slices, callers) in [(&mut alone, 1), (&mut together, CALLERS)] {
            slices.push((cached(length, callers, &users).await, plain(length, callers, &connection).await));
        }
        many.push((cached_many(length, &users).await, plain_many(length, &connection).await));
    }
    println!("| {BYTES} bytes a value | Resil | redis-rs | ratio, medians of slices side by side |");
    println!("| --- | --- | --- | --- |");
    for (name, slices) in [
        ("hits/s, one caller: `get` beside GET".to_owned(), alone),
        (format!("hits/s, {CALLERS} callers: `get` beside GET"), together),
        (format!("calls/s of {MANY} keys, 4 callers: `get_many` beside MGET"), many),
    ] {
        let (ours, theirs) = (median(slices.iter().map(|pair| pair.0)), median(slices.iter().map(|pair| pair.1)));
        let ratio = median(slices.iter().map(|(ours, theirs)| ours / theirs));
        println!("| {name} | {ours:.0} | {theirs:.0} | {ratio:.2}x |");
    }
    Ok(())
}
