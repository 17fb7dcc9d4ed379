//! `RES.BULKHEAD` and its subcommands.

use resil_core::lock::{BULKHEAD, Claim};
use resil_wire::bulkhead::{EnterCall, HELP, INFO_USAGE, LEAVE_USAGE, RENEW_USAGE, write_full, write_granted};

use super::holding::{Request, ask, release_holding, renew_holding, show_holding};
use super::waiting::{bounds, help};
use crate::call::{Call, Command, Failure};

pub const PAGE: &str = include_str!("../../../commands/res.bulkhead.json");

pub struct Enter;

impl Command for Enter {
    const PAGE: &'static str = include_str!("../../../commands/res.bulkhead.enter.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let EnterCall { owner, max, lease, wait, queue, priority, bind, .. } = EnterCall::parse(&args, bounds())?;
        let claim = Claim::Permit { max, priority };
        let request = Request { owner, claim, lease, meta: b"", wait, most_waiters: queue, bind };
        ask::<BULKHEAD>(call, request, write_granted, write_full)
    }
}

pub struct Renew;

impl Command for Renew {
    const PAGE: &'static str = include_str!("../../../commands/res.bulkhead.renew.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        renew_holding::<BULKHEAD>(call, RENEW_USAGE)
    }
}

pub struct Leave;

impl Command for Leave {
    const PAGE: &'static str = include_str!("../../../commands/res.bulkhead.leave.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        release_holding::<BULKHEAD>(call, LEAVE_USAGE)
    }
}

pub struct Info;

impl Command for Info {
    const PAGE: &'static str = include_str!("../../../commands/res.bulkhead.info.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        show_holding::<BULKHEAD>(call, INFO_USAGE)
    }
}

pub struct Help;

impl Command for Help {
    const PAGE: &'static str = include_str!("../../../commands/res.bulkhead.help.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        help(call, "RES.BULKHEAD HELP", &HELP)
    }
}
