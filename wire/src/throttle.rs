//! `CL.THROTTLE`, as redis-cell has it.

use resil_core::Span;
use resil_core::limits::{CELLS_MAX, COST_MAX, PERIOD_MAX};
use resil_core::rate_limit::Ask;
use resil_core::rate_limit::cell::{MAX_BURST_MAX, Throttle};

use crate::argv::{Argv, Refused, parse_integer};
use crate::reply::Sink;
use crate::words::Words;

pub const NAME: &str = "CL.THROTTLE";
pub const USAGE: &str = "CL.THROTTLE key max_burst count period_seconds [quantity]";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClThrottle<'a> {
    pub key: &'a [u8],
    pub throttle: Throttle,
}

impl<'a> ClThrottle<'a> {
    /// Parses what follows `CL.THROTTLE`.
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, USAGE);
        let key = argv.bytes("key")?;
        let max_burst = argv.number("max_burst", 0..=MAX_BURST_MAX as i64)? as u32;
        let count = argv.count("count", CELLS_MAX)?;
        let most_seconds = PERIOD_MAX.as_us() / 1_000_000;
        let period = argv.number("period_seconds", 1..=most_seconds).map(Span::from_secs)?;
        let quantity = if argv.is_empty() { 1 } else { argv.number("quantity", -(COST_MAX as i64)..=COST_MAX as i64)? };
        argv.finish()?;
        let throttle = Throttle::new(max_burst, count, period, quantity).map_err(Refused::new)?;
        Ok(Self { key, throttle })
    }

    /// Writes what follows `CL.THROTTLE`. Its times are whole seconds: a period between two of them is the longer.
    pub fn encode(&self, words: &mut impl Words) {
        let Throttle { quota, ask } = self.throttle;
        words.word(self.key);
        words.number(i64::from(quota.capacity()) - 1);
        words.number(quota.limit().into());
        words.number(quota.period().ceil_ms().saturating_add(999) / 1_000);
        let quantity = match ask {
            Ask::Take(cells) | Ask::UpTo(cells) => i64::from(cells),
            Ask::Refund(cells) => -i64::from(cells),
            Ask::Reserve(_) => 1,
            Ask::Peek => 0,
        };
        if quantity != 1 {
            words.number(quantity);
        }
    }
}

/// What redis-cell leaves in a string: its TAT in decimal nanoseconds. `None` if the string is something else.
pub fn parse_tat_ns(bytes: &[u8]) -> Option<i64> {
    parse_integer(bytes).filter(|tat_ns| *tat_ns > 0)
}

/// `[limited, limit, remaining, retry_after, reset_after]`, times in seconds.
pub fn write_reply(numbers: [i64; 5], sink: &mut (impl Sink + ?Sized)) {
    sink.array(numbers.len());
    numbers.into_iter().for_each(|number| sink.integer(number));
}
