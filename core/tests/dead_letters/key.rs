//! One ledger as a server keeps it: state, queue, fences, a clock; and a replica that only gets the edits, as bytes.
//!
//! Every step goes through [`Key::step`], which holds it against what must be true after any step whatsoever.

use resil_core::dead_letters::{
    self, BatchRenewed, Category, Closed, ConfigChange, Diagnosed, Diagnosis, Discard, Ended, Facts, Failed, Failing,
    GivenEntry, Governor, HoldTarget, Ledger, LedgerEdit, Ledgers, NothingDue, Parked, Place, PurgeRequest, Purged,
    RedriveRequest, RedriveView, Redriven, Refusal, Room, Standing, TakeRequest, Taken,
};
use resil_core::waited::fence::Floor;
use resil_core::waited::queue::Queue;
use resil_core::waited::{Decision, Ending, Machine, Outcome, Reply, Setting, Stepped, WaitedKey, Waiting};
use resil_core::{Instant, Span, Stored};

use super::asking::{Fault, fault};

pub const MS: i64 = 1_000;
pub const SECOND: i64 = 1_000 * MS;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;
/// A Tuesday in 2023; the start of five minutes.
pub const START: i64 = 1_700_000_100 * SECOND;

pub type TakeReply = Reply<Taken, NothingDue>;

#[derive(Debug, Clone)]
pub struct Key {
    pub ledger: Ledger,
    pub queue: Queue<TakeRequest>,
    pub floor: Floor,
    pub replica: Ledger,
    pub replica_floor: Floor,
    pub now: i64,
    pub promoted: Option<i64>,
    pub up_since: i64,
    pub room: Room,
    /// What the last step reported.
    pub replies: Vec<TakeReply>,
    pub endings: Vec<Ending>,
    pub edits: Vec<LedgerEdit>,
    pub wake: Option<i64>,
    /// Calls that wait for their reply.
    pub open: Vec<u64>,
    pub calls: u64,
    pub actor: &'static str,
    /// Off where a thousand entries would be compared after every step.
    pub is_checked: bool,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            ledger: Ledger::default(),
            queue: Queue::default(),
            floor: Floor::default(),
            replica: Ledger::default(),
            replica_floor: Floor::default(),
            now: START,
            promoted: None,
            up_since: 0,
            room: Room { entries: 100_000, bytes: 1 << 30, resolved: 1_000 },
            replies: Vec::new(),
            endings: Vec::new(),
            edits: Vec::new(),
            wake: None,
            open: Vec::new(),
            calls: 0,
            actor: "ada",
            is_checked: true,
        }
    }
}

pub fn bytes_of(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    Ledgers::encode(ledger, &mut bytes);
    bytes
}

pub fn pieces_of(ledger: &Ledger) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    Ledgers::encode_pieces(ledger, &mut |piece| pieces.push(piece.to_vec()));
    pieces
}

/// As a server loads it.
pub fn from_pieces(pieces: &[Vec<u8>]) -> Option<Ledger> {
    let (first, rest) = pieces.split_first()?;
    let mut ledger = Ledgers::decode(first).ok()?;
    for piece in rest {
        Ledgers::load_piece(&mut ledger, piece).ok()?;
    }
    Ledgers::loaded(&mut ledger);
    Ledgers::is_whole(&ledger).then_some(ledger)
}

impl Key {
    pub fn step<V>(
        &mut self,
        act: impl FnOnce(&mut WaitedKey<'_, Ledgers>, &mut Setting<'_>) -> Stepped<Ledgers, V>,
    ) -> V {
        let mut key = WaitedKey { state: &mut self.ledger, queue: &mut self.queue };
        let mut setting = Setting {
            now: Instant::from_us(self.now),
            promoted_at: self.promoted.map(Instant::from_us),
            up_since: Instant::from_us(self.up_since),
            ageing: Span::ZERO,
            floor: &mut self.floor,
            heard: None,
        };
        let Outcome { verdict, edits, replies, endings, timer_at, .. } = act(&mut key, &mut setting);
        self.replicate(&edits);
        self.edits = edits.into_vec();
        self.replies = replies;
        self.endings = endings;
        self.wake = timer_at.map(Instant::as_us);
        if self.is_checked {
            self.check();
        }
        verdict
    }

    fn replicate(&mut self, edits: &[LedgerEdit]) {
        if edits.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        Ledgers::encode_edits(&self.ledger, edits, &mut bytes);
        let read = Ledgers::decode_edits(&bytes).expect("edits that were written can be read");
        assert_eq!(&read[..], edits, "edits are read as they were written");
        Ledgers::apply_all(&mut self.replica, read);
        self.replica_floor.heard_of(self.replica.last_fence());
    }

    fn check(&mut self) {
        assert!(self.replica == self.ledger, "a replica has the same ledger");
        if self.ledger.is_open {
            let bytes = bytes_of(&self.ledger);
            assert!(bytes == bytes_of(&self.replica), "and the same bytes");
            let read = Ledgers::decode(&bytes).expect("what was stored can be read");
            assert!(read == self.ledger, "what was stored is what is read");
            assert!(Ledgers::is_whole(&read), "and it is whole");
            assert!(from_pieces(&pieces_of(&self.ledger)).as_ref() == Some(&self.ledger), "and so are its pieces");
        }
        for reply in &self.replies {
            let at = self.open.iter().position(|id| *id == reply.id()).expect("one reply, to a call that waits");
            self.open.remove(at);
        }
        let mut waits: Vec<u64> = self.queue.waiters().map(|waiter| waiter.id).collect();
        waits.sort_unstable();
        let mut open = self.open.clone();
        open.retain(|id| *id != self.calls || waits.contains(id));
        open.sort_unstable();
        assert_eq!(open, waits, "a call that has no reply waits");
        let deadline = self.queue.first_deadline().map(Instant::as_us);
        let must = deadline.into_iter().chain(self.first_lease_end()).min();
        assert!(must.is_none_or(|must| self.wake.is_some_and(|wake| wake <= must)), "it is woken in time");
    }

    pub fn first_lease_end(&self) -> Option<i64> {
        self.ledger.leases().map(|lease| lease.ends.as_us()).min()
    }

    pub fn fail(&mut self, fault: &Fault) -> Failed {
        let facts = Facts {
            id: fault.id.as_bytes(),
            payload: fault.payload.as_deref(),
            reference: fault.reference.as_deref(),
            kind: fault.kind.as_bytes(),
            aggregate: fault.aggregate.as_bytes(),
            ..Facts::default()
        };
        let failing = Failing {
            facts,
            error: fault.error.as_bytes(),
            fence: fault.fence,
            class: fault.class,
            group: fault.group.map(str::as_bytes),
            after: fault.after.map(Span::from_us),
            prior: fault.prior,
            counting: fault.counting,
            random: fault.random,
        };
        let room = self.room;
        self.step(|key, setting| dead_letters::fail(key, &failing, &room, setting))
    }

    /// Fails, and waits: its attempt and its delay in microseconds.
    pub fn retried(&mut self, fault: &Fault) -> (u32, i64) {
        match self.fail(fault) {
            Failed::Retry { attempt, delay } => (attempt, delay.as_us()),
            other => panic!("{} got {other:?}", fault.id),
        }
    }

    /// Fails, and dies: how often it has, its group, and why.
    pub fn dies(&mut self, fault: &Fault) -> (u32, String, &'static str) {
        match self.fail(fault) {
            Failed::Dead { deaths, group, reason } => {
                (deaths, String::from_utf8_lossy(&group).into_owned(), reason.text())
            }
            other => panic!("{} got {other:?}", fault.id),
        }
    }

    pub fn ask(&mut self, token: &str, lease: i64, count: usize, wait: Option<i64>) -> Decision<Taken, NothingDue> {
        self.calls += 1;
        let id = self.calls;
        let request = TakeRequest { lease: Span::from_us(lease), count, meta: Box::default(), bind_to: None };
        let waiting = wait.map(|wait| Waiting { id, wait: Span::from_us(wait), most: 1_000 });
        self.open.push(id);
        let verdict = self.step(|key, setting| dead_letters::take(key, token.as_bytes(), request, waiting, setting));
        let open = self.open.pop_if(|open| *open == id).expect("a verdict or a reply, never both");
        if verdict == Decision::Queued {
            self.open.push(open);
        }
        verdict
    }

    /// Takes up to `count` for half a minute; nothing if nothing is due.
    pub fn take(&mut self, token: &str, count: usize) -> Vec<GivenEntry> {
        match self.ask(token, 30 * SECOND, count, None) {
            Decision::Granted(taken) => taken.entries,
            Decision::Refused(_) => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Takes one, which is due: its id and its fence.
    pub fn one(&mut self, token: &str) -> (String, u64) {
        let taken = self.take(token, 1);
        assert_eq!(taken.len(), 1, "{token} takes one");
        (id_of(&taken[0]), taken[0].fence)
    }

    /// The ids that a call gets.
    pub fn ids(&mut self, token: &str, count: usize) -> Vec<String> {
        self.take(token, count).iter().map(id_of).collect()
    }

    /// Nothing is due: in how many microseconds something will be.
    pub fn none(&mut self, token: &str) -> Option<i64> {
        match self.ask(token, 30 * SECOND, 1, None) {
            Decision::Refused(NothingDue { next }) => next.map(Span::as_us),
            other => panic!("{token} got {other:?}"),
        }
    }

    pub fn done_all(&mut self, pairs: &[(String, u64)]) -> Vec<Ended> {
        let pairs: Vec<(&[u8], u64)> = pairs.iter().map(|(id, fence)| (id.as_bytes(), *fence)).collect();
        let room = self.room;
        self.step(|key, setting| dead_letters::done(key, &pairs, &room, setting)).into_vec()
    }

    pub fn done(&mut self, id: &str, fence: u64) -> Ended {
        self.done_all(&[(id.into(), fence)])[0]
    }

    pub fn give_back(&mut self, id: &str, fence: u64, delay: i64) -> Ended {
        let pairs = [(id.as_bytes(), fence)];
        self.step(|key, setting| dead_letters::give_back(key, &pairs, Span::from_us(delay), setting))[0]
    }

    pub fn renew(&mut self, token: &str, lease: i64) -> BatchRenewed {
        self.step(|key, setting| dead_letters::renew(key, token.as_bytes(), Span::from_us(lease), setting).0)
    }

    pub fn park(&mut self, id: &str, aggregate: &str) -> Parked {
        let body = format!("body of {id}");
        let facts = Facts {
            id: id.as_bytes(),
            payload: Some(body.as_bytes()),
            kind: b"order",
            aggregate: aggregate.as_bytes(),
            ..Facts::default()
        };
        let room = self.room;
        self.step(|key, setting| dead_letters::park(key, &facts, &room, setting))
    }

    pub fn diagnose_as(&mut self, groups: &[&str], category: Category, auto: Option<i64>) -> Diagnosed {
        let diagnosis = Diagnosis {
            groups: groups.iter().map(|group| group.as_bytes()).collect(),
            category,
            cause: b"a cause",
            fix: b"a fix",
            decision: b"a decision",
            auto: auto.map(Span::from_us),
        };
        let governor = self.governor();
        self.step(|key, setting| dead_letters::diagnose(key, &diagnosis, &governor, setting))
    }

    pub fn diagnose(&mut self, groups: &[&str]) -> u32 {
        match self.diagnose_as(groups, Category::Contract, None) {
            Diagnosed::Case(number) => number,
            other => panic!("{other:?}"),
        }
    }

    pub fn redrive(&mut self, request: &RedriveRequest) -> Redriven {
        let governor = self.governor();
        self.step(|key, setting| dead_letters::redrive(key, request, &governor, setting))
    }

    /// Starts a redrive of this many.
    pub fn start(&mut self, request: &RedriveRequest) -> usize {
        match self.redrive(request) {
            Redriven::Started(matched) => matched.count,
            other => panic!("{other:?}"),
        }
    }

    pub fn refusal(&mut self, request: &RedriveRequest) -> Refusal {
        match self.redrive(request) {
            Redriven::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    pub fn stop(&mut self, case: u32) -> Option<RedriveView> {
        let governor = self.governor();
        self.step(|key, setting| dead_letters::stop(key, case, &governor, setting))
    }

    pub fn close_case(&mut self, case: u32, discard: Discard) -> Closed {
        let governor = self.governor();
        self.step(|key, setting| dead_letters::close(key, case, discard, &governor, setting))
    }

    pub fn hold(&mut self, target: HoldTarget<'_>, held: bool) -> usize {
        let governor = self.governor();
        self.step(|key, setting| dead_letters::hold(key, target, held, b"a reason", &governor, setting))
    }

    pub fn hold_id(&mut self, id: &str, held: bool) -> usize {
        self.hold(HoldTarget::Id(id.as_bytes()), held)
    }

    pub fn purge_of(&mut self, place: Option<Place>, older: i64, limit: usize) -> (usize, usize) {
        let request = PurgeRequest { older: Span::from_us(older), place, limit };
        let governor = self.governor();
        match self.step(|key, setting| dead_letters::purge(key, &request, false, &governor, setting)) {
            Purged::Purged { purged, left } => (purged, left),
            Purged::ClockJumped => panic!("no clock jumped"),
        }
    }

    pub fn purge(&mut self) -> (usize, usize) {
        self.purge_of(None, 90 * DAY, 1_000)
    }

    pub fn see(&mut self, alert: u64) -> bool {
        let governor = self.governor();
        self.step(|key, setting| dead_letters::see(key, alert, &governor, setting))
    }

    pub fn configure(&mut self, change: &ConfigChange) {
        let governor = self.governor();
        self.step(|key, setting| dead_letters::configure(key, change, &governor, setting));
    }

    pub fn governor(&self) -> Governor<'static> {
        Governor { user: b"default", actor: self.actor.as_bytes(), correlation: b"" }
    }

    /// The connection of a lease closes.
    pub fn close(&mut self, fence: u64) -> bool {
        self.step(|key, setting| Ledgers::close(key, fence, setting))
    }

    /// The reply with this lease could not be delivered.
    pub fn take_back(&mut self, fence: u64) -> bool {
        self.step(|key, setting| Ledgers::take_back(key, fence, setting))
    }

    pub fn leave(&mut self, id: u64) -> bool {
        self.open.retain(|open| *open != id);
        self.step(|key, setting| Ledgers::leave(key, id, setting))
    }

    pub fn tick(&mut self) {
        self.step(Ledgers::tick);
    }

    /// The clock shows `by` more, or less, and the timers that are due by then have fired.
    pub fn later(&mut self, by: i64) {
        self.now += by;
        self.settle();
    }

    /// Steps until no timer is due.
    pub fn settle(&mut self) {
        self.tick();
        for _ in 0..10_000 {
            if self.wake.is_none_or(|wake| wake > self.now) {
                return;
            }
            self.tick();
        }
        panic!("a timer is due for ever");
    }

    /// Stored and loaded again, after `away`. Connections, and so waiters, are gone.
    pub fn restart(&mut self, away: i64) {
        self.now += away;
        if self.ledger.is_open {
            self.ledger = from_pieces(&pieces_of(&self.ledger)).expect("what was stored");
            self.replica = Ledgers::decode(&bytes_of(&self.replica)).expect("what was stored");
        }
        self.start_anew();
    }

    /// The replica, whose clock differs by `by`, becomes the primary.
    pub fn promote(&mut self, by: i64) {
        self.now += by;
        self.ledger = self.replica.clone();
        self.promoted = Some(self.now);
        self.start_anew();
    }

    fn start_anew(&mut self) {
        self.up_since = self.now;
        self.queue = Queue::default();
        self.open.clear();
        self.replies.clear();
        self.endings.clear();
        self.floor = Floor::default();
        self.floor.heard_of(self.replica_floor.highest());
        self.floor.jump(Span::from_us(MINUTE), Instant::from_us(self.now));
    }

    pub fn place(&self, id: &str) -> Option<Place> {
        self.ledger.get(id.as_bytes()).map(|entry| entry.place)
    }

    pub fn standing(&self, id: &str) -> Option<(Standing, u32)> {
        dead_letters::standing(&self.ledger, id.as_bytes(), Instant::from_us(self.now))
    }

    pub fn alerts(&self) -> Vec<(&'static str, String)> {
        let alerts = self.ledger.alerts(0, 1_000).0;
        alerts.map(|alert| (alert.kind.text(), String::from_utf8_lossy(&alert.subject).into_owned())).collect()
    }

    pub fn audit(&self) -> Vec<String> {
        let rows = self.ledger.audit(0, 2_000).0;
        rows.map(|row| String::from_utf8_lossy(&row.action).into_owned()).collect()
    }

    pub fn redrive_of(&self, case: u32) -> Option<RedriveView> {
        self.ledger.case(case)?.redrive
    }

    /// What the call `id` got in the last step.
    pub fn reply(&self, id: u64) -> &TakeReply {
        self.replies.iter().find(|reply| reply.id() == id).unwrap_or_else(|| panic!("{id} got no reply"))
    }

    /// `ids` die, a moment before now.
    pub fn dead(&mut self, ids: &[&str]) {
        for id in ids {
            self.dies(&fault(id).finally());
        }
        self.now += MS;
    }
}

pub fn id_of(entry: &GivenEntry) -> String {
    String::from_utf8_lossy(entry.message.id()).into_owned()
}
