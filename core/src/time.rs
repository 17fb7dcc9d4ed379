//! Time as the machines see it: an [`Instant`] handed in with every event, and [`Span`]s between instants.
//!
//! Both count whole microseconds. All arithmetic saturates, so no input can wrap an instant around; the bounds in
//! [`crate::limits`] keep every real value far away from the ends.

/// Microseconds since the Unix epoch, by the server's wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

/// A length of time in microseconds, never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(i64);

impl Instant {
    pub const EPOCH: Self = Self(0);

    pub const fn from_us(us: i64) -> Self {
        Self(us)
    }

    pub const fn as_us(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since the epoch, rounded up: for an expiry that must not come early.
    pub const fn ceil_ms(self) -> i64 {
        self.0.div_euclid(1_000) + (self.0.rem_euclid(1_000) != 0) as i64
    }

    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The first instant after `self` on a grid of about `step`, a power of two of milliseconds.
    ///
    /// Expiries are put on such a grid: whatever moves them by less than a step leaves them where they are, so a busy
    /// key is not re-armed with every call. `salt`, different for each key, shifts the grid: otherwise all keys of one
    /// rate would expire in the same millisecond.
    pub fn next_on_grid(self, step: Span, salt: u64) -> Self {
        const LEAST_MS: i64 = 64;
        const MOST_MS: i64 = 1 << 21;
        let grid_ms = step.ceil_ms().clamp(LEAST_MS, MOST_MS).cast_unsigned().next_power_of_two().cast_signed();
        let shift_ms = (salt & (grid_ms - 1).cast_unsigned()).cast_signed();
        Self((((self.ceil_ms() - shift_ms) | (grid_ms - 1)) + 1 + shift_ms).saturating_mul(1_000))
    }

    /// The time from `self` until `later`; zero if `later` has passed.
    pub const fn until(self, later: Self) -> Span {
        Span::from_us(later.0.saturating_sub(self.0))
    }
}

impl Span {
    pub const ZERO: Self = Self(0);

    /// A span of `us` microseconds; a negative number is zero.
    pub const fn from_us(us: i64) -> Self {
        Self(if us < 0 { 0 } else { us })
    }

    pub const fn from_ms(ms: i64) -> Self {
        Self::from_us(ms.saturating_mul(1_000))
    }

    pub const fn from_secs(secs: i64) -> Self {
        Self::from_us(secs.saturating_mul(1_000_000))
    }

    pub const fn from_days(days: i64) -> Self {
        Self::from_secs(days.saturating_mul(86_400))
    }

    pub const fn as_us(self) -> i64 {
        self.0
    }

    /// Whole milliseconds, rounded up: time a caller has to wait.
    pub const fn ceil_ms(self) -> i64 {
        self.0 / 1_000 + (self.0 % 1_000 != 0) as i64
    }

    /// Whole milliseconds, rounded down: time a caller may rely on, or has spent.
    pub const fn floor_ms(self) -> i64 {
        self.0 / 1_000
    }

    /// A third of it, at least a millisecond: how often a lease is renewed.
    pub const fn third(self) -> Self {
        Self(if self.0 < 3_000 { 1_000 } else { self.0 / 3 })
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_wait_rounds_up() {
        assert_eq!(Span::from_us(1).ceil_ms(), 1);
        assert_eq!(Span::from_us(1_000).ceil_ms(), 1);
        assert_eq!(Span::from_us(1_001).ceil_ms(), 2);
        assert_eq!(Span::ZERO.ceil_ms(), 0);
        assert_eq!(Instant::from_us(-1_500).ceil_ms(), -1);
    }

    #[test]
    fn a_grid_is_at_most_two_steps_ahead_and_salted() {
        for us in [0, 1, 63_999, 64_000, 1_794_798_034_889_246] {
            let at = Instant::from_us(us);
            for salt in [0, 1, 77, u64::MAX] {
                let next = at.next_on_grid(Span::from_ms(1_000), salt);
                assert!(next > at && at.until(next) <= Span::from_ms(1_025), "{us} {salt}");
            }
        }
        let at = Instant::from_us(1_794_798_034_889_246);
        let step = Span::from_secs(60);
        assert_ne!(at.next_on_grid(step, 1), at.next_on_grid(step, 2));
        assert_eq!(at.next_on_grid(step, 7), at.plus(Span::from_us(1)).next_on_grid(step, 7));
    }

    #[test]
    fn instants_never_wrap() {
        let end = Instant::from_us(i64::MAX);
        assert_eq!(end.plus(Span::from_us(1)), end);
        assert_eq!(end.until(Instant::from_us(i64::MIN)), Span::ZERO);
    }
}
