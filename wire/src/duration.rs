//! Durations as people type them: an integer is milliseconds; `us ms s m h d` may follow.

use std::fmt;

use resil_core::Span;

use crate::argv::parse_integer;
use crate::words::Spelled;

/// Suffixes, coarsest first; every duration is shown in the first that divides it.
const UNITS: [(&str, i64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// `None` for anything that is not a duration, or longer than fits.
pub fn parse(text: &[u8]) -> Option<Span> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, suffix) = text.split_at(digits);
    let number = parse_integer(number)?;
    let unit_us = match suffix {
        b"" => 1_000,
        _ => UNITS.iter().find(|(name, _)| suffix.eq_ignore_ascii_case(name.as_bytes()))?.1,
    };
    number.checked_mul(unit_us).map(Span::from_us)
}

/// The coarsest unit that divides `us`, and its length.
pub(crate) fn coarsest_unit(us: i64) -> (&'static str, i64) {
    UNITS.iter().copied().find(|(_, unit_us)| us % unit_us == 0).unwrap_or(("us", 1))
}

/// A span in the coarsest unit that says it exactly: `90s`, `1500us`.
pub struct Shown(pub Span);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Spelled::duration(self.0).as_bytes().escape_ascii().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_integer_is_milliseconds_and_suffixes_say_the_rest() {
        let cases = [
            ("250", 250_000),
            ("250ms", 250_000),
            ("7us", 7),
            ("30s", 30_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
            ("1D", 86_400_000_000),
            ("0", 0),
        ];
        for (text, us) in cases {
            assert_eq!(parse(text.as_bytes()), Some(Span::from_us(us)), "{text}");
        }
        for text in ["", "s", "1.5s", "-1s", "1 s", "1w", "1ss", "106751992d", "9223372036854775807", "01s"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_parses_to_the_same() {
        for us in [0, 1, 999, 1_000, 1_500, 90_000_000, 86_400_000_000, 31_622_400_000_000] {
            let span = Span::from_us(us);
            assert_eq!(parse(Shown(span).to_string().as_bytes()), Some(span));
        }
    }
}
