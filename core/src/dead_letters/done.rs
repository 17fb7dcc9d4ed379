//! The ends of entries that never died: remembered for a while, so that DONE said twice is DONE, and FAIL of a message that is
//! done is known.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use super::message::hash;
use crate::limits::{DONE_REMEMBERED, DONES_MAX};
use crate::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub fence: u64,
    pub digest: Option<u128>,
    pub at: Instant,
}

/// The latest last.
#[derive(Debug, Clone, Default)]
pub struct Dones {
    ends: VecDeque<(Box<[u8]>, Done)>,
    /// By the hash of the id: how many ends there were before the last one with it.
    by_hash: BTreeMap<u64, u64>,
    /// How many have been forgotten.
    forgotten: u64,
}

/// What is found by hash follows from the ends.
impl PartialEq for Dones {
    fn eq(&self, other: &Self) -> bool {
        self.ends == other.ends
    }
}

impl Eq for Dones {}

impl Dones {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Done)> {
        self.ends.iter().map(|(id, done)| (&**id, done))
    }

    /// The last end of `id`, if it is still remembered.
    pub fn get(&self, id: &[u8], now: Instant) -> Option<&Done> {
        let before = self.by_hash.get(&hash(id))?;
        let (of, done) = self.ends.get(usize::try_from(before.checked_sub(self.forgotten)?).ok()?)?;
        (**of == *id && done.at.plus(DONE_REMEMBERED) > now).then_some(done)
    }

    pub fn remember(&mut self, id: Box<[u8]>, done: Done) {
        self.by_hash.insert(hash(&id), self.forgotten + self.ends.len() as u64);
        self.ends.push_back((id, done));
    }

    /// Forgets those whose time is over, and the oldest if there are too many.
    pub fn forget(&mut self, now: Instant) {
        while let Some((id, done)) = self.ends.front() {
            if done.at.plus(DONE_REMEMBERED) > now && self.ends.len() <= DONES_MAX {
                return;
            }
            let hash = hash(id);
            if self.by_hash.get(&hash) == Some(&self.forgotten) {
                self.by_hash.remove(&hash);
            }
            self.ends.pop_front();
            self.forgotten += 1;
        }
    }
}
