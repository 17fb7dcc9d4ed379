//! A lock that is held: dropped, it is let go.

use std::sync::Arc;
use std::time::Duration;

use resil_wire::command::{Command, Reply};
use resil_wire::holding::OwnedCall;
use serde::Serialize;

use super::reentry;
use crate::error::Error;
use crate::holding::ask::check_lease;
use crate::holding::release::{LetGo, let_go};
use crate::holding::{Held, Holding, unexpected};
use crate::settings::span_text;

/// A lock that is held. Dropping it releases it in the background, also outside of a runtime and after a cancellation;
/// [`release`](Self::release) does so and says how it went.
#[derive(Debug)]
#[must_use = "dropped at once, the lock is released at once"]
pub struct LockGuard {
    /// `None` once it was let go.
    holding: Option<Arc<Holding>>,
    held: Held,
}

/// What a release came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Released {
    /// It is free, or the next one's.
    Freed {
        /// How long it was held, by the server's time.
        #[serde(with = "span_text")]
        held: Duration,
    },
    /// The same task holds it still, further out.
    StillHeld,
}

impl LockGuard {
    pub(super) fn new(holding: Arc<Holding>) -> Self {
        Self { held: Held(Arc::clone(&holding)), holding: Some(holding) }
    }

    /// What it is to those who work under it; can be cloned and sent anywhere, and keeps nothing held.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// The lease ends `lease` from now, and is of that length from now on. `Err(LockLost)` if there is none any more.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let holding = &self.held.0;
        check_lease(lease)?;
        self.held.ensure()?;
        let extended = holding.extend(lease).await;
        holding.client.inner().holdings.reschedule(holding);
        extended
    }

    /// Asks the server whether this guard's lock is held, under its fence.
    pub async fn check(&self) -> Result<bool, Error> {
        let holding = &self.held.0;
        if holding.is_open {
            return Ok(false);
        }
        let call = OwnedCall { key: holding.key.as_bytes(), owner: &holding.owner, fence: holding.fence };
        match holding.client.backend().call(&Command::LockCheck(call)).await? {
            Reply::Number(number) => Ok(number == 1),
            other => Err(unexpected(&other)),
        }
    }

    /// Inside `work`, and in this task only, asking for the same lock again is granted at once, without the server.
    pub async fn reentrant<R: Future>(&self, work: R) -> R::Output {
        reentry::holding(&self.held.0, work).await
    }

    /// Lets go. `Err(LockLost)` if it had been lost before; any other error goes on being tried in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        let Some(holding) = self.holding.take() else { return Ok(Released::StillHeld) };
        let was_held = holding.is_held();
        match let_go(&holding) {
            LetGo::StillHeld => Ok(Released::StillHeld),
            LetGo::Nothing if holding.is_open => {
                let held = holding.client.clock().now().saturating_sub(holding.since);
                Ok(Released::Freed { held })
            }
            LetGo::Nothing => Err(holding.lost_error()),
            LetGo::Last(pending) if was_held => pending.say().await.map(|held| Released::Freed { held }),
            LetGo::Last(pending) => Err(pending.say_of_lost(&holding).await),
        }
    }
}

/// What is held: [`Held::is_held`], [`Held::fence`], [`Held::lost`] and the rest.
impl std::ops::Deref for LockGuard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(holding) = self.holding.take() {
            drop(let_go(&holding));
        }
    }
}
