//! The native types of machines that nobody waits for: `resil-win`, `resil-brk`. A value is the state, boxed.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::{Plain, Stored};

use super::{Bytes, NativeType, TypeStatics, malloc_size};
use crate::call::Failure;
use crate::key::Key;

/// What only the server needs to know of a machine that nobody waits for.
pub trait PlainType: Plain + TypeStatics {
    /// The native type: nine characters; `SCAN ... TYPE` finds keys by it.
    const TYPE_NAME: &'static CStr;
    /// As INFO names it: `window_keys` is the number of its keys.
    const INFO_NAME: &'static str;

    /// Whether making `edits` may need more memory than the state has.
    fn would_grow(_state: &Self, _edits: &Self::Edits) -> bool {
        false
    }

    /// Bytes beside the box.
    fn heap_bytes(state: &mut Self) -> usize {
        <Self as Stored>::heap_bytes(state)
    }

    /// Moves allocations beside the box where the server wants them. Small ones may stay where they are.
    fn defrag(_state: &mut Self, _relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) {}
}

pub struct Boxed<M>(PhantomData<M>);

impl<M: PlainType> Boxed<M> {
    pub fn new_value(state: M) -> *mut c_void {
        M::statics().keys.raise(1);
        Box::into_raw(Box::new(state)).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    pub unsafe fn get<'a>(value: *mut c_void) -> &'a mut M {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<M>() }
    }

    /// Does `look` with the state in `key`, or with what a missing key means.
    pub fn look<R>(key: &Key<'_>, look: impl FnOnce(&M) -> R) -> Result<R, Failure> {
        Ok(match key.value::<Self>()? {
            // SAFETY: the value of the open key, only read.
            Some(value) => look(unsafe { Self::get(value) }),
            None => look(&M::default()),
        })
    }
}

impl<M: PlainType> NativeType for Boxed<M> {
    const NAME: &'static CStr = M::TYPE_NAME;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        &M::statics().handle
    }

    fn decode(bytes: &[u8]) -> Option<*mut c_void> {
        M::decode(bytes).ok().map(Self::new_value)
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        M::encode(unsafe { Self::get(value) }, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { malloc_size(value) + PlainType::heap_bytes(Self::get(value)) }
    }

    unsafe fn parts(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        M::parts(unsafe { Self::get(value) })
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        drop(unsafe { Box::from_raw(value.cast::<M>()) });
        M::statics().keys.lower(1);
    }

    unsafe fn defrag(value: *mut c_void, relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        M::defrag(unsafe { Self::get(value) }, relocate);
        relocate(value)
    }
}
