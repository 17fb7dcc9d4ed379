//! The stages of a whole policy, their order, and what is odd about an order.
//!
//! Some of it is fixed: the total deadline is outermost, retry is outside of hedge, the timeout of an attempt is innermost.
//! Otherwise the words would not mean what they say. The stages that hold something while what is inside runs (shed, breaker, rate
//! limit, bulkheads) may stand anywhere between. Each stands where it does by default for a reason; the table of [`ODD`]
//! holds the reasons, as what goes wrong otherwise. An odd order is allowed: it may be what is wanted, so it is a warning.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::error::Error;

/// A stage of a policy. See [`Stage::DEFAULT_ORDER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The deadline of everything.
    Total,
    /// How many calls may be in the policy at once; the rest is refused at once.
    Shed,
    Retry,
    Hedge,
    Breaker,
    RateLimit,
    /// The one of this process.
    Bulkhead,
    SharedBulkhead,
    /// The timeout of one attempt.
    Attempt,
}

impl Stage {
    /// Outermost first. A fallback is outside of all, an idempotent run between shed and retry.
    pub const DEFAULT_ORDER: [Self; 9] = [
        Self::Total,
        Self::Shed,
        Self::Retry,
        Self::Hedge,
        Self::Breaker,
        Self::RateLimit,
        Self::Bulkhead,
        Self::SharedBulkhead,
        Self::Attempt,
    ];

    /// As it is called in settings.
    pub fn text(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Shed => "shed",
            Self::Retry => "retry",
            Self::Hedge => "hedge",
            Self::Breaker => "breaker",
            Self::RateLimit => "rate-limit",
            Self::Bulkhead => "bulkhead",
            Self::SharedBulkhead => "shared-bulkhead",
            Self::Attempt => "attempt",
        }
    }
}

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
    (Stage::SharedBulkhead, Stage::Bulkhead, "a place of the fleet is held while the call waits in line here"),
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
        odd.push("hedge has no timeout: an answer that never comes is waited for by all its calls".to_owned());
    }
    odd
}

/// The stages that are there, in the order that was asked for. Refuses an order that names one twice or leaves one out.
pub(super) fn arrange(asked: Option<&[Stage]>, is_there: impl Fn(Stage) -> bool) -> Result<Vec<Stage>, Error> {
    let order = asked.unwrap_or(&Stage::DEFAULT_ORDER);
    for (index, stage) in order.iter().enumerate() {
        if order[..index].contains(stage) {
            return Err(Error::invalid("order", format!("names {} twice", stage.text())));
        }
    }
    if let Some(missing) = Stage::DEFAULT_ORDER.iter().find(|stage| is_there(**stage) && !order.contains(stage)) {
        return Err(Error::invalid("order", format!("must name {}, which the policy has", missing.text())));
    }
    let order: Vec<Stage> = order.iter().copied().filter(|stage| is_there(*stage)).collect();
    let at = |stage| order.iter().position(|other| *other == stage);
    if at(Stage::Total).is_some_and(|index| index > 0) {
        return Err(Error::invalid("order", "must begin with total: the deadline is that of everything"));
    }
    if at(Stage::Attempt).is_some_and(|index| index + 1 < order.len()) {
        return Err(Error::invalid(
            "order",
            "must end with attempt: that timeout is of one attempt, when it has all it needs",
        ));
    }
    if at(Stage::Hedge).zip(at(Stage::Retry)).is_some_and(|(hedge, retry)| hedge < retry) {
        return Err(Error::invalid(
            "order",
            "must have hedge inside of retry: each extra call would bring all retries along",
        ));
    }
    Ok(order)
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
