//! `RES.LIST` and `RES.TOP`. Here all keys are looked at for a page: they are this process's own.
//!
//! Rows are in the order of a number that follows from the key alone, so that a cursor stays good whatever comes and goes.

use std::hash::{DefaultHasher, Hash, Hasher};

use resil_core::Instant;
use resil_core::heavy_hitters::SAMPLED;
use resil_core::lock::{Holders, LockRequest, lives};
use resil_core::rate_limit::Ask;
use resil_core::waited::Queue;
use resil_wire::bulkhead::Entered;
use resil_wire::command::{Command, Reply};
use resil_wire::guard::GuardEntered;
use resil_wire::lock::Acquired;
use resil_wire::overview::{
    BreakerRow, BulkheadRow, DeniedRow, HeldRow, LedgerRow, Listed, LoadRow, LockRow, OverviewCall, OverviewKind,
    OverviewRow, PolicyRow, Ranked, RunRow, TopCall, TopKind, TopRow, WaitingRow,
};

use super::store::{State, Store, When};

const KINDS: [&str; 5] = ["limit", "breaker", "lock", "bulkhead", "policy"];

/// Whose key was refused by this reply.
pub(super) fn denied<'a>(command: &Command<'a>, reply: &Reply) -> Option<(&'static str, &'a [u8])> {
    let kind = match (command, reply) {
        (Command::Gcra(call), Reply::Limit(limit)) if limit.granted == 0 && takes(call.ask) => "limit",
        (Command::Window(call), Reply::Limit(limit)) if limit.granted == 0 && takes(call.ask) => "limit",
        (Command::BreakerAdmit(_), Reply::Admitted(admitted)) if admitted.permit.is_none() => "breaker",
        (_, Reply::Acquired(Acquired::Taken(_) | Acquired::Timeout(_))) => "lock",
        (_, Reply::Entered(Entered::Full { .. } | Entered::Timeout { .. })) => "bulkhead",
        (_, Reply::GuardEntered(GuardEntered::Refused { .. })) => "policy",
        _ => return None,
    };
    Some((kind, command.key()?))
}

fn takes(ask: Ask) -> bool {
    !matches!(ask, Ask::Peek | Ask::Refund(_))
}

/// Where a key stands in the order of pages; never 0.
fn place_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 1).max(1)
}

impl Store {
    pub fn note_denial(&self, kind: &'static str, key: &[u8], when: When) {
        if rand::random_range(0..SAMPLED) == 0 {
            let tag = KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u32;
            let now = self.now(when);
            self.denied.lock().add(tag, key, now);
        }
    }

    pub fn list(&self, call: &OverviewCall<'_>, when: When) -> Reply {
        let now = self.now(when);
        let mut rows: Vec<(u64, OverviewRow)> = Vec::new();
        self.for_each(now, |key, state| {
            let place = place_of(key);
            let row = if place >= call.cursor && call.wants_key(key) { row(call.kind, key, state, now) } else { None };
            rows.extend(row.filter(|row| call.wants_state(row.state())).map(|row| (place, row)));
        });
        rows.sort_by_key(|(place, _)| *place);
        let next = rows.get(call.limit as usize).map_or(0, |(place, _)| *place);
        rows.truncate(call.limit as usize);
        Reply::Listed(Listed { cursor: next, rows: rows.into_iter().map(|(_, row)| row).collect() })
    }

    pub fn top(&self, call: &TopCall, when: When) -> Reply {
        let (now, limit) = (self.now(when), call.limit as usize);
        let mut rows: Vec<(i64, TopRow)> = match call.kind {
            TopKind::Denied => {
                let denied = self.denied.lock();
                let hits = denied.top(now, |_, _| true).into_iter().map(|hit| {
                    let estimate = hit.estimate.scaled();
                    let (count, error) = (estimate.count.cast_signed(), estimate.error.cast_signed());
                    let kind = KINDS.get(hit.tag as usize).copied().unwrap_or("limit");
                    (count, TopRow::Denied(DeniedRow { key: hit.name.to_vec(), kind, estimate: count, error }))
                });
                hits.collect()
            }
            TopKind::Waiting => self.waits(now),
            TopKind::Held => self.holds(now),
        };
        rows.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        rows.truncate(limit);
        Reply::Ranked(Ranked(rows.into_iter().map(|(_, row)| row).collect()))
    }

    fn waits(&self, now: Instant) -> Vec<(i64, TopRow)> {
        fn add<T>(
            rows: &mut Vec<(i64, TopRow)>,
            kind: &'static str,
            key: &[u8],
            queue: Option<&Queue<T>>,
            now: Instant,
        ) {
            for waiter in queue.into_iter().flat_map(|queue| queue.waiters_at(now)) {
                let waited_ms = waiter.waited(now).ceil_ms();
                let row = WaitingRow { key: key.to_vec(), kind, owner: waiter.owner.to_vec(), waited_ms };
                rows.push((waited_ms, TopRow::Waiting(row)));
            }
        }
        let mut rows = Vec::new();
        self.for_each(now, |key, state| match state {
            State::Lock(waited) => add(&mut rows, "lock", key, waited.queue(), now),
            State::Bulkhead(waited) => add(&mut rows, "bulkhead", key, waited.queue(), now),
            State::Idempotency(waited) => add(&mut rows, "idempotency", key, waited.queue(), now),
            State::Flight(waited) => add(&mut rows, "flight", key, waited.queue(), now),
            State::Ledger(waited) => add(&mut rows, "dlq", key, waited.queue(), now),
            State::Guard(waited) => add(&mut rows, "policy", key, waited.queue(), now),
            State::Tiers(_) | State::Window(_) | State::Breaker(_) | State::Generations(_) => {}
        });
        rows
    }

    fn holds(&self, now: Instant) -> Vec<(i64, TopRow)> {
        fn add(rows: &mut Vec<(i64, TopRow)>, kind: &'static str, key: &[u8], holders: &Holders, now: Instant) {
            for holder in holders.iter().filter(|holder| lives(holder, None, now)) {
                let held_ms = holder.held(now).ceil_ms();
                let row = HeldRow { key: key.to_vec(), kind, owner: holder.owner().to_vec(), held_ms };
                rows.push((held_ms, TopRow::Held(row)));
            }
        }
        let mut rows = Vec::new();
        self.for_each(now, |key, state| match state {
            State::Lock(waited) => add(&mut rows, "lock", key, waited.state(), now),
            State::Bulkhead(waited) => add(&mut rows, "bulkhead", key, waited.state(), now),
            _ => {}
        });
        rows
    }
}

/// The row of a key, if it is of this kind and has something to show.
fn row(kind: OverviewKind, key: &[u8], state: &State, now: Instant) -> Option<OverviewRow> {
    let nobody: Queue<LockRequest> = Queue::default();
    match (kind, state) {
        (OverviewKind::Breaker, State::Breaker(breaker)) => {
            Some(OverviewRow::Breaker(BreakerRow::of(key, breaker, false, now)))
        }
        (OverviewKind::Breaker, State::Guard(waited)) => {
            let breaker = waited.state().breaker()?;
            Some(OverviewRow::Breaker(BreakerRow::of(key, breaker, true, now)))
        }
        (OverviewKind::Lock, State::Lock(waited)) => {
            let queue = waited.queue().unwrap_or(&nobody);
            LockRow::of(key, waited.state(), queue, None, now).map(OverviewRow::Lock)
        }
        (OverviewKind::Bulkhead, State::Bulkhead(waited)) => {
            let queue = waited.queue().unwrap_or(&nobody);
            BulkheadRow::of(key, waited.state(), queue, waited.max(), None, now).map(OverviewRow::Bulkhead)
        }
        (OverviewKind::Policy, State::Guard(waited)) => {
            PolicyRow::of(key, waited.state(), None, now).map(OverviewRow::Policy)
        }
        (OverviewKind::Dlq, State::Ledger(waited)) => {
            Some(OverviewRow::Dlq(LedgerRow::of(key, &waited.state().view(), now)))
        }
        (OverviewKind::Run, State::Idempotency(waited)) => {
            let nobody = Queue::default();
            let queue = waited.queue().unwrap_or(&nobody);
            RunRow::of(key, waited.state(), queue, None, None, now).map(OverviewRow::Run)
        }
        (OverviewKind::Load, State::Flight(waited)) => {
            let nobody = Queue::default();
            let queue = waited.queue().unwrap_or(&nobody);
            LoadRow::of(key, waited.state(), queue, None, None, now).map(OverviewRow::Load)
        }
        _ => None,
    }
}
