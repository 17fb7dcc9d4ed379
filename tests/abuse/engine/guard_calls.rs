//! Calls of RES.POLICY and RES.GUARD by chance, under few policies, so that callers meet.

use super::generator::{Call, Generator};
use super::resp::{Reply, words};
use super::waited_asked::WaitedAsk;

const GUARD: (&str, &str) = ("RES.GUARD", "pol");
const POLICY: (&str, &str) = ("RES.POLICY", "pol");
const TICKETS: usize = 50;

/// Every layer, alone and together.
pub const DOCUMENTS: [&str; 6] = [
    r#"{"timeout":{"attempt":"10s","total":"30s"},"retry":{"maxAttempts":3},"breaker":{"consecutiveFailures":3}}"#,
    r#"{"timeout":{"attempt":"5s"},"sharedBulkhead":{"maxConcurrentCalls":2,"maxQueue":50}}"#,
    r#"{"rateLimit":{"limit":10,"period":"1s"},"retry":{"maxAttempts":5,"budget":{"percent":10,"minPerSecond":1}}}"#,
    r#"{"sharedBulkhead":{"maxConcurrentCalls":4,"maxQueue":4},"breaker":{},"rateLimit":{"limit":1000,"period":"1m"}}"#,
    r#"{"timeout":{"attempt":"1s"}}"#,
    r#"{}"#,
];

impl Generator {
    pub(super) fn guard(&mut self, may_wait: bool) -> Call {
        match self.rng.u32(0..24) {
            0..9 => self.enter(may_wait),
            9..17 => self.exit(),
            17 => {
                let call = self.on(GUARD, "STATE");
                self.call(call, WaitedAsk::Shown)
            }
            18 | 19 => {
                let mut call = self.on(POLICY, "SET");
                call.push(self.document());
                if self.rng.u32(0..4) == 0 {
                    call.extend([self.cased("IF"), self.rng.u32(0..5).to_string().into_bytes()]);
                }
                self.call(call, WaitedAsk::Governed)
            }
            20 => {
                let call = self.on(POLICY, "GET");
                self.call(call, WaitedAsk::Governed)
            }
            21 => {
                let call = self.on(POLICY, "HISTORY");
                self.call(call, WaitedAsk::Governed)
            }
            22 => {
                let mut call = vec![self.cased("RES.POLICY"), self.cased("CHECK")];
                call.push(self.document());
                self.call(call, WaitedAsk::Governed)
            }
            _ => {
                let call = self.on(POLICY, "DELETE");
                self.call(call, WaitedAsk::Governed)
            }
        }
    }

    fn document(&mut self) -> Vec<u8> {
        DOCUMENTS[self.rng.usize(..DOCUMENTS.len())].as_bytes().to_vec()
    }

    fn enter(&mut self, may_wait: bool) -> Call {
        let mut call = self.on(GUARD, "ENTER");
        call.push(format!("call-{}", self.rng.u32(0..20)).into_bytes());
        if self.rng.u32(0..3) == 0 {
            let priority = ["critical", "high", "normal", "low", "background"][self.rng.usize(..5)];
            call.extend([self.cased("PRIORITY"), priority.as_bytes().to_vec()]);
        }
        match self.rng.u32(0..8) {
            0 => call.extend([self.cased("SUBJECT"), self.key("gcr")]),
            1 => call.extend([self.cased("COST"), self.rng.u32(1..5).to_string().into_bytes()]),
            2 => call.extend([self.cased("CALLER"), b"one".to_vec()]),
            3 | 4 if !self.tickets.is_empty() => {
                let (key, ticket) = self.tickets[self.rng.usize(..self.tickets.len())].clone();
                call[2] = key;
                call.extend([self.cased("TICKET"), ticket]);
            }
            _ => {}
        }
        if may_wait {
            self.push_wait(&mut call);
        }
        self.call(call, WaitedAsk::GuardEnter)
    }

    fn exit(&mut self) -> Call {
        let mut call = self.on(GUARD, "EXIT");
        let (key, ticket) = match self.rng.choice(&self.tickets) {
            Some((key, ticket)) => (key.clone(), ticket.clone()),
            None => (self.key("pol"), b"17".to_vec()),
        };
        call[2] = key;
        let outcome = ["OK", "FAIL", "FAIL", "IGNORE", "CANCEL"][self.rng.usize(..5)];
        call.extend([ticket, self.cased(outcome)]);
        let more: &[&str] = match (outcome, self.rng.u32(0..6)) {
            (_, 0) => &["DURATION", "12ms"],
            ("FAIL", 1) => &["AFTER", "2s"],
            ("FAIL", 2) => &["FINAL"],
            (_, 3) => &["CORRELATION", "trace"],
            _ => &[],
        };
        call.extend(words(more.iter().copied()));
        self.call(call, WaitedAsk::GuardExit)
    }

    /// Keeps the ticket of an admission.
    pub(super) fn learn_ticket(&mut self, call: &Call, elements: &[Reply]) {
        let at = call.words.iter().position(|word| word.eq_ignore_ascii_case(b"ENTER"));
        let Some(key) = at.and_then(|at| call.words.get(at + 1)) else { return };
        let [Reply::Bulk(verdict), Reply::Bulk(ticket), ..] = elements else { return };
        if verdict == b"ADMITTED" {
            if self.tickets.len() >= TICKETS {
                self.tickets.remove(0);
            }
            self.tickets.push((key.clone(), ticket.clone()));
        }
    }
}
