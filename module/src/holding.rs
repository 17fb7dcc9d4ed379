//! A lock or a bulkhead opened: the holders in a key and the line before it, stepped together.
//!
//! Commands and chores come through here alike. What a step did is settled in one place: stored, replicated, announced;
//! whoever waited is answered; whatever was bound is unbound; the key is woken again when the step asks for it.

use std::ffi::c_void;
use std::marker::PhantomData;

use redis_module::raw;
use resil_core::Instant;
use resil_core::lock::{
    self, Answer, Busy, End, Ending, Grant, Holders, Kind, Outcome, Reason, Room, Setting, close, take_back, tick,
};
use resil_wire::{bulkhead as bulkhead_wire, lock as lock_wire};

use crate::apply::{publish_holder_edits, store_holders};
use crate::call::{Call, Failure};
use crate::chores::{self, Chore};
use crate::cluster::{self, Standing};
use crate::datatype::holding::{Bulkheads, Holding, HoldingType, Locks, Stored};
use crate::edge::{api, bytes_of};
use crate::info::{Holdings, counters};
use crate::key::Key;
use crate::lines::{self, Line, Name};
use crate::parked::{self, Granted, Told};
use crate::{announce, clock, fences, sessions};

/// What waiters of a key that is no longer here are told: ask again, wherever it is now.
const TRY_AGAIN: &str = "TRYAGAIN the key is no longer here; ask again";

pub struct Opened<'c, T> {
    key: Key<'c>,
    value: Option<*mut c_void>,
    fresh: Stored,
    name: &'c [u8],
    db: i32,
    _type: PhantomData<T>,
}

impl<'c, T: HoldingType> Opened<'c, T> {
    pub fn open(call: &'c Call<'_>, name: *mut raw::RedisModuleString) -> Result<Self, Failure> {
        let key = Key::open_to_write(call, name);
        let value = key.value::<Holding<T>>()?;
        // SAFETY: the string lives as long as the call.
        let name = unsafe { bytes_of(name) };
        Ok(Self { key, value, fresh: Stored::default(), name, db: call.db(), _type: PhantomData })
    }

    fn stored(&mut self) -> &mut Stored {
        match self.value {
            // SAFETY: the value of the open key; the reference ends before the key is used again.
            Some(value) => unsafe { Holding::<T>::get(value) },
            None => &mut self.fresh,
        }
    }

    pub fn holders(&mut self) -> &Holders {
        &self.stored().holders
    }

    pub fn name(&self) -> Name {
        Name::new(T::KIND, self.db, self.name)
    }

    /// Takes a step and settles what it did. `details` go into the announcements.
    pub fn step<V>(
        mut self,
        call: &Call<'_>,
        now: Instant,
        details: &[(&str, &[u8])],
        step: impl FnOnce(&mut Room<'_>, &mut Setting<'_>) -> Outcome<V>,
    ) -> V {
        let mut line = lines::take(T::KIND, self.db, self.name);
        if self.value.is_none() && !line.is_empty() && cluster::enabled() {
            // It may live on another node by now: nobody is granted anything from memory.
            turn_away(&mut line, TRY_AGAIN);
        }
        let salt = self.key.salt();
        let was_due = self.value.map(|_| self.stored().holders.gc_at(salt));
        let holders = &mut self.stored().holders;
        let outcome =
            fences::with_setting(now, |setting| step(&mut Room { kind: T::KIND, holders, queue: &mut line }, setting));
        lines::put(T::KIND, self.db, self.name, line);
        if !outcome.edits.is_empty() {
            match was_due {
                // The step has already edited it in place.
                Some(was_due) => {
                    let due = self.stored().holders.gc_at(salt);
                    self.key.collect_at::<Holding<T>>(Some(Some(was_due)), Some(due));
                }
                None => {
                    let holders = std::mem::take(&mut self.fresh.holders);
                    self.value = Some(store_holders::<T>(&mut self.key, None, holders));
                }
            }
            publish_holder_edits(call, &self.key, T::KIND, &outcome.edits);
        }
        self.arm(outcome.wake_at);
        if !outcome.endings.is_empty() {
            self.settle_endings(call, &outcome.endings, now, details);
        }
        for answer in outcome.answers {
            self.settle_answer(answer, now);
        }
        outcome.verdict
    }

    /// Asks to be woken at `at`, unless that was asked for already, or something earlier.
    fn arm(&mut self, at: Option<Instant>) {
        let (db, name) = (self.db, self.name);
        if let Some(at) = at.filter(|_| self.value.is_some()) {
            let armed_us = &mut self.stored().armed_us;
            if *armed_us == 0 || *armed_us > at.as_us() {
                *armed_us = at.as_us();
                chores::wake(at, T::KIND, db, name);
            }
        }
    }

    fn settle_endings(&self, call: &Call<'_>, endings: &[Ending], now: Instant, details: &[(&str, &[u8])]) {
        let name = self.name();
        for Ending { owner, fence, held, how } in endings {
            counted(T::KIND).hold.add(*held);
            if *how == End::Released {
                counted(T::KIND).released.add(1);
                sessions::unbind(&name, *fence);
            } else {
                counted(T::KIND).lost.add(1);
                let reason = Reason::from(*how);
                sessions::lose(&name, *fence, reason);
                announce::lost(call, &name, owner, *fence, reason, now, details);
            }
        }
    }

    fn settle_answer(&self, answer: Answer, now: Instant) {
        match answer {
            Answer::Granted { id, grant, bind_to, .. } => {
                counted(T::KIND).granted.add(1);
                counted(T::KIND).wait.add(grant.waited);
                let name = self.name();
                if let Some(client) = bind_to {
                    sessions::bind(client, &name, grant.fence, grant.lease, now);
                }
                let granted = Granted { name, fence: grant.fence };
                parked::answer(id, told_grant(T::KIND, grant), Some(granted));
            }
            Answer::TimedOut { id, busy } => {
                counted(T::KIND).timed_out.add(1);
                parked::answer(id, told_timeout(T::KIND, busy), None);
            }
            Answer::Superseded { id } => {
                let text = "SUPERSEDED the same owner asked again, and that call has the place";
                parked::answer(id, Told::error(text), None);
            }
        }
    }
}

/// Answers everybody in `line` with an error.
fn turn_away(line: &mut Line, text: &str) {
    while let Some(waiter) = line.take_head() {
        parked::answer(waiter.id, Told::error(text), None);
    }
}

pub fn counted(kind: Kind) -> &'static Holdings {
    match kind {
        Kind::Lock => &counters().lock,
        Kind::Bulkhead => &counters().bulkhead,
    }
}

fn told_grant(kind: Kind, grant: Grant) -> Told {
    match kind {
        Kind::Lock => Told::verdict(move |sink| lock_wire::write_granted(&grant, sink)),
        Kind::Bulkhead => Told::verdict(move |sink| bulkhead_wire::write_granted(&grant, sink)),
    }
}

fn told_timeout(kind: Kind, busy: Busy) -> Told {
    match kind {
        Kind::Lock => Told::verdict(move |sink| lock_wire::write_timeout(&busy, sink)),
        Kind::Bulkhead => Told::verdict(move |sink| bulkhead_wire::write_timeout(&busy, sink)),
    }
}

/// What a client that is unblocked by hand is told. The context is that client's, in its own database.
pub fn timeout(ctx: *mut raw::RedisModuleCtx, name: &Name) -> Told {
    fn busy<T: HoldingType>(call: &Call<'_>, string: *mut raw::RedisModuleString, name: &Name) -> Busy {
        let key = Key::open_to_read(call, string);
        let missing = Stored::default();
        let value = key.value::<Holding<T>>().ok().flatten();
        // SAFETY: the value of the open key, only read.
        let stored = value.map_or(&missing, |value| unsafe { Holding::<T>::get(value) });
        lines::look(name.kind, name.db, &name.key, |line| lock::busy(&stored.holders, line, clock::now()))
    }
    counted(name.kind).timed_out.add(1);
    let busy = with_string(ctx, &name.key, |call, string| match name.kind {
        Kind::Lock => busy::<Locks>(call, string, name),
        Kind::Bulkhead => busy::<Bulkheads>(call, string, name),
    });
    told_timeout(name.kind, busy)
}

fn with_string<R>(
    ctx: *mut raw::RedisModuleCtx,
    key: &[u8],
    act: impl FnOnce(&Call<'_>, *mut raw::RedisModuleString) -> R,
) -> R {
    // SAFETY: the server copies the bytes; the string is freed after it was used.
    unsafe {
        let string = api!(RedisModule_CreateString)(ctx, key.as_ptr().cast(), key.len());
        let result = act(&Call::of_timer(ctx), string);
        api!(RedisModule_FreeString)(ctx, string);
        result
    }
}

/// Something to do with a key, whichever of the two it is.
trait Work {
    fn on<T: HoldingType>(self, call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>);
}

/// Opens the key in its database and does `work`. Only for timers: the context's database is changed.
fn work_on(ctx: *mut raw::RedisModuleCtx, name: &Name, work: impl Work) {
    // SAFETY: the context is a timer's.
    unsafe { api!(RedisModule_SelectDb)(ctx, name.db) };
    with_string(ctx, &name.key, |call, string| match name.kind {
        Kind::Lock => work.on::<Locks>(call, Opened::open(call, string)),
        Kind::Bulkhead => work.on::<Bulkheads>(call, Opened::open(call, string)),
    });
}

/// May a timer write to this key now? If not, whoever waits is sent where it belongs, or waits a little more.
fn is_ours(ctx: *mut raw::RedisModuleCtx, name: &Name, now: Instant) -> bool {
    match cluster::standing(ctx, &name.key, now) {
        Standing::Ours => true,
        Standing::Moving => {
            give_up(ctx, name, now);
            false
        }
        Standing::Moved(text) => {
            let mut line = lines::take(name.kind, name.db, &name.key);
            turn_away(&mut line, &text);
            false
        }
    }
}

/// Sends waiters away whose slot has left.
pub fn redirect(ctx: *mut raw::RedisModuleCtx, name: &Name, now: Instant) {
    if is_ours(ctx, name, now) || !lines::waits(name) {
        return;
    }
    struct TurnAwayIfGone(Name);
    impl Work for TurnAwayIfGone {
        fn on<T: HoldingType>(self, _call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>) {
            if opened.is_ok_and(|opened| opened.value.is_none()) {
                turn_away(&mut lines::take(self.0.kind, self.0.db, &self.0.key), TRY_AGAIN);
            }
        }
    }
    work_on(ctx, name, TurnAwayIfGone(name.clone()));
}

/// The instant `at` that the key asked for has come.
pub fn woken(ctx: *mut raw::RedisModuleCtx, name: &Name, at: Instant, now: Instant) {
    struct Woken(Instant, Instant, bool);
    impl Work for Woken {
        fn on<T: HoldingType>(self, call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>) {
            let Self(at, now, ours) = self;
            let Ok(mut opened) = opened else { return };
            if opened.value.is_none() {
                return;
            }
            if opened.stored().armed_us == at.as_us() {
                opened.stored().armed_us = 0;
            }
            if ours {
                opened.step(call, now, &[], tick);
            } else {
                // Its slot is on its way: it is looked at again soon.
                opened.arm(Some(now.plus(resil_core::Span::from_ms(100))));
            }
        }
    }
    let ours = is_ours(ctx, name, now);
    work_on(ctx, name, Woken(at, now, ours));
}

pub fn do_chore(ctx: *mut raw::RedisModuleCtx, name: &Name, chore: Chore, now: Instant) {
    struct Do(Name, Chore, Instant);
    impl Work for Do {
        fn on<T: HoldingType>(self, call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>) {
            let Self(name, chore, now) = self;
            let Ok(mut opened) = opened else {
                // Something else has the name now.
                turn_away(&mut lines::take(name.kind, name.db, &name.key), TRY_AGAIN);
                if let Chore::Lost { owner, fence, reason } = chore {
                    lost(call, &name, &owner, fence, reason, now);
                }
                return;
            };
            match chore {
                Chore::Look => {
                    if opened.value.is_some() || lines::waits(&name) {
                        opened.step(call, now, &[], tick);
                    }
                }
                Chore::Close(fence) => {
                    opened.step(call, now, &[], |room, setting| close(room, fence, setting));
                }
                Chore::TakeBack(fence) => {
                    if opened.step(call, now, &[], |room, setting| take_back(room, fence, setting)) {
                        counters().taken_back.add(1);
                    }
                }
                Chore::Lost { owner, fence, reason } => {
                    // It may have come back under the same name: restored, or reloaded.
                    if opened.holders().by_fence(fence).is_none() {
                        lost(call, &name, &owner, fence, reason, now);
                    }
                }
            }
        }
    }
    if let (Chore::Lost { fence, reason, .. }, false) = (&chore, is_ours(ctx, name, now)) {
        // It has moved, or is moving, with its key: it is not lost, only no longer bound here.
        return sessions::lose(name, *fence, *reason);
    }
    if is_ours(ctx, name, now) {
        work_on(ctx, name, Do(name.clone(), chore, now));
    } else {
        redirect(ctx, name, now);
    }
}

fn lost(call: &Call<'_>, name: &Name, owner: &[u8], fence: u64, reason: Reason, now: Instant) {
    counted(name.kind).lost.add(1);
    sessions::lose(name, fence, reason);
    announce::lost(call, name, owner, fence, reason, now, &[]);
}

/// A bound holder was heard of: its lease runs until `ends`.
pub fn extend(ctx: *mut raw::RedisModuleCtx, name: &Name, fence: u64, ends: Instant, now: Instant) {
    struct Extend(u64, Instant, Instant);
    impl Work for Extend {
        fn on<T: HoldingType>(self, call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>) {
            let Self(fence, ends, now) = self;
            let Ok(opened) = opened else { return };
            let name = opened.name();
            let held = opened.value.is_some()
                && opened.step(call, now, &[], |room, setting| lock::extend(room, fence, ends, setting));
            if !held {
                // Its end was announced when it came; here nothing is left to renew.
                sessions::unbind(&name, fence);
            }
        }
    }
    if is_ours(ctx, name, now) {
        work_on(ctx, name, Extend(fence, ends, now));
    }
}

/// Nothing may be written: only patience can end.
pub fn give_up(ctx: *mut raw::RedisModuleCtx, name: &Name, now: Instant) {
    struct GiveUp(Instant);
    impl Work for GiveUp {
        fn on<T: HoldingType>(self, _call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>) {
            let Ok(mut opened) = opened else { return };
            let mut line = lines::take(T::KIND, opened.db, opened.name);
            let holders = &mut opened.stored().holders;
            let outcome = fences::with_setting(self.0, |setting| {
                lock::give_up(&mut Room { kind: T::KIND, holders, queue: &mut line }, setting)
            });
            lines::put(T::KIND, opened.db, opened.name, line);
            for answer in outcome.answers {
                opened.settle_answer(answer, self.0);
            }
        }
    }
    if lines::waits(name) {
        work_on(ctx, name, GiveUp(now));
    }
}

/// The key is about to be flushed: its holders will have lost it.
pub fn leaving(ctx: *mut raw::RedisModuleCtx, name: &Name) {
    struct Leaving;
    impl Work for Leaving {
        fn on<T: HoldingType>(self, _call: &Call<'_>, opened: Result<Opened<'_, T>, Failure>) {
            if let Ok(mut opened) = opened {
                let (db, key) = (opened.db, opened.name);
                chores::key_left(T::KIND, db, key, opened.holders());
            }
        }
    }
    work_on(ctx, name, Leaving);
}
