//! Breakers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use resil_core::Instant;
use resil_core::circuit_breaker::{
    Breaker, BreakerOutcome, Phase, Transition as BreakerTransition, admit, configure, force, report, reset, tally,
    view,
};
use resil_core::policy::breaker_baseline::Baseline;
use resil_wire::breaker::state::write_state;
use resil_wire::breaker::{Admit, ConfigCall, ForceCall, Forced, ReportCall, TallyCall};
use resil_wire::command::Reply;
use resil_wire::reply::Value;

use super::channels::{EVERYTHING, MemoryEvent};
use super::refused;
use super::store::{Store, Touch, When};
use crate::error::Error;

impl Store {
    pub fn admit(&self, call: &Admit<'_>, when: When) -> Result<Reply, Error> {
        let is_policy = self.is_policy(call.key);
        let admission = self.on_breaker(call.key, when, |breaker, now| {
            let ramps = matches!(breaker.phase(), Phase::Ramping { .. });
            let chance = if ramps { rand::random_range(0..100) } else { 0 };
            let options = call.options.as_ref().filter(|_| !is_policy);
            let options = options.map(|options| (&options.patch, options.version));
            admit(breaker, call.caller(), options, chance, now).map_err(refused)
        })?;
        Ok(Reply::Admitted(admission.into()))
    }

    pub fn report(&self, call: &ReportCall<'_>, when: When) -> Result<Reply, Error> {
        let reported = self.on_breaker(call.key, when, |breaker, now| {
            Ok(report(breaker, call.permit, call.report, call.duration, now))
        })?;
        Ok(Reply::Counted(reported.into()))
    }

    pub fn tally(&self, call: &TallyCall<'_>, when: When) -> Result<Reply, Error> {
        let reported = self.on_breaker(call.key, when, |breaker, now| Ok(tally(breaker, call.tally(), now)))?;
        Ok(Reply::Counted(reported.into()))
    }

    pub fn breaker_state(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        if self.is_policy(key) {
            let shown =
                |breaker: &Breaker, now| Value::written(|sink| write_state(&view(breaker, now), true, now, sink));
            return self.look_at_policy_breaker(key, when, shown);
        }
        self.on(key, when, |breaker: &mut Breaker, now| {
            let map =
                Value::written(|sink| write_state(&view(breaker, now), *breaker != Breaker::default(), now, sink));
            Ok((Reply::Map(map), Touch::Unchanged))
        })
    }

    pub fn force(&self, call: &ForceCall<'_>, when: When) -> Result<Reply, Error> {
        let (actor, reason) = (call.actor.unwrap_or_default(), call.reason.unwrap_or_default());
        let mut generation = 0;
        let state = self.on_breaker(call.key, when, |breaker, now| {
            let outcome = force(breaker, call.force, call.length, (actor, reason), now);
            generation = breaker.generation();
            Ok(outcome)
        })?;
        Ok(Reply::Forced(Forced { state, generation }))
    }

    pub fn reset(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        let anything = self.on_breaker(key, when, |breaker, now| Ok(reset(breaker, now)))?;
        Ok(Reply::Number(i64::from(anything)))
    }

    pub fn configure(&self, call: &ConfigCall<'_>, when: When) -> Result<Reply, Error> {
        if self.is_policy(call.key) {
            let text = "this breaker belongs to a policy: change it with RES.POLICY SET";
            return Err(Error::InvalidArgument(text.to_owned()));
        }
        let changed = self.on_breaker(call.key, when, |breaker, now| {
            configure(breaker, &call.options.patch, call.options.version, now).map_err(refused)
        })?;
        Ok(Reply::Number(i64::from(changed)))
    }

    /// A breaker is stored only once a step has changed it.
    fn on_breaker<V>(
        &self,
        key: &[u8],
        when: When,
        step: impl FnOnce(&mut Breaker, Instant) -> Result<BreakerOutcome<V>, Error>,
    ) -> Result<V, Error> {
        if self.is_policy(key) {
            return self.on_policy_breaker(key, when, step);
        }
        let (verdict, transitions) = self.on(key, when, |breaker: &mut Breaker, now| {
            let outcome = match self.baselines.of(key) {
                Some(baseline) => baseline.lock().judge(breaker, now, |breaker| step(breaker, now))?,
                None => step(breaker, now)?,
            };
            let touch = if outcome.edits.is_empty() { Touch::Unchanged } else { Touch::Changed };
            Ok(((outcome.verdict, outcome.transitions), touch))
        })?;
        if let Some(last) = transitions.last() {
            self.changes.publish(key, last);
        }
        for transition in &transitions {
            self.tell_of_move(key, transition);
        }
        Ok(verdict)
    }

    /// Those who hear of everything.
    pub(super) fn tell_of_move(&self, key: &[u8], transition: &BreakerTransition) {
        self.events.publish(EVERYTHING, &MemoryEvent::Moved { key: key.to_vec(), transition: *transition });
    }
}

type SharedBaseline = Weak<Mutex<Baseline>>;

/// What is usual for the breakers that are adaptive, by their keys. It is kept by those who use them.
#[derive(Default)]
pub(super) struct Baselines {
    by_key: Mutex<HashMap<Box<[u8]>, SharedBaseline>>,
    has_any: AtomicBool,
}

impl Baselines {
    /// Makes the breaker at `key` adaptive for as long as the result is kept.
    pub fn keep(&self, key: &[u8]) -> Arc<Mutex<Baseline>> {
        let mut by_key = self.by_key.lock();
        by_key.retain(|_, baseline| baseline.strong_count() > 0);
        self.has_any.store(true, Relaxed);
        if let Some(known) = by_key.get(key).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::default();
        by_key.insert(key.into(), Arc::downgrade(&new));
        new
    }

    fn of(&self, key: &[u8]) -> Option<Arc<Mutex<Baseline>>> {
        if !self.has_any.load(Relaxed) {
            return None;
        }
        self.by_key.lock().get(key).and_then(Weak::upgrade)
    }
}
