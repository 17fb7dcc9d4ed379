//! Rate limits.

use std::time::Duration;

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::Error;
use resil::limiter::{self, DecidedBy, TierVerdict, Verdict};
use resil::policy::Policy;

use crate::client::Client;
use crate::convert::{duration, makes, methods, millis, now, run};
use crate::executor::Word;
use crate::guard::{Guard, Layer};

#[napi]
pub struct Limiter(pub(crate) limiter::Limiter);

/// Takes from every limit, or from none. `keys` are those of `limiters`, in their order.
#[napi]
pub fn check_all(client: &Client, limiters: Vec<&Limiter>, keys: Vec<String>, cost: i64) -> napi::Result<Word> {
    let limiters: Vec<limiter::Limiter> = limiters.iter().map(|limiter| limiter.0.clone()).collect();
    let client = client.0.clone();
    run(async move {
        let limits: Vec<_> = limiters.iter().zip(&keys).collect();
        let verdicts = client.check_all(&limits, cells("cost", cost)?).await?;
        let refused_by = verdicts.refused_by.map_or(-1.0, |index| index as f64);
        let mut all = vec![vec![f64::from(verdicts.granted), refused_by], numbers(&verdicts.binding)];
        all.extend(verdicts.each.iter().map(numbers));
        Ok(all)
    })
}

/// A number of cells of JavaScript, which may be any.
pub fn cells(name: &str, number: i64) -> Result<u32, Error> {
    limiter::Limiter::cells(name, number)
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
        Some(TierVerdict {
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

#[napi]
impl Limiter {
    #[napi]
    pub fn guard(&self, env: Env) -> napi::Result<Guard> {
        let policy = Policy::builder(self.0.name()).limiter(self.0.clone()).build();
        now(&env, policy).map(|policy| Guard::of(vec![Layer::Limiter(policy)]))
    }
}

methods! { Limiter(limiter) {
    check(key: String, cost: i64) => limiter.check_n(key, cells("cost", cost)?).await.map(|verdict| numbers(&verdict));
    up_to(key: String, most: i64) => limiter.up_to(key, cells("most", most)?).await.map(|verdict| numbers(&verdict));
    peek(key: String) => limiter.peek(key).await.map(|verdict| numbers(&verdict));
    refund(key: String, given: i64) => limiter.refund(key, cells("cells", given)?).await.map(|verdict| numbers(&verdict));
    acquire(key: String, cost: i64) => limiter.acquire_n(key, cells("cost", cost)?).await;
    until_ready(key: String, max_wait: String, cost: i64) => {
        limiter.until_ready_n(key, cells("cost", cost)?, duration("maxWait", &max_wait)?).await
    };
} }

makes! {
    limiter(limiter::Limit) -> Limiter = Limiter;
}
