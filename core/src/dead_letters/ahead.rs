//! Looking ahead. A ledger can be larger than what lies close to the processor, and what a call is about is scattered over it. So
//! a call about many entries looks at all of them first: their memory then comes at the same time, and not one after the other.

use alloc::vec::Vec;
use core::hint::black_box;

use super::entry::Entry;
use super::ledger::{Ledger, TakenBatch};
use crate::time::Instant;

/// What of a message has its texts, nearly always.
const TEXTS: usize = 128;
/// What of a message is worth a look before it is copied.
const COPIED: usize = 1_024;

impl Ledger {
    /// The first entries that are due, at most `count`.
    pub(super) fn due_entries(&self, now: Instant, count: usize) -> Vec<(Instant, u64, &Entry)> {
        let due = || self.due.iter().take_while(|(due, _)| *due <= now).take(count);
        let entries = self.entries.look_at(due().map(|(_, arrival)| *arrival));
        due().zip(entries).filter_map(|((due, arrival), entry)| Some((*due, *arrival, entry?))).collect()
    }

    /// The entries of a batch, whose messages are about to be copied.
    pub(super) fn given(&self, batch: &TakenBatch) -> Vec<&Entry> {
        let entries: Vec<&Entry> = batch.members().filter_map(|arrival| self.entry(arrival)).collect();
        black_box(entries.iter().fold(0, |all, entry| all ^ entry.message.look_at(COPIED)));
        entries
    }

    /// What is about to be ended by its takers.
    pub(super) fn look_at_taken(&self, pairs: &[(&[u8], u64)]) {
        if pairs.len() > 1 {
            self.look_at_messages(pairs.iter().filter_map(|(_, fence)| self.arrival_by_fence(*fence)));
            let hashes: Vec<u64> = pairs.iter().map(|(id, _)| self.by_id.hash(id)).collect();
            self.by_id.look_ahead(hashes.iter().copied());
            self.dones.look_ahead(&hashes);
        }
    }

    /// What is about to be removed.
    pub(super) fn look_at_entries(&self, arrivals: &[u64]) {
        self.look_at_messages(arrivals.iter().copied());
        let entries = arrivals.iter().filter_map(|arrival| self.entry(*arrival));
        self.by_id.look_ahead(entries.map(|entry| self.by_id.hash(entry.message.id())));
    }

    /// What is about to be put elsewhere.
    pub(super) fn look_at_messages(&self, arrivals: impl Iterator<Item = u64>) {
        let entries = arrivals.filter_map(|arrival| self.entry(arrival));
        black_box(entries.fold(0, |all, entry| all ^ entry.message.look_at(TEXTS)));
    }
}
