//! The shared connection: how it is made, what is asked before it is trusted, and how a command goes over it.
//!
//! # Before it is trusted
//! `PING` (a server that is loading says so) and `HELLO`, which any user may ask: whether the server is a primary,
//! whether it has the module, and the number of the connection, on which holdings hang. Of a cluster the first node that
//! replies is asked.
//!
//! # Sentinels
//! They are asked in turn, anew for every connection, and the server they name has to say itself that it is the primary. This
//! is done here and not by redis-rs, which asks servers for ROLE, a command that careful users are not given.
//!
//! # Clusters
//! redis-rs finds the node of a key and follows redirections. It also asks again, up to [`CLUSTER_RETRIES`] times, when a
//! connection breaks or a reply is late: in a cluster a rate limit may then count one call up to four times.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{
    MultipleNodeRoutingInfo, ResponsePolicy, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
};
use redis::{AsyncConnectionConfig, Cmd, ConnectionInfo, Value};
use resil_wire::command::Command;
use resil_wire::holding::Bind;
use resil_wire::reply::Value as Understood;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::address::{Address, Sentinels, at, without_database};
use super::connection::{CallerGone, Connection, PendingReply};
use super::resp;
use super::slots::PrimaryNode;
use super::speech::{field, packed, understood};
use super::trouble::{Trouble, judged};
use crate::error::Error;

/// From the first packet to a connection that is trusted: one attempt.
pub(super) const CONNECT_BOUND: Duration = Duration::from_secs(3);
/// A sentinel that does not reply must not cost the time for the others.
const SENTINEL_BOUND: Duration = Duration::from_millis(800);
const CLUSTER_RETRIES: u32 = 3;

const MODULE: &[u8] = b"resil";

/// A connection over which many commands go at once.
#[derive(Clone)]
pub(super) enum Link {
    Server(Connection),
    Cluster(ClusterConnection),
}

/// A command that was handed in, if it could be.
pub(super) struct HandedIn {
    asked: Option<PendingReply>,
    /// The connection ends with its last handle.
    link: Link,
    gone: CallerGone,
}

impl HandedIn {
    pub async fn reply(mut self, command: &Command<'_>) -> Result<Understood, Trouble> {
        match self.asked {
            Some(asked) => asked.await,
            None => self.link.ask_as(command, self.gone).await,
        }
    }
}

/// How to open one more connection to where the shared one leads.
pub(super) enum Door {
    Server(redis::Client),
    /// Any node can be reached like this one.
    Cluster(ConnectionInfo),
}

/// A shared connection that is trusted.
pub(super) struct Session {
    /// Which one it is; they are counted.
    pub generation: u64,
    pub link: Link,
    pub door: Door,
    pub bind: Bind,
}

/// What a server says of itself.
struct Greeting {
    id: Option<u64>,
    is_primary: bool,
    has_module: bool,
}

impl Link {
    pub async fn ask(&mut self, command: &Command<'_>) -> Result<Understood, Trouble> {
        self.ask_as(command, CallerGone::Forget).await
    }

    /// The same; `gone` is what becomes of it if its caller goes before it is sent.
    pub async fn ask_as(&mut self, command: &Command<'_>, gone: CallerGone) -> Result<Understood, Trouble> {
        match self {
            Self::Server(connection) => match connection.ask(gone, |outbox| resp::write(command, outbox)) {
                Some(asked) => asked.await,
                // On the heap: it is seldom, and futures of callers stay small.
                None => Box::pin(connection.ask_when_there_is_capacity(|outbox| resp::write(command, outbox))).await,
            },
            Self::Cluster(_) => Box::pin(self.send(packed(command), command.key())).await.map(understood),
        }
    }

    /// Hands `command` in now, where that takes no waiting: a connection to one server that has capacity. It is sent although its
    /// reply is never asked for, unless it is dropped before that and `gone` says that it is then forgotten.
    pub fn begin(self, command: &Command<'_>, gone: CallerGone) -> HandedIn {
        let asked = match &self {
            Self::Server(connection) => connection.ask(gone, |outbox| resp::write(command, outbox)),
            Self::Cluster(_) => None,
        };
        HandedIn { asked, link: self, gone }
    }

    /// A command of redis-rs' making, to the node of a cluster that has `key`.
    pub async fn send(&mut self, command: Cmd, key: Option<&[u8]>) -> Result<Value, Trouble> {
        let node = match key {
            Some(key) => SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master)),
            None => SingleNodeRoutingInfo::RandomPrimary,
        };
        self.send_routed(command, node).await
    }

    /// The same to this node.
    pub async fn send_to(&mut self, command: Cmd, node: &PrimaryNode) -> Result<Value, Trouble> {
        self.send_routed(command, node.route()).await
    }

    async fn send_routed(&mut self, command: Cmd, node: SingleNodeRoutingInfo) -> Result<Value, Trouble> {
        let Self::Cluster(connection) = self else { return Err(Trouble::Gone("this is no cluster")) };
        judged(connection.route_command(command, RoutingInfo::SingleNode(node)).await)
    }

    /// Whether there is a server behind it that may be written to. Waits for as long as it takes.
    pub async fn look(&self) -> Result<(), Trouble> {
        match self.clone() {
            Self::Server(connection) => greet_over(&connection).await.and_then(|greeting| greeting.is_of_use()),
            // One primary that replies is enough: the keys of the others are their own trouble.
            Self::Cluster(mut connection) => {
                let anybody = (MultipleNodeRoutingInfo::AllMasters, Some(ResponsePolicy::OneSucceeded));
                let reply = connection.route_command(redis::cmd("PING"), RoutingInfo::MultiNode(anybody)).await;
                alive(judged(reply))
            }
        }
    }
}

/// Opens `address` and asks what has to be asked. `alarm` rings when the connection ends.
pub(super) async fn open(
    address: &Address,
    name: &str,
    generation: u64,
    command_timeout: Duration,
    alarm: &Arc<Notify>,
) -> Result<Session, Trouble> {
    let opening = async {
        match address {
            Address::Server(info) => open_server(info, name, generation, alarm).await,
            Address::Sentinel(sentinels) => open_server(&primary(sentinels).await?, name, generation, alarm).await,
            Address::Cluster(seeds) => open_cluster(seeds, name, generation, command_timeout).await,
        }
    };
    timeout(CONNECT_BOUND, opening).await.unwrap_or(Err(Trouble::Late))
}

async fn open_server(
    info: &ConnectionInfo,
    name: &str,
    generation: u64,
    alarm: &Arc<Notify>,
) -> Result<Session, Trouble> {
    let client = redis::Client::open(info.clone())?;
    let connection = Connection::open(info, name, Arc::clone(alarm) as _).await?;
    let bind = greeted_by_primary(&connection).await?.map_or(Bind::None, Bind::to);
    Ok(Session { generation, link: Link::Server(connection), door: Door::Server(client), bind })
}

/// What is sent over it is timed by the sender.
pub(super) fn untimed() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(Some(CONNECT_BOUND))
}

async fn open_cluster(
    seeds: &[ConnectionInfo],
    name: &str,
    generation: u64,
    command_timeout: Duration,
) -> Result<Session, Trouble> {
    let seed = replying(seeds).await?;
    let client = ClusterClientBuilder::new(seeds.to_vec())
        .connection_timeout(CONNECT_BOUND)
        .response_timeout(command_timeout)
        .overall_response_timeout(None)
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(20)
        .max_retry_wait(200)
        .tcp_settings(seed.tcp_settings().clone())
        .build()?;
    let mut connection = client.get_async_connection().await?;
    let everybody = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllNodes, Some(ResponsePolicy::OneSucceeded)));
    let mut naming = redis::cmd("CLIENT");
    naming.arg("SETNAME").arg(name);
    // A user who may not has connections without a name. Those to nodes that come later are known by their library only.
    let _ = connection.route_command(naming, everybody).await;
    Ok(Session { generation, link: Link::Cluster(connection), door: Door::Cluster(seed), bind: Bind::None })
}

/// The first node that replies. A wrong password and a missing module are distinguished here, where there is one node to ask.
async fn replying(seeds: &[ConnectionInfo]) -> Result<ConnectionInfo, Trouble> {
    let mut last = Trouble::Gone("no node of the cluster can be reached");
    for seed in seeds {
        let asking = async {
            let client = redis::Client::open(seed.clone())?;
            greet(&mut client.get_multiplexed_async_connection_with_config(&untimed()).await?).await
        };
        match timeout(CONNECT_BOUND / 2, asking).await {
            Ok(Ok(greeting)) if greeting.has_module => return Ok(seed.clone()),
            Ok(Ok(_)) => return Err(Trouble::Refused(Error::ModuleMissing)),
            Ok(Err(trouble)) if trouble.is_final() => return Err(trouble),
            Ok(Err(trouble)) => last = trouble,
            Err(_) => last = Trouble::Late,
        }
    }
    Err(last)
}

/// How to reach the one whom the sentinels call the primary now.
pub(super) async fn primary(sentinels: &Sentinels) -> Result<ConnectionInfo, Trouble> {
    let mut last = Trouble::Gone("no sentinel can be reached");
    for sentinel in &sentinels.each {
        let redis = without_database(sentinel.redis_settings());
        let asking = async {
            let client = redis::Client::open(sentinel.clone().set_redis_settings(redis))?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&untimed()).await?;
            let mut ask = redis::cmd("SENTINEL");
            ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&sentinels.service);
            judged(connection.send_packed_command(&ask).await)
        };
        match timeout(SENTINEL_BOUND, asking).await {
            Ok(Ok(reply)) => match redis::from_redis_value::<(String, u16)>(reply) {
                Ok((host, port)) => return Ok(at(&sentinels.server, &host, port)),
                Err(_) => last = Trouble::Gone("the sentinels do not know the service"),
            },
            Ok(Err(trouble)) => last = trouble,
            Err(_) => last = Trouble::Late,
        }
    }
    Err(last)
}

async fn greet(connection: &mut MultiplexedConnection) -> Result<Greeting, Trouble> {
    let mut second = connection.clone();
    let (ping, hello) = (redis::cmd("PING"), redis::cmd("HELLO"));
    let (pong, greeting) = tokio::join!(connection.send_packed_command(&ping), second.send_packed_command(&hello));
    alive(judged(pong))?;
    judged(greeting).map(|greeting| Greeting::read(&understood(greeting)))
}

async fn greet_over(connection: &Connection) -> Result<Greeting, Trouble> {
    let pong = connection.ask_anyway(|outbox| resp::write_plain(&["PING"], outbox));
    let greeting = connection.ask_anyway(|outbox| resp::write_plain(&["HELLO"], outbox));
    alive(pong.await)?;
    greeting.await.map(|greeting| Greeting::read(&greeting))
}

/// The number of the connection, which leads to a primary with the module.
pub(super) async fn greeted_by_primary(connection: &Connection) -> Result<Option<u64>, Trouble> {
    let greeting = greet_over(connection).await?;
    greeting.is_of_use()?;
    Ok(greeting.id)
}

impl Greeting {
    /// A primary with the module.
    fn is_of_use(&self) -> Result<(), Trouble> {
        match self {
            Self { has_module: false, .. } => Err(Trouble::Refused(Error::ModuleMissing)),
            Self { is_primary: false, .. } => Err(Trouble::Demoted),
            _ => Ok(()),
        }
    }

    fn read(greeting: &Understood) -> Self {
        let id = field(greeting, "id").and_then(|id| u64::try_from(id.integer().ok()?).ok());
        let is_primary = field(greeting, "role").is_none_or(|role| role.text() == Ok(b"master"));
        let modules = field(greeting, "modules");
        let is_ours = |module: &Understood| field(module, "name").is_some_and(|name| name.text() == Ok(MODULE));
        let has_module = modules.is_some_and(|modules| modules.array().is_ok_and(|all| all.iter().any(is_ours)));
        Self { id, is_primary, has_module }
    }
}

/// Also if the user has no right to PING: a server that refuses is there.
fn alive<T>(reply: Result<T, Trouble>) -> Result<(), Trouble> {
    match reply {
        Ok(_) | Err(Trouble::Refused(Error::PermissionDenied(_)) | Trouble::Later(_)) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}
