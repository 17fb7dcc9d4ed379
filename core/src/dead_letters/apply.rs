//! The one function that changes a ledger, and what edits do to entries and leases.
//!
//! Edits come from a step, which has looked at the state, or as bytes from elsewhere, which may be anything. So each is held
//! against the state once more: what does not fit changes nothing, and what is changed keeps the invariants.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::done::Done;
use super::edit::{Added, FailedEdit, Fate, LedgerEdit, TakenEdit};
use super::entry::{Entry, Word};
use super::ledger::{ENDED_AT_ONCE, Ledger, Pace, TakenBatch};
use super::request::{Death, Place};
use crate::limits::{ARRIVAL_MAX, AUDIT_MAX, COUNTER_MAX, FENCE_MAX, TYPES_MAX};
use crate::time::{Instant, Span};
use crate::waited::End;

impl Ledger {
    /// The only writer. An edit that fits nothing here changes nothing.
    pub fn apply(&mut self, edit: LedgerEdit) {
        self.is_open = true;
        match edit {
            LedgerEdit::Opened => {}
            LedgerEdit::Added(added) => self.add(added),
            LedgerEdit::Failed(failed) => self.fail(*failed),
            LedgerEdit::Taken(taken) => self.take(*taken),
            LedgerEdit::Timed { fence, length, ends } => self.time(fence, length, ends),
            LedgerEdit::Ended { fence, at, how, counted } => self.end_batch(fence, at, how, counted),
            LedgerEdit::Done { arrivals, at } => arrivals.into_iter().for_each(|arrival| self.finish(arrival, at)),
            LedgerEdit::Returned { arrivals, at, due } => {
                arrivals.into_iter().for_each(|arrival| self.give_back(arrival, at, due));
            }
            LedgerEdit::Due { arrival, at } => self.mend_due(arrival, at),
            LedgerEdit::Paced(pace) => self.pace = Some(pace),
            LedgerEdit::Held { arrival, held } => self.hold(arrival, held),
            LedgerEdit::AggregateHeld { aggregate, held } => self.hold_aggregate(aggregate, held),
            LedgerEdit::Diagnosed { number, case } => self.diagnose(number, *case),
            LedgerEdit::RedriveStarted { case, redrive } => self.start_redrive(case, *redrive),
            LedgerEdit::RedriveMoved { case, cursor, is_exhausted } => self.move_redrive(case, cursor, is_exhausted),
            LedgerEdit::RedriveEnded { case, phase } => self.end_redrive(case, phase),
            LedgerEdit::CaseClosed { case, at, discard } => self.close(case, at, discard),
            LedgerEdit::Archived { arrivals, at } => self.archive(&arrivals, at),
            LedgerEdit::Purged { arrivals, at } => self.purge(&arrivals, at),
            LedgerEdit::Alerted(alert) => self.alert(alert),
            LedgerEdit::AlertSeen { id } => self.see(id),
            LedgerEdit::Audited(row) => {
                self.numbers.audit = self.numbers.audit.max(row.id.min(COUNTER_MAX));
                self.audit.push_back(row);
                if self.audit.len() > AUDIT_MAX {
                    self.audit.pop_front();
                }
            }
            LedgerEdit::Configured(config) => self.config = config,
            LedgerEdit::Filled(is_nearly_full) => self.is_nearly_full = is_nearly_full,
            LedgerEdit::Loaded(record) => drop(self.load(*record)),
        }
    }

    fn is_in(&self, arrival: u64, places: &[Place]) -> bool {
        self.entry(arrival).is_some_and(|entry| places.contains(&entry.place))
    }

    fn add(&mut self, Added { arrival, message, at, failure }: Added) {
        let is_number = (1..=ARRIVAL_MAX).contains(&arrival);
        if !is_number || self.find(message.id()).is_some() || self.entries.contains(arrival) {
            return;
        }
        if failure.is_none() && self.aggregates.get(message.aggregate()).is_none_or(|of| of.busy == 0) {
            return;
        }
        self.numbers.arrival = self.numbers.arrival.max(arrival);
        self.by_id.insert(self.by_id.hash(message.id()), arrival);
        let mut entry = Entry::new(message, at);
        match failure {
            Some(failure) => self.fail_entry(&mut entry, *failure),
            None => entry.place = Place::Parked,
        }
        self.put(arrival, entry);
    }

    /// Takes an entry out of its index, changes it, and puts it where it now belongs.
    fn change(&mut self, arrival: u64, change: impl FnOnce(&mut Entry)) {
        let Some(mut entry) = self.lift(arrival) else { return };
        change(&mut entry);
        self.put(arrival, entry);
    }

    fn leave_batch(&mut self, arrival: u64) {
        let taken = self.entry(arrival).filter(|entry| entry.place == Place::Taken);
        if let Some(fence) = taken.map(|entry| entry.fence) {
            self.leave_batch_of(arrival, fence);
        }
    }

    /// The same for an entry that is taken, under this fence.
    fn leave_batch_of(&mut self, arrival: u64, own: u64) {
        let Some((fence, batch)) = self.batches.range_mut(..=own).next_back() else { return };
        let (fence, position) = (*fence, (own - fence) as usize);
        if let Some(member) = batch.members.get_mut(position).filter(|member| **member == arrival) {
            *member = 0;
            batch.left -= 1;
            while batch.members.pop_if(|last| *last == 0).is_some() {}
        }
        if batch.left == 0 {
            self.drop_batch(fence);
        }
    }

    pub(super) fn insert_batch(&mut self, fence: u64, batch: TakenBatch) {
        self.by_token.insert(batch.token.clone(), fence);
        self.by_end.insert((batch.ends, fence));
        self.note_lease(batch.ends.minus(batch.length));
        self.batches.insert(fence, batch);
    }

    fn drop_batch(&mut self, fence: u64) -> Option<TakenBatch> {
        let batch = self.batches.remove(&fence)?;
        self.by_token.remove(&batch.token);
        self.by_end.remove(&(batch.ends, fence));
        self.notes.ending.remove(&fence);
        Some(batch)
    }

    fn time(&mut self, fence: u64, length: Span, ends: Instant) {
        let Some(batch) = self.batches.get_mut(&fence) else { return };
        self.by_end.remove(&(batch.ends, fence));
        (batch.length, batch.ends) = (length, ends);
        self.by_end.insert((ends, fence));
        self.note_lease(ends.minus(length));
    }

    fn fail(&mut self, failed: FailedEdit) {
        let arrival = failed.arrival;
        if !self.is_in(arrival, &[Place::Waiting, Place::Taken]) {
            return;
        }
        self.leave_batch(arrival);
        let Some(mut entry) = self.lift(arrival) else { return };
        self.fail_entry(&mut entry, failed);
        self.put(arrival, entry);
    }

    /// An entry that is in no index fails.
    fn fail_entry(&mut self, entry: &mut Entry, failed: FailedEdit) {
        let FailedEdit { arrival, at, class, attempt, error, error_is_cut, group, fate } = failed;
        if entry.has_failed() {
            entry.remember_attempt();
        }
        let (former, number) = (entry.group, self.groups.number(&group, entry.message.kind(), at));
        if former != number {
            entry.group = number;
            if let Some(group) = self.groups.get_mut(number) {
                group.entries += 1;
            }
            self.groups.leave(former);
        }
        if let Some(group) = self.groups.get_mut(number) {
            group.last_at = at;
            if *group.error != *error {
                group.error = error;
            }
            if former != 0 && entry.error != group.error {
                let first = entry.first_error().clone();
                entry.past_mut().first_error = Some(first);
            }
            entry.error = group.error.clone();
        }
        entry.error_is_cut |= error_is_cut;
        (entry.class, entry.attempt, entry.last_at, entry.since) = (class, attempt, at, at);
        entry.word = if entry.fence == 0 { Word::None } else { Word::Failed };
        match fate {
            Fate::Retry { delay } => {
                entry.delay_ms = u32::try_from(delay.ceil_ms()).unwrap_or(u32::MAX);
                entry.place = Place::Waiting;
                entry.at = at.plus(delay);
            }
            Fate::Dead(reason) => {
                entry.delay_ms = 0;
                self.kill(arrival, entry, at, reason);
            }
        }
    }

    /// An entry that is in no index dies.
    fn kill(&mut self, arrival: u64, entry: &mut Entry, at: Instant, reason: Death) {
        const LOOKED_AT_LATER: usize = 5_000;
        const NO_WORD: &[u8] = b"no word from its takers";
        if self.notes.fresh_deaths.len() < LOOKED_AT_LATER {
            self.notes.fresh_deaths.push(arrival);
        }
        entry.place = Place::Dead;
        (entry.at, entry.since) = (at, at);
        entry.reason = Some(reason);
        entry.deaths = entry.deaths.saturating_add(1);
        if let Some(redrive) = self.redrive_mut(entry.case) {
            redrive.note_outcome(true);
        }
        entry.case = 0;
        if entry.group == 0 {
            // It crashed before it ever failed: that is its first failure.
            let name = self.groups.name_for(entry.message.kind(), NO_WORD, None);
            entry.group = self.groups.number(&name, entry.message.kind(), at);
            entry.last_at = at;
            if let Some(group) = self.groups.get_mut(entry.group) {
                group.entries += 1;
                if *group.error != *NO_WORD {
                    group.error = NO_WORD.into();
                }
                entry.error = group.error.clone();
            }
        }
        if let Some(group) = self.groups.get_mut(entry.group) {
            group.deaths += 1;
            group.last_death = Some(at);
        }
        let kind = entry.message.kind();
        let kind = if self.kinds.contains_key(kind) || self.kinds.len() < TYPES_MAX { kind } else { b"other" };
        self.kinds.entry(kind.into()).or_default().add(at);
    }

    fn take(&mut self, TakenEdit { fence, mut batch, drawn, pace }: TakenEdit) {
        let last = fence.saturating_add(batch.members.len() as u64).saturating_sub(1);
        if self.by_token.contains_key(&batch.token) || fence <= self.numbers.fence || last > FENCE_MAX {
            return;
        }
        let since = batch.since;
        let give = |entry: &mut Entry, position: usize| {
            (entry.place, entry.since, entry.word) = (Place::Taken, since, Word::None);
            entry.fence = fence + position as u64;
        };
        batch.left = 0;
        for (position, arrival) in batch.members.iter_mut().enumerate() {
            let under = drawn.filter(|(drawn, _)| drawn == arrival).map(|(_, case)| case);
            let is_given = match under {
                None => self.shift(*arrival, Place::Waiting, |entry| give(entry, position)),
                Some(case) if self.is_in(*arrival, &[Place::Dead]) && self.is_running(case) => {
                    let entry = self.lift(*arrival).map(|mut entry| {
                        self.draw(*arrival, &mut entry, case, since);
                        give(&mut entry, position);
                        self.put(*arrival, entry);
                    });
                    entry.is_some()
                }
                Some(_) => false,
            };
            batch.left += usize::from(is_given);
            *arrival = if is_given { *arrival } else { 0 };
        }
        while batch.members.pop_if(|last| *last == 0).is_some() {}
        self.numbers.fence = last;
        self.pace = pace.map(|until| Pace { given_at: since, until }).or(self.pace);
        if batch.left > 0 {
            self.insert_batch(fence, batch);
        }
    }

    /// A dead entry begins anew, under a case.
    fn draw(&mut self, arrival: u64, entry: &mut Entry, case: u32, at: Instant) {
        let died = (entry.at, arrival);
        (entry.attempt, entry.lapses, entry.at) = (0, 0, at);
        let past = entry.past_mut();
        (past.died_at, past.redriven_at) = (Some(died.0), Some(at));
        // Of a case that is not kept nobody can ask.
        past.cases.retain(|case| self.cases.contains_key(case));
        let Some(of) = self.cases.get_mut(&case) else { return };
        if !past.cases.contains(&case) {
            past.cases.push(case);
            of.unresolved += 1;
        }
        if let Some(redrive) = &mut of.redrive {
            entry.case = case;
            redrive.given += 1;
            redrive.active += 1;
            redrive.left = redrive.left.saturating_sub(1);
            redrive.cursor = redrive.cursor.max(died);
        }
    }

    /// Ends a part of the batch. What is left of it counts as taken until its turn comes; its lease is over.
    fn end_batch(&mut self, fence: u64, at: Instant, how: End, counted: bool) {
        let Some(batch) = self.batches.get_mut(&fence) else { return };
        let mut part = Vec::with_capacity(batch.left.min(ENDED_AT_ONCE));
        for member in batch.members.iter_mut().filter(|member| **member != 0).take(ENDED_AT_ONCE) {
            part.push(core::mem::take(member));
        }
        batch.left -= part.len();
        let ends = (batch.ends, batch.ends.min(at));
        if batch.left == 0 {
            self.drop_batch(fence);
        } else {
            batch.ends = ends.1;
            self.by_end.remove(&(ends.0, fence));
            self.by_end.insert((ends.1, fence));
            self.notes.ending.entry(fence).or_insert(how);
        }
        self.look_at_messages(part.iter().copied());
        for arrival in part {
            let Some(mut entry) = self.lift(arrival) else { continue };
            let is_lapse = how != End::Released;
            // It was due when it was taken, whatever a clock says now.
            (entry.place, entry.since, entry.at) = (Place::Waiting, at, entry.at.min(at));
            entry.lapses = entry.lapses.saturating_add(u16::from(is_lapse && counted));
            if is_lapse && counted && u32::from(entry.lapses) >= self.config.crashes {
                self.kill(arrival, &mut entry, at, Death::Crash);
            } else if is_lapse {
                let attempt = u32::from(entry.attempt) + u32::from(entry.lapses);
                let random = lapse_random(entry.fence, arrival);
                entry.at = at.plus(self.config.delay(entry.class, attempt.max(1), random));
            }
            self.put(arrival, entry);
        }
    }

    fn give_back(&mut self, arrival: u64, at: Instant, due: Instant) {
        self.leave_batch(arrival);
        self.shift(arrival, Place::Taken, |entry| {
            (entry.place, entry.word) = (Place::Waiting, Word::Returned);
            (entry.since, entry.at) = (at, due);
        });
    }

    /// It waits since `at` and not since later, and as long as before.
    fn mend_due(&mut self, arrival: u64, at: Instant) {
        if self.is_in(arrival, &[Place::Waiting]) {
            self.change(arrival, |entry| {
                entry.at = at.plus(entry.since.until(entry.at));
                entry.since = at;
                entry.last_at = entry.last_at.min(at);
                if let Some(first_at) = entry.past.as_mut().and_then(|past| past.first_at.as_mut()) {
                    *first_at = at.min(*first_at);
                }
            });
        }
    }

    fn finish(&mut self, arrival: u64, at: Instant) {
        // Nearly always no aggregate is held: then the entry is searched for once.
        let is_held_with_others = self.notes.held_aggregates > 0
            && self.entry(arrival).is_some_and(|entry| self.is_held_with_aggregate(entry));
        let is_retry = |entry: &Entry| {
            matches!(entry.place, Place::Taken | Place::Waiting)
                && entry.deaths == 0
                && !entry.held
                && !is_held_with_others
        };
        if let Some(entry) = self.remove_if(arrival, at, is_retry) {
            if entry.place == Place::Taken {
                self.leave_batch_of(arrival, entry.fence);
            }
            let end = Done { fence: entry.fence, digest: entry.message.digest(), at };
            self.dones.remember(entry.message.id(), end);
            return self.dones.forget(at);
        }
        if !self.is_in(arrival, &[Place::Taken, Place::Waiting, Place::Dead]) {
            return;
        }
        self.leave_batch(arrival);
        let Some(mut entry) = self.lift(arrival) else { return };
        entry.remember_death();
        if let Some(redrive) = self.redrive_mut(entry.case) {
            redrive.note_outcome(false);
        }
        entry.case = 0;
        self.settle_cases(&entry);
        if !self.is_held(&entry) {
            entry.message = entry.message.without_payload();
        }
        (entry.place, entry.at, entry.since) = (Place::Resolved, at, at);
        let aggregate = Box::<[u8]>::from(entry.message.aggregate());
        self.put(arrival, entry);
        self.unpark(&aggregate, at);
    }

    /// An entry that its cases redrove has ended for good.
    fn settle_cases(&mut self, entry: &Entry) {
        for case in entry.cases() {
            if let Some(case) = self.cases.get_mut(case) {
                case.unresolved = case.unresolved.saturating_sub(1);
            }
        }
    }

    /// Lets the first of the parked go, if nothing else of the aggregate is in the way.
    fn unpark(&mut self, aggregate: &[u8], at: Instant) {
        let Some(of) = self.aggregates.get(aggregate) else { return };
        if of.busy > 0 {
            return;
        }
        if let Some(first) = of.parked.first().copied() {
            self.change(first, |entry| (entry.place, entry.at, entry.since) = (Place::Waiting, at, at));
        }
    }

    /// Nothing of the entry is left in its indexes, if `is_it` says so.
    fn remove_if(&mut self, arrival: u64, at: Instant, is_it: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let entry = self.lift_for_good(arrival, is_it)?;
        if entry.is_live() {
            self.settle_cases(&entry);
        }
        if entry.group != 0 {
            self.groups.leave(entry.group);
        }
        let name = entry.message.aggregate();
        if !name.is_empty() {
            if let Some(of) = self.aggregates.get_mut(name) {
                of.forget_alert();
                if of.entries == 0 && !of.held {
                    self.aggregates.remove(name);
                }
            }
            self.unpark(name, at);
        }
        Some(entry)
    }

    fn purge(&mut self, arrivals: &[u64], at: Instant) {
        self.look_at_entries(arrivals);
        for arrival in arrivals {
            let has_ended = |entry: &Entry| matches!(entry.place, Place::Dead | Place::Resolved | Place::Archived);
            self.remove_if(*arrival, at, has_ended);
        }
    }

    fn archive(&mut self, arrivals: &[u64], at: Instant) {
        for arrival in arrivals {
            let is_dead = self.is_in(*arrival, &[Place::Dead]);
            let Some(mut entry) = is_dead.then(|| self.lift(*arrival)).flatten() else { continue };
            self.settle_cases(&entry);
            entry.remember_death();
            (entry.place, entry.at, entry.since) = (Place::Archived, at, at);
            let aggregate = Box::<[u8]>::from(entry.message.aggregate());
            self.put(*arrival, entry);
            self.unpark(&aggregate, at);
        }
    }

    fn hold(&mut self, arrival: u64, held: bool) {
        self.notes.held_to.clear();
        self.notes.looked_for_auto.clear();
        self.change(arrival, |entry| entry.held = held);
    }
}

/// What spreads the delay after a lapse: the same on every server, and different for each lease.
fn lapse_random(fence: u64, arrival: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&fence.to_le_bytes());
    bytes[8..].copy_from_slice(&arrival.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}
