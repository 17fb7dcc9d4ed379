//! `RES._APPLY`: a resolved change, from the primary or from a file. Nothing is decided here and no clock is read.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use resil_core::codec::Change;
use resil_core::idempotency::{Idempotency, Record};
use resil_core::lock::{Bulkheads, Kind, Locks};
use resil_core::single_flight::Flights;
use resil_wire::Refused;
use resil_wire::apply::{Applied, parse};
use resil_wire::command::Page;
use resil_wire::pages;
use smallvec::SmallVec;

use super::gcra::read_tiers;
use crate::apply::{change_log, edit_breaker, edit_state, store_state, store_tiers, store_whole};
use crate::call::{Call, Command, Failure};
use crate::datatype::boxed::{Circuit, Log};
use crate::datatype::tiers::Tiers;
use crate::datatype::waited::Live;
use crate::edge::log;
use crate::edge::replication::{mark_dirty, signal_modified};
use crate::info::counters;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::{fences, pending, server};

pub struct Apply;

impl Command for Apply {
    const PAGE: &'static Page = &pages::APPLY;

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
                    if let Err(why) = apply(&mut key, change) {
                        counters().apply_refused.add(1);
                        log_first_refusal(call, why);
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
            if call.is_on_primary() && !server::is_loading() {
                // A slot comes as a whole.
                pending::key_arrived();
            }
            counters().applied.add(1);
            signal_modified(call, &key);
        }
        // What came is passed on to this server's own file.
        mark_dirty(call);
        call.reply_ok();
        Ok(())
    }
}

/// A copy that differs can refuse every change that follows: one line tells the operator, the counter has the rest.
fn log_first_refusal(call: &Call<'_>, why: &str) {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    if !LOGGED.swap(true, Relaxed) {
        let db = call.db();
        let message = format!(
            "a replicated change in database {db} was not applied: {why}. Further ones are only counted, in \
             resil_apply_refused"
        );
        log(call.ctx, c"warning", &message);
    }
}

const SOMETHING_ELSE: &str = "its key holds another type here than where the change was made";

/// A whole state replaces whatever is there; what only changes a state needs that state, or nothing, to be there. Or why
/// the change cannot be made.
fn apply(key: &mut Key<'_>, change: Change) -> Result<(), &'static str> {
    match change {
        Change::Tiers(tiers) => {
            let value = key.value::<Tiers>().ok().flatten();
            store_tiers(key, value, &read_tiers(value), &tiers);
        }
        Change::Log(window) => store_whole(key, key.value::<Log>().ok().flatten(), window),
        Change::LogChange(change) => match key.value::<Log>() {
            Ok(value) => change_log(key, value, &change),
            Err(_) => return Err(SOMETHING_ELSE),
        },
        Change::Breaker(breaker) => store_whole(key, key.value::<Circuit>().ok().flatten(), *breaker),
        Change::BreakerEdits(edits) => match key.value::<Circuit>() {
            Ok(value) => edit_breaker(key, value, &edits),
            Err(_) => return Err(SOMETHING_ELSE),
        },
        Change::Holders(Kind::Lock, holders) => replace_state::<Locks>(key, *holders),
        Change::Holders(Kind::Bulkhead, holders) => replace_state::<Bulkheads>(key, *holders),
        Change::HolderEdits(Kind::Lock, edits) => return change_state::<Locks>(key, edits),
        Change::HolderEdits(Kind::Bulkhead, edits) => return change_state::<Bulkheads>(key, edits),
        // No step leaves nothing behind, so nobody sends it.
        Change::Record(record) if *record == Record::Nothing => return Err("it leaves nothing behind"),
        Change::Record(record) => replace_state::<Idempotency>(key, *record),
        Change::Flight(flight) => replace_state::<Flights>(key, *flight),
        Change::FlightEdits(edits) => return change_state::<Flights>(key, edits),
    }
    Ok(())
}

fn replace_state<M: ServerMachine>(key: &mut Key<'_>, state: M::State) {
    fences::heard_of(M::last_fence(&state));
    store_state::<M>(key, Live::of(key).ok().flatten(), state);
}

fn change_state<M: ServerMachine>(key: &mut Key<'_>, edits: SmallVec<[M::Edit; 1]>) -> Result<(), &'static str> {
    let value = Live::of(key).map_err(|_| SOMETHING_ELSE)?;
    fences::heard_of(edit_state::<M>(key, value, edits));
    Ok(())
}
