//! The part of a stored policy that the whole fleet shares: every attempt is admitted by `RES.GUARD ENTER` and reported by `EXIT`.
//!
//! So there is one breaker, one limit, one number of places and one budget of retries under the policy's key, for callers with an SDK and
//! without (docs/decisions/0028). Deadlines, hedges, fallbacks, `shed` and partitions stay in this process.
//!
//! # What is promised
//! - An attempt that was admitted is reported once, also if it is dropped or panics: then as cancelled.
//! - Nobody waits for the reply to a report unless it decides whether the attempt is made again. The report goes over the connection before what
//!   the caller asks next, and a shutdown waits for it.
//! - The server says whether a failed attempt is made again, and when. A refusal by limit or bulkhead was no attempt: it is asked again
//!   after its `retry_after`, as often as the policy has attempts, and costs no budget.
//! - An attempt that outlives its ticket is counted by nobody, and others may have had its place meanwhile: the log says so, once for each version.
//! - While the server is no help, and after the policy was deleted, a call that begins runs as under a policy of a file: `whenAway` decides.
//!   A call that was admitted ends with what its attempt came to.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use resil_core::Span;
use resil_core::circuit_breaker::Report;
use resil_core::guard::{Layer, StopReason};
use resil_wire::command::{Command, Reply};
use resil_wire::guard::{Again, GuardEnterCall, GuardEntered, GuardExitCall, GuardExited};
use resil_wire::holding::Wait;

use super::builder::PolicyParts;
use super::chain::{Call, Policy};
use super::classify::{Class, Classify, classify_failure};
use super::retry::{GaveUp, Retry};
use super::settings::PolicySettings;
use crate::breaker::finish::{Finishing, in_background};
use crate::breaker::report_of;
use crate::client::Client;
use crate::correlation;
use crate::error::{Error, Failure};
use crate::health::Notice;
use crate::idempotency::token::odd;
use crate::keys;

/// What the server does for a policy.
#[derive(Debug, Clone)]
pub(crate) struct FleetGuard {
    client: Client,
    name: Arc<str>,
    key: Arc<[u8]>,
    /// How long a place is waited for.
    max_wait: Duration,
    is_limited: bool,
    /// The policy does not say how long an attempt may last.
    has_no_lease: bool,
    /// It was said that an attempt took longer than its ticket lasts.
    has_outlived: Arc<AtomicBool>,
    /// While the server is no help.
    away: Policy,
}

/// The report of an attempt, under way.
type Exiting = Finishing<Result<(Vec<u8>, GuardExited), Error>>;

/// An attempt that was admitted. Dropped before its end it was cancelled.
struct Admission {
    guard: FleetGuard,
    ticket: Vec<u8>,
    is_over: bool,
}

impl FleetGuard {
    /// `None` if the fleet shares nothing of the policy.
    pub fn of(client: &Client, name: &str, settings: &PolicySettings, away: &Policy) -> Option<Self> {
        let PolicySettings { breaker, rate_limit, bulkhead, shared_bulkhead, throttle, shedding, chaos, .. } = settings;
        let has_budget = settings.retry.as_ref().is_some_and(|retry| retry.budget.is_some());
        let is_shared = breaker.is_some()
            || rate_limit.is_some()
            || bulkhead.is_some()
            || shared_bulkhead.is_some()
            || throttle.is_some()
            || shedding.is_some()
            || chaos.is_some()
            || has_budget;
        let waited = |bulkhead: &super::BulkheadSettings| {
            if bulkhead.max_queue == 0 { Duration::ZERO } else { bulkhead.max_wait }
        };
        let of_process = || bulkhead.as_ref().map_or(Duration::ZERO, waited);
        is_shared.then(|| Self {
            client: client.clone(),
            name: name.into(),
            key: keys::named("policy", name).into_bytes().into(),
            max_wait: shared_bulkhead.as_ref().map_or_else(of_process, |shared| shared.max_wait.unwrap_or_default()),
            is_limited: rate_limit.is_some(),
            has_no_lease: settings.timeout.attempt.or(settings.timeout.total).is_none()
                && shared_bulkhead.as_ref().is_none_or(|shared| shared.lease.is_none()),
            has_outlived: Arc::default(),
            away: away.clone(),
        })
    }

    /// What is odd about it.
    pub fn warning(&self) -> Option<String> {
        let text = "an attempt that takes more than 10 s is not counted: say timeout.attempt, timeout.total or sharedBulkhead.lease";
        self.has_no_lease.then(|| text.to_owned())
    }

    /// Makes the attempts of a call. `away` runs it if the server is no help.
    pub(super) async fn run<T, E, C, Fut, Away>(
        &self,
        parts: &PolicyParts,
        call: &Call<'_, C>,
        mut attempt: impl FnMut() -> Fut,
        away: impl FnOnce() -> Away,
    ) -> Result<T, Failure<E>>
    where
        C: Classify<E>,
        Fut: Future<Output = Result<T, Failure<E>>>,
        Away: Future<Output = Result<T, Failure<E>>>,
    {
        let owner: Arc<[u8]> =
            format!("{}:{:016x}", self.client.inner().name, rand::random::<u64>()).into_bytes().into();
        let mut ticket: Option<Vec<u8>> = None;
        let mut last = None;
        let mut delays = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let admission = match self.enter(Arc::clone(&owner), ticket.clone(), call).await {
                Ok(admission) => admission,
                Err(error) if is_no_help(&error) => match last {
                    None => return away().await,
                    Some(failure) => {
                        return Err(stopped(parts.retry.as_ref(), GaveUp::Deadline, attempts - 1, failure));
                    }
                },
                Err(error) => {
                    let pause = again(parts.retry.as_ref(), call, error.into(), attempts, &mut delays)?;
                    parts.clock.sleep(pause).await;
                    continue;
                }
            };
            let admitted_at = parts.clock.now();
            let outcome = attempt().await;
            let (report, now) = (report_of(call.classify, &outcome), parts.clock.now());
            let class = outcome.as_ref().err().map(|failure| classify_failure(call.classify, failure));
            let exiting = admission.exit(report, now.saturating_sub(admitted_at), class);
            let failure = match outcome {
                Err(failure) if may_be_made_again(report, class) => failure,
                _ => {
                    self.needs_no_reply(exiting).await;
                    return outcome;
                }
            };
            match exiting.await {
                // It was refused inside, by something of this process: the server has no opinion.
                Ok((_, GuardExited::Done)) if report == Report::Cancel => {
                    ticket = None;
                    let pause = again(parts.retry.as_ref(), call, failure, attempts, &mut delays)?;
                    parts.clock.sleep(pause).await;
                }
                Ok((of_attempt, GuardExited::Retry { delay_ms, .. })) => {
                    let delay = Duration::from_millis(delay_ms.unsigned_abs());
                    if call.deadline.is_some_and(|deadline| now.saturating_add(delay) >= deadline) {
                        return Err(stopped(parts.retry.as_ref(), GaveUp::Deadline, attempts, failure));
                    }
                    (ticket, last) = (Some(of_attempt), Some(failure));
                    if let Some(retry) = &parts.retry {
                        retry.sleeps(attempts, delay);
                    }
                    parts.clock.sleep(delay).await;
                    if let Some(retry) = &parts.retry {
                        retry.count();
                    }
                }
                Ok((_, GuardExited::Stop { reason, .. })) if class.is_some_and(Class::is_retryable) => {
                    tracing::debug!(name: "resil.guard.stop", policy = &*self.name, reason = reason.text(), "no retry");
                    return Err(match GaveUp::from_text(reason.text()) {
                        Some(reason) => stopped(parts.retry.as_ref(), reason, attempts, failure),
                        None => failure,
                    });
                }
                _ => return Err(failure),
            }
        }
    }

    /// It is handed in, and what comes of it is heard in the background. In a cluster it is waited for: commands to a node may overtake each
    /// other there, and the caller's next call is not to be refused because of a place that it has left.
    async fn needs_no_reply(&self, exiting: Exiting) {
        if self.client.backend().is_cluster() {
            let _ = exiting.await;
        } else {
            let _ = exiting.now_or_never();
        }
    }

    /// The server had forgotten the ticket of an attempt that took so long.
    fn was_outlived(&self, took: Duration) {
        if !self.has_outlived.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                name: "resil.guard.outlived",
                policy = &*self.name,
                took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                "an attempt outlived its ticket: it was not counted, and its place was free meanwhile; \
                 timeout.attempt, timeout.total or sharedBulkhead.lease of the policy say how long an attempt may take"
            );
            self.client.notify(&Notice::Outlived { policy: Arc::clone(&self.name), took });
        }
    }

    /// Asks for an admission. It is seen through: one that nobody waits for any more is given back.
    async fn enter<C>(
        &self,
        owner: Arc<[u8]>,
        ticket: Option<Vec<u8>>,
        call: &Call<'_, C>,
    ) -> Result<Admission, Error> {
        let key = call.options.key.as_deref().filter(|_| self.is_limited);
        let subject = key.map(|key| format!("resil:limit:{{{}}}:{key}", self.name));
        let (cost, priority) = (call.options.cost.unwrap_or(1), call.options.priority.unwrap_or_default());
        let (client, guard, max_wait) = (self.client.clone(), self.clone(), self.max_wait);
        let asking = async move {
            let wait = Span::from_us(i64::try_from(max_wait.as_micros()).unwrap_or(i64::MAX));
            let command = Command::GuardEnter(GuardEnterCall {
                key: &guard.key,
                owner: &owner,
                subject: subject.as_deref().map(str::as_bytes),
                cost,
                priority,
                wait: Wait::blocked(wait),
                ticket: ticket.as_deref(),
                caller: Some(guard.client.inner().name.as_bytes()),
            });
            let entered = if max_wait.is_zero() {
                guard.client.backend().call(&command).await
            } else {
                guard.client.wait(&command).await
            };
            drop(command);
            guard.admitted(entered?)
        };
        if max_wait.is_zero() { Finishing::new(&client, asking).await } else { Box::pin(asking).await }
    }

    fn admitted(self, entered: Reply) -> Result<Admission, Error> {
        match entered {
            Reply::GuardEntered(GuardEntered::Admitted { ticket, .. }) => {
                Ok(Admission { guard: self, ticket, is_over: false })
            }
            Reply::GuardEntered(GuardEntered::Refused { layer, retry_after_ms, .. }) => {
                let (name, retry_after) = (self.name, u64::try_from(retry_after_ms).ok());
                let retry_after = retry_after.map(Duration::from_millis);
                Err(match layer {
                    Layer::Breaker => Error::CircuitOpen { name, retry_after },
                    Layer::Limit => Error::RateLimitExceeded { name, retry_after },
                    Layer::Bulkhead => Error::BulkheadFull { name, retry_after },
                    Layer::Shed | Layer::Throttle | Layer::Chaos => Error::Refused { name, layer: layer.text() },
                })
            }
            other => Err(odd(&other)),
        }
    }

    pub fn away(&self) -> &Policy {
        &self.away
    }

    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// The server is away, the policy is not stored any more (or something else is under its key), or the call came too late for its retry.
fn is_no_help(error: &Error) -> bool {
    let says = |text: &str| ["NOPOLICY", "TICKET", "WRONGTYPE"].iter().any(|code| text.starts_with(code));
    error.says_away() || matches!(error, Error::InvalidArgument(text) if says(text))
}

/// How long to wait before a call that was not made is asked for again, or the failure to return.
fn again<E, C: Classify<E>>(
    retry: Option<&Retry>,
    call: &Call<'_, C>,
    failure: Failure<E>,
    attempts: u32,
    delays: &mut Option<super::backoff::Delays>,
) -> Result<Duration, Failure<E>> {
    let class = classify_failure(call.classify, &failure);
    match retry {
        Some(retry) => retry.pause(class, failure, attempts, call.deadline, delays),
        None => Err(failure),
    }
}

fn stopped<E>(retry: Option<&Retry>, reason: GaveUp, attempts: u32, failure: Failure<E>) -> Failure<E> {
    match retry {
        Some(retry) => retry.give_up(reason, attempts, failure),
        None => failure,
    }
}

/// Whether there may be another attempt: the server says so in its reply to the report. A call that was refused inside was no attempt.
fn may_be_made_again(report: Report, class: Option<Class>) -> bool {
    match report {
        Report::Fail => class.is_some_and(Class::is_retryable),
        Report::Cancel => true,
        Report::Ok | Report::Ignore => false,
    }
}

impl Admission {
    /// Says what it came to. The reply: its ticket, and the server's verdict.
    fn exit(mut self, report: Report, took: Duration, class: Option<Class>) -> Exiting {
        self.is_over = true;
        let again = match class {
            Some(Class::RetryAfter(after)) => {
                Some(Again::After(Span::from_us(i64::try_from(after.as_micros()).unwrap_or(i64::MAX))))
            }
            Some(Class::Permanent | Class::Ignore) => Some(Again::Final),
            Some(Class::Retry) | None => None,
        };
        let (guard, ticket) = (self.guard.clone(), std::mem::take(&mut self.ticket));
        let about = (report == Report::Fail).then(correlation::current).flatten();
        Finishing::new(&self.guard.client, async move {
            let duration = Some(Span::from_us(i64::try_from(took.as_micros()).unwrap_or(i64::MAX)));
            let (key, correlation) = (&guard.key, about.as_deref().map(str::as_bytes));
            let command =
                Command::GuardExit(GuardExitCall { key, ticket: &ticket, report, duration, again, correlation });
            let exited = match guard.client.backend().call_to_the_end(command).await? {
                Reply::GuardExited(exited) => exited,
                other => return Err(odd(&other)),
            };
            if matches!(exited, GuardExited::Stop { reason: StopReason::Unknown, .. }) {
                guard.was_outlived(took);
            }
            Ok((ticket, exited))
        })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let report = if std::thread::panicking() { Report::Fail } else { Report::Cancel };
        let (guard, ticket) = (self.guard.clone(), std::mem::take(&mut self.ticket));
        in_background(&self.guard.client, async move {
            let (key, duration, again, correlation) = (&guard.key, None, Some(Again::Final), None);
            let command =
                Command::GuardExit(GuardExitCall { key, ticket: &ticket, report, duration, again, correlation });
            // If it is not heard, the ticket ends by its lease.
            let _ = guard.client.backend().call(&command).await;
        });
    }
}
