//! A client that only sends PING, beside somebody who keeps the server busy: how much later its replies come.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;
use resil_harness::{Server, ok};

use super::connection;

/// Between two PINGs.
const PAUSE: Duration = Duration::from_micros(200);

/// What the neighbour noticed.
#[derive(Clone, Copy)]
pub struct Noticed {
    pub p99_ms: f64,
    pub longest_ms: f64,
}

/// PINGs for as long as `work` takes.
pub fn during(server: &Server, work: impl FnOnce(&mut Connection)) -> Noticed {
    let (is_over, mut busy, mut pinging) = (AtomicBool::new(false), connection(server), connection(server));
    let mut waits_ms = thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut waits_ms = Vec::new();
            while !is_over.load(Relaxed) {
                let asked = Instant::now();
                ok(&mut pinging, &["PING"]);
                waits_ms.push(asked.elapsed().as_secs_f64() * 1e3);
                thread::sleep(PAUSE);
            }
            waits_ms
        });
        work(&mut busy);
        is_over.store(true, Relaxed);
        pings.join().expect("PING is answered")
    });
    waits_ms.sort_by(f64::total_cmp);
    let at = |share: f64| waits_ms.get(((waits_ms.len() as f64 * share) as usize).min(waits_ms.len() - 1));
    Noticed { p99_ms: at(0.99).copied().unwrap_or_default(), longest_ms: at(1.0).copied().unwrap_or_default() }
}

/// Repeats `work` for so long, or until it says that there is nothing left.
pub fn for_a_while(bound: Duration, mut work: impl FnMut() -> bool) {
    let started = Instant::now();
    while started.elapsed() < bound && work() {}
}
