//! Runs the futures of calls on the thread of JavaScript, without a task and without a thread switch.
//!
//! A call is polled when it begins, when one of its attempts is settled, and when something woke it. What JavaScript has to
//! do after a poll are [`Event`]s, in their order. The most common one fits into a [`Word`]; the others are taken by
//! `take_events`. No poll calls into JavaScript, so nothing here is entered twice.
//!
//! A call that JavaScript cancels is dropped, which releases what it held.

pub mod attempt;
pub mod queue;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use napi::bindgen_prelude::{Env, Unknown};
use resil::{Error, Failure};
use smallvec::SmallVec;

use self::attempt::{Call, Detail, Settled, Stage};
use self::queue::{CallWaker, Message, Notification, Queue};
use crate::edge::Signal;
use crate::thrown::Thrown;

/// Makes a value of JavaScript, on its thread.
pub type Convert = Box<dyn for<'env> FnOnce(&'env Env) -> napi::Result<Unknown<'env>>>;

/// How a call ended.
pub enum Outcome {
    /// With the value of this attempt.
    Attempt(u32),
    Failed(Failure<Thrown>),
    Value(Convert),
}

impl From<Settled> for Outcome {
    fn from(settled: Settled) -> Self {
        match settled {
            Ok(done) => Self::Attempt(done.id),
            Err(failure) => Self::Failed(failure),
        }
    }
}

pub type Running = Pin<Box<dyn Future<Output = Outcome>>>;

/// What JavaScript has to do. First the number of the call, then that of the attempt.
pub enum Event {
    Start(u32, u32, Option<Box<Detail>>),
    /// Nobody waits for it any more, for this reason if it is known.
    Abort(u32, u32, Option<Error>),
    /// What it works under is lost; its result still counts.
    Warn(u32, u32),
    End(u32, Outcome),
    /// For the listener of this number.
    Notify(u32, Notification),
    /// What JavaScript keeps under this number is not needed any more.
    Forget(u32),
}

/// A code in the lowest three bits. Above it: the call if it has just begun, else an attempt.
pub type Word = u32;

const CODE_BITS: u32 = 3;
/// Nothing to do until it is woken.
const WAIT: Word = 0;
/// Start an attempt that carries nothing more; the first one, if the call has just begun.
const RUN: Word = 1;
/// The call ended with the value of the attempt.
const DONE: Word = 2;
/// The call ended with the error of the attempt.
const FAILED: Word = 3;
/// Take the events.
const EVENTS: Word = 4;
/// The largest number of a call that fits into a word.
const CALL_MAX: u32 = u32::MAX >> CODE_BITS;

struct Slot {
    /// `None` while it is polled.
    future: Option<Running>,
    waker: Waker,
    attempts: SmallVec<[(u32, Stage); 1]>,
    last_attempt: u32,
    /// Whether it may end an attempt that is running: then it keeps the process alive even while it waits for nothing but that.
    interrupts: bool,
    is_counted: bool,
    is_cut_short: bool,
}

pub struct Executor {
    queue: Arc<Queue>,
    env: Env,
    /// Numbers are not used again soon: JavaScript may not have read yet that a call ended.
    calls: BTreeMap<u32, Slot>,
    last_call: u32,
    events: Vec<Event>,
    /// How many calls wait for something other than a function of JavaScript.
    waiting: usize,
}

thread_local! {
    static EXECUTOR: RefCell<Option<Executor>> = const { RefCell::new(None) };
}

thread_local! {
    /// The queue of this thread and its home, also while the executor is in use.
    static HERE: RefCell<Option<(Weak<Queue>, u64)>> = const { RefCell::new(None) };
}

/// Whether `queue` is the one of this thread. `None`: this is no thread of JavaScript.
pub fn is_here(queue: &Arc<Queue>) -> Option<bool> {
    let is_it = |here: &RefCell<Option<(Weak<Queue>, u64)>>| {
        here.borrow().as_ref().map(|(own, _)| Weak::as_ptr(own) == Arc::as_ptr(queue))
    };
    HERE.try_with(is_it).ok().flatten()
}

/// What clients that are made on this thread belong to.
pub fn home() -> Option<u64> {
    HERE.try_with(|here| here.borrow().as_ref().map(|(_, home)| *home)).ok().flatten()
}

/// This thread runs calls from now on.
pub fn open(env: Env, signal: Signal) -> napi::Result<()> {
    if !crate::runtime::enter_for_good() {
        return Err(napi::Error::from_reason("no threads could be started"));
    }
    let queue = Arc::new(Queue::new(signal));
    let home = crate::telemetry::begin(&queue);
    let kept = Arc::clone(&queue);
    env.add_env_cleanup_hook(kept, |queue| {
        let closed = catch_unwind(AssertUnwindSafe(|| {
            queue.close();
            let executor = EXECUTOR.with_borrow_mut(Option::take);
            drop(executor);
        }));
        drop(closed);
    })?;
    let (calls, events) = (BTreeMap::new(), Vec::new());
    HERE.set(Some((Arc::downgrade(&queue), home)));
    let executor = Executor { queue, env, calls, last_call: 0, events, waiting: 0 };
    EXECUTOR.with_borrow_mut(|opened| *opened = Some(executor));
    Ok(())
}

/// Fails on a thread that is closing, and if the executor is in use further up.
fn with<R>(run: impl FnOnce(&mut Executor) -> R) -> napi::Result<R> {
    let closing = || napi::Error::from_reason("this thread is closing");
    let ran = EXECUTOR.try_with(|executor| Some(run(executor.try_borrow_mut().ok()?.as_mut()?)));
    ran.ok().flatten().ok_or_else(closing)
}

/// The queue of this thread.
pub fn queue() -> napi::Result<Arc<Queue>> {
    with(|executor| Arc::clone(&executor.queue))
}

/// JavaScript, on the thread of `queue`, may forget what it keeps under `number`.
pub fn forget(queue: &Arc<Queue>, number: u32) {
    let is_here = with(|executor| {
        let is_here = Arc::ptr_eq(&executor.queue, queue);
        if is_here {
            executor.events.push(Event::Forget(number));
        }
        is_here
    });
    if !is_here.unwrap_or(false) {
        queue.post(Message::Forget(number));
    }
}

impl Executor {
    fn insert(&mut self, interrupts: bool) -> Call {
        while {
            self.last_call = if self.last_call < CALL_MAX { self.last_call + 1 } else { 1 };
            self.calls.contains_key(&self.last_call)
        } {}
        let call = self.last_call;
        let waker = Waker::from(Arc::new(CallWaker { queue: Arc::clone(&self.queue), call }));
        let attempts = SmallVec::new();
        let slot =
            Slot { future: None, waker, attempts, last_attempt: 0, interrupts, is_counted: false, is_cut_short: false };
        self.calls.insert(call, slot);
        Call(call)
    }

    fn put_back(&mut self, call: u32, future: Running) {
        let Some(slot) = self.calls.get_mut(&call) else { return };
        slot.future = Some(future);
        let counts = slot.interrupts || slot.attempts.is_empty();
        if counts != slot.is_counted {
            slot.is_counted = counts;
            self.count(counts);
        }
    }

    fn remove(&mut self, call: u32) -> Option<Slot> {
        let slot = self.calls.remove(&call)?;
        if slot.is_counted {
            self.count(false);
        }
        Some(slot)
    }

    /// One more call waits for something of ours, or one less: the process stays while there is one.
    fn count(&mut self, more: bool) {
        let before = self.waiting;
        self.waiting = if more { before + 1 } else { before - 1 };
        if before == 0 || self.waiting == 0 {
            self.queue.signal().keep_alive(&self.env, self.waiting > 0);
        }
    }

    /// What JavaScript has to do after `call` was polled.
    fn word(&mut self, call: u32) -> Word {
        let word = match self.events.as_slice() {
            [] => return WAIT,
            [Event::Start(of, attempt, None)] if *of == call => attempt << CODE_BITS | RUN,
            [Event::End(of, Outcome::Attempt(attempt))] if *of == call => attempt << CODE_BITS | DONE,
            [Event::End(of, Outcome::Failed(Failure::Inner(thrown)))] if *of == call && thrown.is_plain() => {
                thrown.id << CODE_BITS | FAILED
            }
            _ => return EVENTS,
        };
        self.events.clear();
        word
    }
}

/// Begins what `make` makes, and polls it.
pub fn begin(interrupts: bool, make: impl FnOnce(Call) -> Running) -> napi::Result<Word> {
    let call = with(|executor| executor.insert(interrupts))?;
    let running = match catch_unwind(AssertUnwindSafe(|| make(call))) {
        Ok(running) => crate::scope::around(running),
        Err(panic) => Box::pin(std::future::ready(crashed(panic))),
    };
    poll_with(call.0, running)?;
    with(|executor| call.0 << CODE_BITS | executor.word(call.0) & ((1 << CODE_BITS) - 1))
}

fn crashed(panic: Box<dyn std::any::Any + Send>) -> Outcome {
    // The hook has reported the place; a payload may panic when it is dropped.
    std::mem::forget(panic);
    Outcome::Failed(Failure::Resil(Error::Internal("a call panicked".to_owned())))
}

/// Polls a call; if it goes on, it is put back.
fn poll_with(call: u32, mut running: Running) -> napi::Result<()> {
    let Some(waker) = with(|executor| executor.calls.get(&call).map(|slot| slot.waker.clone()))? else { return Ok(()) };
    let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut Context::from_waker(&waker))));
    let outcome = match polled {
        Ok(Poll::Pending) => return with(|executor| executor.put_back(call, running)),
        Ok(Poll::Ready(outcome)) => outcome,
        Err(panic) => crashed(panic),
    };
    // Before the end: what it held is released, and what still runs is aborted.
    drop_quietly(running);
    let slot = with(|executor| {
        executor.events.push(Event::End(call, outcome));
        executor.remove(call)
    });
    slot.map(drop)
}

fn drop_quietly(running: impl Sized) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(running))) {
        std::mem::forget(panic);
    }
}

fn poll(call: u32) -> napi::Result<()> {
    match with(|executor| executor.calls.get_mut(&call)?.future.take())? {
        Some(running) => poll_with(call, running),
        None => Ok(()),
    }
}

/// What came of an attempt. Its call is polled.
pub fn settle(call: u32, attempt: u32, settled: Settled) -> napi::Result<Word> {
    let other = with(|executor| {
        let slot = executor.calls.get_mut(&call)?;
        let (_, stage) = slot.attempts.iter_mut().find(|(id, _)| *id == attempt)?;
        match std::mem::replace(stage, Stage::Settled(settled)) {
            // The call itself is polled below.
            Stage::Running(waker) if !waker.will_wake(&slot.waker) => Some(waker),
            _ => None,
        }
    })?;
    if let Some(waker) = other {
        waker.wake();
    }
    poll(call)?;
    with(|executor| executor.word(call))
}

/// An attempt of this call was cut short.
pub fn cut_short(call: u32) -> napi::Result<()> {
    with(|executor| executor.calls.get_mut(&call).map(|slot| slot.is_cut_short = true)).map(drop)
}

/// Polls a call from inside of one of its functions, which has to know whether somebody still waits for it.
pub fn look(call: u32) -> napi::Result<Vec<Event>> {
    poll(call)?;
    take_events()
}

/// Drops a call that nobody waits for any more.
pub fn cancel(call: u32) -> napi::Result<Vec<Event>> {
    let running = with(|executor| executor.calls.get_mut(&call)?.future.take())?;
    drop_quietly(running);
    drop(with(|executor| executor.remove(call))?);
    take_events()
}

/// Reads all messages from other threads, and polls the calls they wake.
pub fn receive() -> napi::Result<Vec<Event>> {
    let queue = queue()?;
    queue.drain().into_iter().try_for_each(read)?;
    let calls = queue.drain_due_calls();
    if !calls.is_empty() {
        let notification = Event::Notify(crate::telemetry::EVENTS, Notification::Calls(calls));
        with(|executor| executor.events.push(notification))?;
    }
    take_events()
}

fn read(message: Message) -> napi::Result<()> {
    match message {
        Message::Poll(call) => poll(call)?,
        Message::Load(number, done) => {
            let call = with(|executor| executor.insert(false))?;
            poll_with(call.0, Box::pin(crate::cached::run_load(call, number, done)))?;
        }
        Message::Notify(listener, what) => with(|executor| executor.events.push(Event::Notify(listener, what)))?,
        Message::Forget(number) => with(|executor| executor.events.push(Event::Forget(number)))?,
    }
    Ok(())
}

pub fn take_events() -> napi::Result<Vec<Event>> {
    with(|executor| std::mem::take(&mut executor.events))
}
