//! The durable state of a ledger: its entries, what is indexed of them, and what is known of groups, cases and takers.
//!
//! Every place an entry can be in has one index, and only [`Ledger::put`] and [`Ledger::lift`] touch them:
//! ```text
//!   waiting   due (own pace) or again (redriven: at the redrive's pace)      by due instant, then arrival
//!   taken     its batch
//!   parked    its aggregate
//!   dead      its group                                                     by death, then arrival
//!   resolved  resolved                                                      by end, then arrival
//!   archived  archived                                                      the same
//! ```
//! Every question costs a logarithm, whatever the size.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::alert::{Alert, AuditRow, Deaths};
use super::arrivals::Arrivals;
use super::case::{Case, Discard, RedriveState};
use super::config::Config;
use super::done::{Done, Dones};
use super::entry::Entry;
use super::group::Groups;
use super::hashed::Hashed;
use super::notes::{EndedIn, Notes};
use super::request::Place;
use crate::limits::{ACTIVE_CASES_MAX, AGGREGATE_DEATHS, REDRIVE_RATE};
use crate::time::{Instant, Span};
use crate::waited::Lease;

/// How many entries that are loaded are put into their index together: a megabyte.
const INDEXED_AT_ONCE: usize = 1 << 16;

/// How many entries of a batch end in one step: a bound on how long it takes. The rest follows in the next ones.
pub(super) const ENDED_AT_ONCE: usize = 100;

/// The entries that one TAKE got, under one lease. The fence of each is that of the batch and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBatch {
    pub token: Box<[u8]>,
    pub meta: Box<[u8]>,
    pub since: Instant,
    pub length: Span,
    pub ends: Instant,
    /// Their arrivals, in the order of their fences; 0 for one that has ended.
    pub members: Vec<u64>,
    /// How many have not ended.
    pub left: usize,
}

impl TakenBatch {
    /// The arrival of the one with so many fences before its own, if it has not ended.
    fn member(&self, position: u64) -> Option<u64> {
        let arrival = *self.members.get(usize::try_from(position).ok()?)?;
        (arrival != 0).then_some(arrival)
    }

    /// The arrivals of those that have not ended.
    pub fn members(&self) -> impl Iterator<Item = u64> {
        self.members.iter().copied().filter(|arrival| *arrival != 0)
    }
}

/// What is known of an aggregate while an entry of it is in the ledger, or it is held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aggregate {
    pub parked: BTreeSet<u64>,
    /// Waiting, taken or dead.
    pub busy: usize,
    /// In the ledger, whatever their place.
    pub entries: usize,
    pub deaths: u64,
    /// The alert of so many deaths is out.
    pub is_alerted: bool,
    /// All of it is held, and what comes.
    pub held: bool,
    /// Entries that are held by themselves.
    pub held_alone: usize,
}

impl Aggregate {
    /// An entry is gone: once there are few deaths again, more of them are worth an alert.
    pub fn forget_alert(&mut self) {
        self.is_alerted &= self.deaths >= AGGREGATE_DEATHS;
    }
}

/// When the last redriven entry was given out, and until when no other is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub given_at: Instant,
    pub until: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// False until the first edit.
    pub is_open: bool,
    pub config: Config,
    pub(super) entries: Arrivals,
    /// By the hashes of their ids.
    pub(super) by_id: Hashed,
    pub(super) due: BTreeSet<(Instant, u64)>,
    pub(super) again: BTreeSet<(Instant, u64)>,
    pub(super) resolved: BTreeSet<(Instant, u64)>,
    pub(super) archived: BTreeSet<(Instant, u64)>,
    pub(super) batches: BTreeMap<u64, TakenBatch>,
    pub(super) by_token: BTreeMap<Box<[u8]>, u64>,
    pub(super) by_end: BTreeSet<(Instant, u64)>,
    pub(super) groups: Groups,
    pub(super) aggregates: BTreeMap<Box<[u8]>, Aggregate>,
    pub(super) cases: BTreeMap<u32, Case>,
    /// Deaths by type.
    pub(super) kinds: BTreeMap<Box<[u8]>, Deaths>,
    pub(super) alerts: VecDeque<Alert>,
    pub(super) audit: VecDeque<AuditRow>,
    pub(super) dones: Dones,
    pub(super) counts: [usize; 6],
    pub(super) held: usize,
    pub(super) bytes: usize,
    pub(super) numbers: Numbers,
    pub(super) pace: Option<Pace>,
    /// The alert `full` is out, and the ledger has not been below since.
    pub(super) is_nearly_full: bool,
    pub(super) notes: Notes,
}

/// The last of each kind of number that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    pub arrival: u64,
    pub fence: u64,
    pub case: u32,
    pub alert: u64,
    pub audit: u64,
}

impl Ledger {
    pub fn find(&self, id: &[u8]) -> Option<(u64, &Entry)> {
        self.by_id.find(self.by_id.hash(id), |arrival| {
            self.entry(arrival).filter(|entry| entry.message.id() == id).map(|entry| (arrival, entry))
        })
    }

    /// The same for one that was taken under this fence, and still is: that is found faster.
    pub fn find_taken(&self, id: &[u8], fence: u64) -> Option<(u64, &Entry)> {
        let arrival = self.arrival_by_fence(fence)?;
        self.entry(arrival).filter(|entry| entry.message.id() == id).map(|entry| (arrival, entry))
    }

    pub(super) fn arrival_by_fence(&self, fence: u64) -> Option<u64> {
        let (first, batch) = self.batches.range(..=fence).next_back()?;
        batch.member(fence - first)
    }

    pub fn entry(&self, arrival: u64) -> Option<&Entry> {
        self.entries.get(arrival)
    }

    /// Entries in the order of their arrivals, from one on.
    pub(super) fn entries_from(&self, arrival: u64) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.from(arrival)
    }

    fn all_entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries_from(0).map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn last_fence(&self) -> u64 {
        self.numbers.fence
    }

    /// By itself, or with its aggregate.
    pub fn is_held(&self, entry: &Entry) -> bool {
        // The message lies elsewhere in memory: it is looked at only if it can matter.
        entry.held || self.notes.held_aggregates > 0 && self.is_held_with_aggregate(entry)
    }

    pub(super) fn is_held_with_aggregate(&self, entry: &Entry) -> bool {
        self.aggregates.get(entry.message.aggregate()).is_some_and(|aggregate| aggregate.held)
    }

    pub fn count(&self, place: Place) -> usize {
        self.counts[place as usize]
    }

    /// The end of an entry that never died, if it is still remembered.
    pub fn done(&self, id: &[u8], now: Instant) -> Option<&Done> {
        self.dones.get(id, now)
    }

    /// The batch that has the entry, if it is taken.
    pub fn batch_of(&self, entry: &Entry) -> Option<(u64, &TakenBatch)> {
        if entry.place != Place::Taken {
            return None;
        }
        self.batches.range(..=entry.fence).next_back().map(|(fence, batch)| (*fence, batch))
    }

    /// The batch of which the entry is the last.
    pub fn last_of(&self, entry: &Entry) -> Option<u64> {
        self.batch_of(entry).filter(|(_, batch)| batch.left == 1).map(|(fence, _)| fence)
    }

    pub fn by_token(&self, token: &[u8]) -> Option<(u64, &TakenBatch)> {
        let fence = *self.by_token.get(token)?;
        Some((fence, self.batches.get(&fence)?))
    }

    /// A lease that started then is there.
    pub(super) fn note_lease(&mut self, since: Instant) {
        self.notes.newest_lease = self.notes.newest_lease.max(Some(since));
        if let Some(mending) = &mut self.notes.lease_mending {
            mending.newest = mending.newest.max(Some(since));
        }
    }

    pub fn lease(&self, fence: u64) -> Option<Lease<'_>> {
        self.batches.get(&fence).map(|batch| as_lease(fence, batch))
    }

    pub fn leases(&self) -> impl Iterator<Item = Lease<'_>> + Clone {
        self.batches.iter().map(|(fence, batch)| as_lease(*fence, batch))
    }

    pub fn first_lease(&self) -> Option<Lease<'_>> {
        // One that has not been put right yet does not end.
        let is_right = |at: &&(Instant, u64)| self.notes.lease_mending.as_ref().is_none_or(|of| of.to >= Some(**at));
        self.by_end.first().filter(is_right).and_then(|(_, fence)| self.lease(*fence))
    }

    pub fn lease_after(&self, fence: u64) -> Option<Lease<'_>> {
        self.batches.range(fence.checked_add(1)?..).next().map(|(fence, batch)| as_lease(*fence, batch))
    }

    /// The time between two entries that are redriven under `case`.
    pub fn interval(&self, case: u32) -> Span {
        let rate = self.cases.get(&case).and_then(|case| case.redrive.as_ref()).map(|redrive| redrive.rate);
        rate.unwrap_or(REDRIVE_RATE).interval().max(self.config.rate_max.interval())
    }

    /// As many cases are under way as can be.
    pub(super) fn has_many_active_cases(&self) -> bool {
        self.notes.active_cases.len() >= ACTIVE_CASES_MAX
    }

    /// Whether something of a case is under way may have changed.
    pub(super) fn note_case(&mut self, number: u32) {
        let is_active = self.cases.get(&number).is_some_and(|case| {
            case.running().is_some() || case.discard == Discard::UnderWay || case.is_open() && case.auto_until.is_some()
        });
        if is_active {
            self.notes.active_cases.insert(number);
        } else {
            self.notes.active_cases.remove(&number);
        }
    }

    /// Puts an entry into the index of its place. It is not in any.
    pub(super) fn put(&mut self, arrival: u64, entry: Entry) {
        self.held += usize::from(self.is_held(&entry));
        self.bytes += entry.bytes();
        self.index(arrival, Spot::of(&entry));
        if !entry.message.aggregate().is_empty() {
            self.join_aggregate(arrival, &entry);
        }
        self.entries.insert(arrival, entry);
    }

    /// Takes an entry out of the index of its place. It is put back.
    pub(super) fn lift(&mut self, arrival: u64) -> Option<Entry> {
        let entry = self.entries.slot(arrival)?.take()?;
        self.leave_indexes(arrival, &entry);
        Some(entry)
    }

    /// The same for one that does not come back, if `is_it` says so.
    pub(super) fn lift_for_good(&mut self, arrival: u64, is_it: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let entry = self.entries.remove_if(arrival, is_it)?;
        self.leave_indexes(arrival, &entry);
        self.by_id.remove(self.by_id.hash(entry.message.id()), arrival);
        Some(entry)
    }

    fn leave_indexes(&mut self, arrival: u64, entry: &Entry) {
        self.held -= usize::from(self.is_held(entry));
        self.bytes -= entry.bytes();
        self.unindex(arrival, Spot::of(entry));
        if !entry.message.aggregate().is_empty() {
            self.leave_aggregate(arrival, entry);
        }
    }

    /// Moves an entry that waits to its taker, or back: for its message and its aggregate nothing changes.
    /// False if it is not there, or elsewhere.
    pub(super) fn shift(&mut self, arrival: u64, place: Place, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(entry) = self.entries.slot(arrival).and_then(Option::as_mut).filter(|entry| entry.place == place)
        else {
            return false;
        };
        let from = Spot::of(entry);
        change(entry);
        let to = Spot::of(entry);
        self.unindex(arrival, from);
        self.index(arrival, to);
        true
    }

    fn index(&mut self, arrival: u64, Spot { place, at, since, is_redriven, group }: Spot) {
        self.counts[place as usize] += 1;
        let at = (at, arrival);
        if !self.notes.held_to.is_empty()
            && let Some(ended) = EndedIn::of(place, group)
            && self.notes.held_to.get(&ended).is_some_and(|held| at <= *held)
        {
            self.notes.held_to.remove(&ended);
        }
        match place {
            Place::Waiting => {
                self.notes.newest_wait = self.notes.newest_wait.max(Some(since));
                if let Some((_, newest)) = &mut self.notes.mended {
                    *newest = (*newest).max(Some(since));
                }
                match &mut self.notes.loaded {
                    _ if is_redriven => drop(self.again.insert(at)),
                    None => drop(self.due.insert(at)),
                    Some(loaded) => {
                        loaded.push(at);
                        if loaded.len() >= INDEXED_AT_ONCE {
                            self.index_loaded();
                        }
                    }
                }
            }
            Place::Resolved => drop(self.resolved.insert(at)),
            Place::Archived => drop(self.archived.insert(at)),
            Place::Dead => {
                if let Some(group) = self.groups.get_mut(group) {
                    group.dead.insert(at);
                }
            }
            Place::Taken | Place::Parked => {}
        }
    }

    /// From here on everything is in its index at once.
    pub(super) fn end_loading(&mut self) {
        self.index_loaded();
        self.notes.loaded = None;
    }

    /// What was read in pieces, and waits, is put into its index.
    pub(super) fn index_loaded(&mut self) {
        if let Some(loaded) = &mut self.notes.loaded {
            self.due.append(&mut loaded.drain(..).collect());
        }
    }

    fn unindex(&mut self, arrival: u64, Spot { place, at, is_redriven, group, .. }: Spot) {
        self.counts[place as usize] -= 1;
        let at = (at, arrival);
        match place {
            Place::Waiting if is_redriven => drop(self.again.remove(&at)),
            Place::Waiting => drop(self.due.remove(&at)),
            Place::Resolved => drop(self.resolved.remove(&at)),
            Place::Archived => drop(self.archived.remove(&at)),
            Place::Dead => {
                if let Some(group) = self.groups.get_mut(group) {
                    group.dead.remove(&at);
                }
            }
            Place::Taken | Place::Parked => {}
        }
    }

    fn join_aggregate(&mut self, arrival: u64, entry: &Entry) {
        let name = entry.message.aggregate();
        if !self.aggregates.contains_key(name) {
            self.aggregates.insert(name.into(), Aggregate::default());
        }
        let Some(aggregate) = self.aggregates.get_mut(name) else { return };
        aggregate.entries += 1;
        aggregate.deaths += u64::from(entry.deaths);
        aggregate.held_alone += usize::from(entry.held);
        if entry.place == Place::Parked {
            aggregate.parked.insert(arrival);
        } else {
            aggregate.busy += usize::from(entry.is_live());
        }
    }

    fn leave_aggregate(&mut self, arrival: u64, entry: &Entry) {
        let name = entry.message.aggregate();
        let Some(aggregate) = self.aggregates.get_mut(name) else { return };
        aggregate.entries -= 1;
        aggregate.deaths -= u64::from(entry.deaths);
        aggregate.held_alone -= usize::from(entry.held);
        if entry.place == Place::Parked {
            aggregate.parked.remove(&arrival);
        } else {
            aggregate.busy -= usize::from(entry.is_live());
        }
    }

    /// In debug builds, after every step. Only numbers are looked at where there are many.
    pub(super) fn check_invariants(&self) {
        let len = self.entries.len();
        debug_assert_eq!(self.counts.iter().sum::<usize>(), len, "an entry is in one place");
        debug_assert_eq!(self.by_id.len(), len, "an id is there once");
        debug_assert_eq!(self.due.len() + self.again.len(), self.count(Place::Waiting));
        debug_assert_eq!(self.archived.len(), self.count(Place::Archived));
        debug_assert_eq!(self.resolved.len(), self.count(Place::Resolved));
        debug_assert_eq!(self.batches.len(), self.by_token.len());
        debug_assert_eq!(self.batches.len(), self.by_end.len());
        if len > crate::waited::CHECKED_IN_FULL {
            return;
        }
        let taken: usize = self.batches.values().map(|batch| batch.left).sum();
        debug_assert_eq!(taken, self.count(Place::Taken), "a taken entry has a batch");
        let dead: usize = self.groups.list.values().map(|group| group.dead.len()).sum();
        debug_assert_eq!(dead, self.count(Place::Dead), "a dead entry has a group");
        let grouped: usize = self.groups.list.values().map(|group| group.entries).sum();
        debug_assert_eq!(grouped, self.all_entries().filter(|entry| entry.group != 0).count());
        debug_assert_eq!(self.bytes, self.all_entries().map(|entry| entry.bytes()).sum::<usize>());
        debug_assert_eq!(self.held, self.all_entries().filter(|entry| self.is_held(entry)).count());
        for (fence, batch) in &self.batches {
            debug_assert!(batch.left > 0, "a batch without entries has ended");
            debug_assert_eq!(batch.members().count(), batch.left);
            debug_assert_eq!(self.by_token.get(&batch.token), Some(fence));
            for member in batch.members() {
                let entry = self.entry(member);
                debug_assert!(entry.and_then(|entry| self.batch_of(entry)).is_some_and(|(of, _)| of == *fence));
            }
        }
        debug_assert_eq!(self.notes.held_aggregates, self.aggregates.values().filter(|of| of.held).count());
        for aggregate in self.aggregates.values() {
            debug_assert!(aggregate.parked.is_empty() || aggregate.busy > 0, "the parked wait for somebody");
        }
        for (number, case) in &self.cases {
            let active = self.all_entries().filter(|entry| entry.case == *number).count();
            let redrive = case.redrive.as_ref();
            let is_noted = self.notes.active_cases.contains(number);
            debug_assert_eq!(
                is_noted,
                case.running().is_some()
                    || case.discard == Discard::UnderWay
                    || case.is_open() && case.auto_until.is_some()
            );
            debug_assert_eq!(redrive.map_or(0, |redrive| redrive.active as usize), active);
            debug_assert!(redrive.is_none_or(|redrive| redrive.phase != RedriveState::Finished || active == 0));
            let unresolved = |entry: &Entry| entry.is_live() && entry.cases().contains(number);
            debug_assert_eq!(self.all_entries().filter(|entry| unresolved(entry)).count(), case.unresolved as usize);
        }
    }
}

/// What an index needs to know of an entry.
#[derive(Clone, Copy)]
struct Spot {
    place: Place,
    at: Instant,
    since: Instant,
    is_redriven: bool,
    group: u32,
}

impl Spot {
    fn of(entry: &Entry) -> Self {
        let Entry { place, at, since, group, .. } = *entry;
        Self { place, at, since, is_redriven: entry.is_redriven(), group }
    }
}

fn as_lease(fence: u64, batch: &TakenBatch) -> Lease<'_> {
    Lease { owner: &batch.token, fence, since: batch.since, length: batch.length, ends: batch.ends }
}
