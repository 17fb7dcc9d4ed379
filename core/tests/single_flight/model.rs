//! The contract, as naively as it reads: what is known, who loads, and a plain list of those who wait for it.
//!
//! Time is in microseconds. Nothing is shared with the machine but the numbers of the contract.

use super::gaps::{JITTER, MINUTE, right_end};

const GRACE: i64 = MINUTE;
/// What was softened is never fresh again, whatever the clock shows.
const NEVER: i64 = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// `None` is "not found".
    pub content: Option<Vec<u8>>,
    pub at: i64,
    pub fresh: i64,
    pub stale: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub at: i64,
    pub until: i64,
    pub error: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leads {
    pub token: Vec<u8>,
    pub fence: u64,
    pub since: i64,
    pub lease: i64,
    pub end: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub token: Vec<u8>,
    pub fence: u64,
    pub at: i64,
    pub way: &'static str,
}

/// Everything that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    pub value: Option<Value>,
    pub pause: Option<Pause>,
    pub leader: Option<Leads>,
    /// Oldest first, each token once, eight of them.
    pub ended: Vec<Ended>,
    pub last_fence: u64,
}

#[derive(Debug, Clone)]
pub struct Stands {
    pub id: u64,
    pub token: Vec<u8>,
    pub since: i64,
    pub until: i64,
    lease: i64,
    bind_to: Option<u64>,
}

#[derive(Debug, Clone)]
pub enum Brings {
    Value { bytes: Vec<u8>, stale: i64 },
    Empty,
    Error(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Lead { fence: u64, stale: Option<Vec<u8>>, lease: i64, waited: i64 },
    Value { bytes: Vec<u8>, age: i64, fresh: i64 },
    Stale { bytes: Vec<u8>, age: i64 },
    Empty { age: i64 },
    Error(Vec<u8>),
    Busy { remaining: i64 },
    Miss,
    Queued,
    Superseded,
    Published { followers: usize },
    Abandoned,
    Renewed { fence: u64, lease: i64, queued: usize },
    Lost(&'static str),
    Was(bool),
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub now: i64,
    pub promoted: Option<i64>,
    pub stored: Stored,
    /// In the order of arrival.
    pub queue: Vec<Stands>,
    floor: u64,
    issued: u64,
    seen: i64,
    /// What this step reported to whom (and which connection a lead is bound to), and whose lead it ended.
    pub reported: Vec<(u64, Said, Option<u64>)>,
    pub ends: Vec<(Vec<u8>, u64, i64, &'static str)>,
}

impl Model {
    pub fn new(now: i64) -> Self {
        let (promoted, stored, queue) = (None, Stored::default(), Vec::new());
        Self { now, promoted, stored, queue, floor: 0, issued: 0, seen: 0, reported: Vec::new(), ends: Vec::new() }
    }

    // What can be asked of it.

    pub fn join(
        &mut self,
        token: &[u8],
        (lease, bind_to): (i64, Option<u64>),
        waiting: Option<(u64, i64, usize)>,
    ) -> Said {
        self.bring_up_to_date();
        let said = self.ask(token, (lease, bind_to), waiting);
        self.settle();
        // A caller that need not wait, or does not want to, is notified at once.
        let own = |reported: &(u64, Said, Option<u64>)| waiting.is_some_and(|(id, ..)| reported.0 == id);
        self.reported.iter().position(own).map_or(said, |own| self.reported.remove(own).1)
    }

    fn ask(&mut self, token: &[u8], (lease, bind_to): (i64, Option<u64>), waiting: Option<(u64, i64, usize)>) -> Said {
        let now = self.now;
        let stale = self.stale().map(|(bytes, _)| bytes);
        if let Some(leads) = self.stored.leader.as_mut().filter(|leads| leads.token == token) {
            if now + lease > leads.end {
                (leads.lease, leads.end) = (lease, now + lease);
            }
            return Said::Lead { fence: leads.fence, stale, lease: leads.end - now, waited: 0 };
        }
        if let Some(said) = self.known() {
            return said;
        }
        if self.may_lead() {
            return self.lead(token, lease, 0);
        }
        let place = self.queue.iter().position(|waiter| waiter.token == token);
        let Some((id, wait, most)) = waiting else {
            self.step_out(token);
            return self.busy();
        };
        let newcomer = Stands { id, token: token.into(), since: now, until: now + wait, lease, bind_to };
        match place {
            Some(place) => {
                let former = std::mem::replace(&mut self.queue[place], newcomer);
                self.reported.push((former.id, Said::Superseded, None));
            }
            None if self.queue.len() >= most => return self.busy(),
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

    pub fn publish(&mut self, token: &[u8], ttl: i64, brings: Brings) -> Said {
        self.bring_up_to_date();
        let now = self.now;
        let said = match self.lost(token) {
            Some("published") => Said::Published { followers: 0 },
            Some(reason) => Said::Lost(reason),
            None => {
                self.finish("published", now);
                let fresh = now + ttl;
                let (said, value) = match brings {
                    Brings::Value { bytes, stale } => {
                        let said = Said::Value { bytes: bytes.clone(), age: 0, fresh: ttl };
                        (said, Some(Value { content: Some(bytes), at: now, fresh, stale: fresh + stale }))
                    }
                    Brings::Empty => {
                        (Said::Empty { age: 0 }, Some(Value { content: None, at: now, fresh, stale: fresh }))
                    }
                    Brings::Error(text) => {
                        if ttl > 0 {
                            self.stored.pause = Some(Pause { at: now, until: fresh, error: Some(text.clone()) });
                        }
                        (Said::Error(text), None)
                    }
                };
                if value.is_some() {
                    self.stored.value = value.filter(|_| ttl > 0);
                    self.stored.pause = None;
                }
                let followers = self.queue.len();
                self.reported.extend(self.queue.drain(..).map(|waiter| (waiter.id, said.clone(), None)));
                Said::Published { followers }
            }
        };
        self.settle();
        said
    }

    pub fn abandon(&mut self, token: &[u8], retry: Option<i64>) -> Said {
        self.bring_up_to_date();
        let said = match self.lost(token) {
            Some(_) if self.step_out(token) => Said::Abandoned,
            Some("aborted") => Said::Abandoned,
            Some(reason) => Said::Lost(reason),
            None => {
                self.finish("aborted", self.now);
                if let Some(retry) = retry {
                    self.stored.pause = Some(Pause { at: self.now, until: self.now + retry, error: None });
                }
                Said::Abandoned
            }
        };
        self.settle();
        said
    }

    pub fn renew(&mut self, token: &[u8], lease: i64) -> Said {
        self.bring_up_to_date();
        let queued = self.queue.len();
        let said = match (self.lost(token), &mut self.stored.leader) {
            (None, Some(leads)) => {
                (leads.lease, leads.end) = (lease, self.now + lease);
                Said::Renewed { fence: leads.fence, lease, queued }
            }
            (reason, _) => Said::Lost(reason.unwrap_or("absent")),
        };
        self.settle();
        said
    }

    pub fn invalidate(&mut self, soft: bool) -> Said {
        self.bring_up_to_date();
        let now = self.now;
        let led = self.stored.leader.is_some();
        self.finish("invalidated", now);
        let known = self.stored.value.as_ref().is_some_and(|value| value.fresh.max(value.stale) > now);
        match &mut self.stored.value {
            Some(value) if soft && known && value.content.is_some() => {
                (value.fresh, value.stale) = (NEVER, value.fresh.max(value.stale));
            }
            value => *value = None,
        }
        let paused = self.paused();
        if paused {
            self.stored.pause = None;
        }
        self.settle();
        Said::Was(led || known || paused)
    }

    /// The lead with this fence is over: its connection closed, or nobody learned that it leads.
    pub fn stop_fence(&mut self, fence: u64, way: &'static str) -> Said {
        self.bring_up_to_date();
        let leads = self.leads(fence);
        if leads {
            self.finish(way, self.now);
        }
        self.settle();
        Said::Was(leads)
    }

    /// The connection closed at `at`: the lease ends no later than the grace after that, and is no longer than the grace.
    pub fn cut(&mut self, fence: u64, grace: i64, at: i64) -> Said {
        let (promoted, now) = (self.promoted, self.now);
        if let Some(leads) = self.stored.leader.as_mut().filter(|leads| leads.fence == fence)
            && at + grace < right_end(leads.end, leads.lease, promoted, now)
        {
            (leads.end, leads.lease) = (at + grace, grace.min(leads.lease));
        }
        self.bring_up_to_date();
        let leads = self.leads(fence);
        self.settle();
        Said::Was(leads)
    }

    /// The leader was heard of: that counts as long as nobody has seen its lease end, however late this server is notified.
    pub fn extend(&mut self, fence: u64, to: i64) -> Said {
        if let Some(leads) = self.stored.leader.as_mut().filter(|leads| leads.fence == fence) {
            leads.end = leads.end.max(to.min(self.now + leads.lease));
        }
        self.bring_up_to_date();
        let leads = self.leads(fence);
        self.settle();
        Said::Was(leads)
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

    /// A lease ends, patience ends, or a pause that somebody waits for.
    pub fn wake(&self) -> Option<i64> {
        let lease = self.stored.leader.iter().map(|leads| leads.end);
        let pause = self.stored.pause.iter().filter(|pause| pause.until > self.now && !self.queue.is_empty());
        lease.chain(pause.map(|pause| pause.until)).chain(self.queue.iter().map(|waiter| waiter.until)).min()
    }

    pub fn look(&self) -> Said {
        let now = self.now;
        if let Some(value) = self.stored.value.as_ref().filter(|value| value.fresh > now) {
            let age = (now - value.at).max(0);
            return match &value.content {
                Some(bytes) => Said::Value { bytes: bytes.clone(), age, fresh: value.fresh - now },
                None => Said::Empty { age },
            };
        }
        if let Some((bytes, age)) = self.stale() {
            return Said::Stale { bytes, age };
        }
        match &self.stored.pause {
            Some(Pause { error: Some(text), until, .. }) if *until > now => Said::Error(text.clone()),
            _ => Said::Miss,
        }
    }

    // How time passes.

    /// What was due before now happens in the order of time. At one instant a lease or a pause ends before patience.
    fn bring_up_to_date(&mut self) {
        self.follow_clock();
        self.mend();
        let now = self.now;
        if let Some(leads) = &mut self.stored.leader {
            leads.end = right_end(leads.end, leads.lease, self.promoted, now);
            let end = leads.end;
            if end <= now {
                self.time_out(end);
                self.finish("expired", end);
            }
        }
        if let Some(until) = self.stored.pause.as_ref().map(|pause| pause.until).filter(|_| self.may_lead()) {
            self.time_out(until);
        }
        self.serve();
        self.time_out(now);
    }

    fn settle(&mut self) {
        self.serve();
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

    /// Nothing began later than now, if the clock tells.
    fn mend(&mut self) {
        let now = self.now;
        let begun =
            self.stored.value.iter().map(|value| value.at).chain(self.stored.pause.iter().map(|pause| pause.at));
        if begun.max().is_none_or(|at| at <= now + JITTER) {
            return;
        }
        if let Some(value) = &mut self.stored.value {
            let back = (value.at - now).max(0);
            (value.at, value.stale) = (value.at - back, value.stale - back);
            value.fresh = (value.fresh - back).max(NEVER);
        }
        if let Some(pause) = &mut self.stored.pause {
            let back = (pause.at - now).max(0);
            (pause.at, pause.until) = (pause.at - back, pause.until - back);
        }
    }

    /// Whose patience ended before `by` is notified.
    fn time_out(&mut self, by: i64) {
        while let Some(first) = self.queue.iter().map(|waiter| waiter.until).min().filter(|until| *until < by) {
            let place = self.queue.iter().position(|waiter| waiter.until == first).expect("the first");
            let waiter = self.queue.remove(place);
            self.reported.push((waiter.id, self.busy(), None));
        }
    }

    /// Everybody is notified if there is something to tell; one leads if nobody does and somebody may.
    fn serve(&mut self) {
        while !self.queue.is_empty() {
            let (said, bind_to) = match self.known() {
                Some(said) => (said, None),
                None if self.may_lead() => {
                    let Stands { token, lease, since, bind_to, .. } = self.queue[0].clone();
                    (self.lead(&token, lease, (self.now - since).max(0)), bind_to)
                }
                None => return,
            };
            let waiter = self.queue.remove(0);
            self.reported.push((waiter.id, said, bind_to));
        }
    }

    // What is known.

    fn stale(&self) -> Option<(Vec<u8>, i64)> {
        let value = self.stored.value.as_ref()?;
        let is_stale = value.fresh <= self.now && value.stale > self.now;
        is_stale.then(|| value.content.clone())?.map(|bytes| (bytes, (self.now - value.at).max(0)))
    }

    fn paused(&self) -> bool {
        self.stored.pause.as_ref().is_some_and(|pause| pause.until > self.now)
    }

    fn may_lead(&self) -> bool {
        self.stored.leader.is_none() && !self.paused()
    }

    /// What one who does not lead is reported; `None` if it waits, or leads.
    fn known(&self) -> Option<Said> {
        match self.look() {
            Said::Miss => None,
            Said::Stale { .. } if self.may_lead() => None,
            said => Some(said),
        }
    }

    fn busy(&self) -> Said {
        let pause = self.stored.pause.iter().map(|pause| pause.until).filter(|until| *until > self.now);
        let end = self.stored.leader.iter().map(|leads| leads.end).chain(pause).next();
        Said::Busy { remaining: end.map_or(0, |end| (end - self.now).max(0)) }
    }

    fn leads(&self, fence: u64) -> bool {
        self.stored.leader.as_ref().is_some_and(|leads| leads.fence == fence)
    }

    /// Why `token` does not lead: its own end first, while that is remembered.
    fn lost(&self, token: &[u8]) -> Option<&'static str> {
        if self.stored.leader.as_ref().is_some_and(|leads| leads.token == token) {
            return None;
        }
        let own = self.stored.ended.iter().find(|ended| ended.token == token && ended.at + GRACE > self.now);
        let other = if self.stored.leader.is_some() { "taken" } else { "absent" };
        Some(own.map_or(other, |ended| ended.way))
    }

    // How it changes.

    fn finish(&mut self, way: &'static str, at: i64) {
        let Some(Leads { token, fence, since, .. }) = self.stored.leader.take() else { return };
        let how = match way {
            "published" | "aborted" => "released",
            "invalidated" => "broken",
            other => other,
        };
        self.ends.push((token.clone(), fence, (at - since).max(0), how));
        let ended = &mut self.stored.ended;
        ended.retain(|earlier| earlier.token != token);
        ended.push(Ended { token, fence, at, way });
        let surplus = ended.len().saturating_sub(8);
        ended.drain(..surplus);
    }

    fn lead(&mut self, token: &[u8], lease: i64, waited: i64) -> Said {
        let now = self.now;
        self.floor = (now as u64).max(self.stored.last_fence + 1).max(self.floor + 1);
        let fence = self.floor;
        self.issued = fence;
        self.stored.last_fence = fence;
        self.stored.leader = Some(Leads { token: token.into(), fence, since: now, lease, end: now + lease });
        Said::Lead { fence, stale: self.stale().map(|(bytes, _)| bytes), lease, waited }
    }
}
