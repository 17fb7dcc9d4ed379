use super::*;

#[test]
fn an_impossible_setting_is_refused_by_field_name() {
    let (day, new) = (Duration::from_secs(86_400), BreakerSettings::new);
    let cases: [(BreakerSettings, &str); 14] = [
        (new().window_calls(0), "windowCalls"),
        (new().window_time(Duration::ZERO), "windowTime"),
        (new().failure_rate(101), "failureRate"),
        (new().slow_call_duration(Duration::ZERO).slow_call_rate(50), "slowCallDuration"),
        (new().probes(0), "probes"),
        (new().successes(0), "successes"),
        (new().open_factor(f64::NAN).open_max(day), "openFactor"),
        (new().open_factor(0.5).open_max(day), "openFactor"),
        (new().open_factor(2.0).open_max(Duration::from_secs(1)), "openMax"),
        (new().failure_rate(0).consecutive_failures(0), "failureRate"),
        (new().version(0), "version"),
        (new().batch(0), "batch"),
        (new().flush_interval(Duration::ZERO), "flushInterval"),
        (new().trust(day), "trust"),
    ];
    for (settings, expected) in cases {
        match settings.check() {
            Err(Error::InvalidPolicy { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert!(new().open_factor(1.5).open_max(day).check().is_ok());
    assert_eq!(new().check().unwrap().wire(), None, "nothing named is nothing sent");
}
