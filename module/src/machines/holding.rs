//! Locks and bulkheads.

use std::ffi::CStr;
use std::marker::PhantomData;

use resil_core::lock::{
    self, Answer, Ask, Busy, Edit, End, Grant as LockGrant, Holders, Kind as HoldersKind, Setting, busy,
    decode_holders, encode_holders, lives,
};
use resil_core::queue::Queue;
use resil_core::{Instant, Span};
use resil_wire::bulkhead::Entered;
use resil_wire::lock::Acquired as AcquiredReply;

use super::statics;
use crate::datatype::Bytes;
use crate::info::{Gauge, Holdings, counters};
use crate::machine::{Delivery, Grant, Kind, Machine, Room, Stepped, superseded};
use crate::parked::Told;

/// What the two do differently.
pub trait Flavour: 'static {
    const HOLDERS: HoldersKind;
    fn told_grant(grant: LockGrant) -> Told;
    fn told_timeout(busy: Busy) -> Told;
}

pub struct OfLocks;
pub struct OfBulkheads;
pub struct Holding<F>(PhantomData<F>);
pub type Locks = Holding<OfLocks>;
pub type Bulkheads = Holding<OfBulkheads>;

impl Flavour for OfLocks {
    const HOLDERS: HoldersKind = HoldersKind::Lock;

    fn told_grant(grant: LockGrant) -> Told {
        Told::verdict(move |sink| AcquiredReply::from(grant).write(sink))
    }

    fn told_timeout(busy: Busy) -> Told {
        Told::verdict(move |sink| AcquiredReply::Timeout(busy.into()).write(sink))
    }
}

impl Flavour for OfBulkheads {
    const HOLDERS: HoldersKind = HoldersKind::Bulkhead;

    fn told_grant(grant: LockGrant) -> Told {
        Told::verdict(move |sink| Entered::from(grant).write(sink))
    }

    fn told_timeout(busy: Busy) -> Told {
        Told::verdict(move |sink| Entered::timeout(&busy).write(sink))
    }
}

/// The room as core knows it.
pub fn room<'a, F: Flavour>(room: Room<'a, Holding<F>>) -> lock::Room<'a>
where
    Holding<F>: Machine<State = Holders, Ask = Ask>,
{
    lock::Room { kind: F::HOLDERS, holders: room.state, queue: room.line }
}

fn deliver<F: Flavour>(answer: Answer) -> Delivery {
    match answer {
        Answer::Granted { id, grant, bind_to, .. } => {
            let LockGrant { fence, lease, waited, .. } = grant;
            let granted = Some(Grant { fence, lease, waited, bind_to });
            Delivery { id, told: F::told_grant(grant), granted, timed_out: false, bytes: 64 }
        }
        Answer::TimedOut { id, busy } => {
            Delivery { id, told: F::told_timeout(busy), granted: None, timed_out: true, bytes: 64 }
        }
        Answer::Superseded { id } => superseded(id),
    }
}

/// What both have in common.
macro_rules! holding_machine {
    ($flavour:ty, $name:literal, $fences:literal, $keys:ident, $counters:ident, $granted:literal, $released:literal, $lost:literal) => {
        impl Machine for Holding<$flavour> {
            const KIND: Kind = match <$flavour>::HOLDERS {
                HoldersKind::Lock => Kind::Lock,
                HoldersKind::Bulkhead => Kind::Bulkhead,
            };
            type State = Holders;
            type Ask = Ask;
            type Edit = Edit;
            type Answer = Answer;
            const TYPE_NAME: &'static CStr = $name;
            const CARRIES_FENCES: bool = $fences;
            statics!(Ask);

            fn keys() -> &'static Gauge {
                &counters().$keys
            }

            fn counters() -> &'static Holdings {
                &counters().$counters
            }

            fn decode(bytes: &[u8]) -> Option<Holders> {
                let (kind, holders) = decode_holders(bytes).ok()?;
                (kind == <$flavour>::HOLDERS).then_some(holders)
            }

            fn encode(state: &Holders, out: &mut Bytes) {
                encode_holders(<$flavour>::HOLDERS, state, out);
            }

            fn encode_edits(_state: &Self::State, edits: &[Edit], out: &mut Bytes) {
                lock::encode_edits(<$flavour>::HOLDERS, edits, out);
            }

            fn apply(state: &mut Holders, edit: Edit) {
                state.apply(edit);
            }

            fn granted_fence(edit: &Edit) -> Option<u64> {
                match edit {
                    Edit::Granted(holder) => Some(holder.fence),
                    _ => None,
                }
            }

            fn event(_state: &Self::State, edit: &Edit) -> Option<&'static CStr> {
                match edit {
                    Edit::Granted(_) => Some($granted),
                    Edit::Ended { how: End::Released, .. } => Some($released),
                    Edit::Ended { .. } => Some($lost),
                    Edit::Timed { .. } | Edit::Moded { .. } => None,
                }
            }

            fn gc_at(state: &Holders, salt: u64) -> Option<Instant> {
                Some(state.gc_at(salt))
            }

            fn last_fence(state: &Holders) -> u64 {
                state.last_fence()
            }

            fn heap_bytes(state: &Holders) -> usize {
                state.heap_bytes()
            }

            fn parts(state: &Holders) -> usize {
                state.parts()
            }

            fn holders(state: &Holders, promoted_at: Option<Instant>, now: Instant) -> Vec<(Box<[u8]>, u64)> {
                let alive = state.iter().filter(|holder| lives(holder, promoted_at, now));
                alive.map(|holder| (holder.owner().into(), holder.fence)).collect()
            }

            fn holds(state: &Holders, fence: u64) -> bool {
                state.by_fence(fence).is_some()
            }

            fn has_one_holder(state: &Holders) -> bool {
                state.len() == 1
            }

            fn overdue(state: &Holders, now: Instant) -> Option<u64> {
                state.first_end().filter(|(end, _)| *end <= now).map(|(_, fence)| fence)
            }

            fn tick(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
                lock::tick(&mut room(at), setting)
            }

            fn give_up(at: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
                lock::give_up(&mut room(at), setting)
            }

            fn close(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
                lock::close(&mut room(at), fence, setting)
            }

            fn cut(
                room_at: Room<'_, Self>,
                fence: u64,
                grace: Span,
                at: Instant,
                setting: &mut Setting<'_>,
            ) -> Stepped<Self, bool> {
                lock::cut(&mut room(room_at), fence, grace, at, setting)
            }

            fn take_back(at: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
                lock::take_back(&mut room(at), fence, setting)
            }

            fn extend(
                at: Room<'_, Self>,
                fence: u64,
                until: Instant,
                setting: &mut Setting<'_>,
            ) -> Stepped<Self, bool> {
                lock::extend(&mut room(at), fence, until, setting)
            }

            fn deliver(answer: Answer) -> Delivery {
                deliver::<$flavour>(answer)
            }

            fn timeout(state: &Holders, line: &Queue<Ask>, now: Instant) -> Told {
                <$flavour>::told_timeout(busy(state, line, now))
            }
        }
    };
}

holding_machine!(
    OfLocks,
    c"resil-lck",
    true,
    lock_keys,
    lock,
    c"res.lock.granted",
    c"res.lock.released",
    c"res.lock.lost"
);
holding_machine!(
    OfBulkheads,
    c"resil-blk",
    false,
    bulkhead_keys,
    bulkhead,
    c"res.bulkhead.granted",
    c"res.bulkhead.released",
    c"res.bulkhead.lost"
);
