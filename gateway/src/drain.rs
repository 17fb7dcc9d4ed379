//! Calls in flight: how many there may be, and waiting for them at the end.
//!
//! # What holds
//! - A call has a pass from its beginning to its end. Nobody gets one after [`Drain::begin`], nor while all are out.
//! - [`Drain::drained`] returns when every pass that was ever given is back, or when its time is over; it says how many are out then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The bit that says that nobody is let in any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Why a call is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPass {
    Draining,
    Overloaded,
}

#[derive(Debug, Clone)]
pub struct Drain(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    /// How many passes are out, and [`CLOSED`].
    out: AtomicUsize,
    most: usize,
    emptied: Notify,
}

/// A call that was let in. It ends when this is dropped.
#[derive(Debug)]
pub struct Pass(Arc<Gate>);

impl Drop for Pass {
    fn drop(&mut self) {
        // Only the last one, after the gate was closed, has somebody to tell.
        if self.0.out.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

impl Drain {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Gate { out: AtomicUsize::new(0), most, emptied: Notify::new() }))
    }

    pub fn enter(&self) -> Result<Pass, NoPass> {
        let entered = self.0.out.fetch_update(Ordering::AcqRel, Ordering::Acquire, |out| {
            (out & CLOSED == 0 && out < self.0.most).then_some(out + 1)
        });
        match entered {
            Ok(_) => Ok(Pass(Arc::clone(&self.0))),
            Err(out) if out & CLOSED != 0 => Err(NoPass::Draining),
            Err(_) => Err(NoPass::Overloaded),
        }
    }

    pub fn in_flight(&self) -> usize {
        self.0.out.load(Ordering::Acquire) & !CLOSED
    }

    pub fn is_draining(&self) -> bool {
        self.0.out.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Lets nobody in from now on.
    pub fn begin(&self) {
        self.0.out.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Waits until all are out, for `deadline` at most. How many are still in then: 0 if none.
    pub async fn drained(&self, deadline: Duration) -> usize {
        self.drained_or(tokio::time::sleep(deadline)).await
    }

    /// The same, until `over` at the latest.
    pub async fn drained_or(&self, over: impl Future<Output = ()>) -> usize {
        self.begin();
        let all_out = async {
            loop {
                let mut emptied = std::pin::pin!(self.0.emptied.notified());
                // Before the number is read, so that the last one is not missed.
                emptied.as_mut().enable();
                if self.in_flight() == 0 {
                    return;
                }
                emptied.await;
            }
        };
        tokio::select! {
            biased;
            () = all_out => {}
            () = over => {}
        }
        self.in_flight()
    }
}
