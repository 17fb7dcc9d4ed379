//! The native part of the Python package `resil`: it converts, calls the Rust SDK, and converts. Registration only.

mod answer;
mod around;
mod breaker;
mod client;
mod convert;
mod entered;
mod errors;
mod event_loop;
mod judge;
mod limiter;
mod retry;
mod runtime;
mod settings;
mod task;
mod testing;
mod work;

/// Imported by `python/resil/__init__.py`, which is the public face.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::answer::Answer;
    #[pymodule_export]
    use crate::around::Around;
    #[pymodule_export]
    use crate::breaker::{PyBreaker, PyPermit};
    #[pymodule_export]
    use crate::client::{PyClient, connect};
    #[pymodule_export]
    use crate::limiter::{PyKeyed, PyLimiter, PyVerdict};
    #[pymodule_export]
    use crate::retry::PyRetry;
    #[pymodule_export]
    use crate::runtime::after_fork;
    #[pymodule_export]
    use crate::testing::{PyClock, is_testing, raw, raw_at, set_testing};
}
