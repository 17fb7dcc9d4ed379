//! `CL.THROTTLE`: redis-cell's command on our machine, taking over the strings redis-cell left.

use resil_core::rate_limit::{Tier, TierSet, step};
use resil_wire::Refused;
use resil_wire::throttle::{ClThrottle, parse_tat_ns, write_numbers};

use super::gcra::{count, event_of, read_tiers};
use crate::apply::{publish_tiers, require_memory_for_new, store_tiers};
use crate::call::{Call, Failure};
use crate::clock;
use crate::datatype::tiers::Tiers;
use crate::denials::{self, Refuser};
use crate::info::counters;
use crate::key::Key;

pub fn throttle(call: &Call<'_>, ClThrottle { throttle, .. }: ClThrottle<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut key = Key::open_to_write(call, call.string(0)?);
    let adopted = key.text().map(|text| parse_tat_ns(text).ok_or(Failure::WrongType)).transpose()?;
    let value = if adopted.is_some() { None } else { key.value::<Tiers>()? };
    let old: TierSet = match adopted {
        Some(tat_ns) => core::iter::once(Tier::adopted(throttle.quota, tat_ns)).collect(),
        None => read_tiers(value),
    };
    let step = step(&old, &[throttle.quota], throttle.ask, now).map_err(Refused::new)?;
    if let Some(tiers) = step.change {
        if adopted.is_none() {
            require_memory_for_new(call, value)?;
        }
        counters().throttle_adopted.add(adopted.is_some() as u64);
        store_tiers(&mut key, value, &old, &tiers);
        publish_tiers(call, &key, &tiers, event_of(throttle.ask));
    }
    if count(&counters().throttle, throttle.ask, &step.verdict) {
        denials::note(|| call.db(), Refuser::Limit, key.name());
    }
    write_numbers(throttle.reply(&step.verdict), &mut call.reply());
    Ok(())
}
