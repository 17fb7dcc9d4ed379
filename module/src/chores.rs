//! What is left to do without being asked, and how events come to leave it.
//!
//! Events come in the middle of other work (a client is freed, a key is deleted), where nothing may be written, so they only
//! leave a note here, or in `timers` and `sessions`; `background` works it off. *Endings* are special: they are made before
//! the next command sees the key.
//!
//! Keys are named by database and bytes, and read again when their turn comes.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;
use resil_core::lock::Reason;
use resil_core::{Instant, Span};

use crate::background::{is_replica, plan_soon};
use crate::datatype::waited::Waited;
use crate::lines::{self, Name};
use crate::machine::Machine;
use crate::timers::Noted;
use crate::{clock, cluster, fences, room, search, sessions, timers};

/// What is left to do with a key.
#[derive(Debug, Clone)]
pub enum Chore {
    /// Something changed: serve whoever can be served.
    Look,
    /// The clock was set back: the instant at which the key wanted to be looked at means nothing any more.
    Rearm,
    /// The connection a holding was bound to has closed.
    Close(u64),
    /// The connection a holding was bound to closed at `at`, and the holding has a grace from then on.
    Cut { fence: u64, grace: Span, at: Instant },
    /// A grant could not be told.
    TakeBack(u64),
    /// A holder lost the key, or left with it, at `at`.
    Lost { owner: Box<[u8]>, fence: u64, reason: Reason, at: Instant, details: Details },
}

/// Further fields of an announcement, shared by all that come from one command.
pub type Details = Option<Rc<[(Box<str>, Box<[u8]>)]>>;

pub fn details_of(details: &[(&str, &[u8])]) -> Details {
    let owned: Vec<_> = details.iter().map(|(name, text)| (Box::from(*name), Box::from(*text))).collect();
    (!owned.is_empty()).then(|| Rc::from(owned))
}

pub fn borrowed(details: &Details) -> Vec<(&str, &[u8])> {
    details.iter().flat_map(|details| details.iter()).map(|(name, text)| (&**name, &**text)).collect()
}

impl Chore {
    fn is_ending(&self) -> bool {
        matches!(self, Self::Close(_) | Self::Cut { .. } | Self::TakeBack(_))
    }

    /// The holding that an ending ends.
    fn fence(&self) -> Option<u64> {
        match self {
            Self::Close(fence) | Self::Cut { fence, .. } | Self::TakeBack(fence) => Some(*fence),
            Self::Look | Self::Rearm | Self::Lost { .. } => None,
        }
    }
}

/// More endings than this in one step are announced by the timer.
pub const MANY: usize = 64;

/// Many holders that lost one key in one step.
pub struct Losses {
    pub name: Name,
    /// Owner, fence, and why.
    pub lost: std::vec::IntoIter<(Box<[u8]>, u64, Reason)>,
    pub at: Instant,
    pub details: Details,
}

#[derive(Default)]
struct Desk {
    chores: VecDeque<(Name, Chore)>,
    losses: VecDeque<Losses>,
    endings: HashMap<Name, VecDeque<Chore>>,
    /// The names of `endings` in the order they came; some are no longer there.
    ending_names: VecDeque<Name>,
}

/// Whether the server is a replica, as far as events told.
static REPLICA: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::default());
}

/// The module was loaded.
pub fn start(is_replica: bool) {
    REPLICA.store(is_replica, Relaxed);
}

pub fn next_ending() -> Option<(Name, Chore)> {
    DESK.with_borrow_mut(Desk::next_ending)
}

/// The next of what is not an ending.
pub fn next() -> Option<(Name, Chore)> {
    DESK.with_borrow_mut(|desk| desk.chores.pop_front())
}

pub fn next_loss() -> Option<(Name, Chore)> {
    DESK.with_borrow_mut(Desk::next_loss)
}

/// Takes back what could not be done yet.
pub fn keep(chores: Vec<(Name, Chore)>) {
    DESK.with_borrow_mut(|desk| chores.into_iter().for_each(|(name, chore)| desk.add(name, chore)));
}

pub fn is_idle() -> bool {
    DESK.with_borrow(Desk::is_idle)
}

/// Nothing is left to do: the server is a replica.
pub fn clear() {
    DESK.with_borrow_mut(Desk::clear);
}

/// Leaves something to be done as soon as something may be written.
pub fn add(name: Name, chore: Chore) {
    DESK.with_borrow_mut(|desk| desk.add(name, chore));
    plan_soon();
}

impl Desk {
    fn add(&mut self, name: Name, chore: Chore) {
        if chore.is_ending() {
            self.ending_names.push_back(name.clone());
            self.endings.entry(name).or_default().push_back(chore);
        } else {
            self.chores.push_back((name, chore));
        }
    }

    fn next_ending(&mut self) -> Option<(Name, Chore)> {
        loop {
            let name = self.ending_names.pop_front()?;
            if let Some(chores) = self.endings.get_mut(&name) {
                let chore = chores.pop_front();
                if chores.is_empty() {
                    self.endings.remove(&name);
                }
                if let Some(chore) = chore {
                    return Some((name, chore));
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.chores.is_empty() && self.losses.is_empty() && self.endings.is_empty()
    }

    fn clear(&mut self) {
        self.chores.clear();
        self.losses.clear();
        self.endings.clear();
        self.ending_names.clear();
    }

    fn next_loss(&mut self) -> Option<(Name, Chore)> {
        loop {
            let Losses { name, lost, at, details } = self.losses.front_mut()?;
            if let Some((owner, fence, reason)) = lost.next() {
                let lost = Chore::Lost { owner, fence, reason, at: *at, details: details.clone() };
                return Some((name.clone(), lost));
            }
            self.losses.pop_front();
        }
    }
}

/// Announces many losses, a few at a time.
pub fn announce(losses: Losses) {
    DESK.with_borrow_mut(|desk| desk.losses.push_back(losses));
    plan_soon();
}

/// Endings that are still to be made in this key, in their order: they come before whatever is asked of it now.
/// `most` of them: the timer comes to the rest.
pub fn take_endings(name: &Name, most: usize) -> Vec<Chore> {
    let mut endings = sessions::closed_in(name, most);
    let left = most - endings.len();
    DESK.with_borrow_mut(|desk| {
        let Some(chores) = desk.endings.get_mut(name) else { return };
        endings.extend(chores.drain(..left.min(chores.len())));
        if chores.is_empty() {
            desk.endings.remove(name);
        }
    });
    endings
}

/// The ending of one holding, if it is still to be made.
pub fn take_ending_of(name: &Name, fence: u64) -> Option<Chore> {
    sessions::closed_at(name, fence).or_else(|| {
        DESK.with_borrow_mut(|desk| {
            let chores = desk.endings.get_mut(name)?;
            let place = chores.iter().position(|chore| chore.fence() == Some(fence))?;
            let ending = chores.remove(place);
            if chores.is_empty() {
                desk.endings.remove(name);
            }
            ending
        })
    })
}

/// True while holders that lost a key may not have been told.
pub fn losses_pending() -> bool {
    timers::any_gone() || DESK.with_borrow(|desk| !desk.chores.is_empty() || !desk.losses.is_empty())
}

/// True if no ending is to be made, in whatever key: asked by every command.
pub fn no_endings() -> bool {
    DESK.with_borrow(|desk| desk.endings.is_empty()) && !sessions::is_closing()
}

/// A value leaves its key, in whatever way: its holders may have lost it, and whoever waits can have it.
///
/// # Safety
/// `value` is the live value that leaves, an M's.
pub unsafe fn key_left<'n, M: Machine>(db: i32, key: impl FnOnce() -> &'n [u8], value: *mut c_void) {
    if REPLICA.load(Relaxed) {
        return;
    }
    // SAFETY: by contract.
    match NonNull::new(value).map(|value| unsafe { timers::key_left::<M>(db, value.cast(), clock::now) }) {
        Some(Noted::First) => return plan_soon(),
        // The timer is set already.
        Some(Noted::Another) => return,
        Some(Noted::No) | None => {}
    }
    // SAFETY: by contract.
    let state = unsafe { &Waited::<M>::get(value).state };
    let (now, key) = (clock::now(), key());
    let name = || Name::new(M::KIND, db, key);
    let mut any = !lines::is_empty_of::<M>() && lines::waits(&name());
    for (owner, fence) in M::holders(state, fences::promoted_at(), now) {
        any = true;
        let lost = Chore::Lost { owner, fence, reason: Reason::Absent, at: now, details: None };
        DESK.with_borrow_mut(|desk| desk.chores.push_back((name(), lost)));
    }
    if any {
        add(name(), Chore::Look);
    }
}

/// A value has a new name: its holders have lost the old one, as they are now.
///
/// # Safety
/// `value` is the live value of a key, an M's.
pub unsafe fn key_renamed<M: Machine>(value: *mut c_void) {
    let now = clock::now();
    // SAFETY: by contract.
    let gone = NonNull::new(value).and_then(|value| unsafe { timers::take_renamed::<M>(value.cast(), now) });
    let Some(gone) = gone else { return };
    for (owner, fence) in M::holders(gone.share.state::<M>(), fences::promoted_at(), now) {
        let lost = Chore::Lost { owner, fence, reason: Reason::Absent, at: now, details: None };
        add(gone.name.clone(), lost);
    }
    if lines::waits(&gone.name) {
        add(gone.name.clone(), Chore::Look);
    }
}

/// A key with leases came by another way than a command: it is looked at, once its slot is ours.
pub fn key_arrived() {
    let now = clock::now();
    cluster::key_arrived(now);
    plan_soon();
}

/// The server says that the key which left just now was evicted.
pub fn key_evicted(db: i32, key: &[u8]) {
    timers::last_was_evicted(db, key);
    DESK.with_borrow_mut(|desk| {
        let last = desk.chores.iter_mut().rev().take_while(|(name, _)| name.db == db && *name.key == *key);
        for (_, chore) in last {
            if let Chore::Lost { reason, .. } = chore {
                *reason = Reason::Evicted;
            }
        }
    });
}

/// A database, or all of them, is about to be flushed: keys with leases go as one.
pub fn flush_begins(ctx: *mut raw::RedisModuleCtx, db: Option<i32>) {
    if !is_replica(ctx) {
        timers::flush(db, clock::now());
    }
}

/// It is flushed: whoever waits can have it.
pub fn flush_ended(db: Option<i32>) {
    lines::names(db).into_iter().for_each(|name| add(name, Chore::Look));
    plan_soon();
}

/// Two databases changed places: timers, sessions and chores follow the keys, who waits stays.
pub fn databases_swapped(a: i32, b: i32) {
    timers::swap_databases(a, b);
    let swap = |name: &mut Name| {
        let db = name.db;
        name.db = [(a, b), (b, a)].into_iter().find(|(from, _)| *from == db).map_or(db, |(_, to)| to);
    };
    DESK.with_borrow_mut(|desk| {
        desk.chores.iter_mut().for_each(|(name, _)| swap(name));
        desk.ending_names.iter_mut().for_each(swap);
        desk.losses.iter_mut().for_each(|losses| swap(&mut losses.name));
        let endings = std::mem::take(&mut desk.endings).into_iter();
        let moved = endings.map(|(mut name, chores)| {
            swap(&mut name);
            (name, chores)
        });
        desk.endings = moved.collect();
    });
    for db in [a, b] {
        lines::names(Some(db)).into_iter().for_each(|name| add(name, Chore::Look));
    }
}

/// The server is a replica now. Most servers answer and close whoever waited; where one does not, it is done here.
pub fn demoted() {
    REPLICA.store(true, Relaxed);
    lines::names(None).iter().for_each(room::unblock);
    sessions::clear();
    timers::forget_all(clock::now());
    clear();
    search::stop();
    plan_soon();
}

/// The server is a primary now.
pub fn promoted() {
    REPLICA.store(false, Relaxed);
    search_all();
}

/// The server was loaded, or became a primary: every lock wants to be found.
pub fn search_all() {
    search::start();
    plan_soon();
}
