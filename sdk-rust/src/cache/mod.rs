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
//! - A server that is away never fails a get, unless told to: each process then loads for itself, still once per key.
//!
//! # What does not
//! While the server is away invalidations do not reach other processes. The small local tier, if there is one, forgets by its own ttl. Work
//! with an effect is not a load: use [`idempotency`](crate::idempotency).
//!
//! On the server a key is `resil:cache:<name>:{<key>}`. The words of a loader's error are sent to the other processes, unless
//! [`OnLoadError::Propagate`].

mod flight;
mod invalidation;
mod loaded;
mod meters;
mod table;
#[cfg(test)]
mod tests;
mod tier;
mod versioned;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tracing::Instrument;

use self::flight::{Flight, LoaderError, Slot};
pub use self::loaded::Loaded;
use self::meters::{CacheMeters, Load};
pub(crate) use self::table::Caches;
use self::table::{CacheTable, FlightEntry, FoundIn, Landing};
use self::tier::{Local, Rule};
pub use self::versioned::{Versioned, VersionedCached};
use crate::client::Client;
use crate::error::{Error, Failure};
use crate::health::Away;
use crate::keys;
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry::{CallEnding, watched};

/// How often a flight may vanish under a caller (its task was killed) before the caller gives up.
const VANISHED_MAX: u32 = 3;
const DAY: Duration = Duration::from_secs(86_400);

/// What the others hear of a loader's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoadError {
    /// Its words: all who wait get them, and so does everybody who comes within the error's ttl.
    #[default]
    Share,
    /// Nothing: after [`CacheSettings::retry`] one of them tries.
    Propagate,
}

/// How long values are kept, and who loads them. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CacheSettings {
    /// How long a value is fresh. 60 s by default. With zero, those who wait get it and nothing is kept.
    #[serde(with = "span_text")]
    pub ttl: Duration,
    /// How long it is known that there is no such value. 30 s by default.
    #[serde(with = "span_text")]
    pub negative_ttl: Duration,
    /// How long past its ttl a value is served while one caller loads it anew. Zero by default.
    #[serde(with = "span_text")]
    pub stale: Duration,
    /// How long after an error no caller tries again (callers get the stale value, or the error). 1 s by default. With zero,
    /// those who wait get the error and the next caller tries.
    #[serde(with = "span_text")]
    pub error_ttl: Duration,
    /// How long after a load that crashed, timed out, or failed under [`OnLoadError::Propagate`] no caller tries again. 1 s by
    /// default; with zero, the next one tries at once.
    #[serde(with = "span_text")]
    pub retry: Duration,
    pub on_error: OnLoadError,
    /// How long a load may take, and how long a caller waits for another process' load. 1 ms to 10 min; 3 s by default.
    #[serde(with = "span_text")]
    pub load_timeout: Duration,
    /// How long a process that fell silent while it loads is waited for: 10 ms to 1 day. It is renewed meanwhile. 2 s by default:
    /// less than callers wait, so that a lead whose leader never heard of it fails nobody.
    #[serde(with = "span_text")]
    pub lease: Duration,
    /// Serves values for that long without asking the server: invalidations by other processes are not seen meanwhile. Zero, the
    /// default, turns this off.
    #[serde(with = "span_text")]
    pub local_ttl: Duration,
    /// How many values the local tier holds at most. 1,024 by default.
    pub local_size: usize,
    /// While the server cannot be reached: `Local` (the default) loads once per key and process, `Open` lets every caller load,
    /// `Closed` refuses.
    pub when_away: Away,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(30),
            stale: Duration::ZERO,
            error_ttl: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            on_error: OnLoadError::default(),
            load_timeout: Duration::from_secs(3),
            lease: Duration::from_secs(2),
            local_ttl: Duration::ZERO,
            local_size: 1_024,
            when_away: Away::Local,
        }
    }
}

setters! {
    CacheSettings {
        ttl: Duration, negative_ttl: Duration, stale: Duration, error_ttl: Duration, retry: Duration, on_error: OnLoadError,
        load_timeout: Duration, lease: Duration, local_ttl: Duration, local_size: usize, when_away: Away,
    }
}

impl CacheSettings {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn validate(&self) -> Result<(), Error> {
        for (field, given) in [
            ("ttl", self.ttl),
            ("negativeTtl", self.negative_ttl),
            ("stale", self.stale),
            ("errorTtl", self.error_ttl),
            ("retry", self.retry),
            ("localTtl", self.local_ttl),
        ] {
            check_span(field, given, Duration::ZERO, 366 * DAY)?;
        }
        check_span("loadTimeout", self.load_timeout, Duration::from_millis(1), Duration::from_secs(600))?;
        check_span("lease", self.lease, Duration::from_millis(10), DAY)?;
        check_number("localSize", self.local_size, 1, usize::MAX)
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
        let (meters, table) = (CacheMeters::new(name), self.inner().caches.table(kind, name));
        Ok(Cached(Arc::new(CacheCore { client: self.clone(), kind, name: name.to_owned(), settings, table, meters })))
    }
}

/// Values that are loaded once. Cheap to clone; all of one client that have one name share their
/// flights and their local tier: give them the same settings.
#[derive(Debug, Clone)]
pub struct Cached(Arc<CacheCore>);

#[derive(Debug)]
pub(crate) struct CacheCore {
    client: Client,
    /// For its keys.
    kind: &'static str,
    name: String,
    settings: CacheSettings,
    table: Arc<CacheTable>,
    meters: CacheMeters,
}

impl CacheCore {
    fn local(&self) -> Local {
        Local { ttl: self.settings.local_ttl, size: self.settings.local_size }
    }

    fn server_key(&self, key: &str) -> String {
        keys::under(self.kind, &self.name, key)
    }
}

pub(super) fn slot<L>(loader: L) -> Slot<L> {
    Arc::new(Mutex::new(Some(loader)))
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
            async move { loading.await.map_err(LoaderError::Theirs) }
        };
        self.fetch(key, Rule::Plain, &slot(loader)).await
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
                    .map(|json| Some(json.into()))
                    .map_err(|error| LoaderError::Ours(unwritable(error)))
            }
        };
        let slot = slot(loader);
        let read = |bytes: Bytes| serde_json::from_slice(&bytes);
        let loaded = self.fetch(key, Rule::Plain, &slot).await?;
        if let Ok(loaded) = loaded.try_map(read) {
            return Ok(loaded);
        }
        self.invalidate(key).await?;
        let unreadable = |error| Error::Internal(format!("a value cannot be read from JSON: {error}"));
        self.fetch(key, Rule::Plain, &slot).await?.try_map(read).map_err(|error| unreadable(error).into())
    }

    async fn fetch<L, Fut, E>(&self, key: &str, rule: Rule, slot: &Slot<L>) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Bytes>, LoaderError<E>>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let fetching = self.fetch_unwatched(key, rule, slot);
        watched!(Cache, "get", &self.0.meters.name, fetching, |loaded| CallEnding::of_work(loaded, |loaded| {
            CallEnding::fine(match loaded {
                Loaded::Found { stale: true, .. } => "stale",
                Loaded::Found { .. } => "found",
                Loaded::NotFound => "not_found",
            })
        }))
    }

    async fn fetch_unwatched<L, Fut, E>(&self, key: &str, rule: Rule, slot: &Slot<L>) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Option<Bytes>, LoaderError<E>>> + Send + 'static,
        E: Display + Send + Sync + 'static,
    {
        let core = &self.0;
        let _pass = core.client.inner().gate.enter()?;
        let mut vanished = 0;
        while vanished < VANISHED_MAX {
            if core.client.patience().is_cancelled() {
                return Err(Error::ShuttingDown.into());
            }
            let (began_it, mut flight) = match core.table.enter(key, rule, core.local(), core.client.clock().now()) {
                FlightEntry::Kept(landing) => return self.landed(key, landing, slot).await,
                FlightEntry::Join(flight) => (Began::Another, flight),
                FlightEntry::First(lead, landing) => {
                    let flight = Flight::new(core, key, slot);
                    // In memory the answer is there at once; most are hits, and need no task.
                    let first = core.client.backend().call_now(&flight.join_command(Duration::ZERO));
                    if let Some(Ok(answer)) = &first
                        && let Some(landing) = flight.hit(&lead, answer, FoundIn::Known)
                    {
                        lead.land(landing.clone());
                        return self.landed(key, landing, slot).await;
                    }
                    let Ok(runtime) = Handle::try_current() else {
                        flight.give_up_at_once();
                        let why = "a value can only be loaded inside of a tokio runtime".to_owned();
                        return Err(Error::InvalidArgument(why).into());
                    };
                    core.client.inner().tasks.spawn_on(flight.fly(lead, first).in_current_span(), &runtime);
                    (Began::This, landing)
                }
            };
            let landing = flight.wait_for(Option::is_some).await.ok().and_then(|landing| landing.clone());
            match (landing, began_it) {
                (Some(Landing::Void(landing)), Began::This) => return self.landed(key, *landing, slot).await,
                (Some(Landing::Void(_)), Began::Another) => {}
                (Some(landing), _) => return self.landed(key, landing, slot).await,
                (None, _) => vanished += 1,
            }
        }
        core.meters.vanished();
        Err(Error::Cancelled.into())
    }

    async fn landed<L, Fut, E>(&self, key: &str, landing: Landing, slot: &Slot<L>) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Option<Bytes>, LoaderError<E>>>,
        E: Display + Send + Sync + 'static,
    {
        self.0.meters.got(&landing);
        match landing {
            Landing::Found { bytes, age, stale, .. } => Ok(Loaded::Found { value: bytes, age, stale }),
            Landing::Empty { .. } => Ok(Loaded::NotFound),
            Landing::LoadError { error, message } => Err(match error.downcast::<E>() {
                Ok(error) => Failure::Inner(error),
                Err(_) => Error::LoadFailed { name: self.0.name.as_str().into(), message: message.to_string() }.into(),
            }),
            Landing::Failed(error) => Err(error.into()),
            Landing::EachAlone => self.load_alone(key, slot).await,
            Landing::Void(_) => Err(Error::Internal("a void load was taken for a value".to_owned()).into()),
        }
    }

    /// In the caller's own future: it is cancelled with it.
    async fn load_alone<L, Fut, E>(&self, key: &str, slot: &Slot<L>) -> Result<Loaded, Failure<Arc<E>>>
    where
        L: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<Option<Bytes>, LoaderError<E>>>,
    {
        let Some(loader) = slot.lock().take() else {
            return Err(Error::Internal("a loader was used twice".to_owned()).into());
        };
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
            Ok(Some(value)) => Ok(Loaded::Found { value, age: Some(Duration::ZERO), stale: false }),
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
