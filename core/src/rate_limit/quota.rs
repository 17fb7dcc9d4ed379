//! A quota: `limit` cells per `period`, in a bucket of `capacity` cells.

use core::fmt;

use crate::limits::{CELLS_MAX, FILL_MAX, PERIOD_MAX};
use crate::time::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    pub(super) limit: u32,
    pub(super) capacity: u32,
    pub(super) period_us: i64,
}

/// Why a quota cannot be: each names the argument and what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaError {
    Limit,
    Capacity,
    Period,
    /// An empty bucket would take too long to fill.
    Fill,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit => write!(f, "limit must be from 1 to {CELLS_MAX}"),
            Self::Capacity => write!(f, "burst must be from 1 to {CELLS_MAX}"),
            Self::Period => write!(f, "period must be from 1us to {}d", days(PERIOD_MAX)),
            Self::Fill => {
                write!(
                    f,
                    "burst (the capacity) is too large for this rate: an empty bucket must fill within {}d",
                    days(FILL_MAX)
                )
            }
        }
    }
}

fn days(span: Span) -> i64 {
    span.as_us() / Span::from_days(1).as_us()
}

impl Quota {
    pub fn new(limit: u32, period: Span, capacity: u32) -> Result<Self, QuotaError> {
        let quota = Self { limit, capacity, period_us: period.as_us() };
        quota.check().map(|()| quota)
    }

    pub(super) fn check(&self) -> Result<(), QuotaError> {
        if !(1..=CELLS_MAX).contains(&self.limit) {
            return Err(QuotaError::Limit);
        }
        if !(1..=CELLS_MAX).contains(&self.capacity) {
            return Err(QuotaError::Capacity);
        }
        if !(1..=PERIOD_MAX.as_us()).contains(&self.period_us) {
            return Err(QuotaError::Period);
        }
        if self.full_grains() > FILL_MAX.as_us() as u128 * self.limit as u128 {
            return Err(QuotaError::Fill);
        }
        Ok(())
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    pub fn period(&self) -> Span {
        Span::from_us(self.period_us)
    }

    /// The debt of an empty bucket, in grains.
    pub(super) fn full_grains(&self) -> u128 {
        self.grains(self.capacity)
    }

    /// What `cells` weigh, in grains.
    pub(super) fn grains(&self, cells: u32) -> u128 {
        cells as u128 * self.period_us as u128
    }

    /// Whole cells that still fit on top of `debt` grains.
    pub(super) fn room(&self, debt: u128) -> u32 {
        let free = self.full_grains().saturating_sub(debt);
        // At most `capacity`, so it fits.
        div_floor(free, self.period_us as u64) as u32
    }

    /// How long `grains` take to drain at this quota's rate, rounded up to the microsecond.
    pub(super) fn drain_time(&self, grains: u128) -> Span {
        Span::from_us(div_ceil(grains, self.limit as u64).min(i64::MAX as u128) as i64)
    }
}

/// Division that takes the machine's own 64-bit divider whenever the numerator allows: nearly always.
pub(super) fn div_floor(numerator: u128, denominator: u64) -> u128 {
    match u64::try_from(numerator) {
        Ok(small) => (small / denominator) as u128,
        Err(_) => numerator / denominator as u128,
    }
}

pub(super) fn div_ceil(numerator: u128, denominator: u64) -> u128 {
    div_floor(numerator + (denominator - 1) as u128, denominator)
}
