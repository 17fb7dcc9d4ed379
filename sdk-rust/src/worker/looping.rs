//! The loop: so many workers take from the source, and from the ledger, until they are stopped.
//!
//! # The end
//! 1. Nothing more is taken; what was fetched and not begun goes back.
//! 2. What runs is waited for: as long as `drain`, or until the deadline of the client's shutdown.
//! 3. What still runs is cancelled, and its message goes back.
//! 4. The source is disconnected.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::acknowledging::Acknowledgements;
use super::handling::{Handling, MessageEnd};
use super::ledger::LedgerSource;
use super::message::WorkerMessage;
use super::source::{Incoming, IncomingMessage, Source, SourceError, SourceHealth};
use super::verdict::WorkError;
use crate::clock::{Clock, Moment};
use crate::dead_letters::LetterFilter;
use crate::error::Error;
use crate::health::Status;
use crate::telemetry;

/// How long messages that are cut off may take to go back.
const GIVE_BACK_BOUND: Duration = Duration::from_secs(5);
/// A worker that has not turned for this long, beyond the deadline of its handlers, is not live.
const TURNS_WITHIN: Duration = Duration::from_secs(60);
/// How often a worker that waits for messages turns.
const TURN_EVERY: Duration = Duration::from_secs(10);
/// How often a worker looks whether it may take.
const LOOK: Duration = Duration::from_millis(50);
/// Messages of a ledger that are looked at before a worker begins.
const LOOKED_AT_MAX: usize = 10_000;

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
    /// Their source could not be told, and will deliver them again.
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
    /// Why the ledger could not be told, if that is so.
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
    is_running: AtomicBool,
    is_stopping: AtomicBool,
    turned_ms: AtomicU64,
    paused_until_ms: AtomicU64,
    running: AtomicU64,
    deadline_ms: AtomicU64,
    report: Mutex<WorkerReport>,
    pub ledger_trouble: Mutex<Option<String>>,
    source: Mutex<Option<Box<LookAtSource>>>,
}

fn ms(moment: Moment) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}

impl WorkerState {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            is_running: AtomicBool::default(),
            is_stopping: AtomicBool::default(),
            turned_ms: AtomicU64::default(),
            paused_until_ms: AtomicU64::default(),
            running: AtomicU64::default(),
            deadline_ms: AtomicU64::default(),
            report: Mutex::default(),
            ledger_trouble: Mutex::default(),
            source: Mutex::default(),
        }
    }

    fn turn(&self) {
        self.turned_ms.store(ms(self.clock.now()), Ordering::Relaxed);
    }

    /// Nothing is taken for this long.
    pub fn pause(&self, span: Duration) {
        self.paused_until_ms.fetch_max(ms(self.clock.now().saturating_add(span)), Ordering::Relaxed);
    }

    /// Until an instant, or until the ledger can be told what it must be told.
    fn is_paused(&self) -> bool {
        let until = self.paused_until_ms.load(Ordering::Relaxed);
        ms(self.clock.now()) < until || self.ledger_trouble.lock().is_some()
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
            report: *self.report.lock(),
        }
    }
}

/// What is counted of a worker.
pub(super) struct WorkerMeters {
    outcomes: [Counter; 8],
    running: Gauge,
    pub seconds: Histogram,
    pub handler_pauses: Counter,
    pub ledger_pauses: Counter,
}

impl WorkerMeters {
    fn new(name: &Arc<str>) -> Self {
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

/// What all workers of one run share.
pub(super) struct WorkerRun<F> {
    pub worker: Worker,
    pub handler: F,
    pub meters: WorkerMeters,
    /// So many messages are handled at once, of the source and of the ledger together.
    places: Semaphore,
    /// Cancelled: nothing more is taken.
    pub stopping: CancellationToken,
    /// Cancelled: what runs is cut off.
    pub cut_off: CancellationToken,
    /// Of aggregates with messages that are handled here, where order matters.
    aggregates: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

impl<F> WorkerRun<F> {
    pub fn count(&self, settled: MessageEnd) {
        let state = &self.worker.state;
        let mut report = state.report.lock();
        let (field, index) = match settled {
            MessageEnd::Done => (&mut report.done, 0),
            MessageEnd::Retried => (&mut report.retried, 1),
            MessageEnd::Dead => (&mut report.dead, 2),
            MessageEnd::Dropped => (&mut report.dropped, 3),
            MessageEnd::GivenBack => (&mut report.given_back, 4),
            MessageEnd::Known => (&mut report.known, 5),
            MessageEnd::Stale => (&mut report.stale, 6),
            MessageEnd::Unsettled => (&mut report.unsettled, 7),
        };
        *field += 1;
        self.meters.outcomes[index].increment(1);
    }

    /// What became of a message, by what its source said when it was told.
    pub fn note_acknowledged(&self, message: &IncomingMessage, end: MessageEnd, told: Result<(), SourceError>) {
        match told {
            Ok(()) => self.count(end),
            Err(error) => {
                let (queue, id) = (&*self.worker.name, &message.id);
                tracing::debug!(queue, id, %error, "a source could not be told; it will deliver the message again");
                self.count(MessageEnd::Unsettled);
            }
        }
    }

    /// Returns when something may be taken. False: nothing any more.
    async fn may_take(&self) -> bool {
        let clock = self.worker.client.clock();
        while self.worker.state.is_paused() {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return false,
                () = clock.sleep(LOOK) => self.worker.state.turn(),
            }
        }
        !self.stopping.is_cancelled()
    }

    /// The lock of an aggregate. Those who ask get it in the order in which they asked, which is when this is first polled.
    fn aggregate(&self, name: &str) -> Arc<AsyncMutex<()>> {
        let mut all = self.aggregates.lock();
        if all.len() > 1_000 {
            all.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

pub(super) async fn run<S, F, Fut>(worker: Worker, source: S, handler: F) -> Result<WorkerReport, Error>
where
    S: Source,
    F: Fn(Arc<WorkerMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
{
    let client = worker.client.clone();
    let inner = client.inner();
    worker.upcasters.validate()?;
    // A shutdown waits for this, and lets in what handlers ask meanwhile.
    let call = client.begin_call()?;
    let _token = inner.tasks.token();
    if worker.state.is_running.swap(true, Ordering::AcqRel) {
        return Err(Error::InvalidArgument(format!("the worker {} runs already", worker.name)));
    }
    let state = Arc::clone(&worker.state);
    let _ended = RunEnded(&state);
    state.is_stopping.store(false, Ordering::Relaxed);
    state.deadline_ms.store(ms(worker.settings.deadline), Ordering::Relaxed);
    *state.report.lock() = WorkerReport::default();
    state.turn();

    let source = Arc::new(source);
    *state.source.lock() = Some(Box::new({
        let source = Arc::clone(&source);
        move || source.health()
    }));
    call.part(check_ledger(&worker)).await?;
    let wants_retries = worker.settings.retries && source.ledger() != Some(&worker.name);
    let at_once = worker.settings.workers as usize;
    let retries = async { Arc::new(LedgerSource::of(&client, worker.ledger.clone(), at_once)) };
    let retries = if wants_retries { Some(call.part(retries).await) } else { None };

    let running = Arc::new(WorkerRun {
        meters: WorkerMeters::new(&worker.name),
        places: Semaphore::new(at_once),
        stopping: CancellationToken::new(),
        cut_off: CancellationToken::new(),
        aggregates: Mutex::default(),
        handler,
        worker,
    });
    let (mut workers, mut tickers) = (JoinSet::new(), JoinSet::new());
    let intake = Arc::new(Intake::new(&source, running.worker.settings.ordered));
    let retry_intake = retries.as_ref().map(|retries| Arc::new(Intake::new(retries, running.worker.settings.ordered)));
    tickers.spawn(call.part(Arc::clone(&intake.acknowledgements).tick(Arc::clone(&running))));
    for _ in 0..at_once {
        workers.spawn(call.part(work(Arc::clone(&running), Arc::clone(&intake))));
        if let Some(intake) = &retry_intake {
            workers.spawn(call.part(work(Arc::clone(&running), Arc::clone(intake))));
        }
    }

    tokio::select! {
        biased;
        () = running.worker.stop.cancelled() => {}
        () = inner.closing.cancelled() => {}
        () = async { while workers.join_next().await.is_some() {} } => {}
    }
    state.is_stopping.store(true, Ordering::Relaxed);
    running.stopping.cancel();
    let clock = client.clock();
    // Who is not told waits for its lease, or for the end of the connection: the handlers are not kept waiting.
    let closing = async {
        source.close().await;
        if let Some(retries) = &retries {
            retries.close().await;
        }
    };
    let drained = async {
        let ended = async { while workers.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            () = ended => true,
            () = clock.sleep(running.worker.settings.drain) => false,
            () = inner.gate.cut_off().cancelled() => false,
        }
    };
    let closing = async {
        tokio::select! { () = closing => {}, () = clock.sleep(GIVE_BACK_BOUND) => {} }
    };
    let (is_drained, ()) = tokio::join!(drained, closing);
    if !is_drained {
        running.cut_off.cancel();
        let ended = async { while workers.join_next().await.is_some() {} };
        tokio::select! { biased; () = ended => {}, () = clock.sleep(GIVE_BACK_BOUND) => {} }
        workers.abort_all();
    }
    let ending = async {
        intake.acknowledgements.flush(&running).await;
        source.end().await;
    };
    tokio::select! { biased; () = ending => {}, () = clock.sleep(GIVE_BACK_BOUND) => {} }
    let report = *state.report.lock();
    Ok(report)
}

/// However it ended.
struct RunEnded<'a>(&'a WorkerState);

impl Drop for RunEnded<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
        self.0.source.lock().take();
    }
}

/// A source, and what its workers share.
struct Intake<S: Source> {
    source: Arc<S>,
    acknowledgements: Arc<Acknowledgements<S>>,
    /// Held from one message to its turn among those of its aggregate, where order matters.
    turn: Option<AsyncMutex<()>>,
}

impl<S: Source> Intake<S> {
    fn new(source: &Arc<S>, is_ordered: bool) -> Self {
        Self {
            source: Arc::clone(source),
            acknowledgements: Arc::new(Acknowledgements::new(source, is_ordered)),
            turn: is_ordered.then(AsyncMutex::default),
        }
    }
}

/// One worker: takes, handles, again.
async fn work<S, F, Fut>(running: Arc<WorkerRun<F>>, intake: Arc<Intake<S>>)
where
    S: Source,
    F: Fn(Arc<WorkerMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
{
    let state = Arc::clone(&running.worker.state);
    while running.may_take().await {
        state.turn();
        let taken = tokio::select! {
            biased;
            taken = take(&running, &intake) => taken,
            () = running.stopping.cancelled() => return,
            // There may be nothing to take for hours.
            () = async { running.worker.client.clock().sleep(TURN_EVERY).await } => continue,
        };
        let Some((incoming, waiting)) = taken else { return };
        // In the order of the source, for as long as it is handled.
        let _alone = match waiting {
            Some(waiting) => Some(waiting.await),
            None => None,
        };
        // A pause that began while it waited for this message holds for it, too.
        let may_begin = running.may_take().await;
        let Ok(_place) = running.places.acquire().await else { return };
        if !may_begin || running.stopping.is_cancelled() {
            // It was taken in the last moment, and not begun.
            let given_back = intake.source.give_back(incoming.receipt, Duration::ZERO).await;
            running.count(if given_back.is_ok() { MessageEnd::GivenBack } else { MessageEnd::Unsettled });
            return;
        }
        state.running.fetch_add(1, Ordering::Relaxed);
        running.meters.running.increment(1.0);
        let _counted = CountedRun(&running);
        let (source, acknowledgements) = (&*intake.source, &*intake.acknowledgements);
        Handling { running: &*running, source, acknowledgements }.handle(incoming).await;
        state.turn();
    }
}

struct CountedRun<'a, F>(&'a WorkerRun<F>);

impl<F> Drop for CountedRun<'_, F> {
    fn drop(&mut self) {
        self.0.worker.state.running.fetch_sub(1, Ordering::Relaxed);
        self.0.meters.running.decrement(1.0);
    }
}

type WaitingForOthers = std::pin::Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>;

/// The next message, and its turn among those of its aggregate.
async fn take<S: Source, F>(
    running: &WorkerRun<F>,
    intake: &Intake<S>,
) -> Option<(Incoming<S::Receipt>, Option<WaitingForOthers>)> {
    let _turn = match &intake.turn {
        Some(turn) => Some(turn.lock().await),
        None => None,
    };
    let incoming = intake.source.next().await?;
    let aggregate = incoming.message.aggregate.as_deref().filter(|_| running.worker.settings.ordered);
    let waiting = aggregate.map(|name| {
        let mut waiting: WaitingForOthers = Box::pin(running.aggregate(name).lock_owned());
        // The first poll takes the position. If it is had at once, it is kept.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match waiting.as_mut().poll(&mut context) {
            std::task::Poll::Ready(guard) => Box::pin(std::future::ready(guard)) as WaitingForOthers,
            std::task::Poll::Pending => waiting,
        }
    });
    Some((incoming, waiting))
}

/// Whether every form in the ledger can be read. A ledger that is away cannot be looked at, which is no reason not to begin.
async fn check_ledger(worker: &Worker) -> Result<(), Error> {
    let (mut filter, mut seen) = (LetterFilter::new().limit(1_000), 0);
    if worker.upcasters.is_empty() {
        return Ok(());
    }
    loop {
        let page = match worker.ledger.list(&filter).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, queue = &*worker.name, "the forms in the ledger could not be looked at");
                return Ok(());
            }
        };
        for letter in &page.letters {
            let (Some(kind), Some(schema)) = (&letter.kind, letter.schema) else { continue };
            if let Some(why) = worker.upcasters.why_unreadable(kind, schema) {
                return Err(Error::invalid("upcasters", format!("cannot read {} in the ledger: {why}", letter.id)));
            }
        }
        seen += page.letters.len();
        match page.cursor {
            Some(cursor) if seen < LOOKED_AT_MAX => filter.cursor = cursor,
            _ => return Ok(()),
        }
    }
}
