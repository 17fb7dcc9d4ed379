use proptest::prelude::*;
use resil_core::Instant;
use resil_core::policy::breaker_baseline::Baseline;

fn at(seconds: i64) -> Instant {
    Instant::from_us(1_700_000_000_000_000 + seconds * 1_000_000)
}

#[test]
fn what_is_normal_for_a_callee_does_not_trip_it() {
    let mut baseline = Baseline::default();
    (0..3_000).for_each(|second| baseline.count(10, 6, at(second)));
    assert!(!baseline.trips(50, 65, 100, at(3_000)), "six in ten fail every day");
    assert!(baseline.trips(50, 80, 100, at(3_000)), "eight in ten do not");
    assert!(baseline.trips(50, 50, 100, at(9_000)), "after an hour of silence nothing is known");
}

proptest! {
    #![proptest_config(crate::seed::config())]

    #[test]
    fn thresholds_follow_the_formula(calls in 1u64..1_000_000, failed in 0.0f64..=1.0, rate in 1u32..=100, n in 1u64..10_000) {
        let mut baseline = Baseline::default();
        let failures = (calls as f64 * failed) as u64;
        baseline.count(calls, failures, at(0));
        let threshold = f64::from(baseline.threshold_ppm(rate, n, at(10))) / 1e6;
        let rate = f64::from(rate) / 100.0;
        if calls < 100 {
            prop_assert_eq!(threshold, rate);
        } else {
            let b = failures as f64 / calls as f64;
            let expected = (b + 3.0 * (b * (1.0 - b) / n as f64).sqrt()).min(1.0).max(rate);
            prop_assert!((threshold - expected).abs() < 1e-5, "{} for {}", threshold, expected);
        }
        prop_assert!((rate..=1.0).contains(&threshold));
    }
}
