//! Values that are loaded once: one caller of the fleet loads, everybody else gets what it loaded.
//!
//! ```
//! # async fn example() -> Result<(), resil::Failure<std::sync::Arc<std::io::Error>>> {
//! use std::time::Duration;
//! use resil::cache::{CacheSettings, Loaded};
//!
//! let client = resil::connect("memory://").await?;
//! let users = client.cached("user", CacheSettings::new().stale(Duration::from_secs(300)))?;
//!
//! let ada = users.get("42", async |_key| Ok::<_, std::io::Error>(Some("Ada".into()))).await?;
//! assert_eq!(ada.into_value().as_deref(), Some(&b"Ada"[..]));
//! let nobody = users.get("43", async |_key| Ok::<_, std::io::Error>(None)).await?;
//! assert_eq!(nobody, Loaded::NotFound);
//!
//! // After the change is committed:
//! users.invalidate("42").await?;
//! # Ok(()) }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # What holds
//! - All callers of a key in one process share one flight: one command, however many they are. In the fleet one process
//!   loads; the others wait in the server and get the value in the reply they wait for. Bytes are shared, not copied.
//! - The load runs in a task of its own, with its own timeout. A caller that is cancelled ends nobody's load.
//! - A loader that fails, panics or takes too long fails those who wait for it, once: with [`error_ttl`](CacheSettings::error_ttl) and
//!   [`retry`](CacheSettings::retry) nobody tries again for a while, so that a source that is down is not asked by every follower in
//!   turn. A process that dies while it loads fails nobody: the next one loads.
//! - Past its ttl a value is served as stale for [`stale`](CacheSettings::stale) more and not a moment longer, while one process loads it anew.
//! - What was loaded before an [`invalidate`](Cached::invalidate) is not returned to a get that began after it. Callers that shared the
//!   voided load ask anew.
//! - A server that is away never fails a get, unless the settings say so: each process then loads for itself, still once per key.
//!
//! # What does not
//! While the server is away invalidations do not reach other processes. Work with an effect is not a load: use
//! [`idempotency`](crate::idempotency).
//!
//! # The local tier
//! With [`local_ttl`](CacheSettings::local_ttl) a process keeps values in its own memory. It hears what other processes invalidate, within
//! milliseconds. While it does not hear (its connection is cut, its user may not subscribe) it keeps nothing, but for what it
//! loads while the server is away; when it hears again it forgets everything: what was invalidated meanwhile is never served after.
//! A tag, or the whole name, that is invalidated empties the tier: which values it concerns only the server knows.
//!
//! On the server a key is `resil:cache:<name>:{<key>}`, and what is known of the name is in `resil:cache:{<name>}`; in a cluster both
//! are spread over 16 slots. The words of a loader's error are sent to the other processes, unless
//! [`OnLoadError::Propagate`].

mod asking;
mod entry;
mod flight;
mod glance;
mod invalidation;
mod layout;
mod loaded;
mod many;
mod meters;
mod minder;
mod request;
mod settings;
mod table;
#[cfg(test)]
mod tests;
mod tier;
mod versioned;

use std::any::Any;
use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::asking::{Asked, asked_since};
pub use self::entry::{CacheEntry, CallOptions};
use self::flight::Flight;
#[doc(hidden)]
pub use self::glance::Glance;
pub use self::loaded::Loaded;
use self::meters::{CacheMeters, Load};
use self::request::{LoaderError, Request};
pub use self::settings::{CacheSettings, OnLoadError};
pub(crate) use self::table::{CacheTable, Caches};
use self::table::{FlightEntry, Landing};
use self::tier::{Local, Rule};
pub use self::versioned::{Versioned, VersionedCached};
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Failure};
use crate::keys;
use crate::telemetry::{CallEnding, Primitive, watch, watched};

/// How often a flight may vanish under a caller (its task was killed) before the caller gives up.
const VANISHED_MAX: u32 = 3;
/// What is out of date of a cache name, as it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Invalidated {
    /// The key as the server knows it.
    Key(Vec<u8>),
    Tag(Vec<u8>),
    All,
}

impl Invalidated {
    /// As it is published. Whatever is not known means everything.
    #[cfg(feature = "redis")]
    pub fn read(message: &[u8]) -> Self {
        if let Some(key) = message.strip_prefix(b"key ") {
            Self::Key(key.to_vec())
        } else if let Some(tag) = message.strip_prefix(b"tag ") {
            Self::Tag(tag.to_vec())
        } else {
            Self::All
        }
    }
}

impl Client {
    /// Values that are loaded once; `name` says what they are, and is part of every key.
    pub fn cached(&self, name: &str, settings: CacheSettings) -> Result<Cached, Error> {
        self.cached_as("cache", name, settings)
    }

    /// The same for values that carry versions: see [`VersionedCached`].
    pub fn versioned_cached(&self, name: &str, settings: CacheSettings) -> Result<VersionedCached, Error> {
        self.cached_as("vcache", name, settings).map(VersionedCached)
    }

    fn cached_as(&self, kind: &'static str, name: &str, settings: CacheSettings) -> Result<Cached, Error> {
        self.backend().require_one_server("a cache")?;
        keys::check_name(name)?;
        settings.validate()?;
        self.inner().health.add(format!("cached:{name}").into(), settings.when_away);
        let (meters, in_cluster) = (CacheMeters::new(name), self.backend().is_cluster());
        let table = self.inner().caches.table(kind, name, in_cluster);
        if !settings.local_ttl.is_zero() {
            self.hear_invalidations(&table);
        }
        Ok(Cached(Arc::new(CacheCore { client: self.clone(), settings, table, meters, gave_up: OnceLock::new() })))
    }
}

impl Client {
    /// The local tier of `table` hears what others invalidate.
    fn hear_invalidations(&self, table: &Arc<CacheTable>) {
        match self.backend() {
            Backend::Memory(memory) => {
                for name_key in table.layout.name_keys() {
                    let weak = Arc::downgrade(table);
                    let hear = move |what: &Invalidated| weak.upgrade().map(|table| table.hear(what)).is_some();
                    memory.hear_invalidations(name_key.as_bytes(), Arc::new(hear));
                }
                table.begins_to_hear();
            }
            #[cfg(feature = "redis")]
            Backend::Redis(_) => self.listen_to_cache(table),
            // Nobody else is there.
            _ => table.begins_to_hear(),
        }
    }
}

/// Values that are loaded once. Cheap to clone; all of one client that have one name share their
/// flights and their local tier: give them the same settings.
#[derive(Debug, Clone)]
pub struct Cached(Arc<CacheCore>);

#[derive(Debug)]
pub(crate) struct CacheCore {
    client: Client,
    settings: CacheSettings,
    table: Arc<CacheTable>,
    meters: CacheMeters,
    gave_up: OnceLock<GaveUp>,
}

/// Whether an error of a loader says nothing of what was to be loaded: its thread is no more.
type GaveUp = fn(&dyn Any) -> bool;

impl CacheCore {
    fn local(&self) -> Local {
        Local { ttl: self.settings.local_ttl, size: self.settings.local_size }
    }

    /// The time as the local tier needs it: where there is none, nobody reads the clock for a hit.
    fn now(&self) -> Moment {
        if self.settings.local_ttl.is_zero() { Moment::ZERO } else { self.client.clock().now() }
    }

    /// Up to [`jitter`](CacheSettings::jitter) percent less, at random.
    fn jittered(&self, ttl: Duration) -> Duration {
        let part = f64::from(self.settings.jitter) / 100.0;
        if part == 0.0 { ttl } else { ttl.mul_f64(1.0 - part * self.client.inner().options.random.unit()) }
    }
}

impl Cached {
    /// The value of `key`: the known one, or what `loader` brings. `Ok(None)` of the loader: there is no such thing.
    ///
    /// The loader runs at most once, if at all, in a task of its own. All who share its load get its error as
    /// [`Failure::Inner`]; who waited in another process, or loads another type of error, gets `LOAD_FAILED` with its words.
    pub async fn get<L, Fut, E>(&self, key: &str, loader: L) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Bytes>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let loader = |key| {
            let loading = loader(key);
            async move { loading.await.map(|bytes| bytes.map(CacheEntry::new)) }
        };
        self.get_with(key, CallOptions::default(), loader).await
    }

    /// As [`get`](Self::get), with options for this call, and a loader that says what is special about what it brings: its
    /// own ttl, its tags, or that it is not to be kept.
    ///
    /// Callers that share a flight share the options of the one that began it.
    pub async fn get_with<L, Fut, E>(
        &self,
        key: &str,
        options: CallOptions,
        loader: L,
    ) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<CacheEntry>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        options.validate()?;
        if let Some(loaded) = self.in_local_tier(key) {
            return Ok(loaded);
        }
        let loader = |key| {
            let loading = loader(key);
            async move { loading.await.map_err(LoaderError::Theirs) }
        };
        self.fetch(key, Rule::Plain, None, &Request::new(options, loader)).await
    }

    /// Loads `key` anew, and returns what was loaded, while everybody else has the value that was known as a stale one. A caller that refreshes
    /// while another process does, or whose load fails, gets the stale one, too.
    pub async fn refresh<L, Fut, E>(&self, key: &str, loader: L) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Bytes>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let loader = |key| {
            let loading = loader(key);
            async move { loading.await.map(|bytes| bytes.map(CacheEntry::new)) }
        };
        self.refresh_with(key, CallOptions::default(), loader).await
    }

    /// As [`refresh`](Self::refresh), with options for this call, and a loader that says what is special about what it brings.
    pub async fn refresh_with<L, Fut, E>(
        &self,
        key: &str,
        options: CallOptions,
        loader: L,
    ) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<CacheEntry>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        options.validate()?;
        self.invalidate_soft(key).await?;
        let patience = options.soft_timeout.unwrap_or(self.0.settings.load_timeout);
        self.get_with(key, options.soft_timeout(patience), loader).await
    }

    /// As [`get`](Self::get), with values kept as JSON. A kept value that cannot be read as `T` (it was written by
    /// another version of the program) is invalidated and loaded anew.
    pub async fn get_json<T, L, Fut, E>(&self, key: &str, loader: L) -> Result<Loaded<T>, Failure<Arc<E>>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<T>, E>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let loader = |key| {
            let loading = loader(key);
            async move {
                let Some(value) = loading.await.map_err(LoaderError::Theirs)? else { return Ok(None) };
                let unwritable = |error| Error::Internal(format!("a value cannot be written as JSON: {error}"));
                serde_json::to_vec(&value)
                    .map(|json| Some(CacheEntry::new(json)))
                    .map_err(|error| LoaderError::Ours(unwritable(error)))
            }
        };
        let request = Request::new(CallOptions::default(), loader);
        let read = |bytes: Bytes| serde_json::from_slice(&bytes);
        let loaded = self.fetch(key, Rule::Plain, None, &request).await?;
        if let Ok(loaded) = loaded.try_map(read) {
            return Ok(loaded);
        }
        self.invalidate(key).await?;
        let unreadable = |error| Error::Internal(format!("a value cannot be read from JSON: {error}"));
        self.fetch(key, Rule::Plain, None, &request).await?.try_map(read).map_err(|error| unreadable(error).into())
    }

    /// For a binding: errors of its loaders that are no reply for others. The next one loads.
    #[doc(hidden)]
    pub fn give_up_on(&self, gave_up: fn(&dyn Any) -> bool) {
        // The first one stands.
        let _ = self.0.gave_up.set(gave_up);
    }

    /// A hit of the local tier, before anything is made that only others need. A client that closes says so later.
    fn in_local_tier(&self, key: &str) -> Option<Loaded> {
        let (core, local) = (&self.0, self.0.local());
        if local.ttl.is_zero() || core.client.inner().gate.look().is_err() {
            return None;
        }
        let landing = core.table.kept(key, Rule::Plain, local, core.client.clock().now())?;
        core.meters.got(&landing);
        let watch = watch(Primitive::Cache, "get", &core.meters.name);
        let (loaded, outcome) = match landing {
            Landing::Found { bytes, age, stale, .. } => (Loaded::Found { value: bytes, age, stale }, "found"),
            _ => (Loaded::NotFound, "not_found"),
        };
        if let Some(watch) = watch {
            watch.end(CallEnding::fine(outcome));
        }
        Some(loaded)
    }

    /// `known`: what was found already.
    async fn fetch<L, Fut, E>(
        &self,
        key: &str,
        rule: Rule,
        known: Option<Landing>,
        request: &Arc<Request<L>>,
    ) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<CacheEntry>, LoaderError<E>>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let outcome = |loaded: &Loaded| match loaded {
            Loaded::Found { stale: true, .. } => "stale",
            Loaded::Found { .. } => "found",
            Loaded::NotFound => "not_found",
        };
        let ending = |loaded: &_| CallEnding::of_work(loaded, |loaded| CallEnding::fine(outcome(loaded)));
        watched!(Cache, "get", &self.0.meters.name, self.fetch_unwatched(key, rule, known, request), ending)
    }

    async fn fetch_unwatched<L, Fut, E>(
        &self,
        key: &str,
        rule: Rule,
        known: Option<Landing>,
        request: &Arc<Request<L>>,
    ) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<CacheEntry>, LoaderError<E>>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let _pass = self.0.client.inner().gate.enter()?;
        let landing = match known {
            Some(landing) => landing,
            None => self.landing(key, rule, request).await?,
        };
        self.0.meters.got(&landing);
        match landing {
            Landing::Found { bytes, age, stale, .. } => Ok(Loaded::Found { value: bytes, age, stale }),
            Landing::Empty { .. } => Ok(Loaded::NotFound),
            Landing::LoadError { error, message } => Err(match error.downcast::<E>() {
                Ok(error) => Failure::Inner(error),
                Err(_) => Error::LoadFailed { name: (*self.0.meters.name).into(), message: message.to_string() }.into(),
            }),
            Landing::Failed(error) => Err(error.into()),
            // On the heap: it is seldom, and futures of callers stay small.
            Landing::EachAlone => Box::pin(self.load_alone(key, request)).await,
            Landing::Void(_) => Err(Error::Internal("a void load was taken for a value".to_owned()).into()),
        }
    }

    /// How the flight of `key` ends: one that is under way, or a new one.
    async fn landing<L, Fut, E>(&self, key: &str, rule: Rule, request: &Arc<Request<L>>) -> Result<Landing, Error>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<CacheEntry>, LoaderError<E>>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let core = &self.0;
        let mut vanished = 0;
        while vanished < VANISHED_MAX {
            if core.client.patience().is_cancelled() {
                return Err(Error::ShuttingDown);
            }
            let ask = |lead| {
                let (core, request) = (Arc::clone(core), Arc::clone(request));
                asking::ask(move || Flight::new(core, lead, request), |flight, first| flight.fly(first).boxed())
            };
            let entry = core.table.enter(key, rule, core.local(), core.now(), ask);
            let (began_it, asked) = match entry {
                FlightEntry::Kept(landing) => return Ok(landing),
                FlightEntry::First(asking) => {
                    minder::mind(core);
                    (Began::This, asking.await)
                }
                FlightEntry::Asking(asking) => match asked_since(asking).await {
                    Some(asked) => (Began::Another, asked),
                    None => continue,
                },
                FlightEntry::Flying(flight) => (Began::Another, Asked::Flies(flight)),
            };
            let landing = match asked {
                Asked::Landed(landing) => Some(landing),
                Asked::Flies(mut flight) => {
                    flight.wait_for(Option::is_some).await.ok().and_then(|landing| landing.clone())
                }
                Asked::Vanished => None,
            };
            match (landing, began_it) {
                (Some(Landing::Void(landing)), Began::This) => return Ok(*landing),
                (Some(Landing::Void(_)), Began::Another) => {}
                (Some(landing), _) => return Ok(landing),
                (None, _) => vanished += 1,
            }
        }
        core.meters.vanished();
        Err(Error::Cancelled)
    }

    /// In the caller's own future: it is cancelled with it.
    async fn load_alone<L, Fut, E>(&self, key: &str, request: &Request<L>) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Option<CacheEntry>, LoaderError<E>>>,
    {
        let loader = request.take_loader()?;
        let CacheCore { settings, client, meters, .. } = &*self.0;
        let (after, begun) = (settings.load_timeout, client.clock().now());
        let loaded = tokio::select! {
            biased;
            loaded = loader(key.to_owned()) => loaded,
            () = client.clock().sleep(after) => Err(LoaderError::Ours(Error::Timeout { after })),
        };
        let load = match &loaded {
            Ok(Some(_)) => Load::Found,
            Ok(None) => Load::NotFound,
            Err(LoaderError::Ours(Error::Timeout { .. })) => Load::Timeout,
            Err(_) => Load::Error,
        };
        meters.loaded(load, client.clock().now().saturating_sub(begun));
        meters.got_alone(load);
        match loaded {
            Ok(Some(CacheEntry { bytes: value, .. })) => {
                Ok(Loaded::Found { value, age: Some(Duration::ZERO), stale: false })
            }
            Ok(None) => Ok(Loaded::NotFound),
            Err(LoaderError::Theirs(error)) => Err(Failure::Inner(Arc::new(error))),
            Err(LoaderError::Ours(error)) => Err(error.into()),
        }
    }
}

/// Whose flight a caller is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Began {
    This,
    Another,
}
