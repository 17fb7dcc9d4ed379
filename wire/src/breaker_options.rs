//! The options of `RES.BREAKER ADMIT` and `CONFIG`, as they are typed. What is not named stays as it is, so what is not
//! named is not written either: there are no defaults here.

use resil_core::circuit_breaker::{Patch, WindowKind, bounds};

use crate::argv::{Argv, Refused, Word, once, quoted};
use crate::words::{Spelled, Words, named_duration, named_number, named_text};

pub const OPTIONS: &str = "[WINDOW COUNT n | WINDOW TIME d] [RATE pct] [SLOW d] [SLOWRATE pct] [CONSECUTIVE n] \
                           [MINCALLS n] [OPEN d] [FACTOR x] [MAX d] [PROBES n] [SUCCESSES n] [LEASE d] [QUORUM n] \
                           [RAMP d] [IDLE d]";

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
        let patch = &mut self.patch;
        if word.is("VERSION") {
            let version = argv.number("VERSION", 1..=i64::MAX)? as u64;
            once(&mut self.version, "VERSION", version)?;
        } else if word.is("WINDOW") {
            once(&mut patch.window, "WINDOW", window(argv)?)?;
        } else if word.is("RATE") {
            once(&mut patch.rate_pct, "RATE", argv.number("RATE", bounds::PERCENT)? as u32)?;
        } else if word.is("SLOW") {
            once(&mut patch.slow, "SLOW", argv.duration("SLOW", bounds::SLOW.0, bounds::SLOW.1)?)?;
        } else if word.is("SLOWRATE") {
            once(&mut patch.slow_rate_pct, "SLOWRATE", argv.number("SLOWRATE", bounds::PERCENT)? as u32)?;
        } else if word.is("CONSECUTIVE") {
            once(&mut patch.consecutive, "CONSECUTIVE", argv.number("CONSECUTIVE", bounds::CONSECUTIVE)? as u32)?;
        } else if word.is("MINCALLS") {
            once(&mut patch.min_calls, "MINCALLS", argv.number("MINCALLS", bounds::MIN_CALLS)? as u32)?;
        } else if word.is("OPEN") {
            once(&mut patch.open, "OPEN", argv.duration("OPEN", bounds::OPEN.0, bounds::OPEN.1)?)?;
        } else if word.is("FACTOR") {
            once(&mut patch.factor_milli, "FACTOR", factor(argv)?)?;
        } else if word.is("MAX") {
            once(&mut patch.open_max, "MAX", argv.duration("MAX", bounds::OPEN.0, bounds::OPEN.1)?)?;
        } else if word.is("PROBES") {
            once(&mut patch.probes, "PROBES", argv.number("PROBES", bounds::PROBES)? as u32)?;
        } else if word.is("SUCCESSES") {
            once(&mut patch.successes, "SUCCESSES", argv.number("SUCCESSES", bounds::SUCCESSES)? as u32)?;
        } else if word.is("LEASE") {
            once(&mut patch.lease, "LEASE", argv.duration("LEASE", bounds::LEASE.0, bounds::LEASE.1)?)?;
        } else if word.is("QUORUM") {
            once(&mut patch.quorum, "QUORUM", argv.number("QUORUM", bounds::QUORUM)? as u32)?;
        } else if word.is("RAMP") {
            once(&mut patch.ramp, "RAMP", argv.duration("RAMP", bounds::RAMP.0, bounds::RAMP.1)?)?;
        } else if word.is("IDLE") {
            once(&mut patch.idle, "IDLE", argv.duration("IDLE", bounds::IDLE.0, bounds::IDLE.1)?)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    pub(crate) fn encode(&self, words: &mut impl Words) {
        let patch = &self.patch;
        named_number(words, "VERSION", self.version.map(u64::cast_signed));
        match patch.window {
            None => {}
            Some(WindowKind::Count(calls)) => {
                words.word(b"WINDOW");
                named_number(words, "COUNT", Some(calls));
            }
            Some(WindowKind::Time(length)) => {
                words.word(b"WINDOW");
                named_duration(words, "TIME", Some(length));
            }
        }
        named_number(words, "RATE", patch.rate_pct);
        named_duration(words, "SLOW", patch.slow);
        named_number(words, "SLOWRATE", patch.slow_rate_pct);
        named_number(words, "CONSECUTIVE", patch.consecutive);
        named_number(words, "MINCALLS", patch.min_calls);
        named_duration(words, "OPEN", patch.open);
        let factor = patch.factor_milli.map(Spelled::thousandths);
        named_text(words, "FACTOR", factor.as_ref().map(Spelled::as_bytes));
        named_duration(words, "MAX", patch.open_max);
        named_number(words, "PROBES", patch.probes);
        named_number(words, "SUCCESSES", patch.successes);
        named_duration(words, "LEASE", patch.lease);
        named_number(words, "QUORUM", patch.quorum);
        named_duration(words, "RAMP", patch.ramp);
        named_duration(words, "IDLE", patch.idle);
    }
}

fn window(argv: &mut Argv<'_>) -> Result<WindowKind, Refused> {
    let kind = argv.bytes("WINDOW")?;
    if Word(kind).is("COUNT") {
        return Ok(WindowKind::Count(argv.number("WINDOW COUNT", bounds::WINDOW_CALLS)? as u32));
    }
    if Word(kind).is("TIME") {
        return argv.duration("WINDOW TIME", bounds::WINDOW_SPAN.0, bounds::WINDOW_SPAN.1).map(WindowKind::Time);
    }
    Err(Refused::new(format_args!("WINDOW must be COUNT n or TIME d, got {}", quoted(kind))))
}

/// A decimal number with up to three places, in thousandths.
fn factor(argv: &mut Argv<'_>) -> Result<u32, Refused> {
    let given = argv.bytes("FACTOR")?;
    let thousandths = || {
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
    };
    match thousandths() {
        Some(milli) if bounds::FACTOR_MILLI.contains(&milli) => Ok(milli as u32),
        _ => Err(Refused::new(format_args!(
            "FACTOR must be a number from 1 to 100 with at most three decimals, got {}",
            quoted(given)
        ))),
    }
}
