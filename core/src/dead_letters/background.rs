//! What a ledger does without being asked, a little with every step: alerts for what has died, searches of redrives, entries of
//! discarded cases, what clocks and promotions left behind, records whose time is over.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use smallvec::SmallVec;

use super::alert::{Alert, AlertKind};
use super::case::{Case, Cursor, Discard, Redrive, RedriveState};
use super::config::default_rate;
use super::draw::{BEGINNING, Found, SHALLOW};
use super::edit::LedgerEdit;
use super::ledger::{Ledger, Pace};
use super::notes::{EndedIn, LeaseMending};
use super::request::{Place, RedriveFilter};
use crate::limits::{AGGREGATE_DEATHS, AUTO_QUIET, CLOCK_JITTER, ENTRIES_LOOKED_AT, RETENTION};
use crate::time::{Instant, Span};
use crate::waited::lease::ends_for;

type Edits = SmallVec<[LedgerEdit; 1]>;

/// How many entries are archived or expired in one step.
const AT_ONCE: usize = 200;

/// How many entries are looked at in one step after a clock was set back.
const LOOKED_AT_FOR_CLOCK: usize = 500;

/// How many leases are looked at in one step after a promotion.
const LEASES_MENDED_AT_ONCE: usize = 500;

/// A search that passed over so many entries writes down where it has come to.
const WORTH_A_NOTE: usize = 32;

/// The edits that put right what time has made wrong.
pub(super) fn background(state: &mut Ledger, promoted_at: Option<Instant>, now: Instant) -> Edits {
    let mut edits = Edits::new();
    mend_leases(state, promoted_at, now, &mut edits);
    mend_dues(state, now, &mut edits);
    mend_pace(state, now, &mut edits);
    let expired = expired(state, now);
    if !expired.is_empty() {
        edits.push(LedgerEdit::Purged { arrivals: expired, at: now });
    }
    edits.extend(alarms(state, now));
    state.notes.fresh_deaths.clear();
    if !state.notes.active_cases.is_empty() {
        let mut budget = ENTRIES_LOOKED_AT;
        let mut in_vain = Vec::new();
        for number in &state.notes.active_cases {
            if let Some(case) = state.cases.get(number) {
                advance(state, *number, case, now, &mut budget, &mut edits);
                if let Some(death) = searched_in_vain(state, *number, case, now, &mut budget, &mut edits) {
                    in_vain.push((*number, death));
                }
            }
        }
        state.notes.looked_for_auto.extend(in_vain);
    }
    edits
}

/// A clock that was set back, or a promotion: leases end at another time. All are looked at, some with every step.
fn mend_leases(state: &mut Ledger, promoted_at: Option<Instant>, now: Instant, edits: &mut Edits) {
    let promoted_at = promoted_at.filter(|promoted| *promoted <= now);
    if state.notes.promoted_at == promoted_at && state.notes.newest_lease <= Some(now.plus(CLOCK_JITTER)) {
        state.notes.lease_mending = None;
        return;
    }
    let begun = state.notes.lease_mending.take().filter(|mending| mending.promoted_at == promoted_at);
    let mut mending = begun.unwrap_or(LeaseMending { promoted_at, to: None, newest: None });
    // Those that would end first come first. One that now ends later is looked at again, which changes nothing.
    let mut rest = state.by_end.range((mending.to.map_or(Unbounded, Excluded), Unbounded));
    for at in rest.by_ref().take(LEASES_MENDED_AT_ONCE) {
        mending.to = Some(*at);
        let Some(lease) = state.lease(at.1) else { continue };
        let right = ends_for(lease.ends, lease.length, promoted_at, now);
        mending.newest = mending.newest.max(Some(right.minus(lease.length)));
        if lease.ends != right {
            edits.push(LedgerEdit::Timed { fence: lease.fence, length: lease.length, ends: right });
        }
    }
    if rest.next().is_none() {
        (state.notes.newest_lease, state.notes.promoted_at) = (mending.newest, promoted_at);
    } else {
        state.notes.lease_mending = Some(mending);
    }
}

/// A clock that was set back: what began to wait in the future began now. All entries are looked at, some with every step.
fn mend_dues(state: &mut Ledger, now: Instant, edits: &mut Edits) {
    let latest = now.plus(CLOCK_JITTER);
    if state.notes.newest_wait <= Some(latest) {
        return;
    }
    let (from, mut newest) = state.notes.mended.unwrap_or_default();
    let mut looked_at = state.entries_from(from);
    for (arrival, entry) in looked_at.by_ref().take(LOOKED_AT_FOR_CLOCK) {
        if entry.place == Place::Waiting {
            newest = newest.max(Some(entry.since.min(latest)));
            if entry.since > latest {
                edits.push(LedgerEdit::Due { arrival, at: now });
            }
        }
    }
    let next = looked_at.next().map(|(arrival, _)| arrival);
    drop(looked_at);
    match next {
        Some(next) => state.notes.mended = Some((next, newest)),
        None => (state.notes.mended, state.notes.newest_wait) = (None, newest),
    }
}

/// A clock that was set back: what was given out in the future was given out now.
fn mend_pace(state: &Ledger, now: Instant, edits: &mut Edits) {
    if let Some(pace) = state.pace.filter(|pace| pace.given_at > now.plus(CLOCK_JITTER)) {
        edits.push(LedgerEdit::Paced(Pace { given_at: now, until: now.plus(pace.given_at.until(pace.until)) }));
    }
}

/// One step of what is under way in a case. No more than `budget` entries are looked at.
fn advance(state: &Ledger, number: u32, case: &Case, now: Instant, budget: &mut usize, edits: &mut Edits) {
    if case.discard == Discard::UnderWay {
        return discard(state, number, case, now, budget, edits);
    }
    let Some(redrive) = case.running() else { return };
    if redrive.has_failed() {
        edits.push(LedgerEdit::RedriveEnded { case: number, phase: RedriveState::Failed });
        let (subject, count) = (number.to_string().into_bytes(), redrive.died.into());
        return edits.push(alert(state, AlertKind::Stopped, subject.into(), count, now, edits));
    }
    if redrive.is_over() {
        return edits.push(LedgerEdit::RedriveEnded { case: number, phase: RedriveState::Finished });
    }
    if redrive.draws() && *budget > 0 {
        let (found, looked_at) = state.search(number, redrive, *budget);
        *budget = budget.saturating_sub(looked_at);
        let (cursor, is_exhausted) = match found {
            Found::Entry { .. } if looked_at <= WORTH_A_NOTE => return,
            Found::Entry { before, .. } | Found::Later(before) => (before, false),
            Found::Nothing(last) => (last, true),
        };
        edits.push(LedgerEdit::RedriveMoved { case: number, cursor, is_exhausted });
    }
}

/// Archives some of the entries of a case that is discarded.
fn discard(state: &Ledger, number: u32, case: &Case, now: Instant, budget: &mut usize, edits: &mut Edits) {
    let most = AT_ONCE.min(*budget);
    let of_case = state.dead_after(number, BEGINNING).take_while(|(died, _)| *died <= case.opened_at);
    let arrivals: Vec<u64> = of_case.take(most).map(|(_, arrival)| arrival).collect();
    // To archive an entry costs more than to look at one.
    *budget = budget.saturating_sub(10 * arrivals.len());
    let is_over = arrivals.len() < most;
    if !arrivals.is_empty() {
        edits.push(LedgerEdit::Archived { arrivals, at: now });
    }
    if is_over {
        let at = case.closed_at.unwrap_or(now);
        edits.push(LedgerEdit::CaseClosed { case: number, at, discard: Discard::Over });
    }
}

/// What died in the groups of a case after its diagnosis is redriven, once no more die. If there is nothing, the last death
/// that was looked at comes back: before the next one there is no use in another search.
fn searched_in_vain(
    state: &Ledger,
    number: u32,
    case: &Case,
    now: Instant,
    budget: &mut usize,
    edits: &mut Edits,
) -> Option<Instant> {
    let last = state.quiet_since(case).filter(|last| last.plus(AUTO_QUIET) <= now)?;
    if !case.may_begin_by_itself() || state.notes.looked_for_auto.get(&number) == Some(&last) || *budget == 0 {
        return None;
    }
    let redrive = Redrive {
        phase: RedriveState::Running,
        filter: RedriveFilter { until: case.auto_until, ..RedriveFilter::default() },
        left: u32::MAX,
        rate: default_rate(&state.config),
        first: 1,
        oneshot: false,
        is_auto: true,
        started_at: now,
        given: 0,
        resolved: 0,
        died: 0,
        active: 0,
        outcomes: 0,
        cursor: (case.opened_at, u64::MAX),
        is_exhausted: false,
    };
    let (found, looked_at) = state.search(number, &redrive, *budget);
    *budget = budget.saturating_sub(looked_at);
    if matches!(found, Found::Nothing(_)) {
        return Some(last);
    }
    edits.push(LedgerEdit::RedriveStarted { case: number, redrive: Box::new(redrive) });
    // If all this finds nothing in the end, it is not begun again for the same deaths.
    matches!(found, Found::Later(_)).then_some(last)
}

/// The alerts for what has died since the last look.
pub(super) fn alarms(state: &Ledger, now: Instant) -> Edits {
    let mut edits = Edits::new();
    let mut raised = BTreeSet::new();
    for (kind, subject, count) in causes(state) {
        if raised.insert((kind, subject)) {
            let alert = alert(state, kind, subject.into(), count, now, &edits);
            edits.push(alert);
        }
    }
    edits
}

/// What has died since the last look, and is worth an alert: some of it more than once.
fn causes(state: &Ledger) -> impl Iterator<Item = (AlertKind, &[u8], u64)> {
    state.notes.fresh_deaths.iter().filter_map(|arrival| state.entry(*arrival)).flat_map(|entry| {
        let kind = if state.kinds.contains_key(entry.message.kind()) { entry.message.kind() } else { b"other" };
        let deaths = state.kinds.get(kind);
        let aggregate = state.aggregates.get(entry.message.aggregate()).filter(|of| !of.is_alerted);
        let found = [
            (AlertKind::Many, kind, deaths.filter(|deaths| deaths.is_many()).map(|deaths| deaths.since_seen)),
            (AlertKind::Spike, kind, deaths.and_then(|deaths| deaths.spike())),
            (
                AlertKind::Aggregate,
                entry.message.aggregate(),
                aggregate.filter(|of| of.deaths >= AGGREGATE_DEATHS).map(|of| of.deaths),
            ),
        ];
        found.into_iter().filter_map(|(kind, subject, count)| Some((kind, subject, count?)))
    })
}

/// An alert with the next number after those in `edits`.
fn alert(state: &Ledger, kind: AlertKind, subject: Box<[u8]>, count: u64, at: Instant, edits: &Edits) -> LedgerEdit {
    let before = edits.iter().filter(|edit| matches!(edit, LedgerEdit::Alerted(_))).count() as u64;
    let id = state.numbers.alert + before + 1;
    LedgerEdit::Alerted(Alert { id, kind, subject, count, at, is_seen: false })
}

pub(super) fn full_alert(state: &Ledger, entries: usize, at: Instant) -> LedgerEdit {
    alert(state, AlertKind::Full, Box::default(), entries as u64, at, &Edits::new())
}

impl Ledger {
    /// When there is something to do although nobody asks.
    pub(super) fn background_at(&self, somebody_waits: bool, now: Instant) -> Option<Instant> {
        let is_over = self.resolved_after_held().next().is_some_and(|((at, _), _)| at.plus(RETENTION) <= now);
        let is_mending = self.notes.lease_mending.is_some();
        if is_over
            || is_mending
            || self.notes.newest_wait > Some(now.plus(CLOCK_JITTER))
            || causes(self).next().is_some()
        {
            return Some(now);
        }
        let case_at = |number: &u32| {
            let case = self.cases.get(number)?;
            let is_due = match case.running() {
                _ if case.discard == Discard::UnderWay => true,
                None => {
                    let quiet = self.quiet_since(case).map(|last| last.plus(AUTO_QUIET));
                    return quiet.filter(|at| somebody_waits && *at > now && case.may_begin_by_itself());
                }
                Some(redrive) => {
                    let is_lost = || !matches!(self.search(*number, redrive, SHALLOW).0, Found::Entry { .. });
                    redrive.has_failed() || redrive.is_over() || redrive.draws() && is_lost()
                }
            };
            is_due.then_some(now)
        };
        self.notes.active_cases.iter().filter_map(case_at).min()
    }

    /// The last death in the groups of a case, if it came after the diagnosis.
    fn quiet_since(&self, case: &Case) -> Option<Instant> {
        let deaths = case.groups.iter().filter_map(|number| self.groups.get(*number)?.last_death);
        deaths.max().filter(|last| *last > case.opened_at)
    }

    /// The oldest `most` resolved entries that are not held, or fewer.
    pub(super) fn forgettable(&self, most: usize) -> Vec<u64> {
        self.resolved_after_held().take(most).filter(|(_, is_held)| !is_held).map(|((_, arrival), _)| arrival).collect()
    }

    /// Where entries of `place` have ended, or of all places.
    pub(super) fn ended(&self, place: Option<Place>) -> impl Iterator<Item = EndedIn> {
        let is = move |of: Place| place.is_none_or(|place| place == of);
        let resolved = is(Place::Resolved).then_some(EndedIn::Resolved);
        let archived = is(Place::Archived).then_some(EndedIn::Archived);
        let dead = self.groups.list.keys().filter(move |_| is(Place::Dead)).map(|number| EndedIn::Group(*number));
        resolved.into_iter().chain(archived).chain(dead)
    }

    /// Those that ended there, the oldest first, and whether they are held; without those that are known to be.
    pub(super) fn ended_after_held(&self, of: EndedIn) -> impl Iterator<Item = (Cursor, bool)> {
        let set = match of {
            EndedIn::Resolved => Some(&self.resolved),
            EndedIn::Archived => Some(&self.archived),
            EndedIn::Group(number) => self.groups.get(number).map(|group| &group.dead),
        };
        let from = self.notes.held_to.get(&of).map_or(Unbounded, |to| Excluded(*to));
        let is_held = |arrival: u64| self.entry(arrival).is_none_or(|entry| self.is_held(entry));
        set.into_iter().flat_map(move |set| set.range((from, Unbounded))).map(move |at| (*at, is_held(at.1)))
    }

    fn resolved_after_held(&self) -> impl Iterator<Item = (Cursor, bool)> {
        self.ended_after_held(EndedIn::Resolved)
    }

    /// Notes which of the oldest are held, so that they are not looked at again: of those that ended before `before`, at most `budget`.
    /// What is left of it.
    pub(super) fn pass_held(&mut self, place: Option<Place>, before: Instant, mut budget: usize) -> usize {
        let mut passed = Vec::new();
        for of in self.ended(place) {
            let old = self.ended_after_held(of).take(budget).take_while(|((at, _), is_held)| *at < before && *is_held);
            let (looked_at, last) = old.fold((0, None), |(looked_at, _), (at, _)| (looked_at + 1, Some(at)));
            budget -= looked_at;
            passed.extend(last.map(|last| (of, last)));
            if budget == 0 {
                break;
            }
        }
        self.notes.held_to.extend(passed);
        budget
    }
}

/// Resolved entries whose time is over. Held ones stay, and are not looked at again.
fn expired(state: &mut Ledger, now: Instant) -> Vec<u64> {
    state.pass_held(Some(Place::Resolved), now.minus(RETENTION).plus(Span::from_us(1)), AT_ONCE);
    let old = state.resolved_after_held().take(AT_ONCE).take_while(|((at, _), _)| at.plus(RETENTION) <= now);
    old.filter(|(_, is_held)| !is_held).map(|((_, arrival), _)| arrival).collect()
}
