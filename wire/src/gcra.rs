//! `RES.GCRA` and `RES.GCRA.PEEK`: the grammar, the arguments, their bounds, the reply.

use resil_core::Span;
use resil_core::limits::{CELLS_MAX, COST_MAX, PERIOD_MAX, RESERVE_MAX, TIERS_NAMED_MAX, duration_bounds};
use resil_core::rate_limit::{Ask, Quota, Reading, Verdict};
use smallvec::SmallVec;

use crate::argv::{Argv, Refused, missing};
use crate::bound::{Length, Named, Number};
use crate::command::{Allowed, Arguments};
use crate::duration::Shown;
use crate::pages;
use crate::reply::{self, Sink, Unexpected, Value};
use crate::words::Words;

const LIMIT: Number = Number::count("limit", CELLS_MAX);
const BURST: Number = Number::count("BURST", CELLS_MAX);
pub(crate) const PERIOD: Length = Length::new("period", duration_bounds(PERIOD_MAX));
pub(crate) const COST: Number = Number::count("COST", COST_MAX);
pub(crate) const UPTO: Number = Number::count("UPTO", COST_MAX);
const REFUND: Number = Number::count("REFUND", COST_MAX);
const RESERVE: Length = Length::new("RESERVE", duration_bounds(RESERVE_MAX));

/// The tiers a call names, in its order.
pub type Quotas = SmallVec<[Quota; 3]>;

/// A call of either command; PEEK is the one whose `ask` is [`Ask::Peek`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gcra<'a> {
    pub key: &'a [u8],
    pub quotas: Quotas,
    pub ask: Ask,
}

impl<'a> Arguments<'a> for Gcra<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        // PEEK is the one that changes nothing, and takes no word about what to take.
        let fixed = argv.page().is_read_only.then_some(Ask::Peek);
        let key = argv.bytes("key")?;
        let mut quotas = Quotas::new();
        let mut tier = NamedTier::parse(&mut argv)?;
        let (mut ask, mut cost) = (fixed, None);
        while let Some(word) = argv.word() {
            if word.is("BURST") {
                tier.parse_burst(&mut argv)?;
            } else if word.is("AND") {
                push(&mut quotas, tier.quota()?)?;
                tier = NamedTier::parse(&mut argv)?;
            } else if fixed.is_some() {
                return Err(argv.unexpected(word.0));
            } else {
                if word.is("COST") {
                    if cost.replace(COST.take_u32(&mut argv)?).is_some() {
                        return Err(one_of());
                    }
                    continue;
                }
                let asked = if word.is("UPTO") {
                    Ask::UpTo(UPTO.take_u32(&mut argv)?)
                } else if word.is("REFUND") {
                    Ask::Refund(REFUND.take_u32(&mut argv)?)
                } else if word.is("RESERVE") {
                    Ask::Reserve { cells: 1, within: RESERVE.take(&mut argv)? }
                } else {
                    return Err(argv.unexpected(word.0));
                };
                if ask.replace(asked).is_some() {
                    return Err(one_of());
                }
            }
        }
        push(&mut quotas, tier.quota()?)?;
        let ask = match (ask, cost) {
            (None, cost) => Ask::Take(cost.unwrap_or(1)),
            (Some(Ask::Reserve { within, .. }), Some(cells)) => Ask::Reserve { cells, within },
            (Some(_), Some(_)) => return Err(one_of()),
            (Some(ask), None) => ask,
        };
        Ok(Self { key, quotas, ask })
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        // A quota is within its bounds by construction.
        match self.quotas.as_slice() {
            [] => return Err(missing("limit", if self.is_peek() { &pages::GCRA_PEEK } else { &pages::GCRA })),
            [_] => {}
            several => {
                let mut named = Quotas::new();
                several.iter().try_for_each(|quota| push(&mut named, *quota))?;
            }
        }
        check_ask(self.ask)
    }

    fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        for (index, quota) in self.quotas.iter().enumerate() {
            if index > 0 {
                words.word(b"AND");
            }
            words.number(quota.limit().into());
            words.duration(quota.period());
            BURST.write_given((quota.capacity() != quota.limit()).then_some(quota.capacity()), words);
        }
        match self.ask {
            Ask::Take(1) | Ask::Peek => {}
            Ask::Take(cells) => COST.write_given(Some(cells), words),
            Ask::UpTo(cells) => UPTO.write_given(Some(cells), words),
            Ask::Refund(cells) => REFUND.write_given(Some(cells), words),
            Ask::Reserve { cells, within } => {
                RESERVE.write_given(Some(within), words);
                COST.write_given((cells != 1).then_some(cells), words);
            }
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        Some(self.key)
    }

    fn is_peek(&self) -> bool {
        self.ask == Ask::Peek
    }
}

pub(crate) fn check_ask(ask: Ask) -> Result<(), Refused> {
    match ask {
        Ask::Take(cells) => COST.check(cells.into()),
        Ask::UpTo(cells) => UPTO.check(cells.into()),
        Ask::Refund(cells) => REFUND.check(cells.into()),
        Ask::Reserve { cells, within } => RESERVE.check(within).and_then(|()| COST.check(cells.into())),
        Ask::Peek => Ok(()),
    }
}

fn one_of() -> Refused {
    Refused::new("only one of COST, UPTO, RESERVE and REFUND can be given, and once; COST can go with RESERVE")
}

/// A tier while its words are being read.
struct NamedTier {
    limit: u32,
    period: Span,
    burst: Option<u32>,
}

impl NamedTier {
    fn parse(argv: &mut Argv<'_>) -> Result<Self, Refused> {
        Ok(Self { limit: LIMIT.take_u32(argv)?, period: PERIOD.take(argv)?, burst: None })
    }

    fn parse_burst(&mut self, argv: &mut Argv<'_>) -> Result<(), Refused> {
        match self.burst.replace(BURST.take_u32(argv)?) {
            None => Ok(()),
            Some(_) => Err(Refused::new("BURST is given twice for one tier")),
        }
    }

    fn quota(&self) -> Result<Quota, Refused> {
        Quota::new(self.limit, self.period, self.burst.unwrap_or(self.limit)).map_err(Refused::new)
    }
}

fn push(quotas: &mut Quotas, quota: Quota) -> Result<(), Refused> {
    if quotas.len() == TIERS_NAMED_MAX {
        return Err(Refused::new(format_args!("AND can name at most {TIERS_NAMED_MAX} tiers")));
    }
    if quotas.iter().any(|other| other.period() == quota.period()) {
        let period = Shown(quota.period());
        return Err(Refused::new(format_args!(
            "AND names the period {period} twice; each tier needs a period of its own"
        )));
    }
    quotas.push(quota);
    Ok(())
}

/// `[capacity, remaining, retry_after_ms, reset_after_ms]` of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub capacity: i64,
    pub remaining: i64,
    /// -1: never.
    pub retry_after_ms: i64,
    pub reset_after_ms: i64,
}

impl From<&Reading> for Numbers {
    /// Time to wait rounds up.
    fn from(reading: &Reading) -> Self {
        Self {
            capacity: reading.capacity.into(),
            remaining: reading.remaining.into(),
            retry_after_ms: reading.retry_after.ms(),
            reset_after_ms: reading.reset_after.ceil_ms(),
        }
    }
}

impl Numbers {
    fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.integer(self.capacity);
        sink.integer(self.remaining);
        sink.integer(self.retry_after_ms);
        sink.integer(self.reset_after_ms);
    }

    /// An array of the numbers of each.
    pub(crate) fn write_each(several: &[Self], sink: &mut (impl Sink + ?Sized)) {
        sink.array(several.len());
        for numbers in several {
            sink.array(4);
            numbers.write(sink);
        }
    }

    pub(crate) fn read(value: &Value) -> Result<Self, Unexpected> {
        value.integers().map(Self::from_array)
    }

    fn from_array([capacity, remaining, retry_after_ms, reset_after_ms]: [i64; 4]) -> Self {
        Self { capacity, remaining, retry_after_ms, reset_after_ms }
    }
}

/// `[granted, capacity, remaining, retry_after_ms, reset_after_ms]`, and with AND a sixth element, the tiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitReply {
    pub granted: i64,
    pub binding: Numbers,
    /// Empty unless AND was used.
    pub tiers: SmallVec<[Numbers; 3]>,
}

impl From<&Verdict> for LimitReply {
    fn from(verdict: &Verdict) -> Self {
        let tiers = match verdict.tiers.as_slice() {
            [_] => SmallVec::new(),
            several => several.iter().map(Numbers::from).collect(),
        };
        Self { granted: verdict.granted.into(), binding: Numbers::from(&verdict.binding()), tiers }
    }
}

impl LimitReply {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        let several = !self.tiers.is_empty();
        sink.array(5 + usize::from(several));
        sink.integer(self.granted);
        self.binding.write(sink);
        if several {
            Numbers::write_each(&self.tiers, sink);
        }
    }

    /// The reply to a call that named so many `quotas`: each tier has its numbers if there are several.
    pub fn read(value: Value, quotas: usize) -> Result<Self, Unexpected> {
        let shape = Unexpected("five elements or six");
        let (numbers, tiers) = value.array()?.split_at_checked(5).ok_or(shape.clone())?;
        let [granted, binding @ ..]: [i64; 5] = reply::integers(numbers)?;
        let tiers: SmallVec<[Numbers; 3]> = match tiers {
            [] => SmallVec::new(),
            [tiers] => tiers.array()?.iter().map(Numbers::read).collect::<Result<_, _>>()?,
            _ => return Err(shape),
        };
        let promised = if quotas > 1 { quotas } else { 0 };
        if tiers.len() != promised || value.array()?.len() != 5 + usize::from(promised > 0) {
            return Err(Unexpected("every tier that was named"));
        }
        Ok(Self { granted, binding: Numbers::from_array(binding), tiers })
    }
}
