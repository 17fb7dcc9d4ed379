//! How much may wait to be sent, and who is next when that is used up.
//!
//! # The promise
//! - What is not sent yet has at most [`OUTBOX_MAX`] bytes and one question more, and what is being sent has no more than
//!   that. So a server that stalls costs a client a few megabytes, however many call and give up meanwhile.
//! - Whoever finds no room waits for it, first come first served, for as long as he cares to: his own time limit goes on.
//!   He has written nothing, so he costs nothing, and if he goes, nothing is sent.
//!
//! # Its price
//! One comparison, where there is room. The first in line holds the door, and he alone is told of room; while there is a
//! line the outbox counts as full for everybody else, so nobody overtakes it.

use tokio::sync::{Mutex, Notify};

use super::{Answered, Desk, Lane, Papers};

/// What a few thousand callers at once write, and far more than a connection takes at once.
pub(super) const OUTBOX_MAX: usize = 4 << 20;

/// Where the line is.
#[derive(Default)]
pub(super) struct Room {
    door: Mutex<()>,
    made: Notify,
}

impl Room {
    /// Tells the first in line to look again.
    pub fn is_made(&self) {
        self.made.notify_one();
    }
}

/// With how many bytes the outbox counts as full: with none, while there is a line.
pub(super) struct FullAt {
    pub bytes: usize,
    in_line: usize,
}

impl Default for FullAt {
    fn default() -> Self {
        Self { bytes: OUTBOX_MAX, in_line: 0 }
    }
}

impl FullAt {
    pub fn is_waited_for(&self) -> bool {
        self.in_line > 0
    }

    fn with(&mut self, in_line: usize) {
        *self = Self { bytes: if in_line == 0 { OUTBOX_MAX } else { 0 }, in_line };
    }
}

/// A place in line, from the moment somebody found no room until he has written, or gone.
struct InLine<'a>(&'a Desk);

impl<'a> InLine<'a> {
    fn at(desk: &'a Desk) -> Self {
        let full_at = &mut desk.papers.lock().full_at;
        full_at.with(full_at.in_line + 1);
        Self(desk)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let full_at = &mut self.0.papers.lock().full_at;
        full_at.with(full_at.in_line - 1);
    }
}

impl Papers {
    /// For whoever is first in line. It is empty when it is over.
    fn is_full(&self) -> bool {
        self.outbox.len() >= OUTBOX_MAX
    }
}

impl Lane {
    /// Asks when there is room and it is one's turn.
    #[cold]
    pub async fn ask_in_turn(&self, write: impl FnOnce(&mut Vec<u8>)) -> Answered {
        let desk = &*self.0.desk;
        let place = InLine::at(desk);
        let first = desk.room.door.lock().await;
        while desk.papers.lock().is_full() {
            desk.room.made.notified().await;
        }
        let asked = desk.hand_in(desk.papers.lock(), write);
        drop(first);
        drop(place);
        asked.await
    }
}
