//! Something held at the server for a time: a lock, or a permit of a shared bulkhead.
//!
//! # The promise
//! A holding is believed until its *local deadline*, and not a moment longer: the moment the last acknowledged command
//! was sent, plus what the server says it waited, plus the lease, less a drift of one percent of that and two milliseconds.
//! By the monotonic clock of this process. Whatever the network does, [`Held::is_held`] compares with the clock when it is
//! asked, and [`Held::lost`] fires by then.
//!
//! # Bound, with a grace
//! A bound holding belongs to a connection. When the server sees that close, it cuts the lease to the *grace*: by then the
//! same owner can take it back over another connection. The server cannot have seen a close before it acknowledged a
//! command of this very holding, so a bound holding is believed for the grace after that was sent, or for the lease if
//! that is shorter, and it is renewed at a third of it. Nothing has to be known about connections: no matter which of them a
//! renewal took, and when an older one arrives and binds the holding to a connection that is about to close, what was
//! acknowledged last was sent before.
//!
//! # The state
//! ```text
//!   asked ──granted──▶ held ──LOST from the server──▶ lost
//!     │                 │ └──the deadline passes─────▶ lost
//!     │                 └──released, or dropped──────▶ ended      (a release that fails goes on in the background)
//!     └──given up: whatever may have been granted is released in the background, by owner
//! ```
//!
//! # Invariants
//! 1. The believed deadline is never later than the end of the lease at the server, no matter which of the renewals under way
//!    arrived, in whatever order. See [`Terms`].
//! 2. What was lost or let go is never held again.
//! 3. A renewal is never sent after the release was begun.

pub(crate) mod ask;
pub(crate) mod caller_queue;
mod held;
pub mod info;
mod kind;
#[cfg(feature = "redis")]
mod quorum;
pub(crate) mod release;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod watchdog;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use resil_core::Span;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, RenewCall, Renewed};
use tokio_util::sync::CancellationToken;

pub(crate) use self::kind::HoldingKind;
use self::kind::LEASE_ENDED;
#[cfg(feature = "redis")]
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::telemetry::{Event, HoldingMeters, Interest, emit};
pub use held::{Held, UntilLost};

/// Whether a holding belongs to the connection of this process: its lease is then cut to the grace when that closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Bound,
    Unbound,
}

/// Whether the watchdog renews it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    ByWatchdog,
    ByHand,
}

/// How long a grant may be trusted: `lease` from `since`, less what the clocks may drift apart.
pub(crate) fn trusted_until(since: Moment, lease: Duration) -> Moment {
    let drift = lease / 100 + Duration::from_millis(2);
    since.saturating_add(lease.saturating_sub(drift))
}

pub(crate) fn span(duration: Duration) -> Span {
    Span::from_us(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

pub(crate) fn from_ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

pub(crate) struct Holding {
    pub client: Client,
    pub kind: HoldingKind,
    pub name: Arc<str>,
    pub key: Arc<str>,
    pub owner: Arc<[u8]>,
    pub fence: Option<u64>,
    /// For the tables: unique in the client.
    pub id: u64,
    pub since: Moment,
    pub renewal: Renewal,
    /// How long its owner has to take it back when its connection closes; `None` if it is not bound.
    grace: Option<Duration>,
    /// Let through without the server: nothing is held anywhere.
    pub is_open: bool,
    /// Held by nobody else; a reader and a permit are not.
    pub is_exclusive: bool,
    /// In nanoseconds, so that it can be read without a lock.
    deadline_ns: AtomicU64,
    terms: Mutex<Terms>,
    lost: CancellationToken,
    why_lost: OnceLock<Loss>,
    ended: AtomicBool,
    /// Its meter, from when it was handed out.
    meters: OnceLock<Arc<HoldingMeters>>,
    is_counted_as_over: AtomicBool,
    /// How many guards of the same task share it.
    depth: AtomicUsize,
}

/// Without the client, which would show everything it holds.
impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("owner", &String::from_utf8_lossy(&self.owner))
            .field("fence", &self.fence)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// How it was lost.
#[derive(Debug, Clone, Copy)]
struct Loss {
    reason: &'static str,
    by_server: bool,
}

/// What the lease is, and what renewals under way may have made of it.
///
/// A renewal sets the end anew, so one that asks for less than before shortens it, and it may have arrived even if no
/// reply comes. So what it asks for counts from the moment it is sent, and while several are under way the least of
/// them is believed.
#[derive(Debug)]
struct Terms {
    lease: Duration,
    under_way: u32,
    /// The earliest end that any renewal may have set since none was under way.
    least: Moment,
}

/// What a new holding begins with.
#[derive(Debug)]
pub(crate) struct Grant {
    pub fence: Option<u64>,
    pub lease: Duration,
    pub deadline: Moment,
    pub is_open: bool,
}

impl Holding {
    pub fn new(client: &Client, want: &ask::Want, (id, owner): (u64, Arc<[u8]>), grant: &Grant) -> Self {
        let terms = Terms { lease: grant.lease, under_way: 0, least: Moment::MAX };
        Self {
            client: client.clone(),
            kind: want.claim.kind(),
            name: Arc::clone(&want.name),
            key: Arc::clone(&want.key),
            owner,
            fence: grant.fence,
            id,
            since: client.clock().now(),
            renewal: want.renewal,
            grace: want.grace_on(client.backend()),
            is_open: grant.is_open,
            is_exclusive: want.claim == ask::Claim::Exclusive,
            deadline_ns: AtomicU64::new(as_ns(grant.deadline)),
            terms: Mutex::new(terms),
            lost: CancellationToken::new(),
            why_lost: OnceLock::new(),
            ended: AtomicBool::new(false),
            meters: OnceLock::new(),
            is_counted_as_over: AtomicBool::new(false),
            depth: AtomicUsize::new(1),
        }
    }

    pub fn deadline(&self) -> Moment {
        Duration::from_nanos(self.deadline_ns.load(Ordering::Acquire))
    }

    pub fn lease(&self) -> Duration {
        self.terms.lock().lease
    }

    /// For how long an acknowledged lease of `lease` is believed.
    fn believed(&self, lease: Duration) -> Duration {
        self.grace.map_or(lease, |grace| lease.min(grace))
    }

    /// How long after the last renewal the next one is due.
    pub fn renew_after(&self) -> Duration {
        self.believed(self.lease()) / 3
    }

    /// What a command of this holding binds it to, if `to` is where it could be bound.
    pub fn bind(&self, to: Bind) -> Bind {
        self.grace.map_or(Bind::None, |grace| to.with_grace(span(grace)))
    }

    pub fn is_held(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
            && self.why_lost.get().is_none()
            && (self.is_open || self.client.clock().now() < self.deadline())
    }

    /// By the clock, now. What was released is not lost.
    pub fn is_lost(&self) -> bool {
        self.why_lost.get().is_some() || !(self.ended.load(Ordering::Acquire) || self.is_held())
    }

    /// It is lost; only the first reason counts.
    pub fn lose(&self, reason: &'static str) {
        self.lose_as(Loss { reason, by_server: false });
    }

    fn lose_as(&self, loss: Loss) {
        let _ = self.why_lost.set(loss);
        self.lost.cancel();
        self.count_as_over();
    }

    /// It was handed to somebody, who asked for it for `waited`.
    pub fn count_as_begun(&self, meters: &Arc<HoldingMeters>, waited: Duration) {
        if self.is_open {
            meters.verdicts.locally.increment(1);
            return meters.verdicts.granted.increment(1);
        }
        meters.verdicts.granted.increment(1);
        meters.wait.record(waited);
        let _ = self.meters.set(Arc::clone(meters));
    }

    /// It was released or lost, whatever came first.
    fn count_as_over(&self) {
        let Some(meters) = self.meters.get() else { return };
        if self.is_counted_as_over.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.client.clock().now();
        if self.why_lost.get().is_some() || now >= self.deadline() {
            meters.lost.increment(1);
            let reason = self.why_lost.get().map_or(LEASE_ENDED, |loss| loss.reason);
            let (primitive, name) = (meters.primitive, Arc::clone(&meters.name));
            emit(Interest::Happenings, self.client.home(), || Event::Lost { primitive, name, reason });
        }
        // What was lost unseen was held until its deadline.
        meters.held.record(now.min(self.deadline()).saturating_sub(self.since));
    }

    pub fn lost_error(&self) -> Error {
        let reason = self.why_lost.get().map_or(LEASE_ENDED, |loss| loss.reason);
        self.kind.lost(&self.name, reason)
    }

    /// Whether the server itself said that it is lost: there is nothing to release.
    pub fn was_ended_by_server(&self) -> bool {
        self.why_lost.get().is_some_and(|loss| loss.by_server)
    }

    /// It was let go.
    #[cfg(feature = "redis")]
    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// One more guard of the same task. False if nothing is held any more.
    pub fn step_in(&self) -> bool {
        let more = |depth: usize| (depth > 0).then(|| depth.saturating_add(1));
        self.is_held() && self.depth.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One guard less. True for the last one.
    pub fn step_out(&self) -> bool {
        self.depth.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Nothing is believed or renewed from here on. True the first time.
    pub fn end(&self) -> bool {
        let is_first = !self.ended.swap(true, Ordering::AcqRel);
        if is_first {
            self.count_as_over();
        }
        is_first
    }

    /// Asks the server for `lease` from now, and for as much at each renewal after it.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.renew(lease).await?;
        self.terms.lock().lease = lease;
        Ok(())
    }

    /// Asks the server for `lease` from now.
    pub async fn renew(&self, lease: Duration) -> Result<(), Error> {
        if self.is_open {
            return Ok(());
        }
        self.renew_as(lease, PendingRenewal::begin(self, lease)).await
    }

    /// The same over a connection apart, because the shared one did not reply in time.
    pub async fn renew_apart(&self, lease: Duration) -> Result<(), Error> {
        let under_way = PendingRenewal::begin(self, lease);
        #[cfg(feature = "redis")]
        if let Backend::Quorum(quorum) = self.client.backend() {
            return Box::pin(quorum::renew(self, quorum, lease, under_way)).await;
        }
        // Not bound: the shared connection may be gone, and this one does not last. The next renewal binds it.
        let command = self.renew_command(lease, Bind::None);
        let reply = self.client.backend().call_apart(&command, self.patience(lease)).await?;
        self.renewed(reply, under_way)
    }

    /// How long the reply to a renewal may take: so long that there is time for another one.
    fn patience(&self, lease: Duration) -> Duration {
        const LEAST: Duration = Duration::from_millis(250);
        (self.believed(lease) / 6).max(LEAST)
    }

    /// The same, of a grant that was not handed out yet: it is not too late even if the deadline has passed.
    pub async fn renew_unseen(&self, lease: Duration) -> Result<(), Error> {
        self.renew_as(lease, PendingRenewal::begin_unseen(self, lease)).await
    }

    async fn renew_as(&self, lease: Duration, under_way: PendingRenewal<'_>) -> Result<(), Error> {
        let backend = self.client.backend();
        #[cfg(feature = "redis")]
        if let Backend::Quorum(quorum) = backend {
            return Box::pin(quorum::renew(self, quorum, lease, under_way)).await;
        }
        let command = self.renew_command(lease, self.bind(backend.bind_here()));
        let reply = backend.call_within(&command, self.patience(lease)).await?;
        self.renewed(reply, under_way)
    }

    pub fn renew_command(&self, lease: Duration, bind: Bind) -> Command<'_> {
        let call =
            RenewCall { key: self.key.as_bytes(), owner: &self.owner, lease: span(lease), fence: self.fence, bind };
        match self.kind {
            HoldingKind::Lock => Command::LockRenew(call.into()),
            HoldingKind::Bulkhead => Command::BulkheadRenew(call),
        }
    }

    pub fn renewed(&self, reply: Reply, under_way: PendingRenewal<'_>) -> Result<(), Error> {
        match reply {
            Reply::Renewed(Renewed::Granted { lease_ms, .. }) => under_way.granted(from_ms(lease_ms)),
            Reply::Renewed(Renewed::Lost(reason)) => {
                self.lose_as(Loss { reason: reason.text(), by_server: true });
                Err(self.lost_error())
            }
            other => Err(unexpected(&other)),
        }
    }

    fn believe_until(&self, deadline: Moment) {
        self.deadline_ns.store(as_ns(deadline), Ordering::Release);
    }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::Internal(format!("a reply of another kind: {reply:?}"))
}

fn as_ns(moment: Moment) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

/// A renewal that was, or is about to be, sent.
#[derive(Debug)]
pub(crate) struct PendingRenewal<'a> {
    holding: &'a Holding,
    sent: Moment,
}

impl<'a> PendingRenewal<'a> {
    pub fn begin(holding: &'a Holding, lease: Duration) -> Self {
        let sent = holding.client.clock().now();
        let end = trusted_until(sent, holding.believed(lease));
        let mut terms = holding.terms.lock();
        terms.least = if terms.under_way == 0 { end } else { terms.least.min(end) };
        terms.under_way += 1;
        // If no reply comes, later renewals must not count on more than this one may have left.
        terms.lease = terms.lease.min(lease);
        if end < holding.deadline() {
            holding.believe_until(end);
        }
        Self { holding, sent }
    }

    /// Of a grant that was not handed out yet.
    pub fn begin_unseen(holding: &'a Holding, lease: Duration) -> Self {
        holding.believe_until(Moment::MAX);
        Self::begin(holding, lease)
    }

    fn granted(self, lease: Duration) -> Result<(), Error> {
        let holding = self.holding;
        let terms = holding.terms.lock();
        // Too late: callers have seen that it is not held, and so it stays.
        if holding.client.clock().now() >= holding.deadline() {
            drop(terms);
            holding.lose("its lease ended before the reply to a renewal came");
            return Err(holding.lost_error());
        }
        holding.believe_until(trusted_until(self.sent, holding.believed(lease)).min(terms.least));
        Ok(())
    }
}

impl Drop for PendingRenewal<'_> {
    fn drop(&mut self) {
        self.holding.terms.lock().under_way -= 1;
    }
}
