//! What errors mean for their message, by default.

use std::io::{Error as IoError, ErrorKind};
use std::time::Duration;

use super::{WorkError, WorkVerdict};
use crate::dead_letters::{FailureClass, FailureCount};
use crate::error::Error;

fn of(error: impl std::error::Error + 'static) -> WorkVerdict {
    WorkVerdict::of(&error)
}

#[derive(Debug, thiserror::Error)]
#[error("charging failed")]
struct Wrapped(#[source] Error);

#[test]
fn a_shutdown_is_not_counted_and_ends_after_a_day() {
    assert_eq!(of(Error::ShuttingDown), WorkVerdict::NotCounted(None));
}

#[test]
fn what_somebody_else_cancelled_counts() {
    assert_eq!(of(Error::Cancelled), WorkVerdict::Retry(FailureClass::Transient));
}

#[test]
fn deadlines_validation_and_authorisation_are_permanent() {
    assert_eq!(of(Error::Timeout { after: Duration::from_secs(1) }), WorkVerdict::Permanent);
    assert_eq!(of(Error::InvalidArgument("no".into())), WorkVerdict::Permanent);
    assert_eq!(of(Error::PermissionDenied("to pay")), WorkVerdict::Permanent);
    for kind in [ErrorKind::InvalidData, ErrorKind::InvalidInput, ErrorKind::AlreadyExists, ErrorKind::PermissionDenied]
    {
        assert_eq!(of(IoError::from(kind)), WorkVerdict::Permanent);
    }
    assert_eq!(of(serde_json::from_str::<u32>("{").unwrap_err()), WorkVerdict::Permanent);
    for status in [400, 401, 403, 404, 409, 422] {
        assert_eq!(WorkVerdict::of_status(status, None), WorkVerdict::Permanent);
    }
}

#[test]
fn what_is_not_the_messages_fault_is_not_counted() {
    let after = Some(Duration::from_secs(7));
    let open = Error::CircuitOpen { name: "bank".into(), retry_after: after };
    assert_eq!(of(Wrapped(open)), WorkVerdict::NotCounted(after));
    assert_eq!(
        of(Error::RateLimitExceeded { name: "bank".into(), retry_after: after }),
        WorkVerdict::NotCounted(after)
    );
    assert_eq!(of(Error::BulkheadFull { name: "bank".into(), retry_after: None }), WorkVerdict::NotCounted(None));
    assert_eq!(of(Error::BackendUnavailable("gone")), WorkVerdict::NotCounted(None));
    assert_eq!(WorkVerdict::NotCounted(after).pause(), after);
    assert_eq!(WorkVerdict::NotCounted(None).pause(), Some(Duration::from_secs(1)));
}

#[test]
fn connections_and_busy_services_are_external() {
    for kind in [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset, ErrorKind::TimedOut] {
        assert_eq!(of(IoError::from(kind)), WorkVerdict::Retry(FailureClass::External));
    }
    for status in [429, 500, 503] {
        assert_eq!(WorkVerdict::of_status(status, None), WorkVerdict::Retry(FailureClass::External));
    }
    let after = Duration::from_secs(3);
    assert_eq!(WorkVerdict::of_status(429, Some(after)), WorkVerdict::RetryAfter(FailureClass::External, after));
}

#[test]
fn an_unknown_error_is_transient() {
    assert_eq!(of(IoError::other("hm")), WorkVerdict::Retry(FailureClass::Transient));
    assert_eq!(of(std::fmt::Error), WorkVerdict::Retry(FailureClass::Transient));
}

#[test]
fn a_verdict_says_what_the_ledger_hears() {
    let note = |verdict: WorkVerdict| verdict.note("no".into());
    assert_eq!(note(WorkVerdict::Permanent).unwrap().count, FailureCount::Final);
    assert_eq!(note(WorkVerdict::NotCounted(None)).unwrap().count, FailureCount::NotCounted);
    let after = Duration::from_secs(2);
    let retried = note(WorkVerdict::RetryAfter(FailureClass::External, after)).unwrap();
    assert_eq!((retried.after, retried.failure_class), (Some(after), Some(FailureClass::External)));
    assert_eq!(note(WorkVerdict::Drop), None);
    assert_eq!(note(WorkVerdict::GiveBack(after)), None);
}

#[test]
fn the_text_of_an_error_has_its_causes() {
    let error = WorkError::from(Wrapped(Error::Cancelled));
    assert_eq!(error.text(), "charging failed: cancelled");
    assert_eq!(WorkError::permanent("no").text(), "no");
}
