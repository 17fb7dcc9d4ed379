//! Policies that are stored in the server, or stand in a file that is watched.

use std::sync::Arc;

use napi::bindgen_prelude::{BigInt, Env};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::policies::{Policies, PolicyChange};
use resil::settings::PolicySettings;
use resil::{CancellationToken, Error, policies, policy};

use crate::client::Client;
use crate::convert::{methods, now, number, run, settings, shown};
use crate::executor::Word;
use crate::guard::PolicySource;
use crate::whole::Policy;

#[napi]
pub struct StoredPolicies(Policies);

async fn changed(
    change: PolicyChange,
    expecting: Option<BigInt>,
    actor: Option<String>,
    reason: Option<String>,
) -> Result<String, Error> {
    let expecting = expecting.map(|given| number("expecting", &given)).transpose()?;
    let change = expecting.into_iter().fold(change, PolicyChange::expecting);
    let change = actor.into_iter().fold(change, PolicyChange::actor);
    shown(&reason.into_iter().fold(change, PolicyChange::reason).await?)
}

methods! { StoredPolicies(policies) {
    set(name: String, document: String, expecting: Option<BigInt>, actor: Option<String>, reason: Option<String>) => {
        changed(policies.set(&name, document), expecting, actor, reason).await
    };
    rollback(name: String, version: BigInt, expecting: Option<BigInt>, actor: Option<String>, reason: Option<String>) => {
        changed(policies.rollback(&name, number("version", &version)?), expecting, actor, reason).await
    };
    delete(name: String, expecting: Option<BigInt>, actor: Option<String>, reason: Option<String>) => {
        changed(policies.delete(&name), expecting, actor, reason).await
    };
    check(document: String) => policies.check(&document).await;
    get(name: String, version: Option<BigInt>) => {
        let found = match version {
            None => policies.get(&name).await?,
            Some(version) => policies.get_version(&name, number("version", &version)?).await?,
        };
        found.map(|found| shown(&found)).transpose()
    };
    list() => shown(&policies.list().await?);
    history(name: String) => shown(&policies.history(&name).await?);
    watch() => policies.watch().await.map(PolicyWatch::of);
} }

/// Changes of stored policies as they come.
#[napi]
pub struct PolicyWatch {
    /// Of one caller after the other; none once it is closed.
    watch: Arc<tokio::sync::Mutex<Option<policies::PolicyWatch>>>,
    closed: CancellationToken,
}

impl PolicyWatch {
    fn of(watch: policies::PolicyWatch) -> Self {
        Self { watch: Arc::new(tokio::sync::Mutex::new(Some(watch))), closed: CancellationToken::new() }
    }
}

#[napi]
impl PolicyWatch {
    /// The next change as JSON; none when it is over.
    #[napi]
    pub fn next(&self) -> napi::Result<Word> {
        let (watch, closed) = (Arc::clone(&self.watch), self.closed.clone());
        run(async move {
            let mut turn = watch.lock().await;
            let Some(watch) = turn.as_mut() else { return Ok(None) };
            let change = closed.run_until_cancelled(watch.next()).await.flatten();
            if closed.is_cancelled() {
                *turn = None;
            }
            change.map(|change| shown(&change)).transpose()
        })
    }

    /// Listens no more.
    #[napi]
    pub fn close(&self) {
        self.closed.cancel();
        // A caller that waits for a change lets go of it.
        if let Ok(mut idle) = self.watch.try_lock() {
            *idle = None;
        }
    }
}

/// Policies of a file that is read again when it changes.
#[napi]
pub struct WatchedPolicies(policy::WatchedPolicies);

#[napi]
impl WatchedPolicies {
    #[napi(getter)]
    pub fn names(&self) -> Vec<String> {
        self.0.names()
    }

    #[napi(getter)]
    pub fn problem(&self) -> Option<String> {
        self.0.problem().map(|problem| problem.to_string())
    }

    #[napi]
    pub fn policy(&self, env: Env, name: String) -> napi::Result<Policy> {
        let made = now(&env, self.0.policy(&name))?;
        Ok(Policy(PolicySource::Watched(self.0.clone(), Arc::new(Mutex::new(made)))))
    }

    #[napi]
    pub fn look(&self) {
        self.0.look();
    }
}

#[napi]
impl Client {
    #[napi]
    pub fn stored_policies(&self) -> StoredPolicies {
        StoredPolicies(self.0.policies())
    }

    #[napi]
    pub fn open_policies(&self, env: Env, path: String) -> napi::Result<WatchedPolicies> {
        now(&env, policy::WatchedPolicies::open(&self.0, path)).map(WatchedPolicies)
    }
}

methods! { Client(client) {
    /// Follows a stored policy; until there is one, by these settings, if there are any.
    follow_policy(name: String, otherwise: Option<String>) => {
        let followed = match otherwise {
            None => client.policy(&name).await?,
            Some(said) => client.policy_or(&name, &settings::<PolicySettings>(&said)?).await?,
        };
        Ok(Policy(PolicySource::Followed(followed)))
    };
} }
