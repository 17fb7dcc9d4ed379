//! A retry storm: 50 callers with four calls a second each, and a service that fails for twenty seconds.
//!
//! With a budget in each process the floors add up: 50 times ten retries a second. One budget for the fleet has one floor.

use std::collections::BTreeMap;

use resil_core::policy::backoff::{Backoff, JitterKind};
use resil_core::policy::retry_budget::{BudgetRules, RetryBudget};
use resil_core::{Instant, Span};

use super::plot::{Series, publish};
use super::random::Random;

const CALLERS: usize = 50;
const CALLS_PER_SECOND: u64 = 4;
const RULES: BudgetRules = BudgetRules { ttl: Span::from_secs(10), min_per_second: 10, percent: 10 };

/// Calls that reach the service, per second, and by how many times they are more than the callers' own while it fails.
fn simulate(count: usize) -> (Vec<u64>, f64) {
    let mut random = Random(2);
    let mut budgets = vec![RetryBudget::default(); count];
    let backoff = Backoff {
        initial: Span::from_ms(100),
        max: Span::from_secs(10),
        multiplier: 2.0,
        jitter: JitterKind::Full,
        min: Span::ZERO,
    };
    let mut seconds = vec![0u64; 40];
    let mut later: BTreeMap<i64, Vec<(usize, u32)>> = BTreeMap::new();
    let (mut own, mut all) = (0u64, 0u64);
    for now_ms in 0..40_000i64 {
        let now = Instant::from_us(now_ms * 1_000);
        let fails = (10_000..30_000).contains(&now_ms);
        // A full window, and no retry of before.
        let is_measured = (20_000..30_000).contains(&now_ms);
        let mut attempts = later.remove(&now_ms).unwrap_or_default();
        for (caller, _) in &attempts {
            budgets[caller % count].begin(&RULES, now);
        }
        for caller in 0..CALLERS {
            if random.below(1_000) < CALLS_PER_SECOND {
                budgets[caller % count].count_calls(&RULES, 1, now);
                attempts.push((caller, 1));
                own += u64::from(is_measured);
            }
        }
        for (caller, attempt) in attempts {
            seconds[(now_ms / 1_000) as usize] += 1;
            all += u64::from(is_measured);
            if fails && attempt < 4 && budgets[caller % count].try_take(&RULES, now) {
                let unit = random.below(1 << 20) as f64 / f64::from(1 << 20);
                let delay_ms = backoff.delay(attempt - 1, backoff.initial, unit).ceil_ms().max(1);
                later.entry(now_ms + delay_ms).or_default().push((caller, attempt + 1));
            }
        }
    }
    (seconds, all as f64 / own as f64)
}

#[test]
fn one_budget_for_the_fleet_keeps_a_retry_storm_small() {
    let (local, local_times) = simulate(CALLERS);
    let (fleet, fleet_times) = simulate(1);
    println!("amplification: local budgets {local_times:.2}, fleet {fleet_times:.2}");
    assert!(local_times >= 3.0, "{local_times}");
    assert!(fleet_times <= 1.2, "{fleet_times}");
    publish(
        "retry-storm.svg",
        "Calls that reach a service which fails from 10 s to 30 s: 50 callers, 200 calls a second",
        "calls per second",
        &[
            Series { name: "a budget in each process", color: "#c33", values: local },
            Series { name: "one budget for the fleet", color: "#27c", values: fleet },
        ],
    );
}
