//! The stages of a policy in an SDK, and which orders of them make sense.
//!
//! Some of it is fixed: the total deadline is outermost, retry is outside of hedge, the timeout of an attempt is innermost.
//! Otherwise the words would not mean what they say. Shedding by priority, throttling and chaos are not in it: the first two come
//! before everything else of an attempt, the last one comes after.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

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

    /// The texts of the default order.
    pub const TEXTS: &[&str] =
        &["total", "shed", "retry", "hedge", "breaker", "rate-limit", "bulkhead", "shared-bulkhead", "attempt"];

    /// As it is called in settings.
    pub const fn text(self) -> &'static str {
        Self::TEXTS[self as usize]
    }
}

/// The stages that are there, in the order that was asked for. Refuses an order that names one twice or leaves one out.
pub fn arrange(asked: Option<&[Stage]>, is_there: impl Fn(Stage) -> bool) -> Result<Vec<Stage>, String> {
    let order = asked.unwrap_or(&Stage::DEFAULT_ORDER);
    for (index, stage) in order.iter().enumerate() {
        if order[..index].contains(stage) {
            return Err(format!("names {} twice", stage.text()));
        }
    }
    if let Some(missing) = Stage::DEFAULT_ORDER.iter().find(|stage| is_there(**stage) && !order.contains(stage)) {
        return Err(format!("must name {}, which the policy has", missing.text()));
    }
    let order: Vec<Stage> = order.iter().copied().filter(|stage| is_there(*stage)).collect();
    let at = |stage| order.iter().position(|other| *other == stage);
    if at(Stage::Total).is_some_and(|index| index > 0) {
        return Err("must begin with total: the deadline is that of everything".into());
    }
    if at(Stage::Attempt).is_some_and(|index| index + 1 < order.len()) {
        return Err("must end with attempt: that timeout is of one attempt, when it has all it needs".into());
    }
    if at(Stage::Hedge).zip(at(Stage::Retry)).is_some_and(|(hedge, retry)| hedge < retry) {
        return Err("must have hedge inside of retry: each extra call would bring all retries along".into());
    }
    Ok(order)
}
