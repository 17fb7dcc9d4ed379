//! The contract of RES.BREAKER, written down as naively as it reads. It shares nothing with `resil_core`: it keeps every
//! outcome it ever heard of in this generation and counts them all again whenever it is asked.
//!
//! What is said in quotes stands in the contract; the rest in docs/decisions/0008.

mod counts;
mod rules;

pub use counts::{Calls, Counts};
pub use rules::{Named, Rules, Window};

pub const HOUR_US: i64 = 3_600_000_000;

/// Reported probes that are distinguished from unknown ones.
const REMEMBERED: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    Open,
    Closed,
    Disabled,
    Metrics,
    OpenThenProbe,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Closed,
    Open { since_us: i64, length_us: i64 },
    HalfOpen { successes: u32, probes: Vec<Probe>, reported: Vec<usize> },
    Ramping { since_us: i64 },
    Forced { how: Forced, until_us: Option<i64>, by: &'static str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    pub until_us: i64,
    pub back: bool,
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half-open",
            Self::Ramping { .. } => "ramping",
            Self::Forced { how: Forced::Open | Forced::OpenThenProbe, .. } => "forced-open",
            Self::Forced { how: Forced::Closed, .. } => "forced-closed",
            Self::Forced { how: Forced::Disabled, .. } => "disabled",
            Self::Forced { how: Forced::Metrics, .. } => "metrics",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Ok,
    Fail,
    Ignore,
    Cancel,
}

/// What ADMIT handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub generation: u64,
    pub issued_us: i64,
    pub caller: u64,
    pub probe: Option<usize>,
}

/// `-1` is for ever; else microseconds.
pub const FOR_EVER: i64 = -1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub ticket: Option<Ticket>,
    pub wait_us: i64,
}

/// `(previous, new, generation, reason)`.
pub type Moved = (&'static str, &'static str, u64, &'static str);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub rules: Rules,
    pub configured: bool,
    pub lasting: bool,
    pub version: u64,
    pub generation: u64,
    pub state: State,
    pub trips: u32,
    closed_since_us: i64,
    pub counts: Counts,
    /// `(caller, newest sequence number)`.
    pub sequences: Vec<(u64, u64)>,
    pub last_us: i64,
    pub moved: Vec<Moved>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            rules: Rules::standard(),
            configured: false,
            lasting: false,
            version: 0,
            generation: 0,
            state: State::Closed,
            trips: 0,
            closed_since_us: 0,
            counts: Counts::default(),
            sequences: Vec::new(),
            last_us: 0,
            moved: Vec::new(),
        }
    }
}

impl Model {
    /// What time alone does.
    pub fn pass(&mut self, now_us: i64) {
        self.moved.clear();
        self.clamp_leases(now_us);
        // "IDLE d: counts and growth are forgotten after it"; "what came with ADMIT goes with the counts".
        if now_us > self.busy_until_us() + self.rules.idle_us {
            self.trips = 0;
            self.sequences.clear();
            self.counts = Counts::default();
            if self.configured && !self.lasting && !matches!(self.state, State::Forced { .. }) {
                (self.rules, self.version, self.configured) = (Rules::standard(), 0, false);
            }
        }
        self.end_by_time(now_us);
    }

    /// "A stored instant further ahead than its own length allows (lease end > now + lease) is clamped."
    fn clamp_leases(&mut self, now_us: i64) {
        let lease_us = self.rules.lease_us;
        if let State::HalfOpen { probes, .. } = &mut self.state {
            probes.iter_mut().for_each(|probe| probe.until_us = probe.until_us.min(now_us + lease_us));
        }
    }

    fn end_by_time(&mut self, now_us: i64) {
        match self.state {
            // "THEN PROBE: a manual trip that ends in half-open instead of closed."
            State::Forced { how: Forced::OpenThenProbe, until_us: Some(until_us), .. } if until_us <= now_us => {
                let half_open = State::HalfOpen { successes: 0, probes: Vec::new(), reported: Vec::new() };
                self.enter(half_open, "force-ended", now_us);
            }
            State::Forced { until_us: Some(until_us), .. } if until_us <= now_us => {
                self.enter(State::Closed, "force-ended", now_us);
            }
            State::Ramping { since_us } if now_us >= since_us + self.rules.ramp_us => {
                self.enter(State::Closed, "ramp-over", now_us);
            }
            _ => {}
        }
    }

    pub fn busy_until_us(&self) -> i64 {
        let end_us = match &self.state {
            State::Closed | State::Forced { .. } => 0,
            State::Open { since_us, length_us } => since_us + length_us,
            State::HalfOpen { probes, .. } => {
                probes.iter().filter(|probe| !probe.back).map(|probe| probe.until_us).max().unwrap_or(0)
            }
            State::Ramping { since_us } => since_us + self.rules.ramp_us,
        };
        end_us.max(self.last_us)
    }

    /// "generation = max(now_us, last + 1) at each transition".
    fn enter(&mut self, state: State, reason: &'static str, now_us: i64) {
        self.generation = (now_us as u64).max(self.generation + 1);
        self.moved.push((self.state.name(), state.name(), self.generation, reason));
        if matches!(state, State::Closed) {
            self.closed_since_us = now_us;
        }
        self.state = state;
        self.last_us = now_us;
        self.counts = Counts::default();
    }

    /// "open time, growing on repeated trips, reset after closed for MAX".
    fn trip(&mut self, reason: &'static str, now_us: i64) {
        let settled = matches!(self.state, State::Closed) && now_us - self.closed_since_us >= self.rules.max_us;
        self.trips = if settled { 1 } else { self.trips + 1 };
        let length_us = self.rules.open_time_us(self.trips);
        self.enter(State::Open { since_us: now_us, length_us }, reason, now_us);
    }

    /// `None` if the options contradict each other.
    pub fn admit(
        &mut self,
        caller: u64,
        options: Option<(&Named, Option<u64>)>,
        chance: u32,
        now_us: i64,
    ) -> Option<Admitted> {
        let before = self.clone();
        self.pass(now_us);
        if let Some((named, version)) = options {
            // "Options on ADMIT apply to a key without configuration, or with a VERSION above the stored one."
            if !self.configured || version.is_some_and(|version| version > self.version) {
                let Some(rules) = self.rules.with(named) else {
                    *self = before;
                    return None;
                };
                self.configure(rules, version.unwrap_or(self.version), now_us);
            } else if Rules::standard().with(named).is_none() && self.rules.with(named).is_none() {
                *self = before;
                return None;
            }
        }
        // "open -> half-open by the first ADMIT after the time."
        if let State::Open { since_us, length_us } = self.state
            && now_us >= since_us + length_us
        {
            let half_open = State::HalfOpen { successes: 0, probes: Vec::new(), reported: Vec::new() };
            self.enter(half_open, "open-time-over", now_us);
        }
        Some(self.decide(caller, chance, now_us))
    }

    fn decide(&mut self, caller: u64, chance: u32, now_us: i64) -> Admitted {
        let generation = self.generation;
        let ticket =
            |probe| Admitted { ticket: Some(Ticket { generation, issued_us: now_us, caller, probe }), wait_us: 0 };
        let denied = |wait_us| Admitted { ticket: None, wait_us };
        let rules = self.rules;
        match &mut self.state {
            State::Open { since_us, length_us } => denied(*since_us + *length_us - now_us),
            State::Forced { how: Forced::Open | Forced::OpenThenProbe, until_us, .. } => {
                denied(until_us.map_or(FOR_EVER, |end| end - now_us))
            }
            State::Closed | State::Forced { .. } => ticket(None),
            State::HalfOpen { probes, .. } => {
                let out: Vec<i64> = out(probes, now_us).collect();
                if out.len() >= rules.probes as usize {
                    return denied(out.into_iter().min().unwrap_or(now_us) - now_us);
                }
                probes.push(Probe { until_us: now_us + rules.lease_us, back: false });
                self.last_us = now_us;
                ticket(Some(probes.len() - 1))
            }
            // "After half-open admit 10, 25, 50, 100 % over d": a third of it each.
            State::Ramping { since_us } => {
                let third_us = (rules.ramp_us / 3).max(1);
                let stages = [(10, third_us), (25, 2 * third_us), (50, rules.ramp_us)];
                let elapsed_us = now_us - *since_us;
                let (share, end_us) = *stages.iter().find(|(_, end_us)| elapsed_us < *end_us).unwrap_or(&stages[2]);
                if chance < share { ticket(None) } else { denied((*since_us + end_us - now_us).max(0)) }
            }
        }
    }

    pub fn report(&mut self, ticket: Option<Ticket>, reply: Reply, took_us: Option<i64>, now_us: i64) -> &'static str {
        self.pass(now_us);
        let Some(ticket) = ticket else { return "unknown" };
        let from_an_earlier_life = ticket.generation == 0 && now_us - ticket.issued_us > HOUR_US;
        if ticket.generation != self.generation || from_an_earlier_life {
            return "stale";
        }
        let slow = self.rules.slow_us > 0 && took_us.is_some_and(|took_us| took_us >= self.rules.slow_us);
        // A slow probe has not shown that the dependency is well.
        let bad = reply == Reply::Fail || slow && self.rules.slow_rate_pct > 0;
        let counts = matches!(reply, Reply::Ok | Reply::Fail);
        let failed = (reply == Reply::Fail) as u32;
        let calls = Calls { ok: 1 - failed, failed, slow: slow as u32, run: failed };
        match &mut self.state {
            State::HalfOpen { successes, probes, reported } => {
                let Some(number) = ticket.probe else { return "unknown" };
                let probe = &mut probes[number];
                if probe.back || probe.until_us <= now_us {
                    return if reported.contains(&number) { "duplicate" } else { "unknown" };
                }
                if counts && bad {
                    self.trip("probe-failed", now_us);
                    return "counted";
                }
                probe.back = true;
                reported.push(number);
                if reported.len() > REMEMBERED {
                    reported.remove(0);
                }
                self.last_us = now_us;
                // "IGNORE and CANCEL free the permit and count neither way."
                if !counts {
                    return "ignored";
                }
                *successes += 1;
                if *successes >= self.rules.successes {
                    let next = if self.rules.ramp_us > 0 { State::Ramping { since_us: now_us } } else { State::Closed };
                    self.enter(next, "probes-succeeded", now_us);
                }
                "counted"
            }
            _ if !counts => "ignored",
            State::Ramping { .. } if bad => {
                self.trip("ramp-failed", now_us);
                "counted"
            }
            State::Forced { how: Forced::Disabled, .. } => "ignored",
            State::Open { .. } | State::Forced { how: Forced::Open | Forced::OpenThenProbe, .. } => "unknown",
            State::Closed | State::Ramping { .. } | State::Forced { .. } => {
                self.hear(ticket.caller, calls, now_us);
                "counted"
            }
        }
    }

    pub fn tally(&mut self, generation: u64, caller: u64, seq: u64, calls: Calls, now_us: i64) -> &'static str {
        self.pass(now_us);
        // "A repeated seq of a caller is answered again and not counted"; an older one is taken for repeated.
        let known = self.sequences.iter().position(|(other, _)| *other == caller);
        if known.is_some_and(|index| self.sequences[index].1 >= seq) {
            return "duplicate";
        }
        // "Generation 0 or the current one counts."
        if generation != 0 && generation != self.generation {
            return "stale";
        }
        match self.state {
            State::Closed | State::Forced { how: Forced::Closed | Forced::Metrics, .. } => {}
            State::Forced { how: Forced::Disabled, .. } => return "ignored",
            _ => return "stale",
        }
        if calls.ok + calls.failed == 0 {
            return "ignored";
        }
        known.map(|index| self.sequences.remove(index));
        self.sequences.push((caller, seq));
        self.hear(caller, calls, now_us);
        "counted"
    }

    fn hear(&mut self, caller: u64, calls: Calls, now_us: i64) {
        let evidence = self.rules.quorum > 1 && (calls.failed > 0 || calls.slow > 0 && self.rules.slow_trips());
        self.counts.hear(now_us, caller, calls, evidence);
        self.last_us = now_us;
        if matches!(self.state, State::Closed)
            && let Some(reason) = self.threshold(now_us)
        {
            self.trip(reason, now_us);
        }
    }

    /// "closed -> open when a threshold is met."
    fn threshold(&self, now_us: i64) -> Option<&'static str> {
        let rules = &self.rules;
        let (calls, failed, slow) = self.counts.totals(rules.window, now_us);
        let least = match rules.window {
            Window::Count(size) => rules.min_calls.min(size as u32),
            Window::Time(_) => rules.min_calls,
        };
        let reached = |part: u32, pct: u32| pct > 0 && calls >= least && part as u64 * 100 >= pct as u64 * calls as u64;
        let reason = if rules.consecutive > 0 && self.counts.failures_in_a_row() >= rules.consecutive {
            "consecutive-failures"
        } else if reached(failed, rules.rate_pct) {
            "failure-rate"
        } else if rules.slow_us > 0 && reached(slow, rules.slow_rate_pct) {
            "slow-rate"
        } else {
            return None;
        };
        (rules.quorum == 1 || self.counts.accusers(rules.window, now_us) >= rules.quorum as usize).then_some(reason)
    }

    pub fn probes_out(&self, now_us: i64) -> usize {
        match &self.state {
            State::HalfOpen { probes, .. } => out(probes, now_us).count(),
            _ => 0,
        }
    }

    pub fn force(&mut self, force: Option<(Forced, Option<i64>)>, by: &'static str, now_us: i64) {
        self.pass(now_us);
        match (force, &self.state) {
            (None, State::Forced { .. }) => self.enter(State::Closed, "force-lifted", now_us),
            (None, _) => {}
            (Some((how, length_us)), state) => {
                let how = if length_us.is_none() && how == Forced::OpenThenProbe { Forced::Open } else { how };
                let forced = State::Forced { how, until_us: length_us.map(|length_us| now_us + length_us), by };
                let again = state.name() == forced.name();
                if *state == forced {
                    return;
                }
                if again {
                    self.state = forced;
                    self.last_us = now_us;
                } else {
                    self.enter(forced, "forced", now_us);
                }
            }
        }
    }

    pub fn reset(&mut self, now_us: i64) -> bool {
        self.pass(now_us);
        let anything = self.generation > 0 || !self.counts.is_empty();
        if anything {
            self.trips = 0;
            self.enter(State::Closed, "reset", now_us);
            self.moved.retain(|(previous, new, ..)| previous != new);
        }
        anything
    }

    /// "CONFIG always wins and changes only what it names"; `None` if the options contradict each other.
    pub fn config(&mut self, named: &Named, version: Option<u64>, now_us: i64) -> Option<bool> {
        let before = self.clone();
        self.pass(now_us);
        let Some(rules) = self.rules.with(named) else {
            *self = before;
            return None;
        };
        let version = version.unwrap_or(self.version);
        let changed = !self.lasting || rules != self.rules || version != self.version;
        if changed {
            self.lasting = true;
            self.configure(rules, version, now_us);
        }
        Some(changed)
    }

    fn configure(&mut self, rules: Rules, version: u64, now_us: i64) {
        if rules.window != self.rules.window {
            self.counts.empty_window();
        }
        if rules.quorum == 1 {
            self.counts.drop_evidence();
        }
        (self.rules, self.version, self.configured, self.last_us) = (rules, version, true, now_us);
        self.clamp_leases(now_us);
        self.end_by_time(now_us);
    }
}

fn out(probes: &[Probe], now_us: i64) -> impl Iterator<Item = i64> + '_ {
    probes.iter().filter(move |probe| !probe.back && probe.until_us > now_us).map(|probe| probe.until_us)
}
