//! `resil-gcr`: the tiers of a GCRA key, in as few bytes as they allow.
//!
//! The server keeps one pointer per value. Its two low bits, free because allocations are aligned, say what it
//! points to:
//!
//! ```text
//!   ...00  Packed     16 bytes   one tier of the usual size
//!   ...01  Tier       32 bytes   one tier with larger numbers, or a reservation
//!   ...10  Vec<Tier>             several tiers
//! ```

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::codec;
use resil_core::rate_limit::{Packed, Tier, TierSet};

use super::{Bytes, MorePieces, NativeType, Relocate, Value, malloc_size, relocate_vec};
use crate::info::counters;

pub struct Tiers;

const PACKED: usize = 0;
const ONE: usize = 1;
const MANY: usize = 2;
const TAGS: usize = 3;

static HANDLE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

fn tagged<T>(value: T, tag: usize, more_bytes: usize) -> *mut c_void {
    counters().gcra_keys.raise(1);
    counters().gcra_bytes.raise((size_of::<T>() + more_bytes) as i64);
    Box::into_raw(Box::new(value)).cast::<c_void>().map_addr(|addr| addr | tag)
}

/// Frees what `tagged` made.
fn given_back<T>(value: Box<T>, more_bytes: usize) {
    drop(value);
    counters().gcra_keys.lower(1);
    counters().gcra_bytes.lower((size_of::<T>() + more_bytes) as i64);
}

fn buffer_bytes(tiers: &Vec<Tier>) -> usize {
    tiers.capacity() * size_of::<Tier>()
}

fn untagged<T>(value: *mut c_void) -> *mut T {
    value.map_addr(|addr| addr & !TAGS).cast()
}

impl Tiers {
    /// A new value holding `tiers`, which are not empty.
    pub fn new_value(tiers: &[Tier]) -> *mut c_void {
        match tiers {
            [tier] => match Packed::pack(tier) {
                Some(packed) => tagged(packed, PACKED, 0),
                None => tagged(*tier, ONE, 0),
            },
            several => {
                let tiers = several.to_vec();
                let bytes = buffer_bytes(&tiers);
                tagged(tiers, MANY, bytes)
            }
        }
    }

    /// # Safety
    /// `value` is a live value of this type, here and below.
    unsafe fn read(value: *mut c_void) -> TierSet {
        // SAFETY: the tag says what the pointer was made from.
        unsafe {
            match value.addr() & TAGS {
                PACKED => core::iter::once((*untagged::<Packed>(value)).unpack()).collect(),
                ONE => core::iter::once(*untagged::<Tier>(value)).collect(),
                _ => TierSet::from_slice(&*untagged::<Vec<Tier>>(value)),
            }
        }
    }

    /// # Safety
    /// As above, and nobody else holds a reference into it.
    unsafe fn overwrite(value: *mut c_void, tiers: &[Tier]) -> bool {
        // SAFETY: the tag says what the pointer was made from.
        unsafe {
            match (value.addr() & TAGS, tiers) {
                (PACKED, [tier]) => match Packed::pack(tier) {
                    Some(packed) => *untagged::<Packed>(value) = packed,
                    None => return false,
                },
                (ONE, [tier]) if Packed::pack(tier).is_none() => *untagged::<Tier>(value) = *tier,
                (MANY, several) if several.len() > 1 => {
                    let stored = &mut *untagged::<Vec<Tier>>(value);
                    let bytes = buffer_bytes(stored);
                    stored.clear();
                    stored.extend_from_slice(several);
                    counters().gcra_bytes.raise(buffer_bytes(stored) as i64 - bytes as i64);
                }
                _ => return false,
            }
        }
        true
    }
}

impl Value<Tiers> {
    /// The stored tiers.
    pub fn read(&self) -> TierSet {
        // SAFETY: the value of a key that is open.
        unsafe { Tiers::read(self.raw) }
    }

    /// Overwrites the value where it is, if `tiers` are of the same form; false if a new value is needed.
    pub fn overwrite(self, tiers: &[Tier]) -> bool {
        // SAFETY: as above; nothing else refers to it.
        unsafe { Tiers::overwrite(self.raw, tiers) }
    }
}

impl NativeType for Tiers {
    const NAME: &'static CStr = c"resil-gcr";

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        &HANDLE
    }

    fn decode(bytes: &[u8], _more: MorePieces<'_>) -> Option<*mut c_void> {
        codec::decode_tiers(bytes).ok().map(|tiers| Self::new_value(&tiers))
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        codec::encode_tiers(&unsafe { Self::read(value) }, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract; only allocations that exist are measured.
        unsafe {
            let own = malloc_size(untagged(value));
            if value.addr() & TAGS != MANY {
                return own;
            }
            let tiers = &mut *untagged::<Vec<Tier>>(value);
            own + malloc_size(tiers.as_mut_ptr().cast())
        }
    }

    unsafe fn parts(_value: *mut c_void) -> usize {
        1
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(&unsafe { Self::read(value) })
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the tag says what the box was made from; it is given back once.
        unsafe {
            match value.addr() & TAGS {
                PACKED => given_back(Box::from_raw(untagged::<Packed>(value)), 0),
                ONE => given_back(Box::from_raw(untagged::<Tier>(value)), 0),
                _ => {
                    let tiers = Box::from_raw(untagged::<Vec<Tier>>(value));
                    let bytes = buffer_bytes(&tiers);
                    given_back(tiers, bytes);
                }
            }
        }
    }

    unsafe fn defrag(value: *mut c_void, relocate: Relocate<'_>) -> *mut c_void {
        let tag = value.addr() & TAGS;
        if tag == MANY {
            // SAFETY: the buffer is moved as a whole; length and capacity stay.
            unsafe { relocate_vec(&mut *untagged::<Vec<Tier>>(value), relocate) };
        }
        relocate(untagged(value)).map_addr(|addr| addr | tag)
    }
}
