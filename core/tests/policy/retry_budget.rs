use proptest::prelude::*;
use resil_core::policy::backoff::{Backoff, JitterKind};
use resil_core::policy::retry_budget::{BudgetRules, RetryBudget};
use resil_core::{Instant, Span};

const RULES: BudgetRules = BudgetRules { ttl: Span::from_secs(10), min_per_second: 1, percent: 20 };

fn at(ms: i64) -> Instant {
    Instant::from_us(1_700_000_000_000_000 + ms * 1_000)
}

#[test]
fn a_longer_window_forgets_nothing_that_was_begun() {
    let mut budget = RetryBudget::default();
    budget.count_calls(&RULES, 100, at(0));
    for _ in 0..30 {
        assert!(budget.try_take(&RULES, at(100)));
        budget.begin(&RULES, at(100));
    }
    assert!(!budget.try_take(&RULES, at(100)));
    let longer = BudgetRules { ttl: Span::from_secs(20), ..RULES };
    assert_eq!(budget.available(&longer, at(200)), 10, "only the floor has grown");
    budget.count_calls(&longer, 0, at(200));
    assert_eq!(budget.available(&longer, at(200)), 10);
}

#[test]
fn slots_make_the_same_budget_again() {
    let mut budget = RetryBudget::default();
    budget.count_calls(&RULES, 500, at(0));
    assert!(budget.try_take(&RULES, at(1_500)) && budget.try_take(&RULES, at(1_500)));
    budget.begin(&RULES, at(2_500));
    let again = RetryBudget::from_slots(RULES.ttl, budget.slots(), budget.waiting());
    for ms in [2_500, 5_000, 9_999, 10_500, 20_000] {
        assert_eq!(again.available(&RULES, at(ms)), budget.available(&RULES, at(ms)), "{ms}");
    }
}

proptest! {
    #![proptest_config(crate::seed::config())]

    /// Every extra call that begins is counted one by one, beside the calls that earned it.
    #[test]
    fn extra_calls_never_exceed_the_budget_in_any_window(
        steps in prop::collection::vec((0u8..5, 0i64..2_500), 1..300),
        min_per_second in 0u32..4,
        percent in 0u32..200,
    ) {
        let rules = BudgetRules { min_per_second, percent, ..RULES };
        let (mut budget, mut now_ms, mut waiting) = (RetryBudget::default(), 0, 0u64);
        let (mut calls, mut begun): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        for (what, ms) in steps {
            now_ms += ms / 5;
            match what {
                0 | 1 => {
                    budget.count_calls(&rules, 1, at(now_ms));
                    calls.push(now_ms);
                }
                2 => waiting += u64::from(budget.try_take(&rules, at(now_ms))),
                3 if waiting > 0 => {
                    waiting -= 1;
                    budget.begin(&rules, at(now_ms));
                    begun.push(now_ms);
                }
                4 if waiting > 0 => {
                    waiting -= 1;
                    budget.give_back();
                }
                _ => {}
            }
            prop_assert_eq!(budget.waiting(), waiting);
            let recent = |list: &[i64], ms: i64| list.iter().filter(|at| **at > now_ms - ms).count() as u64;
            // What waited since long ago may begin now; it was allowed by the calls of that time. What is granted now is not.
            if budget.available(&rules, at(now_ms)) > 0 {
                let allowed = u64::from(min_per_second) * 10 + recent(&calls, 10_000) * u64::from(percent) / 100;
                prop_assert!(recent(&begun, 9_000) + waiting < allowed.max(1) + u64::from(allowed == 0), "at {}", now_ms);
            }
        }
    }

    // Property 4: a delay is within its jitter around min(initial * multiplier^n, max).
    #[test]
    fn delays_stay_within_their_jitter(
        initial_ms in 1i64..60_000, factor in 1.0f64..5.0, max_ms in 1i64..300_000, n in 0u32..40, j in 0u8..=50, unit in 0.0f64..1.0,
    ) {
        let (initial, max) = (Span::from_ms(initial_ms), Span::from_ms(max_ms.max(initial_ms)));
        let rule = Backoff { initial, max, multiplier: factor, jitter: JitterKind::PlusMinus(j), min: Span::ZERO };
        let nominal = (initial.as_us() as f64 * factor.powi(n as i32)).min(max.as_us() as f64);
        let delay = rule.delay(n, initial, unit).as_us() as f64;
        let part = f64::from(j) / 100.0;
        // One microsecond for each multiplication that cuts off a fraction.
        prop_assert!(delay >= nominal * (1.0 - part) - 2.0 - nominal * 1e-9, "{delay} for {nominal}");
        prop_assert!(delay <= nominal * (1.0 + part) + 2.0 && delay <= max.as_us() as f64, "{delay} for {nominal}");
    }
}
