//! Keeps the shared connection open: one task, for as long as the client lives.
//!
//! # The promise
//! Whether the server can be reached is known without anybody calling. While it cannot, calls fail at once; attempts to
//! reach it go on for ever. The first begins within [`FIRST_PAUSE_MAX`], the others [`PAUSE_MIN`] to [`PAUSE_MAX`] after the one
//! before, drawn at random: about one a second, spread so that a fleet does not come back all at once, and a server that
//! returns is noticed within two seconds. An attempt that gets no reply does not keep the next one waiting.
//!
//! # What counts as away
//! Everything for which a call could not be decided by the server: no connection, no reply, a replica, data that are being loaded, a
//! user or password that is not let in, a missing module. Where the connection is fine and only commands are refused (NOPERM,
//! MISCONF, a script that blocks), it is kept, and the last refusal is what `health` shows until a command is answered. The log has one
//! warning for each command that is refused, and one line when that command is answered again.
//!
//! # How a loss is noticed
//! By the first of these: the end of the connection, which RESP3 connections tell at once; a call that failed or was
//! not answered in time; a look at the server every [`LOOK_EVERY`], which also notices that it was demoted.
//!
//! # Silence is not the end
//! A server that stalls keeps its connections, and closing ours would end every holding that hangs on it. So after a
//! look that was not answered in time the backend is away, but the old connection is kept; when it replies after all, it is
//! the shared one again, and nothing was lost. If a new connection is answered and the old one is not, the old one is dead.
//!
//! Times are the machine's, never a driven clock's: no test can drive a server.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use resil_wire::command::Command;
use resil_wire::holding::Bind;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::late::LateWaits;
use super::link::{CONNECT_BOUND, Link, Session, open, untimed};
use super::node_waits::NodeConnections;
use super::trouble::{AWAY_AT_FIRST, CLOSED, PASSING, RUNTIME_ENDED, RUNTIME_ENDED_TEXT, Trouble};
use super::waiting::WaitingConnections;
use crate::backend::{Reach, WhyAway};
use crate::client::ConnectSettings;
use crate::error::Error;
use crate::health::{Notice, OnNotice};
use crate::policy::Random;
use crate::telemetry::{Home, LinkMeters};

/// Also keeps holdings bound to the connection alive, if their lease is three seconds or more.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_millis(1_500);
/// Attempts under way at once; each ends after [`CONNECT_BOUND`].
const ATTEMPTS_MAX: usize = 4;
/// How long the old connection may take to reply once a new one was answered.
const OLD_ONE_GRACE: Duration = Duration::from_millis(100);

pub(super) enum ConnectionState {
    Here(Arc<Session>),
    /// Why; calls get this error.
    Away(Error),
}

/// A server that is there and refused a command.
struct Refusal {
    why: WhyAway,
    last: Instant,
}

/// For how long nothing must be refused before the server counts as well again.
const STEADY: Duration = Duration::from_secs(1);

/// For so long a refusal counts if no command follows it: a service taken out of service by its health makes no calls, and
/// would never be well again.
const REFUSAL_FORGOTTEN: Duration = Duration::from_secs(5);

impl Refusal {
    fn is_recent(&self) -> bool {
        self.last.elapsed() < REFUSAL_FORGOTTEN
    }
}

/// What calls, waits and the supervisor share.
pub(super) struct SharedConnection {
    pub address: Address,
    pub command_timeout: Duration,
    pub random: Arc<Random>,
    pub waiting: WaitingConnections,
    pub late: LateWaits,
    pub nodes: NodeConnections,
    pub closing: CancellationToken,
    /// The background runtime of the client: every connection lives there.
    pub runtime: Handle,
    standing: ArcSwap<ConnectionState>,
    reach: watch::Sender<Reach>,
    alarm: Arc<Notify>,
    generations: AtomicU64,
    away_since: Mutex<Option<SystemTime>>,
    on_notice: Option<Arc<OnNotice>>,
    /// The last refusal, until a command is answered; the flag says whether there is one.
    refusal: Mutex<Option<Refusal>>,
    is_refused: AtomicBool,
    /// The commands whose refusal was said, until they are answered; the flag says whether there are any.
    refused_commands: Mutex<Vec<&'static str>>,
    has_refused_commands: AtomicBool,
    pub meters: LinkMeters,
    /// Whether it is counted as one that is away.
    is_counted_away: AtomicBool,
    home: Home,
    /// What the server shows of its connections.
    pub connection_name: Arc<str>,
}

/// A call after the supervisor has gone fails with that reason, also if it went with its runtime.
struct Supervised(Arc<SharedConnection>);

impl Drop for Supervised {
    fn drop(&mut self) {
        let Self(shared) = self;
        let why = if shared.closing.is_cancelled() { CLOSED } else { RUNTIME_ENDED };
        shared.publish(ConnectionState::Away(why));
        shared.count_away(false);
        shared.waiting.clear();
        shared.nodes.clear();
    }
}

impl SharedConnection {
    pub fn new(address: Address, options: &ConnectSettings, runtime: Handle) -> Self {
        Self {
            address,
            command_timeout: options.command_timeout,
            random: Arc::clone(&options.random),
            waiting: WaitingConnections::new(options.waiting_connections),
            late: LateWaits::default(),
            nodes: NodeConnections::default(),
            closing: CancellationToken::new(),
            runtime,
            standing: ArcSwap::from_pointee(ConnectionState::Away(AWAY_AT_FIRST)),
            reach: watch::Sender::new(Reach::Away),
            alarm: Arc::new(Notify::new()),
            generations: AtomicU64::new(0),
            away_since: Mutex::new(Some(SystemTime::now())),
            on_notice: options.on_notice.clone(),
            refusal: Mutex::default(),
            is_refused: AtomicBool::new(false),
            refused_commands: Mutex::default(),
            has_refused_commands: AtomicBool::new(false),
            meters: LinkMeters::new(options.name.as_deref()),
            is_counted_away: AtomicBool::new(false),
            home: options.home,
            connection_name: options.connection_name().into(),
        }
    }

    /// The shared connection, or why there is none.
    pub fn session(&self) -> Result<Arc<Session>, Error> {
        match &**self.standing.load() {
            ConnectionState::Here(session) => Ok(Arc::clone(session)),
            ConnectionState::Away(error) => Err(error.clone()),
        }
    }

    /// What calls go over, or why there is nothing to go over. Takes no lock.
    pub fn link(&self) -> Result<Link, Error> {
        match &**self.standing.load() {
            ConnectionState::Here(session) => Ok(session.link.clone()),
            ConnectionState::Away(error) => Err(error.clone()),
        }
    }

    /// The number of the shared connection, if there is one. Takes no lock.
    pub fn bind(&self) -> Bind {
        match &**self.standing.load() {
            ConnectionState::Here(session) => session.bind,
            ConnectionState::Away(_) => Bind::None,
        }
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Why the server is no help, if it is none.
    pub fn why_away(&self) -> Option<WhyAway> {
        match &**self.standing.load() {
            ConnectionState::Here(_) => {
                self.refusal.lock().as_ref().filter(|refusal| refusal.is_recent()).map(|refusal| refusal.why.clone())
            }
            ConnectionState::Away(error) => {
                Some(WhyAway { error: error.clone(), since: self.away_since.lock().unwrap_or_else(SystemTime::now) })
            }
        }
    }

    /// Something is not right with `command`: have a look.
    pub fn suspect(&self, trouble: &Trouble, command: &Command<'_>) {
        match trouble {
            Trouble::Demoted | Trouble::Unwell(_) | Trouble::Gone(_) | Trouble::Late => self.alarm.notify_one(),
            Trouble::Refused(error @ (Error::PermissionDenied(_) | Error::ModuleMissing)) => {
                self.refused(error.clone(), command.name());
                self.alarm.notify_one();
            }
            Trouble::Later(why) => self.refused(Error::BackendUnavailable(why), command.name()),
            Trouble::Refused(_)
            | Trouble::Deadlock
            | Trouble::Moved { .. }
            | Trouble::Ask { .. }
            | Trouble::AskAgain => {}
        }
    }

    fn refused(&self, error: Error, command: &'static str) {
        if !PASSING.contains(&&*error.why_away()) {
            self.say_refused(&error, command);
        }
        let mut refusal = self.refusal.lock();
        let before = refusal.as_ref().filter(|before| before.is_recent());
        let since = before.map_or_else(SystemTime::now, |before| before.why.since);
        *refusal = Some(Refusal { why: WhyAway { error, since }, last: Instant::now() });
        self.is_refused.store(true, Relaxed);
    }

    fn say_refused(&self, error: &Error, command: &'static str) {
        let mut refused = self.refused_commands.lock();
        if !refused.contains(&command) {
            refused.push(command);
            drop(refused);
            self.has_refused_commands.store(true, Relaxed);
            let reason = format!("{command} is refused: {}", error.why_away());
            tracing::warn!(address = %self.address, reason, "the server refuses a command");
            self.pass_on(&Notice::Refused { address: self.address.to_string(), reason });
        }
    }

    #[cold]
    fn say_answered(&self, command: &'static str) {
        let mut refused = self.refused_commands.lock();
        let Some(at) = refused.iter().position(|name| *name == command) else { return };
        refused.swap_remove(at);
        let is_last = refused.is_empty();
        drop(refused);
        tracing::info!(address = %self.address, command, "the server replies to a command again");
        if is_last {
            self.has_refused_commands.store(false, Relaxed);
            self.pass_on(&Notice::Back { address: self.address.to_string() });
        }
    }

    /// `command` was answered. That ends a refusal once none has come for [`STEADY`]: where only some commands are refused, the
    /// others must not make it look well in between.
    #[inline]
    pub fn answered(&self, command: &Command<'_>) {
        if self.has_refused_commands.load(Relaxed) {
            self.say_answered(command.name());
        }
        if self.is_refused.load(Relaxed) {
            let mut refusal = self.refusal.lock();
            if refusal.as_ref().is_none_or(|refusal| refusal.last.elapsed() >= STEADY) {
                self.is_refused.store(false, Relaxed);
                *refusal = None;
            }
        }
    }

    /// Runs `connecting` on the background runtime, so that whatever it spawns lives there; dropped, it stops.
    pub async fn spawn<T: Send + 'static>(
        &self,
        connecting: impl Future<Output = Result<T, Trouble>> + Send + 'static,
    ) -> Result<T, Trouble> {
        let connected = AbortOnDropHandle::new(self.runtime.spawn(connecting)).await;
        // It does not panic, so its runtime has ended.
        connected.unwrap_or(Err(Trouble::Gone(RUNTIME_ENDED_TEXT)))
    }

    /// One more connection, for a wait.
    pub async fn one_more(&self, client: redis::Client) -> Result<MultiplexedConnection, Trouble> {
        let name = Arc::clone(&self.connection_name);
        self.spawn(async move {
            let mut connection = client.get_multiplexed_async_connection_with_config(&untimed()).await?;
            let mut naming = redis::cmd("CLIENT");
            // A user who may not has a connection without a name.
            let _ = connection.send_packed_command(naming.arg("SETNAME").arg(&*name)).await;
            Ok(connection)
        })
        .await
    }

    /// How long the first attempt may take, for which the caller waits. A server is reached in three steps, each of which is answered within
    /// the command timeout; a second is left for handshakes. Sentinels and nodes of clusters are asked in turn, each with a bound of its own.
    pub fn first_bound(&self) -> Duration {
        match self.address {
            Address::Server(_) => (3 * self.command_timeout).clamp(Duration::from_secs(1), CONNECT_BOUND),
            Address::Sentinel(_) | Address::Cluster(_) => CONNECT_BOUND,
        }
    }

    pub async fn open(&self) -> Result<Arc<Session>, Trouble> {
        let generation = self.generations.fetch_add(1, Relaxed) + 1;
        open(&self.address, &self.connection_name, generation, self.command_timeout, &self.alarm).await.map(Arc::new)
    }

    pub fn publish(&self, standing: ConnectionState) {
        let reach = match &standing {
            ConnectionState::Here(_) => Reach::Here,
            ConnectionState::Away(_) => Reach::Away,
        };
        let mut since = self.away_since.lock();
        *since = if reach == Reach::Here { None } else { since.or_else(|| Some(SystemTime::now())) };
        drop(since);
        // First the state, then the notification: a task that wakes finds it.
        self.standing.store(Arc::new(standing));
        self.reach.send_replace(reach);
    }

    /// Once for each time: with the address, and never a password.
    pub fn say_away(&self, reason: &str, what: &str) {
        tracing::warn!(address = %self.address, reason, "{what}");
        self.meters.gone_away.increment(1);
        self.count_away(true);
        self.pass_on(&Notice::Away { address: self.address.to_string(), reason: reason.to_owned() });
    }

    fn say_back(&self) {
        tracing::info!(address = %self.address, "the server is back");
        self.meters.reconnects.increment(1);
        self.count_away(false);
        self.pass_on(&Notice::Back { address: self.address.to_string() });
    }

    fn count_away(&self, is_away: bool) {
        if self.is_counted_away.swap(is_away, Relaxed) != is_away {
            self.meters.away.increment(if is_away { 1.0 } else { -1.0 });
        }
    }

    fn pass_on(&self, notice: &Notice) {
        notice.pass_on(self.home, self.on_notice.as_deref());
    }

    /// Runs until the client is closed.
    pub async fn supervise(self: Arc<Self>) {
        let supervised = Supervised(self);
        supervised.0.closing.run_until_cancelled(supervised.0.keep_connected()).await;
    }

    async fn keep_connected(&self) {
        loop {
            let silent = match self.session() {
                Err(_) => None,
                Ok(session) => {
                    let trouble = self.watch_over(&session).await;
                    let reason = trouble.clone().into_error(None).why_away();
                    self.say_away(&reason, "the server is away");
                    let is_silent = trouble == Trouble::Late;
                    self.publish(ConnectionState::Away(trouble.into_error(None)));
                    is_silent.then_some(session)
                }
            };
            let session = self.come_back(silent).await;
            self.say_back();
            self.publish(ConnectionState::Here(session));
        }
    }

    /// Returns when the connection cannot be relied on any more, and says why.
    async fn watch_over(&self, session: &Session) -> Trouble {
        loop {
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = self.alarm.notified() => {}
            }
            self.waiting.close_the_unused(session.generation);
            self.nodes.close_the_unused(session.generation);
            match timeout(self.command_timeout, session.link.look()).await {
                Ok(Ok(())) => {}
                Ok(Err(trouble)) => return trouble,
                Err(_) => return Trouble::Late,
            }
        }
    }

    /// A connection that is answered: a new one, or `silent` if it speaks again.
    async fn come_back(&self, silent: Option<Arc<Session>>) -> Arc<Session> {
        let mut old: Silent = silent.map(|session| {
            let link = session.link.clone();
            (session, Box::pin(async move { link.look().await }) as _)
        });
        let mut attempts = FuturesUnordered::new();
        let mut next = pin!(sleep(FIRST_PAUSE_MAX.mul_f64(self.random.unit())));
        loop {
            tokio::select! {
                biased;
                looked = look_again(&mut old), if old.is_some() => match (looked, old.take()) {
                    (Ok(()), Some((session, _))) => return session,
                    // It is dead. The pause is not waited for: somebody answered just now.
                    _ => next.as_mut().reset(Instant::now()),
                },
                Some(opened) = attempts.next(), if !attempts.is_empty() => match opened {
                    Ok(new) => {
                        let replies = timeout(OLD_ONE_GRACE, look_again(&mut old)).await;
                        return match (replies, old) {
                            (Ok(Ok(())), Some((session, _))) => session,
                            _ => new,
                        };
                    }
                    Err(trouble) => {
                        let error: Error = Trouble::into_error(trouble, None);
                        tracing::debug!(reason = %error, "an attempt to reach the server failed");
                        self.standing.store(Arc::new(ConnectionState::Away(error)));
                    }
                },
                () = &mut next => {
                    if attempts.len() < ATTEMPTS_MAX {
                        attempts.push(self.open());
                    }
                    let pause = PAUSE_MIN + (PAUSE_MAX - PAUSE_MIN).mul_f64(self.random.unit());
                    next.as_mut().reset(Instant::now() + pause);
                }
            }
        }
    }
}

/// A connection that fell silent, and the look at it that was not answered yet.
type Silent = Option<(Arc<Session>, Pin<Box<dyn Future<Output = Result<(), Trouble>> + Send>>)>;

/// Returns when the silent one says something, if there is one.
async fn look_again(old: &mut Silent) -> Result<(), Trouble> {
    match old {
        Some((_, look)) => look.await,
        None => std::future::pending().await,
    }
}
