//! `RES.BULKHEAD` and its subcommands.

use resil_core::lock::{BULKHEAD, Claim};
use resil_wire::bulkhead::{EnterCall, Entered};
use resil_wire::command::Page;
use resil_wire::pages;

use super::holding::{Request, ask, release_holding, renew_holding, show_holding};
use crate::call::{Call, Command, Failure, parse};

pub struct Enter;

impl Command for Enter {
    const PAGE: &'static Page = &pages::BULKHEAD_ENTER;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let EnterCall { owner, max, lease, wait, queue, priority, bind, .. } = parse::<Self, _>(&args)?;
        let claim = Claim::Permit { max, priority };
        let request = Request { owner, claim, lease, meta: b"", wait, most_waiters: queue, bind };
        ask::<BULKHEAD, _>(call, request, Entered::from, |busy| Entered::full(&busy), Entered::write)
    }
}

pub struct RenewPermit;

impl Command for RenewPermit {
    const PAGE: &'static Page = &pages::BULKHEAD_RENEW;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        renew_holding::<Self, BULKHEAD>(call)
    }
}

pub struct Leave;

impl Command for Leave {
    const PAGE: &'static Page = &pages::BULKHEAD_LEAVE;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        release_holding::<Self, BULKHEAD>(call)
    }
}

pub struct BulkheadInfo;

impl Command for BulkheadInfo {
    const PAGE: &'static Page = &pages::BULKHEAD_INFO;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        show_holding::<Self, BULKHEAD>(call)
    }
}
