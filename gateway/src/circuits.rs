//! Circuits by the names that callers know, and watching one of them.
//!
//! # Watching
//! A watcher hears of a circuit first and asks for its state then, so nothing is between the two. `known` is the generation of the last
//! thing it was sent. A transition
//! - that ends at or before `known` was sent already;
//! - that begins at `known` is sent;
//! - that begins before and ends after it, and leads to the state that was sent, is sent: that state was announced by its time alone,
//!   and this is the transition to it;
//! - that begins anywhere else means that some were missed: a gap is sent, and the state as it is now.
//!
//! After the connection to the server was lost the state is asked for again; if the generation is another, it is a gap as well.

use std::sync::Arc;
use std::time::Duration;

use resil::breaker::{Snapshot, State};
use resil::operator::KeyKind;
use resil::{Client, Error};
use tokio::sync::mpsc;

use crate::feed::{Feed, Heard, Move};
use crate::policies::PolicyBook;
use crate::proto::resil::v1 as proto;
use crate::upstream::Upstreams;

/// How long the first look at the server is waited for.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The key of the circuit of an upstream, a policy, or a breaker of an SDK.
pub fn key_of(name: &str, upstreams: &Upstreams, policies: &PolicyBook) -> Result<String, Error> {
    match upstreams.get(name) {
        Some(upstream) => policies.circuit_key(&upstream.policy),
        None if policies.is_stored(name) => policies.circuit_key(name),
        None => Ok(String::from_utf8_lossy(&KeyKind::Breaker.key(name)?).into_owned()),
    }
}

pub fn proto_state(state: State) -> proto::CircuitState {
    match state {
        State::Closed => proto::CircuitState::Closed,
        State::Open => proto::CircuitState::Open,
        State::HalfOpen => proto::CircuitState::HalfOpen,
        State::Ramping => proto::CircuitState::Ramping,
        State::ForcedOpen => proto::CircuitState::ForcedOpen,
        State::ForcedClosed => proto::CircuitState::ForcedClosed,
        State::Disabled => proto::CircuitState::Disabled,
        State::Metrics => proto::CircuitState::Metrics,
    }
}

pub fn proto_time(at_ms: u64) -> prost_types::Timestamp {
    let (seconds, nanos) = ((at_ms / 1_000) as i64, ((at_ms % 1_000) * 1_000_000) as i32);
    prost_types::Timestamp { seconds, nanos }
}

pub fn proto_span(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: span.subsec_nanos() as i32,
    }
}

pub fn proto_circuit(name: &str, key: &str, snapshot: &Snapshot) -> proto::Circuit {
    let forced = snapshot.forced.as_ref();
    proto::Circuit {
        name: name.to_owned(),
        key: key.to_owned(),
        exists: snapshot.exists,
        state: proto_state(snapshot.state).into(),
        generation: snapshot.generation,
        admits: snapshot.admits,
        retry_after: snapshot.retry_after.filter(|_| !snapshot.admits).map(proto_span),
        calls: snapshot.calls,
        failures: snapshot.failures,
        slow: snapshot.slow,
        failure_rate_percent: u32::try_from(snapshot.failure_rate_percent).unwrap_or(u32::MAX),
        trips: snapshot.trips,
        opened_at: snapshot.opened_at.map(|at| proto_time(crate::epoch_ms(at))),
        forced_by: forced.map(|forced| forced.by.clone()).unwrap_or_default(),
        forced_reason: forced.map(|forced| forced.reason.clone()).unwrap_or_default(),
    }
}

fn proto_move(moved: &Move) -> proto::CircuitTransition {
    proto::CircuitTransition {
        previous: proto_state(moved.previous).into(),
        state: proto_state(moved.state).into(),
        previous_generation: moved.previous_generation,
        generation: moved.generation,
        at: Some(proto_time(moved.at_ms)),
        reason: moved.reason.clone(),
        correlation_id: moved.correlation_id.clone(),
        actor: moved.actor.clone().unwrap_or_default(),
        note: moved.note.clone().unwrap_or_default(),
    }
}

/// What to send to a watcher of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Novelty {
    /// It was sent already.
    Known,
    Transition,
    /// Some were missed.
    Gap,
}

/// See the [module](self).
pub fn judge(known: (u64, State), moved: &Move) -> Novelty {
    let (generation, state) = known;
    if moved.generation <= generation {
        Novelty::Known
    } else if moved.previous_generation == generation
        || (moved.previous_generation < generation && moved.state == state && moved.previous != state)
    {
        Novelty::Transition
    } else {
        Novelty::Gap
    }
}

type Sender = mpsc::Sender<Result<proto::WatchCircuitStateResponse, tonic::Status>>;

/// One who watches.
pub struct CircuitWatch {
    pub client: Client,
    pub feed: Arc<Feed>,
    pub name: String,
    pub key: String,
}

impl CircuitWatch {
    /// Tells `to` until nobody is there any more.
    pub async fn run(self, to: Sender) {
        tokio::select! {
            ended = self.tell(&to) => {
                if let Err(error) = ended {
                    let _ = to.send(Err(crate::errors::status_of(&error))).await;
                }
            }
            () = to.closed() => {}
        }
    }

    async fn look(&self) -> Result<Snapshot, Error> {
        self.client.operator().breaker(self.key.as_bytes()).await
    }

    async fn tell(&self, to: &Sender) -> Result<(), Error> {
        let mut heard = self.feed.watch(&self.key);
        let mut listening = self.feed.listening();
        let listens = tokio::time::timeout(LISTEN_WITHIN, listening.wait_for(|listening| *listening));
        let listens = listens.await.is_ok_and(|heard| heard.is_ok());
        if !listens {
            return Err(Error::BackendUnavailable("its events cannot be heard"));
        }
        let Some(mut known) = self.tell_current(to, self.look().await?).await else { return Ok(()) };
        while let Some(next) = heard.recv().await {
            let novelty = match &next {
                Heard::Move(moved) => judge(known, moved),
                Heard::Missed => Novelty::Gap,
            };
            match (novelty, next) {
                (Novelty::Known, _) => {}
                (Novelty::Transition, Heard::Move(moved)) => {
                    known = (moved.generation, moved.state);
                    let event = proto::watch_circuit_state_response::Event::Transition(proto_move(&moved));
                    if !send(to, event).await {
                        return Ok(());
                    }
                }
                (_, next) => {
                    let snapshot = self.look_until_known(to).await;
                    let Some(snapshot) = snapshot else { return Ok(()) };
                    // The connection was lost, and nothing happened meanwhile.
                    if matches!(next, Heard::Missed) && (snapshot.generation, snapshot.state) == known {
                        continue;
                    }
                    let reason = if matches!(next, Heard::Missed) {
                        "the connection to the server was lost"
                    } else {
                        "events were lost"
                    };
                    let gap = proto::CircuitGap { last_generation: known.0, reason: reason.to_owned() };
                    if !send(to, proto::watch_circuit_state_response::Event::Gap(gap)).await {
                        return Ok(());
                    }
                    let Some(now) = self.tell_current(to, snapshot).await else { return Ok(()) };
                    known = now;
                }
            }
        }
        Ok(())
    }

    /// Asks until the server replies, or nobody wants to know.
    async fn look_until_known(&self, to: &Sender) -> Option<Snapshot> {
        loop {
            match self.look().await {
                Ok(snapshot) => return Some(snapshot),
                Err(_) if to.is_closed() => return None,
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }

    async fn tell_current(&self, to: &Sender, snapshot: Snapshot) -> Option<(u64, State)> {
        let circuit = proto_circuit(&self.name, &self.key, &snapshot);
        let event = proto::watch_circuit_state_response::Event::Current(circuit);
        send(to, event).await.then_some((snapshot.generation, snapshot.state))
    }
}

async fn send(to: &Sender, event: proto::watch_circuit_state_response::Event) -> bool {
    to.send(Ok(proto::WatchCircuitStateResponse { event: Some(event) })).await.is_ok()
}
