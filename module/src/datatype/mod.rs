//! The native types: one file each for what a value looks like in memory, and the callbacks the server needs.
//!
//! Every value is stored through a [`NativeType`]: how it is encoded, decoded, measured, copied and freed. The
//! callbacks in [`callbacks`] are the same few lines for all of them, and each is guarded. Which types there are says core's
//! list of machines: [`boxed`] and [`waited`] are the two ways to store one, and [`tiers`] stores limits.

pub mod boxed;
pub mod callbacks;
pub mod tiers;
pub mod waited;

use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;
use resil_wire::overview::OverviewKind;

use self::boxed::{Boxed, PlainType};
use self::tiers::Tiers;
use self::waited::Waited;
use crate::info::{Gauge, counters};
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::registry::{self, Slot};

/// Bytes for small encodings without the heap.
pub type Bytes = smallvec::SmallVec<[u8; 96]>;

/// Hands the next piece of a value over, which is not copied: it can be large. `None` if there is none to be had, or nothing is made
/// of it.
pub type MorePieces<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8]) -> Option<()>) -> Option<()>;

/// Moves an allocation where the server wants it, if it does.
pub type Relocate<'a> = &'a mut dyn FnMut(*mut c_void) -> *mut c_void;

/// The value of a key that is open, as [`Key::value`](crate::key::Key::value) found it. It is not kept beyond the key, and
/// nothing else refers into it meanwhile.
pub struct Value<T> {
    raw: *mut c_void,
    of: PhantomData<T>,
}

impl<T> Clone for Value<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Value<T> {}

impl<T: NativeType> Value<T> {
    /// # Safety
    /// `raw` is a live value of `T`, of a key that is open for as long as this is used.
    pub unsafe fn new(raw: *mut c_void) -> Self {
        Self { raw, of: PhantomData }
    }

    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }

    pub fn encode(&self, out: &mut Bytes) {
        // SAFETY: it lives, by the contract of `new`.
        unsafe { T::encode(self.raw, out) };
    }
}

/// What the callbacks of a type need to know of its values. A value is a thin pointer that the type itself made.
pub trait NativeType {
    /// Nine characters; `SCAN ... TYPE` finds keys by it.
    const NAME: &'static std::ffi::CStr;

    /// The handle the server gave at registration.
    fn handle() -> &'static AtomicPtr<raw::RedisModuleType>;

    /// A value from its pieces, or `None` if they are not one. Most values are one piece; those that can be large are followed
    /// by an empty one.
    fn decode(first: &[u8], more: MorePieces<'_>) -> Option<*mut c_void>;

    const IN_PIECES: bool = false;

    /// The pieces of which the value is made, one after the other.
    ///
    /// # Safety
    /// `value` is a live value of this type.
    unsafe fn encode_pieces(value: *mut c_void, emit: &mut dyn FnMut(&[u8])) {
        let mut bytes = Bytes::new();
        // SAFETY: by contract.
        unsafe { Self::encode(value, &mut bytes) };
        emit(&bytes);
    }

    /// # Safety
    /// For this and the rest: `value` is a live value of this type.
    unsafe fn encode(value: *mut c_void, out: &mut Bytes);

    /// Bytes the value takes, the allocator's rounding included.
    unsafe fn heap_bytes(value: *mut c_void) -> usize;

    /// Parts to free one by one: the server frees values with many of them on another thread.
    unsafe fn parts(value: *mut c_void) -> usize;

    unsafe fn copy(value: *mut c_void) -> *mut c_void;

    unsafe fn free(value: *mut c_void);

    /// The value leaves the key `name` of database `db`, which it may do alive. Nothing may be written here.
    ///
    /// # Safety
    /// As above.
    unsafe fn unlinked<'n>(_value: *mut c_void, _db: i32, _name: impl FnOnce() -> &'n [u8]) {}

    /// The value was read from a file, or a payload, for the key `name` of database `db`. Nothing may be written here.
    ///
    /// # Safety
    /// As above.
    unsafe fn arrived(_value: *mut c_void, _db: i32, _name: &[u8]) {}

    /// Under what `RES.LIST` shows keys of this type, if it does.
    const LISTED: Option<OverviewKind> = None;

    /// Whether there is something to show of this value now.
    ///
    /// # Safety
    /// As above.
    unsafe fn is_listed(_value: *mut c_void) -> bool {
        Self::LISTED.is_some()
    }

    /// Where a value remembers its slot in the registry; a type that is not listed has no such place.
    ///
    /// # Safety
    /// As above.
    unsafe fn slot<'a>(_value: *mut c_void) -> Option<&'a Cell<Slot>> {
        None
    }

    /// Whether a snapshot carries two numbers of this type beside its keys.
    const HAS_AUX: bool = false;

    fn aux() -> (u64, u64) {
        (0, 0)
    }

    fn load_aux(_numbers: (u64, u64)) {}

    /// Moves the value's allocations where the server wants them; returns where the value is now.
    unsafe fn defrag(value: *mut c_void, relocate: Relocate<'_>) -> *mut c_void;
}

/// The value has come to the key `name` of database `db`: it can be listed, if there is something to show of it.
///
/// # Safety
/// `value` is a live value of `T`.
pub unsafe fn enter_registry<T: NativeType>(value: *mut c_void, db: i32, name: &[u8]) {
    // SAFETY: by contract.
    if let (Some(kind), Some(slot)) = (T::LISTED, unsafe { T::slot(value) })
        && slot.get() == 0
        && unsafe { T::is_listed(value) }
    {
        slot.set(registry::enter(db, kind, name));
    }
}

/// The value was changed where it is: it is listed from now on, or no longer.
///
/// # Safety
/// As above.
pub unsafe fn relist<'n, T: NativeType>(value: *mut c_void, key: impl FnOnce() -> (i32, &'n [u8])) {
    // SAFETY: by contract.
    unsafe {
        let (Some(slot), is_listed) = (T::slot(value), T::is_listed(value)) else { return };
        if is_listed != (slot.get() != 0) {
            let (db, name) = key();
            if is_listed { enter_registry::<T>(value, db, name) } else { leave_registry::<T>(value, db, || name) }
        }
    }
}

/// The value leaves its key, or there is nothing to show of it any more.
///
/// # Safety
/// As above.
unsafe fn leave_registry<'n, T: NativeType>(value: *mut c_void, db: i32, name: impl FnOnce() -> &'n [u8]) {
    // SAFETY: by contract.
    if let (Some(kind), Some(slot)) = (T::LISTED, unsafe { T::slot(value) })
        && slot.get() != 0
    {
        registry::leave(db, kind, slot.replace(0), name());
    }
}

/// What belongs to a native type while the server runs.
pub struct Statics {
    /// The handle the server gave at registration.
    pub handle: AtomicPtr<raw::RedisModuleType>,
    pub keys: Gauge,
    /// What its values take.
    pub bytes: Gauge,
}

pub trait TypeStatics {
    fn statics() -> &'static Statics;
}

macro_rules! native_types {
    (() plain { $($plain:ident: $plain_machine:ty,)* } waited { $($waited:ident: $waited_machine:ty,)* }) => {
        $(impl TypeStatics for $plain_machine {
            fn statics() -> &'static Statics {
                static STATICS: Statics =
                    Statics { handle: AtomicPtr::new(null_mut()), keys: Gauge::new(), bytes: Gauge::new() };
                &STATICS
            }
        })*

        /// Registers every type with the server.
        pub fn register(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
            callbacks::register::<Tiers>(ctx)?;
            $(callbacks::register::<Boxed<$plain_machine>>(ctx)?;)*
            $(callbacks::register::<Waited<$waited_machine>>(ctx)?;)*
            Ok(())
        }

        /// Marks the expiry of a key as doubtful if it is one of ours.
        pub fn doubt(key: &mut Key<'_>) {
            let _ours = key.doubt::<Tiers>()
                $(|| key.doubt::<Boxed<$plain_machine>>())*
                $(|| key.doubt::<Waited<$waited_machine>>())*;
        }

        /// A key came by another way than a command: if it can be listed, it is.
        pub fn list_arrived(key: &Key<'_>, db: i32) {
            let _ours = key.enter_registry::<Tiers>(db)
                $(|| key.enter_registry::<Boxed<$plain_machine>>(db))*
                $(|| key.enter_registry::<Waited<$waited_machine>>(db))*;
        }

        /// How many keys of each type there are, and how many bytes they take, by the name that INFO has for it.
        pub fn for_each_count(mut see: impl FnMut(&str, &Gauge, &Gauge)) {
            see("gcra", &counters().gcra_keys, &counters().gcra_bytes);
            $({
                let Statics { keys, bytes, .. } = <$plain_machine>::statics();
                see(<$plain_machine>::INFO_NAME, keys, bytes);
            })*
            $(see(<$waited_machine>::INFO_NAME, <$waited_machine>::keys(), <$waited_machine>::bytes());)*
        }
    };
}

resil_core::machines!(native_types);

/// The bit of a value's pointer, free because allocations are aligned to eight, that says: its key's expiry may not be
/// the one its state asks for. It is set where a value arrives by other ways than a step (loaded, restored, copied,
/// renamed) and when a user re-times a key, and cleared by the next change, which looks the expiry up. Everybody
/// else's expiry is known without asking the server.
const DOUBT: usize = 4;

/// The value without the bit.
pub fn plain(value: *mut c_void) -> *mut c_void {
    value.map_addr(|addr| addr & !DOUBT)
}

pub fn doubted(value: *mut c_void) -> *mut c_void {
    value.map_addr(|addr| addr | DOUBT)
}

pub fn is_doubted(value: *mut c_void) -> bool {
    value.addr() & DOUBT != 0
}

pub fn handle_of<T: NativeType>() -> *mut raw::RedisModuleType {
    T::handle().load(Relaxed)
}

/// What the allocator really gave for `allocation`.
///
/// # Safety
/// `allocation` is a live allocation of the server's allocator.
unsafe fn malloc_size(allocation: *mut c_void) -> usize {
    // SAFETY: by contract.
    unsafe { crate::edge::api!(RedisModule_MallocSize)(allocation) }
}

/// Lets the server move a vector's buffer.
///
/// # Safety
/// `relocate` returns the same buffer or an equal copy in an allocation of the same size, the old one freed.
unsafe fn relocate_vec<T>(vector: &mut Vec<T>, relocate: Relocate<'_>) {
    if vector.capacity() == 0 {
        return;
    }
    let mut old = ManuallyDrop::new(std::mem::take(vector));
    let (start, len, capacity) = (old.as_mut_ptr(), old.len(), old.capacity());
    // SAFETY: by contract; the old vector is forgotten, so the buffer has one owner.
    *vector = unsafe { Vec::from_raw_parts(relocate(start.cast()).cast(), len, capacity) };
}
