//! How a source comes back: its pauses grow while it is away, and begin anew once it was there.

use std::time::{Duration, Instant};

use resil::worker::WorkerSettings;

use crate::places::{AtStream, Place};
use crate::scene::{LedgerServer, RunningWorker, eventually};

const BOUND: Duration = Duration::from_secs(40);
/// The first pause is at most 500 ms. One that had grown would be up to 5 s long, and six times as short by chance once in thousands of runs.
const SOON: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_lets_the_backoff_begin_anew() {
    let ledger = LedgerServer::start();
    let place = AtStream::new(&ledger).await;
    let client = ledger.client().await;
    let worker = client.worker(place.name(), WorkerSettings::new()).unwrap();
    let (source, run) = (place.source(&client), worker.clone());
    let running = RunningWorker::new(&worker, async move { run.run(source, |_| async { Ok(()) }).await });
    let connections = || worker.health().source.filter(|source| source.is_connected).map_or(0, |it| it.connections);
    eventually("it is connected", BOUND, || async { connections() == 1 }).await;
    // Long enough for the pauses to grow.
    place.relay.close();
    tokio::time::sleep(Duration::from_secs(7)).await;
    place.relay.open();
    eventually("it is connected again", BOUND, || async { connections() == 2 }).await;
    for round in 3..=8 {
        place.relay.cut();
        let since = Instant::now();
        eventually("it is connected once more", BOUND, || async { connections() == round }).await;
        assert!(since.elapsed() < SOON, "{:?} in round {round}", since.elapsed());
    }
    running.stop().await;
}
