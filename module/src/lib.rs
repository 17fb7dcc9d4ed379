//! Resil inside the server. This file only registers; see `commands/` for what the commands do, `apply.rs` for the
//! one place that writes, `datatype/` for how values are stored, and docs/architecture.md for the way of a request.

mod announce;
mod apply;
mod background;
mod blocked_clients;
mod clock;
mod cluster;
mod commands;
mod config;
mod datatype;
mod edge;
mod fences;
mod info;
mod key_tasks;
mod listeners;
mod machines;
mod neighbours;
mod pending;
mod queues;
mod sessions;
mod timers;
mod waited_key;

pub(crate) use edge::{call, clients, describe, events, gone, key, search, share, vendor};

use std::ffi::{CString, c_int};

use redis_module::alloc::RedisAlloc;
use redis_module::raw;

use crate::edge::{ERR, OK, api, bytes_of, guard, log};

#[global_allocator]
static ALLOCATOR: RedisAlloc = RedisAlloc;

const MODULE_VERSION: c_int = 100;

/// Our own ACL category, where the server lets modules have one.
const ACL_CATEGORY: &str = "resil";

/// The server calls this when it loads the module.
///
/// # Safety
/// Called by the server, once, with its context and `argc` load arguments.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the first call of every module. Nothing may allocate before it: it brings the allocator.
    let initialised = unsafe {
        raw::Export_RedisModule_Init(ctx, c"resil".as_ptr(), MODULE_VERSION, raw::REDISMODULE_APIVER_1 as c_int)
    };
    if initialised != OK {
        return ERR;
    }
    guard(ERR, || {
        // SAFETY: by contract; without arguments there is no array either.
        let arguments =
            if argv.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(argv, argc.max(0) as usize) } };
        // SAFETY: the strings live until this function returns.
        let arguments: Vec<&[u8]> = arguments.iter().map(|string| unsafe { bytes_of(*string) }).collect();
        if load(ctx, &arguments).is_ok() { OK } else { ERR }
    })
}

fn load(ctx: *mut raw::RedisModuleCtx, arguments: &[&[u8]]) -> Result<(), ()> {
    edge::check(ctx)?;
    edge::log_panics();
    config::read_arguments(arguments).map_err(|refused| log(ctx, c"warning", refused.text()))?;
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    let options = options as c_int | vendor::atomic_slot_migration(ctx);
    // SAFETY: called while loading, as is all that follows.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx, options) };
    datatype::register(ctx)?;
    config::register(ctx)?;
    add_acl_category(ctx);
    commands::register(ctx)?;
    // SAFETY: the callback has the signature asked for.
    unsafe { api!(RedisModule_RegisterInfoFunc)(ctx, Some(info::report)) };
    cluster::look(ctx);
    background::start(ctx);
    fences::resume();
    events::watch(ctx);
    Ok(())
}

fn add_acl_category(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: a read of a binding filled at load; absent before Redis 7.2.
    if unsafe { raw::RedisModule_SetCommandACLCategories }.is_none() {
        let text = "this server has no ACL categories for the commands of modules: -@dangerous does not take away RES.BREAKER FORCE, \
                    CONFIG and RESET, or RES.LOCK BREAK. Grant commands by name, as docs/access.md shows";
        log(ctx, c"notice", text);
    }
    // SAFETY: a read of a binding filled at load; absent before Redis 7.4 and harmless if refused.
    if let (Some(add), Ok(category)) = (unsafe { raw::RedisModule_AddACLCategory }, CString::new(ACL_CATEGORY)) {
        unsafe { add(ctx, category.as_ptr()) };
    }
}
