//! A cursor over a command's arguments. Every refusal names the argument; nothing may be left over.

use std::fmt::{self, Display};

use crate::command::Page;

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
    page: &'static Page,
}

impl<'a> Argv<'a> {
    pub fn new(args: &'a [&'a [u8]], page: &'static Page) -> Self {
        Self { rest: args, page }
    }

    /// The page of the command whose arguments these are.
    pub fn page(&self) -> &'static Page {
        self.page
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    pub fn bytes(&mut self, name: &str) -> Result<&'a [u8], Refused> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.missing(name))?;
        self.rest = rest;
        Ok(first)
    }

    /// The next argument, if there is one, as an upper-case-insensitive word.
    pub fn word(&mut self) -> Option<Word<'a>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(Word(first))
    }

    /// The argument that is `ahead` of the next one, if there is one, without taking it.
    pub fn peek(&self, ahead: usize) -> Option<Word<'a>> {
        self.rest.get(ahead).map(|word| Word(word))
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
        Refused::new(format_args!("unexpected argument {}; usage: {}", quoted(given), self.page.usage))
    }

    fn missing(&self, name: &str) -> Refused {
        missing(name, self.page)
    }
}

#[cold]
pub(crate) fn missing(name: &str, page: &Page) -> Refused {
    Refused::new(format_args!("missing {name}; usage: {}", page.usage))
}

/// Puts `value` into `slot`, which an option may fill once.
pub fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), Refused> {
    match slot.replace(value) {
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
