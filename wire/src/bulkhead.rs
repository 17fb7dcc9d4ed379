//! `RES.BULKHEAD`: ENTER; [`holding`](crate::holding) has the subcommands it shares with `RES.LOCK`.

use resil_core::Span;
use resil_core::limits::{HOLDERS_MAX, WAITERS_CEILING};
use resil_core::lock::{Busy, Grant};

use crate::argv::{Argv, Refused, once};
use crate::bound::{Named, Number};
use crate::command::{Allowed, Arguments};
use crate::holding::{Bind, OWNER, Wait, lease};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

/// The priority of a caller who names none: 0 is served first, 9 last.
pub const PRIORITY_DEFAULT: u8 = 5;

const MAX: Number = Number::count("max", HOLDERS_MAX as u32);
const QUEUE: Number = Number::new("QUEUE", 0..=WAITERS_CEILING as i64);
const PRIORITY: Number = Number::new("PRIORITY", 0..=9);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnterCall<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub max: u32,
    pub lease: Span,
    pub wait: Wait,
    pub queue: u32,
    pub priority: u8,
    pub bind: Bind,
}

impl<'a> Arguments<'a> for EnterCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, owner) = (argv.bytes("key")?, OWNER.take(&mut argv)?);
        let max = MAX.take_u32(&mut argv)?;
        let lease = lease(allowed).take(&mut argv)?;
        let (mut wait, mut queue, mut priority, mut bind) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("QUEUE") {
                QUEUE.take_once(&mut queue, &mut argv)?;
            } else if word.is("PRIORITY") {
                once(&mut priority, "PRIORITY", PRIORITY.take(&mut argv)? as u8)?;
            } else if !Wait::take(&mut wait, word, &mut argv, allowed)?
                && !Bind::take(&mut bind, word, &mut argv, allowed)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self {
            key,
            owner,
            max,
            lease,
            wait: wait.unwrap_or_default(),
            queue: queue.unwrap_or(max),
            priority: priority.unwrap_or(PRIORITY_DEFAULT),
            bind: bind.unwrap_or_default(),
        })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        OWNER.check(self.owner)?;
        MAX.check(self.max.into())?;
        lease(allowed).check(self.lease)?;
        self.wait.check(allowed)?;
        QUEUE.check(self.queue.into())?;
        PRIORITY.check(self.priority.into())?;
        self.bind.check(allowed)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.owner);
        words.number(self.max.into());
        words.duration(self.lease);
        self.wait.encode(words);
        // As many may wait as may be inside, by default.
        QUEUE.write_given((self.queue != self.max).then_some(self.queue), words);
        PRIORITY.write_given((self.priority != PRIORITY_DEFAULT).then_some(u32::from(self.priority)), words);
        self.bind.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

/// ENTER: `["GRANTED", active, queued, lease_ms, waited_ms]`, or `["FULL" | "TIMEOUT", active, queued, retry_after_ms]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entered {
    Granted {
        active: i64,
        queued: i64,
        lease_ms: i64,
        waited_ms: i64,
    },
    /// It did not wait, or the queue was full.
    Full {
        active: i64,
        queued: i64,
        retry_after_ms: i64,
    },
    /// It waited in vain.
    Timeout {
        active: i64,
        queued: i64,
        retry_after_ms: i64,
    },
}

impl From<Grant> for Entered {
    /// Time a caller may rely on, or has spent, rounds down.
    fn from(grant: Grant) -> Self {
        Self::Granted {
            active: grant.active as i64,
            queued: grant.queued as i64,
            lease_ms: grant.lease.floor_ms(),
            waited_ms: grant.waited.floor_ms(),
        }
    }
}

impl Entered {
    /// It did not wait, or the queue was full. Time to wait rounds up.
    pub fn full(busy: &Busy) -> Self {
        let (active, queued) = (busy.active as i64, busy.queued as i64);
        Self::Full { active, queued, retry_after_ms: busy.retry_after.ceil_ms() }
    }

    /// It waited in vain.
    pub fn timeout(busy: &Busy) -> Self {
        let (active, queued) = (busy.active as i64, busy.queued as i64);
        Self::Timeout { active, queued, retry_after_ms: busy.retry_after.ceil_ms() }
    }

    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Granted { active, queued, lease_ms, waited_ms } => {
                sink.verdict("GRANTED", &[*active, *queued, *lease_ms, *waited_ms]);
            }
            Self::Full { active, queued, retry_after_ms } => {
                sink.verdict("FULL", &[*active, *queued, *retry_after_ms]);
            }
            Self::Timeout { active, queued, retry_after_ms } => {
                sink.verdict("TIMEOUT", &[*active, *queued, *retry_after_ms]);
            }
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let word = fields.text()?;
        let (active, queued) = (fields.integer()?, fields.integer()?);
        let entered = match word.as_slice() {
            b"GRANTED" => Self::Granted { active, queued, lease_ms: fields.integer()?, waited_ms: fields.integer()? },
            b"FULL" => Self::Full { active, queued, retry_after_ms: fields.integer()? },
            b"TIMEOUT" => Self::Timeout { active, queued, retry_after_ms: fields.integer()? },
            _ => return Err(Unexpected("GRANTED, FULL or TIMEOUT")),
        };
        fields.finish(entered)
    }
}
