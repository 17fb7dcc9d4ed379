//! Locks over five servers: the Rust SDK over `redis+quorum://` beside redsync over the same five, in turn.
//!
//! `cargo run --release -p resil-benches --bin quorum [seconds]`: callers with a lock each, and then with one lock for all, which acquire and
//! release it as fast as they can. A slice of each in turn; the figures are medians of slices, and the ratios medians of ratios side
//! by side. For one lock ours are as many clients as there would be processes: callers of one client queue inside of it. Needs Go.

#[allow(dead_code)]
mod foreign;

use std::time::{Duration, Instant};

use resil::lock::LockSettings;
use resil_harness::{Options, Server};
use serde_json::Value;

const CALLERS: usize = 16;
/// Clients of ours where all callers want one lock.
const CLIENTS: usize = 4;
const SLICES: usize = 7;
const SERVERS: usize = 5;

/// Acquisitions per second, and the p99 of one in milliseconds.
#[derive(Clone, Copy)]
struct Slice {
    rate: f64,
    p99_ms: f64,
}

fn slice(mut waits_us: Vec<u64>, took: Duration) -> Slice {
    waits_us.sort_unstable();
    let p99 = waits_us.get(waits_us.len() * 99 / 100).copied().unwrap_or(0);
    Slice { rate: waits_us.len() as f64 / took.as_secs_f64(), p99_ms: p99 as f64 / 1_000.0 }
}

/// What the callers want.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    OneEach,
    OneForAll,
}

async fn ours(clients: &[resil::Client], wanted: Wanted, length: Duration) -> Slice {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (client, name) = match wanted {
                Wanted::OneEach => (&clients[0], format!("bench-{caller}")),
                Wanted::OneForAll => (&clients[caller % clients.len()], "bench".to_owned()),
            };
            let settings = LockSettings::new().wait(Duration::from_secs(60));
            let lock = client.lock(&name, settings).expect("a lock");
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while begun.elapsed() < length {
                    let asked = Instant::now();
                    let guard = lock.acquire().await.expect("acquired in time");
                    waits.push(asked.elapsed().as_micros() as u64);
                    guard.release().await.expect("released");
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.expect("no panic"));
    }
    slice(waits, begun.elapsed())
}

fn peer(program: &foreign::Program, ports: &str, wanted: Wanted, length: Duration) -> Result<Slice, String> {
    let seconds = length.as_secs_f64().to_string();
    let way = if wanted == Wanted::OneEach { "quorum" } else { "quorum-contended" };
    let said = program.run(&[ports.to_owned(), way.to_owned(), seconds, CALLERS.to_string(), "0".to_owned()])?;
    let found: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    let waits = found["waits_us"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let took = found["seconds"].as_f64().map(Duration::from_secs_f64).ok_or("no seconds")?;
    Ok(slice(waits, took))
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), String> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(28.0), |text| text.parse()).map_err(|_| "seconds")?;
    let length = Duration::from_secs_f64(seconds / SLICES as f64 / 4.0);
    let program = foreign::go("redsync")?;
    let servers: Vec<Server> = (0..SERVERS).map(|_| Server::start(Options::default().measured())).collect();
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let ports: Vec<String> = servers.iter().map(|server| server.port().to_string()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let url = format!("redis+quorum://{}", hosts.join(","));
    let connecting = || runtime.block_on(resil::connect(&url)).map_err(|error| error.to_string());
    let clients = (0..CLIENTS).map(|_| connecting()).collect::<Result<Vec<_>, String>>()?;
    for (wanted, what) in [(Wanted::OneEach, "a lock each"), (Wanted::OneForAll, "one lock for all")] {
        runtime.block_on(ours(&clients, wanted, length / 4));
        peer(&program, &ports.join(","), wanted, length / 4)?;
        let mut slices = Vec::new();
        for _ in 0..SLICES {
            let ours = runtime.block_on(ours(&clients, wanted, length));
            slices.push((ours, peer(&program, &ports.join(","), wanted, length)?));
        }
        show(what, &slices);
    }
    Ok(())
}

fn show(what: &str, slices: &[(Slice, Slice)]) {
    println!("| {CALLERS} callers, {what}, {SERVERS} servers | acquisitions/s | p99 |");
    println!("| --- | --- | --- |");
    for (name, of) in [("redis+quorum:// (Rust SDK)", 0), ("redsync 4.13.0 (Go)", 1)] {
        let each = || slices.iter().map(move |pair| if of == 0 { pair.0 } else { pair.1 });
        let (rate, p99) = (median(each().map(|slice| slice.rate)), median(each().map(|slice| slice.p99_ms)));
        println!("| {name} | {rate:.0} | {p99:.2} ms |");
    }
    let faster = median(slices.iter().map(|(ours, peer)| ours.rate / peer.rate));
    let shorter = median(slices.iter().map(|(ours, peer)| ours.p99_ms / peer.p99_ms));
    println!("| ratio, medians of slices side by side | {faster:.2}x (bar: 1.5x) | {shorter:.2}x (bar: 0.5x) |\n");
}
