//! Locks that a whole fleet shares: leases with a fence.
//!
//! # The promise
//! Whoever has a [`LockGuard`] had the lock to itself when it was granted, and may believe in it until its local deadline:
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
//! it cuts the lease to the [grace](Lock::grace), so a process that crashed costs the others 3 s. If only the connection was
//! cut, this process takes the lock back over the next one, and nothing was lost; if it cannot reach the server within the
//! grace, it stops believing before anybody else is granted the lock. That also holds for a server that stalls for longer than
//! the grace. [`Lock::unbound`] keeps the lock for its whole lease instead.
//!
//! # Fairness
//! The server serves in the order of arrival. Of the tasks of one process one at a time waits there, and the others stand
//! in a line here: ten thousand tasks on one lock need one waiting connection. Whoever is dropped leaves at once.
//!
//! # Re-entrancy
//! Inside [`Lock::with_lock`], and inside [`LockGuard::reentrant`], asking for the same lock again is granted at once and
//! without the server. It follows the task: what is spawned inside is another task, and has to ask.
//!
//! ```
//! # async fn example() -> Result<(), resil::Failure<std::io::Error>> {
//! let client = resil::connect("memory://").await?;
//! let stock = client.lock("stock:42");
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

use std::sync::Arc;
use std::time::Duration;

use resil_core::limits::{INFO_LIMIT_DEFAULT, TEXT_MAX};
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{InfoCall, OwnedCall};
use resil_wire::lock::BreakCall;

pub use crate::holding::info::{Holder, Info, Mode, Waiter};
pub use crate::holding::{Held, UntilLost};
pub use guard::{LockGuard, Released};

use crate::client::Client;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::holding::ask::{Claim, DEFAULT_GRACE, Want, ask};
use crate::holding::{Binding, Kind, Renewal, unexpected};
use crate::keys;
use crate::telemetry::HoldingMeters;

/// The lease unless said: long enough for a pause of the process, short enough to wait for.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(10);

/// How long [`Lock::acquire`] waits unless said: as long as a holder that crashed may keep it.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// A lock, and on which terms it is asked for. Cheap to clone; it holds nothing.
#[derive(Debug, Clone)]
pub struct Lock {
    client: Client,
    pub(crate) want: Want,
    wait: Duration,
    when_lost: WhenLost,
    meters: Arc<HoldingMeters>,
}

/// What becomes of a function whose lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenLost {
    Drop,
    KeepRunning,
}

impl Client {
    /// The lock `name`, for all who use the same server. Nothing is checked before it is asked for; what cannot be is then
    /// [`Error::InvalidPolicy`], which names the field. To have it checked at once, make it from
    /// [`LockSettings`](crate::settings::LockSettings).
    pub fn lock(&self, name: &str) -> Lock {
        let meters = Arc::clone(self.inner().holdings.meters(Kind::Lock));
        Lock { client: self.clone(), want: want(name), wait: DEFAULT_WAIT, when_lost: WhenLost::Drop, meters }
    }
}

/// On the usual terms.
pub(crate) fn want(name: &str) -> Want {
    Want {
        claim: Claim::Exclusive,
        name: name.into(),
        key: keys::named("lock", name).into(),
        lease: DEFAULT_LEASE,
        meta: None,
        binding: Binding::Bound,
        grace: DEFAULT_GRACE,
        renewal: Renewal::ByWatchdog,
        replicas: 0,
        away: Away::Closed,
    }
}

impl Lock {
    /// How long it is held without being heard of. 10 ms to the server's `max-lease`; 10 s unless said.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.want.lease = lease;
        self
    }

    /// How long [`acquire`](Self::acquire) waits; zero is once. 10 s unless said.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// As one of many readers: beside other readers, never beside a writer.
    pub fn shared(mut self) -> Self {
        self.want.claim = Claim::Shared;
        self
    }

    /// A text for whoever asks who holds it. At most 512 bytes.
    pub fn meta(mut self, text: &str) -> Self {
        self.want.meta = Some(text.into());
        self
    }

    /// How long this process has to take a bound lock back when its connection closes: what a cut, or a server that stalls,
    /// may last without costing the lock, and what a crash costs the others. Each lock that is held costs a renewal every
    /// third of it. From 100 ms to 1 day; the default is 3 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.want.grace = grace;
        self
    }

    /// Not bound to the connection: held for its lease even if that closes, also by a process that has crashed.
    pub fn unbound(mut self) -> Self {
        self.want.binding = Binding::Unbound;
        self
    }

    /// Not renewed, and so not [bound](Self::unbound) either: it is lost when its lease is over, unless
    /// [`LockGuard::extend`] is called.
    pub fn without_watchdog(mut self) -> Self {
        self.want.renewal = Renewal::ByHand;
        self
    }

    /// Granted only once so many replicas have it; else it is given back and the answer is
    /// [`Error::BackendUnavailable`]. Asking them takes up to a command timeout more. 0 unless said; refused in memory.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.want.replicas = replicas;
        self
    }

    /// While the server is away: `Closed` (unless said) refuses, `Open` lets through *without a lock and without a fence*.
    /// `Local` is refused: each process would think it is alone.
    pub fn when_away(mut self, away: Away) -> Self {
        self.want.away = away;
        self
    }

    /// The function of [`with_lock`](Self::with_lock) runs on when the lock is lost, and has to look at [`Held`] itself.
    pub fn keep_running_when_lost(mut self) -> Self {
        self.when_lost = WhenLost::KeepRunning;
        self
    }

    /// What it is called in metrics; `default` unless said, because names of locks are often made of ids. Make such a lock
    /// once, and clone it: see [`telemetry`](crate::telemetry).
    pub fn labelled(mut self, label: &str) -> Self {
        self.meters = Arc::new(HoldingMeters::new(Kind::Lock, &label.into()));
        self
    }

    pub fn name(&self) -> &str {
        &self.want.name
    }

    /// Asks once, and does not wait.
    pub async fn try_acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_within(Duration::ZERO).await
    }

    /// Waits for as long as [`wait`](Self::wait) says.
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
    /// dropped, at its next await, and the answer is [`Error::LockLost`]; one that has finished has finished.
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
        let done = match self.when_lost {
            WhenLost::KeepRunning => work.await.map_err(Failure::Inner),
            WhenLost::Drop => tokio::select! {
                biased;
                () = lost => Err(Failure::Resil(guard.held().0.lost_error())),
                done = work => done.map_err(Failure::Inner),
            },
        };
        // What the work came to does not depend on it: an unanswered release goes on in the background.
        let _ = guard.release().await;
        done
    }

    /// Who holds it and who waits for it.
    pub async fn info(&self) -> Result<Info, Error> {
        let call = InfoCall { key: self.want.key.as_bytes(), limit: INFO_LIMIT_DEFAULT as usize };
        Info::read(self.client.backend().call(&Command::LockInfo(call)).await?)
    }

    /// Takes it from whoever holds it. They are told that it is broken; the next in line has it. How many held it.
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
