//! Duplicates inside one process: the first asks the server, the others wait for what it learns.
//!
//! There is one table for each client, for all its handles: keys have the name of the work in them. A lead is kept per key and
//! fingerprint (the same key with another request is another question, which only the server
//! can reply). The caller that has the lead asks and runs; when it has a reply that holds for everybody it settles the lead.
//! A lead that is left without a reply (its holder was cancelled, ran out of patience, or failed and freed the key) is
//! free again: one of those who waited takes it. Nobody waits longer than its own patience.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::{Clock, Moment};
use crate::leases::Lease;

/// A reply that is the same for every duplicate.
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
    /// The holder of the lead asks, or waits in the server.
    Asking,
    /// It runs under this lease.
    Running(Arc<Lease>),
    Settled(Settled),
}

/// Key and fingerprint.
type Question = (Arc<str>, Bytes);

#[derive(Debug, Default)]
pub(crate) struct Sharing(Mutex<HashMap<Question, watch::Receiver<Phase>>>);

pub(super) enum RunEntry<'a> {
    First(RunLead<'a>),
    Duplicate(DuplicateCall),
}

impl Sharing {
    pub(super) fn enter(&self, key: &Arc<str>, fingerprint: &Bytes) -> RunEntry<'_> {
        let question = (Arc::clone(key), fingerprint.clone());
        let mut leads = self.0.lock();
        if let Some(receiver) = leads.get(&question) {
            return RunEntry::Duplicate(DuplicateCall(receiver.clone()));
        }
        let (sender, receiver) = watch::channel(Phase::Asking);
        leads.insert(question.clone(), receiver);
        RunEntry::First(RunLead { sharing: self, question, sender })
    }
}

/// The right to ask for all duplicates. Dropping it frees the question.
pub(super) struct RunLead<'a> {
    sharing: &'a Sharing,
    question: Question,
    sender: watch::Sender<Phase>,
}

impl RunLead<'_> {
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

impl Drop for RunLead<'_> {
    fn drop(&mut self) {
        // Before the sender goes: a waiter that wakes because of that finds the lead free.
        self.sharing.0.lock().remove(&self.question);
    }
}

/// A duplicate's view of the lead.
pub(super) struct DuplicateCall(watch::Receiver<Phase>);

pub(super) enum WaitEnd {
    Settled(Settled),
    /// The lead is free again.
    Vacant,
    /// Patience is over; how long the runner's lease lasts, if it runs.
    Impatient(Option<Duration>),
}

impl DuplicateCall {
    pub async fn until(mut self, clock: &Clock, deadline: Moment) -> WaitEnd {
        let patience = deadline.saturating_sub(clock.now());
        let changed = async {
            loop {
                if let Phase::Settled(settled) = &*self.0.borrow_and_update() {
                    return WaitEnd::Settled(settled.clone());
                }
                if self.0.changed().await.is_err() {
                    // It may have settled and left in one go.
                    return match &*self.0.borrow() {
                        Phase::Settled(settled) => WaitEnd::Settled(settled.clone()),
                        _ => WaitEnd::Vacant,
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
        WaitEnd::Impatient(remaining)
    }
}
