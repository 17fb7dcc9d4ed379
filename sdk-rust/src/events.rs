//! What the server publishes about what this process has in use: losses of what it holds, changes of its breakers and policies, and the
//! verdicts of its [waits](crate::backend::redis::late).
//!
//! # The promise
//! - A holder learns that it has lost its lock or permit, and a breaker that its circuit was changed, as soon as the message
//!   arrives: within milliseconds, not at the next renewal or when the open time is over.
//! - Nothing is wrong without it. A message may be lost with its connection; leases, deadlines and `trust` hold as without it,
//!   and waits are asked again.
//! - After a subscription, also the first, whatever it is about is asked for once: what happened before was not heard.
//!
//! # What is subscribed to
//! `resil:lost:<client>` while something is held for longer than a [moment](crate::holding::watchdog), and
//! `resil:events:<key>` for each breaker that was asked, or that has a listener, and for each stored policy that is followed; `resil:events` while
//! policies are watched; `resil:invalidated:<key>` for each cache that keeps values in this process, which it does only while it is
//! heard. So a process hears only of what it uses, on one connection, which is
//! opened with the first of them and closed when none is left. A user who may not subscribe is warned once. `resil:events` is asked for by itself:
//! a user who may not hear of everything still hears of what it uses.
//!
//! # The task
//! One for each client while anything is subscribed to, on its background runtime. It keeps the client only while it has
//! something to do. Breakers ask on the runtime they are used on, because they may call listeners of their users.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil_core::lock::Reason;
use resil_wire::holding::Bind;
use resil_wire::late;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::backend::Backend;
use crate::backend::redis::Redis;
use crate::backend::redis::late::{LateWaits, Listener};
use crate::backend::redis::subscription::{Message, Subscription, SubscriptionEnd, Subscriptions};
use crate::breaker::Core;
use crate::cache::{CacheTable, Invalidated};
use crate::client::{Client, WeakClient};
use crate::policies::watch::{PolicyInbox, PolicyMessage};

/// How long losses are listened for after the last holding: locks come and go.
const LINGER: Duration = Duration::from_secs(30);
/// The channel of all events.
const EVERYTHING: &str = "resil:events";
/// Before a user who may not subscribe to that asks again: an operator may have granted it.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The key of a cache name follows.
const INVALIDATED: &str = "resil:invalidated:";

#[derive(Debug, Default)]
pub(crate) struct Events {
    wanted: Mutex<Wanted>,
    changed: Notify,
    has_warned: AtomicBool,
}

#[derive(Debug, Default)]
struct Wanted {
    /// Since when nothing was held, if losses are listened for.
    losses: Option<Idle>,
    /// Since when nobody waited, if verdicts are listened for.
    waits: Option<Idle>,
    /// By channel. One name may have several, with other options.
    breakers: HashMap<String, Vec<Listening>>,
    /// Stored policies that are followed, by channel.
    policies: HashMap<String, Weak<Notify>>,
    /// Caches that keep values in this process, by channel.
    caches: HashMap<String, Weak<CacheTable>>,
    /// Those that watch all stored policies.
    watches: Vec<Weak<PolicyInbox>>,
    is_running: bool,
}

/// A breaker, and the runtime it was first used on.
#[derive(Debug, Clone)]
struct Listening {
    breaker: Weak<Core>,
    runtime: Option<Handle>,
}

#[derive(Debug, Clone, Copy)]
enum Idle {
    No,
    Since(Instant),
}

impl Idle {
    /// How it is now; `None` if it was idle for so long that it is over.
    fn or_over(self, is_in_use: bool) -> Option<Self> {
        match self {
            _ if is_in_use => Some(Self::No),
            Self::No => Some(Self::Since(Instant::now())),
            Self::Since(since) if since.elapsed() >= LINGER => None,
            still => Some(still),
        }
    }
}

/// A loss, as it is published.
#[derive(Deserialize)]
struct Lost {
    owner: String,
    fence: u64,
    reason: String,
}

impl Client {
    /// Something is held for longer than a moment.
    pub(crate) fn listen_for_losses(&self) {
        self.listen(|wanted| {
            let is_new = wanted.losses.is_none();
            wanted.losses = Some(Idle::No);
            is_new
        });
    }

    /// Somebody is about to wait.
    pub(crate) fn listen_for_waits(&self) {
        let Backend::Redis(redis) = self.backend() else { return };
        // A cluster has no connection whose waits could be distinguished from those of others.
        if redis.bind() == Bind::None {
            return;
        }
        redis.late().want();
        self.listen(|wanted| {
            let is_new = wanted.waits.is_none();
            wanted.waits = Some(Idle::No);
            is_new
        });
    }

    /// `breaker` is in use.
    pub(crate) fn listen_to(&self, breaker: &Arc<Core>) {
        let channel = format!("resil:events:{}", String::from_utf8_lossy(&breaker.key));
        let listening = Listening { breaker: Arc::downgrade(breaker), runtime: Handle::try_current().ok() };
        self.listen(|wanted| {
            wanted.breakers.entry(channel).or_default().push(listening);
            true
        });
    }

    /// `changed` is notified when the policy at `key` may have changed, for as long as anybody has it.
    pub(crate) fn listen_to_policy(&self, key: &str, changed: &Arc<Notify>) {
        let (channel, changed) = (format!("resil:events:{key}"), Arc::downgrade(changed));
        self.listen(|wanted| {
            wanted.policies.insert(channel, changed);
            true
        });
    }

    /// `table` hears what others invalidate, for as long as anybody has it.
    pub(crate) fn listen_to_cache(&self, table: &Arc<CacheTable>) {
        let channels = channels_of(table);
        self.listen(|wanted| {
            let is_known = |known: &Weak<CacheTable>| known.ptr_eq(&Arc::downgrade(table));
            let mut is_new = false;
            for channel in channels {
                is_new |= !wanted.caches.get(&channel).is_some_and(is_known);
                wanted.caches.insert(channel, Arc::downgrade(table));
            }
            is_new
        });
    }

    /// `inbox` gets every change of a stored policy, until it is dropped.
    pub(crate) fn listen_to_policies(&self, inbox: &Arc<PolicyInbox>) {
        let inbox = Arc::downgrade(inbox);
        self.listen(|wanted| {
            wanted.watches.push(inbox);
            true
        });
    }

    fn listen(&self, want: impl FnOnce(&mut Wanted) -> bool) {
        let Backend::Redis(redis) = self.backend() else { return };
        let events = &self.inner().events;
        let mut wanted = events.wanted.lock();
        if !want(&mut wanted) {
            return;
        }
        if wanted.is_running {
            return events.changed.notify_one();
        }
        // Where no task can run nothing can be heard.
        let Some(runtime) = self.background() else { return };
        wanted.is_running = true;
        drop(wanted);
        let running = Running { events: Arc::clone(events), has_ended: false };
        runtime.spawn(attend(self.downgrade(), redis.subscriptions(), running));
    }
}

impl Events {
    /// The channels in use; none: the task may end, and nobody counts on it from then on.
    fn channels(&self, client: &Client, redis: &Redis, subscription: &Subscription) -> HashSet<String> {
        let mut wanted = self.wanted.lock();
        wanted.losses = wanted.losses.and_then(|idle| idle.or_over(client.inner().holdings.holds_anything()));
        wanted.waits = wanted.waits.and_then(|idle| idle.or_over(redis.late().any()));
        wanted.breakers.retain(|_, breakers| {
            breakers.retain(|listening| listening.breaker.strong_count() > 0);
            !breakers.is_empty()
        });
        wanted.policies.retain(|_, changed| changed.strong_count() > 0);
        wanted.caches.retain(|_, table| table.strong_count() > 0);
        wanted.watches.retain(|inbox| inbox.strong_count() > 0);
        let watched = (!wanted.watches.is_empty()).then(|| EVERYTHING.to_owned());
        let losses = wanted.losses.map(|_| losses_channel(client));
        let waits = wanted.waits.and_then(|_| subscription.waits_channel());
        let by_key = wanted.breakers.keys().chain(wanted.policies.keys()).chain(wanted.caches.keys()).cloned();
        let channels: HashSet<String> = by_key.chain(watched).chain(losses).chain(waits).collect();
        wanted.is_running = !channels.is_empty();
        channels
    }

    fn caches(&self) -> Vec<Arc<CacheTable>> {
        self.wanted.lock().caches.values().filter_map(Weak::upgrade).collect()
    }

    /// Caches all of whose channels are subscribed to hear from now on.
    fn hears_caches(&self, subscribed: &HashSet<String>) {
        for table in self.caches() {
            if channels_of(&table).all(|channel| subscribed.contains(&channel)) {
                table.begins_to_hear();
            }
        }
    }

    fn cache(&self, channel: &str) -> Option<Arc<CacheTable>> {
        self.wanted.lock().caches.get(channel).and_then(Weak::upgrade)
    }

    fn watches(&self) -> Vec<Arc<PolicyInbox>> {
        self.wanted.lock().watches.iter().filter_map(Weak::upgrade).collect()
    }

    /// This user may not subscribe to something.
    fn was_refused(&self) {
        self.watches().iter().for_each(|inbox| inbox.is_refused());
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "this user may not subscribe to resil:*: losses, and changes of breakers and policies, are noticed later; \
                 the ACL rule is: +subscribe +unsubscribe &resil:*"
            );
        }
    }

    /// A new watch has to learn whether it is subscribed.
    async fn until_new_watch(&self) {
        while !self.has_new_watch() {
            self.changed.notified().await;
        }
    }

    fn has_new_watch(&self) -> bool {
        self.watches().iter().any(|inbox| inbox.is_new())
    }

    /// Whatever breakers and policies of `channel` know may not be true any more. False if there are none.
    fn refresh(&self, channel: &str) -> bool {
        let wanted = self.wanted.lock();
        let breakers = wanted.breakers.get(channel).cloned().unwrap_or_default();
        let policy = wanted.policies.get(channel).and_then(Weak::upgrade);
        drop(wanted);
        if let Some(changed) = &policy {
            changed.notify_one();
        }
        for Listening { breaker, runtime } in &breakers {
            if let Some(breaker) = breaker.upgrade() {
                breaker.was_changed(runtime.clone());
            }
        }
        !breakers.is_empty() || policy.is_some()
    }
}

fn channels_of(table: &CacheTable) -> impl Iterator<Item = String> {
    table.layout.name_keys().map(|key| format!("{INVALIDATED}{key}"))
}

fn losses_channel(client: &Client) -> String {
    format!("resil:lost:{}", client.inner().holdings.owners_of(&client.inner().name))
}

/// Sees to it that a task that is dropped with its runtime is not counted on.
struct Running {
    events: Arc<Events>,
    has_ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            self.events.wanted.lock().is_running = false;
        }
    }
}

async fn attend(client: WeakClient, mut source: Subscriptions, mut running: Running) {
    while let Some(subscription) = source.next().await {
        let events = Arc::clone(&running.events);
        let ended = listen_on(&client, &events, subscription, &mut source).await;
        events.caches().iter().for_each(|table| table.hears_no_more());
        let listener = if ended == Err(SubscriptionEnd::Refused) { Listener::Refused } else { Listener::Nobody };
        source.late().is_heard_by(listener);
        match ended {
            Ok(()) => {
                running.has_ended = true;
                return;
            }
            Err(SubscriptionEnd::Broken) => {}
            Err(SubscriptionEnd::Refused) => {
                events.was_refused();
                tokio::select! {
                    () = source.was_refused() => {}
                    () = events.until_new_watch() => {}
                }
            }
        }
    }
}

/// Returns when nothing is to be listened to any more.
async fn listen_on(
    client: &WeakClient,
    events: &Events,
    mut subscription: Subscription,
    source: &mut Subscriptions,
) -> Result<(), SubscriptionEnd> {
    let mut subscribed = HashSet::new();
    let mut is_due = true;
    let mut refused_at: Option<Instant> = None;
    loop {
        if is_due {
            let Some(client) = client.upgrade() else { return Ok(()) };
            let Backend::Redis(redis) = client.backend() else { return Ok(()) };
            let wanted = events.channels(&client, redis, &subscription);
            if wanted.is_empty() {
                return Ok(());
            }
            let fresh = wanted.difference(&subscribed).filter(|channel| *channel != EVERYTHING);
            let fresh: Vec<String> = fresh.cloned().collect();
            let over: Vec<String> = subscribed.difference(&wanted).cloned().collect();
            if !fresh.is_empty() {
                subscription.subscribe(&fresh).await?;
                source.went_well();
            }
            let waits = subscription.waits_channel();
            if waits.as_ref().is_some_and(|waits| over.contains(waits)) {
                redis.late().is_heard_by(Listener::Nobody);
            }
            if !over.is_empty() {
                subscription.unsubscribe(&over).await?;
            }
            if waits.is_some_and(|waits| fresh.contains(&waits)) {
                redis.late().is_heard_by(Listener::Beside(subscription.generation));
            }
            if fresh.contains(&losses_channel(&client)) {
                client.inner().holdings.renew_all();
            }
            for channel in &fresh {
                events.refresh(channel);
            }
            let was_watched = subscribed.contains(EVERYTHING);
            subscribed = wanted;
            events.hears_caches(&subscribed);
            if subscribed.remove(EVERYTHING)
                && (was_watched || watch_all(events, &mut subscription, &mut refused_at).await?)
            {
                subscribed.insert(EVERYTHING.to_owned());
                // One that came later has missed nothing.
                let is_new = |inbox: &&Arc<PolicyInbox>| !was_watched || inbox.is_new();
                events.watches().iter().filter(is_new).for_each(|inbox| inbox.is_subscribed());
            }
        }
        tokio::select! {
            message = subscription.hear() => {
                let message = message?;
                is_due = message.is_none();
                if let Some(message) = message {
                    pass_on(client, events, source.late(), &message);
                }
            }
            () = events.changed.notified() => is_due = true,
        }
    }
}

/// Subscribes to everything. False if this user may not; then that is asked again a minute later, or for a new watch.
async fn watch_all(
    events: &Events,
    subscription: &mut Subscription,
    refused_at: &mut Option<Instant>,
) -> Result<bool, SubscriptionEnd> {
    let is_early = refused_at.is_some_and(|refused| refused.elapsed() < REFUSED_PAUSE);
    if is_early && !events.has_new_watch() {
        return Ok(false);
    }
    match subscription.subscribe(&[EVERYTHING.to_owned()]).await {
        Ok(()) => Ok(true),
        Err(SubscriptionEnd::Broken) => Err(SubscriptionEnd::Broken),
        Err(SubscriptionEnd::Refused) => {
            *refused_at = Some(Instant::now());
            events.was_refused();
            Ok(false)
        }
    }
}

fn pass_on(client: &WeakClient, events: &Events, late: &LateWaits, message: &Message) {
    if message.channel.starts_with(late::CHANNEL) {
        return late.deliver(&message.payload);
    }
    if message.channel.starts_with(INVALIDATED) {
        if let Some(table) = events.cache(&message.channel) {
            table.hear(&Invalidated::read(&message.payload));
        }
        return;
    }
    if message.channel == EVERYTHING {
        let own_db = |client: &Client| match client.backend() {
            Backend::Redis(redis) => redis.db(),
            _ => 0,
        };
        if let Some(client) = client.upgrade()
            && let Some(change) = PolicyMessage::read(&message.payload, own_db(&client))
        {
            events.watches().iter().for_each(|inbox| inbox.put(change.clone()));
        }
        return;
    }
    if events.refresh(&message.channel) {
        return;
    }
    if let Some(client) = client.upgrade()
        && let Ok(Lost { owner, fence, reason }) = serde_json::from_slice(&message.payload)
        && let Some(reason) = Reason::from_text(reason.as_bytes())
    {
        client.inner().holdings.was_lost(owner.as_bytes(), fence, reason);
    }
}
