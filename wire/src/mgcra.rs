//! `RES.MGCRA`: one cost against several keys, all or none.

use resil_core::limits::{CELLS_MAX, COST_MAX, MGCRA_KEYS_MAX};
use resil_core::rate_limit::{Quota, Reading};
use smallvec::SmallVec;

use crate::argv::{Argv, Refused, quoted};
use crate::gcra::{Numbers, period, write_numbers};
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

pub const NAME: &str = "RES.MGCRA";
pub const USAGE: &str = "RES.MGCRA cost key limit period burst [key limit period burst ...]";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mgcra<'a> {
    pub cost: u32,
    pub limits: SmallVec<[(&'a [u8], Quota); 4]>,
}

impl<'a> Mgcra<'a> {
    /// Parses what follows `RES.MGCRA`.
    pub fn parse(args: &'a [&'a [u8]]) -> Result<Self, Refused> {
        let mut argv = Argv::new(args, USAGE);
        let cost = argv.count("cost", COST_MAX)?;
        let mut limits = SmallVec::new();
        loop {
            let key = argv.bytes("key")?;
            let limit = argv.count("limit", CELLS_MAX)?;
            let period = period(&mut argv)?;
            let burst = argv.count("burst", CELLS_MAX)?;
            let quota = Quota::new(limit, period, burst).map_err(Refused::new)?;
            if limits.len() == MGCRA_KEYS_MAX {
                return Err(Refused::new(format_args!("RES.MGCRA takes at most {MGCRA_KEYS_MAX} keys")));
            }
            if limits.iter().any(|(other, _)| *other == key) {
                return Err(Refused::new(format_args!("key {} is named twice", quoted(key))));
            }
            limits.push((key, quota));
            if argv.is_empty() {
                return Ok(Self { cost, limits });
            }
        }
    }

    /// Writes what follows `RES.MGCRA`.
    pub fn encode(&self, words: &mut impl Words) {
        words.number(self.cost.into());
        for (key, quota) in &self.limits {
            words.word(key);
            words.number(quota.limit().into());
            words.duration(quota.period());
            words.number(quota.capacity().into());
        }
    }
}

/// `[granted, index of the first key that refused or -1, [[capacity, remaining, retry_after_ms, reset_after_ms], ...]]`.
pub fn write_reply(granted: u32, refused_by: Option<usize>, readings: &[Reading], sink: &mut (impl Sink + ?Sized)) {
    sink.array(3);
    sink.integer(granted as i64);
    sink.integer(refused_by.map_or(-1, |index| index as i64));
    sink.array(readings.len());
    for reading in readings {
        sink.array(4);
        write_numbers(reading, sink);
    }
}

/// The reply as a client sees it: `refused_by` is an index into `keys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub granted: i64,
    pub refused_by: Option<usize>,
    pub keys: SmallVec<[Numbers; 4]>,
}

impl Reply {
    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let [granted, refused_by, keys] = value.array()? else {
            return Err(Unexpected("three elements"));
        };
        let keys: SmallVec<[Numbers; 4]> = keys.array()?.iter().map(Numbers::read).collect::<Result<_, _>>()?;
        let refused_by = match refused_by.integer()? {
            -1 => None,
            index => match usize::try_from(index) {
                Ok(index) if index < keys.len() => Some(index),
                _ => return Err(Unexpected("the index of a key, or -1")),
            },
        };
        Ok(Self { granted: granted.integer()?, refused_by, keys })
    }
}
