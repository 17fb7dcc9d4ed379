//! `RES.GCRA` and `RES.GCRA.PEEK`: the grammar, the arguments, the reply.

use resil_core::Span;
use resil_core::limits::{CELLS_MAX, COST_MAX, PERIOD_MAX, RESERVE_MAX, TIERS_NAMED_MAX, duration_bounds};
use resil_core::rate_limit::{Ask, Quota, Reading, Verdict};
use smallvec::SmallVec;

use crate::argv::{Argv, Refused};
use crate::duration::Shown;
use crate::reply::{self, Sink, Unexpected, Value};
use crate::words::{Words, named_duration, named_number};

pub const NAME: &str = "RES.GCRA";
pub const PEEK_NAME: &str = "RES.GCRA.PEEK";
pub const USAGE: &str = "RES.GCRA key limit period [BURST n] [AND limit period [BURST n] ...] \
                         [COST n | UPTO n | RESERVE max | REFUND n]";
pub const PEEK_USAGE: &str = "RES.GCRA.PEEK key limit period [BURST n] [AND limit period [BURST n] ...]";

/// The tiers a call names, in its order.
pub type Quotas = SmallVec<[Quota; 3]>;

/// A call of either command; PEEK is the one whose `ask` is [`Ask::Peek`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gcra<'a> {
    pub key: &'a [u8],
    pub quotas: Quotas,
    pub ask: Ask,
}

impl<'a> Gcra<'a> {
    /// Parses what follows `RES.GCRA`.
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        Self::parse_words(Argv::new(args, USAGE), None)
    }

    /// Parses what follows `RES.GCRA.PEEK`.
    pub fn parse_peek(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        Self::parse_words(Argv::new(args, PEEK_USAGE), Some(Ask::Peek))
    }

    fn parse_words(mut argv: Argv<'a>, fixed: Option<Ask>) -> Result<Self, Refused> {
        let key = argv.bytes("key")?;
        let mut quotas = Quotas::new();
        let mut tier = NamedTier::parse(&mut argv)?;
        let mut ask = fixed;
        while let Some(word) = argv.word() {
            if word.is("BURST") {
                tier.parse_burst(&mut argv)?;
            } else if word.is("AND") {
                push(&mut quotas, tier.quota()?)?;
                tier = NamedTier::parse(&mut argv)?;
            } else if fixed.is_some() {
                return Err(argv.unexpected(word.0));
            } else {
                let asked = if word.is("COST") {
                    Ask::Take(argv.count("COST", COST_MAX)?)
                } else if word.is("UPTO") {
                    Ask::UpTo(argv.count("UPTO", COST_MAX)?)
                } else if word.is("REFUND") {
                    Ask::Refund(argv.count("REFUND", COST_MAX)?)
                } else if word.is("RESERVE") {
                    let (least, most) = duration_bounds(RESERVE_MAX);
                    Ask::Reserve(argv.duration("RESERVE", least, most)?)
                } else {
                    return Err(argv.unexpected(word.0));
                };
                if ask.replace(asked).is_some() {
                    return Err(Refused::new("only one of COST, UPTO, RESERVE and REFUND can be given, and once"));
                }
            }
        }
        push(&mut quotas, tier.quota()?)?;
        Ok(Self { key, quotas, ask: ask.unwrap_or(Ask::Take(1)) })
    }

    /// Which of the two commands it is.
    pub fn name(&self) -> &'static str {
        if self.ask == Ask::Peek { PEEK_NAME } else { NAME }
    }

    /// Writes what follows the command's name.
    pub fn encode(&self, words: &mut impl Words) {
        words.word(self.key);
        for (index, quota) in self.quotas.iter().enumerate() {
            if index > 0 {
                words.word(b"AND");
            }
            words.number(quota.limit().into());
            words.duration(quota.period());
            named_number(words, "BURST", (quota.capacity() != quota.limit()).then_some(quota.capacity()));
        }
        match self.ask {
            Ask::Take(1) | Ask::Peek => {}
            Ask::Take(cells) => named_number(words, "COST", Some(cells)),
            Ask::UpTo(cells) => named_number(words, "UPTO", Some(cells)),
            Ask::Refund(cells) => named_number(words, "REFUND", Some(cells)),
            Ask::Reserve(ahead) => named_duration(words, "RESERVE", Some(ahead)),
        }
    }
}

/// A tier while its words are being read.
struct NamedTier {
    limit: u32,
    period: Span,
    burst: Option<u32>,
}

impl NamedTier {
    fn parse(argv: &mut Argv<'_>) -> Result<Self, Refused> {
        let limit = argv.count("limit", CELLS_MAX)?;
        Ok(Self { limit, period: period(argv)?, burst: None })
    }

    fn parse_burst(&mut self, argv: &mut Argv<'_>) -> Result<(), Refused> {
        match self.burst.replace(argv.count("BURST", CELLS_MAX)?) {
            None => Ok(()),
            Some(_) => Err(Refused::new("BURST is given twice for one tier")),
        }
    }

    fn quota(&self) -> Result<Quota, Refused> {
        Quota::new(self.limit, self.period, self.burst.unwrap_or(self.limit)).map_err(Refused::new)
    }
}

pub(crate) fn period(argv: &mut Argv<'_>) -> Result<Span, Refused> {
    let (least, most) = duration_bounds(PERIOD_MAX);
    argv.duration("period", least, most)
}

fn push(quotas: &mut Quotas, quota: Quota) -> Result<(), Refused> {
    if quotas.len() == TIERS_NAMED_MAX {
        return Err(Refused::new(format_args!("AND can name at most {TIERS_NAMED_MAX} tiers")));
    }
    if quotas.iter().any(|other| other.period() == quota.period()) {
        let period = Shown(quota.period());
        return Err(Refused::new(format_args!("AND names the period {period} twice; tiers are told apart by it")));
    }
    quotas.push(quota);
    Ok(())
}

/// `[granted, capacity, remaining, retry_after_ms, reset_after_ms]`, and with AND a sixth element, the tiers.
pub fn write_reply(verdict: &Verdict, sink: &mut (impl Sink + ?Sized)) {
    let several = verdict.tiers.len() > 1;
    sink.array(5 + several as usize);
    sink.integer(verdict.granted as i64);
    write_numbers(&verdict.binding(), sink);
    if several {
        sink.array(verdict.tiers.len());
        for reading in &verdict.tiers {
            sink.array(4);
            write_numbers(reading, sink);
        }
    }
}

pub(crate) fn write_numbers(reading: &Reading, sink: &mut (impl Sink + ?Sized)) {
    sink.integer(reading.capacity as i64);
    sink.integer(reading.remaining as i64);
    sink.integer(reading.retry_after.ms());
    sink.integer(reading.reset_after.ceil_ms());
}

/// `[capacity, remaining, retry_after_ms, reset_after_ms]` as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub capacity: i64,
    pub remaining: i64,
    /// -1: never.
    pub retry_after_ms: i64,
    pub reset_after_ms: i64,
}

impl Numbers {
    pub(crate) fn read(value: &Value) -> Result<Self, Unexpected> {
        value.integers().map(Self::from_array)
    }

    fn from_array([capacity, remaining, retry_after_ms, reset_after_ms]: [i64; 4]) -> Self {
        Self { capacity, remaining, retry_after_ms, reset_after_ms }
    }
}

/// The reply as a client sees it. `tiers` is empty unless AND was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub granted: i64,
    pub binding: Numbers,
    pub tiers: SmallVec<[Numbers; 3]>,
}

impl Reply {
    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let shape = Unexpected("five elements or six");
        let (numbers, tiers) = value.array()?.split_at_checked(5).ok_or(shape.clone())?;
        let [granted, binding @ ..]: [i64; 5] = reply::integers(numbers)?;
        let tiers = match tiers {
            [] => SmallVec::new(),
            [tiers] => tiers.array()?.iter().map(Numbers::read).collect::<Result<_, _>>()?,
            _ => return Err(shape),
        };
        Ok(Self { granted, binding: Numbers::from_array(binding), tiers })
    }
}
