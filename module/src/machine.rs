//! What a machine must tell the module so that its keys are stored, replicated, waited for, bound to connections and
//! woken by the one timer. Locks, bulkheads, idempotency keys and single flights are such machines: the mechanism around
//! them exists once.

use std::cell::RefCell;
use std::ffi::CStr;
use std::sync::atomic::AtomicPtr;
use std::thread::LocalKey;

use redis_module::raw;
use resil_core::lock::{End, Reason, Setting};
use resil_core::queue::{Queue, WaiterId};
use resil_core::session::Binding;
use resil_core::step::Outcome;
use resil_core::{Instant, Span};

use crate::datatype::Bytes;
use crate::info::{Gauge, Holdings};
use crate::lines::Lines;
use crate::parked::Told;

/// Which machine a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Lock,
    Bulkhead,
    Idempotency,
    Flight,
}

/// Runs `$body` with `$machine` standing for the machine of `$kind`.
macro_rules! for_kind {
    ($kind:expr, $machine:ident => $body:expr) => {
        match $kind {
            $crate::machine::Kind::Lock => {
                type $machine = $crate::machines::holding::Locks;
                $body
            }
            $crate::machine::Kind::Bulkhead => {
                type $machine = $crate::machines::holding::Bulkheads;
                $body
            }
            $crate::machine::Kind::Idempotency => {
                type $machine = $crate::machines::idempotency::Idempotency;
                $body
            }
            $crate::machine::Kind::Flight => {
                type $machine = $crate::machines::flight::Flights;
                $body
            }
        }
    };
}
pub(crate) use for_kind;

impl Kind {
    pub const ALL: [Self; 4] = [Self::Lock, Self::Bulkhead, Self::Idempotency, Self::Flight];

    /// As events name it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Bulkhead => "bulkhead",
            Self::Idempotency => "idempotency",
            Self::Flight => "flight",
        }
    }
}

/// A key's state and the line before it.
pub struct Room<'a, M: Machine> {
    pub state: &'a mut M::State,
    pub line: &'a mut Queue<M::Ask>,
}

pub type Stepped<M, V> = Outcome<V, <M as Machine>::Edit, <M as Machine>::Answer>;

/// An answer on its way to a parked call.
pub struct Delivery {
    pub id: WaiterId,
    pub told: Told,
    /// What the answer grants, if it grants something.
    pub granted: Option<Grant>,
    /// Whether it was waited for in vain.
    pub timed_out: bool,
    /// About how long the reply is.
    pub bytes: usize,
}

/// A grant as far as the mechanism minds it.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    pub fence: u64,
    pub lease: Span,
    pub waited: Span,
    pub bind_to: Option<Binding>,
}

pub trait Machine: Sized + 'static {
    const KIND: Kind;
    type State: Default + Clone;
    type Ask: 'static;
    type Edit;
    type Answer;

    /// The native type: nine characters; `SCAN ... TYPE` finds keys by it.
    const TYPE_NAME: &'static CStr;
    /// Fences are the server's, not a type's: one of the types carries them in snapshots.
    const CARRIES_FENCES: bool = false;
    fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType>;
    fn keys() -> &'static Gauge;
    fn counters() -> &'static Holdings;
    fn lines() -> &'static LocalKey<RefCell<Lines<Self::Ask>>>;

    fn decode(bytes: &[u8]) -> Option<Self::State>;
    fn encode(state: &Self::State, out: &mut Bytes);
    /// `state` is what they have led to.
    fn encode_edits(state: &Self::State, edits: &[Self::Edit], out: &mut Bytes);
    fn apply(state: &mut Self::State, edit: Self::Edit);
    /// The fence an edit grants, if it does.
    fn granted_fence(edit: &Self::Edit) -> Option<u64>;
    /// The keyspace notification of an edit, if it is worth one.
    fn event(state: &Self::State, edit: &Self::Edit) -> Option<&'static CStr>;

    fn gc_at(state: &Self::State, salt: u64) -> Option<Instant>;
    fn last_fence(state: &Self::State) -> u64;
    fn heap_bytes(state: &Self::State) -> usize;
    fn parts(_state: &Self::State) -> usize {
        4
    }

    /// Everybody whose lease has not ended: owner and fence.
    fn holders(state: &Self::State, promoted_at: Option<Instant>, now: Instant) -> Vec<(Box<[u8]>, u64)>;
    fn holds(state: &Self::State, fence: u64) -> bool;
    /// Whether nobody else holds it beside the one whose lease ends first.
    fn has_one_holder(_state: &Self::State) -> bool {
        true
    }
    /// Whose lease has ended, but has not been ended yet.
    fn overdue(state: &Self::State, now: Instant) -> Option<u64>;
    /// Why a holding that ended `how` was lost.
    fn reason(how: End) -> Reason {
        how.into()
    }

    fn tick(room: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()>;
    fn give_up(room: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()>;
    fn close(room: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool>;
    fn cut(
        room: Room<'_, Self>,
        fence: u64,
        grace: Span,
        at: Instant,
        setting: &mut Setting<'_>,
    ) -> Stepped<Self, bool>;
    fn take_back(room: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool>;
    fn extend(room: Room<'_, Self>, fence: u64, until: Instant, setting: &mut Setting<'_>) -> Stepped<Self, bool>;

    fn deliver(answer: Self::Answer) -> Delivery;
    /// What a call is told that is unblocked by hand.
    fn timeout(state: &Self::State, line: &Queue<Self::Ask>, now: Instant) -> Told;
}

/// What a call is told whose owner asked again elsewhere, or let go.
pub fn superseded(id: WaiterId) -> Delivery {
    let text = "SUPERSEDED the same owner asked again, and has the place with that call, or let go";
    Delivery { id, told: Told::error(text), granted: None, timed_out: false, bytes: text.len() }
}
