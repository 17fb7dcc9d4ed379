//! Changes of stored policies, as they happen.
//!
//! # What is promised
//! - [`Policies::watch`] returns once it is subscribed. Every change since then is reported, in order for each policy: by name, with the version
//!   it led to.
//! - Messages may be lost. What is stored is compared after each reconnect, and once a minute; of several changes that were missed
//!   the last one is reported. Policies that were not known before are found by listing, which takes at most one hundredth of the time:
//!   after a listing that took long the next one waits.
//! - It ends when the client is shut down. While the server is away it waits.
//!
//! A listing asks for all policies of the server (`RES.LIST`, or SCAN by type where that is not to be had): watch in a few tools, and follow with
//! [`Client::policy`](crate::Client::policy) in services. Only changes of this client's database are reported.
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
use tokio::sync::{Notify, watch};

use super::followed::{COMPARE_EVERY, READ_AGAIN};
use super::{Policies, PolicyAction, VersionSeen, whole_ms};
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::keys;

/// What was heard and not yet taken. Of more than that everything is compared instead.
const HEARD_MAX: usize = 1_000;
/// How long it may take until the server has said that it will tell.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(5);
const NOT_SUBSCRIBED: Error = Error::BackendUnavailable("changes of policies could not be subscribed to within 5 s");
const MAY_NOT_SUBSCRIBE: Error = Error::PermissionDenied(
    "to watch policies: it needs the channel of all events (ACL: +subscribe +unsubscribe &resil:events)",
);

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
pub(crate) struct PolicyMessage {
    pub key: Vec<u8>,
    pub seen: VersionSeen,
    pub action: PolicyAction,
}

impl PolicyMessage {
    /// None if the message is of something else, or of another database: channels know of none.
    #[cfg(feature = "redis")]
    pub fn read(payload: &[u8], own_db: i64) -> Option<Self> {
        #[derive(Deserialize)]
        struct Published {
            event: String,
            key: String,
            version: u64,
            action: PolicyAction,
            db: Option<i64>,
            time_ms: Option<u64>,
        }
        let Published { event, key, version, action, db, time_ms } = serde_json::from_slice(payload).ok()?;
        let is_own = event == "policy" && db.is_none_or(|db| db == own_db);
        is_own.then(|| Self { key: key.into_bytes(), seen: VersionSeen { version, at_ms: time_ms }, action })
    }
}

/// Where changes are put until the one who watches takes them.
#[derive(Debug, Default)]
pub(crate) struct PolicyInbox {
    heard: Mutex<Heard>,
    rung: Notify,
    hearing: watch::Sender<Hearing>,
}

/// Whether there is a subscription to changes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    #[default]
    NotYet,
    Yes,
    /// This user may not subscribe.
    Refused,
}

#[derive(Debug, Default)]
struct Heard {
    messages: VecDeque<PolicyMessage>,
    /// Something may have been missed.
    is_doubtful: bool,
}

impl PolicyInbox {
    pub fn put(&self, message: PolicyMessage) {
        let mut heard = self.heard.lock();
        if heard.messages.len() < HEARD_MAX {
            heard.messages.push_back(message);
        } else {
            heard.is_doubtful = true;
        }
        drop(heard);
        self.rung.notify_one();
    }

    /// Subscribed from now on. Earlier changes, if there was a gap, were missed.
    pub fn is_subscribed(&self) {
        if self.hearing.send_replace(Hearing::Yes) != Hearing::NotYet {
            self.heard.lock().is_doubtful = true;
            self.rung.notify_one();
        }
    }

    /// It is not known yet whether the subscription works.
    pub fn is_new(&self) -> bool {
        *self.hearing.borrow() == Hearing::NotYet
    }

    pub fn is_refused(&self) {
        self.hearing.send_replace(Hearing::Refused);
    }

    /// Returns once it is subscribed, or why it cannot be.
    async fn until_subscribed(&self, client: &Client) -> Result<(), Error> {
        let mut hearing = self.hearing.subscribe();
        let heard = tokio::select! {
            heard = hearing.wait_for(|hearing| *hearing != Hearing::NotYet) => heard.map_or(Hearing::NotYet, |heard| *heard),
            () = client.inner().closing.cancelled() => return Err(Error::ShuttingDown),
            () = Clock::system().sleep(SUBSCRIBED_WITHIN) => Hearing::NotYet,
        };
        match heard {
            Hearing::Yes => Ok(()),
            Hearing::Refused => Err(MAY_NOT_SUBSCRIBE),
            Hearing::NotYet => Err(NOT_SUBSCRIBED),
        }
    }
}

/// Changes of stored policies, one by one: see [`Policies::watch`]. Dropped, nobody listens any more.
#[derive(Debug)]
pub struct PolicyWatch {
    client: Client,
    inbox: Arc<PolicyInbox>,
    /// The last version of each that was reported, or was there at the beginning.
    known: HashMap<String, KnownVersion>,
    ready: VecDeque<PolicyEvent>,
    compare_at: Moment,
    /// Not before that are all keys listed, unless something may have been missed.
    list_at: Moment,
}

/// A listing that took this long is followed by a pause of so many times that.
const LISTING_PART: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownVersion {
    seen: VersionSeen,
    is_deleted: bool,
}

impl Policies {
    /// Watches all policies. Returns when the server will tell of changes, at most 5 s later; what is stored then is where it begins. Fails if
    /// that cannot be read, or if this user may not subscribe to `resil:events`.
    pub async fn watch(&self) -> Result<PolicyWatch, Error> {
        let (client, inbox) = (self.client.clone(), Arc::new(PolicyInbox::default()));
        match client.backend() {
            Backend::Memory(memory) => {
                let weak = Arc::downgrade(&inbox);
                let hear =
                    move |message: &PolicyMessage| weak.upgrade().map(|inbox| inbox.put(message.clone())).is_some();
                memory.hear_policy(b"", Arc::new(hear));
            }
            #[cfg(feature = "redis")]
            Backend::Redis(redis) => {
                // It says at once if nobody is there.
                redis.require_link()?;
                client.listen_to_policies(&inbox);
                inbox.until_subscribed(&client).await?;
            }
            _ => {}
        }
        let begun = client.clock().now();
        let present = self.versions().await?;
        let known = |seen| KnownVersion { seen, is_deleted: false };
        let known = present.into_iter().map(|(name, seen)| (name, known(seen))).collect();
        let now = client.clock().now();
        let (compare_at, list_at) = (now.saturating_add(COMPARE_EVERY), after_listing(begun, now));
        Ok(PolicyWatch { client, inbox, known, ready: VecDeque::new(), compare_at, list_at })
    }
}

/// When the next listing may begin.
fn after_listing(begun: Moment, ended: Moment) -> Moment {
    ended.saturating_add((ended.saturating_sub(begun) * LISTING_PART).max(COMPARE_EVERY))
}

impl PolicyWatch {
    /// The next change; `None` when the client is shut down. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<PolicyEvent> {
        let closing = self.client.inner().closing.clone();
        loop {
            self.take_changes();
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
                    // What was to be found by listing still is.
                    self.list_at = Moment::ZERO;
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

    fn take_changes(&mut self) {
        loop {
            let Some(PolicyMessage { key, seen, action }) = self.inbox.heard.lock().messages.pop_front() else {
                return;
            };
            let Some(name) = keys::name_in("policy", &key) else { continue };
            match self.known.get(&name) {
                // The server has lost its data, or has older ones again.
                Some(known) if seen.began_anew_after(known.seen) => self.tell(name, seen, action),
                // It was found by a comparison. If versions began anew and the clock was set back, too, that is found by one.
                Some(known) if seen.version <= known.seen.version => {
                    self.inbox.heard.lock().is_doubtful |= seen.version == 1;
                }
                _ => self.tell(name, seen, action),
            }
        }
    }

    fn tell(&mut self, name: String, seen: VersionSeen, action: PolicyAction) {
        let is_deleted = action == PolicyAction::Deleted;
        self.known.insert(name.clone(), KnownVersion { seen, is_deleted });
        self.ready.push_back(PolicyEvent { name, version: seen.version, action });
    }

    /// Reports what is stored and was missed. All or nothing: it may be dropped or fail at any await.
    async fn compare(&mut self) -> Result<(), Error> {
        // What is heard from here on may be newer than the list.
        let was_doubtful = std::mem::take(&mut self.inbox.heard.lock().is_doubtful);
        let undone = Doubtful(Some(Arc::clone(&self.inbox)));
        let policies = self.client.policies();
        let begun = self.client.clock().now();
        let stored = if was_doubtful || begun >= self.list_at {
            let listed = policies.versions().await?;
            self.list_at = after_listing(begun, self.client.clock().now());
            listed
        } else {
            policies.read_versions(self.known.keys().cloned().collect()).await?
        };
        let present: HashMap<String, VersionSeen> = stored.into_iter().collect();
        let is_missing = |(name, known): &(&String, &KnownVersion)| !known.is_deleted && !present.contains_key(*name);
        let missing: Vec<(String, VersionSeen)> =
            self.known.iter().filter(is_missing).map(|(name, known)| (name.clone(), known.seen)).collect();
        let mut gone = Vec::new();
        for (name, seen) in missing {
            let deletion = policies.history(&name).await?.into_iter().next();
            match deletion {
                // Stored again since the list was made: it is heard of, or found by the next one.
                Some(record) if !record.is_deleted => {}
                Some(record) => {
                    gone.push((name, VersionSeen { version: record.version, at_ms: whole_ms(record.at) }, true));
                }
                None => gone.push((name, seen, false)),
            }
        }
        undone.done();
        for (name, seen) in present {
            let known = self.known.get(&name).copied();
            if known.is_none_or(|known| known.is_deleted || !known.seen.is_same(seen)) {
                let was_there = known.is_some_and(|known| !known.is_deleted);
                let action = if was_there { PolicyAction::Changed } else { PolicyAction::Created };
                self.tell(name, seen, action);
            }
        }
        for (name, seen, has_key) in gone {
            self.tell(name.clone(), seen, PolicyAction::Deleted);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_takes_at_most_a_hundredth_of_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(after_listing(seconds(5), seconds(5)), seconds(65));
        assert_eq!(after_listing(seconds(0), seconds(20)), seconds(2_020));
    }
}
