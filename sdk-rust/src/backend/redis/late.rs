//! Waits that need no connection: the server replies at once, and its verdict comes later as a message.
//!
//! # The promise
//! - Every caller waits in the server's queue, however many there are, and the server decides who is first.
//! - A wait whose verdict may have been lost, because the listening connection or the shared one was replaced, is asked again as
//!   the same owner: the server gives it the same position, or the same grant.
//! - A wait that is dropped, or fails, leaves the queue within a round trip, by a command to the server.
//!
//! # Two connections, not one
//! Verdicts come over the connection that also brings losses and changes of breakers, and not over the shared one: a server
//! closes a connection with subscriptions when 32 MB of replies wait for it, which cached values can reach. The server knows
//! the waits as those of the shared connection, so they end with it.
//!
//! In a cluster the connections to its nodes do [the same](super::node_waits). Where nobody can listen (a user who may not subscribe, in
//! a cluster also an older protocol) waits go over [connections of their own](super::waiting).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::ConnectionInfo;
use resil_core::circuit_breaker::Report;
use resil_wire::command::{Command, Reply};
use resil_wire::guard::{Again, GuardEnterCall, GuardEntered, GuardExitCall};
use resil_wire::holding::{Bind, OwnedCall, Wait};
use resil_wire::idempotency::{Begun, TokenCall};
use resil_wire::late::LateVerdict;
use resil_wire::reply::Value;
use resil_wire::single_flight::{AbandonCall, Joined};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use super::connection::{Connection, Prefix};
use super::link::{CONNECT_BOUND, Door, Link, Session};
use super::speech::packed;
use super::supervisor::SharedConnection;
use super::trouble::{CLOSED, Trouble};
use super::waiting::{
    EarlierConnection, SLACK, WaitOutcome, WaitingCommand, as_span, bind_of, info_of, is_over, rewritten,
};
use super::{Redis, resp};
use crate::error::Error;

/// How long a wait waits for somebody to listen, before it takes a connection of its own.
const LISTENER_WITHIN: Duration = Duration::from_secs(1);

/// What a verdict is known by: the kind, the key, and the owner or token.
pub(super) type WaitName = (&'static str, Vec<u8>, Vec<u8>);

pub(super) type Verdict = Result<Value, Trouble>;

/// The listener for verdicts.
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
    pub fn deliver(&self, message: &[u8]) {
        let Some((name, verdict)) = parsed(message) else { return };
        let waiting = self.waits.lock().remove(&name);
        if let Some(waiting) = waiting {
            let _ = waiting.send(verdict);
        }
    }

    pub(super) fn are_heard_now(&self, generation: u64) -> bool {
        *self.listener.borrow() == Listener::Beside(generation)
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

/// A message that ends a wait, and which.
pub(super) fn parsed(message: &[u8]) -> Option<(WaitName, Verdict)> {
    let LateVerdict { kind, key, owner, verdict } = LateVerdict::from_json(message).ok()?;
    // An owner is asked for by one caller: this is of an earlier question of the same wait.
    if matches!(&verdict, Err(error) if error.starts_with("SUPERSEDED")) {
        return None;
    }
    let kind = KINDS.into_iter().find(|known| *known == kind)?;
    Some(((kind, key, owner), verdict.map_err(|error| resp::trouble(error.as_bytes()))))
}

const KINDS: [&str; 6] = ["lock", "bulkhead", "idempotency", "flight", "ledger", "guard"];

pub(super) fn name_of(command: &Command<'_>) -> Option<WaitName> {
    let (kind, key, owner) = match command {
        Command::LockAcquire(call) => ("lock", call.key, call.owner),
        Command::BulkheadEnter(call) => ("bulkhead", call.key, call.owner),
        Command::IdempBegin(call) => ("idempotency", call.key, call.token),
        Command::FlightJoin(call) => ("flight", call.key, call.token),
        Command::DlqTake(call) => ("ledger", call.key, call.token),
        Command::GuardEnter(call) => ("guard", call.key, call.owner),
        _ => return None,
    };
    Some((kind, key.to_vec(), owner.to_vec()))
}

/// What takes a wait out of its queue, and gives back what it may have been granted. Not for messages, which are given back one by one:
/// their taker does it.
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
        let leaving = Leaving { shared, command: Some(command), asked: None };
        let asking = WaitingCommand { leaving: Some(leaving), ..WaitingCommand::new(shared, command, deadline) };
        tokio::select! {
            reply = asking.until_answered() => reply,
            () = shared.closing.cancelled() => Err(CLOSED),
        }
    }
}

/// A wait without a verdict: a command takes it out of the queue of the server.
pub(super) struct Leaving<'a, 'c> {
    shared: &'a SharedConnection,
    command: Option<&'a Command<'c>>,
    /// The connection to the node that was asked last.
    asked: Option<Connection>,
}

impl Leaving<'_, '_> {
    /// It was answered: there is nothing to leave.
    pub fn settle(mut self) {
        self.command = None;
    }

    /// A policy knows its waiters by their owners, and its calls by their tickets. To ask without waiting is to leave the queue, or to get the
    /// ticket of what was granted meanwhile: that call is over.
    fn leave_guard(&mut self, call: &GuardEnterCall<'_>) {
        let connection = match (self.asked.take(), self.shared.link()) {
            (Some(node), _) => node,
            (None, Ok(Link::Server(connection))) => connection,
            _ => return,
        };
        let once = GuardEnterCall { wait: Wait::NONE, ticket: None, subject: None, ..call.clone() };
        let asked = connection.ask_anyway(|outbox| resp::write(&Command::GuardEnter(once), outbox));
        let key = call.key.to_vec();
        self.shared.runtime.spawn(async move {
            let Ok(value) = asked.await else { return };
            if let Ok(GuardEntered::Admitted { ticket, .. }) = GuardEntered::read(value) {
                let (key, ticket, report) = (&*key, &*ticket, Report::Cancel);
                let (duration, again, correlation) = (None, Some(Again::Final), None);
                let over = GuardExitCall { key, ticket, report, duration, again, correlation };
                let _ = connection.ask_anyway(|outbox| resp::write(&Command::GuardExit(over), outbox)).await;
            }
        });
    }
}

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        if let Some(Command::GuardEnter(call)) = self.command {
            return self.leave_guard(call);
        }
        let Some(leaving) = self.command.and_then(leaving) else { return };
        match (self.asked.take(), self.shared.link()) {
            (None, Ok(Link::Server(connection))) => {
                // What nobody waits for is not sent. If the connection breaks first, the server takes the wait out by itself.
                self.shared.runtime.spawn(connection.ask_anyway(|outbox| resp::write(&leaving, outbox)));
            }
            (Some(node), link) => {
                // There it comes after the question. If the key has moved since, so has what was granted.
                let replied = node.ask_anyway(|outbox| resp::write(&leaving, outbox));
                let (packed, key) = (packed(&leaving), leaving.key().unwrap_or_default().to_vec());
                self.shared.runtime.spawn(async move {
                    if let (Err(Trouble::Moved { .. } | Trouble::Ask { .. }), Ok(mut link)) = (replied.await, link) {
                        let _ = link.send(packed, Some(&key)).await;
                    }
                });
            }
            _ => {}
        }
    }
}

impl WaitingCommand<'_, '_> {
    /// Asks on the shared connection, or on the one to the node, and waits for the verdict that comes later.
    pub async fn ask_late(&mut self, session: &Session) -> WaitOutcome {
        match &session.door {
            Door::Server(_) => self.ask_server(session).await,
            Door::Cluster(seed) => self.ask_node(session, seed).await.unwrap_or_else(WaitOutcome::Trouble),
        }
    }

    async fn ask_server(&mut self, session: &Session) -> WaitOutcome {
        if !self.shared.late.are_heard(session.generation).await {
            return if self.is_current(session) {
                WaitOutcome::Trouble(Trouble::Gone("nobody listens for the verdict of a wait"))
            } else {
                WaitOutcome::Rebound
            };
        }
        let Some(mut pending) = self.shared.late.begin(self.command) else {
            return WaitOutcome::Trouble(Trouble::Gone("this command does not wait"));
        };
        let (left, mut link) = (self.left(), session.link.clone());
        let command = rewritten(self.command, Wait::asynchronous(as_span(left)), session.bind);
        let at_once = match self.within_patience(link.ask(&command)).await {
            Ok(value) => value,
            Err(trouble) => return WaitOutcome::Trouble(trouble),
        };
        if !is_queued(&command, &at_once) {
            return WaitOutcome::Answered(at_once);
        }
        match self.outcome(session, left, pending.verdict()).await {
            WaitOutcome::Answered(_) if !matches!(bind_of(&command), Bind::None) && !self.is_current(session) => {
                WaitOutcome::Rebound
            }
            replied => replied,
        }
    }

    async fn ask_node(&mut self, session: &Session, seed: &ConnectionInfo) -> Result<WaitOutcome, Trouble> {
        if self.shared.nodes.were_refused() {
            return Ok(WaitOutcome::Over(Error::PermissionDenied("subscriptions")));
        }
        if matches!(self.command, Command::IdempBegin(_) | Command::FlightJoin(_)) {
            let value = self.ask_once(session).await?;
            let is_busy = matches!(
                self.command.read(value.clone()),
                Ok(Reply::Begun(Begun::Busy { .. }) | Reply::Joined(Joined::Busy { .. }))
            );
            if !is_busy {
                return Ok(WaitOutcome::Answered(value));
            }
        }
        let (node, prefix) = match self.redirected_to.take() {
            Some(node) => (node, Prefix::Asking),
            None => (self.owner(session).await?, Prefix::None),
        };
        let (shared, generation) = (self.shared, session.generation);
        let opening = shared.nodes.to(&node, info_of(&node, seed)?, shared, generation);
        let node = timeout(CONNECT_BOUND, opening).await.unwrap_or(Err(Trouble::Late))?;
        let mut pending = node.begin(self.command, prefix)?;
        if let Some(leaving) = &mut self.leaving {
            leaving.asked = Some(node.connection.clone());
        }
        let left = self.left();
        let command = rewritten(self.command, Wait::asynchronous(as_span(left)), Bind::None);
        let at_once = self.within_patience(node.ask(&command, prefix)).await?;
        if !is_queued(&command, &at_once) {
            return Ok(WaitOutcome::Answered(at_once));
        }
        self.earlier = Some(EarlierConnection::Node(node));
        Ok(self.outcome(session, left, pending.verdict()).await)
    }

    /// The verdict that comes later, unless the shared connection is replaced before.
    async fn outcome(
        &mut self,
        session: &Session,
        left: Duration,
        verdict: impl Future<Output = Verdict>,
    ) -> WaitOutcome {
        let replied = tokio::select! {
            biased;
            replied = timeout(left + self.patience(), verdict) => replied.unwrap_or(Err(Trouble::Late)),
            over = is_over(self.shared, &mut self.reach, session.generation) => match over {
                Ok(()) => return WaitOutcome::Rebound,
                Err(error) => return WaitOutcome::Over(error),
            },
        };
        let replied = match replied {
            // Too large for a message: it is there now, for a caller that asks.
            Err(Trouble::AskAgain) => self.ask_once(session).await,
            replied => replied,
        };
        replied.map_or_else(WaitOutcome::Trouble, WaitOutcome::Answered)
    }

    async fn ask_once(&self, session: &Session) -> Verdict {
        let command = rewritten(self.command, Wait::NONE, session.bind);
        self.within_patience(session.link.clone().ask(&command)).await
    }

    fn patience(&self) -> Duration {
        self.shared.command_timeout + SLACK
    }

    async fn within_patience(&self, asking: impl Future<Output = Verdict>) -> Verdict {
        timeout(self.patience(), asking).await.unwrap_or(Err(Trouble::Late))
    }
}

fn is_queued(command: &Command<'_>, reply: &Value) -> bool {
    matches!(command.read(reply.clone()), Ok(Reply::Queued(_)))
}
