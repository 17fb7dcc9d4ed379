//! The edits a step makes, and the one function that makes them.

use smallvec::SmallVec;

use super::holder::{Ended, Holder, Mode};
use super::holders::Holders;
use crate::time::{Instant, Span};
use crate::waited::{CHECKED_IN_FULL, End};

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
    Ended {
        fence: u64,
        at: Instant,
        how: End,
    },
    /// The same as `Ended` for each, in the order of their fences, and reported so: there can be many.
    AllEnded {
        at: Instant,
        how: End,
    },
}

pub type HolderEdits = SmallVec<[HolderEdit; 1]>;

impl Holders {
    /// The only writer. An edit that fits nothing here changes nothing.
    pub fn apply(&mut self, edit: HolderEdit) {
        match edit {
            HolderEdit::Granted(holder) => self.insert(holder),
            HolderEdit::Timed { fence, lease, ends } => self.set_time(fence, lease, ends),
            HolderEdit::Moded { fence, mode } => self.set_mode(fence, mode),
            HolderEdit::Ended { fence, at, how } => {
                let Some(holder) = self.remove(fence) else { return };
                let held = holder.held(at);
                self.remember(Ended { fence, at, held, how, owner: holder.into_owner() });
            }
            HolderEdit::AllEnded { at, how } => {
                let each = (cfg!(debug_assertions) && self.len() <= CHECKED_IN_FULL).then(|| {
                    let mut each = self.clone();
                    self.ends_of_all(at, how).for_each(|edit| each.apply(edit));
                    each
                });
                self.end_all(at, how);
                debug_assert!(each.is_none_or(|each| each == *self), "the same as an end for each");
            }
        }
    }

    /// The edits that end everybody.
    pub(super) fn ends_of_all(&self, at: Instant, how: End) -> impl Iterator<Item = HolderEdit> {
        self.iter().map(move |holder| HolderEdit::Ended { fence: holder.fence, at, how })
    }
}
