//! What is stored under a single-flight key.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::generations::{Generations, Validity};
use crate::limits::{ENDS_REMEMBERED, GRACE};
use crate::time::{Instant, Span};
use crate::waited::Lease;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flight {
    pub value: Option<Cached>,
    pub pause: Option<LoadPause>,
    pub leader: Option<Box<Leader>>,
    /// The last ends, the newest last, one of each token.
    pub ended: Vec<LeadEnd>,
    pub last_fence: u64,
    /// A generation at which the name was looked at when a load was voided: the next leader began no earlier.
    pub generation: u64,
}

/// What was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// `None` is the cached "not found".
    pub content: Option<Arc<[u8]>>,
    pub at: Instant,
    pub fresh_until: Instant,
    pub stale_until: Instant,
    /// `None`: it was published under no name.
    pub stamp: Option<Box<Stamp>>,
}

/// What a value was published under: see [`generations`](crate::generations).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Of the name when the load began.
    pub generation: u64,
    /// In order, each once.
    pub tags: Vec<Box<[u8]>>,
}

/// Nobody leads until it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadPause {
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
    /// Of the name it loads under; 0 without one.
    pub generation: u64,
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

    /// What the value is worth by what is known of the name it was asked for under. Without a name nothing is checked.
    pub fn validity(&self, under: Option<&Generations>) -> Validity {
        match (under, &self.value) {
            (None, _) | (_, None) => Validity::Good,
            (Some(known), Some(Cached { stamp: Some(stamp), .. })) => known.validity(stamp.generation, &stamp.tags),
            // Nobody knows what it was loaded before.
            (Some(_), Some(Cached { stamp: None, .. })) => Validity::Void,
        }
    }

    /// Whether the value is in the last `percent` of its ttl.
    pub fn is_nearly_over(&self, percent: u32, now: Instant) -> bool {
        self.fresh(now).is_some_and(|value| {
            let (left, whole) = (now.until(value.fresh_until).as_us(), value.at.until(value.fresh_until).as_us());
            value.content.is_some() && left.saturating_mul(100) <= whole.saturating_mul(percent.into())
        })
    }

    /// The bytes of a value that is no longer fresh, but may still be served.
    pub fn stale(&self, now: Instant) -> Option<(&Arc<[u8]>, &Cached)> {
        let value = self.value.as_ref().filter(|value| value.fresh_until <= now && value.stale_until > now)?;
        Some((value.content.as_ref()?, value))
    }

    /// The bytes of a value that may be served, fresh or stale.
    pub fn servable(&self, now: Instant) -> Option<(&Arc<[u8]>, &Cached)> {
        let value = self.value.as_ref().filter(|value| value.stale_until.max(value.fresh_until) > now)?;
        Some((value.content.as_ref()?, value))
    }

    pub fn paused(&self, now: Instant) -> Option<&LoadPause> {
        self.pause.as_ref().filter(|pause| pause.until > now)
    }

    /// The lead, if there is one, as a lease.
    pub(super) fn lease(&self) -> Option<Lease<'_>> {
        let Leader { token, fence, since, lease, ends, .. } = self.leader.as_deref()?;
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
        let stamp = self.value.as_ref().and_then(|value| value.stamp.as_ref()).map_or(0, |stamp| {
            size_of::<Stamp>() + stamp.tags.iter().map(|tag| size_of::<Box<[u8]>>() + tag.len()).sum::<usize>()
        });
        value + error + leader + ended + stamp
    }
}
