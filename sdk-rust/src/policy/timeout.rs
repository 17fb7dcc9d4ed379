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
//! asks for beats what is said for everything: [`effective`]. Timeouts are more than 0 and at most [`MAX_TIMEOUT`].
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
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::Counter;
use pin_project_lite::pin_project;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Sleep};
use crate::error::{Error, Failure};
use crate::settings::InPart;
use crate::settings::span_text::{check_span, optional};
use crate::telemetry;

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
        Self { attempt: effective(self.attempt, global.attempt), total: effective(self.total, global.total) }
    }
}

/// What an operation asks for beats what is said for everything.
pub fn effective(operation: Option<Duration>, global: Option<Duration>) -> Option<Duration> {
    operation.or(global)
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
        let fired = telemetry::timeouts(&name, scope.text());
        Ok(Self { after, scope, clock: Clock::system(), name, fired })
    }

    /// What it is called in metrics and events.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self.fired = telemetry::timeouts(&self.name, self.scope.text());
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

    pub(crate) fn limit<T, E, Fut>(&self, inner: Fut) -> Limited<'_, Fut>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        self.limit_to(Some(self.after), inner)
    }

    /// The same with another time than its own; `None` is no limit at all.
    pub(crate) fn limit_to<T, E, Fut>(&self, after: Option<Duration>, inner: Fut) -> Limited<'_, Fut>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        Limited { inner: Some(inner), timer: Timer::Unset, after, timeout: self }
    }

    #[cold]
    fn fire(&self, after: Duration) -> Error {
        self.fired.increment(1);
        tracing::debug!(name: "resil.timeout", policy = &*self.name, scope = self.scope.text(), ?after, "timed out");
        Error::Timeout { after }
    }
}

pin_project! {
    /// See [`Timeout::limit`].
    pub(crate) struct Limited<'a, Fut> {
        #[pin]
        inner: Option<Fut>,
        #[pin]
        timer: Timer,
        after: Option<Duration>,
        timeout: &'a Timeout,
    }
}

pin_project! {
    /// Set when the call first has to wait. tokio's timer is held in place: no allocation.
    #[project = TimerProjection]
    enum Timer {
        Unset,
        System { #[pin] sleep: tokio::time::Sleep },
        Driven { #[pin] sleep: Sleep },
    }
}

impl<T, E, Fut> Future for Limited<'_, Fut>
where
    Fut: Future<Output = Result<T, Failure<E>>>,
{
    type Output = Result<T, Failure<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            // Polled after it was over; what it came to is gone.
            return Poll::Ready(Err(Failure::Resil(Error::Timeout { after: this.after.unwrap_or_default() })));
        };
        if let Poll::Ready(outcome) = inner.poll(context) {
            return Poll::Ready(outcome);
        }
        let Some(after) = *this.after else { return Poll::Pending };
        if matches!(*this.timer, Timer::Unset) {
            let clock = &this.timeout.clock;
            this.timer.set(match clock.is_system() {
                true => Timer::System { sleep: tokio::time::sleep(after) },
                false => Timer::Driven { sleep: clock.sleep(after) },
            });
        }
        let is_over = match this.timer.as_mut().project() {
            TimerProjection::Unset => false,
            // A call that uses up its task's budget at every poll must not keep the timer from firing.
            TimerProjection::System { sleep } if tokio::task::coop::has_budget_remaining() => {
                sleep.poll(context).is_ready()
            }
            TimerProjection::System { sleep } => {
                Pin::new(&mut tokio::task::unconstrained(sleep)).poll(context).is_ready()
            }
            TimerProjection::Driven { sleep } => sleep.poll(context).is_ready(),
        };
        if !is_over {
            return Poll::Pending;
        }
        // Now, and not when the caller gets around to dropping this: what the call holds is given back.
        this.inner.set(None);
        this.timer.set(Timer::Unset);
        Poll::Ready(Err(Failure::Resil(this.timeout.fire(after))))
    }
}
