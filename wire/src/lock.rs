//! `RES.LOCK`: ACQUIRE, RENEW and BREAK; [`holding`](crate::holding) has the subcommands it shares with `RES.BULKHEAD`.

use resil_core::Span;
use resil_core::limits::{FENCE_MAX, OWNER_MAX, TEXT_MAX};
use resil_core::lock::{Busy, Grant, Raised};

use crate::argv::{Argv, Refused, once};
use crate::bound::{Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::holding::{Bind, OWNER, RenewCall, Wait, lease};
use crate::reply::{Fields, Sink, Unexpected, Value};
use crate::words::{Words, unless_empty};

const META: Text = Text::new("META", OWNER_MAX);
const RAISE: Number = Number::new("RAISE", 1..=FENCE_MAX as i64);
const ACTOR: Text = Text::new("ACTOR", TEXT_MAX);
const REASON: Text = Text::new("REASON", TEXT_MAX);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub lease: Span,
    pub wait: Wait,
    pub shared: bool,
    pub bind: Bind,
    pub meta: &'a [u8],
}

impl<'a> Arguments<'a> for AcquireCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, owner) = (argv.bytes("key")?, OWNER.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let (mut wait, mut shared, mut bind, mut meta) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("SHARED") {
                once(&mut shared, "SHARED", ())?;
            } else if word.is("META") {
                META.take_once(&mut meta, &mut argv)?;
            } else if !Wait::take(&mut wait, word, &mut argv, allowed)?
                && !Bind::take(&mut bind, word, &mut argv, allowed)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            owner,
            lease,
            wait: wait.unwrap_or_default(),
            shared: shared.is_some(),
            bind: bind.unwrap_or_default(),
            meta: meta.unwrap_or_default(),
        })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        OWNER.check(self.owner)?;
        lease(allowed).check(self.lease)?;
        self.wait.check(allowed)?;
        self.bind.check(allowed)?;
        META.check_given(unless_empty(self.meta))
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        words.duration(self.lease);
        self.wait.encode(words);
        if self.shared {
            words.word(b"SHARED");
        }
        self.bind.encode(words);
        META.write_given(unless_empty(self.meta), words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

/// ACQUIRE: `["GRANTED", fence, lease_ms, waited_ms]`, or `["TAKEN" | "TIMEOUT", holder, remaining_ms, waiters]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    Granted {
        fence: u64,
        lease_ms: i64,
        waited_ms: i64,
    },
    /// It did not wait, or the queue was full.
    Taken(Taken),
    /// It waited in vain.
    Timeout(Taken),
}

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// `None` if only the queue is in the way.
    pub holder: Option<Vec<u8>>,
    pub remaining_ms: i64,
    pub waiters: i64,
}

impl From<Grant> for Acquired {
    /// Time a caller may rely on, or has spent, rounds down.
    fn from(grant: Grant) -> Self {
        let (lease_ms, waited_ms) = (grant.lease.floor_ms(), grant.waited.floor_ms());
        Self::Granted { fence: grant.fence, lease_ms, waited_ms }
    }
}

impl From<Busy> for Taken {
    /// Time to wait rounds up.
    fn from(busy: Busy) -> Self {
        let holder = (!busy.holder.is_empty()).then(|| busy.holder.into_vec());
        Self { holder, remaining_ms: busy.remaining.ceil_ms(), waiters: busy.queued as i64 }
    }
}

impl Acquired {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Granted { fence, lease_ms, waited_ms } => {
                sink.verdict("GRANTED", &[fence.cast_signed(), *lease_ms, *waited_ms]);
            }
            Self::Taken(taken) => taken.write(b"TAKEN", sink),
            Self::Timeout(taken) => taken.write(b"TIMEOUT", sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let acquired = match fields.text()?.as_slice() {
            b"GRANTED" => {
                Self::Granted { fence: fields.number()?, lease_ms: fields.integer()?, waited_ms: fields.integer()? }
            }
            b"TAKEN" => Self::Taken(Taken::read(&mut fields)?),
            b"TIMEOUT" => Self::Timeout(Taken::read(&mut fields)?),
            _ => return Err(Unexpected("GRANTED, TAKEN or TIMEOUT")),
        };
        fields.finish(acquired)
    }
}

impl Taken {
    fn write(&self, word: &[u8], sink: &mut (impl Sink + ?Sized)) {
        sink.array(4);
        sink.text(word);
        sink.text_or_null(self.holder.as_deref());
        sink.integer(self.remaining_ms);
        sink.integer(self.waiters);
    }

    fn read(fields: &mut Fields) -> Result<Self, Unexpected> {
        Ok(Self { holder: fields.text_or_null()?, remaining_ms: fields.integer()?, waiters: fields.integer()? })
    }
}

/// `RENEW key owner lease [FENCE f] [RAISE f] [<BOUND | BOUNDTO client-id> [GRACE d]]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRenewCall<'a> {
    pub renew: RenewCall<'a>,
    /// The fence is at least this from now on.
    pub raise: Option<u64>,
}

impl<'a> From<RenewCall<'a>> for LockRenewCall<'a> {
    fn from(renew: RenewCall<'a>) -> Self {
        Self { renew, raise: None }
    }
}

impl<'a> Arguments<'a> for LockRenewCall<'a> {
    fn parse(argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let mut raise = None;
        let renew = RenewCall::parse_with(argv, allowed, |word, argv| {
            if !word.is("RAISE") {
                return Ok(false);
            }
            RAISE.take_once(&mut raise, argv).map(|()| true)
        })?;
        Ok(Self { renew, raise })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        self.renew.check(allowed)?;
        RAISE.check_given(self.raise)
    }

    fn encode(&self, words: &mut impl Words) {
        self.renew.encode(words);
        RAISE.write_given(self.raise, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.renew.key)
    }
}

/// Why a fence was not raised: nothing was changed. The text is the same from a server and in memory.
pub fn refused_raise(raised: &Raised) -> Option<Refused> {
    match raised {
        Raised::Granted(_) | Raised::Lost(_) => None,
        Raised::TooFarAhead(excess) => Some(Refused::with_code(
            "CLOCK",
            format_args!(
                "RAISE is {} ms further ahead of this server's clock than two fence-jumps: compare the clocks of the servers",
                excess.ceil_ms()
            ),
        )),
        Raised::NotExclusive => {
            Some(Refused::new("RAISE is for the holder of an exclusive lock, and this one is SHARED"))
        }
    }
}

/// The reply is the number of holders there were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakCall<'a> {
    pub key: &'a [u8],
    pub actor: Option<&'a [u8]>,
    pub reason: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for BreakCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let mut call = Self { key: argv.bytes("key")?, actor: None, reason: None };
        while let Some(word) = argv.word() {
            if word.is("ACTOR") {
                ACTOR.take_once(&mut call.actor, &mut argv)?;
            } else if word.is("REASON") {
                REASON.take_once(&mut call.reason, &mut argv)?;
            } else {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        ACTOR.check_given(self.actor)?;
        REASON.check_given(self.reason)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        ACTOR.write_given(self.actor, words);
        REASON.write_given(self.reason, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}
