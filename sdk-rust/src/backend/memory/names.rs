//! The generations of cache names, in memory.
//!
//! They are beside the keys, and not among them, so that a step on a value can look at its name while it holds the value's shard:
//! nobody sees half of an invalidation. The lock here is always taken last.

use std::collections::HashMap;

use parking_lot::RwLock;
use resil_core::generations::{self, GenerationEdits, Generations, Leaves};
use resil_core::{Instant, Step, Stored};

use super::channels::Channels;
use super::fences::Fences;
use crate::cache::Invalidated;

/// A new name first takes out those that nothing lives under any more, when there are this many.
const SWEEP_FROM: usize = 64;

#[derive(Default)]
pub(super) struct Names {
    known: RwLock<HashMap<Box<[u8]>, Generations>>,
    /// What is out of date, by the keys of names.
    pub invalidations: Channels<Invalidated>,
}

impl Names {
    /// Does `work` with what is known of the name. No name is made or changed meanwhile.
    pub fn look<R>(&self, name: Option<&[u8]>, work: impl FnOnce(Option<&Generations>) -> R) -> R {
        let Some(name) = name else { return work(None) };
        let names = self.known.read();
        match names.get(name) {
            Some(known) => work(Some(known)),
            None => work(Some(&Generations::default())),
        }
    }

    /// Something is loaded under the name: its generation.
    pub fn begin(&self, name: &[u8], fences: &Fences, now: Instant) -> u64 {
        if let Some(known) = self.known.read().get(name).filter(|known| known.exists()) {
            return known.current();
        }
        self.step(name, |known| fences.issue_for(1, now, |floor| generations::begin(known, floor, now)), now)
    }

    /// Something under the name lives until `until`.
    pub fn extend(&self, name: &[u8], until: Instant, now: Instant) {
        let is_long_enough = |known: &Generations| generations::extend(known, until).change.is_none();
        if !self.known.read().get(name).is_none_or(is_long_enough) {
            self.step(name, |known| generations::extend(known, until), now);
        }
    }

    pub fn clear(&self, name: &[u8], tags: &[&[u8]], leaves: Leaves, fences: &Fences, now: Instant) -> u64 {
        let clear =
            |known: &Generations| fences.issue_for(1, now, |floor| generations::clear(known, tags, leaves, floor, now));
        self.step(name, clear, now)
    }

    fn step<V>(&self, name: &[u8], step: impl FnOnce(&Generations) -> Step<V, GenerationEdits>, now: Instant) -> V {
        let mut names = self.known.write();
        if let Some(known) = names.get_mut(name) {
            let Step { verdict, change } = step(known);
            if let Some(edits) = change {
                Generations::apply_all(known, edits);
            }
            return verdict;
        }
        let mut known = Generations::default();
        let Step { verdict, change } = step(&known);
        if let Some(edits) = change {
            if names.len() >= SWEEP_FROM {
                names.retain(|_, known| Generations::collect_at(known, 0).is_none_or(|due| due > now));
            }
            Generations::apply_all(&mut known, edits);
            names.insert(name.into(), known);
        }
        verdict
    }
}
