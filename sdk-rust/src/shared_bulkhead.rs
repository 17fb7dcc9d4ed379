//! A bulkhead that a whole fleet shares: at most `max` are inside at once, wherever they run.
//!
//! # The promise
//! Each who is inside has a permit with a lease. It is renewed while the guard lives; a process that crashed frees its
//! permits, after the grace of 3 s where they are bound to its connection, else when their leases are over. Waiters are served by
//! priority, and in the order of arrival within one. Like a lock it is a lease, not mutual exclusion: [`Held::lost`] says
//! when a permit is gone.
//! Every task that waits is in the server's queue, so order and `max_queue` hold for the whole fleet.
//!
//! ```
//! # async fn example() -> Result<(), resil::Failure<std::io::Error>> {
//! use resil::shared_bulkhead::SharedBulkheadSettings;
//!
//! let client = resil::connect("memory://").await?;
//! let reports = client.shared_bulkhead("reports", SharedBulkheadSettings::new(2))?;
//!
//! let pages = reports.run(|| async { Ok(3) }).await?;
//! assert_eq!(pages, 3);
//!
//! let (_one, _two) = (reports.enter().await?, reports.enter().await?);
//! assert!(reports.enter().await.is_err(), "it is full, and nobody said to wait");
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```

use std::sync::Arc;
use std::time::Duration;

use resil_core::limits::INFO_LIMIT_DEFAULT;
use resil_core::policy::Adaptive;
use resil_wire::bulkhead::PRIORITY_DEFAULT;
use resil_wire::command::Command;
use resil_wire::holding::InfoCall;
use serde::{Deserialize, Serialize};

pub use crate::holding::info::{Holder, Info, Waiter};
pub use crate::holding::{Held, UntilLost};

use crate::client::Client;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::holding::ask::{Claim, DEFAULT_GRACE, DEFAULT_LEASE, Want, ask};
use crate::holding::release::{LetGo, let_go};
use crate::holding::{Binding, Holding, HoldingKind, Renewal};
use crate::keys;
use crate::policy::bulkhead::check_adaptive;
use crate::settings::setters;
use crate::settings::span_text::{check_span, optional};
use crate::telemetry::HoldingMeters;

/// How a shared bulkhead is entered. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedBulkheadSettings {
    /// In a policy: which bulkhead it is, by default the one of the policy's name. Policies that name the same one share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Calls at once in the whole fleet: 1 to 100,000.
    pub max_concurrent_calls: u32,
    /// How many calls may wait in the whole fleet. As many as `max_concurrent_calls` by default; with 0 no call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queue: Option<u32>,
    /// How long [`SharedBulkhead::enter`] waits when the bulkhead is full: up to 10 min. By default it does not wait.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<Duration>,
    /// How long a permit is held without a renewal: 10 ms to the server's `max-lease`. 10 s by default.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// 0 is served first, 9 last; 5 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// See [`LockSettings::bound`](crate::lock::LockSettings#structfield.bound).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<bool>,
    /// See [`LockSettings::grace`](crate::lock::LockSettings#structfield.grace).
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub grace: Option<Duration>,
    /// In a policy: this process' own calls at once move between `min` and `max_concurrent_calls` with what happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// While the server is away: `Closed` (the default) refuses, `Open` lets everybody in. `Local` is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_away: Option<Away>,
}

setters! {
    SharedBulkheadSettings {}
    { max_queue: u32, max_wait: Duration, lease: Duration, priority: u8, grace: Duration, when_away: Away }
}

impl SharedBulkheadSettings {
    pub fn new(max_concurrent_calls: u32) -> Self {
        Self {
            name: None,
            max_concurrent_calls,
            max_queue: None,
            max_wait: None,
            lease: None,
            priority: None,
            bound: None,
            grace: None,
            adaptive: None,
            when_away: None,
        }
    }

    /// Not bound to the connection: a permit lasts for its lease even if that closes.
    #[must_use]
    pub fn unbound(mut self) -> Self {
        self.bound = Some(false);
        self
    }

    pub fn validate(&self) -> Result<(), Error> {
        if self.name.as_deref() == Some("") {
            return Err(Error::invalid("name", "must not be empty"));
        }
        check_adaptive(self.adaptive.as_ref(), self.max_concurrent_calls)?;
        check_span("maxWait", self.max_wait.unwrap_or_default(), Duration::ZERO, Duration::from_secs(600))?;
        self.want("any").check_terms()
    }

    fn want(&self, name: &str) -> Want {
        let (max, priority) = (self.max_concurrent_calls, self.priority.unwrap_or(PRIORITY_DEFAULT));
        Want {
            claim: Claim::Permit { max, queue: self.max_queue.unwrap_or(max), priority },
            name: name.into(),
            key: keys::named("bulkhead", name).into(),
            lease: self.lease.unwrap_or(DEFAULT_LEASE),
            meta: None,
            binding: if self.bound == Some(false) { Binding::Unbound } else { Binding::Bound },
            grace: self.grace.unwrap_or(DEFAULT_GRACE),
            renewal: Renewal::ByWatchdog,
            replicas: 0,
            away: self.when_away.unwrap_or(Away::Closed),
        }
    }
}

/// A bulkhead, and how it is entered. Cheap to clone; it holds nothing.
#[derive(Debug, Clone)]
pub struct SharedBulkhead {
    client: Client,
    want: Want,
    wait: Duration,
    meters: Arc<HoldingMeters>,
}

impl Client {
    /// The bulkhead `name`, for all clients of the same server.
    pub fn shared_bulkhead(&self, name: &str, settings: SharedBulkheadSettings) -> Result<SharedBulkhead, Error> {
        settings.validate()?;
        keys::same_name(name, settings.name.as_deref())?;
        let (client, want) = (self.clone(), settings.want(name));
        want.check(self.backend())?;
        let (wait, meters) =
            (settings.max_wait.unwrap_or_default(), self.inner().holdings.meters(HoldingKind::Bulkhead));
        Ok(SharedBulkhead { client, want, wait, meters: Arc::clone(meters) })
    }
}

impl SharedBulkhead {
    /// What it is called in metrics; by default `default`, because its name may be made of ids. Make such a bulkhead once,
    /// and clone it: see [`telemetry`](crate::telemetry).
    pub fn labelled(mut self, label: &str) -> Self {
        self.meters = Arc::new(HoldingMeters::new(HoldingKind::Bulkhead.primitive(), &label.into()));
        self
    }

    pub fn name(&self) -> &str {
        &self.want.name
    }

    /// Calls at once in the whole fleet.
    pub(crate) fn max(&self) -> u32 {
        match self.want.claim {
            Claim::Permit { max, .. } => max,
            Claim::Exclusive | Claim::Shared => 1,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// For a call that came in at the gate already.
    pub(crate) async fn enter_inside(&self) -> Result<BulkheadGuard, Error> {
        ask(&self.client, &self.want, &self.meters, self.wait).await.map(BulkheadGuard::new)
    }

    /// Goes in, or waits for that as long as [`max_wait`](SharedBulkheadSettings::max_wait) says; else [`Error::BulkheadFull`].
    pub async fn enter(&self) -> Result<BulkheadGuard, Error> {
        self.enter_within(self.wait).await
    }

    /// Goes in if there is room now.
    pub async fn try_enter(&self) -> Result<BulkheadGuard, Error> {
        self.enter_within(Duration::ZERO).await
    }

    pub async fn enter_within(&self, wait: Duration) -> Result<BulkheadGuard, Error> {
        ask(&self.client, &self.want, &self.meters, wait).await.map(BulkheadGuard::new)
    }

    /// Runs `function` inside, and leaves in every case. When the permit is lost the function is dropped, at its next
    /// await, and the reply is [`Error::LockLost`].
    pub async fn run<T, E, F, R>(&self, function: F) -> Result<T, Failure<E>>
    where
        F: FnOnce() -> R,
        R: Future<Output = Result<T, E>>,
    {
        let _pass = self.client.inner().gate.enter()?;
        let guard = self.enter().await?;
        let lost = guard.held.until_lost();
        let done = tokio::select! {
            biased;
            () = lost => Err(Failure::Resil(guard.held.0.lost_error())),
            done = function() => done.map_err(Failure::Inner),
        };
        let _ = guard.leave().await;
        done
    }

    /// Its holders and its waiters.
    pub async fn info(&self) -> Result<Info, Error> {
        let call = InfoCall { key: self.want.key.as_bytes(), limit: INFO_LIMIT_DEFAULT as usize };
        Info::read(self.client.backend().call(&Command::BulkheadInfo(call)).await?)
    }
}

/// A permit. Dropping it leaves, in the background.
#[derive(Debug)]
#[must_use = "dropped at once, the permit is given back at once"]
pub struct BulkheadGuard {
    holding: Option<Arc<Holding>>,
    held: Held,
}

impl BulkheadGuard {
    fn new(holding: Arc<Holding>) -> Self {
        Self { held: Held(Arc::clone(&holding)), holding: Some(holding) }
    }

    /// What it is to those who work under it; can be cloned and sent anywhere, and keeps nothing held.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    pub(crate) fn lost_error(&self) -> Error {
        self.held.0.lost_error()
    }

    /// Leaves, and says how long it was inside. An error other than `LockLost` goes on being tried in the background.
    pub async fn leave(mut self) -> Result<Duration, Error> {
        let Some(holding) = self.holding.take() else { return Ok(Duration::ZERO) };
        let was_held = holding.is_held();
        match let_go(&holding) {
            LetGo::Last(pending) if was_held => pending.say().await,
            LetGo::Last(pending) => Err(pending.say_of_lost(&holding).await),
            LetGo::Nothing if !holding.is_open => Err(holding.lost_error()),
            LetGo::Nothing | LetGo::StillHeld => Ok(holding.client.clock().now().saturating_sub(holding.since)),
        }
    }
}

/// What is held: [`Held::is_held`], [`Held::lost`] and the rest.
impl std::ops::Deref for BulkheadGuard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl Drop for BulkheadGuard {
    fn drop(&mut self) {
        if let Some(holding) = self.holding.take() {
            drop(let_go(&holding));
        }
    }
}
