//! The rows of `RES.LIST` and `RES.TOP`: each is a map, written and read field by field. Fields that a reader does not know are
//! skipped, so that newer servers can say more.
//!
//! `since_ms`, `…_at_ms` and `…_until_ms` are unix milliseconds; the other `…_ms` are lengths. What is not known is nil.

use resil_core::circuit_breaker::{Breaker, Phase, settled};
use resil_core::dead_letters::{LedgerView, Place};
use resil_core::guard::Guard;
use resil_core::limits::INSTANT_MAX_US;
use resil_core::lock::{Holders, LockRequest, lives};
use resil_core::waited::Queue;
use resil_core::{Instant, Span};

pub use super::field::RowField;
use super::field::{Field, RowFields, row};
pub use super::in_flight::{LoadRow, RunRow};
use super::{OverviewKind, TopKind};
use crate::reply::{Sink, Unexpected, Value};

row! {
    /// A breaker, or the breaker of a policy.
    BreakerRow {
        key: Vec<u8>,
        state: &'static str,
        /// Since when it is in this state, where that is remembered.
        since_ms: Option<i64>,
        calls: i64,
        failures: i64,
        failure_rate_pct: i64,
        trips: i64,
        forced_by: Option<Vec<u8>>,
        forced_reason: Option<Vec<u8>>,
        /// -1: until somebody ends it.
        forced_until_ms: Option<i64>,
        /// 1: the key is a policy's.
        policy: i64,
    }
}

row! {
    /// A lock that is held or waited for.
    LockRow {
        key: Vec<u8>,
        state: &'static str,
        /// Since when its oldest holder holds it.
        since_ms: Option<i64>,
        mode: Option<&'static str>,
        holders: i64,
        /// The oldest holder.
        owner: Option<Vec<u8>>,
        fence: Option<i64>,
        held_ms: i64,
        lease_left_ms: i64,
        waiters: i64,
        oldest_wait_ms: i64,
    }
}

row! {
    /// A bulkhead that somebody is in, or waits for.
    BulkheadRow {
        key: Vec<u8>,
        state: &'static str,
        /// Since when its oldest holder is in it.
        since_ms: Option<i64>,
        active: i64,
        /// As the newest ENTER said; not known on a replica.
        max: Option<i64>,
        waiters: i64,
        oldest_wait_ms: i64,
        held_ms: i64,
    }
}

row! {
    /// A stored policy, or what a deleted one has left.
    PolicyRow {
        key: Vec<u8>,
        state: &'static str,
        /// When this version was stored.
        since_ms: Option<i64>,
        version: i64,
        actor: Option<Vec<u8>>,
        reason: Option<Vec<u8>>,
        /// Of its breaker.
        breaker: Option<&'static str>,
        active: i64,
    }
}

row! {
    /// A ledger of dead letters.
    LedgerRow {
        key: Vec<u8>,
        state: &'static str,
        /// Since when it is paused is not remembered: always nil.
        since_ms: Option<i64>,
        waiting: i64,
        taken: i64,
        parked: i64,
        dead: i64,
        resolved: i64,
        archived: i64,
        held: i64,
        entries: i64,
        bytes: i64,
        groups: i64,
        cases_open: i64,
        alerts_unseen: i64,
        /// -1: until somebody ends it.
        paused_until_ms: Option<i64>,
    }
}

row! {
    /// A key that was refused often in the last minute.
    DeniedRow {
        key: Vec<u8>,
        kind: &'static str,
        /// About how often.
        estimate: i64,
        /// How far off the estimate may be.
        error: i64,
    }
}

row! {
    /// A call that waits.
    WaitingRow {
        key: Vec<u8>,
        kind: &'static str,
        owner: Vec<u8>,
        waited_ms: i64,
    }
}

row! {
    /// Somebody who holds a lock, or is in a bulkhead.
    HeldRow {
        key: Vec<u8>,
        kind: &'static str,
        owner: Vec<u8>,
        held_ms: i64,
    }
}

fn unless_empty(text: &[u8]) -> Option<Vec<u8>> {
    (!text.is_empty()).then(|| text.to_vec())
}

pub(super) fn unix_ms(us: i64) -> i64 {
    us / 1_000
}

impl BreakerRow {
    pub fn of(key: &[u8], breaker: &Breaker, is_policys: bool, now: Instant) -> Self {
        let breaker = &*settled(breaker, now);
        let totals = breaker.totals(now);
        let since_us = match breaker.phase() {
            Phase::Open { opened_us, .. } => Some(*opened_us),
            Phase::Ramping { since_us } => Some(*since_us),
            Phase::Forced(forced) => Some(forced.since_us),
            Phase::Closed => breaker.closed_at().map(Instant::as_us),
            Phase::HalfOpen { .. } => None,
        };
        let forced = if let Phase::Forced(forced) = breaker.phase() { Some(forced) } else { None };
        Self {
            key: key.to_vec(),
            state: breaker.name().text(),
            since_ms: since_us.map(unix_ms),
            calls: totals.calls.into(),
            failures: totals.failures.into(),
            failure_rate_pct: i64::from(totals.failures) * 100 / i64::from(totals.calls).max(1),
            trips: breaker.trips().into(),
            forced_by: forced.and_then(|forced| unless_empty(&forced.actor)),
            forced_reason: forced.and_then(|forced| unless_empty(&forced.reason)),
            forced_until_ms: forced.map(|forced| forced.until_us.map_or(-1, unix_ms)),
            policy: is_policys.into(),
        }
    }
}

pub(super) fn oldest_wait_ms<T>(queue: &Queue<T>, now: Instant) -> i64 {
    queue.oldest().map_or(0, |waiter| waiter.waited(now).ceil_ms())
}

/// The holders of a lock or a bulkhead, as far as a row shows them.
struct Held<'a> {
    count: usize,
    oldest: Option<&'a resil_core::lock::Holder>,
    held: Span,
}

impl<'a> Held<'a> {
    fn of(holders: &'a Holders, promoted_at: Option<Instant>, now: Instant) -> Self {
        // The oldest come first, and nearly all live: the others are about to end.
        let oldest = holders.iter().find(|holder| lives(holder, promoted_at, now));
        let held = oldest.map_or(Span::ZERO, |holder| holder.held(now));
        Self { count: holders.count_alive(promoted_at, now), oldest, held }
    }
}

impl LockRow {
    /// `None` if nobody holds it, and nobody waits.
    pub fn of(
        key: &[u8],
        holders: &Holders,
        queue: &Queue<LockRequest>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> Option<Self> {
        let Held { count, oldest, held } = Held::of(holders, promoted_at, now);
        if count == 0 && queue.is_empty() {
            return None;
        }
        Some(Self {
            key: key.to_vec(),
            state: if queue.is_empty() { "held" } else { "contended" },
            since_ms: oldest.map(|holder| unix_ms(holder.since.as_us())),
            mode: oldest.map(|holder| holder.mode().text()),
            holders: count as i64,
            owner: oldest.map(|holder| holder.owner().to_vec()),
            fence: oldest.map(|holder| holder.fence.cast_signed()),
            held_ms: held.ceil_ms(),
            lease_left_ms: oldest.map_or(0, |holder| now.until(holder.ends_for(promoted_at, now)).ceil_ms()),
            waiters: queue.len() as i64,
            oldest_wait_ms: oldest_wait_ms(queue, now),
        })
    }
}

impl BulkheadRow {
    /// `None` if nobody is in it, and nobody waits.
    pub fn of(
        key: &[u8],
        holders: &Holders,
        queue: &Queue<LockRequest>,
        max: Option<u32>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> Option<Self> {
        let Held { count, oldest, held } = Held::of(holders, promoted_at, now);
        if count == 0 && queue.is_empty() {
            return None;
        }
        let is_full = !queue.is_empty() || max.is_some_and(|max| count >= max as usize);
        Some(Self {
            key: key.to_vec(),
            state: if is_full { "full" } else { "free" },
            since_ms: oldest.map(|holder| unix_ms(holder.since.as_us())),
            active: count as i64,
            max: max.map(i64::from),
            waiters: queue.len() as i64,
            oldest_wait_ms: oldest_wait_ms(queue, now),
            held_ms: held.ceil_ms(),
        })
    }
}

impl PolicyRow {
    /// `None` if nothing is remembered of a policy.
    pub fn of(key: &[u8], guard: &Guard, promoted_at: Option<Instant>, now: Instant) -> Option<Self> {
        let current = guard.versions.current()?;
        Some(Self {
            key: key.to_vec(),
            state: if current.document.is_some() { "live" } else { "deleted" },
            since_ms: Some(unix_ms(current.at.as_us())),
            version: current.version.cast_signed(),
            actor: unless_empty(&current.actor),
            reason: unless_empty(&current.reason),
            breaker: guard.breaker().map(|breaker| settled(breaker, now).name().text()),
            active: guard.tickets().live(promoted_at, now).0 as i64,
        })
    }
}

impl LedgerRow {
    pub fn of(key: &[u8], view: &LedgerView, now: Instant) -> Self {
        let count = |place: Place| {
            let found = Place::ALL.into_iter().zip(view.counts).find(|(of, _)| *of == place);
            found.map_or(0, |(_, count)| count as i64)
        };
        let paused_until = view.paused_until.filter(|until| *until > now);
        Self {
            key: key.to_vec(),
            state: if paused_until.is_some() { "paused" } else { "running" },
            since_ms: None,
            waiting: count(Place::Waiting),
            taken: count(Place::Taken),
            parked: count(Place::Parked),
            dead: count(Place::Dead),
            resolved: count(Place::Resolved),
            archived: count(Place::Archived),
            held: view.held as i64,
            entries: view.entries as i64,
            bytes: view.bytes as i64,
            groups: view.groups as i64,
            cases_open: view.cases_open as i64,
            alerts_unseen: view.alerts_unseen as i64,
            paused_until_ms: paused_until
                .map(|until| if until.as_us() >= INSTANT_MAX_US { -1 } else { unix_ms(until.as_us()) }),
        }
    }
}

macro_rules! rows {
    ($(#[$doc:meta])* $name:ident, $kind:ident { $($variant:ident($row:ident),)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $($variant($row),)*
        }

        impl $name {
            pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
                match self {
                    $(Self::$variant(row) => row.write(sink),)*
                }
            }

            pub(super) fn read(value: Value, kind: $kind) -> Result<Self, Unexpected> {
                match kind {
                    $($kind::$variant => $row::read(value).map(Self::$variant),)*
                }
            }

            pub fn key(&self) -> &[u8] {
                match self {
                    $(Self::$variant(row) => &row.key,)*
                }
            }
        }
    };
}

rows! {
    /// A row of `RES.LIST`.
    OverviewRow, OverviewKind {
        Breaker(BreakerRow),
        Lock(LockRow),
        Bulkhead(BulkheadRow),
        Policy(PolicyRow),
        Dlq(LedgerRow),
        Run(RunRow),
        Load(LoadRow),
    }
}

rows! {
    /// A row of `RES.TOP`.
    TopRow, TopKind {
        Denied(DeniedRow),
        Waiting(WaitingRow),
        Held(HeldRow),
    }
}

impl OverviewRow {
    pub fn state(&self) -> &'static str {
        match self {
            Self::Breaker(row) => row.state,
            Self::Lock(row) => row.state,
            Self::Bulkhead(row) => row.state,
            Self::Policy(row) => row.state,
            Self::Dlq(row) => row.state,
            Self::Run(row) => row.state,
            Self::Load(row) => row.state,
        }
    }
}
