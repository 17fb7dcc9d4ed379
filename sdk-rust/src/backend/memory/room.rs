//! A key that can be waited for: its state and the line before it, stepped together.
//!
//! # The promise
//! Whoever waits is answered exactly once, or has left. A grant that was decided for somebody who is gone by then is
//! given back at once, and goes to the next.
//!
//! # How an answer travels
//! ```text
//!   step ── answers ──▶ letters, while the key is held ──▶ sent, when it is not ──▶ received
//!                                                            │                        │
//!                                      the waiter was gone:  ▼                        ▼  it is dropped unread:
//!                                                        a grant is taken back, which is a step
//! ```
//! Nothing that belongs to others (wakers, drops) runs while a key is held.
//!
//! A grant is *untold* until its waiter has it. If its owner learns of it by another call meanwhile (it asks again, and is
//! told of the same grant), it is not taken back any more.

use std::collections::{BTreeMap, BTreeSet};

use resil_core::Instant;
use resil_core::lock::Setting;
use resil_core::queue::{Queue, WaiterId};
use resil_core::step::Outcome;
use resil_wire::command::Reply;
use smallvec::SmallVec;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::flights::Flights;
use super::holdings::{Bulkheads, Locks};
use super::idempotency::Idempotency;
use super::keeper::Wake;
use super::store::{Kept, State, Store, Touch, When};
use crate::error::Error;

/// What a machine must tell so that its keys can be waited for.
pub(super) trait Machine: Sized + 'static {
    type State: Default;
    type Ask;
    type Edit;
    type Answer;

    fn of(state: &mut State) -> Option<&mut Waited<Self>>;
    fn into_state(waited: Waited<Self>) -> State;
    fn due(state: &Self::State, salt: u64) -> Option<Instant>;
    fn is_nothing(state: &Self::State) -> bool;

    fn tick(room: Room<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()>;
    fn leave(room: Room<'_, Self>, id: WaiterId, setting: &mut Setting<'_>) -> Stepped<Self, bool>;
    fn take_back(room: Room<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool>;
    fn deliver(answer: Self::Answer) -> Delivery;
}

/// A key's state and the line before it.
pub(super) struct Room<'a, M: Machine> {
    pub state: &'a mut M::State,
    pub queue: &'a mut Queue<M::Ask>,
}

pub(super) type Stepped<M, V> = Outcome<V, <M as Machine>::Edit, <M as Machine>::Answer>;

/// What one who waits is told.
pub(super) struct Delivery {
    pub id: WaiterId,
    pub answer: Result<Reply, Error>,
    /// The fence it is granted, if it is granted something.
    pub fence: Option<u64>,
}

impl Delivery {
    /// What a call is told whose owner asked again elsewhere.
    pub fn superseded(id: WaiterId) -> Self {
        let text = "SUPERSEDED the same owner asked again, and has the place with that call, or let go";
        Self { id, answer: Err(Error::InvalidArgument(text.to_owned())), fence: None }
    }
}

/// What the mechanism wants to know of a verdict.
pub(super) trait Verdict {
    /// It waits, under the id it gave.
    fn is_queued(&self) -> bool {
        false
    }

    /// The fence that the caller is told it has.
    fn told(&self) -> Option<u64> {
        None
    }
}

impl Verdict for () {}
impl Verdict for bool {}
impl Verdict for usize {}

/// What a key holds that can be waited for.
pub(super) struct Waited<M: Machine> {
    state: M::State,
    line: Option<Box<Line<M::Ask>>>,
}

struct Line<A> {
    queue: Queue<A>,
    parked: BTreeMap<WaiterId, Sender<Delivery>>,
    untold: BTreeSet<u64>,
    /// The wake that is asked for. Others of this key are out of date.
    armed: Option<Instant>,
}

impl<A> Line<A> {
    fn new(queue: Queue<A>) -> Self {
        Self { queue, parked: BTreeMap::new(), untold: BTreeSet::new(), armed: None }
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.parked.is_empty() && self.untold.is_empty() && self.armed.is_none()
    }
}

impl<M: Machine> Default for Waited<M> {
    fn default() -> Self {
        Self { state: M::State::default(), line: None }
    }
}

impl<M: Machine> Kept for Waited<M> {
    fn of(state: &mut State) -> Option<&mut Self> {
        M::of(state)
    }

    fn into_state(self) -> State {
        M::into_state(self)
    }

    fn due(&self, salt: u64) -> Option<Instant> {
        if self.waiters() > 0 { None } else { M::due(&self.state, salt) }
    }

    fn is_nothing(&self) -> bool {
        self.waiters() == 0 && M::is_nothing(&self.state)
    }
}

/// An answer and whose it is.
type Letter = (Sender<Delivery>, Delivery);
type Letters = SmallVec<[Letter; 1]>;

/// A step as it came out.
pub(super) struct Asked<V> {
    pub verdict: V,
    /// Where the answer comes, if the call waits.
    pub answer: Option<Receiver<Delivery>>,
}

impl<M: Machine> Waited<M> {
    pub fn state(&self) -> &M::State {
        &self.state
    }

    pub fn queue(&self) -> Option<&Queue<M::Ask>> {
        self.line.as_ref().map(|line| &line.queue)
    }

    pub fn waiters(&self) -> usize {
        self.queue().map_or(0, Queue::len)
    }

    /// Takes a step and settles what it did.
    fn step<V: Verdict>(
        &mut self,
        store: &Store,
        key: &[u8],
        now: Instant,
        letters: &mut Letters,
        step: impl FnOnce(Room<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> (V, Touch) {
        let mut fresh = Queue::default();
        let queue = self.line.as_mut().map_or(&mut fresh, |line| &mut line.queue);
        let most = 1 + queue.len();
        let room = Room { state: &mut self.state, queue };
        let outcome = store.fences.lend(most, now, |floor| step(room, &mut Setting { now, promoted_at: None, floor }));
        let Outcome { verdict, edits, answers, endings, wake_at } = outcome;
        if !fresh.is_empty() {
            self.line = Some(Box::new(Line::new(fresh)));
        }
        let touch = if edits.is_empty() && self.line.is_none() { Touch::Unchanged } else { Touch::Changed };
        if let Some(line) = &mut self.line {
            for ending in endings {
                line.untold.remove(&ending.fence);
            }
            if let Some(fence) = verdict.told() {
                line.untold.remove(&fence);
            }
            for delivery in answers.into_iter().map(M::deliver) {
                line.untold.extend(delivery.fence);
                letters.extend(line.parked.remove(&delivery.id).map(|sender| (sender, delivery)));
            }
            if let Some(at) = wake_at.filter(|_| !line.queue.is_empty())
                && line.armed.is_none_or(|armed| at < armed)
            {
                line.armed = Some(at);
                store.keeper.arm(at, key);
            }
        }
        self.line.take_if(|line| line.is_over());
        (verdict, touch)
    }
}

impl Store {
    /// Takes a step on `key`, and posts what it answers to those who wait.
    pub fn step<M: Machine, V: Verdict>(
        &self,
        key: &[u8],
        when: When,
        step: impl FnOnce(Room<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> Result<V, Error> {
        self.ask(key, when, None, step).map(|asked| asked.verdict)
    }

    /// The same for a call that may wait as `id`.
    pub fn ask<M: Machine, V: Verdict>(
        &self,
        key: &[u8],
        when: When,
        id: Option<WaiterId>,
        step: impl FnOnce(Room<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> Result<Asked<V>, Error> {
        let mut letters = Letters::new();
        let asked = self.on(key, when, |waited: &mut Waited<M>, now| {
            let (verdict, touch) = waited.step(self, key, now, &mut letters, step);
            let mut answer = None;
            if let (Some(id), true, Some(line)) = (id, verdict.is_queued(), &mut waited.line) {
                let (sender, receiver) = oneshot::channel();
                line.parked.insert(id, sender);
                answer = Some(receiver);
            }
            Ok((Asked { verdict, answer }, touch))
        });
        if !letters.is_empty() {
            self.post::<M>(key, letters);
        }
        asked
    }

    /// A step that nobody asked for.
    fn step_aside<M: Machine, V: Verdict>(
        &self,
        key: &[u8],
        prepare: impl FnOnce(&mut Waited<M>) -> bool,
        step: impl FnOnce(Room<'_, M>, &mut Setting<'_>) -> Stepped<M, V>,
    ) -> Letters {
        let mut letters = Letters::new();
        // The key of another kind, or none: it went together with everybody who waited for it.
        let _ = self.on(key, When::Now, |waited: &mut Waited<M>, now| {
            if !prepare(waited) {
                return Ok(((), Touch::Unchanged));
            }
            let (_, touch) = waited.step(self, key, now, &mut letters, step);
            Ok(((), touch))
        });
        letters
    }

    /// Sends what was decided. What is granted to one who is gone is taken back, and may go to the next.
    fn post<M: Machine>(&self, key: &[u8], mut letters: Letters) {
        while !letters.is_empty() {
            let unread: SmallVec<[u64; 1]> = letters
                .drain(..)
                .filter_map(|(sender, delivery)| sender.send(delivery).err().and_then(|delivery| delivery.fence))
                .collect();
            for fence in unread {
                letters.extend(self.taken_back::<M>(key, fence));
            }
        }
    }

    fn taken_back<M: Machine>(&self, key: &[u8], fence: u64) -> Letters {
        let is_untold = |waited: &mut Waited<M>| waited.line.as_mut().is_some_and(|line| line.untold.remove(&fence));
        self.step_aside(key, is_untold, |room, setting| M::take_back(room, fence, setting))
    }

    /// A waiter has not read the grant it was sent.
    pub fn take_back<M: Machine>(&self, key: &[u8], fence: u64) {
        let letters = self.taken_back::<M>(key, fence);
        self.post::<M>(key, letters);
    }

    /// A waiter is gone.
    pub fn leave<M: Machine>(&self, key: &[u8], id: WaiterId) {
        let is_parked =
            |waited: &mut Waited<M>| waited.line.as_mut().is_some_and(|line| line.parked.remove(&id).is_some());
        let letters = self.step_aside(key, is_parked, |room, setting| M::leave(room, id, setting));
        self.post::<M>(key, letters);
    }

    /// The instant has come that a key asked for.
    pub fn wake(&self, wake: &Wake) {
        enum Kind {
            Lock,
            Bulkhead,
            Record,
            Flight,
        }
        let kind = self.look(&wake.key, |state| match state {
            State::Lock(_) => Some(Kind::Lock),
            State::Bulkhead(_) => Some(Kind::Bulkhead),
            State::Record(_) => Some(Kind::Record),
            State::Flight(_) => Some(Kind::Flight),
            State::Tiers(_) | State::Log(_) | State::Breaker(_) => None,
        });
        match kind.flatten() {
            Some(Kind::Lock) => self.tick::<Locks>(wake),
            Some(Kind::Bulkhead) => self.tick::<Bulkheads>(wake),
            Some(Kind::Record) => self.tick::<Idempotency>(wake),
            Some(Kind::Flight) => self.tick::<Flights>(wake),
            None => {}
        }
    }

    fn tick<M: Machine>(&self, wake: &Wake) {
        let is_wanted = |waited: &mut Waited<M>| {
            waited.line.as_mut().is_some_and(|line| line.armed.take_if(|armed| *armed == wake.at).is_some())
        };
        let letters = self.step_aside(&wake.key, is_wanted, |room, setting| M::tick(room, setting));
        self.post::<M>(&wake.key, letters);
    }
}
