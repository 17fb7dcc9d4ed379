//! What came of asking limits.

use pyo3::prelude::*;
use resil::limiter::{DecidedBy, Verdict, Verdicts};

use crate::settings::shown;

/// What came of asking a limit.
#[pyclass(module = "resil", name = "Verdict", frozen, eq)]
#[derive(PartialEq)]
pub struct PyVerdict(pub Verdict);

#[pymethods]
impl PyVerdict {
    /// Whether anything was granted.
    #[getter]
    fn is_granted(&self) -> bool {
        self.0.is_granted()
    }

    /// Cells that were taken (by a refund: given back; by a peek: there to be taken).
    #[getter]
    fn granted(&self) -> u32 {
        self.0.granted
    }

    /// The rate: so many per `period`. Of several tiers, this and all the following is about the one that binds.
    #[getter]
    fn limit(&self) -> u32 {
        self.0.limit
    }

    /// In seconds.
    #[getter]
    fn period(&self) -> f64 {
        self.0.period.as_secs_f64()
    }

    /// Each tier of the limit, in the order in which they were named.
    #[getter]
    fn tiers(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        shown(py, &self.0.each_tier())
    }

    /// Which of the tiers binds, counted from 0: of a refusal the one that has to be waited for longest, of a grant the one with the
    /// least left.
    #[getter]
    fn binding(&self) -> usize {
        self.0.binding
    }

    /// What can be had at once when it is full: the burst, which is the limit if none was said.
    #[getter]
    fn capacity(&self) -> u32 {
        self.0.capacity
    }

    /// What is left there.
    #[getter]
    fn remaining(&self) -> u32 {
        self.0.remaining
    }

    /// Seconds until what was refused can be had; 0 if nothing was refused, None if it never can.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after.map(|wait| wait.as_secs_f64())
    }

    /// Seconds until it is full again.
    #[getter]
    fn reset_after(&self) -> f64 {
        self.0.reset_after.as_secs_f64()
    }

    /// Who said so: "server", "deny-cache", "local" or "away-open".
    #[getter]
    fn decided_by(&self) -> &'static str {
        match self.0.decided_by {
            DecidedBy::Server => "server",
            DecidedBy::DenyCache => "deny-cache",
            DecidedBy::Local => "local",
            DecidedBy::AwayOpen => "away-open",
        }
    }

    /// Whether anything was granted.
    fn __bool__(&self) -> bool {
        self.0.is_granted()
    }

    fn __repr__(&self) -> String {
        let Verdict { granted, capacity, remaining, .. } = self.0;
        format!("<resil.Verdict granted={granted} of {capacity}, remaining={remaining}>")
    }
}

/// What came of asking several limits at once.
#[pyclass(module = "resil", name = "Verdicts", frozen)]
pub struct PyVerdicts(pub Verdicts);

#[pymethods]
impl PyVerdicts {
    /// Whether all granted.
    #[getter]
    fn is_granted(&self) -> bool {
        self.0.is_granted()
    }

    /// Cells taken from each; 0: from none.
    #[getter]
    fn granted(&self) -> u32 {
        self.0.granted
    }

    /// Which of them refused first, counted from 0.
    #[getter]
    fn refused_by(&self) -> Option<usize> {
        self.0.refused_by
    }

    /// The one that speaks for all.
    #[getter]
    fn binding(&self) -> PyVerdict {
        PyVerdict(self.0.binding.clone())
    }

    /// Each, in the order in which they were asked. Empty if the server was not asked.
    #[getter]
    fn each(&self) -> Vec<PyVerdict> {
        self.0.each.iter().cloned().map(PyVerdict).collect()
    }

    /// Whether all granted.
    fn __bool__(&self) -> bool {
        self.0.is_granted()
    }
}
