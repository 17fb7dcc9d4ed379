//! A guard and its edits as bytes.
//!
//! ```text
//!   K  last fence  n versions: version at actor reason document?  breaker  tiers  log  (each as bytes of its own, empty: none)
//!      n slots: number calls retries  n tickets  n ends: number at said
//!   k  then edits: 0 version | 1 ticket | 2 tiers | 3 log change | 4 breaker edits | 5 number lease end | 6 number at said
//!      | 7 number at delay lease end | 8 number at how
//! ```
//! What a document says is not stored: it is read again from its text.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::budget::{FleetSlot, SLOTS};
use super::edit::{GuardEdit, GuardEdits, PolicyEdit};
use super::request::{Exited, StopReason};
use super::settings::{LimitRule, Settings, read_policy};
use super::state::Guard;
use super::ticket::{TICKET_ENDS, Ticket, TicketEnd, TicketStage};
use super::versions::{DOCUMENT_MAX, HISTORY_MAX, PolicyVersion};
use crate::circuit_breaker::{self, Caller, Permit};
use crate::codec::{
    Buffer, GUARD, GUARD_EDITS, Malformed, Reader, Writer, decode_log, decode_log_change, decode_tiers, encode_log,
    encode_log_change, encode_tiers, to_vec,
};
use crate::limits::{COUNTER_MAX, HOLDERS_MAX, INSTANT_MAX_US, LEASE_CEILING, TEXT_MAX, WINDOW_LIMIT_CEILING};
use crate::time::{Instant, Span};
use crate::waited::End;

/// The longest encoding of a breaker, and of a log: far above what can be.
const BREAKER_MAX: usize = 1 << 20;
const LOG_MAX: usize = WINDOW_LIMIT_CEILING as usize * 20;
const TIERS_MAX: usize = 1 << 12;

/// No version and no number of a slot lies beyond this.
const VERSION_MAX: i64 = COUNTER_MAX as i64;

pub fn encode_guard(guard: &Guard, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(GUARD);
    out.number(guard.last_fence);
    out.number(guard.versions.len() as u64);
    guard.versions.iter().rev().for_each(|version| write_version(version, &mut out));
    let breaker = guard.breaker.as_ref();
    out.text(&breaker.map_or_else(Vec::new, |breaker| to_vec(|out| circuit_breaker::encode_breaker(breaker, out))));
    out.text(&if guard.tiers.is_empty() { Vec::new() } else { to_vec(|out| encode_tiers(&guard.tiers, out)) });
    let log = guard.log.as_ref().filter(|log| !log.is_empty());
    out.text(&log.map_or_else(Vec::new, |log| to_vec(|out| encode_log(log, out))));
    out.number(guard.budget.slots.len() as u64);
    for slot in &guard.budget.slots {
        out.number(slot.number);
        out.number(slot.calls);
        out.number(slot.retries);
    }
    out.number(guard.tickets.len() as u64);
    guard.tickets.iter().for_each(|ticket| write_ticket(ticket, &mut out));
    out.number(guard.tickets.ends().count() as u64);
    for TicketEnd { number, at, said } in guard.tickets.ends() {
        out.number(*number);
        write_instant(*at, &mut out);
        write_said(*said, &mut out);
    }
}

/// Checks every invariant of the state: what it accepts can be stepped.
pub fn decode_guard(bytes: &[u8]) -> Result<Guard, Malformed> {
    let mut bytes = Reader::tagged(bytes, GUARD)?;
    let mut guard = Guard { last_fence: bytes.last_fence()?, ..Guard::default() };
    for _ in 0..bytes.count(HISTORY_MAX)? {
        let version = read_version(&mut bytes)?;
        if !guard.versions.push(version) {
            return Err(Malformed);
        }
    }
    guard.settings = match guard.versions.document() {
        Some(text) => Some(Box::new(settings_of(text)?)),
        None => None,
    };
    let settings = guard.settings.as_deref();
    let breaker = bytes.text(BREAKER_MAX)?;
    if settings.is_some_and(|settings| settings.breaker.is_some()) == breaker.is_empty() {
        return Err(Malformed);
    }
    let limit = settings.and_then(|settings| settings.limit.clone());
    if !breaker.is_empty() {
        guard.breaker = Some(Box::new(circuit_breaker::decode_breaker(breaker)?));
    }
    let tiers = bytes.text(TIERS_MAX)?;
    if !tiers.is_empty() {
        guard.tiers = decode_tiers(tiers)?;
    }
    let log = bytes.text(LOG_MAX)?;
    if !log.is_empty() {
        let log = decode_log(log)?;
        if log.is_empty() {
            return Err(Malformed);
        }
        guard.log = Some(Box::new(log));
    }
    let fits_limit = match limit {
        None => tiers.is_empty() && log.is_empty(),
        Some(LimitRule::Gcra(_)) => log.is_empty(),
        Some(LimitRule::Window(_)) => tiers.is_empty(),
    };
    if !fits_limit {
        return Err(Malformed);
    }
    for _ in 0..bytes.count(SLOTS)? {
        let number = bytes.at_most(INSTANT_MAX_US)?.cast_unsigned();
        let (calls, retries) =
            (bytes.at_most(VERSION_MAX)?.cast_unsigned(), bytes.at_most(VERSION_MAX)?.cast_unsigned());
        guard.budget.slots.push(FleetSlot { number, calls, retries });
    }
    if !guard.budget.is_sound() || (guard.budget_rule().is_none() && !guard.budget.slots.is_empty()) {
        return Err(Malformed);
    }
    let count = bytes.count(HOLDERS_MAX)?;
    if guard.settings.is_none() && count > 0 {
        return Err(Malformed);
    }
    let mut last = 0;
    for index in 0..count {
        let ticket = read_ticket(&mut bytes)?;
        if ticket.number <= last || ticket.number > guard.last_fence {
            return Err(Malformed);
        }
        last = ticket.number;
        guard.tickets.insert(ticket);
        // An owner that is inside twice.
        if guard.tickets.len() != index + 1 {
            return Err(Malformed);
        }
    }
    for _ in 0..bytes.count(TICKET_ENDS)? {
        let (number, at) = (bytes.fence()?, bytes.instant()?);
        let said = read_said(&mut bytes)?;
        if number > guard.last_fence {
            return Err(Malformed);
        }
        guard.tickets.remember(TicketEnd { number, at, said });
    }
    bytes.end()?;
    Ok(guard)
}

pub fn encode_edits(edits: &[GuardEdit], out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(GUARD_EDITS);
    for edit in edits {
        match edit {
            GuardEdit::Published(publication) => {
                out.byte(0);
                write_version(&publication.version, &mut out);
            }
            GuardEdit::Admitted(ticket) => {
                out.byte(1);
                write_ticket(ticket, &mut out);
            }
            GuardEdit::Limited(tiers) => {
                out.byte(2);
                out.text(&to_vec(|out| encode_tiers(tiers, out)));
            }
            GuardEdit::Logged(change) => {
                out.byte(3);
                out.text(&to_vec(|out| encode_log_change(change, out)));
            }
            GuardEdit::Broke(edit) => {
                out.byte(4);
                out.text(&to_vec(|out| circuit_breaker::encode_edits(core::slice::from_ref(edit), out)));
            }
            GuardEdit::Timed { number, lease, ends } => {
                out.byte(5);
                out.number(*number);
                write_span(*lease, &mut out);
                write_instant(*ends, &mut out);
            }
            GuardEdit::Exited { number, at, said } => {
                out.byte(6);
                out.number(*number);
                write_instant(*at, &mut out);
                write_said(*said, &mut out);
            }
            GuardEdit::Retried { number, at, delay, lease, ends } => {
                out.byte(7);
                out.number(*number);
                write_instant(*at, &mut out);
                write_span(*delay, &mut out);
                write_span(*lease, &mut out);
                write_instant(*ends, &mut out);
            }
            GuardEdit::Ended { number, at, how } => {
                out.byte(8);
                out.number(*number);
                write_instant(*at, &mut out);
                out.byte(*how as u8);
            }
            GuardEdit::Reopened(ticket) => {
                out.byte(9);
                write_ticket(ticket, &mut out);
            }
            GuardEdit::Moved(_) => {}
        }
    }
}

pub fn decode_edits(bytes: &[u8]) -> Result<GuardEdits, Malformed> {
    let mut bytes = Reader::tagged(bytes, GUARD_EDITS)?;
    let mut edits = GuardEdits::new();
    while !bytes.is_empty() {
        edits.push(match bytes.bytes(1)?[0] {
            0 => {
                let version = read_version(&mut bytes)?;
                let settings = match &version.document {
                    Some(text) => Some(Box::new(settings_of(text)?)),
                    None => None,
                };
                GuardEdit::Published(Box::new(PolicyEdit { version, settings }))
            }
            1 => GuardEdit::Admitted(Arc::new(read_ticket(&mut bytes)?)),
            2 => GuardEdit::Limited(decode_tiers(bytes.text(TIERS_MAX)?)?),
            3 => GuardEdit::Logged(decode_log_change(bytes.text(TIERS_MAX)?)?),
            4 => {
                for edit in circuit_breaker::decode_edits(bytes.text(BREAKER_MAX)?)? {
                    edits.push(GuardEdit::Broke(edit));
                }
                continue;
            }
            5 => GuardEdit::Timed { number: bytes.fence()?, lease: bytes.lease()?, ends: bytes.instant()? },
            6 => GuardEdit::Exited { number: bytes.fence()?, at: bytes.instant()?, said: read_said(&mut bytes)? },
            7 => GuardEdit::Retried {
                number: bytes.fence()?,
                at: bytes.instant()?,
                delay: read_span(&mut bytes)?,
                lease: bytes.lease()?,
                ends: bytes.instant()?,
            },
            8 => {
                let (number, at) = (bytes.fence()?, bytes.instant()?);
                let how = End::ALL.get(bytes.bytes(1)?[0] as usize).copied().ok_or(Malformed)?;
                GuardEdit::Ended { number, at, how }
            }
            9 => GuardEdit::Reopened(Box::new(read_ticket(&mut bytes)?)),
            _ => return Err(Malformed),
        });
    }
    if edits.is_empty() { Err(Malformed) } else { Ok(edits) }
}

/// What a stored document says. One that is not in its canonical form was not written by us.
fn settings_of(text: &str) -> Result<Settings, Malformed> {
    let (canonical, settings) = read_policy(text).map_err(|_| Malformed)?;
    if canonical == text { Ok(settings) } else { Err(Malformed) }
}

fn write_instant(at: Instant, out: &mut Writer<'_, impl Buffer>) {
    out.number(at.as_us().cast_unsigned());
}

fn write_span(span: Span, out: &mut Writer<'_, impl Buffer>) {
    out.number(span.as_us().cast_unsigned());
}

fn read_span(bytes: &mut Reader<'_>) -> Result<Span, Malformed> {
    bytes.at_most(LEASE_CEILING.as_us()).map(Span::from_us)
}

fn write_version(version: &PolicyVersion, out: &mut Writer<'_, impl Buffer>) {
    out.number(version.version);
    write_instant(version.at, out);
    out.text(&version.actor);
    out.text(&version.reason);
    out.text(version.document.as_deref().unwrap_or_default().as_bytes());
}

fn read_version(bytes: &mut Reader<'_>) -> Result<PolicyVersion, Malformed> {
    let version = bytes.at_most(VERSION_MAX)?.cast_unsigned();
    let at = bytes.instant()?;
    let (actor, reason) = (bytes.text(TEXT_MAX)?.into(), bytes.text(TEXT_MAX)?.into());
    let document = core::str::from_utf8(bytes.text(DOCUMENT_MAX)?).map_err(|_| Malformed)?;
    // No document is empty: even one that says nothing is an object.
    let document = (!document.is_empty()).then(|| document.into());
    if version == 0 { Err(Malformed) } else { Ok(PolicyVersion { version, at, actor, reason, document }) }
}

fn write_ticket(ticket: &Ticket, out: &mut Writer<'_, impl Buffer>) {
    out.number(ticket.number);
    out.text(&ticket.owner);
    out.number(ticket.attempt.into());
    write_instant(ticket.first, out);
    write_instant(ticket.since, out);
    write_span(ticket.lease, out);
    write_instant(ticket.ends, out);
    out.number(ticket.from);
    write_span(ticket.delay, out);
    match &ticket.permit {
        None => out.byte(0),
        Some(Permit { generation, issued_us, caller, probe, .. }) => {
            out.byte(if probe.is_some() { 2 } else { 1 });
            out.number(*generation);
            out.number(issued_us.cast_unsigned());
            out.number(caller.0);
            if let Some(probe) = probe {
                out.number((*probe).into());
            }
        }
    }
    match ticket.stage {
        TicketStage::Inside => out.byte(0),
        TicketStage::Waiting { delay } => {
            out.byte(1);
            write_span(delay, out);
        }
    }
}

fn read_ticket(bytes: &mut Reader<'_>) -> Result<Ticket, Malformed> {
    let number = bytes.fence()?;
    let owner: Arc<[u8]> = bytes.owner()?.into();
    let attempt = bytes.u32()?;
    let (first, since) = (bytes.instant()?, bytes.instant()?);
    let (lease, ends) = (bytes.lease()?, bytes.instant()?);
    let from = bytes.last_fence()?;
    let delay = read_span(bytes)?;
    let permit = match bytes.bytes(1)?[0] {
        0 => None,
        kind @ (1 | 2) => Some(Permit {
            generation: bytes.number()?,
            issued_us: bytes.at_most(INSTANT_MAX_US)?,
            caller: Caller(bytes.number()?),
            probe: if kind == 2 { Some(bytes.u32()?) } else { None },
            seal: 0,
        }),
        _ => return Err(Malformed),
    };
    let stage = match bytes.bytes(1)?[0] {
        0 => TicketStage::Inside,
        1 => TicketStage::Waiting { delay: read_span(bytes)? },
        _ => return Err(Malformed),
    };
    if attempt == 0 || from >= number {
        return Err(Malformed);
    }
    Ok(Ticket { number, owner, attempt, first, since, lease, ends, from, delay, permit, stage })
}

fn write_said(said: Exited, out: &mut Writer<'_, impl Buffer>) {
    match said {
        Exited::Done | Exited::NoPolicy => out.byte(0),
        Exited::Retry { delay, attempt } => {
            out.byte(1);
            write_span(delay, out);
            out.number(attempt.into());
        }
        Exited::Stop { reason, attempts } => {
            out.byte(2);
            out.byte(reason as u8);
            out.number(attempts.into());
        }
    }
}

fn read_said(bytes: &mut Reader<'_>) -> Result<Exited, Malformed> {
    Ok(match bytes.bytes(1)?[0] {
        0 => Exited::Done,
        1 => Exited::Retry { delay: read_span(bytes)?, attempt: bytes.u32()? },
        2 => {
            let reason = StopReason::ALL.get(bytes.bytes(1)?[0] as usize).copied().ok_or(Malformed)?;
            Exited::Stop { reason, attempts: bytes.u32()? }
        }
        _ => return Err(Malformed),
    })
}
