//! Ledgers as bytes.
//!
//! ```text
//!   D  records     a ledger, whole, or its first piece
//!   d  edits       what one step did to it, or a further piece: then every edit is a record
//! ```
//! A ledger can have hundreds of megabytes, so it is written in pieces of about 64 KB, and read back piece by piece. Each record
//! stands alone and refers only to earlier ones: groups and cases come before entries, entries before batches. What can be
//! reckoned from the entries is not written.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::edit::{Added, FailedEdit, Fate, LedgerEdit, LedgerEdits, TakenEdit};
use super::fields::{Field, In, Out, Read, list, read_list, read_span, span, tagged, tagged_alone};
use super::ledger::Ledger;
use super::records::{for_each_record, read_record};
use crate::codec::{Buffer, LEDGER, LEDGER_EDITS, Malformed, Reader, Writer};
use crate::limits::{ERROR_MAX, PURGE_MAX, TAKE_MAX, TEXT_MAX, TTL_MAX};

/// About how long a piece is, and a record of it.
const PIECE: usize = 64 << 10;
const RECORD: usize = 512;

/// The whole ledger in one piece.
pub fn encode_ledger(ledger: &Ledger, out: &mut impl Buffer) {
    out.append(&[LEDGER]);
    let mut record = Vec::new();
    for_each_record(ledger, |write| {
        record.clear();
        write(&mut record);
        out.append(&record);
    });
}

/// The ledger in pieces: the first is a ledger, the others are edits to it.
pub fn encode_pieces(ledger: &Ledger, mut emit: impl FnMut(&[u8])) {
    let mut piece = Vec::with_capacity(2 * PIECE);
    piece.push(LEDGER);
    let mut is_first = true;
    for_each_record(ledger, |write| {
        if !is_first {
            piece.push(LOADED);
        }
        write(&mut piece);
        if piece.len() >= PIECE {
            emit(&piece);
            piece.clear();
            piece.push(LEDGER_EDITS);
            is_first = false;
        }
    });
    if piece.len() > 1 || is_first {
        emit(&piece);
    }
}

/// Checks every bound: what it accepts can be stepped.
pub fn decode_ledger(bytes: &[u8]) -> Read<Ledger> {
    let mut bytes = Reader::tagged(bytes, LEDGER)?;
    let mut ledger = Ledger { is_open: true, ..Ledger::default() };
    ledger.load_head(read_record(&mut bytes)?)?;
    while !bytes.is_empty() {
        ledger.load(read_record(&mut bytes)?)?;
    }
    Ok(ledger)
}

/// Takes a further piece over.
pub fn load_piece(ledger: &mut Ledger, bytes: &[u8]) -> Read<()> {
    let mut records = Vec::with_capacity(bytes.len() / RECORD);
    let mut bytes = Reader::tagged(bytes, LEDGER_EDITS)?;
    while !bytes.is_empty() {
        if bytes.skip(LOADED) {
            records.push(read_record(&mut bytes)?);
        } else {
            ledger.load_all(core::mem::take(&mut records));
            ledger.end_loading();
            ledger.apply(read_edit(&mut bytes)?);
        }
    }
    ledger.load_all(records);
    Ok(())
}

pub fn encode_edits(edits: &[LedgerEdit], out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(LEDGER_EDITS);
    edits.iter().for_each(|edit| write_edit(edit, &mut out));
}

pub fn decode_edits(bytes: &[u8]) -> Read<LedgerEdits> {
    let mut bytes = Reader::tagged(bytes, LEDGER_EDITS)?;
    let mut edits = LedgerEdits::new();
    while !bytes.is_empty() {
        edits.push(read_edit(&mut bytes)?);
    }
    Ok(edits)
}

const OPENED: u8 = 0;
const ADDED: u8 = 1;
const FAILED: u8 = 2;
const TAKEN: u8 = 3;
const TIMED: u8 = 4;
const ENDED: u8 = 5;
const FINISHED: u8 = 6;
const RETURNED: u8 = 7;
const DUE: u8 = 8;
const HELD: u8 = 9;
const AGGREGATE_HELD: u8 = 10;
const DIAGNOSED: u8 = 11;
const REDRIVE_STARTED: u8 = 12;
const REDRIVE_MOVED: u8 = 13;
const REDRIVE_ENDED: u8 = 14;
const CASE_CLOSED: u8 = 15;
const ARCHIVED: u8 = 16;
const PURGED: u8 = 17;
const ALERTED: u8 = 18;
const ALERT_SEEN: u8 = 19;
const AUDITED: u8 = 20;
const CONFIGURED: u8 = 21;
const FILLED: u8 = 22;
const LOADED: u8 = 23;
const PACED: u8 = 24;

fn write_edit<B: Buffer>(edit: &LedgerEdit, out: Out<'_, '_, B>) {
    match edit {
        LedgerEdit::Opened => out.byte(OPENED),
        LedgerEdit::Added(Added { arrival, message, at, failure }) => {
            tagged(ADDED, arrival, message, out);
            at.write(out);
            failure.is_some().write(out);
            if let Some(failure) = failure {
                write_failed(failure, out);
            }
        }
        LedgerEdit::Failed(failed) => {
            out.byte(FAILED);
            write_failed(failed, out);
        }
        LedgerEdit::Taken(taken) => {
            tagged(TAKEN, &taken.fence, &taken.batch, out);
            taken.drawn.write(out);
            taken.pace.write(out);
        }
        LedgerEdit::Timed { fence, length, ends } => {
            tagged(TIMED, fence, ends, out);
            span(*length, out);
        }
        LedgerEdit::Ended { fence, at, how, counted } => {
            tagged(ENDED, fence, at, out);
            how.write(out);
            counted.write(out);
        }
        LedgerEdit::Done { arrivals, at } => {
            tagged_alone(FINISHED, at, out);
            list(arrivals, out);
        }
        LedgerEdit::Returned { arrivals, at, due } => {
            tagged(RETURNED, at, due, out);
            list(arrivals, out);
        }
        LedgerEdit::Due { arrival, at } => tagged(DUE, arrival, at, out),
        LedgerEdit::Paced(pace) => tagged_alone(PACED, pace, out),
        LedgerEdit::Held { arrival, held } => tagged(HELD, arrival, held, out),
        LedgerEdit::AggregateHeld { aggregate, held } => tagged(AGGREGATE_HELD, aggregate, held, out),
        LedgerEdit::Diagnosed { number, case } => tagged(DIAGNOSED, number, &**case, out),
        LedgerEdit::RedriveStarted { case, redrive } => tagged(REDRIVE_STARTED, case, &**redrive, out),
        LedgerEdit::RedriveMoved { case, cursor, is_exhausted } => {
            tagged(REDRIVE_MOVED, case, cursor, out);
            is_exhausted.write(out);
        }
        LedgerEdit::RedriveEnded { case, phase } => tagged(REDRIVE_ENDED, case, phase, out),
        LedgerEdit::CaseClosed { case, at, discard } => {
            tagged(CASE_CLOSED, case, at, out);
            discard.write(out);
        }
        LedgerEdit::Archived { arrivals, at } => {
            tagged_alone(ARCHIVED, at, out);
            list(arrivals, out);
        }
        LedgerEdit::Purged { arrivals, at } => {
            tagged_alone(PURGED, at, out);
            list(arrivals, out);
        }
        LedgerEdit::Alerted(alert) => tagged_alone(ALERTED, alert, out),
        LedgerEdit::AlertSeen { id } => tagged_alone(ALERT_SEEN, id, out),
        LedgerEdit::Audited(row) => tagged_alone(AUDITED, row, out),
        LedgerEdit::Configured(config) => tagged_alone(CONFIGURED, config, out),
        LedgerEdit::Filled(is_nearly_full) => tagged_alone(FILLED, is_nearly_full, out),
        // Pieces are written by `encode_pieces`, and never made by a step.
        LedgerEdit::Loaded(_) => {}
    }
}

fn write_failed<B: Buffer>(failed: &FailedEdit, out: Out<'_, '_, B>) {
    (failed.arrival, failed.at).write(out);
    failed.class.write(out);
    u32::from(failed.attempt).write(out);
    out.text(&failed.error);
    failed.error_is_cut.write(out);
    out.text(&failed.group);
    match failed.fate {
        Fate::Retry { delay } => {
            out.byte(0);
            span(delay, out);
        }
        Fate::Dead(reason) => {
            out.byte(1);
            reason.write(out);
        }
    }
}

fn read_failed(bytes: In<'_, '_>) -> Read<FailedEdit> {
    let (arrival, at) = Field::read(bytes)?;
    let class = Field::read(bytes)?;
    let attempt = u16::try_from(bytes.u32()?).map_err(|_| Malformed)?;
    let error = bytes.text(ERROR_MAX)?.into();
    let error_is_cut = bytes.flag()?;
    let group = bytes.text(TEXT_MAX)?.into();
    let fate = match bytes.bytes(1)?[0] {
        0 => Fate::Retry { delay: read_span(bytes, TTL_MAX)? },
        1 => Fate::Dead(Field::read(bytes)?),
        _ => return Err(Malformed),
    };
    Ok(FailedEdit { arrival, at, class, attempt, error, error_is_cut, group, fate })
}

fn read_edit(bytes: In<'_, '_>) -> Read<LedgerEdit> {
    Ok(match bytes.bytes(1)?[0] {
        OPENED => LedgerEdit::Opened,
        ADDED => {
            let (arrival, message) = Field::read(bytes)?;
            let (at, has_failed) = Field::read(bytes)?;
            let failure = if has_failed { Some(Box::new(read_failed(bytes)?)) } else { None };
            if failure.as_ref().is_some_and(|failure| failure.arrival != arrival) {
                return Err(Malformed);
            }
            LedgerEdit::Added(Added { arrival, message, at, failure })
        }
        FAILED => LedgerEdit::Failed(Box::new(read_failed(bytes)?)),
        TAKEN => {
            let fence = bytes.fence()?;
            let (batch, (drawn, pace)) = Field::read(bytes)?;
            LedgerEdit::Taken(Box::new(TakenEdit { fence, batch, drawn, pace }))
        }
        TIMED => {
            let (fence, ends) = (bytes.fence()?, bytes.instant()?);
            LedgerEdit::Timed { fence, length: bytes.lease()?, ends }
        }
        ENDED => {
            let (fence, at) = (bytes.fence()?, bytes.instant()?);
            LedgerEdit::Ended { fence, at, how: Field::read(bytes)?, counted: bytes.flag()? }
        }
        FINISHED => LedgerEdit::Done { at: bytes.instant()?, arrivals: read_list(bytes, TAKE_MAX)?.into() },
        RETURNED => {
            let (at, due) = Field::read(bytes)?;
            LedgerEdit::Returned { arrivals: read_list(bytes, TAKE_MAX)?.into(), at, due }
        }
        DUE => LedgerEdit::Due { arrival: Field::read(bytes)?, at: Field::read(bytes)? },
        PACED => LedgerEdit::Paced(Field::read(bytes)?),
        HELD => LedgerEdit::Held { arrival: Field::read(bytes)?, held: bytes.flag()? },
        AGGREGATE_HELD => LedgerEdit::AggregateHeld { aggregate: Field::read(bytes)?, held: bytes.flag()? },
        DIAGNOSED => LedgerEdit::Diagnosed { number: bytes.u32()?, case: Box::new(Field::read(bytes)?) },
        REDRIVE_STARTED => LedgerEdit::RedriveStarted { case: bytes.u32()?, redrive: Box::new(Field::read(bytes)?) },
        REDRIVE_MOVED => {
            let (case, cursor) = Field::read(bytes)?;
            LedgerEdit::RedriveMoved { case, cursor, is_exhausted: bytes.flag()? }
        }
        REDRIVE_ENDED => LedgerEdit::RedriveEnded { case: bytes.u32()?, phase: Field::read(bytes)? },
        CASE_CLOSED => {
            LedgerEdit::CaseClosed { case: bytes.u32()?, at: bytes.instant()?, discard: Field::read(bytes)? }
        }
        ARCHIVED => LedgerEdit::Archived { at: bytes.instant()?, arrivals: read_list(bytes, PURGE_MAX)? },
        PURGED => LedgerEdit::Purged { at: bytes.instant()?, arrivals: read_list(bytes, PURGE_MAX)? },
        ALERTED => LedgerEdit::Alerted(Field::read(bytes)?),
        ALERT_SEEN => LedgerEdit::AlertSeen { id: Field::read(bytes)? },
        AUDITED => LedgerEdit::Audited(Field::read(bytes)?),
        CONFIGURED => LedgerEdit::Configured(Field::read(bytes)?),
        FILLED => LedgerEdit::Filled(bytes.flag()?),
        LOADED => LedgerEdit::Loaded(Box::new(read_record(bytes)?)),
        _ => return Err(Malformed),
    })
}
