//! The steps of callers: ENTER, EXIT, and what RES.BREAKER does to the breaker of a policy.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::edit::GuardEdit;
use super::layers::{Asking, Limited, PlaceNow, ask_limit, chance, would_deny};
use super::learned::CallEnd;
use super::machine::{Guards, Key, Step};
use super::request::{
    Admitted, EnterRefusal, EnterRequest, ExitRequest, Exited, Layer, LayerRefusal, RefusedFor, StopReason, Subject,
    SubjectLimit,
};
use super::settings::{LimitRule, RetryRule, Settings};
use super::state::Guard;
use super::ticket::{Ticket, TicketStage};
use crate::circuit_breaker::{Breaker, BreakerOutcome, Edit as BreakerEdit, Phase, Report, StateName, admit, report};
use crate::limits::HOLDERS_MAX;
use crate::policy::Priority;
use crate::rate_limit::{Ask, Wait};
use crate::time::{Instant, Span};
use crate::waited::{Asked, Decision, End, OpenStep, Setting, Stepped, Waiting};

/// When a throttled call may come back: one call a second passes in any case.
const THROTTLED_FOR: Span = Span::from_secs(1);

/// ENTER: `owner` asks for admission; `waiting` says how it waits for a place if it must.
pub fn enter(
    key: &mut Key<'_>,
    owner: &[u8],
    request: EnterRequest,
    subject: Option<Subject<'_>>,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Stepped<Guards, Asked<Guards>> {
    let mut step = begin_for(owner, key, setting);
    // The limit of a subject is not at hand when a place becomes free: such a call tries once.
    let is_limited = |subject: Subject<'_>| !matches!(subject.limit, SubjectLimit::Unlimited);
    let waiting = waiting.filter(|_| !subject.is_some_and(is_limited));
    let most = step.state().settings().and_then(|settings| settings.places.as_ref()?.max_wait);
    let waiting = waiting.map(|waiting| Waiting { wait: most.unwrap_or(waiting.wait).min(waiting.wait), ..waiting });
    let verdict = ask(&mut step, owner, request, subject, waiting);
    if let Decision::Refused(EnterRefusal::Layer(refusal)) = &verdict {
        step.within(|guard, _| guard.learned.count_refusal(refusal.layer));
    }
    step.end_asked(verdict, waiting)
}

/// A step for a call of `owner`, whose own ticket has ended even if very many ended before it.
fn begin_for<'a>(owner: &[u8], key: &'a mut Key<'_>, setting: &'a mut Setting<'_>) -> Step<'a> {
    let mut step = OpenStep::begin(key, setting);
    let over = step.state().tickets.of(owner).filter(|ticket| ticket.ends <= step.now);
    if let Some((number, ends)) = over.map(|ticket| (ticket.number, ticket.ends))
        && step.expire(number, ends)
    {
        step.serve(step.now);
    }
    step
}

fn ask(
    step: &mut Step<'_>,
    owner: &[u8],
    request: EnterRequest,
    subject: Option<Subject<'_>>,
    waiting: Option<Waiting>,
) -> Asked<Guards> {
    let guard = step.state();
    if guard.settings().is_none() {
        return Decision::Refused(EnterRefusal::NoPolicy);
    }
    if let Some(ticket) = guard.tickets.of(owner) {
        // The same admission again, unless it is another retry that is asked for.
        let is_same = request.ticket.is_none_or(|from| from == ticket.from && from != 0);
        return match admitted_before(step, ticket.number, subject) {
            Some(admitted) if is_same => Decision::Granted(admitted),
            _ => Decision::Refused(EnterRefusal::Ticket),
        };
    }
    if !is_good(guard, request.ticket, step.now) {
        return Decision::Refused(EnterRefusal::Ticket);
    }
    match waiting {
        None => {
            if step.leaves(owner) {
                step.serve(step.now);
            }
        }
        // The new call has the position of the old one.
        Some(waiting) if step.queue.waits(owner) => {
            step.enqueue(owner, request, waiting, rank(request.priority));
            return Decision::Queued;
        }
        Some(_) => {}
    }
    if let Some(refusal) = turn_away(step, &request, subject) {
        return Decision::Refused(EnterRefusal::Layer(refusal));
    }
    let place = place(step, step.queue.would_lead(rank(request.priority)));
    match decide(step, &request, subject, place) {
        Ok(limited) => Decision::Granted(take(step, owner, &request, Span::ZERO, subject, limited)),
        Err(EnterRefusal::Layer(LayerRefusal { layer: Layer::Bulkhead, reason: RefusedFor::Full, .. }))
            if waiting.is_some_and(|waiting| may_wait(step, waiting)) =>
        {
            let Some(waiting) = waiting else { return Decision::Queued };
            step.enqueue(owner, request, waiting, rank(request.priority));
            Decision::Queued
        }
        Err(EnterRefusal::Layer(refusal)) if refusal.reason == RefusedFor::Full && waiting.is_some() => {
            Decision::Refused(EnterRefusal::Layer(LayerRefusal { reason: RefusedFor::Queue, ..refusal }))
        }
        Err(refusal) => Decision::Refused(refusal),
    }
}

/// The queue serves the lowest first.
fn rank(priority: Priority) -> u8 {
    Priority::Critical as u8 - priority as u8
}

/// The layers that look at the load, and count the calls they turn away.
fn turn_away(step: &mut Step<'_>, request: &EnterRequest, subject: Option<Subject<'_>>) -> Option<LayerRefusal> {
    let now = step.now;
    let turned_away = step.within(|guard, _| {
        let (settings, learned) = (guard.settings.as_deref()?, &mut guard.learned);
        learned.count_call();
        if learned.sheds(settings, request.priority, guard.tickets.active()) {
            return Some((Layer::Shed, RefusedFor::Class(request.priority)));
        }
        learned.throttles(settings, request.random, now).then_some((Layer::Throttle, RefusedFor::Overload))
    });
    let (layer, reason) = turned_away?;
    turned_away_by(step, request, subject, layer, reason)
}

fn turned_away_by(
    step: &Step<'_>,
    request: &EnterRequest,
    subject: Option<Subject<'_>>,
    layer: Layer,
    reason: RefusedFor,
) -> Option<LayerRefusal> {
    let (guard, now) = (step.state(), step.now);
    let asking = Asking { guard, settings: guard.settings()?, request, subject, place: PlaceNow::Free, now };
    let wait = guard.tickets.first_to_end().map_or(Span::ZERO, |ticket| now.until(ticket.ends));
    let wait = if layer == Layer::Shed { wait } else { THROTTLED_FOR };
    Some(asking.refused(layer, Wait::For(wait), reason))
}

/// A class may be shed by now that was not when the call began to wait. Else a lower class would be let in while a higher one is shed.
pub(super) fn shed_in_queue(step: &Step<'_>, request: &EnterRequest) -> Option<LayerRefusal> {
    let guard = step.state();
    let is_shed = guard.learned.would_shed(guard.settings()?, request.priority, guard.tickets.active());
    let class = RefusedFor::Class(request.priority);
    if is_shed { turned_away_by(step, request, None, Layer::Shed, class) } else { None }
}

/// Asks the other layers. What the limit would become comes back if all agree.
pub(super) fn decide(
    step: &Step<'_>,
    request: &EnterRequest,
    subject: Option<Subject<'_>>,
    place: PlaceNow,
) -> Result<Option<Limited>, EnterRefusal> {
    let guard = step.state();
    let Some(settings) = guard.settings() else { return Err(EnterRefusal::NoPolicy) };
    if !is_good(guard, request.ticket, step.now) {
        return Err(EnterRefusal::Ticket);
    }
    let asking = Asking { guard, settings, request, subject, place, now: step.now };
    let limited = asking.limit().map_err(|_| EnterRefusal::TooManyTiers)?;
    match asking.refusal(limited.as_ref()) {
        Some(refusal) => Err(EnterRefusal::Layer(refusal)),
        None => Ok(limited),
    }
}

/// A ticket that was answered with RETRY, and whose time is not over, is good for one ENTER.
fn is_good(guard: &Guard, ticket: Option<u64>, now: Instant) -> bool {
    let waits = |ticket: &Ticket| !ticket.is_inside() && ticket.ends > now && !begins_too_late(guard, ticket, now);
    ticket.is_none_or(|number| guard.tickets.get(number).is_some_and(waits))
}

/// An attempt that begins at `begins` would begin when the time of its call is over.
fn begins_too_late(guard: &Guard, ticket: &Ticket, begins: Instant) -> bool {
    let settings = guard.settings();
    let total = settings.and_then(|settings| settings.total);
    let most = settings.and_then(|settings| settings.retry.as_ref()?.max_elapsed);
    total.is_some_and(|total| begins >= ticket.first.plus(total))
        || most.is_some_and(|most| begins > ticket.first.plus(most))
}

/// Whether a place is free for a caller who would be the next, or would not.
pub(super) fn place(step: &Step<'_>, is_next: bool) -> PlaceNow {
    let (tickets, settings) = (&step.state().tickets, step.state().settings());
    let max = settings.map_or(0, |settings| step.state().learned.max(settings));
    // Very many are served in parts: a caller that fits beside all who wait takes nothing from them.
    let is_next = is_next || tickets.active() + step.queue.len() < max;
    if is_next && tickets.active() < max && tickets.len() < HOLDERS_MAX {
        PlaceNow::Free
    } else {
        PlaceNow::None(RefusedFor::Full)
    }
}

fn may_wait(step: &Step<'_>, waiting: Waiting) -> bool {
    let places = step.state().settings().and_then(|settings| settings.places.as_ref());
    let most = places.map_or(0, |places| places.queue as usize).min(waiting.most);
    step.queue.len() < most
}

/// Takes from every layer what the call needs: all of them agreed.
pub(super) fn take(
    step: &mut Step<'_>,
    owner: &[u8],
    request: &EnterRequest,
    waited: Span,
    subject: Option<Subject<'_>>,
    limited: Option<Limited>,
) -> Admitted {
    let now = step.now;
    let (rate, change) = match limited {
        Some(limited) => (Some(limited.verdict.binding().into()), limited.change),
        None => (None, None),
    };
    let of_subject = match (change, subject) {
        (change, Some(Subject { limit: SubjectLimit::Gcra(_) | SubjectLimit::Window(_), .. })) => change,
        (Some(change), _) => {
            step.edit(change.into());
            None
        }
        (None, _) => None,
    };
    let chance = chance(request.random);
    let admission = with_breaker(step, |breaker| admit(breaker, request.caller, None, chance, now).ok());
    let permit = admission.flatten().and_then(|admission| admission.permit);
    let number = step.issue_fence();
    let before = request.ticket.and_then(|before| step.state().tickets.get(before));
    let (attempt, first, delay) = match before {
        Some(before) => {
            let delay = if let TicketStage::Waiting { delay } = before.stage { delay } else { Span::ZERO };
            (before.attempt.saturating_add(1), before.first, delay)
        }
        None => (1, now, Span::ZERO),
    };
    let lease = step.state().settings().map_or(Span::from_us(1), Settings::lease);
    step.edit(GuardEdit::Admitted(Arc::new(Ticket {
        number,
        owner: owner.into(),
        attempt,
        first,
        since: now,
        lease,
        ends: now.plus(lease),
        from: request.ticket.unwrap_or_default(),
        delay,
        permit,
        stage: TicketStage::Inside,
    })));
    Admitted { rate, subject: of_subject, ..terms_of(step, number, waited) }
}

/// The admission of a ticket, with the limit as it is.
fn admitted_before(step: &Step<'_>, number: u64, subject: Option<Subject<'_>>) -> Option<Admitted> {
    let (guard, settings) = (step.state(), step.state().settings()?);
    let limited = ask_limit(guard, settings, subject, Ask::Peek, step.now).ok()?;
    let rate = limited.map(|limited| limited.verdict.binding().into());
    Some(Admitted { rate, ..terms_of(step, number, Span::ZERO) })
}

fn terms_of(step: &Step<'_>, number: u64, waited: Span) -> Admitted {
    let (guard, now) = (step.state(), step.now);
    let (settings, ticket) = (guard.settings(), guard.tickets.get(number));
    let total = settings.and_then(|settings| settings.total);
    let deadline = ticket.zip(total).map(|(ticket, total)| now.until(ticket.first.plus(total)));
    Admitted {
        ticket: number,
        attempt: ticket.map_or(1, |ticket| ticket.attempt),
        timeout: settings.and_then(|settings| settings.attempt).into_iter().chain(deadline).min(),
        deadline,
        version: guard.version(),
        rate: None,
        lease: ticket.map_or(Span::ZERO, |ticket| now.until(ticket.ends)),
        waited,
        subject: None,
    }
}

/// EXIT: what the call with this ticket came to.
pub fn exit(
    key: &mut Key<'_>,
    number: u64,
    request: ExitRequest,
    setting: &mut Setting<'_>,
) -> Stepped<Guards, Exited> {
    let mut step = OpenStep::begin(key, setting);
    let now = step.now;
    let over = step.state().tickets.get(number).filter(|ticket| ticket.ends <= now);
    if let Some((number, ends)) = over.map(|ticket| (ticket.number, ticket.ends)) {
        step.expire(number, ends);
    }
    let guard = step.state();
    if guard.settings().is_none() {
        return step.end(Exited::NoPolicy);
    }
    let Some(ticket) = guard.tickets.shared(number) else {
        let unknown = Exited::Stop { reason: StopReason::Unknown, attempts: 0 };
        let said = guard.tickets.remembered(number, now).unwrap_or(unknown);
        return step.end(said);
    };
    if let Some(said) = ticket.retry() {
        return step.end(said);
    }
    let said = leave(&mut step, &ticket, &request);
    step.end(said)
}

/// The call of `ticket` is over: the breaker hears of it, and the reply is decided.
fn leave(step: &mut Step<'_>, ticket: &Ticket, request: &ExitRequest) -> Exited {
    let now = step.now;
    let duration = request.duration.unwrap_or_else(|| ticket.since.until(now));
    if let Some(permit) = ticket.permit {
        with_breaker(step, |breaker| Some(report(breaker, Some(permit), request.report, Some(duration), now)));
    }
    step.within(|guard, _| {
        if let Some(settings) = guard.settings.as_deref() {
            let end = CallEnd { report: request.report, took: duration, in_flight: guard.tickets.active() };
            guard.learned.count_end(settings, &end, now);
        }
    });
    let said = reply(step.state(), ticket, request, now);
    step.note_end(ticket.number, now, End::Released);
    match said {
        Exited::Retry { delay, .. } => {
            let lease = step.state().settings().map_or(ticket.lease, Settings::lease);
            let lease = Span::from_us(delay.as_us().saturating_add(lease.as_us()));
            let (number, ends) = (ticket.number, now.plus(lease));
            step.edit(GuardEdit::Retried { number, at: now, delay, lease, ends });
        }
        said => step.edit(GuardEdit::Exited { number: ticket.number, at: now, said }),
    }
    said
}

/// Done, again, or not again: in the order that the contract has for the reasons.
fn reply(guard: &Guard, ticket: &Ticket, request: &ExitRequest, now: Instant) -> Exited {
    let stop = |reason| Exited::Stop { reason, attempts: ticket.attempt };
    match request.report {
        Report::Ok | Report::Ignore | Report::Cancel => return Exited::Done,
        Report::Fail => {}
    }
    if request.is_final {
        return stop(StopReason::Final);
    }
    let retry = guard.settings().and_then(|settings| settings.retry.as_ref());
    let Some(retry) = retry.filter(|retry| ticket.attempt < retry.max_attempts) else {
        return stop(StopReason::Attempts);
    };
    // One whose open time is over would admit the retry.
    let is_open = |breaker: &Breaker| {
        matches!(breaker.name(), StateName::Open | StateName::ForcedOpen) && would_deny(breaker, 0, now).is_some()
    };
    if guard.breaker().is_some_and(is_open) {
        return stop(StopReason::Open);
    }
    let previous = if ticket.delay.is_zero() { retry.backoff.initial } else { ticket.delay };
    let backoff = retry.backoff.delay(ticket.attempt - 1, previous, unit(request.random));
    let delay = backoff.max(request.after.unwrap_or(Span::ZERO));
    if is_too_late(guard, ticket, retry, request.after, delay, now) {
        return stop(StopReason::Deadline);
    }
    if guard.budget_left(now) == Some(0) {
        return stop(StopReason::Budget);
    }
    Exited::Retry { delay, attempt: ticket.attempt.saturating_add(1) }
}

/// Evenly from 0 (included) to 1 (excluded).
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// The dependency asks to wait for too long, or the retry would begin when the time of the call is over.
fn is_too_late(
    guard: &Guard,
    ticket: &Ticket,
    retry: &RetryRule,
    after: Option<Span>,
    delay: Span,
    now: Instant,
) -> bool {
    after.is_some_and(|after| after > retry.retry_after_max) || begins_too_late(guard, ticket, now.plus(delay))
}

/// Takes a step of the breaker, in its place; its edits and transitions are the guard's. `None` if the policy has no breaker.
fn with_breaker<V>(
    step: &mut Step<'_>,
    take: impl FnOnce(&mut Breaker) -> Option<BreakerOutcome<V>>,
) -> Option<Option<V>> {
    let now = step.now;
    step.within(|guard, reports| {
        let breaker = guard.breaker.as_deref_mut()?;
        let adaptive = guard.settings.as_ref().is_some_and(|settings| settings.is_adaptive);
        let was_closed = matches!(breaker.phase(), Phase::Closed);
        let outcome = if adaptive {
            let (rate_pct, calls) = (breaker.config().rate_pct, breaker.totals(now).calls.into());
            let least_ppm = guard.learned.baseline.threshold_ppm(rate_pct, calls, now);
            breaker.judged_by(least_ppm, take)
        } else {
            take(breaker)
        };
        let Some(BreakerOutcome { verdict, edits, transitions }) = outcome else { return Some(None) };
        for edit in &edits {
            if let (true, true, BreakerEdit::Record { batch, .. }) = (adaptive, was_closed, edit) {
                guard.learned.baseline.count(batch.calls().into(), batch.failures.into(), now);
            }
        }
        reports.extend(edits.into_iter().map(GuardEdit::Broke));
        reports.extend(transitions.into_iter().map(GuardEdit::Moved));
        Some(Some(verdict))
    })
}

/// RES.BREAKER on the key of a policy: its breaker takes the step. `None` if the policy has no breaker; `Err` comes back as it is.
pub fn step_breaker<V, E>(
    key: &mut Key<'_>,
    take: impl FnOnce(&mut Breaker) -> Result<BreakerOutcome<V>, E>,
    setting: &mut Setting<'_>,
) -> Stepped<Guards, Option<Result<V, E>>> {
    let mut step = OpenStep::begin(key, setting);
    let mut refused = None;
    let taken = with_breaker(&mut step, |breaker| take(breaker).map_err(|error| refused = Some(error)).ok());
    let verdict = match (taken, refused) {
        (Some(Some(verdict)), _) => Some(Ok(verdict)),
        (_, Some(error)) => Some(Err(error)),
        _ => None,
    };
    step.end(verdict)
}

/// An admission that reached nobody: the call is over, as if it had been cancelled. A retry can be asked for again.
pub(super) fn take_back(step: &mut Step<'_>, number: u64) -> bool {
    let Some(ticket) = step.state().tickets.get(number).filter(|ticket| ticket.is_inside()).cloned() else {
        return false;
    };
    let request = ExitRequest { report: Report::Cancel, duration: None, after: None, is_final: false, random: 0 };
    leave(step, &ticket, &request);
    if ticket.from != 0 {
        let lease = Span::from_us(ticket.delay.as_us().saturating_add(ticket.lease.as_us()));
        let (now, stage) = (step.now, TicketStage::Waiting { delay: ticket.delay });
        let (number, attempt, ends) = (ticket.from, ticket.attempt - 1, now.plus(lease));
        let before = Ticket { number, attempt, since: now, lease, ends, from: 0, permit: None, stage, ..ticket };
        step.edit(GuardEdit::Reopened(Box::new(before)));
    }
    true
}

/// Whether the policy limits by GCRA or by a window, if it limits at all.
pub fn limit_of(guard: &Guard) -> Option<&LimitRule> {
    guard.settings()?.limit.as_ref()
}
