//! Single flights.

use resil_core::limits::WAITERS_CEILING;
use resil_core::single_flight::{
    Flights, Lead, LeadRequest, Publication, Seen, abandon, hit, invalidate, join, look, publish, renew,
};
use resil_core::waited::{Asked, Decision, Waiting};
use resil_wire::command::Reply;
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Value;
use resil_wire::single_flight::{AbandonCall, Brought, InvalidateCall, JoinCall, PublishCall, write_info};

use super::Memory;
use super::store::{Store, Touch, When};
use super::waited::{MemoryMachine, Told, Waited};
use crate::error::Error;

impl MemoryMachine for Flights {
    fn granted(lead: Lead) -> Reply {
        Reply::Joined(lead.into())
    }

    fn refused(seen: Seen) -> Reply {
        Reply::Joined(seen.into())
    }
}

fn answer(joined: Asked<Flights>) -> Result<Reply, Error> {
    match joined {
        Decision::Granted(lead) => Ok(Reply::Joined(lead.into())),
        Decision::Refused(seen) => Ok(Reply::Joined(seen.into())),
        Decision::Queued | Decision::Conflict => Err(Error::Internal("a call that waits has no answer yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_value(&self, call: &JoinCall<'_>) -> Result<Reply, Error> {
        if let Some(seen) = self.store.hit(call.key, When::Now)? {
            return Ok(seen);
        }
        let ask = |waiting| self.store.ask_to_lead(call, Some(waiting), When::Now);
        self.wait_in_queue::<Flights>((call.key, call.wait.length, WAITERS_CEILING), ask, answer).await
    }
}

impl Store {
    /// Nearly every call is a hit, and a hit changes nothing.
    fn hit(&self, key: &[u8], when: When) -> Result<Option<Reply>, Error> {
        self.on(key, when, |waited: &mut Waited<Flights>, now| {
            let seen = hit(waited.state(), now);
            Ok((seen.map(|seen| Reply::Joined(seen.into())), Touch::Unchanged))
        })
    }

    fn ask_to_lead(
        &self,
        call: &JoinCall<'_>,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Told<Asked<Flights>>, Error> {
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let request = LeadRequest { lease: call.lease, bind_to: None };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |key, setting| join(key, call.token, request, waiting, setting))
    }

    pub fn try_to_lead(&self, call: &JoinCall<'_>, when: When) -> Result<Reply, Error> {
        match self.hit(call.key, when)? {
            Some(seen) => Ok(seen),
            None => answer(self.ask_to_lead(call, None, when)?.verdict),
        }
    }

    pub fn look_at_value(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        self.on(key, when, |waited: &mut Waited<Flights>, now| {
            let seen = look(waited.state(), now);
            Ok((Reply::Joined(seen.into()), Touch::Unchanged))
        })
    }

    pub fn publish(&self, call: &PublishCall<'_>, when: When) -> Result<Reply, Error> {
        let publication = match call.brought {
            Brought::Value { bytes, stale } => Publication::Value { bytes: bytes.into(), stale },
            Brought::Empty => Publication::Empty,
            Brought::Error { text } => Publication::Error { text: text.into() },
        };
        let published =
            self.step(call.key, when, |key, setting| publish(key, call.token, call.ttl, publication, setting))?;
        Ok(Reply::Published(published.into()))
    }

    pub fn abandon(&self, call: &AbandonCall<'_>, when: When) -> Result<Reply, Error> {
        let abandoned = self.step(call.key, when, |key, setting| abandon(key, call.token, call.retry, setting))?;
        Ok(abandoned.into())
    }

    pub fn renew_lead(&self, call: &TokenRenewCall<'_>, when: When) -> Result<Reply, Error> {
        let renewed = self.step(call.key, when, |key, setting| renew(key, call.token, call.lease, setting))?;
        Ok(Reply::Renewed(renewed.into()))
    }

    pub fn invalidate(&self, call: &InvalidateCall<'_>, when: When) -> Result<Reply, Error> {
        let anything = self.step(call.key, when, |key, setting| invalidate(key, call.soft, setting))?;
        Ok(Reply::Number(i64::from(anything)))
    }

    pub fn show_flight(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        self.on(key, when, |waited: &mut Waited<Flights>, now| {
            let followers = waited.len();
            let map = Value::written(|sink| write_info(waited.state(), followers, None, now, sink));
            Ok((Reply::Map(map), Touch::Unchanged))
        })
    }
}
