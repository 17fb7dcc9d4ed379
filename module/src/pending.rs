//! What is left to do without being asked, and how events come to leave it.
//!
//! Events come in the middle of other work (a client is freed, a key is deleted), where nothing may be written, so they only
//! leave a note here, or in `timers` and `sessions`; `background` works it off. *Endings* are special: they are made before
//! the next command sees the key.
//!
//! Keys are named by database and bytes, and read again when their turn comes.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;
use resil_core::waited::Reason;
use resil_core::{Instant, Span};

use crate::background::{is_replica, plan_soon};
use crate::call::Call;
use crate::machines::ServerMachine;
use crate::queues::{self, KeyName};
use crate::share::{Pointer, Share};
use crate::timers::{GoneKey, Noted};
use crate::{announce, blocked_clients, clock, cluster, fences, key_tasks, search, sessions, timers};

/// What is left to do with a key.
#[derive(Debug, Clone)]
pub enum Task {
    /// Something changed: serve the waiters that can be served.
    Serve,
    /// The clock was set back: the instant at which the key wanted to be looked at means nothing any more.
    Rearm,
    /// The connection a holding was bound to has closed.
    Close(u64),
    /// The connection a holding was bound to closed at `at`, and the holding has a grace from then on.
    Cut { fence: u64, grace: Span, at: Instant },
    /// A grant could not be delivered.
    TakeBack(u64),
    /// A holder lost the key, or left with it, at `at`.
    Lost { owner: Box<[u8]>, fence: u64, reason: Reason, at: Instant, details: Details },
}

/// Further fields of an announcement, shared by all that come from one command.
pub type Details = Option<Rc<[(Box<str>, Box<[u8]>)]>>;

/// Of what a command causes, and is announced after it has ended.
pub fn details_of(call: &Call<'_>, details: &[(&str, &[u8])]) -> Details {
    let user = announce::caused_by_caller(call);
    let user = user.as_deref().map(|user| ("user", user));
    let owned: Vec<_> =
        details.iter().copied().chain(user).map(|(name, text)| (Box::from(name), Box::from(text))).collect();
    (!owned.is_empty()).then(|| Rc::from(owned))
}

pub fn borrowed(details: &Details) -> Vec<(&str, &[u8])> {
    details.iter().flat_map(|details| details.iter()).map(|(name, text)| (&**name, &**text)).collect()
}

impl Task {
    fn is_ending(&self) -> bool {
        matches!(self, Self::Close(_) | Self::Cut { .. } | Self::TakeBack(_))
    }

    /// The holding that an ending ends.
    pub fn fence(&self) -> Option<u64> {
        match self {
            Self::Close(fence) | Self::Cut { fence, .. } | Self::TakeBack(fence) => Some(*fence),
            Self::Serve | Self::Rearm | Self::Lost { .. } => None,
        }
    }
}

/// More endings than this in one step are announced by the timer.
pub const MANY: usize = 64;

/// Who lost: owner, fence, and why, if for a reason of its own.
type LostHolders = Box<dyn Iterator<Item = (Box<[u8]>, u64, Option<Reason>)>>;

/// Many holders that lost one key at once. They are looked at one by one, when their turn comes.
pub struct Losses {
    name: KeyName,
    lost: LostHolders,
    at: Instant,
    reason: Reason,
    details: Details,
}

impl Losses {
    pub fn new(name: KeyName, lost: LostHolders, reason: Reason, at: Instant, details: Details) -> Self {
        Self { name, lost, at, reason, details }
    }
}

/// Everybody who holds a value that has left its key at `at`, in the order of their fences. A lease that had ended by then is
/// lost as well: its holder does not know yet.
pub fn holders_of<M: ServerMachine>(share: Share, name: KeyName, at: Instant) -> LostHolders {
    let (last, mut after) = (M::last_fence(share.state::<M>()), 0);
    Box::new(std::iter::from_fn(move || {
        let lease = M::lease_after(share.state::<M>(), after).filter(|lease| lease.fence <= last)?;
        after = lease.fence;
        let lives = lease.lives(fences::promoted_at(), at) || sessions::keeps(&name, after, at).is_some();
        Some((lease.owner.into(), after, (!lives).then_some(Reason::Expired)))
    }))
}

#[derive(Default)]
struct Pending {
    tasks: VecDeque<(KeyName, Task)>,
    losses: VecDeque<Losses>,
    endings: HashMap<KeyName, VecDeque<Task>>,
    /// The names of `endings` in the order they came; some are no longer there.
    ending_names: VecDeque<KeyName>,
}

/// Turns one waiter away; false if there is none left.
type TurnAway = Box<dyn FnMut() -> bool>;

/// Whether the server is a replica, by its last event.
static REPLICA: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::new(Pending::default());
    /// Queues of which everybody is turned away. On a replica, too: these are only replies.
    static TURNED_AWAY: RefCell<VecDeque<TurnAway>> = const { RefCell::new(VecDeque::new()) };
}

/// Very many are turned away, a few at a time.
pub fn turn_away(next: TurnAway) {
    TURNED_AWAY.with_borrow_mut(|all| all.push_back(next));
    plan_soon();
}

/// Turns one more away; false if there is none.
pub fn turn_next_away() -> bool {
    let Some(mut next) = TURNED_AWAY.with_borrow_mut(VecDeque::pop_front) else { return false };
    if next() {
        TURNED_AWAY.with_borrow_mut(|all| all.push_front(next));
    }
    true
}

/// The module was loaded.
pub fn start(is_replica: bool) {
    REPLICA.store(is_replica, Relaxed);
}

pub fn next_ending() -> Option<(KeyName, Task)> {
    PENDING.with_borrow_mut(Pending::next_ending)
}

/// The next of what is not an ending.
pub fn next() -> Option<(KeyName, Task)> {
    PENDING.with_borrow_mut(|pending| pending.tasks.pop_front())
}

pub fn next_loss() -> Option<(KeyName, Task)> {
    PENDING.with_borrow_mut(Pending::next_loss)
}

/// Takes back what could not be done yet.
pub fn keep(tasks: Vec<(KeyName, Task)>) {
    PENDING.with_borrow_mut(|pending| tasks.into_iter().for_each(|(name, task)| pending.add(name, task)));
}

pub fn is_idle() -> bool {
    PENDING.with_borrow(Pending::is_idle)
}

/// Nothing is left to do: the server is a replica.
pub fn clear() {
    PENDING.with_borrow_mut(Pending::clear);
}

/// Leaves something to be done as soon as something may be written.
pub fn add(name: KeyName, task: Task) {
    PENDING.with_borrow_mut(|pending| pending.add(name, task));
    plan_soon();
}

impl Pending {
    fn add(&mut self, name: KeyName, task: Task) {
        if task.is_ending() {
            self.ending_names.push_back(name.clone());
            self.endings.entry(name).or_default().push_back(task);
        } else {
            self.tasks.push_back((name, task));
        }
    }

    fn next_ending(&mut self) -> Option<(KeyName, Task)> {
        loop {
            let name = self.ending_names.pop_front()?;
            if let Some(tasks) = self.endings.get_mut(&name) {
                let task = tasks.pop_front();
                if tasks.is_empty() {
                    self.endings.remove(&name);
                }
                if let Some(task) = task {
                    return Some((name, task));
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.losses.is_empty() && self.endings.is_empty()
    }

    fn clear(&mut self) {
        self.tasks.clear();
        self.losses.clear();
        self.endings.clear();
        self.ending_names.clear();
    }

    fn next_loss(&mut self) -> Option<(KeyName, Task)> {
        loop {
            let Losses { name, lost, at, reason, details } = self.losses.front_mut()?;
            if let Some((owner, fence, own)) = lost.next() {
                let reason = own.unwrap_or(*reason);
                let lost = Task::Lost { owner, fence, reason, at: *at, details: details.clone() };
                return Some((name.clone(), lost));
            }
            self.losses.pop_front();
        }
    }
}

/// Announces many losses, a few at a time.
pub fn announce(losses: Losses) {
    PENDING.with_borrow_mut(|pending| pending.losses.push_back(losses));
    plan_soon();
}

/// Endings that are still to be made in this key, in their order: they come before whatever is asked of it now. When they weigh
/// `most` or more these are enough: the timer comes to the rest.
pub fn take_endings(name: &KeyName, most: usize, weigh: impl Fn(u64) -> usize) -> Vec<Task> {
    let mut endings = sessions::closed_in(name, most, &weigh);
    let mut weight: usize = endings.iter().filter_map(Task::fence).map(&weigh).sum();
    PENDING.with_borrow_mut(|pending| {
        let Some(tasks) = pending.endings.get_mut(name) else { return };
        while weight < most
            && let Some(ending) = tasks.pop_front()
        {
            weight += ending.fence().map_or(1, &weigh);
            endings.push(ending);
        }
        if tasks.is_empty() {
            pending.endings.remove(name);
        }
    });
    endings
}

/// The ending of one holding, if it is still to be made.
pub fn take_ending_of(name: &KeyName, fence: u64) -> Option<Task> {
    sessions::closed_at(name, fence).or_else(|| {
        PENDING.with_borrow_mut(|pending| {
            let tasks = pending.endings.get_mut(name)?;
            let place = tasks.iter().position(|task| task.fence() == Some(fence))?;
            let ending = tasks.remove(place);
            if tasks.is_empty() {
                pending.endings.remove(name);
            }
            ending
        })
    })
}

/// True while losses of keys may not be announced yet.
pub fn losses_pending() -> bool {
    timers::any_gone() || PENDING.with_borrow(|pending| !pending.tasks.is_empty() || !pending.losses.is_empty())
}

/// True if no ending is to be made, in whatever key: asked by every command.
pub fn no_endings() -> bool {
    PENDING.with_borrow(|pending| pending.endings.is_empty()) && !sessions::is_closing()
}

/// A value leaves its key, in whatever way: its holders may have lost it, and the next waiter can have it.
pub fn key_left<'n, M: ServerMachine>(db: i32, key: impl FnOnce() -> &'n [u8], value: Pointer) {
    if REPLICA.load(Relaxed) {
        return;
    }
    match timers::key_left::<M>(db, value, clock::now) {
        Noted::First => plan_soon(),
        // The timer is set already.
        Noted::Another => {}
        Noted::No => announce_all::<M>(KeyName::new(M::KIND, db, key()), value.share(M::KIND), clock::now()),
    }
}

/// Those who hold `share` have lost it under this name.
fn announce_all<M: ServerMachine>(name: KeyName, share: Share, at: Instant) {
    let any = M::first_lease(share.state::<M>()).is_some();
    if any {
        announce(Losses::new(name.clone(), holders_of::<M>(share, name.clone(), at), Reason::Absent, at, None));
    }
    if any || queues::waits(&name) {
        add(name, Task::Serve);
    }
}

/// A value has a new name: its holders have lost the old one. One that ends before its turn comes is announced under the new name.
pub fn key_renamed<M: ServerMachine>(value: Pointer) {
    let now = clock::now();
    if let Some(GoneKey { name, share, .. }) = timers::take_renamed::<M>(value, now) {
        announce_all::<M>(name, share, now);
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
    PENDING.with_borrow_mut(|pending| {
        let last = pending.losses.back_mut().filter(|last| last.name.db == db && *last.name.key == *key);
        if let Some(last) = last {
            last.reason = Reason::Evicted;
        }
    });
}

/// A database, or all of them, is about to be flushed: keys with leases go as one.
pub fn flush_begins(ctx: *mut raw::RedisModuleCtx, db: Option<i32>) {
    if !is_replica(ctx) {
        timers::flush(db, clock::now());
    }
}

/// It is flushed: waiters can have its keys.
pub fn flush_ended(db: Option<i32>) {
    queues::names(db).into_iter().for_each(|name| add(name, Task::Serve));
    plan_soon();
}

/// Two databases changed places: timers, sessions and pending tasks follow the keys, waiters stay.
pub fn databases_swapped(a: i32, b: i32) {
    timers::swap_databases(a, b);
    let swap = |name: &mut KeyName| {
        let db = name.db;
        name.db = [(a, b), (b, a)].into_iter().find(|(from, _)| *from == db).map_or(db, |(_, to)| to);
    };
    PENDING.with_borrow_mut(|pending| {
        pending.tasks.iter_mut().for_each(|(name, _)| swap(name));
        pending.ending_names.iter_mut().for_each(swap);
        pending.losses.iter_mut().for_each(|losses| swap(&mut losses.name));
        let endings = std::mem::take(&mut pending.endings).into_iter();
        let moved = endings.map(|(mut name, tasks)| {
            swap(&mut name);
            (name, tasks)
        });
        pending.endings = moved.collect();
    });
    for db in [a, b] {
        queues::names(Some(db)).into_iter().for_each(|name| add(name, Task::Serve));
    }
}

/// The server is a replica now. Most servers reply to waiters and close them; where one does not, it is done here.
pub fn demoted() {
    REPLICA.store(true, Relaxed);
    // It may be a command inside EXEC that makes it one.
    blocked_clients::put_off_while(true, || queues::names(None).iter().for_each(key_tasks::unblock));
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
