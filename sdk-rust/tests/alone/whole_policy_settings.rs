//! Files of policies: written and read again byte for byte, and refused by the path of what is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use resil::breaker::CountingMode;
use resil::policy::{Policy, Stage, retry_all};
use resil::settings::{
    BreakerSettings, BulkheadSettings, HedgeSettings, Limit, LimitKind, LimitTier, PolicyFile, PolicySettings,
    RetrySettings, SharedBulkheadSettings, TimeoutSettings,
};
use resil::{Away, Code};

use crate::drive::seed;

fn maybe<S: Strategy>(strategy: S) -> prop::option::OptionStrategy<S>
where
    S::Value: Clone,
{
    prop::option::of(strategy)
}

fn ms(least: u64, most: u64) -> impl Strategy<Value = Duration> + Clone {
    (least..=most).prop_map(Duration::from_millis)
}

fn name() -> impl Strategy<Value = String> + Clone {
    prop_oneof!["[a-z][a-z0-9-]{0,8}", Just("true".to_owned()), Just("1".to_owned()), Just("null".to_owned())]
}

fn away() -> impl Strategy<Value = Away> + Clone {
    prop::sample::select(vec![Away::Open, Away::Closed, Away::Local])
}

prop_compose! {
    fn any_breaker()(
        name in maybe(name()), calls in maybe(1u32..=10_000), failure_rate in maybe(1u32..=100), open_for in maybe(ms(1, 1_000)),
        slow in maybe((ms(1, 10_000), 0u32..=100)), grows in maybe((1_001u32..=100_000, ms(100_000, 80_000_000))),
        probes in maybe(1u32..=100), quorum in maybe(1u32..=64), version in maybe(1u64..=i64::MAX as u64), ramp in maybe(ms(0, 86_400_000)),
        mode in maybe(prop::sample::select(vec![CountingMode::Batched, CountingMode::Exact])), when_away in maybe(away()),
        batch in maybe(1u32..=1_000), trust in maybe(ms(1, 60_000)),
    ) -> BreakerSettings {
        BreakerSettings {
            name, window_calls: calls, failure_rate, open_for,
            slow_call_duration: slow.map(|slow| slow.0), slow_call_rate: slow.map(|slow| slow.1),
            open_factor: grows.map(|grows| f64::from(grows.0) / 1_000.0), open_max: grows.map(|grows| grows.1),
            probes, quorum, version, ramp, mode, when_away, batch, trust,
            ..BreakerSettings::default()
        }
    }
}

prop_compose! {
    fn any_limit()(
        name in maybe("[a-z]{1,8}"), limit in 1u32..=1_000_000, period in ms(1, 59_000), burst in maybe(1u32..=1_000_000),
        tier in maybe((1u32..=1_000_000, ms(60_000, 86_400_000))), is_window in any::<bool>(), when_away in maybe(away()),
    ) -> Limit {
        let tier = tier.map(|(limit, period)| LimitTier { limit, period, burst: None });
        match is_window {
            true => Limit { name, kind: LimitKind::Window, limit, period, burst: None, tiers: vec![], when_away },
            false => Limit {
                name, kind: LimitKind::Bucket, limit, period, burst, tiers: tier.into_iter().collect(), when_away,
            },
        }
    }
}

prop_compose! {
    fn any_shared()(
        name in maybe(name()), max_concurrent_calls in 1u32..=100_000, max_queue in maybe(0u32..=1_000_000),
        max_wait in maybe(ms(0, 600_000)), lease in maybe(ms(10, 86_400_000)), priority in maybe(0u8..=9),
        when_away in maybe(prop::sample::select(vec![Away::Open, Away::Closed])),
    ) -> SharedBulkheadSettings {
        SharedBulkheadSettings { name, max_queue, max_wait, lease, priority, when_away, ..SharedBulkheadSettings::new(max_concurrent_calls) }
    }
}

prop_compose! {
    fn any_policy()(
        name in maybe(name()), attempt in maybe(ms(1, 1_000)), total in maybe(ms(1_000, 300_000)), shed in maybe(1u32..=1_000_000),
        attempts in maybe(1u32..=100), hedges in maybe(1u32..=10), breaker in maybe(any_breaker()), rate_limit in maybe(any_limit()),
        places in maybe(1u32..=1_000), shared_bulkhead in maybe(any_shared()), when_away in maybe(away()), ordered in any::<bool>(),
    ) -> PolicySettings {
        PolicySettings {
            name, shed, breaker, rate_limit, shared_bulkhead, when_away,
            order: ordered.then(|| Stage::DEFAULT_ORDER.to_vec()),
            timeout: TimeoutSettings { attempt, total },
            retry: attempts.map(|max_attempts| RetrySettings { max_attempts, ..RetrySettings::default() }),
            hedge: hedges.map(|max_hedges| HedgeSettings { max_hedges, ..HedgeSettings::default() }),
            bulkhead: places.map(|places| BulkheadSettings { max_concurrent_calls: places, ..BulkheadSettings::default() }),
            ..PolicySettings::default()
        }
    }
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn a_file_is_written_and_read_again_byte_for_byte(
        policies in prop::collection::btree_map(name(), any_policy(), 0..3), defaults in maybe(any_policy()),
    ) {
        let defaults = defaults.map(|defaults| PolicySettings { name: None, ..defaults });
        let file = PolicyFile { version: 1, defaults, policies };
        prop_assert_eq!(file.validate(), Ok(()));
        let (json, yaml) = (file.to_json().unwrap(), file.to_yaml().unwrap());
        let from_json = PolicyFile::from_json(&json).map_err(|error| TestCaseError::fail(format!("{error} in {json}")))?;
        let from_yaml = PolicyFile::from_yaml(&yaml).map_err(|error| TestCaseError::fail(format!("{error} in {yaml}")))?;
        prop_assert_eq!(&from_json, &file);
        prop_assert_eq!(&from_yaml, &file);
        prop_assert_eq!(from_json.to_json().unwrap(), json);
        prop_assert_eq!(from_yaml.to_yaml().unwrap(), yaml);
    }

    #[test]
    fn what_is_valid_can_be_made(settings in any_policy()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let client = runtime.block_on(resil::connect("memory://")).unwrap();
        let settings = PolicySettings { name: Some("made".to_owned()), ..settings };
        let made = Policy::from_settings(&client, &settings);
        prop_assert!(made.is_ok(), "{:?}", made);
        let has = |stage| made.as_ref().unwrap().order().contains(&stage);
        prop_assert_eq!(has(Stage::Retry), settings.retry.is_some());
        prop_assert_eq!(has(Stage::RateLimit), settings.rate_limit.is_some());
        prop_assert_eq!(has(Stage::Attempt), settings.timeout.attempt.is_some());
    }
}

#[test]
fn whatever_is_wrong_is_named_by_its_path() {
    // The policy `p`, and how the message begins.
    let cases = [
        ("retry: { maxAttempts: 0 }", "policies.p.retry.maxAttempts must be from 1 to 100, got 0"),
        ("retry: { maxAttempts: many }", "policies.p.retry.maxAttempts "),
        ("retry: { budget: { percent: -1 } }", "policies.p.retry.budget.percent "),
        ("timeout: { attempt: 2s, total: 1s }", "policies.p.timeout.total must be from 2s to 5m, got 1s"),
        ("timeout: { attempt: soon }", "policies.p.timeout.attempt "),
        ("shed: 0", "policies.p.shed must be from 1"),
        ("hedge: { maxHedges: 11 }", "policies.p.hedge.maxHedges must be"),
        ("breaker: { consecutiveFailures: 10001 }", "policies.p.breaker.consecutiveFailures must be"),
        ("breaker: { windowCalls: 0 }", "policies.p.breaker.windowCalls must be"),
        ("breaker: { slowCallRate: 50 }", "policies.p.breaker.slowCallDuration goes with slowCallRate"),
        ("breaker: { openFactor: 0.5, openMax: 1h }", "policies.p.breaker.openFactor must be"),
        ("breaker: { mode: sloppy }", "policies.p.breaker.mode "),
        ("rateLimit: { limit: 0, period: 1s }", "policies.p.rateLimit.limit must be"),
        ("rateLimit: { limit: 1, period: 0s }", "policies.p.rateLimit.period must be"),
        ("rateLimit: { limit: 1 }", "policies.p.rateLimit.period must be there"),
        (
            "rateLimit: { limit: 1, period: 1s, tiers: [{ limit: 0, period: 1h }] }",
            "policies.p.rateLimit.tiers[0].limit ",
        ),
        ("rateLimit: { limit: 1, period: 1s, tiers: [{ limit: 5, period: 1s }] }", "policies.p.rateLimit.tiers names"),
        (
            "rateLimit: { limit: 1, period: 1s, tiers: [{ limit: x, period: 1s }] }",
            "policies.p.rateLimit.tiers[0].limit ",
        ),
        ("bulkhead: { maxConcurrentCalls: 0 }", "policies.p.bulkhead.maxConcurrentCalls must be"),
        (
            "bulkhead: { partitions: { a: { maxConcurrentCalls: 0 } } }",
            "policies.p.bulkhead.partitions.a.maxConcurrentCalls ",
        ),
        ("sharedBulkhead: { maxConcurrentCalls: 0 }", "policies.p.sharedBulkhead.maxConcurrentCalls must be"),
        (
            "sharedBulkhead: { maxConcurrentCalls: 1, whenAway: local }",
            "policies.p.sharedBulkhead.whenAway must be one of open, closed",
        ),
        ("order: [total, retry, retry]", "policies.p.order names retry twice"),
        ("{ order: [total], shed: 5 }", "policies.p.order must name shed"),
        ("order: [later]", "policies.p.order[0] "),
        ("whenAway: perhaps", "policies.p.whenAway "),
        ("retries: 3", "policies.p.retries is not known"),
    ];
    for (policy, expected) in cases {
        let policy = if policy.starts_with('{') { policy.to_owned() } else { format!("{{ {policy} }}") };
        let yaml = format!("version: 1\npolicies:\n  p: {policy}\n");
        let error = PolicyFile::from_yaml(&yaml).expect_err(&yaml);
        assert_eq!(error.code(), Code::InvalidPolicy, "{yaml}");
        assert!(error.to_string().starts_with(expected), "{yaml}: {error}");
    }
    for (yaml, expected) in [
        ("version: 2\npolicies: {}\n", "version must be from 1 to 1, got 2"),
        ("version: 1\ndefaults: { shed: 0 }\npolicies: {}\n", "defaults.shed must be"),
        ("version: 1\ndefaults: { name: x }\npolicies: {}\n", "defaults.name must not"),
        ("version: [", "document is not valid"),
        ("- a", "document must be an object"),
    ] {
        let error = PolicyFile::from_yaml(yaml).expect_err(yaml);
        assert!(error.to_string().starts_with(expected), "{yaml}: {error}");
    }
    let json = r#"{"version": 1, "policies": {"p": {"retry": {"maxAttempts": "3"}}}}"#;
    let error = PolicyFile::from_json(json).unwrap_err().to_string();
    assert!(error.starts_with("policies.p.retry.maxAttempts must be a whole number"), "{error}");
    let error = PolicyFile::from_json(r#"{"version": 1, "policies": {}} x"#).unwrap_err().to_string();
    assert!(error.starts_with("document is not valid: trailing"), "{error}");
}

#[tokio::test]
async fn a_files_policy_has_name_stages_and_defaults() {
    let yaml = "version: 1\ndefaults:\n  timeout:\n    total: 2s\n  retry:\n    maxAttempts: 2\npolicies:\n  fast:\n    timeout:\n      attempt: 50ms\n";
    let file = PolicyFile::from_yaml(yaml).unwrap();
    let settings = file.settings("fast").unwrap();
    let expected = TimeoutSettings { attempt: Some(Duration::from_millis(50)), total: Some(Duration::from_secs(2)) };
    assert_eq!(
        (settings.timeout.clone(), settings.retry.as_ref().map(|retry| retry.max_attempts)),
        (expected, Some(2))
    );
    let client = resil::connect("memory://").await.unwrap();
    let policy = file.policy(&client, "fast").unwrap();
    assert_eq!((policy.name(), policy.order()), ("fast", &[Stage::Total, Stage::Retry, Stage::Attempt][..]));
    assert_eq!(policy.call(retry_all, async || Ok::<_, ()>(7)).await, Ok(7));
    let unknown = file.policy(&client, "slow").unwrap_err();
    assert_eq!(unknown.to_string(), "there is no policy of the name \"slow\"; there are: fast");
    let nameless = Policy::from_settings(&client, &PolicySettings::default()).unwrap_err();
    assert_eq!(nameless.to_string(), "name must be there");
    assert_eq!(file.policies, BTreeMap::from([("fast".to_owned(), file.policies["fast"].clone())]));
}
