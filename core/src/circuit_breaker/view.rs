//! What a breaker looks like to somebody who only looks.

use alloc::borrow::Cow;

use super::permit::Caller;
use super::state::{Breaker, Phase};
use super::step::{Draft, admit};
use crate::rate_limit::Wait;
use crate::time::Instant;

/// The reply to STATE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The breaker with what time alone ends ended.
    pub breaker: Breaker,
    /// Whether ADMIT would admit now, and if not, how long it would say to wait. While ramping: whether it may.
    pub admits: bool,
    pub retry_after: Wait,
}

/// The breaker with what time alone ends ended. Nearly always that is the breaker itself: a list copies few.
pub fn settled(breaker: &Breaker, now: Instant) -> Cow<'_, Breaker> {
    let may_change = breaker.phase != Phase::Closed
        || breaker.last_seen_us.max(breaker.closed_us) > now.as_us()
        || breaker.is_idle(now) && breaker.remembers();
    if !may_change {
        return Cow::Borrowed(breaker);
    }
    let mut settled = breaker.clone();
    Draft::open(&mut settled, now);
    Cow::Owned(settled)
}

/// STATE: reads, and changes nothing.
pub fn view(breaker: &Breaker, now: Instant) -> View {
    let mut settled = breaker.clone();
    Draft::open(&mut settled, now);
    // The luckiest chance, and no options: these cannot be refused.
    let next = admit(&mut settled.clone(), Caller::default(), None, 0, now);
    let (admits, retry_after) = match next {
        Ok(next) => (next.verdict.permit.is_some(), next.verdict.retry_after),
        Err(_) => (false, Wait::NONE),
    };
    View { breaker: settled, admits, retry_after }
}
