//! What edits do to cases, redrives, holds and alerts. As with entries, what does not fit changes nothing.

use alloc::boxed::Box;

use super::alert::{Alert, AlertKind};
use super::case::{Case, Cursor, Discard, Redrive, RedriveState};
use super::ledger::Ledger;
use super::request::Category;
use crate::limits::{ALERTS_MAX, CASE_MAX, CASES_MAX, COUNTER_MAX};
use crate::time::Instant;

impl Ledger {
    pub(super) fn redrive_mut(&mut self, case: u32) -> Option<&mut Redrive> {
        self.cases.get_mut(&case)?.redrive.as_mut()
    }

    /// True if entries may be drawn under this case.
    pub(super) fn is_running(&self, case: u32) -> bool {
        self.cases.get(&case).is_some_and(|case| case.running().is_some())
    }

    pub(super) fn hold_aggregate(&mut self, name: Box<[u8]>, held: bool) {
        if name.is_empty() {
            return;
        }
        self.notes.held_to.clear();
        self.notes.looked_for_auto.clear();
        let aggregate = self.aggregates.entry(name.clone()).or_default();
        let others = aggregate.entries - aggregate.held_alone;
        match (aggregate.held, held) {
            (false, true) => {
                self.held += others;
                self.notes.held_aggregates += 1;
            }
            (true, false) => {
                self.held -= others;
                self.notes.held_aggregates -= 1;
            }
            _ => {}
        }
        aggregate.held = held;
        if aggregate.entries == 0 && !held {
            self.aggregates.remove(&name);
        }
    }

    pub(super) fn diagnose(&mut self, number: u32, case: Case) {
        let is_new = number > self.numbers.case && number <= CASE_MAX;
        let is_fresh = case.is_open() && case.discard == Discard::No && case.redrive.is_none();
        let groups_fit = case.groups.is_sorted_by(|one, other| one < other)
            && case.groups.iter().all(|group| self.groups.get(*group).is_some());
        if !is_new || !is_fresh || !groups_fit {
            return;
        }
        self.numbers.case = number;
        for group in &case.groups {
            if let Some(group) = self.groups.get_mut(*group) {
                group.cases.push(number);
            }
        }
        self.cases.insert(number, case);
        self.note_case(number);
        while self.cases.len() > CASES_MAX {
            let over = self.cases.iter().find(|(_, case)| !case.is_open() && case.discard != Discard::UnderWay);
            let Some(over) = over.map(|(number, _)| *number) else { return };
            self.cases.remove(&over);
        }
    }

    pub(super) fn start_redrive(&mut self, number: u32, redrive: Redrive) {
        let Some(case) = self.cases.get_mut(&number) else { return };
        let is_free = case.redrive.as_ref().is_none_or(|last| last.phase != RedriveState::Running && last.active == 0);
        let is_new =
            redrive.phase == RedriveState::Running && (redrive.given, redrive.resolved, redrive.died) == (0, 0, 0);
        if is_free && is_new && case.is_open() && case.category != Category::Poison {
            case.redrive = Some(redrive);
            self.note_case(number);
        }
    }

    pub(super) fn move_redrive(&mut self, number: u32, cursor: Cursor, is_exhausted: bool) {
        if let Some(redrive) = self.redrive_mut(number) {
            redrive.cursor = cursor;
            redrive.is_exhausted = is_exhausted;
        }
    }

    pub(super) fn end_redrive(&mut self, number: u32, phase: RedriveState) {
        if let Some(redrive) = self.redrive_mut(number)
            && redrive.phase == RedriveState::Running
            && (phase != RedriveState::Finished || redrive.active == 0)
        {
            redrive.phase = phase;
            self.note_case(number);
        }
    }

    pub(super) fn close(&mut self, number: u32, at: Instant, discard: Discard) {
        let Some(case) = self.cases.get_mut(&number) else { return };
        let fits = match (case.is_open(), discard) {
            (true, Discard::No) => case.unresolved == 0,
            (true, Discard::UnderWay) => case.category == Category::Poison && case.redrive.is_none(),
            (false, Discard::Over) => case.discard == Discard::UnderWay,
            _ => false,
        };
        if !fits {
            return;
        }
        if case.is_open() {
            case.closed_at = Some(at);
        }
        case.discard = discard;
        if let Some(redrive) = &mut case.redrive
            && redrive.phase == RedriveState::Running
        {
            redrive.phase = RedriveState::Finished;
        }
        let groups = case.groups.clone();
        self.note_case(number);
        if discard == Discard::UnderWay {
            return;
        }
        for group in groups {
            if let Some(group) = self.groups.get_mut(group) {
                group.cases.retain(|case| *case != number);
            }
            self.groups.drop_if_unused(group);
        }
    }

    pub(super) fn alert(&mut self, alert: Alert) {
        self.numbers.alert = self.numbers.alert.max(alert.id.min(COUNTER_MAX));
        if let Some(deaths) = self.kinds.get_mut(&alert.subject) {
            match alert.kind {
                AlertKind::Many => deaths.many_is_out = true,
                AlertKind::Spike => deaths.spiked = deaths.buckets.back().map(|(bucket, _)| *bucket),
                AlertKind::Aggregate | AlertKind::Stopped | AlertKind::Full => {}
            }
        }
        if alert.kind == AlertKind::Aggregate
            && let Some(aggregate) = self.aggregates.get_mut(&alert.subject)
        {
            aggregate.is_alerted = true;
        }
        self.alerts.push_back(alert);
        if self.alerts.len() > ALERTS_MAX {
            let first = self.alerts.iter().position(|alert| alert.is_seen).unwrap_or(0);
            let gone = self.alerts.remove(first);
            // Nobody can see it any more: the next death raises it again.
            if let Some(gone) = gone.filter(|gone| gone.kind == AlertKind::Many && !gone.is_seen)
                && let Some(deaths) = self.kinds.get_mut(&gone.subject)
            {
                deaths.many_is_out = false;
            }
        }
    }

    pub(super) fn see(&mut self, id: u64) {
        let Some(alert) = self.alerts.iter_mut().find(|alert| alert.id == id) else { return };
        alert.is_seen = true;
        if alert.kind == AlertKind::Many
            && let Some(deaths) = self.kinds.get_mut(&alert.subject)
        {
            deaths.many_is_out = false;
            deaths.since_seen = 0;
        }
    }
}
