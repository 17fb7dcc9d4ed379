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
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;
use resil_core::queue::WaiterId;
use resil_core::session::ClientId;
use resil_wire::reply::Sink;

use crate::call::{Call, ReplySink};
use crate::chores::{self, Chore};
use crate::edge::{OK, api, guard};
use crate::info::counters;
use crate::lines::{self, Name};
use crate::{events, holding};

/// What a parked call is told.
pub enum Told {
    Verdict(Box<dyn FnOnce(&mut dyn Sink)>),
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

struct Parked {
    handle: *mut raw::RedisModuleBlockedClient,
    client: ClientId,
    name: Name,
}

#[derive(Default)]
struct Room {
    last_id: WaiterId,
    parked: HashMap<WaiterId, Parked>,
    by_handle: HashMap<usize, WaiterId>,
    by_client: HashMap<ClientId, WaiterId>,
    /// Answered, but the server has not called back yet.
    answered: HashMap<usize, Option<Granted>>,
    /// Called back, but the server has not slept since.
    telling: HashMap<ClientId, Granted>,
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
        room.parked.insert(id, Parked { handle, client, name });
    });
    counters().waiters.raise(1);
    true
}

/// Answers a parked call. `granted` is taken back if its client turns out to be gone.
pub fn answer(id: WaiterId, told: Told, granted: Option<Granted>) {
    let Some(parked) = remove(id) else { return };
    ROOM.with_borrow_mut(|room| room.answered.insert(parked.handle.addr(), granted));
    // SAFETY: unblocked once: it is no longer among the parked. The server gives the box to `tell` and `forget`.
    unsafe { api!(RedisModule_UnblockClient)(parked.handle, Box::into_raw(Box::new(Some(told))).cast()) };
}

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
        let granted = ROOM.with_borrow_mut(|room| {
            let granted = room.answered.remove(&handle.addr()).flatten();
            if let Some(granted) = &granted {
                room.telling.insert(client, granted.clone());
            }
            granted
        });
        if granted.is_some() {
            events::hear_of_sleep(true);
        }
        write(ctx, told.and_then(Option::take));
    });
    OK
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
        if let Some(name) = leave(handle) {
            write(ctx, Some(holding::timeout(ctx, &name)));
        }
    });
    OK
}

/// The client is gone, or was unblocked with an error.
extern "C" fn disconnected(ctx: *mut raw::RedisModuleCtx, handle: *mut raw::RedisModuleBlockedClient) {
    guard((), || {
        if leave(handle).is_some() {
            return;
        }
        let Some(granted) = ROOM.with_borrow_mut(|room| room.answered.remove(&handle.addr())) else { return };
        if let Some(granted) = granted {
            chores::add(granted.name.clone(), Chore::TakeBack(granted.fence));
            if is_unanswered(ctx) {
                write(ctx, Some(holding::timeout(ctx, &granted.name)));
            }
        }
    });
}

/// A call that had been answered, but not told, was unblocked by CLIENT UNBLOCK: if that has written nothing, the
/// client still waits for a reply. If the client is being closed, what is written here goes nowhere.
fn is_unanswered(ctx: *mut raw::RedisModuleCtx) -> bool {
    // SAFETY: the context is that of the blocked client.
    let client = unsafe { api!(RedisModule_GetClientId)(ctx) };
    let list = crate::clients::list(ctx, &[client]);
    list.iter().any(|client| client.unsent == 0)
}

/// Takes a parked call out of its line; the server frees the handle.
fn leave(handle: *mut raw::RedisModuleBlockedClient) -> Option<Name> {
    let id = ROOM.with_borrow(|room| room.by_handle.get(&handle.addr()).copied())?;
    let parked = remove(id)?;
    // SAFETY: unblocked once: it is no longer among the parked.
    unsafe { api!(RedisModule_UnblockClient)(handle, null_mut()) };
    lines::leave(&parked.name, id);
    chores::add(parked.name.clone(), Chore::Look);
    Some(parked.name)
}

/// The connection is gone: a grant it was being told is taken back.
pub fn closed(client: ClientId) {
    if let Some(granted) = ROOM.with_borrow_mut(|room| room.telling.remove(&client)) {
        chores::add(granted.name, Chore::TakeBack(granted.fence));
    }
}

/// The server has slept: whatever was to be told has been handed to the sockets.
pub fn slept() {
    ROOM.with_borrow_mut(|room| room.telling.clear());
    events::hear_of_sleep(false);
}
