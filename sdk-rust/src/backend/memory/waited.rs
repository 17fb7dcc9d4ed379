//! A key that can be waited for: its state and its waiters, stepped together by `resil_core::waited`.
//!
//! # The promise
//! Every waiter gets exactly one reply, or has left. A grant that was decided for a waiter who is gone by then is given back at
//! once, and goes to the next.
//!
//! # How a reply travels
//! ```text
//!   step ── replies ──▶ collected, while the key is locked ──▶ sent, when it is not ──▶ received
//!                                                                │                        │
//!                                          the waiter was gone:  ▼                        ▼  it is dropped unread:
//!                                                            a grant is taken back, which is a step
//! ```
//! Nothing that belongs to others (wakers, drops) runs while a key is locked.

use std::collections::BTreeMap;

use resil_core::Instant;
use resil_core::circuit_breaker::Transition as BreakerTransition;
use resil_core::limits::AGEING_DEFAULT;
use resil_core::waited::{
    Asked, Decision, End, Ending, Machine, Outcome, Queue, Reply as WaiterReply, Setting, Stepped, Undelivered,
    WaitedKey, WaiterId,
};
use resil_wire::command::Reply;
use smallvec::SmallVec;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::channels::owners_of;
use super::keeper::Wake;
use super::store::{InState, Kept, State, Store, Touch, When};
use crate::error::Error;

/// A machine of core's, as the store needs to know it.
pub(super) trait MemoryMachine: Machine + InState {
    /// How many fences a grant can have.
    const FENCES_OF_A_GRANT: usize = 1;

    fn granted(grant: Self::Grant) -> Reply;
    fn refused(refusal: Self::Refusal) -> Reply;
    fn timed_out(refusal: Self::Refusal) -> Reply {
        Self::refused(refusal)
    }
    /// What a waiter gets that is refused, if that is an error.
    fn error(_refusal: &Self::Refusal) -> Option<Error> {
        None
    }
    /// The transitions of a breaker in this step, for the handles that use it.
    fn transitions(_edits: &[Self::Report]) -> Vec<BreakerTransition> {
        Vec::new()
    }
}

/// What a waiter gets.
pub(super) struct Delivery {
    pub id: WaiterId,
    pub reply: Result<Reply, Error>,
    /// The fence it is granted, if it is granted something.
    pub fence: Option<u64>,
}

impl Delivery {
    fn of<M: MemoryMachine>(reply: WaiterReply<M::Grant, M::Refusal>) -> Self {
        let (id, mut fence) = (reply.id(), None);
        let reply = match reply {
            WaiterReply::Granted { grant, .. } => {
                fence = Some(M::terms(&grant).fence);
                Ok(M::granted(grant))
            }
            WaiterReply::Refused { refusal, .. } => match M::error(&refusal) {
                Some(error) => Err(error),
                None => Ok(M::refused(refusal)),
            },
            WaiterReply::TimedOut { refusal, .. } => Ok(<M as MemoryMachine>::timed_out(refusal)),
            WaiterReply::Superseded { .. } => {
                let text = "SUPERSEDED the same owner asked again, and has the place with that call, or let go";
                Err(Error::InvalidArgument(text.to_owned()))
            }
        };
        Self { id, reply, fence }
    }
}

/// What a key holds that can be waited for.
pub(super) struct Waited<M: Machine> {
    state: M::State,
    waiters: Option<Box<Waiters<M::Request>>>,
    /// How many may hold it, as the newest call said; only bulkheads say so.
    max: Option<u32>,
}

struct Waiters<R> {
    queue: Queue<R>,
    senders: BTreeMap<WaiterId, Sender<Delivery>>,
    grants: Undelivered<()>,
    /// The timer that is set. Others of this key are out of date.
    timer: Option<Instant>,
}

impl<R> Waiters<R> {
    fn new(queue: Queue<R>) -> Self {
        Self { queue, senders: BTreeMap::new(), grants: Undelivered::default(), timer: None }
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.senders.is_empty() && self.grants.is_empty() && self.timer.is_none()
    }
}

impl<M: Machine> Default for Waited<M> {
    fn default() -> Self {
        Self { state: M::State::default(), waiters: None, max: None }
    }
}

impl<M: MemoryMachine> Kept for Waited<M> {
    fn of(state: &mut State) -> Option<&mut Self> {
        M::of(state)
    }

    fn into_state(self) -> State {
        M::into_state(self)
    }

    fn due(&self, salt: u64) -> Option<Instant> {
        if self.len() > 0 { None } else { M::collect_at(&self.state, salt) }
    }

    fn is_nothing(&self) -> bool {
        self.len() == 0 && M::is_nothing(&self.state)
    }
}

/// A reply and whose it is.
type Addressed = (Sender<Delivery>, Delivery);
type Replies = SmallVec<[Addressed; 1]>;

/// What a step publishes to others.
#[derive(Default)]
struct SentToOthers {
    replies: Replies,
    /// Holdings that ended, and not by their owners.
    losses: Vec<Ending>,
    transitions: Vec<BreakerTransition>,
}

/// The verdict for a caller, and where its reply comes if it waits.
pub(super) struct Replied<V> {
    pub verdict: V,
    pub reply: Option<Receiver<Delivery>>,
}

impl<M: MemoryMachine> Waited<M> {
    pub fn state(&self) -> &M::State {
        &self.state
    }

    pub fn queue(&self) -> Option<&Queue<M::Request>> {
        self.waiters.as_ref().map(|waiters| &waiters.queue)
    }

    pub fn max(&self) -> Option<u32> {
        self.max
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue().map_or(0, Queue::len)
    }

    /// Takes a step and settles what it did.
    fn step<V>(
        &mut self,
        store: &Store,
        key: &[u8],
        now: Instant,
        sent: &mut SentToOthers,
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> (V, Touch) {
        let mut fresh = Queue::default();
        let queue = self.waiters.as_mut().map_or(&mut fresh, |waiters| &mut waiters.queue);
        let most = (1 + queue.len()) * M::FENCES_OF_A_GRANT;
        let mut waited = WaitedKey { state: &mut self.state, queue };
        let outcome = store.fences.issue_for(most, now, |floor| {
            let (promoted_at, up_since, ageing) = (None, Instant::EPOCH, AGEING_DEFAULT);
            step(&mut waited, &mut Setting { now, promoted_at, up_since, ageing, floor, heard: None })
        });
        self.max = waited.queue.max.or(self.max);
        let Outcome { verdict, edits, replies, mut endings, crowd, timer_at, granted } = outcome;
        endings.extend(crowd.into_iter().flatten());
        sent.transitions.extend(M::transitions(&edits));
        if !fresh.is_empty() {
            self.waiters = Some(Box::new(Waiters::new(fresh)));
        }
        let touch = if edits.is_empty() && self.waiters.is_none() { Touch::Unchanged } else { Touch::Changed };
        if let Some(waiters) = &mut self.waiters {
            for fence in endings.iter().map(|ending| ending.fence).chain(granted) {
                waiters.grants.delivered(fence);
            }
            for delivery in replies.into_iter().map(Delivery::of::<M>) {
                if let Some(fence) = delivery.fence {
                    waiters.grants.sent(fence, ());
                }
                sent.replies.extend(waiters.senders.remove(&delivery.id).map(|sender| (sender, delivery)));
            }
            if let Some(at) = timer_at.filter(|_| !waiters.queue.is_empty())
                && waiters.timer.is_none_or(|set| at < set)
            {
                waiters.timer = Some(at);
                store.keeper.arm(at, key);
            }
        }
        self.waiters.take_if(|waiters| waiters.is_over());
        sent.losses.extend(endings.into_iter().filter(|ending| ending.how != End::Released));
        (verdict, touch)
    }
}

impl Store {
    /// Takes a step on `key`, and sends its replies to those who wait.
    pub fn step<M: MemoryMachine, V>(
        &self,
        key: &[u8],
        when: When,
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> Result<V, Error> {
        let mut sent = SentToOthers::default();
        let verdict =
            self.on(key, when, |waited: &mut Waited<M>, now| Ok(waited.step(self, key, now, &mut sent, step)));
        self.send::<M>(key, sent);
        verdict
    }

    /// The same beside another key, of which `keep` stores what the step decided.
    pub fn step_beside<M: MemoryMachine, U: Kept + Clone, V>(
        &self,
        (key, other): (&[u8], &[u8]),
        when: When,
        step: impl FnOnce(&mut WaitedKey<'_, M>, &U, &mut Setting<'_>) -> Stepped<M, V>,
        keep: impl FnOnce(&V, &mut U) -> Touch,
    ) -> Result<V, Error> {
        let mut sent = SentToOthers::default();
        let verdict = self.on_pair((key, other), when, |waited: &mut Waited<M>, beside: &mut U, now| {
            let (verdict, touch) = waited.step(self, key, now, &mut sent, |key, setting| step(key, beside, setting));
            let kept = keep(&verdict, beside);
            Ok(((verdict, kept), touch))
        });
        self.send::<M>(key, sent);
        verdict
    }

    /// The same for a call that may wait as `id`.
    pub fn ask<M: MemoryMachine>(
        &self,
        key: &[u8],
        when: When,
        id: Option<WaiterId>,
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, Asked<M>>,
    ) -> Result<Replied<Asked<M>>, Error> {
        let mut sent = SentToOthers::default();
        let outcome = self.on(key, when, |waited: &mut Waited<M>, now| {
            let (verdict, touch) = waited.step(self, key, now, &mut sent, step);
            let mut reply = None;
            if let (Some(id), Decision::Queued, Some(waiters)) = (id, &verdict, &mut waited.waiters) {
                let (sender, receiver) = oneshot::channel();
                waiters.senders.insert(id, sender);
                reply = Some(receiver);
            }
            Ok((Replied { verdict, reply }, touch))
        });
        self.send::<M>(key, sent);
        outcome
    }

    /// A step that no caller asked for, if the waiters of the key say so.
    fn step_if<M: MemoryMachine, V>(
        &self,
        key: &[u8],
        is_wanted: impl FnOnce(&mut Waiters<M::Request>) -> bool,
        step: impl FnOnce(&mut WaitedKey<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> SentToOthers {
        let mut sent = SentToOthers::default();
        // The key of another kind, or none: it went together with everybody who waited for it.
        let _ = self.on(key, When::Now, |waited: &mut Waited<M>, now| {
            if !waited.waiters.as_mut().is_some_and(|waiters| is_wanted(waiters)) {
                return Ok(((), Touch::Unchanged));
            }
            let (_, touch) = waited.step(self, key, now, &mut sent, step);
            Ok(((), touch))
        });
        sent
    }

    /// Sends what was decided. What is granted to a waiter who is gone is taken back, and may go to the next.
    fn send<M: MemoryMachine>(
        &self,
        key: &[u8],
        SentToOthers { mut replies, mut losses, mut transitions }: SentToOthers,
    ) {
        while !replies.is_empty() {
            let unread: SmallVec<[u64; 1]> = replies
                .drain(..)
                .filter_map(|(sender, delivery)| sender.send(delivery).err().and_then(|delivery| delivery.fence))
                .collect();
            for fence in unread {
                let more = self.taken_back::<M>(key, fence);
                replies.extend(more.replies);
                losses.extend(more.losses);
                transitions.extend(more.transitions);
            }
        }
        for ending in &losses {
            self.losses.publish(owners_of(ending), ending);
        }
        for transition in &transitions {
            self.changes.publish(key, transition);
            self.tell_of_move(key, transition);
        }
    }

    fn taken_back<M: MemoryMachine>(&self, key: &[u8], fence: u64) -> SentToOthers {
        self.step_if::<M, _>(
            key,
            |waiters| waiters.grants.undeliverable(fence).is_some(),
            |key, setting| M::take_back(key, fence, setting),
        )
    }

    /// A waiter has not read the grant it was sent.
    pub fn take_back<M: MemoryMachine>(&self, key: &[u8], fence: u64) {
        let sent = self.taken_back::<M>(key, fence);
        self.send::<M>(key, sent);
    }

    /// A waiter is gone.
    pub fn leave<M: MemoryMachine>(&self, key: &[u8], id: WaiterId) {
        let sent = self.step_if::<M, _>(
            key,
            |waiters| waiters.senders.remove(&id).is_some(),
            |key, setting| M::leave(key, id, setting),
        );
        self.send::<M>(key, sent);
    }

    /// The instant has come that a key asked for.
    pub fn wake(&self, wake: &Wake) {
        let tick = self.look(&wake.key, |state| state.tick());
        if let Some(tick) = tick.flatten() {
            tick(self, wake);
        }
    }

    pub fn tick<M: MemoryMachine>(&self, wake: &Wake) {
        let is_wanted = |waiters: &mut Waiters<M::Request>| waiters.timer.take_if(|set| *set == wake.at).is_some();
        let sent = self.step_if::<M, _>(&wake.key, is_wanted, M::tick);
        self.send::<M>(&wake.key, sent);
    }
}
