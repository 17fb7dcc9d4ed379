//! Every command in one file: its arguments with `parse` (words to struct) and `encode` (struct to words), their bounds,
//! its reply with `write` and `read`. The module parses what the SDKs encode, and writes what they read, with the same
//! file, so the two cannot drift.
//!
//! # The map
//! - Below: the list of commands and that of their replies. [`command`]: what is made of them, every call as one type and every
//!   reply as another.
//! - [`pages`]: names, usages and HELP, generated from `commands/*.json`.
//! - [`gcra`], [`mgcra`], [`window`], [`throttle`], [`breaker`], [`lock`], [`bulkhead`], [`holding`] (what the last two
//!   share), [`heartbeat`], [`idempotency`], [`single_flight`], [`dead_letters`], [`policy`], [`guard`],
//!   [`overview`], [`apply`]: the commands.
//! - [`argv`]: the cursor over arguments; every refusal names the argument, what was given and what is allowed.
//! - [`bound`]: what an argument may be. [`duration`]: `250ms`, `30s`, `1h`. [`words`]: what calls are written to.
//! - [`late`]: the verdict of an asynchronous wait, as it is published. [`trace`]: trace ids in
//!   correlations. [`reply`]: what replies are written to and read from.
//!
//! # What this crate does not do
//! It asks no clock, opens no socket, and decides nothing: a number is only held against the bounds that core names.
#![forbid(unsafe_code)]

pub mod apply;
pub mod argv;
pub mod bound;
pub mod breaker;
pub mod bulkhead;
pub mod command;
pub mod dead_letters;
pub mod duration;
pub mod gcra;
pub mod guard;
pub mod heartbeat;
pub mod holding;
pub mod idempotency;
pub mod late;
pub mod lock;
pub mod mgcra;
pub mod overview;
#[rustfmt::skip] // as it is generated
pub mod pages;
pub mod policy;
pub mod reply;
pub mod single_flight;
pub mod throttle;
pub mod trace;
pub mod window;
pub mod words;

pub use argv::Refused;
use resil_core::dead_letters::{Ended, Redriven};
use resil_core::lock::Reason;
pub use words::Words;

// The replies: each with its type, and how a server writes it.
command::replies! {
    /// GCRA, WINDOW and their PEEKs.
    Limit(gcra::LimitReply) = |reply, sink| reply.write(sink);
    /// MGCRA.
    Limits(mgcra::LimitsReply) = |reply, sink| reply.write(sink);
    /// CL.THROTTLE.
    Throttle([i64; 5]) = |numbers, sink| throttle::write_numbers(*numbers, sink);
    Admitted(breaker::Admitted) = |reply, sink| reply.write(sink);
    /// REPORT and TALLY.
    Counted(breaker::Counted) = |reply, sink| reply.write(sink);
    Forced(breaker::Forced) = |reply, sink| reply.write(sink);
    /// RESET, CONFIG, CHECK, BREAK, ONCE, INVALIDATE, DIAGNOSE, HOLD and SEEN.
    Number(i64) = |number, sink| sink.integer(*number);
    /// To a call that waits asynchronously: its position. The verdict comes later.
    Queued(u64) = |position, sink| late::write_queued(*position, sink);
    Acquired(lock::Acquired) = |reply, sink| reply.write(sink);
    Entered(bulkhead::Entered) = |reply, sink| reply.write(sink);
    /// Every RENEW.
    Renewed(holding::Renewed) = |reply, sink| reply.write(sink);
    /// RELEASE and LEAVE.
    Released(holding::Released) = |reply, sink| reply.write(sink);
    /// BEGIN, and GET of an idempotency key.
    Begun(idempotency::Begun) = |reply, sink| reply.write(sink);
    Committed(idempotency::Committed) = |reply, sink| reply.write(sink);
    /// ABORT: `Some` is why it was lost.
    Aborted(Option<Reason>) = |lost, sink| holding::write_given_up("ABORTED", *lost, sink);
    /// ABANDON: `Some` is why it was lost.
    Abandoned(Option<Reason>) = |lost, sink| holding::write_given_up("ABANDONED", *lost, sink);
    /// JOIN, and GET of a single-flight key.
    Joined(single_flight::Joined) = |reply, sink| reply.write(sink);
    /// MGET.
    SeenMany(single_flight::SeenMany) = |reply, sink| reply.write(sink);
    Published(single_flight::Published) = |reply, sink| reply.write(sink);
    Heartbeat(heartbeat::Heartbeat) = |reply, sink| reply.write(sink);
    /// FAIL.
    Failed(dead_letters::Failed) = |reply, sink| reply.write(sink);
    /// PARK.
    Parked(dead_letters::Parked) = |reply, sink| reply.write(sink);
    /// TAKE.
    Taken(dead_letters::TakenReply) = |reply, sink| reply.write(sink);
    /// DONE: for each entry.
    Done(Vec<Ended>) = |ended, sink| dead_letters::write_ended("DONE", ended, sink);
    /// RETURN: for each entry.
    Returned(Vec<Ended>) = |ended, sink| dead_letters::write_ended("RETURNED", ended, sink);
    /// RENEW of what was taken.
    BatchRenewed(dead_letters::BatchRenewed) = |reply, sink| reply.write(sink);
    Redriven(Redriven) = |reply, sink| dead_letters::write_redriven(reply, sink);
    Closed(dead_letters::Closed) = |reply, sink| reply.write(sink);
    Purged(dead_letters::Purged) = |reply, sink| reply.write(sink);
    /// CONFIG of a ledger.
    Configured(dead_letters::Configured) = |reply, sink| reply.write(sink);
    /// GET, LIST and INFO of a ledger.
    Ledger(dead_letters::LedgerReply) = |reply, sink| reply.write(sink);
    /// SET and DELETE of a policy.
    PolicyChanged(policy::PolicyChanged) = |reply, sink| reply.write(sink);
    /// ENTER and EXIT of a guard.
    GuardEntered(guard::GuardEntered) = |reply, sink| reply.write(sink);
    GuardExited(guard::GuardExited) = |reply, sink| reply.write(sink);
    /// LIST.
    Listed(overview::Listed) = |reply, sink| reply.write(sink);
    /// TOP.
    Ranked(overview::Ranked) = |reply, sink| reply.write(sink);
    /// STATE, INFO and STOP; GET, HISTORY and CHECK of a policy.
    Map(reply::Value) = |value, sink| value.write(sink);
}

// The commands: arguments = page (| that of its PEEK), reply = how a client reads it.
command::commands! {
    Gcra(gcra::Gcra<'a>) = GCRA | GCRA_PEEK, Limit = |value, call| gcra::LimitReply::read(value, call.quotas.len());
    Mgcra(mgcra::Mgcra<'a>) = MGCRA, Limits = |value, call| mgcra::LimitsReply::read(value, call.limits.len());
    Window(window::Windowed<'a>) = WINDOW | WINDOW_PEEK, Limit = |value, _| gcra::LimitReply::read(value, 1);
    Throttle(throttle::ClThrottle<'a>) = THROTTLE, Throttle = |value, _| value.integers();

    BreakerAdmit(breaker::Admit<'a>) = BREAKER_ADMIT, Admitted = |value, _| breaker::Admitted::read(value);
    BreakerReport(breaker::ReportCall<'a>) = BREAKER_REPORT, Counted = |value, _| breaker::Counted::read(value);
    BreakerTally(breaker::TallyCall<'a>) = BREAKER_TALLY, Counted = |value, _| breaker::Counted::read(value);
    BreakerState(&'a [u8]) = BREAKER_STATE, Map = |value, _| value.into_map();
    BreakerForce(breaker::ForceCall<'a>) = BREAKER_FORCE, Forced = |value, _| breaker::Forced::read(value);
    BreakerReset(&'a [u8]) = BREAKER_RESET, Number = |value, _| value.integer();
    BreakerConfig(breaker::ConfigCall<'a>) = BREAKER_CONFIG, Number = |value, _| value.integer();

    LockAcquire(lock::AcquireCall<'a>) = LOCK_ACQUIRE, Acquired = |value, _| lock::Acquired::read(value);
    LockRenew(lock::LockRenewCall<'a>) = LOCK_RENEW, Renewed = |value, _| holding::Renewed::read(value);
    LockRelease(holding::OwnedCall<'a>) = LOCK_RELEASE, Released = |value, _| holding::Released::read(value);
    LockCheck(holding::OwnedCall<'a>) = LOCK_CHECK, Number = |value, _| value.integer();
    LockBreak(lock::BreakCall<'a>) = LOCK_BREAK, Number = |value, _| value.integer();
    LockInfo(holding::InfoCall<'a>) = LOCK_INFO, Map = |value, _| value.into_map();

    BulkheadEnter(bulkhead::EnterCall<'a>) = BULKHEAD_ENTER, Entered = |value, _| bulkhead::Entered::read(value);
    BulkheadRenew(holding::RenewCall<'a>) = BULKHEAD_RENEW, Renewed = |value, _| holding::Renewed::read(value);
    BulkheadLeave(holding::OwnedCall<'a>) = BULKHEAD_LEAVE, Released = |value, _| holding::Released::read(value);
    BulkheadInfo(holding::InfoCall<'a>) = BULKHEAD_INFO, Map = |value, _| value.into_map();

    IdempBegin(idempotency::BeginCall<'a>) = IDEMP_BEGIN, Begun = |value, _| idempotency::Begun::read_begin(value);
    IdempCommit(idempotency::CommitCall<'a>) = IDEMP_COMMIT, Committed = |value, _| idempotency::Committed::read(value);
    IdempAbort(idempotency::TokenCall<'a>) = IDEMP_ABORT, Aborted = |value, _| holding::read_given_up("ABORTED", value);
    IdempRenew(idempotency::TokenRenewCall<'a>) = IDEMP_RENEW, Renewed = |value, _| holding::Renewed::read(value);
    IdempOnce(idempotency::OnceCall<'a>) = IDEMP_ONCE, Number = |value, _| value.integer();
    IdempGet(idempotency::GetCall<'a>) = IDEMP_GET, Begun = |value, _| idempotency::Begun::read_get(value);
    IdempInfo(&'a [u8]) = IDEMP_INFO, Map = |value, _| value.into_map();

    FlightJoin(single_flight::JoinCall<'a>) = SFLIGHT_JOIN, Joined = |value, _| single_flight::Joined::read_join(value);
    FlightGet(single_flight::FlightGetCall<'a>) = SFLIGHT_GET, Joined = |value, _| single_flight::Joined::read_get(value);
    FlightMget(single_flight::FlightMgetCall<'a>) = SFLIGHT_MGET, SeenMany = |value, call| single_flight::SeenMany::read(value, call.keys.len());
    FlightPublish(single_flight::PublishCall<'a>) = SFLIGHT_PUBLISH, Published = |value, _| single_flight::Published::read(value);
    FlightAbandon(single_flight::AbandonCall<'a>) = SFLIGHT_ABANDON, Abandoned = |value, _| holding::read_given_up("ABANDONED", value);
    FlightRenew(idempotency::TokenRenewCall<'a>) = SFLIGHT_RENEW, Renewed = |value, _| holding::Renewed::read(value);
    FlightInvalidate(single_flight::InvalidateCall<'a>) = SFLIGHT_INVALIDATE, Number = |value, _| value.integer();
    FlightSet(single_flight::SetCall<'a>) = SFLIGHT_SET, Number = |value, _| value.integer();
    FlightClear(single_flight::ClearCall<'a>) = SFLIGHT_CLEAR, Number = |value, _| value.integer();
    FlightInfo(&'a [u8]) = SFLIGHT_INFO, Map = |value, _| value.into_map();

    DlqFail(dead_letters::FailCall<'a>) = DLQ_FAIL, Failed = |value, _| dead_letters::Failed::read(value);
    DlqTake(dead_letters::TakeCall<'a>) = DLQ_TAKE, Taken = |value, _| dead_letters::TakenReply::read(value);
    DlqDone(dead_letters::DoneCall<'a>) = DLQ_DONE, Done = |value, call| dead_letters::read_ended("DONE", value, call.entries.len());
    DlqRenew(idempotency::TokenRenewCall<'a>) = DLQ_RENEW, BatchRenewed = |value, _| dead_letters::BatchRenewed::read(value);
    DlqReturn(dead_letters::ReturnCall<'a>) = DLQ_RETURN, Returned = |value, call| dead_letters::read_ended("RETURNED", value, call.entries.len());
    DlqPark(dead_letters::ParkCall<'a>) = DLQ_PARK, Parked = |value, _| dead_letters::Parked::read(value);
    DlqGet(dead_letters::EntryCall<'a>) = DLQ_GET, Ledger = |value, call| dead_letters::LedgerReply::read_get(value, call);
    DlqList(dead_letters::ListCall<'a>) = DLQ_LIST, Ledger = |value, _| dead_letters::LedgerReply::read_list(value);
    DlqInfo(dead_letters::LedgerInfoCall<'a>) = DLQ_INFO, Ledger = |value, call| dead_letters::LedgerReply::read_info(value, call);
    DlqDiagnose(dead_letters::DiagnoseCall<'a>) = DLQ_DIAGNOSE, Number = |value, _| value.integer();
    DlqRedrive(dead_letters::RedriveCall<'a>) = DLQ_REDRIVE, Redriven = |value, _| dead_letters::read_redriven(value);
    DlqStop(dead_letters::StopCall<'a>) = DLQ_STOP, Map = |value, _| value.into_map();
    DlqClose(dead_letters::CloseCall<'a>) = DLQ_CLOSE, Closed = |value, _| dead_letters::Closed::read(value);
    DlqHold(dead_letters::HoldCall<'a>) = DLQ_HOLD, Number = |value, _| value.integer();
    DlqPurge(dead_letters::PurgeCall<'a>) = DLQ_PURGE, Purged = |value, _| dead_letters::Purged::read(value);
    DlqSeen(dead_letters::SeenCall<'a>) = DLQ_SEEN, Number = |value, _| value.integer();
    DlqConfig(dead_letters::LedgerConfigCall<'a>) = DLQ_CONFIG, Configured = |value, _| dead_letters::Configured::read(value);

    PolicySet(policy::PolicySetCall<'a>) = POLICY_SET, PolicyChanged = |value, _| policy::PolicyChanged::read(value);
    PolicyGet(policy::PolicyGetCall<'a>) = POLICY_GET, Map = |value, _| policy::read_get(value);
    PolicyHistory(&'a [u8]) = POLICY_HISTORY, Map = |value, _| policy::read_history(value);
    PolicyDelete(policy::PolicyDeleteCall<'a>) = POLICY_DELETE, PolicyChanged = |value, _| policy::PolicyChanged::read(value);
    PolicyCheck(policy::PolicyCheckCall<'a>) = POLICY_CHECK, Map = |value, _| policy::read_checked(value);

    GuardEnter(guard::GuardEnterCall<'a>) = GUARD_ENTER, GuardEntered = |value, _| guard::GuardEntered::read(value);
    GuardExit(guard::GuardExitCall<'a>) = GUARD_EXIT, GuardExited = |value, _| guard::GuardExited::read(value);
    GuardState(&'a [u8]) = GUARD_STATE, Map = |value, _| value.into_map();

    List(overview::OverviewCall<'a>) = LIST, Listed = |value, call| overview::Listed::read(value, call.kind);
    Top(overview::TopCall) = TOP, Ranked = |value, call| overview::Ranked::read(value, call.kind);

    Heartbeat(heartbeat::HeartbeatCall) = HEARTBEAT, Heartbeat = |value, _| heartbeat::Heartbeat::read(value);
}
