//! Servers, callers, a network and a store, as they are while several servers together grant a lock.
//!
//! A server runs the machine of locks, with its own clock, floor of fences and memory. A caller is driven by
//! `resil_core::quorum`, as the SDK drives it. The network keeps every packet until it is delivered: one that never is was lost, one
//! that is late was delayed, and one can be delivered twice. The store refuses writes with a lower fence than it has seen.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use resil_core::codec::to_vec;
use resil_core::lock::{self, Claim, Holders, Kind, LockRequest, Locks, Raise, Raised, encode_holders};
use resil_core::quorum::{Acquisition, Asked, QuorumVerdict, Raising, Renewal, Send, Unheld};
use resil_core::waited::fence::Floor;
use resil_core::waited::returning::{Return, Returning};
use resil_core::waited::{Decision, Outcome, Queue, Reason, Setting, Stepped, WaitedKey};
use resil_core::{Instant, Span};

pub const SECOND: i64 = 1_000_000;
pub const LEASE: i64 = 10 * SECOND;
/// Longer than a lease by the fastest clock, and than clocks differ.
pub const RETURN_DELAY: i64 = 11 * SECOND;
/// Clocks of two servers differ by less.
pub const JUMP: i64 = 8 * SECOND;
const START: i64 = 1_800_000_000 * SECOND;

#[derive(Debug, Clone)]
pub struct Server {
    holders: Holders,
    floor: Floor,
    returning: Returning,
    /// How far its clock is ahead, and how many thousandths it runs faster.
    pub skew: i64,
    pub fast: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RaiseReply {
    Raised,
    Lost,
    Broken,
    TooFarAhead,
}

/// On its way. `round` is 0 for the acquisition, and counts the renewals: a reply to an earlier one is not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packet {
    Acquire { caller: usize, owner: u16, round: u8, server: usize },
    Raise { caller: usize, owner: u16, round: u8, server: usize, fence: u64 },
    Release { owner: u16, server: usize },
    Asked { caller: usize, owner: u16, round: u8, server: usize, reply: Asked },
    Raised { caller: usize, owner: u16, round: u8, server: usize, reply: RaiseReply },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Caller {
    Idle,
    Asking { owner: u16, lock: Acquisition },
    Holding { owner: u16, fence: u64, nth: u16, until: Instant, round: u8, renewal: Option<Renewal> },
}

/// What is left to be allowed, so that a search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    pub attempts: u8,
    pub renewals: u8,
    pub ticks: u8,
    pub forgets: u8,
    pub restarts: u8,
    pub doubles: u8,
    /// Replies that come later than at once, or never.
    pub late: u8,
    pub writes: u8,
}

#[derive(Debug, Clone)]
pub struct World {
    pub now: i64,
    pub servers: Vec<Server>,
    pub callers: Vec<Caller>,
    pub network: BTreeSet<Packet>,
    /// Callers that learned that they hold and do not look at the clock any more: a process that was paused. Fence and number.
    pub paused: Vec<(u64, u16)>,
    pub budget: Budget,
    owners: u16,
    /// Fence and number of the latest holder.
    latest: (u64, u16),
    /// The highest fence the store has seen, and whose.
    store: (u64, u16),
    pub tick: i64,
    /// Whether a server that forgot stays out for the delay: false plants a fault.
    pub returns_late: bool,
    /// Whether fences are raised: false plants a fault.
    pub raises: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Begin(usize),
    /// A reply to it is heard at once.
    Deliver(Packet),
    /// A reply to it is on its way from now on.
    DeliverLate(Packet),
    Double(Packet),
    /// The attempt is given up, or the lock is released.
    LetGo(usize),
    Renew(usize),
    Tick,
    /// Crashes and starts again without memory.
    Forget(usize),
    /// Crashes and starts again with every change on its disk.
    Restart(usize),
    Write(usize),
    WritePaused(usize),
}

impl Packet {
    fn has_reply(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Raise { .. })
    }
}

impl Server {
    fn new(skew: i64, fast: i64) -> Self {
        Self { holders: Holders::default(), floor: Floor::default(), returning: Returning::new(), skew, fast }
    }

    fn clock(&self, now: i64) -> Instant {
        Instant::from_us(START + self.skew + now + now * self.fast / 1_000)
    }

    fn step<V>(
        &mut self,
        now: i64,
        act: impl FnOnce(&mut WaitedKey<'_, Locks>, &mut Setting<'_>) -> Stepped<Locks, V>,
    ) -> V {
        let now = self.clock(now);
        let mut queue = Queue::default();
        let mut key = WaitedKey { state: &mut self.holders, queue: &mut queue };
        let mut setting = Setting {
            now,
            promoted_at: None,
            up_since: Instant::EPOCH,
            ageing: Span::ZERO,
            floor: &mut self.floor,
            heard: None,
        };
        let Outcome { verdict, .. } = act(&mut key, &mut setting);
        verdict
    }
}

impl World {
    pub fn new(clocks: &[(i64, i64)], callers: usize, tick: i64, budget: Budget) -> Self {
        Self {
            now: 0,
            servers: clocks.iter().map(|(skew, fast)| Server::new(*skew, *fast)).collect(),
            callers: vec![Caller::Idle; callers],
            network: BTreeSet::new(),
            paused: Vec::new(),
            budget,
            owners: 0,
            latest: (0, 0),
            store: (0, 0),
            tick,
            returns_late: true,
            raises: true,
        }
    }

    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for server in &self.servers {
            to_vec(|out| encode_holders(Kind::Lock, &server.holders, out)).hash(&mut hasher);
            server.floor.highest().hash(&mut hasher);
            format!("{:?}", server.returning).hash(&mut hasher);
        }
        (self.now, &self.callers, &self.network, &self.paused, self.budget, self.latest, self.store).hash(&mut hasher);
        hasher.finish()
    }

    pub fn actions(&self) -> Vec<Action> {
        let Budget { attempts, renewals, ticks, forgets, restarts, doubles, late, writes } = self.budget;
        let mut actions: Vec<Action> = self.network.iter().copied().map(Action::Deliver).collect();
        if doubles > 0 {
            actions.extend(self.network.iter().copied().map(Action::Double));
        }
        if late > 0 {
            let requests = self.network.iter().copied().filter(Packet::has_reply);
            actions.extend(requests.map(Action::DeliverLate));
        }
        for (index, caller) in self.callers.iter().enumerate() {
            match caller {
                // Which of those who never asked begins makes no difference.
                Caller::Idle if index > usize::from(self.owners) => {}
                Caller::Idle if attempts > 0 => actions.push(Action::Begin(index)),
                Caller::Idle => {}
                Caller::Asking { .. } => actions.push(Action::LetGo(index)),
                Caller::Holding { renewal, .. } => {
                    actions.push(Action::LetGo(index));
                    if renewals > 0 && renewal.is_none() {
                        actions.push(Action::Renew(index));
                    }
                    if writes > 0 {
                        actions.push(Action::Write(index));
                    }
                }
            }
        }
        if writes > 0 {
            actions.extend((0..self.paused.len()).map(Action::WritePaused));
        }
        if ticks > 0 {
            actions.push(Action::Tick);
        }
        if forgets > 0 {
            actions.extend((0..self.servers.len()).map(Action::Forget));
        }
        if restarts > 0 {
            actions.extend((0..self.servers.len()).map(Action::Restart));
        }
        actions
    }

    /// Err says which promise was broken.
    pub fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Begin(caller) => {
                self.budget.attempts -= 1;
                self.owners += 1;
                let owner = self.owners;
                let lock = Acquisition::begin(self.servers.len(), Span::from_us(LEASE), Instant::from_us(self.now));
                self.callers[caller] = Caller::Asking { owner, lock };
                for server in 0..self.servers.len() {
                    self.network.insert(Packet::Acquire { caller, owner, round: 0, server });
                }
            }
            Action::Deliver(packet) => {
                self.network.remove(&packet);
                if let Some(reply) = self.deliver(packet) {
                    self.deliver(reply);
                }
            }
            Action::DeliverLate(packet) => {
                self.budget.late -= 1;
                self.network.remove(&packet);
                let reply = self.deliver(packet);
                self.network.extend(reply);
            }
            Action::Double(packet) => {
                self.budget.doubles -= 1;
                let reply = self.deliver(packet);
                self.network.extend(reply);
            }
            Action::LetGo(caller) => self.let_go(caller),
            Action::Renew(index) => {
                self.budget.renewals -= 1;
                let servers = self.servers.len();
                let Caller::Holding { owner, fence, round, renewal, .. } = &mut self.callers[index] else {
                    return Ok(());
                };
                *round += 1;
                *renewal = Some(Renewal::begin(servers, *fence, Span::from_us(LEASE), Instant::from_us(self.now)));
                let (owner, fence, round) = (*owner, *fence, *round);
                for server in 0..servers {
                    self.network.insert(Packet::Raise { caller: index, owner, round, server, fence });
                }
            }
            Action::Tick => {
                self.budget.ticks -= 1;
                self.now += self.tick;
            }
            Action::Forget(server) => {
                self.budget.forgets -= 1;
                let (now, late) = (self.now, self.returns_late);
                let server = &mut self.servers[server];
                *server = Server::new(server.skew, server.fast);
                let clock = server.clock(now);
                server.floor.resume(Span::ZERO, Span::from_us(JUMP), clock);
                if late {
                    server.returning.begin(clock);
                }
            }
            Action::Restart(server) => {
                self.budget.restarts -= 1;
                let now = self.now;
                let server = &mut self.servers[server];
                let clock = server.clock(now);
                server.floor.resume(Span::ZERO, Span::from_us(JUMP), clock);
            }
            Action::Write(caller) => {
                self.budget.writes -= 1;
                if let Caller::Holding { fence, nth, .. } = self.callers[caller] {
                    self.write(fence, nth)?;
                }
            }
            Action::WritePaused(index) => {
                self.budget.writes -= 1;
                let (fence, nth) = self.paused[index];
                self.write(fence, nth)?;
            }
        }
        self.judge()
    }

    /// The store takes what is not below the highest it has seen. What it takes must be from no earlier holder than that.
    fn write(&mut self, fence: u64, nth: u16) -> Result<(), String> {
        if fence < self.store.0 {
            return Ok(());
        }
        if nth < self.store.1 {
            return Err(format!(
                "the store took the stale write of holder {nth} with {fence} after that of {:?}",
                self.store
            ));
        }
        self.store = (fence, nth);
        Ok(())
    }

    fn let_go(&mut self, caller: usize) {
        let owner = match std::mem::replace(&mut self.callers[caller], Caller::Idle) {
            Caller::Idle => return,
            Caller::Asking { owner, .. } => owner,
            Caller::Holding { owner, fence, nth, .. } => {
                self.paused.push((fence, nth));
                owner
            }
        };
        for server in 0..self.servers.len() {
            self.network.insert(Packet::Release { owner, server });
        }
    }

    /// Returns the reply, if there is one.
    fn deliver(&mut self, packet: Packet) -> Option<Packet> {
        match packet {
            Packet::Acquire { caller, owner, round, server } => {
                let reply = self.acquire(server, owner);
                return Some(Packet::Asked { caller, owner, round, server, reply });
            }
            Packet::Raise { caller, owner, round, server, fence } => {
                let reply = self.raise(server, owner, fence);
                return Some(Packet::Raised { caller, owner, round, server, reply });
            }
            Packet::Release { owner, server } => {
                let now = self.now;
                self.servers[server].step(now, |key, setting| lock::release(key, &name(owner), None, setting));
            }
            Packet::Asked { caller, owner, round, server, reply } => self.asked(caller, owner, round, server, reply),
            Packet::Raised { caller, owner, round, server, reply } => {
                let reply = match reply {
                    RaiseReply::Raised => Raising::Raised,
                    RaiseReply::Lost => Raising::Lost(Reason::Absent),
                    RaiseReply::Broken => Raising::Lost(Reason::Released),
                    RaiseReply::TooFarAhead => Raising::TooFarAhead,
                };
                self.raised(caller, owner, round, server, reply);
            }
        }
        None
    }

    fn acquire(&mut self, server: usize, owner: u16) -> Asked {
        let now = self.now;
        let server = &mut self.servers[server];
        let clock = server.clock(now);
        match server.returning.look(Span::from_us(RETURN_DELAY), clock) {
            Return::In(_) => return Asked::Failed,
            Return::Now => server.floor.resume(Span::ZERO, Span::from_us(JUMP), clock),
            Return::Not => {}
        }
        let request =
            LockRequest { claim: Claim::Exclusive, lease: Span::from_us(LEASE), meta: Box::default(), bind_to: None };
        match server.step(now, |key, setting| lock::acquire(key, &name(owner), request, None, setting)) {
            Decision::Granted(grant) => Asked::Granted { fence: grant.fence },
            _ => Asked::Taken,
        }
    }

    fn raise(&mut self, server: usize, owner: u16, fence: u64) -> RaiseReply {
        // Without the fault: the fence. With it only the lease is renewed.
        let fence = if self.raises { fence } else { 1 };
        let (now, to) = (self.now, Raise::new(fence, Span::from_us(JUMP)));
        let lease = Span::from_us(LEASE);
        match self.servers[server].step(now, |key, setting| lock::raise(key, &name(owner), None, lease, to, setting)) {
            Raised::Granted(_) => RaiseReply::Raised,
            Raised::Lost(Reason::Broken | Reason::Released) => RaiseReply::Broken,
            Raised::Lost(_) => RaiseReply::Lost,
            Raised::TooFarAhead(_) => RaiseReply::TooFarAhead,
            Raised::NotExclusive => unreachable!("nobody shares"),
        }
    }

    fn asked(&mut self, caller: usize, to: u16, of: u8, server: usize, reply: Asked) {
        match &mut self.callers[caller] {
            Caller::Asking { owner, lock } if *owner == to && of == 0 => lock.asked(server, reply),
            Caller::Holding { owner, round, renewal: Some(renewal), .. } if *owner == to && *round == of => {
                let send = renewal.asked(server, reply);
                self.send(caller, server, send);
            }
            _ => return,
        }
        self.proceed(caller);
    }

    fn raised(&mut self, caller: usize, to: u16, of: u8, server: usize, reply: Raising) {
        match &mut self.callers[caller] {
            Caller::Asking { owner, lock } if *owner == to && of == 0 => lock.raised(server, reply),
            Caller::Holding { owner, round, renewal: Some(renewal), .. } if *owner == to && *round == of => {
                let send = renewal.raised(server, reply);
                self.send(caller, server, send);
            }
            _ => return,
        }
        self.proceed(caller);
    }

    fn send(&mut self, caller: usize, server: usize, send: Option<Send>) {
        let Caller::Holding { owner, fence, round, .. } = self.callers[caller] else { return };
        match send {
            Some(Send::Acquire) => drop(self.network.insert(Packet::Acquire { caller, owner, round, server })),
            Some(Send::Raise) => drop(self.network.insert(Packet::Raise { caller, owner, round, server, fence })),
            None => {}
        }
    }

    /// What the caller does with what it knows now, as the SDK does.
    fn proceed(&mut self, caller: usize) {
        let now = Instant::from_us(self.now);
        match &mut self.callers[caller] {
            Caller::Idle => {}
            Caller::Asking { owner, lock } => match lock.verdict(now) {
                QuorumVerdict::Pending => {
                    let (owner, fence) = (*owner, lock.fence());
                    for server in lock.take_raises() {
                        let fence = fence.expect("a majority granted");
                        self.network.insert(Packet::Raise { caller, owner, round: 0, server, fence });
                    }
                }
                QuorumVerdict::Held { until } => {
                    let (owner, fence) = (*owner, lock.fence().expect("a majority granted"));
                    let nth = self.latest.1 + 1;
                    self.callers[caller] = Caller::Holding { owner, fence, nth, until, round: 0, renewal: None };
                }
                QuorumVerdict::Unheld(_) => self.let_go(caller),
            },
            Caller::Holding { until, renewal: Some(round), .. } if *until > now => match round.verdict() {
                QuorumVerdict::Held { until: later } => {
                    *until = later;
                }
                QuorumVerdict::Unheld(Unheld::Taken | Unheld::Broken) => self.let_go(caller),
                QuorumVerdict::Unheld(_) | QuorumVerdict::Pending => {}
            },
            // It learned meanwhile that it is over.
            Caller::Holding { .. } => self.let_go(caller),
        }
    }

    /// Never two that believe they hold, and fences grow from holder to holder.
    fn judge(&mut self) -> Result<(), String> {
        let now = Instant::from_us(self.now);
        let held: Vec<(u64, u16)> = self
            .callers
            .iter()
            .filter_map(|caller| match caller {
                Caller::Holding { fence, nth, until, .. } if *until > now => Some((*fence, *nth)),
                _ => None,
            })
            .collect();
        if held.len() > 1 {
            return Err(format!("two hold at once: {held:?}"));
        }
        for (fence, nth) in held {
            if nth > self.latest.1 {
                if fence <= self.latest.0 {
                    return Err(format!("holder {nth} has the fence {fence}, the one before it had {}", self.latest.0));
                }
                self.latest = (fence, nth);
            }
        }
        Ok(())
    }

    pub fn holders_so_far(&self) -> u16 {
        self.latest.1
    }
}

fn name(owner: u16) -> [u8; 2] {
    owner.to_be_bytes()
}
