//! A step under way: it catches up with the time, lets the machine decide, and serves the queue.
//!
//! The state is private here. A machine reads it with [`OpenStep::state`] and changes it with [`OpenStep::edit`], which applies the
//! edit and keeps its report for replicas. A machine inside a machine does the same by itself: [`OpenStep::within`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::ending::{Crowd, End, Ending};
use super::fence::Floor;
use super::queue::{Queue, Waiter, Waiting};
use super::reply::{Decision, Outcome, Reply};
use super::{Asked, Heard, Machine, Setting, Stepped, Turn, WaitedKey};
use crate::time::{Instant, Span};

/// How many waiters are granted a lease or time out in one step: a bound on how long it takes. The rest is served by the next
/// step, which is asked for at once: until then nobody overtakes them.
const REPLIES_AT_ONCE: usize = 500;

/// The same for those who get a result, which costs less: nearly always all of them get it in the same step.
pub(crate) const RESULTS_AT_ONCE: usize = 2_000;

/// How many leases one step lets end by time, or go on because their connections were heard of, for the same reason. The
/// caller's own comes in any case; for everybody else a lease that waits for the next step, which is asked for at once, still
/// counts as held: nobody is granted too much.
const ENDINGS_AT_ONCE: usize = 100;

pub struct OpenStep<'a, M: Machine> {
    state: &'a mut M::State,
    pub queue: &'a mut Queue<M::Request>,
    pub now: Instant,
    pub promoted_at: Option<Instant>,
    pub up_since: Instant,
    floor: &'a mut Floor,
    heard: Option<&'a Heard<'a>>,
    edits: SmallVec<[M::Report; 1]>,
    replies: Vec<Reply<M::Grant, M::Refusal>>,
    endings: Vec<Ending>,
    crowd: Option<Crowd>,
    granted: Option<u64>,
    /// What grants cost beyond one reply each.
    surplus: usize,
}

impl<'a, M: Machine> OpenStep<'a, M> {
    pub(super) fn new(key: &'a mut WaitedKey<'_, M>, setting: &'a mut Setting<'_>) -> Self {
        let Setting { now, promoted_at, up_since, ageing, floor, heard } = setting;
        key.queue.ageing = *ageing;
        Self {
            state: key.state,
            queue: key.queue,
            now: *now,
            promoted_at: *promoted_at,
            up_since: *up_since,
            floor,
            heard: *heard,
            edits: SmallVec::new(),
            replies: Vec::new(),
            endings: Vec::new(),
            crowd: None,
            granted: None,
            surplus: 0,
        }
    }

    /// Everything that was due before now has happened.
    pub fn begin(key: &'a mut WaitedKey<'_, M>, setting: &'a mut Setting<'_>) -> Self {
        let mut step = Self::new(key, setting);
        step.catch_up();
        step
    }

    pub fn state(&self) -> &M::State {
        self.state
    }

    pub fn edit(&mut self, edit: M::Edit) {
        M::report(self.state, &edit, &mut self.edits);
        if let Some(crowd) = M::apply(self.state, edit) {
            self.crowd = Some(crowd);
        }
    }

    /// A machine inside this machine takes its own step, in its place, and reports the edits it made. What is not stored may be
    /// changed here, too.
    pub fn within<V>(&mut self, step: impl FnOnce(&mut M::State, &mut SmallVec<[M::Report; 1]>) -> V) -> V {
        step(self.state, &mut self.edits)
    }

    /// A fence above every earlier one.
    pub fn issue_fence(&mut self) -> u64 {
        self.floor.issue(M::last_fence(self.state), self.now)
    }

    /// A fence that another server issued: every later one of this server is above it.
    pub fn heard_of(&mut self, fence: u64) {
        self.floor.heard_of(fence);
    }

    /// Whether the server has issued this fence or a higher one, or has heard of it.
    pub fn knows_of(&self, fence: u64) -> bool {
        fence <= self.floor.highest()
    }

    /// As many fences in a row; returns the first.
    pub fn issue_fences(&mut self, count: usize) -> u64 {
        let first = self.issue_fence();
        self.floor.heard_of(first.saturating_add(count as u64).saturating_sub(1));
        first
    }

    /// The caller's own reply says that it has this grant.
    pub fn tell(&mut self, fence: u64) {
        self.granted = Some(fence);
    }

    /// Gives a lease another length and end, if they are not the same already.
    pub fn time(&mut self, fence: u64, length: Span, ends: Instant) {
        let same = M::lease(self.state, fence).is_some_and(|lease| lease.length == length && lease.ends == ends);
        if !same {
            self.edit(M::timed(fence, length, ends));
        }
    }

    /// Ends a lease; returns how long it lasted.
    pub fn finish(&mut self, fence: u64, at: Instant, how: End) -> Option<Span> {
        let held = self.note_end(fence, at, how)?;
        let edit = M::ended(self, fence, at, how);
        self.edit(edit);
        Some(held)
    }

    /// Notes that a lease, if there is one, is about to be ended by an edit of the machine's own: once, also if it ends in parts.
    /// Returns how long it lasted.
    pub fn note_end(&mut self, fence: u64, at: Instant, how: End) -> Option<Span> {
        let lease = M::lease(self.state, fence)?;
        let held = lease.since.until(at);
        if !M::is_ending(self.state, fence) {
            self.endings.push(Ending { owner: Box::from(lease.owner), fence, held, how });
        }
        Some(held)
    }

    /// True if so many leases would take too long to be ended one by one.
    pub fn are_too_many(leases: usize) -> bool {
        leases > ENDINGS_AT_ONCE
    }

    /// Ends a lease whose end has come, unless the connection it is bound to was heard of: then it goes on. True if it ended.
    pub fn expire(&mut self, fence: u64, ends: Instant) -> bool {
        let until = self.heard.and_then(|heard| heard(fence)).filter(|until| *until > self.now);
        let Some(until) = until else { return self.finish(fence, ends, End::Expired).is_some() };
        let Some(length) = M::lease(self.state, fence).map(|lease| lease.length) else { return false };
        self.time(fence, length, until.min(self.now.plus(length)));
        false
    }

    /// Ends the lease, if it is still held, and the step. The verdict is whether it was.
    pub(super) fn end_lease(mut self, fence: u64, how: End) -> Stepped<M, bool> {
        let held = self.finish(fence, self.now, how).is_some();
        self.end(held)
    }

    /// Puts the caller in the queue. Another call of the same owner gives its position up.
    pub fn enqueue(&mut self, owner: &[u8], request: M::Request, Waiting { id, wait, .. }: Waiting, priority: u8) {
        match self.queue.supersede(Waiter::new(id, owner.into(), self.now, wait, request)) {
            Ok(former) => self.replies.push(Reply::Superseded { id: former.id }),
            Err(waiter) => self.queue.join(priority, waiter),
        }
    }

    /// Takes `owner` out of the queue; the call that waited gets its reply. False if it did not wait.
    pub fn leaves(&mut self, owner: &[u8]) -> bool {
        let left = self.queue.leave_by_owner(owner);
        self.replies.extend(left.iter().map(|former| Reply::Superseded { id: former.id }));
        left.is_some()
    }

    /// Everybody who waits gets this reply.
    pub fn refuse_all(&mut self, refusal: &M::Refusal)
    where
        M::Refusal: Clone,
    {
        while let Some(waiter) = self.queue.take_head() {
            self.replies.push(Reply::Refused { id: waiter.id, refusal: refusal.clone() });
        }
    }

    pub(super) fn catch_up(&mut self) {
        self.mend();
        self.resume();
        self.serve(self.now);
        self.end_what_is_over();
    }

    /// A waiter whose time was over before a pause ended is not served by the end of the pause.
    fn resume(&mut self) {
        if let Some(resumed) = M::pause_end(self.state)
            && resumed <= self.now
            && M::first_lease(self.state).is_none()
        {
            while self.queue.first_deadline().is_some_and(|deadline| deadline < resumed) {
                self.time_out();
            }
        }
    }

    /// Puts right what a clock set back, or a promotion, left behind.
    pub(super) fn mend(&mut self) {
        self.queue.follow_clock(self.now);
        for edit in M::mend(self.state, self.promoted_at, self.now) {
            self.edit(edit);
        }
    }

    /// Ends of leases and of waits, in the order of time. At the same instant the lease ends first.
    fn end_what_is_over(&mut self) {
        let mut leases = 0;
        while leases < ENDINGS_AT_ONCE {
            let over = M::first_lease(self.state).filter(|lease| lease.ends <= self.now);
            let over = over.map(|lease| (lease.ends, lease.fence));
            let deadline = self.queue.first_deadline().filter(|deadline| *deadline < self.now);
            let served_at = match (over, deadline) {
                (Some((ends, fence)), deadline) if deadline.is_none_or(|deadline| ends <= deadline) => {
                    leases += M::lease_weight(self.state, fence);
                    if !self.expire(fence, ends) {
                        continue;
                    }
                    self.resume();
                    // The next waiter takes over what was there then, however late this is.
                    ends
                }
                (_, Some(_)) => {
                    self.time_out();
                    self.now
                }
                (_, None) => return,
            };
            self.serve(served_at);
        }
    }

    /// Replies to the head of the queue for as long as the machine has something for it, by what was known at `at`.
    pub fn serve(&mut self, at: Instant) {
        while let Some(head) = self.queue.head() {
            let turn = M::turn(self, head, at);
            let most = if matches!(turn, Turn::Grant) { REPLIES_AT_ONCE } else { RESULTS_AT_ONCE };
            if matches!(turn, Turn::Wait) || self.work_done() >= most {
                return;
            }
            let Some(Waiter { id, owner, since, request, .. }) = self.queue.take_head() else { return };
            let reply = match turn {
                Turn::Refuse(refusal) => {
                    M::count_refusal(self.state, &refusal);
                    Reply::Refused { id, refusal }
                }
                Turn::Grant | Turn::Wait => {
                    let grant = M::grant(self, &owner, &request, since.until(self.now), at);
                    self.surplus += M::grant_weight(&grant).saturating_sub(1);
                    Reply::Granted { id, owner, grant, bind_to: M::bind_to(&request) }
                }
            };
            self.replies.push(reply);
        }
    }

    /// Replies of this step; a grant that costs as much as several counts as so many.
    fn work_done(&self) -> usize {
        self.replies.len() + self.surplus
    }

    fn time_out(&mut self) {
        if let Some(Waiter { id, request, .. }) = self.queue.take_first_deadline() {
            let refusal = M::timed_out(self.state, self.queue, Some(&request), self.promoted_at, self.now);
            M::count_refusal(self.state, &refusal);
            self.replies.push(Reply::TimedOut { id, refusal });
        }
    }

    /// Every wait whose time is over.
    pub(super) fn time_out_all(&mut self) {
        while self.wait_is_over() {
            self.time_out();
        }
    }

    fn wait_is_over(&self) -> bool {
        self.queue.first_deadline().is_some_and(|deadline| deadline <= self.now)
    }

    fn lease_is_over(&self) -> bool {
        M::first_lease(self.state).is_some_and(|lease| lease.ends <= self.now)
    }

    /// The queue is served; waits whose time is over time out, and may have been in the way of others.
    pub fn end<V>(mut self, verdict: V) -> Stepped<M, V> {
        self.serve(self.now);
        // A lease that has ended comes first: it may be what the waiter waits for.
        while self.work_done() < REPLIES_AT_ONCE && self.wait_is_over() && !self.lease_is_over() {
            self.time_out();
            self.serve(self.now);
        }
        self.outcome(verdict)
    }

    /// The same for a caller who asked, and who may have been served at the end: its reply is its verdict.
    pub fn end_asked(self, verdict: Asked<M>, waiting: Option<Waiting>) -> Stepped<M, Asked<M>> {
        let mut outcome = self.end(verdict);
        let own = |id| outcome.replies.iter().position(|reply| reply.id() == id);
        if let Some(own) = waiting.and_then(|waiting| own(waiting.id)) {
            outcome.verdict = match outcome.replies.remove(own) {
                Reply::Granted { grant, .. } => Decision::Granted(grant),
                Reply::Refused { refusal, .. } | Reply::TimedOut { refusal, .. } => Decision::Refused(refusal),
                Reply::Superseded { .. } => Decision::Queued,
            };
        }
        if let Decision::Granted(grant) = &outcome.verdict {
            outcome.granted = Some(M::terms(grant).fence);
        }
        outcome
    }

    pub(super) fn outcome<V>(self, verdict: V) -> Stepped<M, V> {
        let lease_end = M::first_lease(self.state).map(|lease| lease.ends);
        let pause_end = M::pause_end(self.state).filter(|end| *end > self.now && !self.queue.is_empty());
        let rest = (self.work_done() >= REPLIES_AT_ONCE && self.head_can_be_served()).then_some(self.now);
        let work_at = M::work_at(&self);
        let timer_at =
            lease_end.into_iter().chain(self.queue.first_deadline()).chain(pause_end).chain(rest).chain(work_at).min();
        if cfg!(debug_assertions) {
            M::check_invariants(self.state);
            self.queue.check_invariants();
        }
        let Self { edits, replies, endings, crowd, granted, .. } = self;
        Outcome { verdict, edits, replies, endings, crowd, timer_at, granted }
    }

    fn head_can_be_served(&self) -> bool {
        self.queue.head().is_some_and(|head| !matches!(M::turn(self, head, self.now), Turn::Wait))
    }
}
