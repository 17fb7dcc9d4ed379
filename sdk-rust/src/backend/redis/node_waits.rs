//! Waits in a cluster: one connection to each node carries all that this client waits for there.
//!
//! # The promise
//! - As for [a single server](super::late): every caller waits in the server's queue, and none needs a connection.
//! - The connection that asks is the one that listens, so a wait ends with it, and its grant is taken back. A channel has the slot
//!   of its key, so each hash tag is subscribed to once, before the first wait for it.
//! - A wait whose verdict may not be heard is asked again, as the same owner: when the connection ends or falls silent, and when the
//!   server ends the subscription because the slot has moved. The old connection is kept until then, and with it the position.
//!
//! # Nothing is unsubscribed from
//! The server ends subscriptions by itself when slots move, and what it says then looks like the reply to a question. So
//! no such question is asked: a connection that has [`CHANNELS_MAX`] channels takes no new waits, and closes with its last.
//!
//! # Large values
//! A server closes a connection with subscriptions when 32 MB of replies wait for it. So what may be answered by a value is first
//! asked for without waiting, elsewhere; that is also why most keys are never subscribed to.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ConnectionInfo, ProtocolVersion};
use resil_wire::command::Command;
use resil_wire::late;
use resil_wire::reply::Value;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Prefix, PushListener};
use super::late::{Verdict, WaitName, name_of, parsed};
use super::link::Link;
use super::supervisor::SharedConnection;
use super::trouble::{KEY_MOVES, Trouble};
use super::{link, resp};
use crate::error::Error;

/// So many hash tags are waited for on one connection.
const CHANNELS_MAX: usize = 1_000;
/// How often a connection is asked whether it is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection on which nobody waited for so long is closed.
const UNUSED_MAX: Duration = Duration::from_secs(30);
/// Before a user without the right to subscribe tries again: an operator may have granted it.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// The connections, by `host:port`.
#[derive(Default)]
pub(super) struct NodeConnections {
    nodes: Mutex<HashMap<String, Arc<OnceCell<Arc<NodeConnection>>>>>,
    refused: Arc<Mutex<Option<Instant>>>,
}

/// A connection to one node.
pub(super) struct NodeConnection {
    pub connection: Connection,
    client: u64,
    /// Of the shared connection it was opened beside.
    generation: u64,
    waits: Arc<ChannelWaits>,
    used: Mutex<Instant>,
    refused: Arc<Mutex<Option<Instant>>>,
    runtime: Handle,
}

/// The channels that are subscribed to, each with its waiters; `None` when nobody listens any more.
#[derive(Default)]
struct ChannelWaits(Mutex<Option<Channels>>);

type Channels = HashMap<Vec<u8>, HashMap<WaitName, oneshot::Sender<Verdict>>>;

/// A wait that is known here until it is dropped.
pub(super) struct NodeWait {
    node: Arc<NodeConnection>,
    channel: Vec<u8>,
    name: WaitName,
    verdict: oneshot::Receiver<Verdict>,
}

impl NodeConnections {
    /// Whether `command` can wait like this in the cluster of `seed`.
    pub fn can_wait(&self, seed: &ConnectionInfo, command: &Command<'_>) -> bool {
        self.are_possible(seed) && command.key().is_some_and(|key| late::channel_in_cluster(0, key).is_some())
    }

    /// The server can push, and this user may subscribe.
    pub fn are_possible(&self, seed: &ConnectionInfo) -> bool {
        seed.redis_settings().protocol() != ProtocolVersion::RESP2 && !self.were_refused()
    }

    pub fn were_refused(&self) -> bool {
        self.refused.lock().is_some_and(|refused| refused.elapsed() < REFUSED_PAUSE)
    }

    /// The connection to `node`, which is reached by `info`. All who ask at once wait for the same one.
    pub async fn to(
        &self,
        node: &str,
        info: ConnectionInfo,
        shared: &SharedConnection,
        generation: u64,
    ) -> Result<Arc<NodeConnection>, Trouble> {
        let cell = {
            let mut nodes = self.nodes.lock();
            let cell = nodes.entry(node.to_owned()).or_default();
            if cell.get().is_some_and(|node| node.generation != generation || !node.waits.have_capacity()) {
                *cell = Arc::default();
            }
            Arc::clone(cell)
        };
        let (refused, bound, closing) = (Arc::clone(&self.refused), shared.command_timeout, shared.closing.clone());
        let name = Arc::clone(&shared.connection_name);
        let opening = async move { NodeConnection::open(&info, &name, generation, refused, bound, closing).await };
        cell.get_or_try_init(|| shared.spawn(opening)).await.cloned()
    }

    /// Closes those that nobody needs.
    pub fn close_the_unused(&self, generation: u64) {
        let is_worth_it = |cell: &mut Arc<OnceCell<Arc<NodeConnection>>>| match cell.get() {
            Some(node) => node.generation == generation && !node.is_over() && node.used.lock().elapsed() < UNUSED_MAX,
            None => Arc::strong_count(cell) > 1,
        };
        self.nodes.lock().retain(|_, cell| is_worth_it(cell));
    }

    /// The end.
    pub fn clear(&self) {
        self.nodes.lock().clear();
    }
}

impl NodeConnection {
    async fn open(
        info: &ConnectionInfo,
        name: &str,
        generation: u64,
        refused: Arc<Mutex<Option<Instant>>>,
        bound: Duration,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, Trouble> {
        let waits = Arc::new(ChannelWaits(Mutex::new(Some(HashMap::new()))));
        let connection = Connection::open(info, name, Arc::clone(&waits) as _).await?;
        let client = link::greeted_by_primary(&connection).await?;
        let client = client.ok_or(Trouble::Gone("the server does not say the number of the connection"))?;
        let used = Mutex::new(Instant::now());
        let node = Arc::new(Self { connection, client, generation, waits, used, refused, runtime: Handle::current() });
        tokio::spawn(watch_over(Arc::downgrade(&node), bound, closing));
        Ok(node)
    }

    pub fn is_over(&self) -> bool {
        self.waits.0.lock().is_none()
    }

    /// From here on the verdict of `command` is heard.
    pub fn begin(self: &Arc<Self>, command: &Command<'_>, prefix: Prefix) -> Result<NodeWait, Trouble> {
        let channel = command.key().and_then(|key| late::channel_in_cluster(self.client, key));
        let (Some(name), Some(channel)) = (name_of(command), channel) else {
            return Err(Trouble::Gone("this command does not wait"));
        };
        let (sender, verdict) = oneshot::channel();
        *self.used.lock() = Instant::now();
        let is_new = {
            let mut waits = self.waits.0.lock();
            let channels = waits.as_mut().ok_or(NOBODY_LISTENS)?;
            let is_new = !channels.contains_key(&channel);
            channels.entry(channel.clone()).or_default().insert(name.clone(), sender);
            is_new
        };
        if is_new {
            self.subscribe(channel.clone(), prefix);
        }
        Ok(NodeWait { node: Arc::clone(self), channel, name, verdict })
    }

    /// Asked before every wait for it, on the same connection.
    fn subscribe(self: &Arc<Self>, channel: Vec<u8>, prefix: Prefix) {
        let asked = self
            .connection
            .ask_prefixed(prefix, |outbox| resp::write_plain(&[b"SSUBSCRIBE".as_slice(), &channel], outbox));
        let node = Arc::downgrade(self);
        // The caller that asked first may go; the others count on it.
        self.runtime.spawn(async move {
            let Err(trouble) = asked.await else { return };
            let Some(node) = node.upgrade() else { return };
            if matches!(trouble, Trouble::Refused(Error::PermissionDenied(_))) {
                let before = node.refused.lock().replace(Instant::now());
                if before.is_none() {
                    tracing::warn!(
                        "this user may not subscribe to resil:wait:*: waits need connections; the ACL rule is: +ssubscribe &resil:*"
                    );
                }
            }
            node.waits.lose(&channel);
        });
    }

    pub async fn ask(&self, command: &Command<'_>, prefix: Prefix) -> Verdict {
        match prefix {
            Prefix::None => Link::Server(self.connection.clone()).ask(command).await,
            Prefix::Asking => self.connection.ask_prefixed(prefix, |outbox| resp::write(command, outbox)).await,
        }
    }
}

const NOBODY_LISTENS: Trouble = Trouble::Gone("the connection that listens for verdicts broke");

impl NodeWait {
    pub async fn verdict(&mut self) -> Verdict {
        let lost = || if self.node.is_over() { NOBODY_LISTENS } else { KEY_MOVES };
        (&mut self.verdict).await.unwrap_or_else(|_| Err(lost()))
    }
}

impl Drop for NodeWait {
    fn drop(&mut self) {
        *self.node.used.lock() = Instant::now();
        let mut waits = self.node.waits.0.lock();
        if let Some(waits) = waits.as_mut().and_then(|channels| channels.get_mut(&self.channel)) {
            waits.remove(&self.name);
        }
    }
}

impl ChannelWaits {
    fn have_capacity(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|channels| channels.len() < CHANNELS_MAX)
    }

    fn any(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|channels| channels.values().any(|waits| !waits.is_empty()))
    }

    /// The channel is not subscribed to: who waits there asks again.
    fn lose(&self, channel: &[u8]) {
        if let Some(channels) = &mut *self.0.lock() {
            channels.remove(channel);
        }
    }

    fn deliver(&self, channel: &[u8], message: &[u8]) {
        let Some((name, verdict)) = parsed(message) else { return };
        let waiting = self.0.lock().as_mut().and_then(|channels| channels.get_mut(channel)?.remove(&name));
        if let Some(waiting) = waiting {
            let _ = waiting.send(verdict);
        }
    }
}

impl PushListener for ChannelWaits {
    fn is_pushed(&self, push: Vec<Value>) {
        let [Value::Text(kind), Value::Text(channel), content] = push.as_slice() else { return };
        match (kind.as_slice(), content) {
            (b"smessage", Value::Text(message)) => self.deliver(channel, message),
            (b"sunsubscribe", _) => self.lose(channel),
            _ => {}
        }
    }

    fn is_over(&self) {
        *self.0.lock() = None;
    }
}

/// Until the connection ends, or does not reply in time while somebody waits.
async fn watch_over(node: Weak<NodeConnection>, bound: Duration, closing: CancellationToken) {
    let looking = async {
        loop {
            sleep(LOOK_EVERY).await;
            let Some(node) = node.upgrade() else { return };
            if node.is_over() {
                return;
            }
            if !node.waits.any() {
                continue;
            }
            *node.used.lock() = Instant::now();
            let ping = node.connection.ask_anyway(|outbox| resp::write_plain(&["PING"], outbox));
            // Also if the user has no right to PING: a server that refuses is there.
            if matches!(timeout(bound, ping).await, Err(_) | Ok(Err(Trouble::Gone(_)))) {
                return node.waits.is_over();
            }
        }
    };
    closing.run_until_cancelled(looking).await;
}
