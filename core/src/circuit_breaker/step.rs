//! The steps: one function per event. Each looks, decides, and changes only by edits, which it hands back together with
//! the verdict and the transitions that happened.

use alloc::boxed::Box;
use smallvec::SmallVec;

use super::config::{Config, ConfigError, Patch};
use super::edit::{Edit, Edits};
use super::judge;
use super::outcomes::Batch;
use super::permit::{self, Caller, Permit};
use super::state::{Breaker, Force, Forced, Phase, StateName};
use super::verdict::{Admission, BreakerOutcome, Report, Reported, Tally, Transition, TransitionReason, Why};
use crate::limits::{CLOCK_JITTER, INSTANT_MAX_US};
use crate::rate_limit::Wait;
use crate::time::{Instant, Span};

/// A breaker being stepped: what was changed so far.
pub(super) struct Draft<'a> {
    breaker: &'a mut Breaker,
    now: Instant,
    edits: Edits,
    transitions: SmallVec<[Transition; 1]>,
}

impl<'a> Draft<'a> {
    /// Opens the breaker at `now`: a clock that was set back is mended, what IDLE forgets is forgotten, and what time
    /// alone ends has ended.
    pub(super) fn open(breaker: &'a mut Breaker, now: Instant) -> Self {
        let mut draft = Self { breaker, now, edits: Edits::new(), transitions: SmallVec::new() };
        draft.mend_clock();
        if draft.breaker.is_idle(now) && draft.breaker.remembers() {
            draft.edit(Edit::Forget);
        }
        draft.end_what_is_over();
        draft
    }

    fn end_what_is_over(&mut self) {
        let now_us = self.now.as_us();
        match &self.breaker.phase {
            Phase::Forced(forced) if forced.until_us.is_some_and(|until_us| until_us <= now_us) => {
                let next = match forced.force.ends_in() {
                    StateName::HalfOpen => Phase::half_open(),
                    _ => Phase::Closed,
                };
                self.enter(next, TransitionReason::ForceEnded);
            }
            Phase::Ramping { since_us } if now_us - since_us >= self.breaker.config.ramp.as_us() => {
                self.enter(Phase::Closed, TransitionReason::RampOver);
            }
            _ => {}
        }
    }

    fn edit(&mut self, edit: Edit) {
        self.breaker.apply(&edit);
        self.edits.push(edit);
    }

    fn enter(&mut self, phase: Phase, reason: TransitionReason) {
        self.enter_after(self.breaker.trips, phase, reason);
    }

    /// Every transition goes through here: a new generation, an edit, and the transition to be published.
    fn enter_after(&mut self, trips: u32, phase: Phase, reason: TransitionReason) {
        let (previous, previous_generation) = (self.breaker.name(), self.breaker.generation);
        let now_us = self.now.as_us().max(0) as u64;
        // The ceiling is that of the codec; only forged bytes could come near it.
        let generation = now_us.max(self.breaker.generation + 1).min(INSTANT_MAX_US as u64);
        self.edit(Edit::Enter { phase: Box::new(phase), generation, at_us: self.now.as_us(), trips });
        let new = self.breaker.name();
        self.transitions.push(Transition { previous, new, previous_generation, generation, reason });
    }

    /// Opens the circuit, for longer with every trip in a row.
    fn trip(&mut self, reason: TransitionReason) {
        let config = self.breaker.config;
        let settled = matches!(self.breaker.phase, Phase::Closed)
            && self.now.as_us() - self.breaker.closed_us >= config.open_max.as_us();
        let trips = if settled { 1 } else { self.breaker.trips.saturating_add(1) };
        let length_us = config.open_time(trips).as_us();
        self.enter_after(trips, Phase::Open { opened_us: self.now.as_us(), length_us }, reason);
    }

    fn mend_clock(&mut self) {
        if let Some(mend) = mended_clock(self.breaker, self.now) {
            self.edit(mend);
        }
    }

    /// A shorter LEASE or RAMP takes effect at once.
    fn configure(&mut self, config: Config, version: u64, lasting: bool) {
        self.edit(Edit::Configure { config: Box::new(config), version, lasting, at_us: self.now.as_us() });
        self.mend_clock();
        self.end_what_is_over();
    }

    fn permit(&self, caller: Caller, probe: Option<u32>) -> Permit {
        Permit { generation: self.breaker.generation, issued_us: self.now.as_us(), caller, probe, seal: 0 }
    }

    fn finish<V>(self, verdict: V) -> BreakerOutcome<V> {
        if cfg!(debug_assertions) {
            self.breaker.check_invariants(self.now);
            assert!(self.transitions.iter().all(Transition::is_in_table), "{:?}", self.transitions);
            let grows = |pair: &[Transition]| pair[0].generation < pair[1].generation;
            assert!(self.transitions.windows(2).all(grows), "{:?}", self.transitions);
        }
        BreakerOutcome { verdict, edits: self.edits, transitions: self.transitions }
    }

    fn admission(self, permit: Option<Permit>, retry_after: Wait) -> BreakerOutcome<Admission> {
        let (state, generation) = (self.breaker.name(), self.breaker.generation);
        self.finish(Admission { permit, state, retry_after, generation })
    }

    fn reported(self, why: Why) -> BreakerOutcome<Reported> {
        let retry_after = match &self.breaker.phase {
            Phase::Open { opened_us, length_us } => Wait::For(self.breaker.open_for(*opened_us, *length_us, self.now)),
            _ => Wait::NONE,
        };
        let (state, generation) = (self.breaker.name(), self.breaker.generation);
        self.finish(Reported { why, state, generation, retry_after })
    }
}

/// The edit that puts right what a clock that was set back has left behind, if it was.
pub(crate) fn mended_clock(breaker: &Breaker, now: Instant) -> Option<Edit> {
    let (now_us, probe_until_us) = (now.as_us(), now.plus(breaker.config.lease).as_us());
    let ahead = match &breaker.phase {
        Phase::Open { opened_us, .. } => *opened_us > now_us,
        Phase::Ramping { since_us } => *since_us > now_us,
        Phase::HalfOpen { probes, .. } => probes.iter().any(|probe| probe.until_us > probe_until_us),
        Phase::Forced(forced) => forced.since_us > now_us && forced.until_us.is_some(),
        Phase::Closed => false,
    };
    let is_set_back = ahead || breaker.last_seen_us > now.plus(CLOCK_JITTER).as_us();
    is_set_back.then_some(Edit::Mend { now_us, probe_until_us })
}

/// ADMIT: may this caller call? `options` apply as the contract says; `chance` is from 0 to 99, drawn outside.
pub fn admit(
    breaker: &mut Breaker,
    caller: Caller,
    options: Option<(&Patch, Option<u64>)>,
    chance: u32,
    now: Instant,
) -> Result<BreakerOutcome<Admission>, ConfigError> {
    let configured = options.map(|options| offered(breaker, options, now)).transpose()?.flatten();
    let mut draft = Draft::open(breaker, now);
    if let Some((config, version)) = configured {
        let lasting = draft.breaker.lasting;
        draft.configure(config, version, lasting);
    }
    let state = &*draft.breaker;
    Ok(match &state.phase {
        Phase::Closed => admitted(draft, caller),
        Phase::Open { opened_us, length_us } => {
            let wait = state.open_for(*opened_us, *length_us, now);
            if !wait.is_zero() {
                return Ok(draft.admission(None, Wait::For(wait)));
            }
            draft.enter(Phase::half_open(), TransitionReason::OpenTimeOver);
            probe(draft, caller)
        }
        Phase::HalfOpen { .. } => probe(draft, caller),
        Phase::Ramping { since_us } => {
            let (share, next_us) = ramp_stage(now.as_us() - since_us, state.config.ramp.as_us());
            let wait = now.until(Instant::from_us(since_us + next_us));
            if chance < share { admitted(draft, caller) } else { draft.admission(None, Wait::For(wait)) }
        }
        Phase::Forced(forced) => match (forced.force, forced.until_us) {
            (Force::Open | Force::OpenThenProbe, Some(until_us)) => {
                let wait = now.until(Instant::from_us(until_us));
                draft.admission(None, Wait::For(wait))
            }
            (Force::Open | Force::OpenThenProbe, None) => draft.admission(None, Wait::Never),
            _ => admitted(draft, caller),
        },
    })
}

/// The configuration that options on ADMIT bring about, if they apply: to a breaker nobody configured, or with a
/// higher version. Where they do not apply they need only make sense by themselves, or as a change of what is stored:
/// neither CONFIG nor having been taken before must make them an error.
fn offered(
    breaker: &Breaker,
    (patch, version): (&Patch, Option<u64>),
    now: Instant,
) -> Result<Option<(Config, u64)>, ConfigError> {
    let (config, stored_version, configured) = stored(breaker, now);
    if configured && version.is_none_or(|version| version <= stored_version) {
        return Config::default().patched(patch).or_else(|_| config.patched(patch)).map(|_| None);
    }
    Ok(Some((config.patched(patch)?, version.unwrap_or(stored_version))))
}

/// The configuration with its version, and whether anybody gave it, as `now` finds them.
fn stored(breaker: &Breaker, now: Instant) -> (Config, u64, bool) {
    let forgotten = breaker.is_idle(now) && breaker.forgets_config();
    if forgotten { (Config::default(), 0, false) } else { (breaker.config, breaker.version, breaker.configured) }
}

fn admitted(draft: Draft<'_>, caller: Caller) -> BreakerOutcome<Admission> {
    let permit = draft.permit(caller, None);
    draft.admission(Some(permit), Wait::NONE)
}

/// Half-open: a probe if a place is free.
fn probe(mut draft: Draft<'_>, caller: Caller) -> BreakerOutcome<Admission> {
    let now_us = draft.now.as_us();
    let Phase::HalfOpen { issued, probes, .. } = &draft.breaker.phase else { return admitted(draft, caller) };
    let ends = probes.iter().map(|probe| probe.until_us).filter(|until_us| *until_us > now_us);
    if ends.clone().count() >= draft.breaker.config.probes as usize {
        let first_us = ends.min().unwrap_or(now_us);
        let wait = draft.now.until(Instant::from_us(first_us));
        return draft.admission(None, Wait::For(wait));
    }
    let number = issued.wrapping_add(1);
    let until_us = draft.now.plus(draft.breaker.config.lease).as_us();
    draft.edit(Edit::ProbeOut { number, at_us: now_us, until_us });
    let permit = draft.permit(caller, Some(number));
    draft.admission(Some(permit), Wait::NONE)
}

/// The percentage admitted `elapsed_us` after half-open, and when the next stage begins.
fn ramp_stage(elapsed_us: i64, ramp_us: i64) -> (u32, i64) {
    let third_us = (ramp_us / 3).max(1);
    match elapsed_us / third_us {
        0 => (10, third_us),
        1 => (25, 2 * third_us),
        _ => (50, ramp_us),
    }
}

/// REPORT: what the call under `permit` came to.
pub fn report(
    breaker: &mut Breaker,
    permit: Option<Permit>,
    report: Report,
    duration: Option<Span>,
    now: Instant,
) -> BreakerOutcome<Reported> {
    let mut draft = Draft::open(breaker, now);
    let Some(permit) = permit else { return draft.reported(Why::Unknown) };
    let age_us = now.as_us().saturating_sub(permit.issued_us);
    let outlived = permit.generation == 0 && age_us > permit::LIFE.as_us();
    if permit.generation != draft.breaker.generation || outlived {
        return draft.reported(Why::Stale);
    }
    let slow_after = draft.breaker.config.slow;
    let slow = !slow_after.is_zero() && duration.is_some_and(|duration| duration >= slow_after);
    if matches!(draft.breaker.phase, Phase::HalfOpen { .. }) {
        return probe_report(draft, permit, report, slow);
    }
    let failed = match report {
        Report::Ok => false,
        Report::Fail => true,
        Report::Ignore | Report::Cancel => return draft.reported(Why::Ignored),
    };
    let batch = Batch { ok: !failed as u32, failures: failed as u32, slow: slow as u32, run: failed as u32 };
    match &draft.breaker.phase {
        Phase::Ramping { .. } if failed || counts_as_failure(&draft, slow) => draft.trip(TransitionReason::RampFailed),
        Phase::Closed | Phase::Ramping { .. } => record(&mut draft, permit.caller, batch),
        Phase::Forced(forced) if matches!(forced.force, Force::Closed | Force::Metrics) => {
            record(&mut draft, permit.caller, batch);
        }
        Phase::Forced(forced) if forced.force == Force::Disabled => return draft.reported(Why::Ignored),
        _ => return draft.reported(Why::Unknown),
    }
    draft.reported(Why::Counted)
}

/// Where slow calls trip, a slow probe has not shown that the dependency is well.
fn counts_as_failure(draft: &Draft<'_>, slow: bool) -> bool {
    slow && draft.breaker.config.slow_rate_pct > 0
}

fn probe_report(mut draft: Draft<'_>, permit: Permit, report: Report, slow: bool) -> BreakerOutcome<Reported> {
    let now_us = draft.now.as_us();
    let (Some(number), Phase::HalfOpen { probes, reported, .. }) = (permit.probe, &draft.breaker.phase) else {
        return draft.reported(Why::Unknown);
    };
    let is_out = probes.iter().any(|probe| probe.number == number && probe.until_us > now_us);
    if !is_out {
        let why = if reported.contains(&number) { Why::Duplicate } else { Why::Unknown };
        return draft.reported(why);
    }
    let succeeded = match report {
        Report::Ignore | Report::Cancel => {
            draft.edit(Edit::ProbeBack { number, at_us: now_us, succeeded: false });
            return draft.reported(Why::Ignored);
        }
        Report::Ok => !counts_as_failure(&draft, slow),
        Report::Fail => false,
    };
    if !succeeded {
        draft.trip(TransitionReason::ProbeFailed);
        return draft.reported(Why::Counted);
    }
    draft.edit(Edit::ProbeBack { number, at_us: now_us, succeeded: true });
    let enough = draft.breaker.config.successes;
    if matches!(draft.breaker.phase, Phase::HalfOpen { successes, .. } if successes >= enough) {
        let next =
            if draft.breaker.config.ramp.is_zero() { Phase::Closed } else { Phase::Ramping { since_us: now_us } };
        draft.enter(next, TransitionReason::ProbesSucceeded);
    }
    draft.reported(Why::Counted)
}

/// Counts outcomes, and trips a closed breaker whose threshold they meet.
fn record(draft: &mut Draft<'_>, caller: Caller, batch: Batch) {
    draft.edit(Edit::Record { at_us: draft.now.as_us(), caller, batch });
    if matches!(draft.breaker.phase, Phase::Closed)
        && let Some(reason) = judge::verdict(draft.breaker, draft.now)
    {
        draft.trip(reason);
    }
}

/// TALLY: a batch; a repeated one is answered and not counted.
pub fn tally(breaker: &mut Breaker, mut tally: Tally, now: Instant) -> BreakerOutcome<Reported> {
    let mut draft = Draft::open(breaker, now);
    let newest = draft.breaker.tallies.iter().find(|(caller, _)| *caller == tally.caller).map(|(_, seq)| *seq);
    if newest.is_some_and(|newest| tally.seq <= newest) {
        return draft.reported(Why::Duplicate);
    }
    if tally.generation != 0 && tally.generation != draft.breaker.generation {
        return draft.reported(Why::Stale);
    }
    match &draft.breaker.phase {
        Phase::Closed => {}
        Phase::Forced(forced) if matches!(forced.force, Force::Closed | Force::Metrics) => {}
        Phase::Forced(forced) if forced.force == Force::Disabled => return draft.reported(Why::Ignored),
        _ => return draft.reported(Why::Stale),
    }
    if tally.batch.calls() == 0 {
        return draft.reported(Why::Ignored);
    }
    if tally.batch.ok == 0 {
        // Nothing but failures is a run, whether the caller says so or not.
        tally.batch.run = tally.batch.failures;
    }
    draft.edit(Edit::Heard { caller: tally.caller, seq: tally.seq });
    record(&mut draft, tally.caller, tally.batch);
    draft.reported(Why::Counted)
}

/// FORCE: `None` is AUTO. The verdict is the state afterwards.
pub fn force(
    breaker: &mut Breaker,
    force: Option<Force>,
    length: Option<Span>,
    (actor, reason): (&[u8], &[u8]),
    now: Instant,
) -> BreakerOutcome<StateName> {
    let mut draft = Draft::open(breaker, now);
    match (force, &draft.breaker.phase) {
        (None, Phase::Forced(_)) => draft.enter(Phase::Closed, TransitionReason::ForceLifted),
        (None, _) => {}
        (Some(force), phase) => {
            // Without an end there is nothing to follow it.
            let force = if length.is_none() && force == Force::OpenThenProbe { Force::Open } else { force };
            let until_us = length.map(|length| now.plus(length).as_us());
            let forced = Forced { force, since_us: now.as_us(), until_us, actor: actor.into(), reason: reason.into() };
            match phase {
                Phase::Forced(old) if **old == Forced { since_us: old.since_us, ..forced.clone() } => {}
                // By somebody else, or for longer: the same state, so the same generation and no event.
                Phase::Forced(old) if old.force.state() == force.state() => {
                    let Breaker { generation, trips, .. } = *draft.breaker;
                    let phase = Box::new(Phase::Forced(Box::new(forced)));
                    draft.edit(Edit::Enter { phase, generation, at_us: now.as_us(), trips });
                }
                _ => draft.enter(Phase::Forced(Box::new(forced)), TransitionReason::Forced),
            }
        }
    }
    let state = draft.breaker.name();
    draft.finish(state)
}

/// RESET: closed, with nothing counted; the configuration stays. The verdict says whether there was anything to reset.
pub fn reset(breaker: &mut Breaker, now: Instant) -> BreakerOutcome<bool> {
    let mut draft = Draft::open(breaker, now);
    let Breaker { generation, recorded, failures_in_a_row, .. } = *draft.breaker;
    let anything = generation > 0 || recorded > 0 || failures_in_a_row > 0;
    if anything {
        draft.enter_after(0, Phase::Closed, TransitionReason::Reset);
        draft.transitions.retain(|transition| transition.previous != transition.new);
    }
    draft.finish(anything)
}

/// CONFIG: always wins, changes only what it names, and lasts. The verdict says whether anything changed.
pub fn configure(
    breaker: &mut Breaker,
    patch: &Patch,
    version: Option<u64>,
    now: Instant,
) -> Result<BreakerOutcome<bool>, ConfigError> {
    let (config, stored_version, _) = stored(breaker, now);
    let config = config.patched(patch)?;
    let version = version.unwrap_or(stored_version);
    let mut draft = Draft::open(breaker, now);
    let breaker = &draft.breaker;
    let changed = !breaker.lasting || breaker.config != config || breaker.version != version;
    if changed {
        draft.configure(config, version, true);
    }
    Ok(draft.finish(changed))
}
