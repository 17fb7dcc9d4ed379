//! Connecting, and the one handle from which everything is made.
//!
//! ```
//! # tokio_test_block(async {
//! let client = resil::connect("memory://").await?;
//! # Ok::<(), resil::Error>(()) });
//! # fn tokio_test_block<T>(future: impl Future<Output = Result<T, resil::Error>>) -> T {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future).unwrap()
//! # }
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resil_wire::command::{Command, Reply};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backend::{Backend, Reach, memory::Memory};
use crate::cache::Caches;
use crate::clock::Clock;
use crate::error::Error;
use crate::health::{Health, Notice, OnNotice, Registry};
use crate::holding::watchdog::Holdings;
use crate::idempotency::sharing::Sharing;
use crate::leases::Leases;
use crate::policy::Random;
use crate::settings::setters;
use crate::settings::span_text::{self, check_number, check_span};
use crate::shutdown::{Gate, Shutdown};
use crate::telemetry::Home;

/// Nobody waits longer for one command, and every sum of times stays one.
pub(crate) const COMMAND_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

/// How long the SDKs of other languages wait by default: for calls in flight when they shut down, and for the server to be ready.
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);
pub const READY_WITHIN: Duration = Duration::from_secs(10);
/// After a look at a server that should be there, and is not.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// More connections than this are a mistake.
const WAITING_CONNECTIONS_MAX: usize = 10_000;
/// A name is part of every owner, which the server takes up to 512 bytes of.
const NAME_MAX: usize = 256;

/// What to connect to, and how. Omitted fields have their defaults. In files and other languages the URL is given apart, because it may
/// hold a password.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ConnectSettings {
    /// How the other processes know this one, 1 to 256 bytes: part of every owner, and the caller of breakers. A random one by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long a command may take before the server counts as not responding: 1 ms to 1 h; 1 s by default.
    #[serde(with = "span_text")]
    pub command_timeout: Duration,
    /// How many processes share the quotas: while the server is away, each grants its part of them. 1 by default, which lets
    /// each grant the whole; a limit that is `Local` then warns of it, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    /// How many connections may wait for locks and loads at once, 1 to 10,000; further waits wait in this process. 64 by default.
    pub waiting_connections: usize,
    /// [`connect`](Self::connect) fails, and says why, if the server cannot be reached. By default the client is away until it can.
    pub require_server: bool,
    #[serde(skip)]
    pub(crate) url: String,
    #[serde(skip)]
    pub(crate) clock: Clock,
    /// Where the pauses before another attempt come from.
    #[serde(skip)]
    pub(crate) random: Arc<Random>,
    /// Where the connection is kept; see `background`.
    #[serde(skip)]
    pub(crate) runtime: Option<Handle>,
    #[serde(skip)]
    pub(crate) on_notice: Option<Arc<OnNotice>>,
    /// Which SDK this is, in the list of clients of the server.
    #[serde(skip)]
    pub(crate) sdk: &'static str,
    #[serde(skip)]
    pub(crate) home: Home,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            name: None,
            command_timeout: Duration::from_secs(1),
            instances: None,
            waiting_connections: 64,
            require_server: false,
            url: String::new(),
            clock: Clock::system(),
            random: Arc::default(),
            runtime: None,
            on_notice: None,
            sdk: "resil-rust",
            home: None,
        }
    }
}

/// Without the URL, which may hold a password.
impl std::fmt::Debug for ConnectSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, command_timeout, instances, waiting_connections, require_server, clock, .. } = self;
        f.debug_struct("ConnectSettings")
            .field("name", name)
            .field("command_timeout", command_timeout)
            .field("instances", instances)
            .field("waiting_connections", waiting_connections)
            .field("require_server", require_server)
            .field("clock", clock)
            .finish_non_exhaustive()
    }
}

setters! { ConnectSettings { command_timeout: Duration, waiting_connections: usize } { instances: u32 } }

/// Connects with the default settings, as [`ConnectSettings::connect`] does. See [`ConnectSettings::new`] for what `url` may be.
pub async fn connect(url: &str) -> Result<Client, Error> {
    ConnectSettings::new(url).connect().await
}

impl ConnectSettings {
    /// Where to:
    /// - `memory://`: the same state machines in this process; `memory://name` is shared by all who name it.
    /// - `redis://[user[:password]@]host[:port][/db]`, or `rediss://` over TLS.
    /// - `unix:///path[?db=n&user=name&pass=secret]`, also `redis+unix://`.
    /// - `redis+cluster://[user[:password]@]host:port,host:port`, or `rediss+cluster://`.
    /// - `redis+sentinel://[user[:password]@]host[:port],host[:port]/service[/db]`, or `rediss+sentinel://`. If the sentinels
    ///   have a password, `?sentinel_user=name&sentinel_pass=secret`.
    /// - `redis+quorum://[user[:password]@]host[:port],host[:port],host[:port][/db]`, or `rediss+quorum://`: 3 to 15 independent
    ///   servers, one user and one database for all, for exclusive locks that a majority of them grants.
    ///
    /// Characters such as `/ # ? @ :` in a password have to be percent-encoded. TLS trusts the roots of the system
    /// (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured); `#insecure` at the end of the URL trusts anybody, for tests.
    /// `?protocol=resp2` asks for the older protocol. A user needs the right to the commands that are used, and to HELLO.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// Another URL: see [`new`](Self::new).
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// Sets [`name`](Self#structfield.name).
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Pauses before another attempt are drawn from this seed, for tests: the same ones again, in the order they are needed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Arc::new(Random::seeded(seed));
        self
    }

    /// See the [field](Self#structfield.require_server).
    #[must_use]
    pub fn require_server(mut self) -> Self {
        self.require_server = true;
        self
    }

    /// Where the connection is kept and leases are renewed. By default this is a thread that all clients of the process share and that
    /// no code of yours runs on. A runtime named here must outlive the client, and must not run work that blocks its threads: leases
    /// could not be renewed meanwhile.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Calls `hear` when the server is away, and when it is back, and of an attempt that outlived its ticket: once each, beside the line in
    /// the log. It must not block: it runs where leases are renewed.
    pub fn on_notice(mut self, hear: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.on_notice = Some(Arc::new(hear));
        self
    }

    /// For the SDKs of other languages: how they are called in the list of clients of the server, and to which of their threads the
    /// client belongs.
    #[doc(hidden)]
    pub fn on_behalf_of(mut self, sdk: &'static str, home: Option<u64>) -> Self {
        (self.sdk, self.home) = (sdk, home);
        self
    }

    /// What `CLIENT LIST` shows of each connection: the name, or which SDK it is. The server takes printable characters without blanks.
    #[cfg(feature = "redis")]
    pub(crate) fn connection_name(&self) -> String {
        let own = || format!("{}/{}", self.sdk, env!("CARGO_PKG_VERSION"));
        let name = self.name.clone().unwrap_or_else(own);
        name.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { '_' }).collect()
    }

    /// Another clock than the machine's, for tests. Leases are then renewed on the runtime of the caller, which the test drives.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub fn validate(&self) -> Result<(), Error> {
        if self.name.as_ref().is_some_and(|name| !(1..=NAME_MAX).contains(&name.len())) {
            return Err(Error::invalid("name", format!("must have from 1 to {NAME_MAX} bytes")));
        }
        check_span("commandTimeout", self.command_timeout, Duration::from_millis(1), COMMAND_TIMEOUT_MAX)?;
        check_number("instances", self.instances.unwrap_or(1), 1, u32::MAX)?;
        check_number("waitingConnections", self.waiting_connections, 1, WAITING_CONNECTIONS_MAX)
    }

    /// Makes one attempt, of at most three seconds (and three command timeouts, if that is less and there is one server). A URL that cannot be used, a wrong password, a certificate that is not
    /// trusted and a server without the module are errors. If the server is away this is no error, unless
    /// [`require_server`](Self::require_server): the client is away, too (see [`Client::health`]), and connects as soon as the server is
    /// there, so that a service may start before it. One warning in the log names the address; [`Client::wait_ready`] waits.
    ///
    /// A connection that is lost is made again for ever, in the background: the first attempt comes within half a second, the
    /// others about a second apart, spread at random. Meanwhile calls fail at once, or do what their settings say for while the server is
    /// away; that covers every reason for which the server is no help, such as a changed password or a missing module.
    pub async fn connect(self) -> Result<Client, Error> {
        self.validate()?;
        let (scheme, rest) = self.url.split_once("://").unwrap_or_default();
        let backend = match scheme {
            "memory" => Backend::Memory(Memory::named(rest, self.clock.clone())),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" | "unix"
            | "redis+unix" => Backend::Redis(crate::backend::redis::Redis::connect(&self).await?),
            #[cfg(feature = "redis")]
            "redis+quorum" | "rediss+quorum" => {
                Backend::Quorum(Box::new(crate::backend::quorum::Quorum::connect(&self).await?))
            }
            _ => {
                let schemes =
                    "redis://, rediss://, redis+cluster://, redis+sentinel://, redis+quorum://, unix:// or memory://";
                let meant =
                    if self.url.starts_with("memory") { "; for one in this process it is memory://" } else { "" };
                return Err(Error::InvalidArgument(format!("the URL must begin with {schemes}{meant}")));
            }
        };
        Ok(Client::with_backend(backend, self))
    }
}

/// The handle from which limiters, breakers, locks and the rest are made. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Client(Arc<ClientInner>);

/// The same for a task that must not keep it.
#[derive(Clone)]
pub(crate) struct WeakClient(std::sync::Weak<ClientInner>);

impl WeakClient {
    pub fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(Client)
    }
}

pub(crate) struct ClientInner {
    pub backend: Backend,
    pub options: ConnectSettings,
    /// How the other processes know this one.
    pub name: Arc<str>,
    pub health: Registry,
    has_warned_of_instances: AtomicBool,
    /// What limiters share: who was denied, and the limits that are kept here while the server is away.
    pub limits: crate::limiter::LimiterShared,
    pub breakers: crate::breaker::Breakers,
    /// The stored policies that are followed.
    pub followed: crate::policies::followed::FollowedPolicies,
    /// What the server publishes about what is in use here.
    #[cfg(feature = "redis")]
    pub events: Arc<crate::events::Events>,
    /// Watchdogs, refreshes and whatever else runs beside the callers.
    pub tasks: TaskTracker,
    /// Locks and permits that are held, and who waits for them here.
    pub holdings: Holdings,
    /// Leases of idempotent runs and of loads.
    pub leases: Leases,
    /// What the server may have given to nobody, and has to hear of.
    pub insisting: crate::insisting::PendingGiveBacks,
    /// Idempotent work that is asked for or done here.
    pub runs: Sharing,
    /// What caches of one name share.
    pub caches: Caches,
    /// Set when nothing new is to begin. A task that keeps something alive (a watchdog) goes on until `stopped`.
    pub closing: CancellationToken,
    /// Set when what was in flight is done or cut off: watchdogs stop, then what is held is released.
    pub stopped: CancellationToken,
    /// Through which every call comes in, so that a shutdown knows whom to wait for.
    pub gate: Gate,
    pub shutdown: Shutdown,
}

/// Its name and its settings. Every handle has a client: what it knows of keys, locks and callers is not for logs.
impl std::fmt::Debug for ClientInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientInner").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn with_backend(backend: Backend, options: ConnectSettings) -> Self {
        let name = options.name.clone().unwrap_or_else(|| format!("{:016x}", rand::random::<u64>()));
        Self(Arc::new(ClientInner {
            backend,
            options,
            name: name.into(),
            health: Registry::default(),
            has_warned_of_instances: AtomicBool::new(false),
            limits: crate::limiter::LimiterShared::default(),
            breakers: crate::breaker::Breakers::default(),
            followed: crate::policies::followed::FollowedPolicies::default(),
            #[cfg(feature = "redis")]
            events: Arc::default(),
            tasks: TaskTracker::new(),
            holdings: Holdings::default(),
            leases: Leases::default(),
            insisting: crate::insisting::PendingGiveBacks::default(),
            runs: Sharing::default(),
            caches: Caches::default(),
            closing: CancellationToken::new(),
            stopped: CancellationToken::new(),
            gate: Gate::default(),
            shutdown: Shutdown::default(),
        }))
    }

    /// Set when the present caller has to stop waiting, because of a shutdown: later for what is part of a call in flight.
    pub(crate) fn patience(&self) -> &CancellationToken {
        self.0.gate.patience(&self.0.closing)
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.0))
    }

    pub(crate) fn inner(&self) -> &ClientInner {
        &self.0
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// A command that may wait, in the server's queue. Dropping this future leaves the queue; a grant that was on its way is
    /// given back.
    ///
    /// Its type is erased: it is deep, and callers' futures contain it.
    pub(crate) fn wait<'a>(
        &'a self,
        command: &'a Command<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send + 'a>> {
        #[cfg(feature = "redis")]
        self.listen_for_waits();
        Box::pin(self.backend().wait(command))
    }

    /// See [`ConnectSettings::on_behalf_of`].
    pub(crate) fn home(&self) -> Home {
        self.0.options.home
    }

    /// Reports it to hooks, and to `on_notice` of the settings.
    pub(crate) fn notify(&self, notice: &Notice) {
        notice.pass_on(self.home(), self.0.options.on_notice.as_deref());
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.options.clock
    }

    /// Whether the backend was there when it was last looked at. Costs nothing.
    pub(crate) fn is_away(&self) -> bool {
        *self.0.backend.reach().borrow() == Reach::Away
    }

    /// A quota is granted here while the server is away, and nobody said among how many processes it is to be divided.
    pub(crate) fn warn_of_whole_quotas(&self) {
        let ClientInner { backend, options, has_warned_of_instances, .. } = &*self.0;
        let is_known = options.instances.is_some() || matches!(backend, Backend::Memory(_));
        if !is_known && !has_warned_of_instances.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "while the server is away each process grants whole quotas: say ConnectSettings::instances, or when_away closed"
            );
        }
    }

    /// Returns when the server is away; never, if it never is.
    pub(crate) async fn goes_away(&self) {
        let mut reach = self.0.backend.reach();
        if reach.wait_for(|reach| *reach == Reach::Away).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// How everything made from this client is, and the whole of it. While the server is away: why, and since when.
    pub fn health(&self) -> Health {
        self.0.health.look(self.0.backend.why_away())
    }

    /// Returns when the server can be reached, or fails after `within` with the reason why it cannot.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let client = resil::connect("memory://").await?;
    /// client.wait_ready(std::time::Duration::from_secs(5)).await?;
    /// # Ok::<(), resil::Error>(()) }).unwrap();
    /// ```
    pub async fn wait_ready(&self, within: Duration) -> Result<(), Error> {
        let ready = async {
            let mut reach = self.0.backend.reach();
            loop {
                let here = reach.wait_for(|reach| *reach == Reach::Here).await;
                here.map(drop).map_err(|_| Error::BackendUnavailable("the client was closed"))?;
                // A call may have failed on a connection that is not known to be broken yet.
                if self.0.backend.is_reached().await {
                    return Ok(());
                }
                Clock::system().sleep(LOOK_AGAIN).await;
            }
        };
        tokio::select! {
            biased;
            ready = ready => ready,
            () = self.0.closing.cancelled() => Err(Error::ShuttingDown),
            // No time to look: what is known is said.
            () = self.clock().sleep(within), if within.is_zero() && !self.is_away() => Ok(()),
            () = self.clock().sleep(within) => {
                let late = || Error::BackendUnavailable("it could not be reached in time");
                Err(self.0.backend.why_away().map_or_else(late, |away| away.error))
            }
        }
    }
}
