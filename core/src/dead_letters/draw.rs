//! What a taker gets next: retries that are due, and what redrives give out, at their pace.
//!
//! Everything is given out by its due instant, then by arrival. A dead entry that a redrive covers is due when the redrive started,
//! and redriven ones come in the order of their deaths. However many takers there are, one redriven entry is given out at a time,
//! and the next one not before the redrive's interval is over.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::iter;
use core::ops::Bound::{Excluded, Unbounded};

use super::case::{Cursor, Redrive};
use super::entry::Entry;
use super::ledger::Ledger;
use super::request::{Place, RedriveFilter};
use crate::time::Instant;

/// An entry that could be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub due: Instant,
    pub arrival: u64,
    /// The case under which it is redriven.
    pub case: Option<u32>,
    /// True if it is still dead.
    pub is_drawn: bool,
}

/// Where a search came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The entry, and where the search was just before it.
    Entry {
        arrival: u64,
        before: Cursor,
    },
    /// It has looked at enough for now.
    Later(Cursor),
    Nothing(Cursor),
}

impl Ledger {
    /// The first entry that is due by `now` and not redriven.
    pub(super) fn first_due(&self, now: Instant) -> Option<Candidate> {
        let (due, arrival) = *self.due.first().filter(|(due, _)| *due <= now)?;
        Some(Candidate { due, arrival, case: None, is_drawn: false })
    }

    /// The redriven entry whose turn is next, and when that is. `up_since`: what was given out before is not known.
    pub(super) fn next_redriven(&self, up_since: Instant, now: Instant) -> Option<(Candidate, Instant)> {
        let again = self.again.first().and_then(|(due, arrival)| {
            let case = self.entry(*arrival)?.case;
            Some(Candidate { due: *due, arrival: *arrival, case: Some(case), is_drawn: false })
        });
        let drawn = self.notes.active_cases.iter().filter_map(|number| {
            let redrive = self.cases.get(number)?.running().filter(|redrive| redrive.draws())?;
            match self.search(*number, redrive, SHALLOW).0 {
                Found::Entry { arrival, .. } => {
                    let due = redrive.started_at.min(now);
                    Some(Candidate { due, arrival, case: Some(*number), is_drawn: true })
                }
                Found::Later(_) | Found::Nothing(_) => None,
            }
        });
        let first = again.into_iter().chain(drawn).min_by_key(|candidate| (candidate.due, candidate.arrival))?;
        let interval = self.interval(first.case.unwrap_or_default());
        let pace = self.pace.map_or(Instant::EPOCH, |pace| pace.until);
        // A server does not know what its predecessor gave out. One that started in the future has a clock that was set back.
        let known = if up_since > now { Instant::EPOCH } else { up_since.plus(interval) };
        Some((first, first.due.max(pace).max(known)))
    }

    /// When something can be taken; `None` if nothing waits.
    pub(super) fn next_due(&self, up_since: Instant, now: Instant) -> Option<Instant> {
        let own = self.due.first().map(|(due, _)| *due);
        let redriven = self.next_redriven(up_since, now).map(|(_, at)| at);
        let first = own.into_iter().chain(redriven).min()?;
        Some(self.config.paused_until.map_or(first, |until| until.max(first)))
    }

    /// The next dead entry that a redrive of `case` would give out, after its cursor; and how many were looked at.
    pub(super) fn search(&self, case: u32, redrive: &Redrive, most: usize) -> (Found, usize) {
        let mut cursor = redrive.cursor;
        let mut looked_at = 0;
        for (at, entry) in self.covered(case, &redrive.filter, cursor, redrive.started_at) {
            if looked_at == most {
                return (Found::Later(cursor), looked_at);
            }
            looked_at += 1;
            let is_free = !self.is_held(entry) && !entry.cases().contains(&case);
            if is_free && Redrive::matches(&redrive.filter, entry, at.0) {
                return (Found::Entry { arrival: at.1, before: cursor }, looked_at);
            }
            cursor = at;
        }
        (Found::Nothing(cursor), looked_at)
    }

    /// The dead entries of the case's groups after `cursor` that died before `until`, in the order of deaths; if `filter` names
    /// one, that one alone.
    pub(super) fn covered<'a>(
        &'a self,
        case: u32,
        filter: &RedriveFilter,
        cursor: Cursor,
        until: Instant,
    ) -> impl Iterator<Item = (Cursor, &'a Entry)> {
        let named = filter.id.as_ref().and_then(|id| self.find(id)).and_then(|(arrival, entry)| {
            let is_of_case = self.cases.get(&case).is_some_and(|case| case.groups.contains(&entry.group));
            (entry.place == Place::Dead && is_of_case).then_some((entry.at, arrival))
        });
        let all = filter.id.is_none().then(|| self.dead_after(case, cursor)).into_iter().flatten();
        let these = all.chain(named.filter(|at| *at > cursor)).take_while(move |(died, _)| *died < until);
        these.filter_map(|at| Some((at, self.entry(at.1)?)))
    }

    /// The deaths in the case's groups after `cursor`, in their order.
    pub(super) fn dead_after(&self, case: u32, cursor: Cursor) -> impl Iterator<Item = Cursor> {
        let numbers = self.cases.get(&case).map_or(&[][..], |case| &case.groups);
        let dead = numbers.iter().filter_map(|number| self.groups.get(*number)).map(|group| &group.dead);
        let mut rest: Vec<_> = dead.map(|dead| dead.range((Excluded(cursor), Unbounded)).copied()).collect();
        let firsts = rest.iter_mut().enumerate().filter_map(|(group, rest)| Some(Reverse((rest.next()?, group))));
        let mut firsts: BinaryHeap<_> = firsts.collect();
        iter::from_fn(move || {
            let Reverse((first, group)) = firsts.pop()?;
            firsts.extend(rest[group].next().map(|next| Reverse((next, group))));
            Some(first)
        })
    }
}

/// Before everything that died.
pub(super) const BEGINNING: Cursor = (Instant::EPOCH, 0);

/// How many entries a search looks at before a reply; the rest is looked at in the background.
pub(super) const SHALLOW: usize = 64;
