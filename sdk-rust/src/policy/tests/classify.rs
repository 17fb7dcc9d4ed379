use std::sync::Arc;

use super::*;
use crate::error::{Code, Leased};

#[test]
fn an_open_circuit_is_not_retried_even_with_a_time() {
    let error = Error::CircuitOpen { name: "x".into(), retry_after: Some(Duration::from_secs(1)) };
    assert_eq!(classify_own(&error), Class::Permanent);
}

#[test]
fn a_refusal_with_a_time_is_retried_then() {
    let after = Duration::from_millis(30);
    for retry_after in [Some(after), None] {
        let expected = retry_after.map_or(Class::Retry, Class::RetryAfter);
        let name: Arc<str> = "x".into();
        for error in [
            Error::RateLimitExceeded { name: name.clone(), retry_after },
            Error::BulkheadFull { name: name.clone(), retry_after },
            Error::IdempotencyBusy { name: name.clone(), retry_after },
            Error::LockTimeout { name: name.clone(), waited: after, retry_after },
        ] {
            assert_eq!(classify_own(&error), expected, "{error}");
        }
    }
}

#[test]
fn what_is_never_retried() {
    let name: Arc<str> = "x".into();
    for error in [
        Error::invalid("a", "b"),
        Error::InvalidArgument("a".into()),
        Error::LockLost { what: Leased::Lock, name: name.clone(), reason: "a" },
        Error::IdempotencyMismatch { name: name.clone() },
        Error::IdempotencyHeld { name, attempt: 2 },
        Error::ShuttingDown,
        Error::Cancelled,
        Error::Crashed("a".into()),
        Error::RetryExhausted { attempts: 2 },
    ] {
        assert_eq!(classify_own(&error), Class::Permanent, "{error}");
    }
    let exhausted: Failure<()> = Failure::Exhausted { attempts: 3, last: Box::new(Failure::Inner(())) };
    assert_eq!(exhausted.code(), Some(Code::RetryExhausted));
    assert_eq!(classify_failure(&retry_all, &exhausted), Class::Permanent);
}

#[test]
fn the_calls_own_errors_are_for_its_classifier_to_judge() {
    let by_number = |error: &u16| if *error >= 500 { Class::Retry } else { Class::Ignore };
    assert_eq!(classify_failure(&by_number, &Failure::Inner(503)), Class::Retry);
    assert_eq!(classify_failure(&by_number, &Failure::Inner(404)), Class::Ignore);
    let kept: Box<dyn Fn(&u16) -> Class> = Box::new(by_number);
    assert_eq!(classify_failure(&kept, &Failure::Inner(503)), Class::Retry);
    assert_eq!(classify_failure(&retry_none, &Failure::Inner(503)), Class::Permanent);
    assert_eq!(
        classify_failure(&retry_none::<u16>, &Error::Timeout { after: Duration::from_secs(1) }.into()),
        Class::Retry
    );
}
