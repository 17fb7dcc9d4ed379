//! What `RES.SFLIGHT` says, as it is written and read back.

use std::sync::Arc;

use resil_core::lease::ends_for;
use resil_core::lock::Reason;
use resil_core::single_flight::{self, Abandoned, Flight, Lead, Seen, look};
use resil_core::{Instant, Span};

use crate::command::Reply;
use crate::holding::{read_reason, write_lost};
use crate::reply::{Sink, Unexpected, Value};

/// JOIN and GET: `["LEAD", fence, stale value or nil, waited_ms]`, `["EARLY", fence, bytes, fresh_ms]`, `["VALUE", bytes, age_ms, fresh_ms]`,
/// `["STALE", bytes, age_ms]`, `["EMPTY", age_ms]`, `["ERROR", text]`, `["BUSY", remaining_ms]` or `["MISS"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// Only JOIN.
    Lead {
        fence: u64,
        stale: Option<Arc<[u8]>>,
        waited_ms: i64,
    },
    /// Only JOIN, with EARLY: it leads while the value is still fresh.
    Early {
        fence: u64,
        bytes: Arc<[u8]>,
        fresh_ms: i64,
    },
    Value {
        bytes: Arc<[u8]>,
        age_ms: i64,
        fresh_ms: i64,
    },
    Stale {
        bytes: Arc<[u8]>,
        age_ms: i64,
    },
    Empty {
        age_ms: i64,
    },
    Error {
        text: Arc<[u8]>,
    },
    Busy {
        remaining_ms: i64,
    },
    /// Only GET.
    Miss,
}

impl From<Lead> for Joined {
    fn from(lead: Lead) -> Self {
        let Lead { fence, stale, fresh, waited, .. } = lead;
        match (stale, fresh) {
            (Some(bytes), Some(fresh)) => Self::Early { fence, bytes, fresh_ms: fresh.floor_ms() },
            (stale, _) => Self::Lead { fence, stale, waited_ms: waited.floor_ms() },
        }
    }
}

impl From<Seen> for Joined {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Value { bytes, age, fresh } => {
                Self::Value { bytes, age_ms: age.floor_ms(), fresh_ms: fresh.floor_ms() }
            }
            Seen::Stale { bytes, age } => Self::Stale { bytes, age_ms: age.floor_ms() },
            Seen::Empty { age } => Self::Empty { age_ms: age.floor_ms() },
            Seen::Error { text } => Self::Error { text },
            Seen::Busy { remaining } => Self::Busy { remaining_ms: remaining.ceil_ms() },
            Seen::Miss => Self::Miss,
        }
    }
}

impl Joined {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Lead { fence, stale, waited_ms } => {
                sink.array(4);
                sink.text(b"LEAD");
                sink.integer(fence.cast_signed());
                sink.text_or_null(stale.as_deref());
                sink.integer(*waited_ms);
            }
            Self::Early { fence, bytes, fresh_ms } => {
                sink.array(4);
                sink.text(b"EARLY");
                sink.integer(fence.cast_signed());
                sink.text(bytes);
                sink.integer(*fresh_ms);
            }
            Self::Value { bytes, age_ms, fresh_ms } => {
                sink.array(4);
                sink.text(b"VALUE");
                sink.text(bytes);
                sink.integer(*age_ms);
                sink.integer(*fresh_ms);
            }
            Self::Stale { bytes, age_ms } => {
                sink.array(3);
                sink.text(b"STALE");
                sink.text(bytes);
                sink.integer(*age_ms);
            }
            Self::Empty { age_ms } => sink.verdict("EMPTY", &[*age_ms]),
            Self::Error { text } => {
                sink.array(2);
                sink.text(b"ERROR");
                sink.text(text);
            }
            Self::Busy { remaining_ms } => sink.verdict("BUSY", &[*remaining_ms]),
            Self::Miss => sink.verdict("MISS", &[]),
        }
    }

    pub fn read_join(value: Value) -> Result<Self, Unexpected> {
        match Self::read(value)? {
            Self::Miss => Err(Unexpected("a reply of JOIN")),
            joined => Ok(joined),
        }
    }

    pub fn read_get(value: Value) -> Result<Self, Unexpected> {
        match Self::read(value)? {
            Self::Lead { .. } | Self::Early { .. } => Err(Unexpected("a reply of GET")),
            joined => Ok(joined),
        }
    }

    fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let joined = match fields.text()?.as_slice() {
            b"LEAD" => Self::Lead {
                fence: fields.number()?,
                stale: fields.text_or_null()?.map(Into::into),
                waited_ms: fields.integer()?,
            },
            b"EARLY" => {
                Self::Early { fence: fields.number()?, bytes: fields.text()?.into(), fresh_ms: fields.integer()? }
            }
            b"VALUE" => {
                Self::Value { bytes: fields.text()?.into(), age_ms: fields.integer()?, fresh_ms: fields.integer()? }
            }
            b"STALE" => Self::Stale { bytes: fields.text()?.into(), age_ms: fields.integer()? },
            b"EMPTY" => Self::Empty { age_ms: fields.integer()? },
            b"ERROR" => Self::Error { text: fields.text()?.into() },
            b"BUSY" => Self::Busy { remaining_ms: fields.integer()? },
            b"MISS" => Self::Miss,
            _ => return Err(Unexpected("LEAD, EARLY, VALUE, STALE, EMPTY, ERROR, BUSY or MISS")),
        };
        fields.finish(joined)
    }
}

/// MGET: for each key what GET says, or nil where the reply was long enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMany(pub Vec<Option<Joined>>);

impl SeenMany {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(self.0.len());
        for seen in &self.0 {
            match seen {
                Some(seen) => seen.write(sink),
                None => sink.null(),
            }
        }
    }

    /// The reply to a call that named so many keys.
    pub fn read(value: Value, keys: usize) -> Result<Self, Unexpected> {
        let values = value.into_array()?;
        if values.len() != keys {
            return Err(Unexpected("a reply for each key"));
        }
        let read = |value| if value == Value::Null { Ok(None) } else { Joined::read_get(value).map(Some) };
        values.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// PUBLISH: `["PUBLISHED", followers]` or `["LOST", reason]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    Published { followers: i64 },
    Lost(Reason),
}

impl From<single_flight::Published> for Published {
    fn from(published: single_flight::Published) -> Self {
        match published {
            single_flight::Published::Published { followers } => Self::Published { followers: followers as i64 },
            single_flight::Published::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl Published {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Self::Published { followers } => sink.verdict("PUBLISHED", &[*followers]),
            Self::Lost(reason) => write_lost(*reason, sink),
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let published = match fields.text()?.as_slice() {
            b"PUBLISHED" => Self::Published { followers: fields.integer()? },
            b"LOST" => Self::Lost(read_reason(&mut fields)?),
            _ => return Err(Unexpected("PUBLISHED or LOST")),
        };
        fields.finish(published)
    }
}

impl From<Abandoned> for Reply {
    fn from(abandoned: Abandoned) -> Self {
        Self::Abandoned(match abandoned {
            Abandoned::Abandoned => None,
            Abandoned::Lost(reason) => Some(reason),
        })
    }
}

/// What INFO shows, as a map.
pub fn write_info(
    flight: &Flight,
    followers: usize,
    promoted_at: Option<Instant>,
    now: Instant,
    sink: &mut (impl Sink + ?Sized),
) {
    let (value, age, bytes) = match look(flight, None, now) {
        Seen::Value { bytes, age, .. } => ("fresh", age, bytes.len() as i64),
        Seen::Stale { bytes, age } => ("stale", age, bytes.len() as i64),
        Seen::Empty { age } => ("empty", age, 0),
        Seen::Error { .. } | Seen::Busy { .. } | Seen::Miss => ("none", Span::ZERO, -1),
    };
    let cached = flight.value.as_ref();
    let leader = flight
        .leader
        .as_ref()
        .map(|leader| (&*leader.token, leader.fence, now.until(ends_for(leader.ends, leader.lease, promoted_at, now))));
    let leader = leader.filter(|(_, _, remaining)| !remaining.is_zero());
    let pause = flight.paused(now);
    sink.map(12);
    sink.text(b"value");
    sink.text(value.as_bytes());
    sink.text(b"age_ms");
    sink.integer(age.floor_ms());
    sink.text(b"fresh_ms");
    sink.integer(cached.map_or(0, |cached| now.until(cached.fresh_until).floor_ms()));
    sink.text(b"stale_ms");
    sink.integer(cached.map_or(0, |cached| now.until(cached.stale_until).floor_ms()));
    sink.text(b"bytes");
    sink.integer(bytes);
    sink.text(b"leader");
    match leader {
        Some((token, ..)) => sink.text(token),
        None => sink.null(),
    }
    sink.text(b"fence");
    sink.integer(leader.map_or(flight.last_fence, |(_, fence, _)| fence) as i64);
    sink.text(b"remaining_ms");
    sink.integer(leader.map_or(0, |(_, _, remaining)| remaining.ceil_ms()));
    sink.text(b"paused_ms");
    sink.integer(pause.map_or(0, |pause| now.until(pause.until).ceil_ms()));
    sink.text(b"error");
    match pause.and_then(|pause| pause.error.as_ref()) {
        Some(text) => sink.text(text),
        None => sink.null(),
    }
    sink.text(b"followers");
    sink.integer(followers as i64);
    sink.text(b"exists");
    sink.integer(i64::from(!flight.is_nothing()));
}
