//! The native types of the machines that can be waited for: `resil-lck`, `resil-blk`, `resil-idm`, `resil-sfl`. A value is
//! the state, boxed, with a note of when it is looked at.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::Instant;
use resil_wire::overview::OverviewKind;

use super::{Bytes, MorePieces, NativeType, Relocate, malloc_size, relist};
use crate::call::Failure;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::pending::{self, Task};
use crate::queues::KeyName;
use crate::registry::Slot;
use crate::share::{Header, Pointer};
use crate::{fences, server, timers};

/// What is stored: who shares it and when it is looked at, and the state.
#[repr(C)]
pub struct Stored<M: ServerMachine> {
    pub header: Header,
    pub state: M::State,
}

impl<M: ServerMachine> Default for Stored<M> {
    fn default() -> Self {
        Self { header: Header::default(), state: M::State::default() }
    }
}

pub struct Waited<M>(PhantomData<M>);

impl<M: ServerMachine> Waited<M> {
    pub fn new_value(state: M::State) -> *mut c_void {
        M::keys().raise(1);
        weigh::<M>(0, &state);
        Box::into_raw(Box::new(Stored::<M> { header: Header::default(), state })).cast()
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    pub unsafe fn get<'a>(value: *mut c_void) -> &'a mut Stored<M> {
        // SAFETY: by contract.
        unsafe { &mut *value.cast::<Stored<M>>() }
    }
}

/// The state weighs something else than before.
pub fn weigh<M: ServerMachine>(before: usize, state: &M::State) {
    let after = M::weight(state);
    if before != after {
        M::bytes().raise(after as i64 - before as i64);
    }
}

/// The value of a key that a command or a timer has open. It is not kept beyond the key, and nothing else refers to it
/// meanwhile: [`Opened`](crate::waited_key::Opened) and `apply` have it together with the key.
pub struct Live<M: ServerMachine>(NonNull<Stored<M>>);

impl<M: ServerMachine> Live<M> {
    /// A value to be put into a key.
    pub fn new(state: M::State) -> Option<Self> {
        NonNull::new(Waited::<M>::new_value(state).cast()).map(Self)
    }

    /// The value of `key`; `None` if there is no key, WRONGTYPE for anything else.
    pub fn of(key: &Key<'_>) -> Result<Option<Self>, Failure> {
        Ok(key.value::<Waited<M>>()?.and_then(|value| NonNull::new(value.as_raw().cast())).map(Self))
    }

    pub fn as_raw(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    pub fn state(&self) -> &M::State {
        // SAFETY: the value lives as long as its key is open.
        unsafe { &self.0.as_ref().state }
    }

    pub fn state_mut(&mut self) -> &mut M::State {
        // SAFETY: as above; this is the only reference to it.
        unsafe { &mut self.0.as_mut().state }
    }

    /// How many may hold it, as the newest call that this server has seen said.
    pub fn newest_max(&self) -> Option<u32> {
        Some(self.pointer().header().newest_max().get()).filter(|max| *max > 0)
    }

    pub fn set_newest_max(&self, max: u32) {
        self.pointer().header().newest_max().set(max);
    }

    /// It was changed where it is: it can be listed from now on, or no longer.
    pub fn relist(&self, key: &Key<'_>) {
        // SAFETY: as above.
        unsafe { relist::<Waited<M>>(self.as_raw(), || (key.db(), key.name())) };
    }

    pub fn set_timer(&self, db: i32, name: &[u8], at: Instant) {
        timers::set::<M>(db, name, self.pointer(), at);
    }

    pub fn clear_timer(&self, db: i32) {
        timers::clear::<M>(db, self.pointer());
    }

    pub fn pointer(&self) -> Pointer {
        // SAFETY: as above, and it is not null.
        unsafe { Pointer::new(self.as_raw()).unwrap_unchecked() }
    }
}

impl<M: ServerMachine> NativeType for Waited<M> {
    const NAME: &'static CStr = M::TYPE_NAME;
    const HAS_AUX: bool = M::CARRIES_FENCES;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        M::type_handle()
    }

    fn decode(first: &[u8], more: MorePieces<'_>) -> Option<*mut c_void> {
        let mut state = M::decode(first).ok()?;
        let mut is_last = !M::IN_PIECES;
        while !is_last {
            more(&mut |piece| {
                is_last = piece.is_empty();
                if is_last { Some(()) } else { M::load_piece(&mut state, piece).ok() }
            })?;
        }
        M::loaded(&mut state);
        (M::is_whole(&state) && fences::believe(M::last_fence(&state))).then(|| Self::new_value(state))
    }

    const IN_PIECES: bool = M::IN_PIECES;

    unsafe fn encode_pieces(value: *mut c_void, emit: &mut dyn FnMut(&[u8])) {
        // SAFETY: by contract.
        M::encode_pieces(&unsafe { Self::get(value) }.state, emit);
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
        if M::IN_PIECES {
            // It can be too large to be copied while everybody waits: the server refuses.
            return std::ptr::null_mut();
        }
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.state.clone())
    }

    unsafe fn free(value: *mut c_void) {
        M::keys().lower(1);
        // SAFETY: by contract.
        M::bytes().lower(M::weight(&unsafe { Self::get(value) }.state) as i64);
        // SAFETY: by contract; the server gives its own share back once.
        drop(unsafe { Pointer::new(value) }.map(|value| value.kept(M::KIND)));
    }

    unsafe fn unlinked<'n>(value: *mut c_void, db: i32, name: impl FnOnce() -> &'n [u8]) {
        // SAFETY: by contract.
        if let Some(value) = unsafe { Pointer::new(value) } {
            pending::key_left::<M>(db, name, value);
        }
    }

    const LISTED: Option<OverviewKind> = M::LISTED;

    unsafe fn is_listed(value: *mut c_void) -> bool {
        // SAFETY: by contract.
        M::LISTED.is_some() && M::is_listed(&unsafe { Self::get(value) }.state)
    }

    unsafe fn slot<'a>(value: *mut c_void) -> Option<&'a Cell<Slot>> {
        // SAFETY: by contract.
        M::LISTED.map(|_| unsafe { &*value.cast::<Header>() }.slot())
    }

    unsafe fn arrived(_value: *mut c_void, db: i32, name: &[u8]) {
        // A file's keys are searched for when all of it is there.
        if !server::is_loading() {
            pending::add(KeyName::new(M::KIND, db, name), Task::Serve);
        }
    }

    fn aux() -> (u64, u64) {
        fences::for_snapshot()
    }

    fn load_aux((highest, ahead_us): (u64, u64)) {
        fences::from_snapshot(highest, ahead_us);
    }

    unsafe fn defrag(value: *mut c_void, relocate: Relocate<'_>) -> *mut c_void {
        // The box is nearly all of it; texts and trees stay where they are. A value with a timer stays as well: the
        // timer's entry points to it.
        // SAFETY: by contract.
        if unsafe { Self::get(value) }.header.is_unshared() { relocate(value) } else { value }
    }
}
