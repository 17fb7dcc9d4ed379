//! The native types of the machines that can be waited for: `resil-lck`, `resil-blk`, `resil-idm`, `resil-sfl`. A value is
//! the state, boxed, with a note of when it is looked at.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::Instant;

use super::{Bytes, NativeType, malloc_size};
use crate::chores::{self, Chore};
use crate::fences;
use crate::lines::Name;
use crate::machine::Machine;

/// What is stored.
pub struct Stored<M: Machine> {
    pub state: M::State,
    /// The instant at which this key is looked at without being asked; 0 if there is none. Volatile: it belongs to the
    /// key's present name, and not to its copies.
    pub armed_us: i64,
}

impl<M: Machine> Default for Stored<M> {
    fn default() -> Self {
        Self { state: M::State::default(), armed_us: 0 }
    }
}

pub struct Waited<M>(PhantomData<M>);

impl<M: Machine> Waited<M> {
    pub fn new_value(state: M::State) -> *mut c_void {
        M::keys().raise(1);
        Box::into_raw(Box::new(Stored::<M> { state, armed_us: 0 })).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    pub unsafe fn get<'a>(value: *mut c_void) -> &'a mut Stored<M> {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<Stored<M>>() }
    }
}

impl<M: Machine> NativeType for Waited<M> {
    const NAME: &'static CStr = M::TYPE_NAME;
    const HAS_AUX: bool = M::CARRIES_FENCES;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        M::type_handle()
    }

    fn decode(bytes: &[u8]) -> Option<*mut c_void> {
        let state = M::decode(bytes)?;
        fences::believe(M::last_fence(&state)).then(|| Self::new_value(state))
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        M::encode(&unsafe { Self::get(value) }.state, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { malloc_size(value) + M::heap_bytes(&Self::get(value).state) }
    }

    unsafe fn parts(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        M::parts(&unsafe { Self::get(value) }.state)
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.state.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        drop(unsafe { Box::from_raw(value.cast::<Stored<M>>()) });
        M::keys().lower(1);
    }

    unsafe fn unlinked(value: *mut c_void, db: i32, name: &[u8]) {
        // SAFETY: by contract.
        let stored = unsafe { Self::get(value) };
        let armed_us = std::mem::take(&mut stored.armed_us);
        if armed_us != 0 {
            chores::sleep(Instant::from_us(armed_us), M::KIND, db, name);
        }
        chores::key_left::<M>(db, name, &stored.state);
    }

    unsafe fn arrived(_value: *mut c_void, db: i32, name: &[u8]) {
        // A file's keys are searched for when all of it is there.
        if !fences::is_loading() {
            chores::add(Name::new(M::KIND, db, name), Chore::Look);
        }
    }

    fn aux() -> (u64, u64) {
        fences::for_snapshot()
    }

    fn load_aux((highest, ahead_us): (u64, u64)) {
        fences::from_snapshot(highest, ahead_us);
    }

    unsafe fn defrag(value: *mut c_void, relocate: &mut dyn FnMut(*mut c_void) -> *mut c_void) -> *mut c_void {
        // The box is nearly all of it; texts and trees stay where they are.
        relocate(value)
    }
}
