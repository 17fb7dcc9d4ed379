//! One file for each handle. Generated from commands/handles.json by `cargo run -p resil-harness --bin generate`. Do not edit.

pub mod breaker;
pub mod bulkhead;
pub mod cache_entry;
pub mod cached;
pub mod dead_letters;
pub mod dispatcher;
pub mod fallback;
pub mod hedge;
pub mod idempotent;
pub mod items;
pub mod limiter;
pub mod loading;
pub mod lock;
pub mod locks;
pub mod outcome;
pub mod policies;
pub mod policy;
pub mod publisher;
pub mod retry;
pub mod shared_bulkhead;
pub mod taken_letters;
pub mod timeout;
pub mod verdict;
pub mod worker;

use pyo3::prelude::*;

/// Adds every class to the native module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<breaker::PyBreaker>()?;
    module.add_class::<breaker::PyPermit>()?;
    module.add_class::<bulkhead::PyBulkhead>()?;
    module.add_class::<bulkhead::PyBulkheadPermit>()?;
    module.add_class::<cache_entry::PyCacheEntry>()?;
    module.add_class::<cached::PyCached>()?;
    module.add_class::<cached::PyVersionedCached>()?;
    module.add_class::<dead_letters::PyDeadLetters>()?;
    module.add_class::<dead_letters::PyRedriveRun>()?;
    module.add_class::<dispatcher::PyDispatcher>()?;
    module.add_class::<dispatcher::PyItemResult>()?;
    module.add_class::<fallback::PyFallback>()?;
    module.add_class::<hedge::PyHedge>()?;
    module.add_class::<idempotent::PyIdempotent>()?;
    module.add_class::<idempotent::PyKeyedIdempotent>()?;
    module.add_class::<items::PyItemResults>()?;
    module.add_class::<limiter::PyKeyedLimiter>()?;
    module.add_class::<limiter::PyLimiter>()?;
    module.add_class::<loading::PyKeyedCached>()?;
    module.add_class::<loading::PyLoaded>()?;
    module.add_class::<lock::PyLock>()?;
    module.add_class::<lock::PyLockGuard>()?;
    module.add_class::<locks::PyLocks>()?;
    module.add_class::<locks::PyLocksGuard>()?;
    module.add_class::<outcome::PyOutcome>()?;
    module.add_class::<outcome::PyRun>()?;
    module.add_class::<policies::PyPolicyWatch>()?;
    module.add_class::<policies::PyStoredPolicies>()?;
    module.add_class::<policies::PyWatchedPolicies>()?;
    module.add_class::<policy::PyPolicies>()?;
    module.add_class::<policy::PyPolicy>()?;
    module.add_class::<publisher::PyOutbox>()?;
    module.add_class::<publisher::PyProcessedEvents>()?;
    module.add_class::<publisher::PyPublisher>()?;
    module.add_class::<retry::PyAttempt>()?;
    module.add_class::<retry::PyAttempts>()?;
    module.add_class::<retry::PyBudget>()?;
    module.add_class::<retry::PyRetry>()?;
    module.add_class::<shared_bulkhead::PyBulkheadGuard>()?;
    module.add_class::<shared_bulkhead::PySharedBulkhead>()?;
    module.add_class::<taken_letters::PyLetterStream>()?;
    module.add_class::<taken_letters::PyTakenLetter>()?;
    module.add_class::<taken_letters::PyTakenMessage>()?;
    module.add_class::<timeout::PyTimeout>()?;
    module.add_class::<verdict::PyVerdict>()?;
    module.add_class::<verdict::PyVerdicts>()?;
    module.add_class::<worker::PyWorker>()?;
    module.add_class::<worker::PyWorkerMessage>()?;
    Ok(())
}
