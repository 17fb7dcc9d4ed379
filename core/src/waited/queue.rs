//! The queue of waiters of a key: volatile, never stored, never replicated.
//!
//! First come first served within a priority; 0 goes before 9. A waiter gains one priority for every `ageing` it has waited,
//! so nobody starves behind those who keep coming; between equals the one that came first is served. An owner has one
//! position. Every operation (serve the head, remove from the middle, find the first deadline) costs the logarithm of the
//! length.

use alloc::boxed::Box;
use alloc::collections::btree_map::Range;
use alloc::collections::{BTreeMap, BTreeSet, btree_map};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::limits::CLOCK_JITTER;
use crate::time::{Instant, Span};

/// A number that names one call that waits. A call that comes later has a higher one.
pub type WaiterId = u64;

/// How a call waits if it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub id: WaiterId,
    pub wait: Span,
    /// How many may wait.
    pub most: usize,
}

/// A position in the queue: by priority, then by arrival, which is the id of the call that took it.
type Position = (u8, WaiterId);

/// A call that waits, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter<T> {
    pub id: WaiterId,
    pub owner: Arc<[u8]>,
    pub since: Instant,
    pub deadline: Instant,
    pub request: T,
}

impl<T> Waiter<T> {
    pub fn new(id: WaiterId, owner: Arc<[u8]>, since: Instant, wait: Span, request: T) -> Self {
        Self { id, owner, since, deadline: since.plus(wait), request }
    }

    pub fn waited(&self, now: Instant) -> Span {
        self.since.until(now)
    }
}

#[derive(Debug, Clone)]
pub struct Queue<T> {
    waiters: BTreeMap<Position, Box<Waiter<T>>>,
    /// The position that each owner has, by the call that took it.
    by_owner: BTreeMap<Arc<[u8]>, WaiterId>,
    by_deadline: BTreeSet<(Instant, WaiterId)>,
    /// Calls that have the position of an earlier one of the same owner: its id, and when it came. The owner's age counts from
    /// there.
    inherited: BTreeMap<WaiterId, (WaiterId, Instant)>,
    /// How many wait in each priority.
    lengths: BTreeMap<u8, usize>,
    newest: WaiterId,
    seen: Instant,
    /// After so long a waiter gains a priority; zero: never.
    pub ageing: Span,
    /// How many may hold what they wait for, by the newest call; only bulkheads say so.
    pub max: Option<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            inherited: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            lengths: BTreeMap::new(),
            newest: 0,
            seen: Instant::EPOCH,
            ageing: Span::ZERO,
            max: None,
        }
    }
}

impl<T> Queue<T> {
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The waiter that is served next.
    pub fn head(&self) -> Option<&Waiter<T>> {
        self.waiters.get(&self.head_position()?).map(Box::as_ref)
    }

    /// The waiter that came first, of whatever priority.
    pub fn oldest(&self) -> Option<&Waiter<T>> {
        let first = self.lengths.keys().filter_map(|class| self.class(*class).next());
        first.map(|(_, waiter)| waiter.as_ref()).min_by_key(|waiter| waiter.since)
    }

    /// The call `id`, if it waits.
    pub fn waiter(&self, id: WaiterId) -> Option<&Waiter<T>> {
        self.waiters.get(&self.find(id)?).map(Box::as_ref)
    }

    /// In the order they would have been served at the last step.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter<T>> {
        self.waiters_at(self.seen)
    }

    /// In the order they would be served at `now`.
    pub fn waiters_at(&self, now: Instant) -> impl Iterator<Item = &Waiter<T>> {
        let classes = self.lengths.keys().map(|class| self.class(*class).peekable());
        let mut classes: Vec<_> = classes.collect();
        core::iter::from_fn(move || {
            let heads = classes.iter_mut().enumerate();
            let ranks = heads.filter_map(|(index, class)| {
                let (position, waiter) = class.peek()?;
                Some((self.rank(**position, waiter, now), index))
            });
            let (_, best) = ranks.min()?;
            classes[best].next().map(|(_, waiter)| waiter.as_ref())
        })
    }

    /// How many are served before the waiter `id`, and itself: 1 is the head. `None` if it does not wait.
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        let own = self.find(id)?;
        let rank = self.rank(own, self.waiters.get(&own)?, self.seen);
        let is_newest = own.1 == self.newest;
        let ahead = self.lengths.iter().map(|(class, length)| {
            if is_newest && *class <= own.0 {
                return *length;
            }
            // Those who came first have waited longest.
            self.class(*class).take_while(|(position, waiter)| self.rank(**position, waiter, self.seen) <= rank).count()
        });
        Some(ahead.sum())
    }

    /// True if a newcomer with `priority` would be the head.
    pub fn would_lead(&self, priority: u8) -> bool {
        let Some((position, waiter)) = self.head_position().and_then(|head| self.waiters.get_key_value(&head)) else {
            return true;
        };
        priority < self.rank(*position, waiter, self.seen).0
    }

    /// The position of the call `id`.
    fn find(&self, id: WaiterId) -> Option<Position> {
        let arrival = self.inherited.get(&id).map_or(id, |(arrival, _)| *arrival);
        self.position_of(arrival).filter(|position| self.waiters.get(position).is_some_and(|waiter| waiter.id == id))
    }

    /// The position that the call `arrival` took.
    fn position_of(&self, arrival: WaiterId) -> Option<Position> {
        self.lengths.keys().map(|class| (*class, arrival)).find(|position| self.waiters.contains_key(position))
    }

    /// When the owner took its position, with whatever call.
    fn joined(&self, (_, arrival): Position, waiter: &Waiter<T>) -> Instant {
        if waiter.id == arrival {
            return waiter.since;
        }
        self.inherited.get(&waiter.id).map_or(waiter.since, |(_, joined)| *joined)
    }

    fn class(&self, priority: u8) -> Range<'_, Position, Box<Waiter<T>>> {
        self.waiters.range((priority, 0)..=(priority, u64::MAX))
    }

    /// The order in which waiters are served at `now`.
    fn rank(&self, position: Position, waiter: &Waiter<T>, now: Instant) -> Position {
        let (priority, arrival) = position;
        if self.ageing.is_zero() {
            return position;
        }
        let gained = self.joined(position, waiter).until(now).as_us() / self.ageing.as_us();
        (priority.saturating_sub(u8::try_from(gained).unwrap_or(u8::MAX)), arrival)
    }

    fn head_position(&self) -> Option<Position> {
        if self.lengths.len() <= 1 {
            return self.waiters.first_key_value().map(|(position, _)| *position);
        }
        let heads = self.lengths.keys().filter_map(|class| self.class(*class).next());
        heads.min_by_key(|(position, waiter)| self.rank(**position, waiter, self.seen)).map(|(position, _)| *position)
    }

    /// The owner of the call `id`, if it waits.
    pub fn owner_of(&self, id: WaiterId) -> Option<&Arc<[u8]>> {
        self.waiters.get(&self.find(id)?).map(|waiter| &waiter.owner)
    }

    /// Joins behind all of the same priority.
    pub fn join(&mut self, priority: u8, waiter: Waiter<T>) {
        let position = (priority, waiter.id);
        self.newest = self.newest.max(waiter.id);
        self.insert(position, Box::new(waiter));
    }

    /// Gives an owner's position to another call of the same owner. The call that waited until now comes back; `Err` if
    /// the owner does not wait.
    pub fn supersede(&mut self, waiter: Waiter<T>) -> Result<Waiter<T>, Waiter<T>> {
        let position = self.by_owner.get(&waiter.owner).and_then(|arrival| self.position_of(*arrival));
        let joined = position.and_then(|position| Some(self.joined(position, self.waiters.get(&position)?)));
        let former = position.and_then(|position| self.remove(position));
        let (Some(position), Some(joined), Some(former)) = (position, joined, former) else { return Err(waiter) };
        if waiter.id != position.1 {
            self.inherited.insert(waiter.id, (position.1, joined));
        }
        self.insert(position, Box::new(waiter));
        Ok(former)
    }

    pub fn take_head(&mut self) -> Option<Waiter<T>> {
        let position = self.head_position()?;
        self.remove(position)
    }

    pub fn leave(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        let position = self.find(id)?;
        self.remove(position)
    }

    pub fn leave_by_owner(&mut self, owner: &[u8]) -> Option<Waiter<T>> {
        let position = self.position_of(*self.by_owner.get(owner)?)?;
        self.remove(position)
    }

    pub fn waits(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    pub fn first_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Removes the waiter whose deadline comes first.
    pub fn take_first_deadline(&mut self) -> Option<Waiter<T>> {
        let position = self.position_of(self.by_deadline.first()?.1)?;
        self.remove(position)
    }

    /// The clock was set back: what was left to wait is left to wait.
    pub fn follow_clock(&mut self, now: Instant) {
        let back = now.until(self.seen);
        self.seen = now;
        if self.waiters.is_empty() || back <= CLOCK_JITTER {
            return;
        }
        self.by_deadline.clear();
        for (position, waiter) in &mut self.waiters {
            waiter.since = waiter.since.minus(back);
            waiter.deadline = waiter.deadline.minus(back);
            self.by_deadline.insert((waiter.deadline, position.1));
        }
        for (_, joined) in self.inherited.values_mut() {
            *joined = joined.minus(back);
        }
    }

    fn insert(&mut self, position: Position, waiter: Box<Waiter<T>>) {
        *self.lengths.entry(position.0).or_default() += 1;
        self.by_owner.insert(Arc::clone(&waiter.owner), position.1);
        self.by_deadline.insert((waiter.deadline, position.1));
        self.waiters.insert(position, waiter);
    }

    fn remove(&mut self, position: Position) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(&position)?;
        if let btree_map::Entry::Occupied(mut length) = self.lengths.entry(position.0) {
            *length.get_mut() -= 1;
            if *length.get() == 0 {
                length.remove();
            }
        }
        self.by_owner.remove(&waiter.owner);
        if waiter.id != position.1 {
            self.inherited.remove(&waiter.id);
        }
        self.by_deadline.remove(&(waiter.deadline, position.1));
        Some(*waiter)
    }

    /// In debug builds, after every step: the indexes name the waiters, each once. Long queues are only counted.
    pub(super) fn check_invariants(&self) {
        let len = self.waiters.len();
        debug_assert_eq!(self.lengths.values().sum::<usize>(), len);
        debug_assert!(self.by_owner.len() == len && self.inherited.len() <= len && self.by_deadline.len() == len);
        if len <= super::CHECKED_IN_FULL {
            for (position, waiter) in &self.waiters {
                debug_assert_eq!(self.by_owner.get(&waiter.owner), Some(&position.1));
                debug_assert_eq!(self.find(waiter.id), Some(*position));
                debug_assert!(self.by_deadline.contains(&(waiter.deadline, position.1)));
            }
        }
    }
}
