//! One flight: JOIN, and whatever follows from the reply. What is more than a hit (see `asking`) runs in a task of its own, so
//! that no caller's cancellation ends it, and is bounded by its own times: it waits for another process' load, and it loads, each
//! for at most the load timeout.
//!
//! The leader renews its lease while it loads. However the load ends, the leader publishes it: a value, that there is none,
//! an error, or that somebody else may try.

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use resil_core::limits::TEXT_MAX;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, Wait};
use resil_wire::single_flight::{AbandonCall, Brought, InvalidateCall, JoinCall, Joined, PublishCall, Published};

use super::asking::FirstReply;
use super::entry::{CacheEntry, check_tags, check_ttl};
use super::meters::Load;
use super::request::{LoaderError, Request};
use super::table::{FlightLead, FoundIn, Landing};
use super::tier::Rule;
use super::versioned::{too_old, version_of};
use super::{CacheCore, OnLoadError};
use crate::clock::Moment;
use crate::error::Error;
use crate::health::Away;
use crate::idempotency::token::{from_ms, odd, shortened, span};
use crate::insisting::Insisting;
use crate::isolate::panic_text;
use crate::leases::{Lease, LeaseKind};

/// What became of a load.
enum LoadResult {
    Value(CacheEntry),
    Nothing,
    /// Tell others this.
    Error(Landing, Arc<str>),
    /// Others may try.
    GaveUp(Landing),
}

/// Whether what was loaded counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeadState {
    Stands,
    /// The lead was lost: it may have been invalidated meanwhile.
    Lost,
}

impl LeadState {
    fn of(self, landing: Landing) -> Landing {
        match self {
            Self::Stands => landing,
            Self::Lost => Landing::Void(Box::new(landing)),
        }
    }
}

/// What was known before a load.
struct Known {
    bytes: Bytes,
    /// It is loaded anew before its ttl is over.
    is_fresh: bool,
}

impl Known {
    fn landing(&self) -> Landing {
        Landing::Found { bytes: self.bytes.clone(), age: None, stale: !self.is_fresh, source: FoundIn::Known }
    }
}

pub(super) struct Flight<L> {
    pub core: Arc<CacheCore>,
    /// Its place in the table.
    pub lead: FlightLead,
    /// The key as the server knows it.
    pub key: String,
    pub token: String,
    pub request: Arc<Request<L>>,
}

impl<L> Flight<L> {
    pub fn new(core: Arc<CacheCore>, lead: FlightLead, request: Arc<Request<L>>) -> Self {
        let token = crate::idempotency::token::fresh_token(&core.client);
        let key = core.table.layout.part(&lead.key).value_key(&lead.key);
        Self { core, lead, key, token, request }
    }

    fn name_key(&self) -> &[u8] {
        self.core.table.layout.part(&self.lead.key).name_key.as_bytes()
    }

    pub fn join_command(&self, wait: Duration) -> Command<'_> {
        // A process that dies is followed at once. One whose connection is cut loads once in vain.
        let bind = match self.core.client.backend().bind() {
            // The question itself goes over that connection.
            Bind::To { .. } if wait.is_zero() => Bind::HERE,
            bind => bind,
        };
        Command::FlightJoin(JoinCall {
            key: self.key.as_bytes(),
            token: self.token.as_bytes(),
            lease: span(self.core.settings.lease),
            under: Some(self.name_key()),
            early: Some(self.core.settings.early).filter(|percent| *percent > 0),
            wait: Wait::blocked(span(wait)),
            bind,
        })
    }

    /// Nobody can load: a lead that was given in memory is the next one's.
    pub fn give_up_at_once(&self) {
        let call = AbandonCall { key: self.key.as_bytes(), token: self.token.as_bytes(), retry: None };
        self.core.client.backend().call_now(&Command::FlightAbandon(call));
    }

    /// The same of the first reply, if there is one.
    pub fn hit_in(&self, first: Option<&Result<Reply, Error>>) -> Option<Landing> {
        self.hit(first?.as_ref().ok()?, FoundIn::Known)
    }

    /// What a caller gets of a reply that needs nothing more to be done.
    fn hit(&self, reply: &Reply, source: FoundIn) -> Option<Landing> {
        let Reply::Joined(joined) = reply else { return None };
        let (lead, now) = (&self.lead, self.core.now());
        match joined {
            Joined::Value { bytes, age_ms, fresh_ms } if lead.rule.takes(bytes) => {
                let (bytes, age) = (Bytes::from_owner(Arc::clone(bytes)), from_ms(*age_ms));
                lead.keep(Some(&bytes), age, from_ms(*fresh_ms), now);
                Some(Landing::Found { bytes, age: Some(age), stale: false, source })
            }
            Joined::Stale { bytes, age_ms } if lead.rule.takes(bytes) => {
                let bytes = Bytes::from_owner(Arc::clone(bytes));
                Some(Landing::Found { bytes, age: Some(from_ms(*age_ms)), stale: true, source })
            }
            Joined::Empty { age_ms } => {
                let age = from_ms(*age_ms);
                lead.keep(None, age, self.core.settings.negative_ttl.saturating_sub(age), now);
                Some(Landing::Empty { source })
            }
            Joined::Error { text } => {
                let message = String::from_utf8_lossy(text).into_owned();
                Some(Landing::Failed(Error::LoadFailed { name: (*self.core.meters.name).into(), message }))
            }
            _ => None,
        }
    }
}

impl<L, Fut, E> Flight<L>
where
    L: FnOnce(String) -> Fut + Send,
    Fut: Future<Output = Result<Option<CacheEntry>, LoaderError<E>>> + Send,
    E: Display + Send + Sync + 'static,
{
    /// `first` is the reply to JOIN if it is known already, and when that was sent.
    pub async fn fly(self, first: Option<FirstReply>) {
        let landing = match self.approach(first).await {
            Ok(landing) => landing,
            Err(error) => self.without_server(error).await,
        };
        self.lead.land(landing);
    }

    /// `Err` if the server is no help.
    async fn approach(&self, first: Option<FirstReply>) -> Result<Landing, Error> {
        let (client, clock) = (&self.core.client, self.core.client.clock());
        let (mut has_repeated, mut has_renewed) = (false, false);
        let mut deadline = clock.now().saturating_add(self.core.settings.load_timeout);
        let mut first = first;
        loop {
            let (mut sent, mut reply) = match first.take() {
                Some(first) => first,
                None => (clock.now(), client.backend().call(&self.join_command(Duration::ZERO)).await),
            };
            let patience = deadline.saturating_sub(clock.now());
            let mut source = FoundIn::Known;
            if matches!(reply, Ok(Reply::Joined(Joined::Busy { .. }))) && !patience.is_zero() {
                source = FoundIn::Load;
                sent = clock.now();
                reply = self.wait_for_another(patience).await;
            }
            let reply = match reply {
                Ok(reply) => reply,
                // The same token gets the same reply, which may only have been lost.
                Err(error) if error.says_away() && !has_repeated => {
                    has_repeated = true;
                    continue;
                }
                Err(error) => {
                    if error.says_away() {
                        // The lead may have been given to us, on its way to nobody.
                        self.abandon_later();
                    }
                    return Err(error);
                }
            };
            if let Some(landing) = self.hit(&reply, source) {
                return Ok(landing);
            }
            match reply {
                Reply::Joined(Joined::Lead { stale, waited_ms, .. }) => {
                    let granted_at = sent.saturating_add(from_ms(waited_ms));
                    let known = stale.map(|bytes| Known { bytes: Bytes::from_owner(bytes), is_fresh: false });
                    return Ok(self.lead(known, granted_at).await);
                }
                Reply::Joined(Joined::Early { bytes, .. }) => {
                    let known = Known { bytes: Bytes::from_owner(bytes), is_fresh: true };
                    return Ok(self.lead(Some(known), sent).await);
                }
                Reply::Joined(Joined::Busy { .. }) => {
                    return Ok(Landing::Failed(Error::Timeout { after: self.core.settings.load_timeout }));
                }
                // An older version than the caller knows of.
                Reply::Joined(Joined::Value { .. } | Joined::Stale { .. }) if !has_renewed => {
                    has_renewed = true;
                    deadline = clock.now().saturating_add(self.core.settings.load_timeout);
                    let (key, under) = (self.key.as_bytes(), Some(self.name_key()));
                    let call = InvalidateCall { key, soft: false, under };
                    client.backend().call(&Command::FlightInvalidate(call)).await?;
                }
                Reply::Joined(Joined::Value { .. } | Joined::Stale { .. }) => return Ok(self.too_old()),
                other => return Err(odd(&other)),
            }
        }
    }

    /// What another process loads. A caller that can load by itself does not wait for a server that is gone to come back.
    async fn wait_for_another(&self, patience: Duration) -> Result<Reply, Error> {
        let client = &self.core.client;
        let command = self.join_command(patience);
        let waiting = client.wait(&command);
        match self.core.settings.when_away {
            Away::Closed => waiting.await,
            Away::Local | Away::Open => tokio::select! {
                biased;
                reply = waiting => reply,
                () = client.goes_away() => Err(Error::BackendUnavailable("the connection of a wait was cut")),
            },
        }
    }

    fn too_old(&self) -> Landing {
        Landing::Failed(too_old(&self.core.meters.name))
    }

    /// The server does not reply, or refuses.
    async fn without_server(&self, error: Error) -> Landing {
        let lead = &self.lead;
        tracing::debug!(%error, name = &*self.core.meters.name, "a cached value is loaded without the server");
        match self.core.settings.when_away {
            Away::Closed => Landing::Failed(error),
            Away::Open => Landing::EachAlone,
            Away::Local => {
                let clock = self.core.client.clock();
                let (begun, came) = (clock.now(), {
                    let timeout = pin!(clock.sleep(self.core.settings.load_timeout));
                    tokio::select! {
                        biased;
                        came = self.load(&lead.key) => came,
                        () = timeout => self.timed_out(),
                    }
                });
                self.count(&came, begun);
                match came {
                    LoadResult::Value(entry) if !lead.rule.takes(&entry.bytes) => self.too_old(),
                    LoadResult::Value(entry) => {
                        let (bytes, ttl) = (entry.bytes.clone(), self.ttl_of(&entry));
                        lead.keep_alone(Some(&bytes), ttl, clock.now());
                        Landing::Found { bytes, age: Some(Duration::ZERO), stale: false, source: FoundIn::Load }
                    }
                    LoadResult::Nothing => {
                        lead.keep_alone(None, self.core.settings.negative_ttl, clock.now());
                        Landing::Empty { source: FoundIn::Load }
                    }
                    LoadResult::Error(landing, _) | LoadResult::GaveUp(landing) => landing,
                }
            }
        }
    }

    fn count(&self, came: &LoadResult, begun: Moment) {
        let load = match came {
            LoadResult::Value(_) => Load::Found,
            LoadResult::Nothing => Load::NotFound,
            LoadResult::GaveUp(Landing::Failed(Error::Timeout { .. })) => Load::Timeout,
            LoadResult::Error(..) | LoadResult::GaveUp(_) => Load::Error,
        };
        self.core.meters.loaded(load, self.core.client.clock().now().saturating_sub(begun));
    }

    fn timed_out(&self) -> LoadResult {
        LoadResult::GaveUp(Landing::Failed(Error::Timeout { after: self.core.settings.load_timeout }))
    }

    /// Runs the loader; a panic is an error like any other.
    async fn load(&self, key: &str) -> LoadResult {
        let loader = match self.request.take_loader() {
            Ok(loader) => loader,
            Err(error) => return LoadResult::GaveUp(Landing::Failed(error)),
        };
        let key = key.to_owned();
        match AssertUnwindSafe(async move { loader(key).await }).catch_unwind().await {
            Ok(Ok(Some(mut entry))) => {
                entry.tags.extend(self.request.options.tags.iter().cloned());
                entry.tags.sort_unstable();
                entry.tags.dedup();
                match check_tags(&entry.tags).and_then(|()| check_ttl("ttl", entry.ttl)) {
                    Ok(()) => LoadResult::Value(entry),
                    Err(error) => LoadResult::GaveUp(Landing::Failed(error)),
                }
            }
            Ok(Ok(None)) => LoadResult::Nothing,
            Ok(Err(LoaderError::Theirs(error))) => {
                let message: Arc<str> = error.to_string().into();
                let gave_up = self.core.gave_up.get().is_some_and(|gave_up| gave_up(&error));
                let landing = Landing::LoadError { error: Arc::new(error), message: Arc::clone(&message) };
                // It says nothing of what others want to know: they ask anew.
                if gave_up {
                    LoadResult::GaveUp(Landing::Void(Box::new(landing)))
                } else {
                    LoadResult::Error(landing, message)
                }
            }
            Ok(Err(LoaderError::Ours(error))) => LoadResult::GaveUp(Landing::Failed(error)),
            Err(panic) => LoadResult::GaveUp(Landing::Failed(Error::Crashed(panic_text(panic)))),
        }
    }

    /// How long what was loaded is fresh, a little less at random, so that what was loaded together is not over together.
    fn ttl_of(&self, entry: &CacheEntry) -> Duration {
        if !entry.keep {
            return Duration::ZERO;
        }
        let ttl = entry.ttl.or(self.request.options.ttl).unwrap_or(self.core.settings.ttl);
        self.core.jittered(ttl)
    }

    /// It is ours to load. `known` is what was known before.
    async fn lead(&self, known: Option<Known>, granted_at: Duration) -> Landing {
        let (lead, settings, clock) = (&self.lead, &self.core.settings, self.core.client.clock());
        let fallback = known.as_ref().filter(|known| lead.rule.takes(&known.bytes)).map(Known::landing);
        let soft_timeout = self.request.options.soft_timeout.unwrap_or(settings.soft_timeout);
        let is_fresh = known.as_ref().is_some_and(|known| known.is_fresh);
        if let Some(landing) = fallback.as_ref().filter(|_| soft_timeout.is_zero() || is_fresh) {
            // Served at once, and loaded anew behind their backs. Later callers learn from the server whether
            // it may still have the stale one: only the server knows how long.
            lead.land(landing.clone());
        }
        let lease =
            Lease::new(LeaseKind::Flight, self.key.as_str().into(), self.token.clone(), settings.lease, granted_at);
        let kept = self.core.client.keep(lease);
        let (begun, came) = (clock.now(), {
            let mut loading = pin!(self.load(&lead.key));
            let mut timeout = pin!(clock.sleep(settings.load_timeout));
            let mut soft = pin!(clock.sleep(soft_timeout));
            let (mut is_lost, mut is_patient) = (false, !soft_timeout.is_zero());
            loop {
                tokio::select! {
                    biased;
                    came = &mut loading => break came,
                    () = &mut soft, if is_patient => {
                        // They have what there is; the load goes on, and is kept.
                        is_patient = false;
                        if let Some(landing) = &fallback {
                            lead.land(landing.clone());
                        }
                    }
                    () = &mut timeout => break self.timed_out(),
                    () = kept.lost.cancelled(), if !is_lost => {
                        // Perhaps invalidated: those who come from now on are not to see what is being loaded.
                        is_lost = true;
                        lead.detach();
                    }
                }
            }
        });
        drop(kept);
        self.count(&came, begun);
        // Before anything is published: see `table`.
        lead.detach();
        match came {
            LoadResult::Value(entry) => {
                let bytes = entry.bytes.clone();
                if let (Rule::AtLeast(_), Some(Known { bytes: known, .. })) = (lead.rule, known)
                    && version_of(&known) > version_of(&bytes)
                {
                    // A source that lags behind does not push out what is newer; that stays for its stale time.
                    self.abandon().await;
                    return Landing::Found { bytes: known, age: None, stale: true, source: FoundIn::Known };
                }
                if !lead.rule.takes(&bytes) {
                    // Known to be out of date: for those who wait and do not mind, but not to be kept.
                    self.publish(Duration::ZERO, &[], Brought::Value { bytes: &bytes, stale: span(Duration::ZERO) })
                        .await;
                    return self.too_old();
                }
                let (ttl, stale) = (self.ttl_of(&entry), if entry.keep { settings.stale } else { Duration::ZERO });
                let brought = Brought::Value { bytes: &bytes, stale: span(stale) };
                let standing = self.publish(ttl, &entry.tags, brought).await;
                if standing == LeadState::Stands {
                    lead.keep(Some(&bytes), Duration::ZERO, ttl, clock.now());
                }
                standing.of(Landing::Found { bytes, age: Some(Duration::ZERO), stale: false, source: FoundIn::Load })
            }
            LoadResult::Nothing => {
                let ttl = self.core.jittered(settings.negative_ttl);
                let standing = self.publish(ttl, &self.request.options.tags, Brought::Empty).await;
                if standing == LeadState::Stands {
                    lead.keep(None, Duration::ZERO, ttl, clock.now());
                }
                standing.of(Landing::Empty { source: FoundIn::Load })
            }
            LoadResult::Error(landing, message) => {
                match settings.on_error {
                    OnLoadError::Share => {
                        let text = match shortened(&message, TEXT_MAX) {
                            "" => "unknown error",
                            text => text,
                        };
                        self.publish(settings.error_ttl, &[], Brought::Error { text: text.as_bytes() }).await;
                    }
                    OnLoadError::Propagate => self.abandon().await,
                }
                // While there is a stale value an error fails nobody.
                fallback.unwrap_or(landing)
            }
            LoadResult::GaveUp(landing) => {
                self.abandon().await;
                fallback.unwrap_or(landing)
            }
        }
    }

    async fn publish(&self, ttl: Duration, tags: &[String], brought: Brought<'_>) -> LeadState {
        let (key, token) = (self.key.as_bytes(), self.token.as_bytes());
        let under = Some(self.name_key());
        let tags = tags.iter().map(|tag| tag.as_bytes()).collect();
        let command = Command::FlightPublish(PublishCall { key, token, ttl: span(ttl), under, tags, brought });
        let mut reply = self.core.client.backend().call(&command).await;
        if matches!(&reply, Err(error) if error.says_away()) {
            reply = self.core.client.backend().call(&command).await;
        }
        match reply {
            Ok(Reply::Published(Published::Published { .. })) => LeadState::Stands,
            Ok(Reply::Published(Published::Lost(reason))) => {
                tracing::debug!(name = &*self.core.meters.name, reason = reason.text(), "a load was not published");
                LeadState::Lost
            }
            // Away: this process is on its own. Too large to be kept: the others load by themselves.
            Ok(_) => LeadState::Stands,
            Err(error) => {
                tracing::debug!(%error, name = &*self.core.meters.name, "a load could not be published");
                match error.says_away() {
                    true => self.abandon_later(),
                    false => self.tell(&Command::FlightAbandon(AbandonCall { key, token, retry: None })).await,
                }
                LeadState::Stands
            }
        }
    }

    async fn abandon(&self) {
        let retry = Some(span(self.core.settings.retry)).filter(|retry| !retry.is_zero());
        let (key, token) = (self.key.as_bytes(), self.token.as_bytes());
        self.tell(&Command::FlightAbandon(AbandonCall { key, token, retry })).await;
    }

    async fn tell(&self, command: &Command<'_>) {
        if let Err(error) = self.core.client.backend().call(command).await {
            tracing::debug!(%error, name = &*self.core.meters.name, "a lead could not be given up");
            if error.says_away() {
                self.abandon_later();
            }
        }
    }

    /// Until it is heard: bound to a connection that goes on, the lead would be ours for as long as that lives, and nobody else could load.
    fn abandon_later(&self) {
        let client = &self.core.client;
        let Some(runtime) = client.background() else { return };
        let (mut insisting, key, token) = (Insisting::new(client), self.key.clone(), self.token.clone());
        let task = async move {
            let call = AbandonCall { key: key.as_bytes(), token: token.as_bytes(), retry: None };
            let _ = insisting.say(&Command::FlightAbandon(call)).await;
        };
        client.inner().tasks.spawn_on(task, &runtime);
    }
}
