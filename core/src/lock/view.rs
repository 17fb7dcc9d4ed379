//! Questions that change nothing. They work on replicas, by the replica's own clock.

use super::holder::Holder;
use super::holders::Holders;
use crate::time::Instant;

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
