//! Work that occupies its thread for longer than its lease: it keeps what it holds, and nobody else does the work meanwhile.
//!
//! The caller's runtime has one thread, and the work blocks it: no task of that runtime gets a turn until the work is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::lock::LockSettings;
use resil::policy::{Policy, retry_all};
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Client, ConnectSettings};
use resil_harness::Server;
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_millis(600);
const WORK: Duration = Duration::from_millis(2_400);
/// When the second process comes: the first one works, and its lease has not ended yet.
const HEAD_START: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy)]
enum Threads {
    One,
    Pool,
}

impl Threads {
    fn runtime(self) -> Runtime {
        match self {
            Self::One => Builder::new_current_thread().enable_all().build(),
            Self::Pool => Builder::new_multi_thread().worker_threads(1).enable_all().build(),
        }
        .expect("a runtime")
    }
}

async fn client(url: &str) -> Client {
    ConnectSettings::new(url).connect().await.expect("a server that is there")
}

/// What the two processes do: it counts how often the work began, and whether two were ever at it at once.
#[derive(Default)]
struct Work {
    runs: AtomicU32,
    is_busy: AtomicBool,
    overlapped: AtomicBool,
}

impl Work {
    /// Blocks the thread, not the task.
    fn block(&self) {
        self.runs.fetch_add(1, SeqCst);
        self.overlapped.fetch_or(self.is_busy.swap(true, SeqCst), SeqCst);
        std::thread::sleep(WORK);
        self.is_busy.store(false, SeqCst);
    }
}

type Job = fn(Client, Arc<Work>) -> BoxFuture<'static, ()>;

/// Two processes do `job`, the second soon after the first, each with a runtime and a client of its own. How often the work ran.
fn runs_of_two(url: &str, threads: Threads, job: Job) -> u32 {
    let work = Arc::new(Work::default());
    std::thread::scope(|scope| {
        for delay in [Duration::ZERO, HEAD_START] {
            let work = Arc::clone(&work);
            scope.spawn(move || {
                std::thread::sleep(delay);
                let runtime = threads.runtime();
                let client = runtime.block_on(client(url));
                match threads {
                    Threads::One => runtime.block_on(job(client, work)),
                    // On the only worker, and not on the thread that waits for it.
                    Threads::Pool => runtime.block_on(runtime.spawn(job(client, work))).expect("no panic"),
                }
            });
        }
    });
    assert!(!work.overlapped.load(SeqCst), "two were at it at once");
    work.runs.load(SeqCst)
}

/// On a server with one thread, with a pool of one, and in memory.
fn everywhere(job: Job, wanted: u32) {
    let server = Server::fresh();
    let memory = "memory://blocked-thread";
    for (url, threads) in [(&*server.url(), Threads::One), (&*server.url(), Threads::Pool), (memory, Threads::One)] {
        let _: redis::Value = redis::cmd("FLUSHALL").query(&mut server.connect()).expect("flushed");
        assert_eq!(runs_of_two(url, threads, job), wanted, "{url} {threads:?}");
    }
}

#[test]
fn idempotent_work_that_blocks_its_thread_runs_once() {
    let job: Job = |client, work| {
        Box::pin(async move {
            let charge =
                client.idempotent("charge", IdempotencySettings::new().lease(LEASE).wait(PATIENCE)).expect("valid");
            let done = charge
                .run("1", b"", async |run| {
                    work.block();
                    assert!(!run.lost().is_cancelled(), "its lease was kept");
                    Ok::<_, String>("paid")
                })
                .await
                .expect("done");
            assert_eq!((done.value.as_deref(), done.recorded), (Some(&b"paid"[..]), true));
        })
    };
    everywhere(job, 1);
}

#[test]
fn a_load_that_blocks_its_thread_runs_once() {
    let job: Job = |client, work| {
        Box::pin(async move {
            let users = client.cached("user", CacheSettings::new().lease(LEASE).load_timeout(PATIENCE)).expect("valid");
            let loader = async move |_: String| {
                work.block();
                Ok::<_, String>(Some("Ada".into()))
            };
            let ada = users.get("42", loader).await.expect("loaded");
            assert_eq!(ada.into_value().as_deref(), Some(&b"Ada"[..]));
        })
    };
    everywhere(job, 1);
}

#[test]
fn a_holder_that_blocks_its_thread_keeps_its_lock() {
    let job: Job = |client, work| {
        Box::pin(async move {
            let guard = client
                .lock("orders", LockSettings::new().lease(LEASE).wait(PATIENCE))
                .unwrap()
                .acquire()
                .await
                .expect("its turn");
            work.block();
            assert!(guard.is_held(), "its lease was kept");
            guard.release().await.expect("released");
        })
    };
    everywhere(job, 2);
}

#[test]
fn a_holder_that_blocks_its_thread_keeps_its_permit() {
    let job: Job = |client, work| {
        Box::pin(async move {
            let bulkhead = client
                .shared_bulkhead("reports", SharedBulkheadSettings::new(1).lease(LEASE).max_queue(1).max_wait(PATIENCE))
                .unwrap();
            let guard = bulkhead.enter().await.expect("its turn");
            work.block();
            assert!(guard.is_held(), "its lease was kept");
            guard.leave().await.expect("left");
        })
    };
    everywhere(job, 2);
}

#[test]
fn a_whole_policy_keeps_its_permit_in_blocked_threads() {
    let job: Job = |client, work| {
        Box::pin(async move {
            let bulkhead = client
                .shared_bulkhead(
                    "whole reports",
                    SharedBulkheadSettings::new(1).lease(LEASE).max_queue(1).max_wait(PATIENCE),
                )
                .unwrap();
            let policy = Policy::builder("whole reports").shared_bulkhead(bulkhead).build().expect("valid");
            let call = || async {
                work.block();
                Ok::<_, String>(())
            };
            policy.call(retry_all, call).await.expect("done");
        })
    };
    everywhere(job, 2);
}

/// The lease cannot be renewed: the work is notified while it still blocks its thread.
#[test]
fn a_holder_that_blocks_its_thread_learns_its_loss() {
    let server = Server::fresh();
    Threads::One.runtime().block_on(async {
        let charge =
            client(&server.url()).await.idempotent("charge", IdempotencySettings::new().lease(LEASE)).expect("valid");
        let begun = Instant::now();
        let lost_after = charge
            .run("1", b"", async |run| {
                server.pause();
                while !run.lost().is_cancelled() && begun.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let took = begun.elapsed();
                server.resume();
                Err::<String, _>(took)
            })
            .await
            .expect_err("it says how long it took");
        let resil::Failure::Inner(took) = lost_after else { panic!("{lost_after:?}") };
        assert!(took <= LEASE, "its lease may not be trusted after {took:?}");
        assert!(took >= LEASE * 9 / 10, "{took:?} is too early");
    });
}
