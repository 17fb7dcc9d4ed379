//! A cursor over a command's arguments. Whatever is wrong is said with the argument's name; nothing may be left over.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use resil_core::Span;

use crate::duration;

/// Why a call was refused, as it goes to the client: an error code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(String);

impl Refused {
    pub fn new(sentence: impl Display) -> Self {
        Self(format!("ERR {sentence}"))
    }

    /// With another code than ERR, which clients can tell apart.
    pub fn with_code(code: &str, sentence: impl Display) -> Self {
        Self(format!("{code} {sentence}"))
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The arguments of one call, the command's name left out.
pub struct Argv<'a> {
    rest: &'a [&'a [u8]],
    usage: &'static str,
}

impl<'a> Argv<'a> {
    pub fn new(args: &'a [&'a [u8]], usage: &'static str) -> Self {
        Self { rest: args, usage }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn bytes(&mut self, name: &str) -> Result<&'a [u8], Refused> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.missing(name))?;
        self.rest = rest;
        Ok(first)
    }

    /// A whole number within `bounds`.
    pub fn number(&mut self, name: &str, bounds: RangeInclusive<i64>) -> Result<i64, Refused> {
        let given = self.bytes(name)?;
        match parse_integer(given) {
            Some(number) if bounds.contains(&number) => Ok(number),
            _ => Err(Refused::new(format_args!(
                "{name} must be a whole number from {} to {}, got {}",
                bounds.start(),
                bounds.end(),
                quoted(given)
            ))),
        }
    }

    /// A whole number from 1 to `max`.
    pub fn count(&mut self, name: &str, max: u32) -> Result<u32, Refused> {
        self.number(name, 1..=max as i64).map(|number| number as u32)
    }

    /// A duration from `least` to `most`.
    pub fn duration(&mut self, name: &str, least: Span, most: Span) -> Result<Span, Refused> {
        let given = self.bytes(name)?;
        match duration::parse(given) {
            Some(span) if (least..=most).contains(&span) => Ok(span),
            _ => Err(Refused::new(format_args!(
                "{name} must be a duration from {} to {} (an integer is milliseconds; suffixes us ms s m h d), got {}",
                duration::Shown(least),
                duration::Shown(most),
                quoted(given)
            ))),
        }
    }

    /// A text of at least one and at most `max` bytes.
    pub fn text(&mut self, name: &str, max: usize) -> Result<&'a [u8], Refused> {
        let given = self.bytes(name)?;
        if given.is_empty() || given.len() > max {
            let len = given.len();
            return Err(Refused::new(format_args!("{name} must have from 1 to {max} bytes, got {len}")));
        }
        Ok(given)
    }

    /// The next argument, if there is one, as an upper-case-insensitive word.
    pub fn word(&mut self) -> Option<Word<'a>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(Word(first))
    }

    /// Takes the next argument if it is `keyword`.
    pub fn take_word(&mut self, keyword: &str) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if Word(first).is(keyword) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Nothing may be left.
    pub fn finish(self) -> Result<(), Refused> {
        match self.rest.first() {
            None => Ok(()),
            Some(surplus) => Err(self.unexpected(surplus)),
        }
    }

    pub fn unexpected(&self, given: &[u8]) -> Refused {
        Refused::new(format_args!("unexpected argument {}; usage: {}", quoted(given), self.usage))
    }

    fn missing(&self, name: &str) -> Refused {
        Refused::new(format_args!("missing {name}; usage: {}", self.usage))
    }
}

/// Puts `value` into `place`, which an option may fill once.
pub fn once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), Refused> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refused::new(format_args!("{name} is given twice"))),
    }
}

/// A keyword of the grammar.
#[derive(Clone, Copy)]
pub struct Word<'a>(pub &'a [u8]);

impl Word<'_> {
    pub fn is(&self, keyword: &str) -> bool {
        self.0.eq_ignore_ascii_case(keyword.as_bytes())
    }
}

/// A decimal integer without sign tricks: `12`, `-3`; not `+1`, ` 1`, `1.0`, `0x1`, `` or `007`.
pub fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let padded = digits.first() == Some(&b'0') && bytes.len() > 1;
    if digits.is_empty() || digits.len() > 19 || padded {
        return None;
    }
    let mut magnitude = 0u64; // nineteen digits fit
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + digit as u64;
    }
    if digits.len() == bytes.len() { i64::try_from(magnitude).ok() } else { 0i64.checked_sub_unsigned(magnitude) }
}

/// What was given, fit for an error line: printable, and cut short.
pub fn quoted(given: &[u8]) -> impl Display + '_ {
    const SHOWN: usize = 40;
    struct Quoted<'a>(&'a [u8]);
    impl Display for Quoted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (shown, cut) = match self.0.get(..SHOWN) {
                Some(start) if self.0.len() > SHOWN => (start, true),
                _ => (self.0, false),
            };
            write!(f, "'{}'", shown.escape_ascii())?;
            if cut { write!(f, "... ({} bytes)", self.0.len()) } else { Ok(()) }
        }
    }
    Quoted(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, number) in [("0", 0), ("7", 7), ("-3", -3), ("9223372036854775807", i64::MAX)] {
            assert_eq!(parse_integer(text.as_bytes()), Some(number), "{text}");
        }
        assert_eq!(parse_integer(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "+1", " 1", "1 ", "1.0", "0x1", "007", "-0", "9223372036854775808", "1\0", "١"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn an_error_shows_what_was_given_on_one_printable_line() {
        let long = vec![b'x'; 1_000_000];
        assert_eq!(quoted(b"a\r\n\0\xff").to_string(), r"'a\r\n\x00\xff'");
        assert!(quoted(&long).to_string().len() < 80);
    }
}
