//! A value that the server and the entry of its timer share: the last to let go frees it, on any thread.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering::AcqRel, Ordering::Relaxed};

use crate::datatype::waited::Stored;
use crate::machines::{Kind, ServerMachine, for_kind};

/// What every value begins with: who shares it, and where its timer is. Volatile: it belongs to the key's present name.
///
/// Only the main thread touches it, but for `shares`: the server also frees values on other threads.
#[repr(C)]
pub struct Header {
    /// How many share the value, the server among them.
    shares: AtomicU16,
    /// Which list has its entry; 0 if none has.
    pub era: u16,
    /// The number of its entry there, and whether the key was noted as gone.
    pub number: u32,
}

/// The bit of `number` that says so.
pub const GONE: u32 = 1 << 31;

impl Default for Header {
    fn default() -> Self {
        Self { shares: AtomicU16::new(1), era: 0, number: 0 }
    }
}

impl Header {
    /// Its list, and its number there.
    pub fn place(&self) -> (u16, u32) {
        (self.era, self.number & !GONE)
    }

    /// True if the key was noted as gone.
    pub fn is_gone(&self) -> bool {
        self.number & GONE != 0
    }

    pub fn mark_gone(&mut self) {
        self.number |= GONE;
    }

    /// Nobody but the server has the value: it may be moved in memory.
    pub fn is_unshared(&self) -> bool {
        self.shares.load(Relaxed) == 1
    }
}

/// A share of a value, let go when dropped.
pub struct Share {
    pub kind: Kind,
    pub header: NonNull<Header>,
}

impl Share {
    pub fn new(kind: Kind, header: NonNull<Header>) -> Self {
        // SAFETY: callers have a live value, whose key is still there: no other thread frees it, so that nothing changes the
        // number between the two steps.
        let shares = unsafe { &header.as_ref().shares };
        shares.store(shares.load(Relaxed) + 1, Relaxed);
        Self { kind, header }
    }

    /// The server's own share, which it gives back when it frees the value.
    ///
    /// # Safety
    /// `value` is a live value of `M`, and the server does not use it any more.
    pub unsafe fn of_server<M: ServerMachine>(value: NonNull<Header>) -> Self {
        Self { kind: M::KIND, header: value }
    }

    pub fn header(&mut self) -> &mut Header {
        // SAFETY: the share keeps the value alive; only the main thread asks, and never twice at a time.
        unsafe { self.header.as_mut() }
    }

    /// The state, which nobody changes any more once its key is gone.
    pub fn state<M: ServerMachine>(&self) -> &M::State {
        assert!(self.kind == M::KIND, "a value of another machine");
        // SAFETY: the share keeps the value alive; it is an M's.
        unsafe { &self.header.cast::<Stored<M>>().as_ref().state }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // SAFETY: the share keeps the value alive until here; the last one frees it.
        unsafe {
            if self.header.as_ref().shares.fetch_sub(1, AcqRel) == 1 {
                for_kind!(self.kind, M => free(Box::from_raw(self.header.cast::<Stored<M>>().as_ptr())));
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
