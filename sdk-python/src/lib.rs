//! The native part of the Python package `resil`: it converts, calls the Rust SDK, and converts. Registration only.

mod answer;
mod around;
mod attempts;
mod block;
mod breaker;
mod bulkhead;
mod cached;
mod client;
mod codec;
mod convert;
mod dispatcher;
mod drive;
mod entered;
mod errors;
mod event_loop;
mod fallback;
mod hedge;
mod held;
mod held_here;
mod http;
mod http_answers;
mod idempotent;
mod item;
mod items;
mod iteration;
mod judge;
mod key_of;
mod kind;
mod leased;
mod limiter;
mod listeners;
mod loading;
mod lock;
mod lost;
mod outcome;
mod pending;
mod policies;
mod policy;
mod remembered;
mod retry;
mod runtime;
mod settings;
mod shared_bulkhead;
mod slot;
mod stage;
mod task;
mod testing;
mod timeout;
mod trace;
mod verdict;
mod versioned;
mod work;

/// Imported by `python/resil/__init__.py`, which is the public face.
#[pyo3::pymodule(name = "_native")]
mod native {
    /// Of the package, and of the crate it is made of.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::answer::Answer;
    #[pymodule_export]
    use crate::around::Around;
    #[pymodule_export]
    use crate::attempts::{PyAttempt, PyAttempts};
    #[pymodule_export]
    use crate::block::Block;
    #[pymodule_export]
    use crate::breaker::{PyBreaker, PyPermit};
    #[pymodule_export]
    use crate::bulkhead::{PyBulkhead, PyBulkheadPlace};
    #[pymodule_export]
    use crate::cached::PyCached;
    #[pymodule_export]
    use crate::client::{PyClient, connect};
    #[pymodule_export]
    use crate::dispatcher::PyDispatcher;
    #[pymodule_export]
    use crate::fallback::PyFallback;
    #[pymodule_export]
    use crate::hedge::PyHedge;
    #[pymodule_export]
    use crate::held::PyHeld;
    #[pymodule_export]
    use crate::http::{idempotency_key, problem, rate_limit_headers, request_fingerprint};
    #[pymodule_export]
    use crate::http_answers::{body_too_large, is_final, limited_answer, record_answer, replayed_answer};
    #[pymodule_export]
    use crate::idempotent::{PyIdempotent, PyKeyedIdempotent};
    #[pymodule_export]
    use crate::item::PyItemResult;
    #[pymodule_export]
    use crate::items::PyItemResults;
    #[pymodule_export]
    use crate::limiter::{PyKeyed, PyLimiter};
    #[pymodule_export]
    use crate::listeners::{close_transitions, next_transition};
    #[pymodule_export]
    use crate::loading::{PyKeyedCached, PyLoaded};
    #[pymodule_export]
    use crate::lock::{PyLock, PyLockGuard};
    #[pymodule_export]
    use crate::lost::Lost;
    #[pymodule_export]
    use crate::outcome::{PyOutcome, PyRun};
    #[pymodule_export]
    use crate::policies::PyPolicies;
    #[pymodule_export]
    use crate::policy::PyPolicy;
    #[pymodule_export]
    use crate::retry::PyRetry;
    #[pymodule_export]
    use crate::runtime::after_fork;
    #[pymodule_export]
    use crate::shared_bulkhead::{PyBulkheadGuard, PySharedBulkhead};
    #[pymodule_export]
    use crate::testing::{PyClock, is_testing, raw, raw_at, set_testing};
    #[pymodule_export]
    use crate::timeout::PyTimeout;
    #[pymodule_export]
    use crate::verdict::{PyVerdict, PyVerdicts};
    #[pymodule_export]
    use crate::versioned::PyVersionedCached;
}
