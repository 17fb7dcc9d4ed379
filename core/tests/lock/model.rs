//! The contract, as naively as it reads: who holds and who waits are plain lists, looked through from end to end.
//!
//! Time is in microseconds. Nothing is shared with the machine but the numbers of the contract. `said.rs` has what it says.

pub use super::said::{Full, Got, Held, Over, Reported, Said, Stands, Want, Wanted};

const GRACE: i64 = 60_000_000;
const JITTER: i64 = 1_000_000;
const ENDS: usize = 8;

#[derive(Debug, Clone)]
pub struct Model {
    pub bulkhead: bool,
    pub now: i64,
    pub promoted: Option<i64>,
    /// In the order of their grants.
    pub holders: Vec<Held>,
    /// In the order of service.
    pub queue: Vec<Stands>,
    /// Oldest first.
    pub over: Vec<Over>,
    pub last: u64,
    pub floor: u64,
    seen: i64,
    arrivals: u64,
    /// What this step reported, and whose holding it ended.
    pub reported: Vec<Reported>,
    pub ends: Vec<(Vec<u8>, u64, i64, &'static str)>,
}

impl Model {
    pub fn new(bulkhead: bool, now: i64) -> Self {
        Self {
            bulkhead,
            now,
            promoted: None,
            holders: Vec::new(),
            queue: Vec::new(),
            over: Vec::new(),
            last: 0,
            floor: 0,
            seen: 0,
            arrivals: 0,
            reported: Vec::new(),
            ends: Vec::new(),
        }
    }

    // What can be asked of it.

    pub fn acquire(&mut self, owner: &[u8], wanted: Wanted, waiting: Option<(u64, i64, usize)>) -> Said {
        self.bring_up_to_date();
        if let Want::Permit(_) = wanted.want {
            // The newest number of permits counts for everybody who waits.
            self.queue.iter_mut().for_each(|waiter| waiter.wanted.want = wanted.want);
            self.serve();
        }
        let said = match self.holders.iter().position(|held| held.owner == owner) {
            Some(at) => self.again(at, &wanted),
            None => self.newly(owner, wanted, waiting),
        };
        self.settle();
        waiting.and_then(|(id, ..)| self.reported_by_verdict(id)).unwrap_or(said)
    }

    fn again(&mut self, at: usize, wanted: &Wanted) -> Said {
        let others = self.holders.len() > 1 || !self.queue.is_empty();
        let held = &mut self.holders[at];
        let writes = wanted.want == Want::Write;
        if writes && !held.writes && others {
            return Said::Deadlock;
        }
        held.writes = writes;
        if self.now + wanted.lease > held.end {
            held.end = self.now + wanted.lease;
            held.lease = wanted.lease;
        }
        let fence = held.fence;
        Said::Granted(self.got(fence, 0))
    }

    fn newly(&mut self, owner: &[u8], wanted: Wanted, waiting: Option<(u64, i64, usize)>) -> Said {
        let place = self.queue.iter().position(|waiter| waiter.owner == owner);
        let Some((id, wait, most)) = waiting else {
            // Asking without WAIT leaves the queue.
            if self.step_out(owner) {
                self.serve();
            }
            if self.nobody_before(wanted.priority) && self.fits(wanted.want) {
                let fence = self.give(owner, &wanted);
                return Said::Granted(self.got(fence, 0));
            }
            return Said::Refused(self.full());
        };
        let (since, until) = (self.now, self.now + wait);
        if let Some(place) = place {
            // The place stays where it is; the call that waits in it is another.
            let waiter = &mut self.queue[place];
            let former = waiter.id;
            (waiter.id, waiter.since, waiter.until, waiter.wanted) = (id, since, until, wanted);
            self.reported.push(Reported::Superseded(former));
        } else {
            if self.nobody_before(wanted.priority) && self.fits(wanted.want) {
                let fence = self.give(owner, &wanted);
                return Said::Granted(self.got(fence, 0));
            }
            let room = match wanted.want {
                Want::Permit(max) => self.holders.len() + self.queue.len() < max + most,
                Want::Read | Want::Write => self.queue.len() < most,
            };
            if !room {
                return Said::Refused(self.full());
            }
            let (priority, joined, arrival) = (wanted.priority, since, self.arrivals);
            self.arrivals += 1;
            self.queue.push(Stands { id, owner: owner.into(), since, until, priority, joined, arrival, wanted });
            self.put_in_order();
        }
        Said::Queued
    }

    /// A caller that is answered by its own call learns it by that call's verdict.
    fn reported_by_verdict(&mut self, id: u64) -> Option<Said> {
        let own = |reported: &Reported| matches!(reported, Reported::Granted(reported, ..) | Reported::TimedOut(reported, _) if *reported == id);
        let at = self.reported.iter().position(own)?;
        match self.reported.remove(at) {
            Reported::Granted(_, _, got, _) => Some(Said::Granted(got)),
            Reported::TimedOut(_, full) => Some(Said::Refused(full)),
            Reported::Superseded(_) => None,
        }
    }

    pub fn renew(&mut self, owner: &[u8], fence: Option<u64>, lease: i64) -> Said {
        self.bring_up_to_date();
        let said = match self.held_by(owner, fence) {
            Some(at) => {
                self.holders[at].lease = lease;
                self.holders[at].end = self.now + lease;
                Said::Granted(self.got(self.holders[at].fence, 0))
            }
            None => Said::Lost(self.why(owner, fence)),
        };
        self.settle();
        said
    }

    pub fn release(&mut self, owner: &[u8], fence: Option<u64>) -> Said {
        self.bring_up_to_date();
        let said = match self.held_by(owner, fence) {
            Some(at) => Said::Released(self.finish(at, self.now, "released")),
            None if fence.is_none() && self.step_out(owner) => Said::Released(0),
            None => match self.own_end(owner, fence) {
                Some(Over { how: "released", held, .. }) => Said::Released(*held),
                _ => Said::Lost(self.why(owner, fence)),
            },
        };
        self.settle();
        said
    }

    /// A caller that waits as this owner does so no longer.
    fn step_out(&mut self, owner: &[u8]) -> bool {
        let Some(place) = self.queue.iter().position(|waiter| waiter.owner == owner) else { return false };
        let former = self.queue.remove(place);
        self.reported.push(Reported::Superseded(former.id));
        true
    }

    pub fn break_all(&mut self) -> Said {
        self.bring_up_to_date();
        let broken = self.holders.len();
        for _ in 0..broken {
            self.finish(0, self.now, "broken");
        }
        self.settle();
        Said::Broke(broken)
    }

    pub fn finish_fence(&mut self, fence: u64, how: &'static str) -> Said {
        self.bring_up_to_date();
        let at = self.holders.iter().position(|held| held.fence == fence);
        if let Some(at) = at {
            self.finish(at, self.now, how);
        }
        self.settle();
        Said::Was(at.is_some())
    }

    /// The connection closed at `at`: the lease ends no later than the grace after that, and is no longer than the grace.
    pub fn cut(&mut self, fence: u64, grace: i64, at: i64) -> Said {
        self.mend();
        if let Some(held) = self.holders.iter_mut().find(|held| held.fence == fence)
            && at + grace < held.end
        {
            (held.end, held.lease) = (at + grace, grace.min(held.lease));
        }
        self.bring_up_to_date();
        let was = self.holders.iter().any(|held| held.fence == fence);
        self.settle();
        Said::Was(was)
    }

    /// What was heard in time counts, however late anybody looks.
    pub fn extend(&mut self, fence: u64, end: i64) -> Said {
        let now = self.now;
        if let Some(held) = self.holders.iter_mut().find(|held| held.fence == fence) {
            held.end = held.end.max(end.min(now + held.lease));
        }
        self.bring_up_to_date();
        let was = self.holders.iter().any(|held| held.fence == fence);
        self.settle();
        Said::Was(was)
    }

    pub fn leave(&mut self, id: u64) -> Said {
        let at = self.queue.iter().position(|waiter| waiter.id == id);
        if let Some(at) = at {
            self.queue.remove(at);
        }
        self.tick();
        Said::Was(at.is_some())
    }

    pub fn tick(&mut self) -> Said {
        self.bring_up_to_date();
        self.settle();
        Said::Nothing
    }

    pub fn give_up(&mut self) -> Said {
        self.follow_clock();
        self.put_in_order();
        while let Some(place) = self.first_to_give_up(self.now) {
            self.time_out(place);
        }
        Said::Nothing
    }

    /// The queue is gone with the connections; the server knows of no clock but its own.
    pub fn start_anew(&mut self, jump: i64) {
        self.queue.clear();
        self.seen = 0;
        self.floor = self.floor.max(self.now as u64) + jump as u64;
    }

    pub fn delete(&mut self) {
        self.holders.clear();
        self.over.clear();
        self.last = 0;
        self.tick();
    }

    pub fn wake(&self) -> Option<i64> {
        let ends = self.holders.iter().map(|held| held.end);
        ends.chain(self.queue.iter().map(|waiter| waiter.until)).min()
    }

    // How time passes.

    /// Everything that was due before now happens in the order of time. At one instant a lease ends before patience.
    fn bring_up_to_date(&mut self) {
        self.mend();
        self.serve();
        loop {
            let ends: Vec<i64> = self.holders.iter().map(|held| held.end).collect();
            let first_end = ends.iter().copied().min().filter(|end| *end <= self.now);
            let place = self.first_to_give_up(self.now - 1);
            match (first_end, place) {
                (Some(end), Some(place)) if self.queue[place].until < end => self.time_out(place),
                (Some(end), _) => {
                    let at = ends.iter().position(|other| *other == end).expect("the first end");
                    self.finish(at, end, "expired");
                }
                (None, Some(place)) => self.time_out(place),
                (None, None) => break,
            }
            self.serve();
        }
    }

    /// Clocks that were set back, and promotions.
    fn mend(&mut self) {
        self.follow_clock();
        self.put_in_order();
        for held in &mut self.holders {
            if held.end > self.now + held.lease + JITTER {
                held.end = self.now + held.lease;
            } else if let Some(promoted) = self.promoted.filter(|promoted| *promoted <= self.now)
                && held.end > promoted
            {
                held.end = held.end.max(promoted + held.lease);
            }
        }
    }

    fn settle(&mut self) {
        self.serve();
        while let Some(place) = self.first_to_give_up(self.now) {
            self.time_out(place);
            self.serve();
        }
    }

    /// A clock set back takes nobody's wait away and gives nobody more.
    fn follow_clock(&mut self) {
        let back = self.seen - self.now;
        self.seen = self.now;
        if back > JITTER {
            for waiter in &mut self.queue {
                waiter.since -= back;
                waiter.joined -= back;
                waiter.until -= back;
            }
        }
    }

    fn first_to_give_up(&self, by: i64) -> Option<usize> {
        let over = self.queue.iter().enumerate().filter(|(_, waiter)| waiter.until <= by);
        over.min_by_key(|(_, waiter)| (waiter.until, waiter.arrival)).map(|(place, _)| place)
    }

    fn time_out(&mut self, place: usize) {
        let waiter = self.queue.remove(place);
        let full = self.full();
        self.reported.push(Reported::TimedOut(waiter.id, full));
    }

    fn finish(&mut self, at: usize, when: i64, how: &'static str) -> i64 {
        let Held { owner, fence, since, .. } = self.holders.remove(at);
        let held = (when - since).max(0);
        self.ends.push((owner.clone(), fence, held, how));
        self.over.retain(|over| over.owner != owner);
        self.over.push(Over { owner, fence, at: when, held, how });
        if self.over.len() > ENDS {
            self.over.remove(0);
        }
        held
    }

    // Who gets it.

    fn serve(&mut self) {
        while self.queue.first().is_some_and(|waiter| self.fits(waiter.wanted.want)) {
            let waiter = self.queue.remove(0);
            let fence = self.give(&waiter.owner, &waiter.wanted);
            let got = self.got(fence, (self.now - waiter.since).max(0));
            self.reported.push(Reported::Granted(waiter.id, waiter.owner, got, waiter.wanted.bind));
        }
    }

    fn nobody_before(&self, priority: u8) -> bool {
        self.queue.first().is_none_or(|waiter| self.class(waiter) > i64::from(priority))
    }

    /// A waiter gains a priority for every half minute it has stood there.
    fn class(&self, waiter: &Stands) -> i64 {
        (i64::from(waiter.priority) - (self.now - waiter.joined).max(0) / 30_000_000).max(0)
    }

    /// Those who asked with one priority keep the order in which they came, whatever a clock says of their ages.
    fn put_in_order(&mut self) {
        let mut left = std::mem::take(&mut self.queue);
        while !left.is_empty() {
            let leads = |waiter: &&Stands| {
                left.iter().all(|other| other.priority != waiter.priority || other.arrival >= waiter.arrival)
            };
            let next = left.iter().filter(leads).min_by_key(|waiter| (self.class(waiter), waiter.arrival));
            let arrival = next.expect("the first of some priority").arrival;
            let at = left.iter().position(|waiter| waiter.arrival == arrival).expect("who is next");
            self.queue.push(left.remove(at));
        }
    }

    fn fits(&self, want: Want) -> bool {
        match want {
            Want::Write => self.holders.is_empty(),
            Want::Read => self.holders.iter().all(|held| !held.writes),
            Want::Permit(max) => self.holders.len() < max,
        }
    }

    fn give(&mut self, owner: &[u8], wanted: &Wanted) -> u64 {
        let now = self.now as u64;
        let fence = now.max(self.last + 1).max(self.floor + 1);
        (self.last, self.floor) = (fence, fence);
        self.holders.push(Held {
            owner: owner.into(),
            meta: wanted.meta.clone(),
            fence,
            since: self.now,
            end: self.now + wanted.lease,
            lease: wanted.lease,
            writes: wanted.want == Want::Write,
        });
        fence
    }

    // What is reported.

    fn got(&self, fence: u64, waited: i64) -> Got {
        let held = self.holders.iter().find(|held| held.fence == fence).expect("what was granted");
        let (active, queued) = (self.holders.len(), self.queue.len());
        Got { fence, lease: held.end - self.now, waited, active, queued }
    }

    fn full(&self) -> Full {
        let last = self.holders.iter().max_by_key(|held| (held.end, held.fence));
        let first = self.holders.iter().map(|held| held.end).min();
        Full {
            holder: last.map_or(Vec::new(), |held| held.owner.clone()),
            remaining: last.map_or(0, |held| (held.end - self.now).max(0)),
            retry_after: first.map_or(0, |end| (end - self.now).max(0)),
            active: self.holders.len(),
            queued: self.queue.len(),
        }
    }

    fn held_by(&self, owner: &[u8], fence: Option<u64>) -> Option<usize> {
        self.holders.iter().position(|held| held.owner == owner && fence.is_none_or(|fence| fence == held.fence))
    }

    fn own_end(&self, owner: &[u8], fence: Option<u64>) -> Option<&Over> {
        let own = |over: &&Over| over.owner == owner && fence.is_none_or(|fence| fence == over.fence);
        self.over.iter().find(own).filter(|over| self.now < over.at + GRACE)
    }

    /// The own end first, else taken, else absent.
    fn why(&self, owner: &[u8], fence: Option<u64>) -> &'static str {
        match self.own_end(owner, fence) {
            Some(over) => over.how,
            None if !self.bulkhead && !self.holders.is_empty() => "taken",
            None => "absent",
        }
    }
}
