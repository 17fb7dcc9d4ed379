//! Rate limits.

use std::time::Duration;

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::Error;
use resil::limiter::{self, DecidedBy, Limit, Tier, Verdict};

use crate::client::Client;
use crate::convert::{millis, now, run, settings};
use crate::executor::Word;
use crate::guard::{Guard, Layer};

#[napi]
pub struct Limiter(pub(crate) limiter::Limiter);

#[napi]
impl Client {
    #[napi]
    pub fn limiter(&self, env: Env, name: String, said: String) -> napi::Result<Limiter> {
        now(&env, settings(&said).and_then(|limit: Limit| self.0.limiter(&name, limit))).map(Limiter)
    }

    /// `keys` are those of `limiters`, in their order.
    #[napi]
    pub fn check_all(&self, limiters: Vec<&Limiter>, keys: Vec<String>, cost: u32) -> napi::Result<Word> {
        let limiters: Vec<limiter::Limiter> = limiters.iter().map(|limiter| limiter.0.clone()).collect();
        let client = self.0.clone();
        run(async move {
            let limits: Vec<_> = limiters.iter().zip(&keys).collect();
            let verdicts = client.check_all(&limits, cost).await?;
            let refused_by = verdicts.refused_by.map_or(-1.0, |index| index as f64);
            let mut all = vec![vec![f64::from(verdicts.granted), refused_by], numbers(&verdicts.binding)];
            all.extend(verdicts.each.iter().map(numbers));
            Ok(all)
        })
    }
}

/// So many numbers are a verdict, and so many each tier behind them.
const OF_A_VERDICT: usize = 9;
const OF_A_TIER: usize = 6;

/// A verdict as `lib/limiter.js` reads it; of a limit with several tiers also which one binds, and the numbers of each.
fn numbers(verdict: &Verdict) -> Vec<f64> {
    let decided_by = match verdict.decided_by {
        DecidedBy::Server => 0.0,
        DecidedBy::DenyCache => 1.0,
        DecidedBy::Local => 2.0,
        DecidedBy::AwayOpen => 3.0,
    };
    let mut all = vec![
        verdict.granted.into(),
        verdict.capacity.into(),
        verdict.remaining.into(),
        verdict.retry_after.map_or(-1.0, millis),
        millis(verdict.reset_after),
        decided_by,
        verdict.limit.into(),
        millis(verdict.period),
        millis(verdict.window()),
    ];
    if verdict.tiers.is_empty() {
        return all;
    }
    all.push(verdict.binding as f64);
    for tier in &verdict.tiers {
        let wait = tier.retry_after.map_or(-1.0, millis);
        all.extend([f64::from(tier.limit), millis(tier.period), tier.capacity.into(), tier.remaining.into(), wait]);
        all.push(millis(tier.reset_after));
    }
    all
}

/// The verdict of which these are the numbers, as JavaScript gives them back.
pub fn verdict_of(numbers: &[f64]) -> Option<Verdict> {
    let (own, rest) = numbers.split_first_chunk::<OF_A_VERDICT>()?;
    let [granted, capacity, remaining, wait, reset, _, limit, period, _] = own;
    let span = |ms: f64| Duration::try_from_secs_f64(ms / 1_000.0);
    let wait_of = |ms: f64| (ms >= 0.0).then(|| span(ms).ok()).flatten();
    let (binding, tiers) = rest.split_first().map_or((0, rest), |(binding, tiers)| (*binding as usize, tiers));
    let tier = |tier: &[f64]| {
        let [limit, period, capacity, remaining, wait, reset] = tier.try_into().ok()?;
        Some(Tier {
            limit: limit as u32,
            period: span(period).ok()?,
            capacity: capacity as u32,
            remaining: remaining as u32,
            retry_after: wait_of(wait),
            reset_after: span(reset).ok()?,
        })
    };
    Some(Verdict {
        granted: *granted as u32,
        limit: *limit as u32,
        period: span(*period).ok()?,
        capacity: *capacity as u32,
        remaining: *remaining as u32,
        retry_after: wait_of(*wait),
        reset_after: span(*reset).ok()?,
        decided_by: DecidedBy::Server,
        tiers: tiers.chunks(OF_A_TIER).map(tier).collect::<Option<_>>()?,
        binding,
    })
}

/// Asks for a verdict.
fn ask(future: impl Future<Output = Result<Verdict, Error>> + 'static) -> napi::Result<Word> {
    run(async move { future.await.map(|verdict| numbers(&verdict)) })
}

#[napi]
impl Limiter {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Limiter(self.0.clone())])
    }

    #[napi]
    pub fn check(&self, key: String, cost: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(async move { limiter.check_n(key, cost).await })
    }

    #[napi]
    pub fn acquire(&self, key: String, cost: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        run(async move { limiter.acquire_n(key, cost).await })
    }

    #[napi]
    pub fn up_to(&self, key: String, most: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(async move { limiter.up_to(key, most).await })
    }

    #[napi]
    pub fn peek(&self, key: String) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(async move { limiter.peek(key).await })
    }

    #[napi]
    pub fn refund(&self, key: String, cells: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(async move { limiter.refund(key, cells).await })
    }
}
