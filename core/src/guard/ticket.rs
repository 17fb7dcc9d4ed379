//! Tickets: calls that are inside, and calls that wait for their retry.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

use super::request::Exited;
use crate::circuit_breaker::Permit;
use crate::limits::{CLOCK_JITTER, GRACE, HOLDERS_MAX};
use crate::time::{Instant, Span};
use crate::waited::lease::ends_for;
use crate::waited::{CHECKED_IN_FULL, Lease};

/// How many ends are remembered, so that EXIT can be asked again.
pub const TICKET_ENDS: usize = 64;

/// What a call with a ticket does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketStage {
    /// It is made, and takes a place.
    Inside,
    /// It failed, and will be made again after this delay.
    Waiting { delay: Span },
}

/// One attempt of a call. Its number is its ticket, and the fence of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub number: u64,
    pub owner: Arc<[u8]>,
    /// The first is 1.
    pub attempt: u32,
    /// When the first attempt began.
    pub first: Instant,
    pub since: Instant,
    pub lease: Span,
    pub ends: Instant,
    /// The ticket of the attempt before; 0 for the first.
    pub from: u64,
    /// The delay before this attempt; zero for the first.
    pub delay: Span,
    /// The breaker's, if the policy has one. Not sealed: it never leaves the server.
    pub permit: Option<Permit>,
    pub stage: TicketStage,
}

impl Ticket {
    pub fn is_inside(&self) -> bool {
        self.stage == TicketStage::Inside
    }

    /// What EXIT said of one that waits.
    pub fn retry(&self) -> Option<Exited> {
        match self.stage {
            TicketStage::Inside => None,
            TicketStage::Waiting { delay } => Some(Exited::Retry { delay, attempt: self.attempt.saturating_add(1) }),
        }
    }

    pub(super) fn as_lease(&self) -> Lease<'_> {
        Lease { owner: &self.owner, fence: self.number, since: self.since, length: self.lease, ends: self.ends }
    }
}

/// An end that is remembered for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketEnd {
    pub number: u64,
    pub at: Instant,
    pub said: Exited,
}

/// All live tickets, by number, by the owner that is inside, and by end; and the last ends.
#[derive(Debug, Clone, Default)]
pub struct Tickets {
    /// Shared with the edit that admitted it: a copy of it is never needed.
    by_number: BTreeMap<u64, Arc<Ticket>>,
    by_owner: BTreeMap<Arc<[u8]>, u64>,
    by_end: BTreeSet<(Instant, u64)>,
    ends: VecDeque<TicketEnd>,
    /// No lease started later than this, and all have been looked at since that promotion; volatile.
    newest: Option<Instant>,
    promoted_at: Option<Instant>,
}

impl PartialEq for Tickets {
    fn eq(&self, other: &Self) -> bool {
        self.by_number == other.by_number && self.ends == other.ends
    }
}

impl Eq for Tickets {}

impl Tickets {
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Calls inside.
    pub fn active(&self) -> usize {
        self.by_owner.len()
    }

    /// Calls that wait for their retry.
    pub fn waiting(&self) -> usize {
        self.by_number.len() - self.by_owner.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Ticket> {
        self.by_number.values().map(|ticket| &**ticket)
    }

    pub fn get(&self, number: u64) -> Option<&Ticket> {
        self.by_number.get(&number).map(|ticket| &**ticket)
    }

    pub(super) fn shared(&self, number: u64) -> Option<Arc<Ticket>> {
        self.by_number.get(&number).cloned()
    }

    /// The ticket with which `owner` is inside.
    pub fn of(&self, owner: &[u8]) -> Option<&Ticket> {
        self.by_owner.get(owner).and_then(|number| self.get(*number))
    }

    pub fn after(&self, number: u64) -> Option<&Ticket> {
        self.by_number.range(number.checked_add(1)?..).next().map(|(_, ticket)| &**ticket)
    }

    pub fn first_to_end(&self) -> Option<&Ticket> {
        self.by_end.first().and_then(|(_, number)| self.get(*number))
    }

    pub fn ends(&self) -> impl Iterator<Item = &TicketEnd> {
        self.ends.iter()
    }

    /// What EXIT said to this ticket, if that is still remembered.
    pub fn remembered(&self, number: u64, now: Instant) -> Option<Exited> {
        let end = self.ends.iter().rev().find(|end| end.number == number)?;
        (end.at.plus(GRACE) > now).then_some(end.said)
    }

    pub(super) fn remember(&mut self, end: TicketEnd) {
        if self.ends.len() >= TICKET_ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
    }

    /// An owner is inside once: what a forged or repeated edit brings replaces what was there.
    pub(super) fn insert(&mut self, ticket: impl Into<Arc<Ticket>>) {
        let ticket = ticket.into();
        if ticket.is_inside()
            && let Some(number) = self.by_owner.get(&ticket.owner).copied()
        {
            self.remove(number);
        }
        if self.len() >= HOLDERS_MAX || self.by_number.contains_key(&ticket.number) {
            return;
        }
        if ticket.is_inside() {
            self.by_owner.insert(Arc::clone(&ticket.owner), ticket.number);
        }
        self.by_end.insert((ticket.ends, ticket.number));
        self.newest = self.newest.max(Some(ticket.ends.minus(ticket.lease)));
        self.by_number.insert(ticket.number, ticket);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<Ticket>> {
        let ticket = self.by_number.remove(&number)?;
        self.by_end.remove(&(ticket.ends, number));
        if ticket.is_inside() {
            self.by_owner.remove(&ticket.owner);
        }
        Some(ticket)
    }

    pub(super) fn set_time(&mut self, number: u64, lease: Span, ends: Instant) {
        if let Some(ticket) = self.remove(number) {
            self.insert(Ticket { lease, ends, ..Arc::unwrap_or_clone(ticket) });
        }
    }

    /// The leases that a clock set back, or a promotion, left with a wrong end: number, length, right end.
    pub(super) fn mended(
        &mut self,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> alloc::vec::Vec<(u64, Span, Instant)> {
        let promoted_at = promoted_at.filter(|promoted| *promoted <= now);
        if self.promoted_at == promoted_at && self.newest <= Some(now.plus(CLOCK_JITTER)) {
            return alloc::vec::Vec::new();
        }
        let right = |ticket: &Ticket| ends_for(ticket.ends, ticket.lease, promoted_at, now);
        self.newest = self.iter().map(|ticket| right(ticket).minus(ticket.lease)).max();
        self.promoted_at = promoted_at;
        let wrong = self.iter().filter(|ticket| ticket.ends != right(ticket));
        wrong.map(|ticket| (ticket.number, ticket.lease, right(ticket))).collect()
    }

    /// How many are inside, and how many wait for their retry, of those that have not ended by `now`.
    pub fn live(&self, promoted_at: Option<Instant>, now: Instant) -> (usize, usize) {
        let promoted_at = promoted_at.filter(|promoted| *promoted <= now);
        let mut live = (self.active(), self.waiting());
        let mut end = |ticket: &Ticket| {
            let count = if ticket.is_inside() { &mut live.0 } else { &mut live.1 };
            *count -= 1;
        };
        if self.promoted_at == promoted_at && self.newest <= Some(now.plus(CLOCK_JITTER)) {
            let over = self.by_end.range(..=(now, u64::MAX));
            over.filter_map(|(_, number)| self.get(*number)).for_each(end);
        } else {
            let is_over = |ticket: &&Ticket| ends_for(ticket.ends, ticket.lease, promoted_at, now) <= now;
            self.iter().filter(is_over).for_each(&mut end);
        }
        live
    }

    /// Frees at most so many of them.
    pub(super) fn discard(&mut self, most: usize) {
        for _ in 0..most {
            self.by_end.pop_first();
            self.by_owner.pop_first();
            if self.by_number.pop_first().is_none() {
                return;
            }
        }
    }

    pub(super) fn check_invariants(&self) {
        debug_assert_eq!(self.by_number.len(), self.by_end.len());
        debug_assert!(self.by_owner.len() <= self.by_number.len() && self.len() <= HOLDERS_MAX);
        debug_assert!(self.ends.len() <= TICKET_ENDS);
        if self.len() <= CHECKED_IN_FULL {
            for ticket in self.iter() {
                debug_assert!(self.by_end.contains(&(ticket.ends, ticket.number)));
                debug_assert_eq!(ticket.is_inside(), self.by_owner.get(&ticket.owner) == Some(&ticket.number));
                debug_assert!(ticket.attempt > 0 && ticket.number > ticket.from);
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let owners: usize = self.iter().map(|ticket| ticket.owner.len() + 16).sum();
        // A ticket, twice its number, and a reference to its owner; the nodes are about two thirds full.
        self.len() * (size_of::<Ticket>() + 64) * 3 / 2 + owners + self.ends.len() * size_of::<TicketEnd>()
    }

    /// About the same: owners have names of about one length.
    pub(super) fn bytes_about(&self) -> usize {
        let owner = self.iter().next().map_or(0, |ticket| ticket.owner.len() + 16);
        self.len() * ((size_of::<Ticket>() + 64) * 3 / 2 + owner) + self.ends.len() * size_of::<TicketEnd>()
    }
}
