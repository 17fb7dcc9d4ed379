//! The transitions. Each begins by bringing the record up to `now` and ends by answering whoever can be answered.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;

use super::ask::{Answer, Ask, Became, Begun, Committed, Outcome, Replay, Run, Settled};
use super::record::{Idle, Once, Phase, Record, Work};
use crate::lease::{self, ends_for};
use crate::limits::CLOCK_JITTER;
use crate::lock::{End, Ending, Grant, Reason, Renewed, Setting};
use crate::queue::{Queue, Waiter, WaiterId, Waiting};
use crate::time::{Instant, Span};

/// A key and its line.
#[derive(Debug)]
pub struct Room<'a> {
    pub record: &'a mut Record,
    pub queue: &'a mut Queue<Ask>,
}

/// A step under way.
struct Job<'a, 's, 'f> {
    record: &'a mut Record,
    queue: &'a mut Queue<Ask>,
    setting: &'s mut Setting<'f>,
    /// What the record was on the way, if it went through more than one change.
    passed: SmallVec<[Became; 1]>,
    changed: bool,
    answers: Vec<Answer>,
    endings: Vec<Ending>,
}

/// May `token` run?
pub fn begin(
    room: &mut Room<'_>,
    token: &[u8],
    ask: Ask,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Outcome<Begun> {
    let mut job = Job::begin(room, setting);
    let verdict = job.ask(token, ask, waiting);
    let mut outcome = job.end(verdict);
    // The one before it may have just given up.
    if let Some(waiting) = waiting
        && let Some(own) = outcome.answers.iter().position(|answer| answer.id() == waiting.id)
    {
        match outcome.answers.remove(own) {
            Answer::Run { run, .. } => outcome.verdict = Begun::Run(run),
            Answer::Settled { settled, .. } => outcome.verdict = Begun::Settled(settled),
            Answer::Superseded { .. } => {}
        }
    }
    outcome
}

/// The work is done. `result` is `None` if there is no room for it.
pub fn commit(
    room: &mut Room<'_>,
    token: &[u8],
    ttl: Span,
    (result, failed): (Option<Arc<[u8]>>, bool),
    setting: &mut Setting<'_>,
) -> Outcome<Committed> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let verdict = match job.record.work(now) {
        Some(work) if *work.token == *token => match &work.phase {
            Phase::Done { result, .. } => Committed::Committed { stored: result.is_some() },
            Phase::Idle { why: Idle::Aborted, .. } => Committed::Lost(Reason::Aborted),
            Phase::Running { .. } | Phase::Idle { .. } => {
                job.finish(End::Released, now);
                let stored = result.is_some();
                job.enter(Phase::Done { at: now, until: now.plus(ttl), failed, result });
                Committed::Committed { stored }
            }
        },
        other => Committed::Lost(why_lost(other)),
    };
    job.end(verdict)
}

/// Nothing happened: whoever asks next may run. One that still waits leaves the line. The verdict is why not, if so.
pub fn abort(room: &mut Room<'_>, token: &[u8], setting: &mut Setting<'_>) -> Outcome<Option<Reason>> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let verdict = match job.record.work(now) {
        Some(work) if *work.token == *token => match &work.phase {
            Phase::Idle { why: Idle::Aborted, .. } => None,
            Phase::Done { .. } => Some(Reason::Committed),
            Phase::Running { .. } | Phase::Idle { .. } => {
                job.finish(End::Released, now);
                job.enter(Phase::Idle { at: now, why: Idle::Aborted });
                None
            }
        },
        other => {
            let why = why_lost(other);
            (!job.leaves(token)).then_some(why)
        }
    };
    job.end(verdict)
}

/// The lease of `token` ends `lease` from now.
pub fn renew(room: &mut Room<'_>, token: &[u8], lease: Span, setting: &mut Setting<'_>) -> Outcome<Renewed> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let verdict = match job.record.work(now) {
        Some(work) if *work.token == *token => match work.phase {
            Phase::Running { since, .. } => {
                let fence = work.fence;
                job.enter(Phase::Running { since, lease, ends: now.plus(lease) });
                let queued = job.queue.len();
                Renewed::Granted(Grant { fence, lease, waited: Span::ZERO, active: 1, queued })
            }
            Phase::Idle { why, .. } => Renewed::Lost(why.into()),
            Phase::Done { .. } => Renewed::Lost(Reason::Committed),
        },
        other => Renewed::Lost(why_lost(other)),
    };
    job.end(verdict)
}

/// Was this event seen before? `Err` if the key belongs to BEGIN.
pub fn once(room: &mut Room<'_>, token: &[u8], ttl: Span, setting: &mut Setting<'_>) -> Outcome<Result<bool, ()>> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let verdict = if job.record.work(now).is_some() {
        Err(())
    } else if let Some(seen) = job.record.seen(now) {
        Ok(is_same_caller(seen, token))
    } else {
        job.set(Record::Once(Once { token: token.into(), at: now, until: now.plus(ttl) }));
        Ok(true)
    };
    job.end(verdict)
}

/// The connection a run was bound to has closed. True if it still ran.
pub fn close(room: &mut Room<'_>, fence: u64, setting: &mut Setting<'_>) -> Outcome<bool> {
    stop(room, fence, (Idle::Closed, End::Closed), setting)
}

/// The connection a run was bound to closed at `at`: its lease ends no later than `grace` after that. True if it still
/// runs.
pub fn cut(room: &mut Room<'_>, fence: u64, grace: Span, at: Instant, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::new(room, setting);
    let (now, promoted_at) = (job.now(), job.setting.promoted_at);
    let runs = |job: &Job<'_, '_, '_>| job.running().is_some_and(|(work, _)| work.fence == fence);
    if runs(&job)
        && let Record::Work(work) = &*job.record
        && let Phase::Running { since, lease, ends } = work.phase
        && let Some((lease, ends)) = lease::cut(lease, ends_for(ends, lease, promoted_at, now), grace, at)
    {
        job.enter(Phase::Running { since, lease, ends });
    }
    job.catch_up();
    let runs = runs(&job);
    job.end(runs)
}

/// A RUN could not be told: whoever was to run never began.
pub fn take_back(room: &mut Room<'_>, fence: u64, setting: &mut Setting<'_>) -> Outcome<bool> {
    stop(room, fence, (Idle::Aborted, End::Released), setting)
}

fn stop(room: &mut Room<'_>, fence: u64, (why, how): (Idle, End), setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let runs = job.running().is_some_and(|(work, _)| work.fence == fence);
    if runs {
        job.finish(how, now);
        job.enter(Phase::Idle { at: now, why });
    }
    job.end(runs)
}

/// A bound runner was heard of: its lease runs at least until `until`. It is never cut short. The
/// caller vouches that it was never silent for a whole lease, so it counts even if nobody wrote it down in time.
pub fn extend(room: &mut Room<'_>, fence: u64, until: Instant, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::new(room, setting);
    let runs = |job: &Job<'_, '_, '_>| job.running().is_some_and(|(work, _)| work.fence == fence);
    if runs(&job)
        && let Record::Work(work) = &*job.record
        && let Phase::Running { since, lease, ends } = work.phase
    {
        let until = until.min(job.now().plus(lease));
        if ends < until {
            job.enter(Phase::Running { since, lease, ends: until });
        }
    }
    job.catch_up();
    let runs = runs(&job);
    job.end(runs)
}

/// A waiter is gone. True if it still waited.
pub fn leave(room: &mut Room<'_>, id: WaiterId, setting: &mut Setting<'_>) -> Outcome<bool> {
    let left = room.queue.leave(id).is_some();
    Job::begin(room, setting).end(left)
}

/// Time has passed.
pub fn tick(room: &mut Room<'_>, setting: &mut Setting<'_>) -> Outcome<()> {
    Job::begin(room, setting).end(())
}

/// Time has passed while nothing may be written: only patience can end.
pub fn give_up(room: &mut Room<'_>, setting: &mut Setting<'_>) -> Outcome<()> {
    let mut job = Job::new(room, setting);
    job.queue.follow_clock(job.now());
    job.time_out(|deadline, now| deadline <= now);
    job.outcome(())
}

/// What ONCE answers without changing anything, if that is possible: this event was seen.
pub fn seen_before(record: &Record, token: &[u8], now: Instant) -> Option<bool> {
    let seen = record.seen(now).filter(|seen| seen.at <= now.plus(CLOCK_JITTER))?;
    Some(is_same_caller(seen, token))
}

/// The caller who saw it first asks again: its first reply was lost.
fn is_same_caller(seen: &Once, token: &[u8]) -> bool {
    !token.is_empty() && *seen.token == *token
}

/// What BEGIN answers without changing anything, if that is possible: the result, for one who asks for the same.
pub fn replay(record: &Record, fingerprint: &[u8], now: Instant) -> Option<Settled> {
    let work = record.work(now).filter(|work| !differs(work, fingerprint))?;
    match &work.phase {
        Phase::Done { at, .. } if *at <= now.plus(CLOCK_JITTER) => lookup(work, None, now),
        _ => None,
    }
}

/// What is known, without changing anything. It works on replicas, by the replica's own clock.
pub fn look(record: &Record, fingerprint: &[u8], promoted_at: Option<Instant>, now: Instant) -> Settled {
    let Some(work) = record.work_for(promoted_at, now) else { return Settled::Miss };
    if differs(work, fingerprint) {
        return Settled::Mismatch;
    }
    match lookup(work, promoted_at, now) {
        Some(settled) => settled,
        None => Settled::Miss,
    }
}

/// What somebody who may not run is told; `None` if nothing is in the way.
pub fn lookup(work: &Work, promoted_at: Option<Instant>, now: Instant) -> Option<Settled> {
    match &work.phase {
        Phase::Running { lease, ends, .. } => {
            let ends = ends_for(*ends, *lease, promoted_at, now);
            (ends > now).then(|| Settled::Busy { remaining: now.until(ends), attempt: work.attempt })
        }
        Phase::Idle { .. } if work.is_held() => Some(Settled::Held { attempt: work.attempt }),
        Phase::Idle { .. } => None,
        Phase::Done { at, failed, result, .. } => {
            Some(Settled::Replay(Replay { failed: *failed, result: result.clone(), age: at.until(now) }))
        }
    }
}

fn differs(work: &Work, fingerprint: &[u8]) -> bool {
    !fingerprint.is_empty() && !work.fingerprint.is_empty() && *work.fingerprint != *fingerprint
}

/// Why a token that is not the last one does not run.
fn why_lost(work: Option<&Work>) -> Reason {
    if work.is_some() { Reason::Taken } else { Reason::Absent }
}

impl From<Idle> for Reason {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Aborted => Self::Aborted,
            Idle::Lapsed => Self::Expired,
            Idle::Closed => Self::Closed,
        }
    }
}

impl<'a, 's, 'f> Job<'a, 's, 'f> {
    fn new(room: &'a mut Room<'_>, setting: &'s mut Setting<'f>) -> Self {
        let Room { record, queue } = room;
        Self {
            record,
            queue,
            setting,
            passed: SmallVec::new(),
            changed: false,
            answers: Vec::new(),
            endings: Vec::new(),
        }
    }

    /// Everything that was due before now has happened.
    fn begin(room: &'a mut Room<'_>, setting: &'s mut Setting<'f>) -> Self {
        let mut job = Self::new(room, setting);
        job.catch_up();
        job
    }

    fn catch_up(&mut self) {
        let (now, promoted_at) = (self.now(), self.setting.promoted_at);
        self.queue.follow_clock(now);
        self.changed |= self.record.mend(now);
        let mut at = now;
        if let Record::Work(work) = &*self.record
            && let Phase::Running { since, lease, ends } = work.phase
        {
            let right = ends_for(ends, lease, promoted_at, now);
            if right <= now {
                self.time_out(|deadline, _| deadline < right);
                self.finish(End::Expired, right);
                self.enter(Phase::Idle { at: right, why: Idle::Lapsed });
                // Whoever waited then takes the work as it was then, however late this is.
                at = right;
            } else if right != ends {
                self.enter(Phase::Running { since, lease, ends: right });
            }
        }
        self.serve(at);
        self.time_out(|deadline, now| deadline < now);
    }

    fn end<V>(mut self, verdict: V) -> Outcome<V> {
        self.serve(self.now());
        self.time_out(|deadline, now| deadline <= now);
        self.outcome(verdict)
    }

    fn outcome<V>(self, verdict: V) -> Outcome<V> {
        let lease_end = self.running().map(|(_, ends)| ends);
        let wake_at = lease_end.into_iter().chain(self.queue.first_deadline()).min();
        let mut edits = self.passed;
        if self.changed {
            edits.push(Became::Present);
        }
        Outcome { verdict, edits, answers: self.answers, endings: self.endings, wake_at }
    }

    fn now(&self) -> Instant {
        self.setting.now
    }

    fn running(&self) -> Option<(&Work, Instant)> {
        match &*self.record {
            Record::Work(work) => match work.phase {
                Phase::Running { ends, .. } => Some((work, ends)),
                Phase::Idle { .. } | Phase::Done { .. } => None,
            },
            Record::Nothing | Record::Once(_) => None,
        }
    }

    fn set(&mut self, record: Record) {
        let before = core::mem::replace(self.record, record);
        if self.changed {
            self.passed.push(Became::Passing(before));
        }
        self.changed = true;
    }

    fn enter(&mut self, phase: Phase) {
        if let Record::Work(work) = &mut *self.record
            && work.phase != phase
        {
            work.phase = phase;
            self.changed = true;
        }
    }

    /// Notes that a run, if there is one, ends.
    fn finish(&mut self, how: End, at: Instant) {
        if let Record::Work(work) = &*self.record
            && let Phase::Running { since, .. } = work.phase
        {
            let (owner, held) = (work.token.clone(), since.until(at));
            self.endings.push(Ending { owner, fence: work.fence, held, how });
        }
    }

    /// Answers whoever waits, as far as that is possible, by what was known at `at`: all of them if it is done or held,
    /// one if it can run.
    fn serve(&mut self, at: Instant) {
        while !matches!(self.settled(&[], at), Some(Settled::Busy { .. })) {
            let Some(waiter) = self.queue.take_head() else { return };
            let id = waiter.id;
            let answer = match self.settled(&waiter.ask.fingerprint, at) {
                Some(settled) => Answer::Settled { id, settled },
                None => {
                    let run = self.run(&waiter.owner, &waiter.ask, waiter.waited(self.now()), at);
                    Answer::Run { id, run, bind_to: waiter.ask.bind_to }
                }
            };
            self.answers.push(answer);
        }
    }

    /// What somebody with this fingerprint is told by what was known at `at`; `None` if nothing is in the way.
    fn settled(&self, fingerprint: &[u8], at: Instant) -> Option<Settled> {
        let work = self.record.work_for(self.setting.promoted_at, at)?;
        if differs(work, fingerprint) {
            return Some(Settled::Mismatch);
        }
        lookup(work, self.setting.promoted_at, self.now())
    }

    fn time_out(&mut self, is_over: impl Fn(Instant, Instant) -> bool) {
        let now = self.now();
        while self.queue.first_deadline().is_some_and(|deadline| is_over(deadline, now)) {
            let Some(waiter) = self.queue.take_first_deadline() else { return };
            let attempt = self.running().map_or(0, |(work, _)| work.attempt);
            let settled = self.settled(&waiter.ask.fingerprint, now);
            let settled = settled.unwrap_or(Settled::Busy { remaining: Span::ZERO, attempt });
            self.answers.push(Answer::Settled { id: waiter.id, settled });
        }
    }

    /// `token` runs from now on, after what was known at `at`.
    fn run(&mut self, token: &[u8], ask: &Ask, waited: Span, at: Instant) -> Run {
        let now = self.now();
        let fence = self.setting.floor.issue(self.record.last_fence(), now);
        let (attempt, fingerprint) = match self.record.work(at) {
            Some(work) => (work.attempt.saturating_add(1), work.fingerprint.clone()),
            None => (1, Box::default()),
        };
        let fingerprint = if fingerprint.is_empty() { ask.fingerprint.clone() } else { fingerprint };
        let phase = Phase::Running { since: now, lease: ask.lease, ends: now.plus(ask.lease) };
        let (keep, on_lapse) = (ask.keep, ask.on_lapse);
        self.set(Record::Work(Box::new(Work {
            fingerprint,
            token: token.into(),
            fence,
            attempt,
            keep,
            on_lapse,
            phase,
        })));
        Run { fence, attempt, lease: ask.lease, waited }
    }

    fn ask(&mut self, token: &[u8], ask: Ask, waiting: Option<Waiting>) -> Begun {
        let now = self.now();
        if self.record.seen(now).is_some() {
            return Begun::WrongPhase;
        }
        if let Some((work, _)) = self.running()
            && let Phase::Running { since, lease, ends } = work.phase
            && *work.token == *token
            && !differs(work, &ask.fingerprint)
        {
            // The same token again: the same run, whose lease never ends earlier than was promised.
            let (fence, attempt) = (work.fence, work.attempt);
            let later = now.plus(ask.lease);
            let (lease, ends) = if later > ends { (ask.lease, later) } else { (lease, ends) };
            self.enter(Phase::Running { since, lease, ends });
            return Begun::Run(Run { fence, attempt, lease: now.until(ends), waited: Span::ZERO });
        }
        match self.settled(&ask.fingerprint, now) {
            None => Begun::Run(self.run(token, &ask, Span::ZERO, now)),
            Some(busy @ Settled::Busy { .. }) => self.wait(token, ask, waiting, busy),
            Some(settled) => Begun::Settled(settled),
        }
    }

    fn wait(&mut self, token: &[u8], ask: Ask, waiting: Option<Waiting>, busy: Settled) -> Begun {
        let now = self.now();
        let Some(Waiting { id, wait, most }) = waiting else {
            self.leaves(token);
            return Begun::Settled(busy);
        };
        let waiter = Waiter { id, owner: token.into(), since: now, deadline: now.plus(wait), ask };
        match self.queue.supersede(waiter) {
            Ok(former) => self.answers.push(Answer::Superseded { id: former.id }),
            Err(_) if self.queue.len() >= most => return Begun::Settled(busy),
            Err(waiter) => self.queue.join(0, waiter),
        }
        Begun::Queued
    }

    /// Takes `token` out of the line; the call that waited is told. False if it did not wait.
    fn leaves(&mut self, token: &[u8]) -> bool {
        let left = self.queue.leave_by_owner(token);
        self.answers.extend(left.iter().map(|former| Answer::Superseded { id: former.id }));
        left.is_some()
    }
}
