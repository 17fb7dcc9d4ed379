//! Promises for every network: random delays, losses, leases, cancellations. Proptest prints what it chose.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::faulty::{Fate, Lost};
use super::{Fleet, ms, pass, settle};
use crate::holding::ask::SLACK;
use crate::lock::Held;
use crate::lock::LockSettings;

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work);
}

/// What one task does: when it begins, how long it waits and holds, and when it is cancelled.
#[derive(Debug, Clone)]
struct Plan {
    client: usize,
    begins: Duration,
    wait: Duration,
    lease: Duration,
    holds: Duration,
    cancelled_after: Option<Duration>,
}

fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn plan(lease: std::ops::Range<u64>) -> impl Strategy<Value = Plan> {
    (0..2usize, millis(0..2_000), millis(0..1_500), millis(lease), millis(0..600), prop::option::of(millis(0..1_500)))
        .prop_map(|(client, begins, wait, lease, holds, cancelled_after)| Plan {
            client,
            begins,
            wait,
            lease,
            holds,
            cancelled_after,
        })
}

fn fate(losses: u32) -> impl Strategy<Value = Fate> {
    let lost = prop_oneof![
        100 - losses => Just(Lost::Nothing),
        losses => prop_oneof![Just(Lost::Request), Just(Lost::Reply), Just(Lost::Hangs)],
    ];
    (millis(0..60), millis(0..60), lost).prop_map(|(there, back, lost)| Fate { there, back, lost })
}

fn in_turn(fates: Vec<Fate>) -> super::faulty::Fates {
    let mut next = fates.into_iter().cycle();
    Box::new(move |_| next.next().unwrap_or_default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn never_two_believe_that_they_hold_it(
        plans in prop::collection::vec(plan(40..1_200), 2..9),
        fates in (prop::collection::vec(fate(25), 5..40), prop::collection::vec(fate(25), 5..40)),
    ) {
        run(async move {
            let fleet = Fleet::new();
            let clients = [fleet.client(in_turn(fates.0)).0, fleet.client(in_turn(fates.1)).0];
            let believers: Arc<Mutex<Vec<Held>>> = Arc::default();
            let mut tasks = Vec::new();
            for plan in plans {
                let (client, clock) = (clients[plan.client].clone(), fleet.clock.clone());
                let believers = Arc::clone(&believers);
                tasks.push(tokio::spawn(async move {
                    clock.sleep(plan.begins).await;
                    let lock = client.lock("orders", LockSettings::new().lease(plan.lease).unbound()).unwrap();
                    if let Ok(guard) = lock.acquire_within(plan.wait).await {
                        believers.lock().push(guard.held());
                        clock.sleep(plan.holds).await;
                        drop(guard);
                    }
                }));
            }
            for _ in 0..2_500 {
                fleet.clock.advance(ms(2));
                for _ in 0..12 {
                    tokio::task::yield_now().await;
                    let mut believers = believers.lock();
                    believers.retain(Held::is_held);
                    assert!(believers.len() <= 1, "{:?}", believers.iter().map(Held::owner).collect::<Vec<_>>());
                }
            }
            for task in tasks {
                assert!(task.is_finished(), "nobody waits for ever");
                task.await.expect("no panic");
            }
        });
    }

    #[test]
    fn no_wait_outlives_its_time_on_any_network(
        plans in prop::collection::vec(plan(40..5_000), 2..9),
        fates in prop::collection::vec(fate(30), 5..40),
    ) {
        run(async move {
            let fleet = Fleet::new();
            let (client, _) = fleet.client(in_turn(fates));
            let mut tasks = Vec::new();
            for plan in plans {
                let (client, clock) = (client.clone(), fleet.clock.clone());
                tasks.push(tokio::spawn(async move {
                    clock.sleep(plan.begins).await;
                    // Asked once is bounded by the backend; here it is the queue that counts.
                    let wait = plan.wait.max(ms(1));
                    let begun = clock.now();
                    let acquired = client.lock("orders", LockSettings::new().lease(plan.lease)).unwrap().acquire_within(wait).await;
                    let took = clock.now() - begun;
                    assert!(took <= wait + SLACK + ms(2), "{took:?} for {wait:?}, and then {acquired:?}");
                    clock.sleep(plan.holds).await;
                }));
            }
            for _ in 0..3_500 {
                fleet.clock.advance(ms(2));
                for _ in 0..12 {
                    tokio::task::yield_now().await;
                }
            }
            for task in tasks {
                assert!(task.is_finished(), "nobody waits for ever");
                task.await.expect("reported in time");
            }
        });
    }

    #[test]
    fn a_dropped_caller_leaves_no_holder_and_no_waiter(
        plans in prop::collection::vec(plan(3_600_000..3_600_001), 2..9),
        fates in (prop::collection::vec(fate(0), 5..40), prop::collection::vec(fate(15), 5..40)),
    ) {
        run(async move {
            let fleet = Fleet::new();
            let (good, bad) = (fleet.client(in_turn(fates.0)), fleet.client(in_turn(fates.1)));
            let clients = [good.0.clone(), bad.0.clone()];
            let mut tasks = Vec::new();
            for plan in plans {
                let (client, clock) = (clients[plan.client].clone(), fleet.clock.clone());
                let task = async move {
                    clock.sleep(plan.begins).await;
                    let lock = client.lock("orders", LockSettings::new().lease(plan.lease)).unwrap();
                    let Ok(guard) = lock.acquire_within(plan.wait).await else { return };
                    clock.sleep(plan.holds).await;
                    let _ = guard.release().await;
                };
                let clock = fleet.clock.clone();
                tasks.push(tokio::spawn(async move {
                    let patience = plan.cancelled_after.map_or(Duration::from_secs(60), |after| plan.begins + after);
                    tokio::select! {
                        () = task => {}
                        () = clock.sleep(patience) => {}
                    }
                }));
            }
            // Leases are an hour long: what is free after some seconds was let go, and did not lapse.
            for _ in 0..2_000 {
                fleet.clock.advance(ms(5));
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            }
            bad.1.set_fates(Box::new(|_| Fate::default()));
            pass(&fleet.clock, ms(5_000)).await;
            for task in tasks {
                assert!(task.is_finished(), "nobody waits for ever");
            }
            settle().await;
            let (reader, _) = fleet.good_client();
            let info = reader.lock("orders", LockSettings::new()).unwrap().info().await.expect("info");
            assert_eq!((info.holders_total, info.waiters_total), (0, 0), "{info:?}");
            assert!(good.0.inner().holdings.queues.is_empty() && bad.0.inner().holdings.queues.is_empty());
            assert_eq!(good.0.inner().holdings.held() + bad.0.inner().holdings.held(), 0);
        });
    }
}
