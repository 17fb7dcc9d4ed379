//! What an argument may be: a number, a duration or a text within its bounds.
//!
//! # The promise
//! A bound is named once and used twice: [`take`](Number::take) reads an argument from words, [`check`](Number::check)
//! looks at a value that never was words. Both refuse the same values, in the same sentence.

use std::fmt::Display;
use std::ops::RangeInclusive;

use resil_core::Span;

use crate::argv::{Argv, Refused, Word, once, parse_integer, quoted};
use crate::duration;
use crate::words::{Spelled, Words};

/// A whole number.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    name: &'static str,
    least: i64,
    most: i64,
}

impl Number {
    pub const fn new(name: &'static str, bounds: RangeInclusive<i64>) -> Self {
        Self { name, least: *bounds.start(), most: *bounds.end() }
    }

    /// From 1 to `most`.
    pub const fn count(name: &'static str, most: u32) -> Self {
        Self { name, least: 1, most: most as i64 }
    }

    fn is(self, number: i64) -> bool {
        (self.least..=self.most).contains(&number)
    }

    #[cold]
    fn refused(self, given: impl Display) -> Refused {
        let Self { name, least, most } = self;
        Refused::new(format_args!("{name} must be a whole number from {least} to {most}, got {given}"))
    }

    pub fn take(self, argv: &mut Argv<'_>) -> Result<i64, Refused> {
        let given = argv.bytes(self.name)?;
        parse_integer(given).filter(|number| self.is(*number)).ok_or_else(|| self.refused(quoted(given)))
    }

    /// The same for bounds within those of `u32`.
    pub fn take_u32(self, argv: &mut Argv<'_>) -> Result<u32, Refused> {
        self.take(argv).map(|number| number as u32)
    }

    pub fn check(self, number: i64) -> Result<(), Refused> {
        if self.is(number) { Ok(()) } else { Err(self.refused(quoted(Spelled::number(number).as_bytes()))) }
    }
}

/// A duration. (Its length: core calls it a span.)
#[derive(Debug, Clone, Copy)]
pub struct Length {
    name: &'static str,
    least: Span,
    most: Span,
}

impl Length {
    pub const fn new(name: &'static str, (least, most): (Span, Span)) -> Self {
        Self { name, least, most }
    }

    fn is(self, span: Span) -> bool {
        (self.least..=self.most).contains(&span)
    }

    #[cold]
    fn refused(self, given: impl Display) -> Refused {
        let (name, least, most) = (self.name, duration::Shown(self.least), duration::Shown(self.most));
        Refused::new(format_args!(
            "{name} must be a duration from {least} to {most} (an integer is milliseconds; suffixes us ms s m h d), got {given}"
        ))
    }

    pub fn take(self, argv: &mut Argv<'_>) -> Result<Span, Refused> {
        let given = argv.bytes(self.name)?;
        duration::parse(given).filter(|span| self.is(*span)).ok_or_else(|| self.refused(quoted(given)))
    }

    pub fn check(self, span: Span) -> Result<(), Refused> {
        if self.is(span) { Ok(()) } else { Err(self.refused(quoted(Spelled::duration(span).as_bytes()))) }
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    name: &'static str,
    least: usize,
    most: usize,
}

impl Text {
    /// At least one byte.
    pub const fn new(name: &'static str, most: usize) -> Self {
        Self { name, least: 1, most }
    }

    /// None at all are a text, too.
    pub const fn or_empty(name: &'static str, most: usize) -> Self {
        Self { name, least: 0, most }
    }

    pub fn take<'a>(self, argv: &mut Argv<'a>) -> Result<&'a [u8], Refused> {
        let given = argv.bytes(self.name)?;
        self.check(given)?;
        Ok(given)
    }

    pub fn check(self, text: &[u8]) -> Result<(), Refused> {
        let (Self { name, least, most }, len) = (self, text.len());
        match least {
            _ if (least..=most).contains(&len) => Ok(()),
            0 => Err(Refused::new(format_args!("{name} can have at most {most} bytes, got {len}"))),
            _ => Err(Refused::new(format_args!("{name} must have from {least} to {most} bytes, got {len}"))),
        }
    }
}

/// A named option of a command, which may be given once: `WAIT 5s`.
pub(crate) trait Named<T: Copy>: Copy {
    fn name(self) -> &'static str;
    fn read(self, argv: &mut Argv<'_>) -> Result<T, Refused>;
    fn check(self, value: T) -> Result<(), Refused>;
    fn write(self, value: T, words: &mut impl Words);

    /// The option's name has been read: reads its value into `slot`.
    fn take_once(self, slot: &mut Option<T>, argv: &mut Argv<'_>) -> Result<(), Refused> {
        once(slot, self.name(), self.read(argv)?)
    }

    /// The same if `word` is the option's name.
    fn take_if(self, word: Word<'_>, slot: &mut Option<T>, argv: &mut Argv<'_>) -> Result<bool, Refused> {
        let is_it = word.is(self.name());
        if is_it {
            self.take_once(slot, argv)?;
        }
        Ok(is_it)
    }

    fn check_given(self, value: Option<T>) -> Result<(), Refused> {
        value.map_or(Ok(()), |value| self.check(value))
    }

    /// The option and its value, if there is one.
    fn write_given(self, value: Option<T>, words: &mut impl Words) {
        if let Some(value) = value {
            words.word(self.name().as_bytes());
            self.write(value, words);
        }
    }
}

impl Named<u32> for Number {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<u32, Refused> {
        self.take_u32(argv)
    }

    fn check(self, number: u32) -> Result<(), Refused> {
        Self::check(self, number.into())
    }

    fn write(self, number: u32, words: &mut impl Words) {
        words.number(number.into());
    }
}

/// Numbers without a sign that are at most `i64::MAX`: fences, versions, clients.
impl Named<u64> for Number {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<u64, Refused> {
        self.take(argv).map(i64::cast_unsigned)
    }

    fn check(self, number: u64) -> Result<(), Refused> {
        Self::check(self, number.cast_signed())
    }

    fn write(self, number: u64, words: &mut impl Words) {
        words.number(number.cast_signed());
    }
}

impl Named<Span> for Length {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<Span, Refused> {
        self.take(argv)
    }

    fn check(self, span: Span) -> Result<(), Refused> {
        Self::check(self, span)
    }

    fn write(self, span: Span, words: &mut impl Words) {
        words.duration(span);
    }
}

impl Text {
    /// As [`Named::take_once`], for what borrows from the words.
    pub(crate) fn take_once<'a>(self, slot: &mut Option<&'a [u8]>, argv: &mut Argv<'a>) -> Result<(), Refused> {
        once(slot, self.name, self.take(argv)?)
    }

    pub(crate) fn check_given(self, text: Option<&[u8]>) -> Result<(), Refused> {
        text.map_or(Ok(()), |text| self.check(text))
    }

    pub(crate) fn write_given(self, text: Option<&[u8]>, words: &mut impl Words) {
        if let Some(text) = text {
            words.word(self.name.as_bytes());
            words.word(text);
        }
    }
}
