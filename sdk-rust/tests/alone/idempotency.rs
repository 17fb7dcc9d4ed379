//! What idempotent work promises, on `memory://` with a driven clock. What a server says oddly is in the crate's own tests.

mod crowd;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use resil::clock::Clock;
use resil::idempotency::{IdempotencySettings, Idempotent, OnLapse, RecordedError, RecordedState, Remember};
use resil::{Client, Code, ConnectSettings, Failure};
use serde::{Deserialize, Serialize};

use crate::drive::tasks::{drive_tasks as drive, settle};

const SECOND: Duration = Duration::from_secs(1);

async fn client(store: &str, clock: &Clock) -> Client {
    ConnectSettings::new(format!("memory://{store}")).clock(clock.clone()).connect().await.unwrap()
}

async fn work(store: &str, clock: &Clock, tune: impl FnOnce(IdempotencySettings) -> IdempotencySettings) -> Idempotent {
    let settings = IdempotencySettings::new().lease(10 * SECOND).wait(5 * SECOND);
    client(store, clock).await.idempotent("pay", tune(settings)).unwrap()
}

async fn pay(work: &Idempotent, key: &str) -> Result<(Option<Bytes>, u32), Failure<String>> {
    let outcome = work.run(key, b"", async |_| Ok::<_, String>("paid")).await?;
    Ok((outcome.value, outcome.attempt))
}

#[tokio::test]
async fn duplicates_in_two_processes_run_once_and_share_results() {
    let clock = Clock::driven();
    let runs = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    let works = [work("twice", &clock, |settings| settings).await, work("twice", &clock, |settings| settings).await];
    for number in 0..200 {
        let (work, runs, clock) = (works[number % 2].clone(), Arc::clone(&runs), clock.clone());
        tasks.push(tokio::spawn(async move {
            let paying = async |_| {
                clock.sleep(2 * SECOND).await;
                Ok::<_, String>(format!("receipt {}", runs.fetch_add(1, SeqCst)))
            };
            work.run("42", b"seven euros", paying).await
        }));
    }
    drive(&clock, 3 * SECOND).await;
    let mut replayed = 0;
    for task in tasks {
        let outcome = task.await.unwrap().unwrap();
        assert_eq!(outcome.value.as_deref(), Some(&b"receipt 0"[..]));
        replayed += u32::from(outcome.replayed);
    }
    assert_eq!((runs.load(SeqCst), replayed), (1, 199));
}

#[tokio::test]
async fn a_key_with_another_request_is_refused_in_every_phase() {
    let clock = Clock::driven();
    let (here, there) =
        (work("other", &clock, |settings| settings).await, work("other", &clock, |settings| settings).await);
    let long = vec![7_u8; 10_000];
    let mut longer = long.clone();
    longer[9_999] = 8;
    let running = tokio::spawn({
        let (here, clock, long) = (here.clone(), clock.clone(), long.clone());
        async move {
            here.run("42", &long, async |_| {
                Ok::<_, String>({
                    clock.sleep(SECOND).await;
                    "paid"
                })
            })
            .await
        }
    });
    settle().await;
    for work in [&here, &there] {
        let refused = work.run("42", &longer, async |_| Ok::<_, String>("twice")).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::IdempotencyMismatch));
    }
    drive(&clock, 2 * SECOND).await;
    running.await.unwrap().unwrap();
    let refused = there.run("42", &longer, async |_| Ok::<_, String>("twice")).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::IdempotencyMismatch));
    assert!(there.run("42", &long, async |_| Ok::<_, String>("twice")).await.unwrap().replayed);
    assert!(there.run("42", b"", async |_| Ok::<_, String>("twice")).await.unwrap().replayed, "none is not checked");
}

#[tokio::test]
async fn a_duplicate_waits_its_own_time_and_learns_when() {
    let clock = Clock::driven();
    let (here, there) =
        (work("slow", &clock, |settings| settings).await, work("slow", &clock, |settings| settings).await);
    let spawn = |work: &Idempotent| {
        let (work, clock) = (work.clone(), clock.clone());
        tokio::spawn(async move {
            work.run("42", b"", async |_| {
                Ok::<_, String>({
                    clock.sleep(60 * SECOND).await;
                    "paid"
                })
            })
            .await
        })
    };
    let running = spawn(&here);
    settle().await;
    let duplicates = [spawn(&here), spawn(&there)];
    drive(&clock, 4 * SECOND).await;
    assert!(duplicates.iter().all(|task| !task.is_finished()));
    drive(&clock, 2 * SECOND).await;
    for duplicate in duplicates {
        assert!(duplicate.is_finished());
        let busy = duplicate.await.unwrap().unwrap_err();
        assert_eq!(busy.code(), Some(Code::IdempotencyBusy));
        assert_eq!(busy.retry_after(), Some(SECOND), "soon, and not only when the lease is over: {busy:?}");
    }
    running.abort();
}

#[tokio::test]
async fn the_lease_is_renewed_while_the_work_lasts() {
    let clock = Clock::driven();
    let (here, there) =
        (work("long", &clock, |settings| settings).await, work("long", &clock, |settings| settings).await);
    let running = tokio::spawn({
        let clock = clock.clone();
        async move {
            here.run("42", b"", async |_| {
                Ok::<_, String>({
                    clock.sleep(100 * SECOND).await;
                    "paid"
                })
            })
            .await
        }
    });
    for _ in 0..18 {
        drive(&clock, 5 * SECOND).await;
        assert!(matches!(there.get("42").await, Ok(RecordedState::Running { attempt: 1, .. })));
    }
    drive(&clock, 15 * SECOND).await;
    assert!(running.await.unwrap().unwrap().recorded);
    assert_eq!(pay(&there, "42").await.unwrap(), (Some("paid".into()), 0));
}

#[tokio::test]
async fn an_error_frees_the_key_and_the_next_knows() {
    let clock = Clock::driven();
    let (here, there) =
        (work("free", &clock, |settings| settings).await, work("free", &clock, |settings| settings).await);
    let failed = here.run("42", b"", async |run| Err::<Bytes, _>(format!("attempt {:?}", run.attempt()))).await;
    assert_eq!(failed.unwrap_err(), Failure::Inner("attempt Some(1)".to_owned()));
    assert_eq!(pay(&there, "42").await.unwrap(), (Some("paid".into()), 2));
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Declined {
    NoMoney,
    NoNetwork,
}

#[tokio::test]
async fn an_error_that_is_final_is_replayed_to_every_duplicate() {
    let clock = Clock::driven();
    let (here, there) =
        (work("final", &clock, |settings| settings).await, work("final", &clock, |settings| settings).await);
    let remember = Remember::json(|error| *error == Declined::NoMoney);
    let paying = |error| async move |_| Err::<u32, _>(error);
    let first = here.run_json_remembering("42", b"", &remember, paying(Declined::NoNetwork)).await;
    assert_eq!(first, Err(Failure::Inner(Declined::NoNetwork)));
    let second = here.run_json_remembering("42", b"", &remember, paying(Declined::NoMoney)).await;
    assert_eq!(second, Err(Failure::Inner(Declined::NoMoney)));
    let replayed = there.run_json_remembering("42", b"", &remember, async |_| Ok(7)).await;
    assert_eq!(replayed, Err(Failure::Inner(Declined::NoMoney)));
    // Who does not remember errors learns that there is one, and does not run either.
    assert_eq!(pay(&there, "42").await.unwrap_err().code(), Some(Code::IdempotencyFailed));
    assert!(matches!(there.get("42").await, Ok(RecordedState::Done { is_error: true, .. })));
}

#[tokio::test]
async fn a_run_cut_short_is_not_aborted() {
    let clock = Clock::driven();
    let (here, there) =
        (work("cut", &clock, |settings| settings).await, work("cut", &clock, |settings| settings).await);
    let running =
        tokio::spawn(
            async move { here.run("42", b"", async |_| Ok::<Bytes, String>(std::future::pending().await)).await },
        );
    settle().await;
    running.abort();
    settle().await;
    let next = tokio::spawn({
        let there = there.clone();
        async move { pay(&there, "42").await }
    });
    drive(&clock, 4 * SECOND).await;
    assert!(!next.is_finished(), "the lease has not lapsed");
    drive(&clock, 2 * SECOND).await;
    assert_eq!(next.await.unwrap().unwrap_err().code(), Some(Code::IdempotencyBusy));
    drive(&clock, 5 * SECOND).await;
    assert_eq!(pay(&there, "42").await.unwrap().1, 2);
}

#[tokio::test]
async fn a_panicked_run_is_like_one_cut_short() {
    let clock = Clock::driven();
    let here = work("panic", &clock, |settings| settings).await;
    let running = tokio::spawn({
        let here = here.clone();
        async move { here.run("42", b"", async |_| -> Result<Bytes, String> { panic!("out of ink") }).await }
    });
    settle().await;
    assert!(running.await.unwrap_err().is_panic());
    assert!(matches!(here.get("42").await, Ok(RecordedState::Running { .. })));
    drive(&clock, 11 * SECOND).await;
    assert_eq!(pay(&here, "42").await.unwrap().1, 2);
}

#[tokio::test]
async fn an_abortable_run_cut_short_frees_the_key() {
    let clock = Clock::driven();
    let here = work("abort", &clock, |settings| settings.abort_on_cancel()).await;
    let there = work("abort", &clock, |settings| settings).await;
    let running =
        tokio::spawn(
            async move { here.run("42", b"", async |_| Ok::<Bytes, String>(std::future::pending().await)).await },
        );
    settle().await;
    running.abort();
    settle().await;
    assert_eq!(pay(&there, "42").await.unwrap().1, 2);
}

#[tokio::test]
async fn a_duplicate_that_leaves_early_costs_no_run() {
    let clock = Clock::driven();
    let works = [
        work("leave", &clock, |settings| settings).await,
        work("leave", &clock, |settings| settings).await,
        work("leave", &clock, |settings| settings).await,
    ];
    let failing = tokio::spawn({
        let (work, clock) = (works[0].clone(), clock.clone());
        async move {
            work.run("42", b"", async |_| {
                Err::<Bytes, _>({
                    clock.sleep(SECOND).await;
                    "no"
                })
            })
            .await
        }
    });
    settle().await;
    let leaving = tokio::spawn({
        let work = works[1].clone();
        async move { pay(&work, "42").await }
    });
    settle().await;
    let staying = tokio::spawn({
        let work = works[2].clone();
        async move { pay(&work, "42").await }
    });
    settle().await;
    leaving.abort();
    settle().await;
    drive(&clock, SECOND).await;
    assert!(failing.await.unwrap().is_err());
    assert!(staying.is_finished(), "nobody has to wait for the lease of one who left");
    assert_eq!(staying.await.unwrap().unwrap().0.as_deref(), Some(&b"paid"[..]));
}

#[tokio::test]
async fn local_duplicates_continue_when_the_first_of_them_is_cancelled() {
    let clock = Clock::driven();
    let here = work("first", &clock, |settings| settings.abort_on_cancel()).await;
    let first = tokio::spawn({
        let here = here.clone();
        async move { here.run("42", b"", async |_| Ok::<Bytes, String>(std::future::pending().await)).await }
    });
    settle().await;
    let others: Vec<_> = (0..50)
        .map(|_| {
            tokio::spawn({
                let here = here.clone();
                async move { pay(&here, "42").await }
            })
        })
        .collect();
    settle().await;
    first.abort();
    settle().await;
    let mut ran = 0;
    for other in others {
        let (value, attempt) = other.await.unwrap().unwrap();
        assert_eq!(value.as_deref(), Some(&b"paid"[..]));
        ran += u32::from(attempt == 2);
    }
    assert_eq!(ran, 1);
}

#[tokio::test]
async fn work_that_fell_silent_under_hold_waits_for_a_person() {
    let clock = Clock::driven();
    let here = work("hold", &clock, |settings| settings.on_lapse(OnLapse::Hold)).await;
    let running = tokio::spawn({
        let here = here.clone();
        async move { here.run("42", b"", async |_| Ok::<Bytes, String>(std::future::pending().await)).await }
    });
    settle().await;
    running.abort();
    drive(&clock, 11 * SECOND).await;
    assert_eq!(pay(&here, "42").await.unwrap_err().code(), Some(Code::IdempotencyHeld));
    assert_eq!(here.get("42").await.unwrap(), RecordedState::Held { attempt: 1 });
}

#[tokio::test]
async fn results_are_kept_their_time_and_report_their_age() {
    let clock = Clock::driven();
    let here = work("keep", &clock, |settings| settings.keep(60 * SECOND)).await;
    assert_eq!(here.get("42").await.unwrap(), RecordedState::Unknown);
    let done = here.run_json("42", b"", async |run| Ok::<_, String>((run.is_first(), run.fence().is_some()))).await;
    assert_eq!(done.unwrap().value, Some((true, true)));
    clock.advance(59 * SECOND);
    let again = here.run_json::<_, _, (bool, bool), _>("42", b"", async |_| Err("twice")).await.unwrap();
    assert_eq!((again.value, again.replayed, again.age), (Some((true, true)), true, 59 * SECOND));
    clock.advance(2 * SECOND);
    assert!(!here.run_json("42", b"", async |_| Ok::<_, String>((true, true))).await.unwrap().replayed);
}

#[tokio::test]
async fn a_result_too_large_to_be_kept_is_still_done() {
    let clock = Clock::driven();
    let here = work("large", &clock, |settings| settings).await;
    let large = || vec![7_u8; 2 << 20];
    let first = here.run("42", b"", async |_| Ok::<_, String>(large())).await.unwrap();
    assert_eq!(first.value.map(|value| value.len()), Some(2 << 20));
    let again = here.run("42", b"", async |_| Ok::<_, String>(large())).await.unwrap();
    assert_eq!((again.value, again.replayed), (None, true));
}

/// What JSON cannot say: a map whose keys are no text; a number that is written as null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Odd {
    Map(std::collections::BTreeMap<Vec<u8>, u8>),
    Number(f64),
}

#[tokio::test]
async fn an_unrecorded_result_fails_loudly_and_is_not_redone() {
    let clock = Clock::driven();
    let (here, there) =
        (work("odd", &clock, |settings| settings).await, work("odd", &clock, |settings| settings).await);
    for (key, odd) in [("map", Odd::Map([(vec![1], 2)].into())), ("nan", Odd::Number(f64::NAN))] {
        let runs = AtomicU32::new(0);
        for work in [&here, &here, &there] {
            let run = async |_| {
                runs.fetch_add(1, SeqCst);
                Ok::<_, String>(odd.clone())
            };
            let failure = work.run_json(key, b"", run).await.unwrap_err();
            assert_eq!(failure.code(), Some(Code::ResultUnrecorded), "{failure}");
            let text = failure.to_string();
            assert!(text.contains("the work pay is done") && text.contains("JSON"), "{text}");
        }
        assert_eq!(runs.load(SeqCst), 1, "{key}");
    }
    let fine = here.run_json("fine", b"", async |_| Ok::<_, String>(Odd::Number(0.5))).await.unwrap();
    assert_eq!(fine.value, Some(Odd::Number(0.5)));
}

/// As Python and Node keep it: see `tests/polyglot`.
#[tokio::test]
async fn a_final_error_is_kept_in_all_languages_form() {
    let clock = Clock::driven();
    let work = work("declined", &clock, |settings| settings).await;
    let remember = Remember::recorded(
        |error: &RecordedError| (error.name == "CardDeclined").then(|| error.clone()),
        |recorded| recorded,
    );
    let declined =
        RecordedError::new("CardDeclined", "no funds").args([serde_json::json!("no funds"), 7.into()]).code("51");
    for _ in 0..2 {
        let run = async |_| Err::<Bytes, _>(declined.clone());
        let Failure::Inner(error) = work.run_remembering("42", b"", &remember, run).await.unwrap_err() else {
            panic!()
        };
        assert_eq!(error, declined);
    }
    let RecordedState::Done { result: Some(kept), is_error: true, .. } = work.get("42").await.unwrap() else {
        panic!()
    };
    assert_eq!(kept, r#"{"name":"CardDeclined","message":"no funds","args":["no funds",7],"code":"51"}"#);
    let passing =
        work.run_remembering("43", b"", &remember, async |_| Err::<Bytes, _>(RecordedError::new("Busy", ""))).await;
    assert!(passing.is_err());
    assert_eq!(work.get("43").await.unwrap(), RecordedState::Unknown, "any other error frees the key");
}

#[tokio::test]
async fn two_handles_of_one_name_share_one_run() {
    let clock = Clock::driven();
    let client = client("handles", &clock).await;
    let runs = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            // Without patience: a caller that asked the server would learn that it is busy.
            let work = client.idempotent("pay", IdempotencySettings::new().wait(SECOND)).unwrap();
            let (runs, clock) = (Arc::clone(&runs), clock.clone());
            tokio::spawn(async move {
                let paying = async |_| {
                    runs.fetch_add(1, SeqCst);
                    clock.sleep(SECOND / 2).await;
                    Ok::<_, String>("paid")
                };
                work.run("42", b"", paying).await.map(|outcome| outcome.replayed)
            })
        })
        .collect();
    settle().await;
    assert_eq!(client.health().policies.len(), 1);
    drive(&clock, SECOND).await;
    let mut replayed = 0;
    for task in tasks {
        replayed += u32::from(task.await.unwrap().unwrap());
    }
    assert_eq!((runs.load(SeqCst), replayed), (1, 49));
}

#[tokio::test]
async fn an_event_is_new_only_once_and_to_one_consumer() {
    let clock = Clock::driven();
    let (here, there) =
        (work("once", &clock, |settings| settings).await, work("once", &clock, |settings| settings).await);
    assert!(here.once("event-1", 60 * SECOND, None).await.unwrap());
    assert!(!here.once("event-1", 60 * SECOND, None).await.unwrap());
    assert!(!there.once("event-1", 60 * SECOND, Some("consumer")).await.unwrap());
    assert!(there.once("event-2", 60 * SECOND, Some("consumer")).await.unwrap());
    assert!(there.once("event-2", 60 * SECOND, Some("consumer")).await.unwrap());
    clock.advance(61 * SECOND);
    assert!(here.once("event-1", 60 * SECOND, None).await.unwrap());
    // Events and work of one key do not get in each other's way.
    assert!(pay(&here, "event-1").await.is_ok());
}

#[tokio::test]
async fn what_cannot_be_right_is_refused_by_name() {
    let client = client("", &Clock::driven()).await;
    let refusal = |settings: IdempotencySettings| client.idempotent("a", settings).unwrap_err().to_string();
    assert!(refusal(IdempotencySettings::new().lease(Duration::ZERO)).starts_with("lease "));
    assert!(refusal(IdempotencySettings::new().keep(Duration::ZERO)).starts_with("keep "));
    assert!(refusal(IdempotencySettings::new().wait(601 * SECOND)).starts_with("wait "));
    assert!(refusal(IdempotencySettings::new().when_away(resil::Away::Local)).starts_with("whenAway "));
}
