//! An opened key: closed when dropped, and never signalled as modified by itself (`apply` does that).

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use redis_module::raw;
use resil_core::Instant;

use crate::call::{Call, Failure};
use crate::datatype::{NativeType, handle_of};
use crate::edge::{OK, api};

pub struct Key<'c> {
    raw: *mut raw::RedisModuleKey,
    pub name: *mut raw::RedisModuleString,
    _call: PhantomData<&'c ()>,
}

impl<'c> Key<'c> {
    /// Opens for reading. Works on replicas.
    pub fn open_to_read(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Self {
        Self::open(call, name, raw::REDISMODULE_READ)
    }

    /// Opens for writing: an expired key is gone, a missing one can be set.
    pub fn open_to_write(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Self {
        Self::open(call, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    fn open(call: &'c Call<'_>, name: *mut raw::RedisModuleString, mode: u32) -> Self {
        // SAFETY: context and name are those of the running call. A missing key opened for reading is null, which
        // every function below takes for an empty one.
        let raw = unsafe { api!(RedisModule_OpenKey)(call.ctx, name, mode as c_int) };
        Self { raw, name, _call: PhantomData }
    }

    /// The value if it is a `T`, `None` if there is no key, WRONGTYPE for anything else.
    pub fn value<T: NativeType>(&self) -> Result<Option<*mut c_void>, Failure> {
        // SAFETY: null is allowed; a module value of our own type is one we made.
        unsafe {
            if api!(RedisModule_ModuleTypeGetType)(self.raw) == handle_of::<T>() {
                return Ok(Some(api!(RedisModule_ModuleTypeGetValue)(self.raw)));
            }
        }
        if self.is_empty() { Ok(None) } else { Err(Failure::WrongType) }
    }

    pub fn is_empty(&self) -> bool {
        self.kind() == raw::REDISMODULE_KEYTYPE_EMPTY
    }

    /// The bytes, if the key holds a string.
    pub fn text(&self) -> Option<&[u8]> {
        if self.kind() != raw::REDISMODULE_KEYTYPE_STRING {
            return None;
        }
        let mut len = 0;
        // SAFETY: the key holds a string; the buffer is valid until the key is written or closed.
        unsafe {
            let start = api!(RedisModule_StringDMA)(self.raw, &mut len, raw::REDISMODULE_READ as c_int);
            (!start.is_null()).then(|| std::slice::from_raw_parts(start.cast(), len))
        }
    }

    fn kind(&self) -> isize {
        // SAFETY: null is allowed.
        unsafe { api!(RedisModule_KeyType)(self.raw) as isize }
    }

    /// Puts `value` in place of whatever the key held.
    pub fn set<T: NativeType>(&mut self, value: *mut c_void) {
        // SAFETY: opened for writing; the server owns the value from here on. If it declines, the value is ours.
        unsafe {
            if api!(RedisModule_ModuleTypeSetValue)(self.raw, handle_of::<T>(), value) != OK {
                T::free(value);
            }
        }
    }

    /// Swaps the value of a key that holds a `T`, keeping its expiry.
    pub fn replace<T: NativeType>(&mut self, value: *mut c_void) {
        let mut old = std::ptr::null_mut();
        // SAFETY: opened for writing and of type T; the old value comes back to us.
        unsafe {
            let swapped = api!(RedisModule_ModuleTypeReplaceValue)(self.raw, handle_of::<T>(), value, &mut old);
            T::free(if swapped == OK { old } else { value });
        }
    }

    pub fn delete(&mut self) {
        // SAFETY: opened for writing.
        unsafe { api!(RedisModule_DeleteKey)(self.raw) };
    }

    /// Lets the server collect the key at `instant`, unless that is already so; `None`: never.
    pub fn collect_at(&mut self, instant: Option<Instant>) {
        let ms = instant.map_or(raw::REDISMODULE_NO_EXPIRE as i64, Instant::ceil_ms);
        // SAFETY: opened for writing and not empty.
        unsafe {
            if api!(RedisModule_GetAbsExpire)(self.raw) != ms {
                api!(RedisModule_SetAbsExpire)(self.raw, ms);
            }
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; null is allowed.
        unsafe { api!(RedisModule_CloseKey)(self.raw) };
    }
}
