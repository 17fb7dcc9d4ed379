//! Resil inside the server. This file only registers; see `commands/` for what the commands do, `apply.rs` for the
//! one place that writes, `datatype/` for how values are stored, and docs/architecture.md for the way of a request.

mod announce;
mod apply;
mod async_waits;
mod background;
mod blocked_clients;
mod clock;
mod cluster;
mod commands;
mod config;
mod datatype;
mod denials;
mod edge;
mod fences;
mod guard_events;
mod info;
mod key_tasks;
mod ledger_events;
mod listeners;
mod machines;
mod neighbours;
mod pending;
mod queues;
mod registry;
mod sessions;
mod timers;
mod turns;
mod waited_key;

pub(crate) use edge::{call, clients, describe, events, gone, key, search, server, share, vendor};

use std::ffi::c_int;

use redis_module::alloc::RedisAlloc;
use redis_module::raw;

use crate::edge::log;

#[global_allocator]
static ALLOCATOR: RedisAlloc = RedisAlloc;

/// Our own ACL category, where the server lets modules have one.
const ACL_CATEGORY: &str = "resil";

/// Called when the server loads the module.
fn load(ctx: *mut raw::RedisModuleCtx, arguments: &[&[u8]]) -> Result<(), ()> {
    edge::check(ctx)?;
    edge::log_panics();
    config::read_arguments(arguments).map_err(|refused| log(ctx, c"warning", refused.text()))?;
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    let options = options as c_int | vendor::atomic_slot_migration(ctx);
    server::set_options(ctx, options);
    resil_core::dead_letters::seed_ids(server::random_seed());
    datatype::register(ctx)?;
    config::register(ctx)?;
    add_acl_category(ctx);
    commands::register(ctx)?;
    server::register_info(ctx, info::report);
    cluster::look(ctx);
    background::start(ctx);
    fences::resume(ctx);
    events::watch(ctx);
    Ok(())
}

fn add_acl_category(ctx: *mut raw::RedisModuleCtx) {
    if !server::has_acl_categories() {
        let text = "this server has no ACL categories for the commands of modules: -@dangerous does not take away RES.BREAKER FORCE, \
                    CONFIG and RESET, RES.LOCK BREAK, or RES.DLQ DIAGNOSE, REDRIVE, CLOSE, PURGE and CONFIG. Grant commands by name, as docs/access.md shows";
        log(ctx, c"notice", text);
    }
    server::add_acl_category(ctx, ACL_CATEGORY);
}
