//! One message: known already? run, then settle.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::acknowledging::{Acknowledgements, Added, KeptMessage, SettledMessage};
use super::headers::fresh_id;
use super::leading::HeldLead;
use super::ledger::NOBODY_SETTLED_IT;
use super::letters::{letter, second_id};
use super::looping::WorkerRun;
use super::message::WorkerMessage;
use super::source::{FailedWhere, GivenUpBy, Incoming, IncomingMessage, Source};
use super::upcast::Upcasted;
use super::verdict::{GIVEN_BACK_FOR, WorkError, WorkVerdict};
use crate::correlation::correlated_by;
use crate::dead_letters::{FailVerdict, FailureNote, Letter, ParkVerdict};
use crate::error::{Error, Failure};
use crate::health::Notice;
use crate::isolate::{self, Ended};
use crate::policy::{Backoff, Class, Jitter};
use crate::telemetry::{CallEnding, Event, Interest, Primitive, emit, watch};

/// Pauses while the ledger is away.
const LEDGER_AWAY: Backoff = Backoff {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(5),
    multiplier: 2.0,
    jitter: Jitter::Equal,
    min: Duration::from_millis(50),
};
/// How long a message is kept from its source that the ledger refuses for good.
const UNSTORABLE_FOR: Duration = Duration::from_secs(60);
/// When a message of a newer form is looked at again, by a newer worker.
const TOO_NEW_FOR: Duration = Duration::from_secs(60);

/// What became of a message. Numbers of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum MessageEnd {
    Done,
    Retried,
    Dead,
    Dropped,
    GivenBack,
    Known,
    Stale,
    Unsettled,
}

impl MessageEnd {
    pub const COUNT: usize = Self::Unsettled as usize + 1;
    /// In the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Done,
        Self::Retried,
        Self::Dead,
        Self::Dropped,
        Self::GivenBack,
        Self::Known,
        Self::Stale,
        Self::Unsettled,
    ];
}

/// How the source is to settle the message.
enum SettleAs {
    Done,
    Known,
    Dropped(String),
    GivenBack(Duration),
    Failed(FailureNote),
}

/// What became of a failure in the ledger.
enum RecordedAs {
    Judged(FailVerdict),
    /// It does not take this message, now or later.
    Refused,
    /// The worker stops.
    Stopping,
}

pub(super) struct Handling<'a, S: Source, F> {
    pub running: &'a WorkerRun<F>,
    pub source: &'a S,
    pub acknowledgements: &'a Acknowledgements<S>,
    pub held: &'a HeldLead,
}

impl<S, F, Fut> Handling<'_, S, F>
where
    S: Source,
    F: Fn(Arc<WorkerMessage>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), WorkError>> + Send + 'static,
{
    pub async fn handle(&self, incoming: Incoming<S::Receipt>) {
        let Incoming { message, receipt } = incoming;
        if self.source.is_stale(&receipt) {
            return self.running.count(MessageEnd::Stale);
        }
        let message = Arc::new(message);
        let ending = match self.before(&message).await {
            Some(ending) => ending,
            None => self.run(&message, &receipt).await,
        };
        self.settle(message, receipt, ending).await
    }

    /// What is decided without the handler.
    async fn before(&self, message: &IncomingMessage) -> Option<SettleAs> {
        let worker = &self.running.worker;
        if self.source.ledger() == Some(&worker.name) {
            return None;
        }
        match &message.given_up {
            Some(GivenUpBy::DeliveryLimit) => {
                let note = FailureNote::new(format!("it was delivered until the broker's limit{NOBODY_SETTLED_IT}"));
                return Some(SettleAs::Failed(note.not_counted()));
            }
            Some(GivenUpBy::Broker(why)) => {
                return Some(SettleAs::Failed(
                    FailureNote::new(format!("the broker gave it up: {why}")).dead_at_once(),
                ));
            }
            None => {}
        }
        if message.is_redelivered && message.has_own_id {
            match self.until_recorded(|| self.is_known(message)).await {
                Some(true) => return Some(SettleAs::Known),
                Some(false) => {}
                None => return Some(SettleAs::GivenBack(Duration::ZERO)),
            }
        }
        if message.deliveries > worker.settings.crashes {
            let times = message.deliveries - 1;
            let note = FailureNote::new(format!("it was delivered {times} times before{NOBODY_SETTLED_IT}"));
            return Some(SettleAs::Failed(note.not_counted()));
        }
        if worker.settings.ordered && message.aggregate.is_some() && message.has_own_id {
            let letter = letter(message);
            return match self.until_recorded(async || storable(worker.ledger.park(&letter).await)).await {
                Some(Ok(ParkVerdict::Free)) => None,
                Some(Ok(ParkVerdict::Parked { .. } | ParkVerdict::Known { .. })) => Some(SettleAs::Known),
                // Another message has its id, so it is not known.
                Some(Err(Error::LedgerConflict { .. })) => None,
                Some(Err(error)) => {
                    self.say_refused(message, &error);
                    self.sleep(UNSTORABLE_FOR).await;
                    Some(SettleAs::GivenBack(GIVEN_BACK_FOR))
                }
                None => Some(SettleAs::GivenBack(Duration::ZERO)),
            };
        }
        None
    }

    /// Whether the ledger has this message, as safely as asked: the worker that recorded it may have died before that was so. What is under its id may be
    /// another message, and then this one is under the other id that [`record`](Self::record) would use.
    async fn is_known(&self, message: &IncomingMessage) -> Result<bool, Error> {
        let ledger = &self.running.worker.ledger;
        if ledger.standing(&message.id).await?.is_none() {
            return Ok(false);
        }
        // Asked by a PARK behind an aggregate that nobody has, which stores nothing: FAIL would record what is not known.
        let ask = async |id: String| {
            ledger
                .park(&Letter { id, aggregate: Some(fresh_id()), ..letter(message) })
                .await
                .map(|recorded| recorded != ParkVerdict::Free)
        };
        let recorded = match ask(message.id.clone()).await {
            Err(Error::LedgerConflict { .. }) => ask(second_id(message)).await,
            recorded => recorded,
        };
        // What it refuses it does not have.
        storable(recorded).map(|recorded| recorded.unwrap_or(false))
    }

    async fn run(&self, incoming: &Arc<IncomingMessage>, receipt: &S::Receipt) -> SettleAs {
        let worker = &self.running.worker;
        let upcasted = catch_unwind(AssertUnwindSafe(|| {
            worker.upcasters.apply(incoming.kind.as_deref(), incoming.schema, incoming.payload.clone())
        }));
        let payload = match upcasted {
            Ok(Upcasted::Readable(payload)) => payload,
            Ok(Upcasted::TooNew { newest }) => {
                let schema = incoming.schema.unwrap_or_default();
                let note =
                    FailureNote::new(format!("version {schema} is newer than {newest}, which this worker knows"));
                return match self.source.ledger() {
                    Some(_) => SettleAs::GivenBack(TOO_NEW_FOR),
                    None => SettleAs::Failed(note.not_counted().after(TOO_NEW_FOR)),
                };
            }
            Ok(Upcasted::Failed(error)) => return self.failed(&error),
            Err(panic) => {
                return self
                    .failed(&WorkError::permanent(format!("an upcaster crashed: {}", isolate::panic_text(panic))));
            }
        };

        let (clock, deadline) = (worker.client.clock(), worker.settings.deadline);
        let begun = clock.now();
        // Not a child of the run's: those of all messages would share a lock.
        let cancel = CancellationToken::new();
        let until = begun.saturating_add(deadline);
        let steps = worker.upcasters.steps(incoming.kind.as_deref(), incoming.schema);
        let message = WorkerMessage::new(Arc::clone(incoming), payload, steps, cancel.clone(), until, clock.clone());
        let message = Arc::new(message);
        let watch = watch(Primitive::Worker, "handle", &worker.name)
            .map(|watch| watch.of_background(worker.client.home(), message.traceparent()));
        let of_message = || {
            tracing::debug_span!(
                "resil.work",
                queue = &*worker.name,
                id = message.id(),
                attempt = message.attempt(),
                trace_id = message.trace_id().unwrap_or_default(),
                header_id = message.header_id(),
            )
        };
        let span = watch.as_ref().map_or_else(of_message, |watch| watch.span().in_scope(of_message));
        let about = Arc::clone(&message);
        let handled = isolate::run(&cancel, || correlated_by(about, self.under_policy(&message)).instrument(span));
        let mut handled = std::pin::pin!(handled);
        let lost = self.source.lost(receipt);
        let ended = tokio::select! {
            biased;
            ended = &mut handled => ended,
            () = self.waits() => Ended::Cancelled,
            () = self.running.cut_off.cancelled() => {
                cancel.cancel();
                handled.await
            }
            () = async { clock.sleep(deadline).await } => {
                cancel.cancel();
                Ended::Returned(Err(Error::Timeout { after: deadline }.into()))
            }
            () = lost_of(&lost) => {
                cancel.cancel();
                Ended::Cancelled
            }
        };
        cancel.cancel();
        let took = clock.now().saturating_sub(begun);
        self.running.note_took(took);
        self.running.meters.seconds.record(took);
        if let Some(watch) = watch {
            watch.end(match &ended {
                Ended::Returned(Ok(())) => CallEnding::OK,
                Ended::Cancelled => CallEnding::fine("cancelled"),
                Ended::Returned(Err(_)) | Ended::Panicked(_) => CallEnding::FAILED,
            });
        }
        match ended {
            Ended::Returned(Ok(())) => SettleAs::Done,
            // It was cancelled, and reports that in its own way.
            Ended::Returned(Err(_)) if self.running.cut_off.is_cancelled() => SettleAs::GivenBack(Duration::ZERO),
            Ended::Returned(Err(error)) => self.failed(&error),
            Ended::Panicked(text) => self.failed(&WorkError::retry(format!("the handler crashed: {text}"))),
            Ended::Cancelled => SettleAs::GivenBack(Duration::ZERO),
        }
    }

    /// Never returns. Polled when a handler waits for something.
    fn waits(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|_| {
            self.held.pass_on();
            std::task::Poll::Pending
        })
    }

    async fn under_policy(&self, message: &Arc<WorkerMessage>) -> Result<(), WorkError> {
        let worker = &self.running.worker;
        let handle = || (self.running.handler)(Arc::clone(message));
        let Some(policy) = &worker.policy else { return handle().await };
        let classify = |error: &WorkError| match self.verdict(error) {
            WorkVerdict::Retry(_) => Class::Retry,
            WorkVerdict::RetryAfter(_, after) => Class::RetryAfter(after),
            WorkVerdict::Permanent | WorkVerdict::Drop => Class::Ignore,
            WorkVerdict::NotCounted(_) | WorkVerdict::GiveBack(_) => Class::Permanent,
        };
        policy.call(classify, handle).await.map_err(|failure: Failure<WorkError>| WorkError::of_policy(failure))
    }

    fn verdict(&self, error: &WorkError) -> WorkVerdict {
        let judge = || (self.running.worker.classify)(error.error());
        let judged = || catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| WorkVerdict::of(error.error()));
        error.verdict().unwrap_or_else(judged)
    }

    fn failed(&self, error: &WorkError) -> SettleAs {
        let verdict = self.verdict(error);
        if let Some(pause) = verdict.pause() {
            self.running.worker.state.pause(pause);
            self.running.meters.handler_pauses.increment(1);
        }
        match (verdict.note(error.text()), verdict) {
            (Some(note), _) => SettleAs::Failed(note),
            (None, WorkVerdict::GiveBack(delay)) => SettleAs::GivenBack(delay),
            (None, _) => SettleAs::Dropped(error.text()),
        }
    }

    /// A failure is acknowledged when the ledger has it; everything else at once.
    async fn settle(&self, message: Arc<IncomingMessage>, receipt: S::Receipt, ending: SettleAs) {
        let (queue, id) = (&*self.running.worker.name, &message.id);
        let (end, receipt) = match ending {
            SettleAs::Done => (MessageEnd::Done, receipt),
            SettleAs::Known => (MessageEnd::Known, receipt),
            SettleAs::Dropped(reason) => {
                // Not the reason: it is in the handler's words, which may be anything. Hooks get it.
                tracing::warn!(queue, id, "a message was dropped");
                let name = || Arc::clone(&self.running.worker.name);
                let home = self.running.worker.client.home();
                emit(Interest::Happenings, home, || Event::Dropped { name: name(), id: id.clone(), reason });
                (MessageEnd::Dropped, receipt)
            }
            SettleAs::GivenBack(delay) => return self.give_back(&message, receipt, delay).await,
            SettleAs::Failed(note) => match self.source.fail(receipt, &note).await {
                FailedWhere::Here(Ok(verdict)) => return self.running.count(self.say(id, &verdict)),
                FailedWhere::Here(Err(error)) => {
                    tracing::warn!(queue, id, %error, "a failure could not be recorded");
                    return self.running.count(MessageEnd::Unsettled);
                }
                FailedWhere::Elsewhere(receipt) => match self.record(&message, &note).await {
                    RecordedAs::Judged(verdict) => (self.say(id, &verdict), receipt),
                    RecordedAs::Refused => return self.keep(message, receipt).await,
                    RecordedAs::Stopping => return self.give_back(&message, receipt, GIVEN_BACK_FOR).await,
                },
            },
        };
        match self.acknowledgements.add(SettledMessage { message, receipt, end }) {
            Added::Full(full) => {
                self.held.pass_on();
                self.acknowledgements.send(self.running, full).await;
            }
            // The ticker begins on this thread, and is to begin before another handler may block it.
            Added::First => tokio::task::yield_now().await,
            Added::Gathered => {}
        }
    }

    async fn give_back(&self, message: &IncomingMessage, receipt: S::Receipt, delay: Duration) {
        self.held.pass_on();
        let recorded = self.source.give_back(receipt, delay).await;
        self.running.note_acknowledged(message, MessageEnd::GivenBack, recorded);
    }

    /// Without the error, which is in the handler's words: the ledger has it.
    fn say(&self, id: &str, verdict: &FailVerdict) -> MessageEnd {
        let queue = &*self.running.worker.name;
        match verdict {
            FailVerdict::Retry { attempt, delay } => {
                tracing::debug!(queue, id, attempt, ?delay, "a message failed, and is retried");
                MessageEnd::Retried
            }
            FailVerdict::Dead { deaths, reason, .. } => {
                tracing::warn!(queue, id, deaths, reason = reason.text(), "a message is dead");
                let (worker, id) = (Arc::clone(&self.running.worker.name), id.to_owned());
                self.running.worker.client.notify(&Notice::Dead { worker, id, deaths: *deaths, reason: *reason });
                MessageEnd::Dead
            }
            FailVerdict::Known { .. } => MessageEnd::Known,
        }
    }

    /// What the ledger refuses goes back after a while. It keeps no worker from other messages, unless there are many of its like.
    async fn keep(&self, message: Arc<IncomingMessage>, receipt: S::Receipt) {
        let until = self.running.worker.client.clock().now().saturating_add(UNSTORABLE_FOR);
        if let Err(KeptMessage { message, receipt, .. }) =
            self.acknowledgements.keep(self.running, KeptMessage { until, message, receipt })
        {
            self.sleep(UNSTORABLE_FOR).await;
            self.give_back(&message, receipt, GIVEN_BACK_FOR).await;
        }
    }

    /// Records a failure in the ledger, however long that takes.
    async fn record(&self, message: &IncomingMessage, note: &FailureNote) -> RecordedAs {
        let ledger = &self.running.worker.ledger;
        let mut letter = letter(message);
        loop {
            let recorded = self.until_recorded(async || storable(ledger.fail(&letter, note.clone()).await));
            match recorded.await {
                None => return RecordedAs::Stopping,
                Some(Ok(verdict)) => return RecordedAs::Judged(verdict),
                // Two messages of one id: each is kept, and neither is lost.
                Some(Err(Error::LedgerConflict { .. })) if letter.id == message.id => {
                    letter.id = second_id(message);
                }
                Some(Err(error)) => {
                    self.say_refused(message, &error);
                    return RecordedAs::Refused;
                }
            }
        }
    }

    fn say_refused(&self, message: &IncomingMessage, error: &Error) {
        let (queue, id) = (&*self.running.worker.name, &message.id);
        tracing::error!(queue, id, %error, "the ledger refuses a message, which stays with its source");
        let (worker, id) = (Arc::clone(&self.running.worker.name), id.clone());
        self.running.worker.client.notify(&Notice::NotRecorded { worker, id, reason: error.to_string() });
    }

    /// Asks the ledger until it replies. Meanwhile nothing is taken. `None`: the worker stops.
    async fn until_recorded<T, Asked>(&self, ask: impl Fn() -> Asked) -> Option<T>
    where
        Asked: Future<Output = Result<T, Error>>,
    {
        let worker = &self.running.worker;
        let mut delays = LEDGER_AWAY.delays();
        self.held.pass_on();
        loop {
            let error = match ask().await {
                Ok(recorded) => {
                    worker.state.ledger_is_back();
                    return Some(recorded);
                }
                Err(Error::ShuttingDown) => return None,
                Err(error) => error,
            };
            let delay = delays.next(&worker.client.inner().options.random);
            worker.state.pause(delay);
            self.running.meters.ledger_pauses.increment(1);
            if worker.state.ledger_is_away(error.to_string()) {
                tracing::warn!(queue = &*worker.name, %error, "the ledger cannot be reached; nothing is taken until it can");
            }
            if !self.sleep(delay).await {
                return None;
            }
        }
    }

    /// False: the worker stops.
    async fn sleep(&self, span: Duration) -> bool {
        self.held.pass_on();
        tokio::select! {
            biased;
            () = self.running.stopping.cancelled() => false,
            () = self.running.worker.client.clock().sleep(span) => true,
        }
    }
}

/// What the ledger says of this message alone, in contrast to a ledger that is away.
fn storable<T>(recorded: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match recorded {
        // The key is something else: no message can be stored.
        Err(Error::InvalidArgument(text)) if text.starts_with("WRONGTYPE") => Err(Error::InvalidArgument(text)),
        Err(error @ (Error::LedgerConflict { .. } | Error::PayloadTooBig(_) | Error::InvalidArgument(_))) => {
            Ok(Err(error))
        }
        Err(error) => Err(error),
        Ok(recorded) => Ok(Ok(recorded)),
    }
}

async fn lost_of(lost: &Option<CancellationToken>) {
    match lost {
        Some(lost) => lost.cancelled().await,
        None => std::future::pending().await,
    }
}
