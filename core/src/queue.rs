//! A line of waiters: volatile, never stored, never replicated.
//!
//! First come first served within a priority; 0 goes before 9. An owner has one place. Everything a server does with a
//! line (serve its head, let one leave from the middle, find who has waited long enough) costs the logarithm of its
//! length.

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

/// Where somebody stands: by priority, then by arrival.
type Turn = (u8, u64);

/// One who waits, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter<T> {
    pub id: WaiterId,
    pub owner: Arc<[u8]>,
    pub since: Instant,
    pub deadline: Instant,
    pub ask: T,
}

impl<T> Waiter<T> {
    pub fn waited(&self, now: Instant) -> Span {
        self.since.until(now)
    }
}

#[derive(Debug, Clone)]
pub struct Queue<T> {
    line: BTreeMap<Turn, Waiter<T>>,
    by_owner: BTreeMap<Arc<[u8]>, Turn>,
    by_id: BTreeMap<WaiterId, Turn>,
    by_deadline: BTreeSet<(Instant, Turn)>,
    arrivals: u64,
    seen: Instant,
    /// How many may hold what they wait for, by the newest call; only bulkheads say so.
    pub max: Option<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            line: BTreeMap::new(),
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
        self.line.is_empty()
    }

    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Who is next.
    pub fn head(&self) -> Option<&Waiter<T>> {
        self.line.first_key_value().map(|(_, waiter)| waiter)
    }

    /// In the order they will be served.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter<T>> {
        self.line.values()
    }

    /// True if one who comes now with `priority` would be the head.
    pub fn would_lead(&self, priority: u8) -> bool {
        self.line.first_key_value().is_none_or(|((first, _), _)| priority < *first)
    }

    /// Steps in behind all of the same priority.
    pub fn join(&mut self, priority: u8, waiter: Waiter<T>) {
        let turn = (priority, self.arrivals);
        self.arrivals += 1;
        self.place(turn, waiter);
    }

    /// Gives an owner's place to another call of the same owner. The call that waited until now comes back; `Err` if
    /// the owner does not wait.
    pub fn supersede(&mut self, waiter: Waiter<T>) -> Result<Waiter<T>, Waiter<T>> {
        let Some(turn) = self.by_owner.get(&waiter.owner).copied() else { return Err(waiter) };
        match self.remove(turn) {
            Some(former) => {
                self.place(turn, waiter);
                Ok(former)
            }
            None => Err(waiter),
        }
    }

    pub fn take_head(&mut self) -> Option<Waiter<T>> {
        let turn = *self.line.first_key_value()?.0;
        self.remove(turn)
    }

    pub fn leave(&mut self, id: WaiterId) -> Option<Waiter<T>> {
        let turn = *self.by_id.get(&id)?;
        self.remove(turn)
    }

    pub fn leave_by_owner(&mut self, owner: &[u8]) -> Option<Waiter<T>> {
        let turn = *self.by_owner.get(owner)?;
        self.remove(turn)
    }

    pub fn waits(&self, owner: &[u8]) -> bool {
        self.by_owner.contains_key(owner)
    }

    pub fn first_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Takes out the one whose deadline comes first.
    pub fn take_first_deadline(&mut self) -> Option<Waiter<T>> {
        let turn = self.by_deadline.first()?.1;
        self.remove(turn)
    }

    /// The clock was set back: what was left to wait is left to wait.
    pub fn follow_clock(&mut self, now: Instant) {
        let back = now.until(self.seen);
        self.seen = now;
        if self.line.is_empty() || back <= CLOCK_JITTER {
            return;
        }
        self.by_deadline.clear();
        for (turn, waiter) in &mut self.line {
            waiter.since = waiter.since.minus(back);
            waiter.deadline = waiter.deadline.minus(back);
            self.by_deadline.insert((waiter.deadline, *turn));
        }
    }

    fn place(&mut self, turn: Turn, waiter: Waiter<T>) {
        self.by_owner.insert(Arc::clone(&waiter.owner), turn);
        self.by_id.insert(waiter.id, turn);
        self.by_deadline.insert((waiter.deadline, turn));
        self.line.insert(turn, waiter);
    }

    fn remove(&mut self, turn: Turn) -> Option<Waiter<T>> {
        let waiter = self.line.remove(&turn)?;
        self.by_owner.remove(&waiter.owner);
        self.by_id.remove(&waiter.id);
        self.by_deadline.remove(&(waiter.deadline, turn));
        Some(waiter)
    }
}
