//! The stages of a whole policy, their order, and what is odd about an order.
//!
//! Which orders are allowed is decided in [`resil_core::policy::order`]. The stages that hold something while what is inside runs (shed, breaker, rate
//! limit, bulkheads) may stand anywhere between. Each stands where it does by default for a reason; the table of [`ODD`]
//! holds the reasons, as what goes wrong otherwise. An odd order is allowed: it may be what is wanted, so it is a warning.

pub use resil_core::policy::Stage;
use resil_core::policy::order;
use smallvec::SmallVec;

use crate::error::Error;

/// `(outer, inner, what comes of it)`.
const ODD: [(Stage, Stage, &str); 12] = [
    (Stage::Breaker, Stage::Retry, "the breaker sees one outcome for all attempts, so it trips late"),
    (Stage::RateLimit, Stage::Retry, "retries do not count against the limit"),
    (Stage::Bulkhead, Stage::Retry, "a place is held while a retry waits"),
    (Stage::SharedBulkhead, Stage::Retry, "a place of the fleet is held while a retry waits"),
    (Stage::Retry, Stage::Shed, "a call that is shed comes back, and sheds nothing"),
    (Stage::Breaker, Stage::Hedge, "the breaker sees one outcome for all extra calls"),
    (Stage::RateLimit, Stage::Hedge, "extra calls do not count against the limit"),
    (Stage::Bulkhead, Stage::Hedge, "extra calls run without a place of their own"),
    (Stage::RateLimit, Stage::Breaker, "calls that an open circuit refuses use up the limit"),
    (Stage::Bulkhead, Stage::Breaker, "calls that an open circuit refuses take places"),
    (Stage::SharedBulkhead, Stage::Breaker, "calls that an open circuit refuses take places of the fleet"),
    (Stage::SharedBulkhead, Stage::Bulkhead, "a place of the fleet is held while the call waits in the queue here"),
];

/// What is odd about `order`, which names only stages that are there.
pub(super) fn warnings(order: &[Stage]) -> Vec<String> {
    let at = |stage| order.iter().position(|other| *other == stage);
    let is_odd = |&&(outer, inner, _): &&(Stage, Stage, &str)| {
        at(outer).zip(at(inner)).is_some_and(|(outer, inner)| outer < inner)
    };
    let mut odd: Vec<String> = ODD
        .iter()
        .filter(is_odd)
        .map(|(outer, inner, why)| format!("{} is outside of {}: {why}", outer.text(), inner.text()))
        .collect();
    if at(Stage::Retry).is_some() && at(Stage::Total).is_none() {
        odd.push("retry has no total deadline outside of it: callers may wait for all attempts and delays".to_owned());
    }
    if at(Stage::Hedge).is_some()
        && at(Stage::Retry).is_none()
        && at(Stage::Attempt).is_none()
        && at(Stage::Total).is_none()
    {
        odd.push("hedge has no timeout: a result that never comes is waited for by all its calls".to_owned());
    }
    odd
}

/// The stages that are there, in the order that was asked for.
pub(super) fn arrange(asked: Option<&[Stage]>, is_there: impl Fn(Stage) -> bool) -> Result<Vec<Stage>, Error> {
    order::arrange(asked, is_there).map_err(|reason| Error::invalid("order", reason))
}

/// A list of stages that hold something.
pub(super) type Guards = SmallVec<[Stage; 6]>;

/// Where those stages stand.
#[derive(Debug, Default)]
pub(super) struct StagePlan {
    /// Shed is the first of them all, as usual: it needs no waiting.
    pub sheds_first: bool,
    pub outside_of_retry: Guards,
    pub outside_of_hedge: Guards,
    pub innermost: Guards,
}

impl StagePlan {
    pub fn of(order: &[Stage]) -> Self {
        let mut plan = Self::default();
        let has = |rest: &[Stage], stage: Stage| rest.contains(&stage);
        for (index, &stage) in order.iter().enumerate() {
            let rest = &order[index..];
            let is_first = order[..index].iter().all(|before| *before == Stage::Total);
            match stage {
                Stage::Total | Stage::Retry | Stage::Hedge | Stage::Attempt => {}
                Stage::Shed if is_first => plan.sheds_first = true,
                _ if has(rest, Stage::Retry) => plan.outside_of_retry.push(stage),
                _ if has(rest, Stage::Hedge) => plan.outside_of_hedge.push(stage),
                _ => plan.innermost.push(stage),
            }
        }
        plan
    }
}
