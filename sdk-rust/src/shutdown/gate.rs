//! Where calls come in, and how a shutdown knows whom to wait for.
//!
//! One number says everything: how many calls are in flight, and whether the gate is open, closing (only calls from inside of calls
//! in flight are let in) or shut (nothing is let in). A call adds itself and reads the sign in one step; closing sets the sign and
//! reads the count in one step. So every call came in before the gate closed and is counted, or sees the sign and is refused.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::task::futures::TaskLocalFuture;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Nothing new may come in.
const CLOSING: usize = 1;
/// Nothing at all may come in, not even from inside.
const SHUT: usize = 2;
const SIGN: usize = CLOSING | SHUT;
/// Above the sign: how many calls are in flight.
const ONE_CALL: usize = 4;

/// The gates a task is inside of. Few: one per client, nested.
pub(crate) type Inside = SmallVec<[usize; 2]>;

tokio::task_local! {
    static INSIDE: Inside;
}

/// Runs `future` as what is inside of these gates.
pub(crate) fn scope<F: Future>(inside: Inside, future: F) -> TaskLocalFuture<Inside, F> {
    INSIDE.scope(inside, future)
}

/// What this task is inside of.
pub(crate) fn inside() -> Inside {
    INSIDE.try_with(SmallVec::clone).unwrap_or_default()
}

/// Where calls come in. One atomic addition on the way in, one on the way out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    in_flight: InFlight,
    emptied: Notify,
    cut_off: CancellationToken,
}

impl Gate {
    /// For a call that begins. Hold the pass until it ends.
    #[inline(always)]
    pub fn enter(&self) -> Result<Pass<'_>, Error> {
        match self.0.in_flight.enter() {
            0 => Ok(Pass(Some(&self.0))),
            sign => {
                self.0.count_out();
                self.refuse(sign)
            }
        }
    }

    /// For a call that is no future.
    pub fn begin(&self) -> Result<CallInFlight, Error> {
        // The count is taken over from the pass.
        let is_counted = self.enter()?.0.take().is_some();
        Ok(CallInFlight { gate: self.clone(), is_counted })
    }

    /// Runs it as one call, and marks this task as inside meanwhile. Dropped when the gate is shut.
    ///
    /// `make` is called here, and not by the caller: a future that is handed over is kept twice, as what came and as what runs.
    pub async fn pass_through<F: Future>(&self, make: impl FnOnce() -> F) -> Result<F::Output, Error> {
        let _pass = self.enter()?;
        let mut inside = inside();
        inside.push(self.id());
        tokio::select! {
            biased;
            output = INSIDE.scope(inside, make()) => Ok(output),
            () = self.0.cut_off.cancelled() => Err(Error::ShuttingDown),
        }
    }

    /// For a call that never waits for anything: a shutdown need not wait for it either, so it is not counted.
    #[inline]
    pub fn look(&self) -> Result<(), Error> {
        match self.0.in_flight.sign() {
            0 => Ok(()),
            sign => self.refuse(sign).map(drop),
        }
    }

    #[cold]
    fn refuse(&self, sign: usize) -> Result<Pass<'_>, Error> {
        // What is inside is part of something that is counted already.
        if sign & SHUT == 0 && self.is_inside() { Ok(Pass(None)) } else { Err(Error::ShuttingDown) }
    }

    /// Whether this task is inside, by [`pass_through`](Self::pass_through).
    fn is_inside(&self) -> bool {
        INSIDE.try_with(|inside| inside.contains(&self.id())).unwrap_or(false)
    }

    /// Until when the present caller may wait: a call in flight until all are cut off, any other until `closing`.
    pub fn patience<'a>(&'a self, closing: &'a CancellationToken) -> &'a CancellationToken {
        if self.is_inside() { &self.0.cut_off } else { closing }
    }

    /// Cancelled when whatever is still in flight is to be dropped.
    pub fn cut_off(&self) -> &CancellationToken {
        &self.0.cut_off
    }

    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// From now on nothing new comes in. How many calls are in flight.
    pub fn close(&self) -> usize {
        self.0.in_flight.close(CLOSING)
    }

    /// Cuts off whatever is still in flight. How many calls those are.
    pub fn shut(&self) -> usize {
        let left = self.0.in_flight.close(CLOSING | SHUT);
        self.0.cut_off.cancel();
        left
    }

    /// When nothing is in flight. Only to be asked of a gate that is closed.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.0.in_flight.count() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl GateState {
    #[inline]
    fn count_out(&self) {
        if self.in_flight.leave() {
            self.emptied.notify_waiters();
        }
    }
}

/// The count and the sign, over std's atomic, or in a test over the one of loom.
macro_rules! in_flight {
    ($atomic:ty) => {
        #[derive(Debug, Default)]
        struct InFlight($atomic);

        impl InFlight {
            #[cfg_attr(test, allow(dead_code, reason = "not by the model"))]
            fn sign(&self) -> usize {
                self.0.load(Ordering::Relaxed) & SIGN
            }

            fn count(&self) -> usize {
                self.0.load(Ordering::Acquire) / ONE_CALL
            }

            /// Adds a call; the sign that it found.
            #[inline(always)]
            fn enter(&self) -> usize {
                self.0.fetch_add(ONE_CALL, Ordering::Relaxed) & SIGN
            }

            /// Takes a call away. True if the gate is closed and that was the last one. What the call did happens before that is seen.
            #[inline]
            fn leave(&self) -> bool {
                let before = self.0.fetch_sub(ONE_CALL, Ordering::Release);
                before & SIGN != 0 && before / ONE_CALL == 1
            }

            /// Puts up a sign; how many calls are in flight.
            fn close(&self, sign: usize) -> usize {
                self.0.fetch_or(sign, Ordering::AcqRel) / ONE_CALL
            }
        }
    };
}

in_flight!(AtomicUsize);

/// The same without a lifetime: see [`Client::begin_call`](crate::Client::begin_call).
#[derive(Debug)]
#[must_use = "the call counts as in flight for as long as this is held"]
pub struct CallInFlight {
    gate: Gate,
    is_counted: bool,
}

impl CallInFlight {
    /// Runs a part of it: what it asks of the client is let in while the rest of the call is waited for.
    pub fn part<F: Future>(&self, part: F) -> impl Future<Output = F::Output> + use<F> {
        let mut inside = inside();
        inside.push(self.gate.id());
        scope(inside, part)
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        if self.is_counted {
            self.gate.0.count_out();
        }
    }
}

/// A call in flight.
#[derive(Debug)]
#[must_use = "the call counts as in flight for as long as its pass is held"]
pub(crate) struct Pass<'a>(Option<&'a GateState>);

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.count_out();
        }
    }
}

#[cfg(test)]
#[path = "tests/gate.rs"]
mod tests;
