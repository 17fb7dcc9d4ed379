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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, Semaphore, SemaphorePermit, TryAcquireError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::acknowledging::Acknowledgements;
use super::handling::{Handling, MessageEnd};
use super::leading::{HeldLead, Lead};
use super::ledger::LedgerSource;
use super::message::WorkerMessage;
use super::source::{Incoming, IncomingMessage, Source, SourceError};
use super::state::{WorkerMeters, WorkerReport, WorkerState, ms};
use super::verdict::WorkError;
use crate::dead_letters::LetterFilter;
use crate::error::Error;

/// How long messages that are cut off may take to go back.
const GIVE_BACK_BOUND: Duration = Duration::from_secs(5);
/// How often a worker that waits for messages turns.
const TURN_EVERY: Duration = Duration::from_secs(10);
/// How often a worker looks whether it may take.
const LOOK: Duration = Duration::from_millis(50);
/// A pause that lasts longer leaves what was fetched to others.
const SHARE_AFTER: Duration = Duration::from_secs(2);
/// How often a source learns that the pause goes on.
const SHARE_EVERY: Duration = Duration::from_secs(1);
/// A handler that returns sooner is quicker than waking another worker.
const QUICK: Duration = Duration::from_micros(50);
/// Messages of a ledger that are looked at before a worker begins.
const LOOKED_AT_MAX: usize = 10_000;

/// What all workers of one run share.
pub(super) struct WorkerRun<F> {
    pub worker: Worker,
    pub handler: F,
    pub meters: WorkerMeters,
    /// So many messages are handled at once, of the source and of the ledger together; a suspect takes all of them. `None`: there is no ledger, and there
    /// are as many workers.
    places: Option<Semaphore>,
    /// Cancelled: nothing more is taken.
    pub stopping: CancellationToken,
    /// Cancelled: what runs is cut off.
    pub cut_off: CancellationToken,
    /// Of aggregates with messages that are handled here, where order matters.
    aggregates: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
    /// The last handler returned at once.
    is_quick: AtomicBool,
}

impl<F> WorkerRun<F> {
    pub fn count(&self, end: MessageEnd) {
        self.count_many(end, 1);
    }

    pub fn count_many(&self, end: MessageEnd, messages: u64) {
        self.worker.state.ends[end as usize].fetch_add(messages, Ordering::Relaxed);
        self.meters.outcomes[end as usize].increment(messages);
    }

    /// How long a handler took.
    pub fn note_took(&self, took: Duration) {
        let is_quick = took < QUICK;
        if self.is_quick.load(Ordering::Relaxed) != is_quick {
            self.is_quick.store(is_quick, Ordering::Relaxed);
        }
    }

    /// What became of a message, by the reply of its source.
    pub fn note_acknowledged(&self, message: &IncomingMessage, end: MessageEnd, result: Result<(), SourceError>) {
        match result {
            Ok(()) => self.count(end),
            Err(error) => {
                let (queue, id) = (&*self.worker.name, &message.id);
                tracing::debug!(queue, id, %error, "a source could not be notified; it will deliver the message again");
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
        !self.worker.state.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns after this time, or when it is not paused any more. Whether it is.
    async fn stays_paused(&self, span: Duration) -> bool {
        let clock = self.worker.client.clock();
        let until = clock.now().saturating_add(span);
        while self.worker.state.is_paused() && clock.now() < until {
            clock.sleep(LOOK).await;
        }
        self.worker.state.is_paused()
    }

    /// Where the message may be handled. Those who ask get theirs in turn: while a suspect waits for all, nothing else begins.
    async fn places(&self, message: &IncomingMessage) -> Option<SemaphorePermit<'_>> {
        let wanted = if message.is_suspect { self.worker.settings.workers } else { 1 };
        let places = self.places.as_ref()?;
        match places.try_acquire_many(wanted) {
            Err(TryAcquireError::NoPermits) => places.acquire_many(wanted).await.ok(),
            place => place.ok(),
        }
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
    if state.has_run.swap(true, Ordering::AcqRel) && worker.stop.is_cancelled() {
        let why = format!("the worker {} was stopped, and a worker runs once: make another", worker.name);
        return Err(Error::InvalidArgument(why));
    }
    state.is_stopping.store(false, Ordering::Relaxed);
    state.deadline_ms.store(ms(worker.settings.deadline), Ordering::Relaxed);
    state.ends.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    state.turn();

    let source = Arc::new(source);
    *state.source.lock() = Some(Box::new({
        let source = Arc::clone(&source);
        move || source.health()
    }));
    call.part(worker.ledger.check_safety()).await?;
    call.part(check_ledger(&worker)).await?;
    let wants_retries = worker.settings.retries && source.ledger() != Some(&worker.name);
    let at_once = worker.settings.workers as usize;
    let retries = async { Arc::new(LedgerSource::of(&client, worker.ledger.clone(), at_once)) };
    let retries = if wants_retries { Some(call.part(retries).await) } else { None };

    let running = Arc::new(WorkerRun {
        meters: WorkerMeters::new(&worker.name),
        places: (wants_retries || source.ledger().is_some()).then(|| Semaphore::new(at_once)),
        stopping: CancellationToken::new(),
        cut_off: CancellationToken::new(),
        aggregates: Mutex::default(),
        is_quick: AtomicBool::default(),
        handler,
        worker,
    });
    let (mut workers, mut tickers) = (JoinSet::new(), JoinSet::new());
    let intake = Arc::new(Intake::new(&source, running.worker.settings.ordered));
    let retry_intake = retries.as_ref().map(|retries| Arc::new(Intake::new(retries, running.worker.settings.ordered)));
    tickers.spawn(call.part(tick(Arc::clone(&running), Arc::clone(&intake))));
    let (keeping, kept) = (Arc::clone(&running), Arc::clone(&intake.acknowledgements));
    tickers.spawn(call.part(async move { kept.give_back_kept(&keeping).await }));
    // Where order matters nobody overtakes it.
    if !running.worker.settings.ordered {
        tickers.spawn(call.part(share_while_paused(Arc::clone(&running), Arc::clone(&source))));
        if let Some(retries) = &retries {
            tickers.spawn(call.part(share_while_paused(Arc::clone(&running), Arc::clone(retries))));
        }
    }
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
    // A source that misses this waits for the lease, or for the end of the connection: the handlers do not wait for it.
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
        intake.acknowledgements.give_back_all(&running).await;
        source.end().await;
    };
    tokio::select! { biased; () = ending => {}, () = clock.sleep(GIVE_BACK_BOUND) => {} }
    Ok(state.report())
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
    lead: Arc<Lead>,
}

impl<S: Source> Intake<S> {
    fn new(source: &Arc<S>, is_ordered: bool) -> Self {
        let acknowledgements = Arc::new(Acknowledgements::new(source, is_ordered));
        Self {
            source: Arc::clone(source),
            lead: Arc::new(Lead::new(acknowledgements.gathers())),
            acknowledgements,
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
    let (held, mut pauses) = (HeldLead::default(), state.pauses.subscribe());
    while running.may_take().await {
        state.turn();
        let taken = tokio::select! {
            biased;
            taken = take(&running, &intake, &held) => taken,
            () = running.stopping.cancelled() => return,
            // What arrives while it is paused is others'.
            _ = pauses.changed() => continue,
            // There may be nothing to take for hours.
            () = async { running.worker.client.clock().sleep(TURN_EVERY).await } => continue,
        };
        let Some((incoming, waiting)) = taken else { return };
        // In the order of the source, for as long as it is handled.
        let _alone = match waiting {
            Some(waiting) => Some(waiting.await),
            None => None,
        };
        // A pause that began while it waited for this message, or for its place, holds for it, too.
        let begins = loop {
            if !running.may_take().await {
                break None;
            }
            let places = running.places(&incoming.message).await;
            if !state.is_paused() {
                break Some(places);
            }
        };
        let Some(_places) = begins.filter(|_| !state.is_stopping.load(Ordering::Relaxed)) else {
            // It was taken in the last moment, and not begun.
            let given_back = intake.source.give_back(incoming.receipt, Duration::ZERO).await;
            running.count(if given_back.is_ok() { MessageEnd::GivenBack } else { MessageEnd::Unsettled });
            return;
        };
        state.running.fetch_add(1, Ordering::Relaxed);
        running.meters.running.increment(1.0);
        let _counted = CountedRun(&running);
        let (source, acknowledgements) = (&*intake.source, &*intake.acknowledgements);
        match running.is_quick.load(Ordering::Relaxed) {
            true => held.begin(),
            false => held.pass_on(),
        }
        Handling { running: &*running, source, acknowledgements, held: &held }.handle(incoming).await;
    }
}

/// Sends acknowledgements that did not fill a batch in time, and watches the lead meanwhile. Turns only while there is something.
async fn tick<S: Source, F>(running: Arc<WorkerRun<F>>, intake: Arc<Intake<S>>) {
    let acknowledgements = &intake.acknowledgements;
    loop {
        acknowledgements.begun().await;
        let mut is_more = true;
        while is_more {
            is_more = acknowledgements.turn(&running).await;
            intake.lead.look();
        }
    }
}

/// Others may have what was fetched here, while a pause lasts.
async fn share_while_paused<S: Source, F>(running: Arc<WorkerRun<F>>, source: Arc<S>) {
    let mut pauses = running.worker.state.pauses.subscribe();
    while pauses.changed().await.is_ok() {
        if running.stays_paused(SHARE_AFTER).await {
            source.pause().await;
            while running.stays_paused(SHARE_EVERY).await {
                source.pause().await;
            }
            source.resume().await;
        }
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
    held: &HeldLead,
) -> Option<(Incoming<S::Receipt>, Option<WaitingForOthers>)> {
    intake.lead.follow(held).await;
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
