//! Work that is done once: one caller of the fleet runs it, every duplicate gets its result.
//!
//! ```
//! # use std::time::Duration;
//! # async fn example() -> Result<(), resil::Failure<std::io::Error>> {
//! use resil::idempotency::IdempotencySettings;
//!
//! let client = resil::connect("memory://").await?;
//! let payments = client.idempotent("payments", IdempotencySettings::new().keep(Duration::from_secs(86_400)))?;
//!
//! let first = payments.run("order-42", b"amount=7", async |_run| Ok::<_, std::io::Error>("receipt-17")).await?;
//! let again = payments.run("order-42", b"amount=7", async |_run| Ok("never made")).await?;
//!
//! assert_eq!(first.value.as_deref(), Some(&b"receipt-17"[..]));
//! assert_eq!((again.value, again.replayed), (first.value, true));
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # What holds
//! - At most one run is under a valid lease in the whole fleet, and none while a result is kept. Duplicates wait in the
//!   server for it; those of one process share one wait.
//! - The lease is renewed while the function runs. When it is lost, the function is cancelled (unless
//!   [`OnLost::Finish`]) and the caller gets `LOCK_LOST`.
//! - A reply that was lost is asked for again with the same token. A caller that is cancelled while its result is being
//!   committed does not take it along: it is committed in the background.
//!
//! # What cannot hold
//! A runner that dies, is cancelled or panics after its effect and before its commit has done the work, and nobody knows. The next
//! runner gets [`Run::attempt`] 2 and has to check first; or the store of the effect takes the key and
//! [`Run::fence`]; or [`OnLapse::Hold`] stops everybody until a person has looked. A cancelled run is therefore not
//! aborted, unless the author says that it may be ([`IdempotencySettings::abort_on_cancel`]).
//!
//! If the commit finds that the lease was lost, the caller gets `LOCK_LOST`: its work is done, and may have been done by
//! another as well; the other's result is the one that duplicates see. If nothing replies to the commit, the caller gets its
//! result with [`Outcome::recorded`] false: an error would only make it run again.
//!
//! That takes a while, and is meant to: while the server is away nobody else can run either, and what is recorded late is
//! better than work that is done twice. The commit is brought again and again for a third of the lease (10 s by default), and at
//! least four times, each for a command timeout at most; only then does the call return. A caller that cannot wait drops the call: the
//! result is then brought in the background for as long. To bound the call itself, set a shorter lease, or a timeout
//! around it.
//!
//! # Keys
//! On the server a key is `resil:idemp:<name>:{<key>}`, and of [`once`](Idempotent::once) `resil:once:<name>:{<key>}`. Put the tenant into it: a
//! key that a stranger can guess gives away a result.

mod attempt;
mod meters;
mod outcome;
mod recorded_error;
mod running;
pub(crate) mod sharing;
#[cfg(test)]
mod tests;
pub(crate) mod token;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt;
use resil_core::limits::OWNER_MAX;
use resil_wire::command::{Command, Reply};
use resil_wire::idempotency::{Begun, GetCall, OnceCall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::meters::IdempotencyMeters;
pub use self::outcome::{Outcome, RecordedState, Remember, Run};
pub use self::recorded_error::RecordedError;
pub(crate) use self::running::Codec;
use self::token::{fresh_token, from_ms, odd, span};
use crate::backend::Backend;
use crate::client::Client;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::keys;
use crate::settings::setters;
use crate::settings::span_text::{self, check_span};
use crate::telemetry::{CallEnding, watched};

/// For how long anything is kept at most.
const KEEP_MAX: Duration = Duration::from_secs(366 * 86_400);

/// What happens when a runner's lease ends without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLapse {
    /// The next caller runs, and gets attempt 2.
    #[default]
    Run,
    /// Nobody runs until somebody has looked: callers get `IDEMPOTENCY_HELD`.
    Hold,
}

impl From<OnLapse> for resil_core::idempotency::OnLapse {
    fn from(on_lapse: OnLapse) -> Self {
        match on_lapse {
            OnLapse::Run => Self::Run,
            OnLapse::Hold => Self::Hold,
        }
    }
}

/// What happens to the function when its lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLost {
    /// It is dropped where it is.
    #[default]
    Cancel,
    /// It goes on, sees [`Run::lost`], and its commit counts if nobody else took over.
    Finish,
}

/// How idempotent work is run and recorded. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IdempotencySettings {
    /// How long a runner that fell silent is waited for: 10 ms to 1 day. It is renewed while the function runs. 30 s by default.
    #[serde(with = "span_text")]
    pub lease: Duration,
    /// How long results are kept: longer than any client retries. 1 ms to 366 days; a day by default.
    #[serde(with = "span_text")]
    pub keep: Duration,
    /// How long a duplicate waits for the one that runs: up to 10 min. 5 s by default; with zero, it does not wait.
    #[serde(with = "span_text")]
    pub wait: Duration,
    pub on_lapse: OnLapse,
    pub on_lost: OnLost,
    /// A function that is cut short has had no effect (it works in a transaction, say): the next caller may run at once.
    pub abort_on_cancel: bool,
    /// Runs only once so many replicas know that it does; else it is given back with
    /// [`Error::BackendUnavailable`]. A failover to one of them then lets nobody in beside the runner. Replicas are not waited
    /// for when the result is committed: that cannot be given back. 0 by default; refused in memory.
    pub replicas: u32,
    /// While the server cannot be reached: `Closed` (the default) refuses, `Open` runs without a fence and records nothing.
    /// `Local` is refused.
    pub when_away: Away,
}

impl Default for IdempotencySettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            keep: Duration::from_secs(86_400),
            wait: Duration::from_secs(5),
            on_lapse: OnLapse::default(),
            on_lost: OnLost::default(),
            abort_on_cancel: false,
            replicas: 0,
            when_away: Away::Closed,
        }
    }
}

setters! {
    IdempotencySettings {
        lease: Duration, keep: Duration, wait: Duration, on_lapse: OnLapse, on_lost: OnLost, replicas: u32, when_away: Away,
    }
}

impl IdempotencySettings {
    pub fn new() -> Self {
        Self::default()
    }

    /// See the [field](Self#structfield.abort_on_cancel).
    #[must_use]
    pub fn abort_on_cancel(mut self) -> Self {
        self.abort_on_cancel = true;
        self
    }

    pub fn validate(&self) -> Result<(), Error> {
        check_span("lease", self.lease, Duration::from_millis(10), Duration::from_secs(86_400))?;
        check_span("keep", self.keep, Duration::from_millis(1), KEEP_MAX)?;
        check_span("wait", self.wait, Duration::ZERO, Duration::from_secs(600))?;
        self.when_away.not_local("idempotent work").map(drop)
    }
}

impl Client {
    /// Work that is done once; `name` says what kind of work, and is part of every key.
    pub fn idempotent(&self, name: &str, settings: IdempotencySettings) -> Result<Idempotent, Error> {
        self.backend().require_one_server("idempotent work")?;
        keys::check_name(name)?;
        settings.validate()?;
        if settings.replicas > 0 && matches!(self.backend(), Backend::Memory(_)) {
            return Err(Error::invalid("replicas", "must be 0 in memory: there are none"));
        }
        self.inner().health.add(format!("idempotent:{name}").into(), settings.when_away);
        let meters = IdempotencyMeters::new(name);
        Ok(Idempotent(Arc::new(IdempotentInner { client: self.clone(), name: name.into(), settings, meters })))
    }
}

/// Work that is done once. Cheap to clone; all of one client that have one name share their waits.
#[derive(Debug, Clone)]
pub struct Idempotent(Arc<IdempotentInner>);

#[derive(Debug)]
struct IdempotentInner {
    client: Client,
    name: Arc<str>,
    settings: IdempotencySettings,
    meters: IdempotencyMeters,
}

impl Idempotent {
    /// Runs `work` unless it was done before; then its result is returned.
    ///
    /// `fingerprint` is what the request says (its body, say). The same key with another one is `IDEMPOTENCY_MISMATCH`; an
    /// empty one is not checked. More than 64 bytes are hashed, which finds accidents, not forgeries.
    ///
    /// An error of `work` frees the key at once: it says that nothing happened. See
    /// [`run_remembering`](Self::run_remembering) for errors that are final.
    pub async fn run<F, Fut, R, E>(&self, key: &str, fingerprint: &[u8], work: F) -> Result<Outcome<Bytes>, Failure<E>>
    where
        F: FnOnce(Run) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        R: Into<Bytes>,
    {
        let _pass = self.0.client.inner().gate.enter()?;
        self.run_inside(key, fingerprint, Codec::bytes(None), |run| work(run).map_ok(Into::into)).await
    }

    /// As [`run`](Self::run); errors that `remember` calls final are recorded, and duplicates get them as
    /// [`Failure::Inner`].
    pub async fn run_remembering<F, Fut, R, E>(
        &self,
        key: &str,
        fingerprint: &[u8],
        remember: &Remember<E>,
        work: F,
    ) -> Result<Outcome<Bytes>, Failure<E>>
    where
        F: FnOnce(Run) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        R: Into<Bytes>,
    {
        let _pass = self.0.client.inner().gate.enter()?;
        self.run_inside(key, fingerprint, Codec::bytes(Some(remember)), |run| work(run).map_ok(Into::into)).await
    }

    /// As [`run`](Self::run), with results kept as JSON. A result that cannot be written as JSON, or not be read again from it (NaN), is
    /// `RESULT_UNRECORDED`, for the caller and for every duplicate: the work is done, and is not done again.
    pub async fn run_json<F, Fut, T, E>(&self, key: &str, fingerprint: &[u8], work: F) -> Result<Outcome<T>, Failure<E>>
    where
        F: FnOnce(Run) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
    {
        let _pass = self.0.client.inner().gate.enter()?;
        self.run_inside(key, fingerprint, Codec::json(None), work).await
    }

    /// For a call that came in at the gate already.
    pub(crate) fn run_inside<T, E, Fut>(
        &self,
        key: &str,
        fingerprint: &[u8],
        codec: Codec<'_, T, E>,
        work: impl FnOnce(Run) -> Fut,
    ) -> impl Future<Output = Result<Outcome<T>, Failure<E>>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.0.run(key, fingerprint, codec, work)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// As [`run_json`](Self::run_json), with errors that are final; see [`Remember::json`].
    pub async fn run_json_remembering<F, Fut, T, E>(
        &self,
        key: &str,
        fingerprint: &[u8],
        remember: &Remember<E>,
        work: F,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        F: FnOnce(Run) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
    {
        let _pass = self.0.client.inner().gate.enter()?;
        self.run_inside(key, fingerprint, Codec::json(Some(remember)), work).await
    }

    /// Whether this is the first time that `key` is seen within `ttl`: for events that are delivered more than once.
    ///
    /// It marks the event before it is processed. `token` names the caller (a consumer): the same one gets `true` again when
    /// the event is delivered to it again; without one, nobody is. Where an event must not be lost by a consumer that dies,
    /// use [`run`](Self::run). While the server is away: an error, or `true` if the settings say so.
    pub async fn once(&self, key: &str, ttl: Duration, token: Option<&str>) -> Result<bool, Error> {
        let IdempotentInner { client, name, settings, meters, .. } = &*self.0;
        let _pass = client.inner().gate.enter()?;
        keys::check_key(key)?;
        check_span("ttl", ttl, Duration::from_millis(1), KEEP_MAX)?;
        if token.is_some_and(|token| !(1..=OWNER_MAX).contains(&token.len())) {
            return Err(Error::InvalidArgument(format!("token must have from 1 to {OWNER_MAX} bytes")));
        }
        let key = keys::under("once", name, key);
        // There is always a token on the wire, so that a lost reply can be asked for.
        let drawn = token.is_none().then(|| fresh_token(client));
        let token = token.or(drawn.as_deref()).unwrap_or_default().as_bytes();
        let command = Command::IdempOnce(OnceCall { key: key.as_bytes(), ttl: span(ttl), token });
        let asked = watched!(Idempotency, "once", &self.0.name, self.0.ask(&command), CallEnding::of);
        match asked {
            Ok(Reply::Number(first)) => {
                let reply = if first == 1 { &meters.first } else { &meters.again };
                reply.increment(1);
                Ok(first == 1)
            }
            Ok(other) => Err(odd(&other)),
            Err(error) if error.says_away() && settings.when_away == Away::Open => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What is known of `key`, changing nothing.
    pub async fn get(&self, key: &str) -> Result<RecordedState, Error> {
        keys::check_key(key)?;
        let key = self.0.server_key(key);
        let command = Command::IdempGet(GetCall { key: key.as_bytes(), fingerprint: &[] });
        match self.0.ask(&command).await? {
            Reply::Begun(Begun::Miss) => Ok(RecordedState::Unknown),
            Reply::Begun(Begun::Busy { remaining_ms, attempt }) => {
                Ok(RecordedState::Running { attempt, remaining: from_ms(remaining_ms) })
            }
            Reply::Begun(Begun::Replay { failed, result, age_ms }) => Ok(RecordedState::Done {
                result: result.map(Bytes::from_owner),
                is_error: failed,
                age: from_ms(age_ms),
            }),
            Reply::Begun(Begun::Held { attempt }) => Ok(RecordedState::Held { attempt }),
            other => Err(odd(&other)),
        }
    }
}

impl IdempotentInner {
    fn server_key(&self, key: &str) -> Arc<str> {
        keys::under("idemp", &self.name, key).into()
    }

    /// Asks what may be asked twice: once more if nothing replies.
    async fn ask(&self, command: &Command<'_>) -> Result<Reply, Error> {
        match self.client.backend().call(command).await {
            Err(error) if error.says_away() => self.client.backend().call(command).await,
            reply => reply,
        }
    }
}
