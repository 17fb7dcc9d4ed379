//! The names of the keys that `RES.LIST` shows: breakers, locks, bulkheads, policies and ledgers, by the content of a database and kind.
//!
//! A key has a slot from the moment its value comes to it until it leaves. Its value knows the number, so that both cost O(1), and
//! a slot never moves: a walk over the slots in their order meets each key that stays exactly once.
//! ```text
//!   created, replicated, loaded, restored   enter      (Key::set, NativeType::arrived)
//!   renamed, moved, copied                  enter      (the server's key events; a value that was renamed has left its old slot)
//!   deleted, expired, evicted, overwritten, renamed, moved   leave   (the type's unlink callback)
//!   FLUSHDB, FLUSHALL, a full resync        forget: O(1), freed on another thread
//!   SWAPDB                                  nothing: lists are kept by space, as timers are
//! ```
//! A name can be stale: a file's key that had expired is dropped without a word. So a walk opens each key, and believes it only if its
//! value says the same number; else the slot is free. Valkey 8.1 to 9.1.1 do not let us hear of renamed, moved and copied keys: such a
//! key is not listed there until its value is made anew.

use std::cell::RefCell;
use std::collections::BTreeMap;

use resil_wire::overview::OverviewKind;

use crate::timers::{self, Space};

/// The number of a slot, from 1; 0 is none.
pub type Slot = u32;

#[derive(Default)]
struct Slots {
    /// The name in slot n is at n - 1.
    names: Vec<Option<Box<[u8]>>>,
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
    if gone.values().map(|slots| slots.names.len()).sum::<usize>() > 1_000 {
        // Without a thread it is freed here.
        let _freed = std::thread::Builder::new().spawn(move || drop(gone));
    }
}

/// A key in its slot.
type Named = (Slot, Box<[u8]>);

/// A part of the names, and the slot to go on from; 0 at the end. Few slots of many may be taken: then there are few names, or none.
pub fn names(db: i32, kind: OverviewKind, from: Slot, most: usize) -> (Vec<Named>, Slot) {
    const SLOTS_AT_ONCE: usize = 4_096;
    let space = timers::space_of(db);
    REGISTRY.with_borrow(|all| {
        let (mut found, first) = (Vec::new(), from.max(1) as usize - 1);
        let Some(slots) = all.get(&(space, kind)) else { return (found, 0) };
        for (place, name) in slots.names.iter().enumerate().skip(first) {
            if found.len() == most || place - first == SLOTS_AT_ONCE {
                return (found, place as Slot + 1);
            }
            found.extend(name.as_ref().map(|name| (place as Slot + 1, name.clone())));
        }
        (found, 0)
    })
}

impl Slots {
    fn len(&self) -> usize {
        self.names.len() - self.free.len()
    }

    fn enter(&mut self, name: Box<[u8]>) -> Slot {
        match self.free.pop() {
            Some(slot) => {
                self.names[slot as usize - 1] = Some(name);
                slot
            }
            None => {
                self.names.push(Some(name));
                self.names.len() as Slot
            }
        }
    }

    fn leave(&mut self, slot: Slot, name: &[u8]) {
        let Some(place) = (slot as usize).checked_sub(1) else { return };
        if self.names.get(place).is_some_and(|here| here.as_deref() == Some(name)) {
            self.names[place] = None;
            self.free.push(slot);
        }
        if self.len() == 0 {
            *self = Self::default();
        }
    }
}
