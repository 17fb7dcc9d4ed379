//! Idempotency keys.

use std::ffi::CStr;

use resil_core::idempotency::{
    self, Answer, Ask, Became, Idle, Phase, Record, Settled, decode_record, encode_record, lookup,
};
use resil_core::lease::ends_for;
use resil_core::lock::Setting;
use resil_core::queue::Queue;
use resil_core::{Instant, Span};
use resil_wire::idempotency::Begun as BegunReply;

use super::statics;
use crate::datatype::Bytes;
use crate::fences;
use crate::info::{Gauge, Holdings, counters};
use crate::machine::{Delivery, Grant, Kind, Machine, Room, Stepped, superseded};
use crate::parked::Told;

pub struct Idempotency;

/// The room as core knows it.
pub fn room(room: Room<'_, Idempotency>) -> idempotency::Room<'_> {
    idempotency::Room { record: room.state, queue: room.line }
}

impl Machine for Idempotency {
    const KIND: Kind = Kind::Idempotency;
    type State = Record;
    type Ask = Ask;
    type Edit = Became;
    type Answer = Answer;
    const TYPE_NAME: &'static CStr = c"resil-idm";
    statics!(Ask);

    fn keys() -> &'static Gauge {
        &counters().idempotency_keys
    }

    fn counters() -> &'static Holdings {
        &counters().idempotency
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        decode_record(bytes).ok().filter(|record| *record != Record::Nothing)
    }

    fn encode(state: &Record, out: &mut Bytes) {
        encode_record(state, out);
    }

    /// The whole record, as it is now.
    fn encode_edits(state: &Record, _edits: &[Became], out: &mut Bytes) {
        encode_record(state, out);
    }

    fn apply(state: &mut Record, edit: Became) {
        if let Became::Passing(record) = edit {
            *state = record;
        }
    }

    fn granted_fence(edit: &Became) -> Option<u64> {
        match edit {
            Became::Passing(record) => Some(record.last_fence()),
            Became::Present => None,
        }
    }

    fn event(state: &Record, edit: &Became) -> Option<&'static CStr> {
        match edit.record(state) {
            Record::Nothing => None,
            Record::Once(_) => Some(c"res.idemp.seen"),
            Record::Work(work) => Some(match work.phase {
                Phase::Running { .. } => c"res.idemp.running",
                Phase::Idle { why: Idle::Aborted, .. } => c"res.idemp.aborted",
                Phase::Idle { .. } => c"res.idemp.lost",
                Phase::Done { .. } => c"res.idemp.committed",
            }),
        }
    }

    fn gc_at(state: &Record, salt: u64) -> Option<Instant> {
        state.gc_at(salt)
    }

    fn last_fence(state: &Record) -> u64 {
        state.last_fence()
    }

    fn heap_bytes(state: &Record) -> usize {
        state.heap_bytes()
    }

    fn holders(state: &Record, promoted_at: Option<Instant>, now: Instant) -> Vec<(Box<[u8]>, u64)> {
        match state {
            Record::Work(work) => match work.phase {
                Phase::Running { lease, ends, .. } if ends_for(ends, lease, promoted_at, now) > now => {
                    vec![(work.token.clone(), work.fence)]
                }
                _ => Vec::new(),
            },
            Record::Nothing | Record::Once(_) => Vec::new(),
        }
    }

    fn holds(state: &Record, fence: u64) -> bool {
        matches!(state, Record::Work(work) if work.fence == fence && matches!(work.phase, Phase::Running { .. }))
    }

    fn overdue(state: &Record, now: Instant) -> Option<u64> {
        match state {
            Record::Work(work) if matches!(work.phase, Phase::Running { ends, .. } if ends <= now) => Some(work.fence),
            _ => None,
        }
    }

    fn tick(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        idempotency::tick(&mut room(at), setting)
    }

    fn give_up(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        idempotency::give_up(&mut room(at), setting)
    }

    fn close(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        idempotency::close(&mut room(at), fence, setting)
    }

    fn cut(
        room_at: Room<'_, Self>,
        fence: u64,
        grace: Span,
        at: Instant,
        setting: &mut Setting<'_>,
    ) -> Stepped<Self, bool> {
        idempotency::cut(&mut room(room_at), fence, grace, at, setting)
    }

    fn take_back(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        idempotency::take_back(&mut room(at), fence, setting)
    }

    fn extend(at: Room<'_, Self>, fence: u64, until: Instant, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        idempotency::extend(&mut room(at), fence, until, setting)
    }

    fn deliver(answer: Answer) -> Delivery {
        match answer {
            Answer::Run { id, run, bind_to } => {
                let granted = Some(Grant { fence: run.fence, lease: run.lease, waited: run.waited, bind_to });
                let told = Told::verdict(move |sink| BegunReply::from(run).write(sink));
                Delivery { id, told, granted, timed_out: false, bytes: 64 }
            }
            Answer::Settled { id, settled } => {
                let bytes = match &settled {
                    Settled::Replay(replay) => replay.result.as_ref().map_or(0, |result| result.len()),
                    _ => 0,
                };
                let timed_out = matches!(settled, Settled::Busy { .. });
                let told = Told::verdict(move |sink| BegunReply::from(settled).write(sink));
                Delivery { id, told, granted: None, timed_out, bytes: bytes + 64 }
            }
            Answer::Superseded { id } => superseded(id),
        }
    }

    fn timeout(state: &Record, _line: &Queue<Ask>, now: Instant) -> Told {
        let promoted_at = fences::promoted_at();
        let settled = state.work_for(promoted_at, now).and_then(|work| lookup(work, promoted_at, now));
        let settled = settled.unwrap_or(Settled::Busy { remaining: Span::ZERO, attempt: 0 });
        Told::verdict(move |sink| BegunReply::from(settled).write(sink))
    }
}
