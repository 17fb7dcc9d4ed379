//! What is asked of a guard, and what it says.

use crate::circuit_breaker::{Caller, Report, StateName};
pub use crate::policy::Priority;
use crate::rate_limit::{Reading, TierSet, Wait};
use crate::time::Span;
use crate::window::{Window, WindowChange};

/// What decides whether a call is admitted, in the order in which it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Shed,
    Throttle,
    Breaker,
    Limit,
    Bulkhead,
    Chaos,
}

impl Layer {
    pub const ALL: [Self; 6] = [Self::Shed, Self::Throttle, Self::Breaker, Self::Limit, Self::Bulkhead, Self::Chaos];

    pub fn text(self) -> &'static str {
        match self {
            Self::Shed => "shed",
            Self::Throttle => "throttle",
            Self::Breaker => "breaker",
            Self::Limit => "limit",
            Self::Bulkhead => "bulkhead",
            Self::Chaos => "chaos",
        }
    }

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.text().as_bytes() == text)
    }
}

/// What an ENTER asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnterRequest {
    /// Cells of the rate limit.
    pub cost: u32,
    pub priority: Priority,
    pub caller: Caller,
    /// The ticket that EXIT answered with RETRY.
    pub ticket: Option<u64>,
    /// Drawn outside.
    pub random: u64,
}

/// Whom SUBJECT names.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub name: &'a [u8],
    pub limit: SubjectLimit<'a>,
}

/// The limit of a subject, as it is stored.
#[derive(Debug, Clone, Copy)]
pub enum SubjectLimit<'a> {
    /// The policy has no rate limit.
    Unlimited,
    Gcra(&'a TierSet),
    Window(&'a Window),
}

/// What an admission does to the limit that SUBJECT names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectChange {
    Gcra(TierSet),
    Window(WindowChange),
}

/// The binding tier after the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateView {
    pub limit: u32,
    pub remaining: u32,
    pub reset_after: Span,
}

impl From<Reading> for RateView {
    fn from(Reading { capacity, remaining, reset_after, .. }: Reading) -> Self {
        Self { limit: capacity, remaining, reset_after }
    }
}

/// ENTER: the call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub ticket: u64,
    pub attempt: u32,
    /// How long this attempt may take.
    pub timeout: Option<Span>,
    /// How long the whole call may still take.
    pub deadline: Option<Span>,
    pub version: u64,
    pub rate: Option<RateView>,
    /// What is left of the ticket's lease.
    pub lease: Span,
    pub waited: Span,
    /// To be stored in the key that SUBJECT names.
    pub subject: Option<SubjectChange>,
}

/// Why a layer refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    /// Calls of this class are shed.
    Class(Priority),
    /// The dependency accepts too few calls.
    Overload,
    /// The breaker is in this state.
    State(StateName),
    /// The rate is used up.
    Rate,
    /// COST is above what the limit ever holds.
    Cost,
    /// No place is free.
    Full,
    /// No place is free, and no more calls may wait.
    Queue,
    /// No place became free in time.
    Timeout,
    /// There are as many live tickets as there can be.
    Tickets,
    /// An experiment with errors, or with calls that get no reply.
    Error,
    Drop,
}

impl RefusedFor {
    pub fn text(self) -> &'static str {
        match self {
            Self::Class(class) => class.text(),
            Self::Overload => "overload",
            Self::State(state) => state.text(),
            Self::Rate => "rate",
            Self::Cost => "cost",
            Self::Full => "full",
            Self::Queue => "queue",
            Self::Timeout => "timeout",
            Self::Tickets => "tickets",
            Self::Error => "error",
            Self::Drop => "drop",
        }
    }
}

/// ENTER: the call may not be made, because of this layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerRefusal {
    pub layer: Layer,
    pub retry_after: Wait,
    pub reason: RefusedFor,
    pub version: u64,
    pub rate: Option<RateView>,
}

/// Any other reply to an ENTER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnterRefusal {
    Layer(LayerRefusal),
    /// An error: there is no live policy here.
    NoPolicy,
    /// An error: the ticket is unknown, ended, lapsed or overdue.
    Ticket,
    /// An error: the limit that SUBJECT names holds too many tiers of other periods.
    TooManyTiers,
}

/// What an EXIT says of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRequest {
    pub report: Report,
    /// Left out: the time from ENTER to EXIT.
    pub duration: Option<Span>,
    /// The dependency asked to wait so long.
    pub after: Option<Span>,
    /// Trying again makes no sense.
    pub is_final: bool,
    /// Drawn outside.
    pub random: u64,
}

/// Why a call that failed is not made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    Final,
    Attempts,
    Open,
    Deadline,
    Budget,
    /// The ticket is not known (any more).
    Unknown,
}

impl StopReason {
    pub const ALL: [Self; 6] = [Self::Final, Self::Attempts, Self::Open, Self::Deadline, Self::Budget, Self::Unknown];

    pub fn text(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Attempts => "attempts",
            Self::Open => "open",
            Self::Deadline => "deadline",
            Self::Budget => "budget",
            Self::Unknown => "unknown",
        }
    }

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.text().as_bytes() == text)
    }
}

/// The reply to EXIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exited {
    Done,
    /// Make it again after `delay`, as attempt number `attempt`.
    Retry {
        delay: Span,
        attempt: u32,
    },
    /// `attempts` were made.
    Stop {
        reason: StopReason,
        attempts: u32,
    },
    /// An error: there is no live policy here.
    NoPolicy,
}
