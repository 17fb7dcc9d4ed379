//! Configuration: load arguments first, then `CONFIG` directives under `resil.`.
//!
//! | name | default | meaning |
//! | --- | --- | --- |
//! | `cell-compat` | yes | register `CL.THROTTLE`; can only be set at load |
//! | `window-limit-max` | 100000 | the largest limit RES.WINDOW accepts, which bounds the memory of a key |
//! | `test-clock` | no | load argument only: registers `RES._CLOCK`, for tests |

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use redis_module::raw;
use resil_core::limits::{WINDOW_LIMIT_CEILING, WINDOW_LIMIT_DEFAULT};
use resil_wire::Refused;
use resil_wire::argv::{Argv, quoted};

use crate::edge::{OK, api};

static CELL_COMPAT: AtomicBool = AtomicBool::new(true);
static WINDOW_LIMIT_MAX: AtomicU32 = AtomicU32::new(WINDOW_LIMIT_DEFAULT);
static TEST_CLOCK: AtomicBool = AtomicBool::new(false);

const USAGE: &str = "loadmodule libresil.so [cell-compat yes|no] [window-limit-max n] [test-clock yes|no]";

pub fn cell_compat() -> bool {
    CELL_COMPAT.load(Relaxed)
}

pub fn window_limit_max() -> u32 {
    WINDOW_LIMIT_MAX.load(Relaxed)
}

pub fn test_clock() -> bool {
    TEST_CLOCK.load(Relaxed)
}

/// Takes over `name value` pairs from the load line; they become the defaults of the directives below.
pub fn read_arguments(args: &[&[u8]]) -> Result<(), Refused> {
    let mut argv = Argv::new(args, USAGE);
    while let Some(word) = argv.word() {
        if word.is("cell-compat") {
            CELL_COMPAT.store(yes_or_no(argv.bytes("cell-compat")?, "cell-compat")?, Relaxed);
        } else if word.is("window-limit-max") {
            WINDOW_LIMIT_MAX.store(argv.count("window-limit-max", WINDOW_LIMIT_CEILING)?, Relaxed);
        } else if word.is("test-clock") {
            TEST_CLOCK.store(yes_or_no(argv.bytes("test-clock")?, "test-clock")?, Relaxed);
        } else {
            return Err(argv.unexpected(word.0));
        }
    }
    Ok(())
}

fn yes_or_no(given: &[u8], name: &str) -> Result<bool, Refused> {
    match given {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(Refused::new(format_args!("{name} must be yes or no, got {}", quoted(given)))),
    }
}

/// Registers the directives and lets the server fill them from its configuration file.
pub fn register(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    // SAFETY: called while loading; names are static, and the callbacks below have the signatures asked for.
    let registered = unsafe {
        api!(RedisModule_RegisterBoolConfig)(
            ctx,
            c"cell-compat".as_ptr(),
            cell_compat() as c_int,
            raw::REDISMODULE_CONFIG_IMMUTABLE as c_uint,
            Some(get_cell_compat),
            Some(set_cell_compat),
            None,
            null_mut(),
        ) == OK
            && api!(RedisModule_RegisterNumericConfig)(
                ctx,
                c"window-limit-max".as_ptr(),
                window_limit_max() as c_longlong,
                raw::REDISMODULE_CONFIG_DEFAULT as c_uint,
                1,
                WINDOW_LIMIT_CEILING as c_longlong,
                Some(get_window_limit_max),
                Some(set_window_limit_max),
                None,
                null_mut(),
            ) == OK
            && api!(RedisModule_LoadConfigs)(ctx) == OK
    };
    if registered { Ok(()) } else { Err(()) }
}

extern "C" fn get_cell_compat(_name: *const c_char, _data: *mut c_void) -> c_int {
    cell_compat() as c_int
}

extern "C" fn set_cell_compat(
    _name: *const c_char,
    value: c_int,
    _data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    CELL_COMPAT.store(value != 0, Relaxed);
    OK
}

extern "C" fn get_window_limit_max(_name: *const c_char, _data: *mut c_void) -> c_longlong {
    window_limit_max() as c_longlong
}

extern "C" fn set_window_limit_max(
    _name: *const c_char,
    value: c_longlong,
    _data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has held it against the bounds above.
    WINDOW_LIMIT_MAX.store(value as u32, Relaxed);
    OK
}

/// The server's configuration changed: `maxmemory-policy` concerns us, as anything but noeviction can take limits away
/// silently.
///
/// # Safety
/// `data` is what the server passes with its configuration event.
pub unsafe fn on_change(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    let change = data.cast::<raw::RedisModuleConfigChange>();
    // SAFETY: for this event the server passes this structure, with `num_changes` names.
    let names = unsafe { std::slice::from_raw_parts((*change).config_names, (*change).num_changes as usize) };
    // SAFETY: each name is a C string.
    if names.iter().any(|name| unsafe { CStr::from_ptr(*name) } == c"maxmemory-policy") {
        check_eviction(ctx);
    }
}

/// Warns and raises `eviction_risk` if limits can be evicted.
pub fn check_eviction(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the report is freed below, after the policy was compared.
    let risk = unsafe {
        let report = api!(RedisModule_GetServerInfo)(ctx, c"memory".as_ptr());
        let policy: *const c_char = api!(RedisModule_ServerInfoGetFieldC)(report, c"maxmemory_policy".as_ptr());
        let risk = !policy.is_null() && CStr::from_ptr(policy) != c"noeviction";
        api!(RedisModule_FreeServerInfo)(ctx, report);
        risk
    };
    crate::info::counters().eviction_risk.store(risk, Relaxed);
    if risk {
        let advice = "maxmemory-policy may evict rate limits: they would be forgotten; noeviction is advised";
        crate::edge::log(ctx, c"warning", advice);
    }
}
