//! `RES.LOCK` and its subcommands, and `RES.HEARTBEAT`.

use resil_core::limits::WAITERS_CEILING;
use resil_core::lock::{Claim, LOCK, Locks, break_all, check};
use resil_wire::heartbeat::{Heartbeat as HeartbeatReply, HeartbeatCall};
use resil_wire::holding::OwnedCall;
use resil_wire::lock::{AcquireCall, Acquired, BreakCall, LockRenewCall};
use resil_wire::reply::Sink;

use super::holding::{Request, ask, raise_holding, renew_holding};
use super::reading::read;
use crate::call::{Call, Failure};
use crate::machines::ServerMachine;
use crate::queues::KeyName;
use crate::waited_key::Opened;
use crate::{clock, fences, sessions};

pub fn lock_acquire(
    call: &Call<'_>,
    AcquireCall { owner, lease, wait, shared, bind, meta, .. }: AcquireCall<'_>,
) -> Result<(), Failure> {
    fences::refuse_if_returning()?;
    let claim = if shared { Claim::Shared } else { Claim::Exclusive };
    let request = Request { owner, claim, lease, meta, wait, most_waiters: WAITERS_CEILING, bind };
    ask::<LOCK, _>(call, request, Acquired::from, |busy| Acquired::Taken(busy.into()), Acquired::write)
}

pub fn lock_renew(call: &Call<'_>, LockRenewCall { renew, raise }: LockRenewCall<'_>) -> Result<(), Failure> {
    match raise {
        None => renew_holding::<LOCK>(call, renew),
        Some(fence) => raise_holding(call, renew, fence),
    }
}

pub fn lock_check(call: &Call<'_>, OwnedCall { owner, fence, .. }: OwnedCall<'_>) -> Result<(), Failure> {
    let (now, promoted_at) = (clock::now(), fences::promoted_at());
    let name = || KeyName::new(<Locks as ServerMachine>::KIND, call.db(), call.key_name(0).unwrap_or_default());
    let is_kept = |held: u64| {
        sessions::any() && fence.is_none_or(|fence| fence == held) && sessions::keeps(&name(), held, now).is_some()
    };
    let holds = read::<Locks, _>(call, |held| {
        check(held, owner, fence, promoted_at, now) || held.by_owner(owner).is_some_and(|held| is_kept(held.fence))
    })?;
    call.reply().integer(i64::from(holds));
    Ok(())
}

pub fn lock_break(call: &Call<'_>, request: BreakCall<'_>) -> Result<(), Failure> {
    let said = [("actor", request.actor), ("note", request.reason)];
    let details: Vec<(&str, &[u8])> = said.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    let opened = Opened::<Locks>::open(call, call.string(0)?)?;
    let broken = opened.step(call, clock::now(), &details, break_all);
    call.reply().integer(broken as i64);
    Ok(())
}

pub fn heartbeat(call: &Call<'_>, _: HeartbeatCall) -> Result<(), Failure> {
    HeartbeatReply::from(sessions::heartbeat(call.client(), clock::now())).write(&mut call.reply());
    Ok(())
}
