//! What callers see: the run they are given, the outcome they get, which errors are remembered, what is known of a key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::recorded_error::RecordedError;
use crate::error::Failure;

/// What the function learns of its run.
#[derive(Debug, Clone)]
pub struct Run {
    pub(super) fence: Option<u64>,
    pub(super) attempt: Option<u32>,
    pub(super) lost: CancellationToken,
    is_cut_short: Arc<AtomicBool>,
}

impl Run {
    pub(super) fn new(fence: Option<u64>, attempt: Option<u32>, lost: CancellationToken) -> Self {
        Self { fence, attempt, lost, is_cut_short: Arc::default() }
    }

    /// Says that the function, or one of several attempts at it, was cut short (by a timeout, by a cancellation), so that nobody knows
    /// what it did. Unless the run then ends with a result or with a final error, the key keeps its lease, as if the call had been
    /// dropped. A [`Policy`](crate::policy::Policy) says so by itself.
    pub fn cut_short(&self) {
        self.is_cut_short.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// One attempt of several: dropped before its end, it was cut short.
    pub(crate) async fn attempt_of<F: Future>(self, attempt: F) -> F::Output {
        let mut begun = BegunAttempt { run: self, is_over: false };
        let output = attempt.await;
        begun.is_over = true;
        output
    }

    /// Send it along with the key to the store of the effect, which refuses numbers below the highest it has seen.
    /// `None` if the server is away and the work runs without it.
    pub fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// 1 the first time. Above it, an earlier run fell silent, and may have had its effect: look before doing it again.
    /// `None` if the server is away and nobody knows.
    pub fn attempt(&self) -> Option<u32> {
        self.attempt
    }

    /// Whether the server vouches that nobody has begun this work before.
    pub fn is_first(&self) -> bool {
        self.attempt == Some(1)
    }

    /// Cancelled when the lease is lost. Only of interest with [`OnLost::Finish`](super::OnLost::Finish).
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }
}

struct BegunAttempt {
    run: Run,
    is_over: bool,
}

impl Drop for BegunAttempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.run.cut_short();
        }
    }
}

/// How the work came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<T> {
    /// The result. `None` only for a duplicate of work whose result was too large for the server to keep: the work is done, and must
    /// not be done again.
    pub value: Option<T>,
    /// Whether it was done before, by somebody else, and this is what came of it.
    pub replayed: bool,
    /// Which attempt this was; 0 for a replay, and for a run while the server was away.
    pub attempt: u32,
    /// How long ago a replayed result was recorded.
    pub age: Duration,
    /// False if the work is done but the server could not record it: a duplicate that comes later will run.
    pub recorded: bool,
}

type Write<E> = dyn Fn(&E) -> Option<Bytes> + Send + Sync;
type Read<E> = dyn Fn(&[u8]) -> Option<E> + Send + Sync;

/// Which errors are final (a card that was declined), and how they are written down for duplicates to get.
///
/// Any other error frees the key at once, and the next caller runs.
pub struct Remember<E> {
    write: Arc<Write<E>>,
    read: Arc<Read<E>>,
}

impl<E> Remember<E> {
    /// `write` gives the bytes to keep for an error that is final, and `None` for any other; `read` makes the error of them.
    pub fn with(
        write: impl Fn(&E) -> Option<Bytes> + Send + Sync + 'static,
        read: impl Fn(&[u8]) -> Option<E> + Send + Sync + 'static,
    ) -> Self {
        Self { write: Arc::new(write), read: Arc::new(read) }
    }

    pub(super) fn written(&self, error: &E) -> Option<Bytes> {
        (self.write)(error)
    }

    pub(super) fn read(&self, bytes: &[u8]) -> Option<E> {
        (self.read)(bytes)
    }
}

impl<E: 'static> Remember<E> {
    /// Final errors are kept in the form that all languages share: see [`RecordedError`]. `write` gives `None` for an error that is
    /// not final.
    pub fn recorded(
        write: impl Fn(&E) -> Option<RecordedError> + Send + Sync + 'static,
        read: impl Fn(RecordedError) -> E + Send + Sync + 'static,
    ) -> Self {
        Self::with(
            move |error| write(error).map(|recorded| recorded.to_bytes()),
            move |bytes| RecordedError::read(bytes).map(&read),
        )
    }

    /// The same for the error of a whole policy: the call's own error decides, also if it is the last of several attempts.
    pub(crate) fn of_failure(&self) -> Remember<Failure<E>> {
        let (write, read) = (Arc::clone(&self.write), Arc::clone(&self.read));
        Remember::with(
            move |failure: &Failure<E>| failure.inner().and_then(|error| write(error)),
            move |bytes| read(bytes).map(Failure::Inner),
        )
    }
}

impl<E: Serialize + DeserializeOwned> Remember<E> {
    /// Final errors are kept as their own JSON, for programs that share the type.
    pub fn json(is_final: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        let write = move |error: &E| is_final(error).then(|| serde_json::to_vec(error).ok()).flatten().map(Bytes::from);
        Self::with(write, |bytes| serde_json::from_slice(bytes).ok())
    }
}

impl<E> Clone for Remember<E> {
    fn clone(&self) -> Self {
        Self { write: Arc::clone(&self.write), read: Arc::clone(&self.read) }
    }
}

impl<E> fmt::Debug for Remember<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remember")
    }
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedState {
    Unknown,
    /// Somebody is at it.
    Running {
        attempt: u32,
        remaining: Duration,
    },
    /// It is done. `result` is `None` if it was too large to be kept; `is_error` if it is an error that was final.
    Done {
        result: Option<Bytes>,
        is_error: bool,
        age: Duration,
    },
    /// A runner fell silent under [`OnLapse::Hold`](super::OnLapse::Hold), and somebody has to look.
    Held {
        attempt: u32,
    },
}
