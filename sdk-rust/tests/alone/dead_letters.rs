//! Dead letters as workers and operators use them, on `memory://` with a driven clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use resil::clock::Clock;
use resil::dead_letters::{
    CauseCategory, ClassChange, DeadLetters, DeadLettersSettings, DeathReason, Diagnosis, FailVerdict, FailureClass,
    FailureNote, LedgerChange, Letter, LetterFilter, LetterState, ParkVerdict, RedrivePhase, RedriveSettings,
    Settlement, TakenMessage,
};
use resil::{CancellationToken, Client, Code, ConnectSettings, Error};

use crate::drive::tasks::{drive_tasks as drive, settle};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn client(clock: &Clock) -> Client {
    ConnectSettings::new("memory://").clock(clock.clone()).connect().await.unwrap()
}

/// A ledger without jitter, so that every delay is known.
async fn ledger(clock: &Clock) -> (Client, DeadLetters) {
    let client = client(clock).await;
    let settings = DeadLettersSettings::new().actor("ada").lease(10 * SECOND).concurrency(2);
    let letters = client.dead_letters("orders", settings).unwrap();
    letters.configure(&LedgerChange::new().jitter("none")).await.unwrap();
    (client, letters)
}

fn order(number: u32) -> Letter {
    Letter::of("shop", &number.to_string()).payload(format!("order {number}")).kind("order.placed")
}

/// One dead message of a group.
async fn dead(letters: &DeadLetters, number: u32) -> String {
    match letters.fail(&order(number), FailureNote::new("no such article").dead_at_once()).await.unwrap() {
        FailVerdict::Dead { group, reason: DeathReason::Final, deaths: 1 } => group,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_message_is_retried_until_its_class_allows_none() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    let change = LedgerChange::new().transient(ClassChange::default().retries(2).base(SECOND));
    letters.configure(&change).await.unwrap();
    let first = letters.fail(&order(1), "timeout").await.unwrap();
    assert_eq!(first, FailVerdict::Retry { attempt: 1, delay: SECOND });
    clock.advance(SECOND);
    let letter = letters.take(5, Duration::ZERO).await.unwrap().letters.remove(0);
    assert_eq!((letter.id().as_ref(), letter.payload(), letter.attempt()), ("shop/1", Some(&b"order 1"[..]), 1));
    assert_eq!((letter.source().as_deref(), letter.error().as_deref()), (Some("shop"), Some("timeout")));
    let second = letter.fail("timeout").await.unwrap();
    assert_eq!(second, FailVerdict::Retry { attempt: 2, delay: 2 * SECOND });
    clock.advance(2 * SECOND);
    let letter = letters.take(5, Duration::ZERO).await.unwrap().letters.remove(0);
    let third = letter.fail("timeout").await.unwrap();
    assert!(matches!(third, FailVerdict::Dead { deaths: 1, reason: DeathReason::Retries, .. }), "{third:?}");
    assert_eq!(letters.standing("shop/1").await.unwrap(), Some(LetterState::Dead));
}

#[tokio::test]
async fn a_redelivered_message_is_known_unless_its_bytes_differ() {
    let (_client, letters) = ledger(&Clock::driven()).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    let again = letters.fail(&order(1), "timeout").await.unwrap();
    assert_eq!(again, FailVerdict::Known { state: LetterState::Waiting, attempt: 1 });
    let other = letters.fail(&order(1).payload("something else"), "timeout").await.unwrap_err();
    assert_eq!((other.code(), other.resource()), (Code::LedgerConflict, Some("orders")));
}

#[tokio::test]
async fn a_message_too_large_is_refused_by_its_own_error() {
    let (_client, letters) = ledger(&Clock::driven()).await;
    let large = letters.fail(&Letter::new("1").payload(vec![0; (16 << 20) + 1]), "no").await.unwrap_err();
    assert_eq!(large.code(), Code::PayloadTooBig);
    assert_eq!(letters.standing("1").await.unwrap(), None);
}

#[tokio::test]
async fn a_batch_is_kept_while_any_of_it_is_here() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    letters.fail(&order(2), "timeout").await.unwrap();
    clock.advance(SECOND);
    let mut batch = letters.take(5, Duration::ZERO).await.unwrap().letters;
    assert_eq!(batch.len(), 2);
    batch.remove(0).done().await.unwrap();
    let slow = batch.remove(0);
    drive(&clock, 60 * SECOND).await;
    assert!(!slow.lost().is_cancelled());
    assert_eq!(letters.standing("shop/2").await.unwrap(), Some(LetterState::Taken));
    slow.done().await.unwrap();
    assert_eq!(letters.standing("shop/2").await.unwrap(), Some(LetterState::Done));
}

#[tokio::test]
async fn a_dropped_letter_is_given_back_uncounted() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    clock.advance(SECOND);
    drop(letters.take(1, Duration::ZERO).await.unwrap());
    settle().await;
    let again = letters.take(1, Duration::ZERO).await.unwrap().letters.remove(0);
    assert_eq!((again.attempt(), again.lapses()), (1, 0));
    again.give_back(5 * SECOND).await.unwrap();
    let nothing = letters.take(1, Duration::ZERO).await.unwrap();
    assert_eq!((nothing.letters.len(), nothing.next_due), (0, Some(5 * SECOND)));
}

#[tokio::test]
async fn a_settlement_that_is_dropped_is_said_all_the_same() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    clock.advance(SECOND);
    let letter = letters.take(1, Duration::ZERO).await.unwrap().letters.remove(0);
    // In memory the first poll says it; a future that was never polled is dropped with its letter, which goes back.
    drop(letter.done());
    settle().await;
    assert_eq!(letters.standing("shop/1").await.unwrap(), Some(LetterState::Waiting));
}

#[tokio::test]
async fn a_take_that_is_dropped_leaves_the_queue() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    let waiting = tokio::spawn({
        let letters = letters.clone();
        async move { letters.take(1, 60 * SECOND).await }
    });
    settle().await;
    waiting.abort();
    settle().await;
    drive(&clock, SECOND).await;
    assert_eq!(letters.standing("shop/1").await.unwrap(), Some(LetterState::Waiting));
}

#[tokio::test]
async fn a_loop_settles_each_message_by_its_handlers_outcome() {
    let clock = Clock::driven();
    let (client, letters) = ledger(&clock).await;
    for number in 1..=5 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let running = tokio::spawn({
        let (letters, seen) = (letters.clone(), Arc::clone(&seen));
        async move {
            let handler = |message: Arc<TakenMessage>| {
                seen.lock().push(message.id().into_owned());
                async move {
                    match message.id().as_ref() {
                        "shop/2" => Err(Error::RateLimitExceeded { name: "api".into(), retry_after: Some(9 * SECOND) }),
                        "shop/3" => panic!("out of paper"),
                        "shop/4" => Err(Error::Cancelled),
                        "shop/5" => Err(Error::Crashed("no".to_owned())),
                        _ => Ok(()),
                    }
                }
            };
            let judge = |error: &Error| match error {
                Error::Crashed(_) => FailureNote::new("it makes no sense").dead_at_once().into(),
                // Given back for a while, so that it is seen once.
                Error::Cancelled => Settlement::GiveBack(60 * SECOND),
                other => Settlement::of(other),
            };
            letters.run_until(&CancellationToken::new(), judge, handler).await
        }
    });
    drive(&clock, SECOND).await;
    let report = client.shutdown(SECOND).await;
    assert!(report.is_clean(), "{report:?}");
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.done, report.failed, report.given_back, report.unsettled), (1, 3, 1, 0));
    assert_eq!(seen.lock().len(), 5);
}

#[tokio::test]
async fn the_usual_settlements_count_only_the_messages_own_fault() {
    let limited = Settlement::of(&Error::RateLimitExceeded { name: "api".into(), retry_after: Some(SECOND) });
    assert_eq!(limited, FailureNote::new("the rate limit api is exceeded").not_counted().after(SECOND).into());
    let away = Settlement::of(&resil::Failure::<std::io::Error>::Resil(Error::BackendUnavailable("it is")));
    assert!(matches!(away, Settlement::Fail(note) if note.count == resil::dead_letters::FailureCount::NotCounted));
    assert_eq!(Settlement::of(&Error::ShuttingDown), Settlement::GiveBack(SECOND));
    let own = std::io::Error::other("no such article");
    assert_eq!(Settlement::of(&own), FailureNote::new("no such article").into());
}

#[tokio::test]
async fn a_shutdown_waits_for_handlers_and_returns_the_rest() {
    let clock = Clock::driven();
    let (client, letters) = ledger(&clock).await;
    letters.fail(&order(1), "timeout").await.unwrap();
    letters.fail(&order(2), "timeout").await.unwrap();
    let store = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    let running = tokio::spawn({
        let (letters, clock) = (letters.clone(), clock.clone());
        async move {
            let handler = |message: Arc<TakenMessage>| {
                let clock = clock.clone();
                async move {
                    clock.sleep(if message.id() == "shop/1" { 2 * SECOND } else { 3_600 * SECOND }).await;
                    Ok::<_, std::io::Error>(())
                }
            };
            letters.run(handler).await
        }
    });
    drive(&clock, SECOND).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(5 * SECOND).await }
    });
    drive(&clock, 20 * SECOND).await;
    let report = closing.await.unwrap();
    assert_eq!((report.cut_off, report.stragglers), (1, 0), "{report:?}");
    assert_eq!(running.await.unwrap().unwrap_err(), Error::ShuttingDown);
    drop(store);
}

#[tokio::test]
async fn a_stream_gives_messages_until_a_shutdown() {
    let clock = Clock::driven();
    let (client, letters) = ledger(&clock).await;
    for number in 1..=3 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    let reading = tokio::spawn({
        let letters = letters.clone();
        async move {
            let (mut entries, mut count) = (std::pin::pin!(letters.entries()), 0);
            while let Some(letter) = entries.next().await {
                letter.unwrap().done().await.unwrap();
                count += 1;
            }
            count
        }
    });
    drive(&clock, 10 * SECOND).await;
    client.shutdown(SECOND).await;
    assert_eq!(reading.await.unwrap(), 3);
}

#[tokio::test]
async fn the_dead_come_back_under_a_case_at_a_rate() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    let mut group = String::new();
    for number in 1..=3 {
        group = dead(&letters, number).await;
    }
    let nobody = letters.redrive(1, &RedriveSettings::new()).await.unwrap_err();
    assert_eq!(nobody, Error::RedriveRefused { name: "orders".into(), case: 1, reason: "case" });
    let diagnosis = Diagnosis::new([group.clone()], CauseCategory::Contract, "a renamed field", "both names are read");
    let case = letters.diagnose(&diagnosis).await.unwrap();
    clock.advance(SECOND);
    let dry = letters.dry_run(case, &RedriveSettings::new()).await.unwrap();
    assert_eq!((dry.matched, dry.complete, dry.sample.len()), (3, true, 3));
    let redrive = letters.redrive(case, &RedriveSettings::new()).await.unwrap();
    assert_eq!(redrive.progress().await.unwrap().phase, RedrivePhase::Running);
    let handled = Arc::new(AtomicU32::new(0));
    let stop = CancellationToken::new();
    let worker = tokio::spawn({
        let (letters, handled, stop) = (letters.clone(), Arc::clone(&handled), stop.clone());
        async move {
            let judge = |error: &std::io::Error| Settlement::of(error);
            let handler = |_| {
                handled.fetch_add(1, SeqCst);
                async { Ok(()) }
            };
            letters.run_until(&stop, judge, handler).await
        }
    });
    let finished = tokio::spawn({
        let redrive = redrive.clone();
        async move { redrive.finished().await }
    });
    drive(&clock, Duration::from_millis(700)).await;
    assert!(handled.load(SeqCst) <= 2, "100 per minute is one each 600 ms");
    drive(&clock, 10 * SECOND).await;
    let progress = finished.await.unwrap().unwrap();
    assert_eq!((progress.phase, progress.given, progress.resolved), (RedrivePhase::Finished, 3, 3));
    stop.cancel();
    assert_eq!(worker.await.unwrap().unwrap().done, 3);
    let again = letters.redrive(case, &RedriveSettings::new()).await.unwrap_err();
    assert!(matches!(again, Error::RedriveRefused { reason: "nothing" | "again", .. }), "{again:?}");
    assert_eq!(letters.close(case).await.unwrap(), 0);
    let view = letters.case(case).await.unwrap().unwrap();
    assert_eq!((view.actor.as_deref(), view.closed_at.is_some()), (Some("ada"), true));
    assert_eq!(letters.standing("shop/1").await.unwrap(), Some(LetterState::Resolved));
    let audit = letters.audit().await.unwrap();
    assert!(audit.iter().any(|row| row.action.starts_with("redrive case 1")), "{audit:?}");
}

#[tokio::test]
async fn governing_needs_somebody_who_governs() {
    let client = client(&Clock::driven()).await;
    let letters = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    let group = dead(&letters, 1).await;
    let diagnosis = Diagnosis::new([group], CauseCategory::Poison, "no such article", "none");
    let nobody = letters.diagnose(&diagnosis).await.unwrap_err();
    assert!(nobody.to_string().contains("ACTOR is required"), "{nobody}");
    let case = letters.by("grace").diagnose(&diagnosis).await.unwrap();
    assert_eq!(letters.by("grace").discard(case).await.unwrap(), 0);
    assert_eq!(letters.standing("shop/1").await.unwrap(), Some(LetterState::Archived));
}

#[tokio::test]
async fn everything_of_a_ledger_can_be_looked_at() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    let headers = order(1).headers("trace: 7").aggregate("customer-9").schema(3);
    let note = FailureNote::new("card 4711 declined").failure_class(FailureClass::Business).after(60 * SECOND);
    letters.fail(&headers, note).await.unwrap();
    let group = dead(&letters, 2).await;
    let view = letters.get("shop/1").await.unwrap().unwrap();
    assert_eq!((view.payload.as_deref(), view.headers.as_deref()), (Some(&b"order 1"[..]), Some(&b"trace: 7"[..])));
    assert_eq!(
        (view.schema, view.aggregate.as_deref(), view.failure_class),
        (Some(3), Some("customer-9"), FailureClass::Business)
    );
    assert_eq!(view.attempts[0].delay, 60 * SECOND);
    assert_eq!(letters.get("shop/9").await.unwrap(), None);
    let page = letters.list(&LetterFilter::new().state(LetterState::Dead)).await.unwrap();
    assert_eq!((page.letters.len(), page.cursor, page.letters[0].payload.as_ref()), (1, None, None));
    let all: Vec<_> = letters.list_all(LetterFilter::new().limit(1)).collect().await;
    assert_eq!(all.into_iter().map(|row| row.unwrap().id).collect::<Vec<_>>(), ["shop/1", "shop/2"]);
    let info = letters.info().await.unwrap();
    assert_eq!((info.waiting, info.dead, info.entries, info.groups), (1, 1, 2, 2));
    let groups = letters.groups().await.unwrap();
    assert!(groups.iter().any(|row| row.group == group && row.dead == 1), "{groups:?}");
    let config = letters.config().await.unwrap();
    assert_eq!((config.jitter.as_str(), config.business.retries, config.after_max), ("none", 3, 3_600 * SECOND));
    assert!(letters.alerts().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_pause_a_hold_and_a_purge_do_theirs() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    dead(&letters, 1).await;
    letters.fail(&order(2), "timeout").await.unwrap();
    letters.configure(&LedgerChange::new().paused_for(30 * SECOND)).await.unwrap();
    clock.advance(SECOND);
    assert!(letters.take(1, Duration::ZERO).await.unwrap().letters.is_empty());
    assert_eq!(letters.hold("shop/1", "the auditors want it").await.unwrap(), 1);
    assert_eq!(letters.hold("shop/9", "").await.unwrap(), 0);
    for _ in 0..(92 * 2) {
        clock.advance(DAY / 2);
        letters.info().await.unwrap();
    }
    assert_eq!(letters.purge(90 * DAY, None, None).await.unwrap().purged, 0);
    assert_eq!(letters.release("shop/1", "done").await.unwrap(), 1);
    assert_eq!(letters.purge(90 * DAY, Some(LetterState::Dead), None).await.unwrap().purged, 1);
    let young = letters.purge(DAY, None, None).await.unwrap_err();
    assert_eq!(young.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_message_waits_behind_an_earlier_one_of_its_aggregate() {
    let clock = Clock::driven();
    let (_client, letters) = ledger(&clock).await;
    let second = order(2).aggregate("customer-9");
    assert_eq!(letters.park(&second).await.unwrap(), ParkVerdict::Free);
    letters.fail(&order(1).aggregate("customer-9"), "timeout").await.unwrap();
    assert_eq!(letters.park(&second).await.unwrap(), ParkVerdict::Parked { position: 1 });
    clock.advance(SECOND);
    let first = letters.take(5, Duration::ZERO).await.unwrap().letters;
    assert_eq!(first.iter().map(|letter| letter.id().into_owned()).collect::<Vec<_>>(), ["shop/1"]);
    for letter in first {
        letter.done().await.unwrap();
    }
    let next = letters.take(5, Duration::ZERO).await.unwrap().letters.remove(0);
    assert_eq!((next.id().as_ref(), next.attempt(), next.error()), ("shop/2", 0, None));
    next.done().await.unwrap();
}

#[tokio::test]
async fn settings_out_of_bounds_are_named() {
    let client = client(&Clock::driven()).await;
    let named = |settings: DeadLettersSettings| client.dead_letters("orders", settings).unwrap_err().to_string();
    assert!(named(DeadLettersSettings::new().lease(Duration::ZERO)).starts_with("lease must be from 10ms"));
    assert!(named(DeadLettersSettings::new().grace(Duration::ZERO)).starts_with("grace must be from 100ms"));
    assert!(named(DeadLettersSettings::new().concurrency(0)).starts_with("concurrency must be from 1"));
    assert!(named(DeadLettersSettings::new().wait(Duration::ZERO)).starts_with("wait must be from 100ms"));
    assert!(named(DeadLettersSettings::new().replicas(1)).starts_with("replicas must be 0 in memory"));
    let letters = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    assert_eq!(letters.fail(&Letter::new(""), "no").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(letters.fail(&Letter::new("x".repeat(513)), "no").await.unwrap_err().code(), Code::InvalidArgument);
    let jitter = letters.by("ada").configure(&LedgerChange::new().jitter("some")).await.unwrap_err();
    assert!(jitter.to_string().starts_with("jitter must be"), "{jitter}");
}
