//! `RES._APPLY`: a resolved change, from the primary or from a file. Nothing is decided here and no clock is read.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use resil_core::codec::Change;
use resil_core::{Sent, SentOf};
use resil_wire::Refused;
use resil_wire::apply::{Applied, parse};
use resil_wire::command::Page;
use resil_wire::pages;

use super::gcra::read_tiers;
use crate::apply::{edit_plain, edit_state, store_plain, store_state, store_tiers};
use crate::call::{Call, Command, Failure};
use crate::datatype::boxed::{Boxed, PlainType};
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

macro_rules! applied {
    (
        ($key:expr, $change:expr)
        plain { $($plain:ident: $plain_machine:ty,)* }
        waited { $($waited:ident: $waited_machine:ty,)* }
    ) => {
        match $change {
            Change::Tiers(tiers) => {
                let value = $key.value::<Tiers>().ok().flatten();
                store_tiers($key, value, &read_tiers(value), &tiers);
                Ok(())
            }
            $(Change::$plain(sent) => apply_plain::<$plain_machine>($key, sent),)*
            $(Change::$waited(sent) => apply_waited::<$waited_machine>($key, sent),)*
        }
    };
}

/// A whole state replaces whatever is there; what only changes a state needs that state, or nothing, to be there. Or why
/// the change cannot be made.
fn apply(key: &mut Key<'_>, change: Change) -> Result<(), &'static str> {
    resil_core::machines!(applied, key, change)
}

fn apply_plain<M: PlainType>(key: &mut Key<'_>, sent: SentOf<M>) -> Result<(), &'static str> {
    match (key.value::<Boxed<M>>(), sent) {
        (value, Sent::Whole(state)) => store_plain::<M>(key, value.ok().flatten(), *state),
        (Ok(value), Sent::Edits(edits)) => edit_plain::<M>(key, value, edits),
        (Err(_), Sent::Edits(_)) => return Err(SOMETHING_ELSE),
    }
    Ok(())
}

fn apply_waited<M: ServerMachine>(key: &mut Key<'_>, sent: SentOf<M>) -> Result<(), &'static str> {
    match (Live::<M>::of(key), sent) {
        (value, Sent::Whole(state)) => {
            fences::heard_of(M::last_fence(&state));
            store_state::<M>(key, value.ok().flatten(), *state);
        }
        (Ok(value), Sent::Edits(edits)) => fences::heard_of(edit_state::<M>(key, value, edits)),
        (Err(_), Sent::Edits(_)) => return Err(SOMETHING_ELSE),
    }
    Ok(())
}
