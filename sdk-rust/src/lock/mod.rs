//! Locks that a whole fleet shares: leases with a fence.
//!
//! # The promise
//! The holder of a [`LockGuard`] had the lock to itself when it was granted, and may rely on it until its local deadline:
//! when the last acknowledged command was sent, plus the grace of 3 s (or the lease, if that is shorter), less a drift of 1 %
//! and 2 ms, by the monotonic clock. It is renewed at a third of that for as long as the guard lives. When it is lost,
//! [`Held::lost`] fires: at once when the server publishes it (it was broken, deleted, flushed), or because the deadline
//! passed, even if the network hangs.
//!
//! # What it is not
//! A lease is not mutual exclusion: a process that sleeps over its deadline does not know it until it wakes. Send
//! [`Held::fence`] along with each write, and let the store refuse a number below the highest it has seen.
//!
//! A lock is *bound* where there is a server: it belongs to the connection of this process. When the server sees that close,
//! it cuts the lease to the [grace](LockSettings::grace), so a process that crashed costs the others 3 s. If only the connection was
//! cut, this process takes the lock back over the next one, and nothing was lost; if it cannot reach the server within the
//! grace, it stops believing before anybody else is granted the lock. That also holds for a server that stalls for longer than
//! the grace. [`LockSettings::unbound`] keeps the lock for its whole lease instead.
//!
//! # Fairness
//! The server serves in the order of arrival, and every task of every process waits in its queue. A wait
//! costs no connection. A task that is dropped leaves the queue within a round trip.
//!
//! # Re-entrancy
//! Inside [`Lock::with_lock`], and inside [`LockGuard::reentrant`], asking for the same lock again is granted at once and
//! without the server. It follows the task: what is spawned inside is another task, and has to ask.
//!
//! ```
//! # async fn example() -> Result<(), resil::Failure<std::io::Error>> {
//! use resil::lock::LockSettings;
//!
//! let client = resil::connect("memory://").await?;
//! let stock = client.lock("stock:42", LockSettings::new())?;
//!
//! let sold = stock.with_lock(|held| async move {
//!     let _fence = held.fence(); // goes along with the write
//!     Ok(1)
//! }).await?;
//! assert_eq!(sold, 1);
//!
//! let guard = stock.acquire().await?;
//! assert!(stock.try_acquire().await.is_err());
//! guard.release().await?;
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```

mod guard;
mod inside;
mod reentry;
mod several;

use std::sync::Arc;
use std::time::Duration;

use resil_core::limits::{INFO_LIMIT_DEFAULT, TEXT_MAX};
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{InfoCall, OwnedCall};
use resil_wire::lock::BreakCall;
use serde::{Deserialize, Serialize};

pub use crate::holding::info::{Holder, Info, Mode, Waiter};
pub use crate::holding::{Held, UntilLost};
pub use guard::{LockGuard, Released};
pub use several::{Locks, LocksGuard, lock_name};

use crate::client::Client;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::holding::ask::{Claim, DEFAULT_GRACE, DEFAULT_LEASE, Want, ask};
use crate::holding::{Binding, HoldingKind, Renewal, unexpected};
use crate::keys;
use crate::settings::{setters, span_text};
use crate::telemetry::HoldingMeters;

/// How a lock is asked for, and what becomes of it. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LockSettings {
    /// How long the lock is held without a renewal: 10 ms to the server's `max-lease`. 10 s by default: long enough for a pause of
    /// the process, short enough to wait for.
    #[serde(with = "span_text")]
    pub lease: Duration,
    /// How long [`Lock::acquire`] waits; zero asks once. 10 s by default: as long as a holder that crashed may keep the lock.
    #[serde(with = "span_text")]
    pub wait: Duration,
    /// As one of many readers: beside other readers, never beside a writer.
    pub shared: bool,
    /// A text that [`Lock::info`] shows of the holder: 1 to 512 bytes.
    pub meta: Option<String>,
    /// Whether the lock belongs to the connection of this process. An unbound lock is held for its lease even if the connection
    /// closes, also by a process that has crashed.
    pub bound: bool,
    /// How long this process has to take a bound lock back when its connection closes: what a cut, or a server that stalls,
    /// may last without costing the lock, and what a crash costs the others. Each lock that is held costs a renewal every
    /// third of it. 100 ms to 1 day; 3 s by default.
    #[serde(with = "span_text")]
    pub grace: Duration,
    /// Whether the lock is renewed. A lock that is not is not bound either: it is lost when its lease ends, unless
    /// [`LockGuard::extend`] is called.
    pub watchdog: bool,
    /// Granted only once so many replicas have it; else it is given back with
    /// [`Error::BackendUnavailable`]. Asking them takes up to a command timeout more. 0 by default; refused in memory.
    pub replicas: u32,
    /// While the server is away: `Closed` (the default) refuses, `Open` lets callers through *without a lock and without a fence*.
    /// `Local` is refused: each process would think it is alone.
    pub when_away: Away,
    /// The function of [`Lock::with_lock`] runs on when the lock is lost, and has to look at [`Held`] itself.
    pub keep_running_when_lost: bool,
}

impl Default for LockSettings {
    fn default() -> Self {
        Self {
            lease: DEFAULT_LEASE,
            wait: Duration::from_secs(10),
            shared: false,
            meta: None,
            bound: true,
            grace: DEFAULT_GRACE,
            watchdog: true,
            replicas: 0,
            when_away: Away::Closed,
            keep_running_when_lost: false,
        }
    }
}

setters! {
    LockSettings { lease: Duration, wait: Duration, grace: Duration, replicas: u32, when_away: Away }
}

impl LockSettings {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`meta`](Self#structfield.meta).
    #[must_use]
    pub fn meta(mut self, text: &str) -> Self {
        self.meta = Some(text.to_owned());
        self
    }

    /// Asks as one of many [readers](Self#structfield.shared).
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Not [bound](Self#structfield.bound) to the connection.
    #[must_use]
    pub fn unbound(mut self) -> Self {
        self.bound = false;
        self
    }

    /// Not renewed by the [watchdog](Self#structfield.watchdog).
    #[must_use]
    pub fn without_watchdog(mut self) -> Self {
        self.watchdog = false;
        self
    }

    /// See the [field](Self#structfield.keep_running_when_lost).
    #[must_use]
    pub fn keep_running_when_lost(mut self) -> Self {
        self.keep_running_when_lost = true;
        self
    }

    pub fn validate(&self) -> Result<(), Error> {
        // The name is given when the lock is made.
        self.want("any").check_terms()
    }

    fn want(&self, name: &str) -> Want {
        Want {
            claim: if self.shared { Claim::Shared } else { Claim::Exclusive },
            name: name.into(),
            key: keys::named("lock", name).into(),
            lease: self.lease,
            meta: self.meta.as_deref().map(Into::into),
            binding: if self.bound { Binding::Bound } else { Binding::Unbound },
            grace: self.grace,
            renewal: if self.watchdog { Renewal::ByWatchdog } else { Renewal::ByHand },
            replicas: self.replicas,
            away: self.when_away,
        }
    }
}

/// A lock, and how it is asked for. Cheap to clone; it holds nothing.
#[derive(Debug, Clone)]
pub struct Lock {
    client: Client,
    want: Want,
    wait: Duration,
    keep_running_when_lost: bool,
    meters: Arc<HoldingMeters>,
}

impl Client {
    /// The lock `name`, for all clients of the same server.
    pub fn lock(&self, name: &str, settings: LockSettings) -> Result<Lock, Error> {
        let want = settings.want(name);
        want.check(self.backend())?;
        let meters = Arc::clone(self.inner().holdings.meters(HoldingKind::Lock));
        let LockSettings { wait, keep_running_when_lost, .. } = settings;
        Ok(Lock { client: self.clone(), want, wait, keep_running_when_lost, meters })
    }
}

impl Lock {
    /// What it is called in metrics; by default `default`, because names of locks are often made of ids. Make such a lock
    /// once, and clone it: see [`telemetry`](crate::telemetry).
    pub fn labelled(mut self, label: &str) -> Self {
        self.meters = Arc::new(HoldingMeters::new(HoldingKind::Lock.primitive(), &label.into()));
        self
    }

    pub fn name(&self) -> &str {
        &self.want.name
    }

    /// Asks once, and does not wait.
    pub async fn try_acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_within(Duration::ZERO).await
    }

    /// Waits for as long as [`wait`](LockSettings#structfield.wait) says.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_within(self.wait).await
    }

    /// Waits until it has the lock, however long that takes. While the server is away it goes on trying.
    pub async fn until_acquired(&self) -> Result<LockGuard, Error> {
        self.acquire_within(Duration::MAX).await
    }

    /// Waits for at most `wait`, in the line of this process and at the server together.
    pub async fn acquire_within(&self, wait: Duration) -> Result<LockGuard, Error> {
        if let Some(held) = reentry::held(&self.client, &self.want.name) {
            return match self.want.claim {
                _ if !held.step_in() => Err(held.lost_error()),
                // It would wait for itself.
                Claim::Exclusive if !held.is_exclusive && !held.is_open => {
                    held.step_out();
                    Err(Error::Deadlock { name: Arc::clone(&self.want.name) })
                }
                _ => Ok(LockGuard::new(held)),
            };
        }
        ask(&self.client, &self.want, &self.meters, wait).await.map(LockGuard::new)
    }

    /// Runs `function` while the lock is held, and releases it in every case. When the lock is lost the function is
    /// dropped, at its next await, and the reply is [`Error::LockLost`]; one that has finished has finished.
    pub async fn with_lock<T, E, F, R>(&self, function: F) -> Result<T, Failure<E>>
    where
        F: FnOnce(Held) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let _pass = self.client.inner().gate.enter()?;
        let guard = self.acquire().await?;
        let held = guard.held();
        let lost = held.until_lost();
        let work = guard.reentrant(function(held));
        let done = if self.keep_running_when_lost {
            work.await.map_err(Failure::Inner)
        } else {
            tokio::select! {
                biased;
                () = lost => Err(Failure::Resil(guard.held().0.lost_error())),
                done = work => done.map_err(Failure::Inner),
            }
        };
        // What the work came to does not depend on it: an unanswered release goes on in the background.
        let _ = guard.release().await;
        done
    }

    /// Its holders and its waiters.
    pub async fn info(&self) -> Result<Info, Error> {
        let call = InfoCall { key: self.want.key.as_bytes(), limit: INFO_LIMIT_DEFAULT as usize };
        Info::read(self.client.backend().call(&Command::LockInfo(call)).await?)
    }

    /// Takes it from its holders. They learn that it is broken; the next waiter has it. Returns how many held it.
    pub async fn break_lock(&self, actor: &str, reason: &str) -> Result<u64, Error> {
        for (field, text) in [("actor", actor), ("reason", reason)] {
            if text.len() > TEXT_MAX {
                return Err(Error::InvalidArgument(format!("{field} must have at most {TEXT_MAX} bytes")));
            }
        }
        let said = |text| Some(text).filter(|text: &&[u8]| !text.is_empty());
        let (actor, reason) = (said(actor.as_bytes()), said(reason.as_bytes()));
        let call = BreakCall { key: self.want.key.as_bytes(), actor, reason };
        self.number(&Command::LockBreak(call)).await.map(i64::unsigned_abs)
    }

    /// Whether `owner` holds it, and under `fence` if one is named. Asks the server and changes nothing.
    pub async fn check(&self, owner: &str, fence: Option<u64>) -> Result<bool, Error> {
        let call = OwnedCall { key: self.want.key.as_bytes(), owner: owner.as_bytes(), fence };
        self.number(&Command::LockCheck(call)).await.map(|number| number == 1)
    }

    async fn number(&self, command: &Command<'_>) -> Result<i64, Error> {
        match self.client.backend().call(command).await? {
            Reply::Number(number) => Ok(number),
            other => Err(unexpected(&other)),
        }
    }
}
