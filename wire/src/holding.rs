//! What `RES.LOCK` and `RES.BULKHEAD` have in common: owners, leases, waiting, binding, renewing, letting go, INFO.

use resil_core::limits::{FENCE_MAX, INFO_LIMIT_DEFAULT, INFO_LIMIT_MAX, LEASE_LEAST, OWNER_MAX};
use resil_core::lock::{self, Holder, Reason};
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, once};
use crate::bound::{Length, Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::reply::{Fields, Sink, Unexpected, Value};
use crate::words::Words;

pub(crate) const OWNER: Text = Text::new("owner", OWNER_MAX);
const FENCE: Number = Number::new("FENCE", 1..=FENCE_MAX as i64);
const LIMIT: Number = Number::new("LIMIT", 0..=INFO_LIMIT_MAX as i64);
const BOUNDTO: Number = Number::new("BOUNDTO", 1..=i64::MAX);

pub(crate) fn lease(allowed: &Allowed) -> Length {
    Length::new("lease", (LEASE_LEAST, allowed.lease_max))
}

/// `[WAIT d [ASYNC]]`: for how long a call waits if it must, and how. `WAIT 0` means: try once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wait {
    pub length: Span,
    pub manner: Manner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// The connection waits for the reply.
    #[default]
    Blocked,
    /// The reply comes at once, and the verdict later: see [`late`](crate::late).
    Async,
}

impl Wait {
    pub const NONE: Self = Self::blocked(Span::ZERO);

    pub const fn blocked(length: Span) -> Self {
        Self { length, manner: Manner::Blocked }
    }

    pub const fn asynchronous(length: Span) -> Self {
        Self { length, manner: Manner::Async }
    }

    pub fn is_async(self) -> bool {
        self.manner == Manner::Async
    }

    /// For how long the connection is blocked at most.
    pub(crate) fn blocks(self) -> Span {
        if self.is_async() { Span::ZERO } else { self.length }
    }

    fn bound(allowed: &Allowed) -> Length {
        Length::new("WAIT", (Span::ZERO, allowed.wait_max))
    }

    /// Takes `word` if it is WAIT, with the ASYNC that may follow.
    pub(crate) fn take(
        given: &mut Option<Self>,
        word: Word<'_>,
        argv: &mut Argv<'_>,
        allowed: &Allowed,
    ) -> Result<bool, Refused> {
        if !word.is("WAIT") {
            return Ok(false);
        }
        let length = Self::bound(allowed).take(argv)?;
        let manner = if argv.take_word("ASYNC") { Manner::Async } else { Manner::Blocked };
        once(given, "WAIT", Self { length, manner }).map(|()| true)
    }

    pub(crate) fn check(self, allowed: &Allowed) -> Result<(), Refused> {
        Self::bound(allowed).check(self.length)
    }

    pub(crate) fn encode(self, words: &mut impl Words) {
        if self == Self::NONE {
            return;
        }
        words.word(b"WAIT");
        words.duration(self.length);
        if self.is_async() {
            words.word(b"ASYNC");
        }
    }
}

fn grace(allowed: &Allowed) -> Length {
    Length::new("GRACE", (Span::ZERO, allowed.lease_max))
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
        allowed: &Allowed,
    ) -> Result<bool, Refused> {
        let given = if word.is("BOUND") {
            Self::HERE
        } else if word.is("BOUNDTO") {
            Self::to(BOUNDTO.read(argv)?)
        } else {
            return Ok(false);
        };
        let given = if argv.take_word("GRACE") { given.with_grace(grace(allowed).take(argv)?) } else { given };
        match bind.replace(given) {
            None => Ok(true),
            Some(_) => Err(Refused::new("BOUND or BOUNDTO is given twice")),
        }
    }

    pub(crate) fn check(self, allowed: &Allowed) -> Result<(), Refused> {
        if let Self::To { client, .. } = self {
            Named::check(BOUNDTO, client)?;
        }
        grace(allowed).check(self.grace())
    }

    pub(crate) fn encode(self, words: &mut impl Words) {
        match self {
            Self::None => return,
            Self::Here { .. } => words.word(b"BOUND"),
            Self::To { client, .. } => BOUNDTO.write_given(Some(client), words),
        }
        if !self.grace().is_zero() {
            words.word(b"GRACE");
            words.duration(self.grace());
        }
    }
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

impl<'a> Arguments<'a> for RenewCall<'a> {
    fn parse(argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        Self::parse_with(argv, allowed, |_, _| Ok(false))
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        OWNER.check(self.owner)?;
        lease(allowed).check(self.lease)?;
        FENCE.check_given(self.fence)?;
        self.bind.check(allowed)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        words.duration(self.lease);
        FENCE.write_given(self.fence, words);
        self.bind.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

impl<'a> RenewCall<'a> {
    /// `more` takes the words that only one of the commands has.
    pub(crate) fn parse_with(
        mut argv: Argv<'a>,
        allowed: &Allowed,
        mut more: impl FnMut(Word<'a>, &mut Argv<'a>) -> Result<bool, Refused>,
    ) -> Result<Self, Refused> {
        let (key, owner) = (argv.bytes("key")?, OWNER.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let (mut fence, mut bind) = (None, None);
        while let Some(word) = argv.word() {
            if word.is("FENCE") {
                FENCE.take_once(&mut fence, &mut argv)?;
            } else if !more(word, &mut argv)? && !Bind::take(&mut bind, word, &mut argv, allowed)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, owner, lease, fence, bind: bind.unwrap_or_default() })
    }
}

/// `RELEASE`, `LEAVE` and `CHECK`: `key owner [FENCE f]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub fence: Option<u64>,
}

impl<'a> Arguments<'a> for OwnedCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, owner) = (argv.bytes("key")?, OWNER.take(&mut argv)?);
        let mut fence = None;
        while let Some(word) = argv.word() {
            if !word.is("FENCE") {
                return Err(argv.unexpected(word.0));
            }
            FENCE.take_once(&mut fence, &mut argv)?;
        }
        Ok(Self { key, owner, fence })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        OWNER.check(self.owner)?;
        FENCE.check_given(self.fence)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        FENCE.write_given(self.fence, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `INFO key [LIMIT n]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoCall<'a> {
    pub key: &'a [u8],
    pub limit: usize,
}

impl<'a> Arguments<'a> for InfoCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let mut limit = None;
        while let Some(word) = argv.word() {
            if !word.is("LIMIT") {
                return Err(argv.unexpected(word.0));
            }
            LIMIT.take_once(&mut limit, &mut argv)?;
        }
        Ok(Self { key, limit: limit.unwrap_or(INFO_LIMIT_DEFAULT) as usize })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        LIMIT.check(self.limit as i64)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        let limit = (self.limit != INFO_LIMIT_DEFAULT as usize).then_some(self.limit as u64);
        LIMIT.write_given(limit, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// Every RENEW: `["GRANTED", fence, lease_ms, 0]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    Granted { fence: u64, lease_ms: i64 },
    Lost(Reason),
}

impl From<lock::Renewed> for Renewed {
    /// Time a caller may rely on rounds down.
    fn from(renewed: lock::Renewed) -> Self {
        match renewed {
            lock::Renewed::Granted(grant) => Self::Granted { fence: grant.fence, lease_ms: grant.lease.floor_ms() },
            lock::Renewed::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl Renewed {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Granted { fence, lease_ms } => sink.verdict("GRANTED", &[fence.cast_signed(), *lease_ms, 0]),
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let renewed = match fields.text()?.as_slice() {
            b"GRANTED" => {
                let (fence, lease_ms) = (fields.number()?, fields.integer()?);
                if fields.integer()? != 0 {
                    return Err(Unexpected("no time to have been waited for"));
                }
                Self::Granted { fence, lease_ms }
            }
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("GRANTED or LOST")),
        };
        fields.finish(renewed)
    }
}

/// RELEASE and LEAVE: `["RELEASED", held_ms]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    Released { held_ms: i64 },
    Lost(Reason),
}

impl From<lock::Released> for Released {
    fn from(released: lock::Released) -> Self {
        match released {
            lock::Released::Released { held } => Self::Released { held_ms: held.floor_ms() },
            lock::Released::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl Released {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Released { held_ms } => sink.verdict("RELEASED", &[*held_ms]),
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let released = match fields.text()?.as_slice() {
            b"RELEASED" => Self::Released { held_ms: fields.integer()? },
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("RELEASED or LOST")),
        };
        fields.finish(released)
    }
}

/// `["LOST", reason]`.
pub(crate) fn write_lost(reason: Reason, sink: &mut (impl Sink + ?Sized)) {
    sink.array(2);
    sink.text(b"LOST");
    sink.text(reason.text().as_bytes());
}

pub(crate) fn read_reason(fields: &mut Fields) -> Result<Reason, Unexpected> {
    fields.word(Reason::from_text, "the name of a reason")
}

/// ABORT and ABANDON: `[word]`, or `["LOST", reason]`.
pub fn write_given_up(word: &str, lost: Option<Reason>, sink: &mut (impl Sink + ?Sized)) {
    match lost {
        None => sink.verdict(word, &[]),
        Some(reason) => write_lost(reason, sink),
    }
}

pub(crate) fn read_given_up(word: &str, value: Value) -> Result<Option<Reason>, Unexpected> {
    let mut fields = value.into_fields()?;
    let lost = match fields.text()?.as_slice() {
        given if given == word.as_bytes() => None,
        b"LOST" => Some(read_reason(&mut fields)?),
        _ => return Err(Unexpected("that it was given up, or LOST")),
    };
    fields.finish(lost)
}

/// A holder, for INFO.
#[derive(Debug)]
pub struct HolderRow<'a> {
    pub holder: &'a Holder,
    pub remaining: Span,
    /// The grace, if it is bound to a connection.
    pub bound: Option<Span>,
}

/// A waiter, for INFO.
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
