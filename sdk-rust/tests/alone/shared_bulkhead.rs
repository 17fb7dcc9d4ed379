//! Shared bulkheads as a service uses them, on `memory://` and a clock that is driven.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use resil::clock::Clock;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Away, Client, Code, ConnectSettings, Error};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(clock: &Clock) -> Client {
    ConnectSettings::new("memory://").clock(clock.clone()).connect().await.expect("memory is there")
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn at_most_max_are_inside_and_leavers_make_room() {
    let client = client(&Clock::driven()).await;
    let reports = client.shared_bulkhead("reports", SharedBulkheadSettings::new(2)).unwrap();
    let (one, two) = (reports.enter().await.expect("room"), reports.enter().await.expect("room"));
    let full = reports.enter().await.map(drop).expect_err("full");
    assert_eq!(full.code(), Code::BulkheadFull);
    assert_eq!(full.retry_after(), Some(ms(1_000)), "soon, and not only when the first lease ends");
    drop(one);
    settle().await;
    let three = reports.enter().await.expect("room again");
    assert_eq!(reports.info().await.expect("info").holders_total, 2);
    two.leave().await.expect("left");
    three.leave().await.expect("left");
    assert_eq!(reports.info().await.expect("info").holders_total, 0);
}

#[tokio::test]
async fn a_permit_is_renewed_while_its_guard_lives() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let guard = client
        .shared_bulkhead("reports", SharedBulkheadSettings::new(1).lease(ms(900)))
        .unwrap()
        .enter()
        .await
        .expect("room");
    for _ in 0..50 {
        clock.advance(ms(100));
        settle().await;
        assert!(guard.is_held() && !guard.lost().is_cancelled());
    }
    guard.leave().await.expect("left");
}

#[tokio::test]
async fn long_waits_and_full_queues_are_refused() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let settings = SharedBulkheadSettings::new(1).max_queue(2).max_wait(ms(500));
    let reports = client.shared_bulkhead("reports", settings.clone()).unwrap();
    let _inside = reports.enter().await.expect("room");
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let reports = reports.clone();
            tokio::spawn(async move { reports.enter().await.map(drop) })
        })
        .collect();
    settle().await;
    assert_eq!(reports.enter().await.map(drop).expect_err("no position in the queue").code(), Code::BulkheadFull);
    clock.advance(ms(500));
    settle().await;
    for waiting in waiting {
        assert!(waiting.is_finished());
        assert_eq!(waiting.await.expect("no panic").expect_err("in vain").code(), Code::BulkheadFull);
    }
    let nobody_waits = client.shared_bulkhead("reports", settings.max_queue(0)).unwrap();
    assert!(nobody_waits.enter().await.is_err(), "at once, although it would wait");
}

#[tokio::test]
async fn priorities_are_served_in_their_order() {
    let client = client(&Clock::driven()).await;
    let settings = SharedBulkheadSettings::new(1).max_queue(100).max_wait(ms(60_000));
    let reports = client.shared_bulkhead("reports", settings.clone()).unwrap();
    let inside = reports.enter().await.expect("room");
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = [(9, "c"), (5, "b"), (0, "a")]
        .into_iter()
        .map(|(priority, name)| {
            let (reports, order) =
                (client.shared_bulkhead("reports", settings.clone().priority(priority)).unwrap(), Arc::clone(&order));
            tokio::spawn(async move {
                let guard = reports.enter().await.expect("room");
                order.lock().push(name);
                guard.leave().await.expect("left");
            })
        })
        .collect();
    settle().await;
    inside.leave().await.expect("left");
    settle().await;
    assert!(tasks.iter().all(tokio::task::JoinHandle::is_finished));
    assert_eq!(*order.lock(), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_function_runs_inside_and_leaves_in_every_case() {
    let client = client(&Clock::driven()).await;
    let reports = client.shared_bulkhead("reports", SharedBulkheadSettings::new(1)).unwrap();
    assert_eq!(reports.run(|| async { Ok::<_, Error>(3) }).await.expect("done"), 3);
    let failed = reports.run(|| async { Err::<(), _>("mine") }).await.expect_err("failed");
    assert_eq!(failed.into_inner(), Some("mine"));
    let panics = tokio::spawn({
        let reports = reports.clone();
        async move { reports.run(|| async { panic!("as a function may") as Result<(), Error> }).await }
    });
    settle().await;
    assert!(panics.is_finished() && panics.await.is_err());
    settle().await;
    assert_eq!(reports.info().await.expect("info").holders_total, 0);
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_name() {
    let client = client(&Clock::driven()).await;
    let cases = [
        ("maxConcurrentCalls", SharedBulkheadSettings::new(0)),
        ("priority", SharedBulkheadSettings::new(1).priority(10)),
        ("maxQueue", SharedBulkheadSettings::new(1).max_queue(u32::MAX)),
        ("lease", SharedBulkheadSettings::new(1).lease(ms(1))),
        ("whenAway", SharedBulkheadSettings::new(1).when_away(Away::Local)),
    ];
    for (name, settings) in cases {
        let refused = client.shared_bulkhead("reports", settings).map(drop).expect_err(name);
        assert!(matches!(&refused, Error::InvalidPolicy { field, .. } if field == name), "{refused:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_max_are_inside_and_all_are_served(max in 1u32..6, tasks in 1usize..40) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let clock = Clock::driven();
            let client = client(&clock).await;
            let reports = client.shared_bulkhead("reports", SharedBulkheadSettings::new(max).max_queue(1_000).max_wait(ms(60_000))).unwrap();
            let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let handles: Vec<_> = (0..tasks)
                .map(|_| {
                    let (reports, clock) = (reports.clone(), clock.clone());
                    let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
                    tokio::spawn(async move {
                        reports
                            .run(|| async {
                                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                                clock.sleep(ms(10)).await;
                                inside.fetch_sub(1, Ordering::SeqCst);
                                Ok::<_, Error>(())
                            })
                            .await
                            .expect("served");
                    })
                })
                .collect();
            for _ in 0..=tasks {
                settle().await;
                clock.advance(ms(10));
            }
            settle().await;
            assert!(handles.iter().all(tokio::task::JoinHandle::is_finished));
            for handle in handles {
                handle.await.expect("no panic");
            }
            assert_eq!(most.load(Ordering::SeqCst), (max as usize).min(tasks), "as many as fit, and no more");
        });
    }
}
