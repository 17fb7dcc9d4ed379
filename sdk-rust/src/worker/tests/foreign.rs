use std::time::Duration;

use serde_json::json;

use super::ForeignError;
use crate::dead_letters::FailureClass;
use crate::error::Code;
use crate::settings::{Dialect, Numbers, Spelling, VerdictSettings};
use crate::worker::{SourceSettings, WorkVerdict};

const PYTHON: Dialect = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };

#[test]
fn errors_of_other_languages_are_judged_as_ours_are() {
    let external = WorkVerdict::Retry(FailureClass::External);
    let of = |error: ForeignError| error.verdict();
    assert_eq!(of(ForeignError::default()), WorkVerdict::Retry(FailureClass::Transient));
    assert_eq!(of(ForeignError { is_unreadable: true, ..Default::default() }), WorkVerdict::Permanent);
    assert_eq!(of(ForeignError { errno: Some("ECONNREFUSED".to_owned()), ..Default::default() }), external);
    assert_eq!(of(ForeignError { status: Some(503), ..Default::default() }), external);
    assert_eq!(of(ForeignError { status: Some(404), ..Default::default() }), WorkVerdict::Permanent);
    let after = Some(Duration::from_secs(3));
    let open = ForeignError { code: Some(Code::CircuitOpen), retry_after: after, ..Default::default() };
    assert_eq!(open.verdict(), WorkVerdict::NotCounted(after));
    let cancelled = ForeignError { is_cancelled: true, ..Default::default() };
    assert_eq!(of(cancelled), WorkVerdict::Retry(FailureClass::Transient), "not by the worker, which would not ask");
}

#[cfg(feature = "postgres")]
#[test]
fn states_of_a_database_are_distinguished_in_every_language() {
    let of = |state: &str| ForeignError { sql_state: Some(state.to_owned()), ..Default::default() }.verdict();
    assert_eq!(of("23505"), WorkVerdict::Permanent);
    assert_eq!(of("57P01"), WorkVerdict::Retry(FailureClass::External));
    assert_eq!(of("40001"), WorkVerdict::Retry(FailureClass::Transient));
}

#[test]
fn verdicts_are_read_by_their_names() {
    let of = |said| PYTHON.read::<VerdictSettings>(said).map(|said| said.verdict());
    assert_eq!(of(json!({ "verdict": "permanent" })).unwrap(), WorkVerdict::Permanent);
    assert_eq!(of(json!({ "verdict": "drop" })).unwrap(), WorkVerdict::Drop);
    let after = Duration::from_millis(1_500);
    let said = json!({ "verdict": "retry", "after": 1.5, "failure_class": "external" });
    assert_eq!(of(said).unwrap(), WorkVerdict::RetryAfter(FailureClass::External, after));
    assert_eq!(of(json!({ "verdict": "not-counted", "after": 1.5 })).unwrap(), WorkVerdict::NotCounted(Some(after)));
    let wrong = of(json!({ "verdict": "drop", "after": 1 })).unwrap_err().to_string();
    assert_eq!(wrong, "after must not be given for a message that is not tried again");
}

#[test]
fn sources_are_read_by_type_and_name_mistakes() {
    let wrong = |said| SourceSettings::read(&PYTHON, said).unwrap_err().to_string();
    assert!(wrong(json!({ "type": "kafka" })).starts_with("source.type must be one of ledger"));
    assert!(wrong(json!({ "name": "orders" })).starts_with("source.type must be one of ledger"));
    let ledger = SourceSettings::read(&PYTHON, json!({ "type": "ledger", "name": "orders" })).unwrap();
    assert_eq!(ledger, SourceSettings::Ledger("orders".to_owned()));
    assert!(wrong(json!({ "type": "ledger" })).starts_with("source.name"));
}

#[cfg(feature = "redis")]
#[test]
fn a_sources_spans_are_in_the_languages_numbers() {
    let said = json!({ "type": "stream", "stream": "orders", "reclaim": 2.5 });
    let SourceSettings::Stream(settings) = SourceSettings::read(&PYTHON, said).unwrap() else { panic!("a stream") };
    assert_eq!((settings.reclaim, settings.prefetch), (Duration::from_millis(2_500), 10));
    let wrong = SourceSettings::read(&PYTHON, json!({ "type": "stream", "stream": "s", "prefetch": 0 })).unwrap_err();
    assert_eq!(wrong.to_string(), "source.prefetch must be from 1 to 10000, got 0");
}

#[cfg(feature = "amqp")]
#[test]
fn fields_of_a_queue_are_spelled_as_the_language_does() {
    let said = json!({ "type": "rabbit", "queue": "orders", "queue_kind": "classic", "delivery_limit": 3, "consumer": ["ada", "in"] });
    let SourceSettings::Rabbit(settings) = SourceSettings::read(&PYTHON, said).unwrap() else { panic!("a queue") };
    assert_eq!((settings.delivery_limit, settings.workers), (3, 5));
    assert_eq!(settings.consumer, Some(("ada".to_owned(), "in".to_owned())));
    let wrong = SourceSettings::read(&PYTHON, json!({ "type": "rabbit" })).unwrap_err();
    assert!(wrong.to_string().starts_with("source.queue"), "{wrong}");
}
