use proptest::prelude::*;
use resil_core::policy::shedding::{Priority, Shedder, SheddingRules};

proptest! {
    #![proptest_config(crate::seed::config())]

    /// A lower class is never admitted while a higher one is shed, and critical calls are never shed.
    #[test]
    fn priorities_are_never_inverted(
        mut from_pct in prop::array::uniform4(1u32..=100),
        hysteresis in 0u32..50,
        places in 1u32..1_000,
        taken in prop::collection::vec(0.0f64..=1.0, 1..60),
    ) {
        from_pct.sort_unstable();
        let rules = SheddingRules { from_pct, hysteresis_pct: hysteresis.min(from_pct[0] - 1) };
        let mut shedder = Shedder::default();
        for part in taken {
            let taken = (f64::from(places) * part) as u32;
            let before = shedder;
            shedder.observe(&rules, taken, places);
            prop_assert!(!shedder.sheds(Priority::Critical));
            for pair in Priority::ALL.windows(2) {
                prop_assert!(shedder.sheds(pair[0]) || !shedder.sheds(pair[1]), "{:?} before {:?}", pair[1], pair[0]);
            }
            let pct = f64::from(taken) * 100.0 / f64::from(places);
            for (class, from) in Priority::ALL.into_iter().zip(from_pct) {
                if pct >= f64::from(from) {
                    prop_assert!(shedder.sheds(class), "{class:?} at {pct} of {from}");
                }
                if pct < f64::from(from - rules.hysteresis_pct) {
                    prop_assert!(!shedder.sheds(class), "{class:?} at {pct} of {from}");
                }
                // Between the two it stays as it was.
                if pct < f64::from(from) && pct >= f64::from(from - rules.hysteresis_pct) {
                    prop_assert_eq!(shedder.sheds(class), before.sheds(class), "{:?} at {} of {}", class, pct, from);
                }
            }
        }
    }
}
