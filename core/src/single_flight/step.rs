//! The transitions. Each begins by bringing the flight up to `now` and ends by answering whoever can be answered.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::ask::{Abandoned, Answer, Ask, Joined, Lead, Outcome, Publication, Published, Seen};
use super::edit::{Edit, Edits};
use super::state::{Cached, Flight, Leader, Pause, Way};
use crate::lease::{self, ends_for};
use crate::limits::{CLOCK_JITTER, GRACE};
use crate::lock::{End, Ending, Grant, Reason, Renewed, Setting};
use crate::queue::{Queue, Waiter, WaiterId, Waiting};
use crate::time::{Instant, Span};

/// A key and its line.
#[derive(Debug)]
pub struct Room<'a> {
    pub flight: &'a mut Flight,
    pub queue: &'a mut Queue<Ask>,
}

/// A step under way.
struct Job<'a, 's, 'f> {
    flight: &'a mut Flight,
    queue: &'a mut Queue<Ask>,
    setting: &'s mut Setting<'f>,
    edits: Edits,
    answers: Vec<Answer>,
    endings: Vec<Ending>,
}

/// `token` wants the value, and loads it if nobody else does.
pub fn join(
    room: &mut Room<'_>,
    token: &[u8],
    ask: Ask,
    waiting: Option<Waiting>,
    setting: &mut Setting<'_>,
) -> Outcome<Joined> {
    let mut job = Job::begin(room, setting);
    let verdict = job.join(token, ask, waiting);
    let mut outcome = job.end(verdict);
    // The one before it may have just given up.
    if let Some(waiting) = waiting
        && let Some(own) = outcome.answers.iter().position(|answer| answer.id() == waiting.id)
    {
        match outcome.answers.remove(own) {
            Answer::Lead { lead, .. } => outcome.verdict = Joined::Lead(lead),
            Answer::Seen { seen, .. } => outcome.verdict = Joined::Seen(seen),
            Answer::Superseded { .. } => {}
        }
    }
    outcome
}

/// The leader brings what it loaded; it is kept for `ttl`, and all followers get it.
pub fn publish(
    room: &mut Room<'_>,
    token: &[u8],
    ttl: Span,
    publication: Publication,
    setting: &mut Setting<'_>,
) -> Outcome<Published> {
    let mut job = Job::begin(room, setting);
    let verdict = match job.lost(token) {
        None => {
            job.finish(Way::Published, job.now());
            Published::Published { followers: job.bring(ttl, publication) }
        }
        // The same again: its first reply was lost.
        Some(Reason::Published) => Published::Published { followers: 0 },
        Some(reason) => Published::Lost(reason),
    };
    job.end(verdict)
}

/// The leader gives up; nobody leads for `retry`, if that is given. One that still waits leaves the line.
pub fn abandon(
    room: &mut Room<'_>,
    token: &[u8],
    retry: Option<Span>,
    setting: &mut Setting<'_>,
) -> Outcome<Abandoned> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let verdict = match job.lost(token) {
        None => {
            job.finish(Way::Abandoned, now);
            if let Some(retry) = retry {
                job.edit(Edit::Paused(Pause { at: now, until: now.plus(retry), error: None }));
            }
            Abandoned::Abandoned
        }
        Some(_) if job.leaves(token) => Abandoned::Abandoned,
        Some(Reason::Aborted) => Abandoned::Abandoned,
        Some(reason) => Abandoned::Lost(reason),
    };
    job.end(verdict)
}

/// The lease of the leader ends `lease` from now.
pub fn renew(room: &mut Room<'_>, token: &[u8], lease: Span, setting: &mut Setting<'_>) -> Outcome<Renewed> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let verdict = match (job.lost(token), &job.flight.leader) {
        (None, Some(leader)) => {
            let fence = leader.fence;
            job.edit(Edit::Timed { lease, ends: now.plus(lease) });
            Renewed::Granted(Grant { fence, lease, waited: Span::ZERO, active: 1, queued: job.queue.len() })
        }
        (reason, _) => Renewed::Lost(reason.unwrap_or(Reason::Absent)),
    };
    job.end(verdict)
}

/// Whatever is known, or being loaded, is out of date. `keep_stale`: the value may still be served as stale. True if
/// there was anything.
pub fn invalidate(room: &mut Room<'_>, keep_stale: bool, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::begin(room, setting);
    let now = job.now();
    let mut anything = false;
    if job.flight.leader.is_some() {
        job.finish(Way::Invalidated, now);
        anything = true;
    }
    if let Some(value) = &job.flight.value {
        let stale_until = value.stale_until.max(value.fresh_until);
        let lives = stale_until > now;
        anything |= lives;
        // What time has forgotten goes, too: a clock set back would bring it back.
        if !(keep_stale && lives && value.content.is_some()) {
            job.edit(Edit::Dropped);
        } else if value.fresh_until > Instant::EPOCH {
            job.edit(Edit::Softened { stale_until });
        }
    }
    if job.flight.paused(now).is_some() {
        anything = true;
        job.edit(Edit::Resumed);
    }
    job.end(anything)
}

/// The connection the lead was bound to has closed. True if it still led.
pub fn close(room: &mut Room<'_>, fence: u64, setting: &mut Setting<'_>) -> Outcome<bool> {
    stop(room, fence, Way::Closed, setting)
}

/// The connection the lead was bound to closed at `at`: its lease ends no later than `grace` after that. True if it still
/// leads.
pub fn cut(room: &mut Room<'_>, fence: u64, grace: Span, at: Instant, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::new(room, setting);
    let (now, promoted_at) = (job.now(), job.setting.promoted_at);
    let leads = |job: &Job<'_, '_, '_>| job.flight.leader.as_ref().is_some_and(|leader| leader.fence == fence);
    if let Some(leader) = job.flight.leader.as_deref().filter(|leader| leader.fence == fence) {
        let ends = ends_for(leader.ends, leader.lease, promoted_at, now);
        if let Some((lease, ends)) = lease::cut(leader.lease, ends, grace, at) {
            job.edit(Edit::Timed { lease, ends });
        }
    }
    job.catch_up();
    let leads = leads(&job);
    job.end(leads)
}

/// A LEAD could not be told: whoever was to load never began.
pub fn take_back(room: &mut Room<'_>, fence: u64, setting: &mut Setting<'_>) -> Outcome<bool> {
    stop(room, fence, Way::Abandoned, setting)
}

fn stop(room: &mut Room<'_>, fence: u64, way: Way, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::begin(room, setting);
    let leads = job.flight.leader.as_ref().is_some_and(|leader| leader.fence == fence);
    if leads {
        job.finish(way, job.now());
    }
    job.end(leads)
}

/// A bound leader was heard of: its lease runs at least until `until`. It is never cut short. The
/// caller vouches that it was never silent for a whole lease, so it counts even if nobody wrote it down in time.
pub fn extend(room: &mut Room<'_>, fence: u64, until: Instant, setting: &mut Setting<'_>) -> Outcome<bool> {
    let mut job = Job::new(room, setting);
    let leads = |job: &Job<'_, '_, '_>| job.flight.leader.as_ref().is_some_and(|leader| leader.fence == fence);
    if let Some(leader) = job.flight.leader.as_deref().filter(|leader| leader.fence == fence) {
        let (lease, ends) = (leader.lease, leader.ends);
        let until = until.min(job.now().plus(lease));
        if ends < until {
            job.edit(Edit::Timed { lease, ends: until });
        }
    }
    job.catch_up();
    let leads = leads(&job);
    job.end(leads)
}

/// A follower is gone. True if it still waited.
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

/// What is known, without changing anything. It works on replicas, by the replica's own clock.
pub fn look(flight: &Flight, now: Instant) -> Seen {
    if let Some(value) = flight.fresh(now) {
        let age = value.at.until(now);
        return match &value.content {
            Some(bytes) => Seen::Value { bytes: Arc::clone(bytes), age, fresh: now.until(value.fresh_until) },
            None => Seen::Empty { age },
        };
    }
    if let Some((bytes, value)) = flight.stale(now) {
        return Seen::Stale { bytes: Arc::clone(bytes), age: value.at.until(now) };
    }
    match flight.paused(now).and_then(|pause| pause.error.as_ref()) {
        Some(text) => Seen::Error { text: Arc::clone(text) },
        None => Seen::Miss,
    }
}

/// What JOIN answers without changing anything, if that is possible: a fresh value that nobody loads anew.
pub fn hit(flight: &Flight, now: Instant) -> Option<Seen> {
    let is_mended = |value: &Cached| value.at <= now.plus(CLOCK_JITTER);
    let fresh = flight.leader.is_none() && flight.fresh(now).is_some_and(is_mended);
    fresh.then(|| look(flight, now))
}

/// What one is told who has waited in vain.
pub fn busy(flight: &Flight, now: Instant) -> Seen {
    let lease_end = flight.leader.as_ref().map(|leader| leader.ends);
    let end = lease_end.or_else(|| flight.paused(now).map(|pause| pause.until));
    Seen::Busy { remaining: end.map_or(Span::ZERO, |end| now.until(end)) }
}

impl From<Way> for Reason {
    fn from(way: Way) -> Self {
        match way {
            Way::Published => Self::Published,
            Way::Abandoned => Self::Aborted,
            Way::Expired => Self::Expired,
            Way::Closed => Self::Closed,
            Way::Invalidated => Self::Invalidated,
        }
    }
}

impl<'a, 's, 'f> Job<'a, 's, 'f> {
    fn new(room: &'a mut Room<'_>, setting: &'s mut Setting<'f>) -> Self {
        let Room { flight, queue } = room;
        Self { flight, queue, setting, edits: Edits::new(), answers: Vec::new(), endings: Vec::new() }
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
        let begun =
            [self.flight.value.as_ref().map(|value| value.at), self.flight.pause.as_ref().map(|pause| pause.at)];
        if begun.into_iter().flatten().any(|at| at > now.plus(CLOCK_JITTER)) {
            self.edit(Edit::Mended { now });
        }
        if let Some(Leader { lease, ends, .. }) = self.flight.leader.as_deref() {
            let (lease, ends) = (*lease, *ends);
            let right = ends_for(ends, lease, promoted_at, now);
            if right <= now {
                self.time_out(|deadline, _| deadline < right);
                self.finish(Way::Expired, right);
            } else if right != ends {
                self.edit(Edit::Timed { lease, ends: right });
            }
        }
        if let Some(until) = self.flight.pause.as_ref().map(|pause| pause.until).filter(|_| self.may_lead()) {
            // Whoever waited when the pause ended leads, not who had given up before.
            self.time_out(|deadline, _| deadline < until);
        }
        self.serve();
        self.time_out(|deadline, now| deadline < now);
    }

    fn end<V>(mut self, verdict: V) -> Outcome<V> {
        self.serve();
        self.time_out(|deadline, now| deadline <= now);
        self.outcome(verdict)
    }

    fn outcome<V>(self, verdict: V) -> Outcome<V> {
        let now = self.now();
        let lease_end = self.flight.leader.as_ref().map(|leader| leader.ends);
        let resumes = self.flight.paused(now).filter(|_| !self.queue.is_empty()).map(|pause| pause.until);
        let wake_at = lease_end.into_iter().chain(resumes).chain(self.queue.first_deadline()).min();
        Outcome { verdict, edits: self.edits, answers: self.answers, endings: self.endings, wake_at }
    }

    fn now(&self) -> Instant {
        self.setting.now
    }

    fn edit(&mut self, edit: Edit) {
        self.flight.apply(&edit);
        self.edits.push(edit);
    }

    /// Ends the lead.
    fn finish(&mut self, way: Way, at: Instant) {
        if let Some(leader) = &self.flight.leader {
            let how = match way {
                Way::Published | Way::Abandoned => End::Released,
                Way::Expired => End::Expired,
                Way::Closed => End::Closed,
                Way::Invalidated => End::Broken,
            };
            let (owner, held) = (leader.token.clone(), leader.since.until(at));
            self.endings.push(Ending { owner, fence: leader.fence, held, how });
            self.edit(Edit::Ended { at, way });
        }
    }

    /// Why `token` does not lead; `None` if it does.
    fn lost(&self, token: &[u8]) -> Option<Reason> {
        if self.flight.leader.as_ref().is_some_and(|leader| *leader.token == *token) {
            return None;
        }
        let own = self.flight.ended.iter().find(|end| *end.token == *token);
        let own = own.filter(|end| end.at.plus(GRACE) > self.now());
        Some(match own {
            Some(end) => end.way.into(),
            None if self.flight.leader.is_some() => Reason::Taken,
            None => Reason::Absent,
        })
    }

    /// Stores what the leader brought and answers all followers with it. Returns how many there were.
    fn bring(&mut self, ttl: Span, publication: Publication) -> usize {
        let now = self.now();
        let fresh_until = now.plus(ttl);
        let kept = |content: Option<Arc<[u8]>>, stale: Span| {
            Edit::Kept(Cached { content, at: now, fresh_until, stale_until: fresh_until.plus(stale) })
        };
        let seen = match publication {
            Publication::Value { bytes, stale } => {
                let seen = Seen::Value { bytes: Arc::clone(&bytes), age: Span::ZERO, fresh: ttl };
                self.replace(ttl, kept(Some(bytes), stale));
                seen
            }
            Publication::Empty => {
                self.replace(ttl, kept(None, Span::ZERO));
                Seen::Empty { age: Span::ZERO }
            }
            Publication::Error { text } => {
                if !ttl.is_zero() {
                    let error = Some(Arc::clone(&text));
                    self.edit(Edit::Paused(Pause { at: now, until: fresh_until, error }));
                }
                Seen::Error { text }
            }
        };
        let mut followers = 0;
        while let Some(waiter) = self.queue.take_head() {
            self.answers.push(Answer::Seen { id: waiter.id, seen: seen.clone() });
            followers += 1;
        }
        followers
    }

    fn replace(&mut self, ttl: Span, kept: Edit) {
        if !ttl.is_zero() {
            self.edit(kept);
        } else if self.flight.value.is_some() {
            self.edit(Edit::Dropped);
        }
        if self.flight.pause.is_some() {
            self.edit(Edit::Resumed);
        }
    }

    /// What one who does not lead is told; `None` if it has to wait, or may lead.
    fn seen(&self) -> Option<Seen> {
        let now = self.now();
        match look(self.flight, now) {
            Seen::Miss => None,
            Seen::Stale { .. } if self.may_lead() => None,
            seen => Some(seen),
        }
    }

    fn may_lead(&self) -> bool {
        self.flight.leader.is_none() && self.flight.paused(self.now()).is_none()
    }

    /// Answers whoever waits, as far as that is possible.
    fn serve(&mut self) {
        while !self.queue.is_empty() {
            let seen = self.seen();
            if seen.is_none() && !self.may_lead() {
                return;
            }
            let Some(waiter) = self.queue.take_head() else { return };
            let id = waiter.id;
            let answer = match seen {
                Some(seen) => Answer::Seen { id, seen },
                None => {
                    let lead = self.lead(&waiter.owner, waiter.ask.lease, waiter.waited(self.now()));
                    Answer::Lead { id, lead, bind_to: waiter.ask.bind_to }
                }
            };
            self.answers.push(answer);
        }
    }

    fn time_out(&mut self, is_over: impl Fn(Instant, Instant) -> bool) {
        let now = self.now();
        while self.queue.first_deadline().is_some_and(|deadline| is_over(deadline, now)) {
            let Some(waiter) = self.queue.take_first_deadline() else { return };
            let seen = self.busy();
            self.answers.push(Answer::Seen { id: waiter.id, seen });
        }
    }

    fn busy(&self) -> Seen {
        busy(self.flight, self.now())
    }

    /// `token` leads from now on.
    fn lead(&mut self, token: &[u8], lease: Span, waited: Span) -> Lead {
        let now = self.now();
        let fence = self.setting.floor.issue(self.flight.last_fence, now);
        let token: Box<[u8]> = token.into();
        self.edit(Edit::Led(Box::new(Leader { token, fence, since: now, lease, ends: now.plus(lease) })));
        let stale = self.flight.stale(now).map(|(bytes, _)| Arc::clone(bytes));
        Lead { fence, stale, lease, waited }
    }

    fn join(&mut self, token: &[u8], ask: Ask, waiting: Option<Waiting>) -> Joined {
        let now = self.now();
        if let Some(leader) = self.flight.leader.as_deref().filter(|leader| *leader.token == *token) {
            // The same token again: the same lead, whose lease never ends earlier than was promised.
            let (fence, ends) = (leader.fence, leader.ends);
            let later = now.plus(ask.lease);
            if later > ends {
                self.edit(Edit::Timed { lease: ask.lease, ends: later });
            }
            let stale = self.flight.stale(now).map(|(bytes, _)| Arc::clone(bytes));
            return Joined::Lead(Lead { fence, stale, lease: now.until(ends.max(later)), waited: Span::ZERO });
        }
        if let Some(seen) = self.seen() {
            return Joined::Seen(seen);
        }
        if self.may_lead() {
            return Joined::Lead(self.lead(token, ask.lease, Span::ZERO));
        }
        let Some(Waiting { id, wait, most }) = waiting else {
            self.leaves(token);
            return Joined::Seen(self.busy());
        };
        let waiter = Waiter { id, owner: token.into(), since: now, deadline: now.plus(wait), ask };
        match self.queue.supersede(waiter) {
            Ok(former) => self.answers.push(Answer::Superseded { id: former.id }),
            Err(_) if self.queue.len() >= most => return Joined::Seen(self.busy()),
            Err(waiter) => self.queue.join(0, waiter),
        }
        Joined::Queued
    }

    /// Takes `token` out of the line; the call that waited is told. False if it did not wait.
    fn leaves(&mut self, token: &[u8]) -> bool {
        let left = self.queue.leave_by_owner(token);
        self.answers.extend(left.iter().map(|former| Answer::Superseded { id: former.id }));
        left.is_some()
    }
}

impl Answer {
    pub fn id(&self) -> WaiterId {
        match self {
            Self::Lead { id, .. } | Self::Seen { id, .. } | Self::Superseded { id } => *id,
        }
    }
}
