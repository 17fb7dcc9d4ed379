//! The stages of a whole policy, their order, and what is odd about an order.
//!
//! Each stage stands where it does for a reason; the table of [`ODD`] holds the reasons, as what goes wrong otherwise. An
//! odd order is allowed: it may be what is wanted, so it is a warning and no error.
//!
//! Two kinds of stages: those that hold something while what is inside runs (a place, a permit), and those that run it in a
//! way of their own (a deadline, again, twice). Of the second kind there are four, so an order is five lists of the first
//! kind with those four between them: [`Plan`].

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::error::Error;

/// A stage of a policy. See [`Stage::DEFAULT_ORDER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
            Self::RateLimit => "rateLimit",
            Self::Bulkhead => "bulkhead",
            Self::SharedBulkhead => "sharedBulkhead",
            Self::Attempt => "attempt",
        }
    }

    /// Whether it runs what is inside in a way of its own, instead of holding something meanwhile.
    fn is_wrap(self) -> bool {
        matches!(self, Self::Total | Self::Retry | Self::Hedge | Self::Attempt)
    }
}

/// `(outer, inner, what comes of it)`.
const ODD: [(Stage, Stage, &str); 18] = [
    (Stage::Breaker, Stage::Retry, "the breaker sees one outcome for all attempts, so it trips late"),
    (Stage::RateLimit, Stage::Retry, "retries do not count against the limit"),
    (Stage::Bulkhead, Stage::Retry, "a place is held while a retry waits"),
    (Stage::SharedBulkhead, Stage::Retry, "a place of the fleet is held while a retry waits"),
    (Stage::Hedge, Stage::Retry, "each extra call brings all retries with it"),
    (Stage::Attempt, Stage::Retry, "the timeout of an attempt cuts off all attempts together"),
    (Stage::Retry, Stage::Total, "the deadline begins anew with each attempt"),
    (Stage::Retry, Stage::Shed, "a call that is shed comes back, and sheds nothing"),
    (Stage::Breaker, Stage::Hedge, "the breaker sees one outcome for all extra calls"),
    (Stage::RateLimit, Stage::Hedge, "extra calls do not count against the limit"),
    (Stage::Bulkhead, Stage::Hedge, "extra calls run without a place of their own"),
    (Stage::Attempt, Stage::Hedge, "extra calls share the time of the first"),
    (Stage::RateLimit, Stage::Breaker, "calls that an open circuit refuses use up the limit"),
    (Stage::Bulkhead, Stage::Breaker, "calls that an open circuit refuses take places"),
    (Stage::SharedBulkhead, Stage::Breaker, "calls that an open circuit refuses take places of the fleet"),
    (
        Stage::Attempt,
        Stage::Breaker,
        "an attempt that is cut off is cancelled to the breaker, so a dependency that hangs never trips it",
    ),
    (Stage::Attempt, Stage::Bulkhead, "the time in line counts as the time of the call"),
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
    Ok(order.iter().copied().filter(|stage| is_there(*stage)).collect())
}

/// A list of stages that hold something.
pub(super) type Guards = SmallVec<[Stage; 6]>;

/// An order to be followed: `guards[0] wraps[0] guards[1] ... wraps[3] guards[4]`, from the outside in.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub guards: [Guards; 5],
    pub wraps: [Option<Stage>; 4],
}

impl Plan {
    pub fn of(order: &[Stage]) -> Self {
        let mut plan = Self::default();
        let mut depth = 0;
        for &stage in order {
            if stage.is_wrap() && depth < plan.wraps.len() {
                plan.wraps[depth] = Some(stage);
                depth += 1;
            } else {
                plan.guards[depth].push(stage);
            }
        }
        plan
    }
}

/// Whether these stages are in the default order.
pub(super) fn is_default(order: &[Stage]) -> bool {
    let place = |stage: &Stage| Stage::DEFAULT_ORDER.iter().position(|other| other == stage);
    order.is_sorted_by_key(place)
}
