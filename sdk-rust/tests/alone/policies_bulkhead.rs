//! The local bulkhead against a model, under random schedules, and from many threads.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use resil::clock::Clock;
use resil::policy::{BulkheadMetrics, BulkheadPermit, BulkheadSettings, LocalBulkhead, PartitionSettings};
use resil::{Code, Error, Failure};

use crate::drive::{drive, poll_now, seed};

const MAX_WAIT: Duration = Duration::from_millis(100);

fn bulkhead(max: u32, queue: u32, batch: (u32, u32), clock: &Clock) -> LocalBulkhead {
    let partition = PartitionSettings { max_concurrent_calls: batch.0, max_queue: batch.1 };
    let settings = BulkheadSettings {
        max_concurrent_calls: max,
        max_queue: queue,
        max_wait: MAX_WAIT,
        partitions: BTreeMap::from([("batch".to_owned(), partition)]),
        adaptive: None,
    };
    LocalBulkhead::from_settings("orders", &settings, clock.clone()).expect("valid")
}

/// What a compartment should look like.
#[derive(Debug, Default)]
struct Model {
    max: u32,
    queue: u32,
    metrics: BulkheadMetrics,
    waiting: VecDeque<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    InLine {
        until: Duration,
    },
    /// Given, but the caller was not notified yet.
    Given,
    Held,
    Gone,
}

type Entering = Pin<Box<dyn Future<Output = Result<BulkheadPermit, Error>>>>;

struct Caller {
    compartment: usize,
    place: Place,
    future: Option<Entering>,
    permit: Option<BulkheadPermit>,
}

#[derive(Debug, Clone)]
enum Step {
    Arrive(usize),
    Poll(usize),
    Drop(usize),
    Advance(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..2).prop_map(Step::Arrive),
        3 => (0usize..64).prop_map(Step::Poll),
        3 => (0usize..64).prop_map(Step::Drop),
        1 => (0u64..80).prop_map(Step::Advance),
    ]
}

impl Model {
    fn expected(&self) -> BulkheadMetrics {
        let queued = self.waiting.len() as u32;
        BulkheadMetrics { queued, available: self.max - self.metrics.active, ..self.metrics }
    }

    /// Somebody who had a place leaves; who has it now.
    fn leave(&mut self) -> Option<usize> {
        self.metrics.completed += 1;
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.metrics.active -= 1;
        }
        next
    }
}

proptest! {
    #![proptest_config(seed::config())]
    #[test]
    fn any_schedule_keeps_to_its_places_and_is_counted_exactly(
        sizes in ((1u32..4, 0u32..4), (1u32..4, 0u32..4)),
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        let clock = Clock::driven();
        let main = bulkhead(sizes.0.0, sizes.0.1, sizes.1, &clock);
        let handles = [main.clone(), main.partition("batch").expect("it is there")];
        let mut models = [sizes.0, sizes.1].map(|(max, queue)| Model { max, queue, ..Model::default() });
        let mut callers: Vec<Caller> = Vec::new();
        for step in steps {
            match step {
                Step::Arrive(compartment) => {
                    let (handle, id) = (handles[compartment].clone(), callers.len());
                    let mut future: Entering = Box::pin(async move { handle.acquire().await });
                    let model = &mut models[compartment];
                    let outcome = poll_now(future.as_mut());
                    let (place, permit) = if model.metrics.active < model.max {
                        model.metrics.active += 1;
                        match outcome {
                            Poll::Ready(Ok(permit)) => (Place::Held, Some(permit)),
                            other => return Err(TestCaseError::fail(format!("a place was free: {other:?}"))),
                        }
                    } else if model.waiting.len() < model.queue as usize {
                        prop_assert!(outcome.is_pending());
                        model.waiting.push_back(id);
                        (Place::InLine { until: clock.now() + MAX_WAIT }, None)
                    } else {
                        model.metrics.rejected += 1;
                        match outcome {
                            Poll::Ready(Err(error)) => prop_assert_eq!(error.code(), Code::BulkheadFull),
                            other => return Err(TestCaseError::fail(format!("it was full: {other:?}"))),
                        }
                        (Place::Gone, None)
                    };
                    let future = matches!(place, Place::InLine { .. }).then_some(future);
                    callers.push(Caller { compartment, place, future, permit });
                }
                Step::Poll(pick) => {
                    let waiting: Vec<usize> = (0..callers.len()).filter(|id| callers[*id].future.is_some()).collect();
                    let Some(id) = waiting.get(pick % waiting.len().max(1)).copied() else { continue };
                    let caller = &mut callers[id];
                    let outcome = poll_now(caller.future.as_mut().expect("waiting").as_mut());
                    match (caller.place, outcome) {
                        (Place::Given, Poll::Ready(Ok(permit))) => {
                            (caller.place, caller.permit, caller.future) = (Place::Held, Some(permit), None);
                        }
                        (Place::InLine { until }, Poll::Ready(Err(error))) if until <= clock.now() => {
                            prop_assert_eq!(error.code(), Code::BulkheadFull);
                            (caller.place, caller.future) = (Place::Gone, None);
                            let model = &mut models[caller.compartment];
                            model.metrics.rejected += 1;
                            model.waiting.retain(|other| *other != id);
                        }
                        (Place::InLine { until }, Poll::Pending) if until > clock.now() => {}
                        (place, outcome) => return Err(TestCaseError::fail(format!("{place:?} became {outcome:?}"))),
                    }
                }
                Step::Drop(pick) => {
                    let here: Vec<usize> = (0..callers.len()).filter(|id| callers[*id].place != Place::Gone).collect();
                    let Some(id) = here.get(pick % here.len().max(1)).copied() else { continue };
                    let caller = &mut callers[id];
                    (caller.future, caller.permit) = (None, None);
                    let place = std::mem::replace(&mut caller.place, Place::Gone);
                    let model = &mut models[caller.compartment];
                    if let Place::InLine { .. } = place {
                        model.metrics.abandoned += 1;
                        model.waiting.retain(|other| *other != id);
                    } else if let Some(next) = model.leave() {
                        callers[next].place = Place::Given;
                    }
                }
                Step::Advance(ms) => clock.advance(Duration::from_millis(ms)),
            }
            for (handle, model) in handles.iter().zip(&models) {
                let metrics = handle.metrics();
                prop_assert!(metrics.active <= model.max && metrics.queued <= model.queue);
                prop_assert_eq!(metrics, model.expected());
            }
        }
    }
}

/// Callers who come one after the other: of each whether it is inside, waits, or was refused. All of them are kept.
fn arrivals(handle: &LocalBulkhead, callers: usize) -> (Vec<BulkheadPermit>, Vec<Entering>, u32) {
    let (mut inside, mut waiting, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..callers {
        let handle = handle.clone();
        let mut future: Entering = Box::pin(async move { handle.acquire().await });
        match poll_now(future.as_mut()) {
            Poll::Ready(Ok(permit)) => inside.push(permit),
            Poll::Ready(Err(error)) => {
                assert_eq!(error.code(), Code::BulkheadFull);
                refused += 1;
            }
            Poll::Pending => waiting.push(future),
        }
    }
    (inside, waiting, refused)
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 15: with C places and a queue of Q never more than C + Q calls are active or queued, and every call beyond is refused with
    // BulkheadFull; counted by the callers, not by the bulkhead.
    #[test]
    fn never_more_than_places_and_queue_are_active_or_queued(
        places in 1u32..12, queue in 0u32..12, rounds in prop::collection::vec((0usize..40, 0usize..12), 1..6),
    ) {
        let main = bulkhead(places, queue, (1, 0), &Clock::driven());
        let (mut inside, mut waiting): (Vec<BulkheadPermit>, Vec<Entering>) = (Vec::new(), Vec::new());
        for (callers, leaving) in rounds {
            let free = (places + queue) as usize - inside.len() - waiting.len();
            let (entered, queued, refused) = arrivals(&main, callers);
            prop_assert_eq!(entered.len() + queued.len(), callers.min(free));
            prop_assert_eq!(refused as usize, callers.saturating_sub(free), "beyond C + Q everything is refused");
            inside.extend(entered);
            waiting.extend(queued);
            prop_assert!(inside.len() <= places as usize && waiting.len() <= queue as usize);
            inside.truncate(inside.len().saturating_sub(leaving));
            // Who waited longest is inside now.
            waiting.retain_mut(|future| match poll_now(future.as_mut()) {
                Poll::Ready(entered) => {
                    inside.push(entered.expect("a place was given"));
                    false
                }
                Poll::Pending => true,
            });
            prop_assert!(inside.len() <= places as usize && inside.len() + waiting.len() <= (places + queue) as usize);
        }
    }

    // Property 16: two partitions are limited independently: whatever one of them is exhausted by, the other admits, queues and refuses as
    // if it were alone.
    #[test]
    fn an_exhausted_partition_changes_nothing_for_another(
        main_size in (1u32..8, 0u32..8), batch_size in (1u32..8, 0u32..8), crowd in 0usize..40, callers in 0usize..20,
        main_first in any::<bool>(),
    ) {
        let shared = bulkhead(main_size.0, main_size.1, batch_size, &Clock::driven());
        let alone = bulkhead(main_size.0, main_size.1, batch_size, &Clock::driven());
        let of = |bulkhead: &LocalBulkhead, is_main: bool| {
            if is_main { bulkhead.clone() } else { bulkhead.partition("batch").expect("it is there") }
        };
        let (exhausted, other) = (of(&shared, main_first), of(&shared, !main_first));
        let size = if main_first { main_size } else { batch_size };
        let crowd = arrivals(&exhausted, crowd + (size.0 + size.1) as usize);
        prop_assert!(exhausted.try_acquire().is_err(), "it is full");
        let (beside, by_itself) = (arrivals(&other, callers), arrivals(&of(&alone, !main_first), callers));
        prop_assert_eq!(
            (beside.0.len(), beside.1.len(), beside.2),
            (by_itself.0.len(), by_itself.1.len(), by_itself.2)
        );
        prop_assert_eq!(other.metrics(), of(&alone, !main_first).metrics());
        drop(crowd);
    }

    // Property 17: the active, queued and rejected counts that are reported are those that the callers have seen.
    #[test]
    fn the_metrics_are_what_the_callers_have_seen(
        places in 1u32..8, queue in 0u32..8, callers in 0usize..40, leaving in 0usize..10, giving_up in 0usize..10,
    ) {
        let clock = Clock::driven();
        let main = bulkhead(places, queue, (1, 0), &clock);
        let (mut inside, mut waiting, refused) = arrivals(&main, callers);
        let seen = |active: usize, queued: usize, rejected: u32| (active as u32, queued as u32, u64::from(rejected));
        let shown = || { let metrics = main.metrics(); (metrics.active, metrics.queued, metrics.rejected) };
        prop_assert_eq!(shown(), seen(inside.len(), waiting.len(), refused));
        waiting.truncate(waiting.len().saturating_sub(giving_up));
        prop_assert_eq!(shown(), seen(inside.len(), waiting.len(), refused));
        inside.truncate(inside.len().saturating_sub(leaving));
        waiting.retain_mut(|future| match poll_now(future.as_mut()) {
            Poll::Ready(entered) => {
                inside.push(entered.expect("a place was given"));
                false
            }
            Poll::Pending => true,
        });
        prop_assert_eq!(shown(), seen(inside.len(), waiting.len(), refused));
        clock.advance(MAX_WAIT);
        let late = waiting.len() as u32;
        waiting.retain_mut(|future| poll_now(future.as_mut()).is_pending());
        prop_assert_eq!(shown(), seen(inside.len(), 0, refused + late), "who waited too long was rejected");
    }
}

#[test]
fn a_full_partition_takes_nothing_from_the_others() {
    let clock = Clock::driven();
    let main = bulkhead(1, 0, (1, 0), &clock);
    let batch = main.partition("batch").expect("it is there");
    let _held = batch.try_acquire().expect("a place");
    assert_eq!(batch.try_acquire().expect_err("full").to_string(), "the bulkhead orders/batch is full");
    let _other = main.try_acquire().expect("the main part has places of its own");
    let unknown = main.partition("nightly").expect_err("it has no such part");
    assert_eq!(unknown.to_string(), "the bulkhead orders has no partition \"nightly\"; it has: batch");
}

#[test]
fn a_permit_returns_when_its_call_fails_drops_or_panics() {
    let clock = Clock::driven();
    let bulkhead = bulkhead(1, 0, (1, 0), &clock);
    let failed = poll_now(pin!(bulkhead.call(|| ready(Err::<(), _>("down")))));
    assert_eq!(failed, Poll::Ready(Err(Failure::Inner("down"))));
    assert!(poll_now(pin!(bulkhead.call(std::future::pending::<Result<(), ()>>))).is_pending());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = poll_now(pin!(bulkhead.call(|| async { panic!("on purpose") as Result<(), ()> })));
    }));
    assert!(panicked.is_err());
    let metrics = bulkhead.metrics();
    assert_eq!((metrics.active, metrics.available, metrics.completed), (0, 1, 3));
}

#[test]
fn a_caller_that_waits_too_long_is_refused_then() {
    let clock = Clock::driven();
    let bulkhead = bulkhead(1, 1, (1, 0), &clock);
    let _held = bulkhead.try_acquire().expect("a place");
    let began = clock.now();
    let refused = drive(&clock, bulkhead.call(|| ready(Ok::<_, ()>(()))));
    assert_eq!(refused.expect_err("refused").code(), Some(Code::BulkheadFull));
    assert_eq!(clock.now() - began, MAX_WAIT);
    assert_eq!(bulkhead.metrics(), BulkheadMetrics { active: 1, rejected: 1, ..BulkheadMetrics::default() });
}

#[test]
fn the_last_task_that_polled_a_waiting_call_is_woken() {
    struct Woken(AtomicU32);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let clock = Clock::driven();
    let bulkhead = bulkhead(1, 1, (1, 0), &clock);
    let held = bulkhead.try_acquire().expect("a place");
    let mut waiting = pin!(bulkhead.acquire());
    assert!(poll_now(waiting.as_mut()).is_pending());
    let woken = Arc::new(Woken(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(poll_now(waiting).is_ready());
}

#[test]
fn without_waiting_there_is_no_queue() {
    let settings = BulkheadSettings {
        max_concurrent_calls: 1,
        max_queue: 5,
        max_wait: Duration::ZERO,
        ..BulkheadSettings::default()
    };
    let bulkhead = LocalBulkhead::from_settings("orders", &settings, Clock::driven()).expect("valid");
    let _held = bulkhead.try_acquire().expect("a place");
    assert!(poll_now(pin!(bulkhead.acquire())).is_ready());
}

/// Many tasks on many threads: some are cancelled, all are woken, nobody is lost, and the places are never exceeded.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_of_threads_never_exceeds_the_permits() {
    const PLACES: u32 = 3;
    const CALLS: u64 = 3_000;
    let settings = BulkheadSettings {
        max_concurrent_calls: PLACES,
        max_queue: 10_000,
        max_wait: Duration::from_secs(60),
        ..BulkheadSettings::default()
    };
    let bulkhead = LocalBulkhead::from_settings("crowd", &settings, Clock::system()).expect("valid");
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..CALLS)
        .map(|n| {
            let (bulkhead, inside, most) = (bulkhead.clone(), Arc::clone(&inside), Arc::clone(&most));
            tokio::spawn(async move {
                let call = bulkhead.call(|| async {
                    most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, SeqCst);
                    Ok::<_, ()>(())
                });
                if n % 5 == 0 {
                    // Leaves in the middle of the queue, or with a place on its way; not with one in use.
                    let mut call = pin!(bulkhead.acquire());
                    for _ in 0..n % 7 {
                        if std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    return 0;
                }
                call.await.expect("the queue is long enough");
                1
            })
        })
        .collect();
    let served = async {
        let mut served = 0;
        for task in tasks {
            served += task.await.expect("no panic");
        }
        served
    };
    let served: u64 = tokio::time::timeout(Duration::from_secs(50), served).await.expect("nobody is stuck");
    let metrics = bulkhead.metrics();
    assert_eq!(served, CALLS / 5 * 4);
    assert_eq!((metrics.active, metrics.queued, metrics.rejected, metrics.available), (0, 0, 0, PLACES));
    assert!(metrics.completed >= served && metrics.completed + metrics.abandoned <= CALLS);
    assert!(most.load(SeqCst) <= PLACES, "{most:?}");
}
