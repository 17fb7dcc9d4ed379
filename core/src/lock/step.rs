//! The transitions. Each begins by bringing the room up to `now`, in the order of time, and ends by serving the line.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::ask::{Acquired, Answer, Ask, Busy, Claim, Ending, Grant, Outcome, Reason, Released, Renewed, Setting};
use super::edit::{Edit, Edits};
use super::encoding::Kind;
use super::holder::{End, Ended, Holder, Mode};
use super::holders::Holders;
use super::view::busy;
use crate::lease;
use crate::limits::{GRACE, HOLDERS_MAX};
use crate::queue::{Queue, Waiter, WaiterId, Waiting};
use crate::time::{Instant, Span};

/// How many of those who wait one step answers: a bound on how long it takes.
const ANSWERS_AT_ONCE: usize = 500;

/// How many leases one step lets end by time, for the same reason. The caller's own ends in any case; for everybody else a
/// lease that waits for the next step, which is asked for at once, still counts as held: nobody is granted too much.
const ENDINGS_AT_ONCE: usize = 100;

/// A key and its line.
#[derive(Debug)]
pub struct Room<'a> {
    pub kind: Kind,
    pub holders: &'a mut Holders,
    pub queue: &'a mut Queue<Ask>,
}

/// A step under way: what it has done so far.
struct Work<'a, 's, 'f> {
    kind: Kind,
    holders: &'a mut Holders,
    queue: &'a mut Queue<Ask>,
    setting: &'s mut Setting<'f>,
    edits: Edits,
    answers: Vec<Answer>,
    endings: Vec<Ending>,
}

/// `owner` asks; `waiting` says how it waits if it must.
pub fn acquire(
    room: &mut Room<'_>,
    owner: &[u8],
    ask: Ask,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Outcome<Acquired> {
    let mut work = Work::begin_for(owner, room, setting);
    work.take_over_max(ask.claim);
    let verdict = match work.holders.by_owner(owner).map(|holder| (holder.fence, holder.mode())) {
        Some((fence, mode)) => work.ask_again(fence, mode, &ask),
        None => work.ask(owner, ask, waiting),
    };
    let mut outcome = work.end(verdict);
    // Who waited as a writer and now asks as a reader may fit at once, or the one before it has just given up.
    if let Some(waiting) = waiting
        && let Some(own) = outcome.answers.iter().position(|answer| answer.id() == waiting.id)
    {
        match outcome.answers.remove(own) {
            Answer::Granted { grant, .. } => outcome.verdict = Acquired::Granted(grant),
            Answer::TimedOut { busy, .. } => outcome.verdict = Acquired::Refused(busy),
            Answer::Superseded { .. } => {}
        }
    }
    outcome
}

/// The lease of `owner` ends `lease` from now.
pub fn renew(
    room: &mut Room<'_>,
    owner: &[u8],
    fence: Option<u64>,
    lease: Span,
    setting: &mut Setting<'_>,
) -> Outcome<Renewed> {
    let mut work = Work::begin_for(owner, room, setting);
    let verdict = match work.held_by(owner, fence) {
        Some(fence) => {
            work.time(fence, lease, work.now().plus(lease));
            Renewed::Granted(work.grant(fence, Span::ZERO))
        }
        None => Renewed::Lost(work.why_lost(owner, fence)),
    };
    work.end(verdict)
}

/// `owner` lets go. One that still waits leaves the line, and whoever stood behind it moves up.
pub fn release(room: &mut Room<'_>, owner: &[u8], fence: Option<u64>, setting: &mut Setting<'_>) -> Outcome<Released> {
    let mut work = Work::begin_for(owner, room, setting);
    let verdict = match work.held_by(owner, fence) {
        Some(fence) => {
            let held = work.finish(fence, work.now(), End::Released);
            Released::Released { held }
        }
        // A fence names a holding, never a wait.
        None if fence.is_none() && work.leaves(owner) => Released::Released { held: Span::ZERO },
        None => match work.own_end(owner, fence) {
            Some((End::Released, held)) => Released::Released { held },
            _ => Released::Lost(work.why_lost(owner, fence)),
        },
    };
    work.end(verdict)
}

/// An operator ends every holding. The verdict is how many there were.
pub fn break_all(room: &mut Room<'_>, setting: &mut Setting<'_>) -> Outcome<usize> {
    let mut work = Work::begin(room, setting);
    let broken = work.finish_all(End::Broken);
    work.end(broken)
}

/// The connection a holding was bound to has closed. True if it still held.
pub fn close(room: &mut Room<'_>, fence: u64, setting: &mut Setting<'_>) -> Outcome<bool> {
    finish_by_fence(room, fence, End::Closed, setting)
}

/// The connection a holding was bound to closed at `at`: its lease ends no later than `grace` after that. True if it
/// still holds.
pub fn cut(room: &mut Room<'_>, fence: u64, grace: Span, at: Instant, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut work = Work::new(room, setting);
    work.mend();
    let holder = work.holders.by_fence(fence);
    if let Some((lease, ends)) = holder.and_then(|holder| lease::cut(holder.lease(), holder.ends, grace, at)) {
        work.time(fence, lease, ends);
    }
    work.catch_up_all();
    let held = work.holders.by_fence(fence).is_some();
    work.end(held)
}

/// A grant could not be told to its owner, who was gone: it is given back, as if by the owner.
pub fn take_back(room: &mut Room<'_>, fence: u64, setting: &mut Setting<'_>) -> Outcome<bool> {
    finish_by_fence(room, fence, End::Released, setting)
}

fn finish_by_fence(room: &mut Room<'_>, fence: u64, how: End, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut work = Work::begin(room, setting);
    let held = work.holders.by_fence(fence).is_some();
    if held {
        work.finish(fence, work.now(), how);
    }
    work.end(held)
}

/// A bound holder was heard of: its lease runs at least until `until`. It is never cut short. The
/// caller vouches that it was never silent for a whole lease, so it counts even if nobody wrote it down in time.
pub fn extend(room: &mut Room<'_>, fence: u64, until: Instant, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut work = Work::new(room, setting);
    let held = work.holders.by_fence(fence).map(|holder| (holder.ends, holder.lease()));
    if let Some((ends, lease)) = held {
        let until = until.min(work.now().plus(lease));
        if ends < until {
            work.time(fence, lease, until);
        }
    }
    work.catch_up_all();
    let held = work.holders.by_fence(fence).is_some();
    work.end(held)
}

/// A waiter is gone. True if it still waited.
pub fn leave(room: &mut Room<'_>, id: WaiterId, setting: &mut Setting<'_>) -> Outcome<bool> {
    let left = room.queue.leave(id).is_some();
    Work::begin(room, setting).end(left)
}

/// Time has passed while nothing may be written: only patience can end.
pub fn give_up(room: &mut Room<'_>, setting: &mut Setting<'_>) -> Outcome<()> {
    let mut work = Work::new(room, setting);
    work.queue.follow_clock(work.now());
    while work.patience_is_over() {
        work.time_out();
    }
    work.outcome(())
}

/// True if one who asks like this now would be granted it at once. A claim brings the newest `max`.
pub fn could_take(room: &Room<'_>, claim: Claim) -> bool {
    room.queue.would_lead(claim.priority()) && fits(room.holders, claim, None)
}

/// Time has passed.
pub fn tick(room: &mut Room<'_>, setting: &mut Setting<'_>) -> Outcome<()> {
    Work::begin(room, setting).end(())
}

/// `newest`: the `max` of the newest call, which counts for everybody.
fn fits(holders: &Holders, claim: Claim, newest: Option<u32>) -> bool {
    match claim {
        Claim::Exclusive => holders.is_empty(),
        Claim::Shared => !holders.is_exclusive() && holders.len() < HOLDERS_MAX,
        Claim::Permit { max, .. } => holders.len() < (newest.unwrap_or(max) as usize).min(HOLDERS_MAX),
    }
}

impl Answer {
    pub fn id(&self) -> WaiterId {
        match self {
            Self::Granted { id, .. } | Self::TimedOut { id, .. } | Self::Superseded { id } => *id,
        }
    }
}

impl<'a, 's, 'f> Work<'a, 's, 'f> {
    fn new(room: &'a mut Room<'_>, setting: &'s mut Setting<'f>) -> Self {
        let Room { kind, holders, queue } = room;
        let (edits, answers, endings) = (Edits::new(), Vec::new(), Vec::new());
        Self { kind: *kind, holders, queue, setting, edits, answers, endings }
    }

    /// Everything that was due before now has happened.
    fn begin(room: &'a mut Room<'_>, setting: &'s mut Setting<'f>) -> Self {
        let mut work = Self::new(room, setting);
        work.catch_up_all();
        work
    }

    /// The same for a call of `owner`, whose own lease has ended even if very many ended before it.
    fn begin_for(owner: &[u8], room: &'a mut Room<'_>, setting: &'s mut Setting<'f>) -> Self {
        let mut work = Self::begin(room, setting);
        let now = work.now();
        let over = work.holders.by_owner(owner).filter(|holder| holder.ends <= now);
        if let Some((fence, ends)) = over.map(|holder| (holder.fence, holder.ends)) {
            work.finish(fence, ends, End::Expired);
            work.serve();
        }
        work
    }

    fn catch_up_all(&mut self) {
        self.mend();
        self.serve();
        self.catch_up();
    }

    /// The line is served; whoever must not wait any longer is told, and may have stood in the way of others.
    fn end<V>(mut self, verdict: V) -> Outcome<V> {
        self.serve();
        // A lease that has ended comes first: it may be what the waiter waits for.
        while self.answers.len() < ANSWERS_AT_ONCE && !self.any_lease_is_over() && self.patience_is_over() {
            self.time_out();
            self.serve();
        }
        self.outcome(verdict)
    }

    fn patience_is_over(&self) -> bool {
        self.queue.first_deadline().is_some_and(|deadline| deadline <= self.now())
    }

    fn any_lease_is_over(&self) -> bool {
        self.holders.first_end().is_some_and(|(end, _)| end <= self.now())
    }

    fn outcome<V>(self, verdict: V) -> Outcome<V> {
        let first_end = self.holders.first_end().map(|(end, _)| end);
        let rest = (self.answers.len() >= ANSWERS_AT_ONCE && self.head_fits()).then(|| self.now());
        let wake_at = first_end.into_iter().chain(self.queue.first_deadline()).chain(rest).min();
        let Self { edits, answers, endings, .. } = self;
        Outcome { verdict, edits, answers, endings, wake_at }
    }

    fn now(&self) -> Instant {
        self.setting.now
    }

    fn edit(&mut self, edit: Edit) {
        self.holders.apply(edit.clone());
        self.edits.push(edit);
    }

    /// Puts right what a clock set back, or a promotion, left behind.
    fn mend(&mut self) {
        let (now, promoted_at) = (self.now(), self.setting.promoted_at);
        self.queue.follow_clock(now);
        for (fence, lease, ends) in self.holders.wrongly_timed(promoted_at, now) {
            self.edit(Edit::Timed { fence, lease, ends });
        }
    }

    /// Ends of leases and of patience, in the order of time. At the same instant the lease ends first.
    fn catch_up(&mut self) {
        let now = self.now();
        while self.endings.len() < ENDINGS_AT_ONCE {
            let lease_end = self.holders.first_end().filter(|(end, _)| *end <= now);
            let deadline = self.queue.first_deadline().filter(|deadline| *deadline < now);
            match (lease_end, deadline) {
                (Some((end, _)), Some(deadline)) if deadline < end => self.time_out(),
                (Some((end, fence)), _) => {
                    self.finish(fence, end, End::Expired);
                }
                (None, Some(_)) => self.time_out(),
                (None, None) => return,
            }
            self.serve();
        }
    }

    /// Grants to the head of the queue for as long as it fits. Of very many, the rest is served by the next step, which is
    /// asked for at once: until then nobody overtakes them.
    fn serve(&mut self) {
        while self.answers.len() < ANSWERS_AT_ONCE && self.head_fits() {
            let Some(waiter) = self.queue.take_head() else { return };
            let fence = self.hand_to(&waiter.owner, &waiter.ask);
            let grant = self.grant(fence, waiter.waited(self.now()));
            let owner = Box::from(&*waiter.owner);
            self.answers.push(Answer::Granted { id: waiter.id, owner, grant, bind_to: waiter.ask.bind_to });
        }
    }

    fn head_fits(&self) -> bool {
        self.queue.head().is_some_and(|head| self.fits(head.ask.claim))
    }

    fn fits(&self, claim: Claim) -> bool {
        fits(self.holders, claim, self.queue.max)
    }

    /// Each ENTER brings its `max`, and the newest counts for the whole queue: those who wait are served by it, before the
    /// caller who brought it.
    fn take_over_max(&mut self, claim: Claim) {
        if let Claim::Permit { max, .. } = claim {
            self.queue.max = Some(max);
            self.serve();
        }
    }

    fn hand_to(&mut self, owner: &[u8], ask: &Ask) -> u64 {
        let now = self.now();
        let fence = self.setting.floor.issue(self.holders.last_fence(), now);
        let times = (now, now.plus(ask.lease));
        self.edit(Edit::Granted(Holder::new(owner, &ask.meta, fence, times, ask.lease, ask.claim.mode())));
        fence
    }

    fn grant(&self, fence: u64, waited: Span) -> Grant {
        let lease = self.holders.by_fence(fence).map_or(Span::ZERO, |holder| self.now().until(holder.ends));
        Grant { fence, lease, waited, active: self.holders.len(), queued: self.queue.len() }
    }

    fn time_out(&mut self) {
        if let Some(waiter) = self.queue.take_first_deadline() {
            let busy = self.busy();
            self.answers.push(Answer::TimedOut { id: waiter.id, busy });
        }
    }

    fn busy(&self) -> Busy {
        busy(self.holders, self.queue, self.now())
    }

    fn time(&mut self, fence: u64, lease: Span, ends: Instant) {
        let same = self.holders.by_fence(fence).is_some_and(|holder| holder.lease() == lease && holder.ends == ends);
        if !same {
            self.edit(Edit::Timed { fence, lease, ends });
        }
    }

    /// Ends a holding; returns how long it lasted.
    fn finish(&mut self, fence: u64, at: Instant, how: End) -> Span {
        let Some(holder) = self.holders.by_fence(fence) else { return Span::ZERO };
        let (owner, held) = (Box::from(holder.owner()), holder.held(at));
        self.endings.push(Ending { owner, fence, held, how });
        self.edit(Edit::Ended { fence, at, how });
        held
    }

    /// Ends every holding, and returns how many there were. The same as `finish` for each, in one go: there can be many.
    fn finish_all(&mut self, how: End) -> usize {
        let at = self.now();
        let all = self.holders.end_all(at, how);
        let count = all.len();
        for holder in all {
            let (fence, held) = (holder.fence, holder.held(at));
            self.edits.push(Edit::Ended { fence, at, how });
            self.endings.push(Ending { owner: holder.into_owner(), fence, held, how });
        }
        count
    }

    /// The same owner asks for what it has.
    fn ask_again(&mut self, fence: u64, mode: Mode, ask: &Ask) -> Acquired {
        let wanted = ask.claim.mode();
        if mode == Mode::Shared && wanted == Mode::Exclusive && (self.holders.len() > 1 || !self.queue.is_empty()) {
            return Acquired::Deadlock;
        }
        if mode != wanted {
            self.edit(Edit::Moded { fence, mode: wanted });
        }
        // The lease never ends earlier than was promised.
        let ends = self.now().plus(ask.lease);
        if self.holders.by_fence(fence).is_some_and(|holder| holder.ends < ends) {
            self.time(fence, ask.lease, ends);
        }
        Acquired::Granted(self.grant(fence, Span::ZERO))
    }

    /// Somebody who does not hold asks: a newcomer, or one who already waits.
    fn ask(&mut self, owner: &[u8], ask: Ask, waiting: Option<Waiting>) -> Acquired {
        let Some(Waiting { id, wait, most }) = waiting else {
            if self.leaves(owner) {
                self.serve();
            }
            return self.take_now(owner, &ask).unwrap_or_else(|| Acquired::Refused(self.busy()));
        };
        let waits = self.queue.waits(owner);
        if !waits {
            if let Some(granted) = self.take_now(owner, &ask) {
                return granted;
            }
            if !self.may_wait(ask.claim, most) {
                return Acquired::Refused(self.busy());
            }
        }
        let priority = ask.claim.priority();
        let waiter = Waiter { id, owner: owner.into(), since: self.now(), deadline: self.now().plus(wait), ask };
        match self.queue.supersede(waiter) {
            Ok(former) => self.answers.push(Answer::Superseded { id: former.id }),
            Err(waiter) => self.queue.join(priority, waiter),
        }
        Acquired::Queued
    }

    /// Takes `owner` out of the line; the call that waited is told. False if it did not wait.
    fn leaves(&mut self, owner: &[u8]) -> bool {
        let left = self.queue.leave_by_owner(owner);
        self.answers.extend(left.iter().map(|former| Answer::Superseded { id: former.id }));
        left.is_some()
    }

    /// Grants at once if it fits and nobody is before it.
    fn take_now(&mut self, owner: &[u8], ask: &Ask) -> Option<Acquired> {
        if !self.queue.would_lead(ask.claim.priority()) || !self.fits(ask.claim) {
            return None;
        }
        let fence = self.hand_to(owner, ask);
        Some(Acquired::Granted(self.grant(fence, Span::ZERO)))
    }

    /// A lock's line has `most` places; a bulkhead has `max` and `most` together, whoever takes them.
    fn may_wait(&self, claim: Claim, most: usize) -> bool {
        match claim {
            Claim::Exclusive | Claim::Shared => self.queue.len() < most,
            Claim::Permit { max, .. } => self.holders.len() + self.queue.len() < max as usize + most,
        }
    }

    fn held_by(&self, owner: &[u8], fence: Option<u64>) -> Option<u64> {
        let held = self.holders.by_owner(owner)?.fence;
        fence.is_none_or(|fence| fence == held).then_some(held)
    }

    /// How the owner's own last holding ended, if that is still remembered.
    fn own_end(&self, owner: &[u8], fence: Option<u64>) -> Option<(End, Span)> {
        let fits = |end: &&Ended| &*end.owner == owner && fence.is_none_or(|fence| fence == end.fence);
        let end = self.holders.ended().iter().rev().find(fits)?;
        (end.at.plus(GRACE) > self.now()).then_some((end.how, end.held))
    }

    fn why_lost(&self, owner: &[u8], fence: Option<u64>) -> Reason {
        match self.own_end(owner, fence) {
            Some((how, _)) => how.into(),
            None if self.kind == Kind::Lock && !self.holders.is_empty() => Reason::Taken,
            None => Reason::Absent,
        }
    }
}
