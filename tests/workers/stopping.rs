//! What every source promises of an end. Part of the conformance suite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use resil::worker::WorkerSettings;
use tokio::sync::Semaphore;

use crate::conformance::{BOUND, message, seeing, worker};
use crate::places::Place;
use crate::scene::{LedgerServer, Seen, eventually};

pub async fn a_stop_returns_what_was_not_begun<P: Place>() {
    let ledger = LedgerServer::start();
    let mut place = P::new(&ledger).await;
    place.keep_for(BOUND);
    let (began, seen) = (Seen::default(), Seen::default());
    let begun = began.clone();
    let stopping = worker(&place, &ledger, WorkerSettings::new().workers(1), move |message| {
        begun.add(String::from_utf8_lossy(message.payload()));
        async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            Ok(())
        }
    })
    .await;
    for id in 1..=8 {
        place.send(message(id)).await;
    }
    began.reaches(1, BOUND).await;
    let report = stopping.stop().await;
    assert_eq!((report.done as usize, report.retried + report.dead), (began.count(), 0), "{report:?}");
    let begun_since = Instant::now();
    let running = worker(&place, &ledger, WorkerSettings::new(), seeing(&seen)).await;
    seen.reaches(8 - began.count(), BOUND).await;
    assert!(begun_since.elapsed() < BOUND / 4, "they were given back, and not left to their leases");
    running.stop().await;
    let mut all = [began.all(), seen.all()].concat();
    all.sort();
    assert_eq!(all, (1..=8).map(|id| format!("payload {id}")).collect::<Vec<_>>(), "each once");
}

pub async fn a_drain_ends_in_time_and_gives_the_rest_back<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (began, seen) = (Seen::default(), Seen::default());
    let begun = began.clone();
    let settings = WorkerSettings::new().drain(Duration::from_millis(200));
    let stopping = worker(&place, &ledger, settings, move |message| {
        begun.add(message.id());
        std::future::pending()
    })
    .await;
    place.send(message(1)).await;
    began.reaches(1, BOUND).await;
    let since = Instant::now();
    let report = stopping.stop().await;
    assert_eq!(report.given_back, 1, "{report:?}");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let running = worker(&place, &ledger, WorkerSettings::new(), seeing(&seen)).await;
    seen.reaches(1, BOUND).await;
    assert_eq!(running.stop().await.done, 1);
}

pub async fn what_ends_while_a_worker_drains_is_settled<P: Place>() {
    const MESSAGES: usize = 10;
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (began, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let (begun, waiting) = (began.clone(), Arc::clone(&gate));
    let draining = worker(&place, &ledger, WorkerSettings::new().workers(MESSAGES as u32), move |message| {
        begun.add(message.id());
        let gate = Arc::clone(&waiting);
        async move {
            drop(gate.acquire().await);
            Ok(())
        }
    })
    .await;
    for id in 1..=MESSAGES {
        place.send(message(id as u32)).await;
    }
    began.reaches(MESSAGES, BOUND).await;
    draining.worker.stopper().cancel();
    eventually("it drains", BOUND, || async { !draining.worker.health().is_ready }).await;
    gate.close();
    let report = draining.stop().await;
    assert_eq!((report.done as usize, report.unsettled, place.left().await), (MESSAGES, 0, 0), "{report:?}");
}

pub async fn closing_in_many_ways_at_once_is_one_end<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let client = ledger.client().await;
    let worker = client.worker(place.name(), WorkerSettings::new()).unwrap();
    let (source, running, handler) = (place.source(&client), worker.clone(), seeing(&seen));
    let task = tokio::spawn(async move { running.run(source, handler).await });
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    worker.stopper().cancel();
    let closing = client.clone();
    let (ended, one, two) = tokio::join!(
        tokio::time::timeout(BOUND, task),
        client.shutdown(Duration::from_secs(5)),
        closing.shutdown(Duration::from_secs(6)),
    );
    assert_eq!(ended.unwrap().unwrap().unwrap().done, 1);
    assert_eq!(one, two);
    assert_eq!(one.cut_off, 0, "{one:?}");
}
