//! What a call wants of JavaScript, and what it gets: between the future of a call and the functions of its user.
//!
//! The future asks for an attempt. That is an order on the desk: "start attempt 1". JavaScript carries the orders out after
//! each poll, and brings the outcome to the desk when the function's promise is settled. An attempt that is dropped
//! before (it timed out, another was faster) leaves the order to abort it. Values never come here: JavaScript keeps them
//! under the number of the attempt. Only what is to be stored elsewhere comes as bytes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use resil::Failure;
use resil::lock::Held;
use smallvec::SmallVec;

use super::mailbox::{Letter, Mailbox};
use super::{ORDERS, RUN, WAIT, Word};
use crate::thrown::Thrown;

/// What is told to the function of an attempt, beside its number.
#[derive(Debug, Clone, Default)]
pub struct Detail {
    pub fence: Option<u64>,
    /// The lock it works under.
    pub held: Option<Held>,
    /// Which attempt it is to the fleet; 0: not known.
    pub attempt: u32,
    /// Which item of a batch.
    pub item: Option<u32>,
    /// Under which number JavaScript keeps the function to run.
    pub kept: Option<u32>,
    /// The failure that a fallback is to answer for.
    pub failure: Option<Box<Failure<Thrown>>>,
    /// Which layer's fallback that is.
    pub layer: u32,
}

#[derive(Debug)]
pub enum Order {
    Start(u32, Option<Box<Detail>>),
    /// Nobody waits for it any more.
    Abort(u32),
    /// What it works under is lost; it is still waited for.
    Warn(u32),
}

/// An attempt that succeeded: its number, and its value as bytes where somebody stores it.
#[derive(Debug, Clone)]
pub struct Done {
    pub id: u32,
    pub bytes: Option<Bytes>,
}

pub type Settled = Result<Done, Failure<Thrown>>;

enum Stage {
    Running(Option<Waker>),
    Settled(Settled),
}

pub struct Desk {
    pub mailbox: Arc<Mailbox>,
    /// Where its call is in the executor. Set anew when a load is told to JavaScript.
    key: AtomicU32,
    /// A load: nobody polls it here.
    is_load: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: SmallVec<[(u32, Stage); 1]>,
    last_id: u32,
    orders: SmallVec<[Order; 1]>,
}

impl Desk {
    pub fn new(mailbox: &Arc<Mailbox>, key: u32) -> Arc<Self> {
        Self::make(mailbox, key, false)
    }

    /// For a load, which runs in a task of the runtime.
    pub fn of_load(mailbox: &Arc<Mailbox>) -> Arc<Self> {
        Self::make(mailbox, u32::MAX, true)
    }

    fn make(mailbox: &Arc<Mailbox>, key: u32, is_load: bool) -> Arc<Self> {
        Arc::new(Self { mailbox: Arc::clone(mailbox), key: key.into(), is_load, state: Mutex::default() })
    }

    pub fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }

    pub fn set_key(&self, key: u32) {
        self.key.store(key, Ordering::Relaxed);
    }

    pub fn is_load(&self) -> bool {
        self.is_load
    }

    /// Another attempt. Nothing happens before it is polled.
    pub fn attempt(self: &Arc<Self>) -> Attempt {
        Attempt { desk: Arc::clone(self), id: 0, detail: None, lost: None }
    }

    pub fn attempt_with(self: &Arc<Self>, detail: Detail) -> Attempt {
        Attempt { desk: Arc::clone(self), id: 0, detail: Some(Box::new(detail)), lost: None }
    }

    /// What came of an attempt. Nothing if nobody waits for it any more.
    pub fn settle(&self, id: u32, settled: Settled) {
        let waker = {
            let mut state = self.state.lock();
            let Some((_, stage)) = state.running.iter_mut().find(|(other, _)| *other == id) else { return };
            match std::mem::replace(stage, Stage::Settled(settled)) {
                Stage::Running(waker) => waker,
                Stage::Settled(_) => None,
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The first attempt was made already.
    pub fn skip_first(&self) {
        self.state.lock().last_id = 1;
    }

    /// An order that was taken and not carried out: it is first again.
    pub fn put_back(&self, order: Order) {
        self.state.lock().orders.insert(0, order);
    }

    /// What ends attempts, or warns them. What starts some stays.
    pub fn take_ends(&self) -> Vec<Order> {
        let mut state = self.state.lock();
        let (starts, ends): (SmallVec<[Order; 1]>, SmallVec<[Order; 1]>) =
            state.orders.drain(..).partition(|order| matches!(order, Order::Start(..)));
        state.orders = starts;
        ends.into_vec()
    }

    /// Whether nobody waits for this attempt any more, and JavaScript was not told yet.
    pub fn is_aborting(&self, id: u32) -> bool {
        self.state.lock().orders.iter().any(|order| matches!(order, Order::Abort(aborted) if *aborted == id))
    }

    pub fn has_orders(&self) -> bool {
        !self.state.lock().orders.is_empty()
    }

    /// What is to be done after a poll that did not end it (the most usual order fits into the word), and whether a function
    /// of JavaScript is running for it.
    pub fn pending(&self) -> (Word, bool) {
        let mut state = self.state.lock();
        let word = match state.orders.as_slice() {
            [] => WAIT,
            [Order::Start(id, None)] => {
                let id = *id;
                state.orders.clear();
                id << 3 | RUN
            }
            _ => ORDERS,
        };
        (word, !state.running.is_empty())
    }

    /// As new, for the next call.
    pub fn clear(&mut self) {
        let state = self.state.get_mut();
        state.running.clear();
        state.orders.clear();
        state.last_id = 0;
    }

    pub fn take_orders(&self) -> SmallVec<[Order; 1]> {
        std::mem::take(&mut self.state.lock().orders)
    }
}

impl Wake for Desk {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.post(Letter::Poll(self.key()));
    }
}

type Lost = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One run of the user's function, as the future that is awaited.
pub struct Attempt {
    desk: Arc<Desk>,
    /// 0 until it is polled.
    id: u32,
    detail: Option<Box<Detail>>,
    /// Ready when what it works under is lost.
    lost: Option<Lost>,
}

impl Attempt {
    /// The function's signal is aborted when `lost` is ready; it is still waited for.
    pub fn warned_by(mut self, lost: impl Future<Output = ()> + Send + 'static) -> Self {
        self.lost = Some(Box::pin(lost));
        self
    }
}

impl Future for Attempt {
    type Output = Settled;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Settled> {
        let this = &mut *self;
        let is_lost = match &mut this.lost {
            Some(lost) => lost.as_mut().poll(context).is_ready(),
            None => false,
        };
        let mut state = this.desk.state.lock();
        // Whoever brings the outcome polls the call itself.
        let is_own = std::ptr::eq(context.waker().data().cast::<Desk>(), Arc::as_ptr(&this.desk));
        let waker = (!is_own).then(|| context.waker().clone());
        if this.id == 0 {
            state.last_id += 1;
            this.id = state.last_id;
            state.running.push((this.id, Stage::Running(waker)));
            state.orders.push(Order::Start(this.id, this.detail.take()));
            drop(state);
            if this.desk.is_load {
                this.desk.mailbox.post(Letter::Orders(Arc::clone(&this.desk)));
            }
            return Poll::Pending;
        }
        let Some(at) = state.running.iter().position(|(id, _)| *id == this.id) else {
            return Poll::Ready(Err(Failure::Resil(resil::Error::Cancelled)));
        };
        if let Stage::Running(kept) = &mut state.running[at].1 {
            *kept = waker;
            if is_lost {
                this.lost = None;
                state.orders.push(Order::Warn(this.id));
            }
            return Poll::Pending;
        }
        match state.running.swap_remove(at).1 {
            Stage::Settled(settled) => Poll::Ready(settled),
            Stage::Running(_) => Poll::Pending,
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        let mut state = self.desk.state.lock();
        let Some(at) = state.running.iter().position(|(id, _)| *id == self.id) else { return };
        let (id, stage) = state.running.swap_remove(at);
        // One that JavaScript was not told of never begins: what it was to work under may be lost already.
        let told = state.orders.iter().position(|order| matches!(order, Order::Start(start, _) if *start == id));
        if let Some(at) = told {
            state.orders.remove(at);
        } else if matches!(stage, Stage::Running(_)) {
            state.orders.push(Order::Abort(id));
            drop(state);
            // Those of a call are taken after its poll.
            if self.desk.is_load {
                self.desk.mailbox.post(Letter::Orders(Arc::clone(&self.desk)));
            }
        }
    }
}
