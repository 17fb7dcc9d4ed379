//! What is told to the broker of messages: as many as can be with one frame.
//!
//! The broker numbers the deliveries of a channel. "All up to this number" acknowledges every one of them that is outstanding, so it is said of the
//! longest run that nothing outstanding lies in: one handler that takes long keeps those behind it apart, and they are acknowledged one by one.
//! What is sent and what is noted of it belong together: a number that is acknowledged twice closes the channel, and one that was given back
//! must not lie in a run. So one at a time speaks of a channel.

use std::collections::BTreeSet;
use std::sync::Arc;

use lapin::options::{BasicAckOptions, BasicNackOptions};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::link::told;
use super::source::RabbitReceipt;
use crate::worker::source::SourceError;

/// The deliveries of one channel that are not settled.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// As many as the prefetch allows, at most.
    outstanding: Mutex<BTreeSet<u64>>,
    speaking: AsyncMutex<()>,
}

impl Settling {
    /// It was delivered.
    pub fn begin(&self, tag: u64) {
        self.outstanding.lock().insert(tag);
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
    let settled = settled(acker.nack(options).await);
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
        let together = settled(sorted[last].acker.ack(BasicAckOptions { multiple: run > 1 }).await);
        results.extend(std::iter::repeat_n(together, run));
    }
    let apart = sorted[run..].iter().map(|receipt| receipt.acker.ack(BasicAckOptions::default()));
    results.extend(futures_util::future::join_all(apart).await.into_iter().map(settled));
    results
}

fn settled(answer: lapin::Result<bool>) -> Result<(), SourceError> {
    match answer {
        Ok(true) => Ok(()),
        Ok(false) => Err(SourceError("the channel it came on is closed".to_owned())),
        Err(error) => Err(told(error)),
    }
}
