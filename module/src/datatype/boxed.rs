//! The types whose values are their state, boxed: `resil-brk`, a circuit breaker, `resil-win`, the log of a window, and
//! `resil-gen`, the generations of a cache name.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::AtomicPtr;

use redis_module::raw;
use resil_core::Plain;
use resil_core::circuit_breaker::Breaker;
use resil_core::generations::Generations;
use resil_core::window::{Window, WindowChange};
use resil_wire::overview::OverviewKind;

use super::{Bytes, MorePieces, NativeType, Relocate, TypeStatics, Value, malloc_size, relocate_vec};
use crate::call::Failure;
use crate::info::counters;
use crate::key::Key;
use crate::registry::Slot;

/// What only the server needs to know of a machine that nobody waits for.
pub trait PlainType: Plain + TypeStatics {
    /// The native type: nine characters; `SCAN ... TYPE` finds keys by it.
    const TYPE_NAME: &'static CStr;
    /// As INFO names it: `window_keys` is the number of its keys.
    const INFO_NAME: &'static str;

    /// Under what `RES.LIST` shows its keys, if it does.
    const LISTED: Option<OverviewKind> = None;
    /// What a value has beside its state: a place for its slot in the registry, if it is listed.
    type Mark: Mark;

    /// As what INFO counts it, among others of its type.
    fn group(_state: &Self) -> u8 {
        0
    }

    fn count_group(_group: u8, _by: i64) {}

    /// Whether making `edits` may need more memory than the state has.
    fn would_grow(_state: &Self, _edits: &Self::Edits) -> bool {
        false
    }

    /// Bytes on the heap beyond the box.
    fn measured(state: &mut Self) -> usize {
        Self::heap_bytes(state)
    }

    /// Its buffers move where the server wants them. Small ones may stay.
    fn relocate(_state: &mut Self, _relocate: Relocate<'_>) {}
}

/// Where a value remembers its slot, if it has one.
pub trait Mark: Default {
    fn slot(&self) -> Option<&Cell<Slot>>;
    /// As what it is counted in INFO.
    fn group(&self) -> Option<&Cell<u8>>;
}

impl Mark for () {
    fn slot(&self) -> Option<&Cell<Slot>> {
        None
    }

    fn group(&self) -> Option<&Cell<u8>> {
        None
    }
}

#[derive(Default)]
pub struct BreakerMark {
    slot: Cell<Slot>,
    group: Cell<u8>,
}

impl Mark for BreakerMark {
    fn slot(&self) -> Option<&Cell<Slot>> {
        Some(&self.slot)
    }

    fn group(&self) -> Option<&Cell<u8>> {
        Some(&self.group)
    }
}

/// What is stored.
struct Marked<S: PlainType> {
    state: S,
    mark: S::Mark,
}

pub struct Boxed<S>(PhantomData<S>);
pub type Circuit = Boxed<Breaker>;

impl<S: PlainType> Boxed<S> {
    pub fn new_value(state: S) -> *mut c_void {
        S::statics().keys.raise(1);
        S::statics().bytes.raise(Self::bytes_of(&state));
        let mark = S::Mark::default();
        if let Some(counted) = mark.group() {
            counted.set(S::group(&state));
            S::count_group(counted.get(), 1);
        }
        Box::into_raw(Box::new(Marked { state, mark })).cast()
    }

    /// As INFO counts them.
    fn bytes_of(state: &S) -> i64 {
        (size_of::<Marked<S>>() + S::bytes_about(state)) as i64
    }

    /// # Safety
    /// `value` is a live value of this type, and no other reference to it exists while this one does.
    unsafe fn get<'a>(value: *mut c_void) -> &'a mut S {
        // SAFETY: by contract.
        unsafe { &mut (*value.cast::<Marked<S>>()).state }
    }
}

impl<S: PlainType> Boxed<S> {
    /// Does `look` with the state in `key`, or with what a missing key means.
    pub fn look<R>(key: &Key<'_>, look: impl FnOnce(&S) -> R) -> Result<R, Failure> {
        Ok(match key.value::<Self>()? {
            Some(value) => look(value.get()),
            None => look(&S::default()),
        })
    }
}

impl<S: PlainType> Value<Boxed<S>> {
    pub fn get(&self) -> &S {
        // SAFETY: the value of a key that is open.
        unsafe { Boxed::get(self.raw) }
    }

    pub fn get_mut(&mut self) -> &mut S {
        // SAFETY: as above; nothing else refers to it meanwhile.
        unsafe { Boxed::get(self.raw) }
    }
}

impl<S: PlainType> Value<Boxed<S>> {
    /// How many bytes it takes.
    pub fn bytes(&self) -> i64 {
        Boxed::bytes_of(self.get())
    }

    /// The state has changed: it may be counted as something else, and no longer as so many bytes.
    pub fn recount(&self, bytes_before: i64) {
        let bytes = self.bytes();
        if bytes != bytes_before {
            S::statics().bytes.raise(bytes - bytes_before);
        }
        // SAFETY: the value of a key that is open; nobody else refers to the mark.
        let mark = unsafe { &(*self.raw.cast::<Marked<S>>()).mark };
        if let Some(counted) = mark.group() {
            let (before, after) = (counted.get(), S::group(self.get()));
            if before != after {
                counted.set(after);
                S::count_group(before, -1);
                S::count_group(after, 1);
            }
        }
    }
}

impl<S: PlainType> NativeType for Boxed<S> {
    const NAME: &'static CStr = S::TYPE_NAME;

    fn handle() -> &'static AtomicPtr<raw::RedisModuleType> {
        &S::statics().handle
    }

    fn decode(bytes: &[u8], _more: MorePieces<'_>) -> Option<*mut c_void> {
        S::decode(bytes).ok().map(Self::new_value)
    }

    unsafe fn encode(value: *mut c_void, out: &mut Bytes) {
        // SAFETY: by contract.
        S::encode(unsafe { Self::get(value) }, out);
    }

    unsafe fn heap_bytes(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        unsafe { malloc_size(value) + S::measured(Self::get(value)) }
    }

    unsafe fn parts(value: *mut c_void) -> usize {
        // SAFETY: by contract.
        S::parts(unsafe { Self::get(value) })
    }

    unsafe fn copy(value: *mut c_void) -> *mut c_void {
        // SAFETY: by contract.
        Self::new_value(unsafe { Self::get(value) }.clone())
    }

    unsafe fn free(value: *mut c_void) {
        // SAFETY: the box is given back once.
        let marked = unsafe { Box::from_raw(value.cast::<Marked<S>>()) };
        if let Some(counted) = marked.mark.group() {
            S::count_group(counted.get(), -1);
        }
        S::statics().bytes.lower(Self::bytes_of(&marked.state));
        drop(marked);
        S::statics().keys.lower(1);
    }

    const LISTED: Option<OverviewKind> = S::LISTED;

    unsafe fn slot<'a>(value: *mut c_void) -> Option<&'a Cell<Slot>> {
        // SAFETY: by contract; nothing else refers to the mark.
        unsafe { (*value.cast::<Marked<S>>()).mark.slot() }
    }

    unsafe fn defrag(value: *mut c_void, relocate: Relocate<'_>) -> *mut c_void {
        // SAFETY: by contract.
        S::relocate(unsafe { Self::get(value) }, relocate);
        relocate(value)
    }
}

impl PlainType for Breaker {
    const TYPE_NAME: &'static CStr = c"resil-brk";
    const INFO_NAME: &'static str = "breaker";
    const LISTED: Option<OverviewKind> = Some(OverviewKind::Breaker);
    type Mark = BreakerMark;

    fn group(breaker: &Self) -> u8 {
        breaker.name() as u8
    }

    fn count_group(group: u8, by: i64) {
        if let Some(states) = counters().breaker.states.get(usize::from(group)) {
            states.raise(by);
        }
    }
}

impl PlainType for Generations {
    const TYPE_NAME: &'static CStr = c"resil-gen";
    const INFO_NAME: &'static str = "generations";
    type Mark = ();
}

impl PlainType for Window {
    const TYPE_NAME: &'static CStr = c"resil-win";
    const INFO_NAME: &'static str = "window";
    type Mark = ();

    fn would_grow(window: &Self, change: &WindowChange) -> bool {
        window.would_grow(change)
    }

    /// As the allocator has it: the log is one long buffer.
    fn measured(window: &mut Self) -> usize {
        let entries = window.entries_mut();
        // SAFETY: an empty vector has no allocation to measure.
        if entries.capacity() == 0 { 0 } else { unsafe { malloc_size(entries.as_mut_ptr().cast()) } }
    }

    fn relocate(window: &mut Self, relocate: Relocate<'_>) {
        // SAFETY: the server moves the buffer as a whole.
        unsafe { relocate_vec(window.entries_mut(), relocate) };
    }
}
