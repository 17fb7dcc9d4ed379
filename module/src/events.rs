//! The server's events, each handed to those it concerns.

use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use crate::datatype::breaker::Circuit;
use crate::datatype::tiers::Tiers;
use crate::datatype::window::Log;
use crate::edge::{OK, api, guard};
use crate::key::Key;
use crate::{config, key, listeners, vendor};

/// Subscribes to all that concerns us, after looking at how things stand.
pub fn watch(ctx: *mut raw::RedisModuleCtx) {
    listeners::look(ctx);
    config::check_eviction(ctx);
    let events = [
        raw::REDISMODULE_EVENT_CONFIG,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        raw::REDISMODULE_EVENT_LOADING,
    ];
    for id in events {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: called while loading; the callback has the signature asked for.
        if unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, Some(on_event)) } != OK {
            listeners::assume_somebody();
        }
    }
    if vendor::key_events_are_harmless(ctx) {
        let generic = raw::REDISMODULE_NOTIFY_GENERIC;
        // SAFETY: as above.
        let subscribed = unsafe { api!(RedisModule_SubscribeToKeyspaceEvents)(ctx, generic, Some(on_key_event)) };
        key::trust_expiries(subscribed == OK);
    }
}

/// Somebody re-timed or renamed a key: if it is ours, its next change looks the expiry up.
extern "C" fn on_key_event(
    ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    event: *const c_char,
    name: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes a C string.
    let event = unsafe { CStr::from_ptr(event) };
    if event == c"expire" || event == c"persist" || event == c"rename_to" || event == c"move_to" {
        guard((), || {
            let mut key = Key::notified(ctx, name);
            let _ours = key.doubt::<Tiers>() || key.doubt::<Log>() || key.doubt::<Circuit>();
        });
    }
    OK
}

extern "C" fn on_event(ctx: *mut raw::RedisModuleCtx, event: raw::RedisModuleEvent, _sub: u64, data: *mut c_void) {
    guard((), || {
        listeners::look(ctx);
        if event.id == raw::REDISMODULE_EVENT_CONFIG {
            // SAFETY: the data of this very event.
            unsafe { config::on_change(ctx, data) };
        }
    });
}
