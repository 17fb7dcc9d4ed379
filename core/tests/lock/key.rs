//! One key as a server keeps it: holders, queue, fences, a clock; and a replica that only gets the edits.
//!
//! Every step goes through [`Key::step`], which holds it against what must be true after any step whatsoever.

use std::collections::BTreeMap;

use resil_core::codec::to_vec;
use resil_core::limits::AGEING_DEFAULT;
use resil_core::lock::{
    self, Bulkheads, Busy, Claim, HolderEdit, Holders, Holding, Kind, LockRequest, Locks, Mode, Raise, Raised,
    Released, decode_edits, decode_holders, encode_holders,
};
use resil_core::waited::{
    Binding, Decision, Ending, Floor, Grant, Machine, Outcome, Queue, Renewed, Reply, Setting, Stepped, WaitedKey,
    Waiting,
};
use resil_core::{Instant, Span};

pub const MS: i64 = 1_000;
pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const START: i64 = 1_800_000_000 * SECOND;
pub const JUMP: i64 = MINUTE;

pub type Acquired = Decision<Grant, Busy>;
pub type LockReply = Reply<Grant, Busy>;

/// What an owner asks for, and how long it waits for it.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub claim: Claim,
    pub lease: i64,
    pub wait: Option<i64>,
    pub most: usize,
}

pub fn writer() -> Wish {
    Wish { claim: Claim::Exclusive, lease: 10 * SECOND, wait: None, most: 1_000 }
}

pub fn reader() -> Wish {
    Wish { claim: Claim::Shared, ..writer() }
}

pub fn permit(max: u32) -> Wish {
    Wish { claim: Claim::Permit { max, priority: 5 }, ..writer() }
}

impl Wish {
    pub fn lease(self, lease: i64) -> Self {
        Self { lease, ..self }
    }

    pub fn waits(self, wait: i64) -> Self {
        Self { wait: Some(wait), ..self }
    }

    pub fn queue(self, most: usize) -> Self {
        Self { most, ..self }
    }

    pub fn priority(self, priority: u8) -> Self {
        match self.claim {
            Claim::Permit { max, .. } => Self { claim: Claim::Permit { max, priority }, ..self },
            Claim::Exclusive | Claim::Shared => self,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Key {
    pub kind: Kind,
    pub holders: Holders,
    pub queue: Queue<LockRequest>,
    pub floor: Floor,
    pub replica: Holders,
    pub replica_floor: Floor,
    pub now: i64,
    pub ageing: Span,
    pub promoted: Option<i64>,
    /// What the last step reported.
    pub replies: Vec<LockReply>,
    pub endings: Vec<Ending>,
    pub edits: Vec<HolderEdit>,
    pub wake: Option<i64>,
    /// Until when leases last whose connections were heard of, by fence.
    pub heard: BTreeMap<u64, i64>,
    /// Calls that wait for their reply.
    pub open: Vec<u64>,
    pub calls: u64,
}

/// A step of the machine that the key belongs to, which `$machine` stands for.
macro_rules! step {
    ($key:expr, $machine:ident, $act:expr) => {
        match $key.kind {
            Kind::Lock => {
                #[allow(dead_code)]
                type $machine = Locks;
                $key.step::<true, _>($act)
            }
            Kind::Bulkhead => {
                #[allow(dead_code)]
                type $machine = Bulkheads;
                $key.step::<false, _>($act)
            }
        }
    };
}

impl Key {
    pub fn of(kind: Kind) -> Self {
        Self {
            kind,
            holders: Holders::default(),
            queue: Queue::default(),
            floor: Floor::default(),
            replica: Holders::default(),
            replica_floor: Floor::default(),
            now: START,
            ageing: AGEING_DEFAULT,
            promoted: None,
            replies: Vec::new(),
            endings: Vec::new(),
            edits: Vec::new(),
            wake: None,
            heard: BTreeMap::new(),
            open: Vec::new(),
            calls: 0,
        }
    }

    pub fn lock() -> Self {
        Self::of(Kind::Lock)
    }

    pub fn bulkhead() -> Self {
        Self::of(Kind::Bulkhead)
    }

    pub fn step<const L: bool, V>(
        &mut self,
        act: impl FnOnce(&mut WaitedKey<'_, Holding<L>>, &mut Setting<'_>) -> Stepped<Holding<L>, V>,
    ) -> V {
        let mut key = WaitedKey { state: &mut self.holders, queue: &mut self.queue };
        let heard = |fence: u64| self.heard.get(&fence).map(|until| Instant::from_us(*until));
        let mut setting = Setting {
            now: Instant::from_us(self.now),
            promoted_at: self.promoted.map(Instant::from_us),
            up_since: Instant::EPOCH,
            ageing: self.ageing,
            floor: &mut self.floor,
            heard: Some(&heard),
        };
        let Outcome { verdict, edits, replies, mut endings, crowd, timer_at, .. } = act(&mut key, &mut setting);
        self.replies = replies;
        endings.extend(crowd.into_iter().flatten());
        self.endings = endings;
        self.edits = edits.to_vec();
        self.wake = timer_at.map(Instant::as_us);
        self.replicate::<L>();
        self.hold_to_account();
        verdict
    }

    /// The edits travel as bytes, and make of the replica what the step made of the holders.
    fn replicate<const L: bool>(&mut self) {
        if self.edits.is_empty() {
            return;
        }
        let bytes = to_vec(|out| Holding::<L>::encode_edits(&self.holders, &self.edits, out));
        if let Ok((kind, holders)) = decode_holders(&bytes) {
            // Very many ended as one: the state that this led to travels.
            assert!(kind == self.kind && self.edits.iter().any(|edit| matches!(edit, HolderEdit::AllEnded { .. })));
            self.replica_floor.heard_of(holders.last_fence());
            self.replica = holders;
            return;
        }
        let (kind, edits) = decode_edits(&bytes).expect("edits of a step");
        let as_sent = |edit: &HolderEdit| match edit {
            HolderEdit::Raised(holder) => HolderEdit::Granted(holder.clone()),
            other => other.clone(),
        };
        let sent: Vec<HolderEdit> = self.edits.iter().map(as_sent).collect();
        assert_eq!((kind, edits.as_slice()), (self.kind, sent.as_slice()));
        for edit in edits {
            if let HolderEdit::Granted(holder) = &edit {
                self.replica_floor.heard_of(holder.fence);
            }
            self.replica.apply(edit);
        }
    }

    fn hold_to_account(&mut self) {
        let bytes = self.bytes();
        assert_eq!(bytes, self.replica_bytes(), "the edits make the same state elsewhere");
        assert_eq!(decode_holders(&bytes).as_ref(), Ok(&(self.kind, self.holders.clone())), "the state can be stored");
        for reply in &self.replies {
            let at = self.open.iter().position(|id| *id == reply.id()).expect("one reply, to a call that waits");
            self.open.swap_remove(at);
        }
        // While very many are served in parts, the next step is asked for at once.
        let rest = (self.replies.len() >= 500 && self.wake == Some(self.now)).then_some(self.now);
        assert_eq!(self.wake, self.moments().into_iter().chain(rest).min(), "it is woken by whatever comes first");
    }

    pub fn bytes(&self) -> Vec<u8> {
        to_vec(|out| encode_holders(self.kind, &self.holders, out))
    }

    fn replica_bytes(&self) -> Vec<u8> {
        to_vec(|out| encode_holders(self.kind, &self.replica, out))
    }

    /// When something ends: leases, and patience.
    pub fn moments(&self) -> Vec<i64> {
        let ends = self.holders.iter().map(|holder| holder.ends.as_us());
        ends.chain(self.queue.waiters().map(|waiter| waiter.deadline.as_us())).collect()
    }

    pub fn ask(&mut self, owner: &str, wish: Wish) -> Acquired {
        self.ask_with(owner.as_bytes(), wish, b"", None)
    }

    pub fn ask_with(&mut self, owner: &[u8], wish: Wish, meta: &[u8], bind_to: Option<Binding>) -> Acquired {
        self.calls += 1;
        let id = self.calls;
        let ask = LockRequest { claim: wish.claim, lease: Span::from_us(wish.lease), meta: meta.into(), bind_to };
        let waiting = wish.wait.map(|wait| Waiting { id, wait: Span::from_us(wait), most: wish.most });
        // Until the verdict is known the call counts as open; if it does not wait it must not have been answered.
        self.open.push(id);
        let verdict = step!(self, M, |key, setting| lock::acquire(key, owner, ask, waiting, setting));
        if verdict != Acquired::Queued {
            let at = self.open.iter().position(|open| *open == id).expect("a verdict or a reply, never both");
            self.open.swap_remove(at);
        }
        verdict
    }

    /// Asks, and is granted.
    pub fn take(&mut self, owner: &str, wish: Wish) -> u64 {
        match self.ask(owner, wish) {
            Acquired::Granted(grant) => grant.fence,
            other => panic!("{owner} gets {other:?}"),
        }
    }

    /// Asks, and waits. Returns the id of the call.
    pub fn queue_up(&mut self, owner: &str, wish: Wish) -> u64 {
        assert_eq!(self.ask(owner, wish), Acquired::Queued, "{owner}");
        self.calls
    }

    pub fn renew(&mut self, owner: &str, fence: Option<u64>, lease: i64) -> Renewed {
        step!(self, M, |key, setting| lock::renew(key, owner.as_bytes(), fence, Span::from_us(lease), setting))
    }

    /// Of a lock, not of a bulkhead.
    pub fn raise(&mut self, owner: &str, fence: Option<u64>, lease: i64, to: u64) -> Raised {
        let to = Raise::new(to, Span::from_us(JUMP));
        self.step::<true, _>(|key, setting| {
            lock::raise(key, owner.as_bytes(), fence, Span::from_us(lease), to, setting)
        })
    }

    pub fn release(&mut self, owner: &str, fence: Option<u64>) -> Released {
        step!(self, M, |key, setting| lock::release(key, owner.as_bytes(), fence, setting))
    }

    pub fn break_all(&mut self) -> usize {
        step!(self, M, lock::break_all)
    }

    pub fn close(&mut self, fence: u64) -> bool {
        step!(self, M, |key, setting| M::close(key, fence, setting))
    }

    pub fn cut(&mut self, fence: u64, grace: i64, at: i64) -> bool {
        step!(self, M, |key, setting| M::cut(key, fence, Span::from_us(grace), Instant::from_us(at), setting))
    }

    pub fn take_back(&mut self, fence: u64) -> bool {
        step!(self, M, |key, setting| M::take_back(key, fence, setting))
    }

    pub fn extend(&mut self, fence: u64, ends: i64) -> bool {
        step!(self, M, |key, setting| M::extend(key, fence, Instant::from_us(ends), setting))
    }

    pub fn leave(&mut self, id: u64) -> bool {
        self.open.retain(|open| *open != id);
        step!(self, M, |key, setting| M::leave(key, id, setting))
    }

    pub fn tick(&mut self) {
        step!(self, M, M::tick);
    }

    pub fn give_up(&mut self) {
        step!(self, M, M::give_up);
    }

    /// The clock shows `by` more, or less; whatever is due happens.
    pub fn later(&mut self, by: i64) {
        self.now += by;
        self.tick();
    }

    /// Stored and loaded again. Connections, and so waiters, are gone.
    pub fn restart(&mut self) {
        let (kind, holders) = decode_holders(&self.bytes()).expect("what was stored");
        let floor = self.floor.highest();
        (self.kind, self.holders) = (kind, holders);
        self.start_anew(floor);
    }

    /// The replica, whose clock differs by `by`, becomes the primary.
    pub fn promote(&mut self, by: i64) {
        self.now += by;
        self.holders = self.replica.clone();
        self.promoted = Some(self.now);
        self.start_anew(self.replica_floor.highest());
    }

    fn start_anew(&mut self, floor: u64) {
        self.queue = Queue::default();
        self.open.clear();
        self.floor = Floor::default();
        self.floor.heard_of(floor);
        self.floor.jump(Span::from_us(JUMP), Instant::from_us(self.now));
        self.replica_floor.heard_of(self.floor.highest());
    }

    /// The key is deleted, everywhere.
    pub fn delete(&mut self) {
        self.holders = Holders::default();
        self.replica = Holders::default();
        self.tick();
    }

    pub fn owners(&self) -> Vec<String> {
        self.holders.iter().map(|holder| String::from_utf8_lossy(holder.owner()).into_owned()).collect()
    }

    pub fn queued(&self) -> Vec<String> {
        self.queue.waiters().map(|waiter| String::from_utf8_lossy(&waiter.owner).into_owned()).collect()
    }

    /// The waiters that the last step granted.
    pub fn served(&self) -> Vec<String> {
        let granted = self.replies.iter().filter_map(|reply| match reply {
            LockReply::Granted { owner, .. } => Some(String::from_utf8_lossy(owner).into_owned()),
            LockReply::TimedOut { .. } | LockReply::Refused { .. } | LockReply::Superseded { .. } => None,
        });
        granted.collect()
    }

    pub fn timed_out(&self) -> Vec<u64> {
        let late = |reply: &LockReply| matches!(reply, LockReply::TimedOut { .. }).then_some(reply.id());
        self.replies.iter().filter_map(late).collect()
    }

    pub fn end_of(&self, owner: &str) -> i64 {
        self.holders.by_owner(owner.as_bytes()).map_or(0, |holder| holder.ends.as_us())
    }

    pub fn writers(&self) -> usize {
        self.holders.iter().filter(|holder| holder.mode() == Mode::Exclusive).count()
    }
}
