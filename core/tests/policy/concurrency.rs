use proptest::prelude::*;
use resil_core::Span;
use resil_core::policy::AdaptiveKind;
use resil_core::policy::concurrency::{Concurrency, ConcurrencyRules, Sample};

fn sample(ms: i64, is_overload: bool, in_flight: u32) -> Sample {
    Sample { took: Span::from_ms(ms), is_overload, in_flight }
}

#[test]
fn longer_durations_shrink_the_gradient_and_shorter_grow_it() {
    let rules = ConcurrencyRules { kind: AdaptiveKind::Gradient, min: 4, max: 200 };
    let mut machine = Concurrency::default();
    assert_eq!(machine.limit(&rules), 200, "it begins at the maximum");
    (0..2_000).for_each(|_| machine.ended(&rules, sample(50, false, 200)));
    assert_eq!(machine.limit(&rules), 200);
    // Now it bears 40 calls at once; what is beyond waits.
    for _ in 0..20_000 {
        let limit = machine.limit(&rules);
        machine.ended(&rules, sample(50 * i64::from(limit.max(40)) / 40, false, limit));
    }
    assert!((30..90).contains(&machine.limit(&rules)), "{}", machine.limit(&rules));
    // It becomes slow for everybody: that is the new normal, and no reason to stay small.
    for _ in 0..20_000 {
        let limit = machine.limit(&rules);
        machine.ended(&rules, sample(500 * i64::from(limit.max(40)) / 40, false, limit));
    }
    assert!((30..90).contains(&machine.limit(&rules)), "{}", machine.limit(&rules));
    (0..20_000).for_each(|_| machine.ended(&rules, sample(50, false, 200)));
    assert_eq!(machine.limit(&rules), 200);
}

#[test]
fn failures_of_one_round_take_a_tenth_once() {
    let rules = ConcurrencyRules { kind: AdaptiveKind::Aimd, min: 1, max: 100 };
    let mut machine = Concurrency::default();
    assert_eq!(machine.limit(&rules), 20, "it begins small");
    (0..15).for_each(|_| machine.ended(&rules, sample(10, true, 100)));
    assert_eq!(machine.limit(&rules), 18);
    (0..3_000).for_each(|_| machine.ended(&rules, sample(10, true, 100)));
    assert_eq!(machine.limit(&rules), 1, "at last the least");
    (0..10_000).for_each(|_| machine.ended(&rules, sample(10, false, 100)));
    assert_eq!(machine.limit(&rules), 100);
}

#[test]
fn an_idle_caller_does_not_grow_its_limit() {
    for kind in [AdaptiveKind::Aimd, AdaptiveKind::Gradient] {
        let rules = ConcurrencyRules { kind, min: 2, max: 100 };
        let mut machine = Concurrency::default();
        (0..20).for_each(|_| machine.ended(&rules, sample(10, false, 100)));
        (0..2_000).for_each(|_| machine.ended(&rules, sample(9_000, true, 100)));
        let small = machine.limit(&rules);
        (0..200).for_each(|_| machine.ended(&rules, sample(10, false, 1)));
        assert!(machine.limit(&rules) <= small.max(3), "{kind:?}: {small} to {}", machine.limit(&rules));
    }
}

proptest! {
    #![proptest_config(crate::seed::config())]

    #[test]
    fn the_limit_stays_between_its_bounds(
        samples in prop::collection::vec((0i64..i64::MAX, any::<bool>(), any::<u32>(), 1u32..2_000, 0u32..2_000), 1..400),
        gradient: bool,
    ) {
        let kind = if gradient { AdaptiveKind::Gradient } else { AdaptiveKind::Aimd };
        let mut machine = Concurrency::default();
        for (us, is_overload, in_flight, min, more) in samples {
            // The bounds may change at any time.
            let rules = ConcurrencyRules { kind, min, max: min + more };
            machine.ended(&rules, Sample { took: Span::from_us(us), is_overload, in_flight });
            prop_assert!((min..=min + more).contains(&machine.limit(&rules)));
        }
    }
}
