//! What a failover can forget, by how safe a failure was asked to be: the ledger's primary dies at each point of the table in docs/workers.md.

use std::time::Duration;

use resil::ConnectSettings;
use resil::dead_letters::{DeadLettersSettings, LetterState};
use resil::worker::{OutgoingMessage, WorkError, WorkerSettings};
use resil_harness::{Options, Server, reply};

use crate::places::{AtOutbox, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(40);

struct Scene {
    ledger: LedgerServer,
    replica: Server,
    place: AtOutbox,
    running: RunningWorker,
    seen: Seen,
}

impl Scene {
    /// A worker whose handler refuses every message, and a ledger with one replica.
    async fn start(replicas: u32) -> Self {
        let (ledger, replica) = tokio::task::spawn_blocking(|| {
            let ledger = LedgerServer::start();
            let replica = Server::replica_of(&ledger.server, Options::default());
            (ledger, replica)
        })
        .await
        .unwrap();
        let place = AtOutbox::new(&ledger).await;
        let client = ledger.client().await;
        let worker = client.worker(place.name(), WorkerSettings::new().replicas(replicas)).unwrap();
        let (source, run, seen) = (place.source(&client), worker.clone(), Seen::default());
        let saw = seen.clone();
        let running = RunningWorker::new(&worker, async move {
            let handler = move |message: std::sync::Arc<resil::worker::WorkerMessage>| {
                saw.add(message.id());
                async { Err(WorkError::permanent("no")) }
            };
            run.run(source, handler).await
        });
        Self { ledger, replica, place, running, seen }
    }

    async fn send(&self) {
        self.place.send(OutgoingMessage::new("payload").id("m1")).await;
    }

    /// The primary dies, and the replica takes its place. What it knows of the message.
    async fn after_failover(&mut self) -> Option<LetterState> {
        self.ledger.relay.close();
        self.ledger.server.kill9();
        self.replica.resume();
        let mut connection = self.replica.connect();
        reply(&mut connection, &["REPLICAOF", "NO", "ONE"]).expect("promoted");
        let url = format!("redis://127.0.0.1:{}/", self.replica.port());
        let client = ConnectSettings::new(url).connect().await.unwrap();
        let letters = client.dead_letters(self.place.name(), DeadLettersSettings::new()).unwrap();
        letters.standing(&format!("{}/m1", self.place.name())).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_no_replica_has_is_not_acknowledged() {
    let mut scene = Scene::start(1).await;
    scene.replica.pause();
    scene.send().await;
    scene.seen.reaches(1, BOUND).await;
    eventually("the worker says that it is not safe", BOUND, || async {
        scene.running.worker.health().ledger.is_some()
    })
    .await;
    assert_eq!(scene.place.left().await, 1, "it is still with its source");
    scene.ledger.relay.close();
    scene.ledger.server.kill9();
    assert_eq!(scene.place.left().await, 1, "whatever the next primary knows of it");
    scene.replica.resume();
    scene.running.crash().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_a_replica_has_outlives_the_primary() {
    let mut scene = Scene::start(1).await;
    scene.replica.pause();
    scene.send().await;
    scene.seen.reaches(1, BOUND).await;
    eventually("the worker says that it is not safe", BOUND, || async {
        scene.running.worker.health().ledger.is_some()
    })
    .await;
    scene.replica.resume();
    eventually("it is acknowledged", BOUND, || async { scene.place.left().await == 0 }).await;
    assert_eq!(scene.seen.count(), 1, "it was handled once");
    assert_eq!(scene.after_failover().await, Some(LetterState::Dead));
    scene.running.crash().await;
}
