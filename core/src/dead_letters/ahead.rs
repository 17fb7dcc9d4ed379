//! Looking ahead. A ledger can be larger than what lies close to the processor, and what a call is about is scattered over it. So
//! a call about many entries looks at all of them first: their memory then comes at the same time, and not one after the other.

use super::ledger::Ledger;
use super::message::hash;

impl Ledger {
    /// Looks at what is about to be ended by its taker.
    pub(super) fn look_at_taken(&self, pairs: &[(&[u8], u64)]) {
        if pairs.len() > 1 {
            self.look_at_messages(pairs.iter().filter_map(|(_, fence)| self.arrival_by_fence(*fence)));
            self.by_id.look_ahead(pairs.iter().map(|(id, _)| hash(id)));
        }
    }

    /// The same for the messages of entries.
    pub(super) fn look_at_messages(&self, arrivals: impl Iterator<Item = u64>) {
        let messages = arrivals.filter_map(|arrival| self.entry(arrival)).map(|entry| &entry.message);
        core::hint::black_box(messages.fold(0, |all, message| all ^ message.first_byte()));
    }

    /// The same for everything that is known of entries.
    pub(super) fn look_at_entries(&self, arrivals: &[u64]) {
        self.look_at_messages(arrivals.iter().copied());
        let entries = arrivals.iter().filter_map(|arrival| self.entry(*arrival));
        self.by_id.look_ahead(entries.map(|entry| hash(entry.message.id())));
    }
}
