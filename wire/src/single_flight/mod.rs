//! `RES.SFLIGHT` and its subcommands: the arguments and their bounds. The replies are in `replies`.
//!
//! A server finds the key behind UNDER by searching for the word. So the bytes of a value come last, where no server searches,
//! and tags come only behind UNDER: neither is ever taken for it.

mod replies;

use resil_core::Span;
use resil_core::limits::{EARLY_MAX, MGET_KEYS_MAX, TAG_MAX, TAGS_MAX, TEXT_MAX, TTL_MAX};
use smallvec::SmallVec;

pub use self::replies::{Joined, Published, SeenMany, write_info};
use crate::argv::{Argv, Refused, Word, missing, once, quoted};
use crate::bound::{Length, Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::holding::{Bind, Wait, lease};
use crate::idempotency::TOKEN;
use crate::pages;
use crate::words::{Words, unless_zero};

const TTL: Length = Length::new("ttl", (Span::ZERO, TTL_MAX));
const STALE: Length = Length::new("STALE", (Span::ZERO, TTL_MAX));
const RETRY: Length = Length::new("RETRY", (Span::from_ms(1), TTL_MAX));
/// A value that is set is kept.
const SET_TTL: Length = Length::new("ttl", (Span::from_ms(1), TTL_MAX));
const TAG: Text = Text::new("TAG", TAG_MAX);
const EARLY: Number = Number::count("EARLY", EARLY_MAX);
const ERROR: Text = Text::new("ERROR", TEXT_MAX);

fn value_text(allowed: &Allowed) -> Text {
    Text::or_empty("VALUE", allowed.value_max)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub lease: Span,
    /// The key of the name it is cached under.
    pub under: Option<&'a [u8]>,
    /// In the last so many percent of its ttl a value is loaded anew, too.
    pub early: Option<u32>,
    pub wait: Wait,
    pub bind: Bind,
}

impl<'a> Arguments<'a> for JoinCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token) = (argv.bytes("key")?, TOKEN.take(&mut argv)?);
        let lease = lease(allowed).take(&mut argv)?;
        let (mut under, mut early, mut wait, mut bind) = (None, None, None, None);
        while let Some(word) = argv.word() {
            if word.is("UNDER") {
                once(&mut under, "UNDER", argv.bytes("UNDER")?)?;
                continue;
            }
            let is_known = EARLY.take_if(word, &mut early, &mut argv)?
                || Wait::take(&mut wait, word, &mut argv, allowed)?
                || Bind::take(&mut bind, word, &mut argv, allowed)?;
            if !is_known {
                return Err(argv.unexpected(word.0));
            }
        }
        let (wait, bind) = (wait.unwrap_or_default(), bind.unwrap_or_default());
        check_under(under, key)?;
        Ok(Self { key, token, lease, under, early, wait, bind })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        lease(allowed).check(self.lease)?;
        EARLY.check_given(self.early)?;
        self.wait.check(allowed)?;
        self.bind.check(allowed)?;
        check_under(self.under, self.key)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.lease);
        write_under(self.under, words);
        EARLY.write_given(self.early, words);
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

/// The tags of a value, or of a CLEAR.
pub type Tags<'a> = SmallVec<[&'a [u8]; 2]>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishCall<'a> {
    pub key: &'a [u8],
    pub token: &'a [u8],
    pub ttl: Span,
    pub under: Option<&'a [u8]>,
    pub tags: Tags<'a>,
    pub brought: Brought<'a>,
}

/// `[UNDER name [TAG tag ...]] [STALE d] <VALUE bytes | EMPTY | ERROR text>`, with STALE behind the value, too. The bytes
/// come last, and a tag only behind UNDER: so a server that looks for UNDER never takes a value for it.
fn take_brought<'a>(
    argv: &mut Argv<'a>,
    allowed: &Allowed,
    may_fail: bool,
) -> Result<(Option<&'a [u8]>, Tags<'a>, Brought<'a>), Refused> {
    let expected = if may_fail { "VALUE, EMPTY or ERROR" } else { "VALUE or EMPTY" };
    let under = if argv.take_word("UNDER") { Some(argv.bytes("UNDER")?) } else { None };
    let (mut tags, mut stale) = (Tags::new(), None);
    while argv.peek(0).is_some_and(|word| word.is("TAG")) {
        take_tag(under, &mut tags, argv)?;
    }
    if argv.take_word("STALE") {
        STALE.take_once(&mut stale, argv)?;
    }
    let kind = argv.bytes(expected)?;
    let brought = if Word(kind).is("VALUE") {
        let bytes = value_text(allowed).take(argv)?;
        if argv.take_word("STALE") {
            STALE.take_once(&mut stale, argv)?;
        }
        Brought::Value { bytes, stale: stale.take().unwrap_or(Span::ZERO) }
    } else if Word(kind).is("EMPTY") {
        Brought::Empty
    } else if may_fail && Word(kind).is("ERROR") {
        Brought::Error { text: ERROR.take(argv)? }
    } else {
        return Err(Refused::new(format_args!("expected {expected}, got {}", quoted(kind))));
    };
    match stale {
        None => Ok((under, tags, brought)),
        Some(_) => Err(Refused::new("STALE goes with VALUE: only a value can be served as stale")),
    }
}

/// The next words are TAG and a tag.
fn take_tag<'a>(under: Option<&[u8]>, tags: &mut Tags<'a>, argv: &mut Argv<'a>) -> Result<(), Refused> {
    argv.word();
    tags.push(TAG.take(argv)?);
    check_tags(under, tags)
}

fn check_tags(under: Option<&[u8]>, tags: &[&[u8]]) -> Result<(), Refused> {
    if !tags.is_empty() && under.is_none() {
        return Err(Refused::new("TAG needs UNDER: the key of the name that remembers its tags"));
    }
    if tags.len() > TAGS_MAX {
        return Err(Refused::new(format_args!("TAG can be given at most {TAGS_MAX} times, got {}", tags.len())));
    }
    tags.iter().try_for_each(|tag| TAG.check(tag))
}

/// The name's key is one of its own.
fn check_under(under: Option<&[u8]>, key: &[u8]) -> Result<(), Refused> {
    match under {
        Some(name) if name == key => Err(Refused::new("UNDER must name another key than the value's")),
        _ => Ok(()),
    }
}

fn write_under(under: Option<&[u8]>, words: &mut impl Words) {
    if let Some(name) = under {
        words.word(b"UNDER");
        words.word(name);
    }
}

fn write_brought(under: Option<&[u8]>, tags: &[&[u8]], brought: &Brought<'_>, words: &mut impl Words) {
    write_under(under, words);
    tags.iter().for_each(|tag| TAG.write_given(Some(tag), words));
    match brought {
        Brought::Value { bytes, stale } => {
            STALE.write_given(unless_zero(*stale), words);
            words.word(b"VALUE");
            words.word(bytes);
        }
        Brought::Empty => words.word(b"EMPTY"),
        Brought::Error { text } => ERROR.write_given(Some(text), words),
    }
}

fn check_brought(
    under: Option<&[u8]>,
    tags: &[&[u8]],
    brought: &Brought<'_>,
    allowed: &Allowed,
) -> Result<(), Refused> {
    check_tags(under, tags)?;
    match brought {
        Brought::Value { bytes, stale } => {
            STALE.check(*stale)?;
            value_text(allowed).check(bytes)
        }
        Brought::Empty => Ok(()),
        Brought::Error { text } => ERROR.check(text),
    }
}

impl<'a> Arguments<'a> for PublishCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, token, ttl) = (argv.bytes("key")?, TOKEN.take(&mut argv)?, TTL.take(&mut argv)?);
        let (under, tags, brought) = take_brought(&mut argv, allowed, true)?;
        argv.finish()?;
        check_under(under, key)?;
        Ok(Self { key, token, ttl, under, tags, brought })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        TOKEN.check(self.token)?;
        TTL.check(self.ttl)?;
        check_brought(self.under, &self.tags, &self.brought, allowed)?;
        check_under(self.under, self.key)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.word(self.token);
        words.duration(self.ttl);
        write_brought(self.under, &self.tags, &self.brought, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// As PUBLISH, from a caller that does not lead. The reply is the number of followers that got the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetCall<'a> {
    pub key: &'a [u8],
    pub ttl: Span,
    pub under: Option<&'a [u8]>,
    pub tags: Tags<'a>,
    /// A value, or that there is none.
    pub brought: Brought<'a>,
}

impl<'a> Arguments<'a> for SetCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (key, ttl) = (argv.bytes("key")?, SET_TTL.take(&mut argv)?);
        let (under, tags, brought) = take_brought(&mut argv, allowed, false)?;
        argv.finish()?;
        check_under(under, key)?;
        Ok(Self { key, ttl, under, tags, brought })
    }

    fn check(&self, allowed: &Allowed) -> Result<(), Refused> {
        SET_TTL.check(self.ttl)?;
        check_tags(self.under, &self.tags)?;
        if let Brought::Error { .. } = self.brought {
            return Err(Refused::new("expected VALUE or EMPTY, got 'ERROR'"));
        }
        check_brought(self.under, &self.tags, &self.brought, allowed)?;
        check_under(self.under, self.key)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        words.duration(self.ttl);
        write_brought(self.under, &self.tags, &self.brought, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// The reply is the generation from which on what is loaded is not out of date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearCall<'a> {
    /// The key of the name.
    pub name: &'a [u8],
    /// Without any, everything under the name.
    pub tags: Tags<'a>,
    pub soft: bool,
}

impl<'a> Arguments<'a> for ClearCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (name, mut tags) = (argv.bytes("name")?, Tags::new());
        while argv.peek(0).is_some_and(|word| word.is("TAG")) {
            take_tag(Some(name), &mut tags, &mut argv)?;
        }
        let soft = argv.take_word("SOFT");
        argv.finish()?;
        Ok(Self { name, tags, soft })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        check_tags(Some(self.name), &self.tags)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.name);
        self.tags.iter().for_each(|tag| TAG.write_given(Some(tag), words));
        if self.soft {
            words.word(b"SOFT");
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightGetCall<'a> {
    pub key: &'a [u8],
    pub under: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for FlightGetCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let under = if argv.take_word("UNDER") { Some(argv.bytes("UNDER")?) } else { None };
        argv.finish()?;
        check_under(under, key)?;
        Ok(Self { key, under })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        check_under(self.under, self.key)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        write_under(self.under, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// Several keys under one name. The name comes first: so all that follows are keys, and a server need not search for a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightMgetCall<'a> {
    pub name: &'a [u8],
    pub keys: SmallVec<[&'a [u8]; 8]>,
}

impl<'a> Arguments<'a> for FlightMgetCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let (name, mut keys) = (argv.bytes("name")?, SmallVec::new());
        while let Some(word) = argv.word() {
            keys.push(word.0);
        }
        let call = Self { name, keys };
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        match self.keys.len() {
            0 => return Err(missing("key", &pages::SFLIGHT_MGET)),
            1..=MGET_KEYS_MAX => {}
            more => {
                return Err(Refused::new(format_args!("key can be given at most {MGET_KEYS_MAX} times, got {more}")));
            }
        }
        if self.keys.contains(&self.name) {
            return Err(Refused::new("name must be another key than the values'"));
        }
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.name);
        self.keys.iter().for_each(|key| words.word(key));
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.name)
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
    /// Published for processes that keep values of this name in their own memory.
    pub under: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for InvalidateCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let soft = argv.take_word("SOFT");
        let under = if argv.take_word("UNDER") { Some(argv.bytes("UNDER")?) } else { None };
        argv.finish()?;
        check_under(under, key)?;
        Ok(Self { key, soft, under })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        check_under(self.under, self.key)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        if self.soft {
            words.word(b"SOFT");
        }
        write_under(self.under, words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}
