//! Acknowledgements go to the source together, where it can take many at once.
//!
//! ```text
//! settled ──▶ pending ──▶ as many as the source takes at once: sent by the worker that brought the last of them
//!                 └─────▶ fewer, for a millisecond: sent by the ticker
//! ```
//! A message is settled for its worker before its source knows; a crash in between delivers it again, as one before it would. Where order matters
//! nothing is gathered: a message is acknowledged before the next of its aggregate begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::handling::MessageEnd;
use super::looping::WorkerRun;
use super::source::{IncomingMessage, Source};

/// How long an acknowledgement waits for others.
const GATHER: Duration = Duration::from_millis(1);

/// A message that is settled, and whose source is to be told.
pub(super) struct SettledMessage<R> {
    pub message: Arc<IncomingMessage>,
    pub receipt: R,
    /// What became of it, once the source knows.
    pub end: MessageEnd,
}

pub(super) struct Acknowledgements<S: Source> {
    source: Arc<S>,
    at_once: usize,
    pending: Mutex<Vec<SettledMessage<S::Receipt>>>,
    begun: Notify,
    is_ticking: AtomicBool,
    /// Held while what did not fill a batch is sent: the last flush waits for one that is under way.
    flushing: AsyncMutex<()>,
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
        }
    }

    pub async fn add<F>(&self, running: &WorkerRun<F>, settled: SettledMessage<S::Receipt>) {
        if self.at_once == 1 {
            let SettledMessage { message, receipt, end } = settled;
            let told = self.source.acknowledge(receipt).await;
            return running.note_acknowledged(&message, end, told);
        }
        let full = {
            let mut pending = self.pending.lock();
            pending.push(settled);
            (pending.len() >= self.at_once).then(|| std::mem::take(&mut *pending))
        };
        match full {
            Some(full) => self.send(running, full).await,
            None if !self.is_ticking.swap(true, Ordering::SeqCst) => self.begun.notify_one(),
            None => {}
        }
    }

    async fn send<F>(&self, running: &WorkerRun<F>, batch: Vec<SettledMessage<S::Receipt>>) {
        let (mut messages, mut receipts) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for SettledMessage { message, receipt, end } in batch {
            messages.push((message, end));
            receipts.push(receipt);
        }
        let told = self.source.acknowledge_all(receipts).await;
        for ((message, end), told) in messages.iter().zip(told) {
            running.note_acknowledged(message, *end, told);
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

    /// Sends what did not fill a batch in time. Turns only while there is something.
    pub async fn tick<F>(self: Arc<Self>, running: Arc<WorkerRun<F>>) {
        loop {
            self.begun.notified().await;
            loop {
                tokio::time::sleep(GATHER).await;
                if self.flush(&running).await {
                    continue;
                }
                self.is_ticking.store(false, Ordering::SeqCst);
                // What came between the look and the store has not woken anybody.
                if self.pending.lock().is_empty() || self.is_ticking.swap(true, Ordering::SeqCst) {
                    break;
                }
            }
        }
    }
}
