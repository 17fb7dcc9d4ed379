//! A value that the server and the entry of its timer share: the last to let go frees it, on any thread.
//!
//! A [`Pointer`] is the value itself, a [`Share`] keeps it alive. A pointer that is kept beyond its key stands for a share.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering::AcqRel, Ordering::Relaxed};

use crate::datatype::waited::Stored;
use crate::machines::{Kind, ServerMachine, for_kind};
use crate::registry::Slot;

/// What every value begins with: who shares it, and where its timer is. Volatile: it belongs to the key's present name.
///
/// Only the main thread touches it, but for `shares`: the server also frees values on other threads.
#[repr(C)]
pub struct Header {
    /// How many share the value, the server among them.
    shares: AtomicU16,
    /// Which list has its entry; 0 if none has.
    era: Cell<u16>,
    /// The number of its entry there, and whether the key was noted as gone.
    number: Cell<u32>,
    /// Its slot in the registry.
    slot: Cell<Slot>,
    /// How many may hold it, as the newest call said; 0: not known. Only bulkheads say so.
    newest_max: Cell<u32>,
}

/// The bit of `number` that says so.
const GONE: u32 = 1 << 31;

impl Default for Header {
    fn default() -> Self {
        let none = || Cell::new(0);
        Self { shares: AtomicU16::new(1), era: Cell::new(0), number: none(), slot: none(), newest_max: none() }
    }
}

impl Header {
    /// Its list, and its number there.
    pub fn place(&self) -> (u16, u32) {
        (self.era.get(), self.number.get() & !GONE)
    }

    /// It has an entry in a list, or, with two zeros, none.
    pub fn set_place(&self, era: u16, number: u32) {
        self.era.set(era);
        self.number.set(number);
    }

    /// Its entry has another number.
    pub fn renumber(&self, number: u32) {
        self.number.set(self.number.get() & GONE | number);
    }

    pub fn slot(&self) -> &Cell<Slot> {
        &self.slot
    }

    pub fn newest_max(&self) -> &Cell<u32> {
        &self.newest_max
    }

    /// True if the key was noted as gone.
    pub fn is_gone(&self) -> bool {
        self.number.get() & GONE != 0
    }

    pub fn mark_gone(&self) {
        self.number.set(self.number.get() | GONE);
    }

    /// Nobody but the server has the value: it may be moved in memory.
    pub fn is_unshared(&self) -> bool {
        self.shares.load(Relaxed) == 1
    }
}

/// A value of a key that is open, or a share that an entry or a note keeps.
#[derive(Clone, Copy)]
pub struct Pointer(NonNull<Header>);

impl Pointer {
    /// # Safety
    /// `value` is a live value of a machine that can be waited for. What is made of it is used while it lives.
    pub unsafe fn new(value: *mut c_void) -> Option<Self> {
        NonNull::new(value.cast()).map(Self)
    }

    pub fn header(&self) -> &Header {
        // SAFETY: it lives, by the contract of `new`; only the main thread asks.
        unsafe { self.0.as_ref() }
    }

    /// One more shares the value.
    pub fn share(self, kind: Kind) -> Share {
        // The key is still there: no other thread frees the value, so that nothing changes the number between the two steps.
        let shares = &self.header().shares;
        shares.store(shares.load(Relaxed) + 1, Relaxed);
        Share { kind, value: self }
    }

    /// One more shares the value, and keeps its pointer instead of the share.
    pub fn keep(self, kind: Kind) {
        std::mem::forget(self.share(kind));
    }

    /// The share that a kept pointer stands for.
    pub fn kept(self, kind: Kind) -> Share {
        Share { kind, value: self }
    }
}

/// A share of a value, let go when dropped.
pub struct Share {
    kind: Kind,
    value: Pointer,
}

impl Share {
    pub fn header(&self) -> &Header {
        self.value.header()
    }

    /// The state, which nobody changes any more once its key is gone.
    pub fn state<M: ServerMachine>(&self) -> &M::State {
        assert!(self.kind == M::KIND, "a value of another machine");
        // SAFETY: the share keeps the value alive; it is an M's.
        unsafe { &self.value.0.cast::<Stored<M>>().as_ref().state }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // SAFETY: the share keeps the value alive until here; the last one frees it.
        unsafe {
            if self.header().shares.fetch_sub(1, AcqRel) == 1 {
                for_kind!(self.kind, M => free(Box::from_raw(self.value.0.cast::<Stored<M>>().as_ptr())));
            }
        }
    }
}

/// More parts than this are freed on another thread: it takes longer than the main thread may be held.
const MANY_PARTS: usize = 1_000;

fn free<M: ServerMachine>(value: Box<Stored<M>>) {
    if M::parts(&value.state) > MANY_PARTS {
        // Without a thread it is freed here.
        let _freed = std::thread::Builder::new().spawn(move || drop(value));
    }
}
