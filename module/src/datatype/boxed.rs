//! The types whose values are their state, boxed: `resil-brk`, a circuit breaker, and `resil-win`, the log of a window.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::Instant;
use resil_core::circuit_breaker::{Breaker, decode_breaker, encode_breaker};
use resil_core::codec;
use resil_core::window::Window;

use super::{Bytes, NativeType, Relocate, Value, malloc_size, relocate_vec};
use crate::info::{Gauge, counters};

/// A state that is stored as it is.
pub trait BoxedState: Clone + Default {
    /// The native type: nine characters; `SCAN ... TYPE` finds keys by it.
    const TYPE_NAME: &'static CStr;
    fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType>;
    fn keys() -> &'static Gauge;
    fn decode(bytes: &[u8]) -> Option<Self>;
    fn encode(&self, out: &mut Bytes);
    /// When nothing in it can matter any more.
    fn collect_at(&self, salt: u64) -> Option<Instant>;
    /// Bytes on the heap beyond the box.
    fn heap_bytes(&mut self) -> usize;
    /// Its buffers move where the server wants them. Small ones may stay.
    fn relocate(&mut self, _relocate: Relocate<'_>) {}
}

pub struct Boxed<S>(PhantomData<S>);
pub type Circuit = Boxed<Breaker>;
pub type Log = Boxed<Window>;

impl<S: BoxedState> Boxed<S> {
    pub fn new_value(state: S) -> *mut c_void {
        S::keys().raise(1);
        Box::into_raw(Box::new(state)).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    unsafe fn get<'a>(value: *mut c_void) -> &'a mut S {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<S>() }
    }
}

impl<S: BoxedState> Value<Boxed<S>> {
    pub fn get(&self) -> &S {
        // SAFETY: the value of a key that is open.
        unsafe { Boxed::get(self.raw) }
    }

    pub fn get_mut(&mut self) -> &mut S {
        // SAFETY: as above; nothing else refers to it meanwhile.
        unsafe { Boxed::get(self.raw) }
    }
}

impl<S: BoxedState> NativeType for Boxed<S> {
    const NAME: &'static CStr = S::TYPE_NAME;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        S::type_handle()
    }

    fn decode(bytes: &[u8]) -> Option<*mut c_void> {
        S::decode(bytes).map(Self::new_value)
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        unsafe { Self::get(value) }.encode(out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { malloc_size(value) + Self::get(value).heap_bytes() }
    }

    unsafe fn parts(_value: *mut c_void) -> usize {
        // A handful of buffers, whatever it counts.
        4
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        drop(unsafe { Box::from_raw(value.cast::<S>()) });
        S::keys().lower(1);
    }

    unsafe fn defrag(value: *mut c_void, relocate: Relocate<'_>) -> *mut c_void {
        // SAFETY: by contract.
        unsafe { Self::get(value) }.relocate(relocate);
        relocate(value)
    }
}

impl BoxedState for Breaker {
    const TYPE_NAME: &'static CStr = c"resil-brk";

    fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());
        &HANDLE
    }

    fn keys() -> &'static Gauge {
        &counters().breaker_keys
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        decode_breaker(bytes).ok()
    }

    fn encode(&self, out: &mut Bytes) {
        encode_breaker(self, out);
    }

    fn collect_at(&self, salt: u64) -> Option<Instant> {
        self.gc_at(salt)
    }

    fn heap_bytes(&mut self) -> usize {
        Self::heap_bytes(self)
    }
}

impl BoxedState for Window {
    const TYPE_NAME: &'static CStr = c"resil-win";

    fn type_handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());
        &HANDLE
    }

    fn keys() -> &'static Gauge {
        &counters().window_keys
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        codec::decode_log(bytes).ok()
    }

    fn encode(&self, out: &mut Bytes) {
        codec::encode_log(self, out);
    }

    fn collect_at(&self, salt: u64) -> Option<Instant> {
        Some(self.gc_at(salt))
    }

    fn heap_bytes(&mut self) -> usize {
        let entries = self.entries_mut();
        // SAFETY: an empty vector has no allocation to measure.
        if entries.capacity() == 0 { 0 } else { unsafe { malloc_size(entries.as_mut_ptr().cast()) } }
    }

    fn relocate(&mut self, relocate: Relocate<'_>) {
        // SAFETY: the server moves the buffer as a whole.
        unsafe { relocate_vec(self.entries_mut(), relocate) };
    }
}
