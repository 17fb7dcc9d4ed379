use proptest::prelude::*;
use resil_core::policy::chaos::Strike;
use resil_core::policy::{Chaos, ChaosKind};
use resil_core::{Instant, Span};

const END: Instant = Instant::from_us(1_700_000_000_000_000);

fn chaos(kind: ChaosKind, percent: f64, seed: u64) -> Chaos {
    let latency = (kind == ChaosKind::Latency).then_some(Span::from_ms(300));
    Chaos { kind: Some(kind), percent: Some(percent), latency, until: Some(END), seed: Some(seed), subjects: None }
}

#[test]
fn the_same_seed_strikes_the_same_calls() {
    let struck = |seed: u64| -> Vec<u64> {
        let rules = chaos(ChaosKind::Error, 10.0, seed);
        (0..1_000).filter(|call| rules.strike("any", *call, Instant::EPOCH).is_some()).collect()
    };
    assert_eq!(struck(7), struck(7));
    assert_ne!(struck(7), struck(8));
}

#[test]
fn each_kind_strikes_in_its_way() {
    let now = Instant::EPOCH;
    assert_eq!(chaos(ChaosKind::Latency, 100.0, 1).strike("a", 1, now), Some(Strike::Latency(Span::from_ms(300))));
    assert_eq!(chaos(ChaosKind::Error, 100.0, 1).strike("a", 1, now), Some(Strike::Error));
    assert_eq!(chaos(ChaosKind::Drop, 100.0, 1).strike("a", 1, now), Some(Strike::Drop));
}

proptest! {
    #![proptest_config(crate::seed::config())]

    #[test]
    fn chaos_strikes_its_percentage_and_only_who_is_named(seed in 0u64..1 << 53, percent in 0u32..=100, late in 0i64..10_000_000) {
        let mut rules = chaos(ChaosKind::Error, f64::from(percent), seed);
        let before = END.minus(Span::from_us(1));
        let struck = (0..2_000).filter(|call| rules.strike("a", *call, before).is_some()).count() as f64;
        let expected = f64::from(percent) * 20.0;
        // Six standard deviations.
        prop_assert!((struck - expected).abs() <= 6.0 * (expected * (1.0 - f64::from(percent) / 100.0)).sqrt(), "{} of {}", struck, expected);
        prop_assert_eq!(rules.strike("a", 1, END.plus(Span::from_us(late))), None, "it is over");
        rules.subjects = Some(vec!["b".into()]);
        prop_assert!((0..100).all(|call| rules.strike("a", call, before).is_none()), "nobody named it");
    }
}
