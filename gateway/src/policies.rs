//! Which policy a call runs under: a stored one, else one of the file.
//!
//! # What holds
//! - A stored policy wins over one of the file with the same name, from when it is heard of until it is deleted.
//! - A change holds for calls that begin after it; a bad file changes nothing, and is said in health.
//! - While the server is away, stored policies that were known stay in use.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use resil::operator::KeyKind;
use resil::policies::{FollowedPolicy, PolicyAction};
use resil::policy::{Policy, WatchedPolicies};
use resil::{Client, Error};
use tokio_util::sync::CancellationToken;

/// What cannot be read is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// The policy of one call.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub policy: Policy,
    /// Of a stored one.
    pub version: Option<u64>,
}

pub struct PolicyBook {
    client: Client,
    file: Option<WatchedPolicies>,
    stored: ArcSwap<HashMap<String, FollowedPolicy>>,
}

impl PolicyBook {
    /// A file has to be valid the first time.
    pub fn open(client: &Client, file: Option<&Path>) -> Result<Arc<Self>, Error> {
        let file = file.map(|path| WatchedPolicies::open(client, path)).transpose()?;
        Ok(Arc::new(Self { client: client.clone(), file, stored: ArcSwap::default() }))
    }

    pub fn choose(&self, name: &str) -> Result<Chosen, Error> {
        if let Some(stored) = self.stored.load().get(name) {
            return Ok(Chosen { policy: stored.now(), version: stored.version() });
        }
        match &self.file {
            Some(file) => file.policy(name).map(|policy| Chosen { policy, version: None }),
            None => Err(Error::InvalidArgument(format!("there is no policy {name:?}"))),
        }
        .map_err(|_| Error::InvalidArgument(format!("there is no policy {name:?}")))
    }

    pub fn is_stored(&self, name: &str) -> bool {
        self.stored.load().contains_key(name)
    }

    pub fn file_names(&self) -> Vec<String> {
        self.file.as_ref().map(WatchedPolicies::names).unwrap_or_default()
    }

    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Why the file as it is now is not used, if it is not.
    pub fn file_problem(&self) -> Option<Error> {
        self.file.as_ref().and_then(WatchedPolicies::problem)
    }

    /// The key that the circuit of a policy has in the server.
    pub fn circuit_key(&self, name: &str) -> Result<String, Error> {
        let kind = if self.is_stored(name) { KeyKind::Policy } else { KeyKind::Breaker };
        Ok(String::from_utf8_lossy(&kind.key(name)?).into_owned())
    }

    async fn follow(&self, name: &str) {
        if self.is_stored(name) {
            return;
        }
        match self.client.policy(name).await {
            Ok(followed) => self.change(|stored| drop(stored.insert(name.to_owned(), followed.clone()))),
            Err(error) => tracing::warn!(policy = name, %error, "a stored policy cannot be followed"),
        }
    }

    fn change(&self, edit: impl Fn(&mut HashMap<String, FollowedPolicy>)) {
        self.stored.rcu(|stored| {
            let mut stored = HashMap::clone(stored);
            edit(&mut stored);
            stored
        });
    }

    /// Follows every stored policy until the gateway ends.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut is_logged = false;
        while !stop.is_cancelled() {
            let kept = tokio::select! {
                kept = self.keep_once() => kept,
                () = stop.cancelled() => return,
            };
            if let Err(error) = kept
                && !std::mem::replace(&mut is_logged, true)
            {
                tracing::warn!(%error, "stored policies cannot be read; trying again");
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Those that are there now.
    pub async fn load(&self) -> Result<(), Error> {
        let present = self.client.policies().list().await?;
        for policy in &present {
            self.follow(&policy.name).await;
        }
        let is_gone = |name: &String| !present.iter().any(|policy| policy.name == *name);
        if self.stored.load().keys().any(is_gone) {
            self.change(|stored| stored.retain(|name, _| !is_gone(name)));
        }
        Ok(())
    }

    async fn keep_once(&self) -> Result<(), Error> {
        let mut changes = self.client.policies().watch().await?;
        self.load().await?;
        while let Some(change) = changes.next().await {
            match change.action {
                PolicyAction::Deleted => self.change(|stored| drop(stored.remove(&change.name))),
                _ => self.follow(&change.name).await,
            }
        }
        Ok(())
    }
}
