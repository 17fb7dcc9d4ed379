//! An opened key: closed when dropped, and never signalled as modified by itself (`apply` does that).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;
use resil_core::Instant;
use resil_core::circuit_breaker::Breaker;
use resil_core::dead_letters::Ledgers;
use resil_core::guard::Guards;
use resil_core::idempotency::Idempotency;
use resil_core::lock::{Bulkheads, Locks};
use resil_core::single_flight::Flights;
use resil_wire::overview::OverviewKind;

use crate::call::{Call, Failure};
use crate::datatype::boxed::Boxed;
use crate::datatype::waited::Waited;
use crate::datatype::{NativeType, Value, doubted, enter_registry, handle_of, is_doubted, plain, relist};
use crate::edge::{OK, api, bytes_of};
use crate::neighbours;
use crate::registry::Slot;

/// Whether we hear of every key that is re-timed. Where we do not, each change looks the expiry up.
static TRUSTED: AtomicBool = AtomicBool::new(false);

pub fn trust_expiries(heard: bool) {
    TRUSTED.store(heard, Relaxed);
}

pub struct Key<'c> {
    raw: *mut raw::RedisModuleKey,
    pub name: *mut raw::RedisModuleString,
    _call: PhantomData<&'c ()>,
}

impl<'c> Key<'c> {
    /// Opens for reading. Works on replicas.
    pub fn open_to_read(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Self {
        Self::open(call.ctx, name, raw::REDISMODULE_READ)
    }

    /// Opens for writing: an expired key is gone, a missing one can be set.
    pub fn open_to_write(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Self {
        Self::open(call.ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens for reading without a trace: to look at a key is not to use it.
    pub fn open_quietly(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Self {
        // Redis 7.0 knows the first of these and passes over the others.
        let quietly =
            raw::REDISMODULE_OPEN_KEY_NOTOUCH | raw::REDISMODULE_OPEN_KEY_NONOTIFY | raw::REDISMODULE_OPEN_KEY_NOSTATS;
        Self::open(call.ctx, name, raw::REDISMODULE_READ | quietly)
    }

    fn open(ctx: *mut raw::RedisModuleCtx, name: *mut raw::RedisModuleString, mode: u32) -> Self {
        // SAFETY: context and name are those of the running call. A missing key opened for reading is null, which
        // every function below takes for an empty one.
        let raw = unsafe { api!(RedisModule_OpenKey)(ctx, name, mode as c_int) };
        Self { raw, name, _call: PhantomData }
    }

    /// The value if it is a `T`, `None` if there is no key, WRONGTYPE for anything else.
    pub fn value<T: NativeType>(&self) -> Result<Option<Value<T>>, Failure> {
        match self.stored::<T>() {
            Some(value) => {
                // SAFETY: the value of a key that is open.
                unsafe {
                    self.list_if_new::<T>(plain(value));
                    Ok(Some(Value::new(plain(value))))
                }
            }
            None if self.is_empty() => Ok(None),
            None => Err(Failure::WrongType),
        }
    }

    /// A value that came here without a notification is listed from now on: the servers that do not let us hear of renamed, moved and
    /// copied keys list them from the first command on.
    ///
    /// # Safety
    /// `value` is that of this key, and a `T`.
    unsafe fn list_if_new<T: NativeType>(&self, value: *mut c_void) {
        // SAFETY: by contract.
        unsafe {
            if T::LISTED.is_some() && T::slot(value).is_some_and(|slot| slot.get() == 0) {
                enter_registry::<T>(value, self.db(), self.name());
            }
        }
    }

    /// The pointer as the server has it, the bit of doubt included.
    fn stored<T: NativeType>(&self) -> Option<*mut c_void> {
        // SAFETY: null is allowed; a module value of our own type is one we made.
        unsafe {
            let ours = api!(RedisModule_ModuleTypeGetType)(self.raw) == handle_of::<T>();
            ours.then(|| api!(RedisModule_ModuleTypeGetValue)(self.raw))
        }
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

    /// Its name, as long as the call lives.
    pub fn name(&self) -> &'c [u8] {
        // SAFETY: the name lives as long as the call.
        unsafe { bytes_of(self.name) }
    }

    /// A number of this key's own, to spread expiries: the same on every server.
    pub fn salt(&self) -> u64 {
        salt_of(self.name())
    }

    /// Puts `value` in place of whatever the key held.
    pub fn set<T: NativeType>(&mut self, value: *mut c_void) {
        // SAFETY: opened for writing; the server owns the value from here on. If it declines, the value is ours.
        unsafe {
            if api!(RedisModule_ModuleTypeSetValue)(self.raw, handle_of::<T>(), value) != OK {
                T::free(value);
            } else if T::LISTED.is_some() {
                enter_registry::<T>(value, self.db(), self.name());
            }
        }
    }

    /// Swaps the value of a key that holds a `T`, keeping its expiry, and the doubt about it.
    pub fn replace<T: NativeType>(&mut self, value: *mut c_void) {
        let doubt = self.stored::<T>().is_some_and(is_doubted);
        let kept = if doubt { doubted(value) } else { value };
        let mut old = std::ptr::null_mut();
        // SAFETY: opened for writing and of type T; the old value comes back to us.
        unsafe {
            let swapped = api!(RedisModule_ModuleTypeReplaceValue)(self.raw, handle_of::<T>(), kept, &mut old);
            if swapped == OK
                && let (Some(from), Some(to)) = (T::slot(plain(old)), T::slot(value))
            {
                to.set(from.get());
                relist::<T>(value, || (self.db(), self.name()));
            }
            T::free(if swapped == OK { plain(old) } else { value });
        }
    }

    /// The number of its database.
    pub fn db(&self) -> i32 {
        // SAFETY: it is open, and holds something.
        unsafe { api!(RedisModule_GetDbIdFromModuleKey)(self.raw) }
    }

    pub fn delete(&mut self) {
        // SAFETY: opened for writing.
        unsafe { api!(RedisModule_DeleteKey)(self.raw) };
    }

    /// Lets the server collect the key at `due`; `None`: never. `was_due` is what the state before the change asked
    /// for: unless somebody re-timed the key meanwhile that is its expiry, which need not be asked for.
    pub fn collect_at<T: NativeType>(&mut self, was_due: Option<Option<Instant>>, due: Option<Instant>) {
        let stored = self.stored::<T>();
        let doubt = stored.is_some_and(is_doubted);
        let known = was_due.filter(|_| !doubt && TRUSTED.load(Relaxed));
        if known == Some(due) {
            return;
        }
        let ms = due.map_or(raw::REDISMODULE_NO_EXPIRE as i64, Instant::ceil_ms);
        // SAFETY: opened for writing and not empty.
        unsafe {
            if known.is_some() || api!(RedisModule_GetAbsExpire)(self.raw) != ms {
                api!(RedisModule_SetAbsExpire)(self.raw, ms);
            }
        }
        if let Some(value) = stored.filter(|_| doubt) {
            self.swap_pointer::<T>(plain(value));
        }
        // From now on its expiry is known without asking, so a re-timing must be heard of.
        neighbours::mark(self.salt());
    }

    /// Lets the server collect a key at `due` that was empty until now: there is no expiry to ask for.
    pub fn collect_new_at(&mut self, due: Option<Instant>) {
        if let Some(due) = due {
            // SAFETY: opened for writing and not empty.
            unsafe { api!(RedisModule_SetAbsExpire)(self.raw, due.ceil_ms()) };
        }
        neighbours::mark(self.salt());
    }

    /// The same value under a pointer with another bit of doubt.
    fn swap_pointer<T: NativeType>(&mut self, value: *mut c_void) {
        let mut same = std::ptr::null_mut();
        // SAFETY: opened for writing and of type T. What comes back is the value itself: it is not freed.
        unsafe { api!(RedisModule_ModuleTypeReplaceValue)(self.raw, handle_of::<T>(), value, &mut same) };
    }

    /// Marks the expiry of a key as doubtful if it holds a `T`. True if it did.
    pub fn doubt<T: NativeType>(&mut self) -> bool {
        let stored = self.stored::<T>();
        if let Some(value) = stored.filter(|value| !is_doubted(*value)) {
            self.swap_pointer::<T>(doubted(value));
        }
        stored.is_some()
    }

    /// A value that came by another way than a command can be listed, if it is a `T`. True if it was.
    pub fn enter_registry<T: NativeType>(&self, db: i32) -> bool {
        let stored = self.stored::<T>();
        if let Some(value) = stored {
            // SAFETY: the value of a key that is open.
            unsafe { enter_registry::<T>(plain(value), db, self.name()) };
        }
        stored.is_some()
    }

    /// The slot of its value, if that is listed as `kind`.
    pub fn slot(&self, kind: OverviewKind) -> Option<Slot> {
        fn of<T: NativeType>(key: &Key<'_>) -> Option<Slot> {
            // SAFETY: the value of a key that is open.
            key.stored::<T>().and_then(|value| unsafe { T::slot(plain(value)) }).map(Cell::get)
        }
        match kind {
            OverviewKind::Breaker => of::<Boxed<Breaker>>(self),
            OverviewKind::Lock => of::<Waited<Locks>>(self),
            OverviewKind::Bulkhead => of::<Waited<Bulkheads>>(self),
            OverviewKind::Policy => of::<Waited<Guards>>(self),
            OverviewKind::Dlq => of::<Waited<Ledgers>>(self),
            OverviewKind::Run => of::<Waited<Idempotency>>(self),
            OverviewKind::Load => of::<Waited<Flights>>(self),
        }
    }

    /// Opens a key that a notification of the server has named, outside any command of ours.
    pub fn notified(ctx: *mut raw::RedisModuleCtx, name: *mut raw::RedisModuleString) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }
}

/// A number of a name's own.
pub fn salt_of(name: &[u8]) -> u64 {
    let mut salt = name.len() as u64;
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        salt = (salt ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    salt
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; null is allowed.
        unsafe { api!(RedisModule_CloseKey)(self.raw) };
    }
}
