//! The names of metrics are a promise: dashboards hang on them.

use std::future::{pending, ready};
use std::pin::pin;
use std::time::Duration;

use metrics::with_local_recorder;
use resil::clock::Clock;
use resil::policy::{
    BudgetSettings, BulkheadSettings, Fallback, Hedge, HedgeSettings, Jitter, LocalBulkhead, Retry, RetrySettings,
    Timeout, retry_all,
};

use crate::counted::Seen;
use crate::drive::{drive, poll_now};

const SECOND: Duration = Duration::from_secs(1);

fn retry(seen: &Seen, clock: &Clock, settings: RetrySettings) -> Retry {
    let settings = RetrySettings { jitter: Jitter::None, ..settings };
    with_local_recorder(seen, || Retry::new(&settings).expect("valid").named("orders").with_clock(clock.clone()))
}

#[test]
fn retries_are_counted_and_so_is_why_they_ended() {
    let clock = Clock::driven();
    let budget = BudgetSettings { min_per_second: 0, percent: 0, ..BudgetSettings::default() };
    let cases = [
        (RetrySettings { max_attempts: 3, ..RetrySettings::default() }, 2.0, "attempts"),
        (RetrySettings { budget: Some(budget), ..RetrySettings::default() }, 0.0, "budget"),
        (RetrySettings { max_elapsed: Some(SECOND / 5), ..RetrySettings::default() }, 1.0, "deadline"),
    ];
    for (settings, retries, reason) in cases {
        let seen = Seen::default();
        let retry = retry(&seen, &clock, settings);
        drive(&clock, retry.call(retry_all, || ready(Err::<(), _>(())))).expect_err("it fails");
        let given_up = format!("resil_retries_given_up_total{{name=orders,reason={reason}}}");
        let mut expected = vec![(given_up.as_str(), 1.0)];
        if retries > 0.0 {
            expected.push(("resil_retried_total{name=orders}", retries));
        }
        seen.is(&expected);
    }
}

#[test]
fn timeouts_hedges_and_fallbacks_are_counted() {
    let (clock, seen) = (Clock::driven(), Seen::default());
    let (timeout, hedge, fallback) = with_local_recorder(&seen, || {
        let timeout = Timeout::total(SECOND).expect("valid").named("orders").with_clock(clock.clone());
        let hedge = Hedge::new(&HedgeSettings::default()).expect("valid").named("orders").with_clock(clock.clone());
        (timeout, hedge, Fallback::value(()).named("orders"))
    });
    drive(&clock, fallback.around(|| timeout.call(pending::<Result<(), ()>>))).expect("the fallback replies");
    let begun = std::cell::Cell::new(0);
    let call = || {
        begun.set(begun.get() + 1);
        let span = if begun.get() == 1 { SECOND } else { SECOND / 10 };
        let clock = &clock;
        async move {
            clock.sleep(span).await;
            Ok::<_, ()>(())
        }
    };
    drive(&clock, hedge.call(retry_all, call)).expect("the second replies");
    seen.is(&[
        ("resil_fallbacks_total{name=orders}", 1.0),
        ("resil_hedged_total{name=orders}", 1.0),
        ("resil_hedges_won_total{name=orders}", 1.0),
        ("resil_timed_out_total{name=orders,scope=total}", 1.0),
    ]);
}

#[test]
fn the_gauges_of_a_bulkhead_follow_it() {
    let (clock, seen) = (Clock::driven(), Seen::default());
    let settings = BulkheadSettings { max_concurrent_calls: 1, max_queue: 1, ..BulkheadSettings::default() };
    let bulkhead = with_local_recorder(&seen, || LocalBulkhead::from_settings("orders", &settings, clock.clone()));
    let bulkhead = bulkhead.expect("valid");
    let (active, queued) = ("resil_bulkhead_active{name=orders}", "resil_bulkhead_queued{name=orders}");
    let rejected = "resil_denied_total{name=orders,primitive=bulkhead}";
    let granted = "resil_granted_total{name=orders,primitive=bulkhead}";
    let held = bulkhead.try_acquire().expect("a place");
    let mut waiting = pin!(bulkhead.acquire());
    assert!(poll_now(waiting.as_mut()).is_pending());
    assert!(poll_now(pin!(bulkhead.acquire())).is_ready(), "the queue is full");
    seen.is(&[(active, 1.0), (queued, 1.0), (rejected, 1.0), (granted, 1.0)]);
    drop(held);
    let next = drive(&clock, waiting).expect("it is their turn");
    seen.is(&[(active, 1.0), (queued, 0.0), (rejected, 1.0), (granted, 2.0)]);
    drop(next);
    seen.is(&[(active, 0.0), (queued, 0.0), (rejected, 1.0), (granted, 2.0)]);
}
