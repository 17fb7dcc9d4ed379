//! `RES._APPLY`: a resolved change, from the primary or from a file. Nothing is decided here and no clock is read.

use resil_core::codec::Change;
use resil_core::lock::{Edit, Edits, Holders, Kind};
use resil_wire::Refused;
use resil_wire::apply::{Applied, parse};

use super::gcra::read_tiers;
use crate::apply::{
    change_log, edit_breaker, edit_holders, signal_modified, store_breaker, store_holders, store_log, store_tiers,
};
use crate::call::{Call, Command, Failure};
use crate::datatype::breaker::Circuit;
use crate::datatype::holding::{Bulkheads, Holding, HoldingType, Locks};
use crate::datatype::tiers::Tiers;
use crate::datatype::window::Log;
use crate::edge::{api, log};
use crate::fences;
use crate::info::counters;
use crate::key::Key;

pub struct Apply;

impl Command for Apply {
    const PAGE: &'static str = include_str!("../../../commands/res._apply.json");

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        if !call.is_from_primary_or_file() {
            counters().apply_refused.add(1);
            return Err(
                Refused::new("RES._APPLY is internal: only a primary or a file being loaded can send it").into()
            );
        }
        let args = call.args();
        let changes = parse(&args).inspect_err(|refused| {
            counters().apply_refused.add(1);
            log(call.ctx, c"warning", &format!("a replicated change was not applied: {}", refused.text()));
        })?;
        for (index, (_, applied)) in changes.into_iter().enumerate() {
            let mut key = Key::open_to_write(call, call.string(index * 3)?);
            match applied {
                Applied::Change(change) => {
                    if !apply(&mut key, change) {
                        counters().apply_refused.add(1);
                        continue;
                    }
                }
                Applied::UnknownVersion(version) => {
                    counters().apply_unknown_version.add(1);
                    let message = format!("a change of version {version} was not applied: upgrade replicas first");
                    log(call.ctx, c"warning", &message);
                    continue;
                }
            }
            counters().applied.add(1);
            signal_modified(call, &key);
        }
        // SAFETY: the context is that of this call. What came is passed on to this server's own file.
        unsafe { api!(RedisModule_ReplicateVerbatim)(call.ctx) };
        call.reply_ok();
        Ok(())
    }
}

/// A whole state replaces whatever is there; what only changes a state needs that state, or nothing, to be there: false
/// if something else is.
fn apply(key: &mut Key<'_>, change: Change) -> bool {
    match change {
        Change::Tiers(tiers) => {
            let value = key.value::<Tiers>().ok().flatten();
            store_tiers(key, value, &read_tiers(value), &tiers);
        }
        Change::Log(window) => store_log(key, key.value::<Log>().ok().flatten(), window),
        Change::LogChange(change) => match key.value::<Log>() {
            Ok(value) => change_log(key, value, &change),
            Err(_) => return false,
        },
        Change::Breaker(breaker) => store_breaker(key, key.value::<Circuit>().ok().flatten(), *breaker),
        Change::BreakerEdits(edits) => match key.value::<Circuit>() {
            Ok(value) => edit_breaker(key, value, &edits),
            Err(_) => return false,
        },
        Change::Holders(kind, holders) => {
            fences::heard_of(holders.last_fence());
            match kind {
                Kind::Lock => replace_holders::<Locks>(key, *holders),
                Kind::Bulkhead => replace_holders::<Bulkheads>(key, *holders),
            }
        }
        Change::HolderEdits(kind, edits) => {
            for edit in &edits {
                if let Edit::Granted(holder) = edit {
                    fences::heard_of(holder.fence);
                }
            }
            return match kind {
                Kind::Lock => change_holders::<Locks>(key, edits),
                Kind::Bulkhead => change_holders::<Bulkheads>(key, edits),
            };
        }
    }
    true
}

fn replace_holders<T: HoldingType>(key: &mut Key<'_>, holders: Holders) {
    store_holders::<T>(key, key.value::<Holding<T>>().ok().flatten(), holders);
}

fn change_holders<T: HoldingType>(key: &mut Key<'_>, edits: Edits) -> bool {
    match key.value::<Holding<T>>() {
        Ok(value) => edit_holders::<T>(key, value, edits),
        Err(_) => return false,
    }
    true
}
