//! Single flights.

use std::ffi::CStr;

use resil_core::lease::ends_for;
use resil_core::lock::{End, Reason, Setting};
use resil_core::queue::Queue;
use resil_core::single_flight::{self, Answer, Ask, Edit, Flight, Seen, Way, busy, decode_flight, encode_flight};
use resil_core::{Instant, Span};
use resil_wire::single_flight::Joined as JoinedReply;

use super::statics;
use crate::datatype::Bytes;
use crate::info::{Gauge, Holdings, counters};
use crate::machine::{Delivery, Grant, Kind, Machine, Room, Stepped, superseded};
use crate::parked::Told;

pub struct Flights;

/// The room as core knows it.
pub fn room(room: Room<'_, Flights>) -> single_flight::Room<'_> {
    single_flight::Room { flight: room.state, queue: room.line }
}

impl Machine for Flights {
    const KIND: Kind = Kind::Flight;
    type State = Flight;
    type Ask = Ask;
    type Edit = Edit;
    type Answer = Answer;
    const TYPE_NAME: &'static CStr = c"resil-sfl";
    statics!(Ask);

    fn keys() -> &'static Gauge {
        &counters().flight_keys
    }

    fn counters() -> &'static Holdings {
        &counters().flight
    }

    fn decode(bytes: &[u8]) -> Option<Flight> {
        decode_flight(bytes).ok()
    }

    fn encode(state: &Flight, out: &mut Bytes) {
        encode_flight(state, out);
    }

    fn encode_edits(_state: &Self::State, edits: &[Edit], out: &mut Bytes) {
        single_flight::encode_edits(edits, out);
    }

    fn apply(state: &mut Flight, edit: Edit) {
        state.apply(&edit);
    }

    fn granted_fence(edit: &Edit) -> Option<u64> {
        match edit {
            Edit::Led(leader) => Some(leader.fence),
            _ => None,
        }
    }

    fn event(_state: &Self::State, edit: &Edit) -> Option<&'static CStr> {
        match edit {
            Edit::Led(_) => Some(c"res.sflight.led"),
            Edit::Ended { way, .. } => Some(match way {
                Way::Published => c"res.sflight.published",
                Way::Abandoned => c"res.sflight.abandoned",
                Way::Expired | Way::Closed => c"res.sflight.lost",
                Way::Invalidated => c"res.sflight.invalidated",
            }),
            Edit::Dropped | Edit::Softened { .. } => Some(c"res.sflight.invalidated"),
            Edit::Timed { .. } | Edit::Kept(_) | Edit::Paused(_) | Edit::Resumed | Edit::Mended { .. } => None,
        }
    }

    fn gc_at(state: &Flight, salt: u64) -> Option<Instant> {
        Some(state.gc_at(salt))
    }

    fn last_fence(state: &Flight) -> u64 {
        state.last_fence
    }

    fn heap_bytes(state: &Flight) -> usize {
        state.heap_bytes()
    }

    fn holders(state: &Flight, promoted_at: Option<Instant>, now: Instant) -> Vec<(Box<[u8]>, u64)> {
        let leader = state.leader.as_ref();
        let leads = leader.filter(|leader| ends_for(leader.ends, leader.lease, promoted_at, now) > now);
        leads.map(|leader| (leader.token.clone(), leader.fence)).into_iter().collect()
    }

    fn holds(state: &Flight, fence: u64) -> bool {
        state.leader.as_ref().is_some_and(|leader| leader.fence == fence)
    }

    fn reason(how: End) -> Reason {
        match how {
            End::Broken => Reason::Invalidated,
            other => other.into(),
        }
    }

    fn overdue(state: &Flight, now: Instant) -> Option<u64> {
        state.leader.as_ref().filter(|leader| leader.ends <= now).map(|leader| leader.fence)
    }

    fn tick(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        single_flight::tick(&mut room(at), setting)
    }

    fn give_up(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        single_flight::give_up(&mut room(at), setting)
    }

    fn close(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        single_flight::close(&mut room(at), fence, setting)
    }

    fn cut(
        room_at: Room<'_, Self>,
        fence: u64,
        grace: Span,
        at: Instant,
        setting: &mut Setting<'_>,
    ) -> Stepped<Self, bool> {
        single_flight::cut(&mut room(room_at), fence, grace, at, setting)
    }

    fn take_back(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        single_flight::take_back(&mut room(at), fence, setting)
    }

    fn extend(at: Room<'_, Self>, fence: u64, until: Instant, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        single_flight::extend(&mut room(at), fence, until, setting)
    }

    fn deliver(answer: Answer) -> Delivery {
        match answer {
            Answer::Lead { id, lead, bind_to } => {
                let bytes = lead.stale.as_ref().map_or(0, |bytes| bytes.len());
                let granted = Some(Grant { fence: lead.fence, lease: lead.lease, waited: lead.waited, bind_to });
                let told = Told::verdict(move |sink| JoinedReply::from(lead).write(sink));
                Delivery { id, told, granted, timed_out: false, bytes: bytes + 64 }
            }
            Answer::Seen { id, seen } => {
                let bytes = match &seen {
                    Seen::Value { bytes, .. } | Seen::Stale { bytes, .. } => bytes.len(),
                    Seen::Error { text } => text.len(),
                    Seen::Empty { .. } | Seen::Busy { .. } | Seen::Miss => 0,
                };
                let timed_out = matches!(seen, Seen::Busy { .. });
                let told = Told::verdict(move |sink| JoinedReply::from(seen).write(sink));
                Delivery { id, told, granted: None, timed_out, bytes: bytes + 64 }
            }
            Answer::Superseded { id } => superseded(id),
        }
    }

    fn timeout(state: &Flight, _line: &Queue<Ask>, now: Instant) -> Told {
        let seen = busy(state, now);
        Told::verdict(move |sink| JoinedReply::from(seen).write(sink))
    }
}
