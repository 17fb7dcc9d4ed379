//! Plays a schedule on a key and, if wanted, on the model; and compares everything the two say after every step.

use super::key::{Begun, RunReply};
use proptest::prelude::*;
use resil_core::idempotency::{Committed, Idle, OnLapse, Record, Run, Settled, WorkPhase};
use resil_core::waited::{End, Renewed};

use super::gaps::{JUMP, Upheaval};
use super::key::{Key, Wish, bound_to};
use super::model::{self, Kept, Model, Said, Wanted};
use super::schedule::{Event, Named, What, Who};

#[derive(Default)]
pub struct Driver {
    pub key: Key,
    /// Every fence that was ever issued, in the order of issue.
    pub fences: Vec<u64>,
}

/// An event with everything in it decided.
#[derive(Debug, Clone)]
pub enum Call {
    Begin(String, Wish),
    Commit { token: String, ttl: i64, result: Option<Vec<u8>>, failed: bool },
    Abort(String),
    Renew(String, i64),
    Once(String, i64),
    Close(u64),
    TakeBack(u64),
    Cut(u64, i64, i64),
    Extend(u64, i64),
    Leave(u64),
    Tick,
    GiveUp,
    Upheaval(Upheaval),
}

impl Driver {
    /// Only the machine.
    pub fn play(&mut self, event: &Event) -> (Call, Said) {
        let forgotten = self.key.forgotten_at();
        let moments: Vec<i64> = self.key.moments().into_iter().chain(forgotten).collect();
        self.key.now = event.gap.after(self.key.now, &moments);
        let call = self.resolve(&event.what);
        let said = self.call(&call);
        (call, said)
    }

    /// The machine beside the model.
    pub fn play_beside(&mut self, model: &mut Model, event: &Event) -> Result<(), TestCaseError> {
        let (call, said) = self.play(event);
        (model.now, model.reported, model.ends) = (self.key.now, Vec::new(), Vec::new());
        prop_assert_eq!(&said, &ask_model(model, &call, &self.key), "{:?}", call);
        prop_assert_eq!(reported(&self.key.replies), model.reported.clone(), "{:?}", call);
        let ends = self.key.endings.iter().map(|end| (end.owner.to_vec(), end.fence, end.held.as_us(), how(end.how)));
        prop_assert_eq!(ends.collect::<Vec<_>>(), model.ends.clone(), "{:?}", call);
        prop_assert_eq!(kept(&self.key.record), model.kept.clone(), "{:?}", call);
        let waiters = self.key.queue.waiters();
        let waiters =
            waiters.map(|waiter| (waiter.id, waiter.owner.to_vec(), waiter.since.as_us(), waiter.deadline.as_us()));
        let naive = model.queue.iter().map(|waiter| (waiter.id, waiter.token.clone(), waiter.since, waiter.until));
        prop_assert_eq!(waiters.collect::<Vec<_>>(), naive.collect::<Vec<_>>(), "{:?}", call);
        if !matches!(call, Call::Upheaval(Upheaval::Restart | Upheaval::Promote(_))) {
            prop_assert_eq!(self.key.wake, model.wake(), "{:?}", call);
        }
        for fingerprint in ["", "x", "y"] {
            prop_assert_eq!(settled(self.key.look(fingerprint)), model.look(fingerprint.as_bytes()), "{:?}", call);
        }
        Ok(())
    }

    fn resolve(&self, what: &What) -> Call {
        match *what {
            What::Begin(who, wish) => Call::Begin(self.token(who), wish),
            What::Commit { who, ttl, dropped, failed } => {
                let result = (!dropped).then(|| format!("result {}", self.key.now).into_bytes());
                Call::Commit { token: self.token(who), ttl, result, failed }
            }
            What::Abort(who) => Call::Abort(self.token(who)),
            What::Renew(who, lease) => Call::Renew(self.token(who), lease),
            What::Once(who, ttl) => Call::Once(who.map_or(String::new(), |who| self.token(Who::One(who))), ttl),
            What::Close(named) => Call::Close(self.fence(named)),
            What::TakeBack(named) => Call::TakeBack(self.fence(named)),
            What::Cut(named, grace, late) => {
                // Nothing hangs on a connection of before a promotion.
                let promoted = self.key.promoted.filter(|promoted| *promoted <= self.key.now);
                let at = (self.key.now - late).max(promoted.unwrap_or(0));
                Call::Cut(self.fence(named), grace, at)
            }
            What::Extend(named, to) => Call::Extend(self.fence(named), self.key.now + to),
            What::Leave(which) => {
                let id = self.key.queue.waiters().nth(which.index(self.key.queue.len() + 1)).map(|waiter| waiter.id);
                // Sometimes somebody who does not wait any more, or never did.
                Call::Leave(id.unwrap_or(which.index(self.key.calls as usize + 5) as u64))
            }
            What::Tick => Call::Tick,
            What::GiveUp => Call::GiveUp,
            What::Upheaval(upheaval) => Call::Upheaval(upheaval),
        }
    }

    fn token(&self, who: Who) -> String {
        match (who, &self.key.record) {
            (Who::One(one), _) => format!("token {one}"),
            (Who::Last, Record::Work(work)) => String::from_utf8_lossy(&work.token).into_owned(),
            (Who::Last, _) => "token 0".into(),
        }
    }

    fn fence(&self, named: Named) -> u64 {
        match named {
            Named::Earlier(which) if !self.fences.is_empty() => self.fences[which.index(self.fences.len())],
            Named::Present | Named::Earlier(_) => self.key.record.last_fence(),
        }
    }

    fn call(&mut self, call: &Call) -> Said {
        let before = self.key.record.last_fence();
        let key = &mut self.key;
        let said = match call {
            Call::Begin(token, wish) => match key.begin(token, *wish) {
                Begun::Granted(run) => ran(run),
                Begun::Refused(said) => settled(said),
                Begun::Queued => Said::Queued,
                Begun::Conflict => Said::WrongPhase,
            },
            Call::Commit { token, ttl, result, failed } => {
                match key.commit_with(token, *ttl, result.as_deref(), *failed) {
                    Committed::Committed { stored } => Said::Committed { stored },
                    Committed::Lost(reason) => Said::Lost(reason.text()),
                }
            }
            Call::Abort(token) => key.abort(token).map_or(Said::Aborted, |reason| Said::Lost(reason.text())),
            Call::Renew(token, lease) => match key.renew(token, *lease) {
                Renewed::Granted(grant) => {
                    Said::Renewed { fence: grant.fence, lease: grant.lease.as_us(), queued: grant.queued }
                }
                Renewed::Lost(reason) => Said::Lost(reason.text()),
            },
            Call::Once(token, ttl) => key.once(token, *ttl).map_or(Said::WrongPhase, Said::Was),
            Call::Close(fence) => Said::Was(key.close(*fence)),
            Call::TakeBack(fence) => Said::Was(key.take_back(*fence)),
            Call::Cut(fence, grace, at) => Said::Was(key.cut(*fence, *grace, *at)),
            Call::Extend(fence, to) => Said::Was(key.extend(*fence, *to)),
            Call::Leave(id) => Said::Was(key.leave(*id)),
            Call::Tick => {
                key.tick();
                Said::Nothing
            }
            Call::GiveUp => {
                key.give_up();
                Said::Nothing
            }
            Call::Upheaval(upheaval) => {
                match *upheaval {
                    Upheaval::Restart => key.restart(),
                    Upheaval::Promote(by) => key.promote(by),
                    Upheaval::Delete => key.delete(),
                }
                Said::Nothing
            }
        };
        let fence = self.key.record.last_fence();
        if fence != before && fence > 0 {
            self.fences.push(fence);
        }
        said
    }
}

fn ask_model(model: &mut Model, call: &Call, key: &Key) -> Said {
    match call {
        Call::Begin(token, wish) => {
            let Wish { lease, keep, hold, bind_to, .. } = *wish;
            let wanted = Wanted { fingerprint: wish.fingerprint.into(), lease, keep, hold, bind_to };
            model.begin(token.as_bytes(), wanted, wish.wait.map(|wait| (key.calls, wait, wish.most)))
        }
        Call::Commit { token, ttl, result, failed } => model.commit(token.as_bytes(), *ttl, result.clone(), *failed),
        Call::Abort(token) => model.abort(token.as_bytes()),
        Call::Renew(token, lease) => model.renew(token.as_bytes(), *lease),
        Call::Once(token, ttl) => model.once(token.as_bytes(), *ttl),
        Call::Close(fence) => model.stop_fence(*fence, "closed", "closed"),
        Call::TakeBack(fence) => model.stop_fence(*fence, "released", "aborted"),
        Call::Cut(fence, grace, at) => model.cut(*fence, *grace, *at),
        Call::Extend(fence, to) => model.extend(*fence, *to),
        Call::Leave(id) => model.leave(*id),
        Call::Tick => model.tick(),
        Call::GiveUp => model.give_up(),
        Call::Upheaval(upheaval) => {
            match upheaval {
                Upheaval::Restart => model.start_anew(JUMP),
                Upheaval::Promote(_) => {
                    model.promoted = Some(key.now);
                    model.start_anew(JUMP);
                }
                Upheaval::Delete => {
                    model.kept = Kept::Nothing;
                    model.tick();
                }
            }
            Said::Nothing
        }
    }
}

// The machine's words in those of the model.

fn ran(run: Run) -> Said {
    let Run { fence, attempt, lease, waited } = run;
    Said::Run { fence, attempt, lease: lease.as_us(), waited: waited.as_us() }
}

fn settled(settled: Settled) -> Said {
    match settled {
        Settled::Replay(replay) => {
            let result = replay.result.map(|result| result.to_vec());
            Said::Replay { failed: replay.failed, result, age: replay.age.as_us() }
        }
        Settled::Busy { remaining, attempt } => Said::Busy { remaining: remaining.as_us(), attempt },
        Settled::Mismatch => Said::Mismatch,
        Settled::Held { attempt } => Said::Held { attempt },
        Settled::Miss => Said::Miss,
    }
}

fn reported(replies: &[RunReply]) -> Vec<(u64, Said, Option<u64>)> {
    let reported = replies.iter().map(|reply| match reply {
        RunReply::Granted { id, grant: run, bind_to, .. } => (*id, ran(*run), bind_to.map(bound_to)),
        RunReply::Refused { id, refusal: said } | RunReply::TimedOut { id, refusal: said } => {
            (*id, settled(said.clone()), None)
        }
        RunReply::Superseded { id } => (*id, Said::Superseded, None),
    });
    reported.collect()
}

fn how(end: End) -> &'static str {
    match end {
        End::Released => "released",
        End::Expired => "expired",
        End::Broken => "broken",
        End::Closed => "closed",
    }
}

fn kept(record: &Record) -> Kept {
    match record {
        Record::Nothing => Kept::Nothing,
        Record::Once(once) => Kept::Seen { token: once.token.to_vec(), at: once.at.as_us(), until: once.until.as_us() },
        Record::Work(work) => Kept::Work(model::Work {
            fingerprint: work.fingerprint.to_vec(),
            token: work.token.to_vec(),
            fence: work.fence,
            attempt: work.attempt,
            keep: work.keep.as_us(),
            hold: work.on_lapse == OnLapse::Hold,
            phase: phase(&work.phase),
        }),
    }
}

fn phase(phase: &WorkPhase) -> model::WorkPhase {
    match phase {
        WorkPhase::Running { since, lease, ends } => {
            model::WorkPhase::Running { since: since.as_us(), lease: lease.as_us(), end: ends.as_us() }
        }
        WorkPhase::Idle { at, why } => {
            let why = match why {
                Idle::Aborted => "aborted",
                Idle::Lapsed => "expired",
                Idle::Closed => "closed",
            };
            model::WorkPhase::Idle { at: at.as_us(), why }
        }
        WorkPhase::Done { at, until, failed, result } => {
            let result = result.as_ref().map(|result| result.to_vec());
            model::WorkPhase::Done { at: at.as_us(), until: until.as_us(), failed: *failed, result }
        }
    }
}
