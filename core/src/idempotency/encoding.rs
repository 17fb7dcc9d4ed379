//! Records as bytes.
//!
//! ```text
//!   I  0                                                  nothing
//!   I  1 token at until                                   an event that was seen
//!   I  2 fingerprint token fence attempt keep on_lapse    work, then its phase:
//!        0 since lease end | 1 at why | 2 at until failed result?
//! ```

use alloc::boxed::Box;

use super::record::{Idle, OnLapse, Once, Record, Work, WorkPhase};
use crate::codec::{Buffer, Malformed, RECORD, Reader, Writer};
use crate::limits::{OWNER_MAX, RESULT_CEILING, TTL_MAX};
use crate::time::Span;

pub fn encode_record(record: &Record, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(RECORD);
    match record {
        Record::Nothing => out.byte(0),
        Record::Once(once) => {
            out.byte(1);
            out.text(&once.token);
            out.number(once.at.as_us().cast_unsigned());
            out.number(once.until.as_us().cast_unsigned());
        }
        Record::Work(work) => {
            out.byte(2);
            out.text(&work.fingerprint);
            out.text(&work.token);
            out.number(work.fence);
            out.number(u64::from(work.attempt));
            out.number(work.keep.as_us().cast_unsigned());
            out.byte(work.on_lapse as u8);
            write_phase(&work.phase, &mut out);
        }
    }
}

fn write_phase(phase: &WorkPhase, out: &mut Writer<'_, impl Buffer>) {
    match phase {
        WorkPhase::Running { since, lease, ends } => {
            out.byte(0);
            out.number(since.as_us().cast_unsigned());
            out.number(lease.as_us().cast_unsigned());
            out.number(ends.as_us().cast_unsigned());
        }
        WorkPhase::Idle { at, why } => {
            out.byte(1);
            out.number(at.as_us().cast_unsigned());
            out.byte(*why as u8);
        }
        WorkPhase::Done { at, until, failed, result } => {
            out.byte(2);
            out.number(at.as_us().cast_unsigned());
            out.number(until.as_us().cast_unsigned());
            out.byte(u8::from(*failed));
            match result {
                None => out.byte(0),
                Some(result) => {
                    out.byte(1);
                    out.text(result);
                }
            }
        }
    }
}

/// Checks every bound: what it accepts can be stepped.
pub fn decode_record(bytes: &[u8]) -> Result<Record, Malformed> {
    let mut bytes = Reader::tagged(bytes, RECORD)?;
    let record = match bytes.bytes(1)?[0] {
        0 => Record::Nothing,
        1 => Record::Once(Once { token: bytes.text(OWNER_MAX)?.into(), at: bytes.instant()?, until: bytes.instant()? }),
        2 => {
            let fingerprint = bytes.text(OWNER_MAX)?.into();
            let token = bytes.owner()?.into();
            let fence = bytes.fence()?;
            let attempt = bytes.u32()?;
            if attempt == 0 {
                return Err(Malformed);
            }
            let keep = Span::from_us(bytes.at_most(TTL_MAX.as_us())?);
            let on_lapse = if bytes.flag()? { OnLapse::Hold } else { OnLapse::Run };
            let phase = read_phase(&mut bytes)?;
            Record::Work(Box::new(Work { fingerprint, token, fence, attempt, keep, on_lapse, phase }))
        }
        _ => return Err(Malformed),
    };
    bytes.end()?;
    Ok(record)
}

fn read_phase(bytes: &mut Reader<'_>) -> Result<WorkPhase, Malformed> {
    Ok(match bytes.bytes(1)?[0] {
        0 => {
            let since = bytes.instant()?;
            let lease = bytes.lease()?;
            WorkPhase::Running { since, lease, ends: bytes.instant()? }
        }
        1 => WorkPhase::Idle {
            at: bytes.instant()?,
            why: Idle::ALL.get(bytes.bytes(1)?[0] as usize).copied().ok_or(Malformed)?,
        },
        2 => {
            let (at, until) = (bytes.instant()?, bytes.instant()?);
            let failed = bytes.flag()?;
            let result = if bytes.flag()? { Some(bytes.text(RESULT_CEILING)?.into()) } else { None };
            WorkPhase::Done { at, until, failed, result }
        }
        _ => return Err(Malformed),
    })
}
