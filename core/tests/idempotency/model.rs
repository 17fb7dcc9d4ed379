//! The contract, as naively as it reads: one record, and a plain list of those who wait, looked through from end to end.
//!
//! Time is in microseconds. Nothing is shared with the machine but the numbers of the contract.

use super::gaps::{JITTER, right_end};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    Seen { token: Vec<u8>, at: i64, until: i64 },
    Work(Work),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub fingerprint: Vec<u8>,
    pub token: Vec<u8>,
    pub fence: u64,
    pub attempt: u32,
    pub keep: i64,
    pub hold: bool,
    pub phase: WorkPhase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkPhase {
    Running { since: i64, lease: i64, end: i64 },
    Idle { at: i64, why: &'static str },
    Done { at: i64, until: i64, failed: bool, result: Option<Vec<u8>> },
}

#[derive(Debug, Clone)]
pub struct Wanted {
    pub fingerprint: Vec<u8>,
    pub lease: i64,
    pub keep: i64,
    pub hold: bool,
    pub bind_to: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Stands {
    pub id: u64,
    pub token: Vec<u8>,
    pub since: i64,
    pub until: i64,
    wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Run { fence: u64, attempt: u32, lease: i64, waited: i64 },
    Replay { failed: bool, result: Option<Vec<u8>>, age: i64 },
    Busy { remaining: i64, attempt: u32 },
    Mismatch,
    Held { attempt: u32 },
    Miss,
    Queued,
    Superseded,
    WrongPhase,
    Committed { stored: bool },
    Aborted,
    Renewed { fence: u64, lease: i64, queued: usize },
    Lost(&'static str),
    Was(bool),
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub now: i64,
    pub promoted: Option<i64>,
    pub kept: Kept,
    /// In the order of arrival.
    pub queue: Vec<Stands>,
    floor: u64,
    issued: u64,
    seen: i64,
    /// What this step reported to whom (and which connection a run is bound to), and whose run it ended.
    pub reported: Vec<(u64, Said, Option<u64>)>,
    pub ends: Vec<(Vec<u8>, u64, i64, &'static str)>,
}

impl Model {
    pub fn new(now: i64) -> Self {
        let (promoted, kept, queue) = (None, Kept::Nothing, Vec::new());
        Self { now, promoted, kept, queue, floor: 0, issued: 0, seen: 0, reported: Vec::new(), ends: Vec::new() }
    }

    // What can be asked of it.

    pub fn begin(&mut self, token: &[u8], wanted: Wanted, waiting: Option<(u64, i64, usize)>) -> Said {
        self.bring_up_to_date();
        let said = self.ask(token, wanted, waiting);
        self.settle();
        // A caller that need not wait, or does not want to, is notified at once.
        let own = |reported: &(u64, Said, Option<u64>)| waiting.is_some_and(|(id, ..)| reported.0 == id);
        self.reported.iter().position(own).map_or(said, |own| self.reported.remove(own).1)
    }

    fn ask(&mut self, token: &[u8], wanted: Wanted, waiting: Option<(u64, i64, usize)>) -> Said {
        let now = self.now;
        if matches!(&self.kept, Kept::Seen { until, .. } if *until > now) {
            return Said::WrongPhase;
        }
        if let Some(work) = self.work(now).filter(|work| work.token == token && !work.differs(&wanted.fingerprint))
            && let WorkPhase::Running { since, lease, end } = work.phase
        {
            let (fence, attempt) = (work.fence, work.attempt);
            let (lease, end) = if now + wanted.lease > end { (wanted.lease, now + wanted.lease) } else { (lease, end) };
            self.enter(WorkPhase::Running { since, lease, end });
            return Said::Run { fence, attempt, lease: end - now, waited: 0 };
        }
        match self.reply_for(&wanted.fingerprint, now) {
            None => self.run(token, &wanted, 0, now),
            Some(busy @ Said::Busy { .. }) => self.wait(token, wanted, waiting, busy),
            Some(said) => said,
        }
    }

    fn wait(&mut self, token: &[u8], wanted: Wanted, waiting: Option<(u64, i64, usize)>, busy: Said) -> Said {
        let place = self.queue.iter().position(|waiter| waiter.token == token);
        let Some((id, wait, most)) = waiting else {
            self.step_out(token);
            return busy;
        };
        let newcomer = Stands { id, token: token.into(), since: self.now, until: self.now + wait, wanted };
        match place {
            Some(place) => {
                let former = std::mem::replace(&mut self.queue[place], newcomer);
                self.reported.push((former.id, Said::Superseded, None));
            }
            None if self.queue.len() >= most => return busy,
            None => self.queue.push(newcomer),
        }
        Said::Queued
    }

    /// A caller that waits with this token does so no longer.
    fn step_out(&mut self, token: &[u8]) -> bool {
        let Some(place) = self.queue.iter().position(|waiter| waiter.token == token) else { return false };
        let former = self.queue.remove(place);
        self.reported.push((former.id, Said::Superseded, None));
        true
    }

    pub fn commit(&mut self, token: &[u8], ttl: i64, result: Option<Vec<u8>>, failed: bool) -> Said {
        self.bring_up_to_date();
        let now = self.now;
        let said = match self.last(token) {
            Err(reason) => Said::Lost(reason),
            Ok(WorkPhase::Idle { why: "aborted", .. }) => Said::Lost("aborted"),
            Ok(WorkPhase::Done { result, .. }) => Said::Committed { stored: result.is_some() },
            Ok(WorkPhase::Running { .. } | WorkPhase::Idle { .. }) => {
                let stored = result.is_some();
                self.stop("released", now, WorkPhase::Done { at: now, until: now + ttl, failed, result });
                Said::Committed { stored }
            }
        };
        self.settle();
        said
    }

    pub fn abort(&mut self, token: &[u8]) -> Said {
        self.bring_up_to_date();
        let now = self.now;
        let said = match self.last(token) {
            Err(_) if self.step_out(token) => Said::Aborted,
            Err(reason) => Said::Lost(reason),
            Ok(WorkPhase::Done { .. }) => Said::Lost("committed"),
            Ok(WorkPhase::Idle { why: "aborted", .. }) => Said::Aborted,
            Ok(WorkPhase::Running { .. } | WorkPhase::Idle { .. }) => {
                self.stop("released", now, WorkPhase::Idle { at: now, why: "aborted" });
                Said::Aborted
            }
        };
        self.settle();
        said
    }

    pub fn renew(&mut self, token: &[u8], lease: i64) -> Said {
        self.bring_up_to_date();
        let said = match self.last(token) {
            Err(reason) => Said::Lost(reason),
            Ok(WorkPhase::Done { .. }) => Said::Lost("committed"),
            Ok(WorkPhase::Idle { why, .. }) => Said::Lost(why),
            Ok(WorkPhase::Running { since, .. }) => {
                self.enter(WorkPhase::Running { since, lease, end: self.now + lease });
                Said::Renewed { fence: self.last_fence(), lease, queued: self.queue.len() }
            }
        };
        self.settle();
        said
    }

    pub fn once(&mut self, token: &[u8], ttl: i64) -> Said {
        self.bring_up_to_date();
        let now = self.now;
        let said = match &self.kept {
            Kept::Work(_) if self.work(now).is_some() => Said::WrongPhase,
            Kept::Seen { token: first, until, .. } if *until > now => Said::Was(!first.is_empty() && *first == token),
            _ => {
                self.kept = Kept::Seen { token: token.into(), at: now, until: now + ttl };
                Said::Was(true)
            }
        };
        self.settle();
        said
    }

    /// The run with this fence is over: its connection closed, or nobody learned that it runs.
    pub fn stop_fence(&mut self, fence: u64, how: &'static str, why: &'static str) -> Said {
        self.bring_up_to_date();
        let runs = self.runs(fence).is_some();
        if runs {
            self.stop(how, self.now, WorkPhase::Idle { at: self.now, why });
        }
        self.settle();
        Said::Was(runs)
    }

    /// The connection closed at `at`: the lease ends no later than the grace after that, and is no longer than the grace.
    pub fn cut(&mut self, fence: u64, grace: i64, at: i64) -> Said {
        if let Some((since, lease, end)) = self.runs(fence)
            && at + grace < right_end(end, lease, self.promoted, self.now)
        {
            self.enter(WorkPhase::Running { since, lease: grace.min(lease), end: at + grace });
        }
        self.bring_up_to_date();
        let runs = self.runs(fence).is_some();
        self.settle();
        Said::Was(runs)
    }

    /// The runner was heard of: that counts as long as nobody has seen its lease end, however late this server is notified.
    pub fn extend(&mut self, fence: u64, to: i64) -> Said {
        if let Some((since, lease, end)) = self.runs(fence) {
            let to = to.min(self.now + lease);
            self.enter(WorkPhase::Running { since, lease, end: end.max(to) });
        }
        self.bring_up_to_date();
        let runs = self.runs(fence).is_some();
        self.settle();
        Said::Was(runs)
    }

    pub fn leave(&mut self, id: u64) -> Said {
        let before = self.queue.len();
        self.queue.retain(|waiter| waiter.id != id);
        let left = self.queue.len() < before;
        self.tick();
        Said::Was(left)
    }

    pub fn tick(&mut self) -> Said {
        self.bring_up_to_date();
        self.settle();
        Said::Nothing
    }

    pub fn give_up(&mut self) -> Said {
        self.follow_clock();
        self.time_out(self.now + 1);
        Said::Nothing
    }

    /// Another process: nobody waits, and fences jump.
    pub fn start_anew(&mut self, jump: i64) {
        self.queue.clear();
        self.seen = 0;
        self.floor = self.issued.max(self.now as u64) + jump as u64;
    }

    pub fn wake(&self) -> Option<i64> {
        let end = match &self.kept {
            Kept::Work(Work { phase: WorkPhase::Running { end, .. }, .. }) => Some(*end),
            _ => None,
        };
        end.into_iter().chain(self.queue.iter().map(|waiter| waiter.until)).min()
    }

    pub fn look(&self, fingerprint: &[u8]) -> Said {
        self.reply_for(fingerprint, self.now).unwrap_or(Said::Miss)
    }

    // How time passes.

    /// What was due before now happens in the order of time. At one instant a lease ends before patience does.
    fn bring_up_to_date(&mut self) {
        self.follow_clock();
        let (now, promoted) = (self.now, self.promoted);
        match &mut self.kept {
            Kept::Seen { at, until, .. } | Kept::Work(Work { phase: WorkPhase::Done { at, until, .. }, .. })
                if *at > now + JITTER =>
            {
                (*at, *until) = (now, *until - (*at - now));
            }
            Kept::Work(Work { phase: WorkPhase::Idle { at, .. }, .. }) if *at > now + JITTER => *at = now,
            Kept::Work(Work { phase: WorkPhase::Running { lease, end, .. }, .. }) => {
                *end = right_end(*end, *lease, promoted, now)
            }
            _ => {}
        }
        if let Kept::Work(Work { phase: WorkPhase::Running { end, .. }, .. }) = self.kept
            && end <= now
        {
            self.time_out(end);
            self.stop("expired", end, WorkPhase::Idle { at: end, why: "expired" });
            // Those who waited at that instant take it as it was then, however late this server looks.
            self.serve(end);
        }
        self.serve(now);
        self.time_out(now);
    }

    fn settle(&mut self) {
        self.serve(self.now);
        self.time_out(self.now + 1);
    }

    /// A clock set back takes nobody's wait away and gives nobody more.
    fn follow_clock(&mut self) {
        let back = self.seen - self.now;
        self.seen = self.now;
        if back > JITTER {
            for waiter in &mut self.queue {
                waiter.since -= back;
                waiter.until -= back;
            }
        }
    }

    /// Whose patience ended before `by` learns what is in the way.
    fn time_out(&mut self, by: i64) {
        while let Some(first) = self.queue.iter().map(|waiter| waiter.until).min().filter(|until| *until < by) {
            let place = self.queue.iter().position(|waiter| waiter.until == first).expect("the first");
            let waiter = self.queue.remove(place);
            let attempt = match &self.kept {
                Kept::Work(work) => work.attempt,
                _ => 0,
            };
            let said = self.reply_for(&waiter.wanted.fingerprint, self.now);
            self.reported.push((waiter.id, said.unwrap_or(Said::Busy { remaining: 0, attempt }), None));
        }
    }

    /// Everybody is notified if it is done or held; one runs if nobody does.
    fn serve(&mut self, at: i64) {
        while !self.queue.is_empty() {
            let said = match self.reply_for("".as_bytes(), at) {
                Some(Said::Busy { .. }) => return,
                _ => self.reply_for(&self.queue[0].wanted.fingerprint, at),
            };
            let waiter = self.queue.remove(0);
            let (said, bind_to) = match said {
                Some(said) => (said, None),
                None => {
                    let waited = (self.now - waiter.since).max(0);
                    (self.run(&waiter.token, &waiter.wanted, waited, at), waiter.wanted.bind_to)
                }
            };
            self.reported.push((waiter.id, said, bind_to));
        }
    }

    // What is known.

    fn work(&self, now: i64) -> Option<&Work> {
        let Kept::Work(work) = &self.kept else { return None };
        let kept_until = match work.phase {
            // What was alive at a promotion runs on, whether that is written down or not.
            WorkPhase::Running { lease, end, .. } => right_end(end, lease, self.promoted, self.now) + work.keep,
            // A first attempt that did nothing, with nothing to hold others to.
            WorkPhase::Idle { at, why: "aborted" } if work.attempt == 1 && work.fingerprint.is_empty() => {
                at + work.keep.min(60 * 1_000_000)
            }
            WorkPhase::Idle { at, .. } => at + work.keep,
            WorkPhase::Done { until, .. } => until,
        };
        (kept_until > now).then_some(work)
    }

    /// What a caller with this fingerprint gets; `None` if it may run.
    fn reply_for(&self, fingerprint: &[u8], at: i64) -> Option<Said> {
        let work = self.work(at)?;
        if work.differs(fingerprint) {
            return Some(Said::Mismatch);
        }
        let attempt = work.attempt;
        match &work.phase {
            WorkPhase::Running { lease, end, .. } => {
                let remaining = right_end(*end, *lease, self.promoted, self.now) - self.now;
                (remaining > 0).then_some(Said::Busy { remaining, attempt })
            }
            WorkPhase::Idle { why, .. } => (work.hold && *why != "aborted").then_some(Said::Held { attempt }),
            WorkPhase::Done { at, failed, result, .. } => {
                let age = (self.now - at).max(0);
                Some(Said::Replay { failed: *failed, result: result.clone(), age })
            }
        }
    }

    /// The phase `token` left it in, if nobody came after it.
    fn last(&self, token: &[u8]) -> Result<WorkPhase, &'static str> {
        let work = self.work(self.now).ok_or("absent")?;
        if work.token == token { Ok(work.phase.clone()) } else { Err("taken") }
    }

    fn runs(&self, fence: u64) -> Option<(i64, i64, i64)> {
        match &self.kept {
            Kept::Work(Work { fence: own, phase: WorkPhase::Running { since, lease, end }, .. }) if *own == fence => {
                Some((*since, *lease, *end))
            }
            _ => None,
        }
    }

    fn last_fence(&self) -> u64 {
        match &self.kept {
            Kept::Work(work) => work.fence,
            Kept::Nothing | Kept::Seen { .. } => 0,
        }
    }

    // How it changes.

    fn enter(&mut self, phase: WorkPhase) {
        if let Kept::Work(work) = &mut self.kept {
            work.phase = phase;
        }
    }

    fn stop(&mut self, how: &'static str, at: i64, phase: WorkPhase) {
        if let Kept::Work(Work { token, fence, phase: WorkPhase::Running { since, .. }, .. }) = &self.kept {
            self.ends.push((token.clone(), *fence, (at - since).max(0), how));
        }
        self.enter(phase);
    }

    fn run(&mut self, token: &[u8], wanted: &Wanted, waited: i64, at: i64) -> Said {
        let fence = self.issue();
        let before = self.work(at);
        let attempt = before.map_or(1, |work| work.attempt + 1);
        let fingerprint = before.map(|work| work.fingerprint.clone()).filter(|given| !given.is_empty());
        let lease = wanted.lease;
        self.kept = Kept::Work(Work {
            fingerprint: fingerprint.unwrap_or_else(|| wanted.fingerprint.clone()),
            token: token.into(),
            fence,
            attempt,
            keep: wanted.keep,
            hold: wanted.hold,
            phase: WorkPhase::Running { since: self.now, lease, end: self.now + lease },
        });
        Said::Run { fence, attempt, lease, waited }
    }

    fn issue(&mut self) -> u64 {
        let now = self.now as u64;
        self.floor = now.max(self.last_fence() + 1).max(self.floor + 1);
        self.issued = self.floor;
        self.floor
    }
}

impl Work {
    fn differs(&self, fingerprint: &[u8]) -> bool {
        !fingerprint.is_empty() && !self.fingerprint.is_empty() && self.fingerprint != fingerprint
    }
}
