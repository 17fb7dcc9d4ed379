//! A key that can be waited for, opened: its state and its queue, stepped together.
//!
//! Commands and background tasks come through here alike. What a step did is settled in one place: stored, replicated,
//! announced; waiters get their replies; leases that ended are unbound; the timer is set when the step asks for it.

use std::cell::{Cell, LazyCell};

use redis_module::raw;
use resil_core::waited::session::SHORT;
use resil_core::waited::{
    Binding, Decision, End, Ending, Heard, Queue, Reason, Reply, Setting, Stepped, Terms, WaitedKey, WaiterId, Waiting,
};
use resil_core::{Instant, Span};
use resil_wire::holding::Wait;
use resil_wire::late::write_queued;

use crate::apply::{publish_edits_of, store_state};
use crate::blocked_clients::{self, ClientReply};
use crate::call::{Call, Failure, with_string};
use crate::cluster;
use crate::datatype::waited::{Live, Waited, weigh};
use crate::info::counters;
use crate::key::Key;
use crate::machines::{ServerMachine, for_kind};
use crate::pending::{self, Losses, Task, details_of};
use crate::queues::{self, KeyName};
use crate::{announce, async_waits, background, clock, config, fences, sessions};

/// The reply to waiters of a key that is no longer here: ask again, at its new node or under its new name.
pub(crate) const TRY_AGAIN: &str = "TRYAGAIN the key is no longer here; ask again";

/// The error for a call whose owner asked again elsewhere, or let go.
const SUPERSEDED: &str = "SUPERSEDED the same owner asked again, and has the place with that call, or let go";

/// How many endings are made in a key before a command, or a slice of the timer, goes on. One that costs as much as several counts
/// as so many.
const ENDINGS_AT_ONCE: usize = 32;

/// What is in the key. A large state is not cheap to make and to drop: there is a fresh one only where there is no key.
enum Content<M: ServerMachine> {
    Value(Live<M>),
    Missing(M::State),
}

/// How a caller asks for what a key grants.
pub struct Asking {
    pub wait: Wait,
    /// See [`waiting`].
    pub waiting: Option<Waiting>,
    pub bind_to: Option<Binding>,
    pub lease: Span,
}

pub struct Opened<'c, M: ServerMachine> {
    key: Key<'c>,
    content: Content<M>,
    name: &'c [u8],
    db: i32,
}

impl<'c, M: ServerMachine> Opened<'c, M> {
    pub fn open(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Result<Self, Failure> {
        let key = Key::open_to_write(call, name);
        let content = Live::of(&key)?.map_or_else(|| Content::Missing(M::State::default()), Content::Value);
        let name = key.name();
        Ok(Self { key, content, name, db: call.db() })
    }

    pub fn state(&self) -> &M::State {
        match &self.content {
            Content::Value(value) => value.state(),
            Content::Missing(fresh) => fresh,
        }
    }

    fn value(&self) -> Option<&Live<M>> {
        match &self.content {
            Content::Value(value) => Some(value),
            Content::Missing(_) => None,
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.value().is_some()
    }

    fn state_mut(&mut self) -> &mut M::State {
        match &mut self.content {
            Content::Value(value) => value.state_mut(),
            Content::Missing(fresh) => fresh,
        }
    }

    pub fn name(&self) -> KeyName {
        KeyName::new(M::KIND, self.db, self.name)
    }

    /// Takes the step of a caller who asks for what the key grants. A grant is bound if the caller asked for that; a caller who is
    /// queued is blocked, or gets its position.
    pub fn ask(
        self,
        call: &Call<'_>,
        now: Instant,
        Asking { wait, waiting, bind_to, lease }: Asking,
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, Decision<M::Grant, M::Refusal>>,
    ) -> Decision<M::Grant, M::Refusal> {
        let is_named = bind_to.is_some() || waiting.is_some() || blocked_clients::any_undelivered();
        let name = is_named.then(|| self.name());
        let decision = self.step(call, now, &[], step);
        if let Decision::Granted(grant) = &decision {
            settle_grant(name.as_ref(), bind_to, M::terms(grant).fence, lease, now);
        } else if let (Decision::Queued, Some(Waiting { id, .. }), Some(name)) = (&decision, waiting, name) {
            M::counters().waited.add(1);
            wait_for_reply(call, wait, id, name);
        }
        decision
    }

    /// Takes a step and settles what it did. `details` go into the announcements of what is broken.
    pub fn step<V>(
        mut self,
        call: &Call<'_>,
        now: Instant,
        details: &[(&str, &[u8])],
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> V {
        self.catch_up(call, now);
        self.take_step(call, now, details, step)
    }

    pub(crate) fn catch_up(&mut self, call: &Call<'_>, now: Instant) {
        if !pending::no_endings() {
            self.do_endings(call, now);
        }
    }

    /// Connections that closed, and grants that could not be delivered, come before the caller: they happened before. Of very
    /// many in one key only some: for the caller, the rest still holds until the timer comes to it.
    fn do_endings(&mut self, call: &Call<'_>, now: Instant) {
        let weigh = |fence| M::lease_weight(self.state(), fence);
        let endings = pending::take_endings(&self.name(), ENDINGS_AT_ONCE, weigh);
        endings.into_iter().for_each(|ending| self.end(call, ending, now));
    }

    /// An ending, which comes after those before it, unless it costs so much that it is enough by itself.
    pub fn end_in_turn(&mut self, call: &Call<'_>, ending: Task, now: Instant) {
        if ending.fence().is_some_and(|fence| M::lease_weight(self.state(), fence) < ENDINGS_AT_ONCE) {
            self.catch_up(call, now);
        }
        self.end(call, ending, now);
    }

    /// The same for one holding: its own owner asks, and must not be granted what is about to end.
    pub fn do_ending_of(&mut self, call: &Call<'_>, fence: u64, now: Instant) {
        if let Some(ending) = pending::take_ending_of(&self.name(), fence) {
            self.end(call, ending, now);
        }
    }

    pub(crate) fn end(&mut self, call: &Call<'_>, ending: Task, now: Instant) {
        match ending {
            Task::Close(fence) => {
                self.take_step(call, now, &[], |key, setting| M::close(key, fence, setting));
            }
            Task::Cut { fence, grace, at } => {
                self.take_step(call, now, &[], |key, setting| M::cut(key, fence, grace, at, setting));
            }
            Task::TakeBack(fence) => {
                let taken = self.take_step(call, now, &[], |key, setting| M::take_back(key, fence, setting));
                counters().taken_back.add(u64::from(taken));
            }
            Task::Serve | Task::Rearm | Task::Lost { .. } => {}
        }
    }

    fn take_step<V>(
        &mut self,
        call: &Call<'_>,
        now: Instant,
        details: &[(&str, &[u8])],
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> V {
        let mut queue = queues::take::<M>(self.db, self.name);
        if !self.exists() && !queue.is_empty() && cluster::enabled() {
            // It may live on another node by now: nobody is granted anything from memory.
            blocked_clients::put_off_while(call.is_nested(), || turn_away(&mut queue, TRY_AGAIN));
        }
        let (db, key_name, asked) = (self.db, self.name, Cell::new(None));
        let heard =
            |fence: u64| sessions::heard_until(call.ctx, &KeyName::new(M::KIND, db, key_name), fence, now, &asked);
        let heard: Option<&Heard<'_>> = if sessions::any() { Some(&heard) } else { None };
        let salt = self.key.salt();
        let was_due = self.value().map(|value| M::collect_at(value.state(), salt));
        let state = self.state_mut();
        let weight = M::weight(state);
        let mut key = WaitedKey { state, queue: &mut queue };
        let outcome = fences::with_setting(now, heard, |setting| step(&mut key, setting));
        let max = queue.max;
        queues::put::<M>(self.db, self.name, queue);
        if !outcome.edits.is_empty() {
            if was_due.is_some() {
                weigh::<M>(weight, self.state());
            }
            match was_due {
                // The step has already edited it in place.
                Some(was_due) => {
                    let due = M::collect_at(self.state(), salt);
                    self.key.collect_at::<Waited<M>>(Some(was_due), due);
                    if let Content::Value(value) = &self.content {
                        value.relist(&self.key);
                    }
                }
                None => {
                    let state = std::mem::take(self.state_mut());
                    if let Some(value) = store_state::<M>(&mut self.key, None, state) {
                        self.content = Content::Value(value);
                    }
                }
            }
            if let Some(state) = self.value().map(Live::state) {
                publish_edits_of::<M>(call, &self.key, state, &outcome.edits, was_due.is_none());
                M::announce(call, self.name, state, &outcome.edits, now);
            }
        }
        if let (Some(max), Some(value)) = (max, self.value()) {
            value.set_newest_max(max);
        }
        self.arm(outcome.timer_at);
        if !self.exists() && outcome.timer_at.is_some_and(|at| at <= now) {
            // More wait than are served at once, and no key is left that could have a timer.
            pending::add(self.name(), Task::Serve);
        }
        if !outcome.endings.is_empty() {
            self.settle_endings(call, outcome.endings, now, details);
        }
        if let Some(crowd) = outcome.crowd {
            let lost = crowd.map(|Ending { owner, fence, held, how }| {
                M::counters().hold.add(held);
                (owner, fence, Some(M::reason(how)))
            });
            pending::announce(Losses::new(self.name(), Box::new(lost), Reason::Broken, now, details_of(call, details)));
        }
        if !outcome.replies.is_empty() {
            blocked_clients::put_off_while(call.is_nested(), || self.send(outcome.replies, now));
        }
        outcome.verdict
    }

    /// Asks to be woken at `at`, unless that was asked for already, or something earlier.
    pub(crate) fn arm(&mut self, at: Option<Instant>) {
        if let (Some(at), Some(value)) = (at, self.value()) {
            value.set_timer(self.db, self.name, at);
            background::set_timer(at);
        }
    }

    /// The instant at which it was to be stepped means nothing any more. False if there is no key.
    pub(crate) fn disarm(&mut self) -> bool {
        let Some(value) = self.value() else { return false };
        value.clear_timer(self.db);
        true
    }

    /// Nothing may be written: only waits can end.
    pub(crate) fn give_up(&mut self, now: Instant) {
        let mut queue = queues::take::<M>(self.db, self.name);
        let mut key = WaitedKey { state: self.state_mut(), queue: &mut queue };
        let outcome = fences::with_setting(now, None, |setting| M::give_up(&mut key, setting));
        queues::put::<M>(self.db, self.name, queue);
        self.send(outcome.replies, now);
    }

    /// When to look again at a key whose one holder has a short lease that its connection keeps: nothing has to be written
    /// before the connection falls silent, which its own timer notices.
    pub(crate) fn is_kept_until(&mut self, now: Instant) -> Option<Instant> {
        if !sessions::any() || M::leases(self.state()).nth(1).is_some() {
            return None;
        }
        let fence = M::overdue(self.state(), now)?;
        sessions::keeps(&self.name(), fence, now)?;
        let deadline = queues::look::<M, _>(self.db, self.name, Queue::first_deadline);
        let later = deadline.into_iter().chain([now.plus(SHORT)]).min();
        later.filter(|later| *later > now)
    }

    fn settle_endings(&self, call: &Call<'_>, endings: Vec<Ending>, now: Instant, details: &[(&str, &[u8])]) {
        // Nearly always nobody needs it.
        let (name, many) = (LazyCell::new(|| self.name()), endings.len() > pending::MANY);
        let mut later = Vec::new();
        let mut is_broken = false;
        for Ending { owner, fence, held, how } in endings {
            M::counters().hold.add(held);
            if how == End::Released {
                M::counters().released.add(1);
                if sessions::any() {
                    sessions::unbind(&name, fence);
                }
            } else if many {
                is_broken |= how == End::Broken;
                later.push((owner, fence, Some(M::reason(how))));
            } else {
                let details = if how == End::Broken { details } else { &[] };
                lost(call, &name, &owner, fence, M::reason(how), now, details);
            }
        }
        if !later.is_empty() {
            let details = if is_broken { details_of(call, details) } else { None };
            pending::announce(Losses::new(name.clone(), Box::new(later.into_iter()), Reason::Expired, now, details));
        }
    }

    /// Looks at state and queue, and changes nothing.
    pub fn look<R>(&mut self, look: impl FnOnce(&WaitedKey<'_, M>) -> R) -> R {
        let mut queue = queues::take::<M>(self.db, self.name);
        let seen = look(&WaitedKey { state: self.state_mut(), queue: &mut queue });
        queues::put::<M>(self.db, self.name, queue);
        seen
    }

    /// Sends the replies to those who waited. A grant is bound first, if that was asked for, and is taken back if its client
    /// turns out to be gone.
    fn send(&self, replies: Vec<Reply<M::Grant, M::Refusal>>, now: Instant) {
        for reply in replies {
            match reply {
                Reply::Granted { id, grant, bind_to, .. } => {
                    let Terms { fence, lease, waited } = M::terms(&grant);
                    M::counters().granted.add(1);
                    M::counters().wait.add(waited);
                    let name = self.name();
                    if let Some(binding) = bind_to {
                        sessions::bind(binding, &name, fence, lease, now);
                    }
                    let bytes = M::grant_bytes(&grant);
                    let reply = ClientReply::verdict(move |sink| M::write_grant(grant, sink));
                    blocked_clients::reply(id, reply, Some((fence, name)), bytes);
                }
                Reply::Refused { id, refusal } => refuse::<M>(id, refusal),
                Reply::TimedOut { id, refusal } => {
                    M::counters().timed_out.add(1);
                    refuse::<M>(id, refusal);
                }
                Reply::Superseded { id } => blocked_clients::fail(id, SUPERSEDED),
            }
        }
    }
}

fn refuse<M: ServerMachine>(id: WaiterId, refusal: M::Refusal) {
    let bytes = M::refusal_bytes(&refusal);
    blocked_clients::reply(id, refusal_reply::<M>(refusal), None, bytes);
}

fn refusal_reply<M: ServerMachine>(refusal: M::Refusal) -> ClientReply {
    match M::refusal_error(&refusal) {
        Some(error) => ClientReply::error(error.text()),
        None => ClientReply::verdict(move |sink| M::write_refusal(refusal, sink)),
    }
}

/// A holder lost its grant: that goes to its connection and is published.
pub(crate) fn lost(
    call: &Call<'_>,
    name: &KeyName,
    owner: &[u8],
    fence: u64,
    reason: Reason,
    now: Instant,
    details: &[(&str, &[u8])],
) {
    for_kind!(name.kind, M => M::counters().lost.add(1));
    sessions::lose(name, fence, reason);
    announce::lost(call, name, owner, fence, reason, now, details);
}

/// How this call waits, if it wants to and may: inside MULTI and scripts WAIT means try once.
pub fn waiting(call: &Call<'_>, wait: Wait, most: u32) -> Result<Option<Waiting>, Failure> {
    if wait.length.is_zero() || !call.may_wait() {
        return Ok(None);
    }
    if wait.is_async() {
        async_waits::require_listener(call, call.key_name(0)?)?;
    }
    let most = most.min(config::max_waiters()) as usize;
    Ok(Some(Waiting { id: blocked_clients::next_id(), wait: wait.length, most }))
}

/// The caller gets its grant in the reply: the grant is bound to a connection if the caller asked for that, and is not taken back any
/// more if the reply to an earlier call of the same owner could not be delivered.
pub fn settle_grant(name: Option<&KeyName>, bind_to: Option<Binding>, fence: u64, lease: Span, now: Instant) {
    let Some(name) = name else { return };
    blocked_clients::notified_elsewhere(name, fence);
    if let Some(binding) = bind_to {
        sessions::bind(binding, name, fence, lease, now);
    }
}

/// The step queued the call: its client waits for the reply, or gets its position. Where the server does not let
/// a client wait, its time is over at once (Valkey, for a connection with subscriptions).
fn wait_for_reply(call: &Call<'_>, wait: Wait, id: WaiterId, name: KeyName) {
    let position = if wait.is_async() { queues::find(&name, id) } else { None };
    match position {
        Some((position, owner)) => {
            blocked_clients::wait_async(call, id, name, owner);
            write_queued(position as u64, &mut call.reply());
        }
        None if blocked_clients::block(call, id, name.clone()) => {}
        None => {
            queues::leave(&name, id);
            blocked_clients::reply_now(call, timeout(call.ctx, &name));
        }
    }
}

/// Everybody in the queue gets an error; very many a few at a time.
fn turn_away<A: 'static>(queue: &mut Queue<A>, text: &str) {
    const AT_ONCE: usize = 500;
    for _ in 0..AT_ONCE {
        let Some(waiter) = queue.take_head() else { return };
        blocked_clients::fail(waiter.id, text);
    }
    let (mut rest, text) = (std::mem::take(queue), text.to_owned());
    let next = move || rest.take_head().map(|waiter| blocked_clients::fail(waiter.id, &text)).is_some();
    pending::turn_away(Box::new(next));
}

pub(crate) fn turn_all_away(name: &KeyName, text: &str) {
    for_kind!(name.kind, M => turn_away(&mut queues::take::<M>(name.db, &name.key), text));
}

/// The reply to a client that is unblocked by hand. The context is that client's, in its own database.
pub fn timeout(ctx: *mut raw::RedisModuleCtx, name: &KeyName) -> ClientReply {
    fn reply<M: ServerMachine>(call: &Call<'_>, string: *mut raw::RedisModuleString, name: &KeyName) -> ClientReply {
        let key = Key::open_to_read(call, string);
        let (value, missing) = (Live::<M>::of(&key).ok().flatten(), M::State::default());
        let state = value.as_ref().map_or(&missing, Live::state);
        M::counters().timed_out.add(1);
        let refusal = queues::look::<M, _>(name.db, &name.key, |queue| {
            M::timed_out(state, queue, None, fences::promoted_at(), clock::now())
        });
        refusal_reply::<M>(refusal)
    }
    with_string(ctx, &name.key, |call, string| for_kind!(name.kind, M => reply::<M>(call, string, name)))
}
