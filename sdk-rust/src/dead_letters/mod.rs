//! Messages that failed: one ledger decides whether each is retried or dead, and keeps what died until somebody has found out why.
//!
//! ```
//! # use std::time::Duration;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::dead_letters::{DeadLettersSettings, FailVerdict, Letter};
//!
//! let client = resil::connect("memory://").await?;
//! let orders = client.dead_letters("orders", DeadLettersSettings::new())?;
//!
//! // Where a message fails, whatever brought it. Then it is acknowledged there.
//! let order = Letter::of("shop", "42").payload("7 pieces").kind("order.placed");
//! let verdict = orders.fail(&order, "the bank did not reply").await?;
//! assert!(matches!(verdict, FailVerdict::Retry { attempt: 1, .. }));
//!
//! // Where it is tried again, a little later, by any worker with time.
//! let mut batch = orders.take(1, Duration::from_secs(5)).await?;
//! let letter = batch.letters.remove(0);
//! assert_eq!(letter.payload(), Some(&b"7 pieces"[..]));
//! letter.done().await?;
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # What holds
//! - A message that was failed is in the ledger once, until a taker is done with it. [`DeadLettersSettings::replicas`] lets a failure count
//!   only when so many replicas know of it.
//! - Delivery is at least once. A taken message is leased, and the lease is renewed while it is here. A process that dies loses it to
//!   the next taker after [`grace`](DeadLettersSettings#structfield.grace); a message that does so three times dies as `crash`.
//! - The server decides: how often a message is retried, how long that waits, when it is dead. [`DeadLetters::configure`] says by which numbers.
//! - What is dead stays. It comes back by [`DeadLetters::redrive`], under a cause that somebody wrote down, at a rate.
//!
//! # Two ways to take
//! [`DeadLetters::run`] calls a handler for each message, and settles it by how the handler came out. [`DeadLetters::take`] and
//! [`DeadLetters::entries`] hand out messages that are settled by hand: [`TakenLetter::done`], [`fail`](TakenLetter::fail),
//! [`give_back`](TakenLetter::give_back). One that is dropped goes back by itself, uncounted.
//!
//! # Who governs
//! What changes the fate of what died asks for an actor: [`DeadLettersSettings::actor`], or [`DeadLetters::by`] for one call. It goes to the
//! audit, with the [correlation](crate::correlation) of the caller.
//!
//! # The map
//! `letter`: what comes in. `asking`: the question for messages. `taken`: what is given out. `run`: the loop. `governing`: root causes and redrives. `changes`: settings of a
//! ledger. `safety`: when a failure counts as recorded. `showing` and `reports`: what is there.

mod asking;
mod changes;
mod governing;
mod letter;
mod reports;
mod rows;
mod run;
mod safety;
mod showing;
mod taken;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use parking_lot::Mutex;
use resil_core::dead_letters::{Place, Standing};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::{By, Failed, ParkCall, Parked, TakenReply};
use serde::{Deserialize, Serialize};

use self::asking::Asking;
pub use self::changes::{ClassChange, ClassConfig, LedgerChange, LedgerConfig, RedriveRate};
pub use self::governing::{CauseCategory, Diagnosis, PurgeResult, RedriveMatch, RedriveRun, RedriveSettings};
pub use self::letter::{FailureClass, FailureCount, FailureNote, Letter};
pub use self::reports::{
    DeathReason, LedgerAlert, LedgerAudit, LedgerInfo, LetterAttempt, LetterCase, LetterGroup, LetterView,
    RedrivePhase, RedriveProgress,
};
pub use self::run::{HandledReport, Settlement};
pub use self::showing::{LetterFilter, LetterPage};
use self::taken::failing;
pub use self::taken::{TakenBatch, TakenLetter, TakenMessage};
use crate::backend::Backend;
use crate::backend::safety::Safety;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::health::Away;
use crate::holding::from_ms;
use crate::idempotency::token::odd;
use crate::keys;
use crate::leases::{Lease, LeaseKind};
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry::{CallEnding, watched};

/// How long a stream or a loop pauses when the server cannot be asked.
const PAUSE: Duration = Duration::from_secs(1);

/// How a ledger is used. Omitted fields have their defaults. How it retries is of the ledger itself: [`DeadLetters::configure`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DeadLettersSettings {
    /// How long a taker may be silent: 10 ms to 1 day. It is renewed while a message is here. 30 s by default.
    #[serde(with = "span_text")]
    pub lease: Duration,
    /// How long the lease lasts once the connection of this process has closed: 100 ms to 1 day. 3 s by default.
    #[serde(with = "span_text")]
    pub grace: Duration,
    /// How many messages [`run`](DeadLetters::run) handles at once, and [`entries`](DeadLetters::entries) takes at once: 1 to 1,000; 16 by default.
    pub concurrency: u32,
    /// How long these two wait for a message with one question: 100 ms to 10 min. 30 s by default.
    #[serde(with = "span_text")]
    pub wait: Duration,
    /// Who governs, for the audit: 1 to 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// A failure, or a message that is [parked](DeadLetters::park), counts as recorded only when so many replicas have it; else it is
    /// [`Error::BackendUnavailable`], and the message is not to be acknowledged at its source: say it again. 0 by default; refused in memory.
    pub replicas: u32,
    /// The same: only when the primary has it on its disk (WAITAOF: Redis 7.2, or Valkey, with `appendonly yes`). Off by default; refused in
    /// memory.
    pub fsync: bool,
}

impl Default for DeadLettersSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(3),
            concurrency: 16,
            wait: Duration::from_secs(30),
            actor: None,
            replicas: 0,
            fsync: false,
        }
    }
}

setters! {
    DeadLettersSettings { lease: Duration, grace: Duration, concurrency: u32, wait: Duration, replicas: u32, fsync: bool }
}

impl DeadLettersSettings {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`actor`](Self#structfield.actor).
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    pub fn validate(&self) -> Result<(), Error> {
        let day = Duration::from_secs(86_400);
        check_span("lease", self.lease, Duration::from_millis(10), day)?;
        check_span("grace", self.grace, Duration::from_millis(100), day)?;
        check_span("wait", self.wait, Duration::from_millis(100), Duration::from_secs(600))?;
        check_number("concurrency", self.concurrency, 1, 1_000)
    }
}

impl Client {
    /// The ledger of failed messages under this name.
    pub fn dead_letters(&self, name: &str, settings: DeadLettersSettings) -> Result<DeadLetters, Error> {
        self.backend().require_one_server("a ledger of dead letters")?;
        keys::check_name(name)?;
        DeadLetters::at(self, name, &keys::named("dlq", name), settings)
    }
}

impl DeadLetters {
    /// The ledger under this key, whatever it is called.
    pub(crate) fn at(client: &Client, name: &str, key: &str, settings: DeadLettersSettings) -> Result<Self, Error> {
        settings.validate()?;
        let safety = Safety { fsync: settings.fsync, ..Safety::at_least(settings.replicas) };
        safety::check(client.backend(), safety)?;
        client.inner().health.add(format!("dead-letters:{name}").into(), Away::Closed);
        let (client, name, key) = (client.clone(), name.into(), key.into());
        Ok(Self(Arc::new(LedgerCore { client, name, key, settings, safety, seen_alone: Arc::default() })))
    }
}

/// A ledger of messages that failed. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DeadLetters(Arc<LedgerCore>);

#[derive(Debug, Clone)]
pub(crate) struct LedgerCore {
    client: Client,
    name: Arc<str>,
    key: Arc<str>,
    settings: DeadLettersSettings,
    /// What makes a failure count as recorded.
    safety: Safety,
    /// When the primary was last seen without a replica.
    seen_alone: Arc<Mutex<Option<Moment>>>,
}

/// What becomes of a message that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum FailVerdict {
    /// It is retried. `attempt`: failures that counted.
    Retry {
        attempt: u32,
        #[serde(with = "span_text")]
        delay: Duration,
    },
    /// It is dead, and stays until somebody has found out why. `deaths`: how often it died; `group`: for [`DeadLetters::diagnose`].
    Dead { deaths: u32, group: String, reason: DeathReason },
    /// The source delivered it again: nothing was changed, acknowledge it there.
    Known { state: LetterState, attempt: u32 },
}

impl FailVerdict {
    /// Else: why the message is not the caller's any more.
    fn of(failed: Failed) -> Result<Self, &'static str> {
        Ok(match failed {
            Failed::Retry { attempt, delay_ms } => Self::Retry { attempt, delay: from_ms(delay_ms) },
            Failed::Dead { deaths, group, reason } => {
                Self::Dead { deaths, group: letter::shown(&group).into_owned(), reason: reason.into() }
            }
            Failed::Known { standing, attempt } => Self::Known { state: standing.into(), attempt },
            Failed::Lost(reason) => return Err(reason.text()),
        })
    }
}

/// Whether a message has to wait for others of its aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ParkVerdict {
    /// None of them is in the ledger, and nothing was stored: handle it.
    Free,
    /// It is in the ledger now, and will be given out after them. 1 is the next.
    Parked { position: u64 },
    /// The source delivered it again: nothing was changed, acknowledge it there.
    Known { state: LetterState, attempt: u32 },
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterState {
    /// It will be given out when it is due.
    Waiting,
    /// A taker has it.
    Taken,
    /// Behind an earlier one of its aggregate.
    Parked,
    Dead,
    /// It died, was redriven, and is done.
    Resolved,
    /// It died, and was discarded.
    Archived,
    /// It was done a short while ago, and is not in the ledger any more.
    Done,
}

impl LetterState {
    /// `None`: it is not in the ledger.
    fn place(self) -> Option<Place> {
        Some(match self {
            Self::Waiting => Place::Waiting,
            Self::Taken => Place::Taken,
            Self::Parked => Place::Parked,
            Self::Dead => Place::Dead,
            Self::Resolved => Place::Resolved,
            Self::Archived => Place::Archived,
            Self::Done => return None,
        })
    }
}

impl From<Standing> for LetterState {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Here(Place::Waiting) => Self::Waiting,
            Standing::Here(Place::Taken) => Self::Taken,
            Standing::Here(Place::Parked) => Self::Parked,
            Standing::Here(Place::Dead) => Self::Dead,
            Standing::Here(Place::Resolved) => Self::Resolved,
            Standing::Here(Place::Archived) => Self::Archived,
            Standing::Done => Self::Done,
        }
    }
}

impl DeadLetters {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The same ledger, governed by `actor`.
    pub fn by(&self, actor: impl Into<String>) -> Self {
        let mut core = LedgerCore::clone(&self.0);
        core.settings.actor = Some(actor.into());
        Self(Arc::new(core))
    }

    /// Records that a message failed. Whatever the verdict, it can be acknowledged where it came from; after an error it must not be.
    ///
    /// [`Error::LedgerConflict`]: other bytes are known under its id. [`Error::LedgerFull`], [`Error::PayloadTooBig`]: it was not stored.
    pub async fn fail(&self, letter: &Letter, failure: impl Into<FailureNote>) -> Result<FailVerdict, Error> {
        let note = failure.into();
        let _pass = self.0.client.inner().gate.enter()?;
        let command = Command::DlqFail(failing(self.0.key.as_bytes(), &note, letter.facts(), None));
        match self.0.ask_safely(&command).await? {
            Reply::Failed(failed) => FailVerdict::of(failed).map_err(|why| Error::Internal(why.to_owned())),
            other => Err(odd(&other)),
        }
    }

    /// Keeps the order of an aggregate, for sources that deliver its messages one at a time: asked before a message is handled, it is
    /// parked if an earlier one of its aggregate is in the ledger.
    pub async fn park(&self, letter: &Letter) -> Result<ParkVerdict, Error> {
        let _pass = self.0.client.inner().gate.enter()?;
        let command = Command::DlqPark(ParkCall { key: self.0.key.as_bytes(), facts: letter.facts() });
        match self.0.ask_safely(&command).await? {
            Reply::Parked(Parked::Free) => Ok(ParkVerdict::Free),
            Reply::Parked(Parked::Behind { position }) => Ok(ParkVerdict::Parked { position: position as u64 }),
            Reply::Parked(Parked::Known { standing, attempt }) => {
                Ok(ParkVerdict::Known { state: standing.into(), attempt })
            }
            other => Err(odd(&other)),
        }
    }

    /// Takes what is due, at most `count` messages, the oldest first; waits up to `wait` for the first.
    ///
    /// Dropping this future leaves the queue; what was on its way is given back.
    pub async fn take(&self, count: u32, wait: Duration) -> Result<TakenBatch, Error> {
        let core = &self.0;
        let client = &core.client;
        let _pass = client.inner().gate.enter()?;
        check_span("wait", wait, Duration::ZERO, Duration::from_secs(600))?;
        let asking = Asking::new(core, count);
        let sent = client.clock().now();
        let command = asking.command(wait);
        let reply = tokio::select! {
            biased;
            reply = client.wait(&command) => reply,
            () = client.patience().cancelled() => Err(Error::ShuttingDown),
        };
        drop(command);
        // After an error something may have been given to nobody.
        let token = if reply.is_ok() { asking.answered() } else { String::new() };
        let nothing = |next_due_ms: i64, was_waited_for| TakenBatch {
            letters: Vec::new(),
            next_due: u64::try_from(next_due_ms).ok().map(Duration::from_millis),
            was_waited_for,
        };
        match reply? {
            Reply::Taken(TakenReply::Taken { waited_ms, entries, .. }) => {
                let kind = match client.backend() {
                    // Nothing disconnects.
                    Backend::Memory(_) => LeaseKind::Messages { grace: core.settings.lease },
                    _ => LeaseKind::Messages { grace: core.settings.grace },
                };
                let since = sent.saturating_add(from_ms(waited_ms));
                let lease = Lease::new(kind, Arc::clone(&core.key), token, core.settings.lease, since);
                let lease = Arc::new(client.keep(lease));
                let letters = entries.into_iter().map(|given| TakenLetter::new(given, &lease, core)).collect();
                Ok(TakenBatch { letters, next_due: None, was_waited_for: true })
            }
            Reply::Taken(TakenReply::Nothing { next_due_ms }) => Ok(nothing(next_due_ms, false)),
            Reply::Taken(TakenReply::Timeout { next_due_ms }) => Ok(nothing(next_due_ms, true)),
            other => Err(odd(&other)),
        }
    }

    /// Messages as they become due, one after another, until a shutdown. After an error it goes on when it is asked again.
    ///
    /// Up to [`concurrency`](DeadLettersSettings#structfield.concurrency) are taken at once; those that nobody asked for go back when this is dropped.
    pub fn entries(&self) -> impl Stream<Item = Result<TakenLetter, Error>> + Send + 'static {
        let begun = (self.clone(), Vec::new().into_iter(), Duration::ZERO);
        stream::unfold(begun, |(letters, mut taken, mut pause)| async move {
            loop {
                if let Some(letter) = taken.next() {
                    return Some((Ok(letter), (letters, taken, Duration::ZERO)));
                }
                letters.0.client.clock().sleep(pause).await;
                let settings = &letters.0.settings;
                match letters.take(settings.concurrency, settings.wait).await {
                    Ok(batch) => (pause, taken) = (batch.pause(), batch.into_iter()),
                    Err(Error::ShuttingDown) => return None,
                    Err(error) => return Some((Err(error), (letters, taken, PAUSE))),
                }
            }
        })
    }
}

impl TakenBatch {
    /// How long to wait before asking again: where too many wait, nobody was waited for.
    pub(crate) fn pause(&self) -> Duration {
        match self.was_waited_for {
            true => Duration::ZERO,
            false => self.next_due.unwrap_or(PAUSE).clamp(Duration::from_millis(100), PAUSE),
        }
    }
}

impl LedgerCore {
    /// Asks what may be asked twice: once more if nothing replies.
    async fn ask_again(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let asking = async {
            match self.client.backend().call(command).await {
                Err(error) if error.says_away() => self.client.backend().call(command).await,
                reply => reply,
            }
        };
        let reply = watched!(DeadLetters, command.name(), &self.name, asking, CallEnding::of);
        reply.map_err(|error| error.of_ledger(&self.name))
    }

    async fn ask(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let asking = self.client.backend().call(command);
        let reply = watched!(DeadLetters, command.name(), &self.name, asking, CallEnding::of);
        reply.map_err(|error| error.of_ledger(&self.name))
    }

    /// Who governs. `correlation` is that of the caller.
    fn by<'a>(&'a self, correlation: &'a Option<Arc<str>>) -> By<'a> {
        let actor = self.settings.actor.as_deref().map(str::as_bytes);
        By { actor, correlation: correlation.as_deref().map(str::as_bytes) }
    }
}
