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
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
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
use crate::{async_waits, background, clients, clock, config, events, waited_key};

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

    fn error(text: &str) -> Self {
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
    /// The key that was last waited for: the next call is likely to wait for it, too, and they share its name.
    last_name: Option<Rc<KeyName>>,
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
    /// Small replies that are put off, in their order. Some have been sent meanwhile.
    put_off: VecDeque<WaiterId>,
    /// The same for large ones, which small ones do not wait for.
    large: VecDeque<WaiterId>,
    /// Nothing is published now.
    is_nested: bool,
    /// How many replies were sent in this turn, and when that began.
    sent_in_turn: usize,
    turn: Option<Instant>,
    /// The clients that last got a large reply, and what of those replies is not yet on its way.
    slice: Vec<ClientId>,
    slice_bytes: usize,
    /// Those of them whose reply the server has not written yet.
    unwritten: HashSet<Handle>,
    tries: u32,
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
    let (is_put_off, is_first) = with(|clients| {
        let is_first = clients.put_off.is_empty() && clients.large.is_empty();
        let Some(call) = clients.calls.get_mut(&id) else { return (false, false) };
        let fence = grant.as_ref().map(|(fence, _)| *fence);
        let (reply, bytes) = match call.target {
            Target::Async(_) if bytes > PUBLISHED_MAX => (ClientReply::error(ASK_AGAIN), ASK_AGAIN.len()),
            _ => (reply, bytes),
        };
        call.reply = Some(Box::new(PutOff { reply, fence, bytes }));
        if let Some((fence, name)) = grant {
            clients.grants.sent(fence, name);
        }
        let may_go = if bytes > SMALL {
            let may_go = clients.large.is_empty() && clients.can_send(bytes);
            clients.large.extend((!may_go).then_some(id));
            may_go
        } else {
            let may_go = !clients.is_nested && clients.put_off.is_empty() && clients.has_a_turn_left();
            clients.put_off.extend((!may_go).then_some(id));
            may_go
        };
        (!may_go, is_first)
    });
    if !is_put_off {
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
    with(|clients| clients.sent_in_turn += 1);
    match target {
        Target::Blocked(handle) => {
            with(|clients| {
                if bytes > SMALL {
                    clients.slice.push(client);
                    clients.unwritten.insert(handle);
                    clients.slice_bytes += bytes;
                }
                clients.sent.insert(handle, Sent { name, fence });
            });
            handle.unblock(Some(reply));
        }
        Target::Async(owner) => {
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

/// Sends a turn's share of the small replies that were put off. Large ones go as far as the clients before have taken theirs,
/// or have had a second to do so: those that do not read are then left to the server's own limits. True if there is more to do.
pub fn send_more(ctx: *mut raw::RedisModuleCtx) -> bool {
    if with(|clients| clients.put_off.is_empty() && clients.large.is_empty()) {
        return false;
    }
    with(|clients| (clients.sent_in_turn, clients.turn) = (0, None));
    while let Some(id) = with(BlockedClients::next_small) {
        send(id);
    }
    let (any, unwritten) = with(|clients| (!clients.large.is_empty(), !clients.unwritten.is_empty()));
    if any && !unwritten {
        see_who_has_taken(ctx);
        while let Some(id) = with(BlockedClients::next_large) {
            with(|clients| clients.tries = 0);
            send(id);
        }
    }
    with(|clients| !clients.put_off.is_empty() || !clients.large.is_empty())
}

/// Which of the clients that last got a large reply have not taken it yet.
fn see_who_has_taken(ctx: *mut raw::RedisModuleCtx) {
    let slice = with(|clients| clients.slice.clone());
    let mut unsent = clients::list(ctx, &slice);
    unsent.retain(|client| client.unsent > 0);
    with(|clients| {
        clients.tries += 1;
        if clients.tries > TRIES {
            unsent.clear();
        }
        clients.slice_bytes = unsent.iter().map(|client| usize::try_from(client.unsent).unwrap_or(usize::MAX)).sum();
        clients.slice = unsent.iter().map(|client| client.id).collect();
    });
}

impl BlockedClients {
    fn share(&mut self, name: KeyName) -> Rc<KeyName> {
        match &self.last_name {
            Some(last) if **last == name => Rc::clone(last),
            _ => Rc::clone(self.last_name.insert(Rc::new(name))),
        }
    }

    fn can_send(&self, bytes: usize) -> bool {
        self.slice.is_empty() || self.slice_bytes.saturating_add(bytes) <= config::wake_budget()
    }

    /// True if one more reply may be sent in this turn.
    fn has_a_turn_left(&mut self) -> bool {
        let now = clock::now();
        if self.turn.is_none_or(|turn| turn.until(now) >= TURN_LASTS || turn > now) {
            (self.sent_in_turn, self.turn) = (0, Some(now));
        }
        self.sent_in_turn < TURN
    }

    /// The next small reply of this turn.
    fn next_small(&mut self) -> Option<WaiterId> {
        if self.sent_in_turn >= TURN { None } else { self.put_off.pop_front() }
    }

    /// The next large reply, if it can be sent. One whose client has left is as good as none.
    fn next_large(&mut self) -> Option<WaiterId> {
        let id = *self.large.front()?;
        let bytes = self.calls.get(&id).and_then(|call| call.reply.as_ref()).map_or(0, |reply| reply.bytes);
        if self.can_send(bytes) { self.large.pop_front() } else { None }
    }
}

/// How many replies are sent in a millisecond. The server's own part in each, which writes to a socket, is the larger.
const TURN: usize = 100;
const TURN_LASTS: Span = Span::from_ms(1);

/// Replies up to this size are not worth counting.
const SMALL: usize = 4096;

/// A larger reply is not published: a connection that is behind would keep all of them in the server's memory.
const PUBLISHED_MAX: usize = 65_536;
const ASK_AGAIN: &str = "AGAIN the reply is too large to be published; ask again, without WAIT";

/// How often, a millisecond apart, clients are asked whether they have taken their replies.
const TRIES: u32 = 1_000;

/// True while a call of this connection waits.
pub fn waits(client: ClientId) -> bool {
    with(|clients| clients.by_client.contains_key(&client))
}

fn remove(id: WaiterId) -> Option<WaitingCall> {
    let call = with(|clients| clients.calls.remove(&id))?;
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
        clients.unwritten.remove(&handle);
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
        clients.unwritten.remove(&handle);
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

/// The owner of a grant was told of it by another call: it is not taken back any more.
pub fn told_elsewhere(name: &KeyName, fence: u64) {
    with(|clients| clients.grants.told_elsewhere(name, fence));
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
