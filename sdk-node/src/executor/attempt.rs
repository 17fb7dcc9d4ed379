//! One run of the user's function, as the future that the SDK awaits.
//!
//! Its first poll is the event "start attempt 1". JavaScript reports the outcome when the function's promise is settled. An
//! attempt that is dropped before (it timed out, another was faster) is the event "abort it". Values stay in JavaScript, under
//! the number of the attempt; only what is stored elsewhere comes as bytes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use resil::lock::Held;
use resil::policy::Class;
use resil::{Error, Failure};
use smallvec::SmallVec;

use super::{Event, with};
use crate::thrown::Thrown;

/// What the function of an attempt gets, beside its number.
#[derive(Debug, Clone, Default)]
pub struct Detail {
    pub fence: Option<u64>,
    /// The lock it works under.
    pub held: Option<Held>,
    /// Which attempt it is to the fleet; 0: not known.
    pub attempt: u32,
    /// Which item of a batch, and what is asked of it other than its work.
    pub item: Option<u32>,
    pub ask: Option<&'static str>,
    /// What an item that is given came to; see `whole::status`.
    pub status: Option<u32>,
    /// The number under which JavaScript keeps the function to run.
    pub kept: Option<u32>,
    /// The failure that a fallback replaces, and the layer of the fallback.
    pub failure: Option<Box<Failure<Thrown>>>,
    pub layer: u32,
}

/// An attempt that succeeded: its number, and its value as bytes if they are stored.
#[derive(Debug, Clone)]
pub struct Done {
    pub id: u32,
    pub bytes: Option<Bytes>,
    /// What its value means to each layer that takes it for a failure, outermost first.
    pub unfit: SmallVec<[Option<Class>; 2]>,
}

pub type Settled = Result<Done, Failure<Thrown>>;

pub enum Stage {
    Running(Waker),
    Settled(Settled),
}

/// A call under way, from which attempts are made.
#[derive(Debug, Clone, Copy)]
pub struct Call(pub u32);

impl Call {
    /// Another attempt. Nothing happens before it is polled.
    pub fn attempt(self, detail: Option<Detail>) -> Attempt {
        Attempt { call: self.0, id: 0, detail: detail.map(Box::new), lost: None }
    }

    /// Whether an attempt ended with an error that says that it was cut short: nobody knows what it did.
    pub fn is_cut_short(self) -> bool {
        with(|executor| executor.calls.get(&self.0).is_some_and(|slot| slot.is_cut_short)).unwrap_or(false)
    }

    /// Says why the attempts were aborted that were dropped in this poll.
    pub fn explain_aborts(self, error: &Error) {
        let explained = with(|executor| {
            for event in &mut executor.events {
                if let Event::Abort(call, _, reason @ None) = event
                    && *call == self.0
                {
                    *reason = Some(error.clone());
                }
            }
        });
        drop(explained);
    }
}

pub struct Attempt {
    call: u32,
    /// 0 until it is polled.
    id: u32,
    detail: Option<Box<Detail>>,
    /// Ready when what it works under is lost.
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Attempt {
    /// The function's signal is aborted when `lost` is ready; its result still counts.
    pub fn warned_by(mut self, lost: impl Future<Output = ()> + Send + 'static) -> Self {
        self.lost = Some(Box::pin(lost));
        self
    }
}

impl Future for Attempt {
    type Output = Settled;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Settled> {
        let this = &mut *self;
        let is_lost = this.lost.as_mut().is_some_and(|lost| lost.as_mut().poll(context).is_ready());
        if is_lost {
            this.lost = None;
        }
        let polled = with(|executor| {
            let slot = executor.calls.get_mut(&this.call)?;
            if this.id == 0 {
                slot.last_attempt += 1;
                this.id = slot.last_attempt;
                slot.attempts.push((this.id, Stage::Running(context.waker().clone())));
                executor.events.push(Event::Start(this.call, this.id, this.detail.take()));
                return Some(Poll::Pending);
            }
            let at = slot.attempts.iter().position(|(id, _)| *id == this.id)?;
            if let Stage::Running(waker) = &mut slot.attempts[at].1 {
                waker.clone_from(context.waker());
                if is_lost {
                    executor.events.push(Event::Warn(this.call, this.id));
                }
                return Some(Poll::Pending);
            }
            match slot.attempts.swap_remove(at).1 {
                Stage::Settled(settled) => Some(Poll::Ready(settled)),
                Stage::Running(_) => None,
            }
        });
        // Gone only with its thread.
        polled.ok().flatten().unwrap_or(Poll::Ready(Err(Failure::Resil(Error::Cancelled))))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let (call, attempt) = (self.call, self.id);
        let dropped = with(|executor| {
            let slot = executor.calls.get_mut(&call)?;
            let at = slot.attempts.iter().position(|(id, _)| *id == attempt)?;
            let stage = slot.attempts.swap_remove(at);
            // An attempt that JavaScript does not know of never starts: what it was to work under may be lost already.
            let is_start = |event: &Event| matches!(event, Event::Start(of, id, _) if (*of, *id) == (call, attempt));
            if let Some(at) = executor.events.iter().position(is_start) {
                executor.events.remove(at);
            } else if matches!(stage.1, Stage::Running(_)) {
                executor.events.push(Event::Abort(call, attempt, None));
            }
            Some(stage)
        });
        drop(dropped);
    }
}
