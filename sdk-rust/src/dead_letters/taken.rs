//! Messages that were taken: each is settled, or goes back by itself.
//!
//! ```text
//! take ──▶ TakenLetter ── done / fail / give_back ──▶ settled
//!              │ dropped                    │ dropped meanwhile
//!              ▼                            ▼
//!          given back                   said again, in the background
//! ```
//! The lease of all that one call took is renewed for as long as any of them is there (see `leases`).

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use resil_core::dead_letters::{Ended, Facts, GivenEntry, Message};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::{DoneCall, FailCall, ReturnCall};
use smallvec::smallvec;
use tokio_util::sync::CancellationToken;

use super::letter::{FailureClass, FailureNote, shown, shown_unless_empty};
use super::safety::is_unsafe;
use super::{FailVerdict, LedgerCore};
use crate::error::{Error, Leased};
use crate::holding::span;
use crate::idempotency::token::odd;
use crate::leases::LeaseGuard;

/// How often at least it is said what became of a message while nothing replies, and the pauses between.
const TRIES: u32 = 4;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_millis(800);

/// What one call took. Letters that are left in it go back when it is dropped.
#[derive(Debug)]
pub struct TakenBatch {
    pub letters: Vec<TakenLetter>,
    /// If there are none: when there will be something, as far as the ledger knows.
    pub next_due: Option<Duration>,
    pub(super) was_waited_for: bool,
}

impl IntoIterator for TakenBatch {
    type Item = TakenLetter;
    type IntoIter = std::vec::IntoIter<TakenLetter>;

    fn into_iter(self) -> Self::IntoIter {
        self.letters.into_iter()
    }
}

/// A message that was taken, as its handler sees it.
pub struct TakenMessage {
    given: GivenEntry,
    lost: CancellationToken,
}

/// Without payload and headers: messages are written to logs.
impl std::fmt::Debug for TakenMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TakenMessage")
            .field("id", &self.id())
            .field("payload_bytes", &self.payload().map(<[u8]>::len))
            .finish_non_exhaustive()
    }
}

impl TakenMessage {
    fn message(&self) -> &Message {
        &self.given.message
    }

    pub fn id(&self) -> Cow<'_, str> {
        shown(self.message().id())
    }

    /// `None` if it is stored elsewhere: see [`reference`](Self::reference).
    pub fn payload(&self) -> Option<&[u8]> {
        self.message().payload()
    }

    pub fn reference(&self) -> Option<Cow<'_, str>> {
        self.message().reference().map(shown)
    }

    /// Empty if there are none.
    pub fn headers(&self) -> &[u8] {
        self.message().headers()
    }

    pub fn kind(&self) -> Option<Cow<'_, str>> {
        shown_unless_empty(self.message().kind())
    }

    pub fn source(&self) -> Option<Cow<'_, str>> {
        shown_unless_empty(self.message().source())
    }

    pub fn aggregate(&self) -> Option<Cow<'_, str>> {
        shown_unless_empty(self.message().aggregate())
    }

    pub fn schema(&self) -> Option<u32> {
        self.message().schema()
    }

    /// Failures that counted so far.
    pub fn attempt(&self) -> u32 {
        self.given.attempt
    }

    /// How many of its takers were not heard of again.
    pub fn lapses(&self) -> u32 {
        self.given.lapses
    }

    /// How often it died and was redriven.
    pub fn deaths(&self) -> u32 {
        self.given.deaths
    }

    pub fn failure_class(&self) -> FailureClass {
        self.given.class.into()
    }

    /// `None` if it has never failed: it was parked.
    pub fn group(&self) -> Option<Cow<'_, str>> {
        shown_unless_empty(&self.given.group)
    }

    /// How it failed last.
    pub fn error(&self) -> Option<Cow<'_, str>> {
        shown_unless_empty(&self.given.error)
    }

    /// The case that redrove it.
    pub fn case(&self) -> Option<u32> {
        self.given.case
    }

    /// Grows with every taker. It goes along with what is written, so that a store can refuse lower ones.
    pub fn fence(&self) -> u64 {
        self.given.fence
    }

    /// Cancelled when the lease is lost: the message may be with another taker soon. What is done with it still counts until it is.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

/// A message that was taken. Dropped without a word, it is given back in the background, and nothing is counted.
#[derive(Debug)]
#[must_use = "a letter that is dropped is given back"]
pub struct TakenLetter {
    message: Arc<TakenMessage>,
    lease: Arc<LeaseGuard>,
    ledger: Arc<LedgerCore>,
    fate: LetterFate,
}

/// What is to be said of it, if it is dropped now.
#[derive(Debug, Clone)]
enum LetterFate {
    Settled,
    Done,
    Failed(FailureNote),
    GivenBack(Duration),
}

impl Deref for TakenLetter {
    type Target = TakenMessage;

    fn deref(&self) -> &TakenMessage {
        &self.message
    }
}

impl TakenLetter {
    pub(super) fn new(given: GivenEntry, lease: &Arc<LeaseGuard>, ledger: &Arc<LedgerCore>) -> Self {
        let message = Arc::new(TakenMessage { given, lost: lease.lost.clone() });
        let fate = LetterFate::GivenBack(Duration::ZERO);
        Self { message, lease: Arc::clone(lease), ledger: Arc::clone(ledger), fate }
    }

    /// The message, for as long as somebody wants to read it.
    pub fn message(&self) -> Arc<TakenMessage> {
        Arc::clone(&self.message)
    }

    /// It was handled. [`Error::LockLost`] if another has taken it meanwhile.
    pub async fn done(mut self) -> Result<(), Error> {
        self.settle(LetterFate::Done).await.map(drop)
    }

    /// It failed: it is retried later, or it dies. The server decides.
    ///
    /// With [`replicas`](super::DeadLettersSettings#structfield.replicas) or [`fsync`](super::DeadLettersSettings#structfield.fsync),
    /// [`Error::BackendUnavailable`] if it is not as safe in the end: after a
    /// failover the message may be retried without this failure.
    pub async fn fail(mut self, failure: impl Into<FailureNote>) -> Result<FailVerdict, Error> {
        let verdict = self.settle(LetterFate::Failed(failure.into())).await?;
        verdict.ok_or_else(|| Error::Internal("a failure has a verdict".to_owned()))
    }

    /// It was not tried: it is due again after `delay`, and nothing is counted.
    pub async fn give_back(mut self, delay: Duration) -> Result<(), Error> {
        self.settle(LetterFate::GivenBack(delay)).await.map(drop)
    }

    async fn settle(&mut self, fate: LetterFate) -> Result<Option<FailVerdict>, Error> {
        // From here on a drop says it again: the work is done, whether or not somebody waits for the reply.
        self.fate = fate;
        let settled = say(&self.ledger, &self.message.given, &self.fate, &self.lease).await;
        self.fate = LetterFate::Settled;
        settled
    }
}

impl Drop for TakenLetter {
    fn drop(&mut self) {
        let fate = std::mem::replace(&mut self.fate, LetterFate::Settled);
        let client = &self.ledger.client;
        if matches!(fate, LetterFate::Settled) {
            return;
        }
        // Where nothing runs nothing can be sent, and the lease lapses.
        let Some(runtime) = client.background() else { return };
        let (message, lease, ledger) = (self.message(), Arc::clone(&self.lease), Arc::clone(&self.ledger));
        let task = async move {
            if let Err(error) = say(&ledger, &message.given, &fate, &lease).await {
                let id = message.id();
                tracing::warn!(%error, ledger = &*ledger.name, %id, "the ledger could not be notified of a message");
            }
        };
        client.inner().tasks.spawn_on(task, &runtime);
    }
}

/// Settles an entry at the server; again while there is no reply, for as long as the lease lasts. The same said again is the
/// same.
async fn say(
    ledger: &LedgerCore,
    given: &GivenEntry,
    fate: &LetterFate,
    lease: &LeaseGuard,
) -> Result<Option<FailVerdict>, Error> {
    let (key, id, fence) = (ledger.key.as_bytes(), given.message.id(), given.fence);
    let command = match fate {
        LetterFate::Settled => return Ok(None),
        LetterFate::Done => Command::DlqDone(DoneCall { key, entries: smallvec![(id, fence)] }),
        LetterFate::GivenBack(delay) => {
            Command::DlqReturn(ReturnCall { key, delay: span(*delay), entries: smallvec![(id, fence)] })
        }
        LetterFate::Failed(note) => Command::DlqFail(failing(key, note, Facts { id, ..Facts::default() }, Some(fence))),
    };
    let lost = |reason| {
        let name = format!("{} of the ledger {}", shown(id), ledger.name).into();
        Error::LockLost { what: Leased::Message, name, reason }
    };
    let clock = ledger.client.clock();
    let mut tries = 0;
    let reply = loop {
        tries += 1;
        let reply = match fate {
            LetterFate::Failed(_) if ledger.is_made_safe() => ledger.ask_made_safe(&command).await,
            _ => ledger.client.backend().call(&command).await,
        };
        match reply {
            Err(error) if error.says_away() && (tries < TRIES || !is_unsafe(&error) && clock.now() < lease.until()) => {
                clock.sleep(PAUSE_FIRST.saturating_mul(1 << tries.min(8)).min(PAUSE_LAST)).await;
            }
            reply => break reply?,
        }
    };
    match reply {
        Reply::Done(ended) | Reply::Returned(ended) => match ended.first() {
            Some(Ended::Ended) => Ok(None),
            Some(Ended::Lost(reason)) => Err(lost(reason.text())),
            None => Err(Error::Internal("there is a verdict for each entry".to_owned())),
        },
        Reply::Failed(failed) => FailVerdict::of(failed).map(Some).map_err(lost),
        other => Err(odd(&other)),
    }
}

/// FAIL.
pub(super) fn failing<'a>(key: &'a [u8], note: &'a FailureNote, facts: Facts<'a>, fence: Option<u64>) -> FailCall<'a> {
    FailCall {
        key,
        facts,
        error: note.error.as_bytes(),
        fence,
        class: note.failure_class.map(Into::into),
        group: note.group.as_deref().filter(|group| !group.is_empty()).map(str::as_bytes),
        after: note.after.map(span),
        prior: note.prior,
        counting: note.count.into(),
    }
}
