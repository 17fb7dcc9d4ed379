//! `RES.BULKHEAD` and its subcommands.

use resil_core::lock::{BULKHEAD, Claim};
use resil_wire::bulkhead::{EnterCall, Entered};

use super::holding::{Request, ask};
use crate::call::{Call, Failure};

pub fn bulkhead_enter(
    call: &Call<'_>,
    EnterCall { owner, max, lease, wait, queue, priority, bind, .. }: EnterCall<'_>,
) -> Result<(), Failure> {
    let claim = Claim::Permit { max, priority };
    let request = Request { owner, claim, lease, meta: b"", wait, most_waiters: queue, bind };
    ask::<BULKHEAD, _>(call, request, Entered::from, |busy| Entered::full(&busy), Entered::write)
}
