//! What every source promises of a worker that is paused, and of one that hears nothing. Part of the conformance suite. And what a pause promises while
//! the source is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use resil::worker::{WorkError, WorkerSettings};
use resil_harness::Relay;
use tokio::sync::Semaphore;

use crate::conformance::{BOUND, message, seeing, worker};
use crate::places::{AtOutbox, AtStream, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

/// Long enough that others do not have to be quick.
const PAUSE: Duration = Duration::from_secs(10);

pub async fn a_paused_worker_leaves_what_it_fetched_to_others<P: Place>() {
    let ledger = LedgerServer::start();
    let mut place = P::new(&ledger).await;
    // No message is another's because its worker is silent.
    place.keep_for(BOUND * 2);
    let (began, seen, is_well) = (Seen::default(), Seen::default(), Arc::new(AtomicBool::new(false)));
    let (begun, well) = (began.clone(), Arc::clone(&is_well));
    let pausing = worker(&place, &ledger, WorkerSettings::new().workers(1).retries(false), move |message| {
        begun.add(String::from_utf8_lossy(message.payload()));
        let is_well = well.load(Ordering::SeqCst);
        async move { if is_well { Ok(()) } else { Err(WorkError::not_counted(Some(PAUSE), "the circuit is open")) } }
    })
    .await;
    for id in 1..=8 {
        place.send(message(id)).await;
    }
    began.reaches(1, BOUND).await;
    let paused_since = Instant::now();
    let other = worker(&place, &ledger, WorkerSettings::new().retries(false), seeing(&seen)).await;
    seen.reaches(7, PAUSE - Duration::from_secs(2)).await;
    assert!(paused_since.elapsed() < PAUSE && began.count() == 1, "while the first is paused");
    is_well.store(true, Ordering::SeqCst);
    other.stop().await;
    // After its pause it takes again.
    for id in 11..=13 {
        place.send(message(id)).await;
    }
    let has = |id: u32| began.all().contains(&format!("payload {id}"));
    eventually("it takes again", BOUND, || async { (11..=13).all(has) }).await;
    let report = pausing.stop().await;
    assert!(report.done >= 3 && report.unsettled == 0, "{report:?}");
    let mut all = [began.all(), seen.all()].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 11, "{all:?}");
}

pub async fn a_source_that_falls_silent_is_read_again<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let seen = Seen::default();
    let running = worker(&place, &ledger, WorkerSettings::new(), seeing(&seen)).await;
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    // Nobody says that anything ended.
    place.silence(&ledger);
    place.send(message(2)).await;
    eventually("it was seen", BOUND, || async { seen.all().contains(&"payload 2".to_owned()) }).await;
    running.stop().await;
}

pub async fn a_drain_ends_in_time_though_its_source_falls_silent<P: Place>() {
    let ledger = LedgerServer::start();
    let place = P::new(&ledger).await;
    let (began, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let (begun, waiting) = (began.clone(), Arc::clone(&gate));
    let draining = worker(&place, &ledger, WorkerSettings::new(), move |message| {
        begun.add(message.id());
        let gate = Arc::clone(&waiting);
        async move {
            drop(gate.acquire().await);
            Ok(())
        }
    })
    .await;
    place.send(message(1)).await;
    began.reaches(1, BOUND).await;
    place.silence(&ledger);
    draining.worker.stopper().cancel();
    eventually("it drains", BOUND, || async { !draining.worker.health().is_ready }).await;
    let since = Instant::now();
    gate.close();
    let report = draining.stop().await;
    assert!(since.elapsed() < Duration::from_secs(16), "{:?}", since.elapsed());
    // What its source was not notified comes again.
    let seen = Seen::default();
    let running = worker(&place, &ledger, WorkerSettings::new(), seeing(&seen)).await;
    eventually("it is settled", BOUND, || async { seen.count() as u64 + report.done >= 1 && place.left().await == 0 })
        .await;
    running.stop().await;
}

/// A worker that is paused by its first message, and whose source is out of reach a second later.
async fn paused_out_of_reach<P: Place>(place: &P, ledger: &LedgerServer, relay: &Relay) -> RunningWorker {
    let began = Seen::default();
    let begun = began.clone();
    let pausing = worker(place, ledger, WorkerSettings::new().workers(1).retries(false), move |message| {
        begun.add(message.id());
        async { Err(WorkError::not_counted(Some(PAUSE * 6), "the circuit is open")) }
    })
    .await;
    began.reaches(1, BOUND).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.close();
    pausing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pause_could_not_return_comes_to_others() {
    const MESSAGES: u32 = 180;
    const RECLAIM: Duration = Duration::from_secs(8);
    let ledger = LedgerServer::start();
    let mut place = AtStream::new(&ledger).await;
    place.settings = place.settings.prefetch(100);
    place.keep_for(RECLAIM);
    for id in 1..=MESSAGES {
        place.send(message(id)).await;
    }
    let pausing = paused_out_of_reach(&place, &ledger, &place.relay).await;
    // It gives back in vain meanwhile.
    tokio::time::sleep(Duration::from_secs(3)).await;
    place.relay.open();
    let seen = Seen::default();
    let other = worker(&place, &ledger, WorkerSettings::new().retries(false), seeing(&seen)).await;
    seen.reaches(MESSAGES as usize - 1, RECLAIM + Duration::from_secs(6)).await;
    // What the first one began is in the ledger.
    assert_eq!((other.stop().await.done as u32, seen.count() as u32), (MESSAGES - 1, MESSAGES - 1), "each once");
    pausing.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_says_nothing_of_an_unasked_database() {
    let ledger = LedgerServer::start();
    let place = AtOutbox::new(&ledger).await;
    for id in 1..=5 {
        place.send(message(id)).await;
    }
    let pausing = paused_out_of_reach(&place, &ledger, &place.relay).await;
    let source = || pausing.worker.health().source.unwrap();
    eventually("it is away", BOUND, || async { !source().is_connected }).await;
    let connections = source().connections;
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(8) {
        assert!(!source().is_connected && source().connections == connections, "{:?}", pausing.worker.health());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(pausing.worker.health().is_paused);
    pausing.stop().await;
}
