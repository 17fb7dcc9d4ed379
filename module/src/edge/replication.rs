//! What a changed key means to the server: replicas, files, watchers and listeners learn of it.

use std::ffi::CStr;

use redis_module::raw;
use resil_core::codec::{self, VERSION};
use resil_core::rate_limit::TierSet;

use super::api;
use super::call::Call;
use super::key::Key;
use crate::datatype::Bytes;

/// The version as the text that travels.
const VERSION_TEXT: &CStr = c"1";
const _: () = assert!(VERSION == 1, "VERSION_TEXT must say the codec's version");

/// The same for the tiers of several keys, as one command.
pub fn replicate_many(call: &Call<'_>, changed: &[(&Key<'_>, &TierSet)]) {
    let mut arguments: Vec<*mut raw::RedisModuleString> = Vec::with_capacity(changed.len() * 3);
    for (key, tiers) in changed {
        let mut bytes = Bytes::new();
        codec::encode_tiers(tiers, &mut bytes);
        let version = VERSION_TEXT.to_bytes();
        // SAFETY: the server copies the bytes; both strings are freed below.
        unsafe {
            arguments.push(key.name);
            arguments.push(api!(RedisModule_CreateString)(call.ctx, version.as_ptr().cast(), version.len()));
            arguments.push(api!(RedisModule_CreateString)(call.ctx, bytes.as_ptr().cast(), bytes.len()));
        }
    }
    // SAFETY: `v` takes an array of strings with its length; the server holds its own references afterwards.
    unsafe {
        api!(RedisModule_Replicate)(
            call.ctx,
            c"RES._APPLY".as_ptr(),
            c"v".as_ptr(),
            arguments.as_mut_ptr(),
            arguments.len(),
        );
        for triple in arguments.chunks_exact(3) {
            api!(RedisModule_FreeString)(call.ctx, triple[1]);
            api!(RedisModule_FreeString)(call.ctx, triple[2]);
        }
    }
}

/// Nobody listens: the server only learns that the data set changed. It passes the request on to no one.
pub fn mark_dirty(call: &Call<'_>) {
    // SAFETY: the context is that of the running call.
    unsafe { api!(RedisModule_ReplicateVerbatim)(call.ctx) };
}

/// Sends a change of one key to replicas and the append-only file.
pub fn replicate(call: &Call<'_>, key: &Key<'_>, bytes: &[u8]) {
    // SAFETY: a server string, a C string and a buffer with its length, as the format says.
    unsafe {
        api!(RedisModule_Replicate)(
            call.ctx,
            c"RES._APPLY".as_ptr(),
            c"scb".as_ptr(),
            key.name,
            VERSION_TEXT.as_ptr(),
            bytes.as_ptr(),
            bytes.len(),
        );
    }
}

/// The key is gone, there as here.
pub fn replicate_deletion(call: &Call<'_>, key: &Key<'_>) {
    // SAFETY: context and key name are those of the running call.
    unsafe { api!(RedisModule_Replicate)(call.ctx, c"DEL".as_ptr(), c"s".as_ptr(), key.name) };
}

/// Sends a keyspace notification.
pub fn notify(call: &Call<'_>, key: &Key<'_>, event: &CStr) {
    // SAFETY: context and key name are those of the running call; the event is a C string.
    unsafe {
        api!(RedisModule_NotifyKeyspaceEvent)(call.ctx, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.name)
    };
}

pub fn signal_modified(call: &Call<'_>, key: &Key<'_>) {
    // SAFETY: context and key name are those of the running call.
    unsafe { api!(RedisModule_SignalModifiedKey)(call.ctx, key.name) };
}
