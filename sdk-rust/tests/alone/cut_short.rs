//! Idempotent work that is cut short: nobody knows what it did, so its key keeps its lease, whatever cut it.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use resil::idempotency::{IdempotencySettings, Idempotent, RecordedError, RecordedState, Remember, Run};
use resil::policy::{CallSettings, HedgeSettings, Policy, PolicyBuilder, RetrySettings, TimeoutSettings, retry_all};
use resil::{Code, Error, Failure};

const MS: Duration = Duration::from_millis(1);

async fn payments(abort_on_cancel: bool) -> Idempotent {
    let settings = IdempotencySettings { abort_on_cancel, wait: Duration::ZERO, ..IdempotencySettings::default() };
    resil::connect("memory://").await.unwrap().idempotent("payments", settings).unwrap()
}

fn attempts_of(after: Duration) -> PolicyBuilder {
    Policy::builder("pay").timeout(TimeoutSettings { attempt: Some(after), total: None })
}

fn retry() -> RetrySettings {
    RetrySettings { max_attempts: 2, initial_backoff: Duration::from_micros(1), ..RetrySettings::default() }
}

async fn is_running(payments: &Idempotent) -> bool {
    matches!(payments.get("order").await.unwrap(), RecordedState::Running { .. })
}

#[tokio::test]
async fn a_timed_out_attempt_keeps_the_lease_unless_aborting() {
    let hedge = HedgeSettings { hedging_delay: MS, ..HedgeSettings::default() };
    let policies = [
        attempts_of(10 * MS).build(),
        attempts_of(10 * MS).retry(&retry()).build(),
        attempts_of(10 * MS).hedge(&hedge).build(),
    ];
    for policy in policies {
        let policy = policy.unwrap();
        for abort in [false, true] {
            let payments = payments(abort).await;
            let work = async |_: Run| std::future::pending::<Result<u32, String>>().await;
            let failed =
                policy.call_once(&payments, "order", b"", CallSettings::new(), retry_all, work).await.unwrap_err();
            assert!(matches!(failed.code(), Some(Code::Timeout | Code::RetryExhausted)), "{failed:?}");
            assert_eq!(is_running(&payments).await, !abort, "{failed:?}");
        }
    }
}

#[tokio::test]
async fn one_attempt_of_several_that_was_cut_short_is_enough() {
    let (payments, tries) = (payments(false).await, AtomicU32::new(0));
    let policy = attempts_of(10 * MS).retry(&retry()).build().unwrap();
    let work = async |_: Run| {
        if tries.fetch_add(1, SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        Err::<u32, _>("nothing happened")
    };
    let failed = policy.call_once(&payments, "order", b"", CallSettings::new(), retry_all, work).await;
    assert!(failed.is_err() && tries.load(SeqCst) == 2);
    assert!(is_running(&payments).await, "the first attempt may have paid");
}

#[tokio::test]
async fn work_that_succeeds_after_a_cut_attempt_is_recorded() {
    let (payments, tries) = (payments(false).await, AtomicU32::new(0));
    let policy = attempts_of(10 * MS).retry(&retry()).build().unwrap();
    let work = async |_: Run| {
        if tries.fetch_add(1, SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        Ok::<_, String>(7)
    };
    let paid = policy.call_once(&payments, "order", b"", CallSettings::new(), retry_all, work).await.unwrap();
    assert_eq!((paid.value, paid.recorded), (Some(7), true));
}

#[tokio::test]
async fn attempts_that_all_failed_by_themselves_free_the_key() {
    let payments = payments(false).await;
    let policy = attempts_of(1_000 * MS).retry(&retry()).build().unwrap();
    let work = async |_: Run| Err::<u32, _>("nothing happened");
    assert!(policy.call_once(&payments, "order", b"", CallSettings::new(), retry_all, work).await.is_err());
    assert_eq!(payments.get("order").await.unwrap(), RecordedState::Unknown);
}

#[tokio::test]
async fn a_function_says_itself_that_it_was_cut_short() {
    let payments = payments(false).await;
    let work = async |run: Run| {
        run.cut_short();
        Err::<&str, _>("a timeout of its own")
    };
    assert!(payments.run("order", b"", work).await.is_err());
    assert!(is_running(&payments).await);
}

#[tokio::test]
async fn an_unreadable_final_error_is_an_error_of_its_own() {
    let payments = payments(false).await;
    let remember = Remember::recorded(
        |error: &String| Some(RecordedError::new("CardDeclined", error.as_str())),
        |recorded| recorded.message,
    );
    let declined = async |_: Run| Err::<&str, _>("no funds".to_owned());
    assert!(payments.run_remembering("order", b"", &remember, declined).await.is_err());
    let again = payments.run("order", b"", async |_| Ok::<_, String>("never")).await.unwrap_err();
    let Failure::Resil(Error::IdempotencyFailed { error, message, .. }) = &again else { panic!("{again:?}") };
    assert_eq!((error.as_str(), message.as_str()), ("CardDeclined", "no funds"));
    assert!(again.to_string().ends_with("has failed finally: CardDeclined: no funds"), "{again}");
}

#[tokio::test]
async fn an_empty_key_is_refused_before_anything_is_done() {
    let payments = payments(false).await;
    let ran = payments.run("", b"", async |_| -> Result<&str, String> { panic!("it ran") }).await;
    assert_eq!(ran.unwrap_err().code(), Some(Code::InvalidArgument));
    assert_eq!(payments.get("").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(payments.once("", MS, None).await.unwrap_err().code(), Code::InvalidArgument);
    for (ttl, token) in [(Duration::ZERO, None), (MS, Some("")), (Duration::MAX, None)] {
        assert!(payments.once("order", ttl, token).await.is_err());
    }
}
