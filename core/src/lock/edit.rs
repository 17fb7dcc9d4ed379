//! The edits a step makes, and the one function that makes them.

use smallvec::SmallVec;

use super::holder::{EndedHolding, Holder, Mode};
use super::holders::Holders;
use crate::time::{Instant, Span};
use crate::waited::{Crowd, End};

/// One change of the holders, with absolute values. Holders are named by their fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderEdit {
    Granted(Holder),
    /// The lease has another length, or another end.
    Timed {
        fence: u64,
        lease: Span,
        ends: Instant,
    },
    Moded {
        fence: u64,
        mode: Mode,
    },
    /// The exclusive holder, with a higher fence and a new lease. Replicas of every version read it as a grant: an owner holds
    /// once, so the holder with the lower fence makes way.
    Raised(Holder),
    Ended {
        fence: u64,
        at: Instant,
        how: End,
    },
    /// The same as `Ended` for each, in the order of their fences, for very many. Replicas get the state that it leads to.
    AllEnded {
        at: Instant,
        how: End,
    },
}

pub type HolderEdits = SmallVec<[HolderEdit; 1]>;

impl Holders {
    /// The only writer. An edit that fits nothing here changes nothing. What ended as one comes back.
    pub fn apply(&mut self, edit: HolderEdit) -> Option<Crowd> {
        match edit {
            HolderEdit::Granted(holder) | HolderEdit::Raised(holder) => self.insert(holder),
            HolderEdit::Timed { fence, lease, ends } => self.set_time(fence, lease, ends),
            HolderEdit::Moded { fence, mode } => self.set_mode(fence, mode),
            HolderEdit::Ended { fence, at, how } => {
                let holder = self.remove(fence)?;
                let held = holder.held(at);
                self.remember(EndedHolding { fence, at, held, how, owner: holder.into_owner() });
            }
            HolderEdit::AllEnded { at, how } => return Some(self.end_all(at, how)),
        }
        None
    }
}
