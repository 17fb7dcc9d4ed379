//! What operators and governors do: root causes, redrives, holds, purges, settings. Each action that is done is written to the
//! audit; what is refused changes nothing.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::alert::AuditRow;
use super::case::{Case, Discard, Redrive, RedriveState};
use super::config::{Class, Jitter, default_rate};
use super::draw::BEGINNING;
use super::edit::LedgerEdit;
use super::ledger::Ledger;
use super::machine::{Key, Ledgers, Step, end};
use super::message::cut;
use super::request::{
    Category, Closed, ConfigChange, Diagnosed, Diagnosis, Governor, HoldTarget, Matched, Pause, Place, PurgeRequest,
    Purged, RedriveFilter, RedriveRequest, Redriven, Refusal,
};
use super::view::RedriveView;
use crate::limits::{
    CASE_TEXT_MAX, CASES_MAX, CLOCK_JUMP, ENTRIES_LOOKED_AT, INSTANT_MAX_US, LEDGER_TEXT_MAX, PURGE_AT_ONCE, RETENTION,
    TEXT_MAX,
};
use crate::time::{Instant, Span};
use crate::waited::{OpenStep, Setting, Stepped};

fn audit(step: &mut Step<'_>, governor: &Governor<'_>, action: String) {
    let row = AuditRow {
        id: step.state().numbers.audit + 1,
        at: step.now,
        user: limited(governor.user, TEXT_MAX),
        actor: limited(governor.actor, TEXT_MAX),
        correlation: limited(governor.correlation, TEXT_MAX),
        action: limited(action.as_bytes(), TEXT_MAX),
    };
    step.edit(LedgerEdit::Audited(row));
}

/// What is kept of a text.
fn limited(text: &[u8], most: usize) -> Box<[u8]> {
    cut(text, most).into()
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(cut(text, 200)).into_owned()
}

/// A root cause is written down: a case.
pub fn diagnose(
    key: &mut Key<'_>,
    request: &Diagnosis<'_>,
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Diagnosed> {
    let mut step = OpenStep::begin(key, setting);
    let mut groups = Vec::new();
    for name in &request.groups {
        match step.state().groups.by_name(name) {
            Some(number) => groups.push(number),
            None => return end(step, Diagnosed::UnknownGroup(Box::from(*name))),
        }
    }
    groups.sort_unstable();
    groups.dedup();
    let are_open = step.state().cases.values().filter(|case| case.is_open()).count();
    if are_open >= CASES_MAX || request.auto.is_some() && step.state().has_many_active_cases() {
        return end(step, Diagnosed::TooMany);
    }
    let number = step.state().numbers.case.saturating_add(1);
    let count = groups.len();
    let case = Case {
        category: request.category,
        cause: limited(request.cause, CASE_TEXT_MAX),
        fix: limited(request.fix, CASE_TEXT_MAX),
        decision: limited(request.decision, CASE_TEXT_MAX),
        groups,
        user: limited(governor.user, TEXT_MAX),
        actor: limited(governor.actor, TEXT_MAX),
        opened_at: step.now,
        closed_at: None,
        discard: Discard::No,
        auto_until: request.auto.map(|auto| step.now.plus(auto)),
        unresolved: 0,
        redrive: None,
    };
    step.edit(LedgerEdit::Diagnosed { number, case: Box::new(case) });
    let category = request.category.text();
    let action = format!("diagnose case {number}: {category}, {count} groups, cause: {}", shown(request.cause));
    audit(&mut step, governor, action);
    end(step, Diagnosed::Case(number))
}

/// Dead entries of a case begin to be given out again.
pub fn redrive(
    key: &mut Key<'_>,
    request: &RedriveRequest,
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Redriven> {
    let mut step = OpenStep::begin(key, setting);
    let filter = kept(&request.filter);
    let matched = match matches(step.state(), request, &filter, step.now) {
        Ok(matched) => matched,
        Err(refusal) => return end(step, Redriven::Refused(refusal)),
    };
    if request.dry_run {
        return end(step, Redriven::DryRun(matched));
    }
    let rate = request.rate.unwrap_or_else(|| default_rate(&step.state().config));
    let redrive = Redrive {
        phase: RedriveState::Running,
        filter,
        left: request.count.unwrap_or(u32::MAX),
        rate,
        first: request.first,
        oneshot: request.oneshot,
        is_auto: false,
        started_at: step.now,
        given: 0,
        resolved: 0,
        died: 0,
        active: 0,
        outcomes: 0,
        cursor: BEGINNING,
        is_exhausted: false,
    };
    let case = request.case;
    step.edit(LedgerEdit::RedriveStarted { case, redrive: Box::new(redrive) });
    let (count, period_ms) = (rate.count, rate.period.ceil_ms());
    let matching = if matched.is_complete { "" } else { "at least " };
    let action = format!("redrive case {case}: {matching}{} entries, {count} per {period_ms}ms", matched.count);
    audit(&mut step, governor, action);
    end(step, Redriven::Started(matched))
}

/// A filter as it is kept: its texts are cut as those of messages are.
fn kept(filter: &RedriveFilter) -> RedriveFilter {
    let text = |text: &Option<Box<[u8]>>| text.as_ref().map(|text| limited(text, LEDGER_TEXT_MAX));
    let (id, kind, aggregate) = (text(&filter.id), text(&filter.kind), text(&filter.aggregate));
    RedriveFilter { id, kind, aggregate, ..*filter }
}

fn matches(state: &Ledger, request: &RedriveRequest, filter: &RedriveFilter, now: Instant) -> Result<Matched, Refusal> {
    let case = state.cases.get(&request.case).ok_or(Refusal::Case)?;
    if !case.is_open() {
        return Err(Refusal::Closed);
    }
    if case.category == Category::Poison {
        return Err(Refusal::Poison);
    }
    let is_under_way = |redrive: &Redrive| redrive.phase == RedriveState::Running || redrive.active > 0;
    let are_many = !state.notes.active_cases.contains(&request.case) && state.has_many_active_cases();
    if case.redrive.as_ref().is_some_and(is_under_way) || are_many {
        return Err(Refusal::Running);
    }
    if request.rate.is_some_and(|rate| rate.is_above(state.config.rate_max)) {
        return Err(Refusal::Rate);
    }
    let mut covered = state.covered(request.case, filter, BEGINNING, now);
    let (mut count, mut held, mut again) = (0, 0, 0);
    let mut sample = Vec::new();
    let most = request.count.unwrap_or(u32::MAX) as usize;
    for (at, entry) in covered.by_ref().take(ENTRIES_LOOKED_AT) {
        match (state.is_held(entry), entry.cases().contains(&request.case)) {
            _ if !Redrive::matches(filter, entry, at.0) => {}
            (true, _) => held += 1,
            (_, true) => again += 1,
            _ => {
                count += 1;
                if sample.len() < SAMPLE.min(most) {
                    sample.push(entry.message.id().into());
                }
            }
        }
    }
    // Of very many, the ones that match may come later.
    let is_complete = covered.next().is_none();
    match (count, is_complete) {
        (0, true) if held > 0 => Err(Refusal::Held),
        (0, true) if again > 0 => Err(Refusal::Again),
        (0, true) => Err(Refusal::Nothing),
        _ => Ok(Matched { count: count.min(most), is_complete, sample }),
    }
}

/// How many ids a redrive shows before it starts.
const SAMPLE: usize = 10;

/// A redrive gives out nothing more. The verdict is how far it came; `None` if there is none.
pub fn stop(
    key: &mut Key<'_>,
    number: u32,
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Option<RedriveView>> {
    let mut step = OpenStep::begin(key, setting);
    if step.state().cases.get(&number).is_some_and(|case| case.running().is_some()) {
        step.edit(LedgerEdit::RedriveEnded { case: number, phase: RedriveState::Stopped });
        audit(&mut step, governor, format!("stop redrive of case {number}"));
    }
    let redrive = step.state().cases.get(&number).and_then(|case| case.redrive.as_ref());
    let view = redrive.map(Redrive::view);
    end(step, view)
}

/// A case is over: all its entries are resolved, or discarded.
pub fn close(
    key: &mut Key<'_>,
    number: u32,
    with_discard: Discard,
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Closed> {
    let mut step = OpenStep::begin(key, setting);
    let verdict = match step.state().cases.get(&number) {
        None => Closed::NoCase,
        Some(case) if !case.is_open() && with_discard == Discard::UnderWay && case.discard == Discard::No => {
            Closed::ClosedBefore
        }
        Some(case) if !case.is_open() => Closed::Closed,
        Some(case) if with_discard == Discard::UnderWay && case.category != Category::Poison => Closed::NotPoison,
        Some(case) => {
            let left = unresolved(step.state(), number, case);
            if left > 0 && with_discard != Discard::UnderWay {
                Closed::Open(left)
            } else {
                step.edit(LedgerEdit::CaseClosed { case: number, at: step.now, discard: with_discard });
                let how = if with_discard == Discard::UnderWay { " and discard its entries" } else { "" };
                audit(&mut step, governor, format!("close case {number}{how}"));
                Closed::Closed
            }
        }
    };
    end(step, verdict)
}

/// Entries of the case that are not resolved, as far as they are counted.
fn unresolved(state: &Ledger, number: u32, case: &Case) -> usize {
    let of_case = state.dead_after(number, BEGINNING).take_while(|(died, _)| *died <= case.opened_at);
    let of_case = of_case.take(ENTRIES_LOOKED_AT).filter_map(|(_, arrival)| state.entry(arrival));
    of_case.filter(|entry| !entry.cases().contains(&number)).count() + case.unresolved as usize
}

/// An entry, or an aggregate and what will come of it, is kept whatever happens. The verdict is how many entries that is.
pub fn hold(
    key: &mut Key<'_>,
    target: HoldTarget<'_>,
    held: bool,
    reason: &[u8],
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, usize> {
    let mut step = OpenStep::begin(key, setting);
    let (count, what) = match target {
        HoldTarget::Id(id) => match step.state().find(id).map(|(arrival, entry)| (arrival, entry.held)) {
            None => (0, None),
            Some((_, now)) if now == held => (1, None),
            Some((arrival, _)) => {
                step.edit(LedgerEdit::Held { arrival, held });
                (1, Some(shown(id)))
            }
        },
        HoldTarget::Aggregate(b"") => (0, None),
        HoldTarget::Aggregate(name) => {
            let name = cut(name, LEDGER_TEXT_MAX);
            let of = step.state().aggregates.get(name);
            let (count, now) = of.map_or((0, false), |of| (of.entries, of.held));
            if now != held {
                step.edit(LedgerEdit::AggregateHeld { aggregate: name.into(), held });
            }
            (count, (now != held).then(|| format!("aggregate {}", shown(name))))
        }
    };
    if let Some(what) = what {
        let how = if held { "hold" } else { "release" };
        audit(&mut step, governor, format!("{how} {what}: {}", shown(reason)));
    }
    end(step, count)
}

/// Entries that are old enough go for good. `clock_jumped`: ages cannot be believed.
pub fn purge(
    key: &mut Key<'_>,
    request: &PurgeRequest,
    clock_jumped: bool,
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, Purged> {
    let before = setting.now.minus(request.older.max(RETENTION));
    let budget = if clock_jumped { 0 } else { key.state.pass_held(request.place, before, ENTRIES_LOOKED_AT) };
    let mut step = OpenStep::begin(key, setting);
    if clock_jumped {
        return end(step, Purged::ClockJumped);
    }
    let limit = request.limit.min(PURGE_AT_ONCE);
    let (arrivals, left) = step.state().purgeable(request.place, before, limit, budget);
    let purged = arrivals.len();
    if purged > 0 {
        step.edit(LedgerEdit::Purged { arrivals, at: step.now });
        audit(&mut step, governor, format!("purge {purged} entries older than {}ms", request.older.ceil_ms()));
    }
    end(step, Purged::Purged { purged, left })
}

/// An alert was looked at. The verdict is whether there is such an alert that was not.
pub fn see(key: &mut Key<'_>, id: u64, governor: &Governor<'_>, setting: &mut Setting<'_>) -> Stepped<Ledgers, bool> {
    let mut step = OpenStep::begin(key, setting);
    let is_unseen = step.state().alerts.iter().any(|alert| alert.id == id && !alert.is_seen);
    if is_unseen {
        step.edit(LedgerEdit::AlertSeen { id });
        audit(&mut step, governor, format!("see alert {id}"));
    }
    end(step, is_unseen)
}

/// The ledger's settings change.
pub fn configure(
    key: &mut Key<'_>,
    change: &ConfigChange,
    governor: &Governor<'_>,
    setting: &mut Setting<'_>,
) -> Stepped<Ledgers, ()> {
    let mut step = OpenStep::begin(key, setting);
    let mut config = step.state().config;
    for (retries, change) in config.retries.iter_mut().zip(&change.retries) {
        retries.most = change.most.unwrap_or(retries.most);
        retries.base = change.base.unwrap_or(retries.base);
        retries.cap = change.cap.unwrap_or(retries.cap);
    }
    config.jitter = change.jitter.unwrap_or(config.jitter);
    config.crashes = change.crashes.unwrap_or(config.crashes);
    config.rate_max = change.rate_max.unwrap_or(config.rate_max);
    config.after_max = change.after_max.unwrap_or(config.after_max);
    config.paused_until = match change.paused {
        None => config.paused_until,
        Some(Pause::Off) => None,
        Some(Pause::On) => Some(Instant::from_us(INSTANT_MAX_US)),
        Some(Pause::For(span)) => Some(step.now.plus(span)),
    };
    if config != step.state().config {
        step.edit(LedgerEdit::Configured(config));
        audit(&mut step, governor, format!("change the configuration:{}", described(change)));
    }
    end(step, ())
}

/// What a change says, for the audit.
fn described(change: &ConfigChange) -> String {
    let mut text = String::new();
    let mut say = |what: &str, value: Option<String>| text.extend(value.map(|value| format!(" {what} {value}")));
    let ms = |span: Span| format!("{}ms", span.ceil_ms());
    for (class, retries) in Class::ALL.iter().zip(&change.retries) {
        say(&format!("{} retries", class.text()), retries.most.map(|most| most.to_string()));
        say(&format!("{} base", class.text()), retries.base.map(ms));
        say(&format!("{} cap", class.text()), retries.cap.map(ms));
    }
    let jitter = |jitter| match jitter {
        Jitter::Full => String::from("full"),
        Jitter::None => String::from("none"),
        Jitter::Plus(percent) => format!("plus {percent}"),
    };
    say("jitter", change.jitter.map(jitter));
    say("crashes", change.crashes.map(|crashes| crashes.to_string()));
    say("ratemax", change.rate_max.map(|rate| format!("{} per {}", rate.count, ms(rate.period))));
    say("aftermax", change.after_max.map(ms));
    let paused = |paused| match paused {
        Pause::Off => String::from("no"),
        Pause::On => String::from("yes"),
        Pause::For(span) => format!("for {}", ms(span)),
    };
    say("paused", change.paused.map(paused));
    text
}

impl Ledger {
    /// Entries that ended before `before`, at most `limit` of the `budget` that are looked at; and how many more there are, as far as
    /// they are counted. If some were not looked at, that is one at least.
    fn purgeable(&self, place: Option<Place>, before: Instant, limit: usize, budget: usize) -> (Vec<u64>, usize) {
        let mut old = self.ended(place).flat_map(|of| self.ended_after_held(of).take_while(|(at, _)| at.0 < before));
        let mut free = old.by_ref().take(budget).filter(|(_, is_held)| !is_held).map(|((_, arrival), _)| arrival);
        let arrivals: Vec<u64> = free.by_ref().take(limit).collect();
        let counted = free.count();
        (arrivals, counted.max(usize::from(old.next().is_some())))
    }
}

/// Watches the clock: after a jump, nobody knows how old anything is.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockWatch {
    seen: Option<Instant>,
    jumped_at: Option<Instant>,
}

impl ClockWatch {
    pub fn look(&mut self, now: Instant) {
        let is_jump = self.seen.is_some_and(|seen| seen.until(now).max(now.until(seen)) > CLOCK_JUMP);
        if is_jump {
            self.jumped_at = Some(now);
        }
        self.seen = Some(now);
    }

    /// True for a day after a jump.
    pub fn has_jumped(&self, now: Instant) -> bool {
        self.jumped_at.is_some_and(|at| at.until(now).max(now.until(at)) < CLOCK_JUMP)
    }
}
