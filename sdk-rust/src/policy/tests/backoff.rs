use proptest::prelude::*;

use super::*;

fn backoff(jitter: Jitter) -> Backoff {
    Backoff {
        initial: Duration::from_millis(100),
        max: Duration::from_secs(10),
        multiplier: 2.0,
        jitter,
        min: Duration::ZERO,
    }
}

#[test]
fn without_jitter_delays_multiply_up_to_the_maximum() {
    let mut delays = backoff(Jitter::None).delays();
    let ms: Vec<u128> = (0..9).map(|_| delays.next(&Random::default()).as_millis()).collect();
    assert_eq!(ms, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
}

#[test]
fn the_same_seed_gives_the_same_delays() {
    let run = |seed| {
        let (random, mut delays) = (Random::seeded(seed), backoff(Jitter::Decorrelated).delays());
        (0..20).map(|_| delays.next(&random)).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn every_jitter_and_nothing_else_has_a_name() {
    let jitters =
        [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::PlusMinus(0), Jitter::PlusMinus(100)];
    for jitter in jitters {
        assert_eq!(String::from(jitter).parse(), Ok(jitter));
    }
    for text in ["", "101%", "-1%", "5", "Full", "1.5%", "%"] {
        assert!(text.parse::<Jitter>().is_err(), "{text}");
    }
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        (0u8..=100).prop_map(Jitter::PlusMinus),
    ]
}

prop_compose! {
    fn any_backoff()(
        initial_us in 1u64..10_000_000,
        further_us in 0u64..100_000_000,
        multiplier in 1.0f64..10.0,
        jitter in any_jitter(),
        min_part in 0.0f64..=1.0,
    ) -> Backoff {
        let initial = Duration::from_micros(initial_us);
        let max = initial + Duration::from_micros(further_us);
        Backoff { initial, max, multiplier, jitter, min: max.mul_f64(min_part) }
    }
}

proptest! {
    #[test]
    fn a_delay_stays_within_the_bounds_of_its_jitter(backoff in any_backoff(), n in 0u32..200, unit in 0.0f64..1.0) {
        prop_assert_eq!(backoff.validate(), Ok(()));
        let exact = (backoff.initial.as_secs_f64() * backoff.multiplier.powi(n as i32)).min(backoff.max.as_secs_f64());
        let without_min = Backoff { min: Duration::ZERO, ..backoff };
        let (delay, rounding) = (without_min.delay(n, backoff.initial, unit).as_secs_f64(), 1e-8 + exact * 1e-12);
        let (least, most) = match backoff.jitter {
            Jitter::None => (exact, exact),
            Jitter::Full => (0.0, exact),
            Jitter::Equal => (exact / 2.0, exact),
            Jitter::Decorrelated => (backoff.initial.as_secs_f64(), backoff.initial.as_secs_f64() * 3.0),
            Jitter::PlusMinus(percent) => {
                let j = f64::from(percent) / 100.0;
                (exact * (1.0 - j), exact * (1.0 + j))
            }
        };
        prop_assert!(delay >= least - rounding, "{delay} is below {least}");
        prop_assert!(delay <= most.min(backoff.max.as_secs_f64()) + rounding, "{delay} is above {most}");
        let raised = backoff.delay(n, backoff.initial, unit);
        prop_assert!(raised >= backoff.min && raised <= backoff.max);
    }

    #[test]
    fn plus_minus_reaches_both_ends(backoff in any_backoff(), percent in 1u8..=100, n in 0u32..20) {
        let backoff = Backoff { jitter: Jitter::PlusMinus(percent), min: Duration::ZERO, ..backoff };
        let (d, j) = (backoff.nominal(n).as_secs_f64(), f64::from(percent) / 100.0);
        let low = backoff.delay(n, backoff.initial, 0.0).as_secs_f64();
        let high = backoff.delay(n, backoff.initial, 1.0).as_secs_f64();
        prop_assert!((low - d * (1.0 - j)).abs() < 1e-8);
        prop_assert!((high - (d * (1.0 + j)).min(backoff.max.as_secs_f64())).abs() < 1e-8);
    }
}
