//! Killed and restarted under load: every primitive in every mode at once, each call bounded, each doing what it says.
//!
//! The server forgets nothing it has reported (`appendfsync always`), so what is kept there outlives the kill, and a refusal
//! can only come from the server being away, not from state that vanished.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use resil::breaker::BreakerSettings;
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::{DecidedBy, Limit};
use resil::lock::LockSettings;
use resil::policy::{Policy, TimeoutSettings, retry_none};
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Away, Client, Code, Status};
use tokio::task::JoinSet;

use crate::scene::{BOUND, SLACK, all_end, becomes, careful, eventually, ms, options, timed};

/// What the calls of one kind came to.
#[derive(Debug, Default)]
struct Tally {
    fine: u64,
    codes: BTreeMap<&'static str, u64>,
    slowest: Duration,
}

/// The load, and what came of it.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    tallies: Mutex<BTreeMap<&'static str, Tally>>,
    local_grants: AtomicU64,
    server_grants: AtomicU64,
    inside: AtomicU64,
    /// How often the server was killed: each time a limit is asked for a key of its own, which nobody was denied yet.
    kills: AtomicU64,
}

impl Load {
    /// Calls again and again, from `tasks` tasks, and keeps what it came to.
    fn spawn<C>(self: &Arc<Self>, tasks: &mut JoinSet<()>, kind: &'static str, count: u64, make: impl Fn(u64) -> C)
    where
        C: AsyncCall,
    {
        for task in 0..count {
            let (load, call) = (Arc::clone(self), make(task));
            tasks.spawn(async move {
                for round in 0.. {
                    if load.over.load(SeqCst) {
                        return;
                    }
                    let (outcome, took) = timed(kind, call.call(task << 32 | round)).await;
                    {
                        let mut tallies = load.tallies.lock();
                        let tally = tallies.entry(kind).or_default();
                        tally.slowest = tally.slowest.max(took);
                        match outcome {
                            Ok(()) => tally.fine += 1,
                            Err(code) => *tally.codes.entry(code.text()).or_default() += 1,
                        }
                    }
                    tokio::time::sleep(ms(3)).await;
                }
            });
        }
    }
}

type Called = std::pin::Pin<Box<dyn Future<Output = Result<(), Code>> + Send>>;

trait AsyncCall: Send + 'static {
    fn call(&self, number: u64) -> Called;
}

impl<F: Fn(u64) -> Called + Send + 'static> AsyncCall for F {
    fn call(&self, number: u64) -> Called {
        self(number)
    }
}

fn limits(client: &Client, load: &Arc<Load>, tasks: &mut JoinSet<()>) {
    let kinds = [("limit open", Away::Open), ("limit closed", Away::Closed)];
    for (kind, away) in kinds {
        let limiter = client.limiter(kind, Limit::per_second(1_000_000).when_away(away)).expect("valid");
        load.spawn(tasks, kind, 3, |_| {
            let limiter = limiter.clone();
            move |_| -> Called {
                let limiter = limiter.clone();
                Box::pin(async move { limiter.acquire("alice").await.map_err(|error| error.code()) })
            }
        });
    }
    let limiter = client.limiter("part", Limit::window(40, ms(3_600_000))).expect("valid");
    load.spawn(tasks, "limit local", 3, |_| {
        let (limiter, load) = (limiter.clone(), Arc::clone(load));
        move |_| -> Called {
            let (limiter, load) = (limiter.clone(), Arc::clone(&load));
            Box::pin(async move {
                let verdict = limiter.check(load.kills.load(SeqCst).to_string()).await.map_err(|error| error.code())?;
                let grants = match verdict.decided_by {
                    DecidedBy::Local => &load.local_grants,
                    _ => &load.server_grants,
                };
                grants.fetch_add(u64::from(verdict.is_granted()), SeqCst);
                Ok(())
            })
        }
    });
}

fn breakers(client: &Client, load: &Arc<Load>, tasks: &mut JoinSet<()>) {
    for (kind, away) in [("breaker open", Away::Open), ("breaker closed", Away::Closed), ("breaker local", Away::Local)]
    {
        let breaker = client.breaker(kind, BreakerSettings::new().when_away(away)).expect("valid");
        load.spawn(tasks, kind, 3, |_| {
            let breaker = breaker.clone();
            move |_| -> Called {
                let breaker = breaker.clone();
                Box::pin(async move {
                    let called = breaker.call(async || Ok::<_, String>(())).await;
                    called.map_err(|failure| failure.code().expect("the call itself is fine"))
                })
            }
        });
    }
}

fn holdings(client: &Client, load: &Arc<Load>, tasks: &mut JoinSet<()>) {
    let lock = client.lock("shared", LockSettings::new().lease(ms(2_000)).wait(ms(1_000))).unwrap();
    load.spawn(tasks, "lock closed", 4, |_| {
        let lock = lock.clone();
        move |_| -> Called {
            let lock = lock.clone();
            Box::pin(async move { lock.acquire().await.map(drop).map_err(|error| error.code()) })
        }
    });
    load.spawn(tasks, "lock open", 3, |task| {
        // Nobody else wants it: only a grant that got lost can be in the way, and its owner lets go of it.
        let lock =
            client.lock(&format!("own{task}"), LockSettings::new().when_away(Away::Open).wait(ms(5_000))).unwrap();
        move |_| -> Called {
            let lock = lock.clone();
            Box::pin(async move { lock.acquire().await.map(drop).map_err(|error| error.code()) })
        }
    });
    let bulkhead =
        client.shared_bulkhead("room", SharedBulkheadSettings::new(3).max_wait(ms(1_000)).max_queue(100)).unwrap();
    load.spawn(tasks, "bulkhead", 8, |_| {
        let (bulkhead, load) = (bulkhead.clone(), Arc::clone(load));
        move |_| -> Called {
            let (bulkhead, load) = (bulkhead.clone(), Arc::clone(&load));
            Box::pin(async move {
                let guard = bulkhead.enter().await.map_err(|error| error.code())?;
                let inside = load.inside.fetch_add(1, SeqCst) + 1;
                tokio::time::sleep(ms(2)).await;
                load.inside.fetch_sub(1, SeqCst);
                assert!(inside <= 3 || !guard.is_held(), "{inside} are inside");
                drop(guard);
                Ok(())
            })
        }
    });
}

fn work_and_loads(client: &Client, load: &Arc<Load>, tasks: &mut JoinSet<()>) {
    for (kind, away) in [("work closed", Away::Closed), ("work open", Away::Open)] {
        let work = client.idempotent(kind, IdempotencySettings::new().when_away(away)).expect("valid");
        load.spawn(tasks, kind, 3, |_| {
            let work = work.clone();
            move |number: u64| -> Called {
                let work = work.clone();
                Box::pin(async move {
                    let ran = AtomicBool::new(false);
                    let doing = async |_| {
                        ran.store(true, SeqCst);
                        Ok::<_, String>("done")
                    };
                    let outcome = work.run(&number.to_string(), b"", doing).await;
                    let code = outcome.map(drop).map_err(|failure| failure.code().expect("the work is fine"));
                    assert!(code.is_ok() || !ran.load(SeqCst), "done, and reported {code:?}");
                    code
                })
            }
        });
    }
    for (kind, away) in [("load closed", Away::Closed), ("load open", Away::Open), ("load local", Away::Local)] {
        let cached = client.cached(kind, CacheSettings::new().when_away(away).ttl(ms(20))).expect("valid");
        load.spawn(tasks, kind, 4, |_| {
            let cached = cached.clone();
            move |_| -> Called {
                let cached = cached.clone();
                Box::pin(async move {
                    let got = cached.get("k", |_| async { Ok::<_, String>(Some(Bytes::from("v"))) }).await;
                    let loaded = got.map_err(|failure| failure.code().expect("the loader is fine"))?;
                    assert_eq!(loaded.into_value().expect("found"), "v");
                    Ok(())
                })
            }
        });
    }
}

/// Whole policies: a breaker, a limit and a shared bulkhead, under one deadline.
fn policies(client: &Client, load: &Arc<Load>, tasks: &mut JoinSet<()>) {
    for (kind, away) in [("policy open", Away::Open), ("policy closed", Away::Closed)] {
        let policy = Policy::builder(kind)
            .timeout(TimeoutSettings { attempt: None, total: Some(ms(1_000)) })
            .breaker(client.breaker(kind, BreakerSettings::new().when_away(Away::Local)).expect("valid"))
            .limiter(client.limiter(kind, Limit::per_second(1_000_000).when_away(away)).expect("valid"))
            .shared_bulkhead(client.shared_bulkhead(kind, SharedBulkheadSettings::new(100).when_away(away)).unwrap())
            .build()
            .expect("valid");
        load.spawn(tasks, kind, 3, |_| {
            let policy = policy.clone();
            move |_| -> Called {
                let policy = policy.clone();
                Box::pin(async move {
                    let called = policy.call(retry_none, || async { Ok::<_, String>(()) }).await;
                    called.map_err(|failure| failure.code().expect("the call itself is fine"))
                })
            }
        });
    }
}

/// What a kind may return, and how long a call of it may take: its own time, a few command timeouts, and the machine.
fn allowed(kind: &str) -> (&'static [&'static str], Duration) {
    match kind {
        "limit closed" | "breaker closed" => (&["BACKEND_UNAVAILABLE"], ms(1_500)),
        "policy closed" => (&["BACKEND_UNAVAILABLE", "TIMEOUT"], ms(1_000) + SLACK),
        "policy open" => (&[], ms(1_000) + SLACK),
        // A caller that waits for another's load waits on while the server may come back, for at most its load timeout.
        "load closed" => (&["BACKEND_UNAVAILABLE"], ms(4_500)),
        "load open" | "load local" => (&[], ms(4_500)),
        "lock closed" => (&["BACKEND_UNAVAILABLE", "LOCK_TIMEOUT"], ms(2_500)),
        "bulkhead" => (&["BACKEND_UNAVAILABLE", "BULKHEAD_FULL"], ms(2_500)),
        // A caller that was running brings its result for as long as its lease lasts.
        "work closed" => (&["BACKEND_UNAVAILABLE"], BOUND),
        "work open" => (&[], BOUND),
        "lock open" => (&[], ms(6_500)),
        _ => (&[], ms(1_500)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_under_load_keep_every_mode_and_strand_nobody() {
    let mut server = careful();
    let client = options(&server.url()).instances(4).connect().await.expect("a server that is there");
    let load = Arc::new(Load::default());
    let mut tasks = JoinSet::new();
    limits(&client, &load, &mut tasks);
    breakers(&client, &load, &mut tasks);
    holdings(&client, &load, &mut tasks);
    work_and_loads(&client, &load, &mut tasks);
    policies(&client, &load, &mut tasks);
    let mut recoveries = Vec::new();
    for _ in 0..2 {
        tokio::time::sleep(ms(700)).await;
        assert_eq!(client.health().overall, Status::Healthy);
        server.kill9();
        becomes(&client, Status::Unhealthy).await;
        load.kills.fetch_add(1, SeqCst);
        // Longer than a breaker trusts what it heard last.
        tokio::time::sleep(ms(1_300)).await;
        server.start_again();
        recoveries.push(becomes(&client, Status::Healthy).await);
    }
    let before = load.tallies.lock().values().map(|tally| tally.fine).sum::<u64>();
    eventually("it goes on", async || load.tallies.lock().values().map(|tally| tally.fine).sum::<u64>() > before + 500)
        .await;
    load.over.store(true, SeqCst);
    all_end(tasks).await;
    println!("healthy {recoveries:?} after the restarts");
    let tallies = std::mem::take(&mut *load.tallies.lock());
    for (kind, tally) in &tallies {
        println!("{kind}: {tally:?}");
        let (codes, bound) = allowed(kind);
        assert!(tally.codes.keys().all(|code| codes.contains(code)), "{kind}: {tally:?}");
        assert!(tally.slowest < bound, "{kind}: {tally:?}");
        assert!(tally.fine > 20, "{kind}: {tally:?}");
        // Work may bring its results for as long as the server is away, and ask for nothing new meanwhile; see `away`.
        let is_closed = codes.contains(&"BACKEND_UNAVAILABLE") && *kind != "work closed";
        assert!(!is_closed || tally.codes.contains_key("BACKEND_UNAVAILABLE"), "{kind} was refused: {tally:?}");
    }
    assert_eq!(tallies.len(), 16, "all of them ran");
    assert_eq!(load.local_grants.load(SeqCst), 2 * 10, "this process' quarter of the limit for each key, and no more");
    assert!(load.server_grants.load(SeqCst) <= 3 * 40);
    // Nothing is left behind.
    eventually("nobody holds or waits", async || {
        let (lock, room) = (
            client.lock("shared", LockSettings::new()).unwrap().info().await,
            client.shared_bulkhead("room", SharedBulkheadSettings::new(3)).unwrap().info().await,
        );
        [lock, room].into_iter().all(|info| info.is_ok_and(|info| info.holders_total + info.waiters_total == 0))
    })
    .await;
}

#[tokio::test]
async fn it_recovers_within_the_backoff_without_any_traffic() {
    let mut server = careful();
    let client = options(&server.url()).connect().await.expect("a server that is there");
    server.kill9();
    becomes(&client, Status::Unhealthy).await;
    server.start_again();
    // Two attempts failed at most while it was down, so the pause under way is of at most four seconds.
    let took = becomes(&client, Status::Healthy).await;
    assert!(took < ms(4_500), "{took:?}");
}
