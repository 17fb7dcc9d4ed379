//! A server that stalls: its connections stay, and nothing replies. Calls come back in their time all the same.

use std::time::{Duration, Instant};

use bytes::Bytes;
use resil::breaker::{BreakerSettings, CountingMode};
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use resil::policy::{Policy, RetrySettings, Timeout, TimeoutSettings, retry_all};
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Away, Client, Code, Status};
use resil_harness::{Server, reply};

use crate::scene::{SLACK, becomes, client, eventually, ms, timed};

/// As `scene::client` has it.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);
const STALL: Duration = Duration::from_secs(3);

/// How the server is made to stall.
#[derive(Debug, Clone, Copy)]
enum Stall {
    Signal,
    DebugSleep,
}

impl Stall {
    /// Begins it, and ends it after [`STALL`].
    fn begin(self, server: &std::sync::Arc<Server>) -> std::thread::JoinHandle<()> {
        let server = std::sync::Arc::clone(server);
        let mut connection = server.connect();
        if let Self::Signal = self {
            server.pause();
        }
        let stalling = std::thread::spawn(move || match self {
            Self::Signal => {
                std::thread::sleep(STALL);
                server.resume();
            }
            Self::DebugSleep => drop(reply(&mut connection, &["DEBUG", "SLEEP", "3"]).expect("slept")),
        });
        // The command has to arrive; nobody can ask a server that sleeps whether it does.
        std::thread::sleep(ms(100));
        stalling
    }
}

/// Every primitive at once, from the moment the server stalls: what each came to and how long it took.
async fn called_meanwhile(client: &Client) -> Vec<(&'static str, Option<Code>, Duration)> {
    let limiter = client.limiter("api", Limit::per_second(9).when_away(Away::Closed)).expect("valid");
    let exact = BreakerSettings::new().mode(CountingMode::Exact).when_away(Away::Closed);
    let breaker = client.breaker("a", exact).expect("valid");
    let batched = client.breaker("b", BreakerSettings::new().when_away(Away::Closed)).expect("valid");
    let work = client.idempotent("work", IdempotencySettings::new()).expect("valid");
    let cached = client.cached("user", CacheSettings::new().when_away(Away::Closed)).expect("valid");
    let (lock, waiting) =
        (client.lock("a", LockSettings::new()).unwrap(), client.lock("w", LockSettings::new().wait(ms(700))).unwrap());
    let bulkhead = client.shared_bulkhead("a", SharedBulkheadSettings::new(1)).unwrap();
    let resil = |error: resil::Error| error.code();
    let ((limited, t1), (exact, t2), (batched, t3), (locked, t4), (waited, t5), (entered, t6), (ran, t7), (got, t8)) = tokio::join!(
        timed("a limit", async { limiter.check("a").await.map(drop).map_err(resil).err() }),
        timed("a breaker", async {
            breaker.call(async || Ok::<_, String>(())).await.err().and_then(|failure| failure.code())
        }),
        timed("a batched breaker", async {
            // Many at once: they must not stand in the queue for the same silence.
            let calls = (0..50).map(|_| batched.call(async || Ok::<_, String>(())));
            futures_util::future::join_all(calls).await.pop().and_then(Result::err).and_then(|failure| failure.code())
        }),
        timed("a lock", async { lock.try_acquire().await.map(drop).map_err(resil).err() }),
        timed("a lock that waits", async { waiting.acquire().await.map(drop).map_err(resil).err() }),
        timed("a bulkhead", async { bulkhead.try_enter().await.map(drop).map_err(resil).err() }),
        timed("work", async {
            work.run("k", b"", async |_| Ok::<_, String>("")).await.err().and_then(|failure| failure.code())
        }),
        timed("a load", async {
            let loader = |_| async { Ok::<_, String>(Some(Bytes::from("v"))) };
            cached.get("k", loader).await.err().and_then(|failure| failure.code())
        }),
    );
    vec![
        ("a limit", limited, t1),
        ("a breaker", exact, t2),
        ("50 of a batched breaker", batched, t3),
        ("a lock", locked, t4),
        ("a lock that waits 700 ms", waited, t5),
        ("a bulkhead", entered, t6),
        ("work", ran, t7),
        ("a load", got, t8),
    ]
}

async fn calls_come_back(stall: Stall) {
    let server = std::sync::Arc::new(Server::fresh());
    let client = client(&server).await;
    let kept = client
        .lock("kept", LockSettings::new().lease(ms(20_000)).grace(ms(20_000)))
        .unwrap()
        .try_acquire()
        .await
        .expect("free");
    let fence = kept.fence();
    let stalling = tokio::task::spawn_blocking({
        let server = std::sync::Arc::clone(&server);
        move || stall.begin(&server)
    });
    let stalling = stalling.await.expect("begun");
    let begun = Instant::now();
    for (what, code, took) in called_meanwhile(&client).await {
        println!("{stall:?}: {what}: {code:?} after {took:?}");
        // What is asked again because the reply may only have been lost takes as many timeouts as it asks.
        let bound = match what {
            "work" => 3 * COMMAND_TIMEOUT,
            "a load" | "50 of a batched breaker" => 2 * COMMAND_TIMEOUT,
            "a lock that waits 700 ms" => ms(700),
            _ => COMMAND_TIMEOUT,
        };
        assert!(matches!(code, Some(Code::BackendUnavailable | Code::LockTimeout)), "{what}: {code:?}");
        assert!(took < bound + SLACK, "{what}: {took:?}");
    }
    eventually("it is seen to be away", async || client.health().overall == Status::Unhealthy).await;
    assert!(begun.elapsed() < STALL, "before it is over: {:?}", begun.elapsed());
    let (refused, took) = timed("a lock", client.lock("a", LockSettings::new()).unwrap().try_acquire()).await;
    assert_eq!(refused.map(drop).expect_err("away").code(), Code::BackendUnavailable);
    assert!(took < ms(100), "once it is known nobody waits for it: {took:?}");
    stalling.join().expect("stalled");
    let took = becomes(&client, Status::Healthy).await;
    assert!(took < ms(1_500), "the same connection speaks again: {took:?}");
    assert!(kept.is_held() && kept.fence() == fence, "a stall shorter than the grace loses nothing");
    eventually("it is asked again", async || kept.check().await == Ok(true)).await;
    for name in ["a", "w"] {
        eventually("nothing is left behind", async || {
            client
                .lock(name, LockSettings::new())
                .unwrap()
                .info()
                .await
                .is_ok_and(|info| info.holders_total + info.waiters_total == 0)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_stopped_server_return_in_time() {
    calls_come_back(Stall::Signal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_sleeping_server_return_in_time() {
    calls_come_back(Stall::DebugSleep).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_total_timeout_is_honoured_whatever_is_waited_for_inside() {
    let server = std::sync::Arc::new(Server::fresh());
    let client = client(&server).await;
    let total = Timeout::total(ms(250)).expect("valid");
    let limiter = client.limiter("api", Limit::per_second(9).when_away(Away::Closed)).expect("valid");
    let work = client.idempotent("work", IdempotencySettings::new()).expect("valid");
    let policy = Policy::builder("whole")
        .timeout(TimeoutSettings { attempt: None, total: Some(ms(250)) })
        .retry(&RetrySettings::default())
        .limiter(limiter.clone())
        .build()
        .expect("valid");
    server.pause();
    let whole = policy.call(retry_all, || async { Ok::<_, String>(()) });
    let locks = total.call(async || client.lock("a", LockSettings::new()).unwrap().acquire().await.map(drop));
    let limits = total.call(async || limiter.check("a").await.map(drop));
    let works = total.call(async || work.run("k", b"", async |_| Ok::<_, String>("")).await.map(drop));
    let ((lock, t1), (limit, t2), (done, t3), (whole, t4)) = tokio::join!(
        timed("a lock", locks),
        timed("a limit", limits),
        timed("work", works),
        timed("a whole policy", whole)
    );
    server.resume();
    let codes = [
        lock.map_err(|failure| failure.code()),
        limit.map_err(|failure| failure.code()),
        done.map_err(|failure| failure.code()),
    ];
    assert_eq!(codes, [Err(Some(Code::Timeout)); 3]);
    assert_eq!(whole.map_err(|failure| failure.code()), Err(Some(Code::Timeout)));
    for took in [t1, t2, t3, t4] {
        assert!(took < ms(250) + SLACK, "{took:?}");
    }
    becomes(&client, Status::Healthy).await;
    eventually("what was given up is let go", async || {
        client
            .lock("a", LockSettings::new())
            .unwrap()
            .info()
            .await
            .is_ok_and(|info| info.holders_total + info.waiters_total == 0)
    })
    .await;
    // Nothing had begun, so nothing is in the way of the next.
    let outcome = timed("work", work.run("k", b"", async |_| Ok::<_, String>("done"))).await.0.expect("run");
    assert_eq!(outcome.value.as_deref(), Some(&b"done"[..]));
}
