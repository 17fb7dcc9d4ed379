//! A server behind a network that is slow, hangs, or loses things.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::faulty::{Fate, Lost};
use super::{Fleet, finish, is, ms, pass, settle};
use crate::backend::Reach;
use crate::error::{Code, Error, Failure};
use crate::lock::LockSettings;

#[tokio::test]
async fn the_lease_counts_from_the_question_not_the_reply() {
    let fleet = Fleet::new();
    let slow = |_: &[Vec<u8>]| Fate { there: ms(300), back: ms(400), lost: Lost::Nothing };
    let (client, _) = fleet.client(Box::new(slow));
    let sent = fleet.clock.now();
    let acquiring =
        tokio::spawn(async move { client.lock("orders", LockSettings::new().unbound()).unwrap().try_acquire().await });
    let guard = finish(&fleet.clock, acquiring, ms(800)).await.expect("granted");
    assert!(fleet.clock.now() - sent >= ms(700));
    assert_eq!(guard.deadline(), sent + ms(10_000 - 102));
}

#[tokio::test]
async fn what_the_server_waited_is_added() {
    let fleet = Fleet::new();
    let (client, _) = fleet.good_client();
    let (other, _) = fleet.good_client();
    let first = other.lock("orders", LockSettings::new().unbound()).unwrap().try_acquire().await.expect("granted");
    let acquiring =
        tokio::spawn(async move { client.lock("orders", LockSettings::new().unbound()).unwrap().acquire().await });
    pass(&fleet.clock, ms(2_500)).await;
    first.release().await.expect("released");
    let guard = finish(&fleet.clock, acquiring, ms(0)).await.expect("granted");
    let early = fleet.clock.now() + ms(10_000 - 102) - guard.deadline();
    assert!(early < ms(1), "what the server waited is reported in whole milliseconds, rounded down: {early:?}");
}

#[tokio::test]
async fn the_token_fires_by_the_deadline_although_the_network_hangs() {
    let fleet = Fleet::new();
    let (client, faulty) = fleet.good_client();
    let guard =
        client.lock("orders", LockSettings::new().lease(ms(3_000))).unwrap().try_acquire().await.expect("granted");
    faulty.set_fates(Box::new(|_| Fate { lost: Lost::Hangs, ..Fate::default() }));
    let deadline = guard.deadline();
    while fleet.clock.now() < deadline - ms(1) {
        assert!(guard.is_held());
        pass(&fleet.clock, ms(1)).await;
        // Renewals that hang did arrive at the server, but nobody here can know.
        assert_eq!(guard.deadline(), deadline);
    }
    assert!(guard.lost().is_cancelled());
    fleet.clock.advance(ms(1));
    assert!(!guard.is_held());
}

#[tokio::test]
async fn a_grant_that_arrives_old_is_renewed_first() {
    let fleet = Fleet::new();
    let slow = |words: &[Vec<u8>]| {
        let back = if is(words, "ACQUIRE") { ms(600) } else { ms(1) };
        Fate { back, ..Fate::default() }
    };
    let (client, faulty) = fleet.client(Box::new(slow));
    let acquiring = tokio::spawn(async move {
        client.lock("orders", LockSettings::new().lease(ms(1_000))).unwrap().try_acquire().await
    });
    let guard = finish(&fleet.clock, acquiring, ms(700)).await.expect("granted");
    assert!(guard.remaining() > ms(900), "{:?}", guard.remaining());
    assert!(faulty.asked.lock().iter().any(|words| is(words, "RENEW")));
}

#[tokio::test]
async fn a_new_connection_is_bound_at_once() {
    let fleet = Fleet::new();
    let (client, faulty) = fleet.good_client();
    let _guard = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("granted");
    settle().await;
    let before = faulty.asked.lock().len();
    faulty.reach.send_replace(Reach::Away);
    faulty.reach.send_replace(Reach::Here);
    settle().await;
    let asked = faulty.asked.lock();
    assert!(asked[before..].iter().any(|words| is(words, "RENEW") && words.contains(&b"BOUND".to_vec())));
}

#[tokio::test]
async fn a_thousand_tasks_need_one_waiting_connection() {
    let fleet = Fleet::new();
    let (client, faulty) = fleet.good_client();
    let first = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("granted");
    let (order, inside) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for number in 0..1_000 {
        let (client, order, inside) = (client.clone(), Arc::clone(&order), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            let guard =
                client.lock("orders", LockSettings::new().wait(ms(60_000))).unwrap().acquire().await.expect("granted");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
            order.lock().push(number);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.expect("released");
        }));
    }
    settle().await;
    let info = client.lock("orders", LockSettings::new()).unwrap().info().await.expect("info");
    assert_eq!(info.waiters_total, 1, "one stands for all of them");
    first.release().await.expect("released");
    for task in tasks {
        finish(&fleet.clock, task, ms(10)).await;
    }
    assert_eq!(*order.lock(), (0..1_000).collect::<Vec<_>>());
    assert_eq!(faulty.waits.1.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_next_waits_in_the_server_after_each_grant() {
    let fleet = Fleet::new();
    let (client, _) = fleet.good_client();
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let _held = lock.try_acquire().await.expect("granted");
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    settle().await;
    assert_eq!(lock.info().await.expect("info").waiters_total, 1, "while the first one still holds it");
    waiting.abort();
    settle().await;
    assert_eq!(lock.info().await.expect("info").waiters_total, 0, "who is cancelled leaves at once");
}

#[tokio::test]
async fn a_caller_that_never_comes_first_is_notified_in_time() {
    let fleet = Fleet::new();
    let (client, _) = fleet.good_client();
    let lock = client.lock("orders", LockSettings::new().wait(ms(60_000))).unwrap();
    let _held = lock.try_acquire().await.expect("granted");
    let _head = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    settle().await;
    let begun = fleet.clock.now();
    let second = tokio::spawn(async move { lock.acquire_within(ms(700)).await.map(drop) });
    let reported = finish(&fleet.clock, second, ms(701)).await.expect_err("its time was over");
    assert!(fleet.clock.now() - begun >= ms(700));
    assert!(matches!(reported, Error::LockTimeout { waited, .. } if waited == ms(700)), "{reported:?}");
}

#[tokio::test]
async fn a_wait_on_a_hanging_network_ends_in_time() {
    let fleet = Fleet::new();
    let (other, _) = fleet.good_client();
    let _held = other.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("granted");
    let hangs = |words: &[Vec<u8>]| {
        let waits = words.iter().any(|word| word == b"WAIT");
        Fate { lost: if waits { Lost::Hangs } else { Lost::Nothing }, ..Fate::default() }
    };
    let (client, _) = fleet.client(Box::new(hangs));
    let waiting = tokio::spawn(async move {
        client.lock("orders", LockSettings::new()).unwrap().acquire_within(ms(900)).await.map(drop)
    });
    let reported = finish(&fleet.clock, waiting, ms(952)).await.expect_err("in vain");
    assert_eq!(reported.code(), Code::LockTimeout);
}

#[tokio::test]
async fn a_lost_locks_function_is_dropped_and_the_lock_released() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let fleet = Fleet::new();
    let (client, _) = fleet.good_client();
    let lock = client.lock("orders", LockSettings::new().lease(ms(900))).unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    let working = tokio::spawn({
        let (lock, dropped) = (lock.clone(), Dropped(Arc::clone(&dropped)));
        async move {
            lock.with_lock(|_held| async move {
                let _dropped = dropped;
                std::future::pending::<Result<(), Error>>().await
            })
            .await
        }
    });
    settle().await;
    assert_eq!(lock.break_lock("operator", "stuck").await, Ok(1));
    let failed = finish(&fleet.clock, working, ms(302)).await.expect_err("lost");
    assert!(matches!(failed, Failure::Resil(Error::LockLost { reason: "broken", .. })), "{failed}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);

    let panics = tokio::spawn({
        let lock = lock.clone();
        async move { lock.with_lock(|_held| async { panic!("as a function may") as Result<(), Error> }).await }
    });
    settle().await;
    assert!(panics.is_finished() && panics.await.is_err());
    settle().await;
    assert_eq!(lock.info().await.expect("info").holders_total, 0);
}
