//! `CL.THROTTLE`, as redis-cell has it.

use resil_core::Span;
use resil_core::limits::{CELLS_MAX, COST_MAX, PERIOD_MAX};
use resil_core::rate_limit::Ask;
use resil_core::rate_limit::cell::{MAX_BURST_MAX, Throttle};

use crate::argv::{Argv, Refused, parse_integer};
use crate::bound::Number;
use crate::command::{Allowed, Arguments};
use crate::gcra::check_ask;
use crate::reply::Sink;
use crate::words::Words;

const MAX_BURST: Number = Number::new("max_burst", 0..=MAX_BURST_MAX as i64);
const COUNT: Number = Number::count("count", CELLS_MAX);
const PERIOD_SECONDS: Number = Number::new("period_seconds", 1..=PERIOD_MAX.as_us() / 1_000_000);
const QUANTITY: Number = Number::new("quantity", -(COST_MAX as i64)..=COST_MAX as i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClThrottle<'a> {
    pub key: &'a [u8],
    pub throttle: Throttle,
}

impl<'a> Arguments<'a> for ClThrottle<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let max_burst = MAX_BURST.take_u32(&mut argv)?;
        let count = COUNT.take_u32(&mut argv)?;
        let period = PERIOD_SECONDS.take(&mut argv).map(Span::from_secs)?;
        let quantity = if argv.is_empty() { 1 } else { QUANTITY.take(&mut argv)? };
        argv.finish()?;
        let throttle = Throttle::new(max_burst, count, period, quantity).map_err(Refused::new)?;
        Ok(Self { key, throttle })
    }

    /// A quota is within its bounds by construction.
    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        check_ask(self.throttle.ask)
    }

    /// Its times are whole seconds: a period between two of them is the longer.
    fn encode(&self, words: &mut impl Words) {
        let Throttle { quota, ask } = self.throttle;
        words.word(self.key);
        words.number(i64::from(quota.capacity()) - 1);
        words.number(quota.limit().into());
        words.number(quota.period().ceil_ms().saturating_add(999) / 1_000);
        let quantity = match ask {
            Ask::Take(cells) | Ask::UpTo(cells) | Ask::Reserve { cells, .. } => i64::from(cells),
            Ask::Refund(cells) => -i64::from(cells),
            Ask::Peek => 0,
        };
        if quantity != 1 {
            words.number(quantity);
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }
}

/// What redis-cell leaves in a string: its TAT in decimal nanoseconds. `None` if the string is something else.
pub fn parse_tat_ns(bytes: &[u8]) -> Option<i64> {
    parse_integer(bytes).filter(|tat_ns| *tat_ns > 0)
}

/// `[limited, limit, remaining, retry_after, reset_after]`, times in seconds.
pub fn write_numbers(numbers: [i64; 5], sink: &mut (impl Sink + ?Sized)) {
    sink.array(numbers.len());
    numbers.into_iter().for_each(|number| sink.integer(number));
}
