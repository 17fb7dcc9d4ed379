//! What the server says of itself, and what is asked of it as a whole: its flags, its reports, its timers.

use std::ffi::{CStr, CString, c_int};
use std::ptr::null_mut;

use redis_module::raw;

use super::{api, bytes_of};

pub type Ctx = *mut raw::RedisModuleCtx;

/// Calls the module back.
pub type TimerCallback = extern "C" fn(Ctx, *mut std::ffi::c_void);

/// The flags of a context, or of the server itself if that is null.
pub fn flags(ctx: Ctx) -> u32 {
    // SAFETY: the context is that of the running callback, or null.
    unsafe { api!(RedisModule_GetContextFlags)(ctx) as u32 }
}

/// True while a file is loaded, or a replica's first copy.
pub fn is_loading() -> bool {
    flags(null_mut()) & (raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING) != 0
}

/// True while the server asks not to write to its replicas.
pub fn avoids_replica_traffic() -> bool {
    // SAFETY: takes no argument.
    unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// When the server began the command that runs, where it knows that to the microsecond.
pub fn command_began_us() -> Option<i64> {
    // SAFETY: a read of a binding filled at load, and a call without arguments.
    unsafe { raw::RedisModule_CachedMicroseconds.map(|began| began()) }
}

pub fn random() -> u32 {
    let mut bytes = [0u8; 4];
    // SAFETY: the server fills the four bytes.
    unsafe { api!(RedisModule_GetRandomBytes)(bytes.as_mut_ptr(), bytes.len()) };
    u32::from_ne_bytes(bytes)
}

/// The same, longer.
pub fn random_seed() -> u64 {
    u64::from(random()) << 32 | u64::from(random())
}

/// Fields of a section of INFO; `None` for one that is not there.
pub fn info<const N: usize>(ctx: Ctx, section: &CStr, fields: [&CStr; N]) -> [Option<CString>; N] {
    // SAFETY: the context is that of this callback; the report is freed after the texts were copied.
    unsafe {
        let report = api!(RedisModule_GetServerInfo)(ctx, section.as_ptr());
        let texts = fields.map(|field| {
            let text = api!(RedisModule_ServerInfoGetFieldC)(report, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
        });
        api!(RedisModule_FreeServerInfo)(ctx, report);
        texts
    }
}

/// The value of a directive of the server's own; `None` if it has none of that name.
pub fn directive(ctx: Ctx, name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the context is that of this callback; the format says two C strings; the reply is freed after its text was copied.
    unsafe {
        let reply = api!(RedisModule_Call)(ctx, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), name.as_ptr());
        if reply.is_null() {
            return None;
        }
        let value = api!(RedisModule_CallReplyArrayElement)(reply, 1);
        let mut len = 0;
        let start =
            if value.is_null() { std::ptr::null() } else { api!(RedisModule_CallReplyStringPtr)(value, &mut len) };
        let text = (!start.is_null()).then(|| std::slice::from_raw_parts(start.cast::<u8>(), len).to_vec());
        api!(RedisModule_FreeCallReply)(reply);
        text
    }
}

/// A context of the module's own, for as long as the process lives.
pub fn own_context(ctx: Ctx) -> Ctx {
    // SAFETY: called while loading.
    unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx) }
}

/// `ctx` is the module's own.
pub fn start_timer(ctx: Ctx, after_ms: i64, callback: TimerCallback) -> raw::RedisModuleTimerID {
    // SAFETY: the module's own context; the callback has the signature asked for.
    unsafe { api!(RedisModule_CreateTimer)(ctx, after_ms, Some(callback), null_mut()) }
}

/// Stops a timer that has not run.
pub fn stop_timer(ctx: Ctx, id: raw::RedisModuleTimerID) {
    // SAFETY: the module's own context.
    unsafe { api!(RedisModule_StopTimer)(ctx, id, null_mut()) };
}

/// While loading: the module's options.
pub fn set_options(ctx: Ctx, options: c_int) {
    // SAFETY: called while loading.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx, options) };
}

/// While loading: who writes INFO.
pub fn register_info(ctx: Ctx, report: extern "C" fn(*mut raw::RedisModuleInfoCtx, c_int)) {
    // SAFETY: the callback has the signature asked for.
    unsafe { api!(RedisModule_RegisterInfoFunc)(ctx, Some(report)) };
}

/// Whether commands of modules can be in ACL categories: from Redis 7.2 on.
pub fn has_acl_categories() -> bool {
    // SAFETY: a read of a binding filled at load.
    unsafe { raw::RedisModule_SetCommandACLCategories }.is_some()
}

/// A category of our own, where the server lets modules have one: from Redis 7.4 on. Harmless if refused.
pub fn add_acl_category(ctx: Ctx, name: &str) {
    // SAFETY: a read of a binding filled at load, and a call while loading.
    unsafe {
        if let (Some(add), Ok(name)) = (raw::RedisModule_AddACLCategory, CString::new(name)) {
            add(ctx, name.as_ptr());
        }
    }
}

/// The same message on each of `channels`.
pub fn publish(ctx: Ctx, message: &[u8], channels: &[&[u8]]) {
    // SAFETY: the server copies the bytes of all strings, which are freed here.
    unsafe {
        let string = |text: &[u8]| api!(RedisModule_CreateString)(ctx, text.as_ptr().cast(), text.len());
        let message = string(message);
        for channel in channels {
            let channel = string(channel);
            api!(RedisModule_PublishMessage)(ctx, channel, message);
            api!(RedisModule_FreeString)(ctx, channel);
        }
        api!(RedisModule_FreeString)(ctx, message);
    }
}

/// The configuration that changed is among `names`.
///
/// # Safety
/// `data` is what the server passes with its configuration event.
pub unsafe fn has_changed(data: *mut std::ffi::c_void, name: &CStr) -> bool {
    let change = data.cast::<raw::RedisModuleConfigChange>();
    // SAFETY: for this event the server passes this structure, with `num_changes` names, each a C string.
    unsafe {
        let names = std::slice::from_raw_parts((*change).config_names, (*change).num_changes as usize);
        names.iter().any(|changed| CStr::from_ptr(*changed) == name)
    }
}

/// The arguments the module is loaded with.
///
/// # Safety
/// `argv` has `argc` strings of the server, or is null; they outlive `'a`.
pub unsafe fn arguments<'a>(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Vec<&'a [u8]> {
    if argv.is_null() {
        return Vec::new();
    }
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(argv, argc.max(0) as usize).iter().map(|string| bytes_of(*string)).collect() }
}
