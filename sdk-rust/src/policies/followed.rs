//! A stored policy that is followed: calls run under the policy as it is stored now.
//!
//! # What is promised
//! - A change holds for calls that begin after it was heard of, milliseconds after it was stored. Calls under way end as they began; none is
//!   made under parts of two versions, and none fails because of a change.
//! - What a change leaves alone goes on with its counts.
//! - Messages may be lost: the policy is compared after each reconnect, and once a minute.
//! - The last good one stays while the server is away, after a deletion, and if this SDK cannot read what is stored.
//!   [`FollowedPolicy::problem`] says so, and `policy:<name>` is degraded in [`Client::health`].
//!
//! # What the fleet shares
//! Breaker, rate limit, places, throttle, shedding and the budget of retries are the policy's own, in the server: each attempt is a
//! `RES.GUARD ENTER` and an `EXIT`, so callers with an SDK and without share one breaker and one budget. An attempt waits for the reply to its
//! ENTER, and to its EXIT only if it failed and may be made again; a policy that has none of it (timeouts, hedge, retry with `"budget": null`)
//! asks nothing. Deadlines, hedges, fallbacks and `order` are the SDK's; a hedge shares the admission of its attempt. While the server is away,
//! and after a deletion, calls run as under a policy of a file, by the
//! policy's name: `whenAway` decides.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::policy::retry_all;
//!
//! let client = resil::connect("memory://").await?;
//! client.policies().set("payments", r#"{"retry": {"maxAttempts": 4}}"#).await?;
//! let payments = client.policy("payments").await?;
//! let paid = payments.call(retry_all, || async { Ok::<_, std::io::Error>("paid") }).await;
//! assert_eq!((paid.unwrap(), payments.version()), ("paid", Some(1)));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::StoredPolicy;
use super::watch::PolicyMessage;
use crate::backend::Backend;
use crate::breaker::BreakerSettings;
use crate::client::Client;
use crate::clock::Clock;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::keys;
use crate::policy::made::MadePolicy;
use crate::policy::{CallSettings, Classify, Policy, PolicySettings};

/// How often a policy is compared if nothing is heard.
pub const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// The same if it could not be read.
pub(super) const READ_AGAIN: Duration = Duration::from_secs(1);

/// The followed policies of a client, by name: who asks for the same one gets the same one.
#[derive(Debug, Default)]
pub(crate) struct FollowedPolicies(Mutex<HashMap<Arc<str>, Weak<Followed>>>);

/// A stored policy that is followed. Cheap to clone; it is followed until the last clone is dropped. See the [module](self).
#[derive(Debug, Clone)]
pub struct FollowedPolicy(Arc<Followed>);

#[derive(Debug)]
struct Followed {
    client: Client,
    name: Arc<str>,
    /// Its name in health.
    label: Arc<str>,
    in_use: ArcSwap<InUse>,
    /// Rung when it may have changed.
    changed: Arc<Notify>,
}

/// All that a call needs is swapped at once.
#[derive(Debug, Clone)]
struct InUse {
    /// `None`: nothing was stored so far.
    version: Option<u64>,
    /// As it is stored.
    document: String,
    /// The breaker as the document has it.
    breaker: Option<BreakerSettings>,
    /// While the server is no help.
    made: MadePolicy,
    policy: Policy,
    problem: Option<Error>,
}

impl Client {
    /// Follows the stored policy of this name. Fails if there is none, or if it cannot be read now: see [`policy_or`](Self::policy_or).
    pub async fn policy(&self, name: &str) -> Result<FollowedPolicy, Error> {
        self.follow(name, None).await
    }

    /// The same; until one is stored and can be read, calls run under `settings`.
    pub async fn policy_or(&self, name: &str, settings: &PolicySettings) -> Result<FollowedPolicy, Error> {
        self.follow(name, Some(settings)).await
    }

    async fn follow(&self, name: &str, otherwise: Option<&PolicySettings>) -> Result<FollowedPolicy, Error> {
        self.backend().require_one_server("a stored policy")?;
        keys::check_name(name)?;
        let known = || self.inner().followed.0.lock().get(name).and_then(Weak::upgrade);
        if let Some(known) = known() {
            return Ok(FollowedPolicy(known));
        }
        let read = self.policies().get(name).await;
        let in_use = match (read, otherwise) {
            (Ok(Some(stored)), _) => InUse::of(self, name, stored, None)?,
            (Ok(None), None) => return Err(Error::InvalidArgument(nothing_stored(name))),
            (Err(error), None) => return Err(error),
            (unread, Some(settings)) => {
                let settings = PolicySettings { name: Some(name.to_owned()), ..settings.clone() };
                let (breaker, made) = (settings.breaker.clone(), MadePolicy::new(self, settings, None)?);
                let policy = made.policy.clone();
                let problem = Some(unread.err().unwrap_or_else(|| not_stored(name)));
                InUse { version: None, document: String::new(), breaker, made, policy, problem }
            }
        };
        let mut followed = self.inner().followed.0.lock();
        if let Some(known) = followed.get(name).and_then(Weak::upgrade) {
            return Ok(FollowedPolicy(known));
        }
        followed.retain(|_, other| other.strong_count() > 0);
        let new = Arc::new(Followed {
            client: self.clone(),
            name: name.into(),
            label: format!("policy:{name}").into(),
            in_use: ArcSwap::from_pointee(in_use.clone()),
            changed: Arc::default(),
        });
        followed.insert(name.into(), Arc::downgrade(&new));
        drop(followed);
        self.inner().health.add(Arc::clone(&new.label), Away::Local);
        self.inner().health.is_outdated(&new.label, in_use.problem.is_some());
        new.listen();
        Ok(FollowedPolicy(new))
    }
}

pub(super) fn nothing_stored(name: &str) -> String {
    format!("there is no stored policy of the name {name:?}")
}

fn not_stored(name: &str) -> Error {
    Error::InvalidArgument(format!("the policy {name:?} is not stored: the last good one stays in use"))
}

impl FollowedPolicy {
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The policy as it is now. Ask for each call; it is cheap.
    pub fn now(&self) -> Policy {
        self.0.in_use.load().policy.clone()
    }

    /// The version in use; `None` if nothing was stored so far.
    pub fn version(&self) -> Option<u64> {
        self.0.in_use.load().version
    }

    /// Why what is in use is not what is stored, if it is not.
    pub fn problem(&self) -> Option<Error> {
        self.0.in_use.load().problem.clone()
    }

    /// As [`Policy::call`], under the policy as it is when this is first polled.
    pub fn call<T, E, Fut>(
        &self,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> impl Future<Output = Result<T, Failure<E>>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.call_with(CallSettings::new(), classify, operation)
    }

    /// As [`Policy::call_with`], under the policy as it is when this is first polled.
    pub async fn call_with<T, E, Fut>(
        &self,
        options: CallSettings<'_>,
        classify: impl Classify<E>,
        operation: impl Fn() -> Fut,
    ) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let policy = self.now();
        policy.call_with(options, classify, operation).await
    }
}

impl InUse {
    fn of(client: &Client, name: &str, stored: StoredPolicy, before: Option<&Self>) -> Result<Self, Error> {
        let StoredPolicy { version, policy: document, .. } = stored;
        let mut settings = PolicySettings::from_json(&document)?;
        settings.name.get_or_insert_with(|| name.to_owned());
        let breaker = settings.breaker.clone();
        if let Some(own) = &mut settings.breaker {
            let same = before.filter(|before| before.version.is_some() && before.breaker == breaker);
            let known = same.and_then(|before| before.made.settings.breaker.clone());
            *own = known.unwrap_or_else(|| in_full(own, version));
        }
        let made = MadePolicy::new(client, settings, before.map(|before| &before.made))?;
        let policy = made.stored(client, name, before.map(|before| (&before.made, &before.policy)))?;
        Ok(Self { version: Some(version), document, breaker, made, policy, problem: None })
    }
}

/// With every field that could have been another before, and a version above that of what was stored before: so a breaker that exists
/// takes them.
fn in_full(own: &BreakerSettings, version: u64) -> BreakerSettings {
    let seconds = Duration::from_secs;
    let mut full = own.clone();
    if full.window_time.is_none() {
        full.window_calls.get_or_insert(100);
    }
    full.failure_rate.get_or_insert(50);
    full.consecutive_failures.get_or_insert(5);
    full.min_calls.get_or_insert(10);
    full.open_for.get_or_insert(seconds(30));
    full.probes.get_or_insert(3);
    full.successes.get_or_insert(3);
    full.probe_lease.get_or_insert(seconds(30));
    full.quorum.get_or_insert(1);
    full.ramp.get_or_insert(Duration::ZERO);
    full.idle.get_or_insert(seconds(3_600));
    full.version.get_or_insert(version);
    full
}

impl Followed {
    fn listen(self: &Arc<Self>) {
        let key = keys::named("policy", &self.name);
        match self.client.backend() {
            Backend::Memory(memory) => {
                let changed = Arc::downgrade(&self.changed);
                let hear = move |_: &PolicyMessage| changed.upgrade().map(|changed| changed.notify_one()).is_some();
                memory.hear_policy(key.as_bytes(), Arc::new(hear));
                // What was changed since it was read.
                self.changed.notify_one();
            }
            #[cfg(feature = "redis")]
            Backend::Redis(_) => self.client.listen_to_policy(&key, &self.changed),
            _ => {}
        }
        if let Some(runtime) = self.client.background() {
            let (clock, stopped) = (self.client.clock().clone(), self.client.inner().stopped.clone());
            runtime.spawn(follow(Arc::downgrade(self), Arc::downgrade(&self.changed), clock, stopped));
        }
    }

    /// Reads it, and swaps what is in use if it is another. Only [`follow`] does, so replies are taken in the order they were asked for.
    async fn look(&self) -> Result<(), Error> {
        let read = self.client.policies().get(&self.name).await;
        let before = self.in_use.load_full();
        let (stored, unread) = match read {
            Ok(stored) => (stored, None),
            Err(error) => (None, Some(error)),
        };
        let is_unread = unread.clone().map_or(Ok(()), Err);
        let next = match stored {
            Some(stored) if before.version == Some(stored.version) && before.document == stored.policy => {
                Ok(InUse { problem: None, ..InUse::clone(&before) })
            }
            Some(stored) => InUse::of(&self.client, &self.name, stored, Some(&before)),
            None => Err(unread.unwrap_or_else(|| not_stored(&self.name))),
        };
        let next = next.unwrap_or_else(|problem| InUse { problem: Some(problem), ..InUse::clone(&before) });
        self.client.inner().health.is_outdated(&self.label, next.problem.is_some());
        if next.problem != before.problem
            && let Some(problem) = &next.problem
        {
            tracing::warn!(name: "resil.policy.outdated", policy = &*self.name, %problem, "the last good policy stays");
        }
        if next.version != before.version {
            tracing::info!(name: "resil.policy.changed", policy = &*self.name, version = next.version, "a policy was changed");
        }
        self.in_use.store(Arc::new(next));
        is_unread
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.client.inner().health.is_outdated(&self.label, false);
        self.changed.notify_one();
    }
}

async fn follow(followed: Weak<Followed>, changed: Weak<Notify>, clock: Clock, stopped: CancellationToken) {
    let mut pause = COMPARE_EVERY;
    while let Some(changed) = changed.upgrade() {
        tokio::select! {
            () = changed.notified() => {}
            () = clock.sleep(pause) => {}
            () = stopped.cancelled() => return,
        }
        drop(changed);
        let Some(followed) = followed.upgrade() else { return };
        pause = if followed.look().await.is_ok() { COMPARE_EVERY } else { READ_AGAIN };
    }
}
