//! What is held, as those who work under it see it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Holding;
use crate::clock::Moment;
use crate::error::Error;

/// See [`Held::until_lost`].
#[derive(Debug)]
#[must_use = "nothing waits before it is awaited"]
pub struct UntilLost {
    holding: Arc<Holding>,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Future for UntilLost {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.holding.is_lost() { Poll::Ready(()) } else { self.cancelled.as_mut().poll(context) }
    }
}

/// What is held, as those who work under it see it: cheap to clone, and it keeps nothing alive at the server.
#[derive(Debug, Clone)]
pub struct Held(pub(crate) Arc<Holding>);

impl Held {
    /// The number to send along with each write, so that the store can refuse one below the highest it has seen. A
    /// shared bulkhead has none, and nor has a lock that was let through while the server was away.
    pub fn fence(&self) -> Option<u64> {
        self.0.fence
    }

    /// Cancelled when it is lost: the server said so, or the local deadline passed. Not when it is released.
    pub fn lost(&self) -> CancellationToken {
        self.0.lost.clone()
    }

    /// Ready when it is lost: as [`lost`](Self::lost), and by the clock of the moment in which it is polled, so that who was kept
    /// from running beyond the deadline learns of it first of all.
    pub fn until_lost(&self) -> UntilLost {
        UntilLost { holding: Arc::clone(&self.0), cancelled: Box::pin(self.0.lost.clone().cancelled_owned()) }
    }

    /// Why it is lost, by the clock, now. `None` while it is held, and once it was released before it was lost.
    pub fn loss(&self) -> Option<Error> {
        self.0.is_lost().then(|| self.0.lost_error())
    }

    /// Why it was lost, if it was.
    pub fn why_lost(&self) -> Option<&'static str> {
        self.0.why_lost.get().map(|loss| loss.reason)
    }

    /// By the clock, now.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Until when it may be relied on, if it is not renewed before. By the client's [`Clock`](crate::clock::Clock).
    pub fn deadline(&self) -> Moment {
        self.0.deadline()
    }

    /// What is left until [`deadline`](Self::deadline); zero if it is not held.
    pub fn remaining(&self) -> Duration {
        if self.is_held() { self.deadline().saturating_sub(self.0.client.clock().now()) } else { Duration::ZERO }
    }

    /// `Err(LockLost)` if it is not held any more: for the moment before something that cannot be undone.
    pub fn ensure(&self) -> Result<(), Error> {
        if self.is_held() { Ok(()) } else { Err(self.0.lost_error()) }
    }

    /// Who holds it, as [`Info`](super::info::Info) shows it.
    pub fn owner(&self) -> String {
        String::from_utf8_lossy(&self.0.owner).into_owned()
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Let through without the server, because it was away: nothing protects it.
    pub fn is_unprotected(&self) -> bool {
        self.0.is_open
    }
}
