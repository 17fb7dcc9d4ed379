//! Chains of upcasters.

use bytes::Bytes;

use super::{Upcasted, Upcasters};
use crate::worker::WorkError;

fn appending(text: &'static str) -> impl Fn(Bytes) -> Result<Bytes, WorkError> + Send + Sync + 'static {
    move |payload| Ok(Bytes::from([&payload[..], text.as_bytes()].concat()))
}

fn chain() -> Upcasters {
    Upcasters::new().step("order", 2, appending("3")).step("order", 1, appending("2"))
}

#[test]
fn a_message_passes_every_step_from_its_version() {
    for (schema, expected) in [(1, "x23"), (2, "x3"), (3, "x")] {
        match chain().apply(Some("order"), Some(schema), "x".into()) {
            Upcasted::Readable(payload) => assert_eq!(payload, expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(chain().newest("order"), Some(3));
}

#[test]
fn messages_of_other_kinds_are_left_alone() {
    for (kind, schema) in [(Some("other"), Some(1)), (None, Some(1)), (Some("order"), None)] {
        assert!(matches!(chain().apply(kind, schema, "x".into()), Upcasted::Readable(payload) if payload == "x"));
    }
}

#[test]
fn a_newer_version_is_not_guessed_at() {
    assert!(matches!(chain().apply(Some("order"), Some(4), "x".into()), Upcasted::TooNew { newest: 3 }));
}

#[test]
fn an_older_version_than_the_chain_is_permanent() {
    assert!(matches!(chain().apply(Some("order"), Some(0), "x".into()), Upcasted::Failed(_)));
    assert!(chain().why_unreadable("order", 0).is_some());
    assert!(chain().why_unreadable("order", 1).is_none());
}

#[test]
fn gaps_and_duplicates_are_refused() {
    assert!(chain().validate().is_ok());
    let gap = chain().step("order", 4, appending("5")).validate().unwrap_err();
    assert_eq!(gap.to_string(), "upcasters has no step for order from version 3");
    let twice = chain().step("order", 1, appending("2")).validate().unwrap_err();
    assert_eq!(twice.to_string(), "upcasters has two steps for order from version 1");
}
