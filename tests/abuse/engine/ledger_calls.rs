//! Calls of RES.DLQ by chance, with few ids and tokens, so that they meet.

use super::generator::{Call, Generator};
use super::resp::{Reply, words};
use super::waited_asked::WaitedAsk;

const DLQ: (&str, &str) = ("RES.DLQ", "dlq");
const IDS: u32 = 30;
const GIVEN: usize = 50;

impl Generator {
    pub(super) fn ledger(&mut self, may_wait: bool) -> Call {
        match self.rng.u32(0..40) {
            0..10 => self.fail(),
            10..12 => {
                let mut call = self.on(DLQ, "PARK");
                call.extend([self.id(), self.cased("AGGREGATE"), b"acc".to_vec(), self.cased("PAYLOAD"), self.bytes()]);
                self.call(call, WaitedAsk::Park)
            }
            12..20 => {
                let mut call = self.on(DLQ, "TAKE");
                call.extend([self.token(), self.lease()]);
                call.extend([self.cased("COUNT"), self.rng.u32(1..20).to_string().into_bytes()]);
                self.push_waiting(&mut call, may_wait);
                self.call(call, WaitedAsk::Take)
            }
            20..27 => {
                let word = if self.rng.u32(0..3) == 0 { "RETURN" } else { "DONE" };
                let mut call = self.on(DLQ, word);
                let (key, id, fence) = self.given();
                call[2] = key;
                call.extend([id, fence]);
                if self.rng.u32(0..3) == 0 {
                    let (_, id, fence) = self.given();
                    call.extend([id, fence]);
                }
                self.call(call, WaitedAsk::Settle)
            }
            27 | 28 => {
                let mut call = self.on(DLQ, "RENEW");
                call.extend([self.token(), self.lease()]);
                self.push_binding(&mut call);
                self.call(call, WaitedAsk::RenewTaken)
            }
            29 => {
                let mut call = self.on(DLQ, "GET");
                call.push(self.id());
                self.call(call, WaitedAsk::Shown)
            }
            30 => {
                let mut call = self.on(DLQ, "INFO");
                call.push(self.cased("CONFIG"));
                self.call(call, WaitedAsk::Shown)
            }
            31 | 32 => {
                let mut call = self.on(DLQ, "INFO");
                let aspect = ["GROUPS", "CASES", "ALERTS", "AUDIT"][self.rng.usize(..4)];
                call.extend(words([aspect, "LIMIT", "20"]));
                self.call(call, WaitedAsk::Listed)
            }
            33 => {
                let mut call = self.on(DLQ, "LIST");
                let filter = [["STATE", "dead"], ["TYPE", "pay"], ["CLASS", "external"]][self.rng.usize(..3)];
                call.extend(words(filter));
                self.call(call, WaitedAsk::Listed)
            }
            _ => self.governance(),
        }
    }

    fn fail(&mut self) -> Call {
        let mut call = self.on(DLQ, "FAIL");
        if self.rng.u32(0..4) == 0 {
            let (key, id, fence) = self.given();
            call[2] = key;
            call.extend([id, self.cased("ERROR"), b"again".to_vec(), self.cased("FENCE"), fence]);
            return self.call(call, WaitedAsk::Fail);
        }
        call.push(self.id());
        let error = format!("error {}", self.rng.u32(0..5)).into_bytes();
        call.extend([self.cased("ERROR"), error, self.cased("TYPE"), b"pay".to_vec()]);
        let payload = if self.rng.u32(0..4) == 0 { self.bytes() } else { b"payload".to_vec() };
        call.extend([self.cased("PAYLOAD"), payload]);
        let more: &[&str] = match self.rng.u32(0..8) {
            0 => &["FINAL"],
            1 => &["NOCOUNT"],
            2 => &["CLASS", "business"],
            3 => &["AFTER", "10s"],
            4 => &["PRIOR", "4"],
            5 => &["AGGREGATE", "acc"],
            6 => &["GROUP", "\u{1}"],
            _ => &[],
        };
        call.extend(words(more.iter().copied()));
        self.call(call, WaitedAsk::Fail)
    }

    fn governance(&mut self) -> Call {
        let case = self.rng.u32(1..4).to_string();
        let id = String::from_utf8(self.id()).expect("an id is text");
        let number = self.rng.u32(0..10);
        let (word, rest, ask): (_, Vec<&str>, _) = match number {
            0 | 1 => {
                let rest = vec!["pay/error <n>", "CATEGORY", "infrastructure", "CAUSE", "c", "FIX", "f"];
                ("DIAGNOSE", rest, WaitedAsk::Number)
            }
            2 | 3 => ("REDRIVE", vec![case.as_str(), "RATE", "100", "10s"], WaitedAsk::Governed),
            4 => ("STOP", vec![case.as_str()], WaitedAsk::Governed),
            5 => ("CLOSE", vec![case.as_str()], WaitedAsk::Governed),
            6 => ("HOLD", vec![id.as_str(), if self.rng.bool() { "ON" } else { "OFF" }], WaitedAsk::Number),
            7 => ("PURGE", vec!["OLDER", "90d"], WaitedAsk::Governed),
            8 => ("SEEN", vec!["1"], WaitedAsk::Number),
            _ => ("CONFIG", vec!["CRASHES", "3", "JITTER", "none"], WaitedAsk::Governed),
        };
        let mut call = self.on(DLQ, word);
        call.extend(words(rest));
        call.extend(words(["ACTOR", "somebody"]));
        self.call(call, ask)
    }

    fn id(&mut self) -> Vec<u8> {
        format!("m{}", self.rng.u32(0..IDS)).into_bytes()
    }

    fn token(&mut self) -> Vec<u8> {
        format!("token-{}", self.rng.u32(0..8)).into_bytes()
    }

    /// A key, an id and the fence it was given out with, mostly.
    fn given(&mut self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        match self.rng.choice(&self.entries) {
            Some((key, id, fence)) => (key.clone(), id.clone(), fence.to_string().into_bytes()),
            None => (self.key("dlq"), self.id(), b"17".to_vec()),
        }
    }

    /// Keeps the entries of a reply to TAKE.
    pub(super) fn learn_given(&mut self, call: &Call, elements: &[Reply]) {
        let at = call.words.iter().position(|word| word.eq_ignore_ascii_case(b"TAKE"));
        let Some(key) = at.and_then(|at| call.words.get(at + 1)) else { return };
        let [Reply::Bulk(_), Reply::Integer(_), Reply::Integer(_), Reply::Array(entries)] = elements else { return };
        for entry in entries {
            let Reply::Array(fields) = entry else { return };
            if let [Reply::Bulk(id), Reply::Integer(fence), ..] = fields.as_slice() {
                if self.entries.len() >= GIVEN {
                    self.entries.remove(0);
                }
                self.entries.push((key.clone(), id.clone(), *fence));
            }
        }
    }
}
