//! Idempotency keys.

use std::sync::Arc;

use resil_core::Instant;
use resil_core::idempotency::{
    self, Answer as Told, Ask, Became, Begun, Committed, Record, abort, begin, commit, look, once, renew, replay,
    seen_before,
};
use resil_core::limits::{RESULT_DEFAULT_MAX, WAITERS_CEILING};
use resil_core::lock::{Reason, Setting};
use resil_core::queue::{WaiterId, Waiting};
use resil_wire::command::Reply;
use resil_wire::idempotency::{
    BeginCall, CommitCall, GetCall, OnceCall, TokenCall, TokenRenewCall, write_info, wrong_phase,
};
use resil_wire::reply::Value;

use super::room::{Asked, Delivery, Machine, Room, Stepped, Verdict, Waited};
use super::store::{State, Store, Touch, When};
use super::{Memory, refused};
use crate::error::Error;

pub(super) struct Idempotency;

/// The room as core knows it.
fn room(room: Room<'_, Idempotency>) -> idempotency::Room<'_> {
    idempotency::Room { record: room.state, queue: room.queue }
}

impl Machine for Idempotency {
    type State = Record;
    type Ask = Ask;
    type Edit = Became;
    type Answer = Told;

    fn of(state: &mut State) -> Option<&mut Waited<Self>> {
        match state {
            State::Record(waited) => Some(waited),
            _ => None,
        }
    }

    fn into_state(waited: Waited<Self>) -> State {
        State::Record(waited)
    }

    fn due(state: &Record, salt: u64) -> Option<Instant> {
        state.gc_at(salt)
    }

    fn is_nothing(state: &Record) -> bool {
        matches!(state, Record::Nothing)
    }

    fn tick(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        idempotency::tick(&mut room(at), setting)
    }

    fn leave(at: Room<'_, Self>, id: WaiterId, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        idempotency::leave(&mut room(at), id, setting)
    }

    fn take_back(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        idempotency::take_back(&mut room(at), fence, setting)
    }

    fn deliver(answer: Told) -> Delivery {
        match answer {
            Told::Run { id, run, .. } => Delivery { id, answer: Ok(Reply::Begun(run.into())), fence: Some(run.fence) },
            Told::Settled { id, settled } => Delivery { id, answer: Ok(Reply::Begun(settled.into())), fence: None },
            Told::Superseded { id } => Delivery::superseded(id),
        }
    }
}

impl Verdict for Begun {
    fn is_queued(&self) -> bool {
        matches!(self, Self::Queued)
    }

    fn told(&self) -> Option<u64> {
        match self {
            Self::Run(run) => Some(run.fence),
            _ => None,
        }
    }
}

impl Verdict for Committed {}
impl Verdict for Option<Reason> {}
impl Verdict for Result<bool, ()> {}

fn answer(begun: Begun) -> Result<Reply, Error> {
    match begun {
        Begun::Run(run) => Ok(Reply::Begun(run.into())),
        Begun::Settled(settled) => Ok(Reply::Begun(settled.into())),
        Begun::WrongPhase => Err(refused(wrong_phase("ONCE", "BEGIN"))),
        Begun::Queued => Err(Error::Internal("a call that waits has no answer yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_run(&self, call: &BeginCall<'_>) -> Result<Reply, Error> {
        if let Some(settled) = self.store.replayed(call, When::Now)? {
            return Ok(settled);
        }
        let ask = |waiting| self.store.ask_to_run(call, Some(waiting), When::Now);
        self.stand_in_line::<Idempotency, _>((call.key, call.wait, WAITERS_CEILING), ask, answer).await
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

    fn ask_to_run(&self, call: &BeginCall<'_>, waiting: Option<Waiting>, when: When) -> Result<Asked<Begun>, Error> {
        let BeginCall { token, lease, fingerprint, keep, on_lapse, .. } = *call;
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let ask = Ask { fingerprint: fingerprint.into(), lease, keep, on_lapse, bind_to: None };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |at, setting| begin(&mut room(at), token, ask, waiting, setting))
    }

    pub fn try_to_run(&self, call: &BeginCall<'_>, when: When) -> Result<Reply, Error> {
        match self.replayed(call, when)? {
            Some(settled) => Ok(settled),
            None => answer(self.ask_to_run(call, None, when)?.verdict),
        }
    }

    pub fn commit(&self, call: &CommitCall<'_>, when: When) -> Result<Reply, Error> {
        // That the work is done is always recorded; the result only if it is not too large.
        let kept: Option<Arc<[u8]>> = (call.result.len() <= RESULT_DEFAULT_MAX).then(|| call.result.into());
        let committed = self.step::<Idempotency, _>(call.key, when, |at, setting| {
            commit(&mut room(at), call.token, call.ttl, (kept, call.failed), setting)
        })?;
        Ok(Reply::Committed(committed.into()))
    }

    pub fn abort(&self, call: &TokenCall<'_>, when: When) -> Result<Reply, Error> {
        let lost = self.step(call.key, when, |at, setting| abort(&mut room(at), call.token, setting))?;
        Ok(Reply::Aborted(lost))
    }

    pub fn renew_run(&self, call: &TokenRenewCall<'_>, when: When) -> Result<Reply, Error> {
        let renewed = self.step(call.key, when, |at, setting| renew(&mut room(at), call.token, call.lease, setting))?;
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
                .step(call.key, when, |at, setting| once(&mut room(at), call.token, call.ttl, setting))?
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
            let waiters = waited.waiters();
            let map = Value::written(|sink| write_info(waited.state(), waiters, None, now, sink));
            Ok((Reply::Map(map), Touch::Unchanged))
        })
    }
}
