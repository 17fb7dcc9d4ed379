//! The state machines in this process: `memory://`.
//!
//! # The promise
//! Every command is answered as a server replies to it, blocking waits included. All decisions are core's; here are only
//! the keys, the queues of waiters, and who looks at them when time has passed. Nothing disconnects in memory: BOUND and
//! BOUNDTO are plain leases, and a heartbeat has nothing to say.
//!
//! # The map
//! - `store`: the keys, in shards, under a `name` each; `names`: what was invalidated of cache names; `fences`: one counter for all of them; `registry`: stores that are shared by name.
//! - `limits`, `breakers`, `holdings`, `idempotency`, `flights`, `ledgers`, `overview`: the commands.
//! - `waited`: a key and its waiters; `waiting`: a call that waits; `keeper`: the task that wakes keys.
//! - `channels`: events for clients of the same store.

mod breakers;
mod channels;
mod fences;
mod flights;
mod guards;
mod holdings;
mod idempotency;
mod keeper;
mod ledgers;
mod limits;
mod name;
mod names;
mod overview;
mod registry;
mod store;
#[cfg(test)]
mod tests;
mod waited;
mod waiting;

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use resil_core::Instant;
use resil_core::circuit_breaker::Transition as BreakerTransition;
use resil_core::lock::{BULKHEAD, LOCK};
use resil_core::policy::breaker_baseline::Baseline;
use resil_core::rate_limit::{Ask, Quota, Verdict as LimitVerdict};
use resil_core::waited::Ending;
use resil_wire::command::{Allowed, Command, Reply};
use resil_wire::heartbeat::Heartbeat;
use tokio::sync::watch;

use self::channels::EVERYTHING;
pub(crate) use self::channels::{Hear, MemoryEvent};
pub(crate) use self::registry::after_fork;
use self::store::{Store, When};
use super::Reach;
use crate::cache::Invalidated;
use crate::clock::Clock;
use crate::error::Error;
use crate::policies::watch::PolicyMessage;

/// A handle to a store.
pub(crate) struct Memory {
    store: Arc<Store>,
    closed: AtomicBool,
    reach: watch::Sender<Reach>,
}

impl Memory {
    /// One of its own, that nobody else sees.
    pub fn new(clock: Clock) -> Self {
        Self::with_store(Store::new(clock))
    }

    /// What `memory://name` names: the same store for all in this process who name it, for as long as anybody has it. The
    /// clock is that of the first. Without a name, one of its own.
    pub fn named(name: &str, clock: Clock) -> Self {
        if name.is_empty() { Self::new(clock) } else { Self::with_store(registry::shared(name, clock)) }
    }

    fn with_store(store: Arc<Store>) -> Self {
        Self { store, closed: AtomicBool::new(false), reach: watch::Sender::new(Reach::Here) }
    }

    /// Replies at once: WAIT means try once, as in a transaction on a server.
    pub fn call(&self, command: &Command<'_>) -> Result<Reply, Error> {
        self.call_when(command, When::Now)
    }

    /// RES.GCRA without a command, for callers that have checked what they ask for: what is granted, and what the binding tier reads.
    pub fn take(&self, key: &[u8], quotas: &[Quota], ask: Ask) -> Result<LimitVerdict, Error> {
        if self.closed.load(Relaxed) {
            return Err(closed());
        }
        let verdict = self.store.take(key, quotas, ask, When::Now)?;
        if verdict.granted == 0 && !matches!(ask, Ask::Peek | Ask::Refund(_)) {
            self.store.note_denial("limit", key, When::Now);
        }
        Ok(verdict)
    }

    /// The same at another instant than the clock's, for those who play what happened at given instants.
    pub fn call_at(&self, command: &Command<'_>, at: Instant) -> Result<Reply, Error> {
        self.call_when(command, When::At(at))
    }

    /// Replies when there is a reply. A caller that drops this has left the queue.
    pub async fn wait(&self, command: &Command<'_>) -> Result<Reply, Error> {
        if command.waits().is_none() {
            return self.call(command);
        }
        self.admit(command)?;
        match command {
            Command::LockAcquire(call) => self.wait_for_lock(call).await,
            Command::BulkheadEnter(call) => self.wait_for_permit(call).await,
            Command::IdempBegin(call) => self.wait_for_run(call).await,
            Command::FlightJoin(call) => self.wait_for_value(call).await,
            Command::DlqTake(call) => self.wait_for_entries(call).await,
            Command::GuardEnter(call) => self.wait_for_admission(call).await,
            _ => self.call(command),
        }
    }

    /// Refuses what a server would refuse unseen.
    fn admit(&self, command: &Command<'_>) -> Result<(), Error> {
        if self.closed.load(Relaxed) {
            return Err(closed());
        }
        command.check(&Allowed::DEFAULT).map_err(refused)
    }

    fn call_when(&self, command: &Command<'_>, when: When) -> Result<Reply, Error> {
        self.admit(command)?;
        let reply = self.reply_to(command, when)?;
        if let Some((kind, key)) = overview::denied(command, &reply) {
            self.store.note_denial(kind, key, when);
        }
        Ok(reply)
    }

    fn reply_to(&self, command: &Command<'_>, when: When) -> Result<Reply, Error> {
        let store = &*self.store;
        match command {
            Command::Gcra(call) => store.gcra(call, when),
            Command::Mgcra(call) => store.mgcra(call, when),
            Command::Window(call) => store.window(call, when),
            Command::Throttle(call) => store.throttle(call, when),
            Command::BreakerAdmit(call) => store.admit(call, when),
            Command::BreakerReport(call) => store.report(call, when),
            Command::BreakerTally(call) => store.tally(call, when),
            Command::BreakerState(key) => store.breaker_state(key, when),
            Command::BreakerForce(call) => store.force(call, when),
            Command::BreakerReset(key) => store.reset(key, when),
            Command::BreakerConfig(call) => store.configure(call, when),
            Command::LockAcquire(call) => store.try_lock(call, when),
            Command::LockRenew(call) => store.renew_lock(call, when),
            Command::LockRelease(call) => store.release_holding::<LOCK>(call, when),
            Command::LockCheck(call) => store.check_lock(call, when),
            Command::LockBreak(call) => store.break_lock(call, when),
            Command::LockInfo(call) => store.show_holding::<LOCK>(call, when),
            Command::BulkheadEnter(call) => store.try_enter(call, when),
            Command::BulkheadRenew(call) => store.renew_holding::<BULKHEAD>(call, when),
            Command::BulkheadLeave(call) => store.release_holding::<BULKHEAD>(call, when),
            Command::BulkheadInfo(call) => store.show_holding::<BULKHEAD>(call, when),
            Command::IdempBegin(call) => store.try_to_run(call, when),
            Command::IdempCommit(call) => store.commit(call, when),
            Command::IdempAbort(call) => store.abort(call, when),
            Command::IdempRenew(call) => store.renew_run(call, when),
            Command::IdempOnce(call) => store.once(call, when),
            Command::IdempGet(call) => store.look_at_run(call, when),
            Command::IdempInfo(key) => store.show_record(key, when),
            Command::FlightJoin(call) => store.try_to_lead(call, when),
            Command::FlightGet(call) => store.look_at_value(call, when),
            Command::FlightMget(call) => store.look_at_values(call, when),
            Command::FlightPublish(call) => store.publish(call, when),
            Command::FlightAbandon(call) => store.abandon(call, when),
            Command::FlightRenew(call) => store.renew_lead(call, when),
            Command::FlightInvalidate(call) => store.invalidate(call, when),
            Command::FlightSet(call) => store.set_value(call, when),
            Command::FlightClear(call) => store.clear_name(call, when),
            Command::FlightInfo(key) => store.show_flight(key, when),
            Command::DlqFail(call) => store.fail(call, when),
            Command::DlqTake(call) => store.try_to_take(call, when),
            Command::DlqDone(call) => store.done(call, when),
            Command::DlqRenew(call) => store.renew_batch(call, when),
            Command::DlqReturn(call) => store.give_back(call, when),
            Command::DlqPark(call) => store.park(call, when),
            Command::DlqGet(call) => store.show_entry(call, when),
            Command::DlqList(call) => store.list_entries(call, when),
            Command::DlqInfo(call) => store.show_ledger(call, when),
            Command::DlqDiagnose(call) => store.diagnose(call, when),
            Command::DlqRedrive(call) => store.redrive(call, when),
            Command::DlqStop(call) => store.stop(call, when),
            Command::DlqClose(call) => store.close(call, when),
            Command::DlqHold(call) => store.hold(call, when),
            Command::DlqPurge(call) => store.purge(call, when),
            Command::DlqSeen(call) => store.see_alert(call, when),
            Command::DlqConfig(call) => store.configure_ledger(call, when),
            Command::PolicySet(call) => store.set_policy(call, when),
            Command::PolicyGet(call) => store.show_policy(call, when),
            Command::PolicyHistory(key) => store.show_history(key, when),
            Command::PolicyDelete(call) => store.delete_policy(call, when),
            Command::PolicyCheck(call) => Ok(guards::check_policy(call)),
            Command::GuardEnter(call) => store.try_to_enter(call, when),
            Command::GuardExit(call) => store.exit_guard(call, when),
            Command::GuardState(key) => store.show_guard(key, when),
            Command::List(call) => Ok(store.list(call, when)),
            Command::Top(call) => Ok(store.top(call, when)),
            Command::Heartbeat(_) => Ok(Reply::Heartbeat(Heartbeat { bound: 0, losses: Vec::new() })),
        }
    }

    /// `hear` is called when an owner that begins with `owners` loses what it holds, other than by letting go.
    pub fn hear_losses(&self, owners: &[u8], hear: Hear<Ending>) {
        self.store.losses.subscribe(owners, hear);
    }

    /// `hear` is called when the breaker at `key` changes its state, by any caller.
    pub fn hear_changes(&self, key: &[u8], hear: Hear<BreakerTransition>) {
        self.store.changes.subscribe(key, hear);
    }

    /// `hear` is called when the policy at `key`, or any if that is empty, is set or deleted, by any caller.
    pub fn hear_policy(&self, key: &[u8], hear: Hear<PolicyMessage>) {
        self.store.policies.subscribe(key, hear);
    }

    /// `hear` is called for every transition of a breaker and every change of a policy.
    pub fn hear_everything(&self, hear: Hear<MemoryEvent>) {
        self.store.events.subscribe(EVERYTHING, hear);
    }

    /// `hear` gets what is out of date of a cache name, by any caller; `name` is its key.
    pub fn hear_invalidations(&self, name: &[u8], hear: Hear<Invalidated>) {
        self.store.names.invalidations.subscribe(name, hear);
    }

    /// The breaker at `key` is adaptive for as long as the result is kept.
    pub fn adapt_breaker(&self, key: &[u8]) -> Arc<Mutex<Baseline>> {
        self.store.baselines.keep(key)
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// This handle replies to nothing any more; calls that wait through it fail. Other handles of the same name go on.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        self.reach.send_replace(Reach::Away);
        self.store.keeper.nudge.notify_waiters();
    }

    /// How many keys there are, those included that nobody needs any more but which are still there.
    pub fn keys(&self) -> usize {
        self.store.len()
    }

    /// How many tasks serve waiters.
    #[cfg(test)]
    pub fn tasks(&self) -> usize {
        self.store.keeper.tasks()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

fn closed() -> Error {
    Error::BackendUnavailable("the client is closed")
}

/// What core or the parser says no to.
fn refused(error: impl Display) -> Error {
    let sentence = error.to_string();
    let (code, text) = sentence.split_once(' ').unwrap_or((&sentence, ""));
    Error::refused_by_code(code, text)
}
