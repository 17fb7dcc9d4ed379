//! The leases of idempotent runs, of loads and of messages, and the task that renews them while the work is done.
//!
//! # The promise
//! A lease is renewed at a third of its length (of its grace, if that is shorter) for as long as its [`LeaseGuard`] lives, on the client's background runtime: whatever the
//! caller's function does with its own thread, task or loop. It is trusted until `sent + length - drift` by the monotonic clock. When
//! the server says that it is lost, or that moment passes, its token is cancelled, and it stays lost. A renewal that fails is tried
//! again soon, until then.
//!
//! # The task
//! One for each client, started by the first lease. It sleeps until the first of them is due, so work that is over before a third of its
//! lease costs two entries of a table and wakes nobody. It lives a moment longer than the last lease, so that short work does not
//! start one each.
//!
//! # Invariants
//! `by_due` has exactly one entry for each of `kept`. `is_running` is true exactly while a task will look at the table again.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::BatchRenewed;
use resil_wire::holding::{Bind, Renewed};
use resil_wire::idempotency::TokenRenewCall;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::holding::{span, trusted_until};

/// Why a lease counts as lost that no server said was lost.
pub(crate) const LAPSED_HERE: &str = "its lease ended before the server confirmed a renewal";

/// Timers are coarse: the token is cancelled this much before the end, rather than after it.
const EARLY: Duration = Duration::from_millis(1);
/// How long the task stays when there is no lease.
const LINGER: Duration = Duration::from_secs(1);

/// Which machine holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    Idempotency,
    Flight,
    /// Messages of a ledger. Bound to the connection of this process, if there is one: then it lasts only so long when that has closed.
    Messages {
        grace: Duration,
    },
}

/// One lease, as those who work under it see it.
#[derive(Debug)]
pub(crate) struct Lease {
    pub kind: LeaseKind,
    /// As the server knows it.
    pub key: Arc<str>,
    pub token: String,
    pub length: Duration,
    /// How long it can be trusted after a renewal: its length, or the grace if that is shorter.
    trusted: Duration,
    /// Cancelled when it is lost.
    pub lost: CancellationToken,
    until_ns: AtomicU64,
    why_lost: OnceLock<&'static str>,
}

impl Lease {
    /// It was granted at `since`.
    pub fn new(kind: LeaseKind, key: Arc<str>, token: String, length: Duration, since: Moment) -> Self {
        let trusted = match kind {
            LeaseKind::Messages { grace } => length.min(grace),
            LeaseKind::Idempotency | LeaseKind::Flight => length,
        };
        let until_ns = AtomicU64::new(as_ns(trusted_until(since, trusted)));
        Self { kind, key, token, length, trusted, lost: CancellationToken::new(), until_ns, why_lost: OnceLock::new() }
    }

    /// Until when it may be trusted, if it is not renewed before.
    pub fn until(&self) -> Moment {
        Duration::from_nanos(self.until_ns.load(Ordering::Acquire))
    }

    pub fn why_lost(&self) -> &'static str {
        self.why_lost.get().copied().unwrap_or(LAPSED_HERE)
    }

    /// It is lost; only the first reason counts.
    pub fn lose(&self, why: &'static str) {
        let _ = self.why_lost.set(why);
        self.lost.cancel();
    }

    /// Asks the server for the whole length from now.
    async fn renew(&self, client: &Client) -> Result<Reply, Error> {
        let bind = match self.kind {
            LeaseKind::Idempotency => Bind::None,
            LeaseKind::Flight => client.backend().bind(),
            LeaseKind::Messages { grace } => client.backend().bind().with_grace(span(grace)),
        };
        let call =
            TokenRenewCall { key: self.key.as_bytes(), token: self.token.as_bytes(), lease: span(self.length), bind };
        let command = match self.kind {
            LeaseKind::Idempotency => Command::IdempRenew(call),
            LeaseKind::Flight => Command::FlightRenew(call),
            LeaseKind::Messages { .. } => Command::DlqRenew(call),
        };
        client.backend().call(&command).await
    }
}

fn as_ns(moment: Moment) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

/// A lease that is renewed for as long as this lives.
#[derive(Debug)]
pub(crate) struct LeaseGuard {
    client: Client,
    id: u64,
    lease: Arc<Lease>,
}

impl std::ops::Deref for LeaseGuard {
    type Target = Arc<Lease>;

    fn deref(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl LeaseGuard {
    /// Until it is lost: also by the clock of the moment in which this is polled, so that who was kept from running beyond its end
    /// learns of it first of all.
    pub async fn until_lost(&self) {
        let mut cancelled = pin!(self.lease.lost.cancelled());
        poll_fn(|context| {
            if self.client.clock().now() >= self.lease.until() {
                self.lease.lose(LAPSED_HERE);
            }
            cancelled.as_mut().poll(context)
        })
        .await;
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.client.inner().leases.table.lock().remove(self.id);
    }
}

/// Every lease that is kept.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    table: Mutex<LeaseTable>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct LeaseTable {
    kept: HashMap<u64, WatchedLease>,
    by_due: BTreeSet<(Moment, u64)>,
    last_id: u64,
    is_running: bool,
    /// When the task will look by itself.
    looks_at: Moment,
}

#[derive(Debug)]
struct WatchedLease {
    lease: Arc<Lease>,
    due: Moment,
    is_renewing: bool,
}

impl LeaseTable {
    /// Looks at `id` again at `due`, and in time to say that it is lost.
    fn schedule(&mut self, id: u64, due: Moment) {
        if let Some(entry) = self.kept.get_mut(&id) {
            self.by_due.remove(&(entry.due, id));
            entry.due = due.min(entry.lease.until().saturating_sub(EARLY));
            self.by_due.insert((entry.due, id));
        }
    }

    fn remove(&mut self, id: u64) -> Option<WatchedLease> {
        let entry = self.kept.remove(&id)?;
        self.by_due.remove(&(entry.due, id));
        Some(entry)
    }
}

impl Client {
    /// `lease` is renewed from now on, until what is returned is dropped.
    pub(crate) fn keep(&self, lease: Lease) -> LeaseGuard {
        let (leases, now) = (&self.inner().leases, self.clock().now());
        let lease = Arc::new(lease);
        let mut table = leases.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.kept.insert(id, WatchedLease { lease: Arc::clone(&lease), due: now, is_renewing: false });
        table.schedule(id, now.saturating_add(lease.trusted / 3));
        leases.ensure_task(table, self);
        LeaseGuard { client: self.clone(), id, lease }
    }
}

impl Leases {
    /// The task runs, and looks in time.
    fn ensure_task(&self, mut table: MutexGuard<'_, LeaseTable>, client: &Client) {
        if !table.is_running {
            // Where no task can run nothing can be sent either, and the lease lapses.
            let Some(runtime) = client.background() else { return };
            (table.is_running, table.looks_at) = (true, Moment::MAX);
            drop(table);
            let running = RenewalTask { client: client.clone(), has_ended: false };
            client.inner().tasks.spawn_on(renew_all(running), &runtime);
        } else if table.by_due.first().is_some_and(|(due, _)| *due < table.looks_at) {
            drop(table);
            self.wake.notify_one();
        }
    }

    /// What is to be renewed now, and when to look again.
    fn take_due(&self, now: Moment, work: &mut Vec<(u64, Arc<Lease>)>) -> Option<Moment> {
        let mut lost = Vec::new();
        let mut table = self.table.lock();
        while let Some((due, id)) = table.by_due.first().copied().filter(|(due, _)| *due <= now) {
            let Some(entry) = table.kept.get_mut(&id) else {
                table.by_due.remove(&(due, id));
                continue;
            };
            if now.saturating_add(EARLY) >= entry.lease.until() {
                lost.extend(table.remove(id));
                continue;
            }
            if !std::mem::replace(&mut entry.is_renewing, true) {
                work.push((id, Arc::clone(&entry.lease)));
            }
            table.schedule(id, Moment::MAX);
        }
        let next = table.by_due.first().map(|(due, _)| *due);
        table.looks_at = next.unwrap_or(now.saturating_add(LINGER));
        drop(table);
        lost.iter().for_each(|entry| entry.lease.lose(LAPSED_HERE));
        next
    }

    /// A renewal that was sent at `sent` is over.
    fn renewed(&self, id: u64, sent: Moment, now: Moment, reply: Result<Reply, Error>) {
        let mut table = self.table.lock();
        let Some(entry) = table.kept.get_mut(&id) else { return };
        entry.is_renewing = false;
        let lease = Arc::clone(&entry.lease);
        let due = match reply {
            Ok(Reply::Renewed(Renewed::Lost(reason)) | Reply::BatchRenewed(BatchRenewed::Lost(reason))) => {
                table.remove(id);
                drop(table);
                return lease.lose(reason.text());
            }
            Ok(Reply::Renewed(Renewed::Granted { .. }) | Reply::BatchRenewed(BatchRenewed::Granted { .. }))
                if now < lease.until() =>
            {
                lease.until_ns.store(as_ns(trusted_until(sent, lease.trusted)), Ordering::Release);
                sent.saturating_add(lease.trusted / 3)
            }
            // Perhaps it was renewed, perhaps not: asked again soon, for as long as the lease can be trusted.
            Ok(_) | Err(_) => now.saturating_add(lease.trusted / 10),
        };
        table.schedule(id, due);
    }

    /// True if the task may end; nobody counts on it from then on.
    fn may_end(&self) -> bool {
        let mut table = self.table.lock();
        table.is_running = !table.kept.is_empty();
        !table.is_running
    }
}

/// A task that is dropped, with its runtime say, is not counted on any more.
struct RenewalTask {
    client: Client,
    has_ended: bool,
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if !self.has_ended {
            self.client.inner().leases.table.lock().is_running = false;
        }
    }
}

async fn renew_all(mut running: RenewalTask) {
    let client = running.client.clone();
    let (leases, clock, stopped) = (&client.inner().leases, client.clock(), &client.inner().stopped);
    let mut under_way = FuturesUnordered::new();
    let mut work = Vec::new();
    let mut idle_since = None;
    loop {
        let now = clock.now();
        let next = leases.take_due(now, &mut work);
        under_way.extend(work.drain(..).map(async |(id, lease): (u64, Arc<Lease>)| {
            let sent = clock.now();
            let reply = lease.renew(&client).await;
            leases.renewed(id, sent, clock.now(), reply);
        }));
        let pause = match next {
            Some(due) => {
                idle_since = None;
                due.saturating_sub(now)
            }
            None => {
                let since = *idle_since.get_or_insert(now);
                if now.saturating_sub(since) >= LINGER && leases.may_end() {
                    running.has_ended = true;
                    return;
                }
                LINGER.saturating_sub(now.saturating_sub(since))
            }
        };
        tokio::select! {
            () = leases.wake.notified() => {}
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            () = clock.sleep(pause) => {}
            // What was still running was cut off; nothing is kept alive from here on.
            () = stopped.cancelled() => return,
        }
    }
}
