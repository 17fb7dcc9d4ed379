//! Replies as answers. Strict: a reply of another shape, with a word nobody knows, or with one that does not belong to
//! the command is [`Unexpected`], whatever a server or something in between sends. Bytes are copied once at most.

use resil_core::circuit_breaker::{Permit, StateName, Why};
use resil_core::lock::Reason;

use super::{
    Acquired, Admitted, Answer, Begun, Committed, Counted, Entered, Heartbeat, Joined, Lost, Published, Released,
    Renewed, Taken,
};
use crate::command::Command;
use crate::gcra;
use crate::mgcra;
use crate::reply::{Fields, Unexpected, Value};

impl Command<'_> {
    /// Reads a server's reply to this command.
    pub fn read(&self, value: Value) -> Result<Answer, Unexpected> {
        match self {
            Self::Gcra(call) => read_limit(value, call.quotas.len()),
            Self::Window(_) => read_limit(value, 1),
            Self::Mgcra(call) => read_limits(value, call.limits.len()),
            Self::Throttle(_) => value.integers().map(Answer::Throttle),
            Self::BreakerAdmit(_) => read_admitted(value).map(Answer::Admitted),
            Self::BreakerReport(_) | Self::BreakerTally(_) => read_counted(value).map(Answer::Counted),
            Self::BreakerForce(_) => read_forced(value),
            Self::BreakerReset(_)
            | Self::BreakerConfig(_)
            | Self::LockCheck(_)
            | Self::LockBreak(_)
            | Self::IdempOnce(_)
            | Self::FlightInvalidate(_) => value.integer().map(Answer::Number),
            Self::LockAcquire(_) => read_acquired(value).map(Answer::Acquired),
            Self::BulkheadEnter(_) => read_entered(value).map(Answer::Entered),
            Self::LockRenew(_) | Self::BulkheadRenew(_) | Self::IdempRenew(_) | Self::FlightRenew(_) => {
                read_renewed(value).map(Answer::Renewed)
            }
            Self::LockRelease(_) | Self::BulkheadLeave(_) => read_released(value).map(Answer::Released),
            Self::IdempBegin(_) => match read_begun(value)? {
                Begun::Miss => Err(Unexpected("an answer of BEGIN")),
                begun => Ok(Answer::Begun(begun)),
            },
            Self::IdempGet(_) => match read_begun(value)? {
                Begun::Run { .. } => Err(Unexpected("an answer of GET")),
                begun => Ok(Answer::Begun(begun)),
            },
            Self::IdempCommit(_) => read_committed(value).map(Answer::Committed),
            Self::IdempAbort(_) => read_given_up(value, "ABORTED").map(Answer::Aborted),
            Self::FlightAbandon(_) => read_given_up(value, "ABANDONED").map(Answer::Abandoned),
            Self::FlightJoin(_) => match read_joined(value)? {
                Joined::Miss => Err(Unexpected("an answer of JOIN")),
                joined => Ok(Answer::Joined(joined)),
            },
            Self::FlightGet(_) => match read_joined(value)? {
                Joined::Lead { .. } => Err(Unexpected("an answer of GET")),
                joined => Ok(Answer::Joined(joined)),
            },
            Self::FlightPublish(_) => read_published(value).map(Answer::Published),
            Self::Heartbeat => read_heartbeat(value).map(Answer::Heartbeat),
            Self::BreakerState(_)
            | Self::LockInfo(_)
            | Self::BulkheadInfo(_)
            | Self::IdempInfo(_)
            | Self::FlightInfo(_) => read_map(value).map(Answer::Map),
        }
    }
}

/// Each tier has its numbers if there are several.
fn read_limit(value: Value, quotas: usize) -> Result<Answer, Unexpected> {
    let reply = gcra::Reply::read(value)?;
    let promised = if quotas > 1 { quotas } else { 0 };
    if reply.tiers.len() == promised { Ok(Answer::Limit(reply)) } else { Err(Unexpected("every tier that was named")) }
}

fn read_limits(value: Value, keys: usize) -> Result<Answer, Unexpected> {
    let reply = mgcra::Reply::read(value)?;
    if reply.keys.len() == keys { Ok(Answer::Limits(reply)) } else { Err(Unexpected("every key that was named")) }
}

fn read_state(fields: &mut Fields) -> Result<StateName, Unexpected> {
    StateName::from_text(&fields.text()?).ok_or(Unexpected("the name of a state"))
}

fn read_reason(fields: &mut Fields) -> Result<Reason, Unexpected> {
    Reason::from_text(&fields.text()?).ok_or(Unexpected("the name of a reason"))
}

fn read_admitted(value: Value) -> Result<Admitted, Unexpected> {
    let mut fields = value.into_fields()?;
    let admitted = fields.flag()?;
    let state = read_state(&mut fields)?;
    let permit = match (admitted, fields.text_or_null()?) {
        (true, Some(text)) => Some(Permit::parse(&text).ok_or(Unexpected("a permit"))?),
        (false, None) => None,
        _ => return Err(Unexpected("a permit if and only if it is admitted")),
    };
    let (retry_after_ms, generation) = (fields.integer()?, fields.number()?);
    fields.finish(Admitted { permit, state, retry_after_ms, generation })
}

fn read_counted(value: Value) -> Result<Counted, Unexpected> {
    let mut fields = value.into_fields()?;
    let counted = fields.flag()?;
    let state = read_state(&mut fields)?;
    let (generation, retry_after_ms) = (fields.number()?, fields.integer()?);
    let why = Why::from_text(&fields.text()?).ok_or(Unexpected("why it counted or not"))?;
    if counted != (why == Why::Counted) {
        return Err(Unexpected("1 if and only if it counted"));
    }
    fields.finish(Counted { why, state, generation, retry_after_ms })
}

fn read_forced(value: Value) -> Result<Answer, Unexpected> {
    let mut fields = value.into_fields()?;
    let state = read_state(&mut fields)?;
    let generation = fields.number()?;
    fields.finish(Answer::Forced { state, generation })
}

fn read_acquired(value: Value) -> Result<Acquired, Unexpected> {
    let mut fields = value.into_fields()?;
    let taken = |fields: &mut Fields| {
        Ok(Taken { holder: fields.text_or_null()?, remaining_ms: fields.integer()?, waiters: fields.integer()? })
    };
    let acquired = match fields.text()?.as_slice() {
        b"GRANTED" => {
            Acquired::Granted { fence: fields.number()?, lease_ms: fields.integer()?, waited_ms: fields.integer()? }
        }
        b"TAKEN" => Acquired::Taken(taken(&mut fields)?),
        b"TIMEOUT" => Acquired::Timeout(taken(&mut fields)?),
        _ => return Err(Unexpected("GRANTED, TAKEN or TIMEOUT")),
    };
    fields.finish(acquired)
}

fn read_entered(value: Value) -> Result<Entered, Unexpected> {
    let mut fields = value.into_fields()?;
    let word = fields.text()?;
    let (active, queued) = (fields.integer()?, fields.integer()?);
    let entered = match word.as_slice() {
        b"GRANTED" => Entered::Granted { active, queued, lease_ms: fields.integer()?, waited_ms: fields.integer()? },
        b"FULL" => Entered::Full { active, queued, retry_after_ms: fields.integer()? },
        b"TIMEOUT" => Entered::Timeout { active, queued, retry_after_ms: fields.integer()? },
        _ => return Err(Unexpected("GRANTED, FULL or TIMEOUT")),
    };
    fields.finish(entered)
}

fn read_renewed(value: Value) -> Result<Renewed, Unexpected> {
    let mut fields = value.into_fields()?;
    let renewed = match fields.text()?.as_slice() {
        b"GRANTED" => {
            let (fence, lease_ms) = (fields.number()?, fields.integer()?);
            if fields.integer()? != 0 {
                return Err(Unexpected("no time to have been waited for"));
            }
            Renewed::Granted { fence, lease_ms }
        }
        b"LOST" => Renewed::Lost(read_reason(&mut fields)?),
        _ => return Err(Unexpected("GRANTED or LOST")),
    };
    fields.finish(renewed)
}

fn read_released(value: Value) -> Result<Released, Unexpected> {
    let mut fields = value.into_fields()?;
    let released = match fields.text()?.as_slice() {
        b"RELEASED" => Released::Released { held_ms: fields.integer()? },
        b"LOST" => Released::Lost(read_reason(&mut fields)?),
        _ => return Err(Unexpected("RELEASED or LOST")),
    };
    fields.finish(released)
}

fn read_begun(value: Value) -> Result<Begun, Unexpected> {
    let mut fields = value.into_fields()?;
    let begun = match fields.text()?.as_slice() {
        b"RUN" => Begun::Run { fence: fields.number()?, attempt: fields.number()?, waited_ms: fields.integer()? },
        b"REPLAY" => {
            let failed = match fields.text()?.as_slice() {
                b"ok" => false,
                b"error" => true,
                _ => return Err(Unexpected("ok or error")),
            };
            let result = fields.text_or_null()?.map(Into::into);
            Begun::Replay { failed, result, age_ms: fields.integer()? }
        }
        b"BUSY" => Begun::Busy { remaining_ms: fields.integer()?, attempt: fields.number()? },
        b"MISMATCH" => Begun::Mismatch,
        b"HELD" => Begun::Held { attempt: fields.number()? },
        b"MISS" => Begun::Miss,
        _ => return Err(Unexpected("RUN, REPLAY, BUSY, MISMATCH, HELD or MISS")),
    };
    fields.finish(begun)
}

fn read_committed(value: Value) -> Result<Committed, Unexpected> {
    let mut fields = value.into_fields()?;
    let committed = match fields.text()?.as_slice() {
        b"COMMITTED" => match fields.text()?.as_slice() {
            b"stored" => Committed::Committed { stored: true },
            b"dropped" => Committed::Committed { stored: false },
            _ => return Err(Unexpected("stored or dropped")),
        },
        b"LOST" => Committed::Lost(read_reason(&mut fields)?),
        _ => return Err(Unexpected("COMMITTED or LOST")),
    };
    fields.finish(committed)
}

fn read_given_up(value: Value, done: &str) -> Result<Option<Reason>, Unexpected> {
    let mut fields = value.into_fields()?;
    let lost = match fields.text()?.as_slice() {
        word if word == done.as_bytes() => None,
        b"LOST" => Some(read_reason(&mut fields)?),
        _ => return Err(Unexpected("that it was given up, or LOST")),
    };
    fields.finish(lost)
}

fn read_joined(value: Value) -> Result<Joined, Unexpected> {
    let mut fields = value.into_fields()?;
    let joined = match fields.text()?.as_slice() {
        b"LEAD" => Joined::Lead {
            fence: fields.number()?,
            stale: fields.text_or_null()?.map(Into::into),
            waited_ms: fields.integer()?,
        },
        b"VALUE" => {
            Joined::Value { bytes: fields.text()?.into(), age_ms: fields.integer()?, fresh_ms: fields.integer()? }
        }
        b"STALE" => Joined::Stale { bytes: fields.text()?.into(), age_ms: fields.integer()? },
        b"EMPTY" => Joined::Empty { age_ms: fields.integer()? },
        b"ERROR" => Joined::Error { text: fields.text()?.into() },
        b"BUSY" => Joined::Busy { remaining_ms: fields.integer()? },
        b"MISS" => Joined::Miss,
        _ => return Err(Unexpected("LEAD, VALUE, STALE, EMPTY, ERROR, BUSY or MISS")),
    };
    fields.finish(joined)
}

fn read_published(value: Value) -> Result<Published, Unexpected> {
    let mut fields = value.into_fields()?;
    let published = match fields.text()?.as_slice() {
        b"PUBLISHED" => Published::Published { followers: fields.integer()? },
        b"LOST" => Published::Lost(read_reason(&mut fields)?),
        _ => return Err(Unexpected("PUBLISHED or LOST")),
    };
    fields.finish(published)
}

fn read_heartbeat(value: Value) -> Result<Heartbeat, Unexpected> {
    let mut fields = value.into_fields()?;
    let bound = fields.integer()?;
    let losses = fields.next()?.into_array()?.into_iter().map(read_lost).collect::<Result<_, _>>()?;
    fields.finish(Heartbeat { bound, losses })
}

fn read_lost(value: Value) -> Result<Lost, Unexpected> {
    let mut fields = value.into_fields()?;
    let (key, fence) = (fields.text()?, fields.number()?);
    let reason = read_reason(&mut fields)?;
    fields.finish(Lost { key, fence, reason })
}

/// A map whose keys are texts. From an older protocol it is an array of keys and values in turn, and so are the maps
/// inside it, which are known by their names.
fn read_map(value: Value) -> Result<Value, Unexpected> {
    let pairs = match value {
        Value::Map(pairs) => pairs,
        Value::Array(flat) if flat.len().is_multiple_of(2) => {
            let mut pairs = Vec::with_capacity(flat.len() / 2);
            let mut flat = flat.into_iter();
            while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                let value = match (&key, value) {
                    (Value::Text(name), value) if name == b"config" => read_map(value)?,
                    (Value::Text(name), Value::Array(rows)) if name == b"holders" || name == b"waiters" => {
                        Value::Array(rows.into_iter().map(read_map).collect::<Result<_, _>>()?)
                    }
                    (_, value) => value,
                };
                pairs.push((key, value));
            }
            pairs
        }
        _ => return Err(Unexpected("a map")),
    };
    if pairs.iter().all(|(key, _)| matches!(key, Value::Text(_))) {
        Ok(Value::Map(pairs))
    } else {
        Err(Unexpected("a map of texts"))
    }
}
