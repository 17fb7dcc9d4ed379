//! What this process believes about the circuit, and what it has counted and not yet sent, behind one lock that every call takes for
//! a few instructions.
//!
//! - *ask*: nothing is believed: half-open, ramping, unknown, or heard too long ago.
//! - *closed* until: calls are admitted here.
//! - *open* until: calls are refused here. Forced open is believed only for as long as closed is: an operator who lifts it
//!   is not to wait.
//!
//! # Which reply is newer
//! Replies may overtake each other. Generations grow, so a reply of a lower one is old; except that a key may be lost,
//! and then everything starts at 0 again. A reply of a lower generation is therefore believed only if nothing was heard
//! between its question and itself.
//!
//! # Failures on their way
//! No call is admitted here while a failure is unsent. While one is being sent, nothing but the reply to it may make this process
//! believe that the circuit is closed.

use std::time::Duration;

use parking_lot::Mutex;

use super::batch::{CountedOutcome, Counts};
use super::state::{State, Transition, admits_all};
use crate::clock::{Clock, Moment};
use crate::limiter::millis;

/// Which generation an outcome belongs to, as far as this process has seen them.
pub(super) type Tag = u64;

#[derive(Debug, Default)]
pub(super) struct View(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    gate: BelievedUntil,
    state: Option<State>,
    generation: u64,
    tag: Tag,
    /// Replies believed so far.
    heard: u64,
    /// When a forced-open circuit will admit again, if that is known.
    retry_at: Option<Moment>,
    /// What was counted under `tag`.
    unsent: Counts,
    /// A failure was taken from the unsent outcomes and is not answered.
    is_holding: bool,
}

/// In this order: of two replies of one kind the one that is believed longer was asked for later.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum BelievedUntil {
    #[default]
    Ask,
    Closed(Moment),
    Open(Moment),
    ForcedOpen(Moment),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belief {
    Ask,
    /// And what calls count under.
    Closed(Tag),
    /// And when it may be asked again: `None` if nobody knows.
    Open(Option<Duration>),
    /// It was open, and its time is over: one may ask.
    OpenIsOver,
}

/// When something was asked, and after how many replies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub sent: Moment,
    heard: u64,
}

/// What a reply says.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateReply {
    pub state: State,
    pub generation: u64,
    pub retry_after_ms: i64,
    pub from: ReplyOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyOf {
    Admit,
    /// The reply to the last unsent failure, if there was any.
    Tally,
    /// It was looked at, without saying our options.
    State,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// What calls that are admitted now count under; `None`: the reply is old, and is not believed.
    pub tag: Option<Tag>,
    pub transition: Option<Transition>,
}

impl View {
    /// Whether a call is admitted here, under what it counts, and when it begins.
    ///
    /// While calls come thick and fast only some of them look at the clock, unless `is_timed`: see [`Counts::is_in_a_rush`]. The
    /// reply to their batch, due within the flush interval, renews the trust or ends it.
    #[inline]
    pub fn admit(&self, clock: &Clock, is_timed: bool) -> Option<(Tag, Moment)> {
        let seen = self.0.lock();
        let BelievedUntil::Closed(until) = seen.gate else { return None };
        if seen.unsent.failures > 0 {
            return None;
        }
        if !is_timed && seen.unsent.is_in_a_rush() {
            return Some((seen.tag, Moment::ZERO));
        }
        let now = clock.now();
        (now < until).then_some((seen.tag, now))
    }

    pub fn gate(&self, now: Moment) -> Belief {
        let seen = self.0.lock();
        match seen.gate {
            BelievedUntil::Closed(until) if now < until => Belief::Closed(seen.tag),
            BelievedUntil::Open(until) if now < until => Belief::Open(Some(until - now)),
            BelievedUntil::ForcedOpen(until) if now < until => {
                Belief::Open(seen.retry_at.map(|at| at.saturating_sub(now)))
            }
            BelievedUntil::Open(_) | BelievedUntil::ForcedOpen(_) => Belief::OpenIsOver,
            _ => Belief::Ask,
        }
    }

    /// Believes no longer that it is closed if that was heard too long ago.
    pub fn expire(&self, now: Moment) {
        let mut seen = self.0.lock();
        if matches!(seen.gate, BelievedUntil::Closed(until) if until <= now) {
            seen.gate = BelievedUntil::Ask;
        }
    }

    /// Believes nothing until somebody asks.
    pub fn ask(&self) {
        self.0.lock().gate = BelievedUntil::Ask;
    }

    /// Counts a call that was admitted here. How many are unsent; `None` if it belongs to another generation.
    #[inline]
    pub fn record(&self, tag: Tag, outcome: CountedOutcome) -> Option<u64> {
        let mut seen = self.0.lock();
        (seen.tag == tag).then(|| {
            seen.unsent.add(outcome);
            seen.unsent.calls()
        })
    }

    /// Takes what is unsent, and the generation it belongs to. A failure among it is held until [`release`](Self::release).
    pub fn take(&self) -> (Tag, u64, Counts) {
        let mut seen = self.0.lock();
        let unsent = std::mem::take(&mut seen.unsent);
        if unsent.failures > 0 {
            (seen.is_holding, seen.gate) = (true, BelievedUntil::Ask);
        }
        (seen.tag, seen.generation, unsent)
    }

    /// The failure that was taken was answered, or will never be.
    pub fn release(&self) {
        self.0.lock().is_holding = false;
    }

    pub fn has_unsent(&self) -> bool {
        self.0.lock().unsent.calls() > 0
    }

    /// What calls that are admitted now count under.
    pub fn tag(&self) -> Tag {
        self.0.lock().tag
    }

    pub fn question(&self, sent: Moment) -> Question {
        Question { sent, heard: self.0.lock().heard }
    }

    /// Where it stood when it was last heard of.
    pub fn state(&self) -> Option<State> {
        self.0.lock().state
    }

    pub fn hear(&self, state_reply: StateReply, question: Question, trust: Duration) -> Accepted {
        let mut seen = self.0.lock();
        let is_newer = state_reply.generation >= seen.generation || question.heard == seen.heard;
        if !is_newer && seen.state.is_some() {
            return Accepted { tag: None, transition: None };
        }
        seen.heard += 1;
        let is_new = seen.state.is_none() || state_reply.generation != seen.generation;
        if is_new {
            // What is unsent belongs to no generation any more.
            (seen.tag, seen.unsent) = (seen.tag + 1, Counts::default());
        }
        let transition = match seen.state {
            Some(previous) if previous != state_reply.state => {
                Some(Transition { previous, new: state_reply.state, generation: state_reply.generation })
            }
            _ => None,
        };
        (seen.state, seen.generation) = (Some(state_reply.state), state_reply.generation);
        let retry_after = millis(state_reply.retry_after_ms);
        seen.retry_at = retry_after.map(|wait| question.sent + wait);
        let trusted = question.sent + trust;
        let gate = match (state_reply.state, seen.retry_at) {
            // Our options may have gone with what was there before: the next call brings them along.
            (state, _)
                if admits_all(state) && is_new && matches!(state_reply.from, ReplyOf::Tally | ReplyOf::State) =>
            {
                BelievedUntil::Ask
            }
            (state, _) if admits_all(state) => BelievedUntil::Closed(trusted),
            // A report does not say how long; zero is what an open circuit says whose time is over.
            (State::Open, Some(at)) if at > question.sent => BelievedUntil::Open(at),
            (State::ForcedOpen, at) if at != Some(question.sent) => {
                BelievedUntil::ForcedOpen(at.unwrap_or(trusted).min(trusted))
            }
            _ => BelievedUntil::Ask,
        };
        let is_one_kind = std::mem::discriminant(&seen.gate) == std::mem::discriminant(&gate);
        if !is_one_kind || is_new || seen.gate < gate {
            seen.gate = gate;
        }
        if seen.is_holding && matches!(gate, BelievedUntil::Closed(_)) {
            seen.gate = BelievedUntil::Ask;
        }
        Accepted { tag: Some(seen.tag), transition }
    }
}

#[cfg(test)]
#[path = "tests/view.rs"]
mod tests;
