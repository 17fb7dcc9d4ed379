//! What core decides, as it is written: time that a caller may rely on or has spent rounds down, time to wait rounds up.
//!
//! How to repeat a failing run: see `seed`.

#[allow(dead_code)] // not every test needs all of it
mod arbitrary;
#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use std::sync::Arc;

use arbitrary::parts::{any_span, bytes, reason, shared, state, why, written};
use arbitrary::{fence, permit, span};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use resil_core::Span;
use resil_core::circuit_breaker::{Admission, Reported};
use resil_core::idempotency::{self, Replay, Run, Settled};
use resil_core::limits::{CELLS_MAX, FILL_MAX};
use resil_core::lock::{self as core_lock, Busy, Grant};
use resil_core::rate_limit::{ManyVerdict, Reading, Verdict, Wait};
use resil_core::session::Loss;
use resil_core::single_flight::{self, Abandoned, Lead, Seen};
use resil_wire::bulkhead::Entered;
use resil_wire::command::Reply;
use resil_wire::lock::Acquired;
use resil_wire::reply::Value;

/// An element of a reply.
trait Element {
    fn value(self) -> Value;
}

impl Element for i64 {
    fn value(self) -> Value {
        Value::Integer(self)
    }
}

impl Element for &str {
    fn value(self) -> Value {
        Value::Text(self.into())
    }
}

impl Element for Option<&[u8]> {
    fn value(self) -> Value {
        self.map_or(Value::Null, |bytes| Value::Text(bytes.to_vec()))
    }
}

impl Element for Vec<Value> {
    fn value(self) -> Value {
        Value::Array(self)
    }
}

macro_rules! array {
    ($($element:expr),* $(,)?) => { vec![$(Element::value($element)),*] };
}

macro_rules! is_written {
    ($reply:expr, $($element:expr),* $(,)?) => {
        prop_assert_eq!(written(&$reply), Value::Array(array![$($element),*]));
    };
}

fn down(span: Span) -> i64 {
    span.as_us() / 1_000
}

fn up(span: Span) -> i64 {
    (span.as_us() + 999) / 1_000
}

fn wait(wait: Wait) -> i64 {
    match wait {
        Wait::Never => -1,
        Wait::For(span) => up(span),
    }
}

fn numbers(reading: &Reading) -> Vec<Value> {
    array![reading.capacity as i64, reading.remaining as i64, wait(reading.retry_after), up(reading.reset_after)]
}

fn reading() -> impl Strategy<Value = Reading> {
    let wait = prop_oneof![Just(Wait::Never), Just(Wait::NONE), any_span().prop_map(Wait::For)];
    (0..=CELLS_MAX, 0..=CELLS_MAX, wait, span(Span::ZERO, FILL_MAX)).prop_map(
        |(capacity, remaining, retry_after, reset_after)| Reading { capacity, remaining, retry_after, reset_after },
    )
}

fn retry_after() -> impl Strategy<Value = Wait> {
    prop_oneof![Just(Wait::Never), any_span().prop_map(Wait::For)]
}

fn grant() -> impl Strategy<Value = Grant> {
    (fence(), any_span(), any_span(), 0..100_000usize, 0..100_000usize)
        .prop_map(|(fence, lease, waited, active, queued)| Grant { fence, lease, waited, active, queued })
}

fn busy() -> impl Strategy<Value = Busy> {
    (bytes(), any_span(), any_span(), 0..100_000usize, 0..100_000usize).prop_map(
        |(holder, remaining, retry_after, active, queued)| Busy {
            holder: holder.into(),
            remaining,
            retry_after,
            active,
            queued,
        },
    )
}

fn settled() -> impl Strategy<Value = Settled> {
    prop_oneof![
        (any::<bool>(), option::of(shared()), any_span()).prop_map(|(failed, result, age)| Settled::Replay(Replay {
            failed,
            result,
            age
        })),
        (any_span(), any::<u32>()).prop_map(|(remaining, attempt)| Settled::Busy { remaining, attempt }),
        Just(Settled::Mismatch),
        any::<u32>().prop_map(|attempt| Settled::Held { attempt }),
        Just(Settled::Miss),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        (shared(), any_span(), any_span()).prop_map(|(bytes, age, fresh)| Seen::Value { bytes, age, fresh }),
        (shared(), any_span()).prop_map(|(bytes, age)| Seen::Stale { bytes, age }),
        any_span().prop_map(|age| Seen::Empty { age }),
        shared().prop_map(|text| Seen::Error { text }),
        any_span().prop_map(|remaining| Seen::Busy { remaining }),
        Just(Seen::Miss),
    ]
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn limits_show_the_binding_tier_and_every_tier_of_several(
        granted in 0..=CELLS_MAX,
        readings in vec(reading(), 1..=8),
        refused_by in option::of(0..8usize),
    ) {
        let verdict = Verdict { granted, tiers: readings.iter().copied().collect() };
        let mut expected = array![granted as i64];
        expected.extend(numbers(&verdict.binding()));
        if readings.len() > 1 {
            expected.push(readings.iter().map(|reading| numbers(reading).value()).collect::<Vec<_>>().value());
        }
        prop_assert_eq!(written(&Reply::Limit((&verdict).into())), Value::Array(expected));
        let keys: Vec<Value> = readings.iter().map(|reading| numbers(reading).value()).collect();
        let many = ManyVerdict { granted, refused_by, readings: readings.into() };
        is_written!(
            Reply::Limits((&many).into()),
            granted as i64,
            refused_by.map_or(-1, |index| index as i64),
            keys,
        );
    }

    #[test]
    fn breakers_round_up_what_is_left_to_wait(
        permit in option::of(permit()),
        (state, why) in (state(), why()),
        retry_after in retry_after(),
        generation in any::<u64>(),
    ) {
        let admission = Admission { permit, state, retry_after, generation };
        let text = permit.map(|permit| permit.text().as_bytes().to_vec());
        is_written!(
            Reply::Admitted(admission.into()),
            permit.is_some() as i64,
            state.text(),
            text.as_deref(),
            wait(retry_after),
            generation as i64,
        );
        let reported = Reported { why, state, generation, retry_after };
        is_written!(
            Reply::Counted(reported.into()),
            (why.text() == "counted") as i64,
            state.text(),
            generation as i64,
            wait(retry_after),
            why.text(),
        );
    }

    #[test]
    fn holdings_round_leases_down_and_waits_up(
        (grant, busy) in (grant(), busy()),
        held in any_span(),
        reason in reason(),
        losses in vec((bytes(), fence(), reason()), 0..5),
        bound in 0..1_000usize,
    ) {
        let (fence, lease, waited) = (grant.fence as i64, down(grant.lease), down(grant.waited));
        is_written!(Reply::Acquired(grant.into()), "GRANTED", fence, lease, waited);
        is_written!(Reply::Entered(grant.into()), "GRANTED", grant.active as i64, grant.queued as i64, lease, waited);
        is_written!(Reply::Renewed(core_lock::Renewed::Granted(grant).into()), "GRANTED", fence, lease, 0);
        is_written!(Reply::Renewed(core_lock::Renewed::Lost(reason).into()), "LOST", reason.text());
        is_written!(Reply::Released(core_lock::Released::Released { held }.into()), "RELEASED", down(held));
        is_written!(Reply::Released(core_lock::Released::Lost(reason).into()), "LOST", reason.text());

        let (active, queued, retry_after) = (busy.active as i64, busy.queued as i64, up(busy.retry_after));
        is_written!(Reply::Entered(Entered::full(&busy)), "FULL", active, queued, retry_after);
        is_written!(Reply::Entered(Entered::timeout(&busy)), "TIMEOUT", active, queued, retry_after);
        let holder = Some(&*busy.holder).filter(|holder| !holder.is_empty());
        let taken = Reply::Acquired(Acquired::Taken(busy.clone().into()));
        is_written!(taken, "TAKEN", holder, up(busy.remaining), queued);
        let timeout = Reply::Acquired(Acquired::Timeout(busy.clone().into()));
        is_written!(timeout, "TIMEOUT", holder, up(busy.remaining), queued);

        let rows = losses.iter().map(|(key, fence, reason)| array![Some(&key[..]), *fence as i64, reason.text()].value());
        let rows: Vec<Value> = rows.collect();
        let losses: Vec<Loss> =
            losses.into_iter().map(|(key, fence, reason)| Loss { key: key.into(), fence, reason }).collect();
        is_written!(Reply::Heartbeat((bound, losses).into()), bound as i64, rows);
    }

    #[test]
    fn work_and_flights_round_ages_down_and_waits_up(
        (fence, attempt, lease, waited) in (fence(), any::<u32>(), any_span(), any_span()),
        stale in option::of(shared()),
        (settled, seen) in (settled(), seen()),
        reason in reason(),
        followers in 0..1_000_000usize,
        stored in any::<bool>(),
    ) {
        let run = Run { fence, attempt, lease, waited };
        is_written!(Reply::Begun(run.into()), "RUN", fence as i64, attempt as i64, down(waited));
        let expected = match &settled {
            Settled::Replay(Replay { failed, result, age, .. }) => {
                array!["REPLAY", if *failed { "error" } else { "ok" }, result.as_deref(), down(*age)]
            }
            Settled::Busy { remaining, attempt } => array!["BUSY", up(*remaining), *attempt as i64],
            Settled::Mismatch => array!["MISMATCH"],
            Settled::Held { attempt } => array!["HELD", *attempt as i64],
            Settled::Miss => array!["MISS"],
        };
        prop_assert_eq!(written(&Reply::Begun(settled.into())), Value::Array(expected));
        let word = if stored { "stored" } else { "dropped" };
        is_written!(Reply::Committed(idempotency::Committed::Committed { stored }.into()), "COMMITTED", word);
        is_written!(Reply::Committed(idempotency::Committed::Lost(reason).into()), "LOST", reason.text());
        is_written!(Reply::Aborted(None), "ABORTED");
        is_written!(Reply::Aborted(Some(reason)), "LOST", reason.text());

        let bytes: Arc<[u8]> = Arc::from(&b"known"[..]);
        let early = Lead { fence, stale: Some(bytes), fresh: Some(lease), lease, waited };
        is_written!(Reply::Joined(early.into()), "EARLY", fence as i64, Some(&b"known"[..]), down(lease));
        let lead = Lead { fence, stale: stale.clone(), fresh: None, lease, waited };
        is_written!(Reply::Joined(lead.into()), "LEAD", fence as i64, stale.as_deref(), down(waited));
        let expected = match &seen {
            Seen::Value { bytes, age, fresh } => array!["VALUE", Some(&**bytes), down(*age), down(*fresh)],
            Seen::Stale { bytes, age } => array!["STALE", Some(&**bytes), down(*age)],
            Seen::Empty { age } => array!["EMPTY", down(*age)],
            Seen::Error { text } => array!["ERROR", Some(&**text)],
            Seen::Busy { remaining } => array!["BUSY", up(*remaining)],
            Seen::Miss => array!["MISS"],
        };
        prop_assert_eq!(written(&Reply::Joined(seen.into())), Value::Array(expected));
        let published = single_flight::Published::Published { followers };
        is_written!(Reply::Published(published.into()), "PUBLISHED", followers as i64);
        is_written!(Reply::Published(single_flight::Published::Lost(reason).into()), "LOST", reason.text());
        is_written!(Reply::from(Abandoned::Abandoned), "ABANDONED");
        is_written!(Reply::from(Abandoned::Lost(reason)), "LOST", reason.text());
    }
}
