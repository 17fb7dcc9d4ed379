//! What a breaker says to a server, and what it does when answers are late or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use resil_wire::command::Command;
use tokio::sync::Semaphore;

use super::permit::Way;
use super::{Breaker, BreakerOptions, Force, Mode, State, Transition};
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::backend::scripted::{Answering, Scripted};
use crate::client::{Client, ConnectOptions};
use crate::clock::Clock;
use crate::error::{Code, Error, Failure};
use crate::health::{Away, Status};

/// What happens to the next commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    RequestIsLost,
    ReplyIsLost,
}

/// A server that is memory behind a line that can lose things.
#[derive(Clone)]
struct Server {
    scripted: Scripted,
    fate: Arc<Mutex<Fate>>,
    clock: Clock,
}

const GONE: Error = Error::BackendUnavailable("gone");

impl Server {
    fn new() -> Self {
        let clock = Clock::driven();
        Self::with_memory(Arc::new(Memory::new(clock.clone())), clock)
    }

    fn with_memory(memory: Arc<Memory>, clock: Clock) -> Self {
        let (scripted, fate) = (Scripted::new(), Arc::new(Mutex::new(Fate::Arrives)));
        let line = Arc::clone(&fate);
        let answer = move |command: &Command<'_>| {
            let fate = *line.lock();
            if fate == Fate::RequestIsLost {
                return Err(GONE);
            }
            let answer = memory.call(command);
            if fate == Fate::ReplyIsLost { Err(GONE) } else { answer }
        };
        scripted.lines.lock().by = Some(Answering(Box::new(answer)));
        Self { scripted, fate, clock }
    }

    fn client(&self) -> Client {
        let options = ConnectOptions::new("memory://").clock(self.clock.clone()).name("tester");
        Client::with_backend(Backend::Scripted(self.scripted.clone()), options)
    }

    fn breaker(&self, options: BreakerOptions) -> Breaker {
        self.client().breaker("b", options).unwrap()
    }

    fn set(&self, fate: Fate) {
        *self.fate.lock() = fate;
    }

    /// The subcommands that were asked, and forgets them.
    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.scripted.lines.lock().asked);
        asked.iter().map(|words| String::from_utf8_lossy(&words[1]).into_owned()).collect()
    }

    fn asked_words(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.scripted.lines.lock().asked);
        let line =
            |words: &Vec<Vec<u8>>| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        asked.iter().map(line).collect()
    }
}

async fn let_tasks_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn fail(breaker: &Breaker) -> Result<(), Failure<&'static str>> {
    breaker.call(async || Err("down")).await
}

async fn succeed(breaker: &Breaker) -> Result<(), Failure<&'static str>> {
    breaker.call(async || Ok(())).await
}

fn trips_at(failures: u32) -> BreakerOptions {
    BreakerOptions::new().consecutive(failures).open_for(Duration::from_secs(10))
}

fn never_trips() -> BreakerOptions {
    BreakerOptions::new().consecutive(0).failure_rate(100).min_calls(1_000_000).window_calls(10_000)
}

#[tokio::test]
async fn while_closed_a_thousand_calls_take_one_question_and_twenty_batches() {
    let server = Server::new();
    let breaker = server.breaker(BreakerOptions::new());
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
async fn a_success_is_sent_within_the_flush_interval_and_then_nothing_runs() {
    let server = Server::new();
    let client = server.client();
    let breaker = client.breaker("b", BreakerOptions::new()).unwrap();
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
async fn a_failure_is_sent_at_once_also_if_no_call_follows() {
    let server = Server::new();
    let breaker = server.breaker(BreakerOptions::new());
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    let asked = server.asked_words();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[1].contains("TALLY") && asked[1].contains("FAIL 1"), "{asked:?}");
}

#[tokio::test]
async fn a_failure_that_a_dropped_caller_was_sending_is_sent_all_the_same() {
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
async fn no_call_begins_before_the_failures_of_this_process_are_answered() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(2));
    fail(&breaker).await.unwrap_err();
    succeed(&breaker).await.unwrap();
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    fail(&breaker).await.unwrap_err();
    // The answer to the second failure is on its way, and says that the circuit is open.
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
    assert_eq!(attempts.load(Ordering::SeqCst), 0, "they wait for the answer");
    deliveries.add_permits(100);
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap_err().code(), Some(Code::CircuitOpen));
    }
    assert_eq!(attempts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_fleet_far_from_its_server_makes_as_many_doomed_calls_as_the_threshold_and_those_in_flight() {
    let clock = Clock::driven();
    let memory = Arc::new(Memory::new(clock.clone()));
    let doomed = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let server = Server::with_memory(Arc::clone(&memory), clock.clone());
            let deliveries = Arc::new(Semaphore::new(0));
            server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
            // An answer takes a while, in which a process could make many calls.
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
async fn what_failed_after_a_batch_was_lost_is_answered_before_the_next_call_too() {
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
async fn an_unanswered_batch_is_sent_again_under_its_number_and_counts_once() {
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
async fn a_task_that_cannot_send_gives_up_and_the_next_call_sends() {
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
    assert_eq!(breaker.state().await.unwrap().calls, 1);
}

#[tokio::test]
async fn a_closed_circuit_is_believed_for_a_second_without_word() {
    let server = Server::new();
    let (here, there) = (server.breaker(trips_at(1)), server.breaker(trips_at(1)));
    succeed(&here).await.unwrap();
    fail(&there).await.unwrap_err();
    let_tasks_run().await;
    server.clock.advance(Duration::from_millis(50));
    assert!(succeed(&here).await.is_ok(), "it has not heard yet");
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(succeed(&here).await.unwrap_err().code(), Some(Code::CircuitOpen));
}

#[tokio::test]
async fn when_the_open_time_is_over_one_caller_asks_and_the_others_are_refused_meanwhile() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    assert_eq!(succeed(&breaker).await.unwrap_err().retry_after(), Some(Duration::from_secs(10)));
    server.clock.advance(Duration::from_secs(10));
    server.asked();
    let deliveries = Arc::new(Semaphore::new(0));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let prober = tokio::spawn({
        let breaker = breaker.clone();
        async move { succeed(&breaker).await }
    });
    let_tasks_run().await;
    for _ in 0..5 {
        assert_eq!(succeed(&breaker).await.unwrap_err().code(), Some(Code::CircuitOpen));
    }
    assert_eq!(server.asked(), ["ADMIT"]);
    deliveries.add_permits(100);
    prober.await.unwrap().unwrap();
    assert_eq!(breaker.last_known_state(), Some(State::HalfOpen));
}

#[tokio::test]
async fn a_caller_who_stops_waiting_for_its_admission_gives_the_probe_back() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).probes(1));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    server.clock.advance(Duration::from_secs(10));
    let deliveries = Arc::new(Semaphore::new(0));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let waiting = tokio::spawn({
        let breaker = breaker.clone();
        async move { succeed(&breaker).await }
    });
    let_tasks_run().await;
    waiting.abort();
    let_tasks_run().await;
    deliveries.add_permits(100);
    let_tasks_run().await;
    assert_eq!(breaker.state().await.unwrap().probes_out, 0);
    assert!(breaker.admit().await.is_ok(), "the only place is free");
}

#[tokio::test]
async fn a_dropped_probe_is_cancelled_in_the_background_and_a_panic_is_a_failure() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).probes(1));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    server.clock.advance(Duration::from_secs(10));
    drop(breaker.admit().await.unwrap());
    assert_eq!(breaker.state().await.unwrap().probes_out, 1);
    let_tasks_run().await;
    let state = breaker.state().await.unwrap();
    assert_eq!((state.state, state.probes_out), (State::HalfOpen, 0));
    let panicking = breaker.clone();
    let call = async move { panicking.call(async || -> Result<(), ()> { panic!("on purpose") }).await };
    assert!(tokio::spawn(call).await.unwrap_err().is_panic());
    let_tasks_run().await;
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
}

#[tokio::test]
async fn a_call_that_was_refused_further_in_is_cancelled_and_one_that_is_ignored_counts_neither_way() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).probes(1).mode(Mode::Exact));
    let name: Arc<str> = "inner".into();
    for error in [
        Error::RateLimitExceeded { name: name.clone(), retry_after: None },
        Error::BulkheadFull { name: name.clone(), retry_after: None },
        Error::CircuitOpen { name, retry_after: None },
        Error::ShuttingDown,
    ] {
        let refused =
            breaker.around(|_: &()| super::Class::Retry, async || Err::<(), _>(Failure::Resil(error.clone())));
        assert_eq!(refused.await, Err(Failure::Resil(error.clone())));
        assert!(server.asked_words().last().unwrap().contains("CANCEL"));
    }
    let ignored = breaker.call_classified(|_: &u16| super::Class::Ignore, async || Err::<(), _>(404)).await;
    assert_eq!(ignored, Err(Failure::Inner(404)));
    assert!(server.asked_words().last().unwrap().contains("IGNORE"));
    assert_eq!(breaker.state().await.unwrap().calls, 0);
    let timeout = Failure::<()>::Resil(Error::Timeout { after: Duration::from_secs(1) });
    breaker.around(|_: &()| super::Class::Retry, async || Err::<(), _>(timeout)).await.unwrap_err();
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
}

#[tokio::test]
async fn exact_asks_and_reports_every_call_with_its_duration() {
    let server = Server::new();
    let breaker = server.breaker(BreakerOptions::new().mode(Mode::Exact).slow_calls(Duration::from_secs(1), 100));
    let clock = server.clock.clone();
    for slow in [false, true] {
        let call = async || {
            clock.advance(Duration::from_secs(if slow { 1 } else { 0 }));
            Ok::<_, ()>(())
        };
        breaker.call(call).await.unwrap();
    }
    assert_eq!(server.asked(), ["ADMIT", "REPORT", "ADMIT", "REPORT"]);
    let state = breaker.state().await.unwrap();
    assert_eq!((state.calls, state.slow), (2, 1));
}

#[tokio::test]
async fn slow_calls_are_counted_in_batches_too() {
    let server = Server::new();
    let breaker = server.breaker(never_trips().slow_calls(Duration::from_secs(1), 100));
    let clock = server.clock.clone();
    let call = async || {
        clock.advance(Duration::from_secs(1));
        Ok::<_, ()>(())
    };
    breaker.call(call).await.unwrap();
    succeed(&breaker).await.unwrap();
    let_tasks_run().await;
    server.clock.advance(Duration::from_secs(1));
    let_tasks_run().await;
    let state = breaker.state().await.unwrap();
    assert_eq!((state.calls, state.slow), (2, 1));
}

#[tokio::test]
async fn one_process_is_one_caller_to_a_quorum_however_it_reports() {
    let server = Server::new();
    let options = || trips_at(2).quorum(2);
    let (here, there) = (server.breaker(options()), server.breaker(options().mode(Mode::Exact)));
    for _ in 0..5 {
        fail(&here).await.unwrap_err();
    }
    let_tasks_run().await;
    assert_eq!(here.state().await.unwrap().state, State::Closed, "five failures of one process");
    fail(&there).await.unwrap_err();
    assert_eq!(here.state().await.unwrap().state, State::Open);
}

#[tokio::test]
async fn an_operator_is_heard_within_a_second_both_ways() {
    let server = Server::new();
    let (here, operator) = (server.breaker(BreakerOptions::new()), server.breaker(BreakerOptions::new()));
    succeed(&here).await.unwrap();
    operator.force(Force::Open, None, "maintenance").await.unwrap();
    server.clock.advance(Duration::from_millis(1_001));
    let refused = succeed(&here).await.unwrap_err();
    assert_eq!((refused.code(), refused.retry_after()), (Some(Code::CircuitOpen), None));
    server.asked();
    assert!(succeed(&here).await.is_err());
    assert!(server.asked().is_empty(), "believed for a while");
    let state = operator.state().await.unwrap();
    let forced = state.forced.unwrap();
    assert_eq!((state.state, &*forced.by, &*forced.reason), (State::ForcedOpen, "tester", "maintenance"));
    operator.force(Force::Auto, None, "").await.unwrap();
    server.clock.advance(Duration::from_secs(1));
    succeed(&here).await.unwrap();
    operator.force(Force::Open, Some(Duration::from_secs(60)), "again").await.unwrap();
    assert_eq!(succeed(&operator).await.unwrap_err().retry_after(), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn disabled_metrics_and_forced_closed_admit_whatever_fails() {
    let server = Server::new();
    for force in [Force::Disabled, Force::Metrics, Force::Closed] {
        let breaker = server.breaker(trips_at(1));
        breaker.force(force, None, "").await.unwrap();
        for _ in 0..5 {
            assert_eq!(fail(&breaker).await, Err(Failure::Inner("down")));
        }
    }
}

#[tokio::test]
async fn each_transition_is_told_once_and_a_listener_that_panics_harms_nobody() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).successes(1));
    let seen: Arc<Mutex<Vec<Transition>>> = Arc::default();
    let told = Arc::clone(&seen);
    breaker.on_transition(|_| panic!("on purpose"));
    breaker.on_transition(move |transition| told.lock().push(*transition));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    succeed(&breaker).await.unwrap_err();
    server.clock.advance(Duration::from_secs(10));
    succeed(&breaker).await.unwrap();
    succeed(&breaker).await.unwrap();
    let seen = seen.lock().clone();
    let states: Vec<_> = seen.iter().map(|transition| (transition.previous, transition.new)).collect();
    use State::{Closed, HalfOpen, Open};
    assert_eq!(states, [(Closed, Open), (Open, HalfOpen), (HalfOpen, Closed)]);
    assert!(seen.is_sorted_by_key(|transition| transition.generation));
}

#[tokio::test]
async fn while_the_server_is_away_each_mode_does_what_it_says() {
    let server = Server::new();
    let client = server.client();
    let open = client.breaker("open", trips_at(1).when_away(Away::Open)).unwrap();
    let closed = client.breaker("closed", trips_at(1).when_away(Away::Closed)).unwrap();
    let local = client.breaker("local", trips_at(2)).unwrap();
    server.set(Fate::RequestIsLost);
    for _ in 0..5 {
        assert_eq!(fail(&open).await, Err(Failure::Inner("down")));
        assert_eq!(fail(&closed).await, Err(Failure::Resil(GONE)));
    }
    for _ in 0..2 {
        assert_eq!(fail(&local).await, Err(Failure::Inner("down")));
    }
    assert_eq!(fail(&local).await.unwrap_err().code(), Some(Code::CircuitOpen));
    server.set(Fate::Arrives);
    for breaker in [&open, &closed, &local] {
        succeed(breaker).await.unwrap();
        assert_eq!(breaker.state().await.unwrap().failures, 0, "what was counted meanwhile is forgotten");
    }
    server.set(Fate::RequestIsLost);
    server.clock.advance(Duration::from_secs(2));
    assert_eq!(fail(&local).await, Err(Failure::Inner("down")), "away again begins from a clean slate");
    assert_eq!(client.inner().health.look(true).policies["breaker:closed"], Status::Unhealthy);
    assert_eq!(client.inner().health.look(true).policies["breaker:local"], Status::Degraded);
}

#[tokio::test]
async fn options_are_brought_back_to_a_key_that_was_lost() {
    let clock = Clock::driven();
    let (first, second) = (Arc::new(Memory::new(clock.clone())), Arc::new(Memory::new(clock.clone())));
    let server = Server::with_memory(Arc::clone(&first), clock);
    let breaker = server.breaker(never_trips());
    succeed(&breaker).await.unwrap();
    // As after FLUSHALL: the same server with nothing in it.
    let behind = Arc::clone(&second);
    server.scripted.lines.lock().by = Some(Answering(Box::new(move |command| behind.call(command))));
    for _ in 0..120 {
        server.clock.advance(Duration::from_millis(100));
        succeed(&breaker).await.unwrap();
        let_tasks_run().await;
    }
    let state = breaker.state().await.unwrap();
    assert!(state.config.contains(&("consecutive".to_owned(), "0".to_owned())), "{:?}", state.config);
}

#[test]
fn a_permit_can_be_dropped_where_there_is_no_runtime() {
    let server = Server::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let breaker = runtime.block_on(async { server.breaker(trips_at(1).mode(Mode::Exact)) });
    let permit = runtime.block_on(breaker.admit()).unwrap();
    drop(runtime);
    drop(permit);
}

#[tokio::test]
async fn the_same_name_with_the_same_options_is_the_same_breaker() {
    let server = Server::new();
    let client = server.client();
    let one = client.breaker("b", trips_at(1)).unwrap();
    fail(&one).await.unwrap_err();
    let_tasks_run().await;
    server.asked();
    let other = client.breaker("b", trips_at(1)).unwrap();
    assert!(succeed(&other).await.is_err());
    assert!(server.asked().is_empty(), "it knows what the first one knows");
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

    #[test]
    fn an_open_circuit_makes_no_attempt_and_no_round_trip_until_it_is_over(
        open_ms in 1u64..100_000, looks in prop::collection::vec(0.0f64..1.0, 1..20), exact in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let server = Server::new();
            let mode = if exact { Mode::Exact } else { Mode::Batched };
            let options = BreakerOptions::new().consecutive(1).open_for(Duration::from_millis(open_ms)).mode(mode);
            let breaker = server.breaker(options);
            let begun = server.clock.now();
            fail(&breaker).await.unwrap_err();
            let_tasks_run().await;
            server.asked();
            let mut looks = looks;
            looks.sort_by(f64::total_cmp);
            for part in looks {
                let at = begun + Duration::from_micros((open_ms as f64 * 1_000.0 * part) as u64);
                server.clock.advance(at.saturating_sub(server.clock.now()));
                let refused = breaker.call(async || -> Result<(), ()> { unreachable!("an attempt was made") }).await;
                let left = begun + Duration::from_millis(open_ms) - server.clock.now();
                assert_eq!(refused.unwrap_err().retry_after(), Some(left));
            }
            assert!(server.asked().is_empty(), "nobody was asked");
            let left = begun + Duration::from_millis(open_ms) - server.clock.now();
            server.clock.advance(left);
            succeed(&breaker).await.unwrap();
        });
    }
}
