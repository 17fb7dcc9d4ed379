//! Several locks at once: all of them, or none.
//!
//! They are acquired one after the other in the order of their keys, whatever order they were named in: two callers that want some of
//! the same never wait for each other in a circle. If one cannot be had in time, those before it are released. They are released in
//! reverse.
//!
//! ```
//! # async fn example() -> Result<(), resil::Error> {
//! use resil::lock::{LockSettings, lock_name};
//!
//! let client = resil::connect("memory://").await?;
//! let transfer = client.locks(
//!     [lock_name("bank", "account", "7")?, lock_name("bank", "account", "3")?],
//!     LockSettings::new(),
//! )?;
//! let held = transfer.acquire().await?;
//! assert_eq!(held.guards()[0].name(), "lock:bank:account:3");
//! held.release().await?;
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```

use std::time::Duration;

use futures_util::future::select_all;

use super::{Lock, LockGuard, LockSettings, Released};
use crate::client::Client;
use crate::error::Error;

/// More than this at once is a mistake.
const LOCKS_MAX: usize = 1_000;

/// Several locks, in the order of their keys. Cheap to clone; it holds nothing.
#[derive(Debug, Clone)]
pub struct Locks {
    each: Vec<Lock>,
    wait: Duration,
}

/// Several locks that are held. Dropped, they are released in reverse.
#[derive(Debug)]
#[must_use = "dropped at once, the locks are released at once"]
pub struct LocksGuard {
    guards: Vec<LockGuard>,
}

impl Client {
    /// The locks of these names, all with the same settings. See [`Locks`].
    pub fn locks<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        settings: LockSettings,
    ) -> Result<Locks, Error> {
        let wait = settings.wait;
        let locks = names.into_iter().map(|name| self.lock(name.as_ref(), settings.clone()));
        let mut each = locks.collect::<Result<Vec<Lock>, Error>>()?;
        if !(1..=LOCKS_MAX).contains(&each.len()) {
            return Err(Error::invalid("names", format!("must be from 1 to {LOCKS_MAX}, got {}", each.len())));
        }
        each.sort_by(|one, other| one.want.key.cmp(&other.want.key));
        if let Some(twice) = each.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return Err(Error::invalid("names", format!("must be different, got {:?} twice", twice[0].name())));
        }
        Ok(Locks { each, wait })
    }
}

impl Locks {
    /// What they are called in metrics; see [`Lock::labelled`].
    pub fn labelled(mut self, label: &str) -> Self {
        self.each = self.each.into_iter().map(|lock| lock.labelled(label)).collect();
        self
    }

    /// In the order in which they are acquired.
    pub fn names(&self) -> Vec<&str> {
        self.each.iter().map(Lock::name).collect()
    }

    /// Asks once for each, and does not wait.
    pub async fn try_acquire(&self) -> Result<LocksGuard, Error> {
        self.acquire_within(Duration::ZERO).await
    }

    /// Waits for as long as [`wait`](LockSettings#structfield.wait) says, for all of them together.
    pub async fn acquire(&self) -> Result<LocksGuard, Error> {
        self.acquire_within(self.wait).await
    }

    /// Waits for at most `wait`, for all of them together.
    pub async fn acquire_within(&self, wait: Duration) -> Result<LocksGuard, Error> {
        let Some(first) = self.each.first() else { return Ok(LocksGuard { guards: Vec::new() }) };
        let clock = first.client.clock();
        let until = clock.now().saturating_add(wait);
        let mut held = LocksGuard { guards: Vec::with_capacity(self.each.len()) };
        for lock in &self.each {
            match lock.acquire_within(until.saturating_sub(clock.now())).await {
                Ok(guard) => held.guards.push(guard),
                Err(error) => {
                    // The others are free before the caller hears of it, where they can be released at all.
                    let _ = held.release().await;
                    return Err(error);
                }
            }
        }
        // The first ones may have been lost while the last one was waited for.
        match held.ensure() {
            Ok(()) => Ok(held),
            Err(lost) => {
                let _ = held.release().await;
                Err(lost)
            }
        }
    }
}

impl LocksGuard {
    /// One for each lock, in the order of their keys: each has its fence.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// By the clock, now: all of them.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// `Err(LockLost)` if one of them is not held any more.
    pub fn ensure(&self) -> Result<(), Error> {
        self.guards.iter().try_for_each(|guard| guard.ensure())
    }

    /// Ready when one of them is lost.
    pub async fn until_lost(&self) {
        if self.guards.is_empty() {
            std::future::pending::<()>().await;
        }
        select_all(self.guards.iter().map(|guard| guard.until_lost())).await;
    }

    /// Releases them in reverse, all of them whatever comes of each; the first error is returned.
    pub async fn release(mut self) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(guard) = self.guards.pop() {
            let released = guard.release().await.map(|_: Released| ());
            first = first.and(released);
        }
        first
    }
}

impl Drop for LocksGuard {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}

/// `lock:<domain>:<resource>:<id>`: a name that says what is locked. No part may be empty or contain `:`, `{` or `}`.
pub fn lock_name(domain: &str, resource: &str, id: &str) -> Result<String, Error> {
    for (field, part) in [("domain", domain), ("resource", resource), ("id", id)] {
        if part.is_empty() || part.contains([':', '{', '}']) {
            return Err(Error::invalid(field, format!("must not be empty, nor contain : {{ or }}, got {part:?}")));
        }
    }
    Ok(format!("lock:{domain}:{resource}:{id}"))
}
