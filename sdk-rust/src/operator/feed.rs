//! What is published on `resil:events`, as one feed that survives its connections.
//!
//! In memory transitions of breakers and changes of policies have the same form; losses and changes of ledgers are left out.

use std::sync::Arc;

use resil_core::circuit_breaker::Transition as BreakerTransition;
use serde_json::json;
use tokio::sync::mpsc;

use super::Operator;
use super::server::no_server;
use crate::backend::Backend;
use crate::backend::memory::MemoryEvent;
#[cfg(feature = "redis")]
use crate::backend::redis::subscription::{Subscription, SubscriptionEnd, Subscriptions};
use crate::error::Error;
use crate::policies::watch::PolicyMessage;

/// The channel of all events.
#[cfg(feature = "redis")]
const EVENTS: &str = "resil:events";

/// So many messages of memory wait for a feed that is not read; then it gets a notice that some were lost.
const UNREAD_MAX: usize = 4_096;

/// What a feed has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerMessage {
    /// Messages are heard from now on. Again after a connection was lost: what was published meanwhile is lost.
    Listening,
    /// A JSON document; see docs/events.md.
    Event(Vec<u8>),
    /// The connection is gone; another one is opened.
    Lost,
}

/// What the server publishes: see [`Operator::events`].
pub struct EventFeed(FeedSource);

enum FeedSource {
    #[cfg(feature = "redis")]
    Server {
        source: Subscriptions,
        open: Option<Subscription>,
    },
    Memory {
        messages: mpsc::Receiver<Vec<u8>>,
        says: Option<ServerMessage>,
    },
}

impl Operator {
    /// Everything that the server publishes on `resil:events`, from now on. Of `memory://` what its breakers and policies do.
    pub fn events(&self) -> Result<EventFeed, Error> {
        match self.client.backend() {
            #[cfg(feature = "redis")]
            Backend::Redis(redis) => Ok(EventFeed(FeedSource::Server { source: redis.subscriptions(), open: None })),
            Backend::Memory(memory) => {
                let (sender, messages) = mpsc::channel(UNREAD_MAX);
                // A feed that is full is closed: its reader begins anew, and knows that something was lost.
                let hear = move |event: &MemoryEvent| sender.try_send(message(event)).is_ok();
                memory.hear_everything(Arc::new(hear));
                Ok(EventFeed(FeedSource::Memory { messages, says: Some(ServerMessage::Listening) }))
            }
            _ => Err(no_server()),
        }
    }
}

/// As a server writes it.
fn message(event: &MemoryEvent) -> Vec<u8> {
    let json = match event {
        MemoryEvent::Moved { key, transition } => {
            let BreakerTransition { previous, new, previous_generation, generation, reason } = *transition;
            json!({
                "event": "breaker",
                "service": String::from_utf8_lossy(key),
                "previous": previous.text(),
                "new": new.text(),
                "previous_generation": previous_generation,
                "generation": generation,
                // Generations are instants, in microseconds.
                "time_ms": generation / 1_000,
                "reason": reason.text(),
                "correlation": format!("{:032x}", rand::random::<u128>()),
            })
        }
        MemoryEvent::Policy(PolicyMessage { key, seen, action }) => {
            json!({"event": "policy", "key": String::from_utf8_lossy(key), "action": action, "version": seen.version})
        }
    };
    json.to_string().into_bytes()
}

impl EventFeed {
    /// The next message, however long that takes; `None` when the client was shut down. A user who may not subscribe is an error.
    pub async fn next(&mut self) -> Result<Option<ServerMessage>, Error> {
        match &mut self.0 {
            #[cfg(feature = "redis")]
            FeedSource::Server { source, open } => hear_server(source, open).await,
            FeedSource::Memory { messages, says } => match says.take() {
                Some(said) => Ok(Some(said)),
                // It was not read for long, or the store is gone.
                None => Ok(messages.recv().await.map(ServerMessage::Event)),
            },
        }
    }
}

#[cfg(feature = "redis")]
async fn hear_server(
    source: &mut Subscriptions,
    open: &mut Option<Subscription>,
) -> Result<Option<ServerMessage>, Error> {
    loop {
        let Some(subscription) = open else {
            let Some(mut fresh) = source.next().await else { return Ok(None) };
            match fresh.subscribe(&[EVENTS.to_owned()]).await {
                Ok(()) => {
                    source.went_well();
                    *open = Some(fresh);
                    return Ok(Some(ServerMessage::Listening));
                }
                Err(SubscriptionEnd::Refused) => {
                    return Err(Error::PermissionDenied("to subscribe; the ACL rule is: +subscribe &resil:events"));
                }
                Err(SubscriptionEnd::Broken) => continue,
            }
        };
        match subscription.hear().await {
            Ok(Some(message)) => return Ok(Some(ServerMessage::Event(message.payload))),
            Ok(None) => {}
            Err(_) => {
                *open = None;
                return Ok(Some(ServerMessage::Lost));
            }
        }
    }
}
