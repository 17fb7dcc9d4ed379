//! Waits that need no connection: the server answers at once, and its verdict comes later as a message.
//!
//! # The promise
//! - Every caller stands in the server's queue, however many there are, and the server decides who is first.
//! - A wait whose verdict may have been lost, because the listening connection or the shared one was replaced, is asked again as
//!   the same owner: the server gives it the same position, or the same grant.
//! - A wait that is dropped, or fails, leaves the queue within a round trip: the server is told.
//!
//! # Two connections, not one
//! Verdicts come over the connection that also brings losses and changes of breakers, and not over the shared one: a server
//! closes a connection with subscriptions when 32 MB of replies wait for it, which cached values can reach. The server knows
//! the waits as those of the shared connection, so they end with it.
//!
//! Where nobody can listen (a cluster, a user who may not subscribe) waits go over [connections of their own](super::waiting).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, OwnedCall, Wait};
use resil_wire::idempotency::TokenCall;
use resil_wire::late::LateVerdict;
use resil_wire::reply::Value;
use resil_wire::single_flight::AbandonCall;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use super::link::{Link, Session};
use super::supervisor::SharedConnection;
use super::trouble::{CLOSED, Trouble};
use super::waiting::{Destination, SLACK, WaitOutcome, WaitingCommand, as_span, bind_of, is_over, rewritten};
use super::{Redis, resp};
use crate::error::Error;

/// How long a wait waits for somebody to listen, before it takes a connection of its own.
const LISTENER_WITHIN: Duration = Duration::from_secs(1);

/// What a verdict is known by: the kind, the key, and the owner or token.
type WaitName = (&'static str, Vec<u8>, Vec<u8>);

type Verdict = Result<Value, Trouble>;

/// Who listens for verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Nobody,
    /// This user may not subscribe.
    Refused,
    /// A connection that was opened beside the shared one of this generation.
    Beside(u64),
}

pub(crate) struct LateWaits {
    /// Somebody asked for a listener.
    is_wanted: AtomicBool,
    listener: watch::Sender<Listener>,
    waits: Mutex<HashMap<WaitName, oneshot::Sender<Verdict>>>,
}

/// A wait that is known here until it is dropped.
pub(super) struct LateWait<'a> {
    waits: &'a LateWaits,
    name: WaitName,
    verdict: oneshot::Receiver<Verdict>,
}

impl Default for LateWaits {
    fn default() -> Self {
        Self {
            is_wanted: AtomicBool::new(false),
            listener: watch::Sender::new(Listener::Nobody),
            waits: Mutex::default(),
        }
    }
}

impl LateWaits {
    /// Waits go this way from now on, if somebody can listen.
    pub fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Nobody was refused to listen.
    pub fn are_possible(&self) -> bool {
        *self.listener.borrow() != Listener::Refused
    }

    pub fn any(&self) -> bool {
        !self.waits.lock().is_empty()
    }

    /// Somebody listens, or nobody does any more: then verdicts may have been lost, and every wait is asked again.
    pub fn is_heard_by(&self, listener: Listener) {
        if self.listener.send_replace(listener) != listener && !matches!(listener, Listener::Beside(_)) {
            self.waits.lock().clear();
        }
    }

    /// A verdict came.
    pub fn told(&self, message: &[u8]) {
        let Ok(LateVerdict { kind, key, owner, verdict }) = LateVerdict::from_json(message) else { return };
        // An owner is asked for by one caller: this is of an earlier question of the same wait.
        if matches!(&verdict, Err(error) if error.starts_with("SUPERSEDED")) {
            return;
        }
        let Some(kind) = KINDS.into_iter().find(|known| *known == kind) else { return };
        let waiting = self.waits.lock().remove(&(kind, key, owner));
        if let Some(waiting) = waiting {
            let _ = waiting.send(verdict.map_err(|error| resp::trouble(error.as_bytes())));
        }
    }

    /// True as soon as somebody listens beside the shared connection of `generation`.
    pub(super) async fn are_heard(&self, generation: u64) -> bool {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return false;
        }
        let mut listener = self.listener.subscribe();
        let is_settled = |listener: &Listener| match listener {
            Listener::Beside(beside) => *beside >= generation,
            Listener::Refused => true,
            Listener::Nobody => false,
        };
        match timeout(LISTENER_WITHIN, listener.wait_for(is_settled)).await {
            Ok(Ok(listener)) => *listener == Listener::Beside(generation),
            _ => false,
        }
    }

    /// From here on its verdict is heard. `None` if this is not a command that waits.
    pub(super) fn begin(&self, command: &Command<'_>) -> Option<LateWait<'_>> {
        let name = name_of(command)?;
        let (sender, verdict) = oneshot::channel();
        self.waits.lock().insert(name.clone(), sender);
        Some(LateWait { waits: self, name, verdict })
    }
}

impl LateWait<'_> {
    pub async fn verdict(&mut self) -> Verdict {
        (&mut self.verdict).await.unwrap_or(Err(Trouble::Gone("the listening connection broke")))
    }
}

impl Drop for LateWait<'_> {
    fn drop(&mut self) {
        self.waits.waits.lock().remove(&self.name);
    }
}

const KINDS: [&str; 4] = ["lock", "bulkhead", "idempotency", "flight"];

fn name_of(command: &Command<'_>) -> Option<WaitName> {
    let (kind, key, owner) = match command {
        Command::LockAcquire(call) => ("lock", call.key, call.owner),
        Command::BulkheadEnter(call) => ("bulkhead", call.key, call.owner),
        Command::IdempBegin(call) => ("idempotency", call.key, call.token),
        Command::FlightJoin(call) => ("flight", call.key, call.token),
        _ => return None,
    };
    Some((kind, key.to_vec(), owner.to_vec()))
}

/// What takes a wait out of its queue, and gives back what it may have been granted.
pub(super) fn leaving<'a>(command: &Command<'a>) -> Option<Command<'a>> {
    Some(match command {
        Command::LockAcquire(call) => Command::LockRelease(OwnedCall { key: call.key, owner: call.owner, fence: None }),
        Command::BulkheadEnter(call) => {
            Command::BulkheadLeave(OwnedCall { key: call.key, owner: call.owner, fence: None })
        }
        Command::IdempBegin(call) => Command::IdempAbort(TokenCall { key: call.key, token: call.token }),
        Command::FlightJoin(call) => {
            Command::FlightAbandon(AbandonCall { key: call.key, token: call.token, retry: None })
        }
        _ => return None,
    })
}

impl Redis {
    pub(super) async fn wait_late(&self, command: &Command<'_>, deadline: Instant) -> Result<Reply, Error> {
        let shared = &*self.shared;
        let asking = WaitingCommand { shared, command, deadline, reach: shared.reach(), place: Destination::Late };
        let mut leaving = Leaving { shared, command: Some(command) };
        let answer = tokio::select! {
            answer = asking.until_answered() => answer,
            () = shared.closing.cancelled() => Err(CLOSED),
        };
        if answer.is_ok() {
            leaving.command = None;
        }
        answer
    }
}

/// A wait that was not answered: the server is told that nobody waits any more.
struct Leaving<'a, 'c> {
    shared: &'a SharedConnection,
    command: Option<&'a Command<'c>>,
}

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        if let Some(leaving) = self.command.and_then(leaving)
            && let Ok(Link::Server(connection)) = self.shared.link()
        {
            // What nobody waits for is not sent. If the connection breaks first, the server takes the wait out by itself.
            self.shared.runtime.spawn(connection.ask_anyway(|outbox| resp::write(&leaving, outbox)));
        }
    }
}

impl WaitingCommand<'_, '_> {
    /// Asks on the shared connection, and waits for the verdict that comes later.
    pub async fn ask_late(&mut self, session: &Session) -> WaitOutcome {
        if !self.shared.late.are_heard(session.generation).await {
            return if self.is_current(session) {
                WaitOutcome::Trouble(Trouble::Gone("nobody listens for the verdict of a wait"))
            } else {
                WaitOutcome::Rebound(None)
            };
        }
        let Some(mut pending) = self.shared.late.begin(self.command) else {
            return WaitOutcome::Trouble(Trouble::Gone("this command does not wait"));
        };
        let (left, mut link) = (self.left(), session.link.clone());
        let command = rewritten(self.command, Wait::asynchronous(as_span(left)), session.bind);
        let patience = self.shared.command_timeout + SLACK;
        let at_once = match timeout(patience, link.ask(&command)).await {
            Ok(Ok(value)) => value,
            Ok(Err(trouble)) => return WaitOutcome::Trouble(trouble),
            Err(_) => return WaitOutcome::Trouble(Trouble::Late),
        };
        if !matches!(command.read(at_once.clone()), Ok(Reply::Queued(_))) {
            return WaitOutcome::Answered(at_once);
        }
        let told = tokio::select! {
            biased;
            told = timeout(left + patience, pending.verdict()) => told.unwrap_or(Err(Trouble::Late)),
            over = is_over(self.shared, &mut self.reach, session.generation) => match over {
                Ok(()) => return WaitOutcome::Rebound(None),
                Err(error) => return WaitOutcome::Over(error),
            },
        };
        match told {
            Ok(_) if !matches!(bind_of(&command), Bind::None) && !self.is_current(session) => {
                WaitOutcome::Rebound(None)
            }
            Ok(value) => WaitOutcome::Answered(value),
            // Too large for a message: it is there now, for who asks.
            Err(Trouble::AskAgain) => {
                let command = rewritten(self.command, Wait::NONE, session.bind);
                match timeout(patience, link.ask(&command)).await {
                    Ok(Ok(value)) => WaitOutcome::Answered(value),
                    Ok(Err(trouble)) => WaitOutcome::Trouble(trouble),
                    Err(_) => WaitOutcome::Trouble(Trouble::Late),
                }
            }
            Err(trouble) => WaitOutcome::Trouble(trouble),
        }
    }
}
