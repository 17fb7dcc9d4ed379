//! Blocked clients: calls that wait, each of which gets exactly one reply.
//!
//! ```text
//!   block ──▶ blocked ── reply ──▶ sent ── the server calls back ──▶ written ── the server sleeps ──▶ delivered
//!               │                   │                                  │
//!               │                   └── its client is gone first: ─────┴── a grant is taken back
//!               └── its client closes, is killed or unblocked: it leaves the queue
//! ```
//! The server's own timeout is never used: on Redis 7.0 and 7.2 a reply in the same millisecond as that timeout is
//! swallowed. `CLIENT UNBLOCK` runs the same code, so a reply that it swallows is written here instead.
//!
//! A reply is delivered only when it has been handed to the socket, which the server does before it sleeps. A client that
//! the server finds gone before its next sleep has not got it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

use redis_module::raw;
use resil_core::waited::session::ClientId;
use resil_core::waited::{Undelivered, WaiterId};
use resil_core::{Instant, Span};
use resil_wire::reply::Sink;
use smallvec::SmallVec;

use crate::edge::blocking::{self, Handle};
use crate::edge::call::{Call, ReplySink};
use crate::info::counters;
use crate::pending::{self, Task};
use crate::queues::{self, KeyName};
use crate::turns::Turns;
use crate::{async_waits, background, clients, clock, events, waited_key};

type Write = dyn FnOnce(&mut dyn Sink);

/// The reply to a blocked client.
pub enum ClientReply {
    Verdict(Box<Write>),
    Error(CString),
}

impl ClientReply {
    pub fn verdict(write: impl FnOnce(&mut dyn Sink) + 'static) -> Self {
        Self::Verdict(Box::new(write))
    }

    pub fn error(text: &str) -> Self {
        Self::Error(CString::new(text).unwrap_or_else(|_| c"ERR".to_owned()))
    }
}

struct WaitingCall {
    target: Target,
    client: ClientId,
    name: Rc<KeyName>,
    /// Its reply, while that is put off.
    reply: Option<Box<PutOff>>,
}

/// Where its reply goes.
enum Target {
    Blocked(Handle),
    /// It is published; it names the owner who asked.
    Async(Arc<[u8]>),
}

/// A reply that is put off, the fence it grants, and about how long it is.
struct PutOff {
    reply: ClientReply,
    fence: Option<u64>,
    bytes: usize,
}

/// What a call waited for that has been sent its reply, and the fence it was granted, if it was.
struct Sent {
    name: Rc<KeyName>,
    fence: Option<u64>,
}

#[derive(Default)]
struct BlockedClients {
    last_id: WaiterId,
    /// Not hashed: a table that grows would hold the server.
    calls: BTreeMap<WaiterId, WaitingCall>,
    /// The keys that are waited for: all waiters of one share its name.
    names: BTreeSet<Rc<KeyName>>,
    by_handle: HashMap<Handle, WaiterId>,
    by_client: HashMap<ClientId, WaiterId>,
    /// The server has not called back yet.
    sent: HashMap<Handle, Sent>,
    /// Called back or published, but the server has not slept since: the fences.
    written: HashMap<ClientId, SmallVec<[u64; 1]>>,
    grants: Undelivered<KeyName>,
    /// The connection that the server last said is going: it says so before it takes the client apart.
    closing: ClientId,
    /// Until when the server's sleep is listened to at least.
    listening_until: Option<Instant>,
    /// Nothing is published now.
    is_nested: bool,
    turns: Turns,
}

thread_local! {
    static CLIENTS: RefCell<BlockedClients> = RefCell::new(BlockedClients::default());
}

fn with<R>(act: impl FnOnce(&mut BlockedClients) -> R) -> R {
    CLIENTS.with_borrow_mut(act)
}

/// A number for a call that may have to wait.
pub fn next_id() -> WaiterId {
    with(|clients| {
        clients.last_id += 1;
        clients.last_id
    })
}

/// Blocks the client of `call`. False if the server does not let it wait.
pub fn block(call: &Call<'_>, id: WaiterId, name: KeyName) -> bool {
    let Some(handle) = blocking::block(call) else { return false };
    let client = call.client();
    with(|clients| {
        let name = clients.share(name);
        clients.by_handle.insert(handle, id);
        clients.by_client.insert(client, id);
        clients.calls.insert(id, WaitingCall { target: Target::Blocked(handle), client, name, reply: None });
    });
    counters().waiters.raise(1);
    true
}

/// `owner` waits without a blocked client; the reply is published to the connection of `call`.
pub fn wait_async(call: &Call<'_>, id: WaiterId, name: KeyName, owner: Arc<[u8]>) {
    let client = call.client();
    async_waits::begun(client, id);
    with(|clients| {
        let name = clients.share(name);
        clients.calls.insert(id, WaitingCall { target: Target::Async(owner), client, name, reply: None })
    });
    counters().async_waiters.raise(1);
}

/// Replies to a call that waits with about `bytes`. What it grants is taken back if its client turns out to be gone.
///
/// Many replies at once would hold the server, and many large ones would fill its memory: what goes beyond a turn's share
/// is put off, in its order, and sent by the timer.
pub fn reply(id: WaiterId, reply: ClientReply, grant: Option<(u64, KeyName)>, bytes: usize) {
    let (may_go, is_first) = with(|clients| {
        let Some(call) = clients.calls.get_mut(&id) else { return (true, false) };
        let fence = grant.as_ref().map(|(fence, _)| *fence);
        let is_async = matches!(call.target, Target::Async(_));
        // Nothing large is published.
        let (reply, bytes) = match reply {
            _ if is_async && bytes > PUBLISHED_MAX => (ClientReply::error(ASK_AGAIN), 0),
            reply => (reply, if is_async { 0 } else { bytes }),
        };
        call.reply = Some(Box::new(PutOff { reply, fence, bytes }));
        if let Some((fence, name)) = grant {
            clients.grants.sent(fence, name);
        }
        let (is_first, now) = (clients.turns.is_idle(), clients.is_nested && is_async);
        (!clients.turns.puts_off(id, bytes, now), is_first)
    });
    if may_go {
        send(id);
    } else if is_first {
        background::plan_soon();
    }
}

/// Runs `send`, and puts its replies off if `is_nested`: Redis 7.0 writes what is published to a connection into the middle of
/// the reply to its EXEC.
pub fn put_off_while(is_nested: bool, send: impl FnOnce()) {
    with(|clients| clients.is_nested = is_nested);
    send();
    with(|clients| clients.is_nested = false);
}

/// The same with an error.
pub fn fail(id: WaiterId, text: &str) {
    reply(id, ClientReply::error(text), None, text.len());
}

/// Sends a call that waits its reply.
fn send(id: WaiterId) {
    let Some(WaitingCall { target, client, name, reply: Some(reply) }) = remove(id) else { return };
    let PutOff { reply, fence, bytes } = *reply;
    match target {
        Target::Blocked(handle) => {
            with(|clients| {
                clients.turns.sent(client, handle, bytes);
                clients.sent.insert(handle, Sent { name, fence });
            });
            handle.unblock(Some(reply));
        }
        Target::Async(owner) => {
            with(|clients| clients.turns.sent_one());
            let is_heard = async_waits::tell(client, &name, &owner, reply);
            match fence {
                Some(fence) if is_heard => note_written(client, fence),
                Some(fence) => take_back(fence),
                None => {}
            }
        }
    }
}

/// A grant lies in the buffer of a client.
fn note_written(client: ClientId, fence: u64) {
    with(|clients| clients.written.entry(client).or_default().push(fence));
    listen();
}

/// Sends a turn's share of the replies that were put off. True if there is more to do.
pub fn send_more(ctx: *mut raw::RedisModuleCtx) -> bool {
    if with(|clients| clients.turns.is_idle()) {
        return false;
    }
    with(|clients| clients.turns.begin());
    while let Some(id) = with(|clients| clients.turns.next_small()) {
        send(id);
    }
    if with(|clients| clients.turns.may_look()) {
        let unsent = clients::list(ctx, &with(|clients| clients.turns.to_look_at()));
        with(|clients| clients.turns.have_not_taken(&unsent));
        while let Some(id) = with(BlockedClients::next_large) {
            send(id);
        }
    }
    with(|clients| !clients.turns.is_idle())
}

impl BlockedClients {
    fn share(&mut self, name: KeyName) -> Rc<KeyName> {
        if let Some(shared) = self.names.get(&name) {
            return Rc::clone(shared);
        }
        let shared = Rc::new(name);
        self.names.insert(Rc::clone(&shared));
        shared
    }

    /// A call no longer waits.
    fn forget(&mut self, id: WaiterId) -> Option<WaitingCall> {
        let call = self.calls.remove(&id)?;
        // Its own, and that of the names.
        if Rc::strong_count(&call.name) == 2 {
            self.names.remove(&call.name);
        }
        Some(call)
    }

    fn next_large(&mut self) -> Option<WaiterId> {
        let Self { turns, calls, .. } = self;
        // One whose client has left is as good as none.
        turns.next_large(|id| calls.get(&id).and_then(|call| call.reply.as_ref()).map_or(0, |reply| reply.bytes))
    }
}

/// A larger reply is not published: a connection that is behind would keep all of them in the server's memory.
const PUBLISHED_MAX: usize = 65_536;
const ASK_AGAIN: &str = "AGAIN the reply is too large to be published; ask again, without WAIT";

/// True while a call of this connection waits.
pub fn waits(client: ClientId) -> bool {
    with(|clients| clients.by_client.contains_key(&client))
}

/// The calls that have waited longest, and for which keys; at most `most`.
pub fn longest_waiting(most: usize) -> Vec<(WaiterId, Rc<KeyName>)> {
    with(|clients| {
        let waiting = clients.calls.iter().take(most).filter(|(_, call)| call.reply.is_none());
        waiting.map(|(id, call)| (*id, Rc::clone(&call.name))).collect()
    })
}

fn remove(id: WaiterId) -> Option<WaitingCall> {
    let call = with(|clients| clients.forget(id))?;
    match call.target {
        Target::Blocked(handle) => {
            with(|clients| {
                clients.by_handle.remove(&handle);
                clients.by_client.remove(&call.client);
            });
            counters().waiters.lower(1);
        }
        Target::Async(_) => {
            async_waits::over(call.client, id);
            counters().async_waiters.lower(1);
        }
    }
    Some(call)
}

/// The server gives a call its client back, to write the reply that was sent.
pub fn write_sent(ctx: *mut raw::RedisModuleCtx, handle: Handle, client: ClientId, reply: Option<ClientReply>) {
    let fence = with(|clients| {
        clients.turns.written(&handle);
        clients.sent.remove(&handle).and_then(|sent| sent.fence)
    });
    if let Some(fence) = fence {
        note_written(client, fence);
    }
    if let Some(reply) = reply {
        write(ctx, reply);
    }
}

/// Replies to a call that is not blocked.
pub fn reply_now(call: &Call<'_>, reply: ClientReply) {
    write(call.ctx, reply);
}

fn write(ctx: *mut raw::RedisModuleCtx, reply: ClientReply) {
    let mut sink = ReplySink::of(ctx);
    match reply {
        ClientReply::Verdict(write) => write(&mut sink),
        ClientReply::Error(text) => sink.error(&text),
    }
}

/// CLIENT UNBLOCK ended the wait: the same as if its time were over.
pub fn unblocked(ctx: *mut raw::RedisModuleCtx, handle: Handle) {
    let Some(WaitingCall { name, client, reply, .. }) = leave(handle) else { return };
    let Some(reply) = reply else {
        return write(ctx, waited_key::timeout(ctx, &name));
    };
    // It has a reply, which was only put off.
    let PutOff { reply, fence, .. } = *reply;
    if let Some(fence) = fence {
        note_written(client, fence);
    }
    write(ctx, reply);
}

/// The client is gone, or was unblocked with an error.
pub fn disconnected(ctx: *mut raw::RedisModuleCtx, handle: Handle, client: ClientId) {
    if let Some(left) = leave(handle) {
        if let Some(fence) = left.reply.and_then(|reply| reply.fence) {
            take_back(fence);
        }
        return;
    }
    let sent = with(|clients| {
        clients.turns.written(&handle);
        clients.sent.remove(&handle)
    });
    let Some(Sent { name, fence }) = sent else { return };
    if has_no_reply(ctx, client) {
        write(ctx, waited_key::timeout(ctx, &name));
    }
    if let Some(fence) = fence {
        take_back(fence);
    }
}

/// A grant could not be delivered.
fn take_back(fence: u64) {
    if let Some(name) = with(|clients| clients.grants.undeliverable(fence)) {
        pending::add(name, Task::TakeBack(fence));
    }
}

/// A call whose reply was sent, but not written, has lost its client, or was unblocked by CLIENT UNBLOCK on a server that
/// then writes nothing (Redis before 7.4). Only in the second case, and only if it was not unblocked with an error, the
/// client still waits for a reply: nothing lies in its buffer yet.
///
/// A client that is being closed must not be asked about: Redis 7.0 crashes on it.
fn has_no_reply(ctx: *mut raw::RedisModuleCtx, client: ClientId) -> bool {
    if with(|clients| clients.closing == client) {
        return false;
    }
    clients::list(ctx, &[client]).iter().any(|client| client.unsent == 0)
}

/// Takes a blocked call out of its queue; the server frees the handle.
fn leave(handle: Handle) -> Option<WaitingCall> {
    let id = with(|clients| clients.by_handle.get(&handle).copied())?;
    let call = remove(id)?;
    handle.unblock(None);
    if call.reply.is_none() {
        leave_queue(&call.name, id);
    }
    Some(call)
}

/// Nobody waits for this any more. Only if it was the head, others may get what it waited for.
fn leave_queue(name: &KeyName, id: WaiterId) {
    if queues::leave(name, id) {
        pending::add(name.clone(), Task::Serve);
    }
}

/// Takes the next wait of a connection that is gone out of its queue; false if there is none.
pub fn leave_next() -> bool {
    let Some(id) = async_waits::next_left() else { return false };
    match remove(id) {
        Some(WaitingCall { reply: Some(reply), .. }) => reply.fence.into_iter().for_each(take_back),
        Some(WaitingCall { name, .. }) => leave_queue(&name, id),
        None => {}
    }
    true
}

/// The connection is gone: the grants that were written to it are taken back.
pub fn closed(client: ClientId) {
    with(|clients| clients.closing = client);
    if let Some(fences) = with(|clients| clients.written.remove(&client)) {
        fences.into_iter().for_each(take_back);
    }
    async_waits::closed(client);
}

/// The reply to another call of its owner had the grant: it is not taken back any more.
pub fn notified_elsewhere(name: &KeyName, fence: u64) {
    with(|clients| clients.grants.notified_elsewhere(name, fence));
}

/// True if grants are on their way: asked by every command that replies with one.
pub fn any_undelivered() -> bool {
    CLIENTS.with_borrow(|clients| !clients.grants.is_empty())
}

/// The server has slept: all replies have been handed to the sockets. Called by the event itself, so the subscription
/// stays; a timer ends it.
pub fn slept() {
    with(|clients| {
        for (_, fences) in clients.written.drain() {
            fences.into_iter().for_each(|fence| clients.grants.delivered(fence));
        }
    });
}

/// How long the subscription to the server's sleep outlives the last grant that a waiter got. It costs some hundred
/// instructions for each turn of the server's loop, and subscribing anew for every grant would cost as much.
const LINGER: Span = Span::from_secs(1);

/// A grant is being delivered: the server's next sleep matters.
fn listen() {
    let is_new = with(|clients| clients.listening_until.replace(clock::now().plus(LINGER)).is_none());
    if is_new {
        events::hear_of_sleep(true);
        background::plan();
    }
}

/// When the subscription may end, if there is one.
pub fn listens_until() -> Option<Instant> {
    CLIENTS.with_borrow(|clients| clients.listening_until)
}

/// Ends the subscription if no grant was delivered of late. Only for the timer: the event's own callback must not do it.
pub fn stop_listening(now: Instant) {
    let over = with(|clients| {
        let over = clients.written.is_empty() && clients.listening_until.is_some_and(|until| until <= now);
        if over {
            clients.listening_until = None;
        }
        over
    });
    if over {
        events::hear_of_sleep(false);
    }
}
