//! CONFIG: how a ledger retries. An option that is not named stays as it is, so it is not written either.

use resil_core::Span;
use resil_core::dead_letters::{Class, ConfigChange, Jitter, Pause, RetriesChange};
use resil_core::limits::{BACKOFF_LEAST, BACKOFF_MAX, RETRIES_MAX, TTL_MAX};

use super::{By, CLASS, Pace, at_most, some};
use crate::argv::{Argv, Refused, Word, quoted};
use crate::bound::{Length, Named, Number};
use crate::command::{Allowed, Arguments};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

const RETRIES: Number = Number::new("RETRIES", 0..=RETRIES_MAX as i64);
const BASE: Length = Length::new("BASE", (BACKOFF_LEAST, BACKOFF_MAX));
const CAP: Length = Length::new("CAP", (BACKOFF_LEAST, BACKOFF_MAX));
const PLUS: Number = Number::new("plus", 1..=100);
const CRASHES: Number = Number::count("CRASHES", RETRIES_MAX);
const RATEMAX: Pace = Pace("RATEMAX");
const AFTERMAX: Length = at_most("AFTERMAX", BACKOFF_MAX);
const FOR: Length = some("FOR", TTL_MAX);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerConfigCall<'a> {
    pub key: &'a [u8],
    pub change: ConfigChange,
    pub by: By<'a>,
}

impl<'a> Arguments<'a> for LedgerConfigCall<'a> {
    fn parse(mut argv: Argv<'a>, allowed: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let (mut change, mut by) = (ConfigChange::default(), By::default());
        while let Some(word) = argv.word() {
            if word.is("CLASS") {
                take_class(&mut change.retries, &mut argv)?;
            } else if !JitterKind.take_if(word, &mut change.jitter, &mut argv)?
                && !CRASHES.take_if(word, &mut change.crashes, &mut argv)?
                && !RATEMAX.take_if(word, &mut change.rate_max, &mut argv)?
                && !AFTERMAX.take_if(word, &mut change.after_max, &mut argv)?
                && !Paused.take_if(word, &mut change.paused, &mut argv)?
                && !by.take(word, &mut argv)?
            {
                return Err(argv.unexpected(word.0));
            }
        }
        let call = Self { key, change, by };
        call.check(allowed)?;
        Ok(call)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        let ConfigChange { retries, jitter, crashes, rate_max, after_max, paused } = self.change;
        for RetriesChange { most, base, cap } in retries {
            RETRIES.check_given(most)?;
            BASE.check_given(base)?;
            CAP.check_given(cap)?;
        }
        JitterKind.check_given(jitter)?;
        CRASHES.check_given(crashes)?;
        RATEMAX.check_given(rate_max)?;
        AFTERMAX.check_given(after_max)?;
        Paused.check_given(paused)?;
        self.by.check()?;
        if self.change == ConfigChange::default() {
            let options = "CLASS, JITTER, CRASHES, RATEMAX, AFTERMAX or PAUSED";
            return Err(Refused::new(format_args!("missing options; give at least one of {options}")));
        }
        Ok(())
    }

    fn encode(&self, words: &mut impl Words) {
        let ConfigChange { retries, jitter, crashes, rate_max, after_max, paused } = self.change;
        words.word(self.key);
        for (class, change) in Class::ALL.into_iter().zip(retries) {
            if change != RetriesChange::default() {
                CLASS.write_given(Some(class), words);
                RETRIES.write_given(change.most, words);
                BASE.write_given(change.base, words);
                CAP.write_given(change.cap, words);
            }
        }
        JitterKind.write_given(jitter, words);
        CRASHES.write_given(crashes, words);
        RATEMAX.write_given(rate_max, words);
        AFTERMAX.write_given(after_max, words);
        Paused.write_given(paused, words);
        self.by.encode(words);
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// `CLASS c [RETRIES n] [BASE d] [CAP d]`: what follows the word, at least one of the three.
fn take_class(retries: &mut [RetriesChange; 3], argv: &mut Argv<'_>) -> Result<(), Refused> {
    let class = CLASS.read(argv)?;
    let change = &mut retries[class as usize];
    if *change != RetriesChange::default() {
        return Err(Refused::new(format_args!("CLASS {} is given twice", class.text())));
    }
    loop {
        if argv.take_word("RETRIES") {
            RETRIES.take_once(&mut change.most, argv)?;
        } else if argv.take_word("BASE") {
            BASE.take_once(&mut change.base, argv)?;
        } else if argv.take_word("CAP") {
            CAP.take_once(&mut change.cap, argv)?;
        } else if *change == RetriesChange::default() {
            return Err(Refused::new(format_args!("CLASS {} needs RETRIES, BASE or CAP", class.text())));
        } else {
            return Ok(());
        }
    }
}

/// `JITTER full`, `none` or `plus pct`.
#[derive(Clone, Copy)]
struct JitterKind;

impl Named<Jitter> for JitterKind {
    fn name(self) -> &'static str {
        "JITTER"
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<Jitter, Refused> {
        let given = argv.bytes("JITTER")?;
        match Word(given) {
            word if word.is("full") => Ok(Jitter::Full),
            word if word.is("none") => Ok(Jitter::None),
            word if word.is("plus") => PLUS.take(argv).map(|percent| Jitter::Plus(percent as u8)),
            _ => Err(Refused::new(format_args!("JITTER must be full, none or plus pct, got {}", quoted(given)))),
        }
    }

    fn check(self, jitter: Jitter) -> Result<(), Refused> {
        match jitter {
            Jitter::Full | Jitter::None => Ok(()),
            Jitter::Plus(percent) => PLUS.check(percent.into()),
        }
    }

    fn write(self, jitter: Jitter, words: &mut impl Words) {
        match jitter {
            Jitter::Full => words.word(b"full"),
            Jitter::None => words.word(b"none"),
            Jitter::Plus(percent) => {
                words.word(b"plus");
                words.number(percent.into());
            }
        }
    }
}

/// `PAUSED no` or `PAUSED yes [FOR d]`.
#[derive(Clone, Copy)]
struct Paused;

impl Named<Pause> for Paused {
    fn name(self) -> &'static str {
        "PAUSED"
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<Pause, Refused> {
        let given = argv.bytes("PAUSED")?;
        match Word(given) {
            word if word.is("no") => Ok(Pause::Off),
            word if word.is("yes") && argv.take_word("FOR") => FOR.take(argv).map(Pause::For),
            word if word.is("yes") => Ok(Pause::On),
            _ => Err(Refused::new(format_args!("PAUSED must be yes or no, got {}", quoted(given)))),
        }
    }

    fn check(self, pause: Pause) -> Result<(), Refused> {
        let length: Option<Span> = match pause {
            Pause::For(length) => Some(length),
            Pause::Off | Pause::On => None,
        };
        FOR.check_given(length)
    }

    fn write(self, pause: Pause, words: &mut impl Words) {
        match pause {
            Pause::Off => words.word(b"no"),
            Pause::On => words.word(b"yes"),
            Pause::For(length) => {
                words.word(b"yes");
                FOR.write_given(Some(length), words);
            }
        }
    }
}

/// CONFIG: `OK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configured;

impl Configured {
    pub fn write(self, sink: &mut (impl Sink + ?Sized)) {
        sink.text(b"OK");
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        if value.text()? == b"OK" { Ok(Self) } else { Err(Unexpected("OK")) }
    }
}
