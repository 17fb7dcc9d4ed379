//! The only writer: stores a change, sets the absolute expiry, replicates the change, signals and notifies.
//!
//! What is replicated is never the request but its resolved outcome, `RES._APPLY key version bytes`, and only when
//! durable state changed. The expiry is not sent: it is a pure function of the state, on every server the same.
//!
//! A key that is new here is sent whole, so that a copy takes it whatever it still has there: a server can drop an expired
//! key without a word to its file and its replicas (`DEBUG RELOAD` does). Every later change is sent as edits.

use std::ffi::CStr;

use resil_core::rate_limit::{TierSet, gc_at};
use resil_core::{Step, codec};
use smallvec::SmallVec;

use crate::call::{Call, Failure};
use crate::datatype::boxed::{Boxed, PlainType};
use crate::datatype::tiers::Tiers;
use crate::datatype::waited::{Live, Waited, weigh};
use crate::datatype::{Bytes, Value};
use crate::edge::replication::{mark_dirty, notify, replicate, replicate_deletion, replicate_many, signal_modified};
use crate::key::Key;
use crate::listeners;
use crate::machines::ServerMachine;

/// Stores `tiers` in `key`, whose present value of that type is `value` and holds `old`. No tiers: the key goes.
pub fn store_tiers(key: &mut Key<'_>, value: Option<Value<Tiers>>, old: &TierSet, tiers: &TierSet) {
    if tiers.is_empty() {
        return key.delete();
    }
    let salt = key.salt();
    let was_due = value.map(|_| Some(gc_at(old, salt)));
    match value {
        Some(value) if value.overwrite(tiers) => {}
        Some(_) => key.replace::<Tiers>(Tiers::new_value(tiers)),
        None => key.set::<Tiers>(Tiers::new_value(tiers)),
    }
    key.collect_at::<Tiers>(was_due, Some(gc_at(tiers, salt)));
}

/// Stores the state of a machine that nobody waits for in `key`, whole.
pub fn store_plain<M: PlainType>(key: &mut Key<'_>, value: Option<Value<Boxed<M>>>, state: M) {
    let due = M::collect_at(&state, key.salt());
    match value {
        Some(_) => key.replace::<Boxed<M>>(Boxed::new_value(state)),
        None => key.set::<Boxed<M>>(Boxed::new_value(state)),
    }
    key.collect_at::<Boxed<M>>(None, due);
}

/// Makes `edits` to the state in `key`, which is created if there is none. Nothing is left: the key goes.
pub fn edit_plain<M: PlainType>(key: &mut Key<'_>, value: Option<Value<Boxed<M>>>, edits: M::Edits) {
    let Some(mut value) = value else {
        let mut state = M::default();
        M::apply_all(&mut state, edits);
        if !M::is_nothing(&state) {
            store_plain(key, None, state);
        }
        return;
    };
    let bytes = value.bytes();
    let (state, salt) = (value.get_mut(), key.salt());
    let was_due = M::collect_at(state, salt);
    M::apply_all(state, edits);
    let is_nothing = M::is_nothing(state);
    let due = M::collect_at(state, salt);
    value.recount(bytes);
    if is_nothing {
        return key.delete();
    }
    key.collect_at::<Boxed<M>>(Some(was_due), due);
}

/// Stores the state of a machine that can be waited for in `key`, whole. Returns the value.
pub fn store_state<M: ServerMachine>(key: &mut Key<'_>, value: Option<Live<M>>, state: M::State) -> Option<Live<M>> {
    let due = M::collect_at(&state, key.salt());
    let new = Live::<M>::new(state)?;
    // Something else may have been there, and an expiry with it.
    let was_empty = key.is_empty();
    match value {
        Some(_) => key.replace::<Waited<M>>(new.as_raw()),
        None => key.set::<Waited<M>>(new.as_raw()),
    }
    if was_empty {
        key.collect_new_at(due);
    } else {
        key.collect_at::<Waited<M>>(None, due);
    }
    Some(new)
}

/// Makes `edits` to the state in `key`, which is created if there is none. Returns its last fence.
pub fn edit_state<M: ServerMachine>(
    key: &mut Key<'_>,
    value: Option<Live<M>>,
    edits: impl IntoIterator<Item = M::Edit>,
) -> u64 {
    let Some(mut value) = value else {
        let mut state = M::State::default();
        edits.into_iter().for_each(|edit| drop(M::apply(&mut state, edit)));
        let fence = M::last_fence(&state);
        store_state::<M>(key, None, state);
        return fence;
    };
    let state = value.state_mut();
    let salt = key.salt();
    let (was_due, weight) = (M::collect_at(state, salt), M::weight(state));
    edits.into_iter().for_each(|edit| drop(M::apply(state, edit)));
    weigh::<M>(weight, state);
    let (due, fence) = (M::collect_at(state, salt), M::last_fence(state));
    key.collect_at::<Waited<M>>(Some(was_due), due);
    value.relist(key);
    fence
}

/// Replicates what a step did to such a state, and notifies watchers and listeners.
pub fn publish_edits_of<M: ServerMachine>(
    call: &Call<'_>,
    key: &Key<'_>,
    state: &M::State,
    edits: &[M::Report],
    is_new: bool,
) {
    let events: SmallVec<[&CStr; 2]> = edits.iter().filter_map(M::event).collect();
    // A timer has no request that the server could count as a change.
    if call.is_timers() || listeners::anybody() {
        replicate_with(
            call,
            key,
            |out| {
                if is_new { M::encode(state, out) } else { M::encode_edits(state, edits, out) }
            },
        );
    } else {
        mark_dirty(call);
    }
    signal_modified(call, key);
    for event in events {
        notify(call, key, event);
    }
}

/// New state needs memory; changing what is there does not.
pub fn require_memory_for_new<T>(call: &Call<'_>, value: Option<Value<T>>) -> Result<(), Failure> {
    if value.is_none() { call.require_memory() } else { Ok(()) }
}

fn replicate_with(call: &Call<'_>, key: &Key<'_>, encode: impl FnOnce(&mut Bytes)) {
    let mut bytes = Bytes::new();
    encode(&mut bytes);
    replicate(call, key, &bytes);
}

/// Replicates what `tiers` became, and notifies watchers and listeners.
pub fn publish_tiers(call: &Call<'_>, key: &Key<'_>, tiers: &TierSet, event: &CStr) {
    if !listeners::anybody() {
        mark_dirty(call);
    } else if tiers.is_empty() {
        replicate_deletion(call, key);
    } else {
        replicate_with(call, key, |out| codec::encode_tiers(tiers, out));
    }
    announce(call, key, event);
}

/// A whole call of a machine that nobody waits for, on the first key: takes the step, stores and replicates what it did, and
/// notifies.
pub fn step_plain<M: PlainType, V>(
    call: &Call<'_>,
    event: &CStr,
    step: impl FnOnce(&M) -> Step<V, M::Edits>,
) -> Result<V, Failure> {
    let mut key = Key::open_to_write(call, call.string(0)?);
    let value = key.value::<Boxed<M>>()?;
    let (Step { verdict, change, .. }, grows) = Boxed::look(&key, |state| {
        let step = step(state);
        let grows = step.change.as_ref().is_some_and(|edits| value.is_none() || M::would_grow(state, edits));
        (step, grows)
    })?;
    if grows {
        call.require_memory()?;
    }
    if let Some(edits) = change {
        edit_plain::<M>(&mut key, value, edits.clone());
        publish_plain::<M>(call, &key, &edits, value.is_none());
        notify(call, &key, event);
    }
    Ok(verdict)
}

/// Replicates what a step did to such a state, or the whole of it if it is new, and breaks WATCH. The caller notifies.
pub fn publish_plain<M: PlainType>(call: &Call<'_>, key: &Key<'_>, edits: &M::Edits, is_new: bool) {
    if listeners::anybody() {
        let whole = if is_new { key.value::<Boxed<M>>().ok().flatten() } else { None };
        replicate_with(call, key, |out| match whole {
            Some(value) => value.encode(out),
            None => M::encode_edits(edits, out),
        });
    } else {
        mark_dirty(call);
    }
    signal_modified(call, key);
}

/// Replicates several keys' tiers as one command, so that a replica never sees half of them.
pub fn publish_many(call: &Call<'_>, changed: &[(&Key<'_>, &TierSet)], event: &CStr) {
    if listeners::anybody() {
        replicate_many(call, changed);
    } else {
        mark_dirty(call);
    }
    for (key, _) in changed {
        announce(call, key, event);
    }
}

/// Breaks WATCH, invalidates client-side caches, and sends the keyspace notification.
fn announce(call: &Call<'_>, key: &Key<'_>, event: &CStr) {
    signal_modified(call, key);
    notify(call, key, event);
}
