//! The ends of entries that never died: remembered for a while, so that DONE said twice is DONE, and FAIL of a message that is
//! done is known. They come and go in the same order, so ids lie one behind the other, and nothing is allocated for one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::hashed::Hashed;
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
    ends: VecDeque<Remembered>,
    ids: VecDeque<u8>,
    /// By the hash of the id: how many ends there were before its last one.
    by_hash: Hashed,
    /// How many have been forgotten, and how many bytes of ids with them.
    forgotten: u64,
    forgotten_bytes: u64,
}

#[derive(Debug, Clone)]
struct Remembered {
    done: Done,
    /// Where its id begins, counted from the first that ever was.
    start: u64,
    len: usize,
    hash: u64,
}

/// What is found by hash follows from the ends.
impl PartialEq for Dones {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Dones {}

impl Dones {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, &Done)> {
        self.ends.iter().map(|end| (self.id_of(end).copied().collect(), &end.done))
    }

    fn id_of(&self, end: &Remembered) -> impl Iterator<Item = &u8> {
        let start = (end.start - self.forgotten_bytes) as usize;
        self.ids.range(start..start + end.len)
    }

    /// The last end of `id`, if it is still remembered.
    pub fn get(&self, id: &[u8], now: Instant) -> Option<&Done> {
        let done = &self.ends.get(self.last_of(id, self.by_hash.hash(id))?)?.done;
        (done.at.plus(DONE_REMEMBERED) > now).then_some(done)
    }

    /// Where the last end of `id` stands.
    fn last_of(&self, id: &[u8], hash: u64) -> Option<usize> {
        self.by_hash.find(hash, |number| {
            let position = usize::try_from(number.checked_sub(self.forgotten)?).ok()?;
            let end = self.ends.get(position)?;
            (end.len == id.len() && self.id_of(end).eq(id)).then_some(position)
        })
    }

    /// Looks at where as many ends will be remembered, and as many forgotten.
    pub fn look_ahead(&self, hashes: &[u64]) {
        self.by_hash.look_ahead(hashes.iter().copied());
        if self.ends.len() + hashes.len() > DONES_MAX {
            self.by_hash.look_ahead(self.ends.iter().take(hashes.len()).map(|end| end.hash));
        }
    }

    pub fn remember(&mut self, id: &[u8], done: Done) {
        let (hash, start) = (self.by_hash.hash(id), self.forgotten_bytes + self.ids.len() as u64);
        let before = self.last_of(id, hash);
        self.by_hash.insert(hash, self.forgotten + self.ends.len() as u64);
        // Only the last end of an id is found: one that ends very often costs no more than others.
        if let Some(before) = before {
            self.by_hash.remove(hash, self.forgotten + before as u64);
        }
        self.ids.extend(id);
        self.ends.push_back(Remembered { done, start, len: id.len(), hash });
    }

    /// Forgets those whose time is over, and the oldest if there are too many.
    pub fn forget(&mut self, now: Instant) {
        while let Some(Remembered { done, len, hash, .. }) = self.ends.front() {
            if done.at.plus(DONE_REMEMBERED) > now && self.ends.len() <= DONES_MAX {
                return;
            }
            let (len, hash) = (*len, *hash);
            self.by_hash.remove(hash, self.forgotten);
            self.ids.drain(..len);
            self.forgotten_bytes += len as u64;
            self.ends.pop_front();
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn done(fence: u64) -> Done {
        Done { fence, digest: None, at: Instant::from_us(1_800_000_000_000_000) }
    }

    #[test]
    fn an_id_that_ends_often_is_looked_up_once() {
        let (mut dones, now) = (Dones::default(), done(0).at);
        for fence in 0..3 * DONES_MAX as u64 {
            dones.remember(b"again", done(fence));
            if fence % 7 == 0 {
                dones.remember(fence.to_string().as_bytes(), done(fence));
            }
            dones.forget(now);
            assert_eq!(dones.get(b"again", now).map(|done| done.fence), Some(fence));
            assert!(dones.by_hash.len() <= dones.len() / 7 + 2, "{} of {}", dones.by_hash.len(), dones.len());
        }
        dones.forget(now.plus(DONE_REMEMBERED));
        assert_eq!((dones.len(), dones.by_hash.len()), (0, 0));
        assert_eq!(dones.get(b"again", now), None);
    }
}
