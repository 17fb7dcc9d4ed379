//! An entry of a ledger: a message that failed, and what has become of it. There can be a million of them: what only some need
//! is kept apart.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::config::Class;
use super::message::Message;
use super::request::{Death, Place};
use super::view::Attempt;
use crate::limits::ATTEMPTS_KEPT;
use crate::time::{Instant, Span};

/// What the taker with the last fence has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Word {
    #[default]
    None,
    Failed,
    Returned,
}

impl Word {
    pub const ALL: [Self; 3] = [Self::None, Self::Failed, Self::Returned];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub message: Message,
    /// Of the last failure; shared with others of the group where it is the same.
    pub error: Arc<[u8]>,
    pub past: Option<Box<Past>>,
    /// Under which it was last taken; 0 if it never was.
    pub fence: u64,
    /// Waiting: when it is due. Taken: when it was due. Otherwise: since when it is there.
    pub at: Instant,
    /// Since when it is in its place.
    pub since: Instant,
    /// The last failure; until the first, when it came.
    pub last_at: Instant,
    /// What the last failure makes it wait, in milliseconds.
    pub delay_ms: u32,
    /// The number of its group; 0 if it has never failed.
    pub group: u32,
    /// The case under which it is being redriven; 0: none.
    pub case: u32,
    pub attempt: u16,
    pub deaths: u16,
    pub lapses: u16,
    pub place: Place,
    pub class: Class,
    pub word: Word,
    pub reason: Option<Death>,
    pub held: bool,
    pub error_is_cut: bool,
}

/// What only entries have that failed more than once, or died.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Past {
    /// If it was another than the last.
    pub first_error: Option<Arc<[u8]>>,
    /// Earlier failures; the last one is in the entry itself.
    pub attempts: Vec<Attempt>,
    /// The cases that redrove it.
    pub cases: Vec<u32>,
    /// The first failure, if there were several.
    pub first_at: Option<Instant>,
    /// The last death, if it is not dead any more.
    pub died_at: Option<Instant>,
    pub redriven_at: Option<Instant>,
}

/// What the indexes take for one entry, about.
const INDEXES: usize = 96;

impl Entry {
    pub fn new(message: Message, at: Instant) -> Self {
        Self {
            message,
            error: Arc::default(),
            past: None,
            fence: 0,
            at,
            since: at,
            last_at: at,
            delay_ms: 0,
            group: 0,
            case: 0,
            attempt: 0,
            deaths: 0,
            lapses: 0,
            place: Place::Waiting,
            class: Class::default(),
            word: Word::None,
            reason: None,
            held: false,
            error_is_cut: false,
        }
    }

    pub fn past_mut(&mut self) -> &mut Past {
        self.past.get_or_insert_default()
    }

    pub fn cases(&self) -> &[u32] {
        self.past.as_ref().map_or(&[], |past| &past.cases)
    }

    /// From here on the age of failures that are not counted is reckoned.
    pub fn age_since(&self) -> Instant {
        self.past.as_ref().and_then(|past| past.redriven_at).unwrap_or_else(|| self.first_at())
    }

    pub fn delay(&self) -> Span {
        Span::from_ms(self.delay_ms.into())
    }

    pub fn has_failed(&self) -> bool {
        self.group != 0
    }

    /// The last failures, the latest last.
    pub fn attempts(&self) -> Vec<Attempt> {
        let earlier = self.past.as_ref().map_or(&[][..], |past| &past.attempts);
        let last = self.has_failed().then(|| self.last_attempt());
        earlier.iter().copied().chain(last).collect()
    }

    fn last_attempt(&self) -> Attempt {
        Attempt { at: self.last_at, class: self.class, delay: self.delay() }
    }

    /// Another failure follows: the last one becomes an earlier one.
    pub fn remember_attempt(&mut self) {
        let last = self.last_attempt();
        let past = self.past_mut();
        past.first_at.get_or_insert(last.at);
        let attempts = &mut past.attempts;
        if attempts.len() + 1 >= ATTEMPTS_KEPT {
            attempts.remove(0);
        }
        attempts.push(last);
    }

    /// It will not be dead any more: its death is kept.
    pub fn remember_death(&mut self) {
        if self.place == Place::Dead {
            let died = self.at;
            self.past_mut().died_at = Some(died);
        }
    }

    pub fn died_at(&self) -> Option<Instant> {
        let earlier = self.past.as_ref().and_then(|past| past.died_at);
        if self.place == Place::Dead { Some(self.at) } else { earlier }
    }

    pub fn first_at(&self) -> Instant {
        self.past.as_ref().and_then(|past| past.first_at).unwrap_or(self.last_at)
    }

    pub fn first_error(&self) -> &Arc<[u8]> {
        self.past.as_ref().and_then(|past| past.first_error.as_ref()).unwrap_or(&self.error)
    }

    /// True if DONE or FAIL by its last fence still counts.
    pub fn is_under(&self, fence: u64) -> bool {
        self.fence == fence && fence != 0
    }

    pub fn is_redriven(&self) -> bool {
        self.case != 0
    }

    /// Waiting, taken, parked or dead: its aggregate is busy with it.
    pub fn is_live(&self) -> bool {
        matches!(self.place, Place::Waiting | Place::Taken | Place::Parked | Place::Dead)
    }

    /// Bytes it takes, about.
    pub fn bytes(&self) -> usize {
        let past = self.past.as_ref().map_or(0, |past| {
            let first = past.first_error.as_ref().map_or(0, |error| error.len() + 16);
            size_of::<Past>() + past.attempts.len() * size_of::<Attempt>() + past.cases.len() * 4 + first
        });
        size_of::<Self>() + INDEXES + self.message.heap_bytes() + self.error.len() + past
    }
}

/// There can be a million: a field more would cost sixteen bytes for each.
const _: () = assert!(size_of::<Entry>() <= 96);
