//! What `RES.LOCK` and `RES.BULKHEAD` do alike: asking, renewing, letting go, showing.

use resil_core::Span;
use resil_core::lock::{Acquired, Ask, Busy, Claim, Grant, Released, Renewed, Waiting, acquire, lives, release, renew};
use resil_core::queue::WaiterId;
use resil_wire::Refused;
use resil_wire::holding::{
    Bind, Bounds, HolderRow, InfoCall, InfoView, OwnedCall, RenewCall, Standing, WaiterRow, write_info, write_released,
    write_renewed,
};
use resil_wire::reply::Sink;

use crate::call::{Call, Failure, ReplySink};
use crate::datatype::holding::{Holding, HoldingType, Stored};
use crate::edge::bytes_of;
use crate::holding::{Opened, counted};
use crate::key::Key;
use crate::lines::{self, Name};
use crate::{clock, config, fences, parked, sessions};

pub fn bounds() -> Bounds {
    Bounds { lease_max: config::max_lease(), wait_max: config::max_wait() }
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

/// Asks, and writes the reply, unless the caller waits for it.
pub fn ask<T: HoldingType>(
    call: &Call<'_>,
    request: Request<'_>,
    write_granted: impl FnOnce(&Grant, &mut ReplySink),
    write_refused: impl FnOnce(&Busy, &mut ReplySink),
) -> Result<(), Failure> {
    config::refuse_if_evictable()?;
    let Request { owner, claim, lease, meta, wait, most_waiters, bind } = request;
    let bind_to = sessions::target(call, bind)?;
    let now = clock::now();
    let mut opened = Opened::<T>::open(call, call.string(0)?)?;
    if opened.holders().by_owner(owner).is_none() {
        call.require_memory()?;
    }
    let waiting = (!wait.is_zero() && call.may_wait()).then(|| {
        let most = most_waiters.min(config::max_waiters()) as usize;
        Waiting { id: parked::next_id(), wait, most }
    });
    let name = (bind_to.is_some() || waiting.is_some()).then(|| opened.name());
    let ask = Ask { claim, lease, meta: meta.into(), bind_to };
    let acquired = opened.step(call, now, &[], |room, setting| acquire(room, owner, ask, waiting, setting));
    let counters = counted(T::KIND);
    match acquired {
        Acquired::Granted(grant) => {
            counters.granted.add(1);
            if let (Some(client), Some(name)) = (bind_to, &name) {
                sessions::bind(client, name, grant.fence, lease, now);
            }
            write_granted(&grant, &mut call.reply());
        }
        Acquired::Refused(busy) => {
            counters.denied.add(1);
            write_refused(&busy, &mut call.reply());
        }
        Acquired::Queued => {
            counters.waited.add(1);
            if let (Some(Waiting { id, .. }), Some(name)) = (waiting, name) {
                return wait_for_answer(call, id, name);
            }
        }
        Acquired::Deadlock => {
            let text = "a SHARED holder cannot become exclusive while others hold or wait: it would wait for itself";
            return Err(Refused::with_code("DEADLOCK", text).into());
        }
    }
    Ok(())
}

fn wait_for_answer(call: &Call<'_>, id: WaiterId, name: Name) -> Result<(), Failure> {
    if parked::park(call, id, name.clone()) {
        return Ok(());
    }
    lines::leave(&name, id);
    Err(Refused::new("this connection cannot wait here").into())
}

pub fn renew_holding<T: HoldingType>(call: &Call<'_>, usage: &'static str) -> Result<(), Failure> {
    let args = call.args();
    let request = RenewCall::parse(&args, bounds(), usage)?;
    let bind_to = sessions::target(call, request.bind)?;
    let now = clock::now();
    let opened = Opened::<T>::open(call, call.string(0)?)?;
    let name = bind_to.map(|_| opened.name());
    let renewed =
        opened.step(call, now, &[], |room, setting| renew(room, request.owner, request.fence, request.lease, setting));
    match &renewed {
        Renewed::Granted(grant) => {
            counted(T::KIND).renewed.add(1);
            if let (Some(client), Some(name)) = (bind_to, &name) {
                sessions::bind(client, name, grant.fence, request.lease, now);
            }
        }
        Renewed::Lost(_) => counted(T::KIND).stale.add(1),
    }
    write_renewed(&renewed, &mut call.reply());
    Ok(())
}

pub fn release_holding<T: HoldingType>(call: &Call<'_>, usage: &'static str) -> Result<(), Failure> {
    let args = call.args();
    let request = OwnedCall::parse(&args, usage)?;
    let now = clock::now();
    let opened = Opened::<T>::open(call, call.string(0)?)?;
    let released = opened.step(call, now, &[], |room, setting| release(room, request.owner, request.fence, setting));
    if matches!(released, Released::Lost(_)) {
        counted(T::KIND).stale.add(1);
    }
    write_released(&released, &mut call.reply());
    Ok(())
}

/// Reads the holders of a key, on a primary or a replica.
pub fn read<T: HoldingType, R>(call: &Call<'_>, read: impl FnOnce(&Stored) -> R) -> Result<R, Failure> {
    let key = Key::open_to_read(call, call.string(0)?);
    let missing = Stored::default();
    // SAFETY: the value of the open key, only read.
    let stored = key.value::<Holding<T>>()?.map_or(&missing, |value| unsafe { Holding::<T>::get(value) });
    Ok(read(stored))
}

pub fn show_holding<T: HoldingType>(call: &Call<'_>, usage: &'static str) -> Result<(), Failure> {
    let args = call.args();
    let request = InfoCall::parse(&args, usage)?;
    let now = clock::now();
    // SAFETY: the string lives as long as the call.
    let name = Name::new(T::KIND, call.db(), unsafe { bytes_of(call.string(0)?) });
    read::<T, _>(call, |stored| {
        lines::look(T::KIND, name.db, &name.key, |line| {
            let promoted_at = fences::promoted_at();
            let alive = || stored.holders.iter().filter(|holder| lives(holder, promoted_at, now));
            let holders = alive().take(request.limit).map(|holder| HolderRow {
                holder,
                remaining: now.until(holder.ends_for(promoted_at, now)),
                bound: sessions::is_bound(&name, holder.fence),
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
                last_fence: stored.holders.last_fence(),
            };
            write_info(&view, now, &mut call.reply());
        });
    })
}

pub fn help(call: &Call<'_>, usage: &'static str, lines: &[&str]) -> Result<(), Failure> {
    resil_wire::argv::Argv::new(&call.args(), usage).finish()?;
    let mut reply = call.reply();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.text(line.as_bytes()));
    Ok(())
}
