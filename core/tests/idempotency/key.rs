//! One key as a server keeps it: record, queue, fences, a clock; and a replica that only gets the records that changed.
//!
//! Every step goes through [`Key::step`], which holds it against what must be true after any step whatsoever.

use resil_core::codec::to_vec;
use resil_core::idempotency::{
    self, Committed, Idempotency, OnLapse, Record, Run, RunRequest, Settled, WorkPhase, decode_record, encode_record,
};
use resil_core::limits::AGEING_DEFAULT;
use resil_core::waited::fence::Floor;
use resil_core::waited::queue::Queue;
use resil_core::waited::session::Binding;
use resil_core::waited::{Decision, Machine, Outcome, Reply, Stepped, WaitedKey, Waiting};
use resil_core::waited::{Ending, Reason, Renewed, Setting};
use resil_core::{Instant, Span};

use super::gaps::{DAY, JUMP, SECOND, START};

pub type Begun = Decision<Run, Settled>;
pub type RunReply = Reply<Run, Settled>;

/// How somebody wants to run, and how long it waits for that.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub fingerprint: &'static str,
    pub lease: i64,
    pub keep: i64,
    pub hold: bool,
    pub wait: Option<i64>,
    pub most: usize,
    pub bind_to: Option<u64>,
}

/// A lease of ten seconds, everything else as if nothing was said.
pub fn work() -> Wish {
    Wish { fingerprint: "", lease: 10 * SECOND, keep: DAY, hold: false, wait: None, most: 1_000, bind_to: None }
}

impl Wish {
    pub fn of(self, fingerprint: &'static str) -> Self {
        Self { fingerprint, ..self }
    }

    pub fn lease(self, lease: i64) -> Self {
        Self { lease, ..self }
    }

    pub fn keep(self, keep: i64) -> Self {
        Self { keep, ..self }
    }

    pub fn or_hold(self) -> Self {
        Self { hold: true, ..self }
    }

    pub fn waits(self, wait: i64) -> Self {
        Self { wait: Some(wait), ..self }
    }
}

#[derive(Debug, Clone)]
pub struct Key {
    pub record: Record,
    pub queue: Queue<RunRequest>,
    pub floor: Floor,
    pub replica: Record,
    pub replica_floor: Floor,
    pub now: i64,
    pub promoted: Option<i64>,
    /// What the last step reported.
    pub replies: Vec<RunReply>,
    pub endings: Vec<Ending>,
    pub wake: Option<i64>,
    /// Calls that wait for their reply.
    pub open: Vec<u64>,
    pub calls: u64,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            record: Record::Nothing,
            queue: Queue::default(),
            floor: Floor::default(),
            replica: Record::Nothing,
            replica_floor: Floor::default(),
            now: START,
            promoted: None,
            replies: Vec::new(),
            endings: Vec::new(),
            wake: None,
            open: Vec::new(),
            calls: 0,
        }
    }
}

pub fn bytes_of(record: &Record) -> Vec<u8> {
    to_vec(|out| encode_record(record, out))
}

impl Key {
    fn step<V>(
        &mut self,
        act: impl FnOnce(&mut WaitedKey<'_, Idempotency>, &mut Setting<'_>) -> Stepped<Idempotency, V>,
    ) -> V {
        let mut key = WaitedKey { state: &mut self.record, queue: &mut self.queue };
        let mut setting = Setting {
            now: Instant::from_us(self.now),
            promoted_at: self.promoted.map(Instant::from_us),
            up_since: Instant::EPOCH,
            ageing: AGEING_DEFAULT,
            floor: &mut self.floor,
            heard: None,
        };
        let Outcome { verdict, edits, replies, endings, timer_at, .. } = act(&mut key, &mut setting);
        if !edits.is_empty() {
            self.replica = decode_record(&bytes_of(&self.record)).expect("a record that changed");
            self.replica_floor.heard_of(self.replica.last_fence());
        }
        self.replies = replies;
        self.endings = endings;
        self.wake = timer_at.map(Instant::as_us);
        self.hold_to_account();
        verdict
    }

    fn hold_to_account(&mut self) {
        let bytes = bytes_of(&self.record);
        assert_eq!(bytes, bytes_of(&self.replica), "what was reported makes the same record elsewhere");
        assert_eq!(decode_record(&bytes).as_ref(), Ok(&self.record), "the record can be stored");
        for reply in &self.replies {
            let at = self.open.iter().position(|id| *id == reply.id()).expect("one reply, to a call that waits");
            self.open.remove(at);
        }
        let mut waits: Vec<u64> = self.queue.waiters().map(|waiter| waiter.id).collect();
        waits.sort_unstable();
        let mut open = self.open.clone();
        open.retain(|id| *id != self.calls || waits.contains(id));
        open.sort_unstable();
        assert_eq!(open, waits, "a caller that is not answered waits");
        assert_eq!(self.wake, self.moments().into_iter().min(), "it is woken by whatever comes first");
    }

    /// When somebody has to be notified: the lease ends, patience ends.
    pub fn moments(&self) -> Vec<i64> {
        let lease = self.lease_end();
        lease.into_iter().chain(self.queue.waiters().map(|waiter| waiter.deadline.as_us())).collect()
    }

    pub fn lease_end(&self) -> Option<i64> {
        match &self.record {
            Record::Work(work) => match work.phase {
                WorkPhase::Running { ends, .. } => Some(ends.as_us()),
                WorkPhase::Idle { .. } | WorkPhase::Done { .. } => None,
            },
            Record::Nothing | Record::Once(_) => None,
        }
    }

    /// When time forgets what is known.
    pub fn forgotten_at(&self) -> Option<i64> {
        match &self.record {
            Record::Work(work) => Some(work.kept_until().as_us()),
            Record::Once(once) => Some(once.until.as_us()),
            Record::Nothing => None,
        }
    }

    pub fn begin(&mut self, token: &str, wish: Wish) -> Begun {
        self.calls += 1;
        let id = self.calls;
        let ask = RunRequest {
            fingerprint: wish.fingerprint.as_bytes().into(),
            lease: Span::from_us(wish.lease),
            keep: Span::from_us(wish.keep),
            on_lapse: if wish.hold { OnLapse::Hold } else { OnLapse::Run },
            bind_to: wish.bind_to.map(binding),
        };
        let waiting = wish.wait.map(|wait| Waiting { id, wait: Span::from_us(wait), most: wish.most });
        // Until the verdict is known the call counts as open: a caller that is notified at once is not notified again.
        self.open.push(id);
        let verdict = self.step(|key, setting| idempotency::begin(key, token.as_bytes(), ask, waiting, setting));
        let open = self.open.pop_if(|open| *open == id).expect("a verdict or a reply, never both");
        if verdict == Begun::Queued {
            self.open.push(open);
        }
        verdict
    }

    /// Begins, and gets the run.
    pub fn run(&mut self, token: &str, wish: Wish) -> Run {
        match self.begin(token, wish) {
            Begun::Granted(run) => run,
            other => panic!("{token} got {other:?}"),
        }
    }

    /// Begins, and learns that it may not run.
    pub fn reported(&mut self, token: &str, wish: Wish) -> Settled {
        match self.begin(token, wish) {
            Begun::Refused(settled) => settled,
            other => panic!("{token} got {other:?}"),
        }
    }

    /// Begins, and waits. Returns the id of the call.
    pub fn queue_up(&mut self, token: &str, wish: Wish) -> u64 {
        assert_eq!(self.begin(token, wish), Begun::Queued, "{token}");
        self.calls
    }

    pub fn commit_with(&mut self, token: &str, ttl: i64, result: Option<&[u8]>, failed: bool) -> Committed {
        let what = (result.map(Into::into), failed);
        self.step(|key, setting| idempotency::commit(key, token.as_bytes(), Span::from_us(ttl), what, setting))
    }

    pub fn commit(&mut self, token: &str, result: &str) -> Committed {
        self.commit_with(token, DAY, Some(result.as_bytes()), false)
    }

    pub fn abort(&mut self, token: &str) -> Option<Reason> {
        self.step(|key, setting| idempotency::abort(key, token.as_bytes(), setting))
    }

    pub fn renew(&mut self, token: &str, lease: i64) -> Renewed {
        self.step(|key, setting| idempotency::renew(key, token.as_bytes(), Span::from_us(lease), setting))
    }

    pub fn once(&mut self, token: &str, ttl: i64) -> Result<bool, ()> {
        self.step(|key, setting| idempotency::once(key, token.as_bytes(), Span::from_us(ttl), setting))
    }

    pub fn close(&mut self, fence: u64) -> bool {
        self.step(|key, setting| Idempotency::close(key, fence, setting))
    }

    pub fn cut(&mut self, fence: u64, grace: i64, at: i64) -> bool {
        let (grace, at) = (Span::from_us(grace), Instant::from_us(at));
        self.step(|key, setting| Idempotency::cut(key, fence, grace, at, setting))
    }

    pub fn take_back(&mut self, fence: u64) -> bool {
        self.step(|key, setting| Idempotency::take_back(key, fence, setting))
    }

    pub fn extend(&mut self, fence: u64, until: i64) -> bool {
        self.step(|key, setting| Idempotency::extend(key, fence, Instant::from_us(until), setting))
    }

    pub fn leave(&mut self, id: u64) -> bool {
        self.open.retain(|open| *open != id);
        self.step(|key, setting| Idempotency::leave(key, id, setting))
    }

    pub fn tick(&mut self) {
        self.step(Idempotency::tick);
    }

    pub fn give_up(&mut self) {
        self.step(Idempotency::give_up);
    }

    pub fn look(&self, fingerprint: &str) -> Settled {
        let promoted_at = self.promoted.map(Instant::from_us);
        idempotency::look(&self.record, fingerprint.as_bytes(), promoted_at, Instant::from_us(self.now))
    }

    /// The clock shows `by` more, or less; whatever is due happens.
    pub fn later(&mut self, by: i64) {
        self.now += by;
        self.tick();
    }

    /// Stored and loaded again. Connections, and so waiters, are gone.
    pub fn restart(&mut self) {
        self.record = decode_record(&bytes_of(&self.record)).expect("what was stored");
        self.start_anew(self.replica_floor.highest());
    }

    /// The replica, whose clock differs by `by`, becomes the primary.
    pub fn promote(&mut self, by: i64) {
        self.now += by;
        self.record = self.replica.clone();
        self.promoted = Some(self.now);
        self.start_anew(self.replica_floor.highest());
    }

    fn start_anew(&mut self, floor: u64) {
        self.queue = Queue::default();
        self.open.clear();
        self.replies.clear();
        self.endings.clear();
        self.floor = Floor::default();
        self.floor.heard_of(floor);
        self.floor.jump(Span::from_us(JUMP), Instant::from_us(self.now));
    }

    /// The key is deleted, everywhere.
    pub fn delete(&mut self) {
        self.record = Record::Nothing;
        self.replica = Record::Nothing;
        self.tick();
    }

    /// What the call `id` got in the last step.
    pub fn reply(&self, id: u64) -> &RunReply {
        self.replies.iter().find(|reply| reply.id() == id).unwrap_or_else(|| panic!("{id} got no reply"))
    }

    pub fn answered_run(&self, id: u64) -> Run {
        match self.reply(id) {
            RunReply::Granted { grant: run, .. } => *run,
            other => panic!("{other:?}"),
        }
    }

    pub fn answered(&self, id: u64) -> Settled {
        match self.reply(id) {
            RunReply::Refused { refusal: settled, .. } | RunReply::TimedOut { refusal: settled, .. } => settled.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// A connection, with a grace of its own.
pub fn binding(client: u64) -> Binding {
    Binding { client, grace: Span::from_us(client as i64) }
}

/// Connection and grace come out as they went in.
pub fn bound_to(bind_to: Binding) -> u64 {
    assert_eq!(bind_to, binding(bind_to.client));
    bind_to.client
}
