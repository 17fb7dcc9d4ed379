use super::*;

fn refused(limit: &Limit) -> String {
    match limit.check(1) {
        Err(Error::InvalidPolicy { field, .. }) => field,
        other => format!("{other:?}"),
    }
}

#[test]
fn an_impossible_setting_is_refused_by_field_name() {
    assert_eq!(refused(&Limit::per_second(0)), "limit");
    assert_eq!(refused(&Limit::per_second(1).burst(0)), "burst");
    assert_eq!(refused(&Limit::new(1, Duration::ZERO)), "period");
    assert_eq!(refused(&Limit::window(1, Duration::ZERO)), "period");
    assert_eq!(refused(&Limit::window(0, Duration::from_secs(1))), "limit");
    assert_eq!(refused(&Limit::window(1, Duration::from_secs(1)).burst(2)), "burst");
    assert_eq!(refused(&Limit::per_second(1).and(Limit::per_second(2))), "tiers");
    assert_eq!(refused(&Limit::per_second(1).and(Limit::window(2, Duration::from_secs(9)))), "tiers");
}

#[test]
fn a_processs_part_is_exact_and_at_least_one_cell() {
    let limit = Limit::per_second(10).burst(25).and(Limit::per_day(3)).check(4).unwrap();
    let Shape::Bucket(parts) = &limit.part else { panic!("{limit:?}") };
    let seen: Vec<_> = parts.iter().map(|quota| (quota.limit(), quota.period(), quota.capacity())).collect();
    assert_eq!(seen, [(10, Span::from_secs(4), 6), (3, Span::from_days(4), 1)]);
    let window = Limit::window(10, Duration::from_secs(1)).check(4).unwrap();
    assert_eq!(window.part, Shape::Window { limit: 2, period: Span::from_secs(1) });
    let alone = Limit::per_second(10).check(1).unwrap();
    assert_eq!(alone.part, alone.shape);
}

#[test]
fn any_number_of_processes_can_share_any_limit() {
    for instances in [1, 2, 7, 1_000, u32::MAX] {
        for limit in [
            Limit::per_second(1),
            Limit::per_day(1).and(Limit::new(5, Duration::from_secs(366 * 86_400))),
            Limit::new(1_000_000_000, Duration::from_micros(1)),
            Limit::window(1, Duration::from_secs(366 * 86_400)),
        ] {
            let checked = limit.check(instances).unwrap();
            assert!(checked.part.capacity() >= 1);
        }
    }
}
