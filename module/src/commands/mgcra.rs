//! `RES.MGCRA`: several keys, all or none.

use resil_core::rate_limit::{Quota, TierSet, step_many};
use resil_wire::Refused;
use resil_wire::mgcra::{LimitsReply, Mgcra};
use smallvec::SmallVec;

use super::gcra::read_tiers;
use crate::apply::{publish_many, require_memory_for_new, store_tiers};
use crate::call::{Call, Failure};
use crate::clock;
use crate::datatype::Value;
use crate::datatype::tiers::Tiers;
use crate::denials::{self, Refuser};
use crate::info::counters;
use crate::key::Key;

/// Where the first key stands, and how far apart the keys are.
const FIRST_KEY: usize = 1;
const KEY_STEP: usize = 4;

pub fn mgcra(call: &Call<'_>, request: Mgcra<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut keys: SmallVec<[(Key<'_>, Option<Value<Tiers>>); 4]> = SmallVec::new();
    let mut states: SmallVec<[(TierSet, Quota); 4]> = SmallVec::new();
    for (index, (_, quota)) in request.limits.iter().enumerate() {
        let key = Key::open_to_write(call, call.string(FIRST_KEY + index * KEY_STEP)?);
        let value = key.value::<Tiers>()?;
        states.push((read_tiers(value), *quota));
        keys.push((key, value));
    }
    let step = step_many(&states, request.cost, now).map_err(Refused::new)?;
    if let Some(changes) = step.change {
        for ((_, value), change) in keys.iter().zip(&changes) {
            if change.is_some() {
                require_memory_for_new(call, *value)?;
            }
        }
        for (((key, value), (old, _)), change) in keys.iter_mut().zip(&states).zip(&changes) {
            if let Some(tiers) = change {
                store_tiers(key, *value, old, tiers);
            }
        }
        let changed = keys.iter().zip(&changes).filter_map(|((key, _), change)| Some((key, change.as_ref()?)));
        publish_many(call, &changed.collect::<SmallVec<[_; 4]>>(), c"res.gcra.take");
    }
    let verdict = &step.verdict;
    let limiter = &counters().mgcra;
    if verdict.granted > 0 { &limiter.granted } else { &limiter.denied }.add(1);
    limiter.cells.add(verdict.granted as u64 * keys.len() as u64);
    if let Some((key, _)) = verdict.refused_by.and_then(|index| keys.get(index)) {
        denials::note(|| call.db(), Refuser::Limit, key.name());
    }
    LimitsReply::from(verdict).write(&mut call.reply());
    Ok(())
}
