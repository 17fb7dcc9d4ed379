//! What a process does by itself: retry, timeout, hedging, bulkhead, fallback.

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::Error;
use resil::clock::Clock;
use resil::policy::{self, BudgetSettings, LocalBulkhead, Retry, Timeout};
use resil::settings::{BulkheadSettings, HedgeSettings, RetrySettings};

use crate::convert::{duration, methods, millis, now, settings};
use crate::guard::{Guard, Layer};
use crate::testing::TestClock;

fn clock(given: Option<&TestClock>) -> Clock {
    given.map_or_else(Clock::system, |clock| clock.0.clone())
}

#[napi]
pub fn make_retry(
    env: Env,
    said: String,
    name: Option<String>,
    given_clock: Option<&TestClock>,
    seed: Option<u32>,
    budget: Option<&Budget>,
) -> napi::Result<Guard> {
    let retry = settings(&said).and_then(|settings: RetrySettings| Retry::new(&settings));
    let retry = now(&env, retry)?.with_clock(clock(given_clock));
    let retry = name.iter().fold(retry, |retry, name| retry.named(name));
    let retry = budget.iter().fold(retry, |retry, budget| retry.with_budget(budget.0.clone()));
    let retry = seed.into_iter().fold(retry, |retry, seed| retry.with_seed(seed.into()));
    Ok(Guard::of(vec![Layer::Retry(retry)]))
}

/// `after` is the JSON of a duration.
#[napi]
pub fn make_timeout(
    env: Env,
    after: String,
    name: Option<String>,
    given_clock: Option<&TestClock>,
) -> napi::Result<Guard> {
    let make = || {
        let after = duration("after", &after)?;
        let timeout = Timeout::attempt(after).map_err(|error| match error {
            Error::InvalidPolicy { reason, .. } => Error::InvalidPolicy { field: "after".to_owned(), reason },
            other => other,
        })?;
        let timeout = timeout.with_clock(clock(given_clock));
        Ok(match &name {
            Some(name) => timeout.named(name),
            None => timeout,
        })
    };
    now(&env, make()).map(|timeout| Guard::of(vec![Layer::Timeout(timeout)]))
}

#[napi]
pub fn make_hedge(
    env: Env,
    said: String,
    name: Option<String>,
    given_clock: Option<&TestClock>,
    budget: Option<&Budget>,
) -> napi::Result<Guard> {
    let hedge = settings(&said).and_then(|settings: HedgeSettings| policy::Hedge::new(&settings));
    let hedge = now(&env, hedge)?.with_clock(clock(given_clock));
    let hedge = budget.iter().fold(hedge, |hedge, budget| hedge.with_budget(budget.0.clone()));
    Ok(Guard::of(vec![Layer::Hedge(name.iter().fold(hedge, |hedge, name| hedge.named(name)))]))
}

/// A limit on extra load that several policies share.
#[napi]
pub struct Budget(pub(crate) policy::Budget);

#[napi]
pub fn make_budget(env: Env, said: String, given_clock: Option<&TestClock>) -> napi::Result<Budget> {
    let make = || policy::Budget::with_clock(&settings::<BudgetSettings>(&said)?, clock(given_clock));
    now(&env, make()).map(Budget)
}

#[napi]
impl Budget {
    #[napi(getter)]
    pub fn available(&self) -> f64 {
        self.0.available() as f64
    }
}

#[napi]
pub fn make_fallback() -> Guard {
    Guard::of(vec![Layer::Fallback])
}

#[napi]
impl Guard {
    /// Of a timeout: how long it is. Of a hedge: how long it waits at present.
    #[napi(getter)]
    pub fn duration_ms(&self) -> Option<f64> {
        match self.first() {
            Some(Layer::Timeout(timeout)) => Some(millis(timeout.after())),
            Some(Layer::Hedge(hedge)) => Some(millis(hedge.delay())),
            _ => None,
        }
    }
}

/// At most so many calls at once in this process.
#[napi]
pub struct Bulkhead(LocalBulkhead);

#[napi]
pub fn make_bulkhead(env: Env, said: String, name: String, given_clock: Option<&TestClock>) -> napi::Result<Bulkhead> {
    let make = || LocalBulkhead::from_settings(&name, &settings::<BulkheadSettings>(&said)?, clock(given_clock));
    now(&env, make()).map(Bulkhead)
}

#[napi]
impl Bulkhead {
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.0.name().to_owned()
    }

    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Bulkhead(self.0.clone())])
    }

    #[napi]
    pub fn partition(&self, env: Env, name: String) -> napi::Result<Self> {
        now(&env, self.0.partition(&name)).map(Self)
    }

    /// active, queued, available, completed, rejected, abandoned
    #[napi(getter)]
    pub fn metrics(&self) -> Vec<f64> {
        let metrics = self.0.metrics();
        let (active, queued, available) = (metrics.active, metrics.queued, metrics.available);
        let counts = [metrics.completed, metrics.rejected, metrics.abandoned];
        [active, queued, available].into_iter().map(f64::from).chain(counts.map(|count| count as f64)).collect()
    }

    #[napi]
    pub fn try_acquire(&self, env: Env) -> napi::Result<BulkheadPermit> {
        now(&env, self.0.try_acquire()).map(|permit| BulkheadPermit(Some(permit)))
    }
}

methods! { Bulkhead(bulkhead) {
    acquire() => bulkhead.acquire().await.map(|permit| BulkheadPermit(Some(permit)));
} }

/// A permit of a bulkhead.
#[napi]
pub struct BulkheadPermit(Option<policy::BulkheadPermit>);

#[napi]
impl BulkheadPermit {
    #[napi]
    pub fn release(&mut self) {
        self.0.take();
    }
}
