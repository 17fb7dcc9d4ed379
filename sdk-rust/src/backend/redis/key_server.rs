//! The one server that has a key, for those who keep a connection of their own to it: as the URL says, as the cluster says, or as the sentinels say.
//!
//! It is asked for at every connection: after a failover, or after the slot of the key has moved, the next connection leads to the right one.

use redis::ConnectionInfo;
use redis::aio::MultiplexedConnection;

use super::address::Address;
use super::link::{primary, untimed};
use super::slots::{node_of, parse};
use super::trouble::{Trouble, judged};
use super::waiting::info_of;
use crate::error::Error;

/// Where a key is.
#[derive(Debug)]
pub(crate) struct KeyServer {
    address: Address,
    key: Vec<u8>,
}

impl KeyServer {
    pub fn new(url: &str, key: impl Into<Vec<u8>>) -> Result<Self, Error> {
        Ok(Self { address: Address::parse(url)?, key: key.into() })
    }

    /// For the log: hosts and ports, never a user or a password.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A new connection to it. The sender bounds the time.
    pub async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        let connecting = async {
            let info = match &self.address {
                Address::Server(info) => info.clone(),
                Address::Sentinel(sentinels) => primary(sentinels).await?,
                Address::Cluster(seeds) => owner(seeds, &self.key).await?,
            };
            Ok::<_, Trouble>(opened(&info).await?)
        };
        connecting.await.map_err(|trouble| trouble.into_error(None))
    }
}

async fn opened(info: &ConnectionInfo) -> Result<MultiplexedConnection, redis::RedisError> {
    redis::Client::open(info.clone())?.get_multiplexed_async_connection_with_config(&untimed()).await
}

/// How the node that has `key` is reached, as the first node says that replies.
async fn owner(seeds: &[ConnectionInfo], key: &[u8]) -> Result<ConnectionInfo, Trouble> {
    let mut last = Trouble::Gone("no node of the cluster can be reached");
    for seed in seeds {
        let asking = async {
            let mut connection = opened(seed).await?;
            judged(connection.send_packed_command(redis::cmd("CLUSTER").arg("SLOTS")).await)
        };
        match asking.await {
            Ok(slots) => match node_of(&parse(slots), key) {
                Some(node) => return info_of(&node, seed),
                None => last = Trouble::Later("no node of the cluster serves the key"),
            },
            Err(trouble) => last = trouble,
        }
    }
    Err(last)
}
