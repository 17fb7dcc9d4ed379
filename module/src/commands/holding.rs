//! What `RES.LOCK` and `RES.BULKHEAD` do alike: asking, renewing, letting go, showing.

use resil_core::lock::{
    Busy, Claim, Holding, LOCK, LockRequest, Locks, Raise, Raised, Released, acquire, could_take, lives, raise,
    release, renew,
};
use resil_core::waited::{Binding, Decision, Grant, Renewed};
use resil_core::{Instant, Span};
use resil_wire::Refused;
use resil_wire::holding::{
    Bind, HolderRow, InfoCall, InfoView, OwnedCall, Released as ReleasedReply, RenewCall, Renewed as RenewedReply,
    Standing, Wait, WaiterRow, write_info,
};
use resil_wire::lock::refused_raise;

use super::reading::read;
use crate::call::{Call, Failure, ReplySink};
use crate::denials::{self, Refuser};
use crate::machines::ServerMachine;
use crate::queues::{self, KeyName};
use crate::waited_key::{Asking, Opened, settle_grant, waiting};
use crate::{blocked_clients, clock, config, fences, pending, sessions};

/// What an owner asks for.
pub struct Request<'a> {
    pub owner: &'a [u8],
    pub claim: Claim,
    pub lease: Span,
    pub meta: &'a [u8],
    pub wait: Wait,
    pub most_waiters: u32,
    pub bind: Bind,
}

/// If the caller's own holding ends because its connection closed, it has ended before the caller asks, however many others
/// end with it.
fn end_own<const L: bool>(opened: &mut Opened<'_, Holding<L>>, call: &Call<'_>, owner: &[u8], now: Instant) {
    if pending::no_endings() {
        return;
    }
    if let Some(fence) = opened.state().by_owner(owner).map(|holder| holder.fence) {
        opened.do_ending_of(call, fence, now);
    }
}

/// Asks, and writes the reply, unless the caller waits for it.
pub fn ask<const L: bool, R>(
    call: &Call<'_>,
    request: Request<'_>,
    granted: impl FnOnce(Grant) -> R,
    refused: impl FnOnce(Busy) -> R,
    write: impl FnOnce(&R, &mut ReplySink),
) -> Result<(), Failure> {
    config::refuse_if_evictable()?;
    let Request { owner, claim, lease, meta, wait, most_waiters, bind } = request;
    let bind_to = sessions::target(call, bind)?;
    let now = clock::now();
    let mut opened = Opened::<Holding<L>>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, owner, now);
    let waiting = waiting(call, wait, most_waiters)?;
    if call.is_short_of_memory() && opened.state().by_owner(owner).is_none() {
        // A denial needs no memory; a grant, or a position in the queue, does.
        let takes = opened.look(|key| could_take(key, claim));
        if takes || waiting.is_some() {
            return Err(Failure::OutOfMemory);
        }
    }
    let request = LockRequest { claim, lease, meta: meta.into(), bind_to };
    let asking = Asking { wait, waiting, bind_to, lease };
    let acquired = opened.ask(call, now, asking, |key, setting| acquire(key, owner, request, waiting, setting));
    let counters = Holding::<L>::counters();
    match acquired {
        Decision::Granted(grant) => {
            counters.granted.add(1);
            write(&granted(grant), &mut call.reply());
        }
        Decision::Refused(busy) => {
            counters.denied.add(1);
            let refuser = if L { Refuser::Lock } else { Refuser::Bulkhead };
            denials::note(|| call.db(), refuser, call.key_name(0)?);
            write(&refused(busy), &mut call.reply());
        }
        Decision::Queued => {}
        Decision::Conflict => {
            let text = "a SHARED holder cannot become exclusive while others hold or wait; release the lock first";
            return Err(Refused::with_code("DEADLOCK", text).into());
        }
    }
    Ok(())
}

pub fn renew_holding<const L: bool>(call: &Call<'_>, request: RenewCall<'_>) -> Result<(), Failure> {
    let bind_to = sessions::target(call, request.bind)?;
    let now = clock::now();
    let mut opened = Opened::<Holding<L>>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, request.owner, now);
    let name = (bind_to.is_some() || blocked_clients::any_undelivered()).then(|| opened.name());
    let renewed =
        opened.step(call, now, &[], |key, setting| renew(key, request.owner, request.fence, request.lease, setting));
    reply_renewed::<L>(call, renewed, name.as_ref(), (bind_to, request.lease, now));
    Ok(())
}

/// The lease of the exclusive holder is renewed, and its fence raised. The raised fence names the holding from now on: what was
/// bound under the former one is bound again, or not at all.
pub fn raise_holding(call: &Call<'_>, request: RenewCall<'_>, fence: u64) -> Result<(), Failure> {
    let bind_to = sessions::target(call, request.bind)?;
    let now = clock::now();
    let mut opened = Opened::<Locks>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, request.owner, now);
    let former = opened.state().by_owner(request.owner).map(|holder| holder.fence);
    let name = opened.name();
    let to = Raise::new(fence, config::fence_jump());
    let raised = opened
        .step(call, now, &[], |key, setting| raise(key, request.owner, request.fence, request.lease, to, setting));
    if let Some(refused) = refused_raise(&raised) {
        return Err(refused.into());
    }
    let renewed = match raised {
        Raised::Granted(grant) => Renewed::Granted(grant),
        Raised::Lost(reason) => Renewed::Lost(reason),
        Raised::TooFarAhead(_) | Raised::NotExclusive => return Ok(()),
    };
    if let (Renewed::Granted(grant), Some(former)) = (&renewed, former)
        && grant.fence != former
    {
        blocked_clients::notified_elsewhere(&name, former);
        sessions::unbind(&name, former);
    }
    reply_renewed::<LOCK>(call, renewed, Some(&name), (bind_to, request.lease, now));
    Ok(())
}

fn reply_renewed<const L: bool>(
    call: &Call<'_>,
    renewed: Renewed,
    name: Option<&KeyName>,
    (bind_to, lease, now): (Option<Binding>, Span, Instant),
) {
    match &renewed {
        Renewed::Granted(grant) => {
            Holding::<L>::counters().renewed.add(1);
            settle_grant(name, bind_to, grant.fence, lease, now);
        }
        Renewed::Lost(_) => Holding::<L>::counters().stale.add(1),
    }
    RenewedReply::from(renewed).write(&mut call.reply());
}

pub fn release_holding<const L: bool>(call: &Call<'_>, request: OwnedCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut opened = Opened::<Holding<L>>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, request.owner, now);
    let released = opened.step(call, now, &[], |key, setting| release(key, request.owner, request.fence, setting));
    if matches!(released, Released::Lost(_)) {
        Holding::<L>::counters().stale.add(1);
    }
    ReleasedReply::from(released).write(&mut call.reply());
    Ok(())
}

pub fn show_holding<const L: bool>(call: &Call<'_>, request: InfoCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let name = KeyName::new(<Holding<L> as ServerMachine>::KIND, call.db(), call.key_name(0)?);
    read::<Holding<L>, _>(call, |held| {
        queues::look::<Holding<L>, _>(name.db, &name.key, |queue| {
            let promoted_at = fences::promoted_at();
            let alive = held.iter().filter(|holder| lives(holder, promoted_at, now));
            let holders = alive.take(request.limit).map(|holder| HolderRow {
                holder,
                remaining: now.until(holder.ends_for(promoted_at, now)),
                bound: sessions::grace(&name, holder.fence),
            });
            let waiters = queue.waiters_at(now).take(request.limit).map(|waiter| WaiterRow {
                owner: &waiter.owner,
                standing: match waiter.request.claim {
                    Claim::Permit { priority, .. } => Standing::Priority(priority),
                    Claim::Exclusive | Claim::Shared => Standing::Mode(waiter.request.claim.mode().text()),
                },
                waited: waiter.waited(now),
            });
            let view = InfoView {
                holders: holders.collect(),
                holders_total: held.count_alive(promoted_at, now),
                waiters: waiters.collect(),
                waiters_total: queue.len(),
                last_fence: held.last_fence(),
            };
            write_info(&view, now, &mut call.reply());
        });
    })
}
