//! The one timer of the module, and the slices in which it does what nobody asked for.
//!
//! A slice does a few of each sort in turn, until its time is used up; then the server has its turn, and the timer comes back.
//! So no number of keys, holders or waiters holds the server for longer than a slice, and no sort waits for another.
//!
//! Nothing is written on a replica, while loading, or while the server asks not to write to its replicas; what is to be done
//! then stays where it is.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Duration;

use redis_module::raw;
use resil_core::limits::CLOCK_JITTER;
use resil_core::{Instant, Span};

use crate::cluster::Watch;
use crate::edge::guard;
use crate::pending::{self, Task};
use crate::queues::{self, KeyName};
use crate::timers::{self, Taken};
use crate::{blocked_clients, clock, cluster, key_tasks, search, server, sessions};

/// How often what could not be done is tried again, and how often the cluster is looked at.
const PAUSE: Span = Span::from_ms(10);
const CLUSTER_PAUSE: Span = Span::from_ms(100);

/// How long a slice takes at most, and how many of each sort are done before the next sort has its turn.
const SLICE: Duration = Duration::from_micros(1_500);
const BATCH: usize = 8;

/// How long a batch takes at most, if more than one is done: some are larger than others.
const BATCH_TIME: Duration = Duration::from_micros(300);

type Timer = (raw::RedisModuleTimerID, Instant);

thread_local! {
    /// The timer, and when it comes.
    static TIMER: Cell<Option<Timer>> = const { Cell::new(None) };
    /// When the clock was last looked at.
    static SEEN: Cell<Instant> = const { Cell::new(Instant::EPOCH) };
    /// Keys whose waiters may have to go to another node.
    static REDIRECTS: RefCell<Vec<KeyName>> = const { RefCell::new(Vec::new()) };
    /// A context of the module's own, for setting timers where there is no other.
    static CONTEXT: Cell<*mut raw::RedisModuleCtx> = const { Cell::new(null_mut()) };
}

pub fn start(ctx: *mut raw::RedisModuleCtx) {
    CONTEXT.set(server::own_context(ctx));
    pending::start(is_replica(ctx));
}

pub fn context() -> *mut raw::RedisModuleCtx {
    CONTEXT.get()
}

/// Sets the timer for whatever comes next.
pub fn plan() {
    let next = timers::first();
    if let Some(next) = next
        .into_iter()
        .chain(sessions::next_due())
        .chain(sessions::next_lapse())
        .chain(blocked_clients::listens_until())
        .min()
    {
        set_timer(next);
    }
}

/// Comes back as soon as the server has done what is at hand.
pub fn plan_soon() {
    set_timer(clock::now());
}

/// One timer, at the earliest instant anybody asked for. While a test holds the clock, only what is due is waited for.
pub fn set_timer(at: Instant) {
    // Nearly always: then nobody asks what time it is.
    if TIMER.get().is_some_and(|(_, set)| set <= at) {
        return;
    }
    let now = clock::now();
    if !clock::is_held() || at <= now {
        start_timer(now.until(at), at);
    }
}

/// Comes back after `pause` of the server's own time, even while a test holds the clock: what is put off is not due at an
/// instant, it only leaves the server its turn.
fn come_back_after(pause: Span) {
    let at = clock::now().plus(pause);
    if TIMER.get().is_none_or(|(_, set)| set > at) {
        start_timer(pause, at);
    }
}

/// Redis 7.0 counts the microseconds until its next timer in 32 bits: with one that is further away than 35 minutes it spins. So what is
/// far away is looked at again in between.
const FAR: Span = Span::from_secs(900);

fn start_timer(after: Span, at: Instant) {
    stop_timer();
    let (after, at) = if after > FAR { (FAR, clock::now().plus(FAR)) } else { (after, at) };
    TIMER.set(Some((server::start_timer(CONTEXT.get(), after.ceil_ms(), on_timer), at)));
}

extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        TIMER.set(None);
        let again = run(ctx);
        plan();
        if let Some(pause) = again {
            come_back_after(pause);
        }
    });
}

/// Does a slice of what is due. Returns after what time it wants to be called again at the latest, if it does.
fn run(ctx: *mut raw::RedisModuleCtx) -> Option<Span> {
    const AT_ONCE: Span = Span::ZERO;
    let now = clock::now();
    let slice = clock::Stopwatch::start();
    blocked_clients::stop_listening(now);
    let mut again = blocked_clients::send_more(ctx).then_some(Span::from_ms(1));
    while pending::turn_next_away() {
        if slice.elapsed() > SLICE {
            return Some(AT_ONCE);
        }
    }
    if is_replica(ctx) {
        pending::clear();
        while !matches!(timers::take_gone(), Taken::Nothing) {
            if slice.elapsed() > SLICE {
                return Some(AT_ONCE);
            }
        }
        return again;
    }
    if !may_write() {
        for name in queues::names_due(now) {
            key_tasks::give_up(ctx, &name, now);
            if slice.elapsed() > SLICE {
                return Some(AT_ONCE);
            }
        }
        let idle = pending::is_idle() && timers::is_empty() && !timers::any_gone();
        return again.or((!idle || sessions::any()).then_some(PAUSE));
    }
    match cluster::watch(ctx, now) {
        Watch::Nothing => {}
        Watch::Waiting => again = again.or(Some(CLUSTER_PAUSE)),
        Watch::Gained => search::start(),
    }
    let mut waiting = Vec::new();
    loop {
        let mut done = 0;
        for sort in [endings, closed, left, silent, lapsed, losses, others, renewals, woken, gone, anew] {
            done += sort(ctx, now, &mut waiting);
        }
        // What a search finds is among the pending: it goes on when those are done.
        if done == 0 && !search::slice(ctx) {
            break;
        }
        if slice.elapsed() > SLICE {
            again = Some(AT_ONCE);
            break;
        }
    }
    if !waiting.is_empty() {
        // Their slots are on their way.
        pending::keep(waiting);
        again = again.or(Some(CLUSTER_PAUSE));
    }
    if cluster::enabled() && !queues::is_empty() {
        again = again.or(Some(redirect_some(ctx, now, &slice)));
    }
    again
}

/// Sends waiters to where their keys have moved. Returns when to go on.
fn redirect_some(ctx: *mut raw::RedisModuleCtx, now: Instant, slice: &clock::Stopwatch) -> Span {
    let mut names = REDIRECTS.take();
    if names.is_empty() {
        names = queues::names(None);
    }
    while let Some(name) = names.pop() {
        key_tasks::redirect(ctx, &name, now);
        if slice.elapsed() > SLICE {
            break;
        }
    }
    let pause = if names.is_empty() { CLUSTER_PAUSE } else { Span::ZERO };
    REDIRECTS.set(names);
    pause
}

/// What has to wait, because its slot is on its way.
type Waiting = Vec<(KeyName, Task)>;

/// Does up to a batch of one sort; returns how many were done.
fn batch(one: impl FnMut() -> bool) -> usize {
    let time = clock::Stopwatch::start();
    resil_core::batch::run(BATCH, || time.elapsed() >= BATCH_TIME, one)
}

fn do_or_keep(ctx: *mut raw::RedisModuleCtx, (name, task): (KeyName, Task), now: Instant, waiting: &mut Waiting) {
    if let Some(task) = key_tasks::run_task(ctx, &name, task, now) {
        waiting.push((name, task));
    }
}

fn endings(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    batch(|| pending::next_ending().map(|task| do_or_keep(ctx, task, now, waiting)).is_some())
}

fn others(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    batch(|| pending::next().map(|task| do_or_keep(ctx, task, now, waiting)).is_some())
}

fn losses(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    batch(|| pending::next_loss().map(|loss| do_or_keep(ctx, loss, now, waiting)).is_some())
}

/// What hung on connections that have closed.
fn closed(ctx: *mut raw::RedisModuleCtx, now: Instant, waiting: &mut Waiting) -> usize {
    batch(|| sessions::take_closed().map(|task| do_or_keep(ctx, task, now, waiting)).is_some())
}

/// Waits of connections that have closed.
fn left(_ctx: *mut raw::RedisModuleCtx, _now: Instant, _waiting: &mut Waiting) -> usize {
    batch(blocked_clients::leave_next)
}

/// Short bound leases whose connections were silent.
fn silent(_ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    let Some(lapsed) = sessions::take_lapsed(now, BATCH) else { return 0 };
    lapsed.into_iter().for_each(|name| pending::add(name, Task::Serve));
    1
}

/// Bound leases that ended in a silence.
fn lapsed(_ctx: *mut raw::RedisModuleCtx, _now: Instant, _waiting: &mut Waiting) -> usize {
    batch(sessions::lose_next)
}

/// Bound leases whose connections were heard of.
fn renewals(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    if sessions::next_due().is_none_or(|due| due > now) {
        return 0;
    }
    let due = sessions::take_due(ctx, now, BATCH);
    due.iter().for_each(|(name, fence, ends)| key_tasks::extend(ctx, name, *fence, *ends, now));
    // Those of closed connections count as well: there may be more behind them.
    due.len().max(1)
}

/// Keys whose instant has come.
fn woken(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    batch(|| timers::take_due(now).map(|name| key_tasks::woken(ctx, &name, now)).is_some())
}

/// Keys that are gone with their holders.
fn gone(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    batch(|| match timers::take_gone() {
        Taken::Gone(gone) => {
            key_tasks::gone(ctx, gone, now);
            true
        }
        Taken::Dropped => true,
        Taken::Nothing => false,
    })
}

/// Keys whose timers mean nothing any more.
fn anew(ctx: *mut raw::RedisModuleCtx, now: Instant, _waiting: &mut Waiting) -> usize {
    batch(|| timers::take_anew().map(|name| key_tasks::woken(ctx, &name, now)).is_some())
}

pub fn is_replica(ctx: *mut raw::RedisModuleCtx) -> bool {
    server::flags(ctx) & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
}

fn may_write() -> bool {
    !server::is_loading() && !server::avoids_replica_traffic()
}

/// A test set the clock.
pub fn clock_was_set() {
    watch_clock();
    stop_timer();
    set_timer(clock::now());
}

/// Notices a clock that was set back. The server's own timers go by that clock as well, so this comes from its cron.
pub fn watch_clock() {
    clock::watch();
    let now = clock::now();
    let seen = SEEN.replace(now);
    if now.plus(CLOCK_JITTER) >= seen {
        return;
    }
    timers::look_at_all_anew();
    sessions::clock_ran_back(now);
    stop_timer();
    set_timer(now);
}

fn stop_timer() {
    if let Some((id, _)) = TIMER.take() {
        // One that has run has been taken.
        server::stop_timer(CONTEXT.get(), id);
    }
}
