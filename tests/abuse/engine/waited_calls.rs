//! Calls of RES.LOCK, RES.BULKHEAD, RES.IDEMP and RES.SFLIGHT by chance (those of RES.DLQ are in `ledger_calls`, those of RES.GUARD in `guard_calls`), by few owners, so that they meet.

use resil_core::limits::FENCE_MAX;

use super::asked::Asked;
use super::generator::{Call, DAY_US, Generator};
use super::resp::{Reply, Words, words};
use super::waited_asked::WaitedAsk;

/// The longest anybody waits, by the clock that the test drives.
pub const WAIT_MAX_US: i64 = 10_000_000;
const OWNERS: u32 = 8;
const FENCES: usize = 50;

impl Generator {
    /// One of the subcommands. `may_wait`: not for calls whose connection must not be blocked.
    pub(super) fn waited(&mut self, may_wait: bool) -> Call {
        match self.rng.u32(0..32) {
            0..6 => self.lock(may_wait),
            6..10 => self.bulkhead(may_wait),
            10..14 => self.idempotency(may_wait),
            14..19 => self.flight(may_wait),
            19..25 => self.ledger(may_wait),
            25..29 => self.guard(may_wait),
            29 => self.listing(),
            30 => self.ranking(),
            _ => self.call(words(["RES.HEARTBEAT"]), WaitedAsk::Heartbeat),
        }
    }

    /// RES.LIST, mostly a page of a kind, now and then with a cursor that nobody gave.
    fn listing(&mut self) -> Call {
        let (kind, states): (&str, &[&str]) = [
            ("BREAKER", &["closed", "open", "half-open", "forced-open"][..]),
            ("LOCK", &["held", "contended"]),
            ("BULKHEAD", &["free", "full"]),
            ("POLICY", &["live", "deleted"]),
            ("DLQ", &["running", "paused"]),
        ][self.rng.usize(..5)];
        let mut call = vec![self.cased("RES.LIST"), self.cased(kind)];
        if self.rng.u32(0..3) == 0 {
            let state = states[self.rng.usize(..states.len())];
            call.extend([self.cased("STATE"), self.cased(state)]);
        }
        if self.rng.u32(0..3) == 0 {
            let pattern = ["*", "*:1*", "lck:[0-9]", "*a*a*a*b", "[^x]*", "\\"][self.rng.usize(..6)];
            call.extend([self.cased("MATCH"), pattern.as_bytes().to_vec()]);
        }
        if self.rng.bool() {
            let cursor = [1, 7, u64::from(u32::MAX), 1 << 32, (1 << 32) + 3, i64::MAX as u64][self.rng.usize(..6)];
            call.extend([self.cased("CURSOR"), cursor.to_string().into_bytes()]);
        }
        if self.rng.bool() {
            call.extend([self.cased("LIMIT"), self.rng.u32(1..=100).to_string().into_bytes()]);
        }
        self.call(call, WaitedAsk::List)
    }

    fn ranking(&mut self) -> Call {
        let kind = ["DENIED", "WAITING", "HELD"][self.rng.usize(..3)];
        let mut call = vec![self.cased("RES.TOP"), self.cased(kind)];
        if self.rng.bool() {
            call.extend([self.cased("LIMIT"), self.rng.u32(1..=128).to_string().into_bytes()]);
        }
        self.call(call, WaitedAsk::Top)
    }

    /// A call that waits if what it asks for is not to be had.
    pub fn waiting(&mut self) -> Call {
        let (name, kind, subcommand, ask) = match self.rng.u32(0..7) {
            6 => ("RES.GUARD", "pol", "ENTER", WaitedAsk::GuardEnter),
            5 => ("RES.DLQ", "dlq", "TAKE", WaitedAsk::Take),
            0 | 1 => ("RES.LOCK", "lck", "ACQUIRE", WaitedAsk::Acquire),
            2 => ("RES.BULKHEAD", "blk", "ENTER", WaitedAsk::Enter),
            3 => ("RES.IDEMP", "idm", "BEGIN", WaitedAsk::Begin),
            _ => ("RES.SFLIGHT", "sfl", "JOIN", WaitedAsk::Join),
        };
        let mut call = self.on((name, kind), subcommand);
        // Few keys, or nobody would have to wait.
        call[2] = format!("{kind}:{}", self.rng.u32(0..3)).into_bytes();
        call.push(format!("waiter-{}", self.rng.u32(0..30)).into_bytes());
        if kind == "blk" {
            call.push(self.rng.u32(1..4).to_string().into_bytes());
        }
        if kind == "pol" {
            self.push_wait(&mut call);
            return self.call(call, ask);
        }
        call.push(self.lease());
        self.push_wait(&mut call);
        if kind == "blk" {
            call.extend(words(["QUEUE", "100"]));
        }
        if kind == "lck" && self.rng.u32(0..4) == 0 {
            call.push(self.cased("SHARED"));
        }
        self.push_binding(&mut call);
        self.call(call, ask)
    }

    /// Time goes on, further than anybody waits.
    pub fn beyond_all_waits(&mut self) -> Words {
        self.now_us += 2 * WAIT_MAX_US;
        words(["RES._CLOCK", &self.now_us.to_string()])
    }

    /// Keeps the fence of a grant for a later RELEASE, and what is to be worked on for a later COMMIT or PUBLISH.
    pub(super) fn learn_fence(&mut self, call: &Call, reply: &Reply) {
        let Reply::Array(elements) = reply else { return };
        self.learn_given(call, elements);
        self.learn_ticket(call, elements);
        let [Reply::Bulk(verdict), Reply::Integer(fence @ 1..), ..] = elements.as_slice() else { return };
        if self.fences.len() == FENCES {
            self.fences.pop_front();
        }
        self.fences.push_back(*fence);
        // The key and the token stand behind the subcommand, unless a script comes before.
        let begins = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"BEGIN") || word.eq_ignore_ascii_case(b"JOIN");
        if (verdict == b"RUN" || verdict == b"LEAD")
            && let Some(at) = call.words.iter().position(begins)
            && let [key, token, ..] = &call.words[at + 1..]
        {
            if self.works.len() == FENCES {
                self.works.pop_front();
            }
            self.works.push_back((key.clone(), token.clone()));
        }
    }

    /// `COMMIT key token`: of somebody who really works, mostly.
    fn by_worker(&mut self, machine: (&str, &str), subcommand: &str) -> Words {
        let mut call = self.by_owner(machine, subcommand);
        let mine = self.works.iter().rposition(|(key, _)| key.starts_with(machine.1.as_bytes()));
        if let Some((key, token)) = mine.filter(|_| self.rng.u32(0..3) > 0).and_then(|at| self.works.remove(at)) {
            call[2..].clone_from_slice(&[key, token]);
        }
        call
    }

    pub(super) fn call(&mut self, words: Words, ask: WaitedAsk) -> Call {
        Call { words, asked: Asked::Waited(ask) }
    }

    pub(super) fn on(&mut self, (name, kind): (&str, &str), subcommand: &str) -> Words {
        vec![self.cased(name), self.cased(subcommand), self.key(kind)]
    }

    /// The same for one of the owners.
    fn by_owner(&mut self, machine: (&str, &str), subcommand: &str) -> Words {
        let mut call = self.on(machine, subcommand);
        call.push(self.owner());
        call
    }

    fn lock(&mut self, may_wait: bool) -> Call {
        let lock = ("RES.LOCK", "lck");
        match self.rng.u32(0..20) {
            0..9 => {
                let mut call = self.by_owner(lock, "ACQUIRE");
                call.push(self.lease());
                if self.rng.bool() {
                    call.push(self.cased("SHARED"));
                }
                if self.rng.u32(0..4) == 0 {
                    let meta = format!("meta-{}", self.rng.u64(..)).into_bytes();
                    call.extend([self.cased("META"), meta]);
                }
                self.push_waiting(&mut call, may_wait);
                self.call(call, WaitedAsk::Acquire)
            }
            9..11 => self.renewal(lock, true),
            11..16 => {
                let mut call = self.by_owner(lock, "RELEASE");
                self.push_fence(&mut call);
                self.call(call, WaitedAsk::Release)
            }
            16 => {
                let call = self.on(lock, "BREAK");
                self.call(call, WaitedAsk::Number)
            }
            17 => {
                let mut call = self.by_owner(lock, "CHECK");
                self.push_fence(&mut call);
                self.call(call, WaitedAsk::Number)
            }
            _ => self.info(lock),
        }
    }

    fn bulkhead(&mut self, may_wait: bool) -> Call {
        let bulkhead = ("RES.BULKHEAD", "blk");
        match self.rng.u32(0..20) {
            0..11 => {
                let mut call = self.by_owner(bulkhead, "ENTER");
                call.extend([self.rng.u32(1..=6).to_string().into_bytes(), self.lease()]);
                if self.rng.u32(0..3) == 0 {
                    call.extend([self.cased("QUEUE"), self.rng.u32(0..20).to_string().into_bytes()]);
                }
                if self.rng.u32(0..3) == 0 {
                    call.extend([self.cased("PRIORITY"), self.rng.u32(0..10).to_string().into_bytes()]);
                }
                self.push_waiting(&mut call, may_wait);
                self.call(call, WaitedAsk::Enter)
            }
            11..13 => self.renewal(bulkhead, true),
            13..18 => {
                let mut call = self.by_owner(bulkhead, "LEAVE");
                self.push_fence(&mut call);
                self.call(call, WaitedAsk::Release)
            }
            _ => self.info(bulkhead),
        }
    }

    fn idempotency(&mut self, may_wait: bool) -> Call {
        let idempotency = ("RES.IDEMP", "idm");
        match self.rng.u32(0..20) {
            0..7 => {
                let mut call = self.by_owner(idempotency, "BEGIN");
                call.push(self.lease());
                self.push_fingerprint(&mut call);
                if self.rng.u32(0..3) == 0 {
                    call.extend([self.cased("KEEP"), self.kept()]);
                }
                if self.rng.u32(0..3) == 0 {
                    let what = if self.rng.bool() { "RUN" } else { "HOLD" };
                    call.extend([self.cased("ONLAPSE"), self.cased(what)]);
                }
                self.push_waiting(&mut call, may_wait);
                self.call(call, WaitedAsk::Begin)
            }
            7..12 => {
                let mut call = self.by_worker(idempotency, "COMMIT");
                call.extend([self.kept(), self.bytes()]);
                if self.rng.u32(0..4) == 0 {
                    call.push(self.cased("ERROR"));
                }
                self.call(call, WaitedAsk::Commit)
            }
            12..14 => {
                let call = self.by_owner(idempotency, "ABORT");
                self.call(call, WaitedAsk::Abort)
            }
            14 => self.renewal(idempotency, false),
            15 | 16 => {
                let mut call = self.on(idempotency, "ONCE");
                call[2] = format!("idm:{}", self.rng.u32(9..12)).into_bytes();
                call.push(self.kept());
                if self.rng.bool() {
                    call.extend([self.cased("TOKEN"), self.owner()]);
                }
                self.call(call, WaitedAsk::Number)
            }
            17 | 18 => {
                let mut call = self.on(idempotency, "GET");
                self.push_fingerprint(&mut call);
                self.call(call, WaitedAsk::Replay)
            }
            _ => self.info(idempotency),
        }
    }

    fn flight(&mut self, may_wait: bool) -> Call {
        let flight = ("RES.SFLIGHT", "sfl");
        match self.rng.u32(0..21) {
            0..7 => {
                let mut call = self.by_owner(flight, "JOIN");
                call.push(self.lease());
                self.push_name(&mut call);
                self.push_waiting(&mut call, may_wait);
                self.call(call, WaitedAsk::Join)
            }
            7..12 => {
                let mut call = self.by_worker(flight, "PUBLISH");
                call.push(if self.rng.u32(0..4) == 0 { b"0".to_vec() } else { self.kept() });
                if self.push_name(&mut call) && self.rng.bool() {
                    call.extend([self.cased("TAG"), self.tag()]);
                }
                match self.rng.u32(0..4) {
                    0 => call.push(self.cased("EMPTY")),
                    1 => call.extend([self.cased("ERROR"), b"no such table".to_vec()]),
                    _ => {
                        call.extend([self.cased("VALUE"), self.bytes()]);
                        if self.rng.bool() {
                            call.extend([self.cased("STALE"), self.kept()]);
                        }
                    }
                }
                self.call(call, WaitedAsk::Publish)
            }
            12..14 => {
                let mut call = self.by_owner(flight, "ABANDON");
                if self.rng.bool() {
                    call.extend([self.cased("RETRY"), self.kept()]);
                }
                self.call(call, WaitedAsk::Abort)
            }
            14 => self.renewal(flight, false),
            15 | 16 => {
                let mut call = self.on(flight, "INVALIDATE");
                if self.rng.bool() {
                    call.push(self.cased("SOFT"));
                }
                self.push_name(&mut call);
                self.call(call, WaitedAsk::Number)
            }
            17 | 18 => {
                let mut call = self.on(flight, "GET");
                self.push_name(&mut call);
                self.call(call, WaitedAsk::Seen)
            }
            19 if self.rng.bool() => {
                let mut call = self.on(flight, "CLEAR");
                call[2] = self.name();
                if self.rng.bool() {
                    call.extend([self.cased("TAG"), self.tag()]);
                }
                self.call(call, WaitedAsk::Number)
            }
            19 => {
                let mut call = self.on(flight, "SET");
                call.push(self.kept());
                self.push_name(&mut call);
                call.extend([self.cased("VALUE"), self.bytes()]);
                self.call(call, WaitedAsk::Number)
            }
            _ => self.info(flight),
        }
    }

    /// The key of one of few cache names.
    fn name(&mut self) -> Vec<u8> {
        format!("gen:{}", self.rng.u32(0..3)).into_bytes()
    }

    fn tag(&mut self) -> Vec<u8> {
        format!("tag-{}", self.rng.u32(0..5)).into_bytes()
    }

    fn push_name(&mut self, call: &mut Words) -> bool {
        let has_name = self.rng.bool();
        if has_name {
            call.extend([self.cased("UNDER"), self.name()]);
        }
        has_name
    }

    fn renewal(&mut self, machine: (&str, &str), has_fence: bool) -> Call {
        let mut call = self.by_owner(machine, "RENEW");
        call.push(self.lease());
        if has_fence {
            self.push_fence(&mut call);
        }
        if machine.0 == "RES.LOCK" && self.rng.u32(0..3) == 0 {
            // As another server would have given it, a little ahead; now and then far too far.
            let most = if self.rng.u32(0..4) == 0 { 400 * DAY_US } else { 1_000_000 };
            let ahead = self.spread(most);
            let fence = self.now_us.saturating_add(ahead).clamp(1, FENCE_MAX.cast_signed());
            call.extend([self.cased("RAISE"), fence.to_string().into_bytes()]);
        }
        self.push_binding(&mut call);
        self.call(call, WaitedAsk::Renew)
    }

    fn info(&mut self, machine: (&str, &str)) -> Call {
        let call = self.on(machine, "INFO");
        self.call(call, WaitedAsk::Info)
    }

    pub(super) fn push_waiting(&mut self, call: &mut Words, may_wait: bool) {
        if may_wait {
            self.push_wait(call);
        }
        self.push_binding(call);
    }

    pub(super) fn push_wait(&mut self, call: &mut Words) {
        let wait_us = self.spread(WAIT_MAX_US).max(1_000);
        call.extend([self.cased("WAIT"), self.duration(wait_us).into_bytes()]);
    }

    pub(super) fn push_binding(&mut self, call: &mut Words) {
        match (self.rng.u32(0..10), self.rng.choice(&self.others)) {
            (0..2, _) => call.push(self.cased("BOUND")),
            (2, Some(id)) => {
                let id = id.to_string().into_bytes();
                call.extend([self.cased("BOUNDTO"), id]);
            }
            _ => return,
        }
        if self.rng.u32(0..2) == 0 {
            let grace_us = self.spread(WAIT_MAX_US);
            call.extend([self.cased("GRACE"), self.duration(grace_us).into_bytes()]);
        }
    }

    fn push_fence(&mut self, call: &mut Words) {
        if self.rng.u32(0..4) == 0 {
            let at = self.rng.usize(..FENCES);
            let fence = self.fences.get(at).copied().unwrap_or(self.now_us);
            call.extend([self.cased("FENCE"), fence.to_string().into_bytes()]);
        }
    }

    fn push_fingerprint(&mut self, call: &mut Words) {
        if self.rng.u32(0..3) == 0 {
            call.extend([self.cased("FINGERPRINT"), [b"f", b"g"][self.rng.usize(..2)].to_vec()]);
        }
    }

    fn owner(&mut self) -> Vec<u8> {
        format!("owner-{}", self.rng.u32(0..OWNERS)).into_bytes()
    }

    pub(super) fn lease(&mut self) -> Vec<u8> {
        let lease_us = self.spread(DAY_US).max(10_000);
        self.duration(lease_us).into_bytes()
    }

    fn kept(&mut self) -> Vec<u8> {
        let kept_us = self.spread(366 * DAY_US).max(1_000);
        self.duration(kept_us).into_bytes()
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let len = if self.rng.u32(0..50) == 0 { 10_000 } else { self.rng.usize(0..30) };
        (0..len).map(|_| self.rng.u8(..)).collect()
    }
}
