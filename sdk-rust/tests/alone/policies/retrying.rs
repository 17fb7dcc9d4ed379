//! Retries: how often, after which delays, and what is left when they end.

use super::*;

fn any_reply() -> impl Strategy<Value = Result<u8, Reply>> {
    prop_oneof![
        1 => any::<u8>().prop_map(Ok),
        6 => Just(Err(Reply::Busy)),
        3 => (0u64..70_000).prop_map(|ms| Err(Reply::BusyFor(ms))),
        1 => Just(Err(Reply::Gone)),
        1 => Just(Err(Reply::NotFound)),
    ]
}

/// What should come of `results`: the outcome, after how many attempts, after how long.
fn model(settings: &RetrySettings, replies: &[Result<u8, Reply>]) -> (Result<u8, Failure<Reply>>, u32, Duration) {
    let mut waited = Duration::ZERO;
    for attempt in 1.. {
        let reply = match replies[(attempt as usize - 1) % replies.len()] {
            Ok(value) => return (Ok(value), attempt, waited),
            Err(reply) => reply,
        };
        let over = |failure| (Err(failure), attempt, waited);
        let asked = match reply {
            Reply::Gone | Reply::NotFound => return over(Failure::Inner(reply)),
            Reply::Busy => Duration::ZERO,
            Reply::BusyFor(span_ms) => ms(span_ms),
        };
        if settings.max_attempts == 1 {
            return over(Failure::Inner(reply));
        }
        let delay = settings.backoff().nominal(attempt - 1).max(asked);
        let is_late = settings.max_elapsed.is_some_and(|most| waited + delay >= most);
        if attempt == settings.max_attempts || asked > settings.retry_after_max || is_late {
            return over(exhausted(attempt, Failure::Inner(reply)));
        }
        waited += delay;
    }
    unreachable!("attempts are limited")
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn any_replies_end_after_the_promised_attempts_and_time(
        replies in prop::collection::vec(any_reply(), 1..12),
        max_attempts in 1u32..=15,
        max_elapsed in prop::option::of(1u64..100_000),
    ) {
        let clock = Clock::driven();
        let settings = RetrySettings { max_elapsed: max_elapsed.map(ms), ..plain_retry(max_attempts) };
        let retry = Retry::new(&settings).expect("valid").with_clock(clock.clone());
        let (began, mut attempts) = (clock.now(), 0u32);
        let outcome = drive(&clock, retry.call(classify, || {
            attempts += 1;
            ready(replies[(attempts as usize - 1) % replies.len()])
        }));
        let expected = model(&settings, &replies);
        prop_assert_eq!((outcome, attempts, clock.now() - began), expected);
    }

    #[test]
    fn exhausted_retries_report_their_attempts_and_the_last_error(max_attempts in 2u32..=100) {
        let clock = Clock::driven();
        let retry = Retry::new(&plain_retry(max_attempts)).expect("valid").with_clock(clock.clone());
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
            let retry = Retry::new(&settings).expect("valid").with_clock(clock.clone()).with_seed(seed);
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
fn an_open_circuit_is_asked_once_and_returned_unchanged() {
    let clock = Clock::driven();
    let retry = Retry::new(&plain_retry(10)).expect("valid").with_clock(clock.clone());
    let open = Failure::Resil(Error::CircuitOpen { name: "orders".into(), retry_after: Some(ms(1)) });
    let mut asked = 0;
    let outcome: Result<(), Failure<Reply>> = drive(
        &clock,
        retry.around(retry_all, || {
            asked += 1;
            ready(Err(open.clone()))
        }),
    );
    assert_eq!((outcome, asked), (Err(open.clone()), 1));
}

#[test]
fn a_refusal_is_retried_when_it_says_without_classifier() {
    let clock = Clock::driven();
    let retry = Retry::new(&plain_retry(2)).expect("valid").with_clock(clock.clone());
    let limited = Failure::Resil(Error::RateLimitExceeded { name: "orders".into(), retry_after: Some(ms(700)) });
    let mut replies = [Err(limited), Ok(())].into_iter();
    let began = clock.now();
    let outcome: Result<(), Failure<Reply>> =
        drive(&clock, retry.around(retry_none, || ready(replies.next().expect("two attempts"))));
    assert_eq!((outcome, clock.now() - began), (Ok(()), ms(700)));
}

#[test]
fn an_empty_budget_ends_retries_also_for_a_crowd() {
    let clock = Clock::driven();
    let budget = BudgetSettings { min_per_second: 1, percent: 0, ..BudgetSettings::default() };
    let budget = Budget::with_clock(&budget, clock.clone()).expect("valid");
    let settings = RetrySettings {
        initial_backoff: Duration::from_secs(60),
        max_backoff: Duration::from_secs(60),
        ..plain_retry(5)
    };
    let retry = Retry::new(&settings).expect("valid").with_clock(clock.clone()).with_budget(budget.clone());
    let call = || retry.call(retry_all, || ready(Err::<(), _>("down")));
    let mut crowd: Vec<_> = (0..10).map(|_| Box::pin(call())).collect();
    assert!(crowd.iter_mut().all(|call| poll_now(call.as_mut()).is_pending()));
    clock.advance(Duration::from_secs(50));
    assert_eq!(drive(&clock, call()), Err(exhausted(1, Failure::Inner("down"))), "ten are waiting to retry");
    drop(crowd);
    assert_eq!(budget.available(), 10, "a cancelled call gives its retry back");
}

#[test]
fn an_attempt_is_dropped_before_its_delay() {
    let clock = Clock::driven();
    let retry = Retry::new(&plain_retry(3)).expect("valid").with_clock(clock.clone());
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
    let retry = Retry::new(&plain_retry(2)).expect("valid").with_clock(clock.clone());
    let kept: Box<dyn Fn(&Reply) -> Class> = Box::new(classify);
    for _ in 0..2 {
        let outcome: Result<(), _> = drive(&clock, retry.call(&kept, || ready(Err(Reply::Busy))));
        assert_eq!(outcome, Err(exhausted(2, Failure::Inner(Reply::Busy))));
    }
}

#[test]
fn with_reraise_the_last_failure_comes_as_it_is() {
    let clock = Clock::driven();
    for (reraise, wanted) in [(false, exhausted(3, Failure::Inner(Reply::Busy))), (true, Failure::Inner(Reply::Busy))] {
        let settings = RetrySettings { reraise, ..plain_retry(3) };
        let retry = Retry::new(&settings).expect("valid").with_clock(clock.clone());
        let failure = drive(&clock, retry.call(classify, || ready(Err::<u8, _>(Reply::Busy)))).expect_err("it fails");
        assert_eq!(failure, wanted);
        assert_eq!(failure.into_inner(), Some(Reply::Busy), "to be had either way");
    }
    let settings: RetrySettings = serde_json::from_str(r#"{"reraise": true}"#).expect("settings");
    assert!(settings.reraise);
}

#[test]
fn a_jitter_is_text_or_an_object() {
    let read = |json: &str| serde_json::from_str::<RetrySettings>(json).map(|settings| settings.jitter);
    assert_eq!(read(r#"{"jitter": "20%"}"#).expect("text"), Jitter::PlusMinus(20));
    assert_eq!(read(r#"{"jitter": {"plusMinus": 20}}"#).expect("an object"), Jitter::PlusMinus(20));
    assert_eq!(read(r#"{"jitter": {"plus_minus": 20.0}}"#).expect("as Python says it"), Jitter::PlusMinus(20));
    for wrong in
        [r#"{"jitter": {"plusMinus": 101}}"#, r#"{"jitter": {"plusMinus": 0.2}}"#, r#"{"jitter": {"full": 1}}"#]
    {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
