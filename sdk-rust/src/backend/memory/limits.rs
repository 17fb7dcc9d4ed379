//! GCRA, MGCRA, WINDOW and CL.THROTTLE.

use resil_core::rate_limit::{Ask, Quota, TierSet, Verdict, gc_at, step, step_many};
use resil_core::window::{self, Window};
use resil_core::{Instant, Step};
use resil_wire::command::Reply;
use resil_wire::gcra::Gcra;
use resil_wire::mgcra::Mgcra;
use resil_wire::throttle::ClThrottle;
use resil_wire::window::Windowed;
use smallvec::SmallVec;

use super::refused;
use super::store::{Kept, State, Store, Touch, When};
use crate::error::Error;

impl Kept for TierSet {
    fn of(state: &mut State) -> Option<&mut Self> {
        match state {
            State::Tiers(tiers) => Some(tiers),
            _ => None,
        }
    }

    fn into_state(self) -> State {
        State::Tiers(self)
    }

    fn due(&self, salt: u64) -> Option<Instant> {
        Some(gc_at(self, salt))
    }

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Store {
    pub fn gcra(&self, call: &Gcra<'_>, when: When) -> Result<Reply, Error> {
        self.take(call.key, &call.quotas, call.ask, when).map(|verdict| Reply::Limit((&verdict).into()))
    }

    pub fn throttle(&self, call: &ClThrottle<'_>, when: When) -> Result<Reply, Error> {
        let verdict = self.take(call.key, &[call.throttle.quota], call.throttle.ask, when)?;
        Ok(Reply::Throttle(call.throttle.reply(&verdict)))
    }

    pub fn take(&self, key: &[u8], quotas: &[Quota], ask: Ask, when: When) -> Result<Verdict, Error> {
        self.on(key, when, |tiers: &mut TierSet, now| {
            let Step { verdict, change, .. } = step(tiers, quotas, ask, now).map_err(refused)?;
            Ok((verdict, keep(tiers, change)))
        })
    }

    pub fn mgcra(&self, call: &Mgcra<'_>, when: When) -> Result<Reply, Error> {
        let names: SmallVec<[&[u8]; 4]> = call.limits.iter().map(|(key, _)| *key).collect();
        let verdict = self.on_all(&names, when, |tiers: &mut [TierSet], now| {
            let limits = call.limits.iter().map(|(_, quota)| *quota);
            let asked: SmallVec<[(TierSet, Quota); 4]> = tiers.iter().cloned().zip(limits).collect();
            let Step { verdict, change, .. } = step_many(&asked, call.cost, now).map_err(refused)?;
            for (tiers, change) in tiers.iter_mut().zip(change.into_iter().flatten()) {
                keep(tiers, change);
            }
            Ok(verdict)
        })?;
        Ok(Reply::Limits((&verdict).into()))
    }

    pub fn window(&self, call: &Windowed<'_>, when: When) -> Result<Reply, Error> {
        let step = |log: &Window, now| window::step(log, call.rule, call.ask, now);
        let verdict = self.step_plain(call.key, when, step)?;
        Ok(Reply::Limit((&verdict).into()))
    }
}

fn keep(tiers: &mut TierSet, change: Option<TierSet>) -> Touch {
    match change {
        Some(change) => {
            *tiers = change;
            Touch::Changed
        }
        None => Touch::Unchanged,
    }
}
