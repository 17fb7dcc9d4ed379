//! Changes of stored policies, as they happen.
//!
//! # What is promised
//! - Every change since [`Policies::watch`] returned is told of, in order for each policy: by name, with the version it led to.
//! - Messages may be lost. What is stored is compared after each reconnect, and once a minute; of several changes that were missed
//!   the last one is told.
//! - It ends when the client is shut down. While the server is away it waits.
//!
//! A comparison lists all policies of the server: watch in a few tools, and follow with [`Client::policy`](crate::Client::policy) in services.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::policies::PolicyAction;
//!
//! let client = resil::connect("memory://").await?;
//! let mut changes = client.policies().watch().await?;
//! client.policies().set("payments", r#"{"retry": {"maxAttempts": 4}}"#).await?;
//! let change = changes.next().await.expect("the client is open");
//! assert_eq!((change.name.as_str(), change.version, change.action), ("payments", 1, PolicyAction::Created));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::followed::{COMPARE_EVERY, READ_AGAIN};
use super::{Policies, PolicyAction};
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::keys;

/// What was heard and not yet taken. Of more than that everything is compared instead.
const HEARD_MAX: usize = 1_000;

/// A change of a stored policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyEvent {
    pub name: String,
    /// The version it led to; if the key itself is gone, the last that was known.
    pub version: u64,
    /// `Created`, `Changed` or `Deleted`.
    pub action: PolicyAction,
}

/// A change as it is published.
#[derive(Debug, Clone)]
pub(crate) struct PolicyNews {
    pub key: Vec<u8>,
    pub version: u64,
    pub action: PolicyAction,
}

impl PolicyNews {
    /// None if the message is of something else.
    #[cfg(feature = "redis")]
    pub fn read(payload: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Published {
            event: String,
            key: String,
            version: u64,
            action: PolicyAction,
        }
        let Published { event, key, version, action } = serde_json::from_slice(payload).ok()?;
        (event == "policy").then(|| Self { key: key.into_bytes(), version, action })
    }
}

/// Where changes are put until the one who watches takes them.
#[derive(Debug, Default)]
pub(crate) struct PolicyInbox {
    heard: Mutex<Heard>,
    rung: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    news: VecDeque<PolicyNews>,
    /// Something may have been missed.
    is_doubtful: bool,
}

impl PolicyInbox {
    pub fn put(&self, news: PolicyNews) {
        let mut heard = self.heard.lock();
        if heard.news.len() < HEARD_MAX {
            heard.news.push_back(news);
        } else {
            heard.is_doubtful = true;
        }
        drop(heard);
        self.rung.notify_one();
    }

    pub fn may_have_missed(&self) {
        self.heard.lock().is_doubtful = true;
        self.rung.notify_one();
    }
}

/// Changes of stored policies, one by one: see [`Policies::watch`]. Dropped, nobody listens any more.
#[derive(Debug)]
pub struct PolicyWatch {
    client: Client,
    inbox: Arc<PolicyInbox>,
    /// The last version of each that was told of, or was there at the beginning.
    known: HashMap<String, KnownVersion>,
    ready: VecDeque<PolicyEvent>,
    compare_at: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownVersion {
    version: u64,
    is_deleted: bool,
}

impl Policies {
    /// Watches all policies. What is stored now is where it begins; fails if that cannot be read.
    pub async fn watch(&self) -> Result<PolicyWatch, Error> {
        let (client, inbox) = (self.client.clone(), Arc::new(PolicyInbox::default()));
        match client.backend() {
            Backend::Memory(memory) => {
                let weak = Arc::downgrade(&inbox);
                let hear = move |news: &PolicyNews| weak.upgrade().map(|inbox| inbox.put(news.clone())).is_some();
                memory.hear_policy(b"", Arc::new(hear));
            }
            #[cfg(feature = "redis")]
            Backend::Redis(_) => client.listen_to_policies(&inbox),
            _ => {}
        }
        let present = self.list().await?;
        let known = |version| KnownVersion { version, is_deleted: false };
        let known = present.into_iter().map(|policy| (policy.name, known(policy.version))).collect();
        let compare_at = client.clock().now().saturating_add(COMPARE_EVERY);
        Ok(PolicyWatch { client, inbox, known, ready: VecDeque::new(), compare_at })
    }
}

impl PolicyWatch {
    /// The next change; `None` when the client is shut down. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<PolicyEvent> {
        let closing = self.client.inner().closing.clone();
        loop {
            self.take_news();
            if closing.is_cancelled() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let now = self.client.clock().now();
            if self.inbox.heard.lock().is_doubtful || now >= self.compare_at {
                let compared = tokio::select! {
                    compared = self.compare() => compared,
                    () = closing.cancelled() => return None,
                };
                let pause = if compared.is_ok() { COMPARE_EVERY } else { READ_AGAIN };
                self.compare_at = self.client.clock().now().saturating_add(pause);
                if compared.is_err() {
                    self.inbox.heard.lock().is_doubtful = false;
                }
                continue;
            }
            tokio::select! {
                () = self.inbox.rung.notified() => {}
                () = self.client.clock().sleep(self.compare_at.saturating_sub(now).max(Duration::from_millis(1))) => {}
                () = closing.cancelled() => return None,
            }
        }
    }

    fn take_news(&mut self) {
        loop {
            let Some(PolicyNews { key, version, action }) = self.inbox.heard.lock().news.pop_front() else { return };
            let Some(name) = keys::name_in("policy", &key) else { continue };
            match self.known.get(&name) {
                // It was found by a comparison. Versions begin anew after a flush: that is found by one, too.
                Some(known) if version <= known.version => self.inbox.heard.lock().is_doubtful |= version == 1,
                _ => self.tell(name, version, action),
            }
        }
    }

    fn tell(&mut self, name: String, version: u64, action: PolicyAction) {
        let is_deleted = action == PolicyAction::Deleted;
        self.known.insert(name.clone(), KnownVersion { version, is_deleted });
        self.ready.push_back(PolicyEvent { name, version, action });
    }

    /// Tells of what is stored and was not heard of. All or nothing: it may be dropped or fail at any await.
    async fn compare(&mut self) -> Result<(), Error> {
        // What is heard from here on may be newer than the list.
        self.inbox.heard.lock().is_doubtful = false;
        let undone = Doubtful(Some(Arc::clone(&self.inbox)));
        let policies = self.client.policies();
        let present: HashMap<String, u64> =
            policies.list().await?.into_iter().map(|policy| (policy.name, policy.version)).collect();
        let is_missing = |(name, known): &(&String, &KnownVersion)| !known.is_deleted && !present.contains_key(*name);
        let missing: Vec<(String, u64)> =
            self.known.iter().filter(is_missing).map(|(name, known)| (name.clone(), known.version)).collect();
        let mut gone = Vec::new();
        for (name, version) in missing {
            let deletion = policies.history(&name).await?.into_iter().next();
            match deletion {
                // Stored again since the list was made: it is heard of, or found by the next one.
                Some(record) if !record.is_deleted => {}
                Some(record) => gone.push((name, record.version, true)),
                None => gone.push((name, version, false)),
            }
        }
        undone.done();
        for (name, version) in present {
            let known = self.known.get(&name).copied();
            if known != Some(KnownVersion { version, is_deleted: false }) {
                let was_there = known.is_some_and(|known| !known.is_deleted);
                let action = if was_there { PolicyAction::Changed } else { PolicyAction::Created };
                self.tell(name, version, action);
            }
        }
        for (name, version, has_key) in gone {
            self.tell(name.clone(), version, PolicyAction::Deleted);
            if !has_key {
                self.known.remove(&name);
            }
        }
        Ok(())
    }
}

/// A comparison that was not finished is still to be made.
struct Doubtful(Option<Arc<PolicyInbox>>);

impl Doubtful {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Doubtful {
    fn drop(&mut self) {
        if let Some(inbox) = &self.0 {
            inbox.heard.lock().is_doubtful = true;
        }
    }
}
