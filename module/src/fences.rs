//! The server's one floor of fences, and since when it is a primary.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::ptr::null_mut;

use redis_module::raw;
use resil_core::Instant;
use resil_core::fence::Floor;
use resil_core::limits::FENCE_AHEAD_MAX;
use resil_core::lock::Setting;

use crate::edge::api;
use crate::{clock, config};

thread_local! {
    static FLOOR: RefCell<Floor> = RefCell::new(Floor::default());
    static PROMOTED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `step` with the time and what this server knows of fences.
pub fn with_setting<R>(now: Instant, step: impl FnOnce(&mut Setting<'_>) -> R) -> R {
    FLOOR.with_borrow_mut(|floor| step(&mut Setting { now, promoted_at: promoted_at(), floor }))
}

/// When this server became a primary, if leases that lived then start anew.
pub fn promoted_at() -> Option<Instant> {
    PROMOTED_AT.get()
}

/// A fence in a value being loaded; false if it is not to be believed. A file's is. One in a payload of RESTORE is a
/// client's word: it counts for its key only, and not if it lies absurdly far ahead.
pub fn believe(fence: u64) -> bool {
    // SAFETY: a null context asks for the server's flags only.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(null_mut()) };
    if flags & raw::REDISMODULE_CTX_FLAGS_LOADING as c_int != 0 {
        heard_of(fence);
        return true;
    }
    let highest = clock::now().plus(FENCE_AHEAD_MAX).as_us().cast_unsigned().max(highest());
    fence <= highest
}

pub fn heard_of(fence: u64) {
    FLOOR.with_borrow_mut(|floor| floor.heard_of(fence));
}

pub fn highest() -> u64 {
    FLOOR.with_borrow(Floor::highest)
}

/// The server was started or loaded: others may have issued fences we have not heard of.
pub fn jump() {
    FLOOR.with_borrow_mut(|floor| floor.jump(config::fence_jump()));
}

/// The server became a primary.
pub fn promoted() {
    jump();
    PROMOTED_AT.set(config::promotion_grace().then(clock::now));
}
