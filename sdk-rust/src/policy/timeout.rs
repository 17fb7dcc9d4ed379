//! Timeout: nobody waits longer than agreed.
//!
//! # What is promised
//! A call that is not over after `T` is dropped at once and [`Error::Timeout`] is returned, within `T +` [`SLACK`] as long as
//! the runtime is not starved. `T` counts from when the call first has to wait: a call that never waits costs no timer and
//! no look at the clock. Under a driven clock the slack is nothing: it fires at the first poll at `T`. A call that is
//! ready at that very poll has made it.
//!
//! # Which one applies
//! Two scopes: `attempt` (each attempt by itself, inside of retry) and `total` (all of it, delays included, outside). What an operation
//! asks for beats what is said for everything: [`TimeoutSettings::over`]. Timeouts are more than 0 and at most [`MAX_TIMEOUT`].
//!
//! ```
//! use std::time::Duration;
//! use resil::policy::Timeout;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let timeout = Timeout::attempt(Duration::from_millis(10))?;
//! let late = timeout.call(std::future::pending::<Result<(), ()>>).await;
//! assert_eq!(late.unwrap_err().code(), Some(resil::Code::Timeout));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::Counter;
use serde::{Deserialize, Serialize};
use tokio::task::coop::unconstrained;

use super::until::Until;
use crate::clock::{Clock, Sleep};
use crate::error::{Error, Failure};
use crate::settings::InPart;
use crate::settings::span_text::{check_span, optional};
use crate::telemetry::{self, Event, Interest, emit};

/// The longest timeout that can be asked for.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(300);

/// By how much a timeout may be late on the machine's clock: the timer's grain of 1 ms, rounded up, and a wake-up.
pub const SLACK: Duration = Duration::from_millis(5);

pub(super) const MIN_TIMEOUT: Duration = Duration::from_micros(1);

/// Which timeouts there are. Both may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TimeoutSettings {
    /// For each attempt.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Duration>,
    /// For everything, retries and their delays included; not below `attempt`.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

impl TimeoutSettings {
    pub fn validate(&self) -> Result<(), Error> {
        if let Some(attempt) = self.attempt {
            Scope::Attempt.check(attempt)?;
        }
        if let Some(total) = self.total {
            Scope::Total.check(total)?;
            check_span("total", total, self.attempt.unwrap_or(MIN_TIMEOUT), MAX_TIMEOUT)?;
        }
        Ok(())
    }

    /// These for an operation, within `global` ones: each is the operation's if it says one.
    pub fn over(&self, global: &Self) -> Self {
        Self { attempt: self.attempt.or(global.attempt), total: self.total.or(global.total) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Attempt,
    Total,
}

impl Scope {
    fn text(self) -> &'static str {
        match self {
            Self::Attempt => "attempt",
            Self::Total => "total",
        }
    }

    fn check(self, after: Duration) -> Result<(), Error> {
        check_span(self.text(), after, MIN_TIMEOUT, MAX_TIMEOUT)
    }
}

/// The policy. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Timeout {
    after: Duration,
    scope: Scope,
    clock: Clock,
    name: Arc<str>,
    fired: Counter,
}

impl Timeout {
    /// For one attempt. Refuses 0 and more than [`MAX_TIMEOUT`].
    pub fn attempt(after: Duration) -> Result<Self, Error> {
        Self::new(after, Scope::Attempt)
    }

    /// For everything, retries included. Refuses 0 and more than [`MAX_TIMEOUT`].
    pub fn total(after: Duration) -> Result<Self, Error> {
        Self::new(after, Scope::Total)
    }

    fn new(after: Duration, scope: Scope) -> Result<Self, Error> {
        scope.check(after).in_part("timeout")?;
        let name = telemetry::UNNAMED.into();
        let fired = telemetry::timed_out(&name, scope.text());
        Ok(Self { after, scope, clock: Clock::system(), name, fired })
    }

    /// What it is called in metrics and events.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self.fired = telemetry::timed_out(&self.name, self.scope.text());
        self
    }

    /// Another clock than the machine's, for tests.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub fn after(&self) -> Duration {
        self.after
    }

    /// Runs `operation`, and drops it when the time is over.
    pub async fn call<T, E, Fut>(&self, operation: impl FnOnce() -> Fut) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.limit(operation().map_err(Failure::Inner)).await
    }

    /// The same around another policy: `timeout.around(|| retry.call(classify, || fetch()))`.
    pub async fn around<T, E, Fut>(&self, operation: impl FnOnce() -> Fut) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        self.limit(operation()).await
    }

    pub(crate) fn limit<T, E, Fut>(&self, inner: Fut) -> Until<Fut, TimeoutTimer<'_>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        self.limit_to(Some(self.after), inner)
    }

    /// The same with another time than its own; `None` is no limit at all.
    pub(crate) fn limit_to<T, E, Fut>(&self, after: Option<Duration>, inner: Fut) -> Until<Fut, TimeoutTimer<'_>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        Until::new(inner, after.map(|after| TimeoutTimer { timeout: self, after, sleep: None }))
    }

    #[cold]
    fn fire(&self, after: Duration) -> Error {
        self.fired.increment(1);
        tracing::debug!(name: "resil.timeout", policy = &*self.name, scope = self.scope.text(), ?after, "timed out");
        let scope = self.scope.text();
        emit(Interest::Happenings, None, || Event::Timeout { name: Arc::clone(&self.name), scope, after });
        Error::Timeout { after }
    }
}

/// Set when the call first has to wait.
pub(crate) struct TimeoutTimer<'a> {
    timeout: &'a Timeout,
    after: Duration,
    sleep: Option<Sleep>,
}

impl Future for TimeoutTimer<'_> {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let Self { timeout, after, sleep } = &mut *self;
        let sleep = sleep.get_or_insert_with(|| timeout.clock.sleep(*after));
        // A call that uses up its task's budget at every poll must not keep the timer from firing.
        ready!(Pin::new(&mut unconstrained(sleep)).poll(context));
        Poll::Ready(timeout.fire(*after))
    }
}
