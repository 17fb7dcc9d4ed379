//! Parked clients: calls that wait for an answer, each answered exactly once.
//!
//! ```text
//!   park ──▶ parked ── answer ──▶ answered ── the server calls back ──▶ told
//!              │                     │
//!              │                     └── its client is gone first: a grant is taken back
//!              └── its client closes, is killed or unblocked: it leaves the line
//! ```
//! The server's own timeout is never used: on Redis 7.0 and 7.2 an answer in the same millisecond as that timeout is
//! swallowed. `CLIENT UNBLOCK` runs the same code, so an answer that it swallows is given here instead.
//!
//! *Told* is known only when the reply has been handed to the socket, which the server does before it sleeps. A client
//! that the server finds gone before its next sleep has not been told.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;
use resil_core::queue::WaiterId;
use resil_core::session::ClientId;
use resil_core::{Instant, Span};
use resil_wire::reply::Sink;

use crate::call::{Call, ReplySink};
use crate::chores::{self, Chore};
use crate::edge::{OK, api, guard};
use crate::info::counters;
use crate::lines::{self, Name};
use crate::{background, clients, clock, config, events, room};

type Write = dyn FnOnce(&mut dyn Sink);

/// What a parked call is told.
pub enum Told {
    Verdict(Box<Write>),
    Error(CString),
}

impl Told {
    pub fn verdict(write: impl FnOnce(&mut dyn Sink) + 'static) -> Self {
        Self::Verdict(Box::new(write))
    }

    pub fn error(text: &str) -> Self {
        Self::Error(CString::new(text).unwrap_or_else(|_| c"ERR".to_owned()))
    }
}

/// The grant an answer carries: the key and the fence.
#[derive(Clone)]
pub struct Granted {
    pub name: Name,
    pub fence: u64,
}

/// What an answered call waited for, and the fence it was granted, if it was.
struct Answered {
    name: Name,
    fence: Option<u64>,
}

struct Parked {
    handle: *mut raw::RedisModuleBlockedClient,
    client: ClientId,
    name: Name,
    /// Its answer, while that is put off.
    answer: Option<Answer>,
}

/// An answer that is put off: what is told, the fence it grants, and about how long the reply is.
struct Answer {
    told: Told,
    fence: Option<u64>,
    bytes: usize,
}

#[derive(Default)]
struct Room {
    last_id: WaiterId,
    parked: HashMap<WaiterId, Parked>,
    by_handle: HashMap<usize, WaiterId>,
    by_client: HashMap<ClientId, WaiterId>,
    /// Answered, but the server has not called back yet.
    answered: HashMap<usize, Answered>,
    /// Grants on their way, by fence: taken back if it turns out that they cannot be told.
    grants: HashMap<u64, Name>,
    /// The connection that the server last said is going: it says so before it takes the client apart.
    closing: ClientId,
    /// Called back, but the server has not slept since: the fences.
    telling: HashMap<ClientId, u64>,
    /// Until when the server's sleep is listened to at least.
    listening_until: Option<Instant>,
    /// Small answers that are put off, in their order. Some have been given meanwhile.
    put_off: VecDeque<WaiterId>,
    /// The same for large ones, which small ones do not wait for.
    large: VecDeque<WaiterId>,
    /// How many answers were given in this turn, and when that began.
    given: usize,
    turn: Option<Instant>,
    /// Who was answered last with a large reply, and what of those replies is not yet on its way.
    slice: Vec<ClientId>,
    slice_bytes: usize,
    /// Those of them whose reply the server has not written yet, by handle.
    untold: HashSet<usize>,
    tries: u32,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::new(Room::default());
}

/// A number for a call that may have to wait.
pub fn next_id() -> WaiterId {
    ROOM.with_borrow_mut(|room| {
        room.last_id += 1;
        room.last_id
    })
}

/// Parks the client of `call`. False if the server does not let it wait.
pub fn park(call: &Call<'_>, id: WaiterId, name: Name) -> bool {
    // SAFETY: the callbacks have the signatures asked for; no timeout, so the server never ends the wait by itself.
    let handle = unsafe { api!(RedisModule_BlockClient)(call.ctx, Some(tell), Some(unblocked), Some(forget), 0) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: the handle is live until it is unblocked.
    unsafe { api!(RedisModule_SetDisconnectCallback)(handle, Some(disconnected)) };
    let client = call.client();
    ROOM.with_borrow_mut(|room| {
        room.by_handle.insert(handle.addr(), id);
        room.by_client.insert(client, id);
        room.parked.insert(id, Parked { handle, client, name, answer: None });
    });
    counters().waiters.raise(1);
    true
}

/// Answers a parked call with a reply of about `bytes`. `granted` is taken back if its client turns out to be gone.
///
/// Many answers at once would hold the server, and many large ones would fill its memory: what goes beyond a turn's share
/// is put off, in its order, and given by the timer.
pub fn answer(id: WaiterId, told: Told, granted: Option<Granted>, bytes: usize) {
    let (is_put_off, is_first) = ROOM.with_borrow_mut(|room| {
        let is_first = room.put_off.is_empty() && room.large.is_empty();
        let Some(parked) = room.parked.get_mut(&id) else { return (false, false) };
        let fence = granted.as_ref().map(|granted| granted.fence);
        parked.answer = Some(Answer { told, fence, bytes });
        room.grants.extend(granted.map(|granted| (granted.fence, granted.name)));
        let may_go = if bytes > SMALL {
            let may_go = room.large.is_empty() && room.has_room_for(bytes);
            room.large.extend((!may_go).then_some(id));
            may_go
        } else {
            let may_go = room.put_off.is_empty() && room.has_a_turn_left();
            room.put_off.extend((!may_go).then_some(id));
            may_go
        };
        (!may_go, is_first)
    });
    if !is_put_off {
        give(id);
    } else if is_first {
        background::plan_soon();
    }
}

/// Gives a parked call its answer.
fn give(id: WaiterId) {
    let Some(Parked { handle, client, name, answer: Some(Answer { told, fence, bytes }) }) = remove(id) else { return };
    ROOM.with_borrow_mut(|room| {
        room.given += 1;
        if bytes > SMALL {
            room.slice.push(client);
            room.untold.insert(handle.addr());
            room.slice_bytes += bytes;
        }
        room.answered.insert(handle.addr(), Answered { name, fence });
    });
    // SAFETY: unblocked once: it is no longer among the parked. The server gives the box to `tell` and `forget`.
    unsafe { api!(RedisModule_UnblockClient)(handle, Box::into_raw(Box::new(Some(told))).cast()) };
}

/// Gives a turn's share of the small answers that were put off. Large ones go as far as the clients before have taken theirs, or
/// have had a second to do so: who does not read is then left to the server's own limits. True if there is more to do.
pub fn answer_more(ctx: *mut raw::RedisModuleCtx) -> bool {
    if ROOM.with_borrow(|room| room.put_off.is_empty() && room.large.is_empty()) {
        return false;
    }
    ROOM.with_borrow_mut(|room| (room.given, room.turn) = (0, None));
    while let Some(id) = ROOM.with_borrow_mut(Room::next_small) {
        give(id);
    }
    let (any, unwritten) = ROOM.with_borrow(|room| (!room.large.is_empty(), !room.untold.is_empty()));
    if any && !unwritten {
        look_who_has_taken(ctx);
        while let Some(id) = ROOM.with_borrow_mut(Room::next_large) {
            ROOM.with_borrow_mut(|room| room.tries = 0);
            give(id);
        }
    }
    ROOM.with_borrow(|room| !room.put_off.is_empty() || !room.large.is_empty())
}

/// Which of the clients that were answered last with a large reply have not taken it yet.
fn look_who_has_taken(ctx: *mut raw::RedisModuleCtx) {
    let slice = ROOM.with_borrow(|room| room.slice.clone());
    let mut unsent = clients::list(ctx, &slice);
    unsent.retain(|client| client.unsent > 0);
    ROOM.with_borrow_mut(|room| {
        room.tries += 1;
        if room.tries > TRIES {
            unsent.clear();
        }
        room.slice_bytes = unsent.iter().map(|client| usize::try_from(client.unsent).unwrap_or(usize::MAX)).sum();
        room.slice = unsent.iter().map(|client| client.id).collect();
    });
}

impl Room {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.slice.is_empty() || self.slice_bytes.saturating_add(bytes) <= config::wake_budget()
    }

    /// True if one more may be answered in this turn.
    fn has_a_turn_left(&mut self) -> bool {
        let now = clock::now();
        if self.turn.is_none_or(|turn| turn.until(now) >= TURN_LASTS || turn > now) {
            (self.given, self.turn) = (0, Some(now));
        }
        self.given < TURN
    }

    /// The next small answer that this turn has room for.
    fn next_small(&mut self) -> Option<WaiterId> {
        if self.given >= TURN { None } else { self.put_off.pop_front() }
    }

    /// The next large answer, if there is room for it. One whose client has left is as good as none.
    fn next_large(&mut self) -> Option<WaiterId> {
        let id = *self.large.front()?;
        let bytes = self.parked.get(&id).and_then(|parked| parked.answer.as_ref()).map_or(0, |answer| answer.bytes);
        if self.has_room_for(bytes) { self.large.pop_front() } else { None }
    }
}

/// How many answers are given in a millisecond. The server's own part in each, which writes to a socket, is the larger.
const TURN: usize = 100;
const TURN_LASTS: Span = Span::from_ms(1);

/// Replies up to this size are not worth counting.
const SMALL: usize = 4096;

/// How often, a millisecond apart, clients are asked whether they have taken their replies.
const TRIES: u32 = 1_000;

/// True while a call of this connection waits.
pub fn waits(client: ClientId) -> bool {
    ROOM.with_borrow(|room| room.by_client.contains_key(&client))
}

fn remove(id: WaiterId) -> Option<Parked> {
    let parked = ROOM.with_borrow_mut(|room| {
        let parked = room.parked.remove(&id)?;
        room.by_handle.remove(&parked.handle.addr());
        room.by_client.remove(&parked.client);
        Some(parked)
    })?;
    counters().waiters.lower(1);
    Some(parked)
}

/// The server gives an answered call its client back.
extern "C" fn tell(ctx: *mut raw::RedisModuleCtx, _argv: *mut *mut raw::RedisModuleString, _argc: c_int) -> c_int {
    guard((), || {
        // SAFETY: the context is that of the unblocked client, its private data is the box made in `answer`.
        let (handle, told, client) = unsafe {
            let told = api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Option<Told>>();
            (api!(RedisModule_GetBlockedClientHandle)(ctx), told.as_mut(), api!(RedisModule_GetClientId)(ctx))
        };
        let telling = ROOM.with_borrow_mut(|room| {
            room.untold.remove(&handle.addr());
            let Some(Answered { fence: Some(fence), .. }) = room.answered.remove(&handle.addr()) else {
                return false;
            };
            room.telling.insert(client, fence);
            true
        });
        if telling {
            listen();
        }
        write(ctx, told.and_then(Option::take));
    });
    OK
}

/// Tells a call that is not parked.
pub fn tell_now(call: &Call<'_>, told: Told) {
    write(call.ctx, Some(told));
}

fn write(ctx: *mut raw::RedisModuleCtx, told: Option<Told>) {
    match told {
        Some(Told::Verdict(write)) => write(&mut ReplySink::of(ctx)),
        // SAFETY: the server copies the text.
        Some(Told::Error(text)) => unsafe {
            api!(RedisModule_ReplyWithError)(ctx, text.as_ptr());
        },
        None => {}
    }
}

extern "C" fn forget(_ctx: *mut raw::RedisModuleCtx, told: *mut c_void) {
    if !told.is_null() {
        // SAFETY: the box made in `answer`, given back once.
        guard((), || drop(unsafe { Box::from_raw(told.cast::<Option<Told>>()) }));
    }
}

/// CLIENT UNBLOCK ended the wait: the same as if its time were over.
extern "C" fn unblocked(ctx: *mut raw::RedisModuleCtx, _argv: *mut *mut raw::RedisModuleString, _argc: c_int) -> c_int {
    guard((), || {
        // SAFETY: the context is that of the blocked client.
        let handle = unsafe { api!(RedisModule_GetBlockedClientHandle)(ctx) };
        let Some(Parked { name, client, answer, .. }) = leave(handle) else { return };
        let Some(Answer { told, fence, .. }) = answer else {
            return write(ctx, Some(room::timeout(ctx, &name)));
        };
        // It has an answer, which was only put off.
        if let Some(fence) = fence {
            ROOM.with_borrow_mut(|room| room.telling.insert(client, fence));
            listen();
        }
        write(ctx, Some(told));
    });
    OK
}

/// The client is gone, or was unblocked with an error.
extern "C" fn disconnected(ctx: *mut raw::RedisModuleCtx, handle: *mut raw::RedisModuleBlockedClient) {
    guard((), || {
        if let Some(parked) = leave(handle) {
            if let Some(fence) = parked.answer.and_then(|answer| answer.fence) {
                take_back(fence);
            }
            return;
        }
        let answered = ROOM.with_borrow_mut(|room| {
            room.untold.remove(&handle.addr());
            room.answered.remove(&handle.addr())
        });
        let Some(Answered { name, fence }) = answered else { return };
        if is_unanswered(ctx) {
            write(ctx, Some(room::timeout(ctx, &name)));
        }
        if let Some(fence) = fence {
            take_back(fence);
        }
    });
}

/// A grant could not be told.
fn take_back(fence: u64) {
    if let Some(name) = ROOM.with_borrow_mut(|room| room.grants.remove(&fence)) {
        chores::add(name, Chore::TakeBack(fence));
    }
}

/// A call that had been answered, but not told, has lost its client, or was unblocked by CLIENT UNBLOCK on a server that
/// then tells it nothing (Redis before 7.4). Only in the second case, and only if it was not unblocked with an error,
/// the client still waits for a reply: nothing lies in its buffer yet.
///
/// A client that is being closed must not be asked about: Redis 7.0 crashes on it.
fn is_unanswered(ctx: *mut raw::RedisModuleCtx) -> bool {
    // SAFETY: the context is that of the blocked client.
    let client = unsafe { api!(RedisModule_GetClientId)(ctx) };
    if ROOM.with_borrow(|room| room.closing == client) {
        return false;
    }
    let list = clients::list(ctx, &[client]);
    list.iter().any(|client| client.unsent == 0)
}

/// Takes a parked call out of its line; the server frees the handle.
fn leave(handle: *mut raw::RedisModuleBlockedClient) -> Option<Parked> {
    let id = ROOM.with_borrow(|room| room.by_handle.get(&handle.addr()).copied())?;
    let parked = remove(id)?;
    // SAFETY: unblocked once: it is no longer among the parked.
    unsafe { api!(RedisModule_UnblockClient)(handle, null_mut()) };
    if parked.answer.is_none() {
        lines::leave(&parked.name, id);
        chores::add(parked.name.clone(), Chore::Look);
    }
    Some(parked)
}

/// The connection is gone: a grant it was being told is taken back.
pub fn closed(client: ClientId) {
    ROOM.with_borrow_mut(|room| room.closing = client);
    if let Some(fence) = ROOM.with_borrow_mut(|room| room.telling.remove(&client)) {
        take_back(fence);
    }
}

/// The owner of a grant was told of it by another call: it is not taken back any more.
pub fn told_elsewhere(name: &Name, fence: u64) {
    ROOM.with_borrow_mut(|room| {
        if room.grants.get(&fence) == Some(name) {
            room.grants.remove(&fence);
        }
    });
}

/// True if grants are on their way: asked by every command that tells one.
pub fn is_telling() -> bool {
    ROOM.with_borrow(|room| !room.grants.is_empty())
}

/// The server has slept: all replies have been handed to the sockets. Called by the event itself, so the subscription
/// stays; a timer ends it.
pub fn slept() {
    ROOM.with_borrow_mut(|room| {
        for (_, fence) in room.telling.drain() {
            room.grants.remove(&fence);
        }
    });
}

/// How long the subscription to the server's sleep outlives the last grant that a waiter was told. It costs some hundred
/// instructions for each turn of the server's loop, and subscribing anew for every grant would cost as much.
const LINGER: Span = Span::from_secs(1);

/// A grant is being told: the server's next sleep matters.
fn listen() {
    let is_new = ROOM.with_borrow_mut(|room| room.listening_until.replace(clock::now().plus(LINGER)).is_none());
    if is_new {
        events::hear_of_sleep(true);
        background::plan();
    }
}

/// When the subscription may end, if there is one.
pub fn listens_until() -> Option<Instant> {
    ROOM.with_borrow(|room| room.listening_until)
}

/// Ends the subscription if no grant was told of late. Only for the timer: the event's own callback must not do it.
pub fn stop_listening(now: Instant) {
    let over = ROOM.with_borrow_mut(|room| {
        let over = room.telling.is_empty() && room.listening_until.is_some_and(|until| until <= now);
        if over {
            room.listening_until = None;
        }
        over
    });
    if over {
        events::hear_of_sleep(false);
    }
}
