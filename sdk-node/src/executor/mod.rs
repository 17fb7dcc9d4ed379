//! Runs the futures of calls in place: on the thread of JavaScript, without a task and without a switch.
//!
//! A call is polled when it is begun, when an attempt of it is settled, and when something woke it. Whatever comes of a
//! poll is a [`Word`], one small number for JavaScript: nothing yet, run attempt n, done with the value of attempt n, or
//! "take the orders" for all that is seldom. No poll ever calls into JavaScript, so nothing here is entered twice.
//!
//! A call that nobody waits for in JavaScript has been cancelled: its future is dropped, which gives back what it held.

pub mod desk;
pub mod mailbox;
pub mod news;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use napi::bindgen_prelude::Env;
use napi::sys;
use resil::{Error, Failure};

use self::desk::{Desk, Order, Settled};
use self::mailbox::Mailbox;
use crate::thrown::Thrown;

/// Makes a value of JavaScript, on its thread.
pub type Converted = Box<dyn FnOnce(&Env) -> napi::Result<sys::napi_value>>;

/// How a call ended.
pub enum Answer {
    /// With the value of an attempt.
    Attempt(u32),
    /// With the failure of one, or of our own.
    Failed(Failure<Thrown>),
    /// With a value of ours.
    Value(Converted),
    /// With a few numbers of ours, which fit onto the tray.
    Numbers(Numbers),
}

/// What a verdict is made of.
pub type Numbers = [f64; 9];

impl From<Settled> for Answer {
    fn from(settled: Settled) -> Self {
        match settled {
            Ok(done) => Self::Attempt(done.id),
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// A call under way: of a function, or of ours alone.
pub enum Running {
    Attempts(Pin<Box<dyn Future<Output = Settled>>>),
    Ours(Pin<Box<dyn Future<Output = Answer>>>),
}

impl Running {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Answer> {
        match self {
            Self::Attempts(future) => future.as_mut().poll(context).map(Answer::from),
            Self::Ours(future) => future.as_mut().poll(context),
        }
    }
}

/// A word to JavaScript: a code in the lowest three bits, a number above.
pub type Word = u32;

/// Nothing to do; somebody will wake it. Above: its key if it has just begun.
const WAIT: Word = 0;
/// Run the first attempt. Above: the key of the call.
const RUN: Word = 1;
/// It is done with the value of the attempt above.
const DONE: Word = 2;
/// There is more to do than fits: take the orders. Above: its key if it has just begun.
const ORDERS: Word = 3;
/// It failed with the error of the attempt above.
pub const FAILED: Word = 4;
/// Run the function: the call is on its short way, under the loan above. See `quick`.
pub const QUICK: Word = 5;
/// It ended at once, and what with is on the tray.
pub const TOLD: Word = 6;
/// The same as `QUICK`, and there is leave for more calls. See `loans`.
pub const LENT: Word = 7;
/// End the turn and ask again.
pub const AGAIN: Word = Word::MAX;

struct Slot {
    desk: Arc<Desk>,
    /// `None` of a load, and while it is polled.
    running: Option<Running>,
    answer: Option<Answer>,
    is_counted: bool,
    /// Whether something of it may end an attempt that is running: then it keeps the process here even while all it waits
    /// for is a function of JavaScript.
    interrupts: bool,
}

pub struct Executor {
    mailbox: Arc<Mailbox>,
    env: sys::napi_env,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Desks of calls that ended, to be used again.
    desks: Vec<Arc<Desk>>,
    /// How many calls wait for something that is not a function of JavaScript.
    waiting: usize,
}

thread_local! {
    static EXECUTOR: RefCell<Option<Executor>> = const { RefCell::new(None) };
    /// What was let go of on this thread, for JavaScript to forget.
    static FORGOTTEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// This thread runs calls from now on.
pub fn open(env: sys::napi_env, on_wake: sys::napi_value) -> napi::Result<()> {
    if !crate::runtime::enter_for_good() {
        return Err(napi::Error::from_reason("no threads could be started"));
    }
    let mailbox = Mailbox::new(env, on_wake)?;
    let (slots, free, desks) = (Vec::new(), Vec::new(), Vec::new());
    EXECUTOR.with_borrow_mut(|executor| *executor = Some(Executor { mailbox, env, slots, free, desks, waiting: 0 }));
    IS_OPEN.set(true);
    Ok(())
}

/// The thread goes away: everything it was running is dropped.
fn close() {
    IS_OPEN.set(false);
    crate::loans::close();
    let executor = EXECUTOR.with_borrow_mut(Option::take);
    drop(executor);
}

/// The mailbox of this thread.
pub fn mailbox() -> napi::Result<Arc<Mailbox>> {
    with(|executor| Arc::clone(&executor.mailbox))
}

/// Whether this is a thread of JavaScript, which then forgets it with the next answer.
pub fn forget_here(number: u32) -> bool {
    if !IS_OPEN.try_with(Cell::get).unwrap_or(false) {
        return false;
    }
    FORGOTTEN.try_with(|forgotten| forgotten.borrow_mut().push(number)).is_ok()
}

pub fn take_forgotten() -> Vec<u32> {
    FORGOTTEN.with_borrow_mut(std::mem::take)
}

fn with<R>(run: impl FnOnce(&mut Executor) -> R) -> napi::Result<R> {
    EXECUTOR.with_borrow_mut(|executor| {
        let executor = executor.as_mut().ok_or_else(|| napi::Error::from_reason("this thread is closing"))?;
        Ok(run(executor))
    })
}

impl Executor {
    fn insert(&mut self, desk: impl FnOnce(&mut Self, u32) -> Arc<Desk>, interrupts: bool) -> (u32, Arc<Desk>) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let desk = desk(self, key);
        let kept = Arc::clone(&desk);
        self.slots[key as usize] =
            Some(Slot { desk: kept, running: None, answer: None, is_counted: false, interrupts });
        (key, desk)
    }

    fn slot(&mut self, key: u32) -> Option<&mut Slot> {
        self.slots.get_mut(key as usize)?.as_mut()
    }

    fn remove(&mut self, key: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(key as usize)?.take()?;
        self.free.push(key);
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
            self.mailbox.keep_alive(self.env, self.waiting > 0);
        }
    }

    /// One that was used before, or a new one.
    fn desk(&mut self, key: u32) -> Arc<Desk> {
        match self.desks.pop() {
            Some(desk) => {
                desk.set_key(key);
                desk
            }
            None => Desk::new(&self.mailbox, key),
        }
    }
}

/// Begins what `make` makes, and polls it.
pub fn begin(interrupts: bool, make: impl FnOnce(Arc<Desk>) -> Running) -> napi::Result<Word> {
    let (key, desk) = with(|executor| executor.insert(Executor::desk, interrupts))?;
    let running = match catch_unwind(AssertUnwindSafe(|| make(Arc::clone(&desk)))) {
        Ok(running) => crate::correlation::around(crate::inside::around(running)),
        Err(panic) => Running::Ours(Box::pin(std::future::ready(panicked(panic)))),
    };
    let code = poll_with(key, desk, running, Fits::Nothing)? & 7;
    Ok(key << 3 | code)
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Answer {
    // The hook has reported the place; a payload may panic when it is dropped.
    std::mem::forget(panic);
    Answer::Failed(Failure::Resil(Error::Internal("a call panicked".to_owned())))
}

/// Whether a word may tell how a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fits {
    Ending,
    /// It carries the key of the call already.
    Nothing,
}

/// Polls a call that is out of its slot, puts it back if it goes on, and says what to do.
fn poll_with(key: u32, desk: Arc<Desk>, mut running: Running, fits: Fits) -> napi::Result<Word> {
    let waker = Waker::from(Arc::clone(&desk));
    let mut context = Context::from_waker(&waker);
    let polled = catch_unwind(AssertUnwindSafe(|| running.poll(&mut context)));
    let answer = match polled {
        Ok(Poll::Pending) => {
            let (word, is_running) = desk.pending();
            with(|executor| {
                if let Some(slot) = executor.slot(key) {
                    slot.running = Some(running);
                    let counts = slot.interrupts || !is_running;
                    if counts != slot.is_counted {
                        slot.is_counted = counts;
                        executor.count(counts);
                    }
                }
            })?;
            return Ok(word);
        }
        Ok(Poll::Ready(answer)) => answer,
        Err(panic) => panicked(panic),
    };
    // Before the answer: what it held is given back, and what still ran is aborted.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(running))) {
        std::mem::forget(panic);
    }
    drop(waker);
    let word = match &answer {
        _ if fits == Fits::Nothing || desk.has_orders() => ORDERS,
        Answer::Attempt(id) => id << 3 | DONE,
        Answer::Failed(Failure::Inner(thrown)) if thrown.kept.is_none() && thrown.id > 0 => thrown.id << 3 | FAILED,
        _ => ORDERS,
    };
    drop(desk);
    with(|executor| {
        if word & 7 == ORDERS {
            if let Some(slot) = executor.slot(key) {
                slot.answer = Some(answer);
                if std::mem::take(&mut slot.is_counted) {
                    executor.count(false);
                }
            }
        } else {
            executor.retire(key);
        }
    })?;
    Ok(word)
}

impl Executor {
    /// The call is over; its desk is used again if nobody else has it.
    fn retire(&mut self, key: u32) {
        let Some(slot) = self.remove(key) else { return };
        let mut desk = slot.desk;
        if let Some(own) = Arc::get_mut(&mut desk)
            && !own.is_load()
        {
            own.clear();
            self.desks.push(desk);
        }
    }
}

/// Polls a call again.
pub fn poll(key: u32) -> napi::Result<Word> {
    let found = with(|executor| {
        let slot = executor.slot(key)?;
        Some((Arc::clone(&slot.desk), slot.running.take()?))
    })?;
    match found {
        Some((desk, running)) => poll_with(key, desk, running, Fits::Ending),
        None => Ok(WAIT),
    }
}

/// Polls a call from inside of one of its functions, which wants to know whether it is still waited for. Only what ends
/// attempts is told; what starts some is left for when nothing of JavaScript is running.
pub fn look(key: u32) -> napi::Result<(Vec<Order>, Option<Answer>)> {
    let word = poll(key)?;
    let (id, desk) = (word >> 3, with(|executor| executor.slot(key).map(|slot| Arc::clone(&slot.desk)))?);
    let answer = match word & 7 {
        DONE => Some(Answer::Attempt(id)),
        FAILED => Some(Answer::Failed(Failure::Inner(Thrown::of_attempt(id)))),
        _ => None,
    };
    let Some(desk) = desk else { return Ok((Vec::new(), answer)) };
    if word & 7 == RUN {
        desk.put_back(Order::Start(id, None));
    }
    if with(|executor| executor.slot(key).is_some_and(|slot| slot.answer.is_some()))? {
        return take(key);
    }
    let ends = desk.take_ends();
    if desk.has_orders() {
        desk.wake_by_ref();
    }
    Ok((ends, answer))
}

/// Whether nobody waits for this load any more.
pub fn is_aborting(key: u32, id: u32) -> napi::Result<bool> {
    with(|executor| executor.slot(key).is_some_and(|slot| slot.desk.is_aborting(id)))
}

/// What came of an attempt; the call is polled.
pub fn settle(key: u32, id: u32, settled: Settled) -> napi::Result<Word> {
    let found = with(|executor| {
        let slot = executor.slot(key)?;
        let (desk, running) = (Arc::clone(&slot.desk), slot.running.take());
        if running.is_none() && desk.is_load() {
            executor.remove(key);
        }
        Some((desk, running))
    })?;
    let Some((desk, running)) = found else { return Ok(WAIT) };
    desk.settle(id, settled);
    match running {
        Some(running) => poll_with(key, desk, running, Fits::Ending),
        None => Ok(WAIT),
    }
}

/// Drops a call that nobody waits for any more.
pub fn cancel(key: u32) -> napi::Result<Vec<Order>> {
    let Some(mut slot) = with(|executor| executor.remove(key))? else { return Ok(Vec::new()) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(slot.running.take()))) {
        std::mem::forget(panic);
    }
    Ok(slot.desk.take_orders().into_vec())
}

/// The orders of a call, and its answer if it is over.
pub fn take(key: u32) -> napi::Result<(Vec<Order>, Option<Answer>)> {
    with(|executor| {
        let Some(slot) = executor.slot(key) else { return (Vec::new(), None) };
        let (orders, answer) = (slot.desk.take_orders().into_vec(), slot.answer.take());
        if answer.is_some() {
            executor.retire(key);
        }
        (orders, answer)
    })
}

/// The numbers that a call ended with when it was begun. It is over then.
pub fn take_numbers(word: Word) -> napi::Result<Option<Numbers>> {
    if word & 7 != ORDERS {
        return Ok(None);
    }
    let key = word >> 3;
    with(|executor| {
        let slot = executor.slot(key)?;
        let Some(Answer::Numbers(numbers)) = slot.answer else { return None };
        executor.retire(key);
        Some(numbers)
    })
}
