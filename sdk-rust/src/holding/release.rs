//! Letting go, whatever happens meanwhile.
//!
//! A release that is not settled when it is dropped (the caller was cancelled, the server did not answer) goes on in the
//! background, until it is answered or the lease would have ended by itself. It names the owner, which is unique to one
//! acquisition, so it can do no harm to anybody else, and it may be said twice.

use std::sync::Arc;
use std::time::Duration;

use resil_wire::answer::{Answer, Released as WireReleased};
use resil_wire::command::Command;
use resil_wire::holding::OwnedCall;

use super::{Holding, Kind, from_ms, unexpected};
use crate::client::Client;
use crate::error::Error;

/// Between two tries of a release that the server does not answer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Release {
    pub client: Client,
    kind: Kind,
    name: Arc<str>,
    key: Arc<str>,
    owner: Arc<[u8]>,
    /// `None`: whatever this owner was granted.
    fence: Option<u64>,
    /// After so long the server has ended it by itself.
    lease: Duration,
}

/// A release that is done in the background unless it is settled before.
#[derive(Debug)]
pub(crate) struct Pending(Option<Release>);

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
        }
    }

    /// Says it once. `Ok` is how long it was held.
    pub async fn say(&self) -> Result<Duration, Error> {
        let call = OwnedCall { key: self.key.as_bytes(), owner: &self.owner, fence: self.fence };
        let command = match self.kind {
            Kind::Lock => Command::LockRelease(call),
            Kind::Bulkhead => Command::BulkheadLeave(call),
        };
        match self.client.backend().call(&command).await? {
            Answer::Released(WireReleased::Released { held_ms }) => Ok(from_ms(held_ms)),
            Answer::Released(WireReleased::Lost(reason)) => {
                Err(Error::LockLost { name: Arc::clone(&self.name), reason: reason.text() })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Says it until it is answered, or does not matter any more.
    pub async fn insist(self) {
        let clock = self.client.clock().clone();
        let until = clock.now().saturating_add(self.lease);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.say().await {
                Ok(_) | Err(Error::LockLost { .. }) => return,
                Err(error) => {
                    let over = clock.now().saturating_add(pause) >= until;
                    if over || !error.is_retryable() || self.client.inner().closing.is_cancelled() {
                        tracing::warn!(name = &*self.name, %error, "not released; its lease will end by itself");
                        return;
                    }
                }
            }
            clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Pending {
    pub fn new(release: Release) -> Self {
        Self(Some(release))
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

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
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
    Last(Pending),
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
    LetGo::Last(Pending::new(Release::of(holding)))
}
