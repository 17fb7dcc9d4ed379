//! One stored tier: a quota and when its debt will be gone.

use super::quota::{Quota, div_ceil, div_floor};
use crate::limits::{INSTANT_MAX_US, RESERVE_MAX};
use crate::time::{Instant, Span};

/// See the drawing in [`super`]. 32 bytes; [`super::Packed`] is the usual form in a server's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier {
    pub(super) tat_us: i64,
    pub(super) quota: Quota,
    /// `frac / limit` microseconds to be added to `tat_us`.
    pub(super) frac: u32,
    /// How far the debt legitimately exceeded capacity when it was written, because of a reservation.
    pub(super) overhang_ms: u32,
}

/// A debt as read at some instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debt {
    pub grains: u128,
    /// The clock was set back: the stored debt was larger than can be, and `grains` is the bound.
    pub cut: bool,
}

impl Tier {
    /// The tier that owes `grains` at `now`.
    pub(super) fn owing(quota: Quota, grains: u128, now: Instant) -> Self {
        let limit = quota.limit as u64;
        let whole = div_floor(grains, limit);
        let overhang = quota.drain_time(grains.saturating_sub(quota.full_grains()));
        Self {
            tat_us: now.as_us().saturating_add(whole.min(i64::MAX as u128) as i64),
            quota,
            frac: (grains - whole * limit as u128) as u32,
            overhang_ms: overhang.ceil_ms().min(u32::MAX as i64) as u32,
        }
    }

    /// The tier another limiter left: only its TAT in nanoseconds is known. The fraction rounds up.
    pub fn adopted(quota: Quota, tat_ns: i64) -> Self {
        let sub_us = tat_ns.rem_euclid(1_000) as u128;
        let frac = div_ceil(sub_us * quota.limit as u128, 1_000);
        let carry = (frac >= quota.limit as u128) as i64;
        Self {
            tat_us: tat_ns.div_euclid(1_000) + carry,
            quota,
            frac: if carry == 1 { 0 } else { frac as u32 },
            overhang_ms: 0,
        }
    }

    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// What is owed at `now`, cut to what can be owed at all.
    pub(super) fn debt(&self, now: Instant) -> Debt {
        if self.tat_us < now.as_us() {
            return Debt { grains: 0, cut: false };
        }
        let ahead = self.tat_us.saturating_sub(now.as_us()) as u128;
        let grains = ahead * self.quota.limit as u128 + self.frac as u128;
        let bound = self.bound();
        Debt { grains: grains.min(bound), cut: grains > bound }
    }

    /// The largest debt this tier can have: capacity and overhang.
    fn bound(&self) -> u128 {
        self.quota.full_grains() + self.overhang_ms as u128 * 1_000 * self.quota.limit as u128
    }

    /// The first whole microsecond at which nothing is owed.
    pub(super) fn drained_at(&self) -> Instant {
        Instant::from_us(self.tat_us.saturating_add((self.frac > 0) as i64))
    }

    /// How long an empty bucket takes to fill.
    pub(super) fn fill_time(&self) -> Span {
        self.quota.drain_time(self.quota.full_grains())
    }

    /// Invariants 1 and 2, as far as they can be seen without a clock. Checked on every decoded tier.
    pub(crate) fn is_sound(&self) -> bool {
        self.quota.check().is_ok()
            && self.frac < self.quota.limit
            && (0..INSTANT_MAX_US).contains(&self.tat_us)
            && self.overhang_ms as i64 <= RESERVE_MAX.ceil_ms()
    }

    pub(crate) fn from_parts(
        tat_us: i64,
        (limit, capacity, period_us): (u32, u32, i64),
        frac: u32,
        overhang_ms: u32,
    ) -> Option<Self> {
        let tier = Self { tat_us, quota: Quota { limit, capacity, period_us }, frac, overhang_ms };
        tier.is_sound().then_some(tier)
    }

    /// `(tat_us, limit, capacity, period_us, frac, overhang_ms)`, for the codec.
    pub(crate) fn parts(&self) -> (i64, u32, u32, i64, u32, u32) {
        let q = self.quota;
        (self.tat_us, q.limit, q.capacity, q.period_us, self.frac, self.overhang_ms)
    }
}
