//! What is stored under a single-flight key.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::limits::{ENDS_REMEMBERED, GRACE};
use crate::time::{Instant, Span};
use crate::waited::Lease;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flight {
    pub value: Option<Cached>,
    pub pause: Option<Pause>,
    pub leader: Option<Box<Leader>>,
    /// The last ends, the newest last, one of each token.
    pub ended: Vec<LeadEnd>,
    pub last_fence: u64,
}

/// What was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// `None` is the cached "not found".
    pub content: Option<Arc<[u8]>>,
    pub at: Instant,
    pub fresh_until: Instant,
    pub stale_until: Instant,
}

/// Nobody leads until it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub at: Instant,
    pub until: Instant,
    pub error: Option<Arc<[u8]>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub token: Box<[u8]>,
    pub fence: u64,
    pub since: Instant,
    pub lease: Span,
    pub ends: Instant,
}

/// How a lead ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Published,
    Abandoned,
    Expired,
    Closed,
    Invalidated,
}

impl Way {
    pub const ALL: [Self; 5] = [Self::Published, Self::Abandoned, Self::Expired, Self::Closed, Self::Invalidated];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadEnd {
    pub token: Box<[u8]>,
    pub fence: u64,
    pub at: Instant,
    pub way: Way,
}

impl Flight {
    /// The value, while it is fresh.
    pub fn fresh(&self, now: Instant) -> Option<&Cached> {
        self.value.as_ref().filter(|value| value.fresh_until > now)
    }

    /// The bytes of a value that is no longer fresh, but may still be served.
    pub fn stale(&self, now: Instant) -> Option<(&Arc<[u8]>, &Cached)> {
        let value = self.value.as_ref().filter(|value| value.fresh_until <= now && value.stale_until > now)?;
        Some((value.content.as_ref()?, value))
    }

    pub fn paused(&self, now: Instant) -> Option<&Pause> {
        self.pause.as_ref().filter(|pause| pause.until > now)
    }

    /// The lead, if there is one, as a lease.
    pub(super) fn lease(&self) -> Option<Lease<'_>> {
        let Leader { token, fence, since, lease, ends } = self.leader.as_deref()?;
        Some(Lease { owner: token, fence: *fence, since: *since, length: *lease, ends: *ends })
    }

    /// In debug builds, after every step.
    pub(super) fn check_invariants(&self) {
        let fences = self.leader.iter().map(|leader| leader.fence).chain(self.ended.iter().map(|end| end.fence));
        debug_assert!(fences.max().is_none_or(|highest| highest <= self.last_fence), "{self:?}");
        debug_assert!(self.ended.len() <= ENDS_REMEMBERED, "{self:?}");
    }

    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// When nothing in here can matter any more.
    pub fn gc_at(&self, salt: u64) -> Instant {
        const STEP: Span = Span::from_secs(16);
        let value = self.value.as_ref().map(|value| value.stale_until);
        let pause = self.pause.as_ref().map(|pause| pause.until);
        let leader = self.leader.as_ref().map(|leader| leader.ends.plus(GRACE));
        let ended = self.ended.last().map(|ended| ended.at.plus(GRACE));
        let last = [value, pause, leader, ended].into_iter().flatten().max().unwrap_or(Instant::EPOCH);
        last.next_on_grid(STEP, salt)
    }

    /// Bytes on the heap beyond the value itself.
    pub fn heap_bytes(&self) -> usize {
        const SHARED: usize = 2 * size_of::<usize>();
        let value =
            self.value.as_ref().and_then(|value| value.content.as_ref()).map_or(0, |bytes| bytes.len() + SHARED);
        let error = self.pause.as_ref().and_then(|pause| pause.error.as_ref()).map_or(0, |text| text.len() + SHARED);
        let leader = self.leader.as_ref().map_or(0, |leader| size_of::<Leader>() + leader.token.len());
        let ended: usize = self.ended.iter().map(|ended| size_of::<LeadEnd>() + ended.token.len()).sum();
        value + error + leader + ended
    }
}
