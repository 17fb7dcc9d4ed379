//! Duplicates inside one process: the first asks the server, the others wait for what it learns.
//!
//! There is one table for each client, whoever made the handle: keys have the name of the work in them. A seat is kept per key and
//! fingerprint (the same key with another request is another question, which only the server
//! can answer). Whoever has the seat asks and runs; when it has an answer that holds for everybody it settles the seat.
//! A seat that is left without an answer (its holder was cancelled, ran out of patience, or failed and freed the key) is
//! free again: one of those who waited takes it. Nobody waits longer than its own patience.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{Clock, Moment};
use crate::leases::Lease;

/// An answer that is the same for every duplicate.
#[derive(Debug, Clone)]
pub(super) enum Settled {
    /// It is done. `age` is how old the result was at `seen_at`.
    Done {
        is_error: bool,
        result: Option<Bytes>,
        age: Duration,
        seen_at: Moment,
    },
    Mismatch,
    Held {
        attempt: u32,
    },
}

#[derive(Debug, Clone)]
enum Phase {
    /// The holder of the seat asks, or waits in the server.
    Asking,
    /// It runs under this lease.
    Running(Arc<Lease>),
    Settled(Settled),
}

/// Key and fingerprint.
type Question = (Arc<str>, Bytes);

#[derive(Debug, Default)]
pub(crate) struct Sharing(Mutex<HashMap<Question, watch::Receiver<Phase>>>);

pub(super) enum Entered<'a> {
    First(Seat<'a>),
    Duplicate(Waiting),
}

impl Sharing {
    pub(super) fn enter(&self, key: &Arc<str>, fingerprint: &Bytes) -> Entered<'_> {
        let question = (Arc::clone(key), fingerprint.clone());
        let mut seats = self.0.lock();
        if let Some(receiver) = seats.get(&question) {
            return Entered::Duplicate(Waiting(receiver.clone()));
        }
        let (sender, receiver) = watch::channel(Phase::Asking);
        seats.insert(question.clone(), receiver);
        Entered::First(Seat { sharing: self, question, sender })
    }
}

/// The right to ask for all duplicates. Dropping it frees the question.
pub(super) struct Seat<'a> {
    sharing: &'a Sharing,
    question: Question,
    sender: watch::Sender<Phase>,
}

impl Seat<'_> {
    /// Nobody is woken: it only matters to those who give up.
    pub fn runs_under(&self, lease: &Arc<Lease>) {
        self.sender.send_if_modified(|phase| {
            *phase = Phase::Running(Arc::clone(lease));
            false
        });
    }

    pub fn settle(&self, settled: Settled) {
        self.sender.send_replace(Phase::Settled(settled));
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // Before the sender goes: whoever wakes because of that finds the seat free.
        self.sharing.0.lock().remove(&self.question);
    }
}

/// A duplicate's view of the seat.
pub(super) struct Waiting(watch::Receiver<Phase>);

pub(super) enum Waited {
    Settled(Settled),
    /// The seat is free again.
    Vacant,
    /// Patience is over; how long the runner's lease lasts, if it runs.
    Impatient(Option<Duration>),
}

impl Waiting {
    pub async fn until(mut self, clock: &Clock, deadline: Moment) -> Waited {
        let patience = deadline.saturating_sub(clock.now());
        let changed = async {
            loop {
                if let Phase::Settled(settled) = &*self.0.borrow_and_update() {
                    return Waited::Settled(settled.clone());
                }
                if self.0.changed().await.is_err() {
                    // It may have settled and left in one go.
                    return match &*self.0.borrow() {
                        Phase::Settled(settled) => Waited::Settled(settled.clone()),
                        _ => Waited::Vacant,
                    };
                }
            }
        };
        tokio::select! {
            biased;
            waited = changed => return waited,
            () = clock.sleep(patience) => {}
        }
        let remaining = match &*self.0.borrow() {
            Phase::Running(lease) => Some(lease.until().saturating_sub(clock.now())),
            _ => None,
        };
        Waited::Impatient(remaining)
    }
}
