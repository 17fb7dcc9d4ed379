//! Moments in documents: RFC 3339 in UTC, `"2026-11-18T12:00:00Z"`, to the second.
//!
//! Another offset than `Z` is refused: a document is read by people in several places.

use alloc::format;
use alloc::string::String;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::time::Instant;

const DAY_SECONDS: i64 = 86_400;

/// From 1970 to 2199.
pub(super) fn parse(text: &str) -> Option<Instant> {
    let bytes = text.as_bytes();
    if bytes.len() != 20 {
        return None;
    }
    for (index, punctuation) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')] {
        if bytes[index] != punctuation {
            return None;
        }
    }
    let number = |from: usize, to: usize| {
        let digits = bytes.get(from..to).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        Some(digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1970..2200).contains(&year) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = (days(year, month, day)? * 24 + hour) * 3_600 + minute * 60 + second;
    Some(Instant::from_us(seconds * 1_000_000))
}

/// Days of months from March on, with the leap day at the end of the year.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let longest = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468)
}

pub(super) fn shown(at: Instant) -> String {
    let seconds = at.as_us().div_euclid(1_000_000);
    let (number, of_day) = (seconds.div_euclid(DAY_SECONDS) + 719_468, seconds.rem_euclid(DAY_SECONDS));
    let (era, of_era) = (number.div_euclid(146_097), number.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&shown(*self))
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no moment")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_and_written_alike() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-18T12:00:00Z", 1_795_003_200),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            let at = Instant::from_us(seconds * 1_000_000);
            assert_eq!(parse(text), Some(at), "{text}");
            assert_eq!(shown(at), text);
        }
        for text in ["", "2026-11-18", "2026-11-18T12:00:00+01:00", "2026-02-29T00:00:00Z", "2026-11-18t12:00:00Z"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
