//! A server.
//!
//! # The promise
//! - [`call`](Redis::call) goes over one shared connection, on which any number of calls are under way at once. It is
//!   answered, or fails, within the command timeout; while the server is away it fails at once.
//! - [`wait`](Redis::wait) waits in the server's queue, without a connection of its own where that is possible; see [`late`].
//! - The connection is kept by a task on the client's background runtime; see [`supervisor`]. Nothing is ever asked twice behind a caller's back on
//!   the shared connection of a single server: a call that failed may have had its effect.
//!
//! # Connecting
//! One attempt is made, of at most three seconds; of a single server also of at most three command timeouts, and a second at least. A URL that cannot be used, a wrong password, a certificate that is not
//! trusted and a server without the module are errors at once. If the server is away, so is the client, and it connects when the server is there, unless a server is required: a service
//! may start before its Redis.
//!
//! # The map
//! [`address`]: what a URL says. [`link`]: making a connection and trusting it. [`connection`]: the one that everybody shares, and
//! [`resp`]: what is spoken over it. [`supervisor`]: keeping it. [`waiting`]:
//! waits, on connections of their own, or without one: [`late`], in a cluster [`node_waits`]. [`subscription`]: what the server publishes. [`slots`]: which node of a cluster waits go to. [`scanning`]: which keys there are. [`plain`]: commands of the server itself. [`speech`]: words and values. [`trouble`]: errors.

mod address;
mod connection;
pub(crate) mod key_server;
pub(crate) mod late;
mod link;
pub(crate) mod lost;
mod node_waits;
mod plain;
mod resp;
mod safety;
mod scanning;
mod slots;
mod speech;
pub(crate) mod subscription;
mod supervisor;
#[cfg(test)]
mod tests;
mod trouble;
mod waiting;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::Bind;
use resil_wire::reply::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{self, JoinHandle};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::context::TokioContext;

use self::address::Address;
use self::connection::CallerGone;
use self::late::LateWaits;
use self::link::Door;
use self::supervisor::{ConnectionState, SharedConnection};
pub(crate) use self::trouble::TOO_FAR_AHEAD;
use self::trouble::Trouble;
use super::{Reach, WhyAway};
use crate::client::ConnectSettings;
use crate::error::Error;
use crate::telemetry::LinkMeters;

pub(crate) struct Redis {
    shared: Arc<SharedConnection>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reach = *self.shared.reach().borrow();
        f.debug_struct("Redis").field("address", &self.shared.address).field("reach", &reach).finish()
    }
}

impl Redis {
    pub async fn connect(options: &ConnectSettings) -> Result<Self, Error> {
        let address = Address::parse(&options.url)?;
        let Some(runtime) = options.background() else {
            return Err(Error::BackendUnavailable("no thread could be started for the connection"));
        };
        let shared = Arc::new(SharedConnection::new(address, options, runtime.clone()));
        let first = Arc::clone(&shared);
        let bound = shared.first_bound();
        let opening = async move { timeout(bound, first.open()).await.unwrap_or(Err(Trouble::Late)) };
        match shared.spawn(opening).await {
            Ok(session) => shared.publish(ConnectionState::Here(session)),
            Err(trouble) if trouble.is_final() => return Err(trouble.into_error(None)),
            Err(trouble) if options.require_server => return Err(trouble.into_error(None)),
            Err(trouble) => {
                let error = trouble.into_error(None);
                // Once, with the address: a mistyped host would be silent otherwise.
                let reason = error.why_away();
                shared.say_away(&reason, "the server cannot be reached; it is tried again about once a second");
                shared.publish(ConnectionState::Away(error));
            }
        }
        let supervisor = runtime.spawn(Arc::clone(&shared).supervise());
        Ok(Self { shared, supervisor: Mutex::new(Some(supervisor)) })
    }

    /// Why nothing can be asked now, if so.
    pub fn require_link(&self) -> Result<(), Error> {
        self.shared.link().map(drop)
    }

    /// The number of the database.
    pub fn db(&self) -> i64 {
        self.shared.address.db()
    }

    pub fn call(&self, command: &Command<'_>) -> impl Future<Output = Result<Reply, Error>> {
        self.call_within(command, self.shared.command_timeout)
    }

    /// The same for what is worth nothing after `bound`.
    pub async fn call_within(&self, command: &Command<'_>, bound: Duration) -> Result<Reply, Error> {
        // Where it stays: each copy of it is a part of a call that one can measure.
        let asking = pin!(self.call_here(command, bound));
        if is_in_a_runtime() { asking.await } else { self.outside(asking).await }
    }

    /// The same for what is asked of several servers at once: it is handed in before this returns. So it is on its way to the last of
    /// them also if the others reply before the future that is returned is polled.
    pub fn begin_within<'a>(
        &'a self,
        command: Command<'a>,
        bound: Duration,
    ) -> impl Future<Output = Result<Reply, Error>> + 'a {
        self.begin(command, bound, CallerGone::Forget)
    }

    /// The same with the bound of every call; it is sent although nobody may wait for the reply.
    pub fn begin_to_the_end<'a>(&'a self, command: Command<'a>) -> impl Future<Output = Result<Reply, Error>> + 'a {
        self.begin(command, self.shared.command_timeout, CallerGone::Send)
    }

    fn begin<'a>(
        &'a self,
        command: Command<'a>,
        bound: Duration,
        gone: CallerGone,
    ) -> impl Future<Output = Result<Reply, Error>> + 'a {
        let begun = self.shared.link().map(|link| {
            let round_trip = RoundTrip::begin(&self.shared.meters);
            (link.begin(&command, gone), round_trip)
        });
        async move {
            let (handed_in, round_trip) = begun?;
            let within = bound.min(self.shared.command_timeout);
            let asking = async {
                let heard = timeout(within, handed_in.reply(&command)).await;
                self.heard(&command, round_trip, heard)
            };
            if is_in_a_runtime() { asking.await } else { self.outside(asking).await }
        }
    }

    pub async fn wait(&self, command: &Command<'_>) -> Result<Reply, Error> {
        if is_in_a_runtime() { self.wait_here(command).await } else { self.outside(self.wait_here(command)).await }
    }

    /// Timers panic where there is no runtime: under another executor they are those of the background runtime.
    fn outside<T>(&self, future: impl Future<Output = T>) -> impl Future<Output = T> {
        TokioContext::new(future, self.shared.runtime.clone())
    }

    async fn call_here(&self, command: &Command<'_>, bound: Duration) -> Result<Reply, Error> {
        let mut link = self.shared.link()?;
        let round_trip = RoundTrip::begin(&self.shared.meters);
        let heard = timeout(bound.min(self.shared.command_timeout), link.ask(command)).await;
        self.heard(command, round_trip, heard)
    }

    fn heard(
        &self,
        command: &Command<'_>,
        round_trip: RoundTrip<'_>,
        heard: Result<Result<Value, Trouble>, Elapsed>,
    ) -> Result<Reply, Error> {
        let trouble = match heard {
            Ok(Ok(value)) => {
                round_trip.is_answered();
                self.shared.answered(command);
                return read(command, value);
            }
            Ok(Err(trouble)) => trouble,
            Err(_) => Trouble::Late,
        };
        self.shared.suspect(&trouble, command);
        Err(trouble.into_error(command.key()))
    }

    async fn wait_here(&self, command: &Command<'_>) -> Result<Reply, Error> {
        match command.waits() {
            None => self.call_here(command, self.shared.command_timeout).await,
            Some(wait) => self.wait_for(command, wait).await,
        }
    }

    /// The number of the shared connection. None in a cluster, where there is one to every node, and while it is away.
    pub fn bind(&self) -> Bind {
        self.shared.bind()
    }

    pub fn is_cluster(&self) -> bool {
        let found = || self.shared.session().is_ok_and(|session| matches!(session.door, Door::Cluster(_)));
        matches!(self.shared.address, Address::Cluster(_)) || found()
    }

    /// Whether every caller can wait in the server's queue. Not while the server is away.
    pub fn queues_everybody(&self) -> bool {
        let Ok(session) = self.shared.session() else { return false };
        match &session.door {
            Door::Server(_) => self.shared.late.are_possible() && session.bind != Bind::None,
            Door::Cluster(seed) => self.shared.nodes.are_possible(seed),
        }
    }

    /// Somebody listens for verdicts. In a cluster nobody does, of a key that nobody waited for.
    pub fn hears_waits(&self) -> bool {
        self.shared.session().is_ok_and(|session| self.shared.late.are_heard_now(session.generation))
    }

    /// Waits that need no connection of their own.
    pub fn late(&self) -> &LateWaits {
        &self.shared.late
    }

    pub fn why_away(&self) -> Option<WhyAway> {
        self.shared.why_away()
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.shared.reach()
    }

    /// Whether the server is reached at this moment: what [`reach`](Self::reach) says may be a moment old.
    pub async fn is_reached(&self) -> bool {
        let Ok(link) = self.shared.link() else { return false };
        let within = self.shared.command_timeout;
        let look = async move { tokio::time::timeout(within, link.look()).await.unwrap_or(Err(Trouble::Late)) };
        self.shared.spawn(look).await.is_ok()
    }

    /// Ends waits, closes every connection, and returns when that is done. Calls under way may still be answered.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let supervisor = self.supervisor.lock().take();
        if let Some(supervisor) = supervisor {
            // It ends by itself; if its runtime ended before, so did it.
            let _ = supervisor.await;
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.shared.closing.cancel();
    }
}

/// A command whose reply is waited for.
struct RoundTrip<'a> {
    meters: &'a LinkMeters,
    /// Of one command in [`TIMED_ONE_IN`]: to read a clock twice is a part of a call that one can measure.
    begun: Option<Instant>,
}

const TIMED_ONE_IN: u32 = 16;

impl<'a> RoundTrip<'a> {
    fn begin(meters: &'a LinkMeters) -> Self {
        meters.in_flight.increment(1.0);
        let is_timed = meters.asked.fetch_add(1, Relaxed).is_multiple_of(TIMED_ONE_IN);
        Self { meters, begun: is_timed.then(Instant::now) }
    }

    fn is_answered(&self) {
        if let Some(begun) = self.begun {
            self.meters.round_trip.record(begun.elapsed());
        }
    }
}

impl Drop for RoundTrip<'_> {
    fn drop(&mut self) {
        self.meters.in_flight.decrement(1.0);
    }
}

fn is_in_a_runtime() -> bool {
    // In a task there is one, and that is known without a count of references.
    task::try_id().is_some() || Handle::try_current().is_ok()
}

fn read(command: &Command<'_>, value: Value) -> Result<Reply, Error> {
    command.read(value).map_err(|unexpected| Error::Internal(unexpected.to_string()))
}
