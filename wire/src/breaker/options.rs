//! The options of `RES.BREAKER ADMIT` and `CONFIG`. An option that is not named stays as it is, so it is not written
//! either: there are no defaults here.

use resil_core::circuit_breaker::{Patch, WindowKind, bounds};

use crate::argv::{Argv, Refused, Word, quoted};
use crate::bound::{Length, Named, Number};
use crate::words::{Spelled, Words};

/// Does `$apply` with each option, in the order in which they are written: its field of a [`Patch`], and its bounds.
macro_rules! each_option {
    ($apply:ident) => {
        $apply!(window, Window);
        $apply!(rate_pct, Number::new("RATE", bounds::PERCENT));
        $apply!(slow, Length::new("SLOW", bounds::SLOW));
        $apply!(slow_rate_pct, Number::new("SLOWRATE", bounds::PERCENT));
        $apply!(consecutive, Number::new("CONSECUTIVE", bounds::CONSECUTIVE));
        $apply!(min_calls, Number::new("MINCALLS", bounds::MIN_CALLS));
        $apply!(open, Length::new("OPEN", bounds::OPEN));
        $apply!(factor_milli, Factor);
        $apply!(open_max, Length::new("MAX", bounds::OPEN));
        $apply!(probes, Number::new("PROBES", bounds::PROBES));
        $apply!(successes, Number::new("SUCCESSES", bounds::SUCCESSES));
        $apply!(lease, Length::new("LEASE", bounds::LEASE));
        $apply!(quorum, Number::new("QUORUM", bounds::QUORUM));
        $apply!(ramp, Length::new("RAMP", bounds::RAMP));
        $apply!(idle, Length::new("IDLE", bounds::IDLE));
    };
}

const VERSION: Number = Number::new("VERSION", 1..=i64::MAX);
const WINDOW_COUNT: Number = Number::new("WINDOW COUNT", bounds::WINDOW_CALLS);
const WINDOW_TIME: Length = Length::new("WINDOW TIME", bounds::WINDOW_SPAN);

/// The options of ADMIT and CONFIG.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    pub patch: Patch,
    pub version: Option<u64>,
}

impl Options {
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.version.is_none()
    }

    /// Takes `word` if it begins an option. Each may be given once.
    pub(crate) fn take(&mut self, word: Word<'_>, argv: &mut Argv<'_>) -> Result<bool, Refused> {
        macro_rules! take {
            ($field:ident, $bound:expr) => {
                if $bound.take_if(word, &mut self.patch.$field, argv)? {
                    return Ok(true);
                }
            };
        }
        each_option!(take);
        VERSION.take_if(word, &mut self.version, argv)
    }

    pub(crate) fn check(&self) -> Result<(), Refused> {
        VERSION.check_given(self.version)?;
        macro_rules! check {
            ($field:ident, $bound:expr) => {
                $bound.check_given(self.patch.$field)?;
            };
        }
        each_option!(check);
        Ok(())
    }

    pub(crate) fn encode(&self, words: &mut impl Words) {
        VERSION.write_given(self.version, words);
        macro_rules! write {
            ($field:ident, $bound:expr) => {
                $bound.write_given(self.patch.$field, words);
            };
        }
        each_option!(write);
    }
}

/// `WINDOW COUNT n` or `WINDOW TIME d`.
#[derive(Clone, Copy)]
struct Window;

impl Named<WindowKind> for Window {
    fn name(self) -> &'static str {
        "WINDOW"
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<WindowKind, Refused> {
        let kind = argv.bytes("WINDOW")?;
        if Word(kind).is("COUNT") {
            return WINDOW_COUNT.take_u32(argv).map(WindowKind::Count);
        }
        if Word(kind).is("TIME") {
            return WINDOW_TIME.take(argv).map(WindowKind::Time);
        }
        Err(Refused::new(format_args!("WINDOW must be COUNT n or TIME d, got {}", quoted(kind))))
    }

    fn check(self, window: WindowKind) -> Result<(), Refused> {
        match window {
            WindowKind::Count(calls) => WINDOW_COUNT.check(calls.into()),
            WindowKind::Time(length) => WINDOW_TIME.check(length),
        }
    }

    fn write(self, window: WindowKind, words: &mut impl Words) {
        match window {
            WindowKind::Count(calls) => {
                words.word(b"COUNT");
                words.number(calls.into());
            }
            WindowKind::Time(length) => {
                words.word(b"TIME");
                words.duration(length);
            }
        }
    }
}

/// A decimal number with up to three places, in thousandths.
#[derive(Clone, Copy)]
struct Factor;

impl Factor {
    fn within(given: &[u8], milli: Option<i64>) -> Result<u32, Refused> {
        match milli {
            Some(milli) if bounds::FACTOR_MILLI.contains(&milli) => Ok(milli as u32),
            _ => Err(Refused::new(format_args!(
                "FACTOR must be a number from 1 to 100 with at most three decimals, got {}",
                quoted(given)
            ))),
        }
    }
}

impl Named<u32> for Factor {
    fn name(self) -> &'static str {
        "FACTOR"
    }

    fn read(self, argv: &mut Argv<'_>) -> Result<u32, Refused> {
        let given = argv.bytes("FACTOR")?;
        Self::within(given, thousandths(given))
    }

    fn check(self, milli: u32) -> Result<(), Refused> {
        Self::within(Spelled::thousandths(milli).as_bytes(), Some(milli.into())).map(drop)
    }

    fn write(self, milli: u32, words: &mut impl Words) {
        words.word(Spelled::thousandths(milli).as_bytes());
    }
}

fn thousandths(given: &[u8]) -> Option<i64> {
    let (whole, places) = match given.iter().position(|byte| *byte == b'.') {
        Some(point) => (&given[..point], &given[point + 1..]),
        None => (given, &b""[..]),
    };
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || whole.len() > 3 || places.len() > 3 || !digits(whole) || !digits(places) {
        return None;
    }
    if places.is_empty() && given.contains(&b'.') {
        return None;
    }
    let number = |text: &[u8]| text.iter().fold(0, |sum, digit| sum * 10 + (digit - b'0') as i64);
    let scale = [1_000, 100, 10, 1][places.len()];
    Some(number(whole) * 1_000 + number(places) * scale)
}
