//! The names of the keys that `RES.LIST` shows: breakers, locks, bulkheads, policies and ledgers, by the content of a database and kind; and
//! idempotency keys and single flights while somebody runs or loads: of the many others there is nothing to show, and they cost nothing.
//!
//! A key has a slot from the moment its value comes to it until it leaves, or until there is nothing to show of it any more. Its value knows the number, so that both cost O(1), and
//! a slot never moves: a walk over the slots in their order meets each key that stays exactly once.
//! ```text
//!   created, replicated, loaded, restored   enter      (Key::set, NativeType::arrived)
//!   a run or a load begins, or ends         enter, leave (Key::relist, after the change)
//!   renamed, moved, copied                  enter      (the server's key events; a value that was renamed has left its old slot)
//!   deleted, expired, evicted, overwritten, renamed, moved   leave   (the type's unlink callback)
//!   FLUSHDB, FLUSHALL, a full resync        forget: O(1), freed on another thread
//!   SWAPDB                                  nothing: lists are kept by space, as timers are
//! ```
//! A name can be stale: a file's key that had expired is dropped without a word. So a walk opens each key, and believes it only if its
//! value says the same number; else the slot is free. On Valkey 8.1 to 9.1.1 we do not listen for renamed, moved and copied keys (see
//! `vendor`): such a key is listed there from the first command on that opens it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use resil_wire::overview::OverviewKind;

use crate::timers::{self, Space};

/// The number of a slot, from 1; 0 is none.
pub type Slot = u32;

/// Slots of a chunk.
const CHUNK: usize = 4_096;
/// So many stay when the last key leaves: where one comes and goes all the time, nothing is allocated for it again and again.
const KEPT: usize = 64;

#[derive(Default)]
struct Slots {
    /// The name in slot n is at n - 1, counted through all chunks. In chunks, because one list of a million would be copied while
    /// everybody waits, and would have room for as many more.
    chunks: Vec<Vec<Option<Box<[u8]>>>>,
    free: Vec<Slot>,
}

thread_local! {
    static REGISTRY: RefCell<BTreeMap<(Space, OverviewKind), Slots>> = const { RefCell::new(BTreeMap::new()) };
}

/// A key of this name has come.
pub fn enter(db: i32, kind: OverviewKind, name: &[u8]) -> Slot {
    let space = timers::space_of(db);
    REGISTRY.with_borrow_mut(|all| all.entry((space, kind)).or_default().enter(name.into()))
}

/// The key in this slot has left, if it is that of this name.
pub fn leave(db: i32, kind: OverviewKind, slot: Slot, name: &[u8]) {
    let space = timers::space_of(db);
    REGISTRY.with_borrow_mut(|all| {
        if let Some(slots) = all.get_mut(&(space, kind)) {
            slots.leave(slot, name);
        }
    });
}

/// A database, or all of them, has lost its keys.
pub fn forget(db: Option<i32>) {
    let space = db.map(timers::space_of);
    let gone = REGISTRY.with_borrow_mut(|all| match space {
        None => std::mem::take(all),
        Some(space) => {
            let (gone, kept) = std::mem::take(all).into_iter().partition(|((of, _), _)| *of == space);
            *all = kept;
            gone
        }
    });
    if gone.values().map(|slots| slots.places()).sum::<usize>() > 1_000 {
        // Without a thread it is freed here.
        let _freed = std::thread::Builder::new().spawn(move || drop(gone));
    }
}

/// A key in its slot.
type Named = (Slot, Box<[u8]>);

/// A part of the names, and the slot to go on from; 0 at the end. Few slots of many may be taken: then there are few names, or none.
/// Long names come a few at a time.
pub fn names(db: i32, kind: OverviewKind, from: Slot, most: usize) -> (Vec<Named>, Slot) {
    const SLOTS_AT_ONCE: usize = 4_096;
    const BYTES_AT_ONCE: usize = 16_384;
    let space = timers::space_of(db);
    REGISTRY.with_borrow(|all| {
        let (mut found, mut bytes, first) = (Vec::new(), 0, from.max(1) as usize - 1);
        let Some(slots) = all.get(&(space, kind)) else { return (found, 0) };
        for place in first..slots.places() {
            let name = &slots.chunks[place / CHUNK][place % CHUNK];
            if found.len() == most || place - first == SLOTS_AT_ONCE || bytes > BYTES_AT_ONCE {
                return (found, place as Slot + 1);
            }
            bytes += name.as_ref().map_or(0, |name| name.len());
            found.extend(name.as_ref().map(|name| (place as Slot + 1, name.clone())));
        }
        (found, 0)
    })
}

impl Slots {
    /// Slots, taken or free: all chunks but the last are full.
    fn places(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    fn len(&self) -> usize {
        self.places() - self.free.len()
    }

    fn place_of(&mut self, slot: Slot) -> Option<&mut Option<Box<[u8]>>> {
        let place = (slot as usize).checked_sub(1)?;
        self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)
    }

    fn enter(&mut self, name: Box<[u8]>) -> Slot {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.place_of(slot)
        {
            *place = Some(name);
            return slot;
        }
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(Some(name)),
            _ => self.chunks.push(vec![Some(name)]),
        }
        self.places() as Slot
    }

    fn leave(&mut self, slot: Slot, name: &[u8]) {
        if let Some(place) = self.place_of(slot).filter(|here| here.as_deref() == Some(name)) {
            *place = None;
            self.free.push(slot);
        }
        if self.len() == 0 && self.places() > KEPT {
            *self = Self::default();
        }
    }
}
