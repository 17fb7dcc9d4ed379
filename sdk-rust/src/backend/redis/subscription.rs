//! A connection on which the server publishes what nobody asked for, beside the shared one.
//!
//! It leads to where the shared connection leads, with the same user; in a cluster to any node that replies, since every
//! node passes on what is published at another. It ends with the shared connection it was opened beside, and when it does
//! not reply in time: the listener then opens another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::ConnectionInfo;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use resil_wire::holding::Bind;
use resil_wire::late;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Redis;
use super::address::Address;
use super::late::LateWaits;
use super::link::{CONNECT_BOUND, Door};
use super::supervisor::SharedConnection;
use super::trouble::Trouble;
use crate::backend::Reach;

/// How often it is asked whether it is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PAUSE_BASE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Before a user without the right to subscribe tries again: an operator may have granted it.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Where subscriptions come from. It keeps neither the client nor its connection.
pub(crate) struct Subscriptions {
    shared: Arc<SharedConnection>,
    reach: watch::Receiver<Reach>,
    pause: Duration,
}

pub(crate) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
    shared: Arc<SharedConnection>,
    reach: watch::Receiver<Reach>,
    pub generation: u64,
    bind: Bind,
}

/// What a subscriber hears.
pub(crate) struct Message {
    pub channel: String,
    pub payload: Vec<u8>,
}

/// Why there is no subscription (any more).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionEnd {
    /// Another one can be opened.
    Broken,
    /// This user may not subscribe.
    Refused,
}

impl From<Trouble> for SubscriptionEnd {
    fn from(trouble: Trouble) -> Self {
        if trouble.is_final() { Self::Refused } else { Self::Broken }
    }
}

impl Redis {
    pub fn subscriptions(&self) -> Subscriptions {
        Subscriptions { shared: Arc::clone(&self.shared), reach: self.shared.reach(), pause: Duration::ZERO }
    }
}

impl Subscriptions {
    /// The next one, as soon as there can be one; `None` when the client was closed.
    pub async fn next(&mut self) -> Option<Subscription> {
        let closing = self.shared.closing.clone();
        closing.run_until_cancelled(self.open()).await
    }

    /// A user that was refused need not ask again soon.
    pub async fn was_refused(&self) {
        self.shared.closing.run_until_cancelled(sleep(REFUSED_PAUSE)).await;
    }

    async fn open(&mut self) -> Subscription {
        loop {
            // At random, so that a fleet does not come back all at once.
            sleep(self.pause.mul_f64(self.shared.random.unit())).await;
            self.pause = (self.pause * 2).clamp(PAUSE_BASE, PAUSE_MAX);
            let Ok(session) = self.shared.session() else {
                // The supervisor is at it.
                if self.reach.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                self.pause = Duration::ZERO;
                continue;
            };
            let candidates = match (&session.door, &self.shared.address) {
                (Door::Server(client), _) => vec![client.clone()],
                (Door::Cluster(seed), Address::Cluster(seeds)) => {
                    let nodes = std::iter::once(seed).chain(seeds);
                    nodes.filter_map(|node| redis::Client::open(node.clone()).ok()).collect()
                }
                (Door::Cluster(seed), _) => redis::Client::open(seed.clone()).into_iter().collect(),
            };
            for client in candidates {
                let opening = named_pubsub(client.get_connection_info(), &self.shared.connection_name);
                if let Ok(Ok(pubsub)) = timeout(CONNECT_BOUND, opening).await {
                    let (sink, messages) = pubsub.split();
                    let (shared, reach) = (Arc::clone(&self.shared), self.shared.reach());
                    let (generation, bind) = (session.generation, session.bind);
                    return Subscription { sink, messages, shared, reach, generation, bind };
                }
            }
        }
    }

    pub fn late(&self) -> &LateWaits {
        &self.shared.late
    }

    /// The last one went well for a while: the next is opened at once.
    pub fn went_well(&mut self) {
        self.pause = Duration::ZERO;
    }
}

impl Subscription {
    /// Where the verdicts of waits come that the shared connection asked for. None in a cluster, which has no such connection.
    pub fn waits_channel(&self) -> Option<String> {
        match self.bind {
            Bind::To { client, .. } => Some(late::channel(client)),
            Bind::None | Bind::Here { .. } => None,
        }
    }

    pub async fn subscribe(&mut self, channels: &[String]) -> Result<(), SubscriptionEnd> {
        let asked = timeout(self.shared.command_timeout, self.sink.subscribe(channels)).await;
        asked.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())).map_err(as_ended)
    }

    pub async fn unsubscribe(&mut self, channels: &[String]) -> Result<(), SubscriptionEnd> {
        let asked = timeout(self.shared.command_timeout, self.sink.unsubscribe(channels)).await;
        asked.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())).map_err(as_ended)
    }

    /// The next message; `None` if a second passed without any.
    pub async fn hear(&mut self) -> Result<Option<Message>, SubscriptionEnd> {
        let heard = tokio::select! {
            biased;
            message = self.messages.next() => message,
            () = self.shared.closing.cancelled() => None,
            () = is_replaced(&self.shared, &mut self.reach, self.generation) => None,
            () = sleep(LOOK_EVERY) => return self.look().await.map(|()| None),
        };
        let message = heard.ok_or(SubscriptionEnd::Broken)?;
        let channel = message.get_channel_name().to_owned();
        Ok(Some(Message { channel, payload: message.get_payload_bytes().to_vec() }))
    }

    /// Whether the server is there. One that refuses PING to this user is.
    async fn look(&mut self) -> Result<(), SubscriptionEnd> {
        match timeout(self.shared.command_timeout, self.sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if error.code().is_some() => Ok(()),
            _ => Err(SubscriptionEnd::Broken),
        }
    }
}

/// A connection for subscriptions, under the name of the others.
async fn named_pubsub(info: &ConnectionInfo, name: &str) -> Result<PubSub, Trouble> {
    let stream = super::connection::named_stream(info, name).await?;
    Ok(PubSub::new(info.redis_settings(), stream).await?)
}

fn as_ended(error: redis::RedisError) -> SubscriptionEnd {
    Trouble::from(error).into()
}

/// Returns when the shared connection is another one than that of `generation`.
async fn is_replaced(shared: &SharedConnection, reach: &mut watch::Receiver<Reach>, generation: u64) {
    while shared.session().map_or(generation, |session| session.generation) == generation {
        if reach.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
