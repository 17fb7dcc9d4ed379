//! Idempotency keys.

use std::sync::Arc;

use resil_core::idempotency::{
    Idempotency, Run, RunRequest, Settled, abort, begin, commit, look, once, renew, replay, seen_before,
};
use resil_core::limits::{RESULT_DEFAULT_MAX, WAITERS_CEILING};
use resil_core::waited::{Asked, Decision, Waiting};
use resil_wire::answer::Answer;
use resil_wire::idempotency::{BeginCall, CommitCall, GetCall, OnceCall, RenewCall, TokenCall, write_info};
use resil_wire::reply::Value;

use super::Memory;
use super::store::{State, Store, Touch, When};
use super::waited::{MemoryMachine, Told, Waited};
use crate::error::Error;

impl MemoryMachine for Idempotency {
    fn of(state: &mut State) -> Option<&mut Waited<Self>> {
        match state {
            State::Record(waited) => Some(waited),
            _ => None,
        }
    }

    fn into_state(waited: Waited<Self>) -> State {
        State::Record(waited)
    }

    fn granted(run: Run) -> Answer {
        Answer::Begun(run.into())
    }

    fn refused(settled: Settled) -> Answer {
        Answer::Begun(settled.into())
    }
}

fn wrong_phase(has: &str, wants: &str) -> Error {
    Error::InvalidArgument(format!("PHASE the key belongs to {has}; {wants} needs a key of its own"))
}

fn answer(begun: Asked<Idempotency>) -> Result<Answer, Error> {
    match begun {
        Decision::Granted(run) => Ok(Answer::Begun(run.into())),
        Decision::Refused(settled) => Ok(Answer::Begun(settled.into())),
        Decision::Conflict => Err(wrong_phase("ONCE", "BEGIN")),
        Decision::Queued => Err(Error::Internal("a call that waits has no answer yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_run(&self, call: &BeginCall<'_>) -> Result<Answer, Error> {
        if let Some(settled) = self.store.replayed(call, When::Now)? {
            return Ok(settled);
        }
        let ask = |waiting| self.store.ask_to_run(call, Some(waiting), When::Now);
        self.wait_in_queue::<Idempotency>((call.key, call.wait, WAITERS_CEILING), ask, answer).await
    }
}

impl Store {
    /// A duplicate of what is done changes nothing.
    fn replayed(&self, call: &BeginCall<'_>, when: When) -> Result<Option<Answer>, Error> {
        self.on(call.key, when, |waited: &mut Waited<Idempotency>, now| {
            let settled = replay(waited.state(), call.fingerprint, now);
            Ok((settled.map(|settled| Answer::Begun(settled.into())), Touch::Unchanged))
        })
    }

    fn ask_to_run(
        &self,
        call: &BeginCall<'_>,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Told<Asked<Idempotency>>, Error> {
        let BeginCall { token, lease, fingerprint, keep, on_lapse, .. } = *call;
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let request = RunRequest { fingerprint: fingerprint.into(), lease, keep, on_lapse, bind_to: None };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |key, setting| begin(key, token, request, waiting, setting))
    }

    pub fn try_to_run(&self, call: &BeginCall<'_>, when: When) -> Result<Answer, Error> {
        match self.replayed(call, when)? {
            Some(settled) => Ok(settled),
            None => answer(self.ask_to_run(call, None, when)?.verdict),
        }
    }

    pub fn commit(&self, call: &CommitCall<'_>, when: When) -> Result<Answer, Error> {
        // That the work is done is always recorded; the result only if it is not too large.
        let kept: Option<Arc<[u8]>> = (call.result.len() <= RESULT_DEFAULT_MAX).then(|| call.result.into());
        let committed = self.step::<Idempotency, _>(call.key, when, |key, setting| {
            commit(key, call.token, call.ttl, (kept, call.failed), setting)
        })?;
        Ok(Answer::Committed(committed.into()))
    }

    pub fn abort(&self, call: &TokenCall<'_>, when: When) -> Result<Answer, Error> {
        let lost = self.step(call.key, when, |key, setting| abort(key, call.token, setting))?;
        Ok(Answer::Aborted(lost))
    }

    pub fn renew_run(&self, call: &RenewCall<'_>, when: When) -> Result<Answer, Error> {
        let renewed = self.step(call.key, when, |key, setting| renew(key, call.token, call.lease, setting))?;
        Ok(Answer::Renewed(renewed.into()))
    }

    pub fn once(&self, call: &OnceCall<'_>, when: When) -> Result<Answer, Error> {
        let seen = self.on(call.key, when, |waited: &mut Waited<Idempotency>, now| {
            Ok((seen_before(waited.state(), call.token, now), Touch::Unchanged))
        })?;
        let first = match seen {
            // A duplicate changes nothing.
            Some(first) => first,
            None => self
                .step(call.key, when, |key, setting| once(key, call.token, call.ttl, setting))?
                .map_err(|()| wrong_phase("BEGIN", "ONCE"))?,
        };
        Ok(Answer::Number(i64::from(first)))
    }

    pub fn look_at_run(&self, call: &GetCall<'_>, when: When) -> Result<Answer, Error> {
        self.on(call.key, when, |waited: &mut Waited<Idempotency>, now| {
            let settled = look(waited.state(), call.fingerprint, None, now);
            Ok((Answer::Begun(settled.into()), Touch::Unchanged))
        })
    }

    pub fn show_record(&self, key: &[u8], when: When) -> Result<Answer, Error> {
        self.on(key, when, |waited: &mut Waited<Idempotency>, now| {
            let waiters = waited.len();
            let map = Value::written(|sink| write_info(waited.state(), waiters, None, now, sink));
            Ok((Answer::Map(map), Touch::Unchanged))
        })
    }
}
