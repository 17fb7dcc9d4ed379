use proptest::prelude::*;
use resil_core::policy::document::{POLICY, RETRY};
use resil_core::policy::fields::{FieldKind, FieldRow, Presence, Shape};
use resil_core::policy::{JitterKind, LimitKind, read, read_value, schema};
use resil_core::time::Span;
use serde_json::{Value, json};

use super::random::{Random, object, valid, value};

/// The default policy of the layout that `docs/policies.md` names, as JSON.
const OTHER_LAYOUT: &str = r#"{
    "circuit_breaker": {"failure_threshold": 5, "success_threshold": 3, "timeout": "30s"},
    "retry": {"max_attempts": 3, "base_delay": "100ms", "max_delay": "10s", "multiplier": 2.0, "jitter_percent": 0.1},
    "timeout": {"default": "5s"},
    "rate_limit": {"algorithm": "token_bucket", "limit": 1000, "window": "1m", "burst_size": 100},
    "bulkhead": {"max_concurrent": 100, "max_queue": 50, "queue_timeout": "5s"}
}"#;

#[test]
fn names_of_the_other_layout_are_read_as_ours() {
    let document = read(OTHER_LAYOUT).expect("valid");
    let ours = concat!(
        r#"{"timeout":{"attempt":"5s"},"#,
        r#""retry":{"maxAttempts":3,"initialBackoff":"100ms","maxBackoff":"10s","backoffMultiplier":2.0,"jitter":"10%"},"#,
        r#""breaker":{"consecutiveFailures":5,"openFor":"30s","successes":3},"#,
        r#""rateLimit":{"kind":"bucket","limit":1000,"period":"1m","burst":100},"#,
        r#""bulkhead":{"maxConcurrentCalls":100,"maxQueue":50,"maxWait":"5s"}}"#,
    );
    assert_eq!(document.canonical(), ours);
    assert_eq!(document.rate_limit.expect("there").kind(), LimitKind::Bucket);
    assert_eq!(document.retry.expect("there").jitter(), JitterKind::PlusMinus(10));
}

#[test]
fn omitted_fields_have_their_defaults_and_stay_omitted() {
    let document =
        read(r#"{"retry": {}, "breaker": {}, "shedding": {"hysteresis": null}, "bulkhead": {}}"#).expect("valid");
    assert_eq!(document.canonical(), r#"{"retry":{},"breaker":{},"bulkhead":{},"shedding":{}}"#);
    let retry = document.retry.expect("there");
    assert_eq!((retry.max_attempts(), retry.initial_backoff()), (3, Span::from_ms(100)));
    assert_eq!(retry.budget().expect("by default").rules().min_per_second, 10);
    let none = read(r#"{"retry": {"budget": null}}"#).expect("valid");
    assert_eq!(none.retry.as_ref().expect("there").budget(), None, "null is none");
    assert_eq!(none.canonical(), r#"{"retry":{"budget":null}}"#);
}

#[test]
fn defaults_of_breakers_are_those_of_the_machine() {
    let breaker = read(r#"{"breaker": {}}"#).expect("valid").breaker.expect("there");
    let config = breaker.config().expect("valid");
    let shown = (breaker.failure_rate(), breaker.consecutive_failures(), breaker.min_calls(), breaker.open_for());
    assert_eq!(shown, (config.rate_pct, config.consecutive, config.min_calls, config.open));
    let shown = (
        breaker.probes(),
        breaker.successes(),
        breaker.probe_lease(),
        breaker.quorum(),
        breaker.ramp(),
        breaker.idle(),
    );
    assert_eq!(shown, (config.probes, config.successes, config.lease, config.quorum, config.ramp, config.idle));
}

/// Whether a field may be this, beside what its object has to have.
fn may_be(shape: &Shape, field: &FieldRow, value: Value) -> Result<(), String> {
    let required = shape.fields.iter().filter(|field| matches!(field.presence, Presence::Required));
    let mut entries: serde_json::Map<String, Value> =
        required.map(|field| (field.name.to_owned(), schema::example(field.kind))).collect();
    entries.insert(field.name.to_owned(), value);
    let tree = path_of(shape).into_iter().rev().fold(Value::Object(entries), |inside, part| json!({ part: inside }));
    match read_value(tree) {
        Err(wrong) if wrong.path.ends_with(&format!(".{}", field.name)) || wrong.path == field.name => {
            Err(format!("{} {}: {wrong}", shape.title, field.name))
        }
        _ => Ok(()),
    }
}

#[test]
fn every_default_and_every_example_is_within_its_bounds() {
    // Only with another field beside them.
    let paired = ["slowCallDuration", "slowCallRate", "openFactor", "openMax", "latency", "order", "shedding", "tiers"];
    // Tiers and partitions stand in a list and under a name; their fields are of the same kinds.
    let stands_alone = |shape: &Shape| shape.title == POLICY.title || !path_of(shape).is_empty();
    for shape in schema::shapes().into_iter().filter(|shape| stands_alone(shape)) {
        for field in shape.fields {
            if let Presence::Default(shown) | Presence::DefaultOrNull(shown) = field.presence {
                assert_eq!(may_be(shape, field, serde_json::from_str(&shown()).expect("JSON")), Ok(()));
            } else if !paired.contains(&field.name) {
                assert_eq!(may_be(shape, field, schema::example(field.kind)), Ok(()));
            }
        }
    }
}

/// Where an object of this shape stands first.
fn path_of(shape: &Shape) -> Vec<&'static str> {
    let inside = |field: &FieldRow| matches!(field.kind, FieldKind::Object(inner) if inner.title == shape.title);
    for outer in POLICY.fields {
        match outer.kind {
            _ if inside(outer) => return vec![outer.name],
            FieldKind::Object(part) => {
                if let Some(field) = part.fields.iter().find(|field| inside(field)) {
                    return vec![outer.name, field.name];
                }
            }
            _ => {}
        }
    }
    Vec::new()
}

/// A value just outside of what the kind allows, if there is one.
fn outside(random: &mut Random, kind: FieldKind) -> Option<Value> {
    let above = random.one_in(2);
    match kind {
        FieldKind::Whole { least, .. } if !above && least > 0 => Some(json!(least - 1)),
        FieldKind::Whole { .. } if !above => Some(json!(-1)),
        FieldKind::Whole { most, .. } => Some(most.checked_add(1).map_or(json!(1e30), |more| json!(more))),
        FieldKind::Number { least, most } => Some(if above { json!(most + 0.01) } else { json!(least - 0.01) }),
        FieldKind::Duration { least, most } if above || least.is_zero() => {
            Some(json!(format!("{}us", most.as_us() + 1)))
        }
        FieldKind::Duration { .. } => Some(json!(0)),
        FieldKind::Object(_) | FieldKind::List { .. } | FieldKind::Named(_) => Some(json!("text")),
        FieldKind::Flag | FieldKind::Text { .. } | FieldKind::Name => Some(json!([])),
        FieldKind::OneOf(_) | FieldKind::Jitter | FieldKind::Moment => Some(json!("nonsense")),
        FieldKind::Words(_) | FieldKind::Texts { .. } => Some(json!(7)),
    }
}

proptest! {
    #![proptest_config(crate::seed::config())]

    // Property 21: a policy that was read is written, read and written again as the same text.
    #[test]
    fn reading_and_writing_is_the_identity(seed: u64) {
        let (tree, document) = valid(&mut Random(seed), &POLICY);
        let written = document.canonical();
        let again = read(&written).map_err(|wrong| TestCaseError::fail(format!("{wrong}: {written}")))?;
        prop_assert_eq!(&again, &document, "{}", tree);
        prop_assert_eq!(again.canonical(), written);
        prop_assert_eq!(read(&serde_json::to_string_pretty(&tree).expect("JSON")).expect("valid"), document);
    }

    // Property 7: a retry policy that was read is written and read again as the same one.
    #[test]
    fn retry_settings_survive_writing_and_reading(seed: u64) {
        let mut random = Random(seed);
        let tree = json!({ "retry": object(&mut random, &RETRY) });
        let Ok(document) = read_value(tree) else { return Ok(()) };
        let again = read(&document.canonical()).expect("what was written is valid");
        prop_assert_eq!(again.retry.expect("there"), document.retry.expect("there"));
    }

    // Property 20: a field out of its bounds is refused, and named by its path.
    #[test]
    fn each_field_out_of_bounds_is_named(seed: u64) {
        let mut random = Random(seed);
        let part = &POLICY.fields[(random.next() % POLICY.fields.len() as u64) as usize];
        let (tree, path) = match part.kind {
            FieldKind::Object(shape) => {
                let Value::Object(mut entries) = object(&mut random, shape) else { unreachable!() };
                let field = &shape.fields[(random.next() % shape.fields.len() as u64) as usize];
                entries.retain(|name, _| resil_core::policy::walk::camel(name) != field.name);
                let Some(wrong) = outside(&mut random, field.kind) else { return Ok(()) };
                entries.insert(field.name.to_owned(), wrong);
                (json!({ part.name: entries }), format!("{}.{}", part.name, field.name))
            }
            kind => match outside(&mut random, kind) {
                Some(wrong) => (json!({ part.name: wrong }), part.name.to_owned()),
                None => return Ok(()),
            },
        };
        let refused = read_value(tree.clone()).expect_err("out of bounds");
        prop_assert_eq!(&refused.path, &path, "{} in {}", refused, tree);
        prop_assert!(refused.text.len() > 10, "it says what is allowed: {}", refused);
    }

    // Property 10: a timeout that is not above zero, or above five minutes, is refused.
    #[test]
    fn timeouts_are_above_zero_and_at_most_five_minutes(us in 0u64..700_000_000, total: bool) {
        let field = if total { "total" } else { "attempt" };
        let read = read_value(json!({ "timeout": { field: format!("{us}us") } }));
        prop_assert_eq!(read.is_ok(), (1..=300_000_000).contains(&us), "{:?}", read);
    }

    /// No text makes it panic, and what it refuses has a path.
    #[test]
    fn no_text_breaks_the_reader(text in r#"[\{\}\[\]":,a-z0-9 ._-]{0,80}"#) {
        if let Err(wrong) = read(&text) {
            prop_assert!(!wrong.path.is_empty());
        }
    }

    /// No tree makes it panic either, whatever stands where.
    #[test]
    fn no_tree_breaks_the_reader(seed: u64) {
        let mut random = Random(seed);
        let mut tree = object(&mut random, &POLICY);
        for field in POLICY.fields {
            if random.one_in(3) {
                let other = &POLICY.fields[(random.next() % POLICY.fields.len() as u64) as usize];
                tree[field.name] = value(&mut random, other.kind);
            }
        }
        if let Err(wrong) = read_value(tree) {
            prop_assert!(!wrong.path.is_empty());
        }
    }
}
