//! The function by which the server loads the module.

use std::ffi::c_int;

use redis_module::raw;

use super::server::arguments;
use super::{ERR, OK, guard};

const MODULE_VERSION: c_int = 100;

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
        // SAFETY: by contract; the strings live until this function returns.
        let arguments = unsafe { arguments(argv, argc) };
        if crate::load(ctx, &arguments).is_ok() { OK } else { ERR }
    })
}
