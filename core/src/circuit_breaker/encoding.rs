//! A breaker, and what a step did to it, as bytes. See [`crate::codec`] for the rules.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::config::{Config, WindowKind, bounds};
use super::edit::{Edit, Edits};
use super::outcomes::{Batch, Outcomes, Ring, SLICES, Slices, Totals};
use super::permit::Caller;
use super::state::{
    Breaker, EVIDENCE_MAX, Force, Forced, PROBES_MAX, Phase, Probe, RECORDED_MAX, REPORTED_MAX, TALLIES_MAX,
};
use crate::codec::{BREAKER, BREAKER_EDITS, Buffer, Malformed, Reader, Writer};
use crate::limits::{INSTANT_MAX_US, TEXT_MAX};
use crate::stored::{Plain, Stored};
use crate::time::{Instant, Span};

/// The most edits one step makes: mend, end of a ramp, forget, configure, heard, record, trip.
const EDITS_MAX: usize = 8;

impl Stored for Breaker {
    type State = Self;
    type Edits = Edits;
    const WHOLE: u8 = BREAKER;
    const EDITS: Option<u8> = Some(BREAKER_EDITS);

    fn encode(state: &Self, out: &mut impl Buffer) {
        encode_breaker(state, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        decode_breaker(bytes)
    }

    fn decode_edits(bytes: &[u8]) -> Result<Edits, Malformed> {
        decode_edits(bytes)
    }

    fn apply_all(state: &mut Self, edits: Edits) {
        edits.iter().for_each(|edit| state.apply(edit));
    }

    fn collect_at(state: &Self, salt: u64) -> Option<Instant> {
        state.gc_at(salt)
    }

    fn heap_bytes(state: &Self) -> usize {
        state.heap_bytes()
    }
}

impl Plain for Breaker {
    fn encode_edits(edits: &Edits, out: &mut impl Buffer) {
        encode_edits(edits, out);
    }
}

pub fn encode_breaker(breaker: &Breaker, out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(BREAKER);
    out.byte(breaker.configured as u8 | (breaker.lasting as u8) << 1);
    if breaker.configured {
        config(&breaker.config, &mut out);
    }
    out.number(breaker.version);
    out.number(breaker.generation);
    phase(&breaker.phase, &mut out);
    out.number(breaker.trips as u64);
    out.number(breaker.closed_us as u64);
    out.number(breaker.failures_in_a_row as u64);
    outcomes(&breaker.outcomes, &mut out);
    out.number(breaker.recorded);
    out.number(breaker.evidence.len() as u64);
    for (caller, mark) in &breaker.evidence {
        out.number(caller.0);
        out.number(*mark as u64);
    }
    out.number(breaker.tallies.len() as u64);
    for (caller, seq) in &breaker.tallies {
        out.number(caller.0);
        out.number(*seq);
    }
    out.number(breaker.last_seen_us as u64);
}

pub fn decode_breaker(bytes: &[u8]) -> Result<Breaker, Malformed> {
    let mut bytes = Reader::tagged(bytes, BREAKER)?;
    let flags = bytes.bytes(1)?[0];
    let (configured, lasting) = (flags & 1 != 0, flags & 2 != 0);
    if flags > 3 || (lasting && !configured) {
        return Err(Malformed);
    }
    let config = if configured { read_config(&mut bytes)? } else { Config::default() };
    let breaker = Breaker {
        config,
        configured,
        lasting,
        version: bytes.number()?,
        generation: generation(&mut bytes)?,
        phase: read_phase(&mut bytes)?,
        trips: bytes.u32()?,
        closed_us: instant(&mut bytes)?,
        failures_in_a_row: bytes.u32()?,
        outcomes: read_outcomes(config.window, &mut bytes)?,
        recorded: bytes.at_most(RECORDED_MAX as i64)? as u64,
        evidence: read_list(EVIDENCE_MAX, &mut bytes, |bytes| {
            Ok((Caller(bytes.number()?), bytes.at_most(RECORDED_MAX as i64)?))
        })?,
        tallies: read_list(TALLIES_MAX, &mut bytes, |bytes| Ok((Caller(bytes.number()?), bytes.number()?)))?,
        last_seen_us: instant(&mut bytes)?,
        least_ppm: 0,
    };
    bytes.end()?;
    Ok(breaker)
}

pub fn encode_edits(edits: &[Edit], out: &mut impl Buffer) {
    let mut out = Writer::new(out);
    out.byte(BREAKER_EDITS);
    out.number(edits.len() as u64);
    for edit in edits {
        write_edit(edit, &mut out);
    }
}

fn write_edit(edit: &Edit, out: &mut Writer<'_, impl Buffer>) {
    match edit {
        Edit::Forget => out.byte(0),
        Edit::Configure { config: new, version, lasting, at_us } => {
            out.byte(1);
            config(new, out);
            out.number(*version);
            out.byte(*lasting as u8);
            out.number(*at_us as u64);
        }
        Edit::Record { at_us, caller, batch } => {
            out.byte(2);
            out.number(*at_us as u64);
            out.number(caller.0);
            for number in [batch.ok, batch.failures, batch.slow, batch.run] {
                out.number(number as u64);
            }
        }
        Edit::Heard { caller, seq } => {
            out.byte(3);
            out.number(caller.0);
            out.number(*seq);
        }
        Edit::Enter { phase: new, generation, at_us, trips } => {
            out.byte(4);
            phase(new, out);
            out.number(*generation);
            out.number(*at_us as u64);
            out.number(*trips as u64);
        }
        Edit::ProbeOut { number, at_us, until_us } => {
            out.byte(5);
            out.number(*number as u64);
            out.number(*at_us as u64);
            out.number(*until_us as u64);
        }
        Edit::ProbeBack { number, at_us, succeeded } => {
            out.byte(6);
            out.number(*number as u64);
            out.number(*at_us as u64);
            out.byte(*succeeded as u8);
        }
        Edit::Mend { now_us, probe_until_us } => {
            out.byte(7);
            out.number(*now_us as u64);
            out.number(*probe_until_us as u64);
        }
    }
}

pub fn decode_edits(bytes: &[u8]) -> Result<Edits, Malformed> {
    let mut bytes = Reader::tagged(bytes, BREAKER_EDITS)?;
    let count = bytes.count(EDITS_MAX)?;
    let edits = (0..count).map(|_| read_edit(&mut bytes)).collect::<Result<Edits, _>>()?;
    bytes.end()?;
    if edits.is_empty() { Err(Malformed) } else { Ok(edits) }
}

fn read_edit(bytes: &mut Reader<'_>) -> Result<Edit, Malformed> {
    Ok(match bytes.bytes(1)?[0] {
        0 => Edit::Forget,
        1 => Edit::Configure {
            config: Box::new(read_config(bytes)?),
            version: bytes.number()?,
            lasting: bytes.flag()?,
            at_us: instant(bytes)?,
        },
        2 => Edit::Record { at_us: instant(bytes)?, caller: Caller(bytes.number()?), batch: read_batch(bytes)? },
        3 => Edit::Heard { caller: Caller(bytes.number()?), seq: bytes.number()? },
        4 => Edit::Enter {
            phase: Box::new(read_phase(bytes)?),
            generation: generation(bytes)?,
            at_us: instant(bytes)?,
            trips: bytes.u32()?,
        },
        5 => Edit::ProbeOut { number: bytes.u32()?, at_us: instant(bytes)?, until_us: instant(bytes)? },
        6 => Edit::ProbeBack { number: bytes.u32()?, at_us: instant(bytes)?, succeeded: bytes.flag()? },
        7 => Edit::Mend { now_us: instant(bytes)?, probe_until_us: instant(bytes)? },
        _ => return Err(Malformed),
    })
}

fn read_batch(bytes: &mut Reader<'_>) -> Result<Batch, Malformed> {
    let batch = Batch { ok: bytes.u32()?, failures: bytes.u32()?, slow: bytes.u32()?, run: bytes.u32()? };
    if batch.slow > batch.calls() || batch.run > batch.failures { Err(Malformed) } else { Ok(batch) }
}

fn config(config: &Config, out: &mut Writer<'_, impl Buffer>) {
    match config.window {
        WindowKind::Count(calls) => {
            out.byte(0);
            out.number(calls as u64);
        }
        WindowKind::Time(length) => {
            out.byte(1);
            out.number(length.as_us() as u64);
        }
    }
    let spans = [config.slow, config.open, config.open_max, config.lease, config.ramp, config.idle];
    spans.iter().for_each(|span| out.number(span.as_us() as u64));
    let numbers = [
        config.rate_pct,
        config.slow_rate_pct,
        config.consecutive,
        config.min_calls,
        config.factor_milli,
        config.probes,
        config.successes,
        config.quorum,
    ];
    numbers.iter().for_each(|number| out.number(*number as u64));
}

fn read_config(bytes: &mut Reader<'_>) -> Result<Config, Malformed> {
    let window = match bytes.bytes(1)?[0] {
        0 => WindowKind::Count(bytes.u32()?),
        1 => WindowKind::Time(span(bytes)?),
        _ => return Err(Malformed),
    };
    let config = Config {
        window,
        slow: span(bytes)?,
        open: span(bytes)?,
        open_max: span(bytes)?,
        lease: span(bytes)?,
        ramp: span(bytes)?,
        idle: span(bytes)?,
        rate_pct: bytes.u32()?,
        slow_rate_pct: bytes.u32()?,
        consecutive: bytes.u32()?,
        min_calls: bytes.u32()?,
        factor_milli: bytes.u32()?,
        probes: bytes.u32()?,
        successes: bytes.u32()?,
        quorum: bytes.u32()?,
    };
    if config.is_sound() { Ok(config) } else { Err(Malformed) }
}

fn phase(phase: &Phase, out: &mut Writer<'_, impl Buffer>) {
    match phase {
        Phase::Closed => out.byte(0),
        Phase::Open { opened_us, length_us } => {
            out.byte(1);
            out.number(*opened_us as u64);
            out.number(*length_us as u64);
        }
        Phase::HalfOpen { successes, issued, probes, reported } => {
            out.byte(2);
            out.number(*successes as u64);
            out.number(*issued as u64);
            out.number(probes.len() as u64);
            for probe in probes {
                out.number(probe.number as u64);
                out.number(probe.until_us as u64);
            }
            out.number(reported.len() as u64);
            reported.iter().for_each(|number| out.number(*number as u64));
        }
        Phase::Ramping { since_us } => {
            out.byte(3);
            out.number(*since_us as u64);
        }
        Phase::Forced(forced) => {
            out.byte(4);
            out.byte(Force::ALL.iter().position(|force| *force == forced.force).unwrap_or(0) as u8);
            out.number(forced.since_us as u64);
            out.number(forced.until_us.map_or(0, |until_us| until_us as u64 + 1));
            out.text(&forced.actor);
            out.text(&forced.reason);
        }
    }
}

fn read_phase(bytes: &mut Reader<'_>) -> Result<Phase, Malformed> {
    Ok(match bytes.bytes(1)?[0] {
        0 => Phase::Closed,
        1 => Phase::Open { opened_us: instant(bytes)?, length_us: bytes.at_most(bounds::OPEN.1.as_us())? },
        2 => Phase::HalfOpen {
            successes: bytes.u32()?,
            issued: bytes.u32()?,
            probes: read_list(PROBES_MAX, bytes, |bytes| {
                Ok(Probe { number: bytes.u32()?, until_us: instant(bytes)? })
            })?,
            reported: read_list(REPORTED_MAX, bytes, |bytes| bytes.u32())?,
        },
        3 => Phase::Ramping { since_us: instant(bytes)? },
        4 => {
            let force = *Force::ALL.get(bytes.bytes(1)?[0] as usize).ok_or(Malformed)?;
            let since_us = instant(bytes)?;
            let until_us = bytes.at_most(INSTANT_MAX_US)?;
            let forced = Forced {
                force,
                since_us,
                until_us: (until_us > 0).then_some(until_us - 1),
                actor: bytes.text(TEXT_MAX)?.to_vec(),
                reason: bytes.text(TEXT_MAX)?.to_vec(),
            };
            if !forced.is_sound() {
                return Err(Malformed);
            }
            Phase::Forced(Box::new(forced))
        }
        _ => return Err(Malformed),
    })
}

fn outcomes(outcomes: &Outcomes, out: &mut Writer<'_, impl Buffer>) {
    match outcomes {
        Outcomes::Count(ring) => {
            out.number(ring.calls().len() as u64);
            let mut byte = 0;
            for (index, (failed, slow)) in ring.calls().enumerate() {
                byte |= (failed as u8 | (slow as u8) << 1) << (index % 4 * 2);
                if index % 4 == 3 {
                    out.byte(byte);
                    byte = 0;
                }
            }
            if ring.calls().len() % 4 != 0 {
                out.byte(byte);
            }
        }
        Outcomes::Time(slices) => {
            let (newest, oldest_first) = slices.parts();
            out.number(newest as u64);
            for totals in oldest_first {
                out.number(totals.calls as u64);
                out.number(totals.failures as u64);
                out.number(totals.slow as u64);
            }
        }
    }
}

fn read_outcomes(kind: WindowKind, bytes: &mut Reader<'_>) -> Result<Outcomes, Malformed> {
    match kind {
        WindowKind::Count(capacity) => {
            let len = bytes.count(capacity as usize)?;
            let packed = bytes.bytes(len.div_ceil(4))?;
            let unused = if len % 4 == 0 { 0 } else { packed[len / 4] >> (len % 4 * 2) };
            if unused != 0 {
                return Err(Malformed);
            }
            let call = |index: usize| {
                let bits = packed[index / 4] >> (index % 4 * 2);
                (bits & 1 != 0, bits & 2 != 0)
            };
            Ok(Outcomes::Count(Ring::from_calls(capacity, (0..len).map(call))))
        }
        WindowKind::Time(length) => {
            let newest = bytes.at_most(INSTANT_MAX_US)?;
            let mut oldest_first = [Totals::default(); SLICES];
            for totals in &mut oldest_first {
                *totals = Totals { calls: bytes.u32()?, failures: bytes.u32()?, slow: bytes.u32()? };
                if totals.failures > totals.calls || totals.slow > totals.calls {
                    return Err(Malformed);
                }
            }
            Ok(Outcomes::Time(Box::new(Slices::from_parts(length, newest, oldest_first))))
        }
    }
}

fn read_list<T>(
    max: usize,
    bytes: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = bytes.count(max)?;
    (0..count).map(|_| read(bytes)).collect()
}

fn instant(bytes: &mut Reader<'_>) -> Result<i64, Malformed> {
    bytes.at_most(INSTANT_MAX_US)
}

fn generation(bytes: &mut Reader<'_>) -> Result<u64, Malformed> {
    bytes.at_most(INSTANT_MAX_US).map(|generation| generation as u64)
}

fn span(bytes: &mut Reader<'_>) -> Result<Span, Malformed> {
    bytes.at_most(INSTANT_MAX_US).map(Span::from_us)
}
