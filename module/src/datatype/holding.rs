//! `resil-lck` and `resil-blk`: the holders of a lock and of a bulkhead, boxed, with a note of when they are looked at.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::lock::{Holders, Kind, decode_holders, encode_holders};

use super::{Bytes, NativeType, malloc_size};
use crate::info::{Gauge, counters};
use crate::{chores, fences};

/// What is stored.
#[derive(Default)]
pub struct Stored {
    pub holders: Holders,
    /// The instant at which this key is looked at without being asked; 0 if there is none. Volatile: it belongs to the
    /// key's present name, and not to its copies.
    pub armed_us: i64,
}

/// A lock's or a bulkhead's native type.
pub trait HoldingType {
    const KIND: Kind;
    const NAME: &'static CStr;
    const HAS_AUX: bool;
    fn handle() -> &'static AtomicPtr<raw::RedisModuleType>;
    fn gauge() -> &'static Gauge;
}

pub struct Locks;

impl HoldingType for Locks {
    const KIND: Kind = Kind::Lock;
    const NAME: &'static CStr = c"resil-lck";
    // Fences are the server's, not a type's: one of the two carries them.
    const HAS_AUX: bool = true;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());
        &HANDLE
    }

    fn gauge() -> &'static Gauge {
        &counters().lock_keys
    }
}

pub struct Bulkheads;

impl HoldingType for Bulkheads {
    const KIND: Kind = Kind::Bulkhead;
    const NAME: &'static CStr = c"resil-blk";
    const HAS_AUX: bool = false;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());
        &HANDLE
    }

    fn gauge() -> &'static Gauge {
        &counters().bulkhead_keys
    }
}

pub struct Holding<T>(PhantomData<T>);

impl<T: HoldingType> Holding<T> {
    pub fn new_value(holders: Holders) -> *mut c_void {
        T::gauge().raise(1);
        Box::into_raw(Box::new(Stored { holders, armed_us: 0 })).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    pub unsafe fn get<'a>(value: *mut c_void) -> &'a mut Stored {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<Stored>() }
    }
}

impl<T: HoldingType> NativeType for Holding<T> {
    const NAME: &'static CStr = T::NAME;
    const HAS_AUX: bool = T::HAS_AUX;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        T::handle()
    }

    fn decode(bytes: &[u8]) -> Option<*mut c_void> {
        let (kind, holders) = decode_holders(bytes).ok()?;
        if kind != T::KIND {
            return None;
        }
        fences::loaded(holders.last_fence());
        Some(Self::new_value(holders))
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        encode_holders(T::KIND, &unsafe { Self::get(value) }.holders, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { malloc_size(value) + Self::get(value).holders.heap_bytes() }
    }

    unsafe fn parts(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { Self::get(value) }.holders.parts()
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.holders.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        drop(unsafe { Box::from_raw(value.cast::<Stored>()) });
        T::gauge().lower(1);
    }

    unsafe fn unlinked(value: *mut c_void, db: i32, name: &[u8]) {
        // SAFETY: by contract.
        let stored = unsafe { Self::get(value) };
        stored.armed_us = 0;
        chores::key_left(T::KIND, db, name, &stored.holders);
    }

    fn aux() -> u64 {
        fences::highest()
    }

    fn load_aux(number: u64) {
        fences::heard_of(number);
    }

    unsafe fn defrag(value: *mut c_void, relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) -> *mut c_void {
        // The box is nearly all of it; texts and trees stay where they are.
        relocate(value)
    }
}
