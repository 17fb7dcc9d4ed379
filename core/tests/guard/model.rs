//! An independent model of tickets, places, retries and the budget, as naive as the contract reads: lists, and exact times.

use resil_core::guard::StopReason;

pub const MAX: usize = 2;
pub const ATTEMPTS: u32 = 3;
pub const LEASE_MS: i64 = 2_000;
pub const TOTAL_MS: i64 = 4_000;
pub const TTL_MS: i64 = 1_000;
pub const LEAST: usize = 2;
pub const PERCENT: usize = 50;

pub const POLICY: &str = r#"{"timeout":{"attempt":"1s","total":"4s"},
    "retry":{"maxAttempts":3,"initialBackoff":"100ms","maxBackoff":"10s","backoffMultiplier":2,"jitter":"none",
        "budget":{"ttl":"1s","minPerSecond":2,"percent":50}},
    "sharedBulkhead":{"maxConcurrentCalls":2,"maxQueue":0}}"#;

#[derive(Debug, Clone)]
struct Call {
    /// As the test numbers tickets.
    ticket: usize,
    owner: usize,
    attempt: u32,
    first: i64,
    ends: i64,
    /// It waits for its retry, which it learned like this.
    waits: Option<Said>,
    from: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Done,
    Retry { delay_ms: i64, attempt: u32 },
    Stop(StopReason, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// With this ticket, as this attempt.
    Admitted(usize, u32),
    Full,
    Ticket,
}

#[derive(Debug, Default)]
pub struct Model {
    live: Vec<Call>,
    ends: Vec<(usize, i64, Said)>,
    calls: Vec<i64>,
    retries: Vec<i64>,
    issued: usize,
    pub now: i64,
}

impl Model {
    fn pass(&mut self) {
        let now = self.now;
        self.live.retain(|call| call.ends > now);
    }

    pub fn active(&self) -> usize {
        self.live.iter().filter(|call| call.waits.is_none() && call.ends > self.now).count()
    }

    pub fn waiting(&self) -> usize {
        self.live.iter().filter(|call| call.waits.is_some() && call.ends > self.now).count()
    }

    /// The most that the exact window allows, and what is used of it.
    pub fn budget(&self) -> (usize, usize) {
        let recent = |times: &[i64]| times.iter().filter(|at| **at > self.now - TTL_MS).count();
        (LEAST + recent(&self.calls) * PERCENT / 100, recent(&self.retries) + self.waiting())
    }

    pub fn enter(&mut self, owner: usize, ticket: Option<usize>) -> Entered {
        self.pass();
        if let Some(call) = self.live.iter().find(|call| call.owner == owner && call.waits.is_none()) {
            return if ticket.is_none() || ticket == call.from {
                Entered::Admitted(call.ticket, call.attempt)
            } else {
                Entered::Ticket
            };
        }
        // A retry that would begin when the whole call is over does not begin.
        let may_begin = |call: &Call| call.waits.is_some() && self.now < call.first + TOTAL_MS;
        let before =
            ticket.and_then(|ticket| self.live.iter().position(|call| call.ticket == ticket && may_begin(call)));
        if ticket.is_some() && before.is_none() {
            return Entered::Ticket;
        }
        if self.active() >= MAX {
            return Entered::Full;
        }
        let (attempt, first) = match before {
            Some(at) => {
                let before = self.live.remove(at);
                self.ends.push((before.ticket, self.now, before.waits.unwrap()));
                self.retries.push(self.now);
                (before.attempt + 1, before.first)
            }
            None => {
                self.calls.push(self.now);
                (1, self.now)
            }
        };
        self.issued += 1;
        let ends = self.now + LEASE_MS;
        self.live.push(Call { ticket: self.issued, owner, attempt, first, ends, waits: None, from: ticket });
        Entered::Admitted(self.issued, attempt)
    }

    /// `budget_left` is what the machine says: its slots may keep a retry for longer than the exact window.
    pub fn exit(&mut self, ticket: usize, fails: bool, budget_left: u64) -> Said {
        self.pass();
        let Some(at) = self.live.iter().position(|call| call.ticket == ticket) else {
            let remembered =
                self.ends.iter().rev().take(64).find(|(ended, at, _)| *ended == ticket && at + 60_000 > self.now);
            return remembered.map_or(Said::Stop(StopReason::Unknown, 0), |(_, _, said)| *said);
        };
        if let Some(said) = self.live[at].waits {
            return said;
        }
        let call = self.live[at].clone();
        let delay_ms = 100 << (call.attempt - 1);
        let said = if !fails {
            Said::Done
        } else if call.attempt >= ATTEMPTS {
            Said::Stop(StopReason::Attempts, call.attempt)
        } else if self.now + delay_ms >= call.first + TOTAL_MS {
            Said::Stop(StopReason::Deadline, call.attempt)
        } else if budget_left == 0 {
            Said::Stop(StopReason::Budget, call.attempt)
        } else {
            Said::Retry { delay_ms, attempt: call.attempt + 1 }
        };
        if let Said::Retry { delay_ms, .. } = said {
            let call = &mut self.live[at];
            (call.waits, call.ends) = (Some(said), self.now + delay_ms + LEASE_MS);
        } else {
            self.live.remove(at);
            self.ends.push((ticket, self.now, said));
        }
        said
    }
}
