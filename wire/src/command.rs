//! Every command an SDK can send, as one type: what a backend takes, whether it is a server or memory.

use crate::breaker::{Admit, ConfigCall, ForceCall, ReportCall, TallyCall};
use crate::bulkhead::EnterCall;
use crate::gcra::Gcra;
use crate::holding::{InfoCall, OwnedCall, RenewCall};
use crate::idempotency::{BeginCall, CommitCall, GetCall, OnceCall, RenewCall as TokenRenewCall, TokenCall};
use crate::lock::{AcquireCall, BreakCall};
use crate::mgcra::Mgcra;
use crate::single_flight::{AbandonCall, InvalidateCall, JoinCall, PublishCall};
use crate::throttle::ClThrottle;
use crate::window::Windowed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    Gcra(Gcra<'a>),
    Mgcra(Mgcra<'a>),
    Window(Windowed<'a>),
    Throttle(ClThrottle<'a>),
    BreakerAdmit(Admit<'a>),
    BreakerReport(ReportCall<'a>),
    BreakerTally(TallyCall<'a>),
    BreakerState(&'a [u8]),
    BreakerForce(ForceCall<'a>),
    BreakerReset(&'a [u8]),
    BreakerConfig(ConfigCall<'a>),
    LockAcquire(AcquireCall<'a>),
    LockRenew(RenewCall<'a>),
    LockRelease(OwnedCall<'a>),
    LockCheck(OwnedCall<'a>),
    LockBreak(BreakCall<'a>),
    LockInfo(InfoCall<'a>),
    BulkheadEnter(EnterCall<'a>),
    BulkheadRenew(RenewCall<'a>),
    BulkheadLeave(OwnedCall<'a>),
    BulkheadInfo(InfoCall<'a>),
    IdempBegin(BeginCall<'a>),
    IdempCommit(CommitCall<'a>),
    IdempAbort(TokenCall<'a>),
    IdempRenew(TokenRenewCall<'a>),
    IdempOnce(OnceCall<'a>),
    IdempGet(GetCall<'a>),
    IdempInfo(&'a [u8]),
    FlightJoin(JoinCall<'a>),
    FlightGet(&'a [u8]),
    FlightPublish(PublishCall<'a>),
    FlightAbandon(AbandonCall<'a>),
    FlightRenew(TokenRenewCall<'a>),
    FlightInvalidate(InvalidateCall<'a>),
    FlightInfo(&'a [u8]),
    Heartbeat,
}

impl Command<'_> {
    /// The command as words, its name first.
    pub fn words(&self) -> Vec<Vec<u8>> {
        todo!()
    }
}
