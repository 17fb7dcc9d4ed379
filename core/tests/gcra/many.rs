//! Several keys and one cost, beside one independent bucket per key.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::rate_limit::{Ask, Quota, TierSet, step, step_many};
use resil_core::{Instant, Step};

use crate::bucket::{Buckets, Reply, Request};
use crate::schedule::{Event, START_US, anything, quota, unsteady};
use crate::seed;
use crate::token_bucket::{rate, request, row};

/// One key as core stores it, and as the model does.
struct Pair {
    quota: Quota,
    tiers: TierSet,
    model: Buckets,
}

impl Pair {
    /// A call on this key alone, so that the keys are not always in step.
    fn call(&mut self, ask: Ask, now_us: i64) {
        let decided = step(&self.tiers, &[self.quota], ask, Instant::from_us(now_us)).expect("one tier");
        self.tiers = decided.change.unwrap_or_else(|| self.tiers.clone());
        self.model.call(&[rate(&self.quota)], request(ask), now_us);
    }
}

/// What must happen: every bucket pays, or only what a clock that was set back mended is written down.
fn expected(pairs: &mut [Pair], cost: u32, now_us: i64) -> Vec<Reply> {
    let take = Request::Take(cost as i64);
    let tried: Vec<(Buckets, Reply)> = pairs
        .iter()
        .map(|pair| {
            let mut model = pair.model.clone();
            let reply = model.call(&[rate(&pair.quota)], take, now_us);
            (model, reply)
        })
        .collect();
    let all_pay = tried.iter().all(|(_, reply)| reply.granted > 0);
    let settle = |(pair, (model, reply)): (&mut Pair, (Buckets, Reply))| {
        if all_pay || reply.granted == 0 {
            pair.model = model;
            return reply;
        }
        Reply { granted: 0, ..pair.model.call(&[rate(&pair.quota)], Request::Peek, now_us) }
    };
    pairs.iter_mut().zip(tried).map(settle).collect()
}

fn play(quotas: &[Quota], events: &[Event]) -> Result<(), TestCaseError> {
    let new = |quota: &Quota| Pair { quota: *quota, tiers: TierSet::new(), model: Buckets::default() };
    let mut pairs: Vec<Pair> = quotas.iter().map(new).collect();
    let mut now_us = START_US;
    for event in events {
        let index = event.config.index(pairs.len());
        let quota = pairs[index].quota;
        now_us += event.gap.us(&quota, resil_core::rate_limit::Wait::NONE).0;
        let Ask::Take(cost) = event.want.ask(&quota) else {
            pairs[index].call(event.want.ask(&quota), now_us);
            continue;
        };
        let keys: Vec<(TierSet, Quota)> = pairs.iter().map(|pair| (pair.tiers.clone(), pair.quota)).collect();
        let Step { verdict, change, .. } = step_many(&keys, cost, Instant::from_us(now_us)).expect("one tier each");
        let expected = expected(&mut pairs, cost, now_us);

        let refused_by = expected.iter().position(|reply| reply.granted == 0 && reply.rows[0].wait_us != Some(0));
        prop_assert_eq!(verdict.refused_by, refused_by);
        prop_assert_eq!(verdict.granted, if refused_by.is_none() { cost } else { 0 });
        let rows: Vec<_> = verdict.readings.iter().map(row).collect();
        prop_assert_eq!(rows, expected.iter().map(|reply| reply.rows[0]).collect::<Vec<_>>());
        prop_assert_eq!(change.is_some(), expected.iter().any(|reply| reply.stored));
        for ((pair, reply), tiers) in pairs.iter_mut().zip(&expected).zip(change.into_iter().flatten()) {
            prop_assert_eq!(tiers.is_some(), reply.stored);
            pair.tiers = tiers.unwrap_or_else(|| pair.tiers.clone());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn all_keys_pay_or_none_and_refusals_are_named(
        quotas in vec(quota(), 1..=5),
        events in unsteady(anything()),
    ) {
        play(&quotas, &events)?;
    }
}
