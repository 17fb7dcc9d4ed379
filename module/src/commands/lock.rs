//! `RES.LOCK` and its subcommands, and `RES.HEARTBEAT`.

use resil_core::limits::WAITERS_CEILING;
use resil_core::lock::{Claim, LOCK, Locks, break_all, check};
use resil_wire::argv::Argv;
use resil_wire::holding::OwnedCall;
use resil_wire::lock::{
    AcquireCall, BreakCall, CHECK_USAGE, HEARTBEAT_USAGE, HELP, INFO_USAGE, RELEASE_USAGE, RENEW_USAGE, write_granted,
    write_heartbeat, write_taken,
};
use resil_wire::reply::Sink;

use super::holding::{Request, ask, release_holding, renew_holding, show_holding};
use super::waiting::{bounds, help, read};
use crate::call::{Call, Command, Failure};
use crate::waited_key::Opened;
use crate::{clock, fences, sessions};

pub const PAGE: &str = include_str!("../../../commands/res.lock.json");

pub struct Acquire;

impl Command for Acquire {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.acquire.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let AcquireCall { owner, lease, wait, shared, bind, meta, .. } = AcquireCall::parse(&args, bounds())?;
        let claim = if shared { Claim::Shared } else { Claim::Exclusive };
        let request = Request { owner, claim, lease, meta, wait, most_waiters: WAITERS_CEILING, bind };
        ask::<LOCK>(call, request, write_granted, write_taken)
    }
}

pub struct Renew;

impl Command for Renew {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.renew.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        renew_holding::<LOCK>(call, RENEW_USAGE)
    }
}

pub struct Release;

impl Command for Release {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.release.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        release_holding::<LOCK>(call, RELEASE_USAGE)
    }
}

pub struct Check;

impl Command for Check {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.check.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let OwnedCall { owner, fence, .. } = OwnedCall::parse(&args, CHECK_USAGE)?;
        let (now, promoted_at) = (clock::now(), fences::promoted_at());
        let holds = read::<Locks, _>(call, |held| check(held, owner, fence, promoted_at, now))?;
        call.reply().integer(i64::from(holds));
        Ok(())
    }
}

pub struct Break;

impl Command for Break {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.break.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let request = BreakCall::parse(&args)?;
        let said = [("actor", request.actor), ("note", request.reason)];
        let details: Vec<(&str, &[u8])> = said.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
        let opened = Opened::<Locks>::open(call, call.string(0)?)?;
        let broken = opened.step(call, clock::now(), &details, |key, setting| break_all(key, setting));
        call.reply().integer(broken as i64);
        Ok(())
    }
}

pub struct Info;

impl Command for Info {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.info.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        show_holding::<LOCK>(call, INFO_USAGE)
    }
}

pub struct Help;

impl Command for Help {
    const PAGE: &'static str = include_str!("../../../commands/res.lock.help.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        help(call, "RES.LOCK HELP", &HELP)
    }
}

pub struct Heartbeat;

impl Command for Heartbeat {
    const PAGE: &'static str = include_str!("../../../commands/res.heartbeat.json");

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        Argv::new(&call.args(), HEARTBEAT_USAGE).finish()?;
        let (bound, losses) = sessions::heartbeat(call.client(), clock::now());
        write_heartbeat(bound, &losses, &mut call.reply());
        Ok(())
    }
}
