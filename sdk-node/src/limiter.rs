//! Rate limits.

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::limiter::{self, DecidedBy, Verdict};
use resil::settings::RateLimitSettings;

use crate::client::Client;
use crate::convert::{millis, now, ours, settings};
use crate::executor::Word;
use crate::guard::{Guard, Layer};

#[napi]
pub struct Limiter(pub(crate) limiter::Limiter);

#[napi]
impl Client {
    #[napi]
    pub fn limiter(&self, env: Env, name: String, said: String) -> napi::Result<Limiter> {
        let make = || {
            let limit = settings::<RateLimitSettings>(&said)?.limit(None)?;
            self.0.limiter(&name, limit)
        };
        now(&env, make()).map(Limiter)
    }

    /// `keys` are those of `limiters`, in their order.
    #[napi]
    pub fn check_all(&self, limiters: Vec<&Limiter>, keys: Vec<String>, cost: u32) -> napi::Result<Word> {
        let limiters: Vec<limiter::Limiter> = limiters.iter().map(|limiter| limiter.0.clone()).collect();
        let client = self.0.clone();
        ours(async move {
            let limits: Vec<_> = limiters.iter().zip(&keys).collect();
            let verdicts = client.check_all(&limits, cost).await?;
            let refused_by = verdicts.refused_by.map_or(-1.0, |index| index as f64);
            let mut all = vec![vec![f64::from(verdicts.granted), refused_by], numbers(&verdicts.binding)];
            all.extend(verdicts.each.iter().map(numbers));
            Ok(all)
        })
    }
}

/// A verdict as `lib/limiter.js` reads it.
pub fn numbers(verdict: &Verdict) -> Vec<f64> {
    let decided_by = match verdict.decided_by {
        DecidedBy::Server => 0.0,
        DecidedBy::DenyCache => 1.0,
        DecidedBy::Local => 2.0,
        DecidedBy::AwayOpen => 3.0,
    };
    vec![
        verdict.granted.into(),
        verdict.capacity.into(),
        verdict.remaining.into(),
        verdict.retry_after.map_or(-1.0, millis),
        millis(verdict.reset_after),
        decided_by,
    ]
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
        ours(async move { limiter.check_n(key, cost).await.map(|verdict| numbers(&verdict)) })
    }

    #[napi]
    pub fn acquire(&self, key: String, cost: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ours(async move { limiter.acquire_n(key, cost).await })
    }

    #[napi]
    pub fn up_to(&self, key: String, most: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ours(async move { limiter.up_to(key, most).await.map(|verdict| numbers(&verdict)) })
    }

    #[napi]
    pub fn peek(&self, key: String) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ours(async move { limiter.peek(key).await.map(|verdict| numbers(&verdict)) })
    }

    #[napi]
    pub fn refund(&self, key: String, cells: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ours(async move { limiter.refund(key, cells).await.map(|verdict| numbers(&verdict)) })
    }
}
