//! The keys with a timer: those in which a lease, or a wait, will end.
//!
//! Each has an entry, its name and its value, in the list of its machine and database. The entry shares the value with the
//! server: the last to let go frees it. So a value can outlive its key, and nothing has to be done in the moment in
//! which keys leave, however many they are:
//! ```text
//!   DEL, expiry, eviction, SET   the key is noted as gone: O(1) for each key
//!   FLUSHDB, FLUSHALL            its whole list is put aside: O(1) for each machine and database
//! ```
//! The one timer then takes them one by one (`take_gone`), announces who lost them, and lets go.
//!
//! SWAPDB is O(1) as well: lists are kept by *space*, which is a database's content, and SWAPDB exchanges the spaces of two
//! databases.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use resil_core::waited::Reason;
use resil_core::waited::timers::TimerHeap;
use resil_core::{Instant, Span};

use crate::gone::{Common, Notes};
use crate::machines::{Kind, ServerMachine};
use crate::queues::KeyName;
use crate::share::{Pointer, Share};

/// A key with a timer.
struct Timed {
    name: Box<[u8]>,
    value: Pointer,
}

/// The content of a database, wherever SWAPDB has put it.
pub type Space = i32;

struct List {
    era: u16,
    heap: TimerHeap<Timed>,
    /// Under which instant it stands in `firsts`.
    filed: Option<Instant>,
}

impl List {
    /// True if the key of this entry was noted as gone.
    fn is_gone(&self, number: u32) -> bool {
        self.heap.get(number).is_some_and(|timed| timed.value.header().is_gone())
    }
}

/// Lists that were put aside.
struct Aside {
    kind: Kind,
    space: Space,
    era: u16,
    at: Instant,
    heap: TimerHeap<Timed>,
    /// Whether those who held the keys have lost them.
    is_lost: bool,
}

/// A key that is gone with its holders, to be announced.
pub struct GoneKey {
    pub name: KeyName,
    pub at: Instant,
    pub reason: Reason,
    pub share: Share,
}

pub enum Taken {
    Gone(GoneKey),
    /// One without an announcement.
    Dropped,
    Nothing,
}

#[derive(Default)]
struct Timers {
    lists: BTreeMap<(Space, Kind), List>,
    firsts: BTreeSet<(Instant, Space, Kind)>,
    last_era: u16,
    /// The keys that were noted as gone. Their names are in the entries of their lists.
    notes: Notes,
    aside: VecDeque<Aside>,
    /// Lists whose entries are to be looked at anew, and how many are left in each.
    anew: VecDeque<(Space, Kind, u32)>,
    spaces: BTreeMap<i32, Space>,
    databases: BTreeMap<Space, i32>,
}

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::new(Timers::default());
}

fn with<R>(act: impl FnOnce(&mut Timers) -> R) -> R {
    TIMERS.with_borrow_mut(act)
}

/// The content that database `db` has now.
pub fn space_of(db: i32) -> Space {
    with(|timers| timers.space_of(db))
}

/// The database that has this content now.
pub fn database_of(space: Space) -> i32 {
    with(|timers| timers.database_of(space))
}

/// Two databases changed places: their keys, and what is noted of them, follow.
pub fn swap_databases(a: i32, b: i32) {
    with(|timers| {
        let (of_a, of_b) = (timers.space_of(a), timers.space_of(b));
        for (db, space) in [(a, of_b), (b, of_a)] {
            timers.spaces.insert(db, space);
            timers.databases.insert(space, db);
        }
        timers.notes.close();
    });
}

/// The key is looked at, at `at`, or before that if this was asked for already.
pub fn set<M: ServerMachine>(db: i32, key: &[u8], value: Pointer, at: Instant) {
    with(|timers| {
        let space = timers.space_of(db);
        if value.header().is_gone() {
            // It lives on under another name. The entry of the old one means nothing any more.
            timers.remove_gone(value);
        }
        let list = timers.list(space, M::KIND);
        let (era, number) = value.header().place();
        if era == list.era {
            if list.heap.at(number).is_some_and(|set| set > at) {
                list.heap.move_to(number, at);
            }
        } else {
            value.keep(M::KIND);
            let number = list.heap.add(at, Timed { name: key.into(), value });
            value.header().set_place(list.era, number);
        }
        timers.note_first(space, M::KIND);
    });
}

/// The instant at which the key was to be looked at means nothing any more.
pub fn clear<M: ServerMachine>(db: i32, value: Pointer) {
    let (era, number) = value.header().place();
    with(|timers| {
        let space = timers.space_of(db);
        if era != 0 && timers.list(space, M::KIND).era == era {
            drop(timers.remove(space, M::KIND, number));
        }
    });
}

/// What became of a value that leaves its key.
pub enum Noted {
    /// It has no timer.
    No,
    /// It is noted, and taken up by [`take_gone`]: the first of those that are.
    First,
    Another,
}

/// The value leaves its key.
pub fn key_left<M: ServerMachine>(db: i32, value: Pointer, now: impl FnOnce() -> Instant) -> Noted {
    let header = value.header();
    let (era, _) = header.place();
    if era == 0 {
        return Noted::No;
    }
    with(|timers| {
        if timers.notes.add_alike(db, M::KIND, value) {
            return Noted::Another;
        }
        let space = timers.space_of(db);
        let is_here = timers.lists.get(&(space, M::KIND)).is_some_and(|list| list.era == era);
        if !is_here || header.is_gone() {
            return Noted::No;
        }
        // Of many that leave together the first asks for the time: a lease that ended meanwhile is announced all the same.
        let (at, noted) = match timers.notes.last_at() {
            Some(at) => (at, Noted::Another),
            None => (now(), Noted::First),
        };
        let common = Common { db, space, kind: M::KIND, era, at, reason: Reason::Absent };
        timers.notes.add(common, value);
        noted
    })
}

/// The key that was noted last was evicted, if it is this one.
pub fn last_was_evicted(db: i32, key: &[u8]) {
    with(|timers| {
        let space = timers.space_of(db);
        let Some((common, value)) = timers.notes.last().filter(|(common, _)| common.space == space) else { return };
        let (era, number) = value.header().place();
        let list = timers.lists.get(&(space, common.kind)).filter(|list| list.era == era);
        if list.and_then(|list| list.heap.get(number)).is_some_and(|timed| *timed.name == *key) {
            timers.notes.say_of_last(Reason::Evicted);
        }
    });
}

/// A value that was noted as gone lives on under another name: what it is to its old name is to be decided now.
pub fn take_renamed<M: ServerMachine>(value: Pointer, at: Instant) -> Option<GoneKey> {
    if !value.header().is_gone() {
        return None;
    }
    let (space, key, share) = with(|timers| timers.remove_gone(value))?;
    Some(GoneKey { name: KeyName { db: database_of(space), kind: M::KIND, key }, at, reason: Reason::Absent, share })
}

/// A database, or all of them, is flushed: the keys with timers are put aside, and their losses are announced later.
pub fn flush(db: Option<i32>, at: Instant) {
    with(|timers| {
        let space = db.map(|db| timers.space_of(db));
        timers.put_aside(space, at, true);
    });
}

/// Nobody here has a timer any more, and nobody has lost anything: the server is a replica.
pub fn forget_all(at: Instant) {
    with(|timers| {
        timers.aside.iter_mut().for_each(|aside| aside.is_lost = false);
        timers.put_aside(None, at, false);
        timers.anew.clear();
    });
}

/// A key that is gone, to be announced or only to be dropped; `Taken::Nothing` if there is none.
pub fn take_gone() -> Taken {
    with(|timers| match timers.notes.take() {
        Some((common, share)) => timers.gone_by(common, share).map_or(Taken::Dropped, Taken::Gone),
        None => timers.take_aside(),
    })
}

/// True while keys that are gone have not been announced.
pub fn any_gone() -> bool {
    with(|timers| !timers.notes.is_empty() || timers.aside.iter().any(|aside| aside.is_lost))
}

/// When the first key wants to be looked at.
pub fn first() -> Option<Instant> {
    with(|timers| timers.firsts.first().map(|(at, ..)| *at))
}

pub fn is_empty() -> bool {
    with(|timers| timers.firsts.is_empty())
}

/// Takes a key that is due. It has no timer any more. One that is noted as gone is put off: its note comes first, and
/// takes it out.
pub fn take_due(now: Instant) -> Option<KeyName> {
    const A_WHILE: Span = Span::from_secs(1);
    with(|timers| {
        loop {
            let (_, space, kind) = *timers.firsts.first().filter(|(at, ..)| *at <= now)?;
            let list = timers.lists.get_mut(&(space, kind))?;
            let number = list.heap.first_number()?;
            if list.is_gone(number) {
                list.heap.move_to(number, now.plus(A_WHILE));
                timers.note_first(space, kind);
                continue;
            }
            let (name, _share) = timers.remove(space, kind, number)?;
            return Some(KeyName { db: timers.database_of(space), kind, key: name });
        }
    })
}

/// Every key with a timer is to be looked at, whenever that was to be.
pub fn look_at_all_anew() {
    with(|timers| {
        timers.anew =
            timers.lists.iter().map(|((space, kind), list)| (*space, *kind, list.heap.len() as u32)).collect();
    });
}

/// Takes one of them. Entries are taken from the end, where new ones and those that fill gaps come to lie.
pub fn take_anew() -> Option<KeyName> {
    with(|timers| {
        loop {
            let (space, kind, left) = timers.anew.front_mut()?;
            let (space, kind) = (*space, *kind);
            if *left == 0 {
                timers.anew.pop_front();
                continue;
            }
            *left -= 1;
            let number = *left;
            let is_gone = timers.lists.get(&(space, kind)).is_some_and(|list| list.is_gone(number));
            if let Some((name, _share)) = if is_gone { None } else { timers.remove(space, kind, number) } {
                return Some(KeyName { db: timers.database_of(space), kind, key: name });
            }
        }
    })
}

impl Timers {
    fn space_of(&self, db: i32) -> Space {
        self.spaces.get(&db).copied().unwrap_or(db)
    }

    fn database_of(&self, space: Space) -> i32 {
        self.databases.get(&space).copied().unwrap_or(space)
    }

    fn list(&mut self, space: Space, kind: Kind) -> &mut List {
        let last_era = &mut self.last_era;
        self.lists.entry((space, kind)).or_insert_with(|| {
            *last_era = last_era.checked_add(1).unwrap_or(1);
            List { era: *last_era, heap: TimerHeap::default(), filed: None }
        })
    }

    /// Files the list under the instant of its first entry.
    fn note_first(&mut self, space: Space, kind: Kind) {
        let Some(list) = self.lists.get_mut(&(space, kind)) else { return };
        let first = list.heap.first();
        if list.filed == first {
            return;
        }
        if let Some(before) = std::mem::replace(&mut list.filed, first) {
            self.firsts.remove(&(before, space, kind));
        }
        if let Some(first) = first {
            self.firsts.insert((first, space, kind));
        }
    }

    /// Takes an entry out of its list.
    fn remove(&mut self, space: Space, kind: Kind, number: u32) -> Option<(Box<[u8]>, Share)> {
        let list = self.lists.get_mut(&(space, kind))?;
        let era = list.era;
        let timed = list.heap.remove(number, |moved| moved.value.header().renumber(number))?;
        self.note_first(space, kind);
        Some(taken(timed, kind, era))
    }

    fn put_aside(&mut self, space: Option<Space>, at: Instant, is_lost: bool) {
        self.notes.close();
        let chosen = |(of, _): &(Space, Kind)| space.is_none_or(|space| space == *of);
        let keys: Vec<(Space, Kind)> = self.lists.keys().copied().filter(chosen).collect();
        for (space, kind) in keys {
            if let Some(List { era, heap, filed }) = self.lists.remove(&(space, kind)) {
                if let Some(first) = filed {
                    self.firsts.remove(&(first, space, kind));
                }
                self.aside.push_back(Aside { kind, space, era, at, heap, is_lost });
            }
        }
    }

    /// Takes out the entry of a value that is noted as gone. None if its list was put aside meanwhile.
    fn remove_gone(&mut self, value: Pointer) -> Option<(Space, Box<[u8]>, Share)> {
        let (era, number) = value.header().place();
        let found = self.lists.iter().find(|(_, list)| list.era == era).map(|(key, _)| *key);
        let Some((space, kind)) = found else {
            value.header().set_place(0, 0);
            return None;
        };
        let (key, share) = self.remove(space, kind, number)?;
        Some((space, key, share))
    }

    /// What a note says; nothing if the value lives on, or if its list was put aside, where the entry is found again.
    fn gone_by(&mut self, common: Common, share: Share) -> Option<GoneKey> {
        let Common { space, kind, at, reason, .. } = common;
        let header = share.header();
        let (is_gone, (era, number)) = (header.is_gone(), header.place());
        if !is_gone || self.lists.get(&(space, kind)).is_none_or(|list| list.era != era) {
            return None;
        }
        let (key, _entry) = self.remove(space, kind, number)?;
        Some(GoneKey { name: KeyName { db: self.database_of(space), kind, key }, at, reason, share })
    }

    fn take_aside(&mut self) -> Taken {
        let Some(aside) = self.aside.front_mut() else { return Taken::Nothing };
        let Some(timed) = aside.heap.take_any() else {
            self.aside.pop_front();
            return Taken::Dropped;
        };
        let (kind, space, at, is_lost) = (aside.kind, aside.space, aside.at, aside.is_lost);
        let is_its_own = timed.value.header().place().0 == aside.era;
        let (key, share) = taken(timed, kind, aside.era);
        if !is_lost || !is_its_own {
            return Taken::Dropped;
        }
        let name = KeyName { db: self.database_of(space), kind, key };
        Taken::Gone(GoneKey { name, at, reason: Reason::Absent, share })
    }
}

/// The name of an entry and its share. The value has no timer any more.
fn taken(timed: Timed, kind: Kind, era: u16) -> (Box<[u8]>, Share) {
    let share = timed.value.kept(kind);
    if share.header().place().0 == era {
        share.header().set_place(0, 0);
    }
    (timed.name, share)
}
