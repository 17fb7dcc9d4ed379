//! What came of asking limits.

use resil::limiter::{Verdict, Verdicts};

use crate::prelude::*;

/// What came of asking a limit.
#[pyclass(module = "resil", name = "Verdict", frozen, eq)]
#[derive(Clone, PartialEq)]
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

    /// The time in which what can be had at once fills again, in seconds.
    #[getter]
    fn window(&self) -> f64 {
        self.0.window().as_secs_f64()
    }

    /// Each tier of the limit, in the order in which they were named.
    #[getter]
    fn tiers(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.0.each_tier())
    }

    /// Which of the tiers binds, counted from 0: of a refusal the one that has to be waited for longest, of a grant the one with the
    /// least left.
    #[getter]
    fn binding(&self) -> usize {
        self.0.binding
    }

    /// What can be had at once when it is full: the burst, or else the limit.
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

    /// Who decided: "server", "deny-cache", "local" or "away-open".
    #[getter]
    fn decided_by(&self, py: Python<'_>) -> PyResult<Object> {
        shown(py, &self.0.decided_by)
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
#[pyclass(module = "resil", name = "Verdicts", frozen, get_all)]
pub struct PyVerdicts {
    /// Whether all granted.
    is_granted: bool,
    /// Cells taken from each; 0: from none.
    granted: u32,
    /// Which of them refused first, counted from 0.
    refused_by: Option<usize>,
    /// The one that speaks for all.
    binding: PyVerdict,
    /// Each, in the order in which they were asked. Empty if the server was not asked.
    each: Vec<PyVerdict>,
}

impl From<Verdicts> for PyVerdicts {
    fn from(verdicts: Verdicts) -> Self {
        let is_granted = verdicts.is_granted();
        let Verdicts { granted, refused_by, binding, each, .. } = verdicts;
        let each = each.into_iter().map(PyVerdict).collect();
        Self { is_granted, granted, refused_by, binding: PyVerdict(binding), each }
    }
}

#[pymethods]
impl PyVerdicts {
    /// Whether all granted.
    fn __bool__(&self) -> bool {
        self.is_granted
    }
}
