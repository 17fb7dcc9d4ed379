//! The usual step by itself: one tier, asked for by the quota it was written with, and granted.
//!
//! It decides nothing of its own. Whatever is not usual (another quota, a refusal, numbers beyond 64 bits, a clock that was
//! set back) is left to [`step`](super::step), and where it answers, it answers the same.

use super::gcra::{Reading, Wait};
use super::quota::Quota;
use super::tier::Tier;
use crate::time::{Instant, Span};

impl Tier {
    /// The tier after `cells` were taken, and what it reads then. `None`: not the usual case, ask [`step`](super::step).
    #[inline(always)]
    pub fn take(&self, quota: &Quota, cells: u32, now: Instant) -> Option<(Self, Reading)> {
        if self.quota != *quota {
            return None;
        }
        let (limit, period) = (u64::from(quota.limit), quota.period_us.unsigned_abs());
        let full = u64::from(quota.capacity).checked_mul(period)?;
        let taken = u64::from(cells).checked_mul(period)?;
        let allowed = full.checked_sub(taken)?;
        let owed = match u64::try_from(self.tat_us.checked_sub(now.as_us())?) {
            Ok(ahead_us) => ahead_us.checked_mul(limit)?.checked_add(self.frac.into())?,
            Err(_) => 0,
        };
        // Within the capacity, so nothing was cut, and nothing hangs over.
        if owed > allowed {
            return None;
        }
        let owed = owed + taken;
        let whole_us = owed / limit;
        let frac = (owed - whole_us * limit) as u32;
        let drained_us = i64::try_from(whole_us).ok()?;
        let tier = Self { tat_us: now.as_us().checked_add(drained_us)?, quota: *quota, frac, overhang_ms: 0 };
        let reading = Reading {
            capacity: quota.capacity,
            remaining: ((full - owed) / period) as u32,
            retry_after: Wait::NONE,
            reset_after: Span::from_us(drained_us + i64::from(frac > 0)),
        };
        Some((tier, reading))
    }

    /// Whether a key that is to be collected at `gc_at`, as [`gc_at`](super::gc_at) said when less was owed, may still be
    /// collected then.
    #[inline]
    pub fn is_drained_by(&self, gc_at: Instant) -> bool {
        self.drained_at() <= gc_at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Ask, step};
    use super::*;

    fn quota() -> impl Strategy<Value = Quota> {
        let limit = prop_oneof![1u32..20, 1u32..1_000_000_000];
        let period = prop_oneof![1i64..50, 1i64..100_000_000, Just(366 * 86_400_000_000)];
        (limit, period, prop_oneof![1u32..20, 1u32..1_000_000_000])
            .prop_filter_map("not a quota", |(limit, us, burst)| Quota::new(limit, Span::from_us(us), burst).ok())
    }

    proptest! {
        #[test]
        fn the_usual_step_is_the_step(
            quota in quota(), other in quota(), first in 1u32..30, ahead_us in 0i64..5_000_000,
            steps in prop::collection::vec((1u32..30, -5_000i64..200_000), 1..20),
        ) {
            let mut now = 1_000_000_000_000;
            // Reservations leave more than the capacity; then the clock goes on, or is set back.
            let reserved = step(&[], &[quota], Ask::Reserve(Span::from_us(ahead_us + 1)), Instant::from_us(now)).unwrap();
            let mut tiers = reserved.change.unwrap_or_default();
            if let Some(more) = step(&tiers, &[quota], Ask::Take(first), Instant::from_us(now)).unwrap().change {
                tiers = more;
            }
            for (cells, passed_us) in steps {
                now += passed_us;
                let at = Instant::from_us(now);
                let general = step(&tiers, &[quota], Ask::Take(cells), at).unwrap();
                if let [tier] = tiers[..] {
                    if let Some((after, reading)) = tier.take(&quota, cells, at) {
                        prop_assert_eq!(general.verdict.granted, cells);
                        prop_assert_eq!(&general.verdict.tiers[..], &[reading]);
                        prop_assert_eq!(general.change.as_deref(), Some(&[after][..]));
                    } else {
                        let fits = u64::try_from(quota.full_grains()).is_ok();
                        prop_assert!(!fits || general.verdict.granted == 0, "the usual case was not seen");
                    }
                    if other != quota {
                        prop_assert!(tier.take(&other, cells, at).is_none());
                    }
                }
                if let Some(next) = general.change {
                    tiers = next;
                }
            }
        }
    }
}
