//! Reading a ledger: one entry, a list, counts, groups, cases, alerts, audit.

use super::alert::{Alert, AuditRow};
use super::case::{Case, Redrive};
use super::entry::Entry;
use super::group::Group;
use super::ledger::Ledger;
use super::message::cut;
use super::request::{ListFilter, Place};
use super::view::{CaseView, EntryView, GroupView, LedgerView};
use crate::limits::{ENTRIES_LOOKED_AT, LEDGER_TEXT_MAX, LIST_AT_ONCE, TAKE_BYTES_MAX};

impl Ledger {
    pub fn get(&self, id: &[u8]) -> Option<EntryView<'_>> {
        self.find(id).map(|(_, entry)| self.view_of(entry))
    }

    /// What died in the last step.
    pub fn fresh_deaths(&self) -> impl Iterator<Item = EntryView<'_>> {
        self.notes.fresh_deaths.iter().filter_map(|arrival| self.entry(*arrival)).map(|entry| self.view_of(entry))
    }

    fn view_of<'a>(&'a self, entry: &'a Entry) -> EntryView<'a> {
        EntryView {
            message: &entry.message,
            place: entry.place,
            attempt: entry.attempt.into(),
            lapses: entry.lapses.into(),
            deaths: entry.deaths.into(),
            reason: entry.reason,
            class: entry.class,
            group: self.groups.get(entry.group).map_or(&[], |group| &group.name),
            first_error: entry.first_error(),
            last_error: &entry.error,
            error_is_cut: entry.error_is_cut,
            first_at: entry.first_at(),
            last_at: entry.last_at,
            died_at: entry.died_at(),
            due_at: (entry.place == Place::Waiting).then_some(entry.at),
            held: self.is_held(entry),
            attempts: entry.attempts(),
            cases: entry.cases(),
        }
    }

    /// Entries that match, from the cursor on, and the cursor to go on from; 0 if there are no more. Not all that match may be in
    /// one reply: only so many entries are looked at.
    pub fn list<'a>(
        &'a self,
        filter: &ListFilter<'_>,
        cursor: u64,
        limit: usize,
        mut see: impl FnMut(EntryView<'a>),
    ) -> u64 {
        let group = filter.group.map(|name| self.groups.by_name(name));
        let kind = filter.kind.map(|kind| cut(kind, LEDGER_TEXT_MAX));
        let aggregate = filter.aggregate.map(|aggregate| cut(aggregate, LEDGER_TEXT_MAX));
        let matches = |entry: &Entry| {
            let changed = entry.since;
            filter.place.is_none_or(|place| place == entry.place)
                && kind.is_none_or(|kind| kind == entry.message.kind())
                && filter.class.is_none_or(|class| class == entry.class)
                && group.is_none_or(|group| group == Some(entry.group))
                && aggregate.is_none_or(|aggregate| aggregate == entry.message.aggregate())
                && filter.case.is_none_or(|case| self.is_of_case(case, entry))
                && filter.since.is_none_or(|since| changed >= since)
                && filter.until.is_none_or(|until| changed < until)
        };
        let (mut shown, mut bytes) = (0, 0);
        for (looked_at, (arrival, entry)) in self.entries_from(cursor).enumerate() {
            if shown == limit.min(LIST_AT_ONCE) || looked_at == ENTRIES_LOOKED_AT || bytes > TAKE_BYTES_MAX {
                return arrival;
            }
            if matches(entry) {
                shown += 1;
                bytes += entry.message.headers().len() + 2 * entry.error.len();
                see(self.view_of(entry));
            }
        }
        0
    }

    /// What a case is about: what was dead in its groups when it was diagnosed, and has not left them, and what it redrove.
    fn is_of_case(&self, number: u32, entry: &Entry) -> bool {
        let is_covered = |case: &Case| {
            entry.place == Place::Dead && entry.at <= case.opened_at && case.groups.binary_search(&entry.group).is_ok()
        };
        entry.cases().contains(&number) || self.cases.get(&number).is_some_and(is_covered)
    }

    pub fn view(&self) -> LedgerView {
        LedgerView {
            counts: self.counts,
            held: self.held,
            entries: self.entries.len(),
            bytes: self.bytes,
            groups: self.groups.list.len(),
            cases_open: self.cases.values().filter(|case| case.is_open()).count(),
            alerts_unseen: self.alerts.iter().filter(|alert| !alert.is_seen).count(),
            paused_until: self.config.paused_until,
        }
    }

    /// Groups from the cursor on, in the order of their making, and the cursor to go on from.
    pub fn groups(&self, cursor: u64, limit: usize) -> (impl Iterator<Item = GroupView<'_>>, u64) {
        let from = u32::try_from(cursor).unwrap_or(u32::MAX);
        let next = self.groups.list.range(from..).nth(limit).map_or(0, |(number, _)| u64::from(*number));
        (self.groups.list.range(from..).take(limit).map(|(_, group)| group_view(group)), next)
    }

    pub fn cases(&self, cursor: u64, limit: usize) -> (impl Iterator<Item = CaseView<'_>>, u64) {
        let from = u32::try_from(cursor).unwrap_or(u32::MAX);
        let next = self.cases.range(from..).nth(limit).map_or(0, |(number, _)| u64::from(*number));
        (self.cases.range(from..).take(limit).map(|(number, case)| self.case_view(*number, case)), next)
    }

    pub fn case(&self, number: u32) -> Option<CaseView<'_>> {
        self.cases.get(&number).map(|case| self.case_view(number, case))
    }

    pub fn alerts(&self, cursor: u64, limit: usize) -> (impl Iterator<Item = &Alert>, u64) {
        let from = self.alerts.iter().filter(move |alert| alert.id >= cursor);
        (from.clone().take(limit), from.clone().nth(limit).map_or(0, |alert| alert.id))
    }

    pub fn audit(&self, cursor: u64, limit: usize) -> (impl Iterator<Item = &AuditRow>, u64) {
        let from = self.audit.iter().filter(move |row| row.id >= cursor);
        (from.clone().take(limit), from.clone().nth(limit).map_or(0, |row| row.id))
    }

    fn case_view<'a>(&'a self, number: u32, case: &'a Case) -> CaseView<'a> {
        CaseView {
            number,
            category: case.category,
            cause: &case.cause,
            fix: &case.fix,
            decision: &case.decision,
            groups: case.groups.iter().filter_map(|group| Some(&*self.groups.get(*group)?.name)).collect(),
            user: &case.user,
            actor: &case.actor,
            opened_at: case.opened_at,
            closed_at: case.closed_at,
            is_discarded: case.discard != super::case::Discard::No,
            auto_until: case.auto_until,
            redrive: case.redrive.as_ref().map(Redrive::view),
        }
    }

    /// Bytes on the heap, about.
    pub(super) fn heap_bytes(&self) -> usize {
        const GROUP: usize = 400;
        const CASE: usize = 1_000;
        const DONE: usize = 200;
        const ROW: usize = 300;
        self.bytes
            + self.groups.list.len() * GROUP
            + self.cases.len() * CASE
            + self.dones.len() * DONE
            + (self.alerts.len() + self.audit.len() + self.aggregates.len() + self.batches.len()) * ROW
    }
}

fn group_view(group: &Group) -> GroupView<'_> {
    GroupView {
        name: &group.name,
        kind: &group.kind,
        dead: group.dead.len(),
        entries: group.entries,
        deaths: group.deaths,
        first_at: group.first_at,
        last_at: group.last_at,
        sample: &group.error,
        cases: &group.cases,
    }
}
