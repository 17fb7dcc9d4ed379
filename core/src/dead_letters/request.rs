//! What is asked of a ledger, and what it says.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::config::{Class, Rate};
use super::message::{Facts, Message};
use crate::time::{Instant, Span};
use crate::waited::{Binding, Reason};

/// Where an entry is. Held is a mark beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It will be given out when it is due.
    Waiting,
    /// A taker has it, under a lease.
    Taken,
    /// Behind an earlier entry of its aggregate.
    Parked,
    Dead,
    /// It died, was redriven, and is done.
    Resolved,
    /// It died and was discarded.
    Archived,
}

impl Place {
    pub const ALL: [Self; 6] = [Self::Waiting, Self::Taken, Self::Parked, Self::Dead, Self::Resolved, Self::Archived];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Taken => "taken",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Resolved => "resolved",
            Self::Archived => "archived",
        }
    }
}

/// What a caller learns of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Here(Place),
    /// It ended a short while ago, and never died.
    Done,
}

impl Standing {
    pub const ALL: [Self; 7] = [
        Self::Here(Place::Waiting),
        Self::Here(Place::Taken),
        Self::Here(Place::Parked),
        Self::Here(Place::Dead),
        Self::Here(Place::Resolved),
        Self::Here(Place::Archived),
        Self::Done,
    ];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Here(place) => place.text(),
            Self::Done => "done",
        }
    }
}

/// Why an entry died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Death {
    /// It failed more often than its class is retried.
    Retries,
    /// The caller said so.
    Final,
    /// Its takers were not heard of again, several times.
    Crash,
    /// It failed for a day without being counted.
    Age,
}

impl Death {
    pub const ALL: [Self; 4] = [Self::Retries, Self::Final, Self::Crash, Self::Age];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|death| death.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Retries => "retries",
            Self::Final => "final",
            Self::Crash => "crash",
            Self::Age => "age",
        }
    }
}

/// How a failure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counting {
    #[default]
    Counted,
    /// NOCOUNT: it was not the message's fault.
    NotCounted,
    /// FINAL: there is no use in another attempt.
    Final,
}

/// What the server allows, whatever the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub entries: usize,
    pub bytes: usize,
    pub resolved: usize,
}

/// FAIL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failing<'a> {
    pub facts: Facts<'a>,
    pub error: &'a [u8],
    pub fence: Option<u64>,
    pub class: Option<Class>,
    pub group: Option<&'a [u8]>,
    pub after: Option<Span>,
    /// Attempts before the ledger knew of it.
    pub prior: u32,
    pub counting: Counting,
    /// Drawn by the caller, evenly over the whole range.
    pub random: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    Retry {
        attempt: u32,
        delay: Span,
    },
    Dead {
        deaths: u32,
        group: Box<[u8]>,
        reason: Death,
    },
    Known {
        standing: Standing,
        attempt: u32,
    },
    Lost(Reason),
    /// Other bytes under a known id.
    Conflict,
    /// No room for another entry.
    Full,
}

/// TAKE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeRequest {
    pub lease: Span,
    pub count: usize,
    pub meta: Box<[u8]>,
    /// What to bind the grant to. The machine only passes it on.
    pub bind_to: Option<Binding>,
}

/// An entry as its taker gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenEntry {
    pub message: Message,
    pub fence: u64,
    pub attempt: u32,
    pub lapses: u32,
    pub class: Class,
    pub group: Arc<[u8]>,
    pub deaths: u32,
    pub error: Arc<[u8]>,
    pub case: Option<u32>,
}

/// What a taker gets: the entries of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Names the lease.
    pub fence: u64,
    pub waited: Span,
    /// What is left of the lease.
    pub lease: Span,
    pub entries: Vec<GivenEntry>,
}

/// Nothing is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NothingDue {
    /// How long until something will be; `None` if nothing waits.
    pub next: Option<Span>,
}

/// DONE, for one entry; RETURN says the same of giving back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Ended,
    Lost(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchRenewed {
    Granted { entries: usize, lease: Span },
    Lost(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// Nothing of its aggregate is in the ledger: nothing was stored.
    Free,
    /// 1 is the next to go.
    Behind {
        position: usize,
    },
    Known {
        standing: Standing,
        attempt: u32,
    },
    Conflict,
    Full,
}

/// Who governs: for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Governor<'a> {
    /// The server's name for the user; empty where there are no users.
    pub user: &'a [u8],
    pub actor: &'a [u8],
    pub correlation: &'a [u8],
}

/// What kind of root cause it was, and so what may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    Infrastructure,
    Contract,
    Business,
    /// Archived and discarded, never redriven.
    Poison,
}

impl Category {
    pub const ALL: [Self; 4] = [Self::Infrastructure, Self::Contract, Self::Business, Self::Poison];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Infrastructure => "infrastructure",
            Self::Contract => "contract",
            Self::Business => "business",
            Self::Poison => "poison",
        }
    }
}

/// DIAGNOSE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis<'a> {
    pub groups: Vec<&'a [u8]>,
    pub category: Category,
    pub cause: &'a [u8],
    pub fix: &'a [u8],
    pub decision: &'a [u8],
    /// How long what dies in these groups is redriven by itself.
    pub auto: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Diagnosed {
    Case(u32),
    UnknownGroup(Box<[u8]>),
    /// As many cases are open as can be.
    TooMany,
}

/// Which of a case's entries a redrive covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedriveFilter {
    pub id: Option<Box<[u8]>>,
    pub kind: Option<Box<[u8]>>,
    pub aggregate: Option<Box<[u8]>>,
    /// Of the death: inclusive.
    pub since: Option<Instant>,
    /// Exclusive.
    pub until: Option<Instant>,
}

/// REDRIVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveRequest {
    pub case: u32,
    pub filter: RedriveFilter,
    /// How many at most.
    pub count: Option<u32>,
    pub rate: Option<Rate>,
    /// How many are given out before the first outcomes are known.
    pub first: u32,
    pub oneshot: bool,
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redriven {
    Started(Matched),
    DryRun(Matched),
    Refused(Refusal),
}

/// What a redrive covers, as far as it was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    pub count: usize,
    /// False if there may be more than were counted.
    pub is_complete: bool,
    pub sample: Vec<Box<[u8]>>,
}

/// Why there is no redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such case.
    Case,
    Closed,
    Poison,
    /// All that match are held.
    Held,
    /// All that match were redriven under this case.
    Again,
    /// Faster than RATEMAX.
    Rate,
    /// A redrive of this case is under way.
    Running,
    /// Nothing matches.
    Nothing,
}

impl Refusal {
    pub const ALL: [Self; 8] =
        [Self::Case, Self::Closed, Self::Poison, Self::Held, Self::Again, Self::Rate, Self::Running, Self::Nothing];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Case => "case",
            Self::Closed => "closed",
            Self::Poison => "poison",
            Self::Held => "held",
            Self::Again => "again",
            Self::Rate => "rate",
            Self::Running => "running",
            Self::Nothing => "nothing",
        }
    }
}

/// CLOSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    Closed,
    /// So many entries of the case are not resolved.
    Open(usize),
    NoCase,
    /// Only what is poison can be discarded.
    NotPoison,
    /// It was closed before, without a discard: nothing is discarded.
    ClosedBefore,
}

/// What HOLD is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldTarget<'a> {
    Id(&'a [u8]),
    Aggregate(&'a [u8]),
}

/// PURGE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeRequest {
    pub older: Span,
    /// Dead, resolved or archived; `None` is all three.
    pub place: Option<Place>,
    pub limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purged {
    Purged {
        purged: usize,
        left: usize,
    },
    /// The clock has jumped: ages cannot be believed today.
    ClockJumped,
}

/// Which entries LIST shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListFilter<'a> {
    pub place: Option<Place>,
    pub kind: Option<&'a [u8]>,
    pub class: Option<Class>,
    pub group: Option<&'a [u8]>,
    pub aggregate: Option<&'a [u8]>,
    pub case: Option<u32>,
    /// Of the last change, or the death: inclusive.
    pub since: Option<Instant>,
    /// Exclusive.
    pub until: Option<Instant>,
}

/// CONFIG: what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfigChange {
    /// By class.
    pub retries: [RetriesChange; 3],
    pub jitter: Option<super::config::Jitter>,
    pub crashes: Option<u32>,
    pub rate_max: Option<Rate>,
    pub after_max: Option<Span>,
    pub paused: Option<Pause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetriesChange {
    pub most: Option<u32>,
    pub base: Option<Span>,
    pub cap: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    Off,
    On,
    For(Span),
}
