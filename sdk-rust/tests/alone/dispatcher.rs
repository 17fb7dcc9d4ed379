//! Every item once, a few at a time, and none of them takes another down.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use proptest::prelude::*;
use resil::dispatcher::DispatcherSettings;
use resil::dispatcher::{Dispatcher, ItemError, ItemResult, OnError};
use resil::{Error, Failure};
use tokio::sync::{Barrier, Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(20);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, future).await.expect("it ends") })
}

/// What an item does.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Return,
    Fail,
    Panic,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![5 => Just(Fate::Return), 1 => Just(Fate::Fail), 1 => Just(Fate::Panic)]
}

/// How many are running, and how many were at most; how often each was begun.
#[derive(Debug)]
struct Watch {
    running: AtomicUsize,
    most: AtomicUsize,
    begun: Vec<AtomicUsize>,
}

impl Watch {
    fn new(items: usize) -> Arc<Self> {
        let begun = (0..items).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { running: AtomicUsize::new(0), most: AtomicUsize::new(0), begun })
    }

    fn enter(self: &Arc<Self>, index: usize) -> Inside {
        self.begun[index].fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Inside(Arc::clone(self))
    }

    fn begun(&self) -> Vec<usize> {
        self.begun.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

struct Inside(Arc<Watch>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The work of an item: some steps, then its fate.
fn work(watch: &Arc<Watch>) -> impl Fn((usize, u8, Fate)) -> Work + Send + Sync + 'static {
    let watch = Arc::clone(watch);
    move |(index, steps, fate)| {
        let inside = watch.enter(index);
        Box::pin(async move {
            let _inside = inside;
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            match fate {
                Fate::Return => Ok(index),
                Fate::Fail => Err(index),
                Fate::Panic => panic!("item {index}"),
            }
        })
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<usize, usize>> + Send>>;

fn expected(index: usize, fate: Fate) -> ItemResult<usize, usize> {
    match fate {
        Fate::Return => Ok(index),
        Fate::Fail => Err(ItemError::Failed(index)),
        Fate::Panic => Err(ItemError::Crashed(format!("item {index}"))),
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Run,
    Unordered,
    Local,
    Stream,
    StreamUnordered,
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![Just(Way::Run), Just(Way::Unordered), Just(Way::Local), Just(Way::Stream), Just(Way::StreamUnordered)]
}

impl Way {
    /// The results, in the order of the items if the way keeps it, sorted if it does not.
    async fn go(
        self,
        dispatcher: &Dispatcher,
        items: Vec<(usize, u8, Fate)>,
        watch: &Arc<Watch>,
    ) -> Vec<ItemResult<usize, usize>> {
        let work = work(watch);
        match self {
            Self::Run => dispatcher.run(items, work).await,
            Self::Local => dispatcher.run_local(items, work).await,
            Self::Stream => dispatcher.stream(stream::iter(items), work).collect().await,
            Self::Unordered => {
                let mut results = dispatcher.run_unordered(items, work).await;
                results.sort_by_key(|(index, _)| *index);
                results.into_iter().map(|(_, result)| result).collect()
            }
            Self::StreamUnordered => {
                let mut results: Vec<_> = dispatcher.stream_unordered(stream::iter(items), work).collect().await;
                results.sort_by_key(number);
                results
            }
        }
    }
}

/// Every fate tells the number of its item.
fn number(result: &ItemResult<usize, usize>) -> usize {
    match result {
        Ok(index) | Err(ItemError::Failed(index)) => *index,
        Err(ItemError::Crashed(text)) => text.strip_prefix("item ").unwrap().parse().unwrap(),
        Err(_) => usize::MAX,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_item_runs_exactly_once_within_the_workers(
        workers in 1usize..9,
        way in way(),
        plans in prop::collection::vec((0u8..4, fate()), 0..60),
    ) {
        block_on(async {
            let items: Vec<_> = plans.iter().enumerate().map(|(index, (steps, fate))| (index, *steps, *fate)).collect();
            let watch = Watch::new(items.len());
            let results = way.go(&Dispatcher::new(DispatcherSettings::new(workers)).unwrap(), items.clone(), &watch).await;
            let wanted: Vec<_> = items.iter().map(|(index, _, fate)| expected(*index, *fate)).collect();
            prop_assert_eq!(results, wanted);
            prop_assert_eq!(watch.begun(), vec![1; items.len()]);
            prop_assert!(watch.most.load(Ordering::SeqCst) <= workers.max(1));
            prop_assert_eq!(watch.running.load(Ordering::SeqCst), 0);
            Ok(())
        })?;
    }

    #[test]
    fn after_the_first_error_only_skipped_items_say_so(
        workers in 1usize..6,
        cancels in any::<bool>(),
        local in any::<bool>(),
        plans in prop::collection::vec((0u8..4, fate()), 0..40),
    ) {
        block_on(async {
            let items: Vec<_> = plans.iter().enumerate().map(|(index, (steps, fate))| (index, *steps, *fate)).collect();
            let watch = Watch::new(items.len());
            let on_error = if cancels { OnError::Cancel } else { OnError::Stop };
            let dispatcher = Dispatcher::new(DispatcherSettings::new(workers).on_error(on_error)).unwrap();
            let way = if local { Way::Local } else { Way::Run };
            let results = way.go(&dispatcher, items.clone(), &watch).await;
            prop_assert_eq!(results.len(), items.len());
            let begun = watch.begun();
            for (index, result) in results.iter().enumerate() {
                let was_begun = result.as_ref().err().is_none_or(ItemError::was_begun);
                prop_assert_eq!(begun[index], usize::from(was_begun), "item {}", index);
                match result {
                    Err(ItemError::NotRun) => {}
                    Err(ItemError::Cancelled) => prop_assert!(cancels, "item {}", index),
                    result => prop_assert_eq!(result, &expected(index, items[index].2)),
                }
            }
            let fails = |fate: &Fate| !matches!(fate, Fate::Return);
            match items.iter().position(|(_, _, fate)| fails(fate)) {
                None => prop_assert!(results.iter().all(Result::is_ok)),
                // Items are taken in order: those before the first that fails were begun.
                Some(first) => {
                    prop_assert!(results[..first].iter().all(|result| !matches!(result, Err(ItemError::NotRun))));
                    prop_assert!(results.iter().any(|result| matches!(
                        result, Err(ItemError::Failed(_) | ItemError::Crashed(_)))));
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn with_one_worker_nothing_after_the_first_error_is_begun() {
    for way in [Way::Run, Way::Local, Way::Stream, Way::StreamUnordered] {
        for on_error in [OnError::Stop, OnError::Cancel] {
            block_on(async {
                let items =
                    (0..10).map(|index| (index, 1, if index == 3 { Fate::Panic } else { Fate::Return })).collect();
                let watch = Watch::new(10);
                let results = way
                    .go(&Dispatcher::new(DispatcherSettings::new(1).on_error(on_error)).unwrap(), items, &watch)
                    .await;
                assert_eq!(watch.begun(), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0], "{way:?}");
                assert_eq!(results[..3], [Ok(0), Ok(1), Ok(2)]);
                assert_eq!(results[3], Err(ItemError::Crashed("item 3".to_owned())));
                let rest = &results[4..];
                match way {
                    Way::Run | Way::Local => assert_eq!(rest, vec![Err(ItemError::NotRun); 6]),
                    _ => assert!(rest.is_empty(), "a stream leaves the rest in its source"),
                }
            });
        }
    }
}

#[test]
fn an_error_cancels_the_others_if_that_is_asked_for() {
    block_on(async {
        let all_begun = Arc::new(Barrier::new(3));
        let dispatcher = Dispatcher::new(DispatcherSettings::new(3).on_error(OnError::Cancel)).unwrap();
        let results = dispatcher
            .run(0..5, move |item| {
                let all_begun = Arc::clone(&all_begun);
                async move {
                    all_begun.wait().await;
                    if item == 1 { Err("no") } else { std::future::pending::<Result<(), _>>().await }
                }
            })
            .await;
        use ItemError::{Cancelled, Failed, NotRun};
        assert_eq!(results, [Err(Cancelled), Err(Failed("no")), Err(Cancelled), Err(NotRun), Err(NotRun)]);
    });
}

#[test]
fn results_without_an_order_come_as_they_are_done() {
    block_on(async {
        let (first_may_end, reported) = oneshot::channel::<()>();
        let reported = Arc::new(slot::Slot::new(reported));
        let source = stream::iter(0..3);
        let mut results = std::pin::pin!(Dispatcher::new(DispatcherSettings::new(2)).unwrap().stream_unordered(
            source,
            move |item| {
                let reported = reported.take_if(item == 0);
                async move {
                    if let Some(reported) = reported {
                        reported.await.unwrap();
                    }
                    Ok::<_, ()>(item)
                }
            }
        ));
        assert_eq!(results.next().await, Some(Ok(1)));
        assert_eq!(results.next().await, Some(Ok(2)));
        first_may_end.send(()).unwrap();
        assert_eq!(results.next().await, Some(Ok(0)));
        assert_eq!(results.next().await, None);
    });
}

mod slot {
    use std::sync::Mutex;

    /// Something that one item takes out.
    pub struct Slot<T>(Mutex<Option<T>>);

    impl<T> Slot<T> {
        pub fn new(value: T) -> Self {
            Self(Mutex::new(Some(value)))
        }

        pub fn take_if(&self, wanted: bool) -> Option<T> {
            if wanted { self.0.lock().unwrap().take() } else { None }
        }
    }
}

#[test]
fn a_stream_takes_no_more_than_its_workers() {
    block_on(async {
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let source = stream::iter(0..100).inspect(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let gate = Arc::new(Semaphore::new(0));
        let opened = Arc::clone(&gate);
        let mut results =
            std::pin::pin!(Dispatcher::new(DispatcherSettings::new(4)).unwrap().stream(source, move |item| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok::<_, ()>(item)
                }
            }));
        assert_eq!(taken.load(Ordering::SeqCst), 0, "nothing happens before somebody asks");
        assert!(futures_util::poll!(results.next()).is_pending());
        assert_eq!(taken.load(Ordering::SeqCst), 4);
        opened.add_permits(1);
        // Which of the four goes on is chance; in order, the first is given out first.
        for _ in 0..3 {
            opened.add_permits(1);
        }
        assert_eq!(results.next().await, Some(Ok(0)));
        assert!(taken.load(Ordering::SeqCst) <= 5);
    });
}

#[test]
fn dropping_a_batch_or_a_stream_cancels_its_calls() {
    block_on(async {
        for way in [Way::Run, Way::Local, Way::StreamUnordered] {
            let watch = Watch::new(8);
            let items: Vec<_> = (0..8).map(|index| (index, u8::MAX, Fate::Return)).collect();
            let dispatcher = Dispatcher::new(DispatcherSettings::new(4)).unwrap();
            let watched = Arc::clone(&watch);
            let stuck = move |(index, _, _)| {
                let inside = watched.enter(index);
                async move {
                    let _inside = inside;
                    std::future::pending::<Result<(), ()>>().await
                }
            };
            {
                let running: std::pin::Pin<Box<dyn Future<Output = ()>>> = match way {
                    Way::Local => Box::pin(async { drop(dispatcher.run_local(items, stuck).await) }),
                    Way::Run => Box::pin(async { drop(dispatcher.run(items, stuck).await) }),
                    _ => Box::pin(dispatcher.stream_unordered(stream::iter(items), stuck).for_each(async |_| {})),
                };
                let mut running = running;
                while watch.running.load(Ordering::SeqCst) < 4 {
                    assert!(futures_util::poll!(&mut running).is_pending());
                    tokio::task::yield_now().await;
                }
            }
            // Tasks are dropped by their threads, a moment later.
            while watch.running.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(watch.begun().iter().sum::<usize>(), 4, "{way:?}: the others never began");
        }
    });
}

#[test]
fn a_token_from_outside_stops_the_batch() {
    block_on(async {
        let token = CancellationToken::new();
        let dispatcher = Dispatcher::new(DispatcherSettings::new(2)).unwrap().cancel_with(&token);
        let stop = token.clone();
        let results = dispatcher
            .run(0..5, move |item| {
                let stop = stop.clone();
                async move {
                    if item == 2 {
                        stop.cancel();
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, ()>(item)
                }
            })
            .await;
        assert_eq!(results[2], Err(ItemError::Cancelled));
        assert!(results[..2].iter().all(Result::is_ok));
        let after = dispatcher.run(0..2, |item| async move { Ok::<_, ()>(item) }).await;
        assert_eq!(after, [Err(ItemError::NotRun), Err(ItemError::NotRun)], "nothing begins any more");
    });
}

#[test]
fn local_work_may_borrow_and_need_not_be_sent() {
    block_on(async {
        let sum = Cell::new(0);
        let sum_ref = &sum;
        let results = Dispatcher::new(DispatcherSettings::new(3))
            .unwrap()
            .run_local(1..=10, |item| async move {
                tokio::task::yield_now().await;
                sum_ref.set(sum_ref.get() + item);
                Ok::<_, ()>(())
            })
            .await;
        assert_eq!((sum.get(), results.len()), (55, 10));
    });
}

#[test]
fn an_item_error_is_a_failure_of_the_usual_kind() {
    assert_eq!(Failure::from(ItemError::Failed(7)), Failure::Inner(7));
    assert_eq!(
        Failure::<u8>::from(ItemError::Crashed("oh".to_owned())),
        Failure::Resil(Error::Crashed("oh".to_owned()))
    );
    assert_eq!(Failure::<u8>::from(ItemError::NotRun), Failure::Resil(Error::Cancelled));
}

#[test]
fn items_that_never_wait_let_others_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let others_ran = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&others_ran);
        let other = async {
            // After the worker has begun.
            tokio::task::yield_now().await;
            others_ran.store(true, Ordering::SeqCst);
        };
        let dispatcher = Dispatcher::new(DispatcherSettings::new(1)).unwrap();
        let batch = dispatcher.run(0..10_000, move |_| {
            let seen = seen.load(Ordering::SeqCst);
            async move { Ok::<_, ()>(seen) }
        });
        let (results, ()) = tokio::join!(batch, other);
        assert_eq!(results.last(), Some(&Ok(true)), "before the last item");
        assert_eq!(results.first(), Some(&Ok(false)));
    });
}

#[test]
fn a_graceful_stop_ends_running_work_and_begins_none() {
    block_on(async {
        let (stop, gate, begun) = (CancellationToken::new(), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let dispatcher = Dispatcher::new(DispatcherSettings::new(2)).unwrap().stop_with(&stop);
        let work = {
            let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
            move |item: usize| {
                let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
                async move {
                    begun.add_permits(1);
                    drop(gate.acquire().await);
                    Ok::<_, ()>(item)
                }
            }
        };
        let expected = [Ok(0), Ok(1), Err(ItemError::NotRun), Err(ItemError::NotRun)];

        let batch = tokio::spawn({
            let (dispatcher, work) = (dispatcher.clone(), work.clone());
            async move { dispatcher.run(0..4, work).await }
        });
        let streamed = tokio::spawn({
            let (dispatcher, work) = (dispatcher.clone(), work.clone());
            async move { dispatcher.stream(stream::iter(0..4), work).collect::<Vec<_>>().await }
        });
        let local = async {
            begun.acquire_many(6).await.expect("all three have begun two each").forget();
            stop.cancel();
            gate.add_permits(100);
        };
        let (here, ()) = tokio::join!(dispatcher.run_local(0..4, &work), local);
        assert_eq!(here, expected);
        assert_eq!(batch.await.expect("no panic"), expected);
        assert_eq!(streamed.await.expect("no panic"), expected[..2], "nothing more is taken from the source");
        assert_eq!(begun.available_permits(), 0);
        assert!(
            dispatcher.run(0..2, work).await.iter().all(|item| *item == Err(ItemError::NotRun)),
            "it stays stopped"
        );
    });
}
