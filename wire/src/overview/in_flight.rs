//! What somebody does at the moment for all who ask: runs under idempotency keys, and loads of single flights.

use resil_core::idempotency::{OnLapse, Record, RunRequest, WorkPhase};
use resil_core::single_flight::{Flight, LeadRequest};
use resil_core::waited::Queue;
use resil_core::waited::lease::ends_for;
use resil_core::{Instant, Span};

use super::field::{Field, RowField, RowFields, row};
use super::rows::{oldest_wait_ms, unix_ms};
use crate::reply::{Sink, Unexpected, Value};

row! {
    /// Work under an idempotency key that somebody runs, or that waits for a decision.
    RunRow {
        key: Vec<u8>,
        state: &'static str,
        /// Since when it runs, or waits for a decision.
        since_ms: Option<i64>,
        /// Who runs, or ran last.
        owner: Vec<u8>,
        fence: i64,
        attempt: i64,
        /// 0 if nobody runs.
        running_ms: i64,
        lease_left_ms: i64,
        waiters: i64,
        oldest_wait_ms: i64,
    }
}

row! {
    /// A value that somebody loads for all who ask.
    LoadRow {
        key: Vec<u8>,
        state: &'static str,
        /// Since when it is loaded.
        since_ms: Option<i64>,
        owner: Vec<u8>,
        fence: i64,
        loading_ms: i64,
        lease_left_ms: i64,
        waiters: i64,
        oldest_wait_ms: i64,
    }
}

impl RunRow {
    /// `None` if nobody runs and nothing waits for a decision. `kept_until` is how long the connection of its runner keeps a short lease,
    /// whatever is written.
    pub fn of(
        key: &[u8],
        record: &Record,
        queue: &Queue<RunRequest>,
        kept_until: Option<Instant>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> Option<Self> {
        let work = record.work_for(promoted_at, now)?;
        let (state, since, left) = match work.phase {
            WorkPhase::Running { since, lease, ends } => {
                let ends = ends_for(ends, lease, promoted_at, now).max(kept_until.unwrap_or(Instant::EPOCH));
                match (now.until(ends), work.on_lapse) {
                    // Nobody has written it down yet.
                    (Span::ZERO, OnLapse::Hold) => ("held", ends, Span::ZERO),
                    (Span::ZERO, OnLapse::Run) => return None,
                    (left, _) => (if queue.is_empty() { "running" } else { "contended" }, since, left),
                }
            }
            WorkPhase::Idle { at, .. } if work.is_held() => ("held", at, Span::ZERO),
            WorkPhase::Idle { .. } | WorkPhase::Done { .. } => return None,
        };
        let running = if left.is_zero() { Span::ZERO } else { since.until(now) };
        Some(Self {
            key: key.to_vec(),
            state,
            since_ms: Some(unix_ms(since.as_us())),
            owner: work.token.to_vec(),
            fence: work.fence.cast_signed(),
            attempt: work.attempt.into(),
            running_ms: running.ceil_ms(),
            lease_left_ms: left.ceil_ms(),
            waiters: queue.len() as i64,
            oldest_wait_ms: oldest_wait_ms(queue, now),
        })
    }
}

impl LoadRow {
    /// `None` if nobody loads it. `kept_until`: as of a run.
    pub fn of(
        key: &[u8],
        flight: &Flight,
        queue: &Queue<LeadRequest>,
        kept_until: Option<Instant>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> Option<Self> {
        let leader = flight.leader.as_deref()?;
        let ends = ends_for(leader.ends, leader.lease, promoted_at, now).max(kept_until.unwrap_or(Instant::EPOCH));
        let left = Some(now.until(ends)).filter(|left| !left.is_zero())?;
        Some(Self {
            key: key.to_vec(),
            state: if queue.is_empty() { "loading" } else { "contended" },
            since_ms: Some(unix_ms(leader.since.as_us())),
            owner: leader.token.to_vec(),
            fence: leader.fence.cast_signed(),
            loading_ms: leader.since.until(now).ceil_ms(),
            lease_left_ms: left.ceil_ms(),
            waiters: queue.len() as i64,
            oldest_wait_ms: oldest_wait_ms(queue, now),
        })
    }
}
