//! Bulkhead: so many calls at once, so many more in line, and the rest is refused.
//!
//! # What is promised
//! - Never more than `max` calls active and `queue` waiting; one more is refused at once with [`Error::BulkheadFull`].
//! - First come, first served. A place that becomes free is handed to the first in line; nobody overtakes.
//! - A call that waits for longer than `max_wait` is refused, too. A call that is cancelled leaves the queue; a permit that was on
//!   its way is handed on. A place is a guard: it is given back when the call returns, fails, panics or is dropped.
//! - Partitions have places and lines of their own: one that is full takes nothing from the others.
//! - Metrics are exact: every call that came is active, queued, completed, rejected or abandoned, and nothing else.
//!
//! # The state
//! One word holds `active` and `queued`. While nobody waits, entering and leaving are one compare-and-swap each, without
//! a lock or an allocation. The line itself is behind a lock, and `queued` changes only while it is held.
//!
//! Invariant: if `queued > 0` then `active == max`.
//!
//! ```
//! use resil::policy::LocalBulkhead;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let bulkhead = LocalBulkhead::new("orders", 10, 100)?;
//! let answer = bulkhead.call(|| async { Ok::<_, std::io::Error>("hello") }).await;
//! assert_eq!(answer.unwrap(), "hello");
//! assert_eq!(bulkhead.metrics().completed, 1);
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::{Counter, Gauge};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::timeout::MAX_TIMEOUT;
use crate::clock::{Clock, Sleep};
use crate::error::{Error, Failure};
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry;

const MAX_CALLS: u32 = 1_000_000;

/// How many places there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BulkheadSettings {
    /// Calls at once: 1 to 1,000,000.
    pub max_concurrent_calls: u32,
    /// Calls that may wait for a place: 0 to 1,000,000.
    pub max_queue: u32,
    /// How long one may wait: 0 (not at all) to 5 min.
    #[serde(with = "span_text")]
    pub max_wait: Duration,
    /// Places and lines of their own, by name, beside those above.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<String, PartitionSettings>,
}

/// How many places a partition has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartitionSettings {
    /// Calls at once: 1 to 1,000,000.
    pub max_concurrent_calls: u32,
    /// Calls that may wait for a place: 0 to 1,000,000.
    #[serde(default)]
    pub max_queue: u32,
}

impl Default for BulkheadSettings {
    /// 25 calls, no line.
    fn default() -> Self {
        let (max_wait, partitions) = (Duration::from_secs(5), BTreeMap::new());
        Self { max_concurrent_calls: 25, max_queue: 0, max_wait, partitions }
    }
}

impl BulkheadSettings {
    pub fn validate(&self) -> Result<(), Error> {
        check_number("maxConcurrentCalls", self.max_concurrent_calls, 1, MAX_CALLS)?;
        check_number("maxQueue", self.max_queue, 0, MAX_CALLS)?;
        check_span("maxWait", self.max_wait, Duration::ZERO, MAX_TIMEOUT)?;
        for (name, partition) in &self.partitions {
            let of = |field: &str| format!("partitions.{name}.{field}");
            check_number(&of("maxConcurrentCalls"), partition.max_concurrent_calls, 1, MAX_CALLS)?;
            check_number(&of("maxQueue"), partition.max_queue, 0, MAX_CALLS)?;
        }
        Ok(())
    }
}

/// How a bulkhead, or a partition of it, is used. `active + queued + completed + rejected + abandoned` is every call that
/// ever came; read while calls come and go, the last three may be a moment behind the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BulkheadMetrics {
    /// Calls that have a place.
    pub active: u32,
    /// Calls in line.
    pub queued: u32,
    /// Places that are free.
    pub available: u32,
    /// Calls that had a place and gave it back, however they ended.
    pub completed: u64,
    /// Calls that were refused: on arrival, or because they waited for too long.
    pub rejected: u64,
    /// Calls that were cancelled while they were in line.
    pub abandoned: u64,
}

/// The policy, or one partition of it. Cheap to clone; clones share all places.
#[derive(Debug, Clone)]
pub struct LocalBulkhead {
    compartment: Arc<Compartment>,
    partitions: Arc<BTreeMap<String, Arc<Compartment>>>,
}

#[derive(Debug)]
struct Compartment {
    name: Arc<str>,
    max: u32,
    queue: u32,
    max_wait: Duration,
    clock: Clock,
    /// `active` in the lower half, `queued` in the upper.
    state: AtomicU64,
    line: Mutex<WaitQueue>,
    completed: AtomicU64,
    rejected: AtomicU64,
    abandoned: AtomicU64,
    rejections: Counter,
    active_gauge: Gauge,
    queued_gauge: Gauge,
}

/// Who waits, in the order of their tickets. A ticket that is no longer here was given a permit.
#[derive(Debug, Default)]
struct WaitQueue {
    waiting: VecDeque<(u64, Waker)>,
    last_ticket: u64,
}

impl WaitQueue {
    fn position(&self, ticket: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket)
    }
}

const ONE_ACTIVE: u64 = 1;
const ONE_QUEUED: u64 = 1 << 32;

fn active(state: u64) -> u32 {
    state as u32
}

fn queued(state: u64) -> u32 {
    (state >> 32) as u32
}

impl LocalBulkhead {
    /// `max` calls at once, `queue` more in line for up to 5 s.
    pub fn new(name: &str, max: u32, queue: u32) -> Result<Self, Error> {
        let settings = BulkheadSettings { max_concurrent_calls: max, max_queue: queue, ..BulkheadSettings::default() };
        Self::from_settings(name, &settings, Clock::system())
    }

    pub fn from_settings(name: &str, settings: &BulkheadSettings, clock: Clock) -> Result<Self, Error> {
        settings.validate()?;
        let compartment = |name: String, max: u32, queue: u32| {
            Arc::new(Compartment::new(name.into(), max, queue, settings.max_wait, clock.clone()))
        };
        let partition = |(key, partition): (&String, &PartitionSettings)| {
            let full_name = format!("{name}/{key}");
            (key.clone(), compartment(full_name, partition.max_concurrent_calls, partition.max_queue))
        };
        Ok(Self {
            compartment: compartment(name.to_owned(), settings.max_concurrent_calls, settings.max_queue),
            partitions: Arc::new(settings.partitions.iter().map(partition).collect()),
        })
    }

    /// The partition of this name, to be used like a bulkhead. Refuses names that the settings do not have.
    pub fn partition(&self, name: &str) -> Result<Self, Error> {
        match self.partitions.get(name) {
            Some(found) => Ok(Self { compartment: Arc::clone(found), partitions: Arc::clone(&self.partitions) }),
            None => Err(self.no_partition(name)),
        }
    }

    #[cold]
    fn no_partition(&self, name: &str) -> Error {
        let known = self.partitions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let bulkhead = &self.compartment.name;
        Error::InvalidArgument(format!("the bulkhead {bulkhead} has no partition {name:?}; it has: {known}"))
    }

    /// The bulkhead's name; a partition's is `bulkhead/partition`.
    pub fn name(&self) -> &str {
        &self.compartment.name
    }

    pub fn metrics(&self) -> BulkheadMetrics {
        self.compartment.metrics()
    }

    /// Runs `operation` when there is a place for it.
    pub async fn call<T, E, Fut>(&self, operation: impl FnOnce() -> Fut) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        self.around(|| operation().map_err(Failure::Inner)).await
    }

    /// The same around another policy: `bulkhead.around(|| timeout.call(|| fetch()))`.
    pub async fn around<T, E, Fut>(&self, operation: impl FnOnce() -> Fut) -> Result<T, Failure<E>>
    where
        Fut: Future<Output = Result<T, Failure<E>>>,
    {
        let _place = match self.compartment.try_enter() {
            Some(place) => place,
            None => self.compartment.enter().await?,
        };
        operation().await
    }

    /// A place to hold while something else is done; given back when the permit is dropped.
    pub async fn acquire(&self) -> Result<BulkheadPermit, Error> {
        let place = match self.compartment.try_enter() {
            Some(place) => place,
            None => self.compartment.enter().await?,
        };
        Ok(place.into_owned(&self.compartment))
    }

    /// A place here, or in the partition of this name, without counting a reference.
    pub(crate) async fn place(&self, partition: Option<&str>) -> Result<CallPermit<'_>, Error> {
        let compartment = match partition {
            None => &self.compartment,
            Some(name) => self.partitions.get(name).ok_or_else(|| self.no_partition(name))?,
        };
        match compartment.try_enter() {
            Some(place) => Ok(place),
            None => compartment.enter().await,
        }
    }

    /// A place if there is one now, without counting a reference.
    pub(crate) fn place_now(&self) -> Result<CallPermit<'_>, Error> {
        self.compartment.try_enter().ok_or_else(|| self.compartment.reject())
    }

    /// A place if there is one now and nobody waits for it.
    pub fn try_acquire(&self) -> Result<BulkheadPermit, Error> {
        match self.compartment.try_enter() {
            Some(place) => Ok(place.into_owned(&self.compartment)),
            None => Err(self.compartment.reject()),
        }
    }
}

/// A place in a bulkhead, held until it is dropped.
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub struct BulkheadPermit(Arc<Compartment>);

impl Drop for BulkheadPermit {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The same without counting a reference, for calls.
pub(crate) struct CallPermit<'a>(&'a Compartment);

impl CallPermit<'_> {
    fn into_owned(self, compartment: &Arc<Compartment>) -> BulkheadPermit {
        std::mem::forget(self);
        BulkheadPermit(Arc::clone(compartment))
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Compartment {
    fn new(name: Arc<str>, max: u32, queue: u32, max_wait: Duration, clock: Clock) -> Self {
        Self {
            rejections: telemetry::rejections(&name, "bulkhead"),
            active_gauge: telemetry::bulkhead_active(&name),
            queued_gauge: telemetry::bulkhead_queued(&name),
            name,
            max,
            queue: if max_wait.is_zero() { 0 } else { queue },
            max_wait,
            clock,
            state: AtomicU64::new(0),
            line: Mutex::default(),
            completed: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        }
    }

    fn metrics(&self) -> BulkheadMetrics {
        let state = self.state.load(Acquire);
        BulkheadMetrics {
            active: active(state),
            queued: queued(state),
            available: self.max - active(state),
            completed: self.completed.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
        }
    }

    /// A place if one is free and nobody waits.
    #[inline]
    fn try_enter(&self) -> Option<CallPermit<'_>> {
        let free = |state| (queued(state) == 0 && active(state) < self.max).then(|| state + ONE_ACTIVE);
        self.state.fetch_update(AcqRel, Acquire, free).ok()?;
        self.active_gauge.increment(1.0);
        Some(CallPermit(self))
    }

    #[cold]
    fn reject(&self) -> Error {
        self.rejected.fetch_add(1, Relaxed);
        self.rejections.increment(1);
        tracing::debug!(name: "resil.reject", policy = "bulkhead", bulkhead = &*self.name, "full");
        Error::BulkheadFull { name: Arc::clone(&self.name), retry_after: None }
    }

    /// Waits in line for a place.
    fn enter(&self) -> QueuedCall<'_> {
        QueuedCall { compartment: self, ticket: None, limit: None }
    }

    fn leave(&self) {
        let nobody_waits = |state| (queued(state) == 0).then(|| state - ONE_ACTIVE);
        if self.state.fetch_update(AcqRel, Acquire, nobody_waits).is_err() {
            self.hand_on();
        }
        self.active_gauge.decrement(1.0);
        self.completed.fetch_add(1, Relaxed);
    }

    /// Gives the place of somebody who leaves to the first in line.
    fn hand_on(&self) {
        let mut line = self.line.lock();
        match line.waiting.pop_front() {
            // They left the line before the lock was had. Nobody can join it meanwhile.
            None => {
                self.state.fetch_sub(ONE_ACTIVE, AcqRel);
            }
            Some((_, waker)) => {
                self.state.fetch_sub(ONE_QUEUED, AcqRel);
                self.active_gauge.increment(1.0);
                self.queued_gauge.decrement(1.0);
                drop(line);
                waker.wake();
            }
        }
    }
}

/// Somebody who wants a place. Dropped, they leave the line; a place that was theirs already is handed on.
struct QueuedCall<'a> {
    compartment: &'a Compartment,
    /// Set while in line.
    ticket: Option<u64>,
    limit: Option<Sleep>,
}

impl<'a> QueuedCall<'a> {
    /// Joins the line, unless there is a place after all, or no room in line.
    fn join(&mut self, waker: &Waker) -> Poll<Result<CallPermit<'a>, Error>> {
        let compartment = self.compartment;
        let mut line = compartment.line.lock();
        // While the lock is held and somebody waits, nothing changes this word; while nobody does, others may.
        let outcome = compartment.state.fetch_update(AcqRel, Acquire, |state| {
            if queued(state) == 0 && active(state) < compartment.max {
                Some(state + ONE_ACTIVE)
            } else if queued(state) < compartment.queue {
                Some(state + ONE_QUEUED)
            } else {
                None
            }
        });
        match outcome {
            Ok(before) if queued(before) == 0 && active(before) < compartment.max => {
                compartment.active_gauge.increment(1.0);
                Poll::Ready(Ok(CallPermit(compartment)))
            }
            Ok(_) => {
                line.last_ticket += 1;
                let ticket = line.last_ticket;
                line.waiting.push_back((ticket, waker.clone()));
                compartment.queued_gauge.increment(1.0);
                self.ticket = Some(ticket);
                Poll::Pending
            }
            Err(_) => {
                drop(line);
                Poll::Ready(Err(compartment.reject()))
            }
        }
    }

    /// Leaves the line. False if a place was given meanwhile.
    fn quit(&mut self, ticket: u64) -> bool {
        let mut line = self.compartment.line.lock();
        let Ok(position) = line.position(ticket) else { return false };
        let left = line.waiting.remove(position);
        self.compartment.state.fetch_sub(ONE_QUEUED, AcqRel);
        drop(line);
        // Not under the lock: with its last waker a task may be dropped, and a place with it.
        drop(left);
        self.compartment.queued_gauge.decrement(1.0);
        true
    }
}

impl<'a> Future for QueuedCall<'a> {
    type Output = Result<CallPermit<'a>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ticket = match this.ticket {
            Some(ticket) => {
                let mut waker = context.waker().clone();
                let mut line = this.compartment.line.lock();
                match line.position(ticket) {
                    Err(_) => {
                        this.ticket = None;
                        return Poll::Ready(Ok(CallPermit(this.compartment)));
                    }
                    // The former one is dropped after the lock, see `quit`.
                    Ok(position) => std::mem::swap(&mut line.waiting[position].1, &mut waker),
                }
                ticket
            }
            None => {
                if let Poll::Ready(outcome) = this.join(context.waker()) {
                    return Poll::Ready(outcome);
                }
                match this.ticket {
                    Some(ticket) => ticket,
                    None => return Poll::Pending,
                }
            }
        };
        let compartment = this.compartment;
        let limit = this.limit.get_or_insert_with(|| compartment.clock.sleep(compartment.max_wait));
        if Pin::new(limit).poll(context).is_pending() {
            return Poll::Pending;
        }
        this.ticket = None;
        // A place given at the last moment is a place.
        Poll::Ready(if this.quit(ticket) { Err(compartment.reject()) } else { Ok(CallPermit(compartment)) })
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if self.quit(ticket) {
            self.compartment.abandoned.fetch_add(1, Relaxed);
        } else {
            self.compartment.leave();
        }
    }
}
