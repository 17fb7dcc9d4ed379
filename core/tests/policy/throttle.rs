use proptest::prelude::*;
use resil_core::policy::throttle::{ThrottleRules, Throttler};
use resil_core::{Instant, Span};

use super::random::Random;

const RULES: ThrottleRules = ThrottleRules { k_milli: 2_000, window: Span::from_secs(10) };

fn at(ms: i64) -> Instant {
    Instant::from_us(1_700_000_000_000_000 + ms * 1_000)
}

#[test]
fn a_healthy_callee_is_never_throttled() {
    let (mut throttler, mut random) = (Throttler::default(), Random(7));
    for ms in 0..10_000 {
        assert!(throttler.admit(&RULES, random.next(), at(ms)));
        throttler.ended(&RULES, ms % 2 == 0, at(ms));
    }
}

#[test]
fn a_dead_callee_gets_a_call_a_second() {
    let (mut throttler, mut random) = (Throttler::default(), Random(8));
    let mut admitted = [0; 10];
    for ms in 0..100_000 {
        if throttler.admit(&RULES, random.next(), at(ms)) {
            admitted[(ms / 10_000) as usize] += 1;
            throttler.ended(&RULES, ms >= 20_000, at(ms));
        }
    }
    assert!((10..40).contains(&admitted[1]), "while it is dead: {admitted:?}");
    assert!(admitted[9] > 9_000, "when it is well again: {admitted:?}");
}

proptest! {
    #![proptest_config(crate::seed::config())]

    /// Against counts that are kept one by one.
    #[test]
    fn refusals_follow_the_formula(
        calls in prop::collection::vec((any::<bool>(), 0i64..40), 1..400), k_milli in 1_000u32..4_000, seed: u64,
    ) {
        let (rules, mut random) = (ThrottleRules { k_milli, ..RULES }, Random(seed));
        let (mut throttler, mut now_ms, mut passed) = (Throttler::default(), 0, None::<i64>);
        let (mut made, mut accepted) = (0f64, 0f64);
        for (is_accepted, ms) in calls {
            now_ms += ms / 10;
            let drawn = random.next();
            let expected = ((made - f64::from(k_milli) / 1_000.0 * accepted) / (made + 1.0)).max(0.0);
            let ppm = f64::from(throttler.refused_ppm(&rules, at(now_ms)));
            prop_assert!((ppm / 1e6 - expected).abs() < 1e-5, "{} for {}", ppm, expected);
            let admitted = throttler.admit(&rules, drawn, at(now_ms));
            let is_due = passed.is_none_or(|passed| now_ms - passed >= 1_000);
            if is_due {
                prop_assert!(admitted, "a call a second passes");
            } else if (drawn as f64 / 2f64.powi(64) - expected).abs() > 1e-5 {
                prop_assert_eq!(admitted, drawn as f64 / 2f64.powi(64) > expected);
            }
            made += 1.0;
            if admitted {
                passed = Some(now_ms);
                throttler.ended(&rules, is_accepted, at(now_ms));
                accepted += f64::from(u8::from(is_accepted));
            }
        }
    }
}
