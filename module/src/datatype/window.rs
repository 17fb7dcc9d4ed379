//! `resil-win`: the log of a sliding window, boxed.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::codec;
use resil_core::window::Window;

use super::{Bytes, NativeType, malloc_size, relocate_vec};
use crate::info::counters;

pub struct Log;

static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

impl Log {
    pub fn new_value(window: Window) -> *mut c_void {
        counters().window_keys.raise(1);
        Box::into_raw(Box::new(window)).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    pub unsafe fn get<'a>(value: *mut c_void) -> &'a mut Window {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<Window>() }
    }
}

impl NativeType for Log {
    const NAME: &'static CStr = c"resil-win";

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        &HANDLE
    }

    fn decode(bytes: &[u8]) -> Option<*mut c_void> {
        codec::decode_log(bytes).ok().map(Self::new_value)
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        codec::encode_log(unsafe { Self::get(value) }, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract; an empty vector has no allocation to measure.
        unsafe {
            let entries = Self::get(value).entries_mut();
            let log = if entries.capacity() == 0 { 0 } else { malloc_size(entries.as_mut_ptr().cast()) };
            malloc_size(value) + log
        }
    }

    unsafe fn parts(_value: *mut c_void) -> usize {
        // A box and one buffer, however long the log.
        2
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        drop(unsafe { Box::from_raw(value.cast::<Window>()) });
        counters().window_keys.lower(1);
    }

    unsafe fn defrag(value: *mut c_void, relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        unsafe { relocate_vec(Self::get(value).entries_mut(), relocate) };
        relocate(value)
    }
}
