//! The callbacks every native type gives the server: casts, a guard, and a call of the type's own function.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use redis_module::raw;
use resil_core::codec::VERSION;

use super::{NativeType, doubted, enter_registry, is_doubted, leave_registry, plain};
use crate::edge::{ERR, OK, api, bytes_of, guard, log};

/// Registers `T` with the server.
pub fn register<T: NativeType>(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    let mut methods = raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
        rdb_load: Some(rdb_load::<T>),
        rdb_save: Some(rdb_save::<T>),
        aof_rewrite: Some(aof_rewrite::<T>),
        mem_usage: Some(mem_usage::<T>),
        digest: Some(digest::<T>),
        free: Some(free::<T>),
        aux_load: if T::HAS_AUX { Some(aux_load::<T>) } else { None },
        aux_save: if T::HAS_AUX { Some(aux_save::<T>) } else { None },
        aux_save_triggers: if T::HAS_AUX { raw::REDISMODULE_AUX_BEFORE_RDB as c_int } else { 0 },
        free_effort: Some(free_effort::<T>),
        unlink: None,
        copy: Some(copy::<T>),
        defrag: Some(defrag::<T>),
        mem_usage2: None,
        free_effort2: None,
        unlink2: Some(unlink::<T>),
        copy2: None,
        aux_save2: if T::HAS_AUX { Some(aux_save::<T>) } else { None },
    };
    // SAFETY: called while loading; the server copies the methods and the name.
    let handle = unsafe { api!(RedisModule_CreateDataType)(ctx, T::NAME.as_ptr(), VERSION as c_int, &mut methods) };
    if handle.is_null() {
        log(ctx, c"warning", &format!("the type {} could not be registered", T::NAME.to_string_lossy()));
        return Err(());
    }
    T::handle().store(handle, Relaxed);
    Ok(())
}

extern "C" fn rdb_load<T: NativeType>(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    guard(null_mut(), || {
        if version != VERSION as c_int {
            log(null_mut(), c"warning", &format!("a value of encoding {version} needs a newer resil"));
            return null_mut();
        }
        let value = load_piece(io, |first| T::decode(first, &mut |read| load_piece(io, read)));
        if let Some(value) = value {
            // SAFETY: the value made above; a payload without a key has no name.
            unsafe {
                let name = api!(RedisModule_GetKeyNameFromIO)(io);
                if !name.is_null() {
                    let (db, name) = (api!(RedisModule_GetDbIdFromIO)(io), name);
                    enter_registry::<T>(value, db, bytes_of(name.cast_mut()));
                    T::arrived(value, db, bytes_of(name.cast_mut()));
                }
            }
        }
        value.map_or(null_mut(), doubted)
    })
}

/// Reads a piece of a value; `None` if the payload ended early, or `read` makes nothing of it.
fn load_piece<R>(io: *mut raw::RedisModuleIO, read: impl FnOnce(&[u8]) -> Option<R>) -> Option<R> {
    let mut len = 0;
    // SAFETY: `io` is the server's for this call; a null buffer means the payload ended early. The server hands over `len` bytes
    // that are ours to free.
    unsafe {
        let start = api!(RedisModule_LoadStringBuffer)(io, &mut len);
        if start.is_null() {
            return None;
        }
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), len);
        let value = if api!(RedisModule_IsIOError)(io) == 0 { read(bytes) } else { None };
        api!(RedisModule_Free)(start.cast());
        value
    }
}

extern "C" fn rdb_save<T: NativeType>(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    guard((), || {
        // SAFETY: the buffer outlives the call.
        let mut save = |piece: &[u8]| unsafe {
            api!(RedisModule_SaveStringBuffer)(io, piece.as_ptr().cast(), piece.len());
        };
        // SAFETY: the server passes a value that T made.
        unsafe { T::encode_pieces(plain(value), &mut save) };
        if T::IN_PIECES {
            save(&[]);
        }
    });
}

extern "C" fn aof_rewrite<T: NativeType>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guard((), || {
        // SAFETY: as in rdb_save; the format says: a string, a number, a buffer with its length.
        unsafe {
            T::encode_pieces(plain(value), &mut |piece| {
                api!(RedisModule_EmitAOF)(
                    io,
                    c"RES._APPLY".as_ptr(),
                    c"slb".as_ptr(),
                    key,
                    VERSION as i64,
                    piece.as_ptr(),
                    piece.len(),
                );
            });
        }
    });
}

extern "C" fn mem_usage<T: NativeType>(value: *const c_void) -> usize {
    // SAFETY: the server passes a value that T made.
    guard(0, || unsafe { T::heap_bytes(plain(value.cast_mut())) })
}

extern "C" fn digest<T: NativeType>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard((), || {
        // SAFETY: the server passes a value that T made; it hashes the buffers during the call.
        unsafe {
            T::encode_pieces(plain(value), &mut |piece| {
                api!(RedisModule_DigestAddStringBuffer)(digest, piece.as_ptr().cast(), piece.len());
            });
            api!(RedisModule_DigestEndSequence)(digest);
        }
    });
}

/// Runs on the main thread or on the server's background thread.
extern "C" fn free<T: NativeType>(value: *mut c_void) {
    // SAFETY: the server gives the value back, once.
    guard((), || unsafe { T::free(plain(value)) });
}

extern "C" fn free_effort<T: NativeType>(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value that T made.
    guard(1, || unsafe { T::parts(plain(value.cast_mut())) })
}

/// The value leaves its key: deleted, expired, evicted, overwritten, renamed, moved. It may live on elsewhere.
extern "C" fn unlink<T: NativeType>(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    // SAFETY: the server passes a value that T made, and the key it leaves.
    guard((), || unsafe {
        let (value, db) = (plain(value.cast_mut()), api!(RedisModule_GetDbIdFromOptCtx)(key));
        let name = || {
            let name = api!(RedisModule_GetKeyNameFromOptCtx)(key);
            if name.is_null() { &[] } else { bytes_of(name.cast_mut()) }
        };
        leave_registry::<T>(value, db, name);
        T::unlinked(value, db, name);
    });
}

/// Two numbers beside the keys of a snapshot.
extern "C" fn aux_save<T: NativeType>(io: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: `io` is the server's for this call.
    guard((), || unsafe {
        let (one, other) = T::aux();
        api!(RedisModule_SaveUnsigned)(io, one);
        api!(RedisModule_SaveUnsigned)(io, other);
    });
}

extern "C" fn aux_load<T: NativeType>(io: *mut raw::RedisModuleIO, version: c_int, _when: c_int) -> c_int {
    guard(ERR, || {
        if version != VERSION as c_int {
            log(null_mut(), c"warning", &format!("data of encoding {version} needs a newer resil"));
            return ERR;
        }
        // SAFETY: as above; a short read is seen by the check that follows.
        let numbers = unsafe { (api!(RedisModule_LoadUnsigned)(io), api!(RedisModule_LoadUnsigned)(io)) };
        if unsafe { api!(RedisModule_IsIOError)(io) } != 0 {
            return ERR;
        }
        T::load_aux(numbers);
        OK
    })
}

extern "C" fn copy<T: NativeType>(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    guard(null_mut(), || {
        // SAFETY: the server passes a value that T made; null tells it that it is not copied.
        let copied = unsafe { T::copy(plain(value.cast_mut())) };
        if copied.is_null() { copied } else { doubted(copied) }
    })
}

extern "C" fn defrag<T: NativeType>(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guard((), || {
        // SAFETY: the server passes a place that holds a value T made, and takes the new one from it.
        unsafe {
            let moved = T::defrag(plain(*value), &mut |allocation| {
                let moved = api!(RedisModule_DefragAlloc)(ctx, allocation);
                if moved.is_null() { allocation } else { moved }
            });
            *value = if is_doubted(*value) { doubted(moved) } else { moved };
        }
    });
    // Zero: nothing is left to be done later.
    0
}
