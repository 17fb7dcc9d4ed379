//! Commands that wait: [without a connection](super::late) where somebody can listen, or each on a connection that nobody else
//! needs meanwhile.
//!
//! # The promise
//! - At most as many wait at the server as there may be waiting connections. The others wait here, first come first
//!   served; a call whose time passes here asks once, without waiting, and gets that reply.
//! - A connection is used again after a clean reply and closed after anything else. Dropping a wait closes its
//!   connection: the server takes the waiter out of the queue, or the grant back.
//! - A wait that is cut off (the connection breaks, a node fails over, a key moves) is asked again for what is left of
//!   its time. That is safe: every command that waits is, asked again by the same owner, the same question. If the server
//!   does not come back within [`PATIENCE`] the wait fails; one that begins while it is away fails at once.
//!
//! # Holdings that hang on the shared connection
//! When that connection is replaced, a grant that hangs on the old one ends the moment it is made. So a call that waits then
//! asks again, bound to the new one, on another connection; the server moves the position in the queue over, which is why
//! the first connection is kept until the second one is answered. A grant that came in just then is asked for again, too.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo};
use resil_core::Span;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, Wait};
use resil_wire::reply::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::address::at;
use super::late::Leaving;
use super::link::{Door, Session};
use super::node_waits::NodeConnection;
use super::slots::Slots;
use super::speech::{packed, understood};
use super::supervisor::SharedConnection;
use super::trouble::{CLOSED, Trouble, judged};
use super::{Redis, is_in_a_runtime, read};
use crate::backend::Reach;
use crate::error::Error;

/// How long a wait that was cut off waits for the server to come back.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The server times a WAIT; its reply may be on its way for as long as any other, and a little more.
pub(super) const SLACK: Duration = Duration::from_millis(250);
const PAUSE_BASE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Connections that nobody used for so long are closed.
const UNUSED_MAX: Duration = Duration::from_secs(30);

/// The connections, and the queue for them.
pub(super) struct WaitingConnections {
    pub places: Semaphore,
    unused: Mutex<Vec<Unused>>,
    pub slots: Slots,
}

struct Unused {
    connection: MultiplexedConnection,
    generation: u64,
    /// The node of a cluster; empty for a single server.
    node: String,
    since: Instant,
}

impl WaitingConnections {
    pub fn new(connections: usize) -> Self {
        let places = Semaphore::new(connections.min(Semaphore::MAX_PERMITS));
        Self { places, unused: Mutex::default(), slots: Slots::default() }
    }

    /// The end: nothing is kept from here on.
    pub fn clear(&self) {
        self.places.close();
        self.unused.lock().clear();
    }

    pub fn close_the_unused(&self, generation: u64) {
        let is_worth_it = |unused: &Unused| unused.generation == generation && unused.since.elapsed() < UNUSED_MAX;
        self.unused.lock().retain(is_worth_it);
    }

    fn take(&self, generation: u64, node: &str) -> Option<MultiplexedConnection> {
        let mut unused = self.unused.lock();
        // The last one used first: the others grow old and go.
        let index = unused.iter().rposition(|unused| unused.generation == generation && unused.node == node)?;
        Some(unused.remove(index).connection)
    }

    pub fn put_back(&self, connection: MultiplexedConnection, generation: u64, node: String) {
        let mut unused = self.unused.lock();
        if !self.places.is_closed() {
            unused.push(Unused { connection, generation, node, since: Instant::now() });
        }
    }
}

/// How asking once went.
pub(super) enum WaitOutcome {
    Answered(Value),
    Trouble(Trouble),
    /// The shared connection was replaced.
    Rebound,
    Over(Error),
}

/// A connection that was asked on, and is kept until the next one is answered: with it the position in the queue would go.
#[allow(dead_code, reason = "kept, not read")]
pub(super) enum EarlierConnection {
    Apart(MultiplexedConnection),
    Node(Arc<NodeConnection>),
}

impl Redis {
    pub(super) async fn wait_for(&self, command: &Command<'_>, wait: Span) -> Result<Reply, Error> {
        let shared = &*self.shared;
        let deadline = Instant::now() + Duration::from_micros(u64::try_from(wait.as_us()).unwrap_or_default());
        let session = shared.session()?;
        let is_late = match &session.door {
            Door::Server(_) => shared.late.are_heard(session.generation).await,
            Door::Cluster(seed) => shared.nodes.can_wait(seed, command),
        };
        if is_late {
            let reply = self.wait_late(command, deadline).await;
            if reply.is_ok() || !shared.nodes.were_refused() {
                return reply;
            }
        }
        let place = tokio::select! {
            place = timeout_at(deadline, shared.waiting.places.acquire()) => place,
            () = shared.closing.cancelled() => return Err(CLOSED),
        };
        let Ok(Ok(_place)) = place else { return self.call(&rewritten(command, Wait::NONE, self.bind())).await };
        // A wait that was cut off before had the patience; the whole queue need not have it again, one after another.
        shared.session()?;
        let asking = WaitingCommand::new(shared, command, deadline);
        tokio::select! {
            reply = asking.until_answered() => reply,
            () = shared.closing.cancelled() => Err(CLOSED),
        }
    }
}

impl Redis {
    /// The command, on a connection that waits are made on. In a cluster over the shared ones: they are made anew by themselves.
    pub async fn call_apart(&self, command: &Command<'_>, bound: Duration) -> Result<Reply, Error> {
        let asking = self.call_apart_here(command, bound);
        if is_in_a_runtime() { asking.await } else { self.outside(asking).await }
    }

    async fn call_apart_here(&self, command: &Command<'_>, bound: Duration) -> Result<Reply, Error> {
        let shared = &*self.shared;
        let session = shared.session()?;
        if let Door::Cluster(_) = session.door {
            return self.call(command).await;
        }
        let mut asking = WaitingCommand::new(shared, command, Instant::now() + bound);
        let deadline = asking.deadline;
        let asked = async {
            let _place = shared.waiting.places.acquire().await.map_err(|_| Trouble::Gone("the client was closed"))?;
            let (mut connection, node) = asking.connection(&session).await?;
            let reply = judged(connection.send_packed_command(&packed(command)).await)?;
            shared.waiting.put_back(connection, session.generation, node);
            Ok::<_, Trouble>(reply)
        };
        match timeout_at(deadline, asked).await.unwrap_or(Err(Trouble::Late)) {
            Ok(reply) => read(command, understood(reply)),
            Err(trouble) => Err(trouble.into_error(command.key())),
        }
    }
}

pub(super) struct WaitingCommand<'a, 'c> {
    pub shared: &'a SharedConnection,
    pub command: &'a Command<'c>,
    pub deadline: Instant,
    pub reach: watch::Receiver<Reach>,
    /// This once there, since the key is on its way.
    pub redirected_to: Option<String>,
    /// Waits without a connection of its own, and leaves the queue when it is dropped.
    pub leaving: Option<Leaving<'a, 'c>>,
    /// See above.
    pub earlier: Option<EarlierConnection>,
}

impl<'a, 'c> WaitingCommand<'a, 'c> {
    /// On a connection of its own.
    pub fn new(shared: &'a SharedConnection, command: &'a Command<'c>, deadline: Instant) -> Self {
        let reach = shared.reach();
        Self { shared, command, deadline, reach, redirected_to: None, leaving: None, earlier: None }
    }

    pub async fn until_answered(mut self) -> Result<Reply, Error> {
        let mut in_trouble_since: Option<Instant> = None;
        let mut pause_max = PAUSE_BASE;
        loop {
            let session = self.session().await?;
            let begun = Instant::now();
            let trouble = match self.ask(&session).await {
                WaitOutcome::Answered(value) => {
                    self.shared.answered(self.command);
                    if let Some(leaving) = self.leaving.take() {
                        leaving.settle();
                    }
                    return read(self.command, value);
                }
                WaitOutcome::Over(error) => return Err(error),
                WaitOutcome::Rebound => continue,
                WaitOutcome::Trouble(trouble) => trouble,
            };
            self.shared.suspect(&trouble, self.command);
            let is_cluster = matches!(session.door, Door::Cluster(_));
            match &trouble {
                Trouble::Refused(_) | Trouble::Deadlock | Trouble::Late => {
                    return Err(trouble.into_error(self.command.key()));
                }
                Trouble::Moved { slot, node } if is_cluster => self.shared.waiting.slots.learn(*slot, node.clone()),
                Trouble::Ask { node } if is_cluster => self.redirected_to = Some(node.clone()),
                Trouble::Moved { .. } | Trouble::Ask { .. } => return Err(trouble.into_error(None)),
                Trouble::Demoted | Trouble::Unwell(_) | Trouble::Gone(_) | Trouble::Later(_) | Trouble::AskAgain => {
                    self.shared.waiting.slots.forget();
                }
            }
            // Having waited in the queue for a while means that it went well until now.
            if begun.elapsed() > PATIENCE {
                (in_trouble_since, pause_max) = (None, PAUSE_BASE);
            }
            let since = *in_trouble_since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE || Instant::now() >= self.deadline {
                return Err(trouble.into_error(self.command.key()));
            }
            if !matches!(trouble, Trouble::Moved { .. } | Trouble::Ask { .. }) || pause_max > PAUSE_BASE {
                sleep(pause_max.mul_f64(self.shared.random.unit()).min(self.left())).await;
            }
            pause_max = (pause_max * 2).min(PAUSE_MAX);
        }
    }

    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The shared connection, when there is one again.
    async fn session(&mut self) -> Result<Arc<Session>, Error> {
        let bound = (Instant::now() + PATIENCE).min(self.deadline);
        loop {
            match self.shared.session() {
                Ok(session) => return Ok(session),
                Err(error) => {
                    if !matches!(timeout_at(bound, self.reach.changed()).await, Ok(Ok(()))) {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn ask(&mut self, session: &Session) -> WaitOutcome {
        if self.leaving.is_some() { self.ask_late(session).await } else { self.ask_apart(session).await }
    }

    async fn ask_apart(&mut self, session: &Session) -> WaitOutcome {
        let (mut connection, node) = match timeout(super::link::CONNECT_BOUND, self.connection(session)).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(trouble)) => return WaitOutcome::Trouble(trouble),
            Err(_) => return WaitOutcome::Trouble(Trouble::Gone("no connection for waiting could be made in time")),
        };
        let left = self.left();
        let command = rewritten(self.command, Wait::blocked(as_span(left)), session.bind);
        let is_bound = matches!(bind_of(&command), Bind::To { .. });
        let bound = left + self.shared.command_timeout + SLACK;
        let packed = packed(&command);
        let answered = tokio::select! {
            reply = timeout(bound, connection.send_packed_command(&packed)) => Ok(reply),
            over = is_over(self.shared, &mut self.reach, session.generation) => Err(over),
        };
        match answered {
            Err(Ok(())) => {
                self.earlier = Some(EarlierConnection::Apart(connection));
                WaitOutcome::Rebound
            }
            Err(Err(error)) => WaitOutcome::Over(error),
            Ok(Err(_)) => WaitOutcome::Trouble(Trouble::Late),
            Ok(Ok(reply)) => match judged(reply) {
                Ok(_) if is_bound && !self.is_current(session) => {
                    self.earlier = Some(EarlierConnection::Apart(connection));
                    WaitOutcome::Rebound
                }
                Ok(value) => {
                    self.shared.waiting.put_back(connection, session.generation, node);
                    WaitOutcome::Answered(understood(value))
                }
                Err(trouble) => WaitOutcome::Trouble(trouble),
            },
        }
    }

    pub fn is_current(&self, session: &Session) -> bool {
        self.shared.session().is_ok_and(|now| now.generation == session.generation)
    }

    /// A connection to where the key is, and which node that is.
    pub async fn connection(&mut self, session: &Session) -> Result<(MultiplexedConnection, String), Trouble> {
        let waiting = &self.shared.waiting;
        let seed = match &session.door {
            Door::Server(client) => {
                return Ok(match waiting.take(session.generation, "") {
                    Some(connection) => (connection, String::new()),
                    None => (self.shared.one_more(client.clone()).await?, String::new()),
                });
            }
            Door::Cluster(seed) => seed,
        };
        let (node, is_asking) = match self.redirected_to.take() {
            Some(node) => (node, true),
            None => (self.owner(session).await?, false),
        };
        let mut connection = match waiting.take(session.generation, &node) {
            Some(connection) => connection,
            None => self.shared.one_more(redis::Client::open(info_of(&node, seed)?)?).await?,
        };
        if is_asking {
            judged(connection.send_packed_command(&redis::cmd("ASKING")).await)?;
        }
        Ok((connection, node))
    }

    /// The node of a cluster that has the key.
    pub async fn owner(&self, session: &Session) -> Result<String, Trouble> {
        self.shared.waiting.slots.owner(self.command.key().unwrap_or_default(), &session.link).await
    }
}

/// How a node of a cluster is reached, given how another one is.
pub(super) fn info_of(node: &str, seed: &ConnectionInfo) -> Result<ConnectionInfo, Trouble> {
    let (host, port) = node.rsplit_once(':').unwrap_or((node, ""));
    let port = port.parse().map_err(|_| Trouble::Later("a node has no port"))?;
    match (host, seed.addr()) {
        // It does not know its name; it is where the others are.
        ("", ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => Ok(at(seed, host, port)),
        ("", _) => Err(Trouble::Later("a node has no name")),
        (host, _) => Ok(at(seed, host, port)),
    }
}

/// Returns when another shared connection is there than the one of `generation`; fails when there is none for too long.
pub(super) async fn is_over(
    shared: &SharedConnection,
    reach: &mut watch::Receiver<Reach>,
    generation: u64,
) -> Result<(), Error> {
    let mut away_since: Option<Instant> = None;
    loop {
        let has_changed = match shared.session() {
            Ok(session) if session.generation != generation => return Ok(()),
            Ok(_) => {
                away_since = None;
                reach.changed().await.is_ok()
            }
            Err(error) => {
                let bound = *away_since.get_or_insert_with(Instant::now) + PATIENCE;
                match timeout_at(bound, reach.changed()).await {
                    Ok(changed) => changed.is_ok(),
                    Err(_) => return Err(error),
                }
            }
        };
        if !has_changed {
            return Err(CLOSED);
        }
    }
}

pub(super) fn as_span(left: Duration) -> Span {
    Span::from_us(i64::try_from(left.as_micros()).unwrap_or(i64::MAX))
}

/// The same question, for `wait` and bound to `bind` if it is to be bound at all.
pub(super) fn rewritten<'a>(command: &Command<'a>, wait: Wait, bind: Bind) -> Command<'a> {
    let mut command = command.clone();
    let (old_wait, old_bind) = match &mut command {
        Command::LockAcquire(call) => (&mut call.wait, &mut call.bind),
        Command::BulkheadEnter(call) => (&mut call.wait, &mut call.bind),
        Command::IdempBegin(call) => (&mut call.wait, &mut call.bind),
        Command::FlightJoin(call) => (&mut call.wait, &mut call.bind),
        Command::DlqTake(call) => (&mut call.wait, &mut call.bind),
        // A ticket ends by its lease alone.
        Command::GuardEnter(call) => {
            call.wait = wait;
            return command;
        }
        _ => return command,
    };
    *old_wait = wait;
    if let Bind::To { grace, .. } = *old_bind {
        *old_bind = bind.with_grace(grace);
    }
    command
}

pub(super) fn bind_of(command: &Command<'_>) -> Bind {
    match command {
        Command::LockAcquire(call) => call.bind,
        Command::BulkheadEnter(call) => call.bind,
        Command::IdempBegin(call) => call.bind,
        Command::FlightJoin(call) => call.bind,
        Command::DlqTake(call) => call.bind,
        _ => Bind::None,
    }
}
