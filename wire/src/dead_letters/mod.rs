//! `RES.DLQ` and its subcommands: the arguments, their bounds, the replies.
//!
//! - `failing`: FAIL and PARK, which bring messages. `taking`: TAKE, DONE, RENEW and RETURN, which handle them.
//! - `governing`: DIAGNOSE, REDRIVE, STOP and CLOSE. `keeping`: HOLD, PURGE and SEEN. `config`: CONFIG.
//! - `showing`: GET, LIST and INFO. `maps`: what they show.
//! - Here: what several of them have in common.
//!
//! A message is never refused for its form: texts and headers may be of any length, and core keeps as much as it can. Only an id,
//! a number, or a payload that is too large (`TOOBIG`) can be wrong.

mod config;
mod failing;
mod governing;
mod keeping;
mod maps;
mod showing;
mod taking;

pub use config::*;
pub use failing::*;
pub use governing::*;
pub use keeping::*;
pub use maps::*;
pub use showing::*;
pub use taking::*;

use resil_core::dead_letters::{Class, Governor, Rate};
use resil_core::limits::{
    CELLS_MAX, ERROR_MAX, FENCE_MAX, INSTANT_MAX_US, LEDGER_TEXT_MAX, OWNER_MAX, PERIOD_MAX, TEXT_MAX, duration_bounds,
};
use resil_core::{Instant, Span};

use crate::argv::{Argv, Refused, Word, quoted};
use crate::bound::{Length, Named, Number, Text};
use crate::words::Words;

const ID: Text = Text::new("id", OWNER_MAX);
const CASE: Number = Number::new("case", 1..=u32::MAX as i64);
const CLASS: Choice<Class> = Choice { name: "CLASS", all: &Class::ALL, text: Class::text };
/// TYPE and AGGREGATE of a filter: what is kept of them.
const TYPE: Text = Text::or_empty("TYPE", LEDGER_TEXT_MAX);
const AGGREGATE: Text = Text::or_empty("AGGREGATE", LEDGER_TEXT_MAX);
/// A group is named after a type and an error.
const GROUP_MAX: usize = LEDGER_TEXT_MAX + 1 + ERROR_MAX;
const SINCE: Moment = Moment("SINCE");
const UNTIL: Moment = Moment("UNTIL");
const ACTOR: Text = Text::new("ACTOR", TEXT_MAX);
const CORRELATION: Text = Text::new("CORRELATION", TEXT_MAX);

/// The fence of a taken entry, under the name it has in the call.
const fn fence(name: &'static str) -> Number {
    Number::new(name, 1..=FENCE_MAX as i64)
}

/// `[ACTOR a] [CORRELATION c]`: who governs, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct By<'a> {
    pub actor: Option<&'a [u8]>,
    pub correlation: Option<&'a [u8]>,
}

impl<'a> By<'a> {
    /// Together with the server's name for the user.
    pub fn governor<'b>(self, user: &'b [u8]) -> Governor<'b>
    where
        'a: 'b,
    {
        Governor { user, actor: self.actor.unwrap_or_default(), correlation: self.correlation.unwrap_or_default() }
    }

    /// Takes `word` if it is ACTOR or CORRELATION.
    fn take(&mut self, word: Word<'_>, argv: &mut Argv<'a>) -> Result<bool, Refused> {
        if word.is("ACTOR") {
            ACTOR.take_once(&mut self.actor, argv)?;
        } else if word.is("CORRELATION") {
            CORRELATION.take_once(&mut self.correlation, argv)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Nothing else may be left.
    fn finish(mut argv: Argv<'a>) -> Result<Self, Refused> {
        let mut by = Self::default();
        while let Some(word) = argv.word() {
            if !by.take(word, &mut argv)? {
                return Err(argv.unexpected(word.0));
            }
        }
        Ok(by)
    }

    fn check(self) -> Result<(), Refused> {
        ACTOR.check_given(self.actor)?;
        CORRELATION.check_given(self.correlation)
    }

    fn encode(self, words: &mut impl Words) {
        ACTOR.write_given(self.actor, words);
        CORRELATION.write_given(self.correlation, words);
    }
}

/// One of a few words.
#[derive(Debug, Clone, Copy)]
struct Choice<T: 'static> {
    name: &'static str,
    all: &'static [T],
    text: fn(T) -> &'static str,
}

impl<T: Copy + PartialEq> Choice<T> {
    fn refused(self, given: &[u8]) -> Refused {
        let allowed: Vec<&str> = self.all.iter().map(|one| (self.text)(*one)).collect();
        Refused::new(format_args!("{} must be one of {}, got {}", self.name, allowed.join(", "), quoted(given)))
    }
}

impl<T: Copy + PartialEq> Named<T> for Choice<T> {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<T, Refused> {
        let given = argv.bytes(self.name)?;
        self.all.iter().copied().find(|one| Word(given).is((self.text)(*one))).ok_or_else(|| self.refused(given))
    }

    fn check(self, value: T) -> Result<(), Refused> {
        if self.all.contains(&value) { Ok(()) } else { Err(self.refused((self.text)(value).as_bytes())) }
    }

    fn write(self, value: T, words: &mut impl Words) {
        words.word((self.text)(value).as_bytes());
    }
}

/// An instant as unix milliseconds. Anything below a millisecond is left out.
#[derive(Debug, Clone, Copy)]
struct Moment(&'static str);

impl Moment {
    fn bound(self) -> Number {
        Number::new(self.0, 0..=INSTANT_MAX_US / 1_000)
    }
}

impl Named<Instant> for Moment {
    fn name(self) -> &'static str {
        self.0
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<Instant, Refused> {
        self.bound().take(argv).map(|ms| Instant::from_us(ms * 1_000))
    }

    fn check(self, at: Instant) -> Result<(), Refused> {
        self.bound().check(unix_ms(at))
    }

    fn write(self, at: Instant, words: &mut impl Words) {
        words.number(unix_ms(at));
    }
}

fn unix_ms(at: Instant) -> i64 {
    at.as_us().div_euclid(1_000)
}

/// `n period`: the rate of a redrive.
#[derive(Debug, Clone, Copy)]
struct Pace(&'static str);

impl Pace {
    const PERIOD: Length = Length::new("period", duration_bounds(PERIOD_MAX));

    const fn count(self) -> Number {
        Number::count(self.0, CELLS_MAX)
    }
}

impl Named<Rate> for Pace {
    fn name(self) -> &'static str {
        self.0
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<Rate, Refused> {
        let count = self.count().take_u32(argv)?;
        Ok(Rate { count, period: Self::PERIOD.take(argv)? })
    }

    fn check(self, rate: Rate) -> Result<(), Refused> {
        self.count().check(rate.count.into())?;
        Self::PERIOD.check(rate.period)
    }

    fn write(self, rate: Rate, words: &mut impl Words) {
        words.number(rate.count.into());
        words.duration(rate.period);
    }
}

/// From nothing to `most`.
const fn at_most(name: &'static str, most: Span) -> Length {
    Length::new(name, (Span::ZERO, most))
}

/// From a millisecond to `most`.
const fn some(name: &'static str, most: Span) -> Length {
    Length::new(name, (Span::from_ms(1), most))
}

fn word_if(is_given: bool, word: &str, words: &mut impl Words) {
    if is_given {
        words.word(word.as_bytes());
    }
}
