//! Flights and their edits as bytes.
//!
//! ```text
//!   S  last fence  value?  pause?  leader?  n ended           a flight, whole; each part but the last after a 0 or 1
//!                                                             behind it, if anything of it is under a name: generation  stamp?  leader's generation
//!   s  then edits: 0 leader | 1 lease end | 2 at way | 3 value | 4 | 5 stale-until | 6 pause | 7 | 8 now
//!                  9 leader generation | 10 value stamp | 11 generation
//!
//!   value   0|1 bytes?  at fresh-until stale-until       pause   at until 0|1 error?
//!   leader  token fence since lease end                  ended   token fence at way
//!   stamp   generation  n tags
//! ```
//! What is under no name is written as it was before there were names, so versions without them can read it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::edit::{FlightEdit, FlightEdits};
use super::state::{Cached, Flight, LeadEnd, Leader, LoadPause, Stamp, Way};
use crate::codec::{Buffer, FLIGHT, FLIGHT_EDITS, Malformed, Reader, Writer};
use crate::generations::{read_generation, read_tag};
use crate::limits::{ENDS_REMEMBERED, RESULT_CEILING, TAGS_MAX, TEXT_MAX};
use crate::time::Instant;

pub fn encode_flight(flight: &Flight, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(FLIGHT);
    out.number(flight.last_fence);
    optional(flight.value.as_ref(), &mut out, write_value);
    optional(flight.pause.as_ref(), &mut out, write_pause);
    optional(flight.leader.as_deref(), &mut out, write_leader);
    out.number(flight.ended.len() as u64);
    for ended in &flight.ended {
        out.text(&ended.token);
        out.number(ended.fence);
        write_instant(ended.at, &mut out);
        out.byte(ended.way as u8);
    }
    let stamp = flight.value.as_ref().and_then(|value| value.stamp.as_deref());
    let leads_under = flight.leader.as_ref().map_or(0, |leader| leader.generation);
    if stamp.is_some() || leads_under > 0 || flight.generation > 0 {
        out.number(flight.generation);
        optional(stamp, &mut out, write_stamp);
        out.number(leads_under);
    }
}

/// Checks every bound: what it accepts can be stepped.
pub fn decode_flight(bytes: &[u8]) -> Result<Flight, Malformed> {
    let mut bytes = Reader::tagged(bytes, FLIGHT)?;
    let mut flight = Flight {
        last_fence: bytes.last_fence()?,
        value: read_optional(&mut bytes, read_value)?,
        pause: read_optional(&mut bytes, read_pause)?,
        leader: read_optional(&mut bytes, read_leader)?.map(Box::new),
        ended: Vec::new(),
        generation: 0,
    };
    for _ in 0..bytes.count(ENDS_REMEMBERED)? {
        let token: Box<[u8]> = bytes.owner()?.into();
        if flight.ended.iter().any(|other| other.token == token) {
            return Err(Malformed);
        }
        flight.ended.push(LeadEnd { token, fence: bytes.fence()?, at: bytes.instant()?, way: way(&mut bytes)? });
    }
    if !bytes.is_empty() {
        read_names(&mut flight, &mut bytes)?;
    }
    bytes.end()?;
    let leads = flight.leader.iter().map(|leader| leader.fence);
    let highest = leads.chain(flight.ended.iter().map(|ended| ended.fence)).max();
    if highest > Some(flight.last_fence) { Err(Malformed) } else { Ok(flight) }
}

/// What is under a name; only written if something is.
fn read_names(flight: &mut Flight, bytes: &mut Reader<'_>) -> Result<(), Malformed> {
    flight.generation = generation_or_none(bytes)?;
    let stamp = read_optional(bytes, read_stamp)?.map(Box::new);
    let leads_under = generation_or_none(bytes)?;
    if flight.generation == 0 && stamp.is_none() && leads_under == 0 {
        return Err(Malformed);
    }
    if let Some(stamp) = stamp {
        flight.value.as_mut().ok_or(Malformed)?.stamp = Some(stamp);
    }
    if leads_under > 0 {
        flight.leader.as_mut().ok_or(Malformed)?.generation = leads_under;
    }
    Ok(())
}

fn generation_or_none(bytes: &mut Reader<'_>) -> Result<u64, Malformed> {
    if bytes.skip(0) { Ok(0) } else { read_generation(bytes) }
}

fn write_stamp<B: Buffer>(stamp: &Stamp, out: &mut Writer<'_, B>) {
    out.number(stamp.generation);
    out.number(stamp.tags.len() as u64);
    stamp.tags.iter().for_each(|tag| out.text(tag));
}

fn read_stamp(bytes: &mut Reader<'_>) -> Result<Stamp, Malformed> {
    let generation = read_generation(bytes)?;
    let mut tags: Vec<Box<[u8]>> = Vec::new();
    for _ in 0..bytes.count(TAGS_MAX)? {
        let tag = read_tag(bytes)?;
        if tags.last().is_some_and(|last| *last >= tag) {
            return Err(Malformed);
        }
        tags.push(tag);
    }
    Ok(Stamp { generation, tags })
}

pub fn encode_edits(edits: &[FlightEdit], out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(FLIGHT_EDITS);
    for edit in edits {
        match edit {
            FlightEdit::Led(leader) => {
                out.byte(if leader.generation > 0 { 9 } else { 0 });
                write_leader(leader, &mut out);
                if leader.generation > 0 {
                    out.number(leader.generation);
                }
            }
            FlightEdit::Timed { lease, ends } => {
                out.byte(1);
                out.number(lease.as_us().cast_unsigned());
                write_instant(*ends, &mut out);
            }
            FlightEdit::Ended { at, way } => {
                out.byte(2);
                write_instant(*at, &mut out);
                out.byte(*way as u8);
            }
            FlightEdit::Kept(value) => {
                out.byte(if value.stamp.is_some() { 10 } else { 3 });
                write_value(value, &mut out);
                if let Some(stamp) = &value.stamp {
                    write_stamp(stamp, &mut out);
                }
            }
            FlightEdit::Dropped => out.byte(4),
            FlightEdit::Softened { stale_until } => {
                out.byte(5);
                write_instant(*stale_until, &mut out);
            }
            FlightEdit::Paused(pause) => {
                out.byte(6);
                write_pause(pause, &mut out);
            }
            FlightEdit::Resumed => out.byte(7),
            FlightEdit::Known { generation } => {
                out.byte(11);
                out.number(*generation);
            }
            FlightEdit::Mended { now } => {
                out.byte(8);
                write_instant(*now, &mut out);
            }
        }
    }
}

pub fn decode_edits(bytes: &[u8]) -> Result<FlightEdits, Malformed> {
    let mut bytes = Reader::tagged(bytes, FLIGHT_EDITS)?;
    let mut edits = FlightEdits::new();
    while !bytes.is_empty() {
        edits.push(match bytes.bytes(1)?[0] {
            0 => FlightEdit::Led(Box::new(read_leader(&mut bytes)?)),
            1 => FlightEdit::Timed { lease: bytes.lease()?, ends: bytes.instant()? },
            2 => FlightEdit::Ended { at: bytes.instant()?, way: way(&mut bytes)? },
            3 => FlightEdit::Kept(read_value(&mut bytes)?),
            4 => FlightEdit::Dropped,
            5 => FlightEdit::Softened { stale_until: bytes.instant()? },
            6 => FlightEdit::Paused(read_pause(&mut bytes)?),
            7 => FlightEdit::Resumed,
            8 => FlightEdit::Mended { now: bytes.instant()? },
            9 => {
                let leader = read_leader(&mut bytes)?;
                FlightEdit::Led(Box::new(Leader { generation: read_generation(&mut bytes)?, ..leader }))
            }
            10 => {
                let value = read_value(&mut bytes)?;
                FlightEdit::Kept(Cached { stamp: Some(Box::new(read_stamp(&mut bytes)?)), ..value })
            }
            11 => FlightEdit::Known { generation: read_generation(&mut bytes)? },
            _ => return Err(Malformed),
        });
    }
    if edits.is_empty() { Err(Malformed) } else { Ok(edits) }
}

fn optional<T, B: Buffer>(part: Option<&T>, out: &mut Writer<'_, B>, write: impl FnOnce(&T, &mut Writer<'_, B>)) {
    out.byte(u8::from(part.is_some()));
    if let Some(part) = part {
        write(part, out);
    }
}

fn read_optional<T>(
    bytes: &mut Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    match bytes.bytes(1)?[0] {
        0 => Ok(None),
        1 => read(bytes).map(Some),
        _ => Err(Malformed),
    }
}

fn write_value<B: Buffer>(value: &Cached, out: &mut Writer<'_, B>) {
    optional(value.content.as_ref(), out, |bytes, out| out.text(bytes));
    write_instant(value.at, out);
    write_instant(value.fresh_until, out);
    write_instant(value.stale_until, out);
}

fn read_value(bytes: &mut Reader<'_>) -> Result<Cached, Malformed> {
    let content = read_optional(bytes, |bytes| bytes.text(RESULT_CEILING).map(Arc::from))?;
    let (at, fresh_until, stale_until) = (bytes.instant()?, bytes.instant()?, bytes.instant()?);
    Ok(Cached { content, at, fresh_until, stale_until, stamp: None })
}

fn write_pause<B: Buffer>(pause: &LoadPause, out: &mut Writer<'_, B>) {
    write_instant(pause.at, out);
    write_instant(pause.until, out);
    optional(pause.error.as_ref(), out, |text, out| out.text(text));
}

fn read_pause(bytes: &mut Reader<'_>) -> Result<LoadPause, Malformed> {
    let (at, until) = (bytes.instant()?, bytes.instant()?);
    Ok(LoadPause { at, until, error: read_optional(bytes, |bytes| bytes.text(TEXT_MAX).map(Arc::from))? })
}

fn write_leader<B: Buffer>(leader: &Leader, out: &mut Writer<'_, B>) {
    out.text(&leader.token);
    out.number(leader.fence);
    write_instant(leader.since, out);
    out.number(leader.lease.as_us().cast_unsigned());
    write_instant(leader.ends, out);
}

fn read_leader(bytes: &mut Reader<'_>) -> Result<Leader, Malformed> {
    Ok(Leader {
        token: bytes.owner()?.into(),
        fence: bytes.fence()?,
        since: bytes.instant()?,
        lease: bytes.lease()?,
        ends: bytes.instant()?,
        generation: 0,
    })
}

fn write_instant<B: Buffer>(instant: Instant, out: &mut Writer<'_, B>) {
    out.number(instant.as_us().cast_unsigned());
}

fn way(bytes: &mut Reader<'_>) -> Result<Way, Malformed> {
    Way::ALL.get(bytes.bytes(1)?[0] as usize).copied().ok_or(Malformed)
}
