//! One worker leads while handlers return at once: it takes, handles and takes again, and the others sleep.
//!
//! To wake a worker, on another core perhaps, costs more than a handler that does nothing, and workers that take turns share every counter. So the lead
//! is kept for as long as the last handler was quick, and is passed on
//! - before a message is handled, if the last handler was not quick;
//! - when a handler, or what settles its message, waits for something;
//! - when one message keeps the leader for longer than a turn of the ticker: a quick handler may block for once.
//!
//! Where acknowledgements are sent one by one every message waits for something, so there is no lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

#[derive(Debug)]
pub(super) struct Lead {
    /// One permit: nobody leads. `None`: everybody does.
    free: Option<Arc<Semaphore>>,
    /// Counts the times that it was passed on.
    term: AtomicU64,
    /// Counts what leaders took.
    taken: AtomicU64,
    /// A leader handles a message, and does not wait for one.
    is_busy: AtomicBool,
    /// Term and count at the last look.
    looked: [AtomicU64; 2],
}

impl Lead {
    pub fn new(is_held: bool) -> Self {
        let free = is_held.then(|| Arc::new(Semaphore::new(1)));
        let [term, taken, looked_term, looked_taken] = [0; 4].map(AtomicU64::new);
        Self { free, term, taken, is_busy: AtomicBool::new(false), looked: [looked_term, looked_taken] }
    }

    /// Returns when this worker leads.
    pub async fn follow(self: &Arc<Self>, held: &HeldLead) {
        let free = self.free.as_ref().filter(|_| !held.is_current()).cloned();
        if let Some(free) = free {
            held.pass_on();
            if let Ok(permit) = free.acquire_owned().await {
                permit.forget();
                *held.0.lock() = Some(Leading { lead: Arc::clone(self), term: self.term.load(Ordering::Acquire) });
            }
        }
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// Takes the lead from a worker that has taken nothing since the last look.
    pub fn look(&self) {
        let now = [self.term.load(Ordering::Acquire), self.taken.load(Ordering::Relaxed)];
        let before = [0, 1].map(|at| self.looked[at].swap(now[at], Ordering::Relaxed));
        if now == before && self.is_busy.load(Ordering::Relaxed) {
            self.pass_on(now[0]);
        }
    }

    /// Once for each term.
    fn pass_on(&self, term: u64) {
        let Some(free) = &self.free else { return };
        if free.available_permits() == 0
            && self.term.compare_exchange(term, term + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            free.add_permits(1);
        }
    }
}

/// The lead, until it is dropped or taken away.
#[derive(Debug)]
struct Leading {
    lead: Arc<Lead>,
    term: u64,
}

/// The lead, while this worker has it.
#[derive(Debug, Default)]
pub(super) struct HeldLead(Mutex<Option<Leading>>);

impl HeldLead {
    /// A message is handled from now on.
    pub fn begin(&self) {
        if let Some(Leading { lead, .. }) = &*self.0.lock() {
            lead.taken.fetch_add(1, Ordering::Relaxed);
            lead.is_busy.store(true, Ordering::Relaxed);
        }
    }

    /// Something is waited for: another may lead.
    pub fn pass_on(&self) {
        self.0.lock().take();
    }

    fn is_current(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|held| held.lead.term.load(Ordering::Acquire) == held.term)
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.lead.pass_on(self.term);
    }
}
