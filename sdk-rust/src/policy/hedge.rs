//! Hedging: if the result is late, ask a second time and take the first result.
//!
//! Only for calls that may be made twice, and only against slowness that strikes at random: it cuts the tail, and costs
//! load. Everything happens in the caller's own task; nothing is spawned.
//!
//! # What is promised
//! - The first call is made at once. After the delay another is made, and so on up to `max_hedges` extra ones. The first
//!   success is returned, and all others are cancelled by dropping them before it is.
//! - The delay is fixed, or a percentile of the recent latencies once `warm_up` calls have been seen; at p95 about one call in
//!   twenty is hedged. A call that was won by a hedge counts with the time it took in all: at least that long the
//!   first would have taken, which keeps the percentile honest.
//! - Extra load is limited by a budget. A hedge that is not granted is not made; those under way are not touched.
//!
//! # Failures
//! An error that the classifier calls permanent (or to be ignored) is the result: it is returned at once. One that may go away lets
//! the others go on; if no other is under way it is returned at once, as a fresh attempt is for retry to make. If all
//! fail, the first failure is returned: it is the one a call without hedging would most likely have got.
//!
//! ```
//! use resil::policy::{Hedge, HedgeSettings, retry_all};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let hedge = Hedge::new(&HedgeSettings::default())?;
//! let result = hedge.call(retry_all, || async { Ok::<_, std::io::Error>("hello") }).await;
//! assert_eq!(result.unwrap(), "hello");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryFutureExt};
use metrics::Counter;
use serde::{Deserialize, Serialize};

use super::budget::{Budget, BudgetSettings};
use super::classify::{Classify, classify_failure};
use super::latency::Latencies;
use super::timeout::MAX_TIMEOUT;
use crate::clock::{Clock, Sleep};
use crate::error::{Error, Failure};
use crate::settings::InPart;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry::{self, Event, Interest, emit};

/// How to hedge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HedgeSettings {
    /// How long the result may take before another call is made: 1 us to 5 min. With a percentile, only until it is known.
    #[serde(with = "span_text")]
    pub hedging_delay: Duration,
    /// Wait for this percentile of the recent latencies instead: from 1 to 99.99.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// How many calls it takes to know a percentile: 1 to 100,000.
    pub warm_up: u32,
    /// How many extra calls there may be for one call: 1 to 10.
    pub max_hedges: u32,
    /// The limit on the extra calls of all calls together.
    pub budget: BudgetSettings,
}

impl Default for HedgeSettings {
    /// One extra call after 100 ms, at most one for every ten calls, but always one a second.
    fn default() -> Self {
        Self {
            hedging_delay: Duration::from_millis(100),
            percentile: None,
            warm_up: 100,
            max_hedges: 1,
            budget: BudgetSettings { ttl: Duration::from_secs(10), min_per_second: 1, percent: 10 },
        }
    }
}

impl HedgeSettings {
    pub fn validate(&self) -> Result<(), Error> {
        check_span("hedgingDelay", self.hedging_delay, Duration::from_micros(1), MAX_TIMEOUT)?;
        if let Some(percentile) = self.percentile {
            check_number("percentile", percentile, 1.0, 99.99)?;
        }
        check_number("warmUp", self.warm_up, 1, 100_000)?;
        check_number("maxHedges", self.max_hedges, 1, 10)?;
        self.budget.validate().in_part("budget")
    }
}

/// The policy. Cheap to clone; clones share latencies and budget.
#[derive(Debug, Clone)]
pub struct Hedge(Arc<HedgeInner>);

#[derive(Debug, Clone)]
struct HedgeInner {
    settings: HedgeSettings,
    latencies: Option<Arc<Latencies>>,
    budget: Budget,
    shares_budget: bool,
    clock: Clock,
    name: Arc<str>,
    hedges: Counter,
    won: Counter,
}

impl Hedge {
    pub fn new(settings: &HedgeSettings) -> Result<Self, Error> {
        settings.validate()?;
        let percentile = |percentile| Latencies::new(percentile, settings.warm_up).map(Arc::new);
        let latencies = settings.percentile.map(percentile).transpose()?;
        let (clock, name) = (Clock::system(), Arc::<str>::from(telemetry::UNNAMED));
        let budget = Budget::with_clock(&settings.budget, clock.clone())?;
        let (hedges, won) = (telemetry::hedged(&name), telemetry::hedges_won(&name));
        Ok(Self(Arc::new(HedgeInner {
            settings: settings.clone(),
            latencies,
            budget,
            shares_budget: false,
            clock,
            name,
            hedges,
            won,
        })))
    }

    fn with(self, change: impl FnOnce(&mut HedgeInner)) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        change(&mut inner);
        Self(Arc::new(inner))
    }

    /// What it is called in metrics and events.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with(|inner| {
            inner.name = name.into();
            (inner.hedges, inner.won) = (telemetry::hedged(&inner.name), telemetry::hedges_won(&inner.name));
        })
    }

    /// A budget shared with others, in place of one of its own.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        self.with(|inner| (inner.budget, inner.shares_budget) = (budget, true))
    }

    /// Another clock than the machine's, for tests. A budget of its own begins anew.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        self.with(|inner| {
            if !inner.shares_budget {
                inner.budget = inner.budget.anew(clock.clone());
            }
            inner.clock = clock;
        })
    }

    pub fn settings(&self) -> &HedgeSettings {
        &self.0.settings
    }

    /// How long a result may take now before another call is made.
    pub fn delay(&self) -> Duration {
        let known = self.0.latencies.as_ref().and_then(|latencies| latencies.quantile());
        known.unwrap_or(self.0.settings.hedging_delay)
    }

    /// Runs `operation`, and again beside it if the result is late.
    pub async fn call<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.around(classify, || operation().map_err(Failure::Inner)).await
    }

    /// The same around another policy: `hedge.around(classify, || timeout.call(|| fetch()))`.
    pub async fn around<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let began = self.0.latencies.as_ref().map(|latencies| (latencies, self.0.clock.now()));
        self.0.budget.count_call();
        let mut first = pin!(Some(operation()));
        // Most calls are over here or after one wait: no timer, no list before it is known that one is needed.
        let at_once = poll_fn(|context| Poll::Ready(poll_some(first.as_mut(), context))).await;
        let outcome = match at_once {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => self.race(classify, operation, first.as_mut()).await,
        };
        if let (Ok(_), Some((latencies, began))) = (&outcome, began) {
            let now = self.0.clock.now();
            latencies.record(now, now.saturating_sub(began));
        }
        outcome
    }

    /// `first` is under way.
    async fn race<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
        mut first: Pin<&mut Option<Fut>>,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let mut extra = FuturesUnordered::new();
        let mut first_failure = None;
        let mut left = self.0.settings.max_hedges;
        let mut alarm: Option<Sleep> = Some(self.0.clock.sleep(self.delay()));
        poll_fn(|context| {
            loop {
                // Whatever is over: the first call, then the extra ones.
                let mut over = None;
                if first.is_some()
                    && let Poll::Ready(outcome) = poll_some(first.as_mut(), context)
                {
                    first.set(None);
                    over = Some(outcome);
                } else if !extra.is_empty()
                    && let Poll::Ready(Some(outcome)) = extra.poll_next_unpin(context)
                {
                    if Result::is_ok(&outcome) {
                        self.0.won.increment(1);
                    }
                    over = Some(outcome);
                }
                match over {
                    Some(Ok(value)) => return Poll::Ready(Ok(value)),
                    Some(Err(failure)) => {
                        if !classify_failure(&classify, &failure).is_retryable() {
                            return Poll::Ready(Err(failure));
                        }
                        let failure = first_failure.take().unwrap_or(failure);
                        if first.is_none() && extra.is_empty() {
                            return Poll::Ready(Err(failure));
                        }
                        first_failure = Some(failure);
                    }
                    None => {
                        let Some(sleep) = &mut alarm else { return Poll::Pending };
                        ready!(Pin::new(sleep).poll(context));
                        match self.0.budget.try_take() {
                            None => alarm = None,
                            Some(grant) => {
                                grant.begin();
                                self.0.hedges.increment(1);
                                tracing::debug!(name: "resil.hedge", policy = &*self.0.name, "asking once more");
                                emit(Interest::Happenings, None, || Event::Hedge { name: Arc::clone(&self.0.name) });
                                extra.push(operation());
                                left -= 1;
                                alarm = (left > 0).then(|| self.0.clock.sleep(self.delay()));
                            }
                        }
                    }
                }
            }
        })
        .await
    }
}

/// Polls what is there.
fn poll_some<Fut: Future>(future: Pin<&mut Option<Fut>>, context: &mut Context<'_>) -> Poll<Fut::Output> {
    match future.as_pin_mut() {
        Some(future) => future.poll(context),
        None => Poll::Pending,
    }
}
