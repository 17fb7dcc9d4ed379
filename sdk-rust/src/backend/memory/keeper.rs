//! The task that steps keys without a call: when a lease ends, or a wait is over.
//!
//! # The state
//! A heap of when which key wants to be looked at, and on which runtimes a task sleeps until the first of them. Such a
//! task begins with the first wait on its runtime and ends when there is nothing to wake for. It never polls.
//!
//! # Why one task for each runtime
//! A runtime of one thread only runs while somebody blocks on it. A task on one that stands still would leave waiters of
//! another alone. A waiter's own runtime runs, or the waiter does not.
//!
//! # Invariants
//! 1. While somebody waits for a key, a wake of that key is in the heap, or a task is looking at the key.
//! 2. A task leaves the list of runtimes only when the heap is empty, or with its runtime. Then the rest of the waiters is
//!    nudged, and starts another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use resil_core::Instant;
use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use super::store::Store;

/// Keys that are looked at before other tasks of the runtime have their turn.
const KEYS_IN_A_ROW: usize = 64;

#[derive(Default)]
pub(super) struct Keeper {
    plan: Mutex<Plan>,
    /// Something is due earlier than the tasks know, or the store is gone.
    changed: Notify,
    /// For all who wait: see that a task runs, and whether the handle you wait through is closed.
    pub nudge: Notify,
}

#[derive(Default)]
struct Plan {
    timers: BinaryHeap<Reverse<Wake>>,
    runtimes: SmallVec<[Id; 1]>,
    /// The earliest instant for which a task sleeps.
    asleep_until: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wake {
    pub at: Instant,
    pub key: Box<[u8]>,
}

enum Next {
    Look(SmallVec<[Wake; 1]>),
    Sleep(Duration),
    Nothing,
}

impl Keeper {
    /// `key` wants to be looked at, at `at`.
    pub fn arm(&self, at: Instant, key: &[u8]) {
        let mut plan = self.plan.lock();
        plan.timers.push(Reverse(Wake { at, key: key.into() }));
        let is_earlier = plan.asleep_until.is_some_and(|until| at < until);
        drop(plan);
        if is_earlier {
            self.look_again();
        }
    }

    pub fn look_again(&self) {
        self.changed.notify_waiters();
    }

    /// Sees to it that a task runs on `runtime`.
    pub fn run_on(self: &Arc<Self>, runtime: &Handle, store: &Arc<Store>) {
        let id = runtime.id();
        {
            let mut plan = self.plan.lock();
            if plan.runtimes.contains(&id) {
                return;
            }
            plan.runtimes.push(id);
        }
        // Outside of the lock: a runtime that shuts down drops what it is given at once.
        let duty = Duty { keeper: Arc::clone(self), runtime: id, is_over: false };
        runtime.spawn(duty.fulfil(Arc::downgrade(store)));
    }

    /// How many tasks there are.
    #[cfg(test)]
    pub fn tasks(&self) -> usize {
        self.plan.lock().runtimes.len()
    }

    fn next(&self, now: Instant, runtime: Id) -> Next {
        let mut plan = self.plan.lock();
        let Some(Reverse(first)) = plan.timers.peek() else {
            plan.runtimes.retain(|id| *id != runtime);
            return Next::Nothing;
        };
        if first.at > now {
            let at = first.at;
            plan.asleep_until = Some(at);
            return Next::Sleep(Duration::from_micros(now.until(at).as_us().cast_unsigned()));
        }
        let mut due = SmallVec::new();
        while due.len() < KEYS_IN_A_ROW
            && plan.timers.peek().is_some_and(|Reverse(wake)| wake.at <= now)
            && let Some(Reverse(wake)) = plan.timers.pop()
        {
            due.push(wake);
        }
        Next::Look(due)
    }
}

/// A task, for as long as it runs.
struct Duty {
    keeper: Arc<Keeper>,
    runtime: Id,
    is_over: bool,
}

impl Duty {
    async fn fulfil(mut self, store: Weak<Store>) {
        let keeper = Arc::clone(&self.keeper);
        loop {
            // Before the look: what is armed after it is not missed.
            let changed = keeper.changed.notified();
            let Some(alive) = store.upgrade() else { return };
            match keeper.next(alive.clock.core_now(), self.runtime) {
                Next::Nothing => {
                    self.is_over = true;
                    return;
                }
                Next::Look(due) => {
                    due.iter().for_each(|wake| alive.wake(wake));
                    drop(alive);
                    tokio::task::yield_now().await;
                }
                Next::Sleep(span) => {
                    let sleep = alive.clock.sleep(span);
                    drop(alive);
                    tokio::select! {
                        () = sleep => {}
                        () = changed => {}
                    }
                }
            }
        }
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if !self.is_over {
            self.keeper.plan.lock().runtimes.retain(|id| *id != self.runtime);
            self.keeper.nudge.notify_waiters();
        }
    }
}
