//! Servers that the tests share, and small tools.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use resil::worker::{Worker, WorkerReport};
use resil::{Client, ConnectSettings};
use resil_harness::{Postgres, RabbitMq, Relay, Server};

/// One for all tests that do not break it.
pub fn rabbit() -> &'static RabbitMq {
    static RABBIT: OnceLock<RabbitMq> = OnceLock::new();
    RABBIT.get_or_init(RabbitMq::start)
}

pub fn postgres() -> &'static Postgres {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    POSTGRES.get_or_init(Postgres::start)
}

/// A name that no other test has.
pub fn fresh_name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{what}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The ledger of a test: a server of its own, behind a relay.
pub struct LedgerServer {
    pub server: Server,
    pub relay: Relay,
}

impl LedgerServer {
    pub fn start() -> Self {
        Self::of(Server::fresh())
    }

    pub fn of(server: Server) -> Self {
        let relay = Relay::to(server.port());
        Self { server, relay }
    }

    pub async fn client(&self) -> Client {
        let url = format!("redis://127.0.0.1:{}/", self.relay.port());
        ConnectSettings::new(url).connect().await.expect("a client")
    }

    /// Not through the relay.
    pub async fn direct(&self) -> Client {
        ConnectSettings::new(format!("redis://127.0.0.1:{}/", self.server.port())).connect().await.expect("a client")
    }
}

/// Asks until it is so.
pub async fn eventually<F: Future<Output = bool>>(what: &str, bound: Duration, mut holds: impl FnMut() -> F) {
    let until = Instant::now() + bound;
    while !holds().await {
        assert!(Instant::now() < until, "waited {bound:?} in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What handlers saw.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub async fn reaches(&self, count: usize, bound: Duration) {
        eventually(&format!("{count} were seen, of {:?}", self.all().len()), bound, || async { self.count() >= count })
            .await;
    }
}

/// A worker that runs beside the test.
pub struct RunningWorker {
    pub worker: Worker,
    task: tokio::task::JoinHandle<Result<WorkerReport, resil::Error>>,
}

impl RunningWorker {
    pub fn new(
        worker: &Worker,
        run: impl Future<Output = Result<WorkerReport, resil::Error>> + Send + 'static,
    ) -> Self {
        Self { worker: worker.clone(), task: tokio::spawn(run) }
    }

    pub async fn stop(self) -> WorkerReport {
        self.worker.stopper().cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), self.task).await;
        ended.expect("a worker stops").expect("no panic").expect("a report")
    }

    /// As a crash ends it: nothing is said to anybody.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
