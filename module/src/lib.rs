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
mod describe;
mod edge;
mod events;
mod fences;
mod info;
mod listeners;
mod machines;
mod neighbours;
mod pending;
mod queues;
mod search;
mod sessions;
mod timers;
mod waited_key;

pub(crate) use edge::{call, clients, gone, key, share, vendor};

use std::ffi::{CString, c_int};

use redis_module::alloc::RedisAlloc;
use redis_module::raw;

use crate::call::Command;
use crate::describe::Registered;
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
    datatype::callbacks::register::<datatype::tiers::Tiers>(ctx)?;
    datatype::callbacks::register::<datatype::window::Log>(ctx)?;
    datatype::callbacks::register::<datatype::breaker::Circuit>(ctx)?;
    for kind in machines::Kind::ALL {
        machines::for_kind!(kind, M => datatype::callbacks::register::<datatype::waited::Waited<M>>(ctx)?);
    }
    config::register(ctx)?;
    add_acl_category(ctx);
    command::<commands::gcra::Take>(ctx)?;
    command::<commands::gcra::Peek>(ctx)?;
    command::<commands::mgcra::TakeAll>(ctx)?;
    command::<commands::window::Take>(ctx)?;
    command::<commands::window::Peek>(ctx)?;
    container(ctx, commands::breaker::PAGE)?;
    command::<commands::breaker::Admit>(ctx)?;
    command::<commands::breaker::Report>(ctx)?;
    command::<commands::breaker::Tally>(ctx)?;
    command::<commands::breaker::State>(ctx)?;
    command::<commands::breaker::Force>(ctx)?;
    command::<commands::breaker::Reset>(ctx)?;
    command::<commands::breaker::Config>(ctx)?;
    command::<commands::breaker::Help>(ctx)?;
    container(ctx, commands::lock::PAGE)?;
    command::<commands::lock::Acquire>(ctx)?;
    command::<commands::lock::Renew>(ctx)?;
    command::<commands::lock::Release>(ctx)?;
    command::<commands::lock::Check>(ctx)?;
    command::<commands::lock::Break>(ctx)?;
    command::<commands::lock::Info>(ctx)?;
    command::<commands::lock::Help>(ctx)?;
    container(ctx, commands::bulkhead::PAGE)?;
    command::<commands::bulkhead::Enter>(ctx)?;
    command::<commands::bulkhead::Renew>(ctx)?;
    command::<commands::bulkhead::Leave>(ctx)?;
    command::<commands::bulkhead::Info>(ctx)?;
    command::<commands::bulkhead::Help>(ctx)?;
    command::<commands::lock::Heartbeat>(ctx)?;
    container(ctx, commands::idempotency::PAGE)?;
    command::<commands::idempotency::Begin>(ctx)?;
    command::<commands::idempotency::Commit>(ctx)?;
    command::<commands::idempotency::Abort>(ctx)?;
    command::<commands::idempotency::Renew>(ctx)?;
    command::<commands::idempotency::Once>(ctx)?;
    command::<commands::idempotency::Get>(ctx)?;
    command::<commands::idempotency::Info>(ctx)?;
    command::<commands::idempotency::Help>(ctx)?;
    container(ctx, commands::single_flight::PAGE)?;
    command::<commands::single_flight::Join>(ctx)?;
    command::<commands::single_flight::Get>(ctx)?;
    command::<commands::single_flight::Publish>(ctx)?;
    command::<commands::single_flight::Abandon>(ctx)?;
    command::<commands::single_flight::Renew>(ctx)?;
    command::<commands::single_flight::Invalidate>(ctx)?;
    command::<commands::single_flight::Info>(ctx)?;
    command::<commands::single_flight::Help>(ctx)?;
    command::<commands::apply::Apply>(ctx)?;
    if config::cell_compat() {
        compatible_command(ctx)?;
    }
    if config::test_clock() {
        log(ctx, c"warning", "test-clock is on: RES._CLOCK can stop the clock of this server's limits");
        command::<commands::clock::Clock>(ctx)?;
    }
    // SAFETY: the callback has the signature asked for.
    unsafe { api!(RedisModule_RegisterInfoFunc)(ctx, Some(info::report)) };
    cluster::look(ctx);
    background::start(ctx);
    fences::resume();
    events::watch(ctx);
    Ok(())
}

fn command<C: Command>(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    required(ctx, describe::register::<C>(ctx))
}

/// A command that only has subcommands.
fn container(ctx: *mut raw::RedisModuleCtx, page: &str) -> Result<(), ()> {
    required(ctx, describe::register_container(ctx, page))
}

fn required(ctx: *mut raw::RedisModuleCtx, registered: Result<Registered, String>) -> Result<(), ()> {
    match registered {
        Ok(Registered::Yes) => Ok(()),
        Ok(Registered::NameTaken) => {
            log(ctx, c"warning", "another module already has one of our commands; is resil loaded twice?");
            Err(())
        }
        Err(problem) => {
            log(ctx, c"warning", &problem);
            Err(())
        }
    }
}

/// CL.THROTTLE is somebody else's name: where redis-cell itself is loaded, it keeps it.
fn compatible_command(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    match describe::register::<commands::throttle::Throttle>(ctx) {
        Ok(Registered::Yes) => Ok(()),
        Ok(Registered::NameTaken) => {
            log(ctx, c"notice", "CL.THROTTLE belongs to another module and stays there");
            Ok(())
        }
        Err(problem) => {
            log(ctx, c"warning", &problem);
            Err(())
        }
    }
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
