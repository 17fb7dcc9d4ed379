//! Bulkhead: so many calls at once, so many more in the queue, and the rest is refused.
//!
//! # What is promised
//! - Never more than `max` calls active and `queue` waiting; one more is refused at once with [`Error::BulkheadFull`].
//! - First come, first served. A permit that becomes free goes to the head of the queue; no call overtakes.
//! - A call that waits for longer than `max_wait` is refused, too. A call that is cancelled leaves the queue; a permit that was on
//!   its way is handed on. A place is a guard: it is given back when the call returns, fails, panics or is dropped.
//! - Partitions have places and lines of their own: one that is full takes nothing from the others.
//! - Metrics are exact: every call that came is active, queued, completed, rejected or abandoned, and nothing else.
//!
//! With `adaptive` the number of places moves between its `min` and `max` with what calls take and how they end, by
//! [`resil_core::policy::concurrency`]. Shrinking ends no call: places are given back as calls end.
//!
//! # The state
//! Everything is behind one lock that is held for a few instructions. A permit that is dropped is sent to the head of the queue; one that
//! nobody receives any more is sent to the next.
//!
//! Invariant: if anybody waits then `active >= limit`, which is `max` if nothing adapts.
//!
//! ```
//! use resil::policy::LocalBulkhead;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let bulkhead = LocalBulkhead::new("orders", 10, 100)?;
//! let result = bulkhead.call(|| async { Ok::<_, std::io::Error>("hello") }).await;
//! assert_eq!(result.unwrap(), "hello");
//! assert_eq!(bulkhead.metrics().completed, 1);
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use metrics::{Gauge, Histogram};
use parking_lot::{Mutex, MutexGuard};
use resil_core::policy::Adaptive;
use resil_core::policy::concurrency::{Concurrency, ConcurrencyRules, Sample};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::timeout::MAX_TIMEOUT;
use crate::clock::Clock;
use crate::error::{Error, Failure};
use crate::limiter::span;
use crate::settings::span_text::{self, check_number, check_span};
use crate::telemetry::{self, CallEnding, Primitive, VerdictMeters, watched};

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
    /// Moves the number of places with what happens. Partitions keep theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
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
    /// 25 calls, no queue.
    fn default() -> Self {
        let (max_wait, partitions) = (Duration::from_secs(5), BTreeMap::new());
        Self { max_concurrent_calls: 25, max_queue: 0, max_wait, partitions, adaptive: None }
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
        check_adaptive(self.adaptive.as_ref(), self.max_concurrent_calls)
    }
}

/// The least number of places is not above the most.
pub(crate) fn check_adaptive(adaptive: Option<&Adaptive>, max: u32) -> Result<(), Error> {
    adaptive.map_or(Ok(()), |adaptive| check_number("adaptive.min", adaptive.min(), 1, max))
}

/// How a bulkhead, or a partition of it, is used. `active + queued + completed + rejected + abandoned` is every call that
/// ever came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BulkheadMetrics {
    /// Calls that have a place.
    pub active: u32,
    /// Calls in the queue.
    pub queued: u32,
    /// Places that are free.
    pub available: u32,
    /// Calls that had a place and gave it back, however they ended.
    pub completed: u64,
    /// Calls that were refused: on arrival, or because they waited for too long.
    pub rejected: u64,
    /// Calls that were cancelled while they were in the queue.
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
    queue: u32,
    max_wait: Duration,
    adaptive: Option<ConcurrencyRules>,
    clock: Clock,
    places: Mutex<Places>,
    meters: VerdictMeters,
    waits: Histogram,
    active_gauge: Gauge,
    queued_gauge: Gauge,
}

#[derive(Debug, Default)]
struct Places {
    active: u32,
    /// How many may be active now: `max`, if nothing adapts.
    limit: u32,
    adapting: Concurrency,
    /// Who waits, in the order of their tickets. A ticket that is no longer here was given a permit.
    waiting: VecDeque<(u64, oneshot::Sender<BulkheadPermit>)>,
    last_ticket: u64,
    completed: u64,
    rejected: u64,
    abandoned: u64,
}

impl LocalBulkhead {
    /// `max` calls at once, `queue` more in the queue for up to 5 s.
    pub fn new(name: &str, max: u32, queue: u32) -> Result<Self, Error> {
        let settings = BulkheadSettings { max_concurrent_calls: max, max_queue: queue, ..BulkheadSettings::default() };
        Self::from_settings(name, &settings, Clock::system())
    }

    pub fn from_settings(name: &str, settings: &BulkheadSettings, clock: Clock) -> Result<Self, Error> {
        settings.validate()?;
        let compartment = |name: String, max: u32, queue: u32, adaptive: Option<&Adaptive>| {
            let adaptive = adaptive.map(|adaptive| adaptive.rules(max));
            Arc::new(Compartment::new(name.into(), max, queue, settings.max_wait, adaptive, clock.clone()))
        };
        let partition = |(key, partition): (&String, &PartitionSettings)| {
            let full_name = format!("{name}/{key}");
            (key.clone(), compartment(full_name, partition.max_concurrent_calls, partition.max_queue, None))
        };
        Ok(Self {
            compartment: compartment(
                name.to_owned(),
                settings.max_concurrent_calls,
                settings.max_queue,
                settings.adaptive.as_ref(),
            ),
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

    /// Whether the number of places moves.
    pub(crate) fn adapts(&self) -> bool {
        self.compartment.adaptive.is_some()
    }

    /// How many places are taken, and how many there are now.
    pub(crate) fn usage(&self) -> (u32, u32) {
        let places = self.compartment.places.lock();
        (places.active, places.limit)
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
        let place = self.compartment.enter().await?;
        if self.compartment.adaptive.is_none() {
            return operation().await;
        }
        let began = self.compartment.clock.now();
        let outcome = operation().await;
        place.learn(self.compartment.clock.now().saturating_sub(began), outcome.is_err());
        outcome
    }

    /// A place to hold while something else is done; given back when the permit is dropped.
    pub async fn acquire(&self) -> Result<BulkheadPermit, Error> {
        self.compartment.enter().await
    }

    /// A place here, or in the partition of this name.
    pub(crate) async fn acquire_in(&self, partition: Option<&str>) -> Result<BulkheadPermit, Error> {
        match partition {
            None => self.compartment.enter().await,
            Some(name) => self.partitions.get(name).ok_or_else(|| self.no_partition(name))?.enter().await,
        }
    }

    /// A place if there is one now and nobody waits for it.
    pub fn try_acquire(&self) -> Result<BulkheadPermit, Error> {
        self.compartment.try_enter().ok_or_else(|| self.compartment.reject())
    }
}

/// A permit of a bulkhead, held until it is dropped.
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub struct BulkheadPermit(Option<Arc<Compartment>>);

impl BulkheadPermit {
    /// How long the call took, and whether it failed: for places that adapt.
    pub(crate) fn learn(&self, took: Duration, is_overload: bool) {
        if let Some((compartment, rules)) =
            self.0.as_ref().and_then(|own| own.adaptive.as_ref().map(|rules| (own, rules)))
        {
            compartment.learn(rules, took, is_overload);
        }
    }
}

impl Drop for BulkheadPermit {
    fn drop(&mut self) {
        let Some(compartment) = self.0.take() else { return };
        compartment.active_gauge.decrement(1.0);
        let mut places = compartment.places.lock();
        places.completed += 1;
        compartment.hand_on(places);
    }
}

impl Compartment {
    fn new(
        name: Arc<str>,
        max: u32,
        queue: u32,
        max_wait: Duration,
        adaptive: Option<ConcurrencyRules>,
        clock: Clock,
    ) -> Self {
        Self {
            meters: VerdictMeters::new(Primitive::Bulkhead, &name),
            waits: telemetry::wait_seconds(&name, Primitive::Bulkhead.text()),
            active_gauge: telemetry::bulkhead_active(&name),
            queued_gauge: telemetry::bulkhead_queued(&name),
            name,
            queue: if max_wait.is_zero() { 0 } else { queue },
            max_wait,
            adaptive,
            clock,
            places: Mutex::new(Places { limit: max, ..Places::default() }),
        }
    }

    fn metrics(&self) -> BulkheadMetrics {
        let places = self.places.lock();
        let Places { active, completed, rejected, abandoned, .. } = *places;
        let queued = places.waiting.len() as u32;
        BulkheadMetrics {
            active,
            queued,
            available: places.limit.saturating_sub(active),
            completed,
            rejected,
            abandoned,
        }
    }

    fn permit(self: &Arc<Self>) -> BulkheadPermit {
        self.active_gauge.increment(1.0);
        BulkheadPermit(Some(Arc::clone(self)))
    }

    /// A place if one is free; then nobody waits.
    fn try_enter(self: &Arc<Self>) -> Option<BulkheadPermit> {
        let mut places = self.places.lock();
        if places.active >= places.limit {
            return None;
        }
        places.active += 1;
        drop(places);
        self.meters.granted.increment(1);
        Some(self.permit())
    }

    #[cold]
    fn reject(&self) -> Error {
        self.places.lock().rejected += 1;
        self.meters.denied.increment(1);
        tracing::debug!(name: "resil.reject", policy = "bulkhead", bulkhead = &*self.name, "full");
        Error::BulkheadFull { name: Arc::clone(&self.name), retry_after: None }
    }

    async fn enter(self: &Arc<Self>) -> Result<BulkheadPermit, Error> {
        let entered = match QueuedCall::join(self) {
            // On the heap: most calls never wait, and futures are moved.
            Ok(queued) => {
                let begun = self.clock.now();
                let waiting = Box::pin(queued.wait());
                let entered =
                    watched!(Bulkhead, "wait", &self.name, waiting, |entered| CallEnding::or(entered, |_| {
                        CallEnding::GRANTED
                    }));
                if entered.is_ok() {
                    self.waits.record(self.clock.now().saturating_sub(begun));
                }
                entered
            }
            Err(free) => free.ok_or_else(|| self.reject()),
        };
        if entered.is_ok() {
            self.meters.granted.increment(1);
        }
        entered
    }

    /// Gives a permit that became free to the first call in the queue that still wants it.
    fn hand_on<'a>(self: &'a Arc<Self>, mut places: MutexGuard<'a, Places>) {
        while places.active <= places.limit {
            let Some((_, waiter)) = places.waiting.pop_front() else { break };
            drop(places);
            self.queued_gauge.decrement(1.0);
            let Err(mut unheard) = waiter.send(self.permit()) else { return };
            unheard.0 = None;
            self.active_gauge.decrement(1.0);
            places = self.places.lock();
        }
        places.active -= 1;
    }
}

impl Compartment {
    /// A call ended: the number of permits may change, and calls in the queue may come in.
    fn learn(self: &Arc<Self>, rules: &ConcurrencyRules, took: Duration, is_overload: bool) {
        let mut places = self.places.lock();
        let sample = Sample { took: span(took), is_overload, in_flight: places.active };
        places.adapting.ended(rules, sample);
        places.limit = places.adapting.limit(rules);
        while places.active < places.limit && !places.waiting.is_empty() {
            places.active += 1;
            self.hand_on(places);
            places = self.places.lock();
        }
    }
}

/// A call in the queue. When it is dropped it leaves the queue; a permit that was its own already is handed on.
struct QueuedCall<'a> {
    compartment: &'a Compartment,
    ticket: u64,
    turn: oneshot::Receiver<BulkheadPermit>,
    is_over: bool,
}

impl<'a> QueuedCall<'a> {
    /// Not if a place is free: that is given instead. Nor if the queue is full.
    fn join(compartment: &'a Arc<Compartment>) -> Result<Self, Option<BulkheadPermit>> {
        let mut places = compartment.places.lock();
        if places.active < places.limit {
            places.active += 1;
            drop(places);
            return Err(Some(compartment.permit()));
        }
        if places.waiting.len() >= compartment.queue as usize {
            return Err(None);
        }
        places.last_ticket += 1;
        let ((sender, turn), ticket) = (oneshot::channel(), places.last_ticket);
        places.waiting.push_back((ticket, sender));
        drop(places);
        compartment.queued_gauge.increment(1.0);
        Ok(Self { compartment, ticket, turn, is_over: false })
    }

    async fn wait(mut self) -> Result<BulkheadPermit, Error> {
        let compartment = self.compartment;
        let given = tokio::select! {
            biased;
            permit = &mut self.turn => permit.ok(),
            // A place given at the last moment is a place.
            () = compartment.clock.sleep(compartment.max_wait) => self.leave(),
        };
        self.is_over = true;
        given.ok_or_else(|| compartment.reject())
    }

    /// Leaves the queue: with a permit, if one was given meanwhile.
    fn leave(&mut self) -> Option<BulkheadPermit> {
        let mut places = self.compartment.places.lock();
        if let Ok(position) = places.waiting.binary_search_by_key(&self.ticket, |(ticket, _)| *ticket) {
            let left = places.waiting.remove(position);
            drop(places);
            // Not under the lock: with its last waker a task may be dropped, and a place with it.
            drop(left);
            self.compartment.queued_gauge.decrement(1.0);
            return None;
        }
        drop(places);
        self.turn.close();
        self.turn.try_recv().ok()
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.leave().is_none() {
            self.compartment.places.lock().abandoned += 1;
        }
    }
}
