//! Single flights.

use resil_core::Instant;
use resil_core::limits::WAITERS_CEILING;
use resil_core::lock::Setting;
use resil_core::queue::{WaiterId, Waiting};
use resil_core::single_flight::{
    self, Abandoned, Answer as Told, Ask, Edit, Flight, Joined, Publication, Published, abandon, hit, invalidate, join,
    look, publish, renew,
};
use resil_wire::command::Reply;
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Value;
use resil_wire::single_flight::{AbandonCall, Brought, InvalidateCall, JoinCall, PublishCall, write_info};

use super::Memory;
use super::room::{Asked, Delivery, Machine, Room, Stepped, Verdict, Waited};
use super::store::{State, Store, Touch, When};
use crate::error::Error;

pub(super) struct Flights;

/// The room as core knows it.
fn room(room: Room<'_, Flights>) -> single_flight::Room<'_> {
    single_flight::Room { flight: room.state, queue: room.queue }
}

impl Machine for Flights {
    type State = Box<Flight>;
    type Ask = Ask;
    type Edit = Edit;
    type Answer = Told;

    fn of(state: &mut State) -> Option<&mut Waited<Self>> {
        match state {
            State::Flight(waited) => Some(waited),
            _ => None,
        }
    }

    fn into_state(waited: Waited<Self>) -> State {
        State::Flight(waited)
    }

    fn due(state: &Box<Flight>, salt: u64) -> Option<Instant> {
        Some(state.gc_at(salt))
    }

    fn is_nothing(state: &Box<Flight>) -> bool {
        state.is_nothing()
    }

    fn tick(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        single_flight::tick(&mut room(at), setting)
    }

    fn leave(at: Room<'_, Self>, id: WaiterId, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        single_flight::leave(&mut room(at), id, setting)
    }

    fn take_back(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        single_flight::take_back(&mut room(at), fence, setting)
    }

    fn deliver(answer: Told) -> Delivery {
        match answer {
            Told::Lead { id, lead, .. } => {
                let fence = Some(lead.fence);
                Delivery { id, answer: Ok(Reply::Joined(lead.into())), fence }
            }
            Told::Seen { id, seen } => Delivery { id, answer: Ok(Reply::Joined(seen.into())), fence: None },
            Told::Superseded { id } => Delivery::superseded(id),
        }
    }
}

impl Verdict for Joined {
    fn is_queued(&self) -> bool {
        matches!(self, Self::Queued)
    }

    fn told(&self) -> Option<u64> {
        match self {
            Self::Lead(lead) => Some(lead.fence),
            _ => None,
        }
    }
}

impl Verdict for Published {}
impl Verdict for Abandoned {}

fn answer(joined: Joined) -> Result<Reply, Error> {
    match joined {
        Joined::Lead(lead) => Ok(Reply::Joined(lead.into())),
        Joined::Seen(seen) => Ok(Reply::Joined(seen.into())),
        Joined::Queued => Err(Error::Internal("a call that waits has no answer yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_value(&self, call: &JoinCall<'_>) -> Result<Reply, Error> {
        if let Some(seen) = self.store.hit(call.key, When::Now)? {
            return Ok(seen);
        }
        let ask = |waiting| self.store.ask_to_lead(call, Some(waiting), When::Now);
        self.stand_in_line::<Flights, _>((call.key, call.wait, WAITERS_CEILING), ask, answer).await
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

    fn ask_to_lead(&self, call: &JoinCall<'_>, waiting: Option<Waiting>, when: When) -> Result<Asked<Joined>, Error> {
        // Nothing disconnects in here, so what is to be bound to a connection is only leased.
        let ask = Ask { lease: call.lease, bind_to: None };
        let id = waiting.map(|waiting| waiting.id);
        self.ask(call.key, when, id, |at, setting| join(&mut room(at), call.token, ask, waiting, setting))
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
        let published = self
            .step(call.key, when, |at, setting| publish(&mut room(at), call.token, call.ttl, publication, setting))?;
        Ok(Reply::Published(published.into()))
    }

    pub fn abandon(&self, call: &AbandonCall<'_>, when: When) -> Result<Reply, Error> {
        let abandoned =
            self.step(call.key, when, |at, setting| abandon(&mut room(at), call.token, call.retry, setting))?;
        Ok(abandoned.into())
    }

    pub fn renew_lead(&self, call: &TokenRenewCall<'_>, when: When) -> Result<Reply, Error> {
        let renewed = self.step(call.key, when, |at, setting| renew(&mut room(at), call.token, call.lease, setting))?;
        Ok(Reply::Renewed(renewed.into()))
    }

    pub fn invalidate(&self, call: &InvalidateCall<'_>, when: When) -> Result<Reply, Error> {
        let anything = self.step(call.key, when, |at, setting| invalidate(&mut room(at), call.soft, setting))?;
        Ok(Reply::Number(i64::from(anything)))
    }

    pub fn show_flight(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        self.on(key, when, |waited: &mut Waited<Flights>, now| {
            let followers = waited.waiters();
            let map = Value::written(|sink| write_info(waited.state(), followers, None, now, sink));
            Ok((Reply::Map(map), Touch::Unchanged))
        })
    }
}
