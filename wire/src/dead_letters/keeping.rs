//! HOLD, PURGE and SEEN: what is kept, what is removed, and what was looked at.

use resil_core::dead_letters::{self, HoldTarget, Place, PurgeRequest};
use resil_core::limits::{FILL_MAX, LEDGER_TEXT_MAX, PURGE_MAX, RETENTION, TEXT_MAX};

use super::{By, Choice, ID};
use crate::argv::{Argv, Refused, Word, missing, quoted};
use crate::bound::{Length, Named, Number, Text};
use crate::command::{Allowed, Arguments};
use crate::pages;
use crate::reply::{Sink, Unexpected, Value, integers};
use crate::words::Words;

const AGGREGATE: Text = Text::new("AGGREGATE", LEDGER_TEXT_MAX);
const REASON: Text = Text::new("REASON", TEXT_MAX);
const OLDER: Length = Length::new("OLDER", (RETENTION, FILL_MAX));
const STATE: Choice<Place> =
    Choice { name: "STATE", all: &[Place::Dead, Place::Resolved, Place::Archived], text: Place::text };
const LIMIT: Number = Number::count("LIMIT", PURGE_MAX as u32);
const ALERT: Number = Number::new("alert", 1..=i64::MAX);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldCall<'a> {
    pub key: &'a [u8],
    pub target: HoldTarget<'a>,
    /// ON, or OFF.
    pub is_on: bool,
    pub reason: Option<&'a [u8]>,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for HoldCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let target = if names_aggregate(&argv) {
            argv.take_word("AGGREGATE");
            HoldTarget::Aggregate(AGGREGATE.take(&mut argv)?)
        } else {
            HoldTarget::Id(ID.take(&mut argv)?)
        };
        let is_on = on_or_off(&mut argv)?;
        let (mut reason, mut by) = (None, By::default());
        while let Some(word) = argv.word() {
            if word.is("REASON") {
                REASON.take_once(&mut reason, &mut argv)?;
            } else if !by.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(Self { key, target, is_on, reason, by })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        match self.target {
            HoldTarget::Id(id) => ID.check(id)?,
            HoldTarget::Aggregate(aggregate) => AGGREGATE.check(aggregate)?,
        }
        REASON.check_given(self.reason)?;
        self.by.check()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        match self.target {
            HoldTarget::Id(id) => words.word(id),
            HoldTarget::Aggregate(aggregate) => AGGREGATE.write_given(Some(aggregate), words),
        }
        words.word(if self.is_on { b"ON" } else { b"OFF" });
        REASON.write_given(self.reason, words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// An id may be spelled like the option: `AGGREGATE ON` is the entry, `AGGREGATE a ON` and `AGGREGATE ON ON` are aggregates.
fn names_aggregate(argv: &Argv<'_>) -> bool {
    let is_mark = |word: Option<Word<'_>>| word.is_some_and(|word| word.is("ON") || word.is("OFF"));
    argv.peek(0).is_some_and(|word| word.is("AGGREGATE")) && (is_mark(argv.peek(2)) || !is_mark(argv.peek(1)))
}

fn on_or_off(argv: &mut Argv<'_>) -> Result<bool, Refused> {
    let given = argv.bytes("ON or OFF")?;
    match Word(given) {
        word if word.is("ON") => Ok(true),
        word if word.is("OFF") => Ok(false),
        _ => Err(Refused::new(format_args!("HOLD must be ON or OFF, got {}", quoted(given)))),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeCall<'a> {
    pub key: &'a [u8],
    pub request: PurgeRequest,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for PurgeCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let (mut older, mut place, mut limit, mut by) = (None, None, None, By::default());
        while let Some(word) = argv.word() {
            if !OLDER.take_if(word, &mut older, &mut argv)?
                && !STATE.take_if(word, &mut place, &mut argv)?
                && !LIMIT.take_if(word, &mut limit, &mut argv)?
                && !by.take(word, &mut argv)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        let older = older.ok_or_else(|| missing("OLDER", &pages::DLQ_PURGE))?;
        let limit = limit.map_or(PURGE_MAX, |limit: u32| limit as usize);
        Ok(Self { key, request: PurgeRequest { older, place, limit }, by })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        let PurgeRequest { older, place, limit } = self.request;
        OLDER.check(older)?;
        STATE.check_given(place)?;
        LIMIT.check(limit as i64)?;
        self.by.check()
    }

    fn encode(&self, words: &mut impl Words) {
        let PurgeRequest { older, place, limit } = self.request;
        words.word(self.key);
        OLDER.write_given(Some(older), words);
        STATE.write_given(place, words);
        LIMIT.write_given((limit != PURGE_MAX).then_some(limit as u64), words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// PURGE: `[purged, left]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purged {
    pub purged: i64,
    pub left: i64,
}

impl TryFrom<dead_letters::Purged> for Purged {
    type Error = Refused;

    fn try_from(purged: dead_letters::Purged) -> Result<Self, Refused> {
        match purged {
            dead_letters::Purged::Purged { purged, left } => Ok(Self { purged: purged as i64, left: left as i64 }),
            dead_letters::Purged::ClockJumped => {
                Err(Refused::new("the clock has jumped by more than a day; nothing is purged for a day"))
            }
        }
    }
}

impl Purged {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(2);
        sink.integer(self.purged);
        sink.integer(self.left);
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let [purged, left] = integers(value.array()?)?;
        Ok(Self { purged, left })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCall<'a> {
    pub key: &'a [u8],
    pub alert: u64,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for SeenCall<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let (key, alert) = (argv.bytes("key")?, ALERT.read(&mut argv)?);
        Ok(Self { key, alert, by: By::finish(argv)? })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Named::check(ALERT, self.alert)?;
        self.by.check()
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        Named::write(ALERT, self.alert, words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}
