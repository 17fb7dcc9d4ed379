//! Whatever core decides is written the same by the server's own writers and by the answer that is made of it.
//!
//! How to repeat a failing run: see `seed`.

#[allow(dead_code)] // not every test needs all of it
mod arbitrary;
#[path = "../../core/tests/seed/mod.rs"]
mod seed;

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
use resil_wire::answer::{Acquired, Answer, Entered};
use resil_wire::breaker::{write_admission, write_reported};
use resil_wire::holding::{write_released, write_renewed};
use resil_wire::reply::{Sink, Value};
use resil_wire::{bulkhead, gcra, idempotency as idemp, lock, mgcra, single_flight as flight};

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

/// What the server's own writer writes, and what the answer writes.
macro_rules! same {
    ($answer:expr, $write:expr) => {{
        let write: &dyn Fn(&mut dyn Sink) = &$write;
        prop_assert_eq!(written(&$answer), Value::written(|sink| write(sink)));
    }};
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn verdicts_of_limits_are_written_the_same(
        granted in 0..=CELLS_MAX,
        readings in vec(reading(), 1..=8),
        refused_by in option::of(0..8usize),
    ) {
        let verdict = Verdict { granted, tiers: readings.iter().copied().collect() };
        same!(Answer::Limit((&verdict).into()), |sink| gcra::write_reply(&verdict, sink));
        let many = ManyVerdict { granted, refused_by, readings: readings.into() };
        same!(Answer::Limits((&many).into()), |sink| mgcra::write_reply(granted, refused_by, &many.readings, sink));
    }

    #[test]
    fn verdicts_of_breakers_are_written_the_same(
        permit in option::of(permit()),
        (state, why) in (state(), why()),
        retry_after in retry_after(),
        generation in any::<u64>(),
    ) {
        let admission = Admission { permit, state, retry_after, generation };
        same!(Answer::Admitted(admission.into()), |sink| write_admission(&admission, sink));
        let reported = Reported { why, state, generation, retry_after };
        same!(Answer::Counted(reported.into()), |sink| write_reported(&reported, sink));
    }

    #[test]
    fn verdicts_of_holdings_are_written_the_same(
        (grant, busy) in (grant(), busy()),
        held in any_span(),
        reason in reason(),
        losses in vec((bytes(), fence(), reason()), 0..5),
        bound in 0..1_000usize,
    ) {
        same!(Answer::Acquired(grant.into()), |sink| lock::write_granted(&grant, sink));
        same!(Answer::Acquired(Acquired::Taken(busy.clone().into())), |sink| lock::write_taken(&busy, sink));
        same!(Answer::Acquired(Acquired::Timeout(busy.clone().into())), |sink| lock::write_timeout(&busy, sink));
        same!(Answer::Entered(grant.into()), |sink| bulkhead::write_granted(&grant, sink));
        same!(Answer::Entered(Entered::full(&busy)), |sink| bulkhead::write_full(&busy, sink));
        same!(Answer::Entered(Entered::timeout(&busy)), |sink| bulkhead::write_timeout(&busy, sink));
        for renewed in [core_lock::Renewed::Granted(grant), core_lock::Renewed::Lost(reason)] {
            same!(Answer::Renewed(renewed.into()), |sink| write_renewed(&renewed, sink));
        }
        for released in [core_lock::Released::Released { held }, core_lock::Released::Lost(reason)] {
            same!(Answer::Released(released.into()), |sink| write_released(&released, sink));
        }
        let losses: Vec<Loss> =
            losses.into_iter().map(|(key, fence, reason)| Loss { key: key.into(), fence, reason }).collect();
        let answer = Answer::Heartbeat((bound, losses.clone()).into());
        same!(answer, |sink| lock::write_heartbeat(bound, &losses, sink));
    }

    #[test]
    fn verdicts_of_work_and_flights_are_written_the_same(
        (fence, attempt, lease, waited) in (fence(), any::<u32>(), any_span(), any_span()),
        stale in option::of(shared()),
        (settled, seen) in (settled(), seen()),
        reason in reason(),
        followers in 0..1_000_000usize,
        stored in any::<bool>(),
    ) {
        let run = Run { fence, attempt, lease, waited };
        same!(Answer::Begun(run.into()), |sink| idemp::write_run(&run, sink));
        same!(Answer::Begun(settled.clone().into()), |sink| idemp::write_settled(&settled, sink));
        for committed in [idempotency::Committed::Committed { stored }, idempotency::Committed::Lost(reason)] {
            same!(Answer::Committed(committed.into()), |sink| idemp::write_committed(&committed, sink));
        }
        for lost in [None, Some(reason)] {
            same!(Answer::Aborted(lost), |sink| idemp::write_aborted(lost, sink));
        }
        let lead = Lead { fence, stale, lease, waited };
        same!(Answer::Joined(lead.clone().into()), |sink| flight::write_lead(&lead, sink));
        same!(Answer::Joined(seen.clone().into()), |sink| flight::write_seen(&seen, sink));
        for published in [
            single_flight::Published::Published { followers },
            single_flight::Published::Lost(reason),
        ] {
            same!(Answer::Published(published.into()), |sink| flight::write_published(&published, sink));
        }
        for abandoned in [Abandoned::Abandoned, Abandoned::Lost(reason)] {
            same!(Answer::from(abandoned), |sink| flight::write_abandoned(&abandoned, sink));
        }
    }
}
