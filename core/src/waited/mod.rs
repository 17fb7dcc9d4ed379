//! The one engine for everything that can be waited for: locks, bulkheads, idempotency keys, single flights.
//!
//! # The state
//! ```text
//!   durable    the machine's own state: leases with owners and fences, results, values      (stored, replicated)
//!   volatile   the key's queue: who waits, for what, until when                             (memory of one process)
//!   per server the highest fence (`fence`), connections and what is bound to them (`session`),
//!              grants whose replies are on their way (`undelivered`), the keys' timers (`timers`)
//! ```
//! [`WaitedKey`] is a key's state and its queue, stepped together.
//!
//! # The transitions
//! Every step has the same three parts. The middle one is the machine's, the others are the engine's:
//! ```text
//!   catch up   a clock that was set back, a promotion: leases are mended
//!              leases and waits that have ended by now end, in the order of time; a lease before a wait at the same instant
//!              after each of them the queue is served
//!   decide     the request, by looking at the state
//!   serve      the head of the queue gets its reply for as long as the machine has one for it; waits whose time is over time out
//! ```
//! | event | what it does | who sends it |
//! | --- | --- | --- |
//! | ask (each machine's own) | grants, refuses or queues the caller | a command |
//! | [`tick`](Machine::tick) | nothing but catching up and serving | the timer that the last step asked for |
//! | [`give_up`](Machine::give_up) | only waits time out | the timer, while nothing may be written |
//! | [`leave`](Machine::leave) | a waiter is gone | a client that disconnects |
//! | [`close`](Machine::close), [`cut`](Machine::cut) | a lease ends, or ends after a grace | the connection it is bound to closes |
//! | [`take_back`](Machine::take_back) | a lease ends as if it was never granted | a reply that could not be delivered |
//! | [`extend`](Machine::extend) | a lease ends later | a bound connection that was heard of |
//!
//! # Invariants
//! 1. The state changes only by [`Machine::apply`], on the server that decides, on its replicas, and in memory alike: a step
//!    cannot reach the state in any other way.
//! 2. Every waiter gets exactly one reply, or leaves. Nobody overtakes within a priority.
//! 3. Fences of a key grow strictly.
//! 4. An owner has at most one position in the queue.
//! 5. A lease that ended at or before now is ended before anything else is decided.
//!
//! Each machine adds its own, and all are checked after every step in debug builds ([`Machine::check_invariants`]).
//!
//! # What a driver must do
//! After each step: store the state and replicate `edits`; send `replies`, and `take_back` a grant whose client is gone; tell
//! those who lost their lease (`endings`, and `crowd` bit by bit); step the key again at `timer_at`. The drivers are the module
//! and `memory://`.

mod binding;
pub mod ending;
pub mod fence;
pub mod lease;
pub mod queue;
pub mod reply;
pub mod returning;
pub mod session;
mod step;
pub mod timers;
pub mod undelivered;

use smallvec::SmallVec;

use crate::codec::Buffer;
use crate::stored::Stored;
use crate::time::{Instant, Span};
pub use ending::{Crowd, End, Ending, Reason};
pub use fence::Floor;
pub use lease::Lease;
pub use queue::{Queue, Waiter, WaiterId, Waiting};
pub use reply::{Decision, Grant, Outcome, Renewed, Reply, Terms};
pub use session::Binding;
pub use step::OpenStep;
pub(crate) use step::RESULTS_AT_ONCE;
pub use undelivered::Undelivered;

/// Up to this many holders or waiters are looked at one by one when invariants are checked.
pub(crate) const CHECKED_IN_FULL: usize = 64;

/// Until when a lease lasts whose end has come, by its fence, if its connection was heard of.
pub type Heard<'a> = dyn Fn(u64) -> Option<Instant> + 'a;

/// What a step knows of the world: the time, and what this server knows of fences, of its own past and of connections.
pub struct Setting<'a> {
    pub now: Instant,
    /// When this server became a primary, if leases that lived then start anew.
    pub promoted_at: Option<Instant>,
    /// Since when this server decides: its start, the end of its loading, or its promotion.
    pub up_since: Instant,
    /// After how long a waiter gains a priority; zero: never.
    pub ageing: Span,
    pub floor: &'a mut Floor,
    /// Asked of every lease whose end has come. `None`: nothing is bound to a connection.
    pub heard: Option<&'a Heard<'a>>,
}

/// A key's state and its queue.
pub struct WaitedKey<'a, M: Machine> {
    pub state: &'a mut M::State,
    pub queue: &'a mut Queue<M::Request>,
}

/// What the machine has for the head of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<R> {
    Wait,
    Grant,
    Refuse(R),
}

/// What a step of `M` did.
pub type Stepped<M, V> = Outcome<V, <M as Machine>::Report, Reply<<M as Machine>::Grant, <M as Machine>::Refusal>>;

/// The verdict of a machine for a caller who asks.
pub type Asked<M> = Decision<<M as Machine>::Grant, <M as Machine>::Refusal>;

/// What a machine must say so that its keys can be waited for.
pub trait Machine: Stored<Edits = SmallVec<[<Self as Machine>::Edit; 1]>> {
    /// What a waiter asks for.
    type Request;
    /// One change of the state, with absolute values.
    type Edit;
    /// What is left of an edit once it is applied: what replicas and listeners need of it.
    type Report;
    /// The reply that grants a lease.
    type Grant;
    /// Any other reply to one who asks.
    type Refusal;

    /// The only writer. An edit that fits nothing here changes nothing. What ended as one comes back, to be announced one by one.
    fn apply(state: &mut Self::State, edit: Self::Edit) -> Option<Crowd>;
    /// Called before the edit is applied.
    fn report(state: &Self::State, edit: &Self::Edit, reports: &mut SmallVec<[Self::Report; 1]>);
    /// Panics in debug builds if the state is one that must not be.
    fn check_invariants(state: &Self::State);

    /// `state` is what the edits have led to.
    fn encode_edits(state: &Self::State, edits: &[Self::Report], out: &mut impl Buffer);

    fn last_fence(state: &Self::State) -> u64;
    fn leases(state: &Self::State) -> impl Iterator<Item = Lease<'_>>;
    /// The lease that ends first.
    fn first_lease(state: &Self::State) -> Option<Lease<'_>> {
        Self::leases(state).next()
    }
    fn lease(state: &Self::State, fence: u64) -> Option<Lease<'_>> {
        Self::leases(state).find(|lease| lease.fence == fence)
    }
    /// The lease with the next higher fence.
    fn lease_after(state: &Self::State, fence: u64) -> Option<Lease<'_>> {
        Self::leases(state).find(|lease| lease.fence > fence)
    }
    /// The edits that put right what a clock set back, or a promotion, left behind. Only what is not stored may be changed in
    /// place.
    fn mend(state: &mut Self::State, promoted_at: Option<Instant>, now: Instant) -> SmallVec<[Self::Edit; 1]>;
    /// The edit that gives a lease another length and end.
    fn timed(fence: u64, length: Span, ends: Instant) -> Self::Edit;
    /// The edit that ends a lease.
    fn ended(step: &OpenStep<'_, Self>, fence: u64, at: Instant, how: End) -> Self::Edit;
    /// Why a lease that ended `how` was lost.
    fn reason(how: End) -> Reason {
        how.into()
    }

    /// What the head of the queue gets, by what was known at `at`.
    fn turn(step: &OpenStep<'_, Self>, head: &Waiter<Self::Request>, at: Instant) -> Turn<Self::Refusal>;
    /// Grants `owner` a lease from now on, after what was known at `at`.
    fn grant(
        step: &mut OpenStep<'_, Self>,
        owner: &[u8],
        request: &Self::Request,
        waited: Span,
        at: Instant,
    ) -> Self::Grant;
    /// The reply to a waiter whose time is over.
    fn timed_out(
        state: &Self::State,
        queue: &Queue<Self::Request>,
        request: Option<&Self::Request>,
        promoted_at: Option<Instant>,
        now: Instant,
    ) -> Self::Refusal;
    /// A waiter gets this reply. Only what is not stored may be changed.
    fn count_refusal(_state: &mut Self::State, _refusal: &Self::Refusal) {}
    /// When the queue can be served although no lease ends then, if there is such an instant.
    fn pause_end(_state: &Self::State) -> Option<Instant> {
        None
    }
    /// When there is work to do in the key although nobody asks, if there is such an instant.
    fn work_at(_step: &OpenStep<'_, Self>) -> Option<Instant> {
        None
    }
    /// True if the lease has ended, and that was announced, but what was held under it is still being put where it belongs: one with
    /// very much under it ends in parts. Until then it is a lease that is over.
    fn is_ending(_state: &Self::State, _fence: u64) -> bool {
        false
    }
    /// What it costs to end this lease, or the next part of it; a usual one costs 1.
    fn lease_weight(_state: &Self::State, _fence: u64) -> usize {
        1
    }
    /// What this grant has cost; a usual one costs 1.
    fn grant_weight(_grant: &Self::Grant) -> usize {
        1
    }
    fn terms(grant: &Self::Grant) -> Terms;
    /// What to bind the grant to. The machine only passes it on.
    fn bind_to(request: &Self::Request) -> Option<Binding>;

    /// The fence of a lease that has ended, but has not been ended yet.
    fn overdue(state: &Self::State, now: Instant) -> Option<u64> {
        Self::first_lease(state).filter(|lease| lease.ends <= now).map(|lease| lease.fence)
    }

    /// Time has passed.
    fn tick(key: &mut WaitedKey<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        OpenStep::begin(key, setting).end(())
    }

    /// Time has passed while nothing may be written: only waits can end.
    fn give_up(key: &mut WaitedKey<'_, Self>, setting: &mut Setting<'_>) -> Stepped<Self, ()> {
        let mut step = OpenStep::new(key, setting);
        step.queue.follow_clock(step.now);
        step.time_out_all();
        step.outcome(())
    }

    /// A waiter is gone. True if it still waited.
    fn leave(key: &mut WaitedKey<'_, Self>, id: WaiterId, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        let left = key.queue.leave(id).is_some();
        OpenStep::begin(key, setting).end(left)
    }

    /// The connection a lease was bound to has closed. True if it was still held.
    fn close(key: &mut WaitedKey<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        OpenStep::begin(key, setting).end_lease(fence, End::Closed)
    }

    /// A grant could not be delivered to its owner, who was gone: it is given back, as if by the owner.
    fn take_back(key: &mut WaitedKey<'_, Self>, fence: u64, setting: &mut Setting<'_>) -> Stepped<Self, bool> {
        OpenStep::begin(key, setting).end_lease(fence, End::Released)
    }

    /// The connection a lease was bound to closed at `at`: it ends no later than `grace` after that. True if it is still held.
    fn cut(
        key: &mut WaitedKey<'_, Self>,
        fence: u64,
        grace: Span,
        at: Instant,
        setting: &mut Setting<'_>,
    ) -> Stepped<Self, bool> {
        let mut step = OpenStep::new(key, setting);
        step.mend();
        let lease = Self::lease(step.state(), fence);
        if let Some((length, ends)) = lease.and_then(|lease| lease::cut(lease.length, lease.ends, grace, at)) {
            step.time(fence, length, ends);
        }
        step.catch_up();
        let held = Self::lease(step.state(), fence).is_some();
        step.end(held)
    }

    /// A bound holder was heard of: its lease runs at least until `until`. It is never cut short. The caller vouches that it was
    /// never silent for a whole lease, so it counts even if nobody wrote it down in time. True if it is still held.
    fn extend(
        key: &mut WaitedKey<'_, Self>,
        fence: u64,
        until: Instant,
        setting: &mut Setting<'_>,
    ) -> Stepped<Self, bool> {
        let mut step = OpenStep::new(key, setting);
        if let Some(lease) = Self::lease(step.state(), fence) {
            let (length, until) = (lease.length, until.min(step.now.plus(lease.length)));
            if lease.ends < until {
                step.time(fence, length, until);
            }
        }
        step.catch_up();
        let held = Self::lease(step.state(), fence).is_some();
        step.end(held)
    }
}
