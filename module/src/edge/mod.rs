//! The edge to the server: the one way its functions are called, and the guard no panic passes.
//!
//! `redis-module` binds the server's functions as `Option`s that are filled at load. [`check`] refuses to load where
//! a required one is missing, so that [`api!`] may take them without asking again on every call.

pub mod acl;
pub mod blocking;
pub mod call;
pub mod clients;
pub mod describe;
pub mod directives;
pub mod events;
pub mod gone;
pub mod key;
pub mod load;
pub mod replication;
pub mod report;
pub mod search;
pub mod server;
pub mod share;
pub mod vendor;

use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use redis_module::raw;

use crate::info::counters;

/// A function of the server, to be used inside `unsafe`: filled once at load, before any callback can run, and seen
/// there by [`check`].
macro_rules! api {
    ($name:ident) => {
        redis_module::raw::$name.unwrap_unchecked()
    };
}
pub(crate) use api;

macro_rules! missing_of {
    ($($name:ident),* $(,)?) => {
        // SAFETY: the bindings are written once, by the initialisation that ran just before.
        [$((stringify!($name), { let function = unsafe { raw::$name }; function.is_none() })),*]
    };
}

/// Every function the module cannot do without. Redis 7.0 has them all.
pub fn check(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    let functions = missing_of![
        RedisModule_ACLCheckKeyPermissions,
        RedisModule_AvoidReplicaTraffic,
        RedisModule_BlockClient,
        RedisModule_Call,
        RedisModule_CallReplyArrayElement,
        RedisModule_CallReplyInteger,
        RedisModule_CallReplyStringPtr,
        RedisModule_CloseKey,
        RedisModule_CreateCommand,
        RedisModule_CreateDataType,
        RedisModule_CreateString,
        RedisModule_CreateSubcommand,
        RedisModule_CreateTimer,
        RedisModule_DefragAlloc,
        RedisModule_DeleteKey,
        RedisModule_DigestAddStringBuffer,
        RedisModule_DigestEndSequence,
        RedisModule_EmitAOF,
        RedisModule_Free,
        RedisModule_FreeCallReply,
        RedisModule_FreeModuleUser,
        RedisModule_FreeServerInfo,
        RedisModule_FreeString,
        RedisModule_GetAbsExpire,
        RedisModule_GetBlockedClientHandle,
        RedisModule_GetBlockedClientPrivateData,
        RedisModule_GetClientId,
        RedisModule_GetClientInfoById,
        RedisModule_GetClientUserNameById,
        RedisModule_GetCommand,
        RedisModule_GetContextFlags,
        RedisModule_GetDbIdFromIO,
        RedisModule_GetDbIdFromModuleKey,
        RedisModule_GetDbIdFromOptCtx,
        RedisModule_GetDetachedThreadSafeContext,
        RedisModule_GetModuleUserFromUserName,
        RedisModule_GetKeyNameFromIO,
        RedisModule_GetKeyNameFromOptCtx,
        RedisModule_GetRandomBytes,
        RedisModule_GetSelectedDb,
        RedisModule_GetServerInfo,
        RedisModule_GetUsedMemoryRatio,
        RedisModule_InfoAddFieldCString,
        RedisModule_InfoAddFieldLongLong,
        RedisModule_InfoAddFieldULongLong,
        RedisModule_InfoAddSection,
        RedisModule_InfoBeginDictField,
        RedisModule_InfoEndDictField,
        RedisModule_IsIOError,
        RedisModule_KeyType,
        RedisModule_LoadConfigs,
        RedisModule_LoadStringBuffer,
        RedisModule_LoadUnsigned,
        RedisModule_Log,
        RedisModule_MallocSize,
        RedisModule_ModuleTypeGetType,
        RedisModule_ModuleTypeGetValue,
        RedisModule_ModuleTypeReplaceValue,
        RedisModule_ModuleTypeSetValue,
        RedisModule_NotifyKeyspaceEvent,
        RedisModule_OpenKey,
        RedisModule_PublishMessage,
        RedisModule_PublishMessageShard,
        RedisModule_RegisterBoolConfig,
        RedisModule_RegisterInfoFunc,
        RedisModule_RegisterNumericConfig,
        RedisModule_Replicate,
        RedisModule_ReplicateVerbatim,
        RedisModule_ReplyWithArray,
        RedisModule_ReplyWithError,
        RedisModule_ReplyWithLongLong,
        RedisModule_ReplyWithMap,
        RedisModule_ReplyWithNull,
        RedisModule_ReplyWithSimpleString,
        RedisModule_ReplyWithStringBuffer,
        RedisModule_SaveStringBuffer,
        RedisModule_SaveUnsigned,
        RedisModule_Scan,
        RedisModule_ScanCursorCreate,
        RedisModule_ScanCursorDestroy,
        RedisModule_ScanCursorRestart,
        RedisModule_SelectDb,
        RedisModule_ServerInfoGetFieldC,
        RedisModule_SetAbsExpire,
        RedisModule_SetCommandInfo,
        RedisModule_SetDisconnectCallback,
        RedisModule_SetModuleOptions,
        RedisModule_SignalModifiedKey,
        RedisModule_StopTimer,
        RedisModule_StringDMA,
        RedisModule_StringPtrLen,
        RedisModule_SubscribeToKeyspaceEvents,
        RedisModule_SubscribeToServerEvent,
        RedisModule_UnblockClient,
    ];
    let missing: Vec<&str> = functions.iter().filter(|(_, missing)| *missing).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    log(ctx, c"warning", &format!("this server is too old for resil: it lacks {}", missing.join(", ")));
    Err(())
}

/// Runs `body`; a panic is logged and counted, and `otherwise` comes back. Nothing unwinds into the server.
pub fn guard<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => {
            counters().panics.add(1);
            otherwise
        }
    }
}

/// Sends panic messages to the server's log instead of standard error.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(String::new(), |at| format!(" at {}:{}", at.file(), at.line()));
        log(null_mut(), c"warning", &format!("internal error{place}; please report it"));
    }));
}

/// Writes to the server's log. A null context is allowed.
pub fn log(ctx: *mut raw::RedisModuleCtx, level: &CStr, message: &str) {
    // SAFETY: read-only look at a binding filled at load; the server copies both strings.
    if let (Some(log), Ok(message)) = (unsafe { raw::RedisModule_Log }, CString::new(message)) {
        unsafe { log(ctx, level.as_ptr(), c"%s".as_ptr(), message.as_ptr()) };
    }
}

/// The bytes of a server string, for as long as the server keeps it.
///
/// # Safety
/// `string` is a live string of the server that outlives `'a`.
pub unsafe fn bytes_of<'a>(string: *mut raw::RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: by contract; the server returns a buffer of `len` bytes, never null.
    unsafe {
        let start = api!(RedisModule_StringPtrLen)(string, &mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}

pub const OK: c_int = raw::REDISMODULE_OK as c_int;
pub const ERR: c_int = raw::REDISMODULE_ERR as c_int;
