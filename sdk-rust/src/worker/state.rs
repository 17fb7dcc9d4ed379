//! What is known of a worker while it runs: what became of messages, whether it is paused, and how it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

use super::handling::MessageEnd;
use super::source::SourceHealth;
use crate::clock::{Clock, Moment};
use crate::health::Status;
use crate::telemetry;

/// A worker that has not turned for this long, beyond the deadline of its handlers, is not live.
const TURNS_WITHIN: Duration = Duration::from_secs(60);

/// What a worker did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerReport {
    pub done: u64,
    /// Failed, and retried by the ledger.
    pub retried: u64,
    /// Failed, and dead.
    pub dead: u64,
    pub dropped: u64,
    /// Not tried, or cut off by the end.
    pub given_back: u64,
    /// Acknowledged without being handled: the ledger has them.
    pub known: u64,
    /// Not ours any more before they began.
    pub stale: u64,
    /// Their source could not settle them, and will deliver them again.
    pub unsettled: u64,
}

/// How a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerHealth {
    pub queue: String,
    /// Unhealthy if it is not live, degraded if it cannot take or settle.
    pub status: Status,
    /// The loop turns. For liveness.
    pub is_live: bool,
    /// It runs, and is not stopping. It does not depend on the queue, which only it can drain. For readiness.
    pub is_ready: bool,
    pub is_paused: bool,
    pub running: u64,
    /// Why the ledger is away, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceHealth>,
    pub report: WorkerReport,
}

type LookAtSource = dyn Fn() -> SourceHealth + Send + Sync;

/// What is known of a worker while it runs.
pub(super) struct WorkerState {
    clock: Clock,
    pub is_running: AtomicBool,
    pub is_stopping: AtomicBool,
    pub has_run: AtomicBool,
    turned_ms: AtomicU64,
    /// 0: not paused.
    paused_until_ms: AtomicU64,
    /// Changes when a pause begins, or becomes longer.
    pub pauses: watch::Sender<()>,
    pub running: AtomicU64,
    pub deadline_ms: AtomicU64,
    /// By [`MessageEnd`].
    pub ends: [AtomicU64; MessageEnd::COUNT],
    ledger_trouble: Mutex<Option<String>>,
    is_in_trouble: AtomicBool,
    pub source: Mutex<Option<Box<LookAtSource>>>,
}

pub(super) fn ms(moment: Moment) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}

impl WorkerState {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            is_running: AtomicBool::default(),
            is_stopping: AtomicBool::default(),
            has_run: AtomicBool::default(),
            turned_ms: AtomicU64::default(),
            paused_until_ms: AtomicU64::default(),
            pauses: watch::Sender::default(),
            running: AtomicU64::default(),
            deadline_ms: AtomicU64::default(),
            ends: Default::default(),
            ledger_trouble: Mutex::default(),
            is_in_trouble: AtomicBool::default(),
            source: Mutex::default(),
        }
    }

    pub fn turn(&self) {
        self.turned_ms.store(ms(self.clock.now()), Ordering::Relaxed);
    }

    /// Nothing is taken for this long.
    pub fn pause(&self, span: Duration) {
        self.paused_until_ms.fetch_max(ms(self.clock.now().saturating_add(span)), Ordering::Relaxed);
        self.pauses.send_replace(());
    }

    /// Until an instant, or until the ledger has what it must have. Asked for every message: a worker that is not paused reads no clock.
    pub fn is_paused(&self) -> bool {
        let until = self.paused_until_ms.load(Ordering::Relaxed);
        let is_waiting = until > 0 && ms(self.clock.now()) < until;
        if until > 0 && !is_waiting {
            let _ = self.paused_until_ms.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_waiting || self.is_in_trouble.load(Ordering::Relaxed)
    }

    /// Why the ledger is away. True if it was not until now.
    pub fn ledger_is_away(&self, reason: String) -> bool {
        let is_first = self.ledger_trouble.lock().replace(reason).is_none();
        self.is_in_trouble.store(true, Ordering::Relaxed);
        self.pauses.send_replace(());
        is_first
    }

    pub fn ledger_is_back(&self) {
        if self.is_in_trouble.load(Ordering::Relaxed) {
            let mut trouble = self.ledger_trouble.lock();
            self.is_in_trouble.store(false, Ordering::Relaxed);
            trouble.take();
        }
    }

    pub fn report(&self) -> WorkerReport {
        let of = |end: MessageEnd| self.ends[end as usize].load(Ordering::Relaxed);
        WorkerReport {
            done: of(MessageEnd::Done),
            retried: of(MessageEnd::Retried),
            dead: of(MessageEnd::Dead),
            dropped: of(MessageEnd::Dropped),
            given_back: of(MessageEnd::GivenBack),
            known: of(MessageEnd::Known),
            stale: of(MessageEnd::Stale),
            unsettled: of(MessageEnd::Unsettled),
        }
    }

    pub fn look(&self, queue: &str, is_away: bool) -> WorkerHealth {
        let is_running = self.is_running.load(Ordering::Relaxed);
        let idle = ms(self.clock.now()).saturating_sub(self.turned_ms.load(Ordering::Relaxed));
        let is_live = is_running && idle < ms(TURNS_WITHIN) + self.deadline_ms.load(Ordering::Relaxed);
        let is_paused = self.is_paused();
        let ledger = self.ledger_trouble.lock().clone();
        let source = self.source.lock().as_ref().map(|look| look());
        let is_hindered =
            is_away || is_paused || ledger.is_some() || source.as_ref().is_some_and(|source| !source.is_connected);
        WorkerHealth {
            queue: queue.to_owned(),
            status: match (is_live, is_hindered) {
                (false, _) => Status::Unhealthy,
                (true, true) => Status::Degraded,
                (true, false) => Status::Healthy,
            },
            is_live,
            is_ready: is_live && !self.is_stopping.load(Ordering::Relaxed),
            is_paused,
            running: self.running.load(Ordering::Relaxed),
            ledger,
            source,
            report: self.report(),
        }
    }
}

/// What is counted of a worker.
pub(super) struct WorkerMeters {
    pub outcomes: [Counter; MessageEnd::COUNT],
    pub running: Gauge,
    pub seconds: Histogram,
    pub handler_pauses: Counter,
    pub ledger_pauses: Counter,
}

impl WorkerMeters {
    pub fn new(name: &Arc<str>) -> Self {
        let outcomes = ["done", "retried", "dead", "dropped", "given_back", "known", "stale", "unsettled"];
        Self {
            outcomes: outcomes.map(|outcome| telemetry::worker_messages(name, outcome)),
            running: telemetry::worker_running(name),
            seconds: telemetry::worker_handler_seconds(name),
            handler_pauses: telemetry::worker_pauses(name, "handler"),
            ledger_pauses: telemetry::worker_pauses(name, "ledger"),
        }
    }
}
