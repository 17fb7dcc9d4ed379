//! The key of a policy with a driven clock, and a replica that gets its edits as bytes.

use resil_core::circuit_breaker::{Caller, Report};
use resil_core::guard::*;
use resil_core::waited::{Decision, Floor, Machine, Queue, Reply, Setting, Stepped, WaitedKey, Waiting};
use resil_core::{Instant, Span, Stored, codec};

pub type Reported = (u64, Result<Admitted, EnterRefusal>);

pub struct Key {
    pub guard: Guard,
    replica: Guard,
    pub queue: Queue<EnterRequest>,
    floor: Floor,
    pub now: Instant,
    /// What waiters heard, by their ids.
    pub reported: Vec<Reported>,
    next_id: u64,
    is_new: bool,
    timer_at: Option<Instant>,
}

pub const START: Instant = Instant::from_us(1_700_000_000_000_000);

impl Key {
    pub fn new() -> Self {
        Self {
            guard: Guard::default(),
            replica: Guard::default(),
            queue: Queue::default(),
            floor: Floor::default(),
            now: START,
            reported: Vec::new(),
            next_id: 0,
            is_new: true,
            timer_at: None,
        }
    }

    /// Another server has read what was written.
    pub fn restore(&mut self, bytes: &[u8]) {
        self.guard = Guards::decode(bytes).unwrap();
        self.replica = self.guard.clone();
        self.is_new = false;
    }

    pub fn heap_bytes(&self) -> usize {
        Guards::heap_bytes(&self.guard)
    }

    pub fn is_to_be_stepped_now(&self) -> bool {
        self.timer_at.is_some_and(|at| at <= self.now)
    }

    pub fn with(json: &str) -> Self {
        let mut key = Self::new();
        key.set(json);
        key
    }

    /// Takes a step; its edits go to the replica as bytes, and both must be the same afterwards.
    fn step<V>(&mut self, step: impl FnOnce(&mut WaitedKey<'_, Guards>, &mut Setting<'_>) -> Stepped<Guards, V>) -> V {
        let (now, promoted_at, up_since, ageing) = (self.now, None, Instant::EPOCH, Span::ZERO);
        let mut setting = Setting { now, promoted_at, up_since, ageing, floor: &mut self.floor, heard: None };
        let mut key = WaitedKey { state: &mut self.guard, queue: &mut self.queue };
        let outcome = step(&mut key, &mut setting);
        self.timer_at = outcome.timer_at;
        if !outcome.edits.is_empty() {
            if self.is_new {
                self.replica = Guards::decode(&codec::to_vec(|out| Guards::encode(&self.guard, out))).unwrap();
                self.is_new = false;
            } else {
                let bytes = codec::to_vec(|out| Guards::encode_edits(&self.guard, &outcome.edits, out));
                Guards::apply_all(&mut self.replica, Guards::decode_edits(&bytes).unwrap());
            }
        }
        assert_eq!(self.replica, self.guard);
        for reply in outcome.replies {
            match reply {
                Reply::Granted { id, grant, .. } => self.reported.push((id, Ok(grant))),
                Reply::Refused { id, refusal } | Reply::TimedOut { id, refusal } => {
                    self.reported.push((id, Err(refusal)))
                }
                Reply::Superseded { .. } => {}
            }
        }
        outcome.verdict
    }

    pub fn digest(&self) -> Vec<u8> {
        codec::to_vec(|out| Guards::encode(&self.guard, out))
    }

    pub fn later(&mut self, ms: i64) {
        self.now = if ms < 0 { self.now.minus(Span::from_ms(-ms)) } else { self.now.plus(Span::from_ms(ms)) };
    }

    pub fn tick(&mut self) {
        self.step(Guards::tick);
    }

    pub fn set(&mut self, json: &str) -> PolicySet {
        self.set_if(json, None)
    }

    pub fn set_if(&mut self, json: &str, expected: Option<u64>) -> PolicySet {
        let (document, settings) = read_policy(json).unwrap();
        let author = Author { actor: b"ada", reason: b"" };
        self.step(|key, setting| set(key, &document, settings, expected, author, setting))
    }

    pub fn delete(&mut self) -> PolicyDeleted {
        let author = Author { actor: b"ada", reason: b"over" };
        self.step(|key, setting| delete(key, None, author, setting))
    }

    pub fn ask(&mut self, owner: &str, request: EnterRequest, wait: Option<i64>) -> Decision<Admitted, EnterRefusal> {
        self.next_id += 1;
        let waiting = wait.map(|ms| Waiting { id: self.next_id, wait: Span::from_ms(ms), most: 1_000 });
        self.step(|key, setting| enter(key, owner.as_bytes(), request, None, waiting, setting))
    }

    /// The id of the newest call.
    pub fn id(&self) -> u64 {
        self.next_id
    }

    pub fn enter(&mut self, owner: &str) -> Result<Admitted, EnterRefusal> {
        self.enter_as(owner, request())
    }

    pub fn enter_as(&mut self, owner: &str, request: EnterRequest) -> Result<Admitted, EnterRefusal> {
        match self.ask(owner, request, None) {
            Decision::Granted(admitted) => Ok(admitted),
            Decision::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// For the subject of this key, which has no limit.
    pub fn enter_for(&mut self, owner: &str, key: &str) -> Result<Admitted, EnterRefusal> {
        let subject = Some(Subject { name: key.as_bytes(), limit: SubjectLimit::Unlimited });
        match self.step(|key, setting| enter(key, owner.as_bytes(), request(), subject, None, setting)) {
            Decision::Granted(admitted) => Ok(admitted),
            Decision::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub fn retry(&mut self, owner: &str, ticket: u64) -> Result<Admitted, EnterRefusal> {
        self.enter_as(owner, EnterRequest { ticket: Some(ticket), ..request() })
    }

    pub fn exit(&mut self, ticket: u64, report: Report) -> Exited {
        self.exit_as(ticket, ExitRequest { report, ..failed() })
    }

    pub fn exit_as(&mut self, ticket: u64, request: ExitRequest) -> Exited {
        self.step(|key, setting| exit(key, ticket, request, setting))
    }

    pub fn take_back(&mut self, ticket: u64) -> bool {
        self.step(|key, setting| Guards::take_back(key, ticket, setting))
    }

    pub fn view(&self) -> GuardView {
        show(&self.guard, Some(&self.queue), None, self.now).unwrap()
    }
}

pub fn request() -> EnterRequest {
    EnterRequest { cost: 1, priority: Priority::Normal, caller: Caller::default(), ticket: None, random: u64::MAX }
}

pub fn failed() -> ExitRequest {
    ExitRequest { report: Report::Fail, duration: None, after: None, is_final: false, random: 0 }
}

pub fn layer(refused: &Result<Admitted, EnterRefusal>) -> &'static str {
    match refused {
        Err(EnterRefusal::Layer(refusal)) => refusal.layer.text(),
        Err(EnterRefusal::NoPolicy) => "nopolicy",
        Err(EnterRefusal::Ticket) => "ticket",
        Err(EnterRefusal::TooManyTiers) => "tiers",
        Ok(_) => "admitted",
    }
}
