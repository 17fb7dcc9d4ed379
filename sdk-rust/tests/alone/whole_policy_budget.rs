//! One budget of several whole policies, and of policies beside them.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use resil::clock::Clock;
use resil::policy::{Budget, BudgetSettings, Jitter, Policy, Retry, RetrySettings, retry_all};

use crate::drive::drive;

#[test]
fn a_budget_is_shared_by_whole_policies_and_single_ones() {
    let clock = Clock::driven();
    let ten = BudgetSettings { min_per_second: 1, percent: 0, ..BudgetSettings::default() };
    let budget = Budget::with_clock(&ten, clock.clone()).unwrap();
    let (max_attempts, initial_backoff) = (3, Duration::from_millis(100));
    let three = RetrySettings { max_attempts, initial_backoff, jitter: Jitter::None, ..RetrySettings::default() };
    let made = |name| Policy::builder(name).clock(clock.clone()).retry(&three).budget(budget.clone()).build();
    let policies = [made("reads").unwrap(), made("writes").unwrap()];
    let retry = Retry::new(&three).unwrap().with_clock(clock.clone()).with_budget(budget.clone());
    let calls = AtomicU32::new(0);
    let fail = || async { Err::<(), _>(calls.fetch_add(1, SeqCst)) };
    for _ in 0..2 {
        for policy in &policies {
            drive(&clock, policy.call(retry_all, fail)).unwrap_err();
        }
        drive(&clock, retry.call(retry_all, fail)).unwrap_err();
    }
    assert_eq!((calls.load(SeqCst), budget.available()), (6 + 10, 0), "ten extra calls for all together");
}
