//! Where the keys are: maps in shards, so that keys that have nothing to do with each other do not wait for each other.
//!
//! # Invariants
//! 1. A key has one kind for as long as it is there. Asking it for another is refused, as on a server.
//! 2. A key that nobody needs any more (its machine says when) is not seen from then on, and is taken out soon after: when
//!    it is asked for, or by the sweep, a few keys for every so many calls, of any keys.
//! 3. A key with waiters stays.
//! 4. The clock is read while the shard is held: for one key time does not run back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use foldhash::fast::RandomState;
use indexmap::{IndexMap, map::RawEntryApiV1};
use parking_lot::{Mutex, MutexGuard};
use resil_core::circuit_breaker::Transition as BreakerTransition;
use resil_core::dead_letters::ClockWatch;
use resil_core::heavy_hitters::HeavyHitters;
use resil_core::rate_limit::TierSet;
use resil_core::waited::{Ending, Machine, WaiterId};
use resil_core::{Instant, Plain, Step, Stored};
use smallvec::SmallVec;

use super::breakers::Baselines;
use super::channels::{Channels, MemoryEvent};
use super::fences::Fences;
use super::keeper::{Keeper, Wake};
use super::name::{self, Name};
use super::names::Names;
use super::waited::Waited;
use crate::clock::Clock;
use crate::error::Error;
use crate::policies::watch::PolicyMessage;

const SHARDS: usize = 64;

/// A sweep looks at `SWEPT_KEYS` keys of one shard. It comes after `CALLS_PER_SWEEP` calls; a new key counts for many.
const SWEPT_KEYS: usize = 32;
const CALLS_PER_SWEEP: u32 = 64;
const CALLS_PER_NEW_KEY: u32 = 16;

/// Below this a map does not give its memory back.
const KEYS_WORTH_SHRINKING: usize = 1_024;

/// What can be kept under a key. Its default is what a missing key means.
pub(super) trait Kept: Default {
    /// `None` if the key is of another kind.
    fn of(state: &mut State) -> Option<&mut Self>;
    fn into_state(self) -> State;
    /// When nothing in it can matter any more; `None` is never.
    fn due(&self, salt: u64) -> Option<Instant>;
    /// True if it is as good as no key.
    fn is_nothing(&self) -> bool;
}

/// Where a machine that can be waited for is in [`State`].
pub(super) trait InState: Machine {
    fn of(state: &mut State) -> Option<&mut Waited<Self>>;
    fn into_state(waited: Waited<Self>) -> State;
}

/// Makes the states of keys from core's list of machines.
macro_rules! states {
    (() plain { $($plain:ident: $plain_machine:ty,)* } waited { $($waited:ident: $waited_machine:ty,)* }) => {
        /// What a key holds. All but tiers are boxed: nearly every key is a limit.
        pub(super) enum State {
            Tiers(TierSet),
            $($plain(Box<$plain_machine>),)*
            $($waited(Box<Waited<$waited_machine>>),)*
        }

        impl State {
            /// What to do when the instant has come that the key asked for.
            pub fn tick(&self) -> Option<fn(&Store, &Wake)> {
                match self {
                    $(Self::$waited(_) => Some(Store::tick::<$waited_machine>),)*
                    _ => None,
                }
            }
        }

        $(impl Kept for $plain_machine {
            fn of(state: &mut State) -> Option<&mut Self> {
                if let State::$plain(kept) = state { Some(kept) } else { None }
            }

            fn into_state(self) -> State {
                State::$plain(Box::new(self))
            }

            fn due(&self, salt: u64) -> Option<Instant> {
                Self::collect_at(self, salt)
            }

            fn is_nothing(&self) -> bool {
                <Self as Stored>::is_nothing(self)
            }
        })*

        $(impl InState for $waited_machine {
            fn of(state: &mut State) -> Option<&mut Waited<Self>> {
                if let State::$waited(kept) = state { Some(kept) } else { None }
            }

            fn into_state(waited: Waited<Self>) -> State {
                State::$waited(Box::new(waited))
            }
        })*
    };
}

resil_core::machines!(states);

/// Whether what was done to a key changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Changed,
    Unchanged,
}

/// When a call happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Now,
    /// For tests that play what happened at given instants, also set back.
    At(Instant),
}

impl When {
    /// By which instant keys are over. As on a server whose clock a test drives, that is never the test's.
    fn forgets(self, now: Instant) -> Instant {
        match self {
            Self::Now => now,
            Self::At(_) => Instant::EPOCH,
        }
    }
}

struct Entry {
    state: State,
    due: Option<Instant>,
}

struct Keys {
    map: IndexMap<Name, Entry, RandomState>,
    /// Where the sweep goes on.
    cursor: usize,
    calls: u32,
}

/// On cache lines of its own: a lock of one does not slow down the next.
#[repr(align(128))]
struct Shard(Mutex<Keys>);

pub(super) struct Store {
    shards: Box<[Shard]>,
    /// The same for all shards: what says which shard it is finds the key there, too.
    hasher: RandomState,
    next_swept: AtomicUsize,
    last_waiter: AtomicU64,
    pub fences: Fences,
    pub keeper: Arc<Keeper>,
    /// Holdings that were lost, by what their owners begin with.
    pub losses: Channels<Ending>,
    /// Breakers that were changed, by their keys.
    pub changes: Channels<BreakerTransition>,
    /// Policies that were set or deleted, by their keys; all of them under an empty one.
    pub policies: Channels<PolicyMessage>,
    pub events: Channels<MemoryEvent>,
    pub names: Names,
    pub baselines: Baselines,
    pub clock_watch: Mutex<ClockWatch>,
    /// The keys that were refused most.
    pub denied: Mutex<HeavyHitters>,
    pub clock: Clock,
}

impl Store {
    pub fn new(clock: Clock) -> Arc<Self> {
        let hasher = RandomState::default();
        let keys = || Keys { map: IndexMap::with_hasher(hasher.clone()), cursor: 0, calls: 0 };
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Shard(Mutex::new(keys()))).collect(),
            hasher,
            next_swept: AtomicUsize::new(0),
            last_waiter: AtomicU64::new(0),
            fences: Fences::default(),
            keeper: Arc::new(Keeper::default()),
            losses: Channels::default(),
            changes: Channels::default(),
            policies: Channels::default(),
            events: Channels::default(),
            names: Names::default(),
            baselines: Baselines::default(),
            clock_watch: Mutex::default(),
            denied: Mutex::default(),
            clock,
        })
    }

    /// A number for a call that may have to wait.
    pub fn next_waiter(&self) -> WaiterId {
        self.last_waiter.fetch_add(1, Relaxed) + 1
    }

    pub fn now(&self, when: When) -> Instant {
        match when {
            When::Now => self.clock.core_now(),
            When::At(at) => at,
        }
    }

    /// Does `work` with what is in `key`, or with what a missing key means. What it changed is kept.
    pub fn on<T: Kept, R>(
        &self,
        key: &[u8],
        when: When,
        work: impl FnOnce(&mut T, Instant) -> Result<(R, Touch), Error>,
    ) -> Result<R, Error> {
        let hash = self.hash(key);
        let mut keys = self.shards[shard_of(hash)].0.lock();
        let now = self.now(when);
        let salt = salt_of(key);
        let result = match keys.find(key, hash, when.forgets(now)) {
            Some(index) => keys.work_on(index, salt, |state| work(state, now)),
            None => {
                let mut fresh = T::default();
                work(&mut fresh, now).map(|(result, touch)| {
                    if touch == Touch::Changed && !fresh.is_nothing() {
                        keys.insert(key, fresh, salt);
                    }
                    result
                })
            }
        };
        // A test that plays the past must not lose its keys to the present.
        if let When::Now = when {
            self.count_call(keys);
        }
        result
    }

    /// A whole call of a machine that nobody waits for.
    pub fn step_plain<M: Kept + Plain, V>(
        &self,
        key: &[u8],
        when: When,
        step: impl FnOnce(&M, Instant) -> Step<V, M::Edits>,
    ) -> Result<V, Error> {
        self.on(key, when, |state: &mut M, now| {
            let Step { verdict, change, .. } = step(state, now);
            let touch = change.map_or(Touch::Unchanged, |edits| {
                M::apply_all(state, edits);
                Touch::Changed
            });
            Ok((verdict, touch))
        })
    }

    /// Does `work` with several keys at once; nobody sees half of it. Whatever is left in them is kept.
    pub fn on_all<T: Kept, R>(
        &self,
        names: &[&[u8]],
        when: When,
        work: impl FnOnce(&mut [T], Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let hashes: SmallVec<[u64; 4]> = names.iter().map(|name| self.hash(name)).collect();
        // Always in the same order, so that two such calls cannot wait for each other.
        let wanted = hashes.iter().fold(0u64, |wanted, hash| wanted | 1 << shard_of(*hash));
        let mut shards: SmallVec<[(usize, MutexGuard<'_, Keys>); 4]> = (0..SHARDS)
            .filter(|shard| wanted & 1 << shard != 0)
            .map(|shard| (shard, self.shards[shard].0.lock()))
            .collect();
        let place_of = |shards: &SmallVec<[(usize, MutexGuard<'_, Keys>); 4]>, hash| {
            shards.iter().position(|(shard, _)| *shard == shard_of(hash)).unwrap_or_default()
        };
        let now = self.now(when);
        for (name, hash) in names.iter().zip(&hashes) {
            let place = place_of(&shards, *hash);
            let keys = &mut shards[place].1;
            if let Some(index) = keys.find(name, *hash, when.forgets(now)) {
                T::of(&mut keys.map[index].state).ok_or_else(wrong_type)?;
            }
        }
        // All are of the right kind: from here on nothing is refused before what is taken out is put back.
        let mut states: SmallVec<[T; 4]> = SmallVec::with_capacity(names.len());
        for (name, hash) in names.iter().zip(&hashes) {
            let place = place_of(&shards, *hash);
            let stored = shards[place].1.get_mut(name, *hash).and_then(|entry| T::of(&mut entry.state));
            states.push(stored.map(std::mem::take).unwrap_or_default());
        }
        let done = work(&mut states, now);
        for ((name, hash), state) in names.iter().zip(&hashes).zip(states) {
            let place = place_of(&shards, *hash);
            shards[place].1.put(name, *hash, state, salt_of(name));
        }
        done
    }

    /// Does `work` with two keys of different kinds at once; nobody sees half of it.
    pub fn on_pair<T: Kept, U: Kept + Clone, R>(
        &self,
        (key, other): (&[u8], &[u8]),
        when: When,
        work: impl FnOnce(&mut T, &mut U, Instant) -> Result<((R, Touch), Touch), Error>,
    ) -> Result<R, Error> {
        let (hash, other_hash) = (self.hash(key), self.hash(other));
        let (shard, other_shard) = (shard_of(hash), shard_of(other_hash));
        // Always in the same order, so that two such calls cannot wait for each other.
        let mut low = self.shards[shard.min(other_shard)].0.lock();
        let mut high = (shard != other_shard).then(|| self.shards[shard.max(other_shard)].0.lock());
        let now = self.now(when);
        let keys = high.as_mut().filter(|_| other_shard > shard).unwrap_or(&mut low);
        let mut other_state = match keys.find(other, other_hash, when.forgets(now)) {
            Some(index) => U::of(&mut keys.map[index].state).ok_or_else(wrong_type)?.clone(),
            None => U::default(),
        };
        let keys = high.as_mut().filter(|_| shard > other_shard).unwrap_or(&mut low);
        let worked = match keys.find(key, hash, when.forgets(now)) {
            Some(index) => keys.work_on(index, salt_of(key), |state| work(state, &mut other_state, now)),
            None => work(&mut T::default(), &mut other_state, now).map(|(result, _)| result),
        };
        let (result, touch) = worked?;
        if touch == Touch::Changed {
            let keys = high.as_mut().filter(|_| other_shard > shard).unwrap_or(&mut low);
            keys.put(other, other_hash, other_state, salt_of(other));
        }
        Ok(result)
    }

    /// Which machine's `key` is, if it is there.
    pub fn look<R>(&self, key: &[u8], look: impl FnOnce(&mut State) -> R) -> Option<R> {
        let hash = self.hash(key);
        let keys = &mut *self.shards[shard_of(hash)].0.lock();
        keys.get_mut(key, hash).map(|entry| look(&mut entry.state))
    }

    /// Every key whose state `is_meant`.
    pub fn keys_of(&self, is_meant: impl Fn(&State) -> bool) -> Vec<Vec<u8>> {
        let of = |shard: &Shard| {
            let keys = shard.0.lock();
            let meant = keys.map.iter().filter(|(_, entry)| is_meant(&entry.state));
            meant.map(|(name, _)| name.bytes().to_vec()).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// Looks at every key that somebody may need.
    pub fn for_each(&self, now: Instant, mut look: impl FnMut(&[u8], &State)) {
        for shard in &self.shards {
            let keys = shard.0.lock();
            let live = keys.map.iter().filter(|(_, entry)| !entry.is_over(now));
            live.for_each(|(name, entry)| look(name.bytes(), &entry.state));
        }
    }

    /// How many keys there are, those included that nobody needs any more.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().map.len()).sum()
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        name::hash(key, &self.hasher)
    }

    #[inline(always)]
    fn count_call(&self, mut keys: MutexGuard<'_, Keys>) {
        keys.calls += 1;
        if keys.calls >= CALLS_PER_SWEEP {
            self.sweep_some(keys);
        }
    }

    #[cold]
    fn sweep_some(&self, mut keys: MutexGuard<'_, Keys>) {
        keys.calls = 0;
        drop(keys);
        // Another shard each time, also one that nobody asks any more.
        let shard = self.next_swept.fetch_add(1, Relaxed) % SHARDS;
        if let Some(mut keys) = self.shards[shard].0.try_lock() {
            let now = self.clock.core_now();
            keys.sweep(now);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.keeper.look_again();
    }
}

impl Keys {
    #[inline]
    fn index_of(&self, key: &[u8], hash: u64) -> Option<usize> {
        self.map.raw_entry_v1().index_from_hash(hash, |name| name.bytes() == key)
    }

    fn get_mut(&mut self, key: &[u8], hash: u64) -> Option<&mut Entry> {
        self.index_of(key, hash).map(|index| &mut self.map[index])
    }

    /// Where `key` is. One that nobody needs any more is taken out.
    fn find(&mut self, key: &[u8], hash: u64, now: Instant) -> Option<usize> {
        let index = self.index_of(key, hash)?;
        if self.map[index].is_over(now) {
            self.map.swap_remove_index(index);
            return None;
        }
        Some(index)
    }

    fn work_on<T: Kept, R>(
        &mut self,
        index: usize,
        salt: u64,
        work: impl FnOnce(&mut T) -> Result<(R, Touch), Error>,
    ) -> Result<R, Error> {
        let entry = &mut self.map[index];
        let state = T::of(&mut entry.state).ok_or_else(wrong_type)?;
        let (result, touch) = work(state)?;
        if touch == Touch::Changed {
            if state.is_nothing() {
                self.map.swap_remove_index(index);
            } else {
                entry.due = state.due(salt);
            }
        }
        Ok(result)
    }

    fn insert<T: Kept>(&mut self, key: &[u8], state: T, salt: u64) {
        let due = state.due(salt);
        self.map.insert(key.into(), Entry { state: state.into_state(), due });
        self.calls += CALLS_PER_NEW_KEY;
    }

    /// Stores `state`, or takes the key out if that is nothing.
    fn put<T: Kept>(&mut self, key: &[u8], hash: u64, state: T, salt: u64) {
        match (self.index_of(key, hash), state.is_nothing()) {
            (Some(index), true) => {
                self.map.swap_remove_index(index);
            }
            (None, true) => {}
            (Some(index), false) => {
                let due = state.due(salt);
                self.map[index] = Entry { state: state.into_state(), due };
            }
            (None, false) => self.insert(key, state, salt),
        }
    }

    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT_KEYS.min(self.map.len()) {
            if self.cursor >= self.map.len() {
                self.cursor = 0;
            }
            match self.map.get_index(self.cursor) {
                // The last one moves here and is looked at next.
                Some((_, entry)) if entry.is_over(now) => {
                    self.map.swap_remove_index(self.cursor);
                }
                _ => self.cursor += 1,
            }
        }
        let (len, capacity) = (self.map.len(), self.map.capacity());
        if capacity > KEYS_WORTH_SHRINKING && len < capacity / 8 {
            self.map.shrink_to(len * 2);
        }
    }
}

impl Entry {
    fn is_over(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}

pub(super) fn wrong_type() -> Error {
    Error::InvalidArgument("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
}

/// A number of a name's own, the same in every process, to spread expiries over time.
#[inline]
fn salt_of(name: &[u8]) -> u64 {
    let mix = |salt: u64, word: u64| (salt ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = name.as_chunks::<8>();
    let mut salt = words.iter().fold(name.len() as u64, |salt, word| mix(salt, u64::from_le_bytes(*word)));
    if !rest.is_empty() {
        salt = mix(salt, rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    salt
}

/// By bits that maps look at last.
#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}
