//! Letting go, whatever happens meanwhile.
//!
//! A release that is not settled when it is dropped (the caller was cancelled, the server did not reply) goes on in the
//! background, until it is answered or the lease would have ended by itself. It names the owner, which is unique to one
//! acquisition, so it can do no harm to anybody else, and it may be said twice.
//!
//! The release of a wait that was dropped takes it out of the server's queue. But that wait was asked for on another
//! connection, so its release can overtake the question itself: the server says that nothing is held, then reads the
//! question, grants, and writes the grant to nobody. Bound to the shared connection, it would be held for as long as that
//! lives. So when nothing was held and nobody waited, it is said again.

use std::sync::Arc;
use std::time::Duration;

use resil_wire::command::{Command, Reply};
use resil_wire::holding::{OwnedCall, Released as WireReleased};

use super::{Holding, HoldingKind, from_ms, unexpected};
#[cfg(feature = "redis")]
use crate::backend::Backend;
use crate::client::Client;
use crate::error::Error;

/// Between two tries of a release that the server does not reply.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// When a release is said again of a wait that was dropped and of which the server knew nothing: by then it has read
/// everything that was sent on its connection.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Whether a grant may come after its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    Never,
    Perhaps,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub client: Client,
    kind: HoldingKind,
    name: Arc<str>,
    key: Arc<str>,
    owner: Arc<[u8]>,
    /// `None`: whatever this owner was granted.
    fence: Option<u64>,
    /// After so long the server has ended it by itself.
    lease: Duration,
    late: Late,
}

/// A release that is done in the background unless it is settled before.
#[derive(Debug)]
pub(crate) struct PendingRelease(Option<Release>);

impl Release {
    pub fn of(holding: &Holding) -> Self {
        Self {
            client: holding.client.clone(),
            kind: holding.kind,
            name: Arc::clone(&holding.name),
            key: Arc::clone(&holding.key),
            owner: Arc::clone(&holding.owner),
            fence: holding.fence,
            lease: holding.lease(),
            late: Late::Never,
        }
    }

    /// Of whatever `owner` may have been granted.
    pub fn of_unknown(client: &Client, want: &super::ask::Want, owner: &Arc<[u8]>) -> Self {
        Self {
            client: client.clone(),
            kind: want.claim.kind(),
            name: Arc::clone(&want.name),
            key: Arc::clone(&want.key),
            owner: Arc::clone(owner),
            fence: None,
            lease: want.lease,
            late: Late::Never,
        }
    }

    fn command(&self) -> Command<'_> {
        let call = OwnedCall { key: self.key.as_bytes(), owner: &self.owner, fence: self.fence };
        match self.kind {
            HoldingKind::Lock => Command::LockRelease(call),
            HoldingKind::Bulkhead => Command::BulkheadLeave(call),
        }
    }

    /// Says it once. `Ok` is how long it was held.
    pub async fn say(&self) -> Result<Duration, Error> {
        #[cfg(feature = "redis")]
        if let Backend::Quorum(quorum) = self.client.backend() {
            let call = OwnedCall { key: self.key.as_bytes(), owner: &self.owner, fence: None };
            let released = super::quorum::release(quorum, call).await?;
            return released.ok_or_else(|| self.kind.lost(&self.name, "its lease has ended"));
        }
        match self.client.backend().call(&self.command()).await? {
            Reply::Released(WireReleased::Released { held_ms }) => Ok(from_ms(held_ms)),
            Reply::Released(WireReleased::Lost(reason)) => Err(self.kind.lost(&self.name, reason.text())),
            other => Err(unexpected(&other)),
        }
    }

    /// Says it until it is answered, or does not matter any more.
    pub async fn insist(self) {
        let clock = self.client.clock().clone();
        let until = clock.now().saturating_add(self.lease);
        let mut pause = FIRST_PAUSE;
        let mut again = AGAIN_AFTER.into_iter().filter(|_| self.late == Late::Perhaps);
        loop {
            match self.say().await {
                Ok(_) => return,
                Err(Error::LockLost { .. }) => {
                    let Some(later) = again.next() else { return };
                    tokio::select! {
                        () = clock.sleep(later) => continue,
                        // What is bound ends with the connection; what is not, with its lease.
                        () = self.client.inner().closing.cancelled() => return,
                    }
                }
                Err(error) => {
                    let over = clock.now().saturating_add(pause) >= until;
                    if over || !error.is_retryable() || self.client.inner().closing.is_cancelled() {
                        // Not the name, which is often made of an id.
                        let code = error.code().text();
                        tracing::warn!(code, "a lease could not be released; it will end by itself");
                        return;
                    }
                }
            }
            clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl PendingRelease {
    pub fn new(release: Release) -> Self {
        Self(Some(release))
    }

    /// It is waited for in the server from now on, on another connection.
    pub fn may_come_late(&mut self) {
        if let Some(release) = &mut self.0 {
            release.late = Late::Perhaps;
        }
    }

    /// Nothing is left to be released.
    pub fn settle(mut self) {
        self.0 = None;
    }

    /// Says it; what is not answered goes on in the background.
    pub async fn say(mut self) -> Result<Duration, Error> {
        let Some(release) = &self.0 else { return Ok(Duration::ZERO) };
        let said = release.say().await;
        if matches!(said, Ok(_) | Err(Error::LockLost { .. })) {
            self.0 = None;
        }
        said
    }
}

impl PendingRelease {
    /// The same for what was lost before: it stays lost, whatever is answered, and the caller learns why. One server knows that best;
    /// of several, each knows only of its own part.
    pub async fn say_of_lost(self, holding: &Holding) -> Error {
        let has_one_server = holding.client.backend().require_one_server("").is_ok();
        match self.say().await {
            Err(lost @ Error::LockLost { .. }) if has_one_server => lost,
            _ => holding.lost_error(),
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            // In memory it is answered at once, also where no task can run.
            if release.client.backend().call_now(&release.command()).is_some() {
                return;
            }
            let client = release.client.clone();
            client.inner().holdings.in_background(release);
        }
    }
}

/// What is left to do when a guard is gone.
#[derive(Debug)]
pub(crate) enum LetGo {
    /// By another guard of the same task.
    StillHeld,
    /// The server has nothing of it.
    Nothing,
    /// To be said; dropped, it is said in the background.
    Last(PendingRelease),
}

/// One guard less.
pub(crate) fn let_go(holding: &Holding) -> LetGo {
    if !holding.step_out() {
        return LetGo::StillHeld;
    }
    holding.client.inner().holdings.forget(holding);
    let is_first = holding.end();
    if !is_first || holding.is_open || holding.was_ended_by_server() {
        return LetGo::Nothing;
    }
    LetGo::Last(PendingRelease::new(Release::of(holding)))
}
