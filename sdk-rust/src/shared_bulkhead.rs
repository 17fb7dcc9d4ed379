//! A bulkhead that a whole fleet shares: at most `max` are inside at once, wherever they run.
//!
//! # The promise
//! Each who is inside has a permit with a lease. It is renewed while the guard lives; a process that crashed frees its
//! permits, after the grace of 3 s where they are bound to its connection, else when their leases are over. Whoever waits is served by
//! priority, and in the order of arrival within one. Like a lock it is a lease, not mutual exclusion: [`Held::lost`] says
//! when a permit is gone.
//!
//! Of the tasks of one process that wait with the same priority, one at a time waits in the server, the others in a line
//! here.
//!
//! ```
//! # async fn example() -> Result<(), resil::Failure<std::io::Error>> {
//! let client = resil::connect("memory://").await?;
//! let reports = client.shared_bulkhead("reports", 2);
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
use resil_wire::bulkhead::PRIORITY_DEFAULT;
use resil_wire::command::Command;
use resil_wire::holding::InfoCall;
use tokio_util::sync::CancellationToken;

pub use crate::holding::info::{Holder, Info, Waiter};
pub use crate::holding::{Held, UntilLost};

use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::holding::ask::{Claim, DEFAULT_GRACE, Want, ask};
use crate::holding::release::{LetGo, let_go};
use crate::holding::{Binding, Holding, Kind, Renewal};
use crate::keys;
use crate::telemetry::HoldingMeters;

/// The lease of a permit unless said.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(10);

/// A bulkhead, and on which terms it is entered. Cheap to clone; it holds nothing.
#[derive(Debug, Clone)]
pub struct SharedBulkhead {
    client: Client,
    pub(crate) want: Want,
    wait: Duration,
    max: u32,
    queue: Option<u32>,
    priority: u8,
    meters: Arc<HoldingMeters>,
}

impl Client {
    /// The bulkhead `name`, in which at most `max` are inside at once, of all who use the same server. As with
    /// [locks](Client::lock), what cannot be is refused by the name of its field when it is entered.
    pub fn shared_bulkhead(&self, name: &str, max: u32) -> SharedBulkhead {
        let (client, want) = (self.clone(), want(name, max));
        let (wait, queue, priority) = (Duration::ZERO, None, PRIORITY_DEFAULT);
        let meters = Arc::clone(self.inner().holdings.meters(Kind::Bulkhead));
        SharedBulkhead { client, want, wait, max, queue, priority, meters }
    }
}

/// On the usual terms.
pub(crate) fn want(name: &str, max: u32) -> Want {
    Want {
        claim: Claim::Permit { max, queue: max, priority: PRIORITY_DEFAULT },
        name: name.into(),
        key: keys::named("bulkhead", name).into(),
        lease: DEFAULT_LEASE,
        meta: None,
        binding: Binding::Bound,
        grace: DEFAULT_GRACE,
        renewal: Renewal::ByWatchdog,
        replicas: 0,
        away: Away::Closed,
    }
}

impl SharedBulkhead {
    /// How many may wait: so many in the server, and so many of each priority in this process. `max` unless said; 0: nobody.
    pub fn queue(mut self, places: u32) -> Self {
        self.queue = Some(places);
        self.claim()
    }

    /// How long [`enter`](Self::enter) waits when it is full. Zero unless said: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// 0 is served first, 9 last; 5 unless said.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self.claim()
    }

    /// How long a permit is held without being heard of. 10 s unless said.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.want.lease = lease;
        self
    }

    /// How long this process has to take its permits back when its connection closes. From 100 ms to 1 day; 3 s unless said.
    /// See [`Lock::grace`](crate::lock::Lock::grace).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.want.grace = grace;
        self
    }

    /// Not bound to the connection: a permit lasts for its lease even if that closes.
    pub fn unbound(mut self) -> Self {
        self.want.binding = Binding::Unbound;
        self
    }

    /// While the server is away: `Closed` (unless said) refuses, `Open` lets everybody in. `Local` is refused.
    pub fn when_away(mut self, away: Away) -> Self {
        self.want.away = away;
        self
    }

    /// What it is called in metrics; `default` unless said, because its name may be made of ids. Make such a bulkhead once,
    /// and clone it: see [`telemetry`](crate::telemetry).
    pub fn labelled(mut self, label: &str) -> Self {
        self.meters = Arc::new(HoldingMeters::new(Kind::Bulkhead, &label.into()));
        self
    }

    fn claim(mut self) -> Self {
        let (max, queue, priority) = (self.max, self.queue.unwrap_or(self.max), self.priority);
        self.want.claim = Claim::Permit { max, queue, priority };
        self
    }

    pub fn name(&self) -> &str {
        &self.want.name
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// For a call that came in at the gate already.
    pub(crate) async fn enter_inside(&self) -> Result<BulkheadGuard, Error> {
        ask(&self.client, &self.want, &self.meters, self.wait).await.map(BulkheadGuard::new)
    }

    /// Goes in, or waits for that as long as [`wait`](Self::wait) says; else [`Error::BulkheadFull`].
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
    /// await, and the answer is [`Error::LockLost`].
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

    /// Who is inside and who waits.
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

    /// See [`Held::lost`].
    pub fn lost(&self) -> CancellationToken {
        self.held.lost()
    }

    /// See [`Held::is_held`].
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// See [`Held::deadline`].
    pub fn deadline(&self) -> Moment {
        self.held.deadline()
    }

    /// See [`Held::remaining`].
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
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

impl Drop for BulkheadGuard {
    fn drop(&mut self) {
        if let Some(holding) = self.holding.take() {
            drop(let_go(&holding));
        }
    }
}
