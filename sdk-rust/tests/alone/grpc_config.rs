//! A gRPC service config is read as gRPC reads it, and what is wrong with one is named.

use std::time::Duration;

use proptest::prelude::*;
use resil::grpc::service_config::{ATTEMPTS_MAX, AttemptPolicy};
use resil::grpc::{ServiceConfig, StatusCode};
use resil::policy::{Jitter, TimeoutSettings};
use resil::{Code, Error};
use serde_json::{Value, json};

fn retry_policy() -> Value {
    json!({
        "maxAttempts": 4, "initialBackoff": ".1s", "maxBackoff": "1s", "backoffMultiplier": 1.5,
        "retryableStatusCodes": ["UNAVAILABLE", 10, "UNAVAILABLE"],
    })
}

fn with_retry(change: impl FnOnce(&mut Value)) -> Result<ServiceConfig, Error> {
    let mut policy = retry_policy();
    change(&mut policy);
    ServiceConfig::from_json(&json!({ "methodConfig": [{ "name": [{}], "retryPolicy": policy }] }))
}

fn with_hedging(policy: Value) -> Result<ServiceConfig, Error> {
    ServiceConfig::from_json(&json!({ "methodConfig": [{ "name": [{}], "hedgingPolicy": policy }] }))
}

/// Which field is refused, and that the error is of the right kind.
fn refused_field(result: Result<ServiceConfig, Error>) -> String {
    match result {
        Err(error @ Error::InvalidPolicy { .. }) => {
            assert_eq!(error.code(), Code::InvalidPolicy);
            let Error::InvalidPolicy { field, .. } = error else { unreachable!() };
            field
        }
        other => panic!("it is refused: {other:?}"),
    }
}

#[test]
fn a_retry_policy_is_what_it_says() {
    let config = with_retry(|_| {}).unwrap();
    let policy = config.method("/any.Service/Any").unwrap().retry().unwrap();
    assert_eq!(policy.max_attempts, 4);
    assert_eq!((policy.initial_backoff, policy.max_backoff), (Duration::from_millis(100), Duration::from_secs(1)));
    assert_eq!(policy.backoff_multiplier, 1.5);
    assert_eq!(policy.retryable_status_codes, [StatusCode::Unavailable, StatusCode::Aborted]);
}

#[test]
fn a_hedging_policy_may_leave_out_the_rest() {
    let full = json!({ "maxAttempts": 3, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["INTERNAL"] });
    let config = with_hedging(full).unwrap();
    let policy = config.method("/a/b").unwrap().hedging().unwrap();
    assert_eq!((policy.max_attempts, policy.hedging_delay), (3, Duration::from_millis(500)));
    assert_eq!(policy.non_fatal_status_codes, [StatusCode::Internal]);
    assert_eq!(config.method("/a/b").unwrap().retry(), None);

    let config = with_hedging(json!({ "maxAttempts": 2 })).unwrap();
    let policy = config.method("/a/b").unwrap().hedging().unwrap();
    assert_eq!((policy.hedging_delay, policy.non_fatal_status_codes.len()), (Duration::ZERO, 0));
}

#[test]
fn more_attempts_than_five_are_five() {
    for (given, taken) in [(2.0, 2), (5.0, 5), (6.0, ATTEMPTS_MAX), (1e300, ATTEMPTS_MAX)] {
        let config = with_retry(|policy| policy["maxAttempts"] = json!(given)).unwrap();
        assert_eq!(config.method("/a/b").unwrap().retry().unwrap().max_attempts, taken);
        let config = with_hedging(json!({ "maxAttempts": given })).unwrap();
        assert_eq!(config.method("/a/b").unwrap().hedging().unwrap().max_attempts, taken);
    }
}

#[test]
fn the_most_specific_name_wins() {
    let config = ServiceConfig::parse(
        r#"{ "loadBalancingConfig": [{ "round_robin": {} }],
             "methodConfig": [
               { "name": [{}], "timeout": "1s" },
               { "name": [{ "service": "a.B" }, { "service": "c.D", "method": "" }], "timeout": "2s" },
               { "name": [{ "service": "a.B", "method": "Get" }], "timeout": "3s", "waitForReady": true },
               { "timeout": "4s" } ] }"#,
    )
    .unwrap();
    let seconds = |path| config.method(path).and_then(|method| method.timeout).map(|timeout| timeout.as_secs());
    assert_eq!(seconds("/a.B/Get"), Some(3));
    assert_eq!(seconds("a.B/Get"), Some(3), "the leading slash is not needed");
    assert_eq!(seconds("/a.B/Put"), Some(2));
    assert_eq!(seconds("/c.D/Get"), Some(2));
    assert_eq!(seconds("/x.Y/Get"), Some(1));
    let bare = ServiceConfig::parse(r#"{ "methodConfig": [{ "name": [{ "service": "a.B" }] }] }"#).unwrap();
    assert!(bare.method("/x.Y/Get").is_none(), "without a default nothing applies");
    assert!(ServiceConfig::parse("{}").unwrap().method("/a.B/Get").is_none());
}

#[test]
fn a_throttle_is_what_it_says_in_thousandths() {
    let config = ServiceConfig::parse(r#"{ "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.12345 } }"#).unwrap();
    let throttling = config.retry_throttling.unwrap();
    assert_eq!((throttling.max_tokens, throttling.token_ratio), (10.0, 0.123));
}

#[test]
fn what_is_wrong_with_a_retry_policy_is_named() {
    let at = "methodConfig[0].retryPolicy.";
    for field in ["maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes"] {
        let without = with_retry(|policy| drop(policy.as_object_mut().unwrap().remove(field)));
        assert_eq!(refused_field(without), format!("{at}{field}"), "missing");
        let null = with_retry(|policy| policy[field] = Value::Null);
        assert_eq!(refused_field(null), format!("{at}{field}"), "null is missing");
        let wrong = with_retry(|policy| policy[field] = json!({}));
        assert_eq!(refused_field(wrong), format!("{at}{field}"), "of another type");
    }
    let cases = [
        ("maxAttempts", json!(1), "maxAttempts"),
        ("maxAttempts", json!(0), "maxAttempts"),
        ("maxAttempts", json!(-3), "maxAttempts"),
        ("maxAttempts", json!(2.5), "maxAttempts"),
        ("initialBackoff", json!("0s"), "initialBackoff"),
        ("maxBackoff", json!("0.000s"), "maxBackoff"),
        ("backoffMultiplier", json!(0), "backoffMultiplier"),
        ("backoffMultiplier", json!(-1), "backoffMultiplier"),
        ("retryableStatusCodes", json!([]), "retryableStatusCodes"),
        ("retryableStatusCodes", json!(["UNAVAILABLE", "unavailable"]), "retryableStatusCodes[1]"),
        ("retryableStatusCodes", json!([17]), "retryableStatusCodes[0]"),
        ("retryableStatusCodes", json!([-1]), "retryableStatusCodes[0]"),
    ];
    for (field, value, named) in cases {
        let shown = format!("{field}: {value}");
        assert_eq!(refused_field(with_retry(|policy| policy[field] = value)), format!("{at}{named}"), "{shown}");
    }
}

#[test]
fn what_is_wrong_elsewhere_is_named_too() {
    let cases = [
        ("nonsense", "service config"),
        ("[]", "service config"),
        (r#"{ "methodConfig": {} }"#, "methodConfig"),
        (r#"{ "methodConfig": [{}, 7] }"#, "methodConfig[1]"),
        (r#"{ "methodConfig": [{ "name": [{ "method": "Get" }] }] }"#, "methodConfig[0].name[0]"),
        (r#"{ "methodConfig": [{ "name": [{ "service": 7 }] }] }"#, "methodConfig[0].name[0].service"),
        (r#"{ "methodConfig": [{ "name": [{}] }, { "name": [{ "service": "a" }, {}] }] }"#, "methodConfig[1].name[1]"),
        (r#"{ "methodConfig": [{ "timeout": 5 }] }"#, "methodConfig[0].timeout"),
        (r#"{ "methodConfig": [{ "timeout": "5" }] }"#, "methodConfig[0].timeout"),
        (
            r#"{ "methodConfig": [{ "hedgingPolicy": { "maxAttempts": 1 } }] }"#,
            "methodConfig[0].hedgingPolicy.maxAttempts",
        ),
        (
            r#"{ "methodConfig": [{ "hedgingPolicy": { "maxAttempts": 2, "hedgingDelay": "-1s" } }] }"#,
            "methodConfig[0].hedgingPolicy.hedgingDelay",
        ),
        (r#"{ "retryThrottling": { "tokenRatio": 0.1 } }"#, "retryThrottling.maxTokens"),
        (r#"{ "retryThrottling": { "maxTokens": 0, "tokenRatio": 0.1 } }"#, "retryThrottling.maxTokens"),
        (r#"{ "retryThrottling": { "maxTokens": 1001, "tokenRatio": 0.1 } }"#, "retryThrottling.maxTokens"),
        (r#"{ "retryThrottling": { "maxTokens": 10, "tokenRatio": 0.0009 } }"#, "retryThrottling.tokenRatio"),
    ];
    for (json, field) in cases {
        assert_eq!(refused_field(ServiceConfig::parse(json)), field, "{json}");
    }
    let both = json!({ "methodConfig": [{ "retryPolicy": retry_policy(), "hedgingPolicy": { "maxAttempts": 2 } }] });
    assert_eq!(refused_field(ServiceConfig::from_json(&both)), "methodConfig[0]", "one or the other");
}

fn timeout(text: &str) -> Result<Duration, Error> {
    let config = ServiceConfig::from_json(&json!({ "methodConfig": [{ "name": [{}], "timeout": text }] }))?;
    Ok(config.method("/a/b").unwrap().timeout.unwrap())
}

#[test]
fn durations_are_those_of_protobuf() {
    assert_eq!(timeout("3s"), Ok(Duration::from_secs(3)));
    assert_eq!(timeout("3.s"), Ok(Duration::from_secs(3)));
    assert_eq!(timeout("0.000000001s"), Ok(Duration::from_nanos(1)));
    assert_eq!(timeout("315576000000s"), Ok(Duration::from_secs(315_576_000_000)));
    for text in [
        "",
        "s",
        ".s",
        "1",
        "1ms",
        "1m",
        "-1s",
        "+1s",
        "1e3s",
        "1.0000000001s",
        "1..2s",
        "1.2.3s",
        "١s",
        "315576000001s",
        " 1s",
    ] {
        assert!(timeout(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_duration_survives_being_written_as_text(seconds in 0u64..=315_576_000_000, nanos in 0u32..1_000_000_000) {
        prop_assert_eq!(timeout(&format!("{seconds}.{nanos:09}s")), Ok(Duration::new(seconds, nanos)));
    }

    #[test]
    fn whatever_is_given_is_read_or_refused_without_harm(text in ".{0,60}", field in "[a-zA-Z]{1,16}") {
        let _ = ServiceConfig::parse(&text);
        let config = json!({ "methodConfig": [{ "name": [{ "service": text.clone() }], "retryPolicy": { field: text } }] });
        prop_assert!(ServiceConfig::from_json(&config).is_err(), "a policy with nothing but one odd field");
    }
}

#[test]
fn every_status_has_its_number_and_its_name() {
    for (number, code) in StatusCode::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(code.number()), number);
        let by_name = with_retry(|policy| policy["retryableStatusCodes"] = json!([code.text()])).unwrap();
        let by_number = with_retry(|policy| policy["retryableStatusCodes"] = json!([number])).unwrap();
        assert_eq!(by_name, by_number);
        let Some(AttemptPolicy::Retry(policy)) = &by_name.method("/a/b").unwrap().policy else {
            panic!("a retry policy")
        };
        assert_eq!(policy.retryable_status_codes, [code]);
    }
}

#[test]
fn a_config_becomes_settings_of_our_policies() {
    let config = ServiceConfig::from_json(&json!({
        "retryThrottling": { "maxTokens": 100, "tokenRatio": 0.1 },
        "methodConfig": [
            { "name": [{ "service": "a.B" }], "timeout": "2s", "retryPolicy": retry_policy() },
            { "name": [{ "service": "c.D" }], "hedgingPolicy": { "maxAttempts": 4, "hedgingDelay": "0s" } },
        ],
    }))
    .unwrap();
    let retried = config.settings("/a.B/Get").unwrap();
    let retry = retried.retry.unwrap();
    assert_eq!((retry.max_attempts, retry.jitter, retry.backoff_multiplier), (4, Jitter::Full, 1.5));
    assert_eq!((retry.initial_backoff, retry.max_backoff), (Duration::from_millis(100), Duration::from_secs(1)));
    let budget = retry.budget.clone().expect("the throttle");
    assert_eq!((budget.percent, budget.min_per_second), (10, 5), "a tenth, and half of the tokens over ten seconds");
    assert_eq!(retried.timeouts.total, Some(Duration::from_secs(2)));
    assert_eq!(retried.hedge, None);
    retry.validate().unwrap();

    let hedge = config.settings("/c.D/Get").unwrap().hedge.unwrap();
    assert_eq!(hedge.max_hedges, 3, "without the first");
    assert_eq!((hedge.hedging_delay, hedge.budget), (Duration::from_micros(1), budget));

    let nothing = config.settings("/x.Y/Get").unwrap();
    assert_eq!((nothing.retry, nothing.hedge, nothing.timeouts), (None, None, TimeoutSettings::default()));
    let unthrottled = with_retry(|_| {}).unwrap().settings("/a/b").unwrap();
    assert_eq!(unthrottled.retry.unwrap().budget, None);
}

#[test]
fn what_our_policies_cannot_do_is_refused_by_name() {
    let refused = |change: fn(&mut Value)| match with_retry(change).unwrap().settings("/a/b") {
        Err(Error::InvalidPolicy { field, .. }) => field,
        other => panic!("it is refused: {other:?}"),
    };
    assert_eq!(refused(|policy| policy["backoffMultiplier"] = json!(0.5)), "retry.backoffMultiplier");
    assert_eq!(refused(|policy| policy["maxBackoff"] = json!("7200s")), "retry.maxBackoff");
    let long = ServiceConfig::from_json(&json!({ "methodConfig": [{ "name": [{}], "timeout": "301s" }] })).unwrap();
    assert!(matches!(long.settings("/a/b"), Err(Error::InvalidPolicy { field, .. }) if field == "timeout.total"));
    // A first delay above the last is allowed in gRPC, and is the last from the beginning.
    let config = with_retry(|policy| policy["initialBackoff"] = json!("9s")).unwrap();
    assert_eq!(config.settings("/a/b").unwrap().retry.unwrap().initial_backoff, Duration::from_secs(1));
}
