//! A breaker and a clock, for tests that tell a story.

use resil_core::circuit_breaker::{
    Admission, Batch, Breaker, Caller, Edits, Force, Patch, Permit, Report, Reported, Tally, Transition, admit,
    configure, force, report, reset, tally, view,
};
use resil_core::{Instant, Span};

use super::driver::START_US;
use super::schedule::SECOND_US;

#[derive(Debug, Clone)]
pub struct Service {
    pub breaker: Breaker,
    pub now_us: i64,
    /// Of the last step.
    pub edits: Edits,
    pub reported: Vec<Transition>,
}

pub fn secs(seconds: i64) -> Span {
    Span::from_secs(seconds)
}

impl Service {
    pub fn new() -> Self {
        Self { breaker: Breaker::default(), now_us: START_US, edits: Edits::new(), reported: Vec::new() }
    }

    /// Configured by CONFIG.
    pub fn with(patch: Patch) -> Self {
        let mut service = Self::new();
        service.config(patch);
        service
    }

    /// One that trips by two failures in a row, is open for ten seconds, and closes by two of two probes, each leased
    /// for five seconds.
    pub fn usual() -> Self {
        Self::with(usual())
    }

    /// The usual one, just open.
    pub fn open() -> Self {
        let mut service = Self::usual();
        service.trip();
        service
    }

    /// The usual one, at the moment at which the next ADMIT makes it half-open.
    pub fn about_to_probe() -> Self {
        let mut service = Self::open();
        service.later(10 * SECOND_US);
        service
    }

    pub fn now(&self) -> Instant {
        Instant::from_us(self.now_us)
    }

    pub fn later(&mut self, us: i64) -> &mut Self {
        self.now_us += us;
        self
    }

    pub fn config(&mut self, patch: Patch) -> bool {
        let now = self.now();
        let outcome = configure(&mut self.breaker, &patch, None, now).expect("a configuration");
        (self.edits, self.reported) = (outcome.edits, outcome.transitions.to_vec());
        outcome.verdict
    }

    pub fn ask(&mut self) -> Admission {
        self.ask_as("", None)
    }

    pub fn ask_as(&mut self, caller: &str, options: Option<(&Patch, Option<u64>)>) -> Admission {
        self.ask_with_chance(caller, options, 0)
    }

    pub fn ask_with_chance(&mut self, caller: &str, options: Option<(&Patch, Option<u64>)>, chance: u32) -> Admission {
        let now = self.now();
        let outcome = admit(&mut self.breaker, named(caller), options, chance, now).expect("options that fit");
        (self.edits, self.reported) = (outcome.edits, outcome.transitions.to_vec());
        outcome.verdict
    }

    /// Admitted, or the test fails.
    #[track_caller]
    pub fn permit(&mut self) -> Permit {
        self.permit_as("")
    }

    #[track_caller]
    pub fn permit_as(&mut self, caller: &str) -> Permit {
        let asked = self.ask_as(caller, None);
        asked.permit.unwrap_or_else(|| panic!("denied: {asked:?}"))
    }

    pub fn report(&mut self, permit: Permit, said: Report) -> Reported {
        self.report_after(permit, said, None)
    }

    pub fn report_after(&mut self, permit: Permit, said: Report, took: Option<Span>) -> Reported {
        let now = self.now();
        let outcome = report(&mut self.breaker, Some(permit), said, took, now);
        (self.edits, self.reported) = (outcome.edits, outcome.transitions.to_vec());
        outcome.verdict
    }

    pub fn call(&mut self, said: Report) -> Reported {
        self.call_as("", said)
    }

    #[track_caller]
    pub fn call_as(&mut self, caller: &str, said: Report) -> Reported {
        let permit = self.permit_as(caller);
        self.report(permit, said)
    }

    pub fn calls(&mut self, times: usize, said: Report) {
        for _ in 0..times {
            self.call(said);
        }
    }

    #[track_caller]
    pub fn trip(&mut self) {
        for _ in 0..10_000 {
            if self.state() == "open" {
                return;
            }
            self.call(Report::Fail);
        }
        panic!("it did not trip");
    }

    pub fn tally(&mut self, caller: &str, seq: u64, batch: Batch) -> Reported {
        self.tally_of(0, caller, seq, batch)
    }

    pub fn tally_of(&mut self, generation: u64, caller: &str, seq: u64, batch: Batch) -> Reported {
        let now = self.now();
        let outcome = tally(&mut self.breaker, Tally { generation, caller: named(caller), seq, batch }, now);
        (self.edits, self.reported) = (outcome.edits, outcome.transitions.to_vec());
        outcome.verdict
    }

    pub fn force(&mut self, how: Option<Force>, length: Option<Span>) -> &'static str {
        let now = self.now();
        let outcome = force(&mut self.breaker, how, length, (b"ann", b"drill"), now);
        (self.edits, self.reported) = (outcome.edits, outcome.transitions.to_vec());
        outcome.verdict.text()
    }

    pub fn reset(&mut self) -> bool {
        let now = self.now();
        let outcome = reset(&mut self.breaker, now);
        (self.edits, self.reported) = (outcome.edits, outcome.transitions.to_vec());
        outcome.verdict
    }

    /// What STATE says.
    pub fn state(&self) -> &'static str {
        view(&self.breaker, self.now()).breaker.name().text()
    }

    /// `(calls, failures)` in the window.
    pub fn counted(&self) -> (u32, u32) {
        let totals = view(&self.breaker, self.now()).breaker.totals(self.now());
        (totals.calls, totals.failures)
    }

    pub fn probes_out(&self) -> usize {
        self.breaker.probes_out(self.now())
    }

    /// The key goes if the server may collect it.
    pub fn collect(&mut self) -> bool {
        let gone = self.breaker.gc_at(0).is_some_and(|at| at <= self.now());
        if gone {
            self.breaker = Breaker::default();
        }
        gone
    }

    /// The reasons of the last step's transitions.
    pub fn reasons(&self) -> Vec<&'static str> {
        self.reported.iter().map(|moved| moved.reason.text()).collect()
    }
}

pub fn usual() -> Patch {
    Patch {
        consecutive: Some(2),
        open: Some(secs(10)),
        probes: Some(2),
        successes: Some(2),
        lease: Some(secs(5)),
        ..Patch::default()
    }
}

fn named(caller: &str) -> Caller {
    if caller.is_empty() { Caller::default() } else { Caller::named(caller.as_bytes()) }
}

pub fn failures(failures: u32) -> Batch {
    Batch { ok: 0, failures, slow: 0, run: failures }
}
