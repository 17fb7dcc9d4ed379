//! Directives of `CONFIG`: values that the server reads and writes by callbacks.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redis_module::raw;

use super::{OK, api};

/// A directive that is yes or no.
pub struct Flag {
    pub name: &'static CStr,
    pub value: AtomicBool,
    pub only_at_load: bool,
}

/// A directive that is a number within bounds.
pub struct Number {
    pub name: &'static CStr,
    pub value: AtomicI64,
    pub least: i64,
    pub most: i64,
}

/// Registers the directives and lets the server fill them from its configuration file.
pub fn register(ctx: *mut raw::RedisModuleCtx, flags: &[&'static Flag], numbers: &[&'static Number]) -> Result<(), ()> {
    // SAFETY: called while loading; names and directives are static, and the callbacks have the signatures asked for.
    let registered = unsafe {
        flags.iter().all(|flag| {
            let changes =
                if flag.only_at_load { raw::REDISMODULE_CONFIG_IMMUTABLE } else { raw::REDISMODULE_CONFIG_DEFAULT };
            api!(RedisModule_RegisterBoolConfig)(
                ctx,
                flag.name.as_ptr(),
                c_int::from(flag.value.load(Relaxed)),
                changes as c_uint,
                Some(get_flag),
                Some(set_flag),
                None,
                std::ptr::from_ref::<Flag>(flag).cast_mut().cast(),
            ) == OK
        }) && numbers.iter().all(|number| {
            api!(RedisModule_RegisterNumericConfig)(
                ctx,
                number.name.as_ptr(),
                number.value.load(Relaxed) as c_longlong,
                raw::REDISMODULE_CONFIG_DEFAULT as c_uint,
                number.least as c_longlong,
                number.most as c_longlong,
                Some(get_number),
                Some(set_number),
                None,
                std::ptr::from_ref::<Number>(number).cast_mut().cast(),
            ) == OK
        }) && api!(RedisModule_LoadConfigs)(ctx) == OK
    };
    if registered { Ok(()) } else { Err(()) }
}

extern "C" fn get_flag(_name: *const c_char, flag: *mut c_void) -> c_int {
    // SAFETY: the flag given at registration, which is static.
    c_int::from(unsafe { &*flag.cast::<Flag>() }.value.load(Relaxed))
}

extern "C" fn set_flag(
    _name: *const c_char,
    value: c_int,
    flag: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as above.
    unsafe { &*flag.cast::<Flag>() }.value.store(value != 0, Relaxed);
    OK
}

extern "C" fn get_number(_name: *const c_char, number: *mut c_void) -> c_longlong {
    // SAFETY: the number given at registration, which is static.
    unsafe { &*number.cast::<Number>() }.value.load(Relaxed) as c_longlong
}

extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    number: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as above. The server has held the value against the bounds.
    unsafe { &*number.cast::<Number>() }.value.store(value, Relaxed);
    OK
}
