use proptest::prelude::*;

use super::*;
use crate::clock::Moment;

fn budget(min_per_second: u32, percent: u32) -> (Budget, Clock) {
    let clock = Clock::driven();
    let settings = BudgetSettings { ttl: Duration::from_secs(10), min_per_second, percent };
    (Budget::with_clock(&settings, clock.clone()).expect("valid"), clock)
}

#[test]
fn a_hundred_calls_earn_their_percentage_and_not_one_more() {
    let (budget, _clock) = budget(0, 20);
    assert!(budget.try_take().is_none(), "nothing was earned yet");
    (0..100).for_each(|_| budget.count_call());
    assert_eq!(budget.available(), 20);
    for _ in 0..20 {
        budget.try_take().expect("earned").begin();
    }
    assert!(budget.try_take().is_none());
}

#[test]
fn a_quiet_process_has_its_floor_again_after_the_window() {
    let (budget, clock) = budget(1, 0);
    (0..10).for_each(|_| budget.try_take().expect("the floor").begin());
    assert!(budget.try_take().is_none());
    clock.advance(Duration::from_secs(8));
    assert!(budget.try_take().is_none(), "the window has not passed");
    clock.advance(Duration::from_secs(2));
    assert_eq!(budget.available(), 10);
}

#[test]
fn a_retry_in_backoff_counts_and_cancelling_returns_it() {
    let (budget, clock) = budget(1, 0);
    let waiting: Vec<BudgetPermit> = (0..10).filter_map(|_| budget.try_take()).collect();
    assert_eq!(waiting.len(), 10);
    clock.advance(Duration::from_secs(60));
    assert!(budget.try_take().is_none(), "a crowd that waits cannot be joined");
    drop(waiting);
    assert_eq!(budget.available(), 10);
}

#[test]
fn calls_counted_from_many_threads_are_all_counted() {
    let (budget, _clock) = budget(0, 100);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| budget.count_call()));
        }
    });
    assert_eq!(budget.available(), 40_000);
}

#[test]
fn threads_that_ask_at_once_do_not_overdraw() {
    let (budget, _clock) = budget(50, 0);
    let granted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    if let Some(grant) = budget.try_take() {
                        grant.begin();
                        granted.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(granted.into_inner(), 500);
}

proptest! {
    /// Whatever happens, in the last nine tenths of a window (the ring's grain) no more is begun than was allowed.
    #[test]
    fn no_schedule_overdraws(steps in prop::collection::vec((0u8..4, 0u64..3_000), 1..300), percent in 0u32..200) {
        let (budget, clock) = budget(1, percent);
        let (mut calls, mut begun, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, ms) in steps {
            let now = clock.now();
            match kind {
                0 => { budget.count_call(); calls.push(now); }
                1 => waiting.extend(budget.try_take()),
                2 => if let Some(grant) = waiting.pop() { BudgetPermit::begin(grant); begun.push(now); },
                _ => clock.advance(Duration::from_millis(ms)),
            }
            let now = clock.now();
            let within = |all: &[Moment], span_ms| all.iter().filter(|at| now - **at < Duration::from_millis(span_ms)).count() as u64;
            let allowed = 10 + within(&calls, 10_000) * u64::from(percent) / 100;
            if kind == 1 && !waiting.is_empty() && budget.available() > 0 {
                prop_assert!(within(&begun, 9_000) + (waiting.len() as u64) < allowed + 1);
            }
            // What the budget says is left agrees with the count, but for the slot that is passing.
            let fewest = (10 + within(&calls, 9_000) * u64::from(percent) / 100)
                .saturating_sub(within(&begun, 10_000)).saturating_sub(waiting.len() as u64);
            let most = allowed.saturating_sub(within(&begun, 9_000)).saturating_sub(waiting.len() as u64);
            prop_assert!((fewest..=most).contains(&budget.available()));
        }
    }
}
