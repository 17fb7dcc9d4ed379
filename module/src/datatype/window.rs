//! The log of a sliding window is one long buffer: it is measured, and moved, as the allocator has it.

use std::ffi::{CStr, c_void};

use resil_core::window::{Window, WindowChange};

use super::boxed::PlainType;
use super::{malloc_size, relocate_vec};

impl PlainType for Window {
    const TYPE_NAME: &'static CStr = c"resil-win";
    const INFO_NAME: &'static str = "window";

    fn would_grow(window: &Self, change: &WindowChange) -> bool {
        window.would_grow(change)
    }

    fn heap_bytes(window: &mut Self) -> usize {
        let entries = window.entries_mut();
        // SAFETY: an empty vector has no allocation to measure.
        if entries.capacity() == 0 { 0 } else { unsafe { malloc_size(entries.as_mut_ptr().cast()) } }
    }

    fn defrag(window: &mut Self, relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) {
        // SAFETY: `relocate` is the server's: it returns the same buffer, or an equal copy with the old one freed.
        unsafe { relocate_vec(window.entries_mut(), relocate) };
    }
}
