//! The edits a step makes, and the one function that makes them. A value travels once, when it is published.

use alloc::boxed::Box;

use smallvec::SmallVec;

use super::state::{Cached, Flight, LeadEnd, Leader, LoadPause, Way};
use crate::limits::ENDS_REMEMBERED;
use crate::time::{Instant, Span};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlightEdit {
    Led(Box<Leader>),
    /// The lead has another lease.
    Timed {
        lease: Span,
        ends: Instant,
    },
    Ended {
        at: Instant,
        way: Way,
    },
    Kept(Cached),
    Dropped,
    /// The value is stale, whatever a clock shows, until `stale_until`.
    Softened {
        stale_until: Instant,
    },
    Paused(LoadPause),
    Resumed,
    /// A load was voided when the name was at this generation.
    Known {
        generation: u64,
    },
    /// The clock was set back: value and pause began no later than `now`.
    Mended {
        now: Instant,
    },
}

pub type FlightEdits = SmallVec<[FlightEdit; 1]>;

impl Flight {
    /// The only writer. An edit that fits nothing here changes nothing.
    pub fn apply(&mut self, edit: FlightEdit) {
        match edit {
            FlightEdit::Led(leader) => {
                self.last_fence = self.last_fence.max(leader.fence);
                self.leader = Some(leader);
            }
            FlightEdit::Timed { lease, ends } => {
                if let Some(leader) = &mut self.leader {
                    leader.lease = lease;
                    leader.ends = ends;
                }
            }
            FlightEdit::Ended { at, way } => {
                if let Some(leader) = self.leader.take() {
                    let Leader { token, fence, .. } = *leader;
                    // A token learns of its last end; an earlier one would only be in the way.
                    self.ended.retain(|earlier| earlier.token != token);
                    if self.ended.len() == ENDS_REMEMBERED {
                        self.ended.remove(0);
                    }
                    // Nearly always there is one: capacity for four would be most of a small value.
                    self.ended.reserve_exact(1);
                    self.ended.push(LeadEnd { token, fence, at, way });
                }
            }
            FlightEdit::Kept(value) => self.value = Some(value),
            FlightEdit::Dropped => self.value = None,
            FlightEdit::Softened { stale_until } => {
                if let Some(value) = &mut self.value {
                    value.fresh_until = Instant::EPOCH;
                    value.stale_until = stale_until;
                }
            }
            FlightEdit::Paused(pause) => self.pause = Some(pause),
            FlightEdit::Resumed => self.pause = None,
            FlightEdit::Known { generation } => self.generation = generation,
            FlightEdit::Mended { now } => self.mend(now),
        }
    }

    fn mend(&mut self, now: Instant) {
        if let Some(value) = &mut self.value {
            let back = now.until(value.at);
            value.at = earlier(value.at, back);
            value.fresh_until = earlier(value.fresh_until, back);
            value.stale_until = earlier(value.stale_until, back);
        }
        if let Some(pause) = &mut self.pause {
            let back = now.until(pause.at);
            pause.at = earlier(pause.at, back);
            pause.until = earlier(pause.until, back);
        }
    }
}

/// `at`, earlier by `back`, as far as an instant can be stored.
fn earlier(at: Instant, back: Span) -> Instant {
    at.minus(back).max(Instant::EPOCH)
}
