//! Everything this process holds, and the one task that renews it.
//!
//! # The promise
//! Each holding is renewed at a third of its lease, or of its grace if it is bound and that is shorter, several at once, for
//! as long as it is held. What the server says is lost, or what could not be renewed by its deadline, is reported by its token. A renewal that fails is tried again soon,
//! until the deadline, and over another connection, since the shared one may only seem to be there. When that was replaced, everything is renewed at once, which binds it to the new one. Releases whose callers are gone are done here, too.
//!
//! # The task
//! One for each client, on its background runtime, started by the first holding. It lives while something is held and a moment longer, so that
//! locks that come and go do not start one each. It sleeps until the first thing is due; nobody who holds depends on
//! it having run: [`Holding::is_held`] compares the clock.
//!
//! # Invariants
//! `by_due` has exactly one entry for each of `held`. `is_running` is true exactly while a task will look at the table
//! again.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use resil_core::lock::Reason;
use resil_core::waited::Ending;
use tokio::sync::Notify;

use super::caller_queue::CallerQueues;
use super::release::Release;
use super::{Holding, HoldingKind, Loss, Renewal};
use crate::backend::Backend;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::health::Away;
use crate::telemetry::{self, HoldingMeters};

/// Timers are coarse: the token fires this much before the deadline, rather than after it.
const EARLY: Duration = Duration::from_millis(1);

/// What is held for longer than this is listened for; most locks are let go before.
const MOMENT: Duration = Duration::from_millis(100);

/// How long the task stays when nothing is held.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Holdings {
    table: Mutex<HoldingTable>,
    wake: Notify,
    pub queues: CallerQueues,
    /// Distinguishes the owners of processes that have the same name.
    salt: u64,
    last_id: AtomicU64,
    /// Whether losses in memory are heard.
    hears: OnceLock<()>,
    /// Which kinds `health` knows of; see [`Client::note_holder`].
    noted: AtomicU8,
    /// Of those that were given no label of their own; made with the first of their kind.
    lock_meters: OnceLock<Arc<HoldingMeters>>,
    bulkhead_meters: OnceLock<Arc<HoldingMeters>>,
}

#[derive(Debug, Default)]
struct HoldingTable {
    held: HashMap<u64, WatchedHolding>,
    by_due: BTreeSet<(Moment, u64)>,
    releases: Vec<Release>,
    is_running: bool,
    /// When losses are listened for, if something is held by then. `None`: nothing was begun since the last time.
    listen_at: Option<Moment>,
    /// When the task will look by itself.
    looks_at: Moment,
}

#[derive(Debug)]
struct WatchedHolding {
    holding: Arc<Holding>,
    due: Moment,
    renew_at: Moment,
    is_renewing: bool,
    failures: u32,
}

impl WatchedHolding {
    fn next_due(&self) -> Moment {
        let end = self.holding.deadline().saturating_sub(EARLY);
        if self.is_renewing || self.holding.renewal == Renewal::ByHand { end } else { self.renew_at.min(end) }
    }
}

/// What [`Holdings::take_due`] found.
struct Due {
    /// When to look again.
    next: Option<Moment>,
    /// Something is held for longer than a moment.
    listens: bool,
}

#[derive(Debug)]
enum Work {
    Renew(Arc<Holding>),
    RenewApart(Arc<Holding>),
    Release(Release),
}

impl Default for Holdings {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            wake: Notify::new(),
            queues: CallerQueues::default(),
            salt: rand::random(),
            last_id: AtomicU64::new(0),
            hears: OnceLock::new(),
            noted: AtomicU8::new(0),
            lock_meters: OnceLock::new(),
            bulkhead_meters: OnceLock::new(),
        }
    }
}

impl HoldingTable {
    fn schedule(&mut self, id: u64) {
        if let Some(entry) = self.held.get_mut(&id) {
            self.by_due.remove(&(entry.due, id));
            entry.due = entry.next_due();
            self.by_due.insert((entry.due, id));
        }
    }

    fn remove(&mut self, id: u64) -> Option<WatchedHolding> {
        let entry = self.held.remove(&id)?;
        self.by_due.remove(&(entry.due, id));
        Some(entry)
    }

    fn first_due(&self) -> Option<Moment> {
        let due = self.by_due.first().map(|(due, _)| *due);
        due.map(|due| self.listen_at.map_or(due, |at| due.min(at)))
    }

    /// Whether it is time to listen for losses.
    fn listens(&mut self, now: Moment) -> bool {
        let is_time = self.listen_at.is_some_and(|at| at <= now);
        if is_time {
            self.listen_at = None;
        }
        is_time && !self.held.is_empty()
    }
}

impl Holdings {
    /// An owner that no other acquisition of any process has.
    pub fn new_owner(&self, name: &str) -> (u64, Arc<[u8]>) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let owner = format!("{}:{id:x}", self.owners_of(name));
        (id, owner.into_bytes().into())
    }

    /// What all owners of this client begin with: the server announces their losses under it.
    pub fn owners_of(&self, name: &str) -> String {
        const NAME_SHOWN: usize = 256;
        let name: &str = name.get(..NAME_SHOWN).unwrap_or(if name.len() <= NAME_SHOWN { name } else { "" });
        format!("{name}:{:016x}", self.salt)
    }

    /// The server says that `owner` lost what it held under `fence`.
    pub fn was_lost(&self, owner: &[u8], fence: u64, reason: Reason) {
        let id =
            std::str::from_utf8(owner).ok().and_then(|owner| u64::from_str_radix(owner.rsplit(':').next()?, 16).ok());
        let mut table = self.table.lock();
        let held = id.and_then(|id| table.held.get(&id)).map(|entry| Arc::clone(&entry.holding));
        let is_it = |holding: &Arc<Holding>| *holding.owner == *owner && holding.fence.is_none_or(|held| held == fence);
        let Some(holding) = held.filter(is_it) else { return };
        table.remove(holding.id);
        drop(table);
        holding.lose_as(Loss { reason: reason.text(), by_server: true });
    }

    /// Memory publishes losses from the first holding on.
    fn hear_in_memory(&self, client: &Client) {
        let Backend::Memory(memory) = client.backend() else { return };
        self.hears.get_or_init(|| {
            let holder = client.downgrade();
            let hear = move |Ending { owner, fence, how, .. }: &Ending| {
                holder.upgrade().map(|client| client.inner().holdings.was_lost(owner, *fence, (*how).into())).is_some()
            };
            memory.hear_losses(self.owners_of(&client.inner().name).as_bytes(), Arc::new(hear));
        });
    }

    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub fn holds_anything(&self) -> bool {
        !self.table.lock().held.is_empty()
    }

    /// Everything is to be renewed now: something may have been lost that was not heard.
    pub fn renew_all(&self) {
        let now = self.table.lock().held.values().next().map(|entry| entry.holding.client.clock().now());
        if let Some(now) = now {
            self.renew_all_at(now);
            self.wake.notify_one();
        }
    }

    /// The meter of holdings of `kind` without a label of their own.
    pub fn meters(&self, kind: HoldingKind) -> &Arc<HoldingMeters> {
        let meters = match kind {
            HoldingKind::Lock => &self.lock_meters,
            HoldingKind::Bulkhead => &self.bulkhead_meters,
        };
        meters.get_or_init(|| Arc::new(HoldingMeters::new(kind.primitive(), &telemetry::UNNAMED.into())))
    }

    /// `holding` is renewed from now on.
    pub fn watch(&self, holding: &Arc<Holding>) {
        let now = holding.client.clock().now();
        let renew_at = now.saturating_add(holding.renew_after());
        let mut table = self.table.lock();
        let holding = Arc::clone(holding);
        let (id, client) = (holding.id, holding.client.clone());
        let entry = WatchedHolding { holding, due: now, renew_at, is_renewing: false, failures: 0 };
        table.held.insert(id, entry);
        table.schedule(id);
        table.listen_at.get_or_insert(now.saturating_add(MOMENT));
        self.ensure_task(table, &client);
        self.hear_in_memory(&client);
    }

    /// The deadline of `holding` was changed by other than the task.
    pub fn reschedule(&self, holding: &Holding) {
        let mut table = self.table.lock();
        if let Some(entry) = table.held.get_mut(&holding.id) {
            entry.renew_at = holding.client.clock().now().saturating_add(holding.renew_after());
            table.schedule(holding.id);
            self.ensure_task(table, &holding.client);
        }
    }

    /// `holding` is not renewed any more.
    pub fn forget(&self, holding: &Holding) {
        self.table.lock().remove(holding.id);
    }

    /// Releases it, whenever that is possible.
    pub fn in_background(&self, release: Release) {
        let client = release.client.clone();
        let mut table = self.table.lock();
        table.releases.push(release);
        self.ensure_task(table, &client);
    }

    /// Releases everything that is held, within `grace` each; the holders learn that it is lost. Returns what there was, and
    /// what came of it.
    pub async fn release_all(&self, grace: Duration) -> Vec<(String, Result<(), Error>)> {
        let held: Vec<Arc<Holding>> = {
            let mut table = self.table.lock();
            table.by_due.clear();
            table.held.drain().map(|(_, entry)| entry.holding).collect()
        };
        let ended: FuturesUnordered<_> = held
            .iter()
            .filter(|holding| {
                holding.lose("the client is shutting down");
                holding.end()
            })
            .map(async |holding| {
                let name = match holding.kind {
                    HoldingKind::Lock => format!("lock:{}", holding.name),
                    HoldingKind::Bulkhead => format!("bulkhead:{}", holding.name),
                };
                let release = Release::of(holding);
                let said = tokio::select! {
                    biased;
                    said = release.say() => said.map(drop),
                    () = holding.client.clock().sleep(grace) => Err(Error::Timeout { after: grace }),
                };
                match said {
                    // It was not held any more.
                    Err(Error::LockLost { .. }) => (name, Ok(())),
                    said => (name, said),
                }
            })
            .collect();
        let outcomes = ended.collect().await;
        // The task has nothing left to renew.
        self.wake.notify_one();
        outcomes
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.table.lock().held.len()
    }

    /// The task runs, and looks in time.
    fn ensure_task(&self, mut table: parking_lot::MutexGuard<'_, HoldingTable>, client: &Client) {
        if !table.is_running {
            // Where tasks cannot run there is no connection either, and every lease ends by itself.
            let Some(runtime) = client.background() else {
                // Each of them would keep the client, and so itself, for ever.
                return table.releases.clear();
            };
            (table.is_running, table.looks_at) = (true, Moment::MAX);
            drop(table);
            let running = WatchdogTask { client: client.clone(), has_rested: false };
            client.inner().tasks.spawn_on(watch_all(running), &runtime);
        } else if !table.releases.is_empty() || table.first_due().is_some_and(|due| due < table.looks_at) {
            drop(table);
            self.wake.notify_one();
        }
    }

    /// What is due now, and when to look again.
    fn take_due(&self, now: Moment, work: &mut Vec<Work>) -> Due {
        let mut lost = Vec::new();
        let due = {
            let mut table = self.table.lock();
            work.extend(table.releases.drain(..).map(Work::Release));
            while let Some((due, id)) = table.by_due.first().copied().filter(|(due, _)| *due <= now) {
                let Some(entry) = table.held.get_mut(&id) else {
                    table.by_due.remove(&(due, id));
                    continue;
                };
                if now.saturating_add(EARLY) >= entry.holding.deadline() {
                    lost.extend(table.remove(id));
                } else {
                    if entry.renew_at <= now && !entry.is_renewing && entry.holding.renewal == Renewal::ByWatchdog {
                        entry.is_renewing = true;
                        let holding = Arc::clone(&entry.holding);
                        work.push(if entry.failures == 0 { Work::Renew(holding) } else { Work::RenewApart(holding) });
                    }
                    table.schedule(id);
                }
            }
            let listens = table.listens(now);
            let next = table.first_due();
            table.looks_at = next.unwrap_or(now.saturating_add(LINGER));
            Due { next, listens }
        };
        for entry in lost {
            entry.holding.lose("its lease ended before it could be renewed");
        }
        due
    }

    /// A renewal is over. `since` is when it was begun.
    fn renewed(&self, holding: &Holding, since: Moment, succeeded: bool) {
        let now = holding.client.clock().now();
        let renew_after = holding.renew_after();
        let mut table = self.table.lock();
        if holding.was_ended_by_server() || !holding.is_held() {
            table.remove(holding.id);
            drop(table);
            // A deadline that passed unseen is reported now; a release has been reported to its caller.
            if !holding.ended.load(Ordering::Acquire) {
                holding.lose("its lease ended before it could be renewed");
            }
            return;
        }
        let Some(entry) = table.held.get_mut(&holding.id) else { return };
        entry.is_renewing = false;
        if succeeded {
            entry.failures = 0;
            // Later than `since`: it was put off, or asked for on a new connection, while this one was under way.
            if entry.renew_at <= since {
                entry.renew_at = since.saturating_add(renew_after);
            }
        } else {
            entry.failures = entry.failures.saturating_add(1);
            let pause = Duration::from_millis(10 << entry.failures.min(5)).min(renew_after / 3);
            entry.renew_at = now.saturating_add(pause);
        }
        table.schedule(holding.id);
    }

    /// The connection is another one: everything is to be renewed on it.
    fn renew_all_at(&self, now: Moment) {
        let mut table = self.table.lock();
        let ids: Vec<u64> = table.held.keys().copied().collect();
        for id in ids {
            if let Some(entry) = table.held.get_mut(&id) {
                entry.renew_at = now;
            }
            table.schedule(id);
        }
    }

    /// True if the task may end; nobody will count on it from then on.
    fn rest(&self) -> bool {
        let mut table = self.table.lock();
        let idle = table.held.is_empty() && table.releases.is_empty();
        table.is_running = !idle;
        idle
    }
}

impl Client {
    /// Shown by `health`, by kind and not by name: names of locks are often made of ids, and have no end.
    pub(crate) fn note_holder(&self, kind: HoldingKind, away: Away) {
        let (bit, name) = match (kind, away) {
            (HoldingKind::Lock, Away::Open) => (1, "lock:open"),
            (HoldingKind::Lock, _) => (2, "lock"),
            (HoldingKind::Bulkhead, Away::Open) => (4, "shared_bulkhead:open"),
            (HoldingKind::Bulkhead, _) => (8, "shared_bulkhead"),
        };
        let noted = &self.inner().holdings.noted;
        if noted.load(Ordering::Relaxed) & bit == 0 {
            noted.fetch_or(bit, Ordering::Relaxed);
            self.inner().health.add(name.into(), away);
        }
    }
}

/// A task that is dropped with its runtime is not counted on.
struct WatchdogTask {
    client: Client,
    has_rested: bool,
}

impl Drop for WatchdogTask {
    fn drop(&mut self) {
        if !self.has_rested {
            self.client.inner().holdings.table.lock().is_running = false;
        }
    }
}

async fn do_it(work: Work) {
    match work {
        Work::Release(release) => release.insist().await,
        Work::Renew(holding) => {
            let since = holding.client.clock().now();
            conclude(&holding, since, holding.renew(holding.lease()).await);
        }
        Work::RenewApart(holding) => {
            let since = holding.client.clock().now();
            conclude(&holding, since, holding.renew_apart(holding.lease()).await);
        }
    }
}

fn conclude(holding: &Holding, since: Moment, renewed: Result<(), Error>) {
    if let Err(error) = &renewed {
        tracing::debug!(code = error.code().text(), "a lease was not renewed"); // its name is often made of an id
    }
    holding.client.inner().holdings.renewed(holding, since, renewed.is_ok());
}

async fn watch_all(mut running: WatchdogTask) {
    let client = running.client.clone();
    let (holdings, clock) = (&client.inner().holdings, client.clock());
    let closing = &client.inner().closing;
    let mut reach = client.backend().reach();
    let (mut reach_is_known, mut closing_is_known) = (true, false);
    let mut under_way = FuturesUnordered::new();
    let mut work = Vec::new();
    let mut idle_since = None;
    loop {
        let now = clock.now();
        let Due { next, listens } = holdings.take_due(now, &mut work);
        match client.backend() {
            #[cfg(feature = "redis")]
            Backend::Redis(_) if listens => client.listen_for_losses(),
            // What was lost between its grant and its first look was not heard.
            Backend::Memory(_) if listens => holdings.renew_all(),
            _ => {}
        }
        under_way.extend(work.drain(..).map(do_it));
        let pause = match next {
            Some(due) => {
                idle_since = None;
                due.saturating_sub(now)
            }
            None if under_way.is_empty() => {
                let since = *idle_since.get_or_insert(now);
                let is_over = now.saturating_sub(since) >= LINGER || closing.is_cancelled();
                if is_over && holdings.rest() {
                    running.has_rested = true;
                    return;
                }
                LINGER.saturating_sub(now.saturating_sub(since))
            }
            None => LINGER,
        };
        tokio::select! {
            () = holdings.wake.notified() => {}
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            () = clock.sleep(pause) => {}
            // Also while it sleeps until something is due that was let go meanwhile.
            () = closing.cancelled(), if !closing_is_known => closing_is_known = true,
            changed = reach.changed(), if reach_is_known => match changed {
                Ok(()) => holdings.renew_all_at(clock.now()),
                Err(_) => reach_is_known = false,
            },
        }
    }
}
