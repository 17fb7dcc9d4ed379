use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_quantile_is_known_only_after_the_warm_up() {
    let latencies = Latencies::new(90.0, 100).expect("valid");
    for ms in 1..100 {
        latencies.record(SECOND, Duration::from_millis(ms));
        assert_eq!(latencies.quantile(), None);
    }
    latencies.record(SECOND, Duration::from_millis(100));
    let p90 = latencies.quantile().expect("a hundred calls").as_secs_f64();
    assert!((p90 - 0.090).abs() < 0.002, "{p90}");
}

#[test]
fn what_is_older_than_two_turns_is_forgotten() {
    let latencies = Latencies::new(50.0, 10).expect("valid");
    (0..100).for_each(|_| latencies.record(SECOND, Duration::from_millis(500)));
    (0..50).for_each(|_| latencies.record(SECOND + TURN, Duration::from_millis(1)));
    assert!(latencies.quantile() > Some(Duration::from_millis(490)), "two thirds were slow");
    (0..50).for_each(|_| latencies.record(SECOND + TURN * 2, Duration::from_millis(1)));
    assert!(latencies.quantile() < Some(Duration::from_millis(2)));
    (0..9).for_each(|_| latencies.record(SECOND + TURN * 10, Duration::from_millis(1)));
    assert_eq!(latencies.quantile(), None, "after a long silence it warms up again");
}
