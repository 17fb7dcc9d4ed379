//! `RES.SFLIGHT` and its subcommands. What is parsed is what follows the subcommand's name.

use resil_core::lease::ends_for;
use resil_core::limits::{OWNER_MAX, TEXT_MAX, TTL_MAX};
use resil_core::single_flight::{Abandoned, Flight, Lead, Published, Seen, look};
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, once, quoted};
use crate::holding::{Bind, Bounds, lease, wait, write_lost};
use crate::reply::Sink;
use crate::words::{Words, named_duration, named_text, unless_zero};

pub const NAME: &str = "RES.SFLIGHT";
pub const JOIN_USAGE: &str = "RES.SFLIGHT JOIN key token lease [WAIT d] [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const GET_USAGE: &str = "RES.SFLIGHT GET key";
pub const PUBLISH_USAGE: &str = "RES.SFLIGHT PUBLISH key token ttl VALUE bytes [STALE d] | EMPTY | ERROR text";
pub const ABANDON_USAGE: &str = "RES.SFLIGHT ABANDON key token [RETRY d]";
pub const RENEW_USAGE: &str = "RES.SFLIGHT RENEW key token lease [<BOUND | BOUNDTO client-id> [GRACE d]]";
pub const INVALIDATE_USAGE: &str = "RES.SFLIGHT INVALIDATE key [SOFT]";
pub const INFO_USAGE: &str = "RES.SFLIGHT INFO key";

/// What HELP says.
pub const HELP: [&str; 15] = [
    JOIN_USAGE,
    "    [LEAD, fence, stale value or nil, waited_ms], [VALUE, bytes, age_ms, fresh_ms], [STALE, bytes, age_ms],",
    "    [EMPTY, age_ms], [ERROR, text] or [BUSY, remaining_ms]",
    GET_USAGE,
    "    [VALUE, ...], [STALE, ...], [EMPTY, ...], [ERROR, ...] or [MISS]; changes nothing and works on replicas.",
    PUBLISH_USAGE,
    "    What the leader loaded; all followers get it. [PUBLISHED, followers] or [LOST, reason]",
    ABANDON_USAGE,
    "    The leader gives up, and the next follower leads. [ABANDONED] or [LOST, reason]",
    RENEW_USAGE,
    "    The lease ends that much from now. [GRANTED, fence, lease_ms, 0] or [LOST, reason]",
    INVALIDATE_USAGE,
    "    What is known, or being loaded, is out of date. 1 if there was anything, else 0.",
    INFO_USAGE,
    "    Everything about the key, as a map; changes nothing and works on replicas.",
];

fn token<'a>(argv: &mut Argv<'a>) -> Result<&'a [u8], Refused> {
    argv.text("token", OWNER_MAX)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    pub wait: Span,
    pub bind: Bind,
}

impl<'a> JoinCall<'a> {
    pub fn parse(args: &'a [&'a [u8]], bounds: Bounds) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, JOIN_USAGE);
        let (key, token, lease) = (argv.bytes("key")?, token(&mut argv)?, lease(&mut argv, bounds)?);
        let (mut given_wait, mut bind) = (None, None);
        while let Some(word) = argv.word() {
            if word.is("WAIT") {
                once(&mut given_wait, "WAIT", wait(&mut argv, bounds)?)?;
            } else if !Bind::take(&mut bind, word, &mut argv, bounds)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, token, lease, wait: given_wait.unwrap_or_default(), bind: bind.unwrap_or_default() })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        named_duration(words, "WAIT", unless_zero(self.wait));
        self.bind.encode(words);
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

impl<'a> PublishCall<'a> {
    /// `value_max`: the largest value the server takes.
    pub fn parse(args: &'a [&'a [u8]], value_max: usize) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, PUBLISH_USAGE);
        let (key, token) = (argv.bytes("key")?, token(&mut argv)?);
        let ttl = argv.duration("ttl", Span::ZERO, TTL_MAX)?;
        let kind = argv.bytes("VALUE, EMPTY or ERROR")?;
        let brought = if Word(kind).is("VALUE") {
            let bytes = argv.bytes("VALUE")?;
            if bytes.len() > value_max {
                let len = bytes.len();
                return Err(Refused::new(format_args!("VALUE can have at most {value_max} bytes, got {len}")));
            }
            let stale = match argv.word() {
                None => Span::ZERO,
                Some(word) if word.is("STALE") => argv.duration("STALE", Span::ZERO, TTL_MAX)?,
                Some(word) => return Err(argv.unexpected(word.0)),
            };
            Brought::Value { bytes, stale }
        } else if Word(kind).is("EMPTY") {
            Brought::Empty
        } else if Word(kind).is("ERROR") {
            Brought::Error { text: argv.text("ERROR", TEXT_MAX)? }
        } else {
            return Err(Refused::new(format_args!("expected VALUE, EMPTY or ERROR, got {}", quoted(kind))));
        };
        argv.finish()?;
        Ok(Self { key, token, ttl, brought })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.ttl);
        match self.brought {
            Brought::Value { bytes, stale } => {
                named_text(words, "VALUE", Some(bytes));
                named_duration(words, "STALE", unless_zero(stale));
            }
            Brought::Empty => words.word(b"EMPTY"),
            Brought::Error { text } => named_text(words, "ERROR", Some(text)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbandonCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub retry: Option<Span>,
}

impl<'a> AbandonCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, ABANDON_USAGE);
        let (key, token) = (argv.bytes("key")?, token(&mut argv)?);
        let mut retry = None;
        while let Some(word) = argv.word() {
            if !word.is("RETRY") {
                return Err(argv.unexpected(word.0));
            }
            once(&mut retry, "RETRY", argv.duration("RETRY", Span::from_ms(1), TTL_MAX)?)?;
        }
        Ok(Self { key, token, retry })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        named_duration(words, "RETRY", self.retry);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidateCall<'a> {
    pub key: &'a [u8],
    pub soft: bool,
}

impl<'a> InvalidateCall<'a> {
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, INVALIDATE_USAGE);
        let key = argv.bytes("key")?;
        let soft = match argv.word() {
            None => false,
            Some(word) if word.is("SOFT") => true,
            Some(word) => return Err(argv.unexpected(word.0)),
        };
        argv.finish()?;
        Ok(Self { key, soft })
    }

    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        if self.soft {
            words.word(b"SOFT");
        }
    }
}

/// `["LEAD", fence, stale value or nil, waited_ms]`.
pub fn write_lead(lead: &Lead, sink: &mut (impl Sink + ?Sized)) {
    sink.array(4);
    sink.text(b"LEAD");
    sink.integer(lead.fence as i64);
    match &lead.stale {
        Some(bytes) => sink.text(bytes),
        None => sink.null(),
    }
    sink.integer(lead.waited.floor_ms());
}

/// Whatever a follower, or GET, sees.
pub fn write_seen(seen: &Seen, sink: &mut (impl Sink + ?Sized)) {
    match seen {
        Seen::Value { bytes, age, fresh } => {
            sink.array(4);
            sink.text(b"VALUE");
            sink.text(bytes);
            sink.integer(age.floor_ms());
            sink.integer(fresh.floor_ms());
        }
        Seen::Stale { bytes, age } => {
            sink.array(3);
            sink.text(b"STALE");
            sink.text(bytes);
            sink.integer(age.floor_ms());
        }
        Seen::Empty { age } => {
            sink.array(2);
            sink.text(b"EMPTY");
            sink.integer(age.floor_ms());
        }
        Seen::Error { text } => {
            sink.array(2);
            sink.text(b"ERROR");
            sink.text(text);
        }
        Seen::Busy { remaining } => {
            sink.array(2);
            sink.text(b"BUSY");
            sink.integer(remaining.ceil_ms());
        }
        Seen::Miss => {
            sink.array(1);
            sink.text(b"MISS");
        }
    }
}

/// `["PUBLISHED", followers]` or `["LOST", reason]`.
pub fn write_published(published: &Published, sink: &mut (impl Sink + ?Sized)) {
    match published {
        Published::Published { followers } => {
            sink.array(2);
            sink.text(b"PUBLISHED");
            sink.integer(*followers as i64);
        }
        Published::Lost(reason) => write_lost(*reason, sink),
    }
}

/// `["ABANDONED"]` or `["LOST", reason]`.
pub fn write_abandoned(abandoned: &Abandoned, sink: &mut (impl Sink + ?Sized)) {
    match abandoned {
        Abandoned::Abandoned => {
            sink.array(1);
            sink.text(b"ABANDONED");
        }
        Abandoned::Lost(reason) => write_lost(*reason, sink),
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
