//! `RES.LOCK` and its subcommands, and `RES.HEARTBEAT`.

use resil_core::limits::WAITERS_CEILING;
use resil_core::lock::{Claim, LOCK, Locks, break_all, check};
use resil_wire::command::Page;
use resil_wire::heartbeat::{Heartbeat as HeartbeatReply, HeartbeatCall};
use resil_wire::holding::OwnedCall;
use resil_wire::lock::{AcquireCall, Acquired, BreakCall};
use resil_wire::pages;
use resil_wire::reply::Sink;

use super::holding::{Request, ask, release_holding, renew_holding, show_holding};
use super::waiting::read;
use crate::call::{Call, Command, Failure, parse};
use crate::machines::ServerMachine;
use crate::queues::KeyName;
use crate::waited_key::Opened;
use crate::{clock, fences, sessions};

pub struct Acquire;

impl Command for Acquire {
    const PAGE: &'static Page = &pages::LOCK_ACQUIRE;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let AcquireCall { owner, lease, wait, shared, bind, meta, .. } = parse::<Self, _>(&args)?;
        let claim = if shared { Claim::Shared } else { Claim::Exclusive };
        let request = Request { owner, claim, lease, meta, wait, most_waiters: WAITERS_CEILING, bind };
        ask::<LOCK, _>(call, request, Acquired::from, |busy| Acquired::Taken(busy.into()), Acquired::write)
    }
}

pub struct RenewLock;

impl Command for RenewLock {
    const PAGE: &'static Page = &pages::LOCK_RENEW;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        renew_holding::<Self, LOCK>(call)
    }
}

pub struct Release;

impl Command for Release {
    const PAGE: &'static Page = &pages::LOCK_RELEASE;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        release_holding::<Self, LOCK>(call)
    }
}

pub struct Check;

impl Command for Check {
    const PAGE: &'static Page = &pages::LOCK_CHECK;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let OwnedCall { owner, fence, .. } = parse::<Self, _>(&args)?;
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
}

pub struct Break;

impl Command for Break {
    const PAGE: &'static Page = &pages::LOCK_BREAK;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let request: BreakCall<'_> = parse::<Self, _>(&args)?;
        let said = [("actor", request.actor), ("note", request.reason)];
        let details: Vec<(&str, &[u8])> = said.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
        let opened = Opened::<Locks>::open(call, call.string(0)?)?;
        let broken = opened.step(call, clock::now(), &details, break_all);
        call.reply().integer(broken as i64);
        Ok(())
    }
}

pub struct LockInfo;

impl Command for LockInfo {
    const PAGE: &'static Page = &pages::LOCK_INFO;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        show_holding::<Self, LOCK>(call)
    }
}

pub struct Heartbeat;

impl Command for Heartbeat {
    const PAGE: &'static Page = &pages::HEARTBEAT;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        parse::<Self, HeartbeatCall>(&call.args())?;
        HeartbeatReply::from(sessions::heartbeat(call.client(), clock::now())).write(&mut call.reply());
        Ok(())
    }
}
