//! The edits a step makes, and the one function that makes them.

use smallvec::SmallVec;

use super::holder::{End, Ended, Holder, Mode};
use super::holders::Holders;
use crate::time::{Instant, Span};

/// One change of the holders, with absolute values. Holders are named by their fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
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
    Ended {
        fence: u64,
        at: Instant,
        how: End,
    },
}

pub type Edits = SmallVec<[Edit; 1]>;

impl Holders {
    /// The only mutation. An edit that fits nothing here changes nothing.
    pub fn apply(&mut self, edit: Edit) {
        match edit {
            Edit::Granted(holder) => self.insert(holder),
            Edit::Timed { fence, lease, ends } => self.set_time(fence, lease, ends),
            Edit::Moded { fence, mode } => self.set_mode(fence, mode),
            Edit::Ended { fence, at, how } => {
                let Some(holder) = self.remove(fence) else { return };
                let held = holder.held(at);
                self.remember(Ended { fence, at, held, how, owner: holder.into_owner() });
            }
        }
    }
}
