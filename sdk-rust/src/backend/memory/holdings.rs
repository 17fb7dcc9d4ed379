//! Locks and bulkheads.

use resil_core::limits::{FENCE_JUMP_DEFAULT, WAITERS_CEILING};
use resil_core::lock::{
    BULKHEAD, Bulkheads, Busy, Claim, HolderEdit, Holders, Holding, LOCK, LockRequest, Locks, Raise, Raised, acquire,
    break_all, check, lives, raise, release, renew,
};
use resil_core::waited::{Decision, Grant, Renewed, Waiting};
use resil_wire::bulkhead::{EnterCall, Entered};
use resil_wire::command::Reply;
use resil_wire::holding::{HolderRow, InfoCall, InfoView, OwnedCall, RenewCall, Standing, WaiterRow, write_info};
use resil_wire::lock::{AcquireCall, Acquired as AcquiredReply, BreakCall, LockRenewCall, refused_raise};
use resil_wire::reply::Value;

use super::Memory;
use super::store::{Store, Touch, When};
use super::waited::{MemoryMachine, Replied, Waited};
use crate::error::Error;

impl MemoryMachine for Locks {
    fn granted(grant: Grant) -> Reply {
        Reply::Acquired(grant.into())
    }

    fn refused(busy: Busy) -> Reply {
        Reply::Acquired(AcquiredReply::Taken(busy.into()))
    }

    fn timed_out(busy: Busy) -> Reply {
        Reply::Acquired(AcquiredReply::Timeout(busy.into()))
    }
}

impl MemoryMachine for Bulkheads {
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

type Acquired = Decision<Grant, Busy>;

/// Locks or bulkheads.
pub(super) trait HoldingMachine:
    MemoryMachine<
        State = Holders,
        Request = LockRequest,
        Edit = HolderEdit,
        Report = HolderEdit,
        Grant = Grant,
        Refusal = Busy,
    >
{
}

impl HoldingMachine for Locks {}
impl HoldingMachine for Bulkheads {}

/// Nothing disconnects in here, so what is to be bound to a connection is only leased.
fn lock_request(call: &AcquireCall<'_>) -> LockRequest {
    let claim = if call.shared { Claim::Shared } else { Claim::Exclusive };
    LockRequest { claim, lease: call.lease, meta: call.meta.into(), bind_to: None }
}

fn permit_request(call: &EnterCall<'_>) -> LockRequest {
    let claim = Claim::Permit { max: call.max, priority: call.priority };
    LockRequest { claim, lease: call.lease, meta: Box::default(), bind_to: None }
}

fn reply<M: HoldingMachine>(acquired: Acquired, key: &[u8]) -> Result<Reply, Error> {
    match acquired {
        Acquired::Granted(grant) => Ok(M::granted(grant)),
        Acquired::Refused(busy) => Ok(M::refused(busy)),
        Acquired::Conflict => Err(Error::Deadlock { name: String::from_utf8_lossy(key).into() }),
        Acquired::Queued => Err(Error::Internal("a call that waits has no reply yet".to_owned())),
    }
}

impl Memory {
    pub async fn wait_for_lock(&self, call: &AcquireCall<'_>) -> Result<Reply, Error> {
        let (key, owner) = (call.key, call.owner);
        let ask = |waiting| self.store.acquire::<LOCK>(key, owner, lock_request(call), Some(waiting), When::Now);
        let reply = |acquired: Acquired| reply::<Locks>(acquired, key);
        self.wait_in_queue::<Locks>((key, call.wait.length, WAITERS_CEILING), ask, reply).await
    }

    pub async fn wait_for_permit(&self, call: &EnterCall<'_>) -> Result<Reply, Error> {
        let (key, owner) = (call.key, call.owner);
        let ask = |waiting| self.store.acquire::<BULKHEAD>(key, owner, permit_request(call), Some(waiting), When::Now);
        let reply = |acquired: Acquired| reply::<Bulkheads>(acquired, key);
        self.wait_in_queue::<Bulkheads>((key, call.wait.length, call.queue), ask, reply).await
    }
}

impl Store {
    fn acquire<const L: bool>(
        &self,
        key: &[u8],
        owner: &[u8],
        request: LockRequest,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Replied<Acquired>, Error>
    where
        Holding<L>: HoldingMachine,
    {
        let id = waiting.map(|waiting| waiting.id);
        self.ask::<Holding<L>>(key, when, id, |key, setting| acquire(key, owner, request, waiting, setting))
    }

    pub fn try_lock(&self, call: &AcquireCall<'_>, when: When) -> Result<Reply, Error> {
        let asked = self.acquire::<LOCK>(call.key, call.owner, lock_request(call), None, when)?;
        reply::<Locks>(asked.verdict, call.key)
    }

    pub fn try_enter(&self, call: &EnterCall<'_>, when: When) -> Result<Reply, Error> {
        let asked = self.acquire::<BULKHEAD>(call.key, call.owner, permit_request(call), None, when)?;
        reply::<Bulkheads>(asked.verdict, call.key)
    }

    pub fn renew_holding<const L: bool>(&self, call: &RenewCall<'_>, when: When) -> Result<Reply, Error>
    where
        Holding<L>: HoldingMachine,
    {
        let renewed = self.step::<Holding<L>, _>(call.key, when, |key, setting| {
            renew(key, call.owner, call.fence, call.lease, setting)
        })?;
        Ok(Reply::Renewed(renewed.into()))
    }

    pub fn renew_lock(&self, call: &LockRenewCall<'_>, when: When) -> Result<Reply, Error> {
        let Some(fence) = call.raise else { return self.renew_holding::<LOCK>(&call.renew, when) };
        let RenewCall { key, owner, lease, fence: held, .. } = call.renew;
        let to = Raise::new(fence, FENCE_JUMP_DEFAULT);
        let raised = self.step::<Locks, _>(key, when, |key, setting| raise(key, owner, held, lease, to, setting))?;
        match raised {
            Raised::Granted(grant) => Ok(Reply::Renewed(Renewed::Granted(grant).into())),
            Raised::Lost(reason) => Ok(Reply::Renewed(Renewed::Lost(reason).into())),
            Raised::TooFarAhead(_) | Raised::NotExclusive => Err(refused_raise(&raised).map_or_else(
                || Error::Internal("a raise without a reply".to_owned()),
                |refused| Error::InvalidArgument(refused.text().to_owned()),
            )),
        }
    }

    pub fn release_holding<const L: bool>(&self, call: &OwnedCall<'_>, when: When) -> Result<Reply, Error>
    where
        Holding<L>: HoldingMachine,
    {
        let released =
            self.step::<Holding<L>, _>(call.key, when, |key, setting| release(key, call.owner, call.fence, setting))?;
        Ok(Reply::Released(released.into()))
    }

    pub fn check_lock(&self, call: &OwnedCall<'_>, when: When) -> Result<Reply, Error> {
        self.on(call.key, when, |waited: &mut Waited<Locks>, now| {
            let holds = check(waited.state(), call.owner, call.fence, None, now);
            Ok((Reply::Number(i64::from(holds)), Touch::Unchanged))
        })
    }

    pub fn break_lock(&self, call: &BreakCall<'_>, when: When) -> Result<Reply, Error> {
        let broken = self.step::<Locks, _>(call.key, when, break_all)?;
        Ok(Reply::Number(i64::try_from(broken).unwrap_or(i64::MAX)))
    }

    pub fn show_holding<const L: bool>(&self, call: &InfoCall<'_>, when: When) -> Result<Reply, Error>
    where
        Holding<L>: HoldingMachine,
    {
        self.on(call.key, when, |waited: &mut Waited<Holding<L>>, now| {
            let held = waited.state();
            let alive = || held.iter().filter(|holder| lives(holder, None, now));
            let holders = alive().take(call.limit).map(|holder| HolderRow {
                holder,
                remaining: now.until(holder.ends_for(None, now)),
                bound: None,
            });
            let queued = waited.queue().into_iter().flat_map(|queue| queue.waiters_at(now));
            let waiters = queued.take(call.limit).map(|waiter| WaiterRow {
                owner: &waiter.owner,
                standing: match waiter.request.claim {
                    Claim::Permit { priority, .. } => Standing::Priority(priority),
                    Claim::Exclusive | Claim::Shared => Standing::Mode(waiter.request.claim.mode().text()),
                },
                waited: waiter.waited(now),
            });
            let view = InfoView {
                holders: holders.collect(),
                holders_total: alive().count(),
                waiters: waiters.collect(),
                waiters_total: waited.len(),
                last_fence: held.last_fence(),
            };
            Ok((Reply::Map(Value::written(|sink| write_info(&view, now, sink))), Touch::Unchanged))
        })
    }
}
