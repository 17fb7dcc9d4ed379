//! Reports in batches: few, on time, and neither lost nor doubled.

use super::*;

#[tokio::test]
async fn while_closed_a_thousand_calls_take_twenty_batches() {
    let server = Server::new();
    let breaker = server.breaker(BreakerSettings::new());
    for _ in 0..1_000 {
        succeed(&breaker).await.unwrap();
        // As somebody who does something else in between.
        tokio::task::yield_now().await;
    }
    let asked = server.asked();
    assert_eq!(asked[0], "ADMIT");
    assert!(asked[1..].iter().all(|word| word == "TALLY"), "{asked:?}");
    assert!((19..=21).contains(&(asked.len() - 1)), "{}", asked.len());
}

#[tokio::test]
async fn a_success_is_sent_within_the_flush_interval() {
    let server = Server::new();
    let client = server.client();
    let breaker = client.breaker("b", BreakerSettings::new()).unwrap();
    succeed(&breaker).await.unwrap();
    let_tasks_run().await;
    assert_eq!(server.asked(), ["ADMIT"]);
    assert_eq!(client.inner().tasks.len(), 1);
    server.clock.advance(Duration::from_millis(99));
    let_tasks_run().await;
    assert!(server.asked().is_empty());
    server.clock.advance(Duration::from_millis(1));
    let_tasks_run().await;
    assert_eq!(server.asked(), ["TALLY"]);
    assert_eq!(client.inner().tasks.len(), 0, "nothing runs when nothing is unsent");
    assert_eq!(breaker.state().await.unwrap().calls, 1);
}

#[tokio::test]
async fn a_failure_is_sent_at_once_without_further_calls() {
    let server = Server::new();
    let breaker = server.breaker(BreakerSettings::new());
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    let asked = server.asked_words();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].contains("TALLY") && asked[1].contains("FAIL 1"), "{asked:?}");
}

#[tokio::test]
async fn a_failure_of_a_dropped_caller_is_sent() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(5));
    let (first, second) = (breaker.admit().await.unwrap(), breaker.admit().await.unwrap());
    // Long after the options were last sent: the task that sends will bring them along.
    server.clock.advance(Duration::from_secs(11));
    first.success().await;
    let deliveries = Arc::new(Semaphore::new(1));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let_tasks_run().await;
    server.clock.advance(Duration::from_millis(100));
    let_tasks_run().await;
    assert_eq!(server.asked(), ["ADMIT", "TALLY", "ADMIT"], "the last is not answered yet");
    second.failure().await;
    server.set(Fate::RequestIsLost);
    let mut next = Box::pin(breaker.admit());
    assert!(futures_util::poll!(&mut next).is_pending());
    assert_eq!(server.asked(), ["TALLY"], "it sends the failure by itself");
    deliveries.add_permits(1);
    let_tasks_run().await;
    drop(next);
    server.set(Fate::Arrives);
    deliveries.add_permits(1_000);
    for _ in 0..20 {
        let_tasks_run().await;
        server.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(breaker.state().await.unwrap().failures, 1, "nobody called since, and yet it was sent");
}

#[tokio::test]
async fn no_call_begins_before_this_processs_failures_are_answered() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(2));
    fail(&breaker).await.unwrap_err();
    succeed(&breaker).await.unwrap();
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    fail(&breaker).await.unwrap_err();
    // The reply to the second failure is on its way, and says that the circuit is open.
    let deliveries = Arc::new(Semaphore::new(0));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let attempts = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let (breaker, attempts) = (breaker.clone(), Arc::clone(&attempts));
            tokio::spawn(async move {
                let call = async || {
                    attempts.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, &str>(())
                };
                breaker.call(call).await
            })
        })
        .collect();
    let_tasks_run().await;
    assert_eq!(attempts.load(Ordering::SeqCst), 0, "they wait for the reply");
    deliveries.add_permits(100);
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap_err().code(), Some(Code::CircuitOpen));
    }
    assert_eq!(attempts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_distant_fleet_makes_threshold_plus_in_flight_doomed_calls() {
    let clock = Clock::driven();
    let memory = Arc::new(Memory::new(clock.clone()));
    let doomed = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let server = Server::with_memory(Arc::clone(&memory), clock.clone());
            let deliveries = Arc::new(Semaphore::new(0));
            server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
            // A reply takes a while, in which a process could make many calls.
            let line = tokio::spawn(async move {
                loop {
                    for _ in 0..30 {
                        tokio::task::yield_now().await;
                    }
                    if deliveries.available_permits() == 0 {
                        deliveries.add_permits(1);
                    }
                }
            });
            let doomed = Arc::clone(&doomed);
            tokio::spawn(async move {
                let breaker = server.breaker(trips_at(5));
                let call = async || {
                    doomed.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Err::<(), _>("dead")
                };
                while breaker.call(call).await.unwrap_err().code() != Some(Code::CircuitOpen) {}
                line.abort();
            })
        })
        .collect();
    for caller in callers {
        tokio::time::timeout(Duration::from_secs(30), caller).await.expect("all of them stop").unwrap();
    }
    let doomed = doomed.load(Ordering::SeqCst);
    assert!((5..=55).contains(&doomed), "{doomed} doomed calls");
}

#[tokio::test]
async fn failures_after_a_lost_batch_are_answered_first_too() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(3));
    let permits = [breaker.admit().await.unwrap(), breaker.admit().await.unwrap(), breaker.admit().await.unwrap()];
    server.set(Fate::RequestIsLost);
    let [first, second, third] = permits;
    first.failure().await;
    let_tasks_run().await;
    second.failure().await;
    third.failure().await;
    server.set(Fate::Arrives);
    assert_eq!(succeed(&breaker).await.unwrap_err().code(), Some(Code::CircuitOpen));
}

#[tokio::test]
async fn an_unanswered_batch_is_resent_and_counts_once() {
    let server = Server::new();
    let breaker = server.breaker(never_trips());
    succeed(&breaker).await.unwrap();
    server.asked();
    server.set(Fate::ReplyIsLost);
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    let first = server.asked_words();
    server.set(Fate::Arrives);
    succeed(&breaker).await.unwrap();
    let again = server.asked_words();
    assert_eq!(first[0], again[0], "the same batch under the same number");
    server.clock.advance(Duration::from_secs(1));
    let_tasks_run().await;
    let next = server.asked_words();
    let number = |words: &str| words.split(' ').nth(5).unwrap().parse::<u64>().unwrap();
    assert_eq!(number(&next[0]), number(&first[0]) + 1);
    let state = breaker.state().await.unwrap();
    assert_eq!((state.calls, state.failures), (3, 1));
}

#[tokio::test]
async fn a_task_that_cannot_send_leaves_it_to_others() {
    let server = Server::new();
    let client = server.client();
    let breaker = client.breaker("b", never_trips()).unwrap();
    succeed(&breaker).await.unwrap();
    server.set(Fate::RequestIsLost);
    for _ in 0..20 {
        server.clock.advance(Duration::from_secs(2));
        let_tasks_run().await;
    }
    assert_eq!(client.inner().tasks.len(), 0);
    server.set(Fate::Arrives);
    succeed(&breaker).await.unwrap();
    assert_eq!(breaker.state().await.unwrap().calls, 2, "the one that could not be sent, and the one after it");
}

#[tokio::test]
async fn the_state_right_after_the_failure_that_trips_is_open() {
    let server = Server::new();
    let client = server.client();
    let breaker = client.breaker("b", BreakerSettings::new().consecutive_failures(2)).unwrap();
    for _ in 0..2 {
        let _ = breaker.call(async || Err::<(), _>(())).await;
    }
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_lose_and_double_nothing_whatever_the_line_loses(
        schedule in prop::collection::vec((0u8..10, any::<bool>(), 0u64..400), 1..150),
        batch in 1u32..20,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (expected, state) = runtime.block_on(async {
            let server = Server::new();
            let breaker = server.breaker(never_trips().batch(batch).when_away(Away::Open));
            let (mut calls, mut failures, mut in_a_row) = (0, 0, 0);
            for (fate, is_failure, pause_ms) in schedule {
                server.set(match fate {
                    0 => Fate::RequestIsLost,
                    1 => Fate::ReplyIsLost,
                    _ => Fate::Arrives,
                });
                let permit = breaker.admit().await.unwrap();
                if matches!(permit.way(), Way::Here(_)) {
                    calls += 1;
                    failures += u64::from(is_failure);
                    in_a_row = if is_failure { in_a_row + 1 } else { 0 };
                }
                if is_failure { permit.failure().await } else { permit.success().await }
                server.clock.advance(Duration::from_millis(pause_ms));
                if pause_ms % 3 == 0 {
                    let_tasks_run().await;
                }
            }
            server.set(Fate::Arrives);
            breaker.0.settle().await.unwrap();
            ((calls, failures, in_a_row), breaker.state().await.unwrap())
        });
        prop_assert_eq!((state.calls, state.failures, state.failures_in_a_row), expected);
    }
}
