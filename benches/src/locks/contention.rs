//! Contenders for one lock: each takes it, holds it for a millisecond, gives it back, and asks again at once.
//!
//! Every contender is a thread with a connection of its own. The time from asking to having is a wait, the first of
//! each contender too.

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use resil::lock::{LockGuard, LockSettings};
use resil_harness::Server;

use super::pairs::{GRANTED, LUA_UNLOCK, RELEASED};
use crate::figures::median;
use crate::line::{Line, command};
use crate::load::Reply;
use crate::stage::{SETTLE, cpu_us};

pub const CONTENDERS: usize = 16;
pub const HOLD: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(1);

/// What a run gave.
pub struct Contention {
    pub hand_overs_per_s: f64,
    pub wait_p50_ms: f64,
    pub wait_p99_ms: f64,
    /// How often the luckiest contender was served, and the unluckiest.
    pub most: u64,
    pub least: u64,
    /// CPU time of the server's main thread per hand-over.
    pub cpu_us: f64,
}

impl Contention {
    /// From how often each was served within the time, and all waits.
    pub fn new(served: &[u64], mut waits_us: Vec<f64>, seconds: f64, server_cpu_us: f64) -> Self {
        waits_us.sort_by(f64::total_cmp);
        let wait_ms = |part: f64| waits_us[((waits_us.len() - 1) as f64 * part).round() as usize] / 1_000.0;
        let total: u64 = served.iter().sum();
        Self {
            hand_overs_per_s: total as f64 / seconds,
            wait_p50_ms: wait_ms(0.5),
            wait_p99_ms: wait_ms(0.99),
            most: served.iter().copied().max().unwrap_or(0),
            least: served.iter().copied().min().unwrap_or(0),
            cpu_us: server_cpu_us / waits_us.len() as f64,
        }
    }

    /// The medians of several runs, each number by itself.
    pub fn median(runs: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| median(runs.iter().map(number));
        Self {
            hand_overs_per_s: of(|run| run.hand_overs_per_s),
            wait_p50_ms: of(|run| run.wait_p50_ms),
            wait_p99_ms: of(|run| run.wait_p99_ms),
            most: of(|run| run.most as f64) as u64,
            least: of(|run| run.least as f64) as u64,
            cpu_us: of(|run| run.cpu_us),
        }
    }

    /// Most served over least served.
    pub fn unfairness(&self) -> f64 {
        self.most as f64 / self.least as f64
    }
}

/// The median time of a command that does nothing, sent as a contender sends its: after holding, to a server that has
/// nothing else to do.
pub fn round_trip(server: &Server) -> Duration {
    let (mut line, ping) = (Line::to(server), command("PING"));
    let trips = (0..500).map(|_| {
        sleep(HOLD);
        let started = Instant::now();
        line.ask(&ping, Reply::line("+PONG"));
        started.elapsed().as_secs_f64()
    });
    Duration::from_secs_f64(median(trips))
}

/// Contenders that wait in the server.
pub fn ours(server: &Server, time: Duration) -> Contention {
    contend(server, time, |number| {
        let acquire = command(&format!("RES.LOCK ACQUIRE contended owner:{number:010} 10s WAIT 60s"));
        let release = command(&format!("RES.LOCK RELEASE contended owner:{number:010}"));
        let acquire = move |line: &mut Line| assert!(line.ask(&acquire, GRANTED));
        (acquire, move |line: &mut Line| assert!(line.ask(&release, RELEASED)))
    })
}

/// Contenders that use the SDK, each with a client of its own.
pub fn sdk(server: &Server, time: Duration) -> Contention {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (runtime, url) = (&runtime, format!("redis://127.0.0.1:{}", server.port()));
    contend(server, time, |_| {
        let settings = LockSettings::new().lease(Duration::from_secs(10)).wait(Duration::from_secs(60));
        let lock = runtime.block_on(resil::connect(&url)).and_then(|client| client.lock("contended-sdk", settings));
        let lock = lock.expect("a lock");
        let held = Arc::new(Mutex::new(None));
        let holds = Arc::clone(&held);
        let acquire = move |_: &mut Line| {
            let guard = runtime.block_on(lock.acquire()).expect("it is granted");
            *holds.lock().expect("no contender fails") = Some(guard);
        };
        let release = move |_: &mut Line| {
            let guard: Option<LockGuard> = held.lock().expect("no contender fails").take();
            runtime.block_on(guard.expect("it is held").release()).expect("it is released");
        };
        (acquire, release)
    })
}

/// Contenders that ask every millisecond with `SET NX PX`: as eager as polling gets.
pub fn polled(server: &Server, time: Duration) -> Contention {
    contend(server, time, |number| {
        let set = command(&format!("SET polled owner:{number:010} NX PX 10000"));
        // A script is one word, whatever is in it.
        let mut unlock = b"*5\r\n".to_vec();
        for word in ["EVAL", LUA_UNLOCK, "1", "polled", &format!("owner:{number:010}")] {
            unlock.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        let acquire = move |line: &mut Line| {
            while !line.ask(&set, Reply::line("+OK")) {
                sleep(POLL);
            }
        };
        (acquire, move |line: &mut Line| assert!(line.ask(&unlock, Reply::line(":1\r"))))
    })
}

/// The control: the same contenders and a queue of tickets in this process. What it says is the machine's doing.
pub fn without_a_server(server: &Server, time: Duration) -> Contention {
    let queue = Tickets::default();
    contend(server, time, |_| (|_: &mut Line| queue.acquire(), |_: &mut Line| queue.release()))
}

#[derive(Default)]
struct Tickets {
    /// The ticket that is served, and the next one to be drawn.
    state: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Tickets {
    fn acquire(&self) {
        let mut state = self.state.lock().expect("no contender fails");
        let ticket = state.1;
        state.1 += 1;
        drop(self.changed.wait_while(state, |(served, _)| *served != ticket).expect("no contender fails"));
    }

    fn release(&self) {
        self.state.lock().expect("no contender fails").0 += 1;
        self.changed.notify_all();
    }
}

fn contend<Acquire, Release>(
    server: &Server,
    time: Duration,
    contender: impl Fn(usize) -> (Acquire, Release),
) -> Contention
where
    Acquire: FnMut(&mut Line) + Send,
    Release: FnMut(&mut Line) + Send,
{
    let cpu_before_us = cpu_us(server);
    let barrier = Barrier::new(CONTENDERS);
    let found: Vec<(u64, Vec<f64>)> = thread::scope(|scope| {
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|number| {
                let (mut line, barrier) = (Line::to(server), &barrier);
                let (mut acquire, mut release) = contender(number);
                scope.spawn(move || {
                    let (mut served, mut waits_us) = (0, Vec::new());
                    barrier.wait();
                    let started = Instant::now();
                    while started.elapsed() < time {
                        let asked = Instant::now();
                        acquire(&mut line);
                        waits_us.push(asked.elapsed().as_secs_f64() * 1e6);
                        served += u64::from(started.elapsed() < time);
                        sleep(HOLD);
                        release(&mut line);
                    }
                    (served, waits_us)
                })
            })
            .collect();
        contenders.into_iter().map(|thread| thread.join().expect("a contender does not fail")).collect()
    });
    sleep(SETTLE);
    let spent_us = cpu_us(server) - cpu_before_us;
    let (served, waits_us): (Vec<u64>, Vec<Vec<f64>>) = found.into_iter().unzip();
    Contention::new(&served, waits_us.concat(), time.as_secs_f64(), spent_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_described_by_its_percentiles_and_its_extremes() {
        let waits_us = (1..=100).rev().map(|wait| f64::from(wait) * 1_000.0).collect();
        let run = Contention::new(&[60, 40], waits_us, 2.0, 500.0);
        assert_eq!((run.wait_p50_ms, run.wait_p99_ms), (51.0, 99.0));
        assert_eq!((run.hand_overs_per_s, run.unfairness(), run.cpu_us), (50.0, 1.5, 5.0));
    }
}
