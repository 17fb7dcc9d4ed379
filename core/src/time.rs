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
    fn instants_never_wrap() {
        let end = Instant::from_us(i64::MAX);
        assert_eq!(end.plus(Span::from_us(1)), end);
        assert_eq!(end.until(Instant::from_us(i64::MIN)), Span::ZERO);
    }
}
