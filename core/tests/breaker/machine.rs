//! The machine alone, with its replica, for schedules whose clock is set back and forth: there the model has no say, but
//! promises hold.

use proptest::prelude::*;
use resil_core::circuit_breaker::{
    Breaker, Edits, Permit, Phase, Tally, Transition, WindowKind, admit, configure, decode_breaker, decode_edits,
    encode_breaker, encode_edits, force, report, reset, tally, view,
};
use resil_core::codec::to_vec;
use resil_core::rate_limit::Wait;
use resil_core::{Instant, Span};

use super::driver::{START_US, batch, forced, patch, reply, who};
use super::model::{HOUR_US, Named, Reply};
use super::schedule::{Event, Gap, Of, SECOND_US, Seq, What};

pub struct Machine {
    pub breaker: Breaker,
    replica: Breaker,
    given: Vec<Permit>,
    newest_seq: u64,
    pub now_us: i64,
}

impl Default for Machine {
    fn default() -> Self {
        Self::of(Breaker::default(), START_US)
    }
}

impl Machine {
    pub fn of(breaker: Breaker, now_us: i64) -> Self {
        Self { replica: breaker.clone(), breaker, given: Vec::new(), newest_seq: 0, now_us }
    }

    pub fn now(&self) -> Instant {
        Instant::from_us(self.now_us)
    }

    /// The edits it made.
    pub fn play(&mut self, event: &Event) -> Result<Edits, TestCaseError> {
        self.advance(event.gap);
        let before = self.breaker.clone();
        let now = self.now();
        let edits = match event.what {
            What::Admit { caller, chance, options } => self.admit(caller, chance, options)?,
            What::Calls { caller, times, reply, took_us } => {
                let mut edits = Edits::new();
                for _ in 0..times {
                    let given = self.given.len();
                    edits = self.admit(caller, 0, None)?;
                    if let Some(permit) = self.given.get(given) {
                        edits = self.report(Some(*permit), reply, took_us)?;
                    }
                }
                edits
            }
            What::Report { back, reply, took_us } => {
                let recent = self.given.len().min(if took_us.is_some() { 6 } else { 60 });
                let permit = (recent > 0).then(|| self.given[self.given.len() - 1 - back.index(recent)]);
                self.report(permit, reply, took_us)?
            }
            What::ReportForged(number) => {
                let generation = self.breaker.generation().wrapping_add(number % 3).wrapping_sub(1);
                let permit = Permit {
                    generation,
                    issued_us: number as i64,
                    caller: who(1),
                    probe: Some(number as u32),
                    seal: 0,
                };
                let outcome = report(&mut self.breaker, Some(permit), reply_of(number), None, now);
                self.settle(&before, outcome.edits, &outcome.transitions)?
            }
            What::Tally { of, caller, seq, calls } => {
                let seq = match seq {
                    Seq::Next => self.newest_seq + 1,
                    Seq::Again => self.newest_seq,
                    Seq::Older => self.newest_seq.saturating_sub(1),
                };
                self.newest_seq = self.newest_seq.max(seq);
                let generation = if matches!(of, Of::Now) { self.breaker.generation() } else { 0 };
                let reported = Tally { generation, caller: who(caller), seq, batch: batch(calls) };
                let outcome = tally(&mut self.breaker, reported, now);
                self.settle(&before, outcome.edits, &outcome.transitions)?
            }
            What::Force { force: how, by } => {
                let length = how.and_then(|(_, length_us)| length_us).map(Span::from_us);
                let how = how.map(|(how, _)| forced(how));
                let outcome = force(&mut self.breaker, how, length, (by.as_bytes(), b"why"), now);
                self.settle(&before, outcome.edits, &outcome.transitions)?
            }
            What::Reset => {
                let outcome = reset(&mut self.breaker, now);
                self.settle(&before, outcome.edits, &outcome.transitions)?
            }
            What::Config { named, version } => {
                let Ok(outcome) = configure(&mut self.breaker, &patch(&named), version, now) else {
                    return Ok(Edits::new());
                };
                self.settle(&before, outcome.edits, &outcome.transitions)?
            }
        };
        let bytes = to_vec(|out| encode_breaker(&self.breaker, out));
        let loaded = decode_breaker(&bytes);
        prop_assert_eq!(loaded.as_ref(), Ok(&self.breaker));
        Ok(edits)
    }

    fn admit(
        &mut self,
        caller: u8,
        chance: u32,
        options: Option<(Named, Option<u64>)>,
    ) -> Result<Edits, TestCaseError> {
        let (before, now) = (self.breaker.clone(), self.now());
        let patched = options.map(|(named, version)| (patch(&named), version));
        let offered = patched.as_ref().map(|(patch, version)| (patch, *version));
        let Ok(outcome) = admit(&mut self.breaker, who(caller), offered, chance, now) else { return Ok(Edits::new()) };
        if let Some(permit) = outcome.verdict.permit {
            // Neither out nor remembered are there more.
            if let Phase::HalfOpen { probes, .. } = self.breaker.phase() {
                let most = self.breaker.config().probes as usize;
                prop_assert!(self.breaker.probes_out(now) <= most && probes.len() <= most);
            }
            self.given.push(permit);
        }
        self.settle(&before, outcome.edits, &outcome.transitions)
    }

    fn report(&mut self, permit: Option<Permit>, said: Reply, took_us: Option<i64>) -> Result<Edits, TestCaseError> {
        let (before, now) = (self.breaker.clone(), self.now());
        let outcome = report(&mut self.breaker, permit, reply(said), took_us.map(Span::from_us), now);
        self.settle(&before, outcome.edits, &outcome.transitions)
    }

    fn advance(&mut self, gap: Gap) {
        let config = self.breaker.config();
        let us = match gap {
            Gap::None => 0,
            Gap::By(us) | Gap::ClockSet(us) => us,
            Gap::Window(parts) => match config.window {
                WindowKind::Time(length) => length.as_us() * parts / 64,
                WindowKind::Count(_) => config.open.as_us() * parts / 64,
            },
            Gap::To(moment, off_us) => {
                let seen = view(&self.breaker, self.now());
                let wait_us = if let Wait::For(span) = seen.retry_after { span.as_us() } else { 0 };
                let ends = [wait_us, wait_us, config.idle.as_us(), config.lease.as_us(), config.ramp.as_us() / 3];
                (ends[moment.index(ends.len())] + off_us).max(0)
            }
        };
        self.now_us = (self.now_us + us).max(START_US - 3_000 * HOUR_US);
    }

    fn settle(&mut self, before: &Breaker, edits: Edits, transitions: &[Transition]) -> Result<Edits, TestCaseError> {
        prop_assert_eq!(edits.is_empty(), self.breaker == *before, "{:?}", edits);
        if !edits.is_empty() {
            let sent = decode_edits(&to_vec(|out| encode_edits(&edits, out))).expect("our own edits");
            sent.iter().for_each(|edit| self.replica.apply(edit));
        }
        prop_assert_eq!(&self.replica, &self.breaker);
        let mut at = (before.name(), before.generation());
        for moved in transitions {
            prop_assert!(moved.previous == at.0 && moved.new != at.0, "{:?}", transitions);
            prop_assert!(moved.generation > at.1);
            at = (moved.new, moved.generation);
        }
        prop_assert_eq!(at.0, self.breaker.name());
        prop_assert!(self.breaker.generation() >= at.1);
        Ok(edits)
    }

    /// Wherever the clock was set to: from now on nothing lasts longer than its own length.
    pub fn nothing_lasts_longer_than_its_length(&self) -> Result<(), TestCaseError> {
        let now = self.now();
        let mut later = self.breaker.clone();
        let asked = admit(&mut later, who(0), None, 0, now).expect("no options").verdict;
        let config = *later.config();
        let most = match later.phase() {
            Phase::Open { length_us, .. } => Span::from_us(*length_us),
            Phase::HalfOpen { .. } => config.lease,
            Phase::Forced(_) => Span::from_us(HOUR_US),
            Phase::Closed | Phase::Ramping { .. } => Span::ZERO,
        };
        if let (None, Wait::For(wait)) = (asked.permit, asked.retry_after) {
            prop_assert!(wait <= most, "{wait:?} of {most:?} in {:?}", later.phase());
            let next = admit(&mut later.clone(), who(0), None, 0, now.plus(most)).expect("no options").verdict;
            prop_assert!(next.permit.is_some(), "{asked:?}, then {next:?}");
        }
        if let WindowKind::Time(length) = config.window {
            let slack = Span::from_us(2 * SECOND_US + length.as_us() / 10);
            prop_assert_eq!(later.totals(now.plus(length).plus(slack)).calls, 0);
        }
        let busy = most.max(config.ramp).max(Span::from_us(SECOND_US));
        let idle = view(&later, now.plus(busy).plus(config.idle).plus(Span::from_us(1)));
        let endless = matches!(later.phase(), Phase::Forced(forced) if forced.until_us.is_none());
        let at = now.plus(busy).plus(config.idle);
        prop_assert_eq!(idle.breaker.totals(at).calls, 0);
        prop_assert_eq!((idle.breaker.failures_in_a_row(at), idle.breaker.trips()), (0, 0));
        prop_assert_eq!(matches!(idle.breaker.phase(), Phase::Forced(_)), endless);
        Ok(())
    }
}

fn reply_of(number: u64) -> resil_core::circuit_breaker::Report {
    reply([Reply::Ok, Reply::Fail, Reply::Ignore, Reply::Cancel][number as usize % 4])
}
