//! Keys that were refused a moment ago, and until when: what makes a flood of denied calls free.
//!
//! # The promise
//! It never grants, and never denies what the server would grant, as far as this process can know: a denial is kept for
//! no longer than its `retry_after`, counted from before the question was sent, and no longer than [`BELIEVED_MAX`]; it
//! holds for its cost and above, under the limit it was made with; and a refund through this client ends it, also one that
//! overtakes the denial's reply. (A refund by another process, or a key that an operator deleted, is seen after
//! [`BELIEVED_MAX`] at the latest, also under a limit per day.)
//!
//! # The state
//! Sixteen maps of at most [`SHARD_MAX`] keys. A full one lets go of any key for a new one: that costs a round trip.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::limit::Shape;
use super::verdict::{DecidedBy, Verdict};
use crate::clock::Moment;

const SHARDS: usize = 16;
const SHARD_MAX: usize = 1_024;
/// How long the server is believed to say the same, however long it told to wait: one question per key and so many seconds
/// is as good as none.
pub(super) const BELIEVED_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Denied {
    hasher: RandomState,
    shards: [Mutex<DenialShard>; SHARDS],
}

#[derive(Debug, Default)]
struct DenialShard {
    denials: HashMap<Box<[u8]>, Denial, RandomState>,
    /// How often anything was ended by a refund: a reply that was asked for before is not believed.
    refunds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denial {
    /// Costs from this on are denied.
    pub cost: u32,
    asked_at: Moment,
    /// Until when that is not asked again: not after it can be had.
    believed_until: Moment,
    /// What the server said.
    verdict: Verdict,
    /// Of the limit it was denied under.
    shape: u64,
}

/// Where a question stood among the refunds when it was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefundsSeen(u64);

impl Default for Denied {
    fn default() -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Denied {
    /// What tells one limit from another.
    pub fn shape_id(&self, shape: &Shape) -> u64 {
        self.hasher.hash_one(shape)
    }

    fn shard(&self, key: &[u8]) -> &Mutex<DenialShard> {
        &self.shards[(self.hasher.hash_one(key) >> 40) as usize % SHARDS]
    }

    /// The denial of `cost` cells that still holds; or where the question stands that must now be asked.
    #[allow(clippy::result_large_err, reason = "a flood of denied calls is not to allocate")]
    pub fn look(&self, key: &[u8], shape: u64, cost: u32, now: Moment) -> Result<RefundsSeen, Denial> {
        let mut shard = self.shard(key).lock();
        if !shard.denials.is_empty()
            && let Some(denial) = shard.denials.get(key)
        {
            if denial.believed_until <= now {
                shard.denials.remove(key);
            } else if denial.shape == shape && cost >= denial.cost {
                return Err(denial.clone());
            }
        }
        Ok(RefundsSeen(shard.refunds))
    }

    /// Remembers a denial, unless a refund came in between.
    pub fn remember(&self, key: &[u8], shape: u64, asked: RefundsSeen, denial: Denial) {
        let mut shard = self.shard(key).lock();
        if shard.refunds != asked.0 {
            return;
        }
        if shard.denials.len() >= SHARD_MAX
            && !shard.denials.contains_key(key)
            && let Some(other) = shard.denials.keys().next().cloned()
        {
            shard.denials.remove(&other);
        }
        shard.denials.insert(key.into(), Denial { shape, ..denial });
    }

    /// Cells were given back.
    pub fn forget(&self, key: &[u8]) {
        let mut shard = self.shard(key).lock();
        shard.refunds += 1;
        shard.denials.remove(key);
    }
}

impl Denial {
    /// Of a question that was asked at `asked_at`. `None` if there is nothing to wait for.
    pub fn of(cost: u32, asked_at: Moment, verdict: &Verdict) -> Option<Self> {
        let wait = verdict.retry_after.filter(|wait| !wait.is_zero())?;
        let believed_until = asked_at.saturating_add(wait.min(BELIEVED_MAX));
        let verdict = Verdict { granted: 0, ..verdict.clone() };
        Some(Self { cost, asked_at, believed_until, verdict, shape: 0 })
    }

    /// What it says at `now`.
    pub fn verdict(&self, now: Moment) -> Verdict {
        self.verdict.later(now.saturating_sub(self.asked_at), DecidedBy::DenyCache)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Moment = Duration::from_secs(100);

    fn denial(cost: u32, until_secs: u64) -> Denial {
        let verdict = Verdict {
            granted: 0,
            limit: 9,
            period: Duration::from_secs(1),
            capacity: 9,
            remaining: 0,
            retry_after: Some(Duration::from_secs(until_secs) - NOW),
            reset_after: Duration::ZERO,
            decided_by: DecidedBy::Server,
            tiers: Vec::new(),
            binding: 0,
        };
        Denial::of(cost, NOW, &verdict).expect("there is something to wait for")
    }

    fn deny(denied: &Denied, key: &[u8], cost: u32, until_secs: u64) {
        if let Ok(asked) = denied.look(key, 1, u32::MIN, NOW) {
            denied.remember(key, 1, asked, denial(cost, until_secs));
        }
    }

    #[test]
    fn a_denial_of_five_cells_does_not_deny_one() {
        let denied = Denied::default();
        deny(&denied, b"k", 5, 110);
        assert!(denied.look(b"k", 1, 1, NOW).is_ok());
        assert!(denied.look(b"k", 1, 5, NOW).is_err());
        assert!(denied.look(b"k", 1, 6, NOW).is_err());
    }

    #[test]
    fn a_denial_under_one_limit_says_nothing_about_another() {
        let denied = Denied::default();
        deny(&denied, b"k", 1, 110);
        assert!(denied.look(b"k", 2, 1, NOW).is_ok());
    }

    #[test]
    fn a_refund_ends_a_denial_also_one_whose_reply_comes_later() {
        let denied = Denied::default();
        deny(&denied, b"k", 1, 110);
        denied.forget(b"k");
        let asked = denied.look(b"k", 1, 1, NOW).expect("forgotten");
        denied.forget(b"k");
        denied.remember(b"k", 1, asked, denial(1, 110));
        assert!(denied.look(b"k", 1, 1, NOW).is_ok(), "the refund may have come after the denial");
    }

    #[test]
    fn a_denial_for_hours_is_believed_for_ten_seconds_and_says_the_whole_time() {
        let denied = Denied::default();
        deny(&denied, b"k", 1, 100 + 3_600);
        let last = NOW + BELIEVED_MAX - Duration::from_millis(1);
        let denial = denied.look(b"k", 1, 1, last).expect_err("it is believed");
        assert_eq!(denial.verdict(last).retry_after, Some(Duration::from_secs(100 + 3_600) - last));
        assert!(denied.look(b"k", 1, 1, NOW + BELIEVED_MAX).is_ok(), "the server is asked again");
    }

    #[test]
    fn however_many_keys_are_denied_the_memory_is_bounded() {
        let denied = Denied::default();
        for key in 0..(SHARDS * SHARD_MAX * 2) as u32 {
            deny(&denied, &key.to_be_bytes(), 1, 110);
        }
        let held: usize = denied.shards.iter().map(|shard| shard.lock().denials.len()).sum();
        assert!(held <= SHARDS * SHARD_MAX && held > SHARDS * SHARD_MAX / 2, "{held}");
    }

    proptest! {
        #[test]
        fn nothing_is_denied_after_its_time_nor_below_its_cost(
            denials in prop::collection::vec((0u8..4, 1u32..6, 101u64..120), 1..40),
            looks in prop::collection::vec((0u8..4, 1u32..6, 100u64..125), 1..40),
        ) {
            let denied = Denied::default();
            let mut last = HashMap::new();
            for (key, cost, until) in denials {
                if let Ok(asked) = denied.look(&[key], 1, 0, NOW) {
                    denied.remember(&[key], 1, asked, denial(cost, until));
                    last.insert(key, (cost, until));
                }
            }
            for (key, cost, at) in looks {
                let believed = |until: u64| until.min(100 + BELIEVED_MAX.as_secs());
                let expected = last.get(&key).is_some_and(|(least, until)| cost >= *least && at < believed(*until));
                let seen = denied.look(&[key], 1, cost, Duration::from_secs(at)).is_err();
                prop_assert_eq!(seen, expected);
                if last.get(&key).is_some_and(|(_, until)| at >= believed(*until)) {
                    last.remove(&key);
                }
            }
        }
    }
}
