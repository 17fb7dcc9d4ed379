//! What takers ask for: TAKE, DONE, RETURN and RENEW.

use alloc::vec::Vec;

use smallvec::{SmallVec, smallvec};

use super::draw::Candidate;
use super::edit::LedgerEdit;
use super::entry::{Entry, Word};
use super::failing::{lost_entry, repeat, stale};
use super::ledger::Ledger;
use super::machine::{Key, Ledgers, Step, end, look_for_alarms, note_last_of_batch};
use super::request::{BatchRenewed, Death, Ended, GivenEntry, NothingDue, Place, Room, TakeRequest, Taken};
use crate::limits::{PURGE_AT_ONCE, TAKE_BYTES_MAX, TAKE_MAX};
use crate::time::{Instant, Span};
use crate::waited::{Asked, Decision, Machine, OpenStep, Reason, Setting, Stepped, Waiting};

/// `token` asks for what is due.
pub fn take(
    key: &mut Key<'_>,
    token: &[u8],
    request: TakeRequest,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Asked<Ledgers>> {
    let mut step = begin_for(token, key, setting);
    let own = step.state().by_token(token).map(|(fence, _)| fence);
    let verdict = match own {
        Some(fence) => Decision::Granted(take_again(&mut step, fence, &request)),
        None => ask(&mut step, token, request, waiting),
    };
    look_for_alarms(&mut step);
    step.end_asked(verdict, waiting)
}

/// A step for a call of `token`, whose own lease has ended even if very many ended before it.
fn begin_for<'a>(token: &[u8], key: &'a mut Key<'_>, setting: &'a mut Setting<'_>) -> Step<'a> {
    let mut step = OpenStep::begin(key, setting);
    let over = |step: &Step<'_>| {
        let (fence, batch) = step.state().by_token(token).filter(|(_, batch)| batch.ends <= step.now)?;
        Some((fence, batch.ends))
    };
    // All parts of it: nothing of what is over is given out again, or renewed.
    while let Some((fence, ends)) = over(&step)
        && step.expire(fence, ends)
    {
        step.serve(step.now);
    }
    step
}

/// The same call again: the same entries. Its lease is never cut short.
fn take_again(step: &mut Step<'_>, fence: u64, request: &TakeRequest) -> Taken {
    let ends = step.now.plus(request.lease);
    if step.state().lease(fence).is_some_and(|lease| lease.ends < ends) {
        step.time(fence, request.lease, ends);
    }
    taken(step, fence, Span::ZERO)
}

fn ask(step: &mut Step<'_>, token: &[u8], request: TakeRequest, waiting: Option<Waiting>) -> Asked<Ledgers> {
    let already_waits = step.queue.waits(token);
    if already_waits && waiting.is_none() && step.leaves(token) {
        step.serve(step.now);
    }
    if step.queue.is_empty() && can_take(step, None) {
        return Decision::Granted(Machine::grant(step, token, &request, Span::ZERO, step.now));
    }
    let Some(waiting) = waiting.filter(|waiting| already_waits || step.queue.len() < waiting.most) else {
        return Decision::Refused(nothing_due(step.state(), step.up_since, step.now));
    };
    if !step.state().is_open {
        step.edit(LedgerEdit::Opened);
    }
    step.enqueue(token, request, waiting, 0);
    Decision::Queued
}

/// True if something can be given out now, and was due by `deadline`.
pub(super) fn can_take(step: &Step<'_>, deadline: Option<Instant>) -> bool {
    let (state, now) = (step.state(), step.now);
    let in_time = |due: Instant| deadline.is_none_or(|deadline| due <= deadline);
    !state.config.is_paused(now)
        && (state.first_due(now).is_some_and(|first| in_time(first.due))
            || state.next_redriven(step.up_since, now).is_some_and(|(_, at)| at <= now && in_time(at)))
}

pub(super) fn nothing_due(state: &Ledger, up_since: Instant, now: Instant) -> NothingDue {
    const FOR_EVER: Span = Span::from_days(3_660);
    let next = state.next_due(up_since, now).map(|at| now.until(at)).filter(|next| *next < FOR_EVER);
    NothingDue { next }
}

pub(super) fn taken(step: &Step<'_>, fence: u64, waited: Span) -> Taken {
    let Some(batch) = step.state().batches.get(&fence) else {
        return Taken { fence, waited, lease: Span::ZERO, entries: Vec::new() };
    };
    let state = step.state();
    let entries = state.given(batch).into_iter().map(|entry| given(state, entry)).collect();
    Taken { fence, waited, lease: step.now.until(batch.ends), entries }
}

fn given(state: &Ledger, entry: &Entry) -> GivenEntry {
    GivenEntry {
        message: entry.message.clone(),
        fence: entry.fence,
        attempt: entry.attempt.into(),
        lapses: entry.lapses.into(),
        class: entry.class,
        group: state.groups.get(entry.group).map(|group| group.name.clone()).unwrap_or_default(),
        deaths: entry.deaths.into(),
        error: entry.error.clone(),
        case: entry.is_redriven().then_some(entry.case),
    }
}

/// What one TAKE gets: in order of due instants; one redriven entry at most; one that lapsed only alone.
pub(super) fn choose(step: &Step<'_>, count: usize) -> Vec<Candidate> {
    let (state, now) = (step.state(), step.now);
    let count = count.min(TAKE_MAX);
    let redriven = state.next_redriven(step.up_since, now).filter(|(_, at)| *at <= now);
    let redriven = redriven.and_then(|(candidate, _)| Some((candidate, state.entry(candidate.arrival)?)));
    let mut redriven = redriven.into_iter().peekable();
    let own = state.due_entries(now, count).into_iter();
    let own = own.map(|(due, arrival, entry)| (Candidate { due, arrival, case: None, is_drawn: false }, entry));
    let mut own = own.peekable();
    let (mut chosen, mut bytes) = (Vec::with_capacity(own.len()), 0);
    while chosen.len() < count {
        let order = |(candidate, _): &(Candidate, &Entry)| (candidate.due, candidate.arrival);
        let redriven_first = match (redriven.peek().map(order), own.peek().map(order)) {
            (Some(one), Some(other)) => one < other,
            (one, _) => one.is_some(),
        };
        let Some((next, entry)) = (if redriven_first { redriven.next() } else { own.next() }) else { break };
        let is_lapsed = entry.lapses > 0 && !next.is_drawn;
        bytes += entry.message.as_bytes().len();
        if !chosen.is_empty() && (is_lapsed || bytes > TAKE_BYTES_MAX) {
            break;
        }
        chosen.push(next);
        if is_lapsed {
            break;
        }
    }
    chosen
}

/// The takers are done with these.
pub fn done(
    key: &mut Key<'_>,
    pairs: &[(&[u8], u64)],
    room: &Room,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, SmallVec<[Ended; 1]>> {
    if key.state.resolved.len() > room.resolved {
        // What is held does not stand in the way of what can be forgotten.
        key.state.pass_held(Some(Place::Resolved), setting.now, PURGE_AT_ONCE);
    }
    let mut step = OpenStep::begin(key, setting);
    step.state().look_at_taken(pairs);
    let verdicts = pairs.iter().map(|(id, fence)| done_one(&mut step, id, *fence)).collect();
    let surplus = step.state().resolved.len().saturating_sub(room.resolved);
    let arrivals: Vec<u64> = step.state().forgettable(surplus.min(PURGE_AT_ONCE));
    if !arrivals.is_empty() {
        step.edit(LedgerEdit::Purged { arrivals, at: step.now });
    }
    end(step, verdicts)
}

fn done_one(step: &mut Step<'_>, id: &[u8], fence: u64) -> Ended {
    let state = step.state();
    let Some((arrival, entry)) = state.find_taken(id, fence).or_else(|| state.find(id)) else {
        return match lost_entry(step, id, fence) {
            Reason::Done => {
                repeat(step);
                Ended::Ended
            }
            reason => Ended::Lost(reason),
        };
    };
    if !entry.is_under(fence) {
        return Ended::Lost(stale(entry, fence));
    }
    match (entry.place, entry.word, entry.reason) {
        (_, Word::Failed | Word::Returned, _) => Ended::Lost(Reason::Released),
        (Place::Taken | Place::Waiting, ..) | (Place::Dead, _, Some(Death::Crash)) => {
            note_last_of_batch(step, state.last_of(entry));
            step.edit(LedgerEdit::Done { arrivals: smallvec![arrival], at: step.now });
            Ended::Ended
        }
        (Place::Resolved, ..) => {
            repeat(step);
            Ended::Ended
        }
        _ => Ended::Lost(Reason::Absent),
    }
}

/// The takers give these back: they are due again after `delay`, and nothing is counted.
pub fn give_back(
    key: &mut Key<'_>,
    pairs: &[(&[u8], u64)],
    delay: Span,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, SmallVec<[Ended; 1]>> {
    let mut step = OpenStep::begin(key, setting);
    let verdicts = pairs.iter().map(|(id, fence)| give_back_one(&mut step, id, *fence, delay)).collect();
    end(step, verdicts)
}

fn give_back_one(step: &mut Step<'_>, id: &[u8], fence: u64, delay: Span) -> Ended {
    let state = step.state();
    let Some((arrival, entry)) = state.find_taken(id, fence).or_else(|| state.find(id)) else {
        return Ended::Lost(lost_entry(step, id, fence));
    };
    if !entry.is_under(fence) {
        return Ended::Lost(stale(entry, fence));
    }
    match (entry.place, entry.word) {
        (Place::Taken, Word::None) => {
            note_last_of_batch(step, state.last_of(entry));
            step.edit(LedgerEdit::Returned { arrivals: smallvec![arrival], at: step.now, due: step.now.plus(delay) });
            Ended::Ended
        }
        (_, Word::Returned) => {
            repeat(step);
            Ended::Ended
        }
        (_, Word::Failed) => Ended::Lost(Reason::Released),
        (Place::Resolved | Place::Archived, _) => Ended::Lost(Reason::Done),
        _ => Ended::Lost(Reason::Expired),
    }
}

/// The lease of the entries that `token` took ends `lease` from now.
pub fn renew(
    key: &mut Key<'_>,
    token: &[u8],
    lease: Span,
    setting: &mut Setting<'_>,
) -> (Stepped<Ledgers, BatchRenewed>, Option<u64>) {
    let mut step = begin_for(token, key, setting);
    let own = step.state().by_token(token).map(|(fence, batch)| (fence, batch.left));
    let verdict = match own {
        Some((fence, entries)) => {
            step.time(fence, lease, step.now.plus(lease));
            step.tell(fence);
            BatchRenewed::Granted { entries, lease }
        }
        None => BatchRenewed::Lost(Reason::Absent),
    };
    (end(step, verdict), own.map(|(fence, _)| fence))
}
