//! Errors as statuses, and what statuses mean for retries.

use std::sync::Arc;
use std::time::Duration;

use resil::grpc::{CODE_KEY, PUSHBACK_KEY, RetryStatuses, ServiceConfig, StatusCode};
use resil::policy::{Class, Classify, Retry, RetrySettings};
use resil::{Code, Error, Failure};
use tonic::metadata::MetadataValue;
use tonic::{Code as TonicCode, Status};

fn value<'a>(status: &'a Status, key: &str) -> Option<&'a str> {
    status.metadata().get(key).map(|value| value.to_str().unwrap())
}

fn pushed_back(mut status: Status, values: &[&'static str]) -> Status {
    for value in values {
        status.metadata_mut().append(PUSHBACK_KEY, MetadataValue::from_static(value));
    }
    status
}

#[test]
fn an_error_is_a_status_with_code_and_time() {
    let name: Arc<str> = "payments".into();
    let error = Error::CircuitOpen { name: name.clone(), retry_after: Some(Duration::from_micros(1_500_001)) };
    let status = Status::from(&error);
    assert_eq!(status.code(), TonicCode::Unavailable);
    assert_eq!(status.message(), resil::Code::CircuitOpen.meaning(), "and no name");
    assert_eq!(value(&status, CODE_KEY), Some("CIRCUIT_OPEN"));
    assert_eq!(value(&status, PUSHBACK_KEY), Some("1501"), "rounded up");

    let unknown = Status::from(Error::CircuitOpen { name: name.clone(), retry_after: None });
    assert_eq!(value(&unknown, PUSHBACK_KEY), None, "nothing is known");
    let hopeless = Status::from(Error::Deadlock { name: name.clone() });
    assert_eq!((hopeless.code(), value(&hopeless, PUSHBACK_KEY)), (TonicCode::FailedPrecondition, Some("-1")));
    let for_ever = Status::from(Error::RateLimitExceeded { name, retry_after: Some(Duration::MAX) });
    assert_eq!(value(&for_ever, PUSHBACK_KEY), Some("2147483647"), "the largest that can be said");
}

#[test]
fn every_code_has_the_status_of_its_table() {
    for code in Code::all() {
        let number = code.grpc() as i32;
        let known = StatusCode::ALL[usize::try_from(number).unwrap()];
        assert_eq!(TonicCode::from(known), TonicCode::from_i32(number));
        assert_eq!(StatusCode::from(TonicCode::from_i32(number)), known);
    }
    for code in StatusCode::ALL {
        assert_eq!(StatusCode::from(TonicCode::from(code)), code);
    }
}

#[test]
fn a_status_does_not_tell_a_panics_or_loaders_words() {
    let secret = "swordfish";
    for error in [
        Error::Crashed(secret.to_owned()),
        Error::Internal(secret.to_owned()),
        Error::LoadFailed { name: "user".into(), message: secret.to_owned() },
    ] {
        assert!(!Status::from(error).message().contains(secret));
    }
}

#[test]
fn exhausted_attempts_tell_how_the_last_failed() {
    let mut last = Status::with_details(TonicCode::Aborted, "conflict", bytes_of(b"details"));
    last.metadata_mut().insert("x-shard", MetadataValue::from_static("7"));
    last.metadata_mut().insert(PUSHBACK_KEY, MetadataValue::from_static("250"));
    let failure = Failure::Exhausted { attempts: 3, last: Box::new(Failure::Inner(last.clone())) };
    let status = Status::from(failure);
    assert_eq!(status.code(), TonicCode::Unavailable);
    assert_eq!(status.message(), "all 3 attempts failed; the last: ABORTED: conflict");
    assert_eq!(status.details(), b"details");
    assert_eq!(value(&status, "x-shard"), Some("7"));
    assert_eq!(value(&status, CODE_KEY), Some("RETRY_EXHAUSTED"));
    assert_eq!(value(&status, PUSHBACK_KEY), Some("-1"), "the next hop does not begin anew");
    let own = Status::from(Failure::Inner(last));
    assert_eq!((own.code(), own.message()), (TonicCode::Aborted, "conflict"), "the call's own status is untouched");
    assert_eq!(Status::from(Failure::<Status>::Resil(Error::ShuttingDown)).code(), TonicCode::Unavailable);
}

fn bytes_of(bytes: &'static [u8]) -> prost::bytes::Bytes {
    prost::bytes::Bytes::from_static(bytes)
}

#[test]
fn which_statuses_are_worth_another_attempt() {
    let statuses = RetryStatuses::default();
    for code in StatusCode::ALL {
        let class = statuses.class(&Status::new(code.into(), ""));
        let wanted = match code {
            StatusCode::Unavailable
            | StatusCode::ResourceExhausted
            | StatusCode::Aborted
            | StatusCode::DeadlineExceeded => Class::Retry,
            StatusCode::Ok
            | StatusCode::Unknown
            | StatusCode::Internal
            | StatusCode::Unimplemented
            | StatusCode::DataLoss => Class::Permanent,
            _ => Class::Ignore,
        };
        assert_eq!(class, wanted, "{}", code.text());
    }
    let only = RetryStatuses::of(&[StatusCode::Internal]);
    assert_eq!(only.class(&Status::internal("")), Class::Retry);
    assert_eq!(only.class(&Status::unavailable("")), Class::Permanent);
    assert_eq!(statuses.with(StatusCode::NotFound).class(&Status::not_found("")), Class::Retry);
    assert_eq!(statuses.without(StatusCode::Aborted).class(&Status::aborted("")), Class::Permanent);
}

#[test]
fn a_server_that_pushes_back_is_obeyed() {
    let statuses = RetryStatuses::default();
    let class = |status| statuses.classify(&status);
    let busy = || Status::resource_exhausted("busy");
    assert_eq!(class(pushed_back(busy(), &["250"])), Class::RetryAfter(Duration::from_millis(250)));
    assert_eq!(class(pushed_back(busy(), &["0"])), Class::RetryAfter(Duration::ZERO));
    for refusal in [&["-1"][..], &["soon"], &[""], &["99999999999"], &["10", "20"]] {
        assert_eq!(class(pushed_back(busy(), refusal)), Class::Permanent, "{refusal:?}");
    }
    let not_found = pushed_back(Status::not_found("x"), &["10"]);
    assert_eq!(class(not_found), Class::Ignore, "a pushback makes nothing retryable that is not");
}

#[test]
fn a_service_configs_statuses_are_those_retried() {
    let config = ServiceConfig::parse(
        r#"{ "methodConfig": [
            { "name": [{}], "retryPolicy": { "maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s",
              "backoffMultiplier": 1, "retryableStatusCodes": ["UNKNOWN"] } },
            { "name": [{ "service": "h" }], "hedgingPolicy": { "maxAttempts": 2, "nonFatalStatusCodes": ["ABORTED"] } } ] }"#,
    )
    .unwrap();
    let retried = RetryStatuses::from(config.method("/a/b").unwrap().policy.as_ref().unwrap());
    assert_eq!(retried, RetryStatuses::of(&[StatusCode::Unknown]));
    let hedged = RetryStatuses::from(config.method("/h/b").unwrap().policy.as_ref().unwrap());
    assert_eq!(hedged, RetryStatuses::of(&[StatusCode::Aborted]));
}

#[tokio::test]
async fn a_retry_takes_statuses_as_they_are() {
    let settings = RetrySettings { initial_backoff: Duration::from_micros(1), ..RetrySettings::default() };
    let retry = Retry::new(&settings).unwrap();
    let mut replies = vec![Ok("here"), Err(Status::unavailable("restarting"))];
    let reply = retry.call(RetryStatuses::default(), || std::future::ready(replies.pop().unwrap())).await;
    assert_eq!(reply.unwrap(), "here");

    let mut attempts = 0;
    let refused = retry
        .call(RetryStatuses::default(), || {
            attempts += 1;
            std::future::ready(Err::<(), _>(pushed_back(Status::unavailable("full"), &["-1"])))
        })
        .await;
    assert_eq!((attempts, Status::from(refused.unwrap_err()).code()), (1, TonicCode::Unavailable));
}

proptest::proptest! {
    #![proptest_config(crate::drive::seed::config())]

    // Property 23: whatever an error is about, its code alone says which status it is.
    #[test]
    fn each_error_has_the_status_of_its_code(index: usize, name in ".{0,20}", message in ".{0,40}", wait_ms in 0u64..100_000) {
        let codes: Vec<Code> = Code::all().collect();
        let code = codes[index % codes.len()];
        let error = Error::restored(code, &name, &message, Some(Duration::from_millis(wait_ms)));
        proptest::prop_assert_eq!(error.code(), code);
        let status = Status::from(&error);
        proptest::prop_assert_eq!(status.code() as i32, code.grpc() as i32);
        proptest::prop_assert_eq!(value(&status, CODE_KEY), Some(code.text()));
        let expected = match code {
            Code::CircuitOpen => TonicCode::Unavailable,
            Code::RateLimitExceeded | Code::BulkheadFull => TonicCode::ResourceExhausted,
            Code::Timeout => TonicCode::DeadlineExceeded,
            Code::InvalidPolicy => TonicCode::InvalidArgument,
            _ => return Ok(()),
        };
        proptest::prop_assert_eq!(status.code(), expected);
    }
}
