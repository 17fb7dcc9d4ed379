//! Rate limits that a whole fleet shares, one round trip a call, and none for a caller that was denied a moment ago.
//!
//! # The promise
//! Over any interval T no more is granted than `capacity + limit * T / period`, by all processes together. A refusal says
//! when to come back, and a caller that comes back then and is alone is granted.
//!
//! # Keys
//! The state of `key` under the limiter `name` is at `resil:limit:<name>:{<key>}`. In a cluster the caller's key decides
//! the slot (up to its first `}`), so all limits of one user are on one node and [`Client::check_all`] can ask them at once.
//!
//! # Without asking
//! A denial is remembered until its `retry_after` is over, for ten seconds at most, for its cost and above, under the same
//! limit. A refund through this client ends it; one by another process is seen when that time is over. It never grants.
//!
//! # While the server is away
//! [`Away::Open`] grants everything, [`Away::Closed`] fails with [`Error::BackendUnavailable`], [`Away::Local`] (unless
//! said) lets the same machine decide here, with this process' part of the limit: see
//! [`instances`](crate::ConnectSettings::instances). What was granted here is not held against anybody afterwards.
//!
//! ```
//! # fn main() -> Result<(), resil::Error> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::limiter::Limit;
//!
//! let client = resil::connect("memory://").await?;
//! let limiter = client.limiter("api", Limit::per_second(2))?;
//! assert!(limiter.check("alice").await?.is_granted());
//! limiter.acquire("alice").await?;
//! assert!(!limiter.check("alice").await?.is_granted());
//! assert!(limiter.check("bob").await?.is_granted());
//! # Ok(()) })
//! # }
//! ```

mod denied;
mod limit;
mod several;
#[cfg(test)]
mod tests;
mod turn;
mod verdict;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::Histogram;
use resil_core::limits::COST_MAX;
use resil_core::rate_limit::{Ask, Quota};
use resil_wire::command::{Command, Reply};
use smallvec::SmallVec;

use self::denied::{Denial, Denied};
pub(crate) use self::limit::span;
use self::limit::{CheckedLimit, Shape};
pub use self::limit::{Limit, LimitKind, LimitTier};
pub use self::several::Verdicts;
pub use self::verdict::{DecidedBy, TierVerdict, Verdict};
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::client::Client;
use crate::error::Error;
use crate::health::Away;
use crate::keys;
use crate::telemetry::{self, CallEnding, Primitive, VerdictMeters, watched};

/// What all limiters of a client share.
#[derive(Debug, Default)]
pub(crate) struct LimiterShared {
    denied: Denied,
    /// Decides while the server is away. Made when it is first needed.
    local: OnceLock<Memory>,
}

/// A limit under a name. Cheap to clone; see the [module](self).
#[derive(Debug, Clone)]
pub struct Limiter(Arc<LimiterInner>);

#[derive(Debug)]
struct LimiterInner {
    client: Client,
    name: Arc<str>,
    /// `resil:limit:<name>:{`
    key_prefix: Box<[u8]>,
    limit: CheckedLimit,
    shape_id: u64,
    meters: VerdictMeters,
    waits: Histogram,
}

/// Milliseconds of a reply; -1 is `None`.
pub(crate) fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The key of a state, off the heap unless it is long.
type Key = SmallVec<[u8; KEY_ON_STACK]>;
const KEY_ON_STACK: usize = 96;

impl Client {
    /// A limit under a name. Everybody who names it the same, with the same limit, shares it.
    pub fn limiter(&self, name: &str, limit: Limit) -> Result<Limiter, Error> {
        self.backend().require_one_server("a limiter")?;
        keys::check_name(name)?;
        keys::same_name(name, limit.name.as_deref())?;
        let limit = limit.check(self.inner().options.instances.unwrap_or(1))?;
        let name: Arc<str> = name.into();
        self.inner().health.add(format!("limit:{name}").into(), limit.when_away);
        if limit.when_away == Away::Local {
            self.warn_of_whole_quotas();
        }
        let shape_id = self.inner().limits.denied.shape_id(&limit.shape);
        let meters = VerdictMeters::new(Primitive::Limiter, &name);
        let waits = telemetry::wait_seconds(&name, Primitive::Limiter.text());
        let key_prefix: Box<[u8]> = format!("resil:limit:{name}:{{").into_bytes().into();
        Ok(Limiter(Arc::new(LimiterInner { client: self.clone(), name, key_prefix, limit, shape_id, meters, waits })))
    }
}

impl Limiter {
    /// Checks a number of cells that is called `name` where it comes from.
    pub fn cells(name: &str, number: i64) -> Result<u32, Error> {
        let cells = u32::try_from(number).ok().filter(|cells| (1..=COST_MAX).contains(cells));
        cells.ok_or_else(|| Error::InvalidArgument(format!("{name} must be from 1 to {COST_MAX}, got {number}")))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many in how long, for telling clients; of several tiers, the one that was named first.
    pub fn quota(&self) -> (u32, Duration) {
        self.0.limit.shape.rate(0)
    }

    /// Takes one cell if there is one. A refusal is a verdict, not an error.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Verdict, Error> {
        self.ask(key.as_ref(), Ask::Take(1)).await
    }

    /// Takes `cost` cells, or none.
    pub async fn check_n(&self, key: impl AsRef<[u8]>, cost: u32) -> Result<Verdict, Error> {
        self.ask(key.as_ref(), Ask::Take(cells("cost", cost)?)).await
    }

    /// Takes one cell, or fails with [`Error::RateLimitExceeded`].
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.acquire_n(key, 1).await
    }

    /// Takes `cost` cells, or fails with [`Error::RateLimitExceeded`].
    pub async fn acquire_n(&self, key: impl AsRef<[u8]>, cost: u32) -> Result<(), Error> {
        let verdict = self.check_n(key, cost).await?;
        if verdict.is_granted() { Ok(()) } else { Err(self.exceeded(verdict.retry_after)) }
    }

    /// For a call that came in at the gate already.
    pub(crate) async fn acquire_inside(&self, key: &[u8], cost: u32) -> Result<(), Error> {
        let verdict = self.ask_inside(key, Ask::Take(cells("cost", cost)?)).await?;
        if verdict.is_granted() { Ok(()) } else { Err(self.exceeded(verdict.retry_after)) }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Takes as many cells as there are, up to `most`; `granted` says how many. `retry_after` is the time to one more.
    pub async fn up_to(&self, key: impl AsRef<[u8]>, most: u32) -> Result<Verdict, Error> {
        self.ask(key.as_ref(), Ask::UpTo(cells("most", most)?)).await
    }

    /// What is there, taking nothing: `granted` is what could be taken now.
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Verdict, Error> {
        self.ask(key.as_ref(), Ask::Peek).await
    }

    /// Gives `cells` back, for work that was not done after all; `granted` says how many were taken back (no more than
    /// were out). An exact window takes nothing back.
    pub async fn refund(&self, key: impl AsRef<[u8]>, cells: u32) -> Result<Verdict, Error> {
        self.not_for_windows("refund")?;
        let _pass = self.0.client.inner().gate.enter()?;
        let key = self.key(key.as_ref());
        // Also if this is dropped half-way: the refund may have been made.
        let _forget = Forget { denied: self.denied(), key: &key };
        self.decide(&key, Ask::Refund(self::cells("cells", cells)?)).await
    }

    /// It was not granted. What can never be had is no matter of time, and not to be asked for again.
    pub(crate) fn exceeded(&self, retry_after: Option<Duration>) -> Error {
        let name = &self.0.name;
        match retry_after {
            None => Error::InvalidArgument(format!("the limit {name} can never grant so much at once")),
            Some(_) => Error::RateLimitExceeded { name: Arc::clone(name), retry_after },
        }
    }

    fn not_for_windows(&self, what: &str) -> Result<(), Error> {
        match self.0.limit.shape {
            Shape::Bucket(_) => Ok(()),
            Shape::Window { .. } => Err(Error::InvalidArgument(format!("an exact window knows no {what}"))),
        }
    }

    fn denied(&self) -> &Denied {
        &self.0.client.inner().limits.denied
    }

    /// `resil:limit:<name>:{<key>}`
    fn key(&self, key: &[u8]) -> Key {
        let mut whole = Key::new();
        whole.extend_from_slice(&self.0.key_prefix);
        whole.extend_from_slice(key);
        whole.push(b'}');
        whole
    }

    async fn ask(&self, key: &[u8], ask: Ask) -> Result<Verdict, Error> {
        watched!(Limiter, operation(ask), &self.0.name, self.ask_unwatched(key, ask), |verdict| ending(verdict, ask))
    }

    async fn ask_unwatched(&self, key: &[u8], ask: Ask) -> Result<Verdict, Error> {
        let client = self.0.client.inner();
        if let (Backend::Memory(memory), Shape::Bucket(quotas)) = (&client.backend, &self.0.limit.shape) {
            client.gate.look()?;
            return self.ask_memory(memory, quotas, key, ask);
        }
        let _pass = client.gate.enter()?;
        // On the heap: moving a future of this size costs more.
        Box::pin(self.ask_server(key, ask)).await
    }

    /// Asks unless the reply is known to be no.
    async fn ask_inside(&self, key: &[u8], ask: Ask) -> Result<Verdict, Error> {
        match (self.0.client.backend(), &self.0.limit.shape) {
            (Backend::Memory(memory), Shape::Bucket(quotas)) => self.ask_memory(memory, quotas, key, ask),
            // On the heap: moving a future of this size costs more.
            _ => {
                let asking = Box::pin(self.ask_server(key, ask));
                watched!(Limiter, operation(ask), &self.0.name, asking, |verdict| ending(verdict, ask))
            }
        }
    }

    /// Memory replies at once: there is nothing to be gained by remembering what it denied, nor by writing a command.
    fn ask_memory(&self, memory: &Memory, quotas: &[Quota], key: &[u8], ask: Ask) -> Result<Verdict, Error> {
        let key = self.key(key);
        let verdict = match memory.take(&key, quotas, ask) {
            Ok(verdict) => match quotas {
                [quota] => Verdict::of(verdict.granted, quota, &verdict.binding()),
                _ => Verdict::read(&(&verdict).into(), &self.0.limit.shape, DecidedBy::Server),
            },
            Err(error) if error.says_away() => self.decide_away(&key, ask, error)?,
            Err(error) => return Err(error),
        };
        self.count(&verdict, ask);
        Ok(verdict)
    }

    /// What takes nothing is not counted.
    fn count(&self, verdict: &Verdict, ask: Ask) {
        if matches!(ask, Ask::Peek | Ask::Refund(_)) {
            return;
        }
        if matches!(verdict.decided_by, DecidedBy::Local | DecidedBy::AwayOpen) {
            self.0.meters.locally.increment(1);
        }
        if verdict.is_granted() {
            self.0.meters.granted.increment(1);
        } else {
            self.denied_one(verdict);
        }
    }

    #[cold]
    fn denied_one(&self, verdict: &Verdict) {
        self.0.meters.denied.increment(1);
        tracing::debug!(name = &*self.0.name, retry_after = ?verdict.retry_after, "resil.reject");
    }

    async fn ask_server(&self, key: &[u8], ask: Ask) -> Result<Verdict, Error> {
        let key = self.key(key);
        let now = self.0.client.clock().now();
        let least = match ask {
            Ask::Take(cells) => cells,
            Ask::UpTo(_) => 1,
            Ask::Reserve { .. } | Ask::Refund(_) | Ask::Peek => return self.decide(&key, ask).await,
        };
        let capacity = self.0.limit.shape.capacity();
        // More cells than the limit has are denied for ever, and the verdict says so.
        let cost = if least > capacity { 0 } else { least };
        let asked = match self.denied().look(&key, self.0.shape_id, cost, now) {
            Ok(asked) => asked,
            Err(denial) => {
                let verdict = denial.verdict(now);
                self.0.meters.denied.increment(1);
                return Ok(verdict);
            }
        };
        let verdict = self.decide(&key, ask).await?;
        self.count(&verdict, ask);
        // Counted from before the question was sent: the server's reply was no earlier.
        if verdict.decided_by == DecidedBy::Server
            && let Some(denial) = Denial::of(least, now, &verdict)
        {
            self.denied().remember(&key, self.0.shape_id, asked, denial);
        }
        Ok(verdict)
    }

    /// Asks the server, or decides as configured while it is away.
    async fn decide(&self, key: &[u8], ask: Ask) -> Result<Verdict, Error> {
        let backend = self.0.client.backend();
        match backend.call(&self.0.limit.shape.command(key, ask)).await {
            Ok(reply) => read(&reply, &self.0.limit.shape, DecidedBy::Server),
            Err(error) if error.says_away() => self.decide_away(key, ask, error),
            Err(error) => Err(error),
        }
    }

    fn decide_away(&self, key: &[u8], ask: Ask, error: Error) -> Result<Verdict, Error> {
        match self.0.limit.when_away {
            Away::Closed => Err(error.as_unavailable()),
            Away::Local => {
                let reply = self.local(&self.0.limit.part.command(key, ask))?;
                read(&reply, &self.0.limit.part, DecidedBy::Local)
            }
            Away::Open => Ok(self.granted_openly(match ask {
                Ask::Take(cells) | Ask::UpTo(cells) | Ask::Reserve { cells, .. } => cells,
                Ask::Refund(_) => 0,
                Ask::Peek => self.0.limit.shape.capacity(),
            })),
        }
    }

    fn granted_openly(&self, granted: u32) -> Verdict {
        let shape = &self.0.limit.shape;
        let capacities = shape.capacities();
        let tiers = capacities.iter().enumerate().map(|(index, capacity)| {
            let ((limit, period), retry_after) = (shape.rate(index), Some(Duration::ZERO));
            let (capacity, remaining, reset_after) = (*capacity, 0, Duration::ZERO);
            TierVerdict { limit, period, capacity, remaining, retry_after, reset_after }
        });
        let tiers: Vec<TierVerdict> = tiers.collect();
        let least = capacities.iter().min().and_then(|least| capacities.iter().position(|each| each == least));
        let binding = least.unwrap_or(0);
        tiers[binding].speaks(granted, DecidedBy::AwayOpen, if tiers.len() > 1 { tiers } else { Vec::new() }, binding)
    }

    fn local(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let client = &self.0.client;
        client.inner().limits.local.get_or_init(|| Memory::new(client.clock().clone())).call(command)
    }
}

/// What a span calls it.
fn operation(ask: Ask) -> &'static str {
    match ask {
        Ask::Take(_) => "check",
        Ask::UpTo(_) => "up_to",
        Ask::Reserve { .. } => "until_ready",
        Ask::Refund(_) => "refund",
        Ask::Peek => "peek",
    }
}

fn ending(verdict: &Result<Verdict, Error>, ask: Ask) -> CallEnding {
    CallEnding::or(verdict, |verdict| match ask {
        Ask::Peek | Ask::Refund(_) => CallEnding::OK,
        _ if verdict.is_granted() => CallEnding::GRANTED,
        _ => CallEnding::DENIED,
    })
}

/// Ends the denial of a key when it goes.
struct Forget<'a> {
    denied: &'a Denied,
    key: &'a [u8],
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.denied.forget(self.key);
    }
}

fn read(reply: &Reply, shape: &Shape, decided_by: DecidedBy) -> Result<Verdict, Error> {
    match reply {
        Reply::Limit(reply) => Ok(Verdict::read(reply, shape, decided_by)),
        other => Err(Error::Internal(format!("a limit was answered {other:?}"))),
    }
}

/// The same of a server that was asked by hand.
pub(crate) fn read_verdict(reply: &Reply, shape: &Shape) -> Result<Verdict, Error> {
    read(reply, shape, DecidedBy::Server)
}

/// `argument` is what the caller calls it.
fn cells(argument: &str, number: u32) -> Result<u32, Error> {
    Limiter::cells(argument, number.into())
}
