//! Settles messages at the broker: as many as possible with one frame.
//!
//! The broker numbers the deliveries of a channel. "All up to this number" acknowledges every one of them that is outstanding, so it is said of the
//! longest run that nothing outstanding lies in: one handler that takes long keeps those behind it apart, and they are acknowledged one by one.
//! What is sent and what is noted of it belong together: a number that is acknowledged twice closes the channel, and one that was given back
//! must not lie in a run. So one at a time speaks of a channel.
//!
//! # What a frame is worth
//! AMQP confirms no acknowledgement. A channel of RabbitMQ hands the first 32 on to a quorum queue and keeps those that follow until the queue has stored
//! some. What it keeps is lost when the channel closes. So it is counted how many frames were sent since the channel is known to keep none.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapin::options::{BasicAckOptions, BasicNackOptions};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::link::source_error;
use super::source::RabbitReceipt;
use crate::worker::source::SourceError;

/// How long a frame may take to be sent. One that lapin is given at the moment when its connection ends may lie there for ever, and the worker with it.
const FRAME_BOUND: Duration = Duration::from_secs(5);

/// The deliveries of one channel that are not settled.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// As many as the prefetch allows, at most.
    outstanding: Mutex<BTreeSet<u64>>,
    speaking: AsyncMutex<()>,
    /// Frames that were, or may have been, sent.
    begun: AtomicU64,
    /// Frames that were sent.
    sent: AtomicU64,
    /// Of these it is known that the channel does not keep them.
    handed_on: AtomicU64,
}

impl Settling {
    /// It was delivered.
    pub fn begin(&self, tag: u64) {
        self.outstanding.lock().insert(tag);
    }

    async fn frame(&self, sending: impl Future<Output = lapin::Result<bool>>) -> Result<(), SourceError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let settled = match tokio::time::timeout(FRAME_BOUND, sending).await {
            Ok(sent) => settled(sent),
            Err(_) => Err(SourceError("the connection did not send it in time".to_owned())),
        };
        self.sent.fetch_add(1, Ordering::SeqCst);
        settled
    }

    /// How many frames were sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// The channel has handed on the first `frames`.
    pub fn note_handed_on(&self, frames: u64) {
        self.handed_on.fetch_max(frames, Ordering::SeqCst);
    }

    /// How many frames the channel may keep.
    pub fn maybe_kept(&self) -> u64 {
        self.begun.load(Ordering::SeqCst).saturating_sub(self.handed_on.load(Ordering::SeqCst))
    }

    /// These are to be acknowledged. How many of them, from the first on, one frame can speak of.
    fn run(&self, sorted: &[RabbitReceipt]) -> usize {
        let mut outstanding = self.outstanding.lock();
        for receipt in sorted {
            outstanding.remove(&receipt.tag);
        }
        match outstanding.first() {
            Some(first) => sorted.partition_point(|receipt| receipt.tag < *first),
            None => sorted.len(),
        }
    }
}

pub(super) async fn give_back(receipt: RabbitReceipt) -> Result<(), SourceError> {
    let RabbitReceipt { acker, tag, settling } = receipt;
    let _speaking = settling.speaking.lock().await;
    let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
    let settled = settling.frame(acker.nack(options)).await;
    settling.outstanding.lock().remove(&tag);
    settled
}

/// As many results as receipts, in their order.
pub(super) async fn acknowledge_all(receipts: Vec<RabbitReceipt>) -> Vec<Result<(), SourceError>> {
    let mut results: Vec<Result<(), SourceError>> = receipts.iter().map(|_| Ok(())).collect();
    let mut left: Vec<(usize, RabbitReceipt)> = receipts.into_iter().enumerate().collect();
    while let Some((_, first)) = left.first() {
        let settling = Arc::clone(&first.settling);
        let (mut ours, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(_, receipt)| Arc::ptr_eq(&receipt.settling, &settling));
        left = others;
        ours.sort_unstable_by_key(|(_, receipt)| receipt.tag);
        let (places, ours): (Vec<usize>, Vec<RabbitReceipt>) = ours.into_iter().unzip();
        for (place, result) in places.into_iter().zip(acknowledge_on_channel(&settling, &ours).await) {
            results[place] = result;
        }
    }
    results
}

/// Of one channel, sorted.
async fn acknowledge_on_channel(settling: &Settling, sorted: &[RabbitReceipt]) -> Vec<Result<(), SourceError>> {
    let _speaking = settling.speaking.lock().await;
    let run = settling.run(sorted);
    let mut results = Vec::with_capacity(sorted.len());
    if let Some(last) = run.checked_sub(1) {
        let together = settling.frame(sorted[last].acker.ack(BasicAckOptions { multiple: run > 1 })).await;
        results.extend(std::iter::repeat_n(together, run));
    }
    let apart = sorted[run..].iter().map(|receipt| settling.frame(receipt.acker.ack(BasicAckOptions::default())));
    results.extend(futures_util::future::join_all(apart).await);
    results
}

fn settled(reply: lapin::Result<bool>) -> Result<(), SourceError> {
    match reply {
        Ok(true) => Ok(()),
        Ok(false) => Err(SourceError("the channel it came on is closed".to_owned())),
        Err(error) => Err(source_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::Settling;

    /// A frame that lapin queues when its connection has just ended is neither sent nor refused.
    #[tokio::test(start_paused = true)]
    async fn a_frame_that_is_never_sent_holds_no_worker() {
        let settling = Settling::default();
        let sent = settling.frame(std::future::pending()).await;
        assert_eq!(sent.expect_err("never sent").0, "the connection did not send it in time");
    }
}
