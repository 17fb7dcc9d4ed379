//! The edits a step makes, and the one function that makes them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use smallvec::SmallVec;

use super::config::{Config, bounds};
use super::outcomes::{Batch, Outcomes};
use super::permit::Caller;
use super::state::{Breaker, EVIDENCE_MAX, Forced, Phase, Probe, RECORDED_MAX, REPORTED_MAX, TALLIES_MAX};
use crate::time::Instant;

/// One change of a breaker, with absolute values. What is large and seldom is boxed: most steps make one small edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Counts and growth are forgotten after IDLE, and with them a configuration that came with ADMIT.
    Forget,
    Configure {
        config: Box<Config>,
        version: u64,
        lasting: bool,
        at_us: i64,
    },
    /// Outcomes of a caller, at an instant.
    Record {
        at_us: i64,
        caller: Caller,
        batch: Batch,
    },
    /// The newest batch of a caller.
    Heard {
        caller: Caller,
        seq: u64,
    },
    /// A transition. Counts start over, unless a forced state is only forced again; `trips` is the number in a row
    /// after it.
    Enter {
        phase: Box<Phase>,
        generation: u64,
        at_us: i64,
        trips: u32,
    },
    /// A probe goes out; those whose lease ended by then are dropped.
    ProbeOut {
        number: u32,
        at_us: i64,
        until_us: i64,
    },
    /// A probe comes back, as a success or without counting.
    ProbeBack {
        number: u32,
        at_us: i64,
        succeeded: bool,
    },
    /// The clock was set back to `now_us`: nothing began after it, no probe is out beyond `probe_until_us`.
    Mend {
        now_us: i64,
        probe_until_us: i64,
    },
}

/// TALLY makes two.
pub type Edits = SmallVec<[Edit; 2]>;

impl Breaker {
    /// The only mutation.
    pub fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Forget => self.forget(),
            Edit::Configure { config, version, lasting, at_us } => {
                self.configure(**config, *version, *lasting);
                self.last_seen_us = self.last_seen_us.max(*at_us);
            }
            Edit::Record { at_us, caller, batch } => self.record(*at_us, *caller, *batch),
            Edit::Heard { caller, seq } => self.heard(*caller, *seq),
            Edit::Enter { phase, generation, at_us, trips } => {
                let same = |old: &Forced, new: &Forced| old.force.state() == new.force.state();
                if !matches!((&self.phase, &**phase), (Phase::Forced(old), Phase::Forced(new)) if same(old, new)) {
                    self.clear_counts();
                }
                if matches!(**phase, Phase::Closed) {
                    self.closed_us = *at_us;
                }
                self.phase = (**phase).clone();
                self.generation = *generation;
                self.trips = *trips;
                self.last_seen_us = self.last_seen_us.max(*at_us);
            }
            Edit::ProbeOut { number, at_us, until_us } => {
                if let Phase::HalfOpen { issued, probes, .. } = &mut self.phase {
                    probes.retain(|probe| probe.until_us > *at_us);
                    push_bounded(
                        probes,
                        Probe { number: *number, until_us: *until_us },
                        *bounds::PROBES.end() as usize,
                    );
                    *issued = (*issued).max(*number);
                }
                self.last_seen_us = *at_us;
            }
            Edit::ProbeBack { number, at_us, succeeded } => {
                if let Phase::HalfOpen { successes, probes, reported, .. } = &mut self.phase {
                    probes.retain(|probe| probe.number != *number);
                    push_bounded(reported, *number, REPORTED_MAX);
                    *successes = successes.saturating_add(*succeeded as u32);
                }
                self.last_seen_us = *at_us;
            }
            Edit::Mend { now_us, probe_until_us } => self.mend(*now_us, *probe_until_us),
        }
    }

    fn mend(&mut self, now_us: i64, probe_until_us: i64) {
        self.last_seen_us = self.last_seen_us.min(now_us);
        self.closed_us = self.closed_us.min(now_us);
        self.outcomes.mend(Instant::from_us(now_us));
        if matches!(self.outcomes, Outcomes::Time(_)) {
            self.evidence.iter_mut().for_each(|(_, at_us)| *at_us = (*at_us).min(now_us));
        }
        match &mut self.phase {
            Phase::Open { opened_us, .. } => *opened_us = (*opened_us).min(now_us),
            Phase::Ramping { since_us } => *since_us = (*since_us).min(now_us),
            Phase::HalfOpen { probes, .. } => {
                probes.iter_mut().for_each(|probe| probe.until_us = probe.until_us.min(probe_until_us));
            }
            Phase::Forced(forced) => {
                let ahead_us = (forced.since_us - now_us).max(0);
                forced.since_us -= ahead_us;
                forced.until_us = forced.until_us.map(|until_us| (until_us - ahead_us).max(0));
            }
            Phase::Closed => {}
        }
    }

    fn clear_counts(&mut self) {
        self.failures_in_a_row = 0;
        self.outcomes = Outcomes::new(self.config.window);
        self.recorded = 0;
        self.evidence.clear();
    }

    fn forget(&mut self) {
        if self.forgets_config() {
            (self.config, self.version, self.configured) = (Config::default(), 0, false);
        }
        self.clear_counts();
        self.trips = 0;
        self.tallies.clear();
    }

    fn configure(&mut self, config: Config, version: u64, lasting: bool) {
        self.config = config;
        self.version = version;
        self.configured = true;
        self.lasting = lasting;
        if !self.outcomes.is(config.window) {
            self.outcomes = Outcomes::new(config.window);
            self.recorded = 0;
            self.evidence.clear();
        }
        if config.quorum == 1 {
            self.evidence.clear();
        }
    }

    fn record(&mut self, at_us: i64, caller: Caller, batch: Batch) {
        self.outcomes.record(batch, Instant::from_us(at_us));
        let calls = match &self.outcomes {
            Outcomes::Count(ring) => batch.calls().min(ring.capacity()),
            Outcomes::Time(_) => batch.calls(),
        };
        self.recorded = (self.recorded + calls as u64).min(RECORDED_MAX);
        let all_failed = batch.ok == 0;
        let before = if all_failed { self.failures_in_a_row } else { 0 };
        self.failures_in_a_row = before.saturating_add(batch.run);
        let slow_can_trip = !self.config.slow.is_zero() && self.config.slow_rate_pct > 0;
        let is_evidence = batch.failures > 0 || (batch.slow > 0 && slow_can_trip);
        if is_evidence && self.config.quorum > 1 && caller != Caller::UNVERIFIED {
            let mark = match self.outcomes {
                Outcomes::Count(_) => self.recorded as i64,
                Outcomes::Time(_) => at_us,
            };
            self.evidence.retain(|(other, _)| *other != caller);
            push_bounded(&mut self.evidence, (caller, mark), EVIDENCE_MAX);
        }
        self.last_seen_us = at_us;
    }

    fn heard(&mut self, caller: Caller, seq: u64) {
        match self.tallies.iter().position(|(other, _)| *other == caller) {
            Some(at) => {
                self.tallies[at].1 = seq;
                self.tallies[at..].rotate_left(1);
            }
            None => push_bounded(&mut self.tallies, (caller, seq), TALLIES_MAX),
        }
    }
}

/// The newest last; the oldest makes room.
fn push_bounded<T>(list: &mut Vec<T>, item: T, max: usize) {
    if list.len() >= max {
        list.remove(0);
    }
    list.push(item);
}
