//! What is said in one language is what is said in another; what is wrong is named as it was said.

mod made;

use std::fmt::Debug;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::cache::CacheSettings;
use crate::dispatcher::DispatcherSettings;
use crate::idempotency::IdempotencySettings;
use crate::lock::LockSettings;
use crate::policy::Stage;
use crate::shared_bulkhead::SharedBulkheadSettings;

const PYTHON: Dialect = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };
const NODE: Dialect = Dialect { spelling: Spelling::Camel, numbers: Numbers::Milliseconds };

/// Field names of a value, however deep, in snake_case.
fn in_snake_case(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            entries.into_iter().map(|(key, value)| (Spelling::Snake.spell(&key), in_snake_case(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(in_snake_case).collect(),
        other => other,
    }
}

fn refused<T: Settings + Debug>(dialect: Dialect, said: Value) -> (String, String) {
    match dialect.read::<T>(said.clone()) {
        Err(Error::InvalidPolicy { field, reason }) => (field, reason),
        other => panic!("{said}: {other:?}"),
    }
}

/// `said` is in camelCase; `field` is what is wrong with it.
fn names<T: Settings + Debug>(said: Value, field: &str) {
    assert_eq!(refused::<T>(NODE, said.clone()).0, field, "{said}");
    let (in_python, _) = refused::<T>(PYTHON, in_snake_case(said.clone()));
    assert_eq!(in_python, Spelling::Snake.spell(field), "{said}");
}

fn is_read_again<T>(said: Value)
where
    T: Settings + Serialize + Debug,
{
    let written = |settings: T| serde_json::to_value(settings).unwrap();
    let settings = written(NODE.read(said.clone()).unwrap());
    for (field, value) in said.as_object().unwrap() {
        assert_eq!(settings[field], *value, "nothing is lost");
    }
    assert_eq!(written(serde_json::from_value(said.clone()).unwrap()), settings, "a plain file says the same");
    assert_eq!(written(serde_json::from_value(settings.clone()).unwrap()), settings, "what was written is read again");
    assert_eq!(written(PYTHON.read(in_snake_case(said.clone())).unwrap()), settings);
    for dialect in [PYTHON, NODE] {
        let shown =
            dialect.show(&dialect.read::<T>(dialect.show(&NODE.read::<T>(said.clone()).unwrap()).unwrap()).unwrap());
        assert_eq!(written(dialect.read(shown.unwrap()).unwrap()), settings);
    }
}

#[test]
fn what_was_written_is_read_again_in_every_dialect() {
    is_read_again::<LockSettings>(json!({
        "lease": "5s", "wait": "250ms", "shared": true, "meta": "nightly", "bound": false, "watchdog": false,
        "replicas": 1, "whenAway": "open", "keepRunningWhenLost": true,
    }));
    is_read_again::<SharedBulkheadSettings>(json!({
        "maxConcurrentCalls": 5, "maxQueue": 7, "maxWait": "1s", "priority": 9, "lease": "20s", "bound": false, "whenAway": "closed",
    }));
    is_read_again::<IdempotencySettings>(json!({
        "lease": "10s", "keep": "2d", "wait": "0", "onLapse": "hold", "onLost": "finish", "abortOnCancel": true,
        "replicas": 2, "whenAway": "open",
    }));
    is_read_again::<CacheSettings>(json!({
        "ttl": "1m", "negativeTtl": "5s", "stale": "1h", "errorTtl": "2s", "retry": "3s", "onError": "share",
        "loadTimeout": "4s", "lease": "1s", "localTtl": "10ms", "localSize": 10, "whenAway": "local",
    }));
    is_read_again::<ConnectSettings>(json!({
        "name": "till-3", "commandTimeout": "5ms", "instances": 4, "waitingConnections": 8,
    }));
    is_read_again::<DispatcherSettings>(json!({ "workers": 4 }));
    is_read_again::<CallSettings>(json!({
        "key": "alice", "cost": 3, "partition": "big", "attemptTimeout": "10ms", "totalTimeout": "2s",
    }));
    is_read_again::<LockSettings>(json!({}));
    is_read_again::<IdempotencySettings>(json!({}));
    is_read_again::<CacheSettings>(json!({}));
    is_read_again::<ConnectSettings>(json!({}));
    is_read_again::<CallSettings>(json!({}));
}

#[test]
fn every_field_out_of_bounds_is_named_as_given() {
    names::<LockSettings>(json!({ "lease": "1ms" }), "lease");
    names::<LockSettings>(json!({ "meta": "" }), "meta");
    names::<LockSettings>(json!({ "whenAway": "local" }), "whenAway");

    names::<SharedBulkheadSettings>(json!({ "maxConcurrentCalls": 0 }), "maxConcurrentCalls");
    names::<SharedBulkheadSettings>(json!({ "maxConcurrentCalls": 1, "maxQueue": 4_000_000_000_u32 }), "maxQueue");
    names::<SharedBulkheadSettings>(json!({ "maxConcurrentCalls": 1, "priority": 10 }), "priority");
    names::<SharedBulkheadSettings>(json!({ "maxConcurrentCalls": 1, "lease": "31d" }), "lease");
    names::<SharedBulkheadSettings>(json!({ "maxConcurrentCalls": 1, "whenAway": "local" }), "whenAway");

    names::<IdempotencySettings>(json!({ "lease": "1ms" }), "lease");
    names::<IdempotencySettings>(json!({ "keep": 0 }), "keep");
    names::<IdempotencySettings>(json!({ "wait": "11m" }), "wait");
    names::<IdempotencySettings>(json!({ "whenAway": "local" }), "whenAway");

    for field in ["ttl", "negativeTtl", "stale", "errorTtl", "retry", "localTtl"] {
        names::<CacheSettings>(json!({ field: "367d" }), field);
    }
    names::<CacheSettings>(json!({ "loadTimeout": 0 }), "loadTimeout");
    names::<CacheSettings>(json!({ "lease": 0 }), "lease");
    names::<CacheSettings>(json!({ "localSize": 0 }), "localSize");

    names::<ConnectSettings>(json!({ "name": "" }), "name");
    names::<ConnectSettings>(json!({ "commandTimeout": 0 }), "commandTimeout");
    names::<ConnectSettings>(json!({ "instances": 0 }), "instances");
    names::<ConnectSettings>(json!({ "waitingConnections": 0 }), "waitingConnections");

    names::<DispatcherSettings>(json!({ "workers": 0 }), "workers");
    names::<CallSettings>(json!({ "attemptTimeout": 0 }), "attemptTimeout");
    names::<CallSettings>(json!({ "totalTimeout": "1d" }), "totalTimeout");
    names::<CallSettings>(json!({ "cost": 0 }), "cost");
}

#[test]
fn every_field_of_another_kind_is_named_as_given() {
    // Whatever they are, they are not lists.
    fn none_is_a_list<T: Settings + Debug>(required: Value, fields: &[&str]) {
        for field in fields {
            let mut said = required.clone();
            said[field] = json!([1]);
            names::<T>(said, field);
        }
    }
    none_is_a_list::<LockSettings>(
        json!({}),
        &["lease", "wait", "shared", "meta", "bound", "watchdog", "replicas", "whenAway", "keepRunningWhenLost"],
    );
    none_is_a_list::<SharedBulkheadSettings>(
        json!({ "maxConcurrentCalls": 1 }),
        &["maxConcurrentCalls", "maxQueue", "maxWait", "priority", "lease", "bound", "whenAway"],
    );
    none_is_a_list::<IdempotencySettings>(
        json!({}),
        &["lease", "keep", "wait", "onLapse", "onLost", "abortOnCancel", "replicas", "whenAway"],
    );
    none_is_a_list::<CacheSettings>(
        json!({}),
        &[
            "ttl",
            "negativeTtl",
            "stale",
            "errorTtl",
            "retry",
            "onError",
            "loadTimeout",
            "lease",
            "localTtl",
            "localSize",
            "whenAway",
        ],
    );
    none_is_a_list::<ConnectSettings>(json!({}), &["name", "commandTimeout", "instances", "waitingConnections"]);
    none_is_a_list::<DispatcherSettings>(json!({ "workers": 1 }), &["workers", "onError"]);
    none_is_a_list::<CallSettings>(json!({}), &["key", "cost", "partition", "attemptTimeout", "totalTimeout"]);
}

#[test]
fn a_whole_policys_fields_are_named_with_their_part() {
    names::<RetrySettings>(json!({ "maxAttempts": 0 }), "maxAttempts");
    names::<RetrySettings>(json!({ "jitter": "wild" }), "jitter");
    names::<RetrySettings>(json!({ "budget": { "minPerSecond": 10_001 } }), "budget.minPerSecond");
    names::<HedgeSettings>(json!({ "hedgingDelay": 0 }), "hedgingDelay");
    names::<BulkheadSettings>(json!({ "maxConcurrentCalls": 0 }), "maxConcurrentCalls");
    names::<TimeoutSettings>(json!({ "attempt": 0 }), "attempt");
    names::<BreakerSettings>(json!({ "slowCallDuration": "1s" }), "slowCallRate");
    names::<BreakerSettings>(json!({ "windowCalls": 0 }), "windowCalls");
    names::<Limit>(json!({ "limit": 1, "period": "1s", "tiers": [{ "limit": 0, "period": "1m" }] }), "tiers[0].limit");
    names::<PolicySettings>(json!({ "rateLimit": { "limit": 0, "period": "1s" } }), "rateLimit.limit");
    names::<PolicySettings>(
        json!({ "sharedBulkhead": { "maxConcurrentCalls": 0 } }),
        "sharedBulkhead.maxConcurrentCalls",
    );
    names::<PolicySettings>(json!({ "retry": { "maxBackoff": true } }), "retry.maxBackoff");
    names::<PolicySettings>(json!({ "rateLimit": { "period": "1s" } }), "rateLimit.limit");
    let (_, reason) = refused::<BreakerSettings>(PYTHON, json!({ "slow_call_duration": 1 }));
    assert_eq!(reason, "goes with slow_call_duration");
}

#[test]
fn names_that_the_caller_chose_stay_as_they_are() {
    let said = json!({ "partitions": { "bigOnes": { "max_concurrent_calls": 0 } } });
    let (field, _) = refused::<BulkheadSettings>(PYTHON, said);
    assert_eq!(field, "partitions.bigOnes.max_concurrent_calls");
    let said = json!({ "version": 1, "policies": { "pay_ments": { "rateLimit": { "limit": 0, "period": 1 } } } });
    let (field, _) = refused::<PolicyFile>(NODE, said);
    assert_eq!(field, "policies.pay_ments.rateLimit.limit");
    let said = json!({ "partitions": { "bigOnes": { "max_concurrent_calls": 3 } } });
    let read: BulkheadSettings = PYTHON.read(said).unwrap();
    assert_eq!(read.partitions["bigOnes"].max_concurrent_calls, 3);
    assert_eq!(PYTHON.show(&read).unwrap()["partitions"]["bigOnes"]["max_concurrent_calls"], 3);
}

#[test]
fn unknown_fields_and_the_other_spelling_are_refused() {
    let (field, reason) =
        refused::<SharedBulkheadSettings>(PYTHON, json!({ "max_concurrent_calls": 1, "whenAway": "open" }));
    assert_eq!(field, "whenAway", "as it was said");
    assert!(
        reason.ends_with(
            "known: name, max_concurrent_calls, max_queue, max_wait, lease, priority, bound, grace, adaptive, when_away"
        ),
        "{reason}"
    );
    assert_eq!(refused::<LockSettings>(NODE, json!({ "when_away": "open" })).0, "when_away");
    assert_eq!(refused::<PolicySettings>(NODE, json!({ "retry": { "tries": 3 } })).0, "retry.tries");
    assert_eq!(refused::<LockSettings>(NODE, json!("5s")).0, "settings");
}

#[test]
fn what_has_to_be_said_is_asked_for() {
    names::<SharedBulkheadSettings>(json!({}), "maxConcurrentCalls");
    names::<DispatcherSettings>(json!({}), "workers");
    let (field, reason) = refused::<PolicySettings>(PYTHON, json!({ "shared_bulkhead": {} }));
    assert_eq!((field.as_str(), reason.as_str()), ("shared_bulkhead.max_concurrent_calls", "must be there"));
}

#[test]
fn numbers_take_the_languages_unit_and_text_its_own() {
    let lease = |dialect: Dialect, said: Value| dialect.read::<LockSettings>(json!({ "lease": said })).unwrap().lease;
    assert_eq!(lease(PYTHON, json!(2)), Duration::from_secs(2));
    assert_eq!(lease(PYTHON, json!(0.1)), Duration::from_millis(100), "exactly");
    assert_eq!(lease(NODE, json!(2_500)), Duration::from_millis(2_500));
    assert_eq!(lease(NODE, json!(2_500.0)), Duration::from_millis(2_500));
    assert_eq!(lease(NODE, json!(20.5)), Duration::from_micros(20_500));
    assert_eq!(lease(NODE, Value::Null), Duration::from_secs(10), "null is an omitted field");
    for dialect in [PYTHON, NODE] {
        assert_eq!(lease(dialect, json!("250ms")), Duration::from_millis(250));
        for wrong in [json!(-1), json!(-0.5), json!(1e300)] {
            let (field, reason) = refused::<LockSettings>(dialect, json!({ "lease": wrong }));
            assert_eq!((field, reason), ("lease".into(), format!("must be from 10ms to 30d, got {wrong}")));
        }
        for wrong in [json!("soon"), json!("1e3s"), json!(true), json!({})] {
            let (field, reason) = refused::<LockSettings>(dialect, json!({ "lease": wrong }));
            assert_eq!(field, "lease");
            assert!(
                reason.starts_with(&format!("must be a duration: a number of {}", dialect.numbers.text())),
                "{reason}"
            );
        }
    }
}

#[test]
fn whole_numbers_may_come_as_floats_and_others_may_not() {
    assert_eq!(NODE.read::<DispatcherSettings>(json!({ "workers": 4.0 })).unwrap().workers, 4);
    for wrong in [json!(4.5), json!("4"), json!(null), json!([4])] {
        let (field, reason) = refused::<DispatcherSettings>(NODE, json!({ "workers": wrong }));
        assert_eq!(field, "workers");
        assert!(reason.starts_with("must be a whole number from") || wrong.is_null(), "{reason}");
    }
}

#[test]
fn values_are_the_same_in_every_dialect() {
    let read: PolicySettings = PYTHON
        .read(json!({ "order": ["total", "rate-limit"], "timeout": { "total": 1 }, "rate_limit": { "limit": 1, "period": 1 } }))
        .unwrap();
    assert_eq!(read.order.as_deref(), Some(&[Stage::Total, Stage::RateLimit][..]));
    for (dialect, field) in [(PYTHON, "on_lapse"), (NODE, "onLapse")] {
        let read: IdempotencySettings = dialect.read(json!({ field: "hold" })).unwrap();
        assert_eq!(read.on_lapse, crate::idempotency::OnLapse::Hold);
    }
    let (field, reason) = refused::<CacheSettings>(PYTHON, json!({ "on_error": "Share" }));
    assert_eq!((field.as_str(), reason.as_str()), ("on_error", "must be one of share, propagate, got \"Share\""));
}

#[test]
fn null_is_an_omitted_field_except_for_retry_budgets() {
    let read: RetrySettings = NODE.read(json!({ "maxAttempts": null, "budget": null })).unwrap();
    assert_eq!((read.max_attempts, read.budget), (RetrySettings::default().max_attempts, None));
}

#[test]
fn plain_files_refuse_bare_numbers_for_durations() {
    let read = |text: &str| serde_json::from_str::<LockSettings>(text);
    assert_eq!(read(r#"{"lease": "20ms"}"#).unwrap().lease, Duration::from_millis(20));
    for number in ["20", "0.5", "-1", "\"20\""] {
        assert!(read(&format!(r#"{{"lease": {number}}}"#)).is_err(), "{number}");
    }
}

#[test]
fn durations_of_parts_that_adapt_are_said_as_all_others() {
    for (dialect, number) in [(PYTHON, 5.0), (NODE, 5_000.0)] {
        let read: PolicySettings = dialect.read(json!({ "throttle": { "window": number } })).unwrap();
        assert_eq!(read.throttle.unwrap().window().as_us(), 5_000_000);
    }
    let (field, reason) = refused::<PolicySettings>(PYTHON, json!({ "throttle": { "window": 0.1 } }));
    assert_eq!((field.as_str(), reason.as_str()), ("throttle.window", "must be from 1s to 10m, got 100ms"));
}

#[test]
fn whatever_is_out_of_bounds_is_reported_the_same_bounds() {
    let reported = |limit: serde_json::Value| refused::<Limit>(NODE, json!({ "limit": limit, "period": "1s" })).1;
    for limit in ["0", "-1", "4294967295", "1000000000000"] {
        let given: serde_json::Value = serde_json::from_str(limit).unwrap();
        assert_eq!(reported(given), format!("must be from 1 to 1000000000, got {limit}"));
    }
    assert_eq!(reported(json!(1.5)), "must be a whole number from 1 to 1000000000, got 1.5");
    assert_eq!(reported(json!("5")), "must be a whole number from 0 to 4294967295, got \"5\"");
    let period = |period: i64| refused::<Limit>(NODE, json!({ "limit": 1, "period": period })).1;
    assert_eq!(period(0), "must be from 1us to 366d, got 0");
    assert_eq!(period(-1), "must be from 1us to 366d, got -1");
    let tier = json!({ "limit": 1, "period": "1s", "tiers": [{ "limit": -1, "period": "1m" }] });
    assert_eq!(refused::<Limit>(NODE, tier), ("tiers[0].limit".into(), "must be from 1 to 1000000000, got -1".into()));
}
