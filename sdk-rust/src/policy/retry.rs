//! Retry: the same call again, later, while that makes sense.
//!
//! # What is promised
//! - At most `max_attempts` attempts, the first included, one after the other. Each attempt's future is dropped before the
//!   next delay begins: nothing is held while waiting.
//! - Only what the classifier calls retryable is retried (see [`classify`](super::classify)); an open circuit never is.
//! - The delay before a retry is the one of [`Backoff`], or the `retry_after` that came with the error if that is longer.
//!
//! # When it gives up
//! - The error is permanent, or only one attempt was allowed: the error itself is returned, as if there were no policy.
//! - The attempts are used up, the budget is empty, or the wait would be too long: [`Failure::Exhausted`] with the number
//!   of attempts that were made and how the last failed, or with `reraise` how the last failed, as it is. A wait is too long if it ends after `max_elapsed` (or the deadline of a
//!   whole policy), or if `retry_after` is above `retry_after_max`. It gives up at once then: nobody waits for nothing.
//!
//! ```
//! use resil::policy::{Class, Retry, RetrySettings};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let retry = Retry::new(&RetrySettings { max_attempts: 3, ..RetrySettings::default() })?;
//! let classify = |status: &u16| if *status >= 500 { Class::Retry } else { Class::Permanent };
//! let mut results = [Err(503), Ok("hello")].into_iter();
//! let result = retry.call(classify, || std::future::ready(results.next().unwrap())).await;
//! assert_eq!(result, Ok("hello"));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::Counter;
use serde::{Deserialize, Serialize};

use super::backoff::{Backoff, Delays, Jitter, MAX_DELAY, Random};
use super::budget::{Budget, BudgetPermit, BudgetSettings};
use super::classify::{Class, Classify, classify_failure};
use crate::clock::{Clock, Moment};
use crate::error::{Error, Failure};
use crate::settings::InPart;
use crate::settings::span_text::{self, check_number, check_span, optional};
use crate::telemetry::{self, Event, Interest, emit};

/// How to retry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RetrySettings {
    /// Attempts in all, the first included: 1 to 100.
    pub max_attempts: u32,
    /// The delay before the first retry: 1 us to 1 h.
    #[serde(with = "span_text")]
    pub initial_backoff: Duration,
    /// No delay is longer, but for a `retry_after` that came with the error: `initial_backoff` to 1 h.
    #[serde(with = "span_text")]
    pub max_backoff: Duration,
    /// Each delay is this many times the one before: 1 to 100.
    pub backoff_multiplier: f64,
    pub jitter: Jitter,
    /// No delay is shorter, whatever the jitter: 0 to `max_backoff`.
    #[serde(with = "span_text")]
    pub min_backoff: Duration,
    /// If an error asks to wait for longer than this, give up at once: 0 to 1 h.
    #[serde(with = "span_text")]
    pub retry_after_max: Duration,
    /// No retry begins later than this after the first attempt did: up to 1 h.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub max_elapsed: Option<Duration>,
    /// A limit on the retries of all calls together. Left out, the usual one; `null` for none.
    pub budget: Option<BudgetSettings>,
    /// Gives the failure of the last attempt as it is when it gives up, instead of [`Failure::Exhausted`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reraise: bool,
}

impl Default for RetrySettings {
    /// Three attempts, 100 ms doubling up to 10 s with full jitter, and the usual budget.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            backoff_multiplier: 2.0,
            jitter: Jitter::Full,
            min_backoff: Duration::ZERO,
            retry_after_max: Duration::from_secs(60),
            max_elapsed: None,
            budget: Some(BudgetSettings::default()),
            reraise: false,
        }
    }
}

impl RetrySettings {
    pub fn validate(&self) -> Result<(), Error> {
        check_number("maxAttempts", self.max_attempts, 1, 100)?;
        self.backoff().validate()?;
        check_span("retryAfterMax", self.retry_after_max, Duration::ZERO, MAX_DELAY)?;
        if let Some(max_elapsed) = self.max_elapsed {
            check_span("maxElapsed", max_elapsed, Duration::from_micros(1), MAX_DELAY)?;
        }
        self.budget.as_ref().map_or(Ok(()), |budget| budget.validate().in_part("budget"))
    }

    pub fn backoff(&self) -> Backoff {
        Backoff {
            initial: self.initial_backoff,
            max: self.max_backoff,
            multiplier: self.backoff_multiplier,
            jitter: self.jitter,
            min: self.min_backoff,
        }
    }
}

/// The policy. Cheap to clone; clones share the budget.
#[derive(Debug, Clone)]
pub struct Retry(Arc<RetryInner>);

#[derive(Debug, Clone)]
struct RetryInner {
    settings: RetrySettings,
    backoff: Backoff,
    budget: Option<Budget>,
    shares_budget: bool,
    clock: Clock,
    random: Arc<Random>,
    name: Arc<str>,
    retries: Counter,
    given_up: GivenUp,
}

/// Why there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GaveUp {
    Attempts,
    Budget,
    Deadline,
    RetryAfter,
    /// The circuit opened.
    Open,
}

impl GaveUp {
    const ALL: [Self; 5] = [Self::Attempts, Self::Budget, Self::Deadline, Self::RetryAfter, Self::Open];

    fn text(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::RetryAfter => "retry_after",
            Self::Open => "open",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.text() == text)
    }
}

/// How often it gave up, by the reason.
#[derive(Debug, Clone)]
struct GivenUp([Counter; 5]);

impl GivenUp {
    fn new(name: &Arc<str>) -> Self {
        Self(GaveUp::ALL.map(|reason| telemetry::retries_given_up(name, reason.text())))
    }
}

/// What to do before the next attempt.
struct Pause {
    delay: Duration,
    grant: Option<BudgetPermit>,
}

impl Retry {
    pub fn new(settings: &RetrySettings) -> Result<Self, Error> {
        settings.validate()?;
        let (clock, name) = (Clock::system(), Arc::<str>::from(telemetry::UNNAMED));
        let budget = settings.budget.as_ref().map(|own| Budget::with_clock(own, clock.clone())).transpose()?;
        let (retries, given_up) = (telemetry::retried(&name), GivenUp::new(&name));
        let (settings, backoff, random) = (settings.clone(), settings.backoff(), Arc::default());
        Ok(Self(Arc::new(RetryInner {
            settings,
            backoff,
            budget,
            shares_budget: false,
            clock,
            random,
            name,
            retries,
            given_up,
        })))
    }

    fn with(self, change: impl FnOnce(&mut RetryInner)) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.0);
        change(&mut inner);
        Self(Arc::new(inner))
    }

    /// What it is called in metrics and events.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with(|inner| {
            inner.name = name.into();
            (inner.retries, inner.given_up) = (telemetry::retried(&inner.name), GivenUp::new(&inner.name));
        })
    }

    /// A budget shared with others, in place of one of its own.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        self.with(|inner| (inner.budget, inner.shares_budget) = (Some(budget), true))
    }

    /// Another clock than the machine's, for tests. A budget of its own begins anew.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        self.with(|inner| {
            if !inner.shares_budget {
                inner.budget = inner.budget.take().map(|budget| budget.anew(clock.clone()));
            }
            inner.clock = clock;
        })
    }

    /// Jitter that repeats itself, for tests.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.with(|inner| inner.random = Arc::new(Random::seeded(seed)))
    }

    pub fn settings(&self) -> &RetrySettings {
        &self.0.settings
    }

    pub fn budget(&self) -> Option<&Budget> {
        self.0.budget.as_ref()
    }

    /// Runs `operation`, again and again while it fails with what `classify` calls retryable.
    pub fn call<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        mut operation: impl FnMut() -> Fut,
    ) -> impl Future<Output = Result<T, Failure<E>>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.run(classify, None, move || operation().map_err(Failure::Inner))
    }

    /// The same around another policy: `retry.around(classify, || timeout.call(|| fetch()))`.
    pub async fn around<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        operation: impl FnMut() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        self.run(classify, None, operation).await
    }

    /// The same with a moment after which no retry is begun.
    pub(crate) async fn run<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        deadline: Option<Moment>,
        mut operation: impl FnMut() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let inner = &*self.0;
        if let Some(budget) = &inner.budget {
            budget.count_call();
        }
        let deadline = match inner.settings.max_elapsed {
            None => deadline,
            Some(span) => {
                let own = inner.clock.now().saturating_add(span);
                Some(deadline.map_or(own, |deadline| deadline.min(own)))
            }
        };
        // Most calls succeed at once: what only a retry needs is made by the first failure.
        let mut delays = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let failure = match operation().await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let delays = delays.get_or_insert_with(|| inner.backoff.delays());
            let class = classify_failure(&classify, &failure);
            let pause = match inner.plan(class, failure, attempts, deadline, delays) {
                Ok(pause) => pause,
                Err(failure) => return Err(failure),
            };
            if !pause.delay.is_zero() {
                inner.clock.sleep(pause.delay).await;
            }
            if let Some(grant) = pause.grant {
                grant.begin();
            }
            inner.retries.increment(1);
        }
    }
}

/// For attempts that another makes.
impl Retry {
    /// How long to wait before a call that was refused, and so not made, is asked for again; or the failure to return.
    pub(super) fn pause<E>(
        &self,
        class: Class,
        failure: Failure<E>,
        attempts: u32,
        deadline: Option<Moment>,
        delays: &mut Option<Delays>,
    ) -> Result<Duration, Failure<E>> {
        let delays = delays.get_or_insert_with(|| self.0.backoff.delays());
        self.0.delay(class, failure, attempts, deadline, delays).map(|(delay, _)| delay)
    }

    /// No further attempt is made.
    pub(super) fn give_up<E>(&self, reason: GaveUp, attempts: u32, failure: Failure<E>) -> Failure<E> {
        if self.0.settings.max_attempts == 1 { failure } else { self.0.give_up(reason, attempts, failure) }
    }

    /// An attempt failed, and the next one comes after `delay`.
    pub(super) fn sleeps(&self, attempts: u32, delay: Duration) {
        self.0.sleeps(attempts, delay);
    }

    /// Another attempt begins.
    pub(super) fn count(&self) {
        self.0.retries.increment(1);
    }
}

impl RetryInner {
    fn give_up<E>(&self, reason: GaveUp, attempts: u32, failure: Failure<E>) -> Failure<E> {
        self.given_up.0[reason as usize].increment(1);
        let reason = reason.text();
        tracing::debug!(name: "resil.retry.given_up", policy = &*self.name, attempts, reason, "giving up");
        if self.settings.reraise { failure } else { Failure::Exhausted { attempts, last: Box::new(failure) } }
    }

    #[cold]
    fn sleeps(&self, attempt: u32, delay: Duration) {
        tracing::debug!(name: "resil.retry", policy = &*self.name, attempts = attempt, ?delay, "retrying");
        emit(Interest::Happenings, None, || Event::Retry { name: Arc::clone(&self.name), attempt, delay });
    }

    /// How to go on after an attempt that failed, or the failure to return.
    fn plan<E>(
        &self,
        class: Class,
        failure: Failure<E>,
        attempts: u32,
        deadline: Option<Moment>,
        delays: &mut Delays,
    ) -> Result<Pause, Failure<E>> {
        let (delay, failure) = self.delay(class, failure, attempts, deadline, delays)?;
        let grant = match &self.budget {
            None => None,
            Some(budget) => match budget.try_take() {
                Some(grant) => Some(grant),
                None => return Err(self.give_up(GaveUp::Budget, attempts, failure)),
            },
        };
        self.sleeps(attempts, delay);
        Ok(Pause { delay, grant })
    }

    /// The same without a budget. A failure that is not returned comes back beside the delay.
    fn delay<E>(
        &self,
        class: Class,
        failure: Failure<E>,
        attempts: u32,
        deadline: Option<Moment>,
        delays: &mut Delays,
    ) -> Result<(Duration, Failure<E>), Failure<E>> {
        let asked = match class {
            Class::Retry => Duration::ZERO,
            Class::RetryAfter(span) => span,
            Class::Permanent | Class::Ignore => return Err(failure),
        };
        if self.settings.max_attempts == 1 {
            return Err(failure);
        }
        if attempts >= self.settings.max_attempts {
            return Err(self.give_up(GaveUp::Attempts, attempts, failure));
        }
        if asked > self.settings.retry_after_max {
            return Err(self.give_up(GaveUp::RetryAfter, attempts, failure));
        }
        let delay = delays.next(&self.random).max(asked);
        if deadline.is_some_and(|deadline| self.clock.now().saturating_add(delay) >= deadline) {
            return Err(self.give_up(GaveUp::Deadline, attempts, failure));
        }
        Ok((delay, failure))
    }
}
