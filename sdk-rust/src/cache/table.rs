//! What this process knows of the keys of one name: the flights under way, and the small tier, behind one lock. All handles of a
//! client that have one name share it.
//!
//! A flight can be joined as long as it is in the table. It leaves the table **before** its result is published (or its
//! landing published): every caller that joined began before the server checked that nothing was invalidated meanwhile. Callers that come
//! later asks anew. An invalidation takes a key's flights out, too, and what they bring is not kept in the tier.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::watch;

use super::Invalidated;
use super::asking::{Asking, WeakAsking};
use super::layout::Layout;
use super::tier::{Local, LocalTier, Rule};
use crate::clock::Moment;
use crate::error::Error;

/// Where a reply came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundIn {
    /// The small tier.
    LocalTier,
    /// It was known when it was asked for.
    Known,
    /// It was loaded meanwhile, here or elsewhere.
    Load,
}

/// How a flight ended, for everybody who joined it.
#[derive(Debug, Clone)]
pub(super) enum Landing {
    Found {
        bytes: Bytes,
        age: Option<Duration>,
        stale: bool,
        source: FoundIn,
    },
    Empty {
        source: FoundIn,
    },
    /// The loader's own error, and its words for callers of another type.
    LoadError {
        error: Arc<dyn Any + Send + Sync>,
        message: Arc<str>,
    },
    Failed(Error),
    /// What was loaded may have been invalidated before some of those who joined began: it is only for the caller that began the
    /// flight. The others ask anew.
    Void(Box<Landing>),
    /// The server is away, and everybody is to load by itself.
    EachAlone,
}

pub(super) type LandingReceiver = watch::Receiver<Option<Landing>>;

#[derive(Debug)]
struct Joinable {
    rule: Rule,
    number: u64,
    stage: Stage,
}

/// How far a flight is.
#[derive(Debug)]
enum Stage {
    /// Those who wait keep it going.
    Asking(WeakAsking),
    Flying(LandingReceiver),
}

#[derive(Debug)]
pub(crate) struct CacheTable {
    state: Mutex<TableState>,
    /// Somebody looks for questions that nobody drives: see `minder`.
    pub(super) is_minded: AtomicBool,
    pub layout: Layout,
}

#[derive(Debug)]
struct TableState {
    flights: HashMap<Arc<str>, SmallVec<[Joinable; 1]>, RandomState>,
    tier: LocalTier,
    last_number: u64,
    invalidations: u64,
    /// Each is another number with each invalidation, of whatever key, to be seen without the lock: see `glance`.
    epochs: Vec<Weak<AtomicU32>>,
    /// What others invalidate is heard of. If not, the tier only has what was loaded while the server was away.
    is_heard: bool,
}

/// The tables of a client, by kind and name, for as long as somebody has a handle.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<HashMap<(&'static str, String), Weak<CacheTable>>>);

impl Caches {
    pub fn table(&self, kind: &'static str, name: &str, in_cluster: bool) -> Arc<CacheTable> {
        let mut tables = self.0.lock();
        if let Some(table) = tables.get(&(kind, name.to_owned())).and_then(Weak::upgrade) {
            return table;
        }
        tables.retain(|_, table| table.strong_count() > 0);
        let table = CacheTable::new(Layout::new(kind, name, in_cluster));
        tables.insert((kind, name.to_owned()), Arc::downgrade(&table));
        table
    }

    /// The client closes: what others got by a glance is served no more.
    pub fn close(&self) {
        for table in self.0.lock().values().filter_map(Weak::upgrade) {
            table.state.lock().end_epochs();
        }
    }
}

pub(super) enum FlightEntry {
    Kept(Landing),
    First(Asking),
    /// It is another's.
    Asking(Asking),
    Flying(LandingReceiver),
}

impl CacheTable {
    fn new(layout: Layout) -> Arc<Self> {
        let held = TableState {
            flights: HashMap::default(),
            tier: LocalTier::default(),
            last_number: 0,
            invalidations: 0,
            epochs: Vec::new(),
            is_heard: false,
        };
        Arc::new(Self { state: Mutex::new(held), is_minded: AtomicBool::new(false), layout })
    }

    /// `ask` is called where nobody has asked yet.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: &str,
        rule: Rule,
        local: Local,
        now: Moment,
        ask: impl FnOnce(FlightLead) -> Asking,
    ) -> FlightEntry {
        let mut held = self.state.lock();
        if let Some(landing) = held.kept(key, rule, local, now) {
            return FlightEntry::Kept(landing);
        }
        let flights = held.flights.get(key).into_iter().flatten().filter(|flight| flight.rule == rule);
        let joinable = flights.filter_map(|flight| match &flight.stage {
            // None: the last caller is leaving it at this moment.
            Stage::Asking(asking) => asking.upgrade().map(FlightEntry::Asking),
            Stage::Flying(landing) => Some(FlightEntry::Flying(landing.clone())),
        });
        if let Some(joinable) = { joinable }.next() {
            return joinable;
        }
        held.last_number += 1;
        let (number, invalidations) = (held.last_number, held.invalidations);
        let key: Arc<str> = key.into();
        let (table, sender) = (Arc::clone(self), None);
        let asking = ask(FlightLead { table, key: Arc::clone(&key), rule, local, number, invalidations, sender });
        if let Some(weak) = asking.downgrade() {
            held.flights.entry(key).or_default().push(Joinable { rule, number, stage: Stage::Asking(weak) });
        }
        FlightEntry::First(asking)
    }

    /// The questions with these numbers that are still open, and the number of the last one of all. `None` if nothing is in flight: then
    /// nobody minds them from here on.
    pub(super) fn open_of(&self, numbers: Range<u64>) -> Option<(Vec<Asking>, u64)> {
        let held = self.state.lock();
        if held.flights.is_empty() {
            // Under the lock: a flight that is begun from here on finds it so.
            self.is_minded.store(false, Ordering::SeqCst);
            return None;
        }
        let open = held.flights.values().flatten().filter(|flight| numbers.contains(&flight.number));
        let open = open.filter_map(|flight| match &flight.stage {
            Stage::Asking(asking) => asking.upgrade(),
            Stage::Flying(_) => None,
        });
        Some((open.collect(), held.last_number))
    }

    /// What the tier has.
    pub(super) fn kept(&self, key: &str, rule: Rule, local: Local, now: Moment) -> Option<Landing> {
        self.state.lock().kept(key, rule, local, now)
    }

    /// How many invalidations there were: what is asked for now is only kept if there are no more until then.
    pub(super) fn invalidations(&self) -> u64 {
        self.state.lock().invalidations
    }

    /// Keeps what was seen without a flight, unless something was invalidated since, or could have been unheard.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn keep_seen(
        &self,
        since: u64,
        key: &str,
        local: Local,
        content: Option<&Bytes>,
        age: Duration,
        fresh: Duration,
        now: Moment,
    ) {
        let mut held = self.state.lock();
        if held.is_heard && held.invalidations == since && !local.ttl.is_zero() {
            held.tier.keep(&key.into(), Rule::Plain, local, content.cloned(), age, fresh, now);
        }
    }

    /// A number that each invalidation from now on changes, as long as it is kept.
    pub(super) fn epoch(&self) -> Arc<AtomicU32> {
        let epoch = Arc::default();
        let mut held = self.state.lock();
        held.epochs.retain(|epoch| epoch.strong_count() > 0);
        held.epochs.push(Arc::downgrade(&epoch));
        epoch
    }

    /// What the tier has as it is, with the time that is left, and the epoch in which that was so.
    pub(super) fn glance(
        &self,
        key: &str,
        local: Local,
        epoch: &AtomicU32,
        now: Moment,
    ) -> Option<(Bytes, Duration, Duration, u32)> {
        let held = self.state.lock();
        let entry = held.tier.get(key, Rule::Plain, local, now)?;
        let bytes = entry.content.clone()?;
        // Under the lock: what is invalidated from here on is of another epoch.
        Some((bytes, entry.age(now), entry.left(local, now), epoch.load(Ordering::SeqCst)))
    }

    /// `key` is out of date: nobody joins what is under way, and nothing of it is kept here.
    pub fn forget(&self, key: &str) {
        let mut held = self.state.lock();
        held.invalidated();
        held.flights.remove(key);
        held.tier.forget(key);
    }

    /// Everything is out of date, or may be.
    pub fn forget_all(&self) {
        self.state.lock().forget_all();
    }

    /// From now on it is heard of what others invalidate. What happened before perhaps was not.
    pub fn begins_to_hear(&self) {
        let mut held = self.state.lock();
        if !held.is_heard {
            held.is_heard = true;
            held.forget_all();
        }
    }

    /// Whatever others invalidate from now on is not heard of.
    pub fn hears_no_more(&self) {
        let mut held = self.state.lock();
        held.is_heard = false;
        held.forget_all();
    }

    /// Somebody invalidated something.
    pub fn hear(&self, what: &Invalidated) {
        match what {
            // Which values have the tag only the server knows.
            Invalidated::All | Invalidated::Tag(_) => self.forget_all(),
            Invalidated::Key(value_key) => match self.layout.key_in(value_key) {
                Some(key) => self.forget(key),
                None => self.forget_all(),
            },
        }
    }
}

impl TableState {
    fn invalidated(&mut self) {
        self.invalidations += 1;
        self.end_epochs();
    }

    fn end_epochs(&self) {
        for epoch in self.epochs.iter().filter_map(Weak::upgrade) {
            epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn forget_all(&mut self) {
        self.invalidated();
        self.flights.clear();
        self.tier.clear();
    }

    fn kept(&self, key: &str, rule: Rule, local: Local, now: Moment) -> Option<Landing> {
        let entry = self.tier.get(key, rule, local, now)?;
        let source = FoundIn::LocalTier;
        Some(match &entry.content {
            Some(bytes) => Landing::Found { bytes: bytes.clone(), age: Some(entry.age(now)), stale: false, source },
            None => Landing::Empty { source },
        })
    }
}

/// A flight's entry in the table. If it is dropped without a landing, callers that joined ask again.
#[derive(Debug)]
pub(super) struct FlightLead {
    table: Arc<CacheTable>,
    pub key: Arc<str>,
    pub rule: Rule,
    local: Local,
    number: u64,
    /// How many invalidations there had been when it began.
    invalidations: u64,
    /// Since it takes off.
    sender: Option<watch::Sender<Option<Landing>>>,
}

impl FlightLead {
    /// From now on it is a task that goes on alone, and reports how it landed.
    pub fn takes_off(&mut self) -> LandingReceiver {
        let (sender, landing) = watch::channel(None);
        self.sender = Some(sender);
        let mut held = self.table.state.lock();
        let flights = held.flights.get_mut(&self.key);
        // Not if it was invalidated meanwhile.
        if let Some(flight) = flights.and_then(|all| all.iter_mut().find(|flight| flight.number == self.number)) {
            flight.stage = Stage::Flying(landing.clone());
        }
        landing
    }

    /// From now on nobody joins.
    pub fn detach(&self) {
        let mut held = self.table.state.lock();
        let Some(flights) = held.flights.get_mut(&self.key) else { return };
        flights.retain(|flight| flight.number != self.number);
        if flights.is_empty() {
            held.flights.remove(&self.key);
        }
    }

    /// Sends it to every caller that joined; the first result stands.
    pub fn land(&self, landing: Landing) {
        self.detach();
        let Some(sender) = &self.sender else { return };
        sender.send_if_modified(|landed| {
            let is_first = landed.is_none();
            landed.get_or_insert(landing);
            is_first
        });
    }

    /// Keeps a value that was loaded without the server.
    pub fn keep_alone(&self, content: Option<&Bytes>, fresh: Duration, now: Moment) {
        let mut held = self.table.state.lock();
        if held.invalidations == self.invalidations {
            held.tier.keep(&self.key, self.rule, self.local, content.cloned(), Duration::ZERO, fresh, now);
        }
    }

    /// Keeps a fresh value in the small tier, unless something was invalidated since the flight began, or could have been
    /// unheard.
    pub fn keep(&self, content: Option<&Bytes>, age: Duration, fresh: Duration, now: Moment) {
        if self.local.ttl.is_zero() {
            return;
        }
        let mut held = self.table.state.lock();
        if held.is_heard && held.invalidations == self.invalidations {
            held.tier.keep(&self.key, self.rule, self.local, content.cloned(), age, fresh, now);
        }
    }
}

impl Drop for FlightLead {
    fn drop(&mut self) {
        self.detach();
    }
}
