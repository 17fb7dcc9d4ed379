//! Keys that have left, with losses that are not announced yet.
//!
//! A key is noted in the moment it leaves, on the main thread, and very many may leave in one command: a note is a pointer.
//! What they have in common (their list, when they left and why) is said once for each *run* of keys that left one list
//! one after another.

use std::collections::VecDeque;

use resil_core::Instant;
use resil_core::waited::Reason;

use crate::machines::Kind;
use crate::share::{Pointer, Share};
use crate::timers::Space;

struct Run {
    common: Common,
    values: Vec<Pointer>,
    /// How many of `values` were taken.
    taken: usize,
}

/// What the keys of a run have in common.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub db: i32,
    pub space: Space,
    pub kind: Kind,
    pub era: u16,
    pub at: Instant,
    pub reason: Reason,
}

#[derive(Default)]
pub struct Notes {
    runs: VecDeque<Run>,
    /// Whether the last run may get longer.
    is_open: bool,
}

impl Notes {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// When the last one left.
    pub fn last_at(&self) -> Option<Instant> {
        self.runs.back().map(|run| run.common.at)
    }

    /// Notes a value like the last one. False if the last one was of another list.
    #[inline]
    pub fn add_alike(&mut self, db: i32, kind: Kind, value: Pointer) -> bool {
        let header = value.header();
        let last = self.runs.back_mut().filter(|_| self.is_open && !header.is_gone());
        let Some(run) =
            last.filter(|run| (run.common.db, run.common.kind, run.common.era) == (db, kind, header.place().0))
        else {
            return false;
        };
        header.mark_gone();
        value.keep(kind);
        run.values.push(value);
        true
    }

    /// Notes a value and what is to be said of it.
    pub fn add(&mut self, common: Common, value: Pointer) {
        self.runs.push_back(Run { common, values: Vec::new(), taken: 0 });
        self.is_open = true;
        self.add_alike(common.db, common.kind, value);
    }

    /// Databases changed places, or lists were put aside: what comes next is not alike, though it looks so.
    pub fn close(&mut self) {
        self.is_open = false;
    }

    /// The last one, which is not taken yet.
    pub fn last(&self) -> Option<(Common, Pointer)> {
        let run = self.runs.back()?;
        Some((run.common, *run.values.last()?))
    }

    /// The last one left for another reason than the others of its run.
    pub fn say_of_last(&mut self, reason: Reason) {
        let Some(run) = self.runs.back_mut() else { return };
        let common = Common { reason, ..run.common };
        if run.values.len() == run.taken + 1 {
            run.common = common;
        } else if let Some(value) = run.values.pop() {
            self.runs.push_back(Run { common, values: vec![value], taken: 0 });
        }
        self.is_open = false;
    }

    pub fn take(&mut self) -> Option<(Common, Share)> {
        let run = self.runs.front_mut()?;
        let (common, value) = (run.common, *run.values.get(run.taken)?);
        run.taken += 1;
        if run.taken == run.values.len() {
            self.runs.pop_front();
        }
        Some((common, value.kept(common.kind)))
    }
}
