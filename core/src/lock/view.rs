//! Questions that change nothing. They work on replicas, by the replica's own clock.

use alloc::boxed::Box;

use super::holder::Holder;
use super::holders::Holders;
use super::request::{Busy, LockRequest};
use crate::time::{Instant, Span};
use crate::waited::Queue;

/// True if `holder`'s lease has not ended.
pub fn lives(holder: &Holder, promoted_at: Option<Instant>, now: Instant) -> bool {
    holder.ends_for(promoted_at, now) > now
}

/// Does `owner` hold, and under `fence` if one is named?
pub fn check(holders: &Holders, owner: &[u8], fence: Option<u64>, promoted_at: Option<Instant>, now: Instant) -> bool {
    holders
        .by_owner(owner)
        .is_some_and(|holder| fence.is_none_or(|fence| holder.fence == fence) && lives(holder, promoted_at, now))
}

/// What is in the way of a caller.
pub fn busy(holders: &Holders, queue: &Queue<LockRequest>, now: Instant) -> Busy {
    let last = holders.last_end().and_then(|(_, fence)| holders.by_fence(fence));
    Busy {
        holder: last.map_or(Box::default(), |holder| holder.owner().into()),
        remaining: last.map_or(Span::ZERO, |holder| now.until(holder.ends)),
        retry_after: holders.first_end().map_or(Span::ZERO, |(end, _)| now.until(end)),
        active: holders.len(),
        queued: queue.len(),
    }
}
