//! Settings: written and read again byte for byte, in JSON and YAML; refused by the name of the field.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use resil::Code;
use resil::policy::{
    BudgetSettings, BulkheadSettings, HedgeSettings, Jitter, PartitionSettings, RetrySettings, TimeoutSettings,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::drive::seed;

fn round_trip<S: Serialize + DeserializeOwned + PartialEq + Debug>(settings: &S) -> Result<(), TestCaseError> {
    let json = serde_json::to_string(settings).expect("it can be written");
    let from_json: S =
        serde_json::from_str(&json).map_err(|error| TestCaseError::fail(format!("{error} in {json}")))?;
    prop_assert_eq!(&from_json, settings);
    prop_assert_eq!(serde_json::to_string(&from_json).expect("again"), json);
    let yaml = serde_saphyr::to_string(settings).expect("it can be written");
    let from_yaml: S =
        serde_saphyr::from_str(&yaml).map_err(|error| TestCaseError::fail(format!("{error} in {yaml}")))?;
    prop_assert_eq!(&from_yaml, settings);
    prop_assert_eq!(serde_saphyr::to_string(&from_yaml).expect("again"), yaml);
    Ok(())
}

fn span(least_us: u64, most_us: u64) -> impl Strategy<Value = Duration> {
    // Round ones, too: each unit has its own way to be written.
    let unit = prop::sample::select(vec![1u64, 1_000, 1_000_000, 60_000_000]);
    (least_us..=most_us, unit)
        .prop_map(move |(us, unit)| Duration::from_micros((us / unit * unit).clamp(least_us, most_us)))
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    let plain = prop::sample::select(vec![Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]);
    prop_oneof![plain, (0u8..=100).prop_map(Jitter::PlusMinus)]
}

prop_compose! {
    fn any_budget()(ttl in span(1_000_000, 60_000_000), min_per_second in 0u32..=10_000, percent in 0u32..=1_000) -> BudgetSettings {
        BudgetSettings { ttl, min_per_second, percent }
    }
}

prop_compose! {
    fn any_retry()(
        max_attempts in 1u32..=100,
        initial_backoff in span(1, 1_000_000),
        max_backoff in span(1_000_000, 3_600_000_000),
        backoff_multiplier in prop_oneof![1.0f64..=100.0, (1u32..=100).prop_map(f64::from)],
        jitter in any_jitter(),
        min_backoff in span(0, 1_000_000),
        retry_after_max in span(0, 3_600_000_000),
        max_elapsed in prop::option::of(span(1, 3_600_000_000)),
        budget in prop::option::of(any_budget()),
        reraise in any::<bool>(),
    ) -> RetrySettings {
        RetrySettings {
            max_attempts, initial_backoff, max_backoff, backoff_multiplier, jitter, min_backoff, retry_after_max,
            max_elapsed, budget, reraise,
        }
    }
}

prop_compose! {
    fn any_hedge()(
        hedging_delay in span(1, 300_000_000),
        percentile in prop::option::of(1.0f64..=99.99),
        warm_up in 1u32..=100_000,
        max_hedges in 1u32..=10,
        budget in any_budget(),
    ) -> HedgeSettings {
        HedgeSettings { hedging_delay, percentile, warm_up, max_hedges, budget }
    }
}

fn any_partitions() -> impl Strategy<Value = BTreeMap<String, PartitionSettings>> {
    let sizes = (1u32..=1_000_000, 0u32..=1_000_000);
    let partition =
        sizes.prop_map(|(max_concurrent_calls, max_queue)| PartitionSettings { max_concurrent_calls, max_queue });
    // Names that YAML would take for something else are names all the same.
    let name = prop_oneof![
        "[a-z]{1,8}",
        Just("true".to_owned()),
        Just("1".to_owned()),
        Just("a: b".to_owned()),
        Just("null".to_owned())
    ];
    prop::collection::btree_map(name, partition, 0..4)
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn retry_settings_are_written_and_read_again_byte_for_byte(settings in any_retry()) {
        prop_assert_eq!(settings.validate(), Ok(()));
        round_trip(&settings)?;
    }

    #[test]
    fn hedge_settings_are_written_and_read_again_byte_for_byte(settings in any_hedge()) {
        prop_assert_eq!(settings.validate(), Ok(()));
        round_trip(&settings)?;
    }

    #[test]
    fn timeout_settings_are_written_and_read_again_byte_for_byte(
        attempt in prop::option::of(span(1, 1_000_000)), total in prop::option::of(span(1_000_000, 300_000_000)),
    ) {
        let settings = TimeoutSettings { attempt, total };
        prop_assert_eq!(settings.validate(), Ok(()));
        round_trip(&settings)?;
    }

    #[test]
    fn bulkhead_settings_are_written_and_read_again_byte_for_byte(
        max_concurrent_calls in 1u32..=1_000_000, max_queue in 0u32..=1_000_000, max_wait in span(0, 300_000_000),
        partitions in any_partitions(),
    ) {
        let settings = BulkheadSettings { max_concurrent_calls, max_queue, max_wait, partitions, adaptive: None };
        prop_assert_eq!(settings.validate(), Ok(()));
        round_trip(&settings)?;
    }
}

#[test]
fn a_file_as_people_write_it_round_trips() {
    let yaml = "maxAttempts: 4\ninitialBackoff: 250ms\nmaxBackoff: 30s\nbackoffMultiplier: 1.5\njitter: 20%\nminBackoff: 10ms\n\
                retryAfterMax: 1m\nmaxElapsed: 2m\nbudget:\n  ttl: 10s\n  minPerSecond: 10\n  percent: 20\n";
    let settings: RetrySettings = serde_saphyr::from_str(yaml).expect("valid");
    assert_eq!(settings.jitter, Jitter::PlusMinus(20));
    assert_eq!(settings.initial_backoff, Duration::from_millis(250));
    assert_eq!(serde_saphyr::to_string(&settings).expect("it can be written"), yaml);
    let json = r#"{"attempt":"250ms","total":"2s"}"#;
    let settings: TimeoutSettings = serde_json::from_str(json).expect("valid");
    assert_eq!(serde_json::to_string(&settings).expect("it can be written"), json);
}

#[test]
fn a_bare_number_is_refused_and_omissions_use_defaults() {
    assert!(serde_json::from_str::<TimeoutSettings>(r#"{"attempt":250}"#).is_err());
    assert!(serde_json::from_str::<TimeoutSettings>(r#"{"attempt":"250"}"#).is_err());
    let settings: TimeoutSettings = serde_saphyr::from_str("attempt: 250ms\ntotal: null").expect("valid");
    assert_eq!(settings, TimeoutSettings { attempt: Some(Duration::from_millis(250)), total: None });
    let settings: RetrySettings = serde_json::from_str(r#"{"maxAttempts":7,"maxElapsed":"1500ms"}"#).expect("valid");
    let usual = RetrySettings::default();
    let unlimited: RetrySettings = serde_json::from_str(r#"{"budget":null}"#).expect("valid");
    assert_eq!((unlimited.budget, usual.budget.is_some()), (None, true));
    assert_eq!(settings, RetrySettings { max_attempts: 7, max_elapsed: Some(Duration::from_millis(1_500)), ..usual });
}

#[test]
fn unknown_fields_and_what_is_no_duration_are_refused() {
    for json in [
        r#"{"maxAttemps":3}"#,
        r#"{"initialBackoff":"fast"}"#,
        r#"{"initialBackoff":-5}"#,
        r#"{"initialBackoff":"1.5s"}"#,
        r#"{"initialBackoff":1.5}"#,
        r#"{"jitter":"120%"}"#,
        r#"{"budget":{"tll":"10s"}}"#,
    ] {
        assert!(serde_json::from_str::<RetrySettings>(json).is_err(), "{json}");
        assert!(serde_saphyr::from_str::<RetrySettings>(json).is_err(), "{json} as YAML");
    }
}

#[test]
fn bad_settings_are_refused_by_the_name_of_the_field() {
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    let retry = RetrySettings::default;
    let budget = BudgetSettings::default;
    let hedge = HedgeSettings::default;
    let bulkhead = BulkheadSettings::default;
    let with_partition = |max_concurrent_calls, max_queue| {
        let partition = PartitionSettings { max_concurrent_calls, max_queue };
        BulkheadSettings { partitions: BTreeMap::from([("batch".to_owned(), partition)]), ..bulkhead() }
    };
    let cases = [
        (RetrySettings { max_attempts: 0, ..retry() }.validate(), "maxAttempts must be from 1 to 100, got 0"),
        (RetrySettings { max_attempts: 101, ..retry() }.validate(), "maxAttempts must be from 1 to 100, got 101"),
        (
            RetrySettings { initial_backoff: Duration::ZERO, ..retry() }.validate(),
            "initialBackoff must be from 1us to 1h, got 0",
        ),
        (
            RetrySettings { max_backoff: Duration::from_millis(99), ..retry() }.validate(),
            "maxBackoff must be from 100ms to 1h, got 99ms",
        ),
        (RetrySettings { min_backoff: second * 11, ..retry() }.validate(), "minBackoff must be from 0 to 10s, got 11s"),
        (
            RetrySettings { backoff_multiplier: 0.5, ..retry() }.validate(),
            "backoffMultiplier must be from 1 to 100, got 0.5",
        ),
        (
            RetrySettings { backoff_multiplier: f64::NAN, ..retry() }.validate(),
            "backoffMultiplier must be from 1 to 100, got NaN",
        ),
        (
            RetrySettings { jitter: Jitter::PlusMinus(101), ..retry() }.validate(),
            "jitter must be from 0 to 100, got 101",
        ),
        (
            RetrySettings { retry_after_max: hour * 2, ..retry() }.validate(),
            "retryAfterMax must be from 0 to 1h, got 2h",
        ),
        (
            RetrySettings { max_elapsed: Some(Duration::ZERO), ..retry() }.validate(),
            "maxElapsed must be from 1us to 1h, got 0",
        ),
        (
            RetrySettings { budget: Some(BudgetSettings { ttl: second / 2, ..budget() }), ..retry() }.validate(),
            "budget.ttl must be from 1s to 1m, got 500ms",
        ),
        (
            BudgetSettings { min_per_second: 10_001, ..budget() }.validate(),
            "minPerSecond must be from 0 to 10000, got 10001",
        ),
        (BudgetSettings { percent: 1_001, ..budget() }.validate(), "percent must be from 0 to 1000, got 1001"),
        (
            TimeoutSettings { attempt: Some(Duration::ZERO), total: None }.validate(),
            "attempt must be from 1us to 5m, got 0",
        ),
        (
            TimeoutSettings { attempt: None, total: Some(second * 301) }.validate(),
            "total must be from 1us to 5m, got 301s",
        ),
        (
            TimeoutSettings { attempt: Some(second * 2), total: Some(second) }.validate(),
            "total must be from 2s to 5m, got 1s",
        ),
        (
            HedgeSettings { hedging_delay: Duration::ZERO, ..hedge() }.validate(),
            "hedgingDelay must be from 1us to 5m, got 0",
        ),
        (
            HedgeSettings { percentile: Some(100.0), ..hedge() }.validate(),
            "percentile must be from 1 to 99.99, got 100",
        ),
        (HedgeSettings { warm_up: 0, ..hedge() }.validate(), "warmUp must be from 1 to 100000, got 0"),
        (HedgeSettings { max_hedges: 11, ..hedge() }.validate(), "maxHedges must be from 1 to 10, got 11"),
        (
            HedgeSettings { budget: BudgetSettings { ttl: second * 61, ..budget() }, ..hedge() }.validate(),
            "budget.ttl must be from 1s to 1m, got 61s",
        ),
        (
            BulkheadSettings { max_concurrent_calls: 0, ..bulkhead() }.validate(),
            "maxConcurrentCalls must be from 1 to 1000000, got 0",
        ),
        (
            BulkheadSettings { max_queue: 1_000_001, ..bulkhead() }.validate(),
            "maxQueue must be from 0 to 1000000, got 1000001",
        ),
        (BulkheadSettings { max_wait: hour, ..bulkhead() }.validate(), "maxWait must be from 0 to 5m, got 1h"),
        (with_partition(0, 0).validate(), "partitions.batch.maxConcurrentCalls must be from 1 to 1000000, got 0"),
        (with_partition(1, 1_000_001).validate(), "partitions.batch.maxQueue must be from 0 to 1000000, got 1000001"),
    ];
    for (found, message) in cases {
        let error = found.expect_err(message);
        assert_eq!((error.code(), error.to_string().as_str()), (Code::InvalidPolicy, message));
    }
}
