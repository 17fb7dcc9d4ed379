//! Several limits at once: all are taken from, or none.

use std::sync::Arc;
use std::time::Duration;

use resil_core::limits::MGCRA_KEYS_MAX;
use resil_core::rate_limit::Quota;
use resil_wire::command::{Command, Reply};
use resil_wire::mgcra::{LimitsReply, Mgcra};
use serde::Serialize;
use smallvec::SmallVec;

use super::denied::Denial;
use super::limit::Shape;
use super::{DecidedBy, Key, Limiter, Verdict, cells};
use crate::client::Client;
use crate::error::Error;
use crate::health::Away;
use crate::telemetry::{CallEnding, UNNAMED, watched};

/// What came of asking several limits at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdicts {
    /// Cells taken from each; 0: from none.
    pub granted: u32,
    /// Which of them refused first, counted from 0.
    pub refused_by: Option<usize>,
    /// The one that speaks for all: the longest to wait for, or else the one with the least left.
    pub binding: Verdict,
    /// Each, in the order in which they were asked. Empty if the server was not asked.
    pub each: Vec<Verdict>,
}

impl Verdicts {
    pub fn is_granted(&self) -> bool {
        self.granted > 0
    }

    fn alone(binding: Verdict, refused_by: Option<usize>) -> Self {
        Self { granted: binding.granted, refused_by, binding, each: Vec::new() }
    }
}

impl Client {
    /// Takes `cost` cells from every limit, or from none: per user and per organisation, say. In a cluster the keys must
    /// have one slot, so one key under several limiters, or keys with one tag. Limits of one tier only.
    ///
    /// While the server is away the strictest of their modes decides: closed, then local, then open.
    ///
    /// ```
    /// # fn main() -> Result<(), resil::Error> {
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use resil::limiter::Limit;
    /// # let client = resil::connect("memory://").await?;
    /// let (reads, all) = (client.limiter("reads", Limit::per_second(1))?, client.limiter("all", Limit::per_second(9))?);
    /// assert!(client.check_all(&[(&reads, "alice"), (&all, "alice")], 1).await?.is_granted());
    /// assert_eq!(client.check_all(&[(&reads, "alice"), (&all, "alice")], 1).await?.refused_by, Some(0));
    /// # Ok(()) })
    /// # }
    /// ```
    pub async fn check_all<K: AsRef<[u8]>>(&self, limits: &[(&Limiter, K)], cost: u32) -> Result<Verdicts, Error> {
        let name = limits.first().map_or_else(|| UNNAMED.into(), |(limiter, _)| Arc::clone(&limiter.0.name));
        let checking = self.check_all_unwatched(limits, cost);
        watched!(Limiter, "check_all", &name, checking, |verdicts| CallEnding::or(verdicts, |verdicts| {
            if verdicts.is_granted() { CallEnding::GRANTED } else { CallEnding::DENIED }
        }))
    }

    async fn check_all_unwatched<K: AsRef<[u8]>>(
        &self,
        limits: &[(&Limiter, K)],
        cost: u32,
    ) -> Result<Verdicts, Error> {
        let _pass = self.inner().gate.enter()?;
        let cost = cells("cost", cost)?;
        if !(1..=MGCRA_KEYS_MAX).contains(&limits.len()) {
            let len = limits.len();
            return Err(Error::InvalidArgument(format!("limits must be from 1 to {MGCRA_KEYS_MAX}, got {len}")));
        }
        let asks = limits.iter().map(|(limiter, key)| Named::new(limiter, key.as_ref())).collect::<Result<_, _>>()?;
        let asks: SmallVec<[Named<'_>; 4]> = asks;
        for (index, named) in asks.iter().enumerate() {
            if asks[..index].iter().any(|other| other.key == named.key) {
                return Err(Error::InvalidArgument(format!(
                    "limits[{index}] names a limit and a key that were named before"
                )));
            }
        }
        let now = self.clock().now();
        let mut asked = SmallVec::<[_; 4]>::new();
        for (index, named) in asks.iter().enumerate() {
            let inner = &named.limiter.0;
            let cost = if cost > inner.limit.shape.capacity() { 0 } else { cost };
            match self.inner().limits.denied.look(&named.key, inner.shape_id, cost, now) {
                Ok(mark) => asked.push(mark),
                Err(denial) => {
                    inner.meters.denied.increment(1);
                    return Ok(Verdicts::alone(denial.verdict(now), Some(index)));
                }
            }
        }
        let limits = asks.iter().map(|named| (&named.key[..], named.whole)).collect();
        let verdicts = match self.backend().call(&Command::Mgcra(Mgcra { cost, limits })).await {
            Ok(reply) => read(&reply, asks.iter().map(|named| named.whole), DecidedBy::Server)?,
            Err(error) if error.says_away() => {
                let verdicts = decide_away(&asks, cost, error)?;
                count(&asks, &verdicts);
                return Ok(verdicts);
            }
            Err(error) => return Err(error),
        };
        count(&asks, &verdicts);
        for ((named, mark), verdict) in asks.iter().zip(asked).zip(&verdicts.each) {
            if let Some(denial) = Denial::of(cost, now, verdict) {
                self.inner().limits.denied.remember(&named.key, named.limiter.0.shape_id, mark, denial);
            }
        }
        Ok(verdicts)
    }
}

/// One of the limits that are asked.
/// Each that granted, or the one that refused.
fn count(asks: &[Named<'_>], verdicts: &Verdicts) {
    let is_local = verdicts.binding.decided_by != DecidedBy::Server;
    for (index, named) in asks.iter().enumerate() {
        let meters = &named.limiter.0.meters;
        if is_local {
            meters.locally.increment(1);
        }
        if verdicts.is_granted() {
            meters.granted.increment(1);
        } else if verdicts.refused_by == Some(index) {
            meters.denied.increment(1);
        }
    }
}

struct Named<'a> {
    limiter: &'a Limiter,
    key: Key,
    whole: Quota,
    /// This process' part.
    part: Quota,
}

impl<'a> Named<'a> {
    fn new(limiter: &'a Limiter, key: &[u8]) -> Result<Self, Error> {
        let limit = &limiter.0.limit;
        let (Shape::Bucket(whole), Shape::Bucket(part)) = (&limit.shape, &limit.part) else {
            return Err(not_for(limiter));
        };
        match (&whole[..], &part[..]) {
            ([whole], [part]) => Ok(Self { limiter, key: limiter.key(key), whole: *whole, part: *part }),
            _ => Err(not_for(limiter)),
        }
    }
}

fn not_for(limiter: &Limiter) -> Error {
    let name = limiter.name();
    Error::InvalidArgument(format!("{name} has several tiers or is an exact window: it can only be asked alone"))
}

fn decide_away(asks: &[Named<'_>], cost: u32, error: Error) -> Result<Verdicts, Error> {
    let mode = |away: Away| asks.iter().find(|named| named.limiter.0.limit.when_away == away);
    if mode(Away::Closed).is_some() {
        return Err(error.as_unavailable());
    }
    match mode(Away::Local) {
        Some(named) => {
            let limits = asks.iter().map(|named| (&named.key[..], named.part)).collect();
            let reply = named.limiter.local(&Command::Mgcra(Mgcra { cost, limits }))?;
            read(&reply, asks.iter().map(|named| named.part), DecidedBy::Local)
        }
        None => Ok(Verdicts::alone(asks[0].limiter.granted_openly(cost), None)),
    }
}

fn read(reply: &Reply, quotas: impl Iterator<Item = Quota>, decided_by: DecidedBy) -> Result<Verdicts, Error> {
    let Reply::Limits(LimitsReply { granted, refused_by, keys }) = reply else {
        return Err(Error::Internal(format!("several limits were answered {reply:?}")));
    };
    let rate = |quota: Quota| (quota.limit(), Duration::from_micros(quota.period().as_us().unsigned_abs()));
    let one = |(numbers, quota)| Verdict::of_one(*granted, numbers, rate(quota), decided_by);
    let each: Vec<Verdict> = keys.iter().zip(quotas).map(one).collect();
    fn wait(verdict: &Verdict) -> Duration {
        verdict.retry_after.unwrap_or(Duration::MAX)
    }
    // The first of equals, as everywhere.
    fn tighter<'a>(best: &'a Verdict, next: &'a Verdict) -> &'a Verdict {
        let longer = wait(next) > wait(best);
        let less = wait(next) == wait(best) && wait(next).is_zero() && next.remaining < best.remaining;
        if longer || less { next } else { best }
    }
    match each.split_first() {
        Some((first, rest)) => {
            let binding = rest.iter().fold(first, tighter).clone();
            Ok(Verdicts { granted: binding.granted, refused_by: *refused_by, binding, each })
        }
        None => Err(Error::Internal("several limits were answered with none".to_owned())),
    }
}
