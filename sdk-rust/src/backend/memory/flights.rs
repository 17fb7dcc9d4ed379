//! Single flights.

use resil_core::Span;
use resil_core::generations::Leaves;
use resil_core::limits::{MGET_BYTES_MAX, WAITERS_CEILING};
use resil_core::single_flight::{
    Flights, Lead, LeadRequest, Publication, Seen, UnderName, abandon, hit, invalidate, join, look, publish, renew, set,
};
use resil_core::waited::{Asked, Decision, Waiting};
use resil_wire::command::Reply;
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Value;
use resil_wire::single_flight::{
    AbandonCall, Brought, ClearCall, FlightGetCall, FlightMgetCall, InvalidateCall, JoinCall, Joined, PublishCall,
    SeenMany, SetCall, write_info,
};

use super::Memory;
use super::store::{Store, Touch, When};
use super::waited::{MemoryMachine, Replied, Waited};
use crate::cache::Invalidated;
use crate::error::Error;

impl MemoryMachine for Flights {
    fn granted(lead: Lead) -> Reply {
        Reply::Joined(lead.into())
    }

    fn refused(seen: Seen) -> Reply {
        Reply::Joined(seen.into())
    }
}

/// What is brought, and how long it lives.
fn publication(ttl: Span, brought: Brought<'_>) -> (Publication, Span) {
    match brought {
        Brought::Value { bytes, stale } => {
            let lives = Span::from_us(ttl.as_us().saturating_add(stale.as_us()));
            (Publication::Value { bytes: bytes.into(), stale }, lives)
        }
        Brought::Empty => (Publication::Empty, ttl),
        Brought::Error { text } => (Publication::Error { text: text.into() }, ttl),
    }
}

fn reply(joined: Asked<Flights>) -> Result<Reply, Error> {
    match joined {
        Decision::Granted(lead) => Ok(Reply::Joined(lead.into())),
        Decision::Refused(seen) => Ok(Reply::Joined(seen.into())),
        Decision::Queued | Decision::Conflict => Err(Error::Internal("a call that waits has no reply yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_value(&self, call: &JoinCall<'_>) -> Result<Reply, Error> {
        if let Some(seen) = self.store.hit(call, When::Now)? {
            return Ok(seen);
        }
        let ask = |waiting| self.store.ask_to_lead(call, Some(waiting), When::Now);
        self.wait_in_queue::<Flights>((call.key, call.wait.length, WAITERS_CEILING), ask, reply).await
    }
}

impl Store {
    /// Nearly every call is a hit, and a hit changes nothing.
    fn hit(&self, call: &JoinCall<'_>, when: When) -> Result<Option<Reply>, Error> {
        self.on(call.key, when, |waited: &mut Waited<Flights>, now| {
            let seen = self.names.look(call.under, |known| hit(waited.state(), call.early, known, now));
            Ok((seen.map(|seen| Reply::Joined(seen.into())), Touch::Unchanged))
        })
    }

    fn ask_to_lead(
        &self,
        call: &JoinCall<'_>,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Replied<Asked<Flights>>, Error> {
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let generation = call.under.map_or(0, |name| self.names.begin(name, &self.fences, self.now(when)));
        let request = LeadRequest { lease: call.lease, bind_to: None, generation, early: call.early };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |key, setting| {
            self.names.look(call.under, |known| join(key, call.token, request, waiting, known, setting))
        })
    }

    pub fn try_to_lead(&self, call: &JoinCall<'_>, when: When) -> Result<Reply, Error> {
        match self.hit(call, when)? {
            Some(seen) => Ok(seen),
            None => reply(self.ask_to_lead(call, None, when)?.verdict),
        }
    }

    pub fn look_at_value(&self, call: &FlightGetCall<'_>, when: When) -> Result<Reply, Error> {
        self.on(call.key, when, |waited: &mut Waited<Flights>, now| {
            let seen = self.names.look(call.under, |known| look(waited.state(), known, now));
            Ok((Reply::Joined(seen.into()), Touch::Unchanged))
        })
    }

    pub fn look_at_values(&self, call: &FlightMgetCall<'_>, when: When) -> Result<Reply, Error> {
        let (mut seen, mut bytes) = (Vec::with_capacity(call.keys.len()), 0);
        for key in &call.keys {
            if bytes > MGET_BYTES_MAX {
                seen.push(None);
                continue;
            }
            let Reply::Joined(found) = self.look_at_value(&FlightGetCall { key, under: Some(call.name) }, when)? else {
                continue;
            };
            if let Joined::Value { bytes: value, .. } | Joined::Stale { bytes: value, .. } = &found {
                bytes += value.len();
            }
            seen.push(Some(found));
        }
        Ok(Reply::SeenMany(SeenMany(seen)))
    }

    pub fn publish(&self, call: &PublishCall<'_>, when: When) -> Result<Reply, Error> {
        let (publication, lives) = publication(call.ttl, call.brought);
        let published = self.step(call.key, when, |key, setting| {
            self.names.look(call.under, |known| {
                let under = known.map(|known| UnderName { known, tags: &call.tags });
                publish(key, call.token, call.ttl, publication, under, setting)
            })
        })?;
        if let Some(name) = call.under {
            let now = self.now(when);
            self.names.extend(name, now.plus(lives), now);
        }
        Ok(Reply::Published(published.into()))
    }

    pub fn set_value(&self, call: &SetCall<'_>, when: When) -> Result<Reply, Error> {
        let (publication, lives) = publication(call.ttl, call.brought);
        let now = self.now(when);
        if let Some(name) = call.under {
            self.names.begin(name, &self.fences, now);
        }
        let followers = self.step(call.key, when, |key, setting| {
            self.names.look(call.under, |known| {
                let under = known.map(|known| UnderName { known, tags: &call.tags });
                set(key, call.ttl, publication, under, setting)
            })
        })?;
        if let Some(name) = call.under {
            self.names.extend(name, now.plus(lives), now);
            self.names.invalidations.publish(name, &Invalidated::Key(call.key.to_vec()));
        }
        Ok(Reply::Number(followers as i64))
    }

    pub fn clear_name(&self, call: &ClearCall<'_>, when: When) -> Result<Reply, Error> {
        let leaves = if call.soft { Leaves::Stale } else { Leaves::Nothing };
        let generation = self.names.clear(call.name, &call.tags, leaves, &self.fences, self.now(when));
        match &*call.tags {
            [] => self.names.invalidations.publish(call.name, &Invalidated::All),
            tags => {
                let tell = |tag: &&[u8]| self.names.invalidations.publish(call.name, &Invalidated::Tag(tag.to_vec()));
                tags.iter().for_each(tell);
            }
        }
        Ok(Reply::Number(generation.cast_signed()))
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
        if let Some(name) = call.under {
            self.names.invalidations.publish(name, &Invalidated::Key(call.key.to_vec()));
        }
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
