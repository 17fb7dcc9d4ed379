//! The durable part: who holds, and the last ends.
//!
//! Nearly always there is one holder, so it lies inline. Several are indexed by owner and by end: every question then
//! costs a logarithm.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::edit::HolderEdit;
use super::edit::HolderEdits;
use super::holder::{EndedHolding, Holder, Mode};
use crate::limits::{CLOCK_JITTER, ENDS_REMEMBERED, GRACE, HOLDERS_MAX};
use crate::time::{Instant, Span};
use crate::waited::{CHECKED_IN_FULL, Crowd, End, Ending};

/// How far the collection of a key may lag behind its last possible use. Long beside usual leases, so that taking and
/// releasing a lock mostly leaves its expiry where it is.
const GC_STEP: Span = Span::from_secs(64);

#[derive(Debug, Clone, Default)]
pub struct Holders {
    store: Store,
    past: Option<Box<PastHoldings>>,
}

/// By what can be seen of them: a fence that a holder surpasses is not worth remembering, but may be remembered.
impl PartialEq for Holders {
    fn eq(&self, other: &Self) -> bool {
        let seen = |holders: &Self| (holders.last_fence(), holders.len());
        seen(self) == seen(other) && self.store == other.store && self.ended() == other.ended()
    }
}

impl Eq for Holders {}

/// What is remembered of those who no longer hold.
#[derive(Debug, Clone, Default)]
struct PastHoldings {
    ends: SmallVec<[EndedHolding; 1]>,
    last_fence: u64,
}

/// Two variants, so that telling them apart takes no room beside the holder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Store {
    One(Holder),
    /// Nobody, or at least two.
    Not(Option<Box<Many>>),
}

impl Default for Store {
    fn default() -> Self {
        Self::Not(None)
    }
}

#[derive(Debug, Clone, Default)]
struct Many {
    by_fence: BTreeMap<u64, Holder>,
    by_owner: BTreeMap<Box<[u8]>, u64>,
    by_end: BTreeSet<(Instant, u64)>,
    /// No lease started later than this, and all have been looked at since that promotion; volatile.
    newest: Option<Instant>,
    promoted_at: Option<Instant>,
}

impl PartialEq for Many {
    fn eq(&self, other: &Self) -> bool {
        self.by_fence == other.by_fence
    }
}

impl Eq for Many {}

impl Many {
    fn insert(&mut self, holder: Holder) {
        self.by_owner.insert(holder.owner().into(), holder.fence);
        self.by_end.insert((holder.ends, holder.fence));
        self.newest = self.newest.max(Some(holder.ends.minus(holder.lease())));
        self.by_fence.insert(holder.fence, holder);
    }

    fn remove(&mut self, fence: u64) -> Option<Holder> {
        let holder = self.by_fence.remove(&fence)?;
        self.by_owner.remove(holder.owner());
        self.by_end.remove(&(holder.ends, fence));
        Some(holder)
    }
}

impl Holders {
    /// Shared holders, or one, in the order of their fences; `None` if an owner holds twice. Built as a whole: there can be many.
    pub(super) fn from_sorted(list: Vec<Holder>) -> Option<Self> {
        let store = match <[Holder; 1]>::try_from(list) {
            Ok([holder]) => Store::One(holder),
            Err(list) if list.is_empty() => Store::Not(None),
            Err(list) => {
                let many = Many {
                    by_owner: list.iter().map(|holder| (holder.owner().into(), holder.fence)).collect(),
                    by_end: list.iter().map(|holder| (holder.ends, holder.fence)).collect(),
                    newest: list.iter().map(|holder| holder.ends.minus(holder.lease())).max(),
                    promoted_at: None,
                    by_fence: list.into_iter().map(|holder| (holder.fence, holder)).collect(),
                };
                (many.by_owner.len() == many.by_fence.len()).then(|| Store::Not(Some(Box::new(many))))?
            }
        };
        Some(Self { store, past: None })
    }

    pub fn len(&self) -> usize {
        match &self.store {
            Store::Not(None) => 0,
            Store::One(_) => 1,
            Store::Not(Some(many)) => many.by_fence.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In the order of their fences, that is, of their grants.
    pub fn iter(&self) -> impl Iterator<Item = &Holder> {
        let (one, many) = self.parted();
        one.into_iter().chain(many.into_iter().flat_map(BTreeMap::values))
    }

    /// The holder with the next higher fence.
    pub(super) fn after(&self, fence: u64) -> Option<&Holder> {
        let (one, many) = self.parted();
        let one = one.filter(|holder| holder.fence > fence);
        one.or_else(|| many?.range(fence.checked_add(1)?..).next().map(|(_, holder)| holder))
    }

    /// How many leases have not ended. Only those whose end has come are looked at.
    pub fn count_alive(&self, promoted_at: Option<Instant>, now: Instant) -> usize {
        let over = |holder: &Holder| holder.ends_for(promoted_at, now) <= now;
        let over = match &self.store {
            Store::Not(None) => 0,
            Store::One(holder) => usize::from(over(holder)),
            Store::Not(Some(many)) => {
                let ended = many.by_end.range(..=(now, u64::MAX));
                ended.filter(|(_, fence)| many.by_fence.get(fence).is_some_and(over)).count()
            }
        };
        self.len() - over
    }

    /// The highest fence that was ever granted here.
    pub fn last_fence(&self) -> u64 {
        let held = match &self.store {
            Store::Not(None) => 0,
            Store::One(holder) => holder.fence,
            Store::Not(Some(many)) => many.by_fence.last_key_value().map_or(0, |(fence, _)| *fence),
        };
        held.max(self.past.as_ref().map_or(0, |past| past.last_fence))
    }

    pub fn ended(&self) -> &[EndedHolding] {
        self.past.as_ref().map_or(&[], |past| past.ends.as_slice())
    }

    pub(super) fn remember(&mut self, end: EndedHolding) {
        let past = self.past.get_or_insert_default();
        past.last_fence = past.last_fence.max(end.fence);
        // An owner learns of its last end; an earlier one of the same owner would only be in the way.
        past.ends.retain(|earlier| earlier.owner != end.owner);
        if past.ends.len() == ENDS_REMEMBERED {
            past.ends.remove(0);
        }
        past.ends.push(end);
    }

    /// Remembers a fence that nobody holds any more, and whose end is forgotten.
    pub(super) fn remember_fence(&mut self, fence: u64) {
        if fence > self.last_fence() {
            self.past.get_or_insert_default().last_fence = fence;
        }
    }

    pub fn by_owner(&self, owner: &[u8]) -> Option<&Holder> {
        match &self.store {
            Store::Not(None) => None,
            Store::One(holder) => Some(holder).filter(|holder| holder.owner() == owner),
            Store::Not(Some(many)) => many.by_fence.get(many.by_owner.get(owner)?),
        }
    }

    pub fn by_fence(&self, fence: u64) -> Option<&Holder> {
        match &self.store {
            Store::Not(None) => None,
            Store::One(holder) => Some(holder).filter(|holder| holder.fence == fence),
            Store::Not(Some(many)) => many.by_fence.get(&fence),
        }
    }

    /// An exclusive holder is alone, so it is enough to look at the first.
    pub fn is_exclusive(&self) -> bool {
        self.iter().next().is_some_and(|holder| holder.mode() == Mode::Exclusive)
    }

    /// The lease that ends first.
    pub fn first_end(&self) -> Option<(Instant, u64)> {
        match &self.store {
            Store::Not(None) => None,
            Store::One(holder) => Some((holder.ends, holder.fence)),
            Store::Not(Some(many)) => many.by_end.first().copied(),
        }
    }

    /// The lease that ends last.
    pub fn last_end(&self) -> Option<(Instant, u64)> {
        match &self.store {
            Store::Not(None) => None,
            Store::One(holder) => Some((holder.ends, holder.fence)),
            Store::Not(Some(many)) => many.by_end.last().copied(),
        }
    }

    /// The edits that right the leases which a clock set back, or a promotion, made wrong. Where there are many, they are only
    /// looked at after one of the two.
    pub(super) fn mend(&mut self, promoted_at: Option<Instant>, now: Instant) -> HolderEdits {
        if let Store::Not(Some(many)) = &mut self.store {
            let promoted_at = promoted_at.filter(|promoted| *promoted <= now);
            if many.promoted_at == promoted_at && many.newest <= Some(now.plus(CLOCK_JITTER)) {
                return HolderEdits::new();
            }
            let starts = many.by_fence.values().map(|holder| holder.ends_for(promoted_at, now).minus(holder.lease()));
            many.newest = starts.max();
            many.promoted_at = promoted_at;
        }
        self.iter()
            .map(|holder| (holder, holder.ends_for(promoted_at, now)))
            .filter(|(holder, right)| holder.ends != *right)
            .map(|(holder, right)| HolderEdit::Timed { fence: holder.fence, lease: holder.lease(), ends: right })
            .collect()
    }

    /// When nothing in here can matter any more: its own last end and the grace are over.
    pub fn gc_at(&self, salt: u64) -> Instant {
        let last_end = self.last_end().map_or(Instant::EPOCH, |(end, _)| end);
        let latest_end = self.ended().last().map_or(Instant::EPOCH, |end| end.at);
        last_end.max(latest_end).plus(GRACE).next_on_grid(GC_STEP, salt)
    }

    pub(super) fn insert(&mut self, holder: Holder) {
        // An owner holds once: what a forged or repeated edit brings replaces what was there, but its fence was granted.
        if let Some(fence) = self.by_owner(holder.owner()).map(|same| same.fence) {
            self.remove(fence);
            self.remember_fence(fence);
        }
        let crowds = !self.is_empty() && (holder.mode() == Mode::Exclusive || self.is_exclusive());
        if crowds || self.len() == HOLDERS_MAX || self.by_fence(holder.fence).is_some() {
            return;
        }
        self.store = match core::mem::take(&mut self.store) {
            Store::Not(None) => Store::One(holder),
            Store::One(other) => {
                let mut many = Box::<Many>::default();
                many.insert(other);
                many.insert(holder);
                Store::Not(Some(many))
            }
            Store::Not(Some(mut many)) => {
                many.insert(holder);
                Store::Not(Some(many))
            }
        };
    }

    pub(super) fn remove(&mut self, fence: u64) -> Option<Holder> {
        self.by_fence(fence)?;
        match core::mem::take(&mut self.store) {
            Store::Not(None) => None,
            Store::One(holder) => Some(holder),
            Store::Not(Some(mut many)) => {
                let removed = many.remove(fence);
                let one = if many.by_fence.len() == 1 { many.by_fence.pop_first() } else { None };
                self.store = one.map_or(Store::Not(Some(many)), |(_, holder)| Store::One(holder));
                removed
            }
        }
    }

    /// Ends everybody. They leave as a whole, and are taken apart when they are looked at.
    pub(super) fn end_all(&mut self, at: Instant, how: End) -> Crowd {
        let mut all = Self { store: core::mem::take(&mut self.store), past: None };
        // Of more ends than are remembered, only the last ones are.
        let last: SmallVec<[&Holder; ENDS_REMEMBERED]> = all.latest().take(ENDS_REMEMBERED).collect();
        for holder in last.into_iter().rev() {
            let (fence, held, owner) = (holder.fence, holder.held(at), holder.owner().into());
            self.remember(EndedHolding { fence, at, held, how, owner });
        }
        Box::new(core::iter::from_fn(move || {
            let first = all.iter().next()?.fence;
            let holder = all.remove(first)?;
            let (fence, held) = (holder.fence, holder.held(at));
            Some(Ending { owner: holder.into_owner(), fence, held, how })
        }))
    }

    /// The latest grants first.
    fn latest(&self) -> impl Iterator<Item = &Holder> {
        let (one, many) = self.parted();
        one.into_iter().chain(many.into_iter().flat_map(|many| many.values().rev()))
    }

    /// The one, or the many.
    fn parted(&self) -> (Option<&Holder>, Option<&BTreeMap<u64, Holder>>) {
        match &self.store {
            Store::Not(None) => (None, None),
            Store::One(holder) => (Some(holder), None),
            Store::Not(Some(many)) => (None, Some(&many.by_fence)),
        }
    }

    pub(super) fn set_time(&mut self, fence: u64, lease: Span, ends: Instant) {
        self.change(fence, |holder| {
            holder.set_lease(lease);
            holder.ends = ends;
        });
    }

    pub(super) fn set_mode(&mut self, fence: u64, mode: Mode) {
        if mode == Mode::Shared || self.len() == 1 {
            self.change(fence, |holder| holder.set_mode(mode));
        }
    }

    fn change(&mut self, fence: u64, change: impl FnOnce(&mut Holder)) {
        match &mut self.store {
            Store::One(holder) if holder.fence == fence => change(holder),
            Store::Not(None) | Store::One(_) => {}
            Store::Not(Some(many)) => {
                if let Some(mut holder) = many.remove(fence) {
                    change(&mut holder);
                    many.insert(holder);
                }
            }
        }
    }

    /// In debug builds, after every step. Where there are many, only their number is looked at.
    pub(super) fn check_invariants(&self) {
        debug_assert!(self.len() <= HOLDERS_MAX && self.ended().len() <= ENDS_REMEMBERED);
        if let Store::Not(Some(many)) = &self.store {
            let len = many.by_fence.len();
            debug_assert!(
                len >= 2 && many.by_owner.len() == len && many.by_end.len() == len,
                "indexes name the holders"
            );
        }
        if self.len() <= CHECKED_IN_FULL {
            let alone = self.len() == 1 || self.iter().all(|holder| holder.mode() == Mode::Shared);
            debug_assert!(alone, "an exclusive holder is alone");
            let known = |holder: &Holder| self.by_owner(holder.owner()).is_some_and(|same| same.fence == holder.fence);
            debug_assert!(self.iter().all(known), "an owner holds once");
            debug_assert!(self.iter().all(|holder| holder.fence <= self.last_fence()));
        }
    }

    /// Parts to free one by one.
    pub fn parts(&self) -> usize {
        1 + self.len() + self.ended().len()
    }

    /// Bytes on the heap beyond the value itself, as asked for.
    pub fn heap_bytes(&self) -> usize {
        let texts: usize = self.iter().map(Holder::heap_bytes).sum();
        let ends: usize = self.ended().iter().map(|end| size_of::<EndedHolding>() + end.owner.len()).sum();
        let store = match &self.store {
            Store::Not(None) | Store::One(_) => 0,
            // A holder, twice its fence, and its owner once more; the nodes are about two thirds full.
            Store::Not(Some(many)) => many.by_fence.len() * (size_of::<Holder>() + 64) * 3 / 2 + texts,
        };
        texts + ends + store
    }

    /// About the same: owners have names of about one length.
    pub fn bytes_about(&self) -> usize {
        let text = self.iter().next().map_or(0, Holder::heap_bytes);
        let ends = self.ended();
        let end = ends.iter().next().map_or(0, |end| size_of::<EndedHolding>() + end.owner.len());
        let store = match &self.store {
            Store::Not(None) => 0,
            Store::One(_) => text,
            Store::Not(Some(many)) => many.by_fence.len() * ((size_of::<Holder>() + 64) * 3 / 2 + 2 * text),
        };
        store + ends.len() * end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_small() {
        assert_eq!(size_of::<Holder>(), 48);
        assert!(size_of::<Holders>() <= 56, "{}", size_of::<Holders>());
    }
}
