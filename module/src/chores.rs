//! What the module does without being asked: the one timer, and what waits for it.
//!
//! - **Wakes**: instants at which a key wants to be looked at: a lease ends, somebody's patience ends.
//! - **Chores**: what an event left to do. Events come in the middle of other work (a client is freed, a key is deleted),
//!   where nothing may be written, so they only leave a note here.
//! - **Renewals** of bound leases, the **search** for locks after a load, the watch over **slots** in a cluster.
//!
//! Keys are named by database and bytes, and read again when their turn comes. Nothing is written on a replica, while
//! loading, or while the server asks not to write to its replicas; chores then stay where they are.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;
use resil_core::limits::CLOCK_JITTER;
use resil_core::lock::Reason;
use resil_core::wakes::Wakes;
use resil_core::{Instant, Span};

use crate::edge::{api, guard};
use crate::lines::{self, Name};
use crate::machine::{Kind, Machine};
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
    /// The key left with this holder in it.
    Lost { owner: Box<[u8]>, fence: u64, reason: Reason },
}

impl Chore {
    fn is_ending(&self) -> bool {
        matches!(self, Self::Close(_) | Self::Cut { .. } | Self::TakeBack(_))
    }
}

/// How often what could not be done is tried again, and how often the cluster is looked at.
const PAUSE: Span = Span::from_ms(10);
const CLUSTER_PAUSE: Span = Span::from_ms(100);

/// Keys looked at in one go, before the server gets its turn again.
const SLICE: usize = 1_000;

struct Desk {
    chores: VecDeque<(Name, Chore)>,
    wakes: Wakes,
    timer: Option<(raw::RedisModuleTimerID, Instant)>,
    /// When the clock was last looked at.
    seen: Instant,
}

impl Default for Desk {
    fn default() -> Self {
        Self { chores: VecDeque::new(), wakes: Wakes::default(), timer: None, seen: Instant::EPOCH }
    }
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk::default());
    /// A context of the module's own, for setting timers where there is no other.
    static CONTEXT: Cell<*mut raw::RedisModuleCtx> = const { Cell::new(null_mut()) };
}

pub fn start(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: called while loading; kept for as long as the process lives.
    CONTEXT.set(unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx) });
}

pub fn context() -> *mut raw::RedisModuleCtx {
    CONTEXT.get()
}

/// Leaves something to be done as soon as something may be written.
pub fn add(name: Name, chore: Chore) {
    DESK.with_borrow_mut(|desk| desk.chores.push_back((name, chore)));
    set_timer(clock::now());
}

/// The key wants to be looked at, at `at`.
pub fn wake(at: Instant, kind: Kind, db: i32, key: &[u8]) {
    DESK.with_borrow_mut(|desk| desk.wakes.add(at, tag(kind, db), key));
    set_timer(at);
}

/// Endings that are still to be made in this key, in their order: they come before whatever is asked of it now.
pub fn take_endings(name: &Name) -> Vec<Chore> {
    DESK.with_borrow_mut(|desk| {
        if !desk.chores.iter().any(|(of, chore)| of == name && chore.is_ending()) {
            return Vec::new();
        }
        let (mine, others) =
            std::mem::take(&mut desk.chores).into_iter().partition(|(of, chore)| of == name && chore.is_ending());
        desk.chores = others;
        let mine: VecDeque<(Name, Chore)> = mine;
        mine.into_iter().map(|(_, chore)| chore).collect()
    })
}

/// True if nothing waits to be done: asked by every command.
pub fn is_idle() -> bool {
    DESK.with_borrow(|desk| desk.chores.is_empty())
}

/// The key does not want to be looked at, at `at`, after all.
pub fn sleep(at: Instant, kind: Kind, db: i32, key: &[u8]) {
    DESK.with_borrow_mut(|desk| desk.wakes.call_off(at, tag(kind, db), key));
}

/// Kind and database in one number, as the list of wakes has it.
fn tag(kind: Kind, db: i32) -> u16 {
    let kinds = Kind::ALL.len() as i32;
    u16::try_from(db * kinds + kind as i32).unwrap_or(u16::MAX)
}

fn name_of((tag, key): (u16, Box<[u8]>)) -> Name {
    let kinds = Kind::ALL.len();
    Name { db: i32::from(tag) / kinds as i32, kind: Kind::ALL[usize::from(tag) % kinds], key }
}

/// Sets the timer for whatever comes next.
pub fn plan() {
    let next = DESK.with_borrow(|desk| desk.wakes.first());
    if let Some(next) = next.into_iter().chain(sessions::next_due()).min() {
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

/// Does what is due. Returns after what time it wants to be called again at the latest, if it does.
fn run(ctx: *mut raw::RedisModuleCtx) -> Option<Span> {
    let now = clock::now();
    if is_replica(ctx) {
        DESK.with_borrow_mut(|desk| desk.chores.clear());
        return None;
    }
    if !may_write(ctx) {
        lines::names(None).iter().for_each(|name| room::give_up(ctx, name, now));
        let idle = DESK.with_borrow(|desk| desk.chores.is_empty() && desk.wakes.is_empty());
        return (!idle || sessions::any()).then_some(PAUSE);
    }
    let chores = DESK.with_borrow_mut(|desk| std::mem::take(&mut desk.chores));
    let mut again = None;
    for (name, chore) in chores {
        if let Some(chore) = room::do_chore(ctx, &name, chore, now) {
            // Its slot is on its way.
            DESK.with_borrow_mut(|desk| desk.chores.push_back((name, chore)));
            again = Some(CLUSTER_PAUSE);
        }
    }
    if sessions::next_due().is_some_and(|due| due <= now) {
        for (name, fence, ends) in sessions::take_due(ctx, now) {
            room::extend(ctx, &name, fence, ends, now);
        }
    }
    for _ in 0..SLICE {
        match DESK.with_borrow_mut(|desk| desk.wakes.take_due(now)) {
            Some(due) => room::woken(ctx, &name_of(due), now),
            None => break,
        }
    }
    if parked::answer_more(ctx) {
        again = Some(Span::from_ms(1));
    }
    if search::slice(ctx) {
        again = Some(Span::from_ms(1));
    }
    if cluster::enabled() && !lines::is_empty() {
        for name in lines::names(None) {
            room::redirect(ctx, &name, now);
        }
        again = again.or((!lines::is_empty()).then_some(CLUSTER_PAUSE));
    }
    again
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
pub fn key_left<M: Machine>(db: i32, key: &[u8], state: &M::State) {
    let now = clock::now();
    let name = Name::new(M::KIND, db, key);
    let mut any = lines::waits(&name);
    for (owner, fence) in M::holders(state, fences::promoted_at(), now) {
        any = true;
        let lost = Chore::Lost { owner, fence, reason: Reason::Absent };
        DESK.with_borrow_mut(|desk| desk.chores.push_back((name.clone(), lost)));
    }
    if any {
        add(name, Chore::Look);
    }
}

/// The server says that the key which left just now was evicted.
pub fn key_evicted(db: i32, key: &[u8]) {
    DESK.with_borrow_mut(|desk| {
        for (name, chore) in &mut desk.chores {
            if let Chore::Lost { reason, .. } = chore
                && name.db == db
                && *name.key == *key
            {
                *reason = Reason::Evicted;
            }
        }
    });
}

/// A database, or all of them, is about to be flushed.
pub fn flush_begins(ctx: *mut raw::RedisModuleCtx, db: Option<i32>) {
    if is_replica(ctx) {
        return;
    }
    // Every key with a lease is among the wakes, once; they go with the keys.
    let wakes: Vec<Name> = DESK.with_borrow_mut(|desk| desk.wakes.take_all()).map(name_of).collect();
    for name in wakes {
        if db.is_none_or(|db| db == name.db) {
            room::leaving(ctx, &name);
        } else {
            DESK.with_borrow_mut(|desk| desk.chores.push_back((name, Chore::Rearm)));
        }
    }
}

/// It is flushed: whoever waits can have it.
pub fn flush_ended(db: Option<i32>) {
    lines::names(db).into_iter().for_each(|name| add(name, Chore::Look));
}

/// Two databases changed places: what is armed follows the keys, who waits stays.
pub fn databases_swapped(a: i32, b: i32) {
    let swapped = |db: i32| {
        if db == a {
            b
        } else if db == b {
            a
        } else {
            db
        }
    };
    let wakes: Vec<Name> = DESK.with_borrow_mut(|desk| desk.wakes.take_all()).map(name_of).collect();
    for name in wakes {
        let name = Name { db: swapped(name.db), ..name };
        DESK.with_borrow_mut(|desk| desk.chores.push_back((name, Chore::Rearm)));
    }
    set_timer(clock::now());
    sessions::swap_databases(a, b);
    for db in [a, b] {
        lines::names(Some(db)).into_iter().for_each(|name| add(name, Chore::Look));
    }
}

/// The server is a replica now. Most servers answer and close whoever waited; where one does not, it is done here.
pub fn demoted() {
    lines::names(None).iter().for_each(room::unblock);
    sessions::clear();
    DESK.with_borrow_mut(|desk| {
        desk.chores.clear();
        desk.wakes = Wakes::default();
    });
    search::stop();
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
    let wakes = DESK.with_borrow_mut(|desk| desk.wakes.take_all());
    for wake in wakes {
        DESK.with_borrow_mut(|desk| desk.chores.push_back((name_of(wake), Chore::Rearm)));
    }
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
