//! What `RES.LOCK` and `RES.BULKHEAD` do alike: asking, renewing, letting go, showing.

use resil_core::lock::{Acquired, Ask, Busy, Claim, Edit, Grant, Holders, Released, Renewed, lives};
use resil_core::lock::{Answer, acquire, could_take, release, renew};
use resil_core::queue::Waiting;
use resil_core::{Instant, Span};
use resil_wire::Refused;
use resil_wire::holding::{
    Bind, HolderRow, InfoCall, InfoView, OwnedCall, Released as ReleasedReply, RenewCall, Renewed as RenewedReply,
    Standing, WaiterRow, write_info,
};

use super::waiting::{read, settle_grant, wait_for_answer, waiting};
use crate::call::{Call, Command, Failure, ReplySink, parse};
use crate::edge::bytes_of;
use crate::lines::{self, Name};
use crate::machine::Machine;
use crate::machines::holding::{Flavour, Holding, room};
use crate::room::Opened;
use crate::{chores, clock, config, fences, parked, sessions};

/// A machine of holders: locks or bulkheads.
pub trait HoldingMachine: Machine<State = Holders, Ask = Ask, Edit = Edit, Answer = Answer> {
    type Flavour: Flavour;
}

impl<F: Flavour> HoldingMachine for Holding<F>
where
    Self: Machine<State = Holders, Ask = Ask, Edit = Edit, Answer = Answer>,
{
    type Flavour = F;
}

/// Somebody asks for a place.
pub struct Request<'a> {
    pub owner: &'a [u8],
    pub claim: Claim,
    pub lease: Span,
    pub meta: &'a [u8],
    pub wait: Span,
    pub most_waiters: u32,
    pub bind: Bind,
}

/// If the caller's own holding ends because its connection closed, it has ended before the caller asks, however many others
/// end with it.
fn end_own<F: Flavour>(opened: &mut Opened<'_, Holding<F>>, call: &Call<'_>, owner: &[u8], now: Instant)
where
    Holding<F>: HoldingMachine,
{
    if chores::no_endings() {
        return;
    }
    if let Some(fence) = opened.state().by_owner(owner).map(|holder| holder.fence) {
        opened.do_ending_of(call, fence, now);
    }
}

/// Asks, and writes the reply, unless the caller waits for it.
pub fn ask<F: Flavour, R>(
    call: &Call<'_>,
    request: Request<'_>,
    granted: impl FnOnce(Grant) -> R,
    refused: impl FnOnce(Busy) -> R,
    write: impl FnOnce(&R, &mut ReplySink),
) -> Result<(), Failure>
where
    Holding<F>: HoldingMachine,
{
    config::refuse_if_evictable()?;
    let Request { owner, claim, lease, meta, wait, most_waiters, bind } = request;
    let bind_to = sessions::target(call, bind)?;
    let now = clock::now();
    let mut opened = Opened::<Holding<F>>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, owner, now);
    let waiting = waiting(call, wait, most_waiters);
    if call.is_short_of_memory() && opened.state().by_owner(owner).is_none() {
        // A denial needs no memory; a grant, or a place in line, does.
        let takes = opened.with_room(|at| could_take(&room(at), claim));
        if takes || waiting.is_some() {
            return Err(Failure::OutOfMemory);
        }
    }
    let name = (bind_to.is_some() || waiting.is_some() || parked::is_telling()).then(|| opened.name());
    let ask = Ask { claim, lease, meta: meta.into(), bind_to };
    let acquired = opened.step(call, now, &[], |at, setting| acquire(&mut room(at), owner, ask, waiting, setting));
    let counters = Holding::<F>::counters();
    match acquired {
        Acquired::Granted(grant) => {
            counters.granted.add(1);
            settle_grant(name.as_ref(), bind_to, grant.fence, lease, now);
            write(&granted(grant), &mut call.reply());
        }
        Acquired::Refused(busy) => {
            counters.denied.add(1);
            write(&refused(busy), &mut call.reply());
        }
        Acquired::Queued => {
            counters.waited.add(1);
            if let (Some(Waiting { id, .. }), Some(name)) = (waiting, name) {
                wait_for_answer(call, id, name);
            }
        }
        Acquired::Deadlock => {
            let text = "a SHARED holder cannot become exclusive while others hold or wait; release the lock first";
            return Err(Refused::with_code("DEADLOCK", text).into());
        }
    }
    Ok(())
}

pub fn renew_holding<C: Command, F: Flavour>(call: &Call<'_>) -> Result<(), Failure>
where
    Holding<F>: HoldingMachine,
{
    let args = call.args();
    let request: RenewCall<'_> = parse::<C, _>(&args)?;
    let bind_to = sessions::target(call, request.bind)?;
    let now = clock::now();
    let mut opened = Opened::<Holding<F>>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, request.owner, now);
    let name = (bind_to.is_some() || parked::is_telling()).then(|| opened.name());
    let renewed = opened
        .step(call, now, &[], |at, setting| renew(&mut room(at), request.owner, request.fence, request.lease, setting));
    match &renewed {
        Renewed::Granted(grant) => {
            Holding::<F>::counters().renewed.add(1);
            settle_grant(name.as_ref(), bind_to, grant.fence, request.lease, now);
        }
        Renewed::Lost(_) => Holding::<F>::counters().stale.add(1),
    }
    RenewedReply::from(renewed).write(&mut call.reply());
    Ok(())
}

pub fn release_holding<C: Command, F: Flavour>(call: &Call<'_>) -> Result<(), Failure>
where
    Holding<F>: HoldingMachine,
{
    let args = call.args();
    let request: OwnedCall<'_> = parse::<C, _>(&args)?;
    let now = clock::now();
    let mut opened = Opened::<Holding<F>>::open(call, call.string(0)?)?;
    end_own(&mut opened, call, request.owner, now);
    let released =
        opened.step(call, now, &[], |at, setting| release(&mut room(at), request.owner, request.fence, setting));
    if matches!(released, Released::Lost(_)) {
        Holding::<F>::counters().stale.add(1);
    }
    ReleasedReply::from(released).write(&mut call.reply());
    Ok(())
}

pub fn show_holding<C: Command, F: Flavour>(call: &Call<'_>) -> Result<(), Failure>
where
    Holding<F>: HoldingMachine,
{
    let args = call.args();
    let request: InfoCall<'_> = parse::<C, _>(&args)?;
    let now = clock::now();
    // SAFETY: the string lives as long as the call.
    let name = Name::new(Holding::<F>::KIND, call.db(), unsafe { bytes_of(call.string(0)?) });
    read::<Holding<F>, _>(call, |held| {
        lines::look::<Holding<F>, _>(name.db, &name.key, |line| {
            let promoted_at = fences::promoted_at();
            let alive = || held.iter().filter(|holder| lives(holder, promoted_at, now));
            let holders = alive().take(request.limit).map(|holder| HolderRow {
                holder,
                remaining: now.until(holder.ends_for(promoted_at, now)),
                bound: sessions::grace(&name, holder.fence),
            });
            let waiters = line.waiters().take(request.limit).map(|waiter| WaiterRow {
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
                waiters_total: line.len(),
                last_fence: held.last_fence(),
            };
            write_info(&view, now, &mut call.reply());
        });
    })
}
