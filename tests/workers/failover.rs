//! What a failover can forget, by how safe a failure was asked to be: the ledger's primary dies at each point of the table in docs/workers.md.

use std::time::Duration;

use resil::ConnectSettings;
use resil::dead_letters::{DeadLettersSettings, LetterState};
use resil::worker::{OutgoingMessage, WorkError, WorkerSettings};
use resil_harness::{Flavor, Options, Relay, Server, reply, wait_for_sync};

use crate::places::{AtOutbox, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(40);

struct Scene {
    ledger: LedgerServer,
    /// Of the ledger, if it has one, and the network between the two.
    replica: Option<(Server, Relay)>,
    place: AtOutbox,
    running: RunningWorker,
    seen: Seen,
}

/// A worker whose handler refuses every message.
async fn refusing(ledger: &LedgerServer, place: &AtOutbox, settings: WorkerSettings, seen: &Seen) -> RunningWorker {
    let client = ledger.client().await;
    let worker = client.worker(place.name(), settings).unwrap();
    let (source, run, saw) = (place.source(&client), worker.clone(), seen.clone());
    RunningWorker::new(&worker, async move {
        let handler = move |message: std::sync::Arc<resil::worker::WorkerMessage>| {
            saw.add(message.id());
            async { Err(WorkError::permanent("no")) }
        };
        run.run(source, handler).await
    })
}

impl Scene {
    async fn start(options: Options, has_replica: bool, settings: WorkerSettings) -> Self {
        let (ledger, replica) = tokio::task::spawn_blocking(move || {
            let ledger = LedgerServer::of(Server::start(options));
            let replica = has_replica.then(|| {
                let (link, server) = (Relay::to(ledger.server.port()), Server::start(Options::default()));
                let port = link.port().to_string();
                reply(&mut server.connect(), &["REPLICAOF", "127.0.0.1", &port]).expect("a replica");
                wait_for_sync(&ledger.server, &server);
                (server, link)
            });
            (ledger, replica)
        })
        .await
        .unwrap();
        let place = AtOutbox::new(&ledger).await;
        let seen = Seen::default();
        let running = refusing(&ledger, &place, settings, &seen).await;
        Self { ledger, replica, place, running, seen }
    }

    /// With a replica that nothing reaches, and one message, which was refused.
    async fn with_a_silent_replica(settings: WorkerSettings) -> Self {
        let scene = Self::start(Options::default(), true, settings).await;
        scene.link().freeze();
        scene.send().await;
        scene.seen.reaches(1, BOUND).await;
        scene
    }

    fn replica(&self) -> &Server {
        &self.replica.as_ref().expect("there is one").0
    }

    fn link(&self) -> &Relay {
        &self.replica.as_ref().expect("there is one").1
    }

    async fn send(&self) {
        self.place.send(OutgoingMessage::new("payload").id("m1")).await;
    }

    async fn is_called_unsafe(&self) {
        let worker = &self.running.worker;
        eventually("the worker says that it is not safe", BOUND, || async { worker.health().ledger.is_some() }).await;
        assert_eq!(self.place.left().await, 1, "it is still with its source");
    }

    async fn is_acknowledged(&self) {
        eventually("it is acknowledged", BOUND, || async { self.place.left().await == 0 }).await;
        assert_eq!(self.seen.count(), 1, "it was handled once");
    }

    fn kill_primary(&mut self) {
        self.ledger.relay.close();
        self.ledger.server.kill9();
    }

    /// The primary dies, and the replica takes its place. What it knows of the message.
    async fn after_failover(mut self) -> Option<LetterState> {
        self.kill_primary();
        self.link().close();
        let mut connection = self.replica().connect();
        reply(&mut connection, &["REPLICAOF", "NO", "ONE"]).expect("promoted");
        let url = format!("redis://127.0.0.1:{}/", self.replica().port());
        let client = ConnectSettings::new(url).connect().await.unwrap();
        let letters = client.dead_letters(self.place.name(), DeadLettersSettings::new()).unwrap();
        let standing = letters.standing(&format!("{}/m1", self.place.name())).await.unwrap();
        self.running.crash().await;
        standing
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_no_replica_has_is_not_acknowledged() {
    let mut scene = Scene::with_a_silent_replica(WorkerSettings::new().replicas(1)).await;
    scene.is_called_unsafe().await;
    scene.kill_primary();
    assert_eq!(scene.place.left().await, 1, "whatever the next primary knows of it");
    scene.running.crash().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_a_replica_has_outlives_the_primary() {
    let scene = Scene::with_a_silent_replica(WorkerSettings::new().replicas(1)).await;
    scene.is_called_unsafe().await;
    scene.link().open();
    scene.is_acknowledged().await;
    assert_eq!(scene.after_failover().await, Some(LetterState::Dead));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_replica_is_waited_for_by_default() {
    let scene = Scene::with_a_silent_replica(WorkerSettings::new()).await;
    scene.is_called_unsafe().await;
    scene.link().open();
    scene.is_acknowledged().await;
    assert_eq!(scene.after_failover().await, Some(LetterState::Dead));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_replica_is_waited_for_without_one() {
    let scene = Scene::start(Options::default(), false, WorkerSettings::new()).await;
    scene.send().await;
    scene.is_acknowledged().await;
    assert_eq!(scene.running.worker.health().ledger, None);
    scene.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_no_replica_asked_for_a_failover_can_forget() {
    let scene = Scene::with_a_silent_replica(WorkerSettings::new().replicas(0)).await;
    scene.is_acknowledged().await;
    assert_eq!(scene.after_failover().await, None, "neither the source nor the ledger has it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_crash_left_unsafe_is_not_acknowledged() {
    let mut scene = Scene::with_a_silent_replica(WorkerSettings::new().replicas(1)).await;
    scene.is_called_unsafe().await;
    // The ledger knows the message, which nobody has made safe: it is delivered again.
    let next = refusing(&scene.ledger, &scene.place, WorkerSettings::new().replicas(1), &scene.seen).await;
    std::mem::replace(&mut scene.running, next).crash().await;
    scene.is_called_unsafe().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.place.left().await, 1, "it is still with its source");
    scene.link().open();
    scene.is_acknowledged().await;
    assert_eq!(scene.running.worker.health().report.known, 1);
    assert_eq!(scene.after_failover().await, Some(LetterState::Dead));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_is_not_on_disk_is_not_acknowledged() {
    let options = Options::default().flavor(Flavor::named("valkey-8.0"));
    let options = options.config("appendonly", "yes").config("appendfsync", "no");
    let scene = Scene::start(options, false, WorkerSettings::new().fsync(true)).await;
    scene.send().await;
    scene.seen.reaches(1, BOUND).await;
    scene.is_called_unsafe().await;
    let mut connection = scene.ledger.server.connect();
    reply(&mut connection, &["CONFIG", "SET", "appendfsync", "always"]).expect("set");
    scene.is_acknowledged().await;
    scene.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_tell_its_durability_is_refused() {
    let (old, new) = (Options::default().flavor(Flavor::named("redis-7.0")), Flavor::named("valkey-8.0"));
    for options in [old.config("appendonly", "yes"), Options::default().flavor(new).config("appendonly", "no")] {
        let ledger = LedgerServer::of(Server::start(options));
        let place = AtOutbox::new(&ledger).await;
        let client = ledger.client().await;
        let worker = client.worker(place.name(), WorkerSettings::new().fsync(true)).unwrap();
        let refused = worker.run(place.source(&client), |_| async { Ok(()) }).await.expect_err("refused");
        let text = refused.to_string();
        assert!(text.contains("WAITAOF") && text.contains("appendfsync always"), "{text}");
    }
}
