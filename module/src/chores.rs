//! What the module does without being asked: the one timer, and what waits for it.
//!
//! - **Timers**: instants at which a key wants to be looked at: a lease ends, somebody's patience ends.
//! - **Chores**: what an event left to do. Events come in the middle of other work (a client is freed, a key is deleted),
//!   where nothing may be written, so they only leave a note here. *Endings* are made before the next command sees the key.
//! - What hung on connections that **closed**, keys that are **gone** with their holders, **renewals** of bound leases, the
//!   **search** for locks after a load, the watch over **slots** in a cluster.
//!
//! All of it is done in slices: a few of each in turn, until the slice's time is used up; then the server has its turn, and
//! the timer comes back. So no number of keys, holders or waiters holds the server for longer than a slice.
//!
//! Keys are named by database and bytes, and read again when their turn comes. Nothing is written on a replica, while
//! loading, or while the server asks not to write to its replicas; chores then stay where they are.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redis_module::raw;
use resil_core::limits::CLOCK_JITTER;
use resil_core::lock::Reason;
use resil_core::{Instant, Span};

use crate::datatype::waited::Waited;
use crate::edge::{api, guard};
use crate::lines::{self, Name};
use crate::machine::Machine;
use crate::timers::{self, Taken};
use crate::{clock, cluster, fences, parked, room, search, sessions};

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

impl Chore {
    fn is_ending(&self) -> bool {
        matches!(self, Self::Close(_) | Self::Cut { .. } | Self::TakeBack(_))
    }
}

/// How often what could not be done is tried again, and how often the cluster is looked at.
const PAUSE: Span = Span::from_ms(10);
const CLUSTER_PAUSE: Span = Span::from_ms(100);

/// How long a slice takes at most, and how many of each sort are done before the next sort has its turn.
const SLICE: Duration = Duration::from_micros(1_500);
const BATCH: usize = 8;

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

struct Desk {
    chores: VecDeque<(Name, Chore)>,
    losses: VecDeque<Losses>,
    endings: HashMap<Name, Vec<Chore>>,
    /// The names of `endings` in the order they came; some are no longer there.
    ending_names: VecDeque<Name>,
    timer: Option<(raw::RedisModuleTimerID, Instant)>,
    /// When the clock was last looked at.
    seen: Instant,
}

impl Default for Desk {
    fn default() -> Self {
        let (chores, losses) = (VecDeque::new(), VecDeque::new());
        let (endings, ending_names) = (HashMap::new(), VecDeque::new());
        Self { chores, losses, endings, ending_names, timer: None, seen: Instant::EPOCH }
    }
}

/// Whether the server is a replica, as far as events told.
static REPLICA: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::default());
    /// A context of the module's own, for setting timers where there is no other.
    static CONTEXT: Cell<*mut raw::RedisModuleCtx> = const { Cell::new(null_mut()) };
}

pub fn start(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: called while loading; kept for as long as the process lives.
    CONTEXT.set(unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx) });
    REPLICA.store(is_replica(ctx), Relaxed);
}

pub fn context() -> *mut raw::RedisModuleCtx {
    CONTEXT.get()
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
            self.endings.entry(name).or_default().push(chore);
        } else {
            self.chores.push_back((name, chore));
        }
    }

    fn next_ending(&mut self) -> Option<(Name, Chore)> {
        loop {
            let name = self.ending_names.pop_front()?;
            if let Some(chores) = self.endings.get_mut(&name) {
                let chore = chores.remove(0);
                if chores.is_empty() {
                    self.endings.remove(&name);
                }
                return Some((name, chore));
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

/// The key wants to be looked at, at `at`.
pub fn plan_at(at: Instant) {
    set_timer(at);
}

/// Endings that are still to be made in this key, in their order: they come before whatever is asked of it now.
pub fn take_endings(name: &Name) -> Vec<Chore> {
    let mut endings = sessions::closed_in(name);
    endings.extend(DESK.with_borrow_mut(|desk| desk.endings.remove(name)).into_iter().flatten());
    endings
}

/// True while holders that lost a key may not have been told.
pub fn losses_pending() -> bool {
    timers::any_gone() || DESK.with_borrow(|desk| !desk.chores.is_empty() || !desk.losses.is_empty())
}

/// True if no ending is to be made, in whatever key: asked by every command.
pub fn no_endings() -> bool {
    DESK.with_borrow(|desk| desk.endings.is_empty()) && !sessions::is_closing()
}

/// Sets the timer for whatever comes next.
pub fn plan() {
    let next = timers::first();
    if let Some(next) = next.into_iter().chain(sessions::next_due()).chain(parked::listens_until()).min() {
        set_timer(next);
    }
}

/// Comes back as soon as the server has done what is at hand.
pub fn plan_soon() {
    set_timer(clock::now());
}

/// One timer, at the earliest instant anybody asked for. While a test holds the clock, only what is due is waited for.
fn set_timer(at: Instant) {
    let now = clock::now();
    if clock::is_held() && at > now {
        return;
    }
    let earlier = DESK.with_borrow(|desk| desk.timer.is_some_and(|(_, set)| set <= at));
    if earlier {
        return;
    }
    stop_timer();
    // SAFETY: the module's own context.
    let id =
        unsafe { api!(RedisModule_CreateTimer)(CONTEXT.get(), now.until(at).ceil_ms(), Some(on_timer), null_mut()) };
    DESK.with_borrow_mut(|desk| desk.timer = Some((id, at)));
}

extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        DESK.with_borrow_mut(|desk| desk.timer = None);
        let again = run(ctx);
        plan();
        if let Some(pause) = again {
            set_timer(clock::now().plus(pause));
        }
    });
}

/// Does a slice of what is due. Returns after what time it wants to be called again at the latest, if it does.
fn run(ctx: *mut raw::RedisModuleCtx) -> Option<Span> {
    const AT_ONCE: Span = Span::ZERO;
    let now = clock::now();
    let slice = clock::Stopwatch::start();
    parked::stop_listening(now);
    let mut again = parked::answer_more(ctx).then_some(Span::from_ms(1));
    if is_replica(ctx) {
        DESK.with_borrow_mut(Desk::clear);
        while !matches!(timers::take_gone(), Taken::Nothing) {
            if slice.elapsed() > SLICE {
                return Some(AT_ONCE);
            }
        }
        return again;
    }
    if !may_write(ctx) {
        lines::names(None).iter().for_each(|name| room::give_up(ctx, name, now));
        let idle = DESK.with_borrow(Desk::is_idle) && timers::is_empty() && !timers::any_gone();
        return again.or((!idle || sessions::any()).then_some(PAUSE));
    }
    let mut waiting = Vec::new();
    loop {
        let mut done = 0;
        for sort in [endings, closed, chores, losses, renewals, woken, gone, anew] {
            done += sort(ctx, now, &mut waiting);
        }
        if search::slice(ctx) {
            // What it found is among the chores; the next buckets come when those are done.
            again = Some(AT_ONCE);
            break;
        }
        if done == 0 {
            break;
        }
        if slice.elapsed() > SLICE {
            again = Some(AT_ONCE);
            break;
        }
    }
    if !waiting.is_empty() {
        // Their slots are on their way.
        DESK.with_borrow_mut(|desk| waiting.into_iter().for_each(|(name, chore)| desk.add(name, chore)));
        again = again.or(Some(CLUSTER_PAUSE));
    }
    if cluster::enabled() && !lines::is_empty() {
        for name in lines::names(None) {
            room::redirect(ctx, &name, now);
        }
        again = again.or((!lines::is_empty()).then_some(CLUSTER_PAUSE));
    }
    again
}

/// What has to wait, because its slot is on its way.
type Waiting = Vec<(Name, Chore)>;

/// Does up to a batch of one sort; returns how many were done.
fn batch(mut one: impl FnMut() -> bool) -> usize {
    (0..BATCH).take_while(|_| one()).count()
}

fn do_or_keep(ctx: *mut raw::RedisModuleCtx, (name, chore): (Name, Chore), now: Instant, waiting: &mut Waiting) {
    if let Some(chore) = room::do_chore(ctx, &name, chore, now) {
        waiting.push((name, chore));
    }
}

fn endings(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    let next = || DESK.with_borrow_mut(Desk::next_ending);
    batch(|| next().map(|chore| do_or_keep(ctx, chore, now, waiting)).is_some())
}

fn chores(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    let next = || DESK.with_borrow_mut(|desk| desk.chores.pop_front());
    batch(|| next().map(|chore| do_or_keep(ctx, chore, now, waiting)).is_some())
}

fn losses(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    let next = || DESK.with_borrow_mut(Desk::next_loss);
    batch(|| next().map(|loss| do_or_keep(ctx, loss, now, waiting)).is_some())
}

/// What hung on connections that have closed.
fn closed(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    batch(|| sessions::take_closed().map(|chore| do_or_keep(ctx, chore, now, waiting)).is_some())
}

/// Bound leases whose connections were heard of.
fn renewals(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    if sessions::next_due().is_none_or(|due| due > now) {
        return 0;
    }
    let due = sessions::take_due(ctx, now, BATCH);
    due.iter().for_each(|(name, fence, ends)| room::extend(ctx, name, *fence, *ends, now));
    // Those of closed connections count as well: there may be more behind them.
    due.len().max(1)
}

/// Keys whose instant has come.
fn woken(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    batch(|| timers::take_due(now).map(|name| room::woken(ctx, &name, now)).is_some())
}

/// Keys that are gone with their holders.
fn gone(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    batch(|| match timers::take_gone() {
        Taken::Gone(gone) => {
            room::gone(ctx, &gone, now);
            true
        }
        Taken::Dropped => true,
        Taken::Nothing => false,
    })
}

/// Keys whose timers mean nothing any more.
fn anew(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    batch(|| timers::take_anew().map(|name| room::woken(ctx, &name, now)).is_some())
}

fn is_replica(ctx: *mut raw::RedisModuleCtx) -> bool {
    flags(ctx) & raw::REDISMODULE_CTX_FLAGS_SLAVE as c_int != 0
}

fn may_write(ctx: *mut raw::RedisModuleCtx) -> bool {
    let loading = raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    // SAFETY: takes no argument.
    flags(ctx) & loading as c_int == 0 && unsafe { api!(RedisModule_AvoidReplicaTraffic)() } == 0
}

fn flags(ctx: *mut raw::RedisModuleCtx) -> c_int {
    // SAFETY: the context is that of this callback.
    unsafe { api!(RedisModule_GetContextFlags)(ctx) }
}

/// A value leaves its key, in whatever way: its holders may have lost it, and whoever waits can have it.
///
/// # Safety
/// `value` is the live value that leaves, an M's.
pub unsafe fn key_left<M: Machine>(db: i32, key: &[u8], value: *mut c_void) {
    if REPLICA.load(Relaxed) {
        return;
    }
    let now = clock::now();
    // SAFETY: by contract.
    let noted = NonNull::new(value).is_some_and(|value| unsafe { timers::key_left::<M>(db, value.cast(), now) });
    if noted {
        return plan_soon();
    }
    // SAFETY: by contract.
    let state = unsafe { &Waited::<M>::get(value).state };
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
    DESK.with_borrow_mut(Desk::clear);
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
    set_timer(clock::now());
}

/// A test set the clock.
pub fn clock_was_set() {
    watch_clock();
    stop_timer();
    set_timer(clock::now());
}

/// Notices a clock that was set back. The server's own timers go by that clock as well, so this comes from its cron.
pub fn watch_clock() {
    let now = clock::now();
    let seen = DESK.with_borrow_mut(|desk| std::mem::replace(&mut desk.seen, now));
    if now.plus(CLOCK_JITTER) >= seen {
        return;
    }
    timers::look_at_all_anew();
    sessions::clock_ran_back(now);
    stop_timer();
    set_timer(now);
}

fn stop_timer() {
    if let Some((id, _)) = DESK.with_borrow_mut(|desk| desk.timer.take()) {
        // SAFETY: the module's own context; a timer that has run has been taken.
        unsafe { api!(RedisModule_StopTimer)(CONTEXT.get(), id, null_mut()) };
    }
}
