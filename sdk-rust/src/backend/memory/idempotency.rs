//! Idempotency keys.

use std::sync::Arc;

use resil_core::idempotency::{
    Idempotency, Run, RunRequest, Settled, abort, begin, commit, look, once, renew, replay, seen_before,
};
use resil_core::limits::{RESULT_DEFAULT_MAX, WAITERS_CEILING};
use resil_core::waited::{Asked, Decision, Waiting};
use resil_wire::command::Reply;
use resil_wire::idempotency::{
    BeginCall, CommitCall, GetCall, OnceCall, TokenCall, TokenRenewCall, write_info, wrong_phase,
};
use resil_wire::reply::Value;

use super::store::{Store, Touch, When};
use super::waited::{MemoryMachine, Replied, Waited};
use super::{Memory, refused};
use crate::error::Error;

impl MemoryMachine for Idempotency {
    fn granted(run: Run) -> Reply {
        Reply::Begun(run.into())
    }

    fn refused(settled: Settled) -> Reply {
        Reply::Begun(settled.into())
    }
}

fn reply(begun: Asked<Idempotency>) -> Result<Reply, Error> {
    match begun {
        Decision::Granted(run) => Ok(Reply::Begun(run.into())),
        Decision::Refused(settled) => Ok(Reply::Begun(settled.into())),
        Decision::Conflict => Err(refused(wrong_phase("ONCE", "BEGIN"))),
        Decision::Queued => Err(Error::Internal("a call that waits has no reply yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_run(&self, call: &BeginCall<'_>) -> Result<Reply, Error> {
        if let Some(settled) = self.store.replayed(call, When::Now)? {
            return Ok(settled);
        }
        let ask = |waiting| self.store.ask_to_run(call, Some(waiting), When::Now);
        self.wait_in_queue::<Idempotency>((call.key, call.wait.length, WAITERS_CEILING), ask, reply).await
    }
}

impl Store {
    /// A duplicate of what is done changes nothing.
    fn replayed(&self, call: &BeginCall<'_>, when: When) -> Result<Option<Reply>, Error> {
        self.on(call.key, when, |waited: &mut Waited<Idempotency>, now| {
            let settled = replay(waited.state(), call.fingerprint, now);
            Ok((settled.map(|settled| Reply::Begun(settled.into())), Touch::Unchanged))
        })
    }

    fn ask_to_run(
        &self,
        call: &BeginCall<'_>,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Replied<Asked<Idempotency>>, Error> {
        let BeginCall { token, lease, fingerprint, keep, on_lapse, .. } = *call;
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let request = RunRequest { fingerprint: fingerprint.into(), lease, keep, on_lapse, bind_to: None };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |key, setting| begin(key, token, request, waiting, setting))
    }

    pub fn try_to_run(&self, call: &BeginCall<'_>, when: When) -> Result<Reply, Error> {
        match self.replayed(call, when)? {
            Some(settled) => Ok(settled),
            None => reply(self.ask_to_run(call, None, when)?.verdict),
        }
    }

    pub fn commit(&self, call: &CommitCall<'_>, when: When) -> Result<Reply, Error> {
        // That the work is done is always recorded; the result only if it is not too large.
        let kept: Option<Arc<[u8]>> = (call.result.len() <= RESULT_DEFAULT_MAX).then(|| call.result.into());
        let committed = self.step::<Idempotency, _>(call.key, when, |key, setting| {
            commit(key, call.token, call.ttl, (kept, call.failed), setting)
        })?;
        Ok(Reply::Committed(committed.into()))
    }

    pub fn abort(&self, call: &TokenCall<'_>, when: When) -> Result<Reply, Error> {
        let lost = self.step(call.key, when, |key, setting| abort(key, call.token, setting))?;
        Ok(Reply::Aborted(lost))
    }

    pub fn renew_run(&self, call: &TokenRenewCall<'_>, when: When) -> Result<Reply, Error> {
        let renewed = self.step(call.key, when, |key, setting| renew(key, call.token, call.lease, setting))?;
        Ok(Reply::Renewed(renewed.into()))
    }

    pub fn once(&self, call: &OnceCall<'_>, when: When) -> Result<Reply, Error> {
        let seen = self.on(call.key, when, |waited: &mut Waited<Idempotency>, now| {
            Ok((seen_before(waited.state(), call.token, now), Touch::Unchanged))
        })?;
        let first = match seen {
            // A duplicate changes nothing.
            Some(first) => first,
            None => self
                .step(call.key, when, |key, setting| once(key, call.token, call.ttl, setting))?
                .map_err(|()| refused(wrong_phase("BEGIN", "ONCE")))?,
        };
        Ok(Reply::Number(i64::from(first)))
    }

    pub fn look_at_run(&self, call: &GetCall<'_>, when: When) -> Result<Reply, Error> {
        self.on(call.key, when, |waited: &mut Waited<Idempotency>, now| {
            let settled = look(waited.state(), call.fingerprint, None, now);
            Ok((Reply::Begun(settled.into()), Touch::Unchanged))
        })
    }

    pub fn show_record(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        self.on(key, when, |waited: &mut Waited<Idempotency>, now| {
            let waiters = waited.len();
            let map = Value::written(|sink| write_info(waited.state(), waiters, None, now, sink));
            Ok((Reply::Map(map), Touch::Unchanged))
        })
    }
}
