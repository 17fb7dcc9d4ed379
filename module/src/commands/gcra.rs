//! `RES.GCRA` and `RES.GCRA.PEEK`.

use std::ffi::CStr;

use resil_core::rate_limit::{Ask, TierSet, Verdict, step};
use resil_wire::Refused;
use resil_wire::gcra::{Gcra, LimitReply};

use crate::apply::{publish_tiers, require_memory_for_new, store_tiers};
use crate::call::{Call, Failure};
use crate::clock;
use crate::datatype::Value;
use crate::datatype::tiers::Tiers;
use crate::denials::{self, Refuser};
use crate::info::{Limiter, counters};
use crate::key::Key;

pub fn gcra(call: &Call<'_>, request: Gcra<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut key = Key::open_to_write(call, call.string(0)?);
    let value = key.value::<Tiers>()?;
    let old = read_tiers(value);
    let step = step(&old, &request.quotas, request.ask, now).map_err(Refused::new)?;
    if let Some(tiers) = step.change {
        require_memory_for_new(call, value)?;
        store_tiers(&mut key, value, &old, &tiers);
        publish_tiers(call, &key, &tiers, event_of(request.ask));
    }
    if count(&counters().gcra, request.ask, &step.verdict) {
        denials::note(|| call.db(), Refuser::Limit, key.name());
    }
    LimitReply::from(&step.verdict).write(&mut call.reply());
    Ok(())
}

pub fn gcra_peek(call: &Call<'_>, request: Gcra<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let key = Key::open_to_read(call, call.string(0)?);
    let tiers = read_tiers(key.value::<Tiers>()?);
    let step = step(&tiers, &request.quotas, Ask::Peek, now).map_err(Refused::new)?;
    count(&counters().gcra, Ask::Peek, &step.verdict);
    LimitReply::from(&step.verdict).write(&mut call.reply());
    Ok(())
}

/// The stored tiers; none if there is no key.
pub fn read_tiers(value: Option<Value<Tiers>>) -> TierSet {
    value.map_or_else(TierSet::new, |value| value.read())
}

/// The keyspace notification for a change that came from `ask`.
pub fn event_of(ask: Ask) -> &'static CStr {
    match ask {
        Ask::Refund(_) => c"res.gcra.refund",
        _ => c"res.gcra.take",
    }
}

/// Counts what was asked; true if it was denied.
pub fn count(limiter: &Limiter, ask: Ask, verdict: &Verdict) -> bool {
    let mut is_denied = false;
    let outcome = match ask {
        Ask::Peek => &limiter.peeked,
        Ask::Refund(_) => &limiter.refunded,
        _ if verdict.granted == 0 => {
            is_denied = true;
            &limiter.denied
        }
        _ => {
            limiter.cells.add(verdict.granted as u64);
            &limiter.granted
        }
    };
    outcome.add(1);
    is_denied
}
