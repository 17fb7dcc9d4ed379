//! The queue of waiters of a key: volatile, never stored, never replicated.
//!
//! First come first served within a priority; 0 goes before 9. An owner has one position. Every operation (serve the
//! head, remove from the middle, find the first deadline) costs the logarithm of the length.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use crate::limits::CLOCK_JITTER;
use crate::time::{Instant, Span};

/// A number that names one blocked call.
pub type WaiterId = u64;

/// How a call waits if it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub id: WaiterId,
    pub wait: Span,
    /// How many may wait.
    pub most: usize,
}

/// A position in the queue: by priority, then by arrival.
type Position = (u8, u64);

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
    pub fn waited(&self, now: Instant) -> Span {
        self.since.until(now)
    }
}

#[derive(Debug, Clone)]
pub struct Queue<T> {
    waiters: BTreeMap<Position, Waiter<T>>,
    by_owner: BTreeMap<Arc<[u8]>, Position>,
    by_id: BTreeMap<WaiterId, Position>,
    by_deadline: BTreeSet<(Instant, Position)>,
    arrivals: u64,
    seen: Instant,
    /// How many may hold what they wait for, by the newest call; only bulkheads say so.
    pub max: Option<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            by_id: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            arrivals: 0,
            seen: Instant::EPOCH,
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
        self.waiters.first_key_value().map(|(_, waiter)| waiter)
    }

    /// In the order they will be served.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter<T>> {
        self.waiters.values()
    }

    /// True if a newcomer with `priority` would be the head.
    pub fn would_lead(&self, priority: u8) -> bool {
        self.waiters.first_key_value().is_none_or(|((first, _), _)| priority < *first)
    }

    /// Joins behind all of the same priority.
    pub fn join(&mut self, priority: u8, waiter: Waiter<T>) {
        let position = (priority, self.arrivals);
        self.arrivals += 1;
        self.insert(position, waiter);
    }

    /// Gives an owner's position to another call of the same owner. The call that waited until now comes back; `Err` if
    /// the owner does not wait.
    pub fn supersede(&mut self, waiter: Waiter<T>) -> Result<Waiter<T>, Waiter<T>> {
        let Some(position) = self.by_owner.get(&waiter.owner).copied() else { return Err(waiter) };
        match self.remove(position) {
            Some(former) => {
                self.insert(position, waiter);
                Ok(former)
            }
            None => Err(waiter),
        }
    }

    pub fn take_head(&mut self) -> Option<Waiter<T>> {
        let position = *self.waiters.first_key_value()?.0;
        self.remove(position)
    }

    pub fn leave(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        let position = *self.by_id.get(&id)?;
        self.remove(position)
    }

    pub fn leave_by_owner(&mut self, owner: &[u8]) -> Option<Waiter<T>> {
        let position = *self.by_owner.get(owner)?;
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
        let position = self.by_deadline.first()?.1;
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
            self.by_deadline.insert((waiter.deadline, *position));
        }
    }

    fn insert(&mut self, position: Position, waiter: Waiter<T>) {
        self.by_owner.insert(Arc::clone(&waiter.owner), position);
        self.by_id.insert(waiter.id, position);
        self.by_deadline.insert((waiter.deadline, position));
        self.waiters.insert(position, waiter);
    }

    fn remove(&mut self, position: Position) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(&position)?;
        self.by_owner.remove(&waiter.owner);
        self.by_id.remove(&waiter.id);
        self.by_deadline.remove(&(waiter.deadline, position));
        Some(waiter)
    }

    /// In debug builds, after every step: the indexes name the waiters, each once. Long queues are only counted.
    pub(super) fn check_invariants(&self) {
        let len = self.waiters.len();
        debug_assert!(self.by_owner.len() == len && self.by_id.len() == len && self.by_deadline.len() == len);
        if len <= super::CHECKED_IN_FULL {
            for (position, waiter) in &self.waiters {
                debug_assert_eq!(self.by_owner.get(&waiter.owner), Some(position));
                debug_assert_eq!(self.by_id.get(&waiter.id), Some(position));
                debug_assert!(self.by_deadline.contains(&(waiter.deadline, *position)));
            }
        }
    }
}
