//! The machines that can be waited for, as the server needs to know them: names, counters, notifications, replies.
//! Everything else is `resil_core::waited`.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::LazyLock;
use std::sync::atomic::AtomicPtr;
use std::thread::LocalKey;

use redis_module::raw;
use resil_core::Instant;
use resil_core::circuit_breaker::StateName;
use resil_core::dead_letters::{Ledger, LedgerEdit, Ledgers, NothingDue, Taken};
use resil_core::guard::{Admitted, EnterRefusal, Exited, Guard, GuardEdit, Guards};
use resil_core::idempotency::{Idempotency, Record, RecordEvent, Run, Settled};
use resil_core::lock::{Busy, HolderEdit, Holding, LockRequest};
use resil_core::single_flight::{Flight, FlightEdit, Flights, Lead, Seen, Way};
use resil_core::waited::{End, Grant, Machine};
use resil_wire::Refused;
use resil_wire::bulkhead::Entered;
use resil_wire::dead_letters::TakenReply;
use resil_wire::guard::GuardEntered;
use resil_wire::idempotency::Begun;
use resil_wire::lock::Acquired;
use resil_wire::overview::OverviewKind;
use resil_wire::reply::Sink;
use resil_wire::single_flight::Joined;

use crate::call::Call;
use crate::datatype::waited::Stored;
use crate::info::{Gauge, Holdings, counters};
use crate::queues::Queues;
use crate::{guard_events, ledger_events};

macro_rules! kinds {
    (() plain $plain:tt waited { $($name:ident: $machine:ty,)* }) => {
        /// Which machine a key belongs to.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($name,)*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

resil_core::machines!(kinds);

/// Runs `$body` with `$machine` standing for the machine of `$kind`.
macro_rules! for_kind {
    ($kind:expr, $machine:ident => $body:expr) => {
        resil_core::machines!(crate::machines::arms_of_kinds, $kind, $machine, $body)
    };
}
pub(crate) use for_kind;

macro_rules! arms_of_kinds {
    (($kind:expr, $alias:ident, $body:expr) plain $plain:tt waited { $($name:ident: $machine:ty,)* }) => {
        match $kind {
            $($crate::machines::Kind::$name => {
                type $alias = $machine;
                $body
            })*
        }
    };
}
pub(crate) use arms_of_kinds;

impl Kind {
    /// As events name it.
    pub fn text(self) -> &'static str {
        for_kind!(self, M => M::EVENT_NAME)
    }
}

/// About how long a reply without bytes of its own is.
const SHORT_REPLY: usize = 64;

pub trait ServerMachine: Machine {
    const KIND: Kind;
    /// As events name it.
    const EVENT_NAME: &'static str;
    /// As INFO names its counters.
    const INFO_NAME: &'static str;
    /// The native type: nine characters; `SCAN ... TYPE` finds keys by it.
    const TYPE_NAME: &'static CStr;
    /// Fences are the server's, not a type's: one of the types carries them in snapshots.
    const CARRIES_FENCES: bool = false;
    /// Under what `RES.LIST` shows its keys, if it does.
    const LISTED: Option<OverviewKind> = None;
    /// Whether there is something to show of a key in this state. Others have no slot in the registry.
    fn is_listed(_state: &Self::State) -> bool {
        true
    }
    fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType>;
    fn queues() -> &'static LocalKey<RefCell<Queues<Self::Request>>>;
    fn keys() -> &'static Gauge;
    /// What its values take, for INFO.
    fn bytes() -> &'static Gauge;
    fn counters() -> &'static Holdings;

    /// The keyspace notification of an edit, if it is worth one.
    fn event(edit: &Self::Report) -> Option<&'static CStr>;

    /// Publishes what a step did, beyond its notifications.
    fn announce(_call: &Call<'_>, _key: &[u8], _state: &Self::State, _edits: &[Self::Report], _now: Instant) {}
    /// What a value takes of `bytes`.
    fn weight(state: &Self::State) -> usize {
        size_of::<Stored<Self>>() + Self::bytes_about(state)
    }

    /// The replies to a call that waited.
    fn write_grant(grant: Self::Grant, sink: &mut dyn Sink);
    fn write_refusal(refusal: Self::Refusal, sink: &mut dyn Sink);
    /// If it is an error and not a verdict.
    fn refusal_error(_refusal: &Self::Refusal) -> Option<Refused> {
        None
    }
    /// About how long they are.
    fn grant_bytes(_grant: &Self::Grant) -> usize {
        SHORT_REPLY
    }
    fn refusal_bytes(_refusal: &Self::Refusal) -> usize {
        SHORT_REPLY
    }
}

/// Statics of its own for each machine.
macro_rules! statics {
    ($machine:ty) => {
        fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType> {
            static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());
            &HANDLE
        }

        fn queues() -> &'static LocalKey<RefCell<Queues<Self::Request>>> {
            thread_local! {
                static QUEUES: RefCell<Queues<<$machine as Machine>::Request>> = RefCell::new(Queues::default());
            }
            &QUEUES
        }

        fn keys() -> &'static Gauge {
            static KEYS: Gauge = Gauge::new();
            &KEYS
        }

        fn bytes() -> &'static Gauge {
            static BYTES: Gauge = Gauge::new();
            &BYTES
        }

        fn counters() -> &'static Holdings {
            static HOLDINGS: LazyLock<Holdings> = LazyLock::new(Holdings::default);
            &HOLDINGS
        }
    };
}

/// The notifications of both: granted, released, lost.
const HOLDING_EVENTS: [[&CStr; 3]; 2] = [
    [c"res.bulkhead.granted", c"res.bulkhead.released", c"res.bulkhead.lost"],
    [c"res.lock.granted", c"res.lock.released", c"res.lock.lost"],
];

impl<const L: bool> ServerMachine for Holding<L> {
    const KIND: Kind = if L { Kind::Lock } else { Kind::Bulkhead };
    const EVENT_NAME: &'static str = if L { "lock" } else { "bulkhead" };
    const INFO_NAME: &'static str = Self::EVENT_NAME;
    const TYPE_NAME: &'static CStr = if L { c"resil-lck" } else { c"resil-blk" };
    const CARRIES_FENCES: bool = L;
    const LISTED: Option<OverviewKind> = Some(if L { OverviewKind::Lock } else { OverviewKind::Bulkhead });

    fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        static HANDLES: [AtomicPtr<raw::RedisModuleType>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
        &HANDLES[usize::from(L)]
    }

    fn queues() -> &'static LocalKey<RefCell<Queues<LockRequest>>> {
        thread_local! {
            static LOCKS: RefCell<Queues<LockRequest>> = RefCell::new(Queues::default());
            static BULKHEADS: RefCell<Queues<LockRequest>> = RefCell::new(Queues::default());
        }
        if L { &LOCKS } else { &BULKHEADS }
    }

    fn keys() -> &'static Gauge {
        static KEYS: [Gauge; 2] = [const { Gauge::new() }; 2];
        &KEYS[usize::from(L)]
    }

    fn bytes() -> &'static Gauge {
        static BYTES: [Gauge; 2] = [const { Gauge::new() }; 2];
        &BYTES[usize::from(L)]
    }

    fn counters() -> &'static Holdings {
        static HOLDINGS: [LazyLock<Holdings>; 2] = [const { LazyLock::new(Holdings::default) }; 2];
        &HOLDINGS[usize::from(L)]
    }

    fn event(edit: &HolderEdit) -> Option<&'static CStr> {
        let [granted, released, lost] = HOLDING_EVENTS[usize::from(L)];
        match edit {
            HolderEdit::Granted(_) => Some(granted),
            HolderEdit::Ended { how: End::Released, .. } => Some(released),
            HolderEdit::Ended { .. } | HolderEdit::AllEnded { .. } => Some(lost),
            HolderEdit::Timed { .. } | HolderEdit::Moded { .. } | HolderEdit::Raised(_) => None,
        }
    }

    fn write_grant(grant: Grant, sink: &mut dyn Sink) {
        if L { Acquired::from(grant).write(sink) } else { Entered::from(grant).write(sink) }
    }

    fn write_refusal(busy: Busy, sink: &mut dyn Sink) {
        if L { Acquired::Timeout(busy.into()).write(sink) } else { Entered::timeout(&busy).write(sink) }
    }
}

impl ServerMachine for Idempotency {
    const KIND: Kind = Kind::Idempotency;
    const EVENT_NAME: &'static str = "idempotency";
    const INFO_NAME: &'static str = "idemp";
    const TYPE_NAME: &'static CStr = c"resil-idm";
    const LISTED: Option<OverviewKind> = Some(OverviewKind::Run);
    statics!(Idempotency);

    fn is_listed(record: &Record) -> bool {
        record.is_in_flight()
    }

    fn event(event: &RecordEvent) -> Option<&'static CStr> {
        match event {
            RecordEvent::Seen => Some(c"res.idemp.seen"),
            RecordEvent::Running => Some(c"res.idemp.running"),
            RecordEvent::Aborted => Some(c"res.idemp.aborted"),
            RecordEvent::Lost => Some(c"res.idemp.lost"),
            RecordEvent::Committed => Some(c"res.idemp.committed"),
            RecordEvent::Mended => None,
        }
    }

    fn write_grant(run: Run, sink: &mut dyn Sink) {
        Begun::from(run).write(sink);
    }

    fn write_refusal(settled: Settled, sink: &mut dyn Sink) {
        Begun::from(settled).write(sink);
    }

    fn refusal_bytes(settled: &Settled) -> usize {
        match settled {
            Settled::Replay(replay) => replay.result.as_ref().map_or(0, |result| result.len()) + SHORT_REPLY,
            _ => SHORT_REPLY,
        }
    }
}

impl ServerMachine for Flights {
    const KIND: Kind = Kind::Flight;
    const EVENT_NAME: &'static str = "flight";
    const INFO_NAME: &'static str = "sflight";
    const TYPE_NAME: &'static CStr = c"resil-sfl";
    const LISTED: Option<OverviewKind> = Some(OverviewKind::Load);
    statics!(Flights);

    fn is_listed(flight: &Flight) -> bool {
        flight.leader.is_some()
    }

    fn event(edit: &FlightEdit) -> Option<&'static CStr> {
        match edit {
            FlightEdit::Led(_) => Some(c"res.sflight.led"),
            FlightEdit::Ended { way, .. } => Some(match way {
                Way::Published => c"res.sflight.published",
                Way::Abandoned => c"res.sflight.abandoned",
                Way::Expired | Way::Closed => c"res.sflight.lost",
                Way::Invalidated => c"res.sflight.invalidated",
            }),
            FlightEdit::Dropped | FlightEdit::Softened { .. } => Some(c"res.sflight.invalidated"),
            FlightEdit::Timed { .. }
            | FlightEdit::Kept(_)
            | FlightEdit::Paused(_)
            | FlightEdit::Resumed
            | FlightEdit::Known { .. }
            | FlightEdit::Mended { .. } => None,
        }
    }

    fn write_grant(lead: Lead, sink: &mut dyn Sink) {
        Joined::from(lead).write(sink);
    }

    fn write_refusal(seen: Seen, sink: &mut dyn Sink) {
        Joined::from(seen).write(sink);
    }

    fn grant_bytes(lead: &Lead) -> usize {
        lead.stale.as_ref().map_or(0, |bytes| bytes.len()) + SHORT_REPLY
    }

    fn refusal_bytes(seen: &Seen) -> usize {
        SHORT_REPLY
            + match seen {
                Seen::Value { bytes, .. } | Seen::Stale { bytes, .. } => bytes.len(),
                Seen::Error { text } => text.len(),
                Seen::Empty { .. } | Seen::Busy { .. } | Seen::Miss => 0,
            }
    }
}

impl ServerMachine for Ledgers {
    const KIND: Kind = Kind::Ledger;
    const EVENT_NAME: &'static str = "ledger";
    const INFO_NAME: &'static str = "dlq";
    const TYPE_NAME: &'static CStr = c"resil-dlq";
    const LISTED: Option<OverviewKind> = Some(OverviewKind::Dlq);
    statics!(Ledgers);

    fn event(edit: &LedgerEdit) -> Option<&'static CStr> {
        match edit {
            LedgerEdit::Added(added) if added.failure.is_none() => Some(c"res.dlq.parked"),
            LedgerEdit::Added(_) | LedgerEdit::Failed(_) => Some(c"res.dlq.failed"),
            LedgerEdit::Taken(_) => Some(c"res.dlq.taken"),
            LedgerEdit::Done { .. } => Some(c"res.dlq.done"),
            LedgerEdit::Returned { .. } => Some(c"res.dlq.returned"),
            LedgerEdit::Ended { .. } => Some(c"res.dlq.lapsed"),
            LedgerEdit::Purged { .. } => Some(c"res.dlq.purged"),
            LedgerEdit::Audited(_) => Some(c"res.dlq.governed"),
            _ => None,
        }
    }

    fn announce(call: &Call<'_>, key: &[u8], state: &Ledger, edits: &[LedgerEdit], now: Instant) {
        ledger_events::announce(call, key, state, edits, now);
    }

    /// As the limits of ledgers count them.
    fn weight(state: &Ledger) -> usize {
        state.bytes()
    }

    fn write_grant(taken: Taken, sink: &mut dyn Sink) {
        counters().ledgers.taken.add(taken.entries.len() as u64);
        TakenReply::from(taken).write(sink);
    }

    fn write_refusal(nothing: NothingDue, sink: &mut dyn Sink) {
        TakenReply::timeout(nothing).write(sink);
    }

    fn grant_bytes(taken: &Taken) -> usize {
        let texts = taken.entries.iter().map(|entry| entry.message.as_bytes().len() + entry.error.len());
        texts.sum::<usize>() + taken.entries.len() * SHORT_REPLY
    }
}

impl ServerMachine for Guards {
    const KIND: Kind = Kind::Guard;
    const EVENT_NAME: &'static str = "guard";
    const INFO_NAME: &'static str = "guard";
    const TYPE_NAME: &'static CStr = c"resil-pol";
    const LISTED: Option<OverviewKind> = Some(OverviewKind::Policy);
    statics!(Guards);

    fn event(edit: &GuardEdit) -> Option<&'static CStr> {
        match edit {
            GuardEdit::Published(publication) if publication.settings.is_none() => Some(c"res.policy.deleted"),
            GuardEdit::Published(_) => Some(c"res.policy.set"),
            GuardEdit::Admitted(_) => Some(c"res.guard.admitted"),
            GuardEdit::Exited { said: Exited::Stop { .. }, .. } => Some(c"res.guard.stopped"),
            GuardEdit::Exited { .. } => Some(c"res.guard.done"),
            GuardEdit::Retried { .. } => Some(c"res.guard.retry"),
            GuardEdit::Ended { .. } => Some(c"res.guard.lost"),
            GuardEdit::Moved(transition) => Some(match transition.new {
                StateName::Closed => c"res.breaker.closed",
                StateName::Open => c"res.breaker.open",
                StateName::HalfOpen => c"res.breaker.half-open",
                StateName::Ramping => c"res.breaker.ramping",
                StateName::ForcedOpen => c"res.breaker.forced-open",
                StateName::ForcedClosed => c"res.breaker.forced-closed",
                StateName::Disabled => c"res.breaker.disabled",
                StateName::Metrics => c"res.breaker.metrics",
            }),
            GuardEdit::Limited(_)
            | GuardEdit::Logged(_)
            | GuardEdit::Broke(_)
            | GuardEdit::Timed { .. }
            | GuardEdit::Reopened(_) => None,
        }
    }

    fn announce(call: &Call<'_>, key: &[u8], state: &Guard, edits: &[GuardEdit], now: Instant) {
        guard_events::announce(call, key, state, edits, now);
    }

    fn write_grant(admitted: Admitted, sink: &mut dyn Sink) {
        GuardEntered::from(&admitted).write(sink);
    }

    fn write_refusal(refusal: EnterRefusal, sink: &mut dyn Sink) {
        if let Ok(refused) = GuardEntered::try_from(refusal) {
            refused.write(sink);
        }
    }

    fn refusal_error(refusal: &EnterRefusal) -> Option<Refused> {
        GuardEntered::try_from(*refusal).err()
    }
}
