//! Plays a schedule on the machine, on a replica that only gets the edits, and on the model; and compares all three
//! after every step.

use proptest::prelude::*;
use resil_core::circuit_breaker::{
    Batch, Breaker, Caller, Config, Edit, Force, Patch, Permit, Report, Reported, Tally, Transition, WindowKind, admit,
    configure, decode_breaker, decode_edits, encode_breaker, encode_edits, force, report, reset, tally, view,
};
use resil_core::codec::to_vec;
use resil_core::rate_limit::Wait;
use resil_core::{Instant, Span};

use super::model::{Calls, FOR_EVER, Forced, HOUR_US, Model, Moved, Named, Reply, Rules, State, Ticket, Window};
use super::schedule::{Event, Gap, Of, Seq, What};

pub const START_US: i64 = 1_800_000_000_000_000;

/// A permit as both sides know it, and the era it is from: eras change with every transition, also beyond the life of
/// a key.
#[derive(Debug, Clone, Copy)]
struct Given {
    permit: Permit,
    ticket: Ticket,
    era: u64,
}

pub struct Driver {
    pub breaker: Breaker,
    replica: Breaker,
    pub model: Model,
    given: Vec<Given>,
    era: u64,
    pub now_us: i64,
    newest_seq: u64,
    /// What happened, to know that a schedule is worth playing.
    pub seen: Vec<&'static str>,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            breaker: Breaker::default(),
            replica: Breaker::default(),
            model: Model::default(),
            given: Vec::new(),
            era: 0,
            now_us: START_US,
            newest_seq: 0,
            seen: Vec::new(),
        }
    }
}

pub fn patch(named: &Named) -> Patch {
    Patch {
        window: named.window.map(|window| match window {
            Window::Count(size) => WindowKind::Count(size as u32),
            Window::Time(length_us) => WindowKind::Time(Span::from_us(length_us)),
        }),
        rate_pct: named.rate_pct,
        slow: named.slow_us.map(Span::from_us),
        slow_rate_pct: named.slow_rate_pct,
        consecutive: named.consecutive,
        min_calls: named.min_calls,
        open: named.open_us.map(Span::from_us),
        factor_milli: named.factor_milli,
        open_max: named.max_us.map(Span::from_us),
        probes: named.probes,
        successes: named.successes,
        lease: named.lease_us.map(Span::from_us),
        quorum: named.quorum,
        ramp: named.ramp_us.map(Span::from_us),
        idle: named.idle_us.map(Span::from_us),
    }
}

fn rules(config: &Config) -> Rules {
    Rules {
        window: match config.window {
            WindowKind::Count(size) => Window::Count(size as usize),
            WindowKind::Time(length) => Window::Time(length.as_us()),
        },
        rate_pct: config.rate_pct,
        slow_us: config.slow.as_us(),
        slow_rate_pct: config.slow_rate_pct,
        consecutive: config.consecutive,
        min_calls: config.min_calls,
        open_us: config.open.as_us(),
        factor_milli: config.factor_milli,
        max_us: config.open_max.as_us(),
        probes: config.probes,
        successes: config.successes,
        lease_us: config.lease.as_us(),
        quorum: config.quorum,
        ramp_us: config.ramp.as_us(),
        idle_us: config.idle.as_us(),
    }
}

/// Anonymous is 0.
pub fn who(caller: u8) -> Caller {
    if caller == 0 { Caller::default() } else { Caller::named(&[caller]) }
}

pub fn reply(reply: Reply) -> Report {
    match reply {
        Reply::Ok => Report::Ok,
        Reply::Fail => Report::Fail,
        Reply::Ignore => Report::Ignore,
        Reply::Cancel => Report::Cancel,
    }
}

pub fn batch(calls: Calls) -> Batch {
    Batch { ok: calls.ok, failures: calls.failed, slow: calls.slow, run: calls.run }
}

pub fn forced(how: Forced) -> Force {
    match how {
        Forced::Open => Force::Open,
        Forced::Closed => Force::Closed,
        Forced::Disabled => Force::Disabled,
        Forced::Metrics => Force::Metrics,
        Forced::OpenThenProbe => Force::OpenThenProbe,
    }
}

fn wait_us(wait: Wait) -> i64 {
    match wait {
        Wait::For(span) => span.as_us(),
        Wait::Never => FOR_EVER,
    }
}

fn moved(transitions: &[Transition]) -> Vec<Moved> {
    let moved = |moved: &Transition| (moved.previous.text(), moved.new.text(), moved.generation, moved.reason.text());
    transitions.iter().map(moved).collect()
}

/// What a permit's text says is what was given out.
fn through_text(permit: Permit) -> Permit {
    Permit::parse(permit.text().as_bytes()).expect("our own permit")
}

impl Driver {
    pub fn play(&mut self, event: &Event) -> Result<(), TestCaseError> {
        self.advance(event.gap);
        self.collect(event.collected);
        let (before, now) = (self.breaker.clone(), self.now());
        match event.what {
            What::Admit { caller, chance, options } => self.admit(caller, chance, options)?,
            What::Calls { caller, times, reply, took_us } => {
                for _ in 0..times {
                    let given = self.given.len();
                    self.admit(caller, 0, None)?;
                    if self.given.len() > given {
                        self.report(Some(given), reply, took_us)?;
                    }
                }
            }
            What::Report { back, reply, took_us } => {
                let recent = self.given.len().min(if took_us.is_some() { 6 } else { 60 });
                let at = (recent > 0).then(|| self.given.len() - 1 - back.index(recent));
                self.report(at, reply, took_us)?;
            }
            What::ReportForged(number) => self.report_forged(number)?,
            What::Tally { of, caller, seq, calls } => self.tally(of, caller, seq, calls)?,
            What::Force { force, by } => self.force(force, by)?,
            What::Reset => {
                let outcome = reset(&mut self.breaker, now);
                prop_assert_eq!(outcome.verdict, self.model.reset(self.now_us));
                self.settle(&before, &outcome.edits, &outcome.transitions)?;
            }
            What::Config { named, version } => {
                let got = configure(&mut self.breaker, &patch(&named), version, now);
                let wanted = self.model.config(&named, version, self.now_us);
                match got {
                    Ok(outcome) => {
                        prop_assert_eq!(Some(outcome.verdict), wanted);
                        self.settle(&before, &outcome.edits, &outcome.transitions)?;
                    }
                    Err(_) => self.refused(&before, wanted.is_none())?,
                }
            }
        }
        self.holds(event.restart)
    }

    pub fn now(&self) -> Instant {
        Instant::from_us(self.now_us)
    }

    fn advance(&mut self, gap: Gap) {
        let rules = self.model.rules;
        self.now_us += match gap {
            Gap::None => 0,
            Gap::By(us) | Gap::ClockSet(us) => us,
            Gap::Window(parts) => match rules.window {
                Window::Time(length_us) => length_us * parts / 64,
                Window::Count(_) => rules.open_us * parts / 64,
            },
            Gap::To(moment, off_us) => {
                let mut ends = self.moments();
                ends.retain(|end_us| *end_us > self.now_us);
                if ends.is_empty() { 0 } else { (ends[moment.index(ends.len())] + off_us - self.now_us).max(0) }
            }
        };
    }

    /// When something ends.
    fn moments(&self) -> Vec<i64> {
        let Model { rules, state, .. } = &self.model;
        let mut ends = Vec::new();
        match state {
            State::Closed => ends.push(self.model.last_us + rules.max_us),
            State::Open { since_us, length_us } => return vec![since_us + length_us],
            State::HalfOpen { probes, .. } => ends.extend(probes.iter().map(|probe| probe.until_us)),
            State::Ramping { since_us } => {
                ends.extend(
                    [rules.ramp_us / 3, rules.ramp_us / 3 * 2, rules.ramp_us].map(|after_us| since_us + after_us),
                );
            }
            State::Forced { until_us, .. } => ends.extend(until_us.iter()),
        }
        if let Window::Time(length_us) = rules.window {
            ends.push(self.model.last_us + length_us);
        }
        if ends.is_empty() || self.now_us % 8 == 0 {
            ends.push(self.model.busy_until_us() + rules.idle_us);
            ends.extend(self.breaker.gc_at(0).map(Instant::as_us));
        }
        ends
    }

    /// The key goes, if it may.
    fn collect(&mut self, collected: bool) {
        if collected && self.breaker.gc_at(7).is_some_and(|at| at <= self.now()) {
            (self.breaker, self.replica, self.model) = Default::default();
            self.seen.push("collected");
        }
    }

    fn admit(&mut self, caller: u8, chance: u32, options: Option<(Named, Option<u64>)>) -> Result<(), TestCaseError> {
        let before = self.breaker.clone();
        let (now, id) = (self.now(), who(caller));
        let patched = options.map(|(named, version)| (patch(&named), version));
        let offered = patched.as_ref().map(|(patch, version)| (patch, *version));
        let got = admit(&mut self.breaker, id, offered, chance, now);
        let wanted =
            self.model.admit(id.0, options.as_ref().map(|(named, version)| (named, *version)), chance, self.now_us);
        let Ok(outcome) = got else { return self.refused(&before, wanted.is_none()) };
        let Some(wanted) = wanted else { return Err(TestCaseError::fail("contradictory options were taken")) };
        let verdict = outcome.verdict;
        prop_assert_eq!(verdict.permit.is_some(), wanted.ticket.is_some(), "{:?} {:?}", verdict, wanted);
        prop_assert_eq!(wait_us(verdict.retry_after), wanted.wait_us);
        prop_assert_eq!((verdict.state.text(), verdict.generation), (self.model.state.name(), self.model.generation));
        if options.is_none() {
            // STATE says what ADMIT does; the luckiest chance for one that ramps.
            let lucky = admit(&mut before.clone(), id, None, 0, now).expect("no options").verdict;
            let seen = view(&before, now);
            prop_assert_eq!((seen.admits, seen.retry_after), (lucky.permit.is_some(), lucky.retry_after));
        }
        self.settle(&before, &outcome.edits, &outcome.transitions)?;
        match (verdict.permit, wanted.ticket) {
            (Some(permit), Some(ticket)) => {
                prop_assert_eq!(permit.probe.is_some(), ticket.probe.is_some());
                self.given.push(Given { permit: through_text(permit), ticket, era: self.era });
            }
            _ => {
                self.seen.push("denied");
                // Denied: asked again, nothing moves.
                let again = admit(&mut self.breaker.clone(), id, None, chance, now).expect("no options");
                prop_assert_eq!(again.verdict, verdict);
                prop_assert!(again.edits.is_empty() && again.transitions.is_empty());
            }
        }
        Ok(())
    }

    fn report(&mut self, at: Option<usize>, said: Reply, took_us: Option<i64>) -> Result<(), TestCaseError> {
        let before = self.breaker.clone();
        let (now, era) = (self.now(), self.era);
        let given = at.map(|at| self.given[at]);
        let permit = given.map(|given| given.permit);
        let outcome = report(&mut self.breaker, permit, reply(said), took_us.map(Span::from_us), now);
        let why = self.model.report(given.map(|given| given.ticket), said, took_us, self.now_us);
        prop_assert_eq!(outcome.verdict.why.text(), why);
        self.seen.push(why);
        self.settle(&before, &outcome.edits, &outcome.transitions)?;
        self.reported(&outcome.verdict)?;
        if why != "counted" {
            // Whatever happened, time did it; a probe that is freed only frees its place.
            let by_time =
                moved(&outcome.transitions).iter().all(|(.., why)| ["force-ended", "ramp-over"].contains(why));
            prop_assert!(by_time, "{:?}", outcome.transitions);
        }
        if given.is_some_and(|given| given.era != era) {
            prop_assert!(why == "stale", "from an earlier era, but {}", why);
            prop_assert_eq!(&self.breaker, &view(&before, now).breaker);
        }
        if matches!(said, Reply::Ignore | Reply::Cancel) {
            prop_assert_ne!(why, "counted");
        }
        Ok(())
    }

    /// A permit nobody was given: of this generation, but a probe that is not out; or of another one.
    fn report_forged(&mut self, number: u64) -> Result<(), TestCaseError> {
        let before = self.breaker.clone();
        self.model.pass(self.now_us);
        let generation = self.model.generation.wrapping_add(number % 3).wrapping_sub(1);
        let half_open = matches!(self.model.state, State::HalfOpen { .. });
        let probe = number.is_multiple_of(2).then_some(u32::MAX);
        let permit = Permit { generation, issued_us: self.now_us, caller: Caller(number), probe, seal: 0 };
        // Closed permits are not tracked, so one of this generation cannot be distinguished from a real one.
        let permit = (half_open || generation != self.model.generation).then_some(permit);
        let now = self.now();
        let outcome = report(&mut self.breaker, permit, Report::Fail, None, now);
        prop_assert!(["stale", "unknown"].contains(&outcome.verdict.why.text()));
        self.settle(&before, &outcome.edits, &outcome.transitions)
    }

    fn tally(&mut self, of: Of, caller: u8, seq: Seq, calls: Calls) -> Result<(), TestCaseError> {
        let before = self.breaker.clone();
        let (now, id) = (self.now(), who(caller));
        let newest = self.model.sequences.iter().find(|(other, _)| *other == id.0).map_or(0, |(_, seq)| *seq);
        let seq = match seq {
            Seq::Next => self.newest_seq + 1,
            Seq::Again => newest,
            Seq::Older => newest.saturating_sub(1),
        };
        self.newest_seq = self.newest_seq.max(seq);
        let generation = match of {
            Of::Zero => 0,
            Of::Now => self.model.generation,
            Of::Ticket(index) if !self.given.is_empty() => self.given[index.index(self.given.len())].ticket.generation,
            Of::Ticket(_) => 1,
        };
        let batch = batch(calls);
        let reported = Tally { generation, caller: id, seq, batch };
        let outcome = tally(&mut self.breaker, reported, now);
        let why = self.model.tally(generation, id.0, seq, calls, self.now_us);
        prop_assert_eq!(outcome.verdict.why.text(), why);
        self.seen.push(why);
        self.settle(&before, &outcome.edits, &outcome.transitions)?;
        self.reported(&outcome.verdict)?;
        // Said again it counts no second time.
        let again = tally(&mut self.breaker.clone(), reported, now);
        prop_assert_ne!(again.verdict.why.text(), "counted");
        prop_assert!(again.edits.is_empty());
        Ok(())
    }

    fn force(&mut self, force_as: Option<(Forced, Option<i64>)>, by: &'static str) -> Result<(), TestCaseError> {
        let before = self.breaker.clone();
        let length = force_as.and_then(|(_, length_us)| length_us).map(Span::from_us);
        let now = self.now();
        let outcome = force(&mut self.breaker, force_as.map(|(how, _)| forced(how)), length, (by.as_bytes(), b""), now);
        self.model.force(force_as, by, self.now_us);
        prop_assert_eq!(outcome.verdict.text(), self.model.state.name());
        self.settle(&before, &outcome.edits, &outcome.transitions)
    }

    fn refused(&self, before: &Breaker, rightly: bool) -> Result<(), TestCaseError> {
        prop_assert!(rightly, "options that fit were refused");
        prop_assert_eq!(&self.breaker, before, "refused, but something changed");
        Ok(())
    }

    /// The reply to REPORT and TALLY names the state afterwards, and what is left of an open time.
    fn reported(&self, verdict: &Reported) -> Result<(), TestCaseError> {
        let left_us = match self.model.state {
            State::Open { since_us, length_us } => since_us + length_us - self.now_us,
            _ => 0,
        };
        prop_assert_eq!((verdict.state.text(), verdict.generation), (self.model.state.name(), self.model.generation));
        prop_assert_eq!(wait_us(verdict.retry_after), left_us.max(0));
        Ok(())
    }

    /// Every step: the replica has the same, nothing is sent for nothing, and each change of state is reported once.
    fn settle(&mut self, before: &Breaker, edits: &[Edit], transitions: &[Transition]) -> Result<(), TestCaseError> {
        prop_assert_eq!(edits.is_empty(), self.breaker == *before, "{:?}", edits);
        if !edits.is_empty() {
            let sent = decode_edits(&to_vec(|out| encode_edits(edits, out))).expect("our own edits");
            prop_assert_eq!(&sent[..], edits);
            sent.iter().for_each(|edit| self.replica.apply(edit));
        }
        prop_assert_eq!(&self.replica, &self.breaker);
        let reported = moved(transitions);
        prop_assert_eq!(&reported, &self.model.moved);
        let mut at = (before.name().text(), before.generation());
        for (previous, new, generation, reason) in reported {
            prop_assert!(previous == at.0 && new != previous && generation > at.1, "{:?} after {:?}", transitions, at);
            at = (new, generation);
            self.era += 1;
            self.seen.push(reason);
            if (previous, new) == ("forced-open", "half-open") {
                self.seen.push("forced-open to half-open");
            }
        }
        prop_assert_eq!(at.0, self.breaker.name().text());
        if self.breaker.generation() != at.1 {
            // Only RESET of a closed breaker starts a generation without a change of state.
            prop_assert_eq!(self.breaker.name().text(), "closed");
            self.era += 1;
        }
        Ok(())
    }

    /// At any time.
    fn holds(&mut self, restart: bool) -> Result<(), TestCaseError> {
        let (now, now_us) = (self.now(), self.now_us);
        let bytes = to_vec(|out| encode_breaker(&self.breaker, out));
        let loaded = decode_breaker(&bytes);
        prop_assert_eq!(loaded.as_ref(), Ok(&self.breaker));
        if restart {
            self.breaker = loaded.expect("compared above");
            self.replica = self.breaker.clone();
        }
        let (breaker, mut model) = (view(&self.breaker, now).breaker, self.model.clone());
        model.pass(now_us);
        prop_assert_eq!(rules(breaker.config()), model.rules);
        let stored = (breaker.is_configured(), breaker.version(), breaker.generation(), breaker.trips());
        prop_assert_eq!(stored, (model.configured, model.version, model.generation, model.trips));
        let totals = breaker.totals(now);
        let counted = model.counts.totals(model.rules.window, now_us);
        prop_assert_eq!((totals.calls, totals.failures, totals.slow), counted);
        prop_assert_eq!(breaker.failures_in_a_row(now), model.counts.failures_in_a_row());
        prop_assert_eq!(breaker.probes_out(now), model.probes_out(now_us));
        match model.rules.window {
            Window::Count(size) => prop_assert!(totals.calls as usize <= size, "a batch outweighs the window"),
            Window::Time(length_us) => {
                let least = model.counts.calls_younger_than(length_us / 20 * 19, now_us);
                let most = model.counts.calls_younger_than(length_us + 1, now_us);
                prop_assert!((least..=most).contains(&totals.calls), "{} of {}..={}", totals.calls, least, most);
            }
        }
        prop_assert!(breaker.heap_bytes() < 12 * 1024);
        self.is_kept_long_enough()
    }

    /// A key may be collected only after every logical end; never while it holds what does not expire.
    fn is_kept_long_enough(&self) -> Result<(), TestCaseError> {
        let Model { rules, state, lasting, generation, last_us, .. } = &self.model;
        let endless = matches!(state, State::Forced { until_us: None, .. });
        for salt in [0, 1, u64::MAX] {
            let gc_at = self.breaker.gc_at(salt);
            prop_assert_eq!(gc_at.is_none(), *lasting || endless);
            let Some(gc_at) = gc_at else { continue };
            let end_us = match state {
                State::Forced { until_us, .. } => until_us.unwrap_or(0),
                _ => self.model.busy_until_us(),
            };
            prop_assert!(gc_at.as_us() > end_us.max(last_us + rules.idle_us));
            prop_assert!(*generation == 0 || gc_at.as_us() > last_us + HOUR_US);
        }
        Ok(())
    }
}
