//! `RES.SFLIGHT` and its subcommands: the arguments, their bounds, the replies.

use std::sync::Arc;

use resil_core::lease::ends_for;
use resil_core::limits::{TEXT_MAX, TTL_MAX};
use resil_core::lock::Reason;
use resil_core::single_flight::{self, Abandoned, Flight, Lead, Seen, look};
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, quoted};
use crate::bound::{Length, Named, Text};
use crate::command::{Allowed, Arguments, Reply};
use crate::holding::{Bind, Wait, lease, read_reason, write_lost};
use crate::idempotency::TOKEN;
use crate::reply::{Sink, Unexpected, Value};
use crate::words::{Words, unless_zero};

const TTL: Length = Length::new("ttl", (Span::ZERO, TTL_MAX));
const STALE: Length = Length::new("STALE", (Span::ZERO, TTL_MAX));
const RETRY: Length = Length::new("RETRY", (Span::from_ms(1), TTL_MAX));
const ERROR: Text = Text::new("ERROR", TEXT_MAX);

fn value_text(allowed: &Allowed) -> Text {
    Text::or_empty("VALUE", allowed.value_max)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub wait: Wait,
    pub bind: Bind,
}

impl<'a> Arguments<'a> for JoinCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let (mut wait, mut bind) = (None, None);
        while let Some(word) = argv.word() {
            if !Wait::take(&mut wait, word, &mut argv, allowed)? && !Bind::take(&mut bind, word, &mut argv, allowed)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, token, lease, wait: wait.unwrap_or_default(), bind: bind.unwrap_or_default() })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        lease(allowed).check(self.lease)?;
        self.wait.check(allowed)?;
        self.bind.check(allowed)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        self.wait.encode(words);
        self.bind.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

/// What a leader brings, as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brought<'a> {
    Value { bytes: &'a [u8], stale: Span },
    Empty,
    Error { text: &'a [u8] },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub ttl: Span,
    pub brought: Brought<'a>,
}

impl<'a> Arguments<'a> for PublishCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token, ttl) = (argv.bytes("key")?, TOKEN.take(&mut argv)?, TTL.take(&mut argv)?);
        let kind = argv.bytes("VALUE, EMPTY or ERROR")?;
        let brought = if Word(kind).is("VALUE") {
            let bytes = value_text(allowed).take(&mut argv)?;
            let stale = if argv.take_word("STALE") { STALE.take(&mut argv)? } else { Span::ZERO };
            Brought::Value { bytes, stale }
        } else if Word(kind).is("EMPTY") {
            Brought::Empty
        } else if Word(kind).is("ERROR") {
            Brought::Error { text: ERROR.take(&mut argv)? }
        } else {
            return Err(Refused::new(format_args!("expected VALUE, EMPTY or ERROR, got {}", quoted(kind))));
        };
        argv.finish()?;
        Ok(Self { key, token, ttl, brought })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        TTL.check(self.ttl)?;
        match self.brought {
            Brought::Value { bytes, stale } => {
                value_text(allowed).check(bytes)?;
                STALE.check(stale)
            }
            Brought::Empty => Ok(()),
            Brought::Error { text } => ERROR.check(text),
        }
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.ttl);
        match self.brought {
            Brought::Value { bytes, stale } => {
                words.word(b"VALUE");
                words.word(bytes);
                STALE.write_given(unless_zero(stale), words);
            }
            Brought::Empty => words.word(b"EMPTY"),
            Brought::Error { text } => ERROR.write_given(Some(text), words),
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbandonCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub retry: Option<Span>,
}

impl<'a> Arguments<'a> for AbandonCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        let mut retry = None;
        while let Some(word) = argv.word() {
            if !word.is("RETRY") {
                return Err(argv.unexpected(word.0));
            }
            RETRY.take_once(&mut retry, &mut argv)?;
        }
        Ok(Self { key, token, retry })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        RETRY.check_given(self.retry)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        RETRY.write_given(self.retry, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// The reply is 1 if there was anything to invalidate, else 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidateCall<'a> {
    pub key: &'a [u8],
    pub soft: bool,
}

impl<'a> Arguments<'a> for InvalidateCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let soft = argv.take_word("SOFT");
        argv.finish()?;
        Ok(Self { key, soft })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        if self.soft {
            words.word(b"SOFT");
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// JOIN and GET: `["LEAD", fence, stale value or nil, waited_ms]`, `["VALUE", bytes, age_ms, fresh_ms]`,
/// `["STALE", bytes, age_ms]`, `["EMPTY", age_ms]`, `["ERROR", text]`, `["BUSY", remaining_ms]` or `["MISS"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// Only JOIN.
    Lead {
        fence: u64,
        stale: Option<Arc<[u8]>>,
        waited_ms: i64,
    },
    Value {
        bytes: Arc<[u8]>,
        age_ms: i64,
        fresh_ms: i64,
    },
    Stale {
        bytes: Arc<[u8]>,
        age_ms: i64,
    },
    Empty {
        age_ms: i64,
    },
    Error {
        text: Arc<[u8]>,
    },
    Busy {
        remaining_ms: i64,
    },
    /// Only GET.
    Miss,
}

impl From<Lead> for Joined {
    fn from(lead: Lead) -> Self {
        Self::Lead { fence: lead.fence, stale: lead.stale, waited_ms: lead.waited.floor_ms() }
    }
}

impl From<Seen> for Joined {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Value { bytes, age, fresh } => {
                Self::Value { bytes, age_ms: age.floor_ms(), fresh_ms: fresh.floor_ms() }
            }
            Seen::Stale { bytes, age } => Self::Stale { bytes, age_ms: age.floor_ms() },
            Seen::Empty { age } => Self::Empty { age_ms: age.floor_ms() },
            Seen::Error { text } => Self::Error { text },
            Seen::Busy { remaining } => Self::Busy { remaining_ms: remaining.ceil_ms() },
            Seen::Miss => Self::Miss,
        }
    }
}

impl Joined {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Lead { fence, stale, waited_ms } => {
                sink.array(4);
                sink.text(b"LEAD");
                sink.integer(fence.cast_signed());
                sink.text_or_null(stale.as_deref());
                sink.integer(*waited_ms);
            }
            Self::Value { bytes, age_ms, fresh_ms } => {
                sink.array(4);
                sink.text(b"VALUE");
                sink.text(bytes);
                sink.integer(*age_ms);
                sink.integer(*fresh_ms);
            }
            Self::Stale { bytes, age_ms } => {
                sink.array(3);
                sink.text(b"STALE");
                sink.text(bytes);
                sink.integer(*age_ms);
            }
            Self::Empty { age_ms } => sink.verdict("EMPTY", &[*age_ms]),
            Self::Error { text } => {
                sink.array(2);
                sink.text(b"ERROR");
                sink.text(text);
            }
            Self::Busy { remaining_ms } => sink.verdict("BUSY", &[*remaining_ms]),
            Self::Miss => sink.verdict("MISS", &[]),
        }
    }

    pub fn read_join(value: Value) -> Result<Self, Unexpected> {
        match Self::read(value)? {
            Self::Miss => Err(Unexpected("a reply of JOIN")),
            joined => Ok(joined),
        }
    }

    pub fn read_get(value: Value) -> Result<Self, Unexpected> {
        match Self::read(value)? {
            Self::Lead { .. } => Err(Unexpected("a reply of GET")),
            joined => Ok(joined),
        }
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let joined = match fields.text()?.as_slice() {
            b"LEAD" => Self::Lead {
                fence: fields.number()?,
                stale: fields.text_or_null()?.map(Into::into),
                waited_ms: fields.integer()?,
            },
            b"VALUE" => {
                Self::Value { bytes: fields.text()?.into(), age_ms: fields.integer()?, fresh_ms: fields.integer()? }
            }
            b"STALE" => Self::Stale { bytes: fields.text()?.into(), age_ms: fields.integer()? },
            b"EMPTY" => Self::Empty { age_ms: fields.integer()? },
            b"ERROR" => Self::Error { text: fields.text()?.into() },
            b"BUSY" => Self::Busy { remaining_ms: fields.integer()? },
            b"MISS" => Self::Miss,
            _ => return Err(Unexpected("LEAD, VALUE, STALE, EMPTY, ERROR, BUSY or MISS")),
        };
        fields.finish(joined)
    }
}

/// PUBLISH: `["PUBLISHED", followers]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    Published { followers: i64 },
    Lost(Reason),
}

impl From<single_flight::Published> for Published {
    fn from(published: single_flight::Published) -> Self {
        match published {
            single_flight::Published::Published { followers } => Self::Published { followers: followers as i64 },
            single_flight::Published::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl Published {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Published { followers } => sink.verdict("PUBLISHED", &[*followers]),
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let published = match fields.text()?.as_slice() {
            b"PUBLISHED" => Self::Published { followers: fields.integer()? },
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("PUBLISHED or LOST")),
        };
        fields.finish(published)
    }
}

impl From<Abandoned> for Reply {
    fn from(abandoned: Abandoned) -> Self {
        Self::Abandoned(match abandoned {
            Abandoned::Abandoned => None,
            Abandoned::Lost(reason) => Some(reason),
        })
    }
}

/// What INFO shows, as a map.
pub fn write_info(
    flight: &Flight,
    followers: usize,
    promoted_at: Option<Instant>,
    now: Instant,
    sink: &mut (impl Sink + ?Sized),
) {
    let (value, age, bytes) = match look(flight, now) {
        Seen::Value { bytes, age, .. } => ("fresh", age, bytes.len() as i64),
        Seen::Stale { bytes, age } => ("stale", age, bytes.len() as i64),
        Seen::Empty { age } => ("empty", age, 0),
        Seen::Error { .. } | Seen::Busy { .. } | Seen::Miss => ("none", Span::ZERO, -1),
    };
    let cached = flight.value.as_ref();
    let leader = flight
        .leader
        .as_ref()
        .map(|leader| (&*leader.token, leader.fence, now.until(ends_for(leader.ends, leader.lease, promoted_at, now))));
    let leader = leader.filter(|(_, _, remaining)| !remaining.is_zero());
    let pause = flight.paused(now);
    sink.map(12);
    sink.text(b"value");
    sink.text(value.as_bytes());
    sink.text(b"age_ms");
    sink.integer(age.floor_ms());
    sink.text(b"fresh_ms");
    sink.integer(cached.map_or(0, |cached| now.until(cached.fresh_until).floor_ms()));
    sink.text(b"stale_ms");
    sink.integer(cached.map_or(0, |cached| now.until(cached.stale_until).floor_ms()));
    sink.text(b"bytes");
    sink.integer(bytes);
    sink.text(b"leader");
    match leader {
        Some((token, ..)) => sink.text(token),
        None => sink.null(),
    }
    sink.text(b"fence");
    sink.integer(leader.map_or(flight.last_fence, |(_, fence, _)| fence) as i64);
    sink.text(b"remaining_ms");
    sink.integer(leader.map_or(0, |(_, _, remaining)| remaining.ceil_ms()));
    sink.text(b"paused_ms");
    sink.integer(pause.map_or(0, |pause| now.until(pause.until).ceil_ms()));
    sink.text(b"error");
    match pause.and_then(|pause| pause.error.as_ref()) {
        Some(text) => sink.text(text),
        None => sink.null(),
    }
    sink.text(b"followers");
    sink.integer(followers as i64);
    sink.text(b"exists");
    sink.integer(i64::from(!flight.is_nothing()));
}
