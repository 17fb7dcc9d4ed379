//! Locks as a service uses them, on `memory://` and a clock that is driven.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use resil::clock::Clock;
use resil::lock::LockSettings;
use resil::lock::{Mode, Released};
use resil::{Away, Client, Code, ConnectSettings, Error, Failure};

use crate::one_lock;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(clock: &Clock) -> Client {
    ConnectSettings::new("memory://").name("service").clock(clock.clone()).connect().await.expect("memory is there")
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn one_holds_it_and_a_dropped_guard_releases() {
    let client = client(&Clock::driven()).await;
    let lock = client.lock("orders", LockSettings::new().meta("nightly run")).unwrap();
    let guard = lock.try_acquire().await.expect("free");
    assert_eq!(lock.try_acquire().await.map(drop).expect_err("taken").code(), Code::LockTimeout);

    let info = lock.info().await.expect("info");
    assert_eq!((info.exists, info.holders_total, info.last_fence), (true, 1, guard.fence().expect("a fence")));
    assert_eq!(info.holders[0].meta.as_deref(), Some("nightly run"));
    assert_eq!((info.holders[0].mode, &info.holders[0].owner), (Mode::Exclusive, &guard.held().owner()));
    assert_eq!(lock.check(&info.holders[0].owner, guard.fence()).await, Ok(true));
    assert_eq!(lock.check(&info.holders[0].owner, Some(1)).await, Ok(false), "another fence");
    assert_eq!(guard.check().await, Ok(true));

    let first = guard.fence();
    drop(guard);
    settle().await;
    let second = lock.try_acquire().await.expect("free again");
    assert!(second.fence() > first, "fences grow");
    assert_eq!(second.release().await, Ok(Released::Freed { held: Duration::ZERO }));
    assert_eq!(lock.info().await.expect("info").holders_total, 0);
}

/// The task that renews has a thread of its own and is slower than the next line, mostly: so often that one of them would fail.
#[tokio::test]
async fn a_caller_stopped_beyond_the_deadline_learns_it_first() {
    use futures_util::FutureExt;

    for _ in 0..200 {
        let clock = Clock::driven();
        let guard = client(&clock)
            .await
            .lock("orders", LockSettings::new().lease(ms(1_000)))
            .unwrap()
            .acquire()
            .await
            .expect("free");
        let held = guard.held();
        assert_eq!((held.loss(), held.until_lost().now_or_never()), (None, None));
        clock.advance(ms(1_000));
        assert_eq!(held.until_lost().now_or_never(), Some(()), "by the clock of this moment");
        assert_eq!(held.loss().map(|error| error.code()), Some(Code::LockLost));
    }
    let clock = Clock::driven();
    let guard = client(&clock)
        .await
        .lock("orders", LockSettings::new().lease(ms(1_000)))
        .unwrap()
        .acquire()
        .await
        .expect("free");
    let held = guard.held();
    guard.release().await.expect("released");
    clock.advance(ms(2_000));
    assert_eq!((held.loss(), held.is_held()), (None, false), "what was released is not lost");
}

#[tokio::test]
async fn readers_share_and_one_upgrading_inside_learns_its_deadlock() {
    let client = client(&Clock::driven()).await;
    let (reader, writer) = (
        client.lock("orders", LockSettings::new().shared()).unwrap(),
        client.lock("orders", LockSettings::new()).unwrap(),
    );
    let (one, _two) = (reader.try_acquire().await.expect("free"), reader.try_acquire().await.expect("shared"));
    assert!(writer.try_acquire().await.is_err());
    let inside = one.reentrant(writer.try_acquire()).await.map(drop);
    assert_eq!(inside, Err(Error::Deadlock { name: "orders".into() }));
    assert!(one.is_held());
}

#[tokio::test]
async fn a_lock_outlives_its_lease_with_its_guard() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let guard = client.lock("orders", LockSettings::new().lease(ms(900))).unwrap().try_acquire().await.expect("free");
    for _ in 0..100 {
        clock.advance(ms(100));
        settle().await;
        assert!(guard.is_held() && guard.remaining() > ms(500));
    }
    assert_eq!(guard.check().await, Ok(true));
}

#[tokio::test]
async fn the_same_task_reenters_freely_and_the_outermost_releases() {
    let client = client(&Clock::driven()).await;
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let done: Result<(), Failure<Error>> = lock
        .with_lock(|held| {
            let lock = lock.clone();
            async move {
                let inner = lock.try_acquire().await?;
                assert_eq!(inner.fence(), held.fence());
                let deeper: u32 = lock.with_lock(|_| async { Ok::<_, Error>(7) }).await.expect("re-entered");
                assert_eq!(deeper, 7);
                assert_eq!(inner.release().await?, Released::StillHeld);
                assert!(held.is_held());
                // A spawned task is another one.
                let other = tokio::spawn({
                    let lock = lock.clone();
                    async move { lock.try_acquire().await.map(drop) }
                });
                assert!(other.await.expect("no panic").is_err());
                assert_eq!(lock.info().await?.holders_total, 1);
                Ok(())
            }
        })
        .await;
    done.expect("done");
    assert_eq!(lock.info().await.expect("info").holders_total, 0, "released at the outermost");
    drop(lock.try_acquire().await.expect("and free"));
}

#[tokio::test]
async fn two_branches_of_a_task_hold_separate_locks() {
    let client = client(&Clock::driven()).await;
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let inside = AtomicUsize::new(0);
    let work = || {
        lock.with_lock(|_| async {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
            settle().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Error>(())
        })
    };
    let (one, two) = tokio::join!(work(), work());
    one.and(two).expect("one after the other");
}

#[tokio::test]
async fn a_function_may_run_on_after_losing_its_lock() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let lock = client.lock("orders", LockSettings::new().lease(ms(900)).keep_running_when_lost()).unwrap();
    let working = tokio::spawn({
        let lock = lock.clone();
        async move {
            lock.with_lock(|held| async move {
                held.lost().cancelled().await;
                assert!(held.ensure().is_err());
                Ok::<_, Error>("tidied up")
            })
            .await
        }
    });
    settle().await;
    assert_eq!(lock.break_lock("operator", "").await, Ok(1));
    clock.advance(ms(300));
    settle().await;
    assert!(working.is_finished());
    assert_eq!(working.await.expect("no panic").expect("its own result"), "tidied up");
}

#[tokio::test]
async fn a_functions_errors_are_its_own_and_release_the_lock() {
    let client = client(&Clock::driven()).await;
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let failed = lock.with_lock(|_| async { Err::<(), _>("mine") }).await.expect_err("it failed");
    assert_eq!(failed.into_inner(), Some("mine"));
    assert_eq!(lock.info().await.expect("info").holders_total, 0);
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_name() {
    let client = client(&Clock::driven()).await;
    let (new, long) = (LockSettings::new, "x".repeat(513));
    let cases = [
        ("lease", new().lease(ms(9))),
        ("lease", new().lease(Duration::from_secs(31 * 86_400))),
        ("meta", new().meta(&long)),
        ("meta", new().meta("")),
        ("replicas", new().replicas(1)),
        ("whenAway", new().when_away(Away::Local)),
    ];
    assert!(client.lock("", new()).is_err());
    for (name, settings) in cases {
        let refused = client.lock("orders", settings).map(drop).expect_err(name);
        assert!(matches!(&refused, Error::InvalidPolicy { field, .. } if field == name), "{refused:?}");
    }
}

#[tokio::test]
async fn several_locks_are_acquired_in_the_order_of_their_keys() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let both = client.locks(["b", "a"], LockSettings::new()).unwrap();
    assert_eq!(both.names(), ["a", "b"]);
    let taken = client.lock("a", LockSettings::new()).unwrap().try_acquire().await.expect("free");
    let waits = tokio::spawn({
        let both = both.clone();
        async move { both.acquire().await }
    });
    settle().await;
    let second = client.lock("b", LockSettings::new()).unwrap();
    second.try_acquire().await.expect("nobody has it who waits for the one before it").release().await.unwrap();
    taken.release().await.expect("released");
    let held = waits.await.expect("no panic").expect("free");
    assert!(held.guards()[0].fence() < held.guards()[1].fence());
    held.release().await.expect("released");
}

#[tokio::test]
async fn several_locks_are_refused_if_one_is_lost_meanwhile() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let single = |name: &str| client.lock(name, LockSettings::new()).unwrap();
    let taken = single("b").try_acquire().await.expect("free");
    let both = client.locks(["a", "b"], LockSettings::new()).unwrap();
    let waits = tokio::spawn(async move { both.acquire().await.map(drop) });
    settle().await;
    assert_eq!(single("a").break_lock("ann", "stuck").await.expect("broken"), 1);
    settle().await;
    taken.release().await.expect("released");
    assert_eq!(waits.await.expect("no panic").expect_err("one is lost").code(), Code::LockLost);
    assert!(single("b").try_acquire().await.is_ok(), "the other was released");
}

#[tokio::test]
async fn several_locks_are_all_released_whatever_comes_of_one() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let single = |name: &str| client.lock(name, LockSettings::new()).unwrap();
    let all = client.locks(["a", "b", "c"], LockSettings::new()).unwrap().acquire().await.expect("free");
    single("b").break_lock("ann", "stuck").await.expect("broken");
    assert_eq!(all.release().await.expect_err("one was lost").code(), Code::LockLost);
    for name in ["a", "c"] {
        assert!(single(name).try_acquire().await.is_ok(), "{name} is free");
    }
}

#[tokio::test]
async fn one_time_limit_is_for_several_locks_together() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let taken = |name: &str| client.lock(name, LockSettings::new()).unwrap();
    let (first, second) =
        (taken("a").try_acquire().await.expect("free"), taken("b").try_acquire().await.expect("free"));
    let both = client.locks(["b", "a"], LockSettings::new().wait(ms(200))).unwrap();
    let waits = tokio::spawn(async move { both.acquire().await.map(drop) });
    settle().await;
    clock.advance(ms(150));
    first.release().await.expect("released");
    settle().await;
    clock.advance(ms(50));
    settle().await;
    assert!(waits.is_finished(), "its time is over");
    assert_eq!(waits.await.expect("no panic").expect_err("in vain").code(), Code::LockTimeout);
    assert!(taken("a").try_acquire().await.is_ok(), "the first one was released");
    drop(second);
}

#[tokio::test]
async fn a_waiter_gets_a_free_lock_or_its_timeout() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let guard = lock.try_acquire().await.expect("free");
    let short = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_within(ms(100)).await.map(drop) }
    });
    let ever = tokio::spawn({
        let lock = lock.clone();
        async move { lock.until_acquired().await }
    });
    settle().await;
    clock.advance(ms(100));
    settle().await;
    assert!(short.is_finished() && !ever.is_finished());
    let reported = short.await.expect("no panic").expect_err("in vain");
    assert!(
        matches!(reported, Error::LockTimeout { waited, retry_after: Some(_), .. } if waited == ms(100)),
        "{reported:?}"
    );
    clock.advance(ms(900));
    guard.release().await.expect("released");
    settle().await;
    assert!(ever.is_finished());
    assert!(ever.await.expect("no panic").expect("granted").is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tasks_on_one_lock_are_all_served() {
    let client = resil::connect("memory://").await.expect("memory is there");
    let lock = client.lock("orders", LockSettings::new().wait(Duration::from_secs(120))).unwrap();
    let first = lock.try_acquire().await.expect("free");
    let (mut tasks, served) = one_lock::wanted_by_all(&lock);
    first.release().await.expect("released");
    let all = async { while tasks.join_next().await.transpose().expect("no panic").is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("within a minute");
    assert_eq!(served.load(Ordering::SeqCst), one_lock::TASKS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A caller that comes first is served first, those who leave left out.
    #[test]
    fn within_a_process_it_is_first_come_first_served(leaves in prop::collection::vec(any::<bool>(), 2..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let client = client(&Clock::driven()).await;
            let lock = client.lock("orders", LockSettings::new()).unwrap();
            let first = lock.try_acquire().await.expect("free");
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for number in 0..leaves.len() {
                let (lock, order) = (lock.clone(), Arc::clone(&order));
                tasks.push(tokio::spawn(async move {
                    let guard = lock.acquire().await.expect("granted");
                    order.lock().push(number);
                    guard.release().await.expect("released");
                }));
                settle().await;
            }
            for (task, _) in tasks.iter().zip(&leaves).filter(|(_, leaves)| **leaves) {
                task.abort();
            }
            settle().await;
            first.release().await.expect("released");
            for _ in 0..leaves.len() {
                settle().await;
            }
            assert!(tasks.iter().all(tokio::task::JoinHandle::is_finished));
            let stayed: Vec<usize> = (0..leaves.len()).filter(|number| !leaves[*number]).collect();
            assert_eq!(*order.lock(), stayed);
            let info = lock.info().await.expect("info");
            assert_eq!((info.holders_total, info.waiters_total), (0, 0));
        });
    }
}

/// On a server the message of a loss says so; nothing has to be renewed for it.
#[tokio::test]
async fn a_broken_lock_in_memory_is_reported_at_once() {
    let clock = Clock::driven();
    let connect = async || ConnectSettings::new("memory://broken").clock(clock.clone()).connect().await.unwrap();
    let (holder, operator) = (connect().await, connect().await);
    let settings = || LockSettings::new().lease(Duration::from_secs(60));
    let guard = holder.lock("stock", settings()).unwrap().acquire().await.expect("free");
    let lost = guard.held().lost();
    assert_eq!(operator.lock("stock", settings()).unwrap().break_lock("ann", "stuck").await, Ok(1));
    assert!(lost.is_cancelled(), "by no renewal: the clock stands still");
    assert!(!guard.held().is_held());
    let error = guard.release().await.expect_err("lost");
    assert!(matches!(&error, Error::LockLost { reason: "broken", .. }), "{error:?}");

    // What its owner lets go of is no loss, and another's is not one's own.
    let mine = holder.lock("stock", settings()).unwrap().acquire().await.expect("free");
    let (other, lost) = (operator.lock("till", settings()).unwrap().acquire().await.expect("free"), mine.held().lost());
    other.release().await.expect("held");
    mine.release().await.expect("held");
    assert!(!lost.is_cancelled());
}
