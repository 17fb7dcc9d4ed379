//! Asking for something to hold: one way for locks and for permits.
//!
//! # The promise
//! A caller has its reply within the time it gave (and [`SLACK`], for the reply that is on its way), wherever it waits. A
//! reply that was lost is asked for again as the same owner, who gets the same grant. A caller that gives up, or is dropped,
//! leaves no holder and no waiter behind: what may have been granted is released in the background.
//!
//! # The way
//! ```text
//!   ask once, on the shared connection ──taken──▶ wait in the server's queue ──▶ granted
//!                                                       ▲          │
//!                                     no reply: again ──┘          └── the time is over
//! ```
//! While somebody listens for verdicts anyway, the first question is left out: a call that waits is answered at once if it can be.
//! Where a wait costs a connection, callers that want the same wait in a [queue](super::caller_queue) of this process, and its head asks.

use std::sync::Arc;
use std::time::Duration;

use resil_core::Span;
use resil_core::limits::{HOLDERS_MAX, LEASE_CEILING, LEASE_LEAST, OWNER_MAX, WAIT_DEFAULT_MAX, WAITERS_CEILING};
use resil_wire::bulkhead::{EnterCall, Entered};
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, Wait};
use resil_wire::lock::{AcquireCall, Acquired, Taken};

use super::caller_queue::{Arrived, QueueKey, Turn};
use super::release::{PendingRelease, Release};
use super::{Binding, Grant, Holding, HoldingKind, PendingRenewal, Renewal, from_ms, span, trusted_until};
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::health::Away;
use crate::settings::span_text::{check_number, check_span};
use crate::telemetry::{CallEnding, HoldingMeters, watch};

/// The default lease of locks and permits.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(10);
/// The default grace: time for a reconnection, and what a crash costs the others.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(3);
/// Below this a holding would be renewed all the time; above, an unbound one says the same.
const GRACE_LEAST: Duration = Duration::from_millis(100);
const GRACE_MOST: Duration = Duration::from_secs(24 * 3_600);

/// 0 is served first.
const PRIORITY_LAST: u8 = 9;

/// How much longer than its time a call waits for the server's last word.
pub(crate) const SLACK: Duration = Duration::from_millis(50);

/// Between two tries while the server does not reply.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Exclusive,
    Shared,
    Permit { max: u32, queue: u32, priority: u8 },
}

impl Claim {
    pub fn kind(self) -> HoldingKind {
        match self {
            Self::Exclusive | Self::Shared => HoldingKind::Lock,
            Self::Permit { .. } => HoldingKind::Bulkhead,
        }
    }
}

/// What is wanted, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct Want {
    pub claim: Claim,
    pub name: Arc<str>,
    /// What it is called at the server.
    pub key: Arc<str>,
    pub lease: Duration,
    pub meta: Option<Arc<str>>,
    pub binding: Binding,
    /// How long the owner of a bound holding has to take it back when its connection closes.
    pub grace: Duration,
    pub renewal: Renewal,
    pub replicas: u32,
    pub away: Away,
}

/// What the server said, for locks and bulkheads alike.
enum AskVerdict {
    Granted {
        fence: Option<u64>,
        lease: Duration,
        waited: Duration,
    },
    /// Not now; waiting may help.
    Taken(Option<Duration>),
    /// It was waited for in vain.
    TimeOver(Option<Duration>),
}

enum AskOutcome {
    Reply(Result<Reply, Error>),
    TimeOver,
    Closing,
}

/// Whether the time given bounds it; who asks once is bounded by the backend only.
#[derive(Debug, Clone, Copy)]
enum Bounded {
    ByTime,
    Not,
}

impl Want {
    pub fn check(&self, backend: &Backend) -> Result<(), Error> {
        self.check_terms()?;
        if self.replicas > 0 && matches!(backend, Backend::Memory(_)) {
            return Err(Error::invalid("replicas", "must be 0 in memory: there are none"));
        }
        match self.claim {
            Claim::Exclusive => {}
            Claim::Shared => backend.require_one_server("a shared lock")?,
            Claim::Permit { .. } => backend.require_one_server("a shared bulkhead")?,
        }
        if self.replicas > 0 {
            backend.require_one_server("a lock that waits for replicas")?;
        }
        Ok(())
    }

    /// What does not depend on where it is asked for.
    pub fn check_terms(&self) -> Result<(), Error> {
        let what = match self.claim.kind() {
            HoldingKind::Lock => "locks",
            HoldingKind::Bulkhead => "shared bulkheads",
        };
        self.away.not_local(what)?;
        if self.name.is_empty() {
            return Err(Error::invalid("name", "must not be empty"));
        }
        check_lease(self.lease)?;
        check_span("grace", self.grace, GRACE_LEAST, GRACE_MOST)?;
        if self.meta.as_ref().is_some_and(|meta| meta.is_empty() || meta.len() > OWNER_MAX) {
            return Err(Error::invalid("meta", format!("must have from 1 to {OWNER_MAX} bytes")));
        }
        let Claim::Permit { max, queue, priority } = self.claim else { return Ok(()) };
        check_number("maxConcurrentCalls", max, 1, HOLDERS_MAX as u32)?;
        check_number("maxQueue", queue, 0, WAITERS_CEILING)?;
        check_number("priority", priority, 0, PRIORITY_LAST)
    }

    /// The grace of what is granted at `backend`; `None` if it is not bound there. What nobody renews is not bound: it lasts
    /// for its lease, whatever its connection does, and nothing could be believed for longer than the grace.
    pub fn grace_on(&self, backend: &Backend) -> Option<Duration> {
        let is_bound = self.binding == Binding::Bound && self.renewal == Renewal::ByWatchdog;
        (is_bound && backend.bind_here() != Bind::None).then_some(self.grace)
    }

    fn command<'a>(&'a self, owner: &'a [u8], wait: Duration, bind: Bind, grace: Option<Duration>) -> Command<'a> {
        let (key, lease, wait) = (self.key.as_bytes(), span(self.lease), Wait::blocked(span(wait)));
        let bind = grace.map_or(Bind::None, |grace| bind.with_grace(span(grace)));
        match self.claim {
            Claim::Permit { max, queue, priority } => {
                Command::BulkheadEnter(EnterCall { key, owner, max, lease, wait, queue, priority, bind })
            }
            Claim::Exclusive | Claim::Shared => {
                let meta = self.meta.as_deref().unwrap_or_default().as_bytes();
                let shared = self.claim == Claim::Shared;
                Command::LockAcquire(AcquireCall { key, owner, lease, wait, shared, bind, meta })
            }
        }
    }

    fn queue(&self) -> (QueueKey, usize) {
        let (priority, most) = match self.claim {
            Claim::Exclusive | Claim::Shared => (0, usize::MAX),
            Claim::Permit { queue, priority, .. } => (priority, queue as usize),
        };
        (QueueKey { kind: self.claim.kind(), priority, name: Arc::clone(&self.name) }, most)
    }

    /// It was not granted.
    fn refusal(&self, waited: Duration, retry_after: Option<Duration>) -> Error {
        let name = Arc::clone(&self.name);
        match self.claim.kind() {
            HoldingKind::Lock => Error::LockTimeout { name, waited, retry_after },
            HoldingKind::Bulkhead => Error::BulkheadFull { name, retry_after },
        }
    }
}

/// What no server takes is not even asked for: a renewal that is sent counts as one that may have arrived.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    check_span("lease", lease, duration(LEASE_LEAST), duration(LEASE_CEILING))
}

fn duration(span: Span) -> Duration {
    Duration::from_micros(span.as_us().unsigned_abs())
}

fn read(reply: Reply) -> Result<AskVerdict, Error> {
    let granted = |fence, lease_ms, waited_ms| AskVerdict::Granted {
        fence,
        lease: from_ms(lease_ms),
        waited: from_ms(waited_ms),
    };
    let remaining = |taken: &Taken| Some(from_ms(taken.remaining_ms));
    Ok(match reply {
        Reply::Acquired(Acquired::Granted { fence, lease_ms, waited_ms }) => granted(Some(fence), lease_ms, waited_ms),
        Reply::Acquired(Acquired::Taken(taken)) => AskVerdict::Taken(remaining(&taken)),
        Reply::Acquired(Acquired::Timeout(taken)) => AskVerdict::TimeOver(remaining(&taken)),
        Reply::Entered(Entered::Granted { lease_ms, waited_ms, .. }) => granted(None, lease_ms, waited_ms),
        Reply::Entered(Entered::Full { retry_after_ms, .. }) => AskVerdict::Taken(Some(from_ms(retry_after_ms))),
        Reply::Entered(Entered::Timeout { retry_after_ms, .. }) => AskVerdict::TimeOver(Some(from_ms(retry_after_ms))),
        other => return Err(super::unexpected(&other)),
    })
}

/// One acquisition.
pub(super) struct Acquisition<'a> {
    pub client: &'a Client,
    pub want: &'a Want,
    begun: Moment,
    until: Moment,
}

/// Asks for what is wanted, for at most `wait`; zero is once.
pub(crate) async fn ask(
    client: &Client,
    want: &Want,
    meters: &Arc<HoldingMeters>,
    wait: Duration,
) -> Result<Arc<Holding>, Error> {
    let begun = client.clock().now();
    let operation = if want.claim.kind() == HoldingKind::Lock { "acquire" } else { "enter" };
    let asking = ask_uncounted(client, want, begun, wait);
    let asked = match watch(meters.primitive, operation, &meters.name) {
        None => asking.await,
        Some(watch) => watch.around(asking, |asked| CallEnding::or(asked, |_| CallEnding::GRANTED)).await,
    };
    match &asked {
        Ok(holding) => holding.count_as_begun(meters, client.clock().now().saturating_sub(begun)),
        Err(Error::LockTimeout { .. } | Error::BulkheadFull { .. }) => meters.verdicts.denied.increment(1),
        Err(Error::BackendUnavailable(_)) => meters.unavailable.increment(1),
        Err(_) => {}
    }
    asked
}

async fn ask_uncounted(client: &Client, want: &Want, begun: Moment, wait: Duration) -> Result<Arc<Holding>, Error> {
    want.check(client.backend())?;
    // Not before: what is refused was never made, and says nothing about what the others do while the server is away.
    client.note_holder(want.claim.kind(), want.away);
    let asking = Acquisition { client, want, begun, until: begun.saturating_add(wait) };
    if client.patience().is_cancelled() {
        return Err(Error::ShuttingDown);
    }
    #[cfg(feature = "redis")]
    if let Backend::Quorum(quorum) = client.backend() {
        let waits = !wait.is_zero();
        let _turn = if waits { Some(asking.join_queue().await?) } else { None };
        return Box::pin(super::quorum::ask(&asking, quorum, waits)).await;
    }
    if wait.is_zero() || matches!(want.claim, Claim::Permit { queue: 0, .. }) {
        return asking.ask(Patience::Once, None).await;
    }
    let turn = if client.backend().queues_everybody() { None } else { Some(asking.join_queue().await?) };
    asking.ask(Patience::Waits, turn).await
}

/// Whether a caller waits for what it cannot have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Once,
    Waits,
}

impl Acquisition<'_> {
    pub fn left(&self) -> Duration {
        self.until.saturating_sub(self.client.clock().now())
    }

    /// Until the last word has to be there. A grant that came in during the slack has used some of it.
    pub fn left_with_slack(&self) -> Duration {
        self.until.saturating_add(SLACK).saturating_sub(self.client.clock().now())
    }

    pub fn refused(&self, retry_after: Option<Duration>) -> Error {
        self.want.refusal(self.client.clock().now().saturating_sub(self.begun), retry_after)
    }

    /// Waits for the turn in this process.
    async fn join_queue(&self) -> Result<Turn<'_>, Error> {
        let (key, most) = self.want.queue();
        let mut turn = std::pin::pin!(self.client.inner().holdings.queues.join(key, most));
        // Nobody before it is the usual case, and needs no timer.
        let at_once = futures_util::future::poll_immediate(&mut turn).await;
        let joined = match at_once {
            Some(joined) => joined,
            None => tokio::select! {
                biased;
                joined = turn => joined,
                () = self.client.patience().cancelled() => return Err(Error::ShuttingDown),
                () = self.client.clock().sleep(self.left()) => return Err(self.refused(None)),
            },
        };
        joined.map_err(|_| self.refused(None))
    }

    /// Asks the server, at once or waiting there. The turn, where there is one, is passed on when it is answered.
    async fn ask(&self, patience: Patience, turn: Option<Turn<'_>>) -> Result<Arc<Holding>, Error> {
        let may_wait = patience == Patience::Waits;
        let (client, want) = (self.client, self.want);
        let (backend, clock) = (client.backend(), client.clock());
        let grace = want.grace_on(backend);
        let mut waits =
            may_wait && backend.hears_waits() || turn.as_ref().is_some_and(|turn| turn.came == Arrived::Later);
        let (id, owner) = client.inner().holdings.new_owner(&client.inner().name);
        let mut unknown = PendingRelease::new(Release::of_unknown(client, want, &owner));
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        // The first question whose verdict may still come: it may come as the reply to a later one, and how long it was waited
        // for counts from the question it belongs to.
        let mut unanswered: Option<Moment> = None;
        loop {
            let sent = clock.now();
            let left = self.until.saturating_sub(sent);
            // Asked once, the backend itself bounds how long a reply may take.
            let bound = may_wait.then(|| left.saturating_add(SLACK));
            let heard = if waits {
                unknown.may_come_late();
                unanswered.get_or_insert(sent);
                // Longer waits than a server allows are begun anew.
                let wait = left.min(duration(WAIT_DEFAULT_MAX));
                self.hear(client.wait(&want.command(&owner, wait, backend.bind(), grace)), bound).await
            } else {
                let command = want.command(&owner, Duration::ZERO, backend.bind_here(), grace);
                match backend.call_now(&command) {
                    Some(reply) => AskOutcome::Reply(reply),
                    None => self.hear(backend.call(&command), bound).await,
                }
            };
            let reply = match heard {
                AskOutcome::Reply(reply) => reply,
                AskOutcome::TimeOver => return Err(self.refused(None)),
                AskOutcome::Closing => return Err(Error::ShuttingDown),
            };
            let is_last = self.left().is_zero();
            match reply.and_then(read) {
                Ok(AskVerdict::Granted { fence, lease, waited }) => {
                    let bounded = if may_wait { Bounded::ByTime } else { Bounded::Not };
                    drop(turn);
                    let now = clock.now();
                    // No grant is older than its question or younger than its reply, whatever a clock did meanwhile.
                    let decided = unanswered.unwrap_or(sent).saturating_add(waited).min(now);
                    let deadline = trusted_until(decided, grace.map_or(lease, |grace| lease.min(grace)));
                    let grant = Grant { fence, lease: want.lease, deadline, is_open: false };
                    let holding = Arc::new(Holding::new(client, want, (id, owner), &grant));
                    return self.confirm(holding, unknown, bounded).await;
                }
                // Nothing is held and nobody waits: there is nothing to be released.
                Ok(AskVerdict::Taken(retry_after)) if waits || is_last || !may_wait => {
                    unknown.settle();
                    return Err(self.refused(retry_after));
                }
                Ok(AskVerdict::Taken(_)) => waits = true,
                Ok(AskVerdict::TimeOver(retry_after)) if is_last => {
                    unknown.settle();
                    return Err(self.refused(retry_after));
                }
                Ok(AskVerdict::TimeOver(_)) => unanswered = None,
                Err(error @ Error::BackendUnavailable(_)) => {
                    failures += 1;
                    if want.away == Away::Open && (client.is_away() || is_last || failures > 1) {
                        return Ok(self.open(id));
                    }
                    if is_last || !may_wait {
                        return Err(error);
                    }
                    self.pause(pause).await?;
                    if self.left().is_zero() {
                        return Err(error);
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                // It is there and does not let this user in, or lacks the module.
                Err(error) if want.away == Away::Open && error.says_away() => return Ok(self.open(id)),
                Err(Error::Deadlock { .. }) => return Err(Error::Deadlock { name: Arc::clone(&want.name) }),
                Err(error) => return Err(error),
            }
        }
    }

    /// The reply, unless the time is over before.
    async fn hear(&self, question: impl Future<Output = Result<Reply, Error>>, bound: Option<Duration>) -> AskOutcome {
        let time_over = async {
            match bound {
                Some(bound) => self.client.clock().sleep(bound).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            reply = question => AskOutcome::Reply(reply),
            () = self.client.patience().cancelled() => AskOutcome::Closing,
            () = time_over => AskOutcome::TimeOver,
        }
    }

    /// Before the next try: not longer than there is time, and at random, so that not all come back at once.
    async fn pause(&self, pause: Duration) -> Result<(), Error> {
        let share = 0.5 + self.client.inner().options.random.unit() / 2.0;
        let pause = pause.mul_f64(share).min(self.left());
        tokio::select! {
            () = self.client.clock().sleep(pause) => Ok(()),
            () = self.client.patience().cancelled() => Err(Error::ShuttingDown),
        }
    }

    /// What is left of the lease is worth having, and as many replicas as wanted have it.
    async fn confirm(
        &self,
        holding: Arc<Holding>,
        unknown: PendingRelease,
        bounded: Bounded,
    ) -> Result<Arc<Holding>, Error> {
        let (client, want) = (self.client, self.want);
        if want.replicas > 0 {
            let timeout = client.inner().options.command_timeout;
            let under_way = PendingRenewal::begin_unseen(&holding, want.lease);
            let command = holding.renew_command(want.lease, holding.bind(client.backend().bind()));
            let (reply, replicas) = client.backend().replicated(&command, want.replicas, timeout).await?;
            holding.renewed(reply, under_way).map_err(|error| self.lost_meanwhile(error))?;
            if replicas < want.replicas {
                return Err(Error::BackendUnavailable("too few replicas have the lock; it was given back"));
            }
        }
        let left = holding.deadline().saturating_sub(client.clock().now());
        if left < holding.believed(want.lease) / 2 {
            let renewing = holding.renew_unseen(want.lease);
            let renewed = match bounded {
                Bounded::Not => renewing.await,
                Bounded::ByTime => tokio::select! {
                    biased;
                    renewed = renewing => renewed,
                    () = client.clock().sleep(self.left_with_slack()) => return Err(self.refused(None)),
                },
            };
            renewed.map_err(|error| self.lost_meanwhile(error))?;
        }
        client.inner().holdings.watch(&holding);
        unknown.settle();
        Ok(holding)
    }

    /// Granted and lost before it could be handed over: it was not granted.
    fn lost_meanwhile(&self, error: Error) -> Error {
        match error {
            Error::LockLost { .. } => self.refused(None),
            other => other,
        }
    }

    /// Let through without the server.
    pub fn open(&self, id: u64) -> Arc<Holding> {
        let grant = Grant { fence: None, lease: self.want.lease, deadline: Moment::MAX, is_open: true };
        Arc::new(Holding::new(self.client, self.want, (id, Arc::default()), &grant))
    }
}
