//! What `RES.LOCK` and `RES.BULKHEAD` have in common: owners, leases, waiting, binding, renewing, letting go, INFO.

use resil_core::limits::{FENCE_MAX, INFO_LIMIT_DEFAULT, INFO_LIMIT_MAX, LEASE_LEAST, OWNER_MAX};
use resil_core::lock::{Holder, Reason, Released, Renewed};
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, once};
use crate::reply::Sink;
use crate::words::{Words, named_number};

/// What the server is configured to allow.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub lease_max: Span,
    pub wait_max: Span,
}

/// Which connection a grant hangs on, and the grace it has once that connection has closed: zero for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bind {
    #[default]
    None,
    /// The one that asks.
    Here { grace: Span },
    /// Another one, of the same user.
    To { client: u64, grace: Span },
}

impl Bind {
    /// The connection that asks, without a grace.
    pub const HERE: Self = Self::Here { grace: Span::ZERO };

    /// The connection `client`, without a grace.
    pub const fn to(client: u64) -> Self {
        Self::To { client, grace: Span::ZERO }
    }

    /// The same connection, with this grace.
    pub const fn with_grace(self, grace: Span) -> Self {
        match self {
            Self::None => Self::None,
            Self::Here { .. } => Self::Here { grace },
            Self::To { client, .. } => Self::To { client, grace },
        }
    }

    pub const fn grace(self) -> Span {
        match self {
            Self::None => Span::ZERO,
            Self::Here { grace } | Self::To { grace, .. } => grace,
        }
    }

    /// Takes `word` if it is BOUND or BOUNDTO, with the GRACE that may follow.
    pub(crate) fn take(
        bind: &mut Option<Self>,
        word: Word<'_>,
        argv: &mut Argv<'_>,
        bounds: Bounds,
    ) -> Result<bool, Refused> {
        let given = if word.is("BOUND") {
            Self::HERE
        } else if word.is("BOUNDTO") {
            Self::to(argv.number("BOUNDTO", 1..=i64::MAX)? as u64)
        } else {
            return Ok(false);
        };
        let grace =
            if argv.take_word("GRACE") { argv.duration("GRACE", Span::ZERO, bounds.lease_max)? } else { Span::ZERO };
        match bind.replace(given.with_grace(grace)) {
            None => Ok(true),
            Some(_) => Err(Refused::new("BOUND or BOUNDTO is given twice")),
        }
    }

    pub(crate) fn encode(self, words: &mut impl Words) {
        match self {
            Self::None => return,
            Self::Here { .. } => words.word(b"BOUND"),
            Self::To { client, .. } => named_number(words, "BOUNDTO", Some(client.cast_signed())),
        }
        if !self.grace().is_zero() {
            words.word(b"GRACE");
            words.duration(self.grace());
        }
    }
}

pub(crate) fn owner<'a>(argv: &mut Argv<'a>) -> Result<&'a [u8], Refused> {
    argv.text("owner", OWNER_MAX)
}

pub(crate) fn lease(argv: &mut Argv<'_>, bounds: Bounds) -> Result<Span, Refused> {
    argv.duration("lease", LEASE_LEAST, bounds.lease_max)
}

/// `WAIT 0` means: try once.
pub(crate) fn wait(argv: &mut Argv<'_>, bounds: Bounds) -> Result<Span, Refused> {
    argv.duration("WAIT", Span::ZERO, bounds.wait_max)
}

fn fence(argv: &mut Argv<'_>) -> Result<u64, Refused> {
    argv.number("FENCE", 1..=FENCE_MAX as i64).map(|fence| fence as u64)
}

/// `RENEW key owner lease [FENCE f] [<BOUND | BOUNDTO client-id> [GRACE d]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub lease: Span,
    pub fence: Option<u64>,
    pub bind: Bind,
}

impl<'a> RenewCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], bounds: Bounds, usage: &'static str) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, usage);
        let (key, owner, lease) = (argv.bytes("key")?, owner(&mut argv)?, lease(&mut argv, bounds)?);
        let (mut given_fence, mut bind) = (None, None);
        while let Some(word) = argv.word() {
            if word.is("FENCE") {
                once(&mut given_fence, "FENCE", fence(&mut argv)?)?;
            } else if !Bind::take(&mut bind, word, &mut argv, bounds)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, owner, lease, fence: given_fence, bind: bind.unwrap_or_default() })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        words.duration(self.lease);
        named_number(words, "FENCE", self.fence.map(u64::cast_signed));
        self.bind.encode(words);
    }
}

/// `RELEASE`, `LEAVE` and `CHECK`: `key owner [FENCE f]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub fence: Option<u64>,
}

impl<'a> OwnedCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], usage: &'static str) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, usage);
        let (key, owner) = (argv.bytes("key")?, owner(&mut argv)?);
        let mut given_fence = None;
        while let Some(word) = argv.word() {
            if !word.is("FENCE") {
                return Err(argv.unexpected(word.0));
            }
            once(&mut given_fence, "FENCE", fence(&mut argv)?)?;
        }
        Ok(Self { key, owner, fence: given_fence })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        named_number(words, "FENCE", self.fence.map(u64::cast_signed));
    }
}

/// `INFO key [LIMIT n]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoCall<'a> {
    pub key: &'a [u8],
    pub limit: usize,
}

impl<'a> InfoCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], usage: &'static str) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, usage);
        let key = argv.bytes("key")?;
        let mut limit = None;
        while let Some(word) = argv.word() {
            if !word.is("LIMIT") {
                return Err(argv.unexpected(word.0));
            }
            once(&mut limit, "LIMIT", argv.number("LIMIT", 0..=INFO_LIMIT_MAX as i64)?)?;
        }
        Ok(Self { key, limit: limit.map_or(INFO_LIMIT_DEFAULT as usize, |limit| limit as usize) })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        let limit = self.limit.min(INFO_LIMIT_MAX as usize) as u32;
        named_number(words, "LIMIT", (limit != INFO_LIMIT_DEFAULT).then_some(limit));
    }
}

/// `["GRANTED", fence, lease_ms, 0]` or `["LOST", reason]`.
pub fn write_renewed(renewed: &Renewed, sink: &mut (impl Sink + ?Sized)) {
    match renewed {
        Renewed::Granted(grant) => {
            sink.array(4);
            sink.text(b"GRANTED");
            sink.integer(grant.fence as i64);
            sink.integer(grant.lease.floor_ms());
            sink.integer(0);
        }
        Renewed::Lost(reason) => write_lost(*reason, sink),
    }
}

/// `["RELEASED", held_ms]` or `["LOST", reason]`.
pub fn write_released(released: &Released, sink: &mut (impl Sink + ?Sized)) {
    match released {
        Released::Released { held } => {
            sink.array(2);
            sink.text(b"RELEASED");
            sink.integer(held.floor_ms());
        }
        Released::Lost(reason) => write_lost(*reason, sink),
    }
}

/// `["LOST", reason]`.
pub fn write_lost(reason: Reason, sink: &mut (impl Sink + ?Sized)) {
    sink.array(2);
    sink.text(b"LOST");
    sink.text(reason.text().as_bytes());
}

/// One who holds, for INFO.
#[derive(Debug)]
pub struct HolderRow<'a> {
    pub holder: &'a Holder,
    pub remaining: Span,
    /// The grace, if it is bound to a connection.
    pub bound: Option<Span>,
}

/// One who waits, for INFO.
#[derive(Debug)]
pub struct WaiterRow<'a> {
    pub owner: &'a [u8],
    /// `exclusive`, `shared`, or the priority of a bulkhead's waiter.
    pub standing: Standing,
    pub waited: Span,
}

#[derive(Debug, Clone, Copy)]
pub enum Standing {
    Mode(&'static str),
    Priority(u8),
}

/// What INFO shows: the first few of each, and how many there are.
#[derive(Debug)]
pub struct InfoView<'a> {
    pub holders: Vec<HolderRow<'a>>,
    pub holders_total: usize,
    pub waiters: Vec<WaiterRow<'a>>,
    pub waiters_total: usize,
    pub last_fence: u64,
}

/// A map, with a map for each holder and waiter.
pub fn write_info(view: &InfoView<'_>, now: Instant, sink: &mut (impl Sink + ?Sized)) {
    sink.map(6);
    sink.text(b"holders");
    sink.array(view.holders.len());
    for HolderRow { holder, remaining, bound } in &view.holders {
        sink.map(8);
        sink.text(b"owner");
        sink.text(holder.owner());
        sink.text(b"fence");
        sink.integer(holder.fence as i64);
        sink.text(b"held_ms");
        sink.integer(holder.held(now).floor_ms());
        sink.text(b"remaining_ms");
        sink.integer(remaining.ceil_ms());
        sink.text(b"mode");
        sink.text(holder.mode().text().as_bytes());
        sink.text(b"meta");
        match holder.meta() {
            [] => sink.null(),
            meta => sink.text(meta),
        }
        sink.text(b"bound");
        sink.integer(i64::from(bound.is_some()));
        sink.text(b"grace_ms");
        sink.integer(bound.unwrap_or_default().ceil_ms());
    }
    sink.text(b"holders_total");
    sink.integer(view.holders_total as i64);
    sink.text(b"waiters");
    sink.array(view.waiters.len());
    for WaiterRow { owner, standing, waited } in &view.waiters {
        sink.map(3);
        sink.text(b"owner");
        sink.text(owner);
        match standing {
            Standing::Mode(mode) => {
                sink.text(b"mode");
                sink.text(mode.as_bytes());
            }
            Standing::Priority(priority) => {
                sink.text(b"priority");
                sink.integer(i64::from(*priority));
            }
        }
        sink.text(b"waited_ms");
        sink.integer(waited.floor_ms());
    }
    sink.text(b"waiters_total");
    sink.integer(view.waiters_total as i64);
    sink.text(b"last_fence");
    sink.integer(view.last_fence as i64);
    // What is stored was granted once.
    sink.text(b"exists");
    sink.integer(i64::from(view.last_fence != 0));
}
