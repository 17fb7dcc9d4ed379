//! Every command an SDK can send as one type, and its reply as another: what a backend takes and gives, a server or
//! memory alike. The list at the end names each command once, with its arguments, its page and its reply.
//!
//! # The promises
//! - [`Command::parse`] of what [`Command::encode`] wrote is the same command. What is not valid (a limit above its
//!   maximum) is written as it is, and refused by the parser.
//! - [`Command::check`] refuses what the parser refuses, in the same sentence, without words.
//! - [`Command::read`] of what [`Reply::write`] wrote is the same reply.

use resil_core::Span;
use resil_core::limits::{
    LEASE_CEILING, LEASE_DEFAULT_MAX, RESULT_CEILING, VALUE_DEFAULT_MAX, WAIT_CEILING, WAIT_DEFAULT_MAX,
    WINDOW_LIMIT_CEILING, WINDOW_LIMIT_DEFAULT,
};
use resil_core::lock::Reason;

use crate::argv::{Argv, Refused, Word, quoted};
use crate::breaker::{Admit, Admitted, ConfigCall, Counted, ForceCall, Forced, ReportCall, TallyCall};
use crate::bulkhead::{EnterCall, Entered};
use crate::gcra::{Gcra, LimitReply};
use crate::heartbeat::{Heartbeat, HeartbeatCall};
use crate::holding::{InfoCall, OwnedCall, Released, RenewCall, Renewed, Wait, read_given_up, write_given_up};
use crate::idempotency::{BeginCall, Begun, CommitCall, Committed, GetCall, OnceCall, TokenCall, TokenRenewCall};
use crate::late::{read_queued, write_queued};
use crate::lock::{AcquireCall, Acquired, BreakCall};
use crate::mgcra::{LimitsReply, Mgcra};
use crate::pages;
use crate::reply::{Sink, Unexpected, Value};
use crate::single_flight::{AbandonCall, InvalidateCall, JoinCall, Joined, PublishCall, Published};
use crate::throttle::{ClThrottle, write_numbers};
use crate::window::Windowed;
use crate::words::Words;

/// What is known of a command without its arguments; [`pages`] has all of them, made from `commands/*.json`.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// With its subcommand: `RES.LOCK ACQUIRE`.
    pub name: &'static str,
    pub usage: &'static str,
    /// A replica may reply: it is flagged `readonly`, and changes nothing.
    pub is_read_only: bool,
}

impl Page {
    /// Its name, and the subcommand if it is one.
    pub fn words(&self) -> (&'static str, Option<&'static str>) {
        match self.name.split_once(' ') {
            None => (self.name, None),
            Some((family, subcommand)) => (family, Some(subcommand)),
        }
    }

    /// What follows the name, if `words` begin with it. Names are the same in any case.
    fn follows<'a>(&self, words: &'a [&'a [u8]]) -> Option<&'a [&'a [u8]]> {
        match (self.words(), words) {
            ((name, None), [first, args @ ..]) if Word(first).is(name) => Some(args),
            ((family, Some(name)), [first, second, args @ ..]) if Word(first).is(family) && Word(second).is(name) => {
                Some(args)
            }
            _ => None,
        }
    }
}

/// The arguments of a command. Its file has all of this side by side, with the reply.
pub trait Arguments<'a>: Sized {
    /// Reads what follows the command's name.
    fn parse(argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused>;

    /// Refuses what `parse` refuses, for a call that never was words.
    fn check(&self, allowed: &Allowed) -> Result<(), Refused>;

    /// Writes what follows the command's name.
    fn encode(&self, words: &mut impl Words);

    /// The first key: in a cluster it says where the command goes.
    fn key(&self) -> Option<&'a [u8]>;

    /// For how long the call may wait in the server, and how.
    fn wait(&self) -> Wait {
        Wait::NONE
    }

    /// True for the command's PEEK, if it has one.
    fn is_peek(&self) -> bool {
        false
    }
}

/// The arguments of what needs nothing but a key.
impl<'a> Arguments<'a> for &'a [u8] {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        argv.finish()?;
        Ok(key)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self)
    }
}

/// What a server is configured to allow. The default is that of a server without configuration.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    pub lease_max: Span,
    pub wait_max: Span,
    pub window_limit_max: u32,
    pub value_max: usize,
}

impl Allowed {
    /// The most that any server can be configured to allow.
    pub const CEILING: Self = Self {
        lease_max: LEASE_CEILING,
        wait_max: WAIT_CEILING,
        window_limit_max: WINDOW_LIMIT_CEILING,
        value_max: RESULT_CEILING,
    };
    pub const DEFAULT: Self = Self {
        lease_max: LEASE_DEFAULT_MAX,
        wait_max: WAIT_DEFAULT_MAX,
        window_limit_max: WINDOW_LIMIT_DEFAULT,
        value_max: VALUE_DEFAULT_MAX,
    };
}

impl Default for Allowed {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The reply to a [`Command`] that is not refused, durations in whole milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// GCRA, WINDOW and their PEEKs.
    Limit(LimitReply),
    /// MGCRA.
    Limits(LimitsReply),
    /// CL.THROTTLE.
    Throttle([i64; 5]),
    Admitted(Admitted),
    /// REPORT and TALLY.
    Counted(Counted),
    Forced(Forced),
    /// RESET, CONFIG, CHECK, BREAK, ONCE and INVALIDATE.
    Number(i64),
    /// To a call that waits asynchronously: its position. The verdict comes later.
    Queued(u64),
    Acquired(Acquired),
    Entered(Entered),
    /// Every RENEW.
    Renewed(Renewed),
    /// RELEASE and LEAVE.
    Released(Released),
    /// BEGIN, and GET of an idempotency key.
    Begun(Begun),
    Committed(Committed),
    /// ABORT: `Some` is why it was lost.
    Aborted(Option<Reason>),
    /// ABANDON: `Some` is why it was lost.
    Abandoned(Option<Reason>),
    /// JOIN, and GET of a single-flight key.
    Joined(Joined),
    Published(Published),
    Heartbeat(Heartbeat),
    /// STATE and INFO.
    Map(Value),
}

impl Reply {
    /// Writes it as a server does.
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Limit(reply) => reply.write(sink),
            Self::Limits(reply) => reply.write(sink),
            Self::Throttle(numbers) => write_numbers(*numbers, sink),
            Self::Admitted(reply) => reply.write(sink),
            Self::Counted(reply) => reply.write(sink),
            Self::Forced(reply) => reply.write(sink),
            Self::Number(number) => sink.integer(*number),
            Self::Queued(position) => write_queued(*position, sink),
            Self::Acquired(reply) => reply.write(sink),
            Self::Entered(reply) => reply.write(sink),
            Self::Renewed(reply) => reply.write(sink),
            Self::Released(reply) => reply.write(sink),
            Self::Begun(reply) => reply.write(sink),
            Self::Committed(reply) => reply.write(sink),
            Self::Aborted(lost) => write_given_up("ABORTED", *lost, sink),
            Self::Abandoned(lost) => write_given_up("ABANDONED", *lost, sink),
            Self::Joined(reply) => reply.write(sink),
            Self::Published(reply) => reply.write(sink),
            Self::Heartbeat(reply) => reply.write(sink),
            Self::Map(value) => value.write(sink),
        }
    }
}

/// Makes everything that is the same for each command from the list below.
macro_rules! commands {
    ($($variant:ident($arguments:ty) = $page:ident $(| $peek:ident)?, $reply:ident = $read:expr;)*) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Command<'a> {
            $($variant($arguments),)*
        }

        /// The page of every command in the list.
        pub const PAGES: &[&Page] = &[$(&pages::$page, $(&pages::$peek,)?)*];

        impl<'a> Command<'a> {
            /// Reads a command, its name first.
            pub fn parse(words: &'a [&'a [u8]], allowed: Allowed) -> Result<Self, Refused> {
                $(for page in [&pages::$page, $(&pages::$peek)?] {
                    if let Some(args) = page.follows(words) {
                        return <$arguments>::parse(Argv::new(args, page), &allowed).map(Self::$variant);
                    }
                })*
                Err(unknown(words))
            }

            /// Refuses what the parser refuses, in the same sentence.
            pub fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
                match self {
                    $(Self::$variant(arguments) => arguments.check(allowed),)*
                }
            }

            pub fn page(&self) -> &'static Page {
                match self {
                    $(Self::$variant(arguments) => match arguments.is_peek() {
                        $(true => &pages::$peek,)?
                        _ => &pages::$page,
                    })*
                }
            }

            /// Writes what follows the command's name.
            fn encode_arguments(&self, words: &mut impl Words) {
                match self {
                    $(Self::$variant(arguments) => arguments.encode(words),)*
                }
            }

            /// The first key it names: in a cluster it says where the command goes.
            pub fn key(&self) -> Option<&'a [u8]> {
                match self {
                    $(Self::$variant(arguments) => arguments.key(),)*
                }
            }

            fn wait(&self) -> Wait {
                match self {
                    $(Self::$variant(arguments) => arguments.wait(),)*
                }
            }

            /// Reads a server's reply to this command. Strict: a reply of another shape, or with an unknown word, is
            /// [`Unexpected`].
            pub fn read(&self, value: Value) -> Result<Reply, Unexpected> {
                if self.wait().is_async() && let Some(position) = read_queued(&value) {
                    return Ok(Reply::Queued(position));
                }
                match self {
                    $(Self::$variant(arguments) => {
                        let read: fn(Value, &$arguments) -> Result<_, Unexpected> = $read;
                        read(value, arguments).map(Reply::$reply)
                    })*
                }
            }
        }
    };
}

impl Command<'_> {
    /// The command as words, its name first.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = Vec::with_capacity(8);
        self.encode(&mut words);
        words
    }

    /// Writes the command, its name first.
    pub fn encode(&self, words: &mut impl Words) {
        let (name, subcommand) = self.page().words();
        words.word(name.as_bytes());
        if let Some(subcommand) = subcommand {
            words.word(subcommand.as_bytes());
        }
        self.encode_arguments(words);
    }

    /// Its name, with its subcommand.
    pub fn name(&self) -> &'static str {
        self.page().name
    }

    pub fn is_read_only(&self) -> bool {
        self.page().is_read_only
    }

    /// For how long its connection is blocked at most; `None` if the reply comes at once.
    pub fn waits(&self) -> Option<Span> {
        let blocks = self.wait().blocks();
        (!blocks.is_zero()).then_some(blocks)
    }
}

#[cold]
fn unknown(words: &[&[u8]]) -> Refused {
    let Some((name, args)) = words.split_first() else {
        return Refused::new("no command was given");
    };
    let is_family = PAGES.iter().any(|page| matches!(page.words(), (family, Some(_)) if Word(name).is(family)));
    match args.first() {
        Some(subcommand) if is_family => {
            let (name, subcommand) = (name.escape_ascii(), quoted(subcommand));
            Refused::new(format_args!("unknown subcommand {subcommand} of {name}"))
        }
        None if is_family => Refused::new(format_args!("{} needs a subcommand", name.escape_ascii())),
        _ => Refused::new(format_args!("unknown command {}", quoted(name))),
    }
}

// The list. A command: its arguments = its page (| that of its PEEK), its reply = how a client reads it.
commands! {
    Gcra(Gcra<'a>) = GCRA | GCRA_PEEK, Limit = |value, call| LimitReply::read(value, call.quotas.len());
    Mgcra(Mgcra<'a>) = MGCRA, Limits = |value, call| LimitsReply::read(value, call.limits.len());
    Window(Windowed<'a>) = WINDOW | WINDOW_PEEK, Limit = |value, _| LimitReply::read(value, 1);
    Throttle(ClThrottle<'a>) = THROTTLE, Throttle = |value, _| value.integers();

    BreakerAdmit(Admit<'a>) = BREAKER_ADMIT, Admitted = |value, _| Admitted::read(value);
    BreakerReport(ReportCall<'a>) = BREAKER_REPORT, Counted = |value, _| Counted::read(value);
    BreakerTally(TallyCall<'a>) = BREAKER_TALLY, Counted = |value, _| Counted::read(value);
    BreakerState(&'a [u8]) = BREAKER_STATE, Map = |value, _| value.into_map();
    BreakerForce(ForceCall<'a>) = BREAKER_FORCE, Forced = |value, _| Forced::read(value);
    BreakerReset(&'a [u8]) = BREAKER_RESET, Number = |value, _| value.integer();
    BreakerConfig(ConfigCall<'a>) = BREAKER_CONFIG, Number = |value, _| value.integer();

    LockAcquire(AcquireCall<'a>) = LOCK_ACQUIRE, Acquired = |value, _| Acquired::read(value);
    LockRenew(RenewCall<'a>) = LOCK_RENEW, Renewed = |value, _| Renewed::read(value);
    LockRelease(OwnedCall<'a>) = LOCK_RELEASE, Released = |value, _| Released::read(value);
    LockCheck(OwnedCall<'a>) = LOCK_CHECK, Number = |value, _| value.integer();
    LockBreak(BreakCall<'a>) = LOCK_BREAK, Number = |value, _| value.integer();
    LockInfo(InfoCall<'a>) = LOCK_INFO, Map = |value, _| value.into_map();

    BulkheadEnter(EnterCall<'a>) = BULKHEAD_ENTER, Entered = |value, _| Entered::read(value);
    BulkheadRenew(RenewCall<'a>) = BULKHEAD_RENEW, Renewed = |value, _| Renewed::read(value);
    BulkheadLeave(OwnedCall<'a>) = BULKHEAD_LEAVE, Released = |value, _| Released::read(value);
    BulkheadInfo(InfoCall<'a>) = BULKHEAD_INFO, Map = |value, _| value.into_map();

    IdempBegin(BeginCall<'a>) = IDEMP_BEGIN, Begun = |value, _| Begun::read_begin(value);
    IdempCommit(CommitCall<'a>) = IDEMP_COMMIT, Committed = |value, _| Committed::read(value);
    IdempAbort(TokenCall<'a>) = IDEMP_ABORT, Aborted = |value, _| read_given_up("ABORTED", value);
    IdempRenew(TokenRenewCall<'a>) = IDEMP_RENEW, Renewed = |value, _| Renewed::read(value);
    IdempOnce(OnceCall<'a>) = IDEMP_ONCE, Number = |value, _| value.integer();
    IdempGet(GetCall<'a>) = IDEMP_GET, Begun = |value, _| Begun::read_get(value);
    IdempInfo(&'a [u8]) = IDEMP_INFO, Map = |value, _| value.into_map();

    FlightJoin(JoinCall<'a>) = SFLIGHT_JOIN, Joined = |value, _| Joined::read_join(value);
    FlightGet(&'a [u8]) = SFLIGHT_GET, Joined = |value, _| Joined::read_get(value);
    FlightPublish(PublishCall<'a>) = SFLIGHT_PUBLISH, Published = |value, _| Published::read(value);
    FlightAbandon(AbandonCall<'a>) = SFLIGHT_ABANDON, Abandoned = |value, _| read_given_up("ABANDONED", value);
    FlightRenew(TokenRenewCall<'a>) = SFLIGHT_RENEW, Renewed = |value, _| Renewed::read(value);
    FlightInvalidate(InvalidateCall<'a>) = SFLIGHT_INVALIDATE, Number = |value, _| value.integer();
    FlightInfo(&'a [u8]) = SFLIGHT_INFO, Map = |value, _| value.into_map();

    Heartbeat(HeartbeatCall) = HEARTBEAT, Heartbeat = |value, _| Heartbeat::read(value);
}
