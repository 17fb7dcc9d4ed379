//! `resil-brk`: a circuit breaker, boxed.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::circuit_breaker::{Breaker, decode_breaker, encode_breaker};

use super::{Bytes, NativeType, malloc_size};
use crate::info::counters;

pub struct Circuit;

static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

impl Circuit {
    pub fn new_value(breaker: Breaker) -> *mut c_void {
        counters().breaker_keys.raise(1);
        Box::into_raw(Box::new(breaker)).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    pub unsafe fn get<'a>(value: *mut c_void) -> &'a mut Breaker {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<Breaker>() }
    }
}

impl NativeType for Circuit {
    const NAME: &'static CStr = c"resil-brk";

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        &HANDLE
    }

    fn decode(bytes: &[u8]) -> Option<*mut c_void> {
        decode_breaker(bytes).ok().map(Self::new_value)
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        encode_breaker(unsafe { Self::get(value) }, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { malloc_size(value) + Self::get(value).heap_bytes() }
    }

    unsafe fn parts(_value: *mut c_void) -> usize {
        // A handful of small buffers, whatever it counts.
        4
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        drop(unsafe { Box::from_raw(value.cast::<Breaker>()) });
        counters().breaker_keys.lower(1);
    }

    unsafe fn defrag(value: *mut c_void, relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) -> *mut c_void {
        // The box is nearly all of it; its small buffers stay where they are.
        relocate(value)
    }
}
