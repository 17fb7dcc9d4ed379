//! Rate limits.

use napi::bindgen_prelude::{Env, Float64ArraySlice};
use napi_derive::napi;
use resil::limiter::{self, DecidedBy, Verdict};
use resil::settings::RateLimitSettings;
use resil::{Error, Failure};

use crate::client::Client;
use crate::convert::{millis, now, ours, settings};
use crate::executor::{Answer, Numbers, Running, TOLD, Word, begin, take_numbers};
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
            let mut all = vec![vec![f64::from(verdicts.granted), refused_by], numbers(&verdicts.binding).to_vec()];
            all.extend(verdicts.each.iter().map(|verdict| numbers(verdict).to_vec()));
            Ok(all)
        })
    }
}

/// A verdict as `lib/limiter.js` reads it.
fn numbers(verdict: &Verdict) -> Numbers {
    let decided_by = match verdict.decided_by {
        DecidedBy::Server => 0.0,
        DecidedBy::DenyCache => 1.0,
        DecidedBy::Local => 2.0,
        DecidedBy::AwayOpen => 3.0,
    };
    [
        verdict.granted.into(),
        verdict.capacity.into(),
        verdict.remaining.into(),
        verdict.retry_after.map_or(-1.0, millis),
        millis(verdict.reset_after),
        decided_by,
    ]
}

/// Asks for a verdict. One that is there at once is put on the tray, and that is the word.
fn ask(
    mut tray: Float64ArraySlice<'_>,
    future: impl Future<Output = Result<Verdict, Error>> + 'static,
) -> napi::Result<Word> {
    let word = begin(true, |_| {
        Running::Ours(Box::pin(async move {
            match future.await {
                Ok(verdict) => Answer::Numbers(numbers(&verdict)),
                Err(error) => Answer::Failed(Failure::Resil(error)),
            }
        }))
    })?;
    // SAFETY: nothing of JavaScript runs before this returns, so nobody else looks at it.
    match (take_numbers(word)?, unsafe { tray.as_mut() }.first_chunk_mut()) {
        (Some(numbers), Some(place)) => {
            *place = numbers;
            Ok(TOLD)
        }
        _ => Ok(word),
    }
}

#[napi]
impl Limiter {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Limiter(self.0.clone())])
    }

    #[napi]
    pub fn check(&self, key: String, cost: u32, tray: Float64ArraySlice<'_>) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(tray, async move { limiter.check_n(key, cost).await })
    }

    #[napi]
    pub fn acquire(&self, key: String, cost: u32) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ours(async move { limiter.acquire_n(key, cost).await })
    }

    #[napi]
    pub fn up_to(&self, key: String, most: u32, tray: Float64ArraySlice<'_>) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(tray, async move { limiter.up_to(key, most).await })
    }

    #[napi]
    pub fn peek(&self, key: String, tray: Float64ArraySlice<'_>) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(tray, async move { limiter.peek(key).await })
    }

    #[napi]
    pub fn refund(&self, key: String, cells: u32, tray: Float64ArraySlice<'_>) -> napi::Result<Word> {
        let limiter = self.0.clone();
        ask(tray, async move { limiter.refund(key, cells).await })
    }
}
