//! What this process believes about the circuit, in one word that every call reads.
//!
//! ```text
//!    63                                             2 1  0
//!   |  until (microseconds of the process' clock)    |kind|
//! ```
//! - *ask*: nothing is believed: half-open, ramping, unknown, or heard too long ago.
//! - *closed* until: calls are admitted here.
//! - *open* until: calls are refused here. Forced open is believed only for as long as closed is: an operator who lifts it
//!   is not to wait.
//!
//! # Which answer is newer
//! Answers may overtake each other. Generations grow, so an answer of a lower one is old; except that a key may be lost,
//! and then everything starts at 0 again. An answer of a lower generation is therefore believed only if nothing was heard
//! between its question and itself.
//!
//! # Failures on their way
//! While a failure is being sent, nothing but the answer to it may make this process believe that the circuit is closed:
//! see [`hold`](View::hold). A call reads the unsent outcomes first and this word second, so it sees a failure in one or
//! the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::batch::{Tag, Unsent};
use super::state::{State, Transition};
use crate::clock::Moment;
use crate::limiter::millis;

#[derive(Debug, Default)]
pub(super) struct View {
    gate: AtomicU64,
    /// A failure was taken from the unsent outcomes and is not answered.
    holding: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    state: Option<State>,
    generation: u64,
    tag: Tag,
    /// Answers believed so far.
    heard: u64,
    /// When a forced-open circuit will admit again, if that is known.
    retry_at: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belief {
    Ask,
    Closed,
    /// And when it may be asked again: `None` if nobody knows.
    Open(Option<Duration>),
    /// It was open, and its time is over: one may ask.
    OpenIsOver,
}

const ASK: u64 = 0;
const CLOSED: u64 = 1;
const OPEN: u64 = 2;
const FORCED_OPEN: u64 = 3;

/// When something was asked, and after how many answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub sent: Moment,
    heard: u64,
}

/// What an answer says.
#[derive(Debug, Clone, Copy)]
pub(super) struct News {
    pub state: State,
    pub generation: u64,
    pub retry_after_ms: i64,
    pub from: ReplyOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyOf {
    Admit,
    /// The answer to the last unsent failure, if there was any.
    Tally,
    /// It was looked at, without saying our options.
    State,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// What calls that are admitted now count under; `None`: the answer is old, and is not believed.
    pub tag: Option<Tag>,
    pub transition: Option<Transition>,
}

impl View {
    pub fn gate(&self, now: Moment) -> Belief {
        let word = self.gate.load(Ordering::SeqCst);
        let (kind, until_us, now_us) = (word & 3, word >> 2, micros(now));
        match kind {
            CLOSED if now_us < until_us => Belief::Closed,
            OPEN if now_us < until_us => Belief::Open(Some(Duration::from_micros(until_us - now_us))),
            FORCED_OPEN if now_us < until_us => {
                Belief::Open(self.seen.lock().retry_at.map(|at| at.saturating_sub(now)))
            }
            OPEN | FORCED_OPEN => Belief::OpenIsOver,
            _ => Belief::Ask,
        }
    }

    /// Whether it was closed when it was last heard of, however long ago.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.gate.load(Ordering::SeqCst) & 3 == CLOSED
    }

    /// Believes no longer that it is closed if that was heard too long ago.
    pub fn expire(&self, now: Moment) {
        let word = self.gate.load(Ordering::SeqCst);
        if word & 3 == CLOSED && word >> 2 <= micros(now) {
            // A change made meanwhile knows more.
            let _ = self.gate.compare_exchange(word, ASK, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Believes nothing until somebody asks.
    pub fn ask(&self) {
        self.gate.store(ASK, Ordering::SeqCst);
    }

    /// A failure is about to be sent.
    pub fn hold(&self) {
        self.holding.store(true, Ordering::SeqCst);
        self.ask();
    }

    /// It was answered, or will never be.
    pub fn release(&self) {
        self.holding.store(false, Ordering::SeqCst);
    }

    pub fn question(&self, sent: Moment) -> Question {
        Question { sent, heard: self.seen.lock().heard }
    }

    /// The generation that calls under `tag` were admitted in, if it is still that.
    pub fn generation_of(&self, tag: Tag) -> Option<u64> {
        let seen = self.seen.lock();
        (seen.tag == tag).then_some(seen.generation)
    }

    /// Where it stood when it was last heard of.
    pub fn state(&self) -> Option<State> {
        self.seen.lock().state
    }

    pub fn hear(&self, news: News, question: Question, trust: Duration, unsent: &Unsent) -> Accepted {
        let mut seen = self.seen.lock();
        let is_newer = news.generation >= seen.generation || question.heard == seen.heard;
        if !is_newer && seen.state.is_some() {
            return Accepted { tag: None, transition: None };
        }
        seen.heard += 1;
        let is_new = seen.state.is_none() || news.generation != seen.generation;
        if is_new {
            seen.tag = unsent.restart();
        }
        let transition = match seen.state {
            Some(previous) if previous != news.state => {
                Some(Transition { previous, new: news.state, generation: news.generation })
            }
            _ => None,
        };
        (seen.state, seen.generation) = (Some(news.state), news.generation);
        let retry_after = millis(news.retry_after_ms);
        seen.retry_at = retry_after.map(|wait| question.sent + wait);
        let trusted = question.sent + trust;
        let word = match (news.state, seen.retry_at) {
            // Our options may have gone with what was there before: the next call brings them along.
            (state, _) if state.admits_all() && is_new && matches!(news.from, ReplyOf::Tally | ReplyOf::State) => ASK,
            (state, _) if state.admits_all() => micros(trusted) << 2 | CLOSED,
            // A report does not say how long; zero is what an open circuit says whose time is over.
            (State::Open, Some(at)) if at > question.sent => micros(at) << 2 | OPEN,
            (State::ForcedOpen, at) if at != Some(question.sent) => {
                micros(at.unwrap_or(trusted).min(trusted)) << 2 | FORCED_OPEN
            }
            _ => ASK,
        };
        let old = self.gate.load(Ordering::SeqCst);
        // Of two answers of one kind the one that was asked for later holds.
        if !(old & 3 == word & 3 && !is_new && old > word) {
            self.gate.store(word, Ordering::SeqCst);
        }
        if word & 3 == CLOSED && self.holding.load(Ordering::SeqCst) {
            self.ask();
        }
        Accepted { tag: Some(seen.tag), transition }
    }
}

fn micros(moment: Moment) -> u64 {
    u64::try_from(moment.as_micros()).unwrap_or(u64::MAX).min(u64::MAX >> 2)
}
#[cfg(test)]
#[path = "tests/view.rs"]
mod tests;
