//! The native part of the Python package `resil`: it converts, calls the Rust SDK, and converts. Registration only: `handles/` has
//! one file for each thing of the SDK.

mod around;
mod block;
mod client;
mod codec;
mod convert;
mod drive;
mod edge;
mod entered;
mod errors;
mod event_loop;
mod handles;
mod http;
mod judge;
mod kind;
mod leased;
mod listeners;
mod lost;
mod pending;
mod prelude;
mod remembered;
mod runtime;
mod task;
mod telemetry;
mod testing;
mod trace;
mod work;

use handles::*;

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
        client::{PyClient, connect},
        http::{
            body_too_large, idempotency_key, is_final, limited_response, problem, rate_limit_headers, record_response,
            replayed_response, request_fingerprint,
        },
        leased::PyHeld,
        listeners::{close_transitions, next_transition},
        lost::Lost,
        pending::Pending,
        runtime::{after_fork_in_child, after_fork_in_parent, before_fork},
        telemetry::{EventSubscription, metric_buckets, metric_names, read_metrics, subscribe_events},
        testing::{PyClock, is_testing, raw, raw_at, set_testing},
    };

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::telemetry::begin_counting();
        crate::handles::add(module)
    }
}
