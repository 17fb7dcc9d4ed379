//! From what core decided to what a caller is told. Time a caller may rely on, or has spent, rounds down; time it has
//! to wait rounds up. The writers beside each command's parser round the same way; a test holds the two together.

use resil_core::circuit_breaker::{Admission, Reported};
use resil_core::idempotency::{self, Run, Settled};
use resil_core::lock::{self, Busy, Grant};
use resil_core::rate_limit::{ManyVerdict, Reading, Verdict};
use resil_core::session::Loss;
use resil_core::single_flight::{self, Abandoned, Lead, Seen};

use super::{
    Acquired, Admitted, Answer, Begun, Committed, Counted, Entered, Heartbeat, Joined, Lost, Published, Released,
    Renewed, Taken,
};
use crate::gcra::{self, Numbers};
use crate::mgcra;

impl From<&Reading> for Numbers {
    fn from(reading: &Reading) -> Self {
        Self {
            capacity: reading.capacity.into(),
            remaining: reading.remaining.into(),
            retry_after_ms: reading.retry_after.ms(),
            reset_after_ms: reading.reset_after.ceil_ms(),
        }
    }
}

impl From<&Verdict> for gcra::Reply {
    fn from(verdict: &Verdict) -> Self {
        let named: &[Reading] = if verdict.tiers.len() > 1 { &verdict.tiers } else { &[] };
        Self {
            granted: verdict.granted.into(),
            binding: Numbers::from(&verdict.binding()),
            tiers: named.iter().map(Numbers::from).collect(),
        }
    }
}

impl From<&ManyVerdict> for mgcra::Reply {
    fn from(verdict: &ManyVerdict) -> Self {
        Self {
            granted: verdict.granted.into(),
            refused_by: verdict.refused_by,
            keys: verdict.readings.iter().map(Numbers::from).collect(),
        }
    }
}

impl From<Admission> for Admitted {
    fn from(admission: Admission) -> Self {
        let Admission { permit, state, retry_after, generation } = admission;
        Self { permit, state, retry_after_ms: retry_after.ms(), generation }
    }
}

impl From<Reported> for Counted {
    fn from(reported: Reported) -> Self {
        let Reported { why, state, generation, retry_after } = reported;
        Self { why, state, generation, retry_after_ms: retry_after.ms() }
    }
}

impl From<Grant> for Acquired {
    fn from(grant: Grant) -> Self {
        let (lease_ms, waited_ms) = (grant.lease.floor_ms(), grant.waited.floor_ms());
        Self::Granted { fence: grant.fence, lease_ms, waited_ms }
    }
}

impl From<Busy> for Taken {
    fn from(busy: Busy) -> Self {
        let holder = (!busy.holder.is_empty()).then(|| busy.holder.into_vec());
        Self { holder, remaining_ms: busy.remaining.ceil_ms(), waiters: busy.queued as i64 }
    }
}

impl From<Grant> for Entered {
    fn from(grant: Grant) -> Self {
        Self::Granted {
            active: grant.active as i64,
            queued: grant.queued as i64,
            lease_ms: grant.lease.floor_ms(),
            waited_ms: grant.waited.floor_ms(),
        }
    }
}

impl Entered {
    /// It did not wait, or the line was full.
    pub fn full(busy: &Busy) -> Self {
        let (active, queued) = (busy.active as i64, busy.queued as i64);
        Self::Full { active, queued, retry_after_ms: busy.retry_after.ceil_ms() }
    }

    /// It waited in vain.
    pub fn timeout(busy: &Busy) -> Self {
        let (active, queued) = (busy.active as i64, busy.queued as i64);
        Self::Timeout { active, queued, retry_after_ms: busy.retry_after.ceil_ms() }
    }
}

impl From<lock::Renewed> for Renewed {
    fn from(renewed: lock::Renewed) -> Self {
        match renewed {
            lock::Renewed::Granted(grant) => Self::Granted { fence: grant.fence, lease_ms: grant.lease.floor_ms() },
            lock::Renewed::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl From<lock::Released> for Released {
    fn from(released: lock::Released) -> Self {
        match released {
            lock::Released::Released { held } => Self::Released { held_ms: held.floor_ms() },
            lock::Released::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl From<Run> for Begun {
    fn from(run: Run) -> Self {
        Self::Run { fence: run.fence, attempt: run.attempt, waited_ms: run.waited.floor_ms() }
    }
}

impl From<Settled> for Begun {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Replay(replay) => {
                Self::Replay { failed: replay.failed, result: replay.result, age_ms: replay.age.floor_ms() }
            }
            Settled::Busy { remaining, attempt } => Self::Busy { remaining_ms: remaining.ceil_ms(), attempt },
            Settled::Mismatch => Self::Mismatch,
            Settled::Held { attempt } => Self::Held { attempt },
            Settled::Miss => Self::Miss,
        }
    }
}

impl From<idempotency::Committed> for Committed {
    fn from(committed: idempotency::Committed) -> Self {
        match committed {
            idempotency::Committed::Committed { stored } => Self::Committed { stored },
            idempotency::Committed::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl From<Lead> for Joined {
    fn from(lead: Lead) -> Self {
        Self::Lead { fence: lead.fence, stale: lead.stale, waited_ms: lead.waited.floor_ms() }
    }
}

impl From<Seen> for Joined {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Value { bytes, age, fresh } => {
                Self::Value { bytes, age_ms: age.floor_ms(), fresh_ms: fresh.floor_ms() }
            }
            Seen::Stale { bytes, age } => Self::Stale { bytes, age_ms: age.floor_ms() },
            Seen::Empty { age } => Self::Empty { age_ms: age.floor_ms() },
            Seen::Error { text } => Self::Error { text },
            Seen::Busy { remaining } => Self::Busy { remaining_ms: remaining.ceil_ms() },
            Seen::Miss => Self::Miss,
        }
    }
}

impl From<single_flight::Published> for Published {
    fn from(published: single_flight::Published) -> Self {
        match published {
            single_flight::Published::Published { followers } => Self::Published { followers: followers as i64 },
            single_flight::Published::Lost(reason) => Self::Lost(reason),
        }
    }
}

impl From<Abandoned> for Answer {
    fn from(abandoned: Abandoned) -> Self {
        Self::Abandoned(match abandoned {
            Abandoned::Abandoned => None,
            Abandoned::Lost(reason) => Some(reason),
        })
    }
}

impl From<Loss> for Lost {
    fn from(loss: Loss) -> Self {
        Self { key: loss.key.into_vec(), fence: loss.fence, reason: loss.reason }
    }
}

impl From<(usize, Vec<Loss>)> for Heartbeat {
    /// What a session says when it is heard of.
    fn from((bound, losses): (usize, Vec<Loss>)) -> Self {
        Self { bound: bound as i64, losses: losses.into_iter().map(Lost::from).collect() }
    }
}
