//! Retry, timeout, hedging and fallback, as their users see them. Time is driven but where it says otherwise.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, ready};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use resil::clock::Clock;
use resil::policy::budget::{Budget, BudgetSettings};
use resil::policy::timeout::{MAX_TIMEOUT, SLACK};
use resil::policy::{
    Class, Classifier, Fallback, Hedge, HedgeSettings, Jitter, LocalBulkhead, Retry, RetrySettings, Timeout, effective,
    retry_all, retry_none,
};
use resil::{Code, Error, Failure};

use crate::drive::{drive, poll_now, seed};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn exhausted<E>(attempts: u32, last: Failure<E>) -> Failure<E> {
    Failure::Exhausted { attempts, last: Box::new(last) }
}

/// An error of a service, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Busy,
    BusyFor(u64),
    Gone,
    NotFound,
}

fn classify(answer: &Answer) -> Class {
    match answer {
        Answer::Busy => Class::Retry,
        Answer::BusyFor(span_ms) => Class::RetryAfter(ms(*span_ms)),
        Answer::Gone => Class::Permanent,
        Answer::NotFound => Class::Ignore,
    }
}

fn plain_retry(max_attempts: u32) -> RetrySettings {
    RetrySettings { max_attempts, jitter: Jitter::None, budget: None, ..RetrySettings::default() }
}

mod retrying {
    use super::*;

    fn any_answer() -> impl Strategy<Value = Result<u8, Answer>> {
        prop_oneof![
            1 => any::<u8>().prop_map(Ok),
            6 => Just(Err(Answer::Busy)),
            3 => (0u64..70_000).prop_map(|ms| Err(Answer::BusyFor(ms))),
            1 => Just(Err(Answer::Gone)),
            1 => Just(Err(Answer::NotFound)),
        ]
    }

    /// What should come of `answers`: the outcome, after how many attempts, after how long.
    fn model(settings: &RetrySettings, answers: &[Result<u8, Answer>]) -> (Result<u8, Failure<Answer>>, u32, Duration) {
        let mut waited = Duration::ZERO;
        for attempt in 1.. {
            let answer = match answers[(attempt as usize - 1) % answers.len()] {
                Ok(value) => return (Ok(value), attempt, waited),
                Err(answer) => answer,
            };
            let over = |failure| (Err(failure), attempt, waited);
            let asked = match answer {
                Answer::Gone | Answer::NotFound => return over(Failure::Inner(answer)),
                Answer::Busy => Duration::ZERO,
                Answer::BusyFor(span_ms) => ms(span_ms),
            };
            if settings.max_attempts == 1 {
                return over(Failure::Inner(answer));
            }
            let delay = settings.backoff().nominal(attempt - 1).max(asked);
            let is_late = settings.max_elapsed.is_some_and(|most| waited + delay >= most);
            if attempt == settings.max_attempts || asked > settings.retry_after_max || is_late {
                return over(exhausted(attempt, Failure::Inner(answer)));
            }
            waited += delay;
        }
        unreachable!("attempts are limited")
    }

    proptest! {
        #![proptest_config(seed::config())]

        #[test]
        fn any_series_of_answers_ends_as_promised_after_the_promised_attempts_and_time(
            answers in prop::collection::vec(any_answer(), 1..12),
            max_attempts in 1u32..=15,
            max_elapsed in prop::option::of(1u64..100_000),
        ) {
            let clock = Clock::driven();
            let settings = RetrySettings { max_elapsed: max_elapsed.map(ms), ..plain_retry(max_attempts) };
            let retry = Retry::builder(&settings).clock(clock.clone()).build().expect("valid");
            let (began, mut attempts) = (clock.now(), 0u32);
            let outcome = drive(&clock, retry.call(classify, || {
                attempts += 1;
                ready(answers[(attempts as usize - 1) % answers.len()])
            }));
            let expected = model(&settings, &answers);
            prop_assert_eq!((outcome, attempts, clock.now() - began), expected);
        }

        #[test]
        fn exhausted_retries_report_their_attempts_and_the_last_error(max_attempts in 2u32..=100) {
            let clock = Clock::driven();
            let retry = Retry::builder(&plain_retry(max_attempts)).clock(clock.clone()).build().expect("valid");
            let mut attempts = 0;
            let outcome: Result<(), _> = drive(&clock, retry.call(retry_all, || {
                attempts += 1;
                ready(Err(attempts))
            }));
            prop_assert_eq!(&outcome, &Err(exhausted(max_attempts, Failure::Inner(max_attempts))));
            prop_assert_eq!(outcome.as_ref().unwrap_err().code(), Some(Code::RetryExhausted));
        }

        #[test]
        fn delays_are_never_below_the_minimum_nor_above_the_maximum(seed in any::<u64>(), min_ms in 0u64..2_000) {
            let clock = Clock::driven();
            for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::PlusMinus(100)] {
                let settings = RetrySettings { jitter, min_backoff: ms(min_ms), max_backoff: ms(2_000), ..plain_retry(8) };
                let retry = Retry::builder(&settings).clock(clock.clone()).seed(seed).build().expect("valid");
                let moments = RefCell::new(Vec::new());
                let outcome: Result<(), _> = drive(&clock, retry.call(retry_all, || {
                    moments.borrow_mut().push(clock.now());
                    ready(Err(()))
                }));
                prop_assert!(outcome.is_err());
                for pair in moments.borrow().windows(2) {
                    let delay = pair[1] - pair[0];
                    prop_assert!(delay >= ms(min_ms) && delay <= ms(2_000), "{delay:?} under {jitter:?}");
                }
            }
        }
    }

    #[test]
    fn an_open_circuit_is_asked_once_and_returned_as_it_is() {
        let clock = Clock::driven();
        let retry = Retry::builder(&plain_retry(10)).clock(clock.clone()).build().expect("valid");
        let open = Failure::Resil(Error::CircuitOpen { name: "orders".into(), retry_after: Some(ms(1)) });
        let mut asked = 0;
        let outcome: Result<(), Failure<Answer>> = drive(
            &clock,
            retry.around(retry_all, || {
                asked += 1;
                ready(Err(open.clone()))
            }),
        );
        assert_eq!((outcome, asked), (Err(open.clone()), 1));
    }

    #[test]
    fn a_refusal_is_retried_when_it_says_and_the_policies_own_words_need_no_classifier() {
        let clock = Clock::driven();
        let retry = Retry::builder(&plain_retry(2)).clock(clock.clone()).build().expect("valid");
        let limited = Failure::Resil(Error::RateLimitExceeded { name: "orders".into(), retry_after: Some(ms(700)) });
        let mut answers = [Err(limited), Ok(())].into_iter();
        let began = clock.now();
        let outcome: Result<(), Failure<Answer>> =
            drive(&clock, retry.around(retry_none, || ready(answers.next().expect("two attempts"))));
        assert_eq!((outcome, clock.now() - began), (Ok(()), ms(700)));
    }

    #[test]
    fn an_empty_budget_ends_it_at_once_and_a_crowd_in_backoff_does_not_overdraw_it() {
        let clock = Clock::driven();
        let budget = BudgetSettings { min_per_second: 1, percent: 0, ..BudgetSettings::default() };
        let budget = Budget::with_clock(&budget, clock.clone()).expect("valid");
        let settings = RetrySettings {
            initial_backoff: Duration::from_secs(60),
            max_backoff: Duration::from_secs(60),
            ..plain_retry(5)
        };
        let retry = Retry::builder(&settings).clock(clock.clone()).budget(budget.clone()).build().expect("valid");
        let call = || retry.call(retry_all, || ready(Err::<(), _>("down")));
        let mut crowd: Vec<_> = (0..10).map(|_| Box::pin(call())).collect();
        assert!(crowd.iter_mut().all(|call| poll_now(call.as_mut()).is_pending()));
        clock.advance(Duration::from_secs(50));
        assert_eq!(drive(&clock, call()), Err(exhausted(1, Failure::Inner("down"))), "ten are waiting to retry");
        drop(crowd);
        assert_eq!(budget.available(), 10, "whoever is cancelled gives their retry back");
    }

    #[test]
    fn an_attempt_is_dropped_before_the_delay_and_needs_to_be_neither_send_nor_static() {
        let clock = Clock::driven();
        let retry = Retry::builder(&plain_retry(3)).clock(clock.clone()).build().expect("valid");
        let held = Rc::new(());
        let count = Cell::new(0);
        {
            let mut call = pin!(retry.call(retry_all, || {
                let (held, count) = (Rc::clone(&held), &count);
                async move {
                    let _held = held;
                    count.set(count.get() + 1);
                    Err::<(), _>(())
                }
            }));
            assert!(poll_now(call.as_mut()).is_pending());
            assert_eq!((Rc::strong_count(&held), count.get()), (1, 1), "nothing is held while waiting");
        }
        assert_eq!(clock.next_wake(), None, "a dropped call leaves no timer behind");
    }

    #[test]
    fn a_kept_classifier_serves_many_calls() {
        let clock = Clock::driven();
        let retry = Retry::builder(&plain_retry(2)).clock(clock.clone()).build().expect("valid");
        let kept = Classifier::new(classify);
        for _ in 0..2 {
            let outcome: Result<(), _> = drive(&clock, retry.call(&kept, || ready(Err(Answer::Busy))));
            assert_eq!(outcome, Err(exhausted(2, Failure::Inner(Answer::Busy))));
        }
    }
}

mod timing_out {
    use super::*;

    proptest! {
        #![proptest_config(seed::config())]

        #[test]
        fn it_fires_exactly_at_its_time_under_a_driven_clock(after_us in 1u64..300_000_000, took_us in 0u64..600_000_000) {
            let (after, took) = (Duration::from_micros(after_us), Duration::from_micros(took_us));
            let clock = Clock::driven();
            let timeout = Timeout::attempt(after).expect("valid").with_clock(clock.clone());
            let began = clock.now();
            let outcome = drive(&clock, timeout.call(|| async {
                clock.sleep(took).await;
                Ok::<_, ()>("done")
            }));
            let expected = if took <= after { Ok("done") } else { Err(Failure::Resil(Error::Timeout { after })) };
            prop_assert_eq!(outcome, expected);
            prop_assert_eq!(clock.now() - began, took.min(after));
        }

        #[test]
        fn what_an_operation_asks_for_beats_what_is_said_for_all(
            operation in prop::option::of(1u64..1_000), global in prop::option::of(1u64..1_000),
        ) {
            let found = effective(operation.map(ms), global.map(ms));
            prop_assert_eq!(found, if operation.is_some() { operation.map(ms) } else { global.map(ms) });
        }

        #[test]
        fn only_more_than_nothing_and_at_most_five_minutes_is_a_timeout(us in 0u64..1_000_000_000) {
            let after = Duration::from_micros(us);
            let is_valid = !after.is_zero() && after <= MAX_TIMEOUT;
            for (field, made) in [("timeout.attempt", Timeout::attempt(after)), ("timeout.total", Timeout::total(after))] {
                match made {
                    Ok(timeout) => prop_assert!(is_valid && timeout.after() == after),
                    Err(error) => {
                        prop_assert!(!is_valid && error.code() == Code::InvalidPolicy);
                        prop_assert!(error.to_string().starts_with(&format!("{field} must be from 1us to 5m, got ")), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_call_is_dropped_when_it_fires_not_when_the_caller_looks_away() {
        let clock = Clock::driven();
        let timeout = Timeout::attempt(ms(10)).expect("valid").with_clock(clock.clone());
        let held = Rc::new(());
        let mut call = pin!(timeout.call(|| {
            let held = Rc::clone(&held);
            async move {
                let _held = held;
                pending::<Result<(), ()>>().await
            }
        }));
        assert!(poll_now(call.as_mut()).is_pending());
        clock.advance(ms(10) - Duration::from_nanos(1));
        assert!(poll_now(call.as_mut()).is_pending());
        clock.advance(Duration::from_nanos(1));
        assert!(poll_now(call.as_mut()).is_ready());
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn a_call_that_is_ready_needs_no_timer_and_no_runtime() {
        let timeout = Timeout::attempt(ms(10)).expect("valid");
        assert_eq!(poll_now(pin!(timeout.call(|| ready(Ok::<_, ()>(1))))), Poll::Ready(Ok(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_within_the_slack_on_the_runtimes_own_timers() {
        for after_us in [1, 900, 1_000, 1_500, 250_000, 300_000_000] {
            let after = Duration::from_micros(after_us);
            let began = tokio::time::Instant::now();
            let outcome = Timeout::total(after).expect("valid").call(pending::<Result<(), ()>>).await;
            let took = began.elapsed();
            assert_eq!(outcome, Err(Failure::Resil(Error::Timeout { after })));
            assert!(took >= after && took <= after + SLACK, "{took:?} for {after:?}");
        }
    }

    /// On the machine's time: a runtime that is busy does not advance a paused one.
    #[test]
    fn a_call_that_always_uses_up_its_tasks_budget_is_cut_off_all_the_same() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let outcome = runtime.block_on(async {
                let timeout = Timeout::attempt(ms(20)).expect("valid");
                let busy = || async {
                    loop {
                        tokio::task::consume_budget().await;
                    }
                    #[allow(unreachable_code)]
                    Ok::<(), ()>(())
                };
                tokio::spawn(async move { timeout.call(busy).await }).await.expect("no panic")
            });
            done.send(outcome).expect("somebody waits");
        });
        let outcome = is_done.recv_timeout(Duration::from_secs(30)).expect("it fires");
        assert_eq!(outcome, Err(Failure::Resil(Error::Timeout { after: ms(20) })));
    }

    #[test]
    fn around_and_inside_of_retry_the_failures_do_not_nest() {
        let clock = Clock::driven();
        let attempt = Timeout::attempt(ms(50)).expect("valid").with_clock(clock.clone());
        let total = Timeout::total(ms(400)).expect("valid").with_clock(clock.clone());
        let retry = Retry::builder(&plain_retry(3)).clock(clock.clone()).build().expect("valid");
        let attempts = Cell::new(0);
        let slow = || {
            attempts.set(attempts.get() + 1);
            pending::<Result<(), Answer>>()
        };
        let late = |after| Failure::Resil(Error::Timeout { after });
        let outcome: Result<(), Failure<Answer>> =
            drive(&clock, total.around(|| retry.around(classify, || attempt.call(slow))));
        // 50, 100 of delay, 50, 200 of delay: the third attempt would end at 450.
        assert_eq!((outcome, attempts.get()), (Err(late(ms(400))), 3));
        let outcome: Result<(), Failure<Answer>> = drive(&clock, retry.around(classify, || attempt.call(slow)));
        assert_eq!(outcome, Err(exhausted(3, late(ms(50)))));
    }
}

mod hedging {
    use super::*;

    fn settings(max_hedges: u32) -> HedgeSettings {
        let budget = BudgetSettings { percent: 1_000, ..BudgetSettings::default() };
        HedgeSettings { max_hedges, hedging_delay: ms(1_000), budget, ..HedgeSettings::default() }
    }

    /// How many are alive.
    struct Alive(Arc<AtomicU32>);

    impl Alive {
        fn new(count: &Arc<AtomicU32>) -> Self {
            count.fetch_add(1, SeqCst);
            Self(Arc::clone(count))
        }
    }

    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }

    /// What should come of calls that take so many ms: the outcome, how many are begun, when it is over.
    fn model(calls: &[(u64, Result<u8, Answer>)], delay_ms: u64) -> (Result<u8, Failure<Answer>>, usize, u64) {
        let mut first_failure = None;
        let ends = |index: usize| index as u64 * delay_ms + calls[index].0;
        let (mut under_way, mut begun, mut now_ms) = (vec![0], 1, 0);
        loop {
            let next_begin = (begun < calls.len()).then_some(begun as u64 * delay_ms);
            let next_over = *under_way.iter().min_by_key(|index| ends(**index)).expect("one is under way");
            if let Some(at) = next_begin.filter(|at| *at < ends(next_over)) {
                now_ms = at;
                under_way.push(begun);
                begun += 1;
                continue;
            }
            now_ms = now_ms.max(ends(next_over));
            under_way.retain(|index| *index != next_over);
            match calls[next_over].1 {
                Ok(value) => return (Ok(value), begun, now_ms),
                Err(answer) if !classify(&answer).is_retryable() => {
                    return (Err(Failure::Inner(answer)), begun, now_ms);
                }
                Err(answer) => {
                    let answer = *first_failure.get_or_insert(answer);
                    if under_way.is_empty() {
                        return (Err(Failure::Inner(answer)), begun, now_ms);
                    }
                }
            }
        }
    }

    fn any_outcome() -> impl Strategy<Value = Result<u8, Answer>> {
        prop_oneof![
            any::<u8>().prop_map(Ok),
            Just(Err(Answer::Busy)),
            (0u64..9).prop_map(|ms| Err(Answer::BusyFor(ms))),
            Just(Err(Answer::NotFound)),
        ]
    }

    proptest! {
        #![proptest_config(seed::config())]

        #[test]
        fn any_calls_end_as_promised_and_leave_nobody_behind(
            calls in prop::collection::vec((0u64..500, any_outcome()), 2..6),
        ) {
            // No two things happen at once: call `n` ends at a moment that ends in the digit n + 1.
            let calls: Vec<_> = calls.into_iter().enumerate().map(|(n, (tens, outcome))| (tens * 10 + n as u64 + 1, outcome)).collect();
            let clock = Clock::driven();
            let hedge = Hedge::builder(&settings(calls.len() as u32 - 1)).clock(clock.clone()).build().expect("valid");
            let (alive, begun, began) = (Arc::new(AtomicU32::new(0)), Cell::new(0), clock.now());
            let outcome = drive(&clock, hedge.call(classify, || {
                let (took_ms, outcome) = calls[begun.get()];
                begun.set(begun.get() + 1);
                let (one, clock) = (Alive::new(&alive), clock.clone());
                async move {
                    let _one = one;
                    clock.sleep(ms(took_ms)).await;
                    outcome
                }
            }));
            prop_assert_eq!((outcome, begun.get(), (clock.now() - began).as_millis() as u64), model(&calls, 1_000));
            prop_assert_eq!(alive.load(SeqCst), 0, "losers are cancelled");
            prop_assert_eq!(clock.next_wake(), None);
        }
    }

    /// Slow first calls, one after the other; how many were hedged.
    fn hedges_of(hedge: &Hedge, clock: &Clock, calls: u32) -> u32 {
        let begun = Cell::new(0);
        for _ in 0..calls {
            let outcome = drive(
                clock,
                hedge.call(retry_all, || {
                    begun.set(begun.get() + 1);
                    async {
                        clock.sleep(ms(3)).await;
                        Ok::<_, ()>(())
                    }
                }),
            );
            assert_eq!(outcome, Ok(()));
        }
        begun.get() - calls
    }

    #[test]
    fn extra_load_is_capped_by_its_percentage() {
        let clock = Clock::driven();
        let budget = BudgetSettings { min_per_second: 0, percent: 10, ..BudgetSettings::default() };
        let settings = HedgeSettings { hedging_delay: ms(1), budget, ..HedgeSettings::default() };
        let hedge = Hedge::builder(&settings).clock(clock.clone()).build().expect("valid");
        assert_eq!(hedges_of(&hedge, &clock, 300), 30);
    }

    #[test]
    fn a_budget_shared_with_retry_is_one_budget() {
        let clock = Clock::driven();
        let shared = BudgetSettings { min_per_second: 1, percent: 0, ..BudgetSettings::default() };
        let budget = Budget::with_clock(&shared, clock.clone()).expect("valid");
        let settings = HedgeSettings { hedging_delay: ms(1), ..HedgeSettings::default() };
        let hedge = Hedge::builder(&settings).clock(clock.clone()).budget(budget.clone()).build().expect("valid");
        let retry = Retry::builder(&plain_retry(5)).clock(clock.clone()).budget(budget).build().expect("valid");
        assert_eq!(hedges_of(&hedge, &clock, 8), 8);
        let outcome: Result<(), _> = drive(&clock, retry.call(retry_all, || ready(Err(()))));
        assert_eq!(outcome, Err(exhausted(3, Failure::Inner(()))), "two of ten were left");
    }

    #[test]
    fn a_percentile_replaces_the_fixed_delay_after_the_warm_up() {
        let clock = Clock::driven();
        let settings = HedgeSettings { percentile: Some(90.0), warm_up: 100, ..settings(1) };
        let hedge = Hedge::builder(&settings).clock(clock.clone()).build().expect("valid");
        for n in 1..=100u64 {
            assert_eq!(hedge.delay(), ms(1_000), "not warm after {n} calls");
            drive(
                &clock,
                hedge.call(retry_all, || async {
                    clock.sleep(ms(n)).await;
                    Ok::<_, ()>(())
                }),
            )
            .expect("it succeeds");
        }
        assert!(hedge.delay() >= ms(89) && hedge.delay() <= ms(92), "{:?}", hedge.delay());
    }

    #[test]
    fn failures_do_not_count_as_latencies() {
        let clock = Clock::driven();
        let settings = HedgeSettings { percentile: Some(50.0), warm_up: 1, ..settings(1) };
        let hedge = Hedge::builder(&settings).clock(clock.clone()).build().expect("valid");
        drive(&clock, hedge.call(retry_none, || ready(Err::<(), _>(())))).expect_err("it fails");
        assert_eq!(hedge.delay(), ms(1_000));
    }

    #[test]
    fn a_dropped_call_drops_all_of_its_calls() {
        let clock = Clock::driven();
        let hedge = Hedge::builder(&settings(1)).clock(clock.clone()).build().expect("valid");
        let alive = Arc::new(AtomicU32::new(0));
        {
            let mut call = pin!(hedge.call(retry_all, || {
                let one = Alive::new(&alive);
                async move {
                    let _one = one;
                    pending::<Result<(), ()>>().await
                }
            }));
            assert!(poll_now(call.as_mut()).is_pending());
            clock.advance(ms(1_000));
            assert!(poll_now(call.as_mut()).is_pending());
            assert_eq!(alive.load(SeqCst), 2);
        }
        assert_eq!((alive.load(SeqCst), clock.next_wake()), (0, None));
    }
}

mod falling_back {
    use super::*;

    fn fail_with<T>(failure: Failure<Answer>) -> impl Future<Output = Result<T, Failure<Answer>>> {
        ready(Err(failure))
    }

    #[test]
    fn a_success_is_not_touched() {
        let fallback = Fallback::function(|_: &Failure<()>| -> u8 { panic!("nothing failed") });
        assert_eq!(poll_now(pin!(fallback.call(|| ready(Ok(1))))), Poll::Ready(Ok(1)));
    }

    #[test]
    fn every_failure_but_bad_settings_and_arguments_is_answered() {
        let fallback = Fallback::value("instead");
        let timeout = Failure::Resil(Error::Timeout { after: ms(1) });
        for failure in [Failure::Inner(Answer::Gone), timeout.clone(), exhausted(3, timeout)] {
            assert_eq!(poll_now(pin!(fallback.around(|| fail_with(failure)))), Poll::Ready(Ok("instead")));
        }
        let invalid = Error::InvalidPolicy { field: "a".into(), reason: "b".into() };
        for error in [invalid, Error::InvalidArgument("c".into())] {
            let failure = Failure::Resil(error);
            assert_eq!(
                poll_now(pin!(fallback.around(|| fail_with(failure.clone())))),
                Poll::Ready(Err(failure.clone()))
            );
        }
    }

    #[test]
    fn a_predicate_chooses_otherwise() {
        let fallback = Fallback::value(0).when(|failure| failure.code() == Some(Code::Timeout));
        let gone = Failure::Inner(Answer::Gone);
        assert_eq!(poll_now(pin!(fallback.around(|| fail_with(gone.clone())))), Poll::Ready(Err(gone.clone())));
        let timeout = Failure::Resil(Error::Timeout { after: ms(1) });
        assert_eq!(poll_now(pin!(fallback.around(|| fail_with(timeout)))), Poll::Ready(Ok(0)));
    }

    #[test]
    fn a_function_sees_the_failure_and_an_asynchronous_one_may_fail_itself() {
        let name = Fallback::function(|failure: &Failure<Answer>| format!("{failure:?}"));
        let answer = poll_now(pin!(name.call(|| ready(Err(Answer::Gone)))));
        assert_eq!(answer, Poll::Ready(Ok("Inner(Gone)".to_owned())));
        let clock = Clock::driven();
        let slow = clock.clone();
        let second = Fallback::async_function(move |failure: Failure<Answer>| {
            let slow = slow.clone();
            async move {
                slow.sleep(ms(5)).await;
                match failure {
                    Failure::Inner(Answer::Busy) => Ok("from the second"),
                    other => Err(other),
                }
            }
        });
        assert_eq!(drive(&clock, second.call(|| ready(Err(Answer::Busy)))), Ok("from the second"));
        assert_eq!(drive(&clock, second.call(|| ready(Err(Answer::Gone)))), Err(Failure::Inner(Answer::Gone)));
    }
}

#[test]
fn handles_can_be_kept_anywhere_and_calls_can_be_spawned() {
    fn is_handle<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn is_send<T: Send>(_: T) {}
    let retry = Retry::new(&RetrySettings::default()).expect("valid");
    let hedge = Hedge::new(&HedgeSettings::default()).expect("valid");
    let timeout = Timeout::total(ms(1)).expect("valid");
    let bulkhead = LocalBulkhead::new("orders", 1, 1).expect("valid");
    let fallback = Fallback::<u8, Answer>::value(1);
    is_handle(&retry);
    is_handle(&hedge);
    is_handle(&timeout);
    is_handle(&bulkhead);
    is_handle(&fallback);
    let call = || async { Ok::<u8, Answer>(1) };
    is_send(
        fallback
            .around(|| timeout.around(|| retry.around(classify, || hedge.around(classify, || bulkhead.call(call))))),
    );
}
