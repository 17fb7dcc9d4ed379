//! When a lease really ends.

use crate::limits::CLOCK_JITTER;
use crate::time::{Instant, Span};

/// The length and the end of a lease whose holder's connection closed at `at` and who has `grace` from then on to take it
/// back; `None` if it ends by then anyway.
///
/// The lease is as long as the grace from now on: a promotion, or a clock that is set back, then renews the grace and not
/// the lease it was cut from.
pub fn cut(lease: Span, ends: Instant, grace: Span, at: Instant) -> Option<(Span, Instant)> {
    let until = at.plus(grace);
    // A lease of no length could not be stored.
    (until < ends).then(|| (lease.min(grace).max(Span::from_us(1)), until))
}

/// The end of a lease of length `lease` that is stored as `ends`, for a server that was promoted at `promoted_at`, if it
/// was.
///
/// A lease that lies further ahead than its own length was written by a clock that has been set back since. One that
/// was alive at the promotion starts anew there: its holder may have had no chance to renew it.
pub fn ends_for(ends: Instant, lease: Span, promoted_at: Option<Instant>, now: Instant) -> Instant {
    if ends > now.plus(lease).plus(CLOCK_JITTER) {
        return now.plus(lease);
    }
    match promoted_at {
        // A promotion that lies ahead, because the clock was set back, is none yet.
        Some(promoted) if promoted <= now && ends > promoted => ends.max(promoted.plus(lease)),
        _ => ends,
    }
}

/// A lease, as every machine can show the ones it has granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease<'a> {
    pub owner: &'a [u8],
    pub fence: u64,
    pub since: Instant,
    pub length: Span,
    pub ends: Instant,
}

impl Lease<'_> {
    /// True if it has not ended for a server that was promoted at `promoted_at`, if it was.
    pub fn lives(&self, promoted_at: Option<Instant>, now: Instant) -> bool {
        ends_for(self.ends, self.length, promoted_at, now) > now
    }
}
