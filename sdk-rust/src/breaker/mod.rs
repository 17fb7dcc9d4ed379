//! One circuit breaker for the whole fleet, next to free while it is closed.
//!
//! # The promise
//! - While the circuit is open no call is made, and until its `retry_after` is over nobody is asked either.
//! - While it is closed a call costs a few reads: it is admitted here, and what came of it is sent in batches. Failures are
//!   sent at once, and no call begins in this process before they are answered: a fleet whose dependency dies makes as many
//!   doomed calls as the threshold says, and those that were in flight.
//! - Nothing is counted twice, and nothing that was counted while the server could be reached is lost.
//! - Half-open and ramping every call asks the server: never more than PROBES probes are out in the whole fleet.
//! - A call that is dropped frees its permit, and counts neither way.
//!
//! # What counts
//! `Ok` is a success. An error is a failure, unless a classifier says [`Class::Ignore`]. A call that was refused further in
//! (a rate limit, a full bulkhead, another open circuit, shutting down) was not made: it is cancelled. A panic is a failure.
//!
//! # While the server is away
//! [`Away::Open`](crate::Away::Open) lets calls through and counts nothing. [`Away::Closed`](crate::Away::Closed) refuses with [`Error::BackendUnavailable`]: it is
//! not the circuit that is open. [`Away::Local`](crate::Away::Local) (the default) decides by the same machine with the same options in this
//! process, from a clean slate; when the server is back its state holds, and what was counted meanwhile is forgotten.
//!
//! # Keys
//! The state of the breaker `name` is at `resil:breaker:{<name>}`.
//!
//! ```
//! # fn main() -> Result<(), resil::Error> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::breaker::BreakerSettings;
//! use resil::{Code, Failure};
//!
//! let client = resil::connect("memory://").await?;
//! let breaker = client.breaker("payments", BreakerSettings::new().consecutive_failures(2))?;
//! for _ in 0..2 {
//!     let failed = breaker.call(async || Err::<(), _>("down")).await;
//!     assert_eq!(failed, Err(Failure::Inner("down")));
//! }
//! let refused = breaker.call(async || Ok::<_, &str>("never made")).await;
//! assert_eq!(refused.unwrap_err().code(), Some(Code::CircuitOpen));
//! # Ok(()) })
//! # }
//! ```

mod batch;
mod core;
pub(crate) mod finish;
mod permit;
mod sending;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::TryFutureExt;
use parking_lot::Mutex;
use resil_core::circuit_breaker::Report;
use resil_core::limits::TEXT_MAX;
use resil_wire::breaker::{ConfigCall, ForceCall};
use resil_wire::command::{Command, Reply};

pub(crate) use self::core::Core;
pub use self::permit::Permit;
use self::settings::CheckedSettings;
pub use self::settings::{BreakerSettings, CountingMode};
pub use self::state::{Force, Forced, Snapshot, State, Transition};
use self::view::{ReplyOf, StateReply};
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::client::Client;
use crate::error::{Error, Failure};
use crate::limiter::span;
use crate::policy::classify::{Class, Classify};
use crate::settings::span_text::check_span;
use crate::telemetry::{self, CallEnding, Primitive, VerdictMeters, watched};

/// The breakers of a client, by name: who asks for the same one gets the same one.
#[derive(Debug, Default)]
pub(crate) struct Breakers(Mutex<HashMap<Arc<str>, Weak<Core>>>);

/// A breaker under a name. Cheap to clone; see the [module](self).
#[derive(Debug, Clone)]
pub struct Breaker(Arc<Core>);

impl Client {
    /// A breaker under a name. Everybody who names it the same shares it.
    pub fn breaker(&self, name: &str, settings: BreakerSettings) -> Result<Breaker, Error> {
        self.backend().require_one_server("a breaker")?;
        if name.is_empty() {
            return Err(Error::invalid("name", "must not be empty"));
        }
        crate::keys::same_name(name, settings.name.as_deref())?;
        let options = settings.check()?;
        let mut breakers = self.inner().breakers.0.lock();
        if let Some(core) = breakers.get(name).and_then(Weak::upgrade)
            && core.options == options
        {
            return Ok(Breaker(core));
        }
        let name: Arc<str> = name.into();
        let core = Arc::new(self.new_breaker(Arc::clone(&name), options));
        // One of this process is there whether the server is or not.
        if core.own.is_none() {
            self.inner().health.add(format!("breaker:{name}").into(), core.options.when_away);
        }
        breakers.retain(|_, other| other.strong_count() > 0);
        breakers.insert(name, Arc::downgrade(&core));
        Ok(Breaker(core))
    }

    fn new_breaker(&self, name: Arc<str>, options: CheckedSettings) -> Core {
        let own_name = self.inner().name.as_bytes();
        let mut caller = own_name[..own_name.len().min(TEXT_MAX / 2)].to_vec();
        caller.extend_from_slice(format!(":{:016x}", rand::random::<u64>()).as_bytes());
        let key: Box<[u8]> = crate::keys::named("breaker", &name).into_bytes().into();
        let own = match self.backend() {
            #[cfg(feature = "redis")]
            Backend::Redis(_) if options.is_adaptive => Some(Backend::Memory(Memory::new(self.clock().clone()))),
            _ => None,
        };
        let backend = own.as_ref().unwrap_or_else(|| self.backend());
        let baseline = match backend {
            Backend::Memory(memory) if options.is_adaptive => Some(memory.adapt_breaker(&key)),
            _ => None,
        };
        Core {
            key,
            caller: caller.into(),
            wire: options.wire(),
            is_memory: Core::is_memory(backend),
            batch: options.batch_on(backend),
            _baseline: baseline,
            own,
            view: Default::default(),
            about_failure: Default::default(),
            sender: Default::default(),
            flushing: Default::default(),
            hurry: Default::default(),
            urgent: Default::default(),
            asking: Default::default(),
            admit_asked: Default::default(),
            is_listening: Default::default(),
            local: Default::default(),
            listeners: Default::default(),
            meters: VerdictMeters::new(Primitive::Breaker, &name),
            opened: telemetry::opened(&name),
            transitions: telemetry::breaker_transitions(&name),
            client: self.clone(),
            name,
            options,
        }
    }
}

impl Breaker {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Makes the call unless the circuit is open. Every error is a failure.
    pub fn call<T, E, F, Fut>(&self, call: F) -> impl Future<Output = Result<T, Failure<E>>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.call_classified(|_: &E| Class::Permanent, call)
    }

    /// Makes the call unless the circuit is open. Errors that are [`Class::Ignore`] are not held against it.
    pub fn call_classified<T, E, F, Fut>(
        &self,
        classify: impl Classify<E>,
        call: F,
    ) -> impl Future<Output = Result<T, Failure<E>>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.around(classify, || call().map_err(Failure::Inner))
    }

    /// The same around other policies: what they refused was not made, so it is cancelled.
    pub async fn around<T, E, F, Fut>(&self, classify: impl Classify<E>, call: F) -> Result<T, Failure<E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let calling = async {
            let _pass = self.0.client.inner().gate.enter()?;
            let permit = self.0.admit().await?;
            let result = call().await;
            permit.report(report_of(&classify, &result)).await;
            result
        };
        watched!(Breaker, "call", &self.0.name, calling, |result| CallEnding::of_work(result, |_| CallEnding::OK))
    }

    /// The two steps by hand: may a call be made? Fails with [`Error::CircuitOpen`] if not.
    pub async fn admit(&self) -> Result<Permit, Error> {
        let _pass = self.0.client.inner().gate.enter()?;
        watched!(Breaker, "admit", &self.0.name, self.0.admit(), |permit| CallEnding::or(permit, |_| {
            CallEnding::GRANTED
        }))
    }

    /// For a call that came in at the gate already.
    #[inline]
    pub(crate) async fn admit_inside(&self) -> Result<Permit, Error> {
        match self.0.admit_now() {
            Some(admitted) => admitted,
            // A box, so that the types of whole policies stay shallow; it is seldom needed.
            None => {
                let asking = Box::pin(self.0.admit_later());
                watched!(Breaker, "admit", &self.0.name, asking, |permit| CallEnding::or(permit, |_| {
                    CallEnding::GRANTED
                }))
            }
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Calls `listener` once for each transition from now on, also if another process caused it: in the reply to a call of this process, or in the message
    /// of the server, milliseconds after it. It must not block: it runs beside the calls of this breaker. It is called for as long as
    /// there is a handle of this breaker.
    pub fn on_transition(&self, listener: impl Fn(&Transition) + Send + Sync + 'static) {
        self.0.add_listener(Arc::new(listener));
    }

    /// Where the circuit stood when this process last heard of it, without asking; `None` before the first call, the first
    /// [`state`](Self::state) and the first listener.
    pub fn last_known_state(&self) -> Option<State> {
        self.0.view.state()
    }

    /// Everything the server knows, and that is all that this process has counted: it is sent before.
    pub async fn state(&self) -> Result<Snapshot, Error> {
        self.0.settle().await?;
        self.0.listen();
        self.0.look().await
    }

    /// Puts the breaker into a state by hand, for all who share it: for a time, or until [`Force::Auto`]. The server
    /// remembers who (this client's name) and why.
    pub async fn force(&self, force: Force, duration: Option<Duration>, reason: &str) -> Result<State, Error> {
        if force == Force::Auto && duration.is_some() {
            return Err(Error::InvalidArgument("duration does not go with the state auto".to_owned()));
        }
        if force == Force::OpenThenProbe && duration.is_none() {
            return Err(Error::InvalidArgument("the state open-then-probe needs a duration".to_owned()));
        }
        if reason.len() > TEXT_MAX {
            return Err(Error::InvalidArgument(format!(
                "reason must have at most {TEXT_MAX} bytes, got {}",
                reason.len()
            )));
        }
        if let Some(duration) = duration {
            check_span("duration", duration, Duration::from_millis(1), Duration::from_secs(366 * 86_400))?;
        }
        let length = duration.map(span);
        let core = &self.0;
        let actor = core.client.inner().name.as_bytes();
        let (actor, reason) = (Some(&actor[..actor.len().min(TEXT_MAX)]), Some(reason.as_bytes()));
        let command = Command::BreakerForce(ForceCall { key: &core.key, force: force.core(), length, actor, reason });
        let question = core.view.question(core.client.clock().now());
        match core.backend().call(&command).await? {
            Reply::Forced(resil_wire::breaker::Forced { state, generation }) => {
                // It does not say until when; the next call asks.
                let state_reply = StateReply { state, generation, retry_after_ms: 0, from: ReplyOf::Other };
                core.hear(state_reply, question);
                core.view.ask();
                Ok(state)
            }
            other => Err(Error::Internal(format!("a force was answered {other:?}"))),
        }
    }

    /// Closes the circuit, with nothing counted; the options stay. Says whether there was anything to reset.
    pub async fn reset(&self) -> Result<bool, Error> {
        let reply = self.0.backend().call(&Command::BreakerReset(&self.0.key)).await?;
        self.0.view.ask();
        number(&reply)
    }

    /// Changes what `settings` name, for all who share the breaker. It lasts, and wins over what breakers
    /// are made with. Says whether anything changed.
    pub async fn configure(&self, settings: &BreakerSettings) -> Result<bool, Error> {
        let Some(options) = settings.check()?.wire() else {
            return Err(Error::InvalidArgument("the options name nothing to change".to_owned()));
        };
        let command = Command::BreakerConfig(ConfigCall { key: &self.0.key, options });
        number(&self.0.backend().call(&command).await?)
    }
}

fn number(reply: &Reply) -> Result<bool, Error> {
    match reply {
        Reply::Number(number) => Ok(*number != 0),
        other => Err(Error::Internal(format!("a number was expected, not {other:?}"))),
    }
}

/// The report to a breaker of a call that came to this.
#[inline]
pub(crate) fn report_of<T, E>(classify: &impl Classify<E>, result: &Result<T, Failure<E>>) -> Report {
    match result {
        Ok(_) => Report::Ok,
        Err(failure) => judge(classify, failure),
    }
}

/// What a failure says about the health of what was called.
fn judge<E>(classify: &impl Classify<E>, failure: &Failure<E>) -> Report {
    match failure {
        Failure::Inner(error) => match classify.classify(error) {
            Class::Ignore => Report::Ignore,
            Class::Retry | Class::RetryAfter(_) | Class::Permanent => Report::Fail,
        },
        Failure::Resil(error) => match error {
            Error::Timeout { .. } | Error::Crashed(_) | Error::LoadFailed { .. } => Report::Fail,
            Error::Refused { layer: "chaos", .. } => Report::Fail,
            // Comes from another language, which cannot tell how the last attempt failed; but it was made.
            Error::RetryExhausted { .. } => Report::Fail,
            // Refused before it was made, or given up for reasons of ours.
            _ => Report::Cancel,
        },
        Failure::Exhausted { last, .. } => judge(classify, last),
    }
}
