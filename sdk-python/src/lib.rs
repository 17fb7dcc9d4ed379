//! The native part of the Python package `resil`: it converts, calls the Rust SDK, and converts. Registration only.

mod around;
mod block;
mod breaker;
mod bulkhead;
mod cached;
mod client;
mod codec;
mod convert;
mod dispatcher;
mod drive;
mod edge;
mod entered;
mod errors;
mod event_loop;
mod fallback;
mod hedge;
mod http;
mod idempotent;
mod items;
mod judge;
mod kind;
mod leased;
mod limiter;
mod listeners;
mod loading;
mod lock;
mod lost;
mod outcome;
mod pending;
mod policy;
mod prelude;
mod remembered;
mod retry;
mod runtime;
mod shared_bulkhead;
mod task;
mod testing;
mod timeout;
mod trace;
mod verdict;
mod work;

/// Something of a Python module, imported when it is first needed.
#[macro_export]
macro_rules! imported {
    ($py:expr, $module:literal, $name:literal) => {{
        static FOUND: pyo3::sync::PyOnceLock<pyo3::Py<pyo3::PyAny>> = pyo3::sync::PyOnceLock::new();
        FOUND.import($py, $module, $name)
    }};
}

/// Imported by `python/resil/__init__.py`, which is the public face.
#[pyo3::pymodule(name = "_native")]
mod native {
    /// Of the package, and of the crate it is made of.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::{
        around::Around,
        block::Block,
        breaker::{PyBreaker, PyPermit},
        bulkhead::{PyBulkhead, PyBulkheadPermit},
        cached::{PyCached, PyVersionedCached},
        client::{PyClient, connect},
        dispatcher::{PyDispatcher, PyItemResult},
        fallback::PyFallback,
        hedge::PyHedge,
        http::{
            body_too_large, idempotency_key, is_final, limited_response, problem, rate_limit_headers, record_response,
            replayed_response, request_fingerprint,
        },
        idempotent::{PyIdempotent, PyKeyedIdempotent},
        items::PyItemResults,
        leased::PyHeld,
        limiter::{PyKeyedLimiter, PyLimiter},
        listeners::{close_transitions, next_transition},
        loading::{PyKeyedCached, PyLoaded},
        lock::{PyLock, PyLockGuard},
        lost::Lost,
        outcome::{PyOutcome, PyRun},
        pending::Pending,
        policy::{PyPolicies, PyPolicy},
        retry::{PyAttempt, PyAttempts, PyRetry},
        runtime::{after_fork_in_child, after_fork_in_parent, before_fork},
        shared_bulkhead::{PyBulkheadGuard, PySharedBulkhead},
        testing::{PyClock, is_testing, raw, raw_at, set_testing},
        timeout::PyTimeout,
        verdict::{PyVerdict, PyVerdicts},
    };
}
