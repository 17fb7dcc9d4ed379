//! What every source promises. Each sentence is a test for each of them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use resil::dead_letters::LetterState;
use resil::worker::headers::{HEADER_ID, TRACEPARENT};
use resil::worker::postgres::{ProcessedEvents, connect};
use resil::worker::{OutgoingMessage, WorkError, WorkerMessage, WorkerSettings};

use crate::pausing::{
    a_drain_ends_in_time_though_its_source_falls_silent, a_paused_worker_leaves_what_it_fetched_to_others,
    a_source_that_falls_silent_is_read_again,
};
use crate::places::{AtLedger, AtOutbox, AtRabbit, AtStream, Place, SILENT_FOR};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually, fresh_name, postgres};
use crate::stopping::{
    a_drain_ends_in_time_and_gives_the_rest_back, a_stop_returns_what_was_not_begun,
    closing_in_many_ways_at_once_is_one_end, what_ends_while_a_worker_drains_is_settled,
};

pub const BOUND: Duration = Duration::from_secs(40);

pub fn message(id: u32) -> OutgoingMessage {
    OutgoingMessage::new(format!("payload {id}")).id(format!("m{id}"))
}

/// A worker of `place`, which runs until it is stopped.
pub async fn worker<P, F, Fut>(place: &P, ledger: &LedgerServer, settings: WorkerSettings, handler: F) -> RunningWorker
where
    P: Place,
    F: Fn(Arc<WorkerMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
{
    let client = ledger.client().await;
    let worker = client.worker(place.name(), settings).unwrap();
    let source = place.source(&client);
    let running = worker.clone();
    RunningWorker::new(&worker, async move { running.run(source, handler).await })
}

/// Sees a message, and is done with it.
pub fn seeing(
    seen: &Seen,
) -> impl Fn(Arc<WorkerMessage>) -> std::future::Ready<Result<(), WorkError>> + Send + Sync + 'static {
    let seen = seen.clone();
    move |message| {
        seen.add(String::from_utf8_lossy(message.payload()));
        std::future::ready(Ok(()))
    }
}

async fn an_error_leads_to_a_retry_and_then_to_an_end<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (seen, tries) = (Seen::default(), Arc::new(AtomicU32::new(0)));
    let saw = seen.clone();
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        let (tries, seen) = (Arc::clone(&tries), saw.clone());
        async move {
            if tries.fetch_add(1, Ordering::Relaxed) < 2 {
                return Err(WorkError::retry("not yet"));
            }
            seen.add(format!("{} {}", message.id(), message.attempt()));
            Ok(())
        }
    })
    .await;
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    assert_eq!(seen.all(), [format!("{}/m1 2", place.name())]);
    let report = running.stop().await;
    assert_eq!((report.retried, report.done), (2, 1), "{report:?}");
    assert_eq!(place.left().await, 0);
}

async fn verdicts_decide_what_becomes_of_a_message<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let saw = seen.clone();
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        saw.add(message.id());
        let is_first = message.id().ends_with("m1");
        async move { Err(if is_first { WorkError::permanent("no such order") } else { WorkError::drop_message("old") }) }
    })
    .await;
    place.send(message(1)).await;
    place.send(message(2)).await;
    seen.reaches(2, BOUND).await;
    let ledger_of = running.worker.ledger().clone();
    let report = running.stop().await;
    assert_eq!((report.dead, report.dropped), (1, 1), "{report:?}");
    let dead = ledger_of.get(&format!("{}/m1", place.name())).await.unwrap().unwrap();
    assert_eq!((dead.state, dead.last_error.as_deref()), (LetterState::Dead, Some("no such order")));
    assert_eq!(dead.payload.as_deref(), Some(&b"payload 1"[..]));
    let gone = ledger_of.standing(&format!("{}/m2", place.name())).await.unwrap();
    assert!(matches!(gone, None | Some(LetterState::Done)), "{gone:?}");
    assert_eq!(place.left().await, usize::from(P::is_ledger()));
}

async fn nothing_is_acknowledged_before_the_ledger_has_it<P: Place>() {
    if P::is_ledger() {
        return;
    }
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let saw = seen.clone();
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        saw.add(message.id());
        async { Err(WorkError::permanent("no")) }
    })
    .await;
    eventually("the source is connected", BOUND, || async {
        running.worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    ledger.relay.close();
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    eventually("the worker says that it cannot tell the ledger", BOUND, || async {
        running.worker.health().ledger.is_some()
    })
    .await;
    let health = running.worker.health();
    assert!(health.is_live && health.is_ready && health.is_paused, "{health:?}");
    place.send(message(2)).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(seen.count(), 1, "nothing is taken while the ledger is away");
    let direct = ledger.direct().await;
    let letters = direct.dead_letters(place.name(), Default::default()).unwrap();
    assert_eq!(letters.standing(&format!("{}/m1", place.name())).await.unwrap(), None);
    ledger.relay.open();
    for id in ["m1", "m2"] {
        let id = format!("{}/{id}", place.name());
        eventually("the ledger has it", BOUND, || async {
            letters.standing(&id).await.unwrap() == Some(LetterState::Dead)
        })
        .await;
    }
    running.stop().await;
    assert_eq!((seen.count(), place.left().await), (2, 0), "each was handled once");
}

async fn messages_of_one_worker_keep_their_order<P: Place>() {
    // A ledger gives out by the instant at which a message is due.
    if P::is_ledger() {
        return;
    }
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let running = worker(&place, &ledger, WorkerSettings::new().workers(1), seeing(&seen)).await;
    for id in 1..=20 {
        place.send(message(id)).await;
    }
    seen.reaches(20, BOUND).await;
    let expected: Vec<String> = (1..=20).map(|id| format!("payload {id}")).collect();
    assert_eq!(seen.all(), expected);
    running.stop().await;
}

async fn an_aggregate_keeps_its_order_behind_a_failure<P: Place>() {
    if P::is_ledger() {
        return;
    }
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (seen, tries) = (Seen::default(), Arc::new(AtomicU32::new(0)));
    let saw = seen.clone();
    let running = worker(&place, &ledger, WorkerSettings::new().ordered(true), move |message| {
        let (tries, seen) = (Arc::clone(&tries), saw.clone());
        async move {
            if message.id().ends_with("m1") && tries.fetch_add(1, Ordering::Relaxed) < 2 {
                return Err(WorkError::retry("not yet"));
            }
            seen.add(format!(
                "{} {}",
                message.aggregate().unwrap_or_default(),
                String::from_utf8_lossy(message.payload())
            ));
            Ok(())
        }
    })
    .await;
    for id in 1..=6 {
        place.send(message(id).aggregate(if id == 4 { "b" } else { "a" })).await;
    }
    seen.reaches(6, BOUND).await;
    let of_a: Vec<String> = seen.all().into_iter().filter(|text| text.starts_with('a')).collect();
    assert_eq!(of_a, [1, 2, 3, 5, 6].map(|id| format!("a payload {id}")));
    running.stop().await;
}

async fn a_panic_fails_its_message_alone<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (seen, saw) = (Seen::default(), Seen::default());
    let (good, bad) = (seen.clone(), saw.clone());
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        let (good, bad) = (good.clone(), bad.clone());
        async move {
            if message.id().ends_with("m2") && message.attempt() == 0 {
                bad.add("m2");
                panic!("boom");
            }
            good.add(message.id());
            Ok(())
        }
    })
    .await;
    for id in 1..=3 {
        place.send(message(id)).await;
    }
    seen.reaches(3, BOUND).await;
    assert_eq!(saw.count(), 1);
    let report = running.stop().await;
    assert_eq!((report.done, report.retried), (3, 1), "{report:?}");
}

async fn a_slow_handler_has_its_message_alone<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let slow = |seen: &Seen| {
        let seen = seen.clone();
        move |_: Arc<WorkerMessage>| {
            seen.add("began");
            async {
                tokio::time::sleep(SILENT_FOR * 2).await;
                Ok(())
            }
        }
    };
    let first = worker(&place, &ledger, WorkerSettings::new(), slow(&seen)).await;
    let second = worker(&place, &ledger, WorkerSettings::new(), slow(&seen)).await;
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    let (one, two) = (first.worker.clone(), second.worker.clone());
    eventually("it is done", BOUND, || async { one.health().report.done + two.health().report.done == 1 }).await;
    let (first, second) = tokio::join!(first.stop(), second.stop());
    assert_eq!((seen.count(), first.done + second.done), (1, 1));
}

async fn what_a_crashed_worker_had_is_delivered_again_uncounted<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (began, seen) = (Seen::default(), Seen::default());
    let begun = began.clone();
    let crashing = worker(&place, &ledger, WorkerSettings::new().workers(1), move |message| {
        begun.add(message.id());
        std::future::pending()
    })
    .await;
    for id in 1..=5 {
        place.send(message(id)).await;
    }
    began.reaches(1, BOUND).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    crashing.crash().await;
    let saw = seen.clone();
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        saw.add(format!("{} {}", String::from_utf8_lossy(message.payload()), message.attempt()));
        async { Ok(()) }
    })
    .await;
    seen.reaches(5, BOUND).await;
    let mut all = seen.all();
    all.sort();
    assert_eq!(all, (1..=5).map(|id| format!("payload {id} 0")).collect::<Vec<_>>());
    let report = running.stop().await;
    assert_eq!((report.done, report.retried, report.dead), (5, 0, 0), "{report:?}");
    assert_eq!(place.left().await, 0);
}

async fn what_others_overtake_is_not_acknowledged_with_them<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (began, seen) = (Seen::default(), Seen::default());
    let (begun, saw) = (began.clone(), seen.clone());
    let crashing = worker(&place, &ledger, WorkerSettings::new().workers(2), move |message| {
        let is_first = message.id().ends_with("/m1");
        if is_first {
            begun.add(message.id())
        } else {
            saw.add(message.id())
        };
        async move { if is_first { std::future::pending().await } else { Ok(()) } }
    })
    .await;
    place.send(message(1)).await;
    began.reaches(1, BOUND).await;
    for id in 2..=30 {
        place.send(message(id)).await;
    }
    seen.reaches(29, BOUND).await;
    let worker_of = crashing.worker.clone();
    eventually("they are acknowledged", BOUND, || async { worker_of.health().report.done == 29 }).await;
    crashing.crash().await;
    let again = Seen::default();
    let running = worker(&place, &ledger, WorkerSettings::new(), seeing(&again)).await;
    again.reaches(1, BOUND).await;
    assert_eq!(again.all(), ["payload 1"], "it alone comes again");
    running.stop().await;
    assert_eq!(place.left().await, 0);
}

async fn a_connection_that_is_cut_is_made_again<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let running = worker(&place, &ledger, WorkerSettings::new(), seeing(&seen)).await;
    for round in 1..=3 {
        place.send(message(round)).await;
        eventually("it was seen", BOUND, || async { seen.all().contains(&format!("payload {round}")) }).await;
        place.cut(&ledger);
    }
    place.send(message(9)).await;
    eventually("it was seen", BOUND, || async { seen.all().contains(&"payload 9".to_owned()) }).await;
    running.stop().await;
}

async fn a_message_that_is_sent_twice_has_one_effect<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let url = tokio::task::spawn_blocking(|| postgres().url()).await.unwrap();
    let table = fresh_name("effects");
    let client = connect(&url).await.unwrap();
    client.batch_execute(ProcessedEvents::MIGRATION).await.unwrap();
    client.batch_execute(&format!("CREATE TABLE {table} (payload text)")).await.unwrap();
    let seen = Seen::default();
    let (saw, effects) = (seen.clone(), table.clone());
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        let (url, table, seen) = (url.clone(), effects.clone(), saw.clone());
        async move {
            let mut postgres = connect(&url).await?;
            let effect = postgres.transaction().await?;
            if ProcessedEvents::new(&table).is_first(&effect, message.id()).await? {
                let payload = String::from_utf8_lossy(message.payload()).into_owned();
                effect.execute(&format!("INSERT INTO {table} VALUES ($1)"), &[&payload]).await?;
            }
            effect.commit().await?;
            seen.add(message.id());
            Ok(())
        }
    })
    .await;
    place.send(message(1)).await;
    place.send(message(1)).await;
    place.send(message(2)).await;
    eventually("both are seen", BOUND, || async {
        seen.all().iter().any(|id| id.ends_with("m1")) && seen.all().iter().any(|id| id.ends_with("m2"))
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    running.stop().await;
    let rows = client.query(&format!("SELECT payload FROM {table} ORDER BY payload"), &[]).await.unwrap();
    let effects: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(effects, ["payload 1", "payload 2"]);
}

async fn a_trace_and_a_header_id_cross_the_source<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let saw = seen.clone();
    let running = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        let seen = saw.clone();
        async move {
            if message.attempt() == 0 {
                // It goes through the ledger, too.
                return Err(WorkError::retry("again"));
            }
            let next = OutgoingMessage::new("next").caused_by(&message);
            let header = |name| next.headers.get(name).unwrap_or_default().to_owned();
            seen.add(format!("{} {}", message.header_id(), message.trace_id().unwrap_or_default()));
            seen.add(format!("{} {}", header(HEADER_ID), &header(TRACEPARENT)[3..35]));
            seen.add(format!("{} {}", message.kind().unwrap_or_default(), message.schema().unwrap_or_default()));
            Ok(())
        }
    })
    .await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let sent = message(1).kind("order.placed").schema(3).header(HEADER_ID, "request-7");
    place.send(sent.header(TRACEPARENT, format!("00-{trace}-b7ad6b7169203331-01"))).await;
    seen.reaches(3, BOUND).await;
    assert_eq!(seen.all(), [format!("request-7 {trace}"), format!("request-7 {trace}"), "order.placed 3".to_owned()]);
    running.stop().await;
}

macro_rules! conformance {
    ($($sentence:ident),* $(,)?) => {
        conformance! { @ ledger AtLedger $($sentence)* }
        conformance! { @ stream AtStream $($sentence)* }
        conformance! { @ rabbitmq AtRabbit $($sentence)* }
        conformance! { @ outbox AtOutbox $($sentence)* }
    };
    (@ $source:ident $place:ident $($sentence:ident)*) => {
        mod $source {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $sentence() {
                super::$sentence::<super::$place>().await;
            })*
        }
    };
}

conformance! {
    an_error_leads_to_a_retry_and_then_to_an_end,
    verdicts_decide_what_becomes_of_a_message,
    nothing_is_acknowledged_before_the_ledger_has_it,
    messages_of_one_worker_keep_their_order,
    an_aggregate_keeps_its_order_behind_a_failure,
    a_panic_fails_its_message_alone,
    a_slow_handler_has_its_message_alone,
    what_a_crashed_worker_had_is_delivered_again_uncounted,
    what_others_overtake_is_not_acknowledged_with_them,
    a_stop_returns_what_was_not_begun,
    a_drain_ends_in_time_and_gives_the_rest_back,
    what_ends_while_a_worker_drains_is_settled,
    closing_in_many_ways_at_once_is_one_end,
    a_connection_that_is_cut_is_made_again,
    a_source_that_falls_silent_is_read_again,
    a_drain_ends_in_time_though_its_source_falls_silent,
    a_paused_worker_leaves_what_it_fetched_to_others,
    a_message_that_is_sent_twice_has_one_effect,
    a_trace_and_a_header_id_cross_the_source,
}
