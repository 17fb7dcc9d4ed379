//! Connections and the holdings that hang on them. The rules are `resil_core::session`'s; here they meet the server.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;
use resil_core::waited::Reason;
use resil_core::waited::session::{Binding, ClientId, ClosedHolding, Due, HoldingId, Loss, Sessions};
use resil_core::{Instant, Span};
use resil_wire::Refused;
use resil_wire::holding::Bind;

use crate::call::{Call, Failure};
use crate::info::counters;
use crate::machines::Kind;
use crate::pending::{self, Task};
use crate::queues::KeyName;
use crate::{background, blocked_clients, clients, clock, timers};

thread_local! {
    static SESSIONS: RefCell<Sessions<Kind>> = RefCell::new(Sessions::default());
}

/// Whether there are any: asked by every command.
static ANY: AtomicBool = AtomicBool::new(false);

fn with<R>(act: impl FnOnce(&mut Sessions<Kind>) -> R) -> R {
    SESSIONS.with_borrow_mut(|sessions| {
        let result = act(sessions);
        ANY.store(!sessions.is_empty(), Relaxed);
        counters().sessions.set(sessions.len() as i64);
        counters().bound.set(sessions.bound() as i64);
        result
    })
}

pub fn any() -> bool {
    ANY.load(Relaxed)
}

/// The connection a grant is to hang on.
pub fn target(call: &Call<'_>, bind: Bind) -> Result<Option<Binding>, Failure> {
    let asking = call.client();
    let (target, grace) = match bind {
        Bind::None => return Ok(None),
        Bind::Here { grace } => (asking, grace),
        Bind::To { client, grace } => (client, grace),
    };
    if call.is_in_script() {
        return Err(Refused::new("BOUND is not possible in a script: it has no connection of its own").into());
    }
    if target != asking && !clients::have_same_user(call.ctx, asking, target) {
        return Err(Refused::new(format_args!("BOUNDTO {target} is not a connection of the same user")).into());
    }
    Ok(Some(Binding { client: target, grace }))
}

/// Hangs a holding on a connection. If that one is gone already, the holding ends at once, or has its grace.
pub fn bind(binding: Binding, name: &KeyName, fence: u64, lease: Span, now: Instant) {
    if !clients::is_connected(binding.client) {
        // An earlier binding decides no more.
        unbind(name, fence);
        return pending::add(name.clone(), of_close(fence, binding.grace, now));
    }
    with(|sessions| sessions.bind(binding, place(name, fence), name.kind, lease, now));
    lose_soon();
    background::plan();
}

/// What the close of a connection at `at` leaves to do with a holding that hung on it.
fn of_close(fence: u64, grace: Span, at: Instant) -> Task {
    if grace.is_zero() { Task::Close(fence) } else { Task::Cut { fence, grace, at } }
}

fn place(name: &KeyName, fence: u64) -> HoldingId {
    HoldingId { db: timers::space_of(name.db), key: name.key.clone(), fence }
}

/// A holding ended by its owner's will.
pub fn unbind(name: &KeyName, fence: u64) {
    if any() {
        with(|sessions| sessions.unbind(&place(name, fence)));
    }
}

/// A holding was lost.
pub fn lose(name: &KeyName, fence: u64, reason: Reason) {
    if any() {
        with(|sessions| sessions.lose(&place(name, fence), reason));
    }
}

/// The grace of a holding, if it hangs on a connection.
pub fn grace(name: &KeyName, fence: u64) -> Option<Span> {
    if any() { with(|sessions| sessions.grace(&place(name, fence))) } else { None }
}

/// A command of ours came from the connection of `call`.
pub fn heard(call: &Call<'_>) {
    if any() {
        with(|sessions| sessions.heard(call.client(), clock::now()));
        lose_soon();
    }
}

pub fn heartbeat(client: ClientId, now: Instant) -> (usize, Vec<Loss>) {
    let losses = with(|sessions| sessions.heartbeat(client, now));
    lose_soon();
    losses
}

/// What very many leases ended in one silence leave to do is done by the timer.
fn lose_soon() {
    if SESSIONS.with_borrow(Sessions::is_losing) {
        background::plan_soon();
    }
}

/// Takes note of one holding that ended in a silence; false if there is none.
pub fn lose_next() -> bool {
    any() && with(Sessions::lose_next)
}

/// A connection closed: what hung on it ends, or is cut to its grace, as soon as something may be written.
pub fn closed(client: ClientId) {
    if !any() {
        return;
    }
    with(|sessions| sessions.close(client, clock::now()));
    if is_closing() {
        background::plan_soon();
    }
}

/// True while something is to be done for connections that have closed.
pub fn is_closing() -> bool {
    any() && SESSIONS.with_borrow(Sessions::is_closing)
}

/// The next of what is to be done for connections that have closed.
pub fn take_closed() -> Option<(KeyName, Task)> {
    if !is_closing() {
        return None;
    }
    let ClosedHolding { place, kind, grace, at } = with(Sessions::take_closed)?;
    Some((name_of(place.db, kind, place.key), of_close(place.fence, grace, at)))
}

/// The same for one holding.
pub fn closed_at(name: &KeyName, fence: u64) -> Option<Task> {
    if !is_closing() {
        return None;
    }
    let ClosedHolding { grace, at, .. } = with(|sessions| sessions.take_closed_at(&place(name, fence)))?;
    Some(of_close(fence, grace, at))
}

/// The same for one key, until they weigh `most` or more.
pub fn closed_in(name: &KeyName, most: usize, weigh: impl Fn(u64) -> usize) -> Vec<Task> {
    if !is_closing() {
        return Vec::new();
    }
    let closed = with(|sessions| sessions.closed_in(timers::space_of(name.db), &name.key, most, weigh));
    closed.into_iter().map(|ClosedHolding { place, grace, at, .. }| of_close(place.fence, grace, at)).collect()
}

fn name_of(space: i32, kind: Kind, key: Box<[u8]>) -> KeyName {
    KeyName { db: timers::database_of(space), kind, key }
}

/// Until when a bound holding lasts, by when its connection was last heard of; `None` if it is not bound. `asked` is the
/// connection that was asked for last: of many that hang on it the first asks.
pub fn heard_until(
    ctx: *mut raw::RedisModuleCtx,
    name: &KeyName,
    fence: u64,
    now: Instant,
    asked: &Cell<Option<ClientId>>,
) -> Option<Instant> {
    let due = SESSIONS.with_borrow(|sessions| sessions.bound_as(&place(name, fence)))?;
    if asked.replace(Some(due.client)) == Some(due.client) {
        return SESSIONS.with_borrow(|sessions| sessions.last_heard(due.client)).map(|heard| heard.plus(due.lease));
    }
    listen(ctx, std::slice::from_ref(&due), now);
    with(|sessions| sessions.lasts_until(&due.place, due.client))
}

pub fn next_due() -> Option<Instant> {
    if any() { SESSIONS.with_borrow(|sessions| sessions.next_due()) } else { None }
}

/// When the connection of a short lease is to be looked at.
pub fn next_lapse() -> Option<Instant> {
    if any() { SESSIONS.with_borrow(|sessions| sessions.next_lapse()) } else { None }
}

/// Up to `most` keys with short leases whose connection was silent for as long; `None` if no connection is to be looked at.
pub fn take_lapsed(now: Instant, most: usize) -> Option<Vec<KeyName>> {
    next_lapse().filter(|at| *at <= now)?;
    let client = with(|sessions| sessions.take_lapse(now))?;
    if blocked_clients::waits(client) {
        with(|sessions| sessions.was_there(client, now));
    }
    let lapsed = with(|sessions| sessions.lapsed(client, now, most));
    Some(lapsed.into_iter().map(|(place, kind)| name_of(place.db, kind, place.key)).collect())
}

/// Until when a short lease counts as held because its connection was heard of, whatever its key says.
pub fn keeps(name: &KeyName, fence: u64, now: Instant) -> Option<Instant> {
    let (client, until, lease) = SESSIONS.with_borrow(|sessions| sessions.keeps(&place(name, fence)))?;
    let until = if blocked_clients::waits(client) { now.plus(lease) } else { until };
    (until > now).then_some(until)
}

/// Holdings whose leases are to be moved, each with the instant its connection was last heard of.
pub fn take_due(ctx: *mut raw::RedisModuleCtx, now: Instant, most: usize) -> Vec<(KeyName, u64, Instant)> {
    let due = with(|sessions| sessions.take_due(now, most));
    listen(ctx, &due, now);
    let renewal = |Due { place, kind, client, .. }: Due<Kind>| {
        let until = with(|sessions| sessions.lasts_until(&place, client))?;
        Some((name_of(place.db, kind, place.key), place.fence, until))
    };
    due.into_iter().filter_map(renewal).collect()
}

/// A connection that waits in one of our calls counts as alive. Other traffic is known to the second, so it can only carry long leases.
fn listen(ctx: *mut raw::RedisModuleCtx, due: &[Due<Kind>], now: Instant) {
    const LEAST_LEASE: Span = Span::from_secs(3);
    let mut silent: Vec<ClientId> = Vec::new();
    for Due { client, lease, .. } in due {
        if blocked_clients::waits(*client) {
            with(|sessions| sessions.was_there(*client, now));
        } else if *lease >= LEAST_LEASE
            && with(|sessions| sessions.last_heard(*client)).is_some_and(|heard| heard.until(now) > lease.third())
        {
            silent.push(*client);
        }
    }
    silent.sort_unstable();
    silent.dedup();
    for listed in clients::list(ctx, &silent) {
        // `idle=n` is the difference of two truncated seconds.
        let ago = Span::from_secs(listed.idle_secs.saturating_add(1));
        with(|sessions| sessions.heard(listed.id, now.minus(ago)));
    }
    lose_soon();
}

/// The clock was set back to `now`.
pub fn clock_ran_back(now: Instant) {
    if any() {
        with(|sessions| sessions.look_at_all(now));
    }
}

/// The server is a replica now: its leases are somebody else's to renew.
pub fn clear() {
    let sessions = SESSIONS.take();
    with(|_| ());
    // There can be many, and nobody waits for their end.
    let _freed = std::thread::Builder::new().spawn(move || drop(sessions));
}
