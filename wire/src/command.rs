//! Every command an SDK can send, as one type: what a backend takes, whether it is a server or memory.
//!
//! # The promise
//! [`Command::parse`] of what [`Command::encode`] wrote is the same command. What was not valid to begin with (a limit
//! above its maximum, a CONFIG without options) is written as it is, and refused by whoever parses it.

use resil_core::Span;
use resil_core::limits::{
    LEASE_CEILING, LEASE_DEFAULT_MAX, RESULT_CEILING, VALUE_DEFAULT_MAX, WAIT_CEILING, WAIT_DEFAULT_MAX,
    WINDOW_LIMIT_CEILING, WINDOW_LIMIT_DEFAULT,
};
use resil_core::rate_limit::Ask;

use crate::argv::{Argv, Refused, Word, quoted};
use crate::breaker::{self, Admit, ConfigCall, ForceCall, ReportCall, TallyCall, parse_key};
use crate::bulkhead::{self, EnterCall};
use crate::gcra::{self, Gcra};
use crate::holding::{Bounds, InfoCall, OwnedCall, RenewCall};
use crate::idempotency::{self, BeginCall, CommitCall, GetCall, OnceCall, RenewCall as TokenRenewCall, TokenCall};
use crate::lock::{self, AcquireCall, BreakCall};
use crate::mgcra::{self, Mgcra};
use crate::single_flight::{self, AbandonCall, InvalidateCall, JoinCall, PublishCall};
use crate::throttle::{self, ClThrottle};
use crate::window::{self, Windowed};
use crate::words::Words;

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

/// What the one who parses is configured to allow. The default is what a server allows unless it is told otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    pub holding: Bounds,
    pub window_limit_max: u32,
    pub value_max: usize,
}

impl Allowed {
    /// The most that any server can be configured to allow.
    pub const CEILING: Self = Self {
        holding: Bounds { lease_max: LEASE_CEILING, wait_max: WAIT_CEILING },
        window_limit_max: WINDOW_LIMIT_CEILING,
        value_max: RESULT_CEILING,
    };
}

impl Default for Allowed {
    fn default() -> Self {
        Self {
            holding: Bounds { lease_max: LEASE_DEFAULT_MAX, wait_max: WAIT_DEFAULT_MAX },
            window_limit_max: WINDOW_LIMIT_DEFAULT,
            value_max: VALUE_DEFAULT_MAX,
        }
    }
}

impl<'a> Command<'a> {
    /// The command as words, its name first.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = Vec::with_capacity(8);
        self.encode(&mut words);
        words
    }

    /// Writes the command, its name first.
    pub fn encode(&self, words: &mut impl Words) {
        let name = self.name();
        match name.split_once(' ') {
            None => words.word(name.as_bytes()),
            Some((family, subcommand)) => {
                words.word(family.as_bytes());
                words.word(subcommand.as_bytes());
            }
        }
        match self {
            Self::Gcra(call) => call.encode(words),
            Self::Mgcra(call) => call.encode(words),
            Self::Window(call) => call.encode(words),
            Self::Throttle(call) => call.encode(words),
            Self::BreakerAdmit(call) => call.encode(words),
            Self::BreakerReport(call) => call.encode(words),
            Self::BreakerTally(call) => call.encode(words),
            Self::BreakerForce(call) => call.encode(words),
            Self::BreakerConfig(call) => call.encode(words),
            Self::LockAcquire(call) => call.encode(words),
            Self::LockRenew(call) | Self::BulkheadRenew(call) => call.encode(words),
            Self::LockRelease(call) | Self::LockCheck(call) | Self::BulkheadLeave(call) => call.encode(words),
            Self::LockBreak(call) => call.encode(words),
            Self::LockInfo(call) | Self::BulkheadInfo(call) => call.encode(words),
            Self::BulkheadEnter(call) => call.encode(words),
            Self::IdempBegin(call) => call.encode(words),
            Self::IdempCommit(call) => call.encode(words),
            Self::IdempAbort(call) => call.encode(words),
            Self::IdempRenew(call) | Self::FlightRenew(call) => call.encode(words),
            Self::IdempOnce(call) => call.encode(words),
            Self::IdempGet(call) => call.encode(words),
            Self::FlightJoin(call) => call.encode(words),
            Self::FlightPublish(call) => call.encode(words),
            Self::FlightAbandon(call) => call.encode(words),
            Self::FlightInvalidate(call) => call.encode(words),
            Self::BreakerState(key)
            | Self::BreakerReset(key)
            | Self::IdempInfo(key)
            | Self::FlightGet(key)
            | Self::FlightInfo(key) => words.word(key),
            Self::Heartbeat => {}
        }
    }

    /// Reads a command, its name first. Names are the same in any case.
    pub fn parse(words: &'a [&'a [u8]], allowed: Allowed) -> Result<Self, Refused> {
        let (name, args) = words.split_first().ok_or_else(|| Refused::new("no command"))?;
        let is = |known: &str| Word(name).is(known);
        if is(gcra::NAME) {
            Gcra::parse(args).map(Self::Gcra)
        } else if is(gcra::PEEK_NAME) {
            Gcra::parse_peek(args).map(Self::Gcra)
        } else if is(mgcra::NAME) {
            Mgcra::parse(args).map(Self::Mgcra)
        } else if is(window::NAME) {
            Windowed::parse(args, allowed.window_limit_max).map(Self::Window)
        } else if is(window::PEEK_NAME) {
            Windowed::parse_peek(args, allowed.window_limit_max).map(Self::Window)
        } else if is(throttle::NAME) {
            ClThrottle::parse(args).map(Self::Throttle)
        } else if is(lock::HEARTBEAT_NAME) {
            Argv::new(args, lock::HEARTBEAT_USAGE).finish().map(|()| Self::Heartbeat)
        } else {
            let parse = if is(breaker::NAME) {
                Self::parse_breaker
            } else if is(lock::NAME) {
                Self::parse_lock
            } else if is(bulkhead::NAME) {
                Self::parse_bulkhead
            } else if is(idempotency::NAME) {
                Self::parse_idempotency
            } else if is(single_flight::NAME) {
                Self::parse_flight
            } else {
                return Err(Refused::new(format_args!("unknown command {}", quoted(name))));
            };
            let Some((subcommand, args)) = args.split_first() else {
                return Err(Refused::new(format_args!("{} needs a subcommand", name.escape_ascii())));
            };
            parse(Word(subcommand), args, allowed).unwrap_or_else(|| {
                let (name, subcommand) = (name.escape_ascii(), quoted(subcommand));
                Err(Refused::new(format_args!("unknown subcommand {subcommand} of {name}")))
            })
        }
    }

    /// `None` if there is no such subcommand; so are the others.
    fn parse_breaker(name: Word<'_>, args: &'a [&'a [u8]], _: Allowed) -> Option<Result<Self, Refused>> {
        Some(if name.is("ADMIT") {
            Admit::parse(args).map(Self::BreakerAdmit)
        } else if name.is("REPORT") {
            ReportCall::parse(args).map(Self::BreakerReport)
        } else if name.is("TALLY") {
            TallyCall::parse(args).map(Self::BreakerTally)
        } else if name.is("STATE") {
            parse_key(args, breaker::STATE_USAGE).map(Self::BreakerState)
        } else if name.is("FORCE") {
            ForceCall::parse(args).map(Self::BreakerForce)
        } else if name.is("RESET") {
            parse_key(args, breaker::RESET_USAGE).map(Self::BreakerReset)
        } else if name.is("CONFIG") {
            ConfigCall::parse(args).map(Self::BreakerConfig)
        } else {
            return None;
        })
    }

    fn parse_lock(name: Word<'_>, args: &'a [&'a [u8]], allowed: Allowed) -> Option<Result<Self, Refused>> {
        Some(if name.is("ACQUIRE") {
            AcquireCall::parse(args, allowed.holding).map(Self::LockAcquire)
        } else if name.is("RENEW") {
            RenewCall::parse(args, allowed.holding, lock::RENEW_USAGE).map(Self::LockRenew)
        } else if name.is("RELEASE") {
            OwnedCall::parse(args, lock::RELEASE_USAGE).map(Self::LockRelease)
        } else if name.is("CHECK") {
            OwnedCall::parse(args, lock::CHECK_USAGE).map(Self::LockCheck)
        } else if name.is("BREAK") {
            BreakCall::parse(args).map(Self::LockBreak)
        } else if name.is("INFO") {
            InfoCall::parse(args, lock::INFO_USAGE).map(Self::LockInfo)
        } else {
            return None;
        })
    }

    fn parse_bulkhead(name: Word<'_>, args: &'a [&'a [u8]], allowed: Allowed) -> Option<Result<Self, Refused>> {
        Some(if name.is("ENTER") {
            EnterCall::parse(args, allowed.holding).map(Self::BulkheadEnter)
        } else if name.is("RENEW") {
            RenewCall::parse(args, allowed.holding, bulkhead::RENEW_USAGE).map(Self::BulkheadRenew)
        } else if name.is("LEAVE") {
            OwnedCall::parse(args, bulkhead::LEAVE_USAGE).map(Self::BulkheadLeave)
        } else if name.is("INFO") {
            InfoCall::parse(args, bulkhead::INFO_USAGE).map(Self::BulkheadInfo)
        } else {
            return None;
        })
    }

    fn parse_idempotency(name: Word<'_>, args: &'a [&'a [u8]], allowed: Allowed) -> Option<Result<Self, Refused>> {
        Some(if name.is("BEGIN") {
            BeginCall::parse(args, allowed.holding).map(Self::IdempBegin)
        } else if name.is("COMMIT") {
            CommitCall::parse(args).map(Self::IdempCommit)
        } else if name.is("ABORT") {
            TokenCall::parse(args, idempotency::ABORT_USAGE).map(Self::IdempAbort)
        } else if name.is("RENEW") {
            TokenRenewCall::parse(args, allowed.holding, idempotency::RENEW_USAGE).map(Self::IdempRenew)
        } else if name.is("ONCE") {
            OnceCall::parse(args).map(Self::IdempOnce)
        } else if name.is("GET") {
            GetCall::parse(args).map(Self::IdempGet)
        } else if name.is("INFO") {
            parse_key(args, idempotency::INFO_USAGE).map(Self::IdempInfo)
        } else {
            return None;
        })
    }

    fn parse_flight(name: Word<'_>, args: &'a [&'a [u8]], allowed: Allowed) -> Option<Result<Self, Refused>> {
        Some(if name.is("JOIN") {
            JoinCall::parse(args, allowed.holding).map(Self::FlightJoin)
        } else if name.is("GET") {
            parse_key(args, single_flight::GET_USAGE).map(Self::FlightGet)
        } else if name.is("PUBLISH") {
            PublishCall::parse(args, allowed.value_max).map(Self::FlightPublish)
        } else if name.is("ABANDON") {
            AbandonCall::parse(args).map(Self::FlightAbandon)
        } else if name.is("RENEW") {
            TokenRenewCall::parse(args, allowed.holding, single_flight::RENEW_USAGE).map(Self::FlightRenew)
        } else if name.is("INVALIDATE") {
            InvalidateCall::parse(args).map(Self::FlightInvalidate)
        } else if name.is("INFO") {
            parse_key(args, single_flight::INFO_USAGE).map(Self::FlightInfo)
        } else {
            return None;
        })
    }

    /// What it is called, with its subcommand.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gcra(call) => call.name(),
            Self::Mgcra(_) => mgcra::NAME,
            Self::Window(call) => call.name(),
            Self::Throttle(_) => throttle::NAME,
            Self::BreakerAdmit(_) => "RES.BREAKER ADMIT",
            Self::BreakerReport(_) => "RES.BREAKER REPORT",
            Self::BreakerTally(_) => "RES.BREAKER TALLY",
            Self::BreakerState(_) => "RES.BREAKER STATE",
            Self::BreakerForce(_) => "RES.BREAKER FORCE",
            Self::BreakerReset(_) => "RES.BREAKER RESET",
            Self::BreakerConfig(_) => "RES.BREAKER CONFIG",
            Self::LockAcquire(_) => "RES.LOCK ACQUIRE",
            Self::LockRenew(_) => "RES.LOCK RENEW",
            Self::LockRelease(_) => "RES.LOCK RELEASE",
            Self::LockCheck(_) => "RES.LOCK CHECK",
            Self::LockBreak(_) => "RES.LOCK BREAK",
            Self::LockInfo(_) => "RES.LOCK INFO",
            Self::BulkheadEnter(_) => "RES.BULKHEAD ENTER",
            Self::BulkheadRenew(_) => "RES.BULKHEAD RENEW",
            Self::BulkheadLeave(_) => "RES.BULKHEAD LEAVE",
            Self::BulkheadInfo(_) => "RES.BULKHEAD INFO",
            Self::IdempBegin(_) => "RES.IDEMP BEGIN",
            Self::IdempCommit(_) => "RES.IDEMP COMMIT",
            Self::IdempAbort(_) => "RES.IDEMP ABORT",
            Self::IdempRenew(_) => "RES.IDEMP RENEW",
            Self::IdempOnce(_) => "RES.IDEMP ONCE",
            Self::IdempGet(_) => "RES.IDEMP GET",
            Self::IdempInfo(_) => "RES.IDEMP INFO",
            Self::FlightJoin(_) => "RES.SFLIGHT JOIN",
            Self::FlightGet(_) => "RES.SFLIGHT GET",
            Self::FlightPublish(_) => "RES.SFLIGHT PUBLISH",
            Self::FlightAbandon(_) => "RES.SFLIGHT ABANDON",
            Self::FlightRenew(_) => "RES.SFLIGHT RENEW",
            Self::FlightInvalidate(_) => "RES.SFLIGHT INVALIDATE",
            Self::FlightInfo(_) => "RES.SFLIGHT INFO",
            Self::Heartbeat => lock::HEARTBEAT_NAME,
        }
    }

    /// The first key it names: in a cluster the one that says where it goes.
    pub fn key(&self) -> Option<&'a [u8]> {
        Some(match self {
            Self::Gcra(call) => call.key,
            Self::Mgcra(call) => call.limits.first()?.0,
            Self::Window(call) => call.key,
            Self::Throttle(call) => call.key,
            Self::BreakerAdmit(call) => call.key,
            Self::BreakerReport(call) => call.key,
            Self::BreakerTally(call) => call.key,
            Self::BreakerForce(call) => call.key,
            Self::BreakerConfig(call) => call.key,
            Self::LockAcquire(call) => call.key,
            Self::LockRenew(call) | Self::BulkheadRenew(call) => call.key,
            Self::LockRelease(call) | Self::LockCheck(call) | Self::BulkheadLeave(call) => call.key,
            Self::LockBreak(call) => call.key,
            Self::LockInfo(call) | Self::BulkheadInfo(call) => call.key,
            Self::BulkheadEnter(call) => call.key,
            Self::IdempBegin(call) => call.key,
            Self::IdempCommit(call) => call.key,
            Self::IdempAbort(call) => call.key,
            Self::IdempRenew(call) | Self::FlightRenew(call) => call.key,
            Self::IdempOnce(call) => call.key,
            Self::IdempGet(call) => call.key,
            Self::FlightJoin(call) => call.key,
            Self::FlightPublish(call) => call.key,
            Self::FlightAbandon(call) => call.key,
            Self::FlightInvalidate(call) => call.key,
            Self::BreakerState(key)
            | Self::BreakerReset(key)
            | Self::IdempInfo(key)
            | Self::FlightGet(key)
            | Self::FlightInfo(key) => key,
            Self::Heartbeat => return None,
        })
    }

    /// The WAIT it carries; `None` if it is answered at once.
    pub fn waits(&self) -> Option<Span> {
        let wait = match self {
            Self::LockAcquire(call) => call.wait,
            Self::BulkheadEnter(call) => call.wait,
            Self::IdempBegin(call) => call.wait,
            Self::FlightJoin(call) => call.wait,
            _ => return None,
        };
        (!wait.is_zero()).then_some(wait)
    }

    /// Whether a replica may answer it: it is flagged `readonly`, and changes nothing.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Gcra(Gcra { ask, .. }) | Self::Window(Windowed { ask, .. }) => *ask == Ask::Peek,
            Self::BreakerState(_)
            | Self::LockCheck(_)
            | Self::LockInfo(_)
            | Self::BulkheadInfo(_)
            | Self::IdempGet(_)
            | Self::IdempInfo(_)
            | Self::FlightGet(_)
            | Self::FlightInfo(_) => true,
            _ => false,
        }
    }
}
