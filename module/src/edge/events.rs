//! The server's events, each handed to those it concerns.

use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use crate::datatype;
use crate::datatype::waited::Live;
use crate::edge::{OK, api, bytes_of, guard};
use crate::key::{Key, salt_of};
use crate::machines::{Kind, for_kind};
use crate::pending::{self, Task};
use crate::queues::KeyName;
use crate::{
    background, blocked_clients, config, fences, key, listeners, neighbours, registry, server, sessions, vendor,
};

/// Subscribes to all that concerns us, after looking at how things stand.
pub fn watch(ctx: *mut raw::RedisModuleCtx) {
    listeners::look(ctx);
    config::check_eviction(ctx);
    config::note_maxmemory(ctx);
    let events = [
        raw::REDISMODULE_EVENT_CONFIG,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CLIENT_CHANGE,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_CRON_LOOP,
    ];
    for id in events {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: called while loading; the callback has the signature asked for.
        if unsafe { api!(RedisModule_SubscribeToServerEvent)(ctx, event, Some(on_event)) } != OK {
            listeners::assume_somebody();
        }
    }
    if vendor::key_events_are_harmless(ctx) {
        let kinds = raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EVICTED;
        // SAFETY: as above.
        let subscribed = unsafe { api!(RedisModule_SubscribeToKeyspaceEvents)(ctx, kinds, Some(on_key_event)) };
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
    if event == c"del" {
        // By far the most frequent one: said first, because a command may delete very many.
        return OK;
    }
    if event == c"expire" || event == c"persist" {
        // SAFETY: the name is that of this event.
        if neighbours::may_be_ours(salt_of(unsafe { bytes_of(name) })) {
            guard((), || datatype::doubt(&mut Key::notified(ctx, name)));
        }
    } else if event == c"rename_to" || event == c"move_to" || event == c"copy_to" || event == c"restore" {
        guard((), || {
            let mut key = Key::notified(ctx, name);
            datatype::doubt(&mut key);
            // SAFETY: the context is that of this event.
            datatype::list_arrived(&key, unsafe { api!(RedisModule_GetSelectedDb)(ctx) });
            look_at(ctx, &key, name);
        });
    } else if event == c"evicted" {
        // SAFETY: context and name are those of this event.
        guard((), || unsafe { pending::key_evicted(api!(RedisModule_GetSelectedDb)(ctx), bytes_of(name)) });
    }
    OK
}

/// A key with leases came under a new name: it is looked at, so that they end by a timer there, too.
fn look_at(ctx: *mut raw::RedisModuleCtx, key: &Key<'_>, name: *mut raw::RedisModuleString) {
    // SAFETY: context and name are those of this event.
    let (db, name) = unsafe { (api!(RedisModule_GetSelectedDb)(ctx), bytes_of(name)) };
    for kind in Kind::ALL.iter().copied() {
        for_kind!(kind, M => if let Ok(Some(value)) = Live::<M>::of(key) {
            pending::key_renamed::<M>(value.pointer());
            pending::add(KeyName::new(kind, db, name), Task::Serve);
        });
    }
}

/// Starts or stops listening to the server's sleep: it sleeps often, so this is asked for only while it matters.
///
/// Never called from a callback of an event. The server frees a subscription the moment it ends, also in the middle of the
/// loop that calls the subscribers, and reads it again when the callback returns.
pub fn hear_of_sleep(listen: bool) {
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_EVENTLOOP, dataver: 1 };
    let callback: raw::RedisModuleEventCallback = if listen { Some(on_event) } else { None };
    // SAFETY: the module's own context; without a callback the subscription ends.
    unsafe { api!(RedisModule_SubscribeToServerEvent)(background::context(), event, callback) };
}

extern "C" fn on_event(ctx: *mut raw::RedisModuleCtx, event: raw::RedisModuleEvent, sub: u64, data: *mut c_void) {
    guard((), || match event.id {
        raw::REDISMODULE_EVENT_CLIENT_CHANGE => {
            if sub == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
                // SAFETY: the data of this very event.
                let client = unsafe { (*data.cast::<raw::RedisModuleClientInfo>()).id };
                blocked_clients::closed(client);
                sessions::closed(client);
            }
        }
        raw::REDISMODULE_EVENT_CRON_LOOP => background::watch_clock(),
        raw::REDISMODULE_EVENT_EVENTLOOP => {
            if sub == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
                blocked_clients::slept();
            }
        }
        raw::REDISMODULE_EVENT_FLUSHDB => {
            // SAFETY: the data of this very event; -1 is every database.
            let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum };
            let db = (db >= 0).then_some(db);
            if sub == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
                pending::flush_begins(ctx, db);
                registry::forget(db);
            } else {
                if db.is_none() {
                    neighbours::clear();
                }
                pending::flush_ended(db);
            }
        }
        raw::REDISMODULE_EVENT_SWAPDB => {
            // SAFETY: the data of this very event.
            let swap = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
            pending::databases_swapped(swap.dbnum_first, swap.dbnum_second);
        }
        raw::REDISMODULE_EVENT_CONFIG => {
            listeners::look(ctx);
            // SAFETY: the data of this very event.
            let has_changed = |name| unsafe { server::has_changed(data, name) };
            if has_changed(c"maxmemory-policy") {
                config::check_eviction(ctx);
            }
            if has_changed(c"maxmemory") {
                config::note_maxmemory(ctx);
            }
        }
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
            listeners::look(ctx);
            if sub == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
                fences::promoted();
                pending::promoted();
            } else {
                pending::demoted();
            }
        }
        raw::REDISMODULE_EVENT_LOADING => {
            listeners::look(ctx);
            if sub == raw::REDISMODULE_SUBEVENT_LOADING_ENDED {
                fences::resume(ctx);
                pending::search_all();
            }
        }
        _ => listeners::look(ctx),
    });
}
