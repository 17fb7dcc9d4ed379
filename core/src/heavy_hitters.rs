//! Which keys come most often, in a fixed amount of memory: the space-saving algorithm (Metwally, Agrawal, El Abbadi 2005) over the
//! last minute.
//!
//! ```text
//!   State        six windows of ten seconds, each with up to COUNTERS counters: key, count, error
//!   add(key)     its counter + 1; a new one if there is space; else the smallest counter becomes the key's: count = smallest + 1,
//!                error = smallest
//!   Invariants   1. the counts of a window add up to what was added to it
//!                2. the true count of a key is from count - error to count
//!                3. error <= added / COUNTERS; a key that is not counted came at most that often
//! ```
//! Windows that have ended stay until they are a minute old: what is asked for covers the last 50 to 60 seconds. A key that one window
//! does not count is taken to have come as often as its smallest counter: so the sums keep invariants 2 and 3.
//!
//! Callers may add one key in [`SAMPLED`] only, drawn by chance. [`Estimate::scaled`] says what that means for the bound.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::time::{Instant, Span};

/// Counters of a window.
pub const COUNTERS: usize = 128;

/// Of so many events one is added.
pub const SAMPLED: u32 = 16;

const WINDOWS: usize = 6;
const WINDOW: Span = Span::from_secs(10);

struct Counter {
    tag: u32,
    name: Box<[u8]>,
    count: u64,
    error: u64,
}

/// The counters of one window.
#[derive(Default)]
pub struct SpaceSaving {
    counters: Vec<Counter>,
    /// A hash of each, side by side: looking for one is most of what an addition costs.
    hashes: Vec<u32>,
    /// No counter is smaller.
    least: u64,
    added: u64,
}

/// How often a key came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    pub count: u64,
    /// The true count is at most so much below.
    pub error: u64,
}

impl Estimate {
    /// What was estimated of a sample of one in [`SAMPLED`], for all of it: the true count is within `error` of `count`, in either
    /// direction, in 997 of 1,000 cases. (Three standard deviations: drawing one in 16 of n has a deviation of sqrt(15 n).)
    pub fn scaled(self) -> Self {
        let sampled = u64::from(SAMPLED);
        let count = self.count.saturating_mul(sampled);
        let spread = (count.saturating_mul(9 * (sampled - 1))).isqrt() + sampled;
        Self { count, error: self.error.saturating_mul(sampled).saturating_add(spread) }
    }
}

/// A key and how often it came. The tag is the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit<'a> {
    pub tag: u32,
    pub name: &'a [u8],
    pub estimate: Estimate,
}

impl SpaceSaving {
    pub fn add(&mut self, tag: u32, name: &[u8]) {
        self.added += 1;
        let hash = hash_of(tag, name);
        if let Some(counter) = self.find(hash, tag, name) {
            self.counters[counter].count += 1;
            return;
        }
        if self.counters.len() < COUNTERS {
            self.counters.push(Counter { tag, name: name.into(), count: 1, error: 0 });
            self.hashes.push(hash);
            return;
        }
        let smallest = self.take_smallest();
        if let Some(counter) = self.counters.get_mut(smallest) {
            let error = counter.count;
            *counter = Counter { tag, name: name.into(), count: error + 1, error };
            self.hashes[smallest] = hash;
        }
    }

    /// One of the smallest. Counts only grow: as long as one is as small as the last time, there is no need to compare them all.
    fn take_smallest(&mut self) -> usize {
        let at_least = |least: u64| self.counters.iter().position(|counter| counter.count <= least);
        if let Some(found) = at_least(self.least) {
            return found;
        }
        let least = self.counters.iter().map(|counter| counter.count).min().unwrap_or(0);
        let found = at_least(least).unwrap_or(0);
        self.least = least;
        found
    }

    /// What is known of a key.
    pub fn estimate(&self, tag: u32, name: &[u8]) -> Estimate {
        match self.find(hash_of(tag, name), tag, name) {
            Some(found) => {
                let Counter { count, error, .. } = self.counters[found];
                Estimate { count, error }
            }
            None => Estimate { count: self.smallest(), error: self.smallest() },
        }
    }

    /// How many were added.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// A key without a counter came at most so often.
    fn smallest(&self) -> u64 {
        let is_full = self.counters.len() == COUNTERS;
        self.counters.iter().map(|counter| counter.count).min().filter(|_| is_full).unwrap_or(0)
    }

    fn find(&self, hash: u32, tag: u32, name: &[u8]) -> Option<usize> {
        const AT_ONCE: usize = 16;
        let is_it = |counter: &Counter| counter.tag == tag && *counter.name == *name;
        for (chunk, hashes) in self.hashes.chunks(AT_ONCE).enumerate() {
            // Without an early end, so that several are compared by one instruction.
            if hashes.iter().fold(false, |found, own| found | (*own == hash)) {
                let places = (chunk * AT_ONCE..).zip(hashes).filter(|(_, own)| **own == hash);
                let found = places.map(|(place, _)| place).find(|place| is_it(&self.counters[*place]));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
}

/// The last minute.
pub struct HeavyHitters {
    windows: [(Instant, SpaceSaving); WINDOWS],
    current: usize,
}

impl Default for HeavyHitters {
    fn default() -> Self {
        Self { windows: core::array::from_fn(|_| (Instant::EPOCH, SpaceSaving::default())), current: 0 }
    }
}

impl HeavyHitters {
    pub fn add(&mut self, tag: u32, name: &[u8], now: Instant) {
        let begun = self.windows[self.current].0;
        // A clock that was set back begins anew, too.
        if begun.until(now) >= WINDOW || now < begun {
            self.current = (self.current + 1) % WINDOWS;
            self.windows[self.current] = (now, SpaceSaving::default());
        }
        self.windows[self.current].1.add(tag, name);
    }

    /// The keys that came most often, the most frequent first; of equals the one that sorts first.
    pub fn top(&self, now: Instant, is_wanted: impl Fn(u32, &[u8]) -> bool) -> Vec<Hit<'_>> {
        let recent = || self.recent(now);
        let mut names: Vec<(u32, &[u8])> = recent()
            .flat_map(|window| window.counters.iter().map(|counter| (counter.tag, &*counter.name)))
            .filter(|(tag, name)| is_wanted(*tag, name))
            .collect();
        names.sort_unstable();
        names.dedup();
        let hit = |(tag, name)| {
            let estimates = recent().map(|window| window.estimate(tag, name));
            let estimate = estimates.fold(Estimate::default(), |sum, one| Estimate {
                count: sum.count + one.count,
                error: sum.error + one.error,
            });
            Hit { tag, name, estimate }
        };
        let mut hits: Vec<Hit<'_>> = names.into_iter().map(hit).collect();
        hits.sort_by_key(|hit| core::cmp::Reverse(hit.estimate.count));
        hits
    }

    fn recent(&self, now: Instant) -> impl Iterator<Item = &SpaceSaving> {
        let minute = Span::from_us(WINDOW.as_us() * WINDOWS as i64);
        let is_recent = move |begun: Instant| begun <= now && begun.until(now) < minute;
        self.windows.iter().filter(move |(begun, _)| is_recent(*begun)).map(|(_, window)| window)
    }
}

/// Only to compare few names in most cases: keys that collide are compared by name.
fn hash_of(tag: u32, name: &[u8]) -> u32 {
    let (words, rest) = name.as_chunks::<8>();
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let hash = words.iter().fold(u64::from(tag) ^ name.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    (hash >> 32) as u32 ^ hash as u32
}
