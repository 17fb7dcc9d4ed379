//! How much may wait to be sent, and who is next when that is used up.
//!
//! # The promise
//! - What is not sent yet has at most [`OUTBOX_MAX`] bytes and one question more, and what is being sent has no more than
//!   that. So a server that stalls costs a client a few megabytes, however many call and give up meanwhile.
//! - A caller that finds no capacity waits for it, first come first served, within its own time limit.
//!   It has written nothing, so it costs nothing, and if it goes, nothing is sent.
//!
//! # Its price
//! One comparison, where there is capacity. The first waiter holds the door, and it alone is woken when there is capacity; while there is a
//! queue the outbox counts as full for everybody else, so nobody overtakes it.

use tokio::sync::{Mutex, Notify};

use super::{Answered, CallerGone, Connection, Pending, Prefix, Submissions};

/// What a few thousand callers at once write, and far more than a connection takes at once.
pub(super) const OUTBOX_MAX: usize = 4 << 20;

/// Where the queue is.
#[derive(Default)]
pub(super) struct Capacity {
    door: Mutex<()>,
    made: Notify,
}

impl Capacity {
    /// Wakes the first waiter, so that it looks again.
    pub fn has_grown(&self) {
        self.made.notify_one();
    }
}

/// With how many bytes the outbox counts as full: with none, while there is a queue.
pub(super) struct FullAt {
    pub bytes: usize,
    queued: usize,
}

impl Default for FullAt {
    fn default() -> Self {
        Self { bytes: OUTBOX_MAX, queued: 0 }
    }
}

impl FullAt {
    pub fn is_waited_for(&self) -> bool {
        self.queued > 0
    }

    fn with(&mut self, queued: usize) {
        *self = Self { bytes: if queued == 0 { OUTBOX_MAX } else { 0 }, queued };
    }
}

/// A position in the queue, from the moment a caller found no capacity until it has written, or gone.
struct QueuePosition<'a>(&'a Submissions);

impl<'a> QueuePosition<'a> {
    fn at(submissions: &'a Submissions) -> Self {
        let full_at = &mut submissions.pending.lock().full_at;
        full_at.with(full_at.queued + 1);
        Self(submissions)
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let full_at = &mut self.0.pending.lock().full_at;
        full_at.with(full_at.queued - 1);
    }
}

impl Pending {
    /// For the first of those that wait. It is empty when the connection is over.
    fn is_full(&self) -> bool {
        self.outbox.len() >= OUTBOX_MAX
    }
}

impl Connection {
    /// Asks when there is capacity and it is one's turn.
    #[cold]
    pub async fn ask_when_there_is_capacity(&self, write: impl FnOnce(&mut Vec<u8>)) -> Answered {
        let submissions = &*self.0.submissions;
        let place = QueuePosition::at(submissions);
        let first = submissions.capacity.door.lock().await;
        while submissions.pending.lock().is_full() {
            submissions.capacity.made.notified().await;
        }
        let asked = submissions.hand_in(submissions.pending.lock(), (Prefix::None, CallerGone::Forget), write);
        drop(first);
        drop(place);
        asked.await
    }
}
