//! The server's events, each handed to those it concerns.

use std::ffi::c_void;

use redis_module::raw;

use crate::edge::{api, guard};
use crate::{config, listeners};

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
        unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, Some(on_event)) };
    }
}

extern "C" fn on_event(ctx: *mut raw::RedisModuleCtx, event: raw::RedisModuleEvent, _sub: u64, data: *mut c_void) {
    guard((), || {
        listeners::look(ctx);
        if event.id == raw::REDISMODULE_EVENT_CONFIG as u64 {
            // SAFETY: the data of this very event.
            unsafe { config::on_change(ctx, data) };
        }
    });
}
