//! `RES.BREAKER` and its subcommands.

use std::hash::{BuildHasher, RandomState};

use resil_core::Instant;
use resil_core::circuit_breaker::{
    Breaker, BreakerOutcome, Caller, Permit, Phase, Reported, StateName, Why, admit, configure, force, report, reset,
    tally, view,
};
use resil_core::guard::{Guards, step_breaker};
use resil_wire::Refused;
use resil_wire::breaker::state::write_state;
use resil_wire::breaker::{
    Admit as AdmitCall, Admitted, ConfigCall, Counted, ForceCall, Forced, ReportCall, TallyCall,
};
use resil_wire::policy::no_policy;
use resil_wire::reply::Sink;

use crate::announce;
use crate::apply::{publish_plain, store_plain};
use crate::call::{Call, Failure};
use crate::clock;
use crate::datatype::Value;
use crate::datatype::boxed::Circuit;
use crate::datatype::waited::Live;
use crate::denials::{self, Refuser};
use crate::guard_events;
use crate::info::counters;
use crate::key::Key;
use crate::server;
use crate::waited_key::Opened;

/// As [`stepped`], for what an operator does: it is announced to those who use the breaker even if its state stays.
fn stepped_by_operator<V>(
    call: &Call<'_>,
    now: Instant,
    action: &str,
    details: &[(&'static str, &[u8])],
    step: impl FnOnce(&mut Breaker, Home) -> Result<BreakerOutcome<V>, Refused>,
) -> Result<V, Failure> {
    let mut after = None;
    let verdict = stepped(call, now, details, |breaker, home| {
        let outcome = step(breaker, home)?;
        let is_silent = outcome.transitions.is_empty() && !outcome.edits.is_empty();
        after = is_silent.then(|| (breaker.name(), breaker.generation()));
        Ok(outcome)
    })?;
    if let Some(after) = after {
        let args = call.args();
        announce::operator_action(call, args.first().copied().unwrap_or_default(), after, action, now, details);
    }
    Ok(verdict)
}

/// Takes the step on the breaker in the key, or on a new one that is stored only if the step changes it; then stores,
/// replicates and announces what it did.
fn stepped<V>(
    call: &Call<'_>,
    now: Instant,
    details: &[(&'static str, &[u8])],
    step: impl FnOnce(&mut Breaker, Home) -> Result<BreakerOutcome<V>, Refused>,
) -> Result<V, Failure> {
    let mut key = Key::open_to_write(call, call.string(0)?);
    if matches!(Live::<Guards>::of(&key), Ok(Some(_))) {
        return stepped_in_policy(call, now, details, step);
    }
    let stored = key.value::<Circuit>()?;
    let outcome = match stored {
        Some(mut value) => {
            let bytes = value.bytes();
            let breaker = value.get_mut();
            let kept = breaker.keep();
            let outcome = step(breaker, Home::Own)?;
            if !outcome.edits.is_empty() {
                let salt = key.salt();
                let due = breaker.gc_at(salt);
                key.collect_at::<Circuit>(Some(kept.map(|keep| keep.due(salt))), due);
            }
            value.recount(bytes);
            outcome
        }
        None => {
            let mut breaker = Breaker::default();
            let outcome = step(&mut breaker, Home::Own)?;
            if !outcome.edits.is_empty() {
                call.require_memory()?;
                store_plain(&mut key, None, breaker);
            }
            outcome
        }
    };
    if !outcome.edits.is_empty() {
        publish_plain::<Breaker>(call, &key, &outcome.edits, stored.is_none());
    }
    for transition in &outcome.transitions {
        counters().breaker.transitions.add(1);
        counters().breaker.trips.add((transition.new == StateName::Open) as u64);
        announce::transition(call, &key, transition, now, details);
    }
    Ok(outcome.verdict)
}

/// The same on the breaker of the policy that is in the key.
fn stepped_in_policy<V>(
    call: &Call<'_>,
    now: Instant,
    details: &[(&'static str, &[u8])],
    step: impl FnOnce(&mut Breaker, Home) -> Result<BreakerOutcome<V>, Refused>,
) -> Result<V, Failure> {
    let opened = Opened::<Guards>::open(call, call.string(0)?)?;
    let is_live = opened.state().settings().is_some();
    let stepped = guard_events::with_details(details, || {
        let take = |breaker: &mut Breaker| step(breaker, Home::Policy);
        opened.step(call, now, &[], |key, setting| step_breaker(key, take, setting))
    });
    match stepped {
        Some(verdict) => Ok(verdict?),
        None => Err(no_breaker(is_live)),
    }
}

fn no_breaker(is_live: bool) -> Failure {
    if is_live { Refused::new("the policy under this key has no breaker").into() } else { no_policy().into() }
}

/// Where a breaker is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// Under a key of its own.
    Own,
    /// Under the key of a policy, which says how it is configured.
    Policy,
}

pub fn breaker_admit(call: &Call<'_>, request: AdmitCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut is_proved = false;
    let mut admission = stepped(call, now, &[], |breaker, home| {
        let chance = if matches!(breaker.phase(), Phase::Ramping { .. }) { draw_chance() } else { 0 };
        let options = request.options.as_ref().filter(|_| home == Home::Own);
        let options = options.map(|options| (&options.patch, options.version));
        let outcome = admit(breaker, request.caller(), options, chance, now).map_err(Refused::new);
        is_proved = breaker.config().quorum > 1;
        outcome
    })?;
    let counter = if admission.permit.is_some() { &counters().breaker.admitted } else { &counters().breaker.denied };
    counter.add(1);
    if admission.permit.is_none() {
        denials::note(|| call.db(), Refuser::Breaker, request.key);
    }
    if let Some(permit) = admission.permit.as_mut().filter(|_| is_proved) {
        permit.seal = seal(request.key, permit);
    }
    Admitted::from(admission).write(&mut call.reply());
    Ok(())
}

/// What this process alone can compute of a permit. It is made with a secret that is drawn when the process starts and
/// kept nowhere: after a restart or a failover a permit from before counts for no caller.
fn seal(key: &[u8], permit: &Permit) -> u32 {
    thread_local! {
        static SECRET: RandomState = RandomState::new();
    }
    let Permit { generation, issued_us, caller, probe, .. } = *permit;
    SECRET.with(|secret| secret.hash_one((key, generation, issued_us, caller.0, probe)) as u32).max(1)
}

/// The permit as far as it can be believed: whose it is, only if it was issued here.
fn verified(key: &[u8], permit: Permit) -> Permit {
    if permit.seal == seal(key, &permit) { permit } else { Permit { caller: Caller::UNVERIFIED, ..permit } }
}

/// From 0 to 99.
fn draw_chance() -> u32 {
    server::random() % 100
}

pub fn breaker_report(call: &Call<'_>, request: ReportCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let correlation = request.correlation.map(|correlation| ("correlation", correlation));
    let reported = stepped(call, now, correlation.as_slice(), |breaker, _| {
        // Who called matters to a quorum alone.
        let is_proved = breaker.config().quorum > 1;
        let permit = request.permit.map(|permit| if is_proved { verified(request.key, permit) } else { permit });
        Ok(report(breaker, permit, request.report, request.duration, now))
    })?;
    count(&reported);
    Counted::from(reported).write(&mut call.reply());
    Ok(())
}

pub fn breaker_tally(call: &Call<'_>, request: TallyCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let correlation = request.correlation.map(|correlation| ("correlation", correlation));
    let reported = stepped(call, now, correlation.as_slice(), |breaker, _| Ok(tally(breaker, request.tally(), now)))?;
    count(&reported);
    Counted::from(reported).write(&mut call.reply());
    Ok(())
}

fn count(reported: &Reported) {
    let counters = &counters().breaker;
    match reported.why {
        Why::Counted => &counters.counted,
        Why::Stale => &counters.stale,
        Why::Unknown | Why::Duplicate | Why::Ignored => &counters.not_counted,
    }
    .add(1);
}

pub fn breaker_state(call: &Call<'_>, _: &[u8]) -> Result<(), Failure> {
    let now = clock::now();
    let key = Key::open_to_read(call, call.string(0)?);
    let missing = Breaker::default();
    if let Ok(Some(policy)) = Live::<Guards>::of(&key) {
        let breaker = policy.state().breaker().ok_or_else(|| no_breaker(policy.state().settings().is_some()))?;
        write_state(&view(breaker, now), true, now, &mut call.reply());
        return Ok(());
    }
    let stored = key.value::<Circuit>()?;
    let breaker = stored.as_ref().map_or(&missing, Value::get);
    write_state(&view(breaker, now), stored.is_some(), now, &mut call.reply());
    Ok(())
}

pub fn breaker_force(call: &Call<'_>, request: ForceCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let (actor, reason) = (request.actor.unwrap_or_default(), request.reason.unwrap_or_default());
    let said = [("actor", request.actor), ("note", request.reason)];
    let details: Vec<(&'static str, &[u8])> = said.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    let mut generation = 0;
    let state = stepped_by_operator(call, now, "forced", &details, |breaker, _| {
        let outcome = force(breaker, request.force, request.length, (actor, reason), now);
        generation = breaker.generation();
        Ok(outcome)
    })?;
    Forced { state, generation }.write(&mut call.reply());
    Ok(())
}

pub fn breaker_reset(call: &Call<'_>, _: &[u8]) -> Result<(), Failure> {
    let now = clock::now();
    let anything = stepped_by_operator(call, now, "reset", &[], |breaker, _| Ok(reset(breaker, now)))?;
    call.reply().integer(anything as i64);
    Ok(())
}

pub fn breaker_config(call: &Call<'_>, request: ConfigCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let changed = stepped_by_operator(call, now, "configured", &[], |breaker, home| {
        if home == Home::Policy {
            return Err(Refused::new("this breaker belongs to a policy: change it with RES.POLICY SET"));
        }
        configure(breaker, &request.options.patch, request.options.version, now).map_err(Refused::new)
    })?;
    call.reply().integer(changed as i64);
    Ok(())
}
