//! Locks and bulkheads.

use std::marker::PhantomData;

use resil_core::Instant;
use resil_core::limits::WAITERS_CEILING;
use resil_core::lock::{
    self, Acquired, Answer as Told, Ask, Busy, Claim, Edit, Grant, Holders, Kind, Released, Renewed, Setting, acquire,
    break_all, check, lives, release, renew,
};
use resil_core::queue::{WaiterId, Waiting};
use resil_wire::bulkhead::{EnterCall, Entered};
use resil_wire::command::Reply;
use resil_wire::holding::{HolderRow, InfoCall, InfoView, OwnedCall, RenewCall, Standing, WaiterRow, write_info};
use resil_wire::lock::{self as wire_lock, AcquireCall, BreakCall};
use resil_wire::reply::Value;

use super::Memory;
use super::room::{Asked, Delivery, Machine, Room, Stepped, Verdict, Waited};
use super::store::{State, Store, Touch, When};
use crate::error::Error;

/// What the two do differently.
pub(super) trait Flavour: Sized + 'static {
    const KIND: Kind;
    fn of(state: &mut State) -> Option<&mut Waited<Holding<Self>>>;
    fn into_state(waited: Waited<Holding<Self>>) -> State;
    fn granted(grant: Grant) -> Reply;
    fn refused(busy: Busy) -> Reply;
    fn timed_out(busy: Busy) -> Reply;
}

pub(super) struct OfLocks;
pub(super) struct OfBulkheads;
pub(super) struct Holding<F>(PhantomData<F>);
pub(super) type Locks = Holding<OfLocks>;
pub(super) type Bulkheads = Holding<OfBulkheads>;

impl Flavour for OfLocks {
    const KIND: Kind = Kind::Lock;

    fn of(state: &mut State) -> Option<&mut Waited<Locks>> {
        match state {
            State::Lock(waited) => Some(waited),
            _ => None,
        }
    }

    fn into_state(waited: Waited<Locks>) -> State {
        State::Lock(waited)
    }

    fn granted(grant: Grant) -> Reply {
        Reply::Acquired(grant.into())
    }

    fn refused(busy: Busy) -> Reply {
        Reply::Acquired(wire_lock::Acquired::Taken(busy.into()))
    }

    fn timed_out(busy: Busy) -> Reply {
        Reply::Acquired(wire_lock::Acquired::Timeout(busy.into()))
    }
}

impl Flavour for OfBulkheads {
    const KIND: Kind = Kind::Bulkhead;

    fn of(state: &mut State) -> Option<&mut Waited<Bulkheads>> {
        match state {
            State::Bulkhead(waited) => Some(waited),
            _ => None,
        }
    }

    fn into_state(waited: Waited<Bulkheads>) -> State {
        State::Bulkhead(waited)
    }

    fn granted(grant: Grant) -> Reply {
        Reply::Entered(grant.into())
    }

    fn refused(busy: Busy) -> Reply {
        Reply::Entered(Entered::full(&busy))
    }

    fn timed_out(busy: Busy) -> Reply {
        Reply::Entered(Entered::timeout(&busy))
    }
}

/// The room as core knows it.
fn room<'a, F: Flavour>(room: Room<'a, Holding<F>>) -> lock::Room<'a> {
    lock::Room { kind: F::KIND, holders: room.state, queue: room.queue }
}

impl<F: Flavour> Machine for Holding<F> {
    type State = Holders;
    type Ask = Ask;
    type Edit = Edit;
    type Answer = Told;

    fn of(state: &mut State) -> Option<&mut Waited<Self>> {
        F::of(state)
    }

    fn into_state(waited: Waited<Self>) -> State {
        F::into_state(waited)
    }

    fn due(state: &Holders, salt: u64) -> Option<Instant> {
        Some(state.gc_at(salt))
    }

    fn is_nothing(_state: &Holders) -> bool {
        false
    }

    fn tick(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        lock::tick(&mut room(at), setting)
    }

    fn leave(at: Room<'_, Self>, id: WaiterId, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        lock::leave(&mut room(at), id, setting)
    }

    fn take_back(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        lock::take_back(&mut room(at), fence, setting)
    }

    fn deliver(answer: Told) -> Delivery {
        match answer {
            Told::Granted { id, grant, .. } => Delivery { id, answer: Ok(F::granted(grant)), fence: Some(grant.fence) },
            Told::TimedOut { id, busy } => Delivery { id, answer: Ok(F::timed_out(busy)), fence: None },
            Told::Superseded { id } => Delivery::superseded(id),
        }
    }
}

impl Verdict for Acquired {
    fn is_queued(&self) -> bool {
        matches!(self, Self::Queued)
    }

    fn told(&self) -> Option<u64> {
        match self {
            Self::Granted(grant) => Some(grant.fence),
            _ => None,
        }
    }
}

impl Verdict for Renewed {
    fn told(&self) -> Option<u64> {
        match self {
            Self::Granted(grant) => Some(grant.fence),
            Self::Lost(_) => None,
        }
    }
}

impl Verdict for Released {}

/// Nothing disconnects in here, so what is to be bound to a connection is only leased.
fn lock_ask(call: &AcquireCall<'_>) -> Ask {
    let claim = if call.shared { Claim::Shared } else { Claim::Exclusive };
    Ask { claim, lease: call.lease, meta: call.meta.into(), bind_to: None }
}

fn bulkhead_ask(call: &EnterCall<'_>) -> Ask {
    let claim = Claim::Permit { max: call.max, priority: call.priority };
    Ask { claim, lease: call.lease, meta: Box::default(), bind_to: None }
}

fn answer<F: Flavour>(acquired: Acquired, key: &[u8]) -> Result<Reply, Error> {
    match acquired {
        Acquired::Granted(grant) => Ok(F::granted(grant)),
        Acquired::Refused(busy) => Ok(F::refused(busy)),
        Acquired::Deadlock => Err(Error::Deadlock { name: String::from_utf8_lossy(key).into() }),
        Acquired::Queued => Err(Error::Internal("a call that waits has no answer yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_lock(&self, call: &AcquireCall<'_>) -> Result<Reply, Error> {
        let (key, owner) = (call.key, call.owner);
        let ask = |waiting| self.store.acquire::<OfLocks>(key, owner, lock_ask(call), Some(waiting), When::Now);
        let answer = |acquired: Acquired| answer::<OfLocks>(acquired, key);
        self.stand_in_line::<Locks, _>((key, call.wait, WAITERS_CEILING), ask, answer).await
    }

    pub async fn wait_for_permit(&self, call: &EnterCall<'_>) -> Result<Reply, Error> {
        let (key, owner) = (call.key, call.owner);
        let ask = |waiting| self.store.acquire::<OfBulkheads>(key, owner, bulkhead_ask(call), Some(waiting), When::Now);
        let answer = |acquired: Acquired| answer::<OfBulkheads>(acquired, key);
        self.stand_in_line::<Bulkheads, _>((key, call.wait, call.queue), ask, answer).await
    }
}

impl Store {
    fn acquire<F: Flavour>(
        &self,
        key: &[u8],
        owner: &[u8],
        ask: Ask,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Asked<Acquired>, Error> {
        let id = waiting.map(|waiting| waiting.id);
        self.ask::<Holding<F>, _>(key, when, id, |at, setting| acquire(&mut room(at), owner, ask, waiting, setting))
    }

    pub fn try_lock(&self, call: &AcquireCall<'_>, when: When) -> Result<Reply, Error> {
        let asked = self.acquire::<OfLocks>(call.key, call.owner, lock_ask(call), None, when)?;
        answer::<OfLocks>(asked.verdict, call.key)
    }

    pub fn try_enter(&self, call: &EnterCall<'_>, when: When) -> Result<Reply, Error> {
        let asked = self.acquire::<OfBulkheads>(call.key, call.owner, bulkhead_ask(call), None, when)?;
        answer::<OfBulkheads>(asked.verdict, call.key)
    }

    pub fn renew_holding<F: Flavour>(&self, call: &RenewCall<'_>, when: When) -> Result<Reply, Error> {
        let renewed = self.step::<Holding<F>, _>(call.key, when, |at, setting| {
            renew(&mut room(at), call.owner, call.fence, call.lease, setting)
        })?;
        Ok(Reply::Renewed(renewed.into()))
    }

    pub fn release_holding<F: Flavour>(&self, call: &OwnedCall<'_>, when: When) -> Result<Reply, Error> {
        let released = self.step::<Holding<F>, _>(call.key, when, |at, setting| {
            release(&mut room(at), call.owner, call.fence, setting)
        })?;
        Ok(Reply::Released(released.into()))
    }

    pub fn check_lock(&self, call: &OwnedCall<'_>, when: When) -> Result<Reply, Error> {
        self.on(call.key, when, |waited: &mut Waited<Locks>, now| {
            let holds = check(waited.state(), call.owner, call.fence, None, now);
            Ok((Reply::Number(i64::from(holds)), Touch::Unchanged))
        })
    }

    pub fn break_lock(&self, call: &BreakCall<'_>, when: When) -> Result<Reply, Error> {
        let broken = self.step::<Locks, _>(call.key, when, |at, setting| break_all(&mut room(at), setting))?;
        Ok(Reply::Number(i64::try_from(broken).unwrap_or(i64::MAX)))
    }

    pub fn show_holding<F: Flavour>(&self, call: &InfoCall<'_>, when: When) -> Result<Reply, Error> {
        self.on(call.key, when, |waited: &mut Waited<Holding<F>>, now| {
            let held = waited.state();
            let alive = || held.iter().filter(|holder| lives(holder, None, now));
            let holders = alive().take(call.limit).map(|holder| HolderRow {
                holder,
                remaining: now.until(holder.ends_for(None, now)),
                bound: None,
            });
            let line = waited.queue().into_iter().flat_map(|queue| queue.waiters());
            let waiters = line.take(call.limit).map(|waiter| WaiterRow {
                owner: &waiter.owner,
                standing: match waiter.ask.claim {
                    Claim::Permit { priority, .. } => Standing::Priority(priority),
                    Claim::Exclusive | Claim::Shared => Standing::Mode(waiter.ask.claim.mode().text()),
                },
                waited: waiter.waited(now),
            });
            let view = InfoView {
                holders: holders.collect(),
                holders_total: alive().count(),
                waiters: waiters.collect(),
                waiters_total: waited.waiters(),
                last_fence: held.last_fence(),
            };
            Ok((Reply::Map(Value::written(|sink| write_info(&view, now, sink))), Touch::Unchanged))
        })
    }
}
