//! Several keys, one cost: all of them pay, or none.

use smallvec::SmallVec;

use super::gcra::{Ask, Reading, TierSet, TooManyTiers, Wait, step};
use super::quota::Quota;
use crate::step::Step;
use crate::time::Instant;

/// The reply for all keys together, each key's reading in the order it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManyVerdict {
    pub granted: u32,
    /// The first key that refused.
    pub refused_by: Option<usize>,
    pub readings: SmallVec<[Reading; 4]>,
}

/// One entry per key: what it becomes, or `None` if it stays as it is.
pub type ManyChange = SmallVec<[Option<TierSet>; 4]>;

/// Takes `cost` cells from every key or from none. Each key is its stored tiers and the quota it is asked under.
pub fn step_many(
    keys: &[(TierSet, Quota)],
    cost: u32,
    now: Instant,
) -> Result<Step<ManyVerdict, ManyChange>, TooManyTiers> {
    let mut refused_by = None;
    let mut readings = SmallVec::with_capacity(keys.len());
    let mut changes = ManyChange::with_capacity(keys.len());
    for (index, (tiers, quota)) in keys.iter().enumerate() {
        let taken = step(tiers, core::slice::from_ref(quota), Ask::Take(cost), now)?;
        if taken.verdict.granted == 0 && refused_by.is_none() {
            refused_by = Some(index);
        }
        readings.push(taken.verdict.tiers[0]);
        changes.push(taken.change);
    }
    if refused_by.is_none() {
        return Ok(Step::changed(ManyVerdict { granted: cost, refused_by, readings }, changes));
    }
    for (index, (tiers, quota)) in keys.iter().enumerate() {
        // What a refusing key wants stored is a mended clock, and it stands; what a granting key wanted does not.
        if readings[index].retry_after == Wait::NONE {
            let peeked = step(tiers, core::slice::from_ref(quota), Ask::Peek, now)?;
            readings[index] = Reading { retry_after: Wait::NONE, ..peeked.verdict.tiers[0] };
            changes[index] = None;
        }
    }
    let verdict = ManyVerdict { granted: 0, refused_by, readings };
    if changes.iter().any(Option::is_some) {
        return Ok(Step::changed(verdict, changes));
    }
    Ok(Step::unchanged(verdict))
}
