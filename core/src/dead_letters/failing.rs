//! What failing workers and sources say: FAIL and PARK.

use alloc::boxed::Box;

use super::config::Class;
use super::edit::{Added, FailedEdit, Fate, LedgerEdit};
use super::entry::{Entry, Word};
use super::ledger::Ledger;
use super::machine::{Key, Ledgers, Step, end, note_last_of_batch};
use super::message::{Facts, Message, cut, digest};
use super::request::{Counting, Death, Failed, Failing, Parked, Place, Room, Standing};
use crate::limits::{ARRIVAL_MAX, ERROR_MAX, LEDGER_FULL_PERCENT, NOCOUNT_MAX};
use crate::time::Instant;
use crate::waited::{OpenStep, Reason, Setting, Stepped};

/// A message failed: it is retried later, or it dies.
pub fn fail(
    key: &mut Key<'_>,
    request: &Failing<'_>,
    room: &Room,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Failed> {
    let mut step = OpenStep::begin(key, setting);
    let known = step.state().find(request.facts.id).map(|(arrival, _)| arrival);
    let verdict = match (known, request.fence) {
        (Some(arrival), Some(fence)) => fail_by_fence(&mut step, arrival, fence, request),
        (Some(arrival), None) => known_entry(&step, arrival, &request.facts),
        (None, Some(fence)) => Failed::Lost(lost_entry(&step, request.facts.id, fence)),
        (None, None) => match known_done(&step, &request.facts) {
            Some(known) => known,
            None => fail_new(&mut step, request, room),
        },
    };
    if matches!(verdict, Failed::Known { .. }) {
        repeat(&mut step);
    }
    end(step, verdict)
}

/// The same reply is given again: the first may have been lost on its way. Nothing changes, but the caller may now wait (WAIT) for replicas
/// to have what the reply says: servers count from the last change that its connection made. So there is one, which changes nothing.
pub(super) fn repeat(step: &mut Step<'_>) {
    step.edit(LedgerEdit::Opened);
}

fn known_entry(step: &Step<'_>, arrival: u64, facts: &Facts<'_>) -> Failed {
    let Some(entry) = step.state().entry(arrival) else { return Failed::Lost(Reason::Absent) };
    if differ(entry.message.digest(), facts) {
        return Failed::Conflict;
    }
    Failed::Known { standing: Standing::Here(entry.place), attempt: entry.attempt.into() }
}

fn known_done(step: &Step<'_>, facts: &Facts<'_>) -> Option<Failed> {
    let done = step.state().done(facts.id, step.now)?;
    let known = Failed::Known { standing: Standing::Done, attempt: 0 };
    Some(if differ(done.digest, facts) { Failed::Conflict } else { known })
}

/// True if bytes are given that are not those that are known: none are not the same as some.
fn differ(known: Option<u128>, facts: &Facts<'_>) -> bool {
    let given = digest(facts.payload, facts.reference);
    given.is_some() && known != given
}

/// Why a fence means nothing for an id that is not in the ledger.
pub(super) fn lost_entry(step: &Step<'_>, id: &[u8], fence: u64) -> Reason {
    let is_own = step.state().done(id, step.now).is_some_and(|done| done.fence == fence);
    if is_own { Reason::Done } else { Reason::Absent }
}

/// Why a fence that is not the entry's last means nothing.
pub(super) fn stale(entry: &Entry, fence: u64) -> Reason {
    if entry.fence > fence { Reason::Taken } else { Reason::Absent }
}

fn fail_by_fence(step: &mut Step<'_>, arrival: u64, fence: u64, request: &Failing<'_>) -> Failed {
    let Some(entry) = step.state().entry(arrival) else { return Failed::Lost(Reason::Absent) };
    if !entry.is_under(fence) {
        return Failed::Lost(stale(entry, fence));
    }
    if differ(entry.message.digest(), &request.facts) {
        return Failed::Conflict;
    }
    match (entry.place, entry.word) {
        (Place::Taken | Place::Waiting, Word::None) => {
            let (attempt, fate, class) = judge(step, entry, request);
            note_last_of_batch(step, step.state().last_of(entry));
            let Some(entry) = step.state().entry(arrival) else { return Failed::Lost(Reason::Absent) };
            let failure = failure(step, (arrival, entry.message.kind()), (attempt, fate, class), request);
            step.edit(LedgerEdit::Failed(failure));
            failed(step, arrival, attempt, fate)
        }
        // Said before: the same again.
        (Place::Waiting, Word::Failed) => {
            let same = Failed::Retry { attempt: entry.attempt.into(), delay: entry.delay() };
            repeat(step);
            same
        }
        (Place::Dead, _) => {
            repeat(step);
            dead(step, arrival)
        }
        (_, Word::Returned) => Failed::Lost(Reason::Released),
        _ => Failed::Lost(Reason::Done),
    }
}

fn dead(step: &Step<'_>, arrival: u64) -> Failed {
    let entry = step.state().entry(arrival);
    let group = entry.and_then(|entry| step.state().groups.get(entry.group));
    match (entry, group) {
        (Some(entry), Some(group)) => Failed::Dead {
            deaths: entry.deaths.into(),
            group: Box::from(&*group.name),
            reason: entry.reason.unwrap_or(Death::Final),
        },
        _ => Failed::Lost(Reason::Absent),
    }
}

/// What becomes of an entry that failed: its attempts after that, and its fate.
fn judge(step: &Step<'_>, entry: &Entry, request: &Failing<'_>) -> (u16, Fate, Class) {
    let config = &step.state().config;
    let class = request.class.unwrap_or(entry.class);
    let redrive = step.state().cases.get(&entry.case).and_then(|case| case.redrive.as_ref());
    let is_oneshot = redrive.is_some_and(|redrive| redrive.oneshot);
    let most = if is_oneshot { 0 } else { config.of(class).most };
    let next = entry.attempt.saturating_add(1);
    let retry = |attempt: u16| {
        let backoff = config.delay(class, u32::from(attempt).max(1), request.random);
        let after = request.after.unwrap_or_default().min(config.after_max);
        Fate::Retry { delay: backoff.max(after) }
    };
    let (attempt, fate) = match request.counting {
        Counting::Final => (next, Fate::Dead(Death::Final)),
        Counting::NotCounted if entry.has_failed() && entry.age_since().until(step.now) >= NOCOUNT_MAX => {
            (entry.attempt, Fate::Dead(Death::Age))
        }
        Counting::NotCounted => (entry.attempt, retry(entry.attempt)),
        Counting::Counted if u32::from(next) > most => (next, Fate::Dead(Death::Retries)),
        Counting::Counted => (next, retry(next)),
    };
    (attempt, fate, class)
}

/// The edit for a failure of the entry `arrival`, and the reply to its caller, unless it died.
fn failure(
    step: &Step<'_>,
    (arrival, kind): (u64, &[u8]),
    (attempt, fate, class): (u16, Fate, Class),
    request: &Failing<'_>,
) -> Box<FailedEdit> {
    let kept = cut(request.error, ERROR_MAX);
    let (group, error) = step.state().groups.texts_for(kind, kept, request.group);
    let error_is_cut = request.error.len() > ERROR_MAX;
    Box::new(FailedEdit { arrival, at: step.now, class, attempt, error, error_is_cut, group, fate })
}

fn failed(step: &Step<'_>, arrival: u64, attempt: u16, fate: Fate) -> Failed {
    match fate {
        Fate::Retry { delay } => Failed::Retry { attempt: attempt.into(), delay },
        Fate::Dead(_) => dead(step, arrival),
    }
}

fn fail_new(step: &mut Step<'_>, request: &Failing<'_>, room: &Room) -> Failed {
    let message = Message::new(&request.facts);
    let prior = u16::try_from(request.prior).unwrap_or(u16::MAX);
    let entry = Entry { attempt: prior, ..Entry::new(message, step.now) };
    let judged = judge(step, &entry, request);
    let arrival = step.state().numbers.arrival + 1;
    let failure = failure(step, (arrival, entry.message.kind()), judged, request);
    if !add(step, entry, room, Some(failure)) {
        return Failed::Full;
    }
    let (attempt, fate, _) = judged;
    failed(step, arrival, attempt, fate)
}

/// Adds an entry, which has failed or is parked; false if there is no room for it.
fn add(step: &mut Step<'_>, entry: Entry, room: &Room, failure: Option<Box<FailedEdit>>) -> bool {
    // Resolved entries have a bound of their own.
    let entries = step.state().len() - step.state().count(Place::Resolved);
    let grown = step.state().bytes() + entry.bytes();
    if entries >= room.entries || grown > room.bytes || step.state().numbers.arrival >= ARRIVAL_MAX {
        note_fullness(step, entries, grown, room);
        return false;
    }
    let arrival = step.state().numbers.arrival + 1;
    step.edit(LedgerEdit::Added(Added { arrival, message: entry.message, at: step.now, failure }));
    note_fullness(step, entries + 1, grown, room);
    true
}

/// An alert goes out when the ledger passes most of its room, once until it is below again.
fn note_fullness(step: &mut Step<'_>, entries: usize, bytes: usize, room: &Room) {
    let is_above = |used: usize, of: usize| used.saturating_mul(100) >= of.saturating_mul(LEDGER_FULL_PERCENT);
    let is_nearly_full = is_above(entries, room.entries) || is_above(bytes, room.bytes);
    if is_nearly_full != step.state().is_nearly_full {
        step.edit(LedgerEdit::Filled(is_nearly_full));
        if is_nearly_full {
            let alert = super::background::full_alert(step.state(), entries, step.now);
            step.edit(alert);
        }
    }
}

/// A message that came after others of its aggregate waits behind them.
pub fn park(key: &mut Key<'_>, facts: &Facts<'_>, room: &Room, setting: &mut Setting<'_>) -> Stepped<Ledgers, Parked> {
    let mut step = OpenStep::begin(key, setting);
    let known = step.state().find(facts.id).map(|(arrival, _)| known_entry(&step, arrival, facts));
    let verdict = match known.or_else(|| known_done(&step, facts)) {
        Some(Failed::Known { standing, attempt }) => {
            repeat(&mut step);
            Parked::Known { standing, attempt }
        }
        Some(_) => Parked::Conflict,
        None => park_new(&mut step, facts, room),
    };
    end(step, verdict)
}

fn park_new(step: &mut Step<'_>, facts: &Facts<'_>, room: &Room) -> Parked {
    let name = Message::new(&Facts { payload: None, ..*facts });
    let is_busy = step.state().aggregates.get(name.aggregate()).is_some_and(|of| of.busy > 0);
    if !is_busy {
        return Parked::Free;
    }
    if !add(step, Entry::new(Message::new(facts), step.now), room, None) {
        return Parked::Full;
    }
    let position = step.state().aggregates.get(name.aggregate()).map_or(1, |of| of.parked.len());
    Parked::Behind { position }
}

/// What is known of an id.
pub fn standing(state: &Ledger, id: &[u8], now: Instant) -> Option<(Standing, u32)> {
    match state.find(id) {
        Some((_, entry)) => Some((Standing::Here(entry.place), entry.attempt.into())),
        None => state.done(id, now).map(|_| (Standing::Done, 0)),
    }
}
