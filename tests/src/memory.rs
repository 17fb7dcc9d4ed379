//! The commands without a server: a map of keys, and the way of one request (parse, step, apply, reply) in one place.
//! It has no clock; every call brings its instant.

use std::collections::HashMap;
use std::fmt::Display;

use resil_core::circuit_breaker::{Breaker, admit, configure, force, report, reset, tally};
use resil_core::fence::Floor;
use resil_core::idempotency::Record;
use resil_core::limits::{LEASE_DEFAULT_MAX, WAIT_DEFAULT_MAX, WINDOW_LIMIT_DEFAULT};
use resil_core::lock::{
    Acquired, Ask as Holding, Claim, Holders, Kind, Outcome as HoldingOutcome, Room, Setting, acquire, break_all,
    check, release, renew,
};
use resil_core::queue::Queue;
use resil_core::rate_limit::{Ask, ManyChange, Quota, TierSet, Verdict, step, step_many};
use resil_core::single_flight::Flight;
use resil_core::window::{self, Window};
use resil_core::{Instant, Step};
use resil_wire::breaker::{self, Admit, ConfigCall, ForceCall, ReportCall, TallyCall};
use resil_wire::bulkhead::{self, EnterCall};
use resil_wire::gcra::{self, Gcra};
use resil_wire::holding::{Bounds, OwnedCall, RenewCall, write_released, write_renewed};
use resil_wire::lock::{self, AcquireCall, BreakCall};
use resil_wire::mgcra::{self, Mgcra};
use resil_wire::reply::Value;
use resil_wire::throttle::{self, ClThrottle};
use resil_wire::window::{self as window_command, Windowed};

#[derive(Debug, Default)]
pub struct Memory {
    pub(crate) keys: HashMap<Vec<u8>, State>,
    pub(crate) floor: Floor,
}

#[derive(Debug)]
pub(crate) enum State {
    Tiers(TierSet),
    Log(Window),
    Breaker(Box<Breaker>),
    Held(Kind, Holders),
    Record(Record),
    Flight(Box<Flight>),
}

/// What a server allows unless it is told otherwise.
pub(crate) const BOUNDS: Bounds = Bounds { lease_max: LEASE_DEFAULT_MAX, wait_max: WAIT_DEFAULT_MAX };

pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Memory {
    /// One call, its command's name first. An error is the line a server would write, without the dash.
    pub fn call(&mut self, words: &[&[u8]], now: Instant) -> Result<Value, String> {
        let (name, args) = words.split_first().ok_or("ERR no command")?;
        match name.to_ascii_uppercase().escape_ascii().to_string().as_str() {
            gcra::NAME => self.gcra(Gcra::parse(args).map_err(text)?, now),
            gcra::PEEK_NAME => self.gcra(Gcra::parse_peek(args).map_err(text)?, now),
            mgcra::NAME => self.mgcra(Mgcra::parse(args).map_err(text)?, now),
            window_command::NAME => self.window(Windowed::parse(args, WINDOW_LIMIT_DEFAULT).map_err(text)?, now),
            window_command::PEEK_NAME => {
                self.window(Windowed::parse_peek(args, WINDOW_LIMIT_DEFAULT).map_err(text)?, now)
            }
            throttle::NAME => self.throttle(ClThrottle::parse(args).map_err(text)?, now),
            breaker::NAME => self.breaker(args, now),
            lock::NAME => self.lock(args, now),
            bulkhead::NAME => self.bulkhead(args, now),
            resil_wire::idempotency::NAME => self.idempotency(args, now),
            resil_wire::single_flight::NAME => self.flight(args, now),
            other => Err(format!("ERR unknown command '{other}'")),
        }
    }

    fn gcra(&mut self, call: Gcra<'_>, now: Instant) -> Result<Value, String> {
        let verdict = self.take(call.key, &call.quotas, call.ask, now)?;
        Ok(Value::written(|sink| gcra::write_reply(&verdict, sink)))
    }

    fn throttle(&mut self, call: ClThrottle<'_>, now: Instant) -> Result<Value, String> {
        let verdict = self.take(call.key, &[call.throttle.quota], call.throttle.ask, now)?;
        Ok(Value::written(|sink| throttle::write_reply(call.throttle.reply(&verdict), sink)))
    }

    fn mgcra(&mut self, call: Mgcra<'_>, now: Instant) -> Result<Value, String> {
        let mut keys = Vec::new();
        for (key, quota) in &call.limits {
            keys.push((self.tiers(key)?, *quota));
        }
        let Step { verdict, change, .. } = step_many(&keys, call.cost, now).map_err(text)?;
        for ((key, _), tiers) in call.limits.iter().zip(change.unwrap_or_else(ManyChange::new)) {
            tiers.into_iter().for_each(|tiers| self.store_tiers(key, tiers));
        }
        Ok(Value::written(|sink| mgcra::write_reply(verdict.granted, verdict.refused_by, &verdict.readings, sink)))
    }

    fn window(&mut self, call: Windowed<'_>, now: Instant) -> Result<Value, String> {
        let mut log = self.log(call.key)?;
        let Step { verdict, change, .. } = window::step(&log, call.rule, call.ask, now);
        if let Some(change) = change {
            log.apply(&change);
            self.keys.insert(call.key.to_vec(), State::Log(log));
        }
        Ok(Value::written(|sink| gcra::write_reply(&verdict, sink)))
    }

    fn breaker(&mut self, words: &[&[u8]], now: Instant) -> Result<Value, String> {
        let (name, args) = words.split_first().ok_or("ERR no subcommand")?;
        let key = args.first().copied().unwrap_or_default();
        match name.to_ascii_uppercase().as_slice() {
            b"ADMIT" => {
                let call = Admit::parse(args).map_err(text)?;
                let options = call.options.as_ref().map(|options| (&options.patch, options.version));
                // No chance is drawn here: who ramps has luck.
                let verdict = self.circuit(key, |breaker| {
                    admit(breaker, call.caller(), options, 0, now).map(|outcome| outcome.verdict).map_err(text)
                })?;
                Ok(Value::written(|sink| breaker::write_admission(&verdict, sink)))
            }
            b"REPORT" => {
                let call = ReportCall::parse(args).map_err(text)?;
                let verdict = self.circuit(key, |breaker| {
                    Ok(report(breaker, call.permit, call.report, call.duration, now).verdict)
                })?;
                Ok(Value::written(|sink| breaker::write_reported(&verdict, sink)))
            }
            b"TALLY" => {
                let call = TallyCall::parse(args).map_err(text)?;
                let verdict = self.circuit(key, |breaker| Ok(tally(breaker, call.tally(), now).verdict))?;
                Ok(Value::written(|sink| breaker::write_reported(&verdict, sink)))
            }
            b"FORCE" => {
                let call = ForceCall::parse(args).map_err(text)?;
                let said = (call.actor.unwrap_or_default(), call.reason.unwrap_or_default());
                let (state, generation) = self.circuit(key, |breaker| {
                    let state = force(breaker, call.force, call.length, said, now).verdict;
                    Ok((state, breaker.generation()))
                })?;
                Ok(Value::Array(vec![Value::Text(state.text().into()), Value::Integer(generation as i64)]))
            }
            b"RESET" => {
                breaker::parse_key(args, breaker::RESET_USAGE).map_err(text)?;
                self.circuit(key, |breaker| Ok(Value::Integer(reset(breaker, now).verdict as i64)))
            }
            b"CONFIG" => {
                let call = ConfigCall::parse(args).map_err(text)?;
                let (patch, version) = (&call.options.patch, call.options.version);
                self.circuit(key, |breaker| {
                    let outcome = configure(breaker, patch, version, now).map_err(text)?;
                    Ok(Value::Integer(outcome.verdict as i64))
                })
            }
            other => Err(format!("ERR unknown subcommand '{}'", other.escape_ascii())),
        }
    }

    /// Nobody waits here: WAIT means try once.
    fn lock(&mut self, words: &[&[u8]], now: Instant) -> Result<Value, String> {
        let (name, args) = words.split_first().ok_or("ERR no subcommand")?;
        let key = args.first().copied().unwrap_or_default();
        match name.to_ascii_uppercase().as_slice() {
            b"ACQUIRE" => {
                let call = AcquireCall::parse(args, BOUNDS).map_err(text)?;
                let claim = if call.shared { Claim::Shared } else { Claim::Exclusive };
                let ask = Holding { claim, lease: call.lease, meta: call.meta.into(), bind_to: None };
                match self.held(Kind::Lock, key, now, |room, setting| acquire(room, call.owner, ask, None, setting))? {
                    Acquired::Granted(grant) => Ok(Value::written(|sink| lock::write_granted(&grant, sink))),
                    Acquired::Refused(busy) => Ok(Value::written(|sink| lock::write_taken(&busy, sink))),
                    Acquired::Queued | Acquired::Deadlock => Err("DEADLOCK".to_owned()),
                }
            }
            b"RENEW" => self.renew(Kind::Lock, args, lock::RENEW_USAGE, now),
            b"RELEASE" => self.release(Kind::Lock, args, lock::RELEASE_USAGE, now),
            b"CHECK" => {
                let call = OwnedCall::parse(args, lock::CHECK_USAGE).map_err(text)?;
                let holders = self.holders(Kind::Lock, key)?;
                Ok(Value::Integer(i64::from(check(&holders, call.owner, call.fence, None, now))))
            }
            b"BREAK" => {
                BreakCall::parse(args).map_err(text)?;
                Ok(Value::Integer(self.held(Kind::Lock, key, now, break_all)? as i64))
            }
            other => Err(format!("ERR unknown subcommand '{}'", other.escape_ascii())),
        }
    }

    fn bulkhead(&mut self, words: &[&[u8]], now: Instant) -> Result<Value, String> {
        let (name, args) = words.split_first().ok_or("ERR no subcommand")?;
        match name.to_ascii_uppercase().as_slice() {
            b"ENTER" => {
                let call = EnterCall::parse(args, BOUNDS).map_err(text)?;
                let claim = Claim::Permit { max: call.max, priority: call.priority };
                let ask = Holding { claim, lease: call.lease, meta: Box::default(), bind_to: None };
                let acquired = self.held(Kind::Bulkhead, call.key, now, |room, setting| {
                    acquire(room, call.owner, ask, None, setting)
                })?;
                match acquired {
                    Acquired::Granted(grant) => Ok(Value::written(|sink| bulkhead::write_granted(&grant, sink))),
                    Acquired::Refused(busy) => Ok(Value::written(|sink| bulkhead::write_full(&busy, sink))),
                    Acquired::Queued | Acquired::Deadlock => Err("DEADLOCK".to_owned()),
                }
            }
            b"RENEW" => self.renew(Kind::Bulkhead, args, bulkhead::RENEW_USAGE, now),
            b"LEAVE" => self.release(Kind::Bulkhead, args, bulkhead::LEAVE_USAGE, now),
            other => Err(format!("ERR unknown subcommand '{}'", other.escape_ascii())),
        }
    }

    fn renew(&mut self, kind: Kind, args: &[&[u8]], usage: &'static str, now: Instant) -> Result<Value, String> {
        let call = RenewCall::parse(args, BOUNDS, usage).map_err(text)?;
        let renewed =
            self.held(kind, call.key, now, |room, setting| renew(room, call.owner, call.fence, call.lease, setting))?;
        Ok(Value::written(|sink| write_renewed(&renewed, sink)))
    }

    fn release(&mut self, kind: Kind, args: &[&[u8]], usage: &'static str, now: Instant) -> Result<Value, String> {
        let call = OwnedCall::parse(args, usage).map_err(text)?;
        let released =
            self.held(kind, call.key, now, |room, setting| release(room, call.owner, call.fence, setting))?;
        Ok(Value::written(|sink| write_released(&released, sink)))
    }

    /// A step on the holders in `key`, with nobody in line.
    fn held<V>(
        &mut self,
        kind: Kind,
        key: &[u8],
        now: Instant,
        step: impl FnOnce(&mut Room<'_>, &mut Setting<'_>) -> HoldingOutcome<V>,
    ) -> Result<V, String> {
        let mut holders = self.holders(kind, key)?;
        let mut setting = Setting { now, promoted_at: None, floor: &mut self.floor };
        let outcome = step(&mut Room { kind, holders: &mut holders, queue: &mut Queue::default() }, &mut setting);
        if !outcome.edits.is_empty() {
            self.keys.insert(key.to_vec(), State::Held(kind, holders));
        }
        Ok(outcome.verdict)
    }

    fn holders(&self, kind: Kind, key: &[u8]) -> Result<Holders, String> {
        match self.keys.get(key) {
            None => Ok(Holders::default()),
            Some(State::Held(stored, holders)) if *stored == kind => Ok(holders.clone()),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// A step on the breaker in `key`; one that is as good as none is not kept.
    fn circuit<V>(&mut self, key: &[u8], step: impl FnOnce(&mut Breaker) -> Result<V, String>) -> Result<V, String> {
        let mut breaker = match self.keys.get(key) {
            None => Box::default(),
            Some(State::Breaker(breaker)) => breaker.clone(),
            Some(_) => return Err(WRONG_TYPE.to_owned()),
        };
        let verdict = step(&mut breaker)?;
        if breaker.is_blank() {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.to_vec(), State::Breaker(breaker));
        }
        Ok(verdict)
    }

    fn take(&mut self, key: &[u8], quotas: &[Quota], ask: Ask, now: Instant) -> Result<Verdict, String> {
        let Step { verdict, change, .. } = step(&self.tiers(key)?, quotas, ask, now).map_err(text)?;
        change.into_iter().for_each(|tiers| self.store_tiers(key, tiers));
        Ok(verdict)
    }

    fn tiers(&self, key: &[u8]) -> Result<TierSet, String> {
        match self.keys.get(key) {
            None => Ok(TierSet::new()),
            Some(State::Tiers(tiers)) => Ok(tiers.clone()),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn log(&self, key: &[u8]) -> Result<Window, String> {
        match self.keys.get(key) {
            None => Ok(Window::default()),
            Some(State::Log(log)) => Ok(log.clone()),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn store_tiers(&mut self, key: &[u8], tiers: TierSet) {
        if tiers.is_empty() {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.to_vec(), State::Tiers(tiers));
        }
    }
}

pub(crate) fn text(error: impl Display) -> String {
    // A refusal brings its code; what core says is a sentence.
    let sentence = error.to_string();
    if sentence.starts_with("ERR ") { sentence } else { format!("ERR {sentence}") }
}
