//! Whole policies: all stages as one call, in an order that makes sense.
//!
//! # The order
//! From the outside in: fallback, total deadline, shed, idempotent run, retry, hedge, breaker, rate limit, bulkhead (local,
//! then shared), attempt timeout. So the deadline holds whatever happens inside; an open circuit costs neither cells nor
//! places and is never retried; every attempt counts against the limit and the breaker; no place is held while a
//! retry waits; the attempt's time begins when it has its place. [`PolicyBuilder::order`] chooses another, within
//! limits, and [`Policy::warnings`] says what is odd about it.
//!
//! What is refused inside of the breaker (rate limit, bulkhead) was not made: the breaker gets it as cancelled.
//!
//! # What it costs
//! Stages that are not there cost a comparison. Nothing is spawned, and nothing is boxed but what asks a server: a rate limit, a
//! shared bulkhead, a breaker when it does not know.
//!
//! # Shutdown
//! A call through a policy that has something of a [`Client`](crate::Client) is in flight for that client: a shutdown waits for it, and
//! what it asks of the client meanwhile is let in. At the shutdown's deadline it is dropped.
//!
//! ```
//! use std::time::Duration;
//! use resil::breaker::BreakerSettings;
//! use resil::policy::{Policy, RetrySettings, TimeoutSettings, retry_all};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let client = resil::connect("memory://").await?;
//! let second = Some(Duration::from_secs(1));
//! let payments = Policy::builder("payments")
//!     .timeout(TimeoutSettings { attempt: Some(Duration::from_millis(250)), total: second })
//!     .retry(&RetrySettings::default())
//!     .breaker(client.breaker("payments", BreakerSettings::new())?)
//!     .build()?;
//! let result = payments.call(retry_all, || async { Ok::<_, std::io::Error>("paid") }).await;
//! assert_eq!(result.unwrap(), "paid");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt;
use resil_core::Span;
pub use resil_core::policy::Priority;
use resil_core::policy::chaos::Strike;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::builder::{PolicyBuilder, PolicyParts};
use super::bulkhead::{BulkheadPermit, LocalBulkhead};
use super::classify::Classify;
use super::fallback::Fallback;
use super::in_flight::Arrival;
use super::settings::PolicySettings;
use super::stage::Stage;
use super::timeout::{MAX_TIMEOUT, MIN_TIMEOUT};
use crate::breaker::report_of;
use crate::clock::Moment;
use crate::error::{Error, Failure};
use crate::idempotency::{Codec, Idempotent, Outcome, Remember, Run};
use crate::settings::span_text::{check_number, check_span, optional};

/// A whole policy. Cheap to clone; clones share everything. See the [module](self).
#[derive(Debug, Clone)]
pub struct Policy(pub(super) Arc<PolicyParts>);

/// What is particular to one call. Omitted fields are as the policy has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CallSettings<'a> {
    /// Whose rate limit: a user, a tenant. The policy's name by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// How many cells of the rate limit each attempt takes. One by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// Which partition of the local bulkhead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<Cow<'a, str>>,
    /// For each attempt of this call, in place of the policy's.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
    /// For all of this call, in place of the policy's.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub total_timeout: Option<Duration>,
    /// How important it is, to shedding. Normal by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

impl<'a> CallSettings<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`key`](Self#structfield.key).
    pub fn key(mut self, key: impl Into<Cow<'a, str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets [`cost`](Self#structfield.cost).
    pub fn cost(mut self, cells: u32) -> Self {
        self.cost = Some(cells);
        self
    }

    /// Sets [`partition`](Self#structfield.partition).
    pub fn partition(mut self, name: impl Into<Cow<'a, str>>) -> Self {
        self.partition = Some(name.into());
        self
    }

    /// Sets [`attempt_timeout`](Self#structfield.attempt_timeout).
    pub fn attempt_timeout(mut self, after: Duration) -> Self {
        self.attempt_timeout = Some(after);
        self
    }

    /// Sets [`total_timeout`](Self#structfield.total_timeout).
    pub fn total_timeout(mut self, after: Duration) -> Self {
        self.total_timeout = Some(after);
        self
    }

    /// Sets [`priority`](Self#structfield.priority).
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The same, borrowed: for settings that are kept and used for many calls.
    pub fn by_ref(&self) -> CallSettings<'_> {
        let (key, partition) = (self.key.as_deref().map(Cow::Borrowed), self.partition.as_deref().map(Cow::Borrowed));
        CallSettings { key, partition, ..*self }
    }

    pub fn validate(&self) -> Result<(), Error> {
        for (field, after) in [("attemptTimeout", self.attempt_timeout), ("totalTimeout", self.total_timeout)] {
            after.map_or(Ok(()), |after| check_span(field, after, MIN_TIMEOUT, MAX_TIMEOUT))?;
        }
        check_number("cost", self.cost.unwrap_or(1), 1, u32::MAX)
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_micros(span.as_us().unsigned_abs())
}

/// A call under way.
pub(super) struct Call<'a, C> {
    pub options: &'a CallSettings<'a>,
    pub classify: &'a C,
    pub total: Option<Duration>,
    pub attempt: Option<Duration>,
    pub deadline: Option<Moment>,
}

impl Policy {
    /// `name` is what it is called in metrics, events and errors, and the key of its rate limit.
    pub fn builder(name: &str) -> PolicyBuilder {
        PolicyBuilder::new(PolicySettings { name: Some(name.to_owned()), ..PolicySettings::default() })
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The stages it has, outermost first.
    pub fn order(&self) -> &[Stage] {
        &self.0.order
    }

    /// What is odd about it, in sentences. It was also logged once.
    pub fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    /// Whether it may end an attempt before that ends by itself: by a timeout, because a hedge was faster, or because a permit of
    /// the shared bulkhead was lost. If not, only the timeouts of one call and the deadline of a client's shutdown do.
    pub fn interrupts(&self) -> bool {
        let ends =
            |stage: &Stage| matches!(stage, Stage::Total | Stage::Attempt | Stage::Hedge | Stage::SharedBulkhead);
        self.order().iter().any(ends)
    }

    /// Runs `operation` through all stages. `classify` says what its errors mean, to retry, hedge and breaker.
    ///
    /// It may be run more than once, also at the same time if there is a hedge. The future of this is `Send` if those of
    /// `operation` are and what it captures is `Sync`.
    pub fn call<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> impl Future<Output = Result<T, Failure<E>>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.call_with(CallSettings::new(), classify, operation)
    }

    /// The same with what is particular to this call.
    pub fn call_with<T, E, Fut>(
        &self,
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> impl Future<Output = Result<T, Failure<E>>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.around_with(options, classify, move || operation().map_err(Failure::Inner))
    }

    /// The same around what already gives a [`Failure`]: another policy, an idempotent run, a lock.
    pub async fn around_with<T, E, Fut>(
        &self,
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let parts = &*self.0;
        let mut arrival = parts.arrive(None);
        let (call, _place) = parts.begin(&mut arrival, &options, &classify)?;
        let limited = parts.total.limit_to(call.total, parts.inside(&call, &operation));
        let outcome = arrival.through(limited).await;
        arrival.end(outcome)
    }

    /// As [`call_with`](Self::call_with); if that fails, `fallback` takes its place. It is outside of all stages, also of the deadline.
    pub async fn call_or<T: 'static, E: 'static, Fut>(
        &self,
        fallback: &Fallback<T, E>,
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let parts = &*self.0;
        let mut arrival = parts.arrive(None);
        let (call, _place) = parts.begin(&mut arrival, &options, &classify)?;
        let operation = || operation().map_err(Failure::Inner);
        let limited = || parts.total.limit_to(call.total, parts.inside(&call, &operation));
        let outcome = arrival.through(fallback.around(limited)).await;
        arrival.end(outcome)
    }

    /// As [`call_with`](Self::call_with), once for all callers who name the same `key`: see [`Idempotent::run_json`]. The run is
    /// inside of deadline and shed and outside of everything else, so all attempts are one run, with one fence.
    ///
    /// If it fails in the end, the key is free again and the next caller may run: retry, and this, are for operations that may be made
    /// again, or that know by [`Run::fence`] what they did. If an attempt was cut short (by a timeout, by a hedge that failed first), nobody
    /// knows what it did, and the key keeps its lease, unless [`abort_on_cancel`](crate::idempotency::IdempotencySettings#structfield.abort_on_cancel). See
    /// [`call_once_remembering`](Self::call_once_remembering) for errors that are final.
    pub async fn call_once<T, E, Fut>(
        &self,
        idempotent: &Idempotent,
        key: &str,
        fingerprint: &[u8],
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T, E>>,
    {
        let operation = |run| operation(run).map_err(Failure::Inner);
        self.once(idempotent, key, fingerprint, Codec::json(None), options, classify, operation).await
    }

    /// As [`call_once`](Self::call_once); errors of the operation that `remember` calls final are recorded, and duplicates get them as
    /// [`Failure::Inner`], as with [`Idempotent::run_json_remembering`].
    #[allow(clippy::too_many_arguments)]
    pub async fn call_once_remembering<T, E: 'static, Fut>(
        &self,
        idempotent: &Idempotent,
        key: &str,
        fingerprint: &[u8],
        remember: &Remember<E>,
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T, E>>,
    {
        let (remember, operation) = (remember.of_failure(), |run| operation(run).map_err(Failure::Inner));
        self.once(idempotent, key, fingerprint, Codec::json(Some(&remember)), options, classify, operation).await
    }

    /// As [`call_once`](Self::call_once) with results as bytes, around what already gives a [`Failure`]; errors that `remember` calls
    /// final are recorded, and duplicates get them.
    #[allow(clippy::too_many_arguments)]
    pub async fn around_once<R, E, Fut>(
        &self,
        idempotent: &Idempotent,
        key: &str,
        fingerprint: &[u8],
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        remember: &Remember<Failure<E>>,
        operation: impl Fn(Run) -> Fut,
    ) -> Result<Outcome<Bytes>, Failure<E>>
    where
        R: Into<Bytes>,
        Fut: Future<Output = Result<R, Failure<E>>>,
    {
        let operation = |run| operation(run).map_ok(Into::into);
        self.once(idempotent, key, fingerprint, Codec::bytes(Some(remember)), options, classify, operation).await
    }

    #[allow(clippy::too_many_arguments)]
    async fn once<T, E, Fut>(
        &self,
        idempotent: &Idempotent,
        key: &str,
        fingerprint: &[u8],
        codec: Codec<'_, T, Failure<E>>,
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let parts = &*self.0;
        let mut arrival = parts.arrive(Some(idempotent.client()));
        let (call, _place) = parts.begin(&mut arrival, &options, &classify)?;
        let work = async |run: Run| {
            let operation = || run.clone().attempt_of(operation(run.clone()));
            parts.inside(&call, &operation).await
        };
        let once = async {
            let outcome = idempotent.run_inside(key, fingerprint, codec, work).await;
            outcome.map_err(|failure| failure.flat_map(|inner| inner))
        };
        // A box, because an idempotent run is a deep type already, and asks the server anyway.
        let limited = parts.total.limit_to(call.total, Box::pin(once));
        let outcome = arrival.through(limited).await;
        arrival.end(outcome)
    }
}

impl PolicyParts {
    /// The call as it is to be made, and its place if calls are shed: all that can be refused without waiting.
    fn begin<'a, C>(
        &'a self,
        arrival: &mut Arrival<'_>,
        options: &'a CallSettings<'a>,
        classify: &'a C,
    ) -> Result<(Call<'a, C>, Option<BulkheadPermit>), Error> {
        if let Some(error) = arrival.refused.take() {
            return Err(error);
        }
        options.validate()?;
        let total = options.total_timeout.or(self.timeouts.total);
        let attempt = options.attempt_timeout.or(self.timeouts.attempt);
        let deadline = total.map(|total| arrival.began.saturating_add(total));
        let place = match &self.shed {
            Some(shed) if self.plan.sheds_first => Some(shed.try_acquire()?),
            _ => None,
        };
        Ok((Call { options, classify, total, attempt, deadline }, place))
    }

    /// All that is inside of deadline and shed.
    async fn inside<T, E, C, Fut>(&self, call: &Call<'_, C>, operation: &impl Fn() -> Fut) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let Some(fleet) = &self.fleet else { return self.locally(call, operation).await };
        // Boxes, so that policies without it stay small.
        let away = || Box::pin(fleet.away().0.locally(call, operation));
        Box::pin(fleet.run(self, call, || self.hedged(call, operation), away)).await
    }

    /// The same, with the handles that this policy has.
    async fn locally<T, E, C, Fut>(&self, call: &Call<'_, C>, operation: &impl Fn() -> Fut) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let Some(retry) = &self.retry else { return self.hedged(call, operation).await };
        let holds = self.enter(&self.plan.outside_of_retry, call).await?;
        let retried =
            retry.run(|error: &E| call.classify.classify(error), call.deadline, || self.hedged(call, operation));
        let outcome = holds.unless_lost(retried).await;
        holds.leave(report_of(call.classify, &outcome)).await;
        outcome
    }

    async fn hedged<T, E, C, Fut>(&self, call: &Call<'_, C>, operation: &impl Fn() -> Fut) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let Some(hedge) = &self.hedge else { return self.attempted(call, operation).await };
        let holds = self.enter(&self.plan.outside_of_hedge, call).await?;
        let hedged = hedge.around(|error: &E| call.classify.classify(error), || self.attempted(call, operation));
        let outcome = holds.unless_lost(hedged).await;
        holds.leave(report_of(call.classify, &outcome)).await;
        outcome
    }

    /// One attempt: by default breaker, rate limit, bulkheads, timeout.
    async fn attempted<T, E, C, Fut>(&self, call: &Call<'_, C>, operation: &impl Fn() -> Fut) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let Some(adapting) = &self.adapting else { return self.made(call, operation).await };
        adapting.admit(call.options.priority, || self.usage())?;
        let subject = call.options.key.as_deref().unwrap_or(&self.name);
        let struck = || async {
            match adapting.strike(subject) {
                None => operation().await,
                Some(Strike::Latency(late)) => {
                    adapting.clock().sleep(duration(late)).await;
                    operation().await
                }
                Some(Strike::Error) => Err(adapting.struck().into()),
                // It was made; only its reply is lost.
                Some(Strike::Drop) => operation().await.and(Err(adapting.struck().into())),
            }
        };
        // A box, so that policies without it stay shallow.
        let outcome = Box::pin(self.made(call, &struck)).await;
        adapting.ended(report_of(call.classify, &outcome));
        outcome
    }

    /// How many places are taken, and how many there are.
    fn usage(&self) -> (u32, u32) {
        let own = self.bulkhead.as_ref().or(self.share.as_ref());
        own.map_or((0, 1), LocalBulkhead::usage)
    }

    async fn made<T, E, C, Fut>(&self, call: &Call<'_, C>, operation: &impl Fn() -> Fut) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let holds = self.enter(&self.plan.innermost, call).await?;
        let outcome = holds.unless_lost(self.attempt.limit_to(call.attempt, operation())).await;
        holds.leave(report_of(call.classify, &outcome)).await;
        outcome
    }
}
