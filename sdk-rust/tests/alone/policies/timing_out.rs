//! Timeouts: they fire in time, and drop what they cut off.

use super::*;

proptest! {
    #![proptest_config(seed::config())]

    // Property 8: a call that takes longer than its timeout is ended at that time.
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

    // Property 9: the timeout of an operation beats the one for all.
    #[test]
    fn an_operations_timeout_beats_the_general_one(
        operation in prop::option::of(1u64..1_000), global in prop::option::of(1u64..1_000),
    ) {
        let of = |after: Option<u64>| TimeoutSettings { attempt: after.map(ms), total: after.map(ms) };
        prop_assert_eq!(of(operation).over(&of(global)), if operation.is_some() { of(operation) } else { of(global) });
    }

    #[test]
    fn a_timeout_is_positive_and_at_most_five_minutes(us in 0u64..1_000_000_000) {
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
fn the_call_is_dropped_exactly_when_its_timeout_fires() {
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
fn a_ready_call_needs_no_timer_and_no_runtime() {
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
fn a_call_that_uses_its_tasks_budget_is_cut() {
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
    let retry = Retry::new(&plain_retry(3)).expect("valid").with_clock(clock.clone());
    let attempts = Cell::new(0);
    let slow = || {
        attempts.set(attempts.get() + 1);
        pending::<Result<(), Reply>>()
    };
    let late = |after| Failure::Resil(Error::Timeout { after });
    let outcome: Result<(), Failure<Reply>> =
        drive(&clock, total.around(|| retry.around(classify, || attempt.call(slow))));
    // 50, 100 of delay, 50, 200 of delay: the third attempt would end at 450.
    assert_eq!((outcome, attempts.get()), (Err(late(ms(400))), 3));
    let outcome: Result<(), Failure<Reply>> = drive(&clock, retry.around(classify, || attempt.call(slow)));
    assert_eq!(outcome, Err(exhausted(3, late(ms(50)))));
}
