//! Retry, timeout, hedging and fallback, as their users see them. Time is driven but where it says otherwise.

mod falling_back;
mod hedging;
mod retrying;
mod timing_out;

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
    Class, Fallback, Hedge, HedgeSettings, Jitter, LocalBulkhead, Retry, RetrySettings, Timeout, TimeoutSettings,
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
enum Reply {
    Busy,
    BusyFor(u64),
    Gone,
    NotFound,
}

fn classify(reply: &Reply) -> Class {
    match reply {
        Reply::Busy => Class::Retry,
        Reply::BusyFor(span_ms) => Class::RetryAfter(ms(*span_ms)),
        Reply::Gone => Class::Permanent,
        Reply::NotFound => Class::Ignore,
    }
}

fn plain_retry(max_attempts: u32) -> RetrySettings {
    RetrySettings { max_attempts, jitter: Jitter::None, budget: None, ..RetrySettings::default() }
}

#[test]
fn handles_can_be_kept_anywhere_and_calls_can_be_spawned() {
    fn is_handle<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn is_send<T: Send>(_: T) {}
    let retry = Retry::new(&RetrySettings::default()).expect("valid");
    let hedge = Hedge::new(&HedgeSettings::default()).expect("valid");
    let timeout = Timeout::total(ms(1)).expect("valid");
    let bulkhead = LocalBulkhead::new("orders", 1, 1).expect("valid");
    let fallback = Fallback::<u8, Reply>::value(1);
    is_handle(&retry);
    is_handle(&hedge);
    is_handle(&timeout);
    is_handle(&bulkhead);
    is_handle(&fallback);
    let call = || async { Ok::<u8, Reply>(1) };
    is_send(
        fallback
            .around(|| timeout.around(|| retry.around(classify, || hedge.around(classify, || bulkhead.call(call))))),
    );
}
