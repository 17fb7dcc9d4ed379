//! `RES.MGCRA`: one cost against several keys, all or none.

use resil_core::limits::{CELLS_MAX, COST_MAX, MGCRA_KEYS_MAX};
use resil_core::rate_limit::{ManyVerdict, Quota};
use smallvec::SmallVec;

use crate::argv::{Argv, Refused, missing, quoted};
use crate::bound::Number;
use crate::command::{Allowed, Arguments};
use crate::gcra::{Numbers, PERIOD};
use crate::pages;
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

const COST: Number = Number::count("cost", COST_MAX);
const LIMIT: Number = Number::count("limit", CELLS_MAX);
const BURST: Number = Number::count("burst", CELLS_MAX);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mgcra<'a> {
    pub cost: u32,
    pub limits: Limits<'a>,
}

type Limits<'a> = SmallVec<[(&'a [u8], Quota); 4]>;

impl<'a> Arguments<'a> for Mgcra<'a> {
    fn parse(mut argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        let cost = COST.take_u32(&mut argv)?;
        let mut limits = SmallVec::new();
        loop {
            let key = argv.bytes("key")?;
            let limit = LIMIT.take_u32(&mut argv)?;
            let period = PERIOD.take(&mut argv)?;
            let burst = BURST.take_u32(&mut argv)?;
            push(&mut limits, key, Quota::new(limit, period, burst).map_err(Refused::new)?)?;
            if argv.is_empty() {
                return Ok(Self { cost, limits });
            }
        }
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        COST.check(self.cost.into())?;
        if self.limits.is_empty() {
            return Err(missing("key", &pages::MGCRA));
        }
        let mut named = SmallVec::new();
        self.limits.iter().try_for_each(|(key, quota)| push(&mut named, key, *quota))
    }

    fn encode(&self, words: &mut impl Words) {
        words.number(self.cost.into());
        for (key, quota) in &self.limits {
            words.word(key);
            words.number(quota.limit().into());
            words.duration(quota.period());
            words.number(quota.capacity().into());
        }
    }

    fn key(&self) -> Option<&'a [u8]> {
        self.limits.first().map(|(key, _)| *key)
    }
}

fn push<'a>(limits: &mut Limits<'a>, key: &'a [u8], quota: Quota) -> Result<(), Refused> {
    if limits.len() == MGCRA_KEYS_MAX {
        return Err(Refused::new(format_args!("RES.MGCRA takes at most {MGCRA_KEYS_MAX} keys")));
    }
    if limits.iter().any(|(other, _)| *other == key) {
        return Err(Refused::new(format_args!("key {} is named twice", quoted(key))));
    }
    limits.push((key, quota));
    Ok(())
}

/// `[granted, index of the first key that refused or -1, [[capacity, remaining, retry_after_ms, reset_after_ms], ...]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsReply {
    pub granted: i64,
    /// An index into `keys`.
    pub refused_by: Option<usize>,
    pub keys: SmallVec<[Numbers; 4]>,
}

impl From<&ManyVerdict> for LimitsReply {
    fn from(verdict: &ManyVerdict) -> Self {
        Self {
            granted: verdict.granted.into(),
            refused_by: verdict.refused_by,
            keys: verdict.readings.iter().map(Numbers::from).collect(),
        }
    }
}

impl LimitsReply {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(3);
        sink.integer(self.granted);
        sink.integer(self.refused_by.map_or(-1, |index| index as i64));
        Numbers::write_each(&self.keys, sink);
    }

    /// The reply to a call that named so many `keys`.
    pub fn read(value: Value, keys: usize) -> Result<Self, Unexpected> {
        let [granted, refused_by, numbers] = value.array()? else {
            return Err(Unexpected("three elements"));
        };
        let numbers: SmallVec<[Numbers; 4]> = numbers.array()?.iter().map(Numbers::read).collect::<Result<_, _>>()?;
        if numbers.len() != keys {
            return Err(Unexpected("every key that was named"));
        }
        let refused_by = match refused_by.integer()? {
            -1 => None,
            index => match usize::try_from(index) {
                Ok(index) if index < keys => Some(index),
                _ => return Err(Unexpected("the index of a key, or -1")),
            },
        };
        Ok(Self { granted: granted.integer()?, refused_by, keys: numbers })
    }
}
