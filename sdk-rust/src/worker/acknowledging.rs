//! Acknowledgements go to the source together, where it can take many at once.
//!
//! ```text
//! settled ──▶ pending ──▶ as many as the source takes at once: sent by the worker that brought the last of them
//!                 └─────▶ fewer, for a millisecond: sent by the ticker
//! ```
//! A message is settled for its worker before its source knows; a crash in between delivers it again, as one before it would. Where order matters
//! nothing is gathered: a message is acknowledged before the next of its aggregate begins.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::handling::MessageEnd;
use super::looping::WorkerRun;
use super::source::{IncomingMessage, Source};
use super::verdict::GIVEN_BACK_FOR;
use crate::clock::Moment;

/// How long an acknowledgement waits for others.
const GATHER: Duration = Duration::from_millis(1);

/// A message that is settled, for its source.
pub(super) struct SettledMessage<R> {
    pub message: Arc<IncomingMessage>,
    pub receipt: R,
    /// What became of it, once the source knows.
    pub end: MessageEnd,
}

/// What is to be done after a message was added.
pub(super) enum Added<R> {
    /// These are to be sent, by the task that brought the last of them.
    Full(Vec<SettledMessage<R>>),
    /// The ticker was woken.
    First,
    Gathered,
}

/// A message that can neither be settled nor tried again at once.
pub(super) struct KeptMessage<R> {
    pub until: Moment,
    pub message: Arc<IncomingMessage>,
    pub receipt: R,
}

pub(super) struct Acknowledgements<S: Source> {
    source: Arc<S>,
    at_once: usize,
    pending: Mutex<Vec<SettledMessage<S::Receipt>>>,
    begun: Notify,
    is_ticking: AtomicBool,
    /// Held while what did not fill a batch is sent: the last flush waits for one that is under way.
    flushing: AsyncMutex<()>,
    /// The one that is kept for longest first.
    kept: Mutex<VecDeque<KeptMessage<S::Receipt>>>,
    keeping: Notify,
}

impl<S: Source> Acknowledgements<S> {
    pub fn new(source: &Arc<S>, is_ordered: bool) -> Self {
        Self {
            at_once: if is_ordered { 1 } else { source.acknowledges_at_once().max(1) },
            source: Arc::clone(source),
            pending: Mutex::default(),
            begun: Notify::new(),
            is_ticking: AtomicBool::default(),
            flushing: AsyncMutex::default(),
            kept: Mutex::default(),
            keeping: Notify::new(),
        }
    }

    pub fn add(&self, settled: SettledMessage<S::Receipt>) -> Added<S::Receipt> {
        if self.at_once == 1 {
            return Added::Full(vec![settled]);
        }
        let mut pending = self.pending.lock();
        pending.push(settled);
        if pending.len() >= self.at_once {
            return Added::Full(std::mem::replace(&mut *pending, Vec::with_capacity(self.at_once)));
        }
        drop(pending);
        if !self.is_ticking.load(Ordering::Relaxed) && !self.is_ticking.swap(true, Ordering::SeqCst) {
            self.begun.notify_one();
            return Added::First;
        }
        Added::Gathered
    }

    pub async fn send<F>(&self, running: &WorkerRun<F>, batch: Vec<SettledMessage<S::Receipt>>) {
        let (mut messages, mut receipts) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for SettledMessage { message, receipt, end } in batch {
            messages.push((message, end));
            receipts.push(receipt);
        }
        let acknowledged = self.source.acknowledge_all(receipts).await;
        let mut ends = [0; MessageEnd::COUNT];
        for ((message, end), acknowledged) in messages.iter().zip(acknowledged) {
            match acknowledged {
                Ok(()) => ends[*end as usize] += 1,
                acknowledged => running.note_acknowledged(message, *end, acknowledged),
            }
        }
        for (end, count) in MessageEnd::ALL.into_iter().zip(ends).filter(|(_, count)| *count > 0) {
            running.count_many(end, count);
        }
    }

    /// Sends what is there.
    pub async fn flush<F>(&self, running: &WorkerRun<F>) -> bool {
        let _flushing = self.flushing.lock().await;
        let pending = std::mem::take(&mut *self.pending.lock());
        let is_some = !pending.is_empty();
        if is_some {
            self.send(running, pending).await;
        }
        is_some
    }

    /// Back if there are many already, whose payloads may be large, or if order matters.
    pub fn keep<F>(
        &self,
        running: &WorkerRun<F>,
        message: KeptMessage<S::Receipt>,
    ) -> Result<(), KeptMessage<S::Receipt>> {
        let settings = &running.worker.settings;
        let mut kept = self.kept.lock();
        if settings.ordered || kept.len() >= settings.workers as usize * 2 {
            return Err(message);
        }
        kept.push_back(message);
        self.keeping.notify_one();
        Ok(())
    }

    /// Gives back what is kept, when its time has come.
    pub async fn give_back_kept<F>(&self, running: &WorkerRun<F>) {
        loop {
            let until = self.kept.lock().front().map(|kept| kept.until);
            let Some(until) = until else {
                self.keeping.notified().await;
                continue;
            };
            let clock = running.worker.client.clock();
            clock.sleep(until.saturating_sub(clock.now())).await;
            self.give_back_first(running).await;
        }
    }

    /// At the end: whatever its time is.
    pub async fn give_back_all<F>(&self, running: &WorkerRun<F>) {
        while self.give_back_first(running).await {}
    }

    async fn give_back_first<F>(&self, running: &WorkerRun<F>) -> bool {
        let first = self.kept.lock().pop_front();
        let Some(KeptMessage { message, receipt, .. }) = first else { return false };
        let acknowledged = self.source.give_back(receipt, GIVEN_BACK_FOR).await;
        running.note_acknowledged(&message, MessageEnd::GivenBack, acknowledged);
        true
    }

    /// Whether they are gathered at all.
    pub fn gathers(&self) -> bool {
        self.at_once > 1
    }

    /// Returns when there is something that did not fill a batch.
    pub async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Sends what did not fill a batch in time. False: there is nothing more.
    pub async fn turn<F>(&self, running: &WorkerRun<F>) -> bool {
        tokio::time::sleep(GATHER).await;
        if self.flush(running).await {
            return true;
        }
        self.is_ticking.store(false, Ordering::SeqCst);
        // What came between the look and the store has not woken anybody.
        !self.pending.lock().is_empty() && !self.is_ticking.swap(true, Ordering::SeqCst)
    }
}
