//! Tasks that belong together end together, and a panic is an error of its task.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use resil::group::Group;
use resil::{Code, Error, Failure};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(20);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, future).await.expect("it ends") })
}

/// Counts down when it is dropped.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn stuck(alive: Alive) -> Result<usize, usize> {
    let _alive = alive;
    std::future::pending().await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// 0: returns, 1: fails, 2: panics.
    #[test]
    fn waiting_for_all_gives_every_task_its_own_outcome(
        limit in 1usize..5,
        fates in prop::collection::vec((0u8..3, 0u8..4), 0..30),
    ) {
        block_on(async {
            let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let mut group = Group::new().limit(limit);
            for (index, (fate, steps)) in fates.iter().copied().enumerate() {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                group.spawn(async move {
                    let _alive = Alive::new(&running);
                    most.fetch_max(running.load(Ordering::SeqCst), Ordering::SeqCst);
                    for _ in 0..steps {
                        tokio::task::yield_now().await;
                    }
                    match fate {
                        0 => Ok(index),
                        1 => Err(index),
                        _ => panic!("task {index}"),
                    }
                });
            }
            let outcomes = group.wait_all().await;
            let wanted: Vec<Result<usize, Failure<usize>>> = fates.iter().enumerate().map(|(index, (fate, _))| match fate {
                0 => Ok(index),
                1 => Err(Failure::Inner(index)),
                _ => Err(Error::Crashed(format!("task {index}")).into()),
            }).collect();
            prop_assert_eq!(outcomes, wanted);
            prop_assert!(most.load(Ordering::SeqCst) <= limit);
            Ok(())
        })?;
    }
}

#[test]
fn without_an_error_results_are_in_task_order() {
    block_on(async {
        let mut group = Group::<_, ()>::new();
        let (second_first, reported) = oneshot::channel::<()>();
        group.spawn(async move {
            reported.await.unwrap();
            Ok(1)
        });
        group.spawn(async move {
            second_first.send(()).unwrap();
            Ok(2)
        });
        assert_eq!(group.wait().await, Ok(vec![1, 2]));
        assert_eq!(Group::<(), ()>::new().wait().await, Ok(vec![]));
    });
}

#[test]
fn the_first_error_cancels_the_others_before_it_returns() {
    block_on(async {
        let alive = Arc::new(AtomicUsize::new(0));
        let mut group = Group::new();
        for _ in 0..5 {
            group.spawn(stuck(Alive::new(&alive)));
        }
        group.spawn(async { Err(7) });
        let token = group.token();
        assert_eq!(group.wait().await, Err(Failure::Inner(7)));
        assert_eq!(alive.load(Ordering::SeqCst), 0);
        assert!(token.is_cancelled());
    });
}

#[test]
fn a_task_that_listens_to_the_token_is_waited_for() {
    block_on(async {
        let tidied = Arc::new(AtomicUsize::new(0));
        let mut group = Group::<(), &str>::new();
        let done = Arc::clone(&tidied);
        group.spawn_with_token(move |token| async move {
            token.cancelled().await;
            tokio::task::yield_now().await;
            done.fetch_add(1, Ordering::SeqCst);
            Err("cancelled, but tidy")
        });
        group.spawn(async { panic!("first") });
        let failure = group.wait().await.unwrap_err();
        assert_eq!(failure, Error::Crashed("first".to_owned()).into(), "the first error, not the last");
        assert_eq!(tidied.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn waiting_tasks_do_not_begin_after_an_error() {
    block_on(async {
        let begun = Arc::new(AtomicUsize::new(0));
        let mut group = Group::<(), ()>::new().limit(1);
        let (go, reported) = oneshot::channel::<()>();
        group.spawn(async move {
            reported.await.unwrap();
            Err(())
        });
        for _ in 0..3 {
            let begun = Arc::clone(&begun);
            group.spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            });
        }
        go.send(()).unwrap();
        assert_eq!(group.wait().await, Err(Failure::Inner(())));
        assert!(begun.load(Ordering::SeqCst) <= 1, "at most the next, between the end of the one and its being seen");
    });
}

#[test]
fn a_panic_calls_back_and_panicking_callbacks_harm_nobody() {
    block_on(async {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let hears = Arc::clone(&heard);
        let mut group = Group::<(), ()>::new().on_panic(move |text| {
            hears.lock().unwrap().push(text.to_owned());
            panic!("and so does the callback");
        });
        group.spawn(async { panic!("number {}", 7) });
        group.spawn(async { Ok(()) });
        let outcomes = group.wait_all().await;
        assert_eq!(*heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner), ["number 7"]);
        assert_eq!(outcomes[0].as_ref().unwrap_err().code(), Some(Code::Crashed));
        assert_eq!(outcomes[1], Ok(()));
    });
}

#[test]
fn dropping_the_group_or_its_wait_drops_its_tasks() {
    block_on(async {
        for waits in [false, true] {
            let alive = Arc::new(AtomicUsize::new(0));
            let mut group = Group::new();
            for _ in 0..5 {
                group.spawn(stuck(Alive::new(&alive)));
            }
            let held = Alive::new(&alive);
            group.spawn_with_token(move |_| stuck(held));
            let token = group.token();
            if waits {
                let mut waiting = Box::pin(group.wait());
                assert!(futures_util::poll!(&mut waiting).is_pending());
                drop(waiting);
            } else {
                drop(group);
            }
            assert!(token.is_cancelled());
            while alive.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        }
    });
}

#[test]
fn a_token_from_outside_cancels_the_group() {
    block_on(async {
        let (token, alive) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let mut group = Group::new().cancel_with(&token);
        group.spawn(stuck(Alive::new(&alive)));
        token.cancel();
        assert_eq!(group.wait().await, Err(Failure::Resil(Error::Cancelled)));
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    });
}
