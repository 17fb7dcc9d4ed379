//! A second call while the first takes long; the first answer counts.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use resil::policy::{Hedge, HedgeSettings};

use crate::around::{Around, Needs, Runs};
use crate::convert::optional_text;
use crate::drive::Running;
use crate::judge::Judge;
use crate::settings::{read, spelled};
use crate::testing::PyClock;
use crate::work::Work;

struct Hedged {
    hedge: Hedge,
    judge: Arc<Judge>,
}

impl Runs for Hedged {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (hedge, judge) = (self.hedge.clone(), Arc::clone(&self.judge));
        Ok(Arc::clone(&work).running(async move {
            let classify = |error: &PyErr| judge.classify(&work, error);
            hedge.around(classify, || work.attempt()).await
        }))
    }

    fn needs(&self) -> Needs {
        Needs::Several
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }
}

/// Makes the call a second time if the first takes long, and takes the answer that comes first. Only for calls that may be
/// made twice. `on` says which errors of one call leave the others a chance.
///
/// >>> import asyncio, resil
/// >>> delays = iter([60, 0])
/// >>> @resil.Hedge(hedging_delay=0.01)
/// ... async def fetch():
/// ...     await asyncio.sleep(next(delays))
/// ...     return "quick"
/// >>> asyncio.run(fetch())
/// 'quick'
#[pyclass(module = "resil", name = "Hedge", extends = Around, frozen)]
pub struct PyHedge(Hedge);

#[pymethods]
impl PyHedge {
    #[new]
    #[pyo3(signature = (*, on=None, name=None, clock=None, **settings))]
    fn new(
        on: Option<&Bound<'_, PyAny>>,
        name: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let judge = Judge::read(on, None)?;
        let settings: HedgeSettings = read(settings)?;
        let hedge = spelled(Hedge::new(&settings))?;
        let hedge = optional_text("name", name)?.iter().fold(hedge, |hedge, name| hedge.named(name));
        let hedge = PyClock::read(clock)?.into_iter().fold(hedge, Hedge::with_clock);
        let hedged = Hedged { hedge: hedge.clone(), judge };
        Ok(PyClassInitializer::from(Around::new("a hedged call", hedged)).add_subclass(Self(hedge)))
    }

    /// How long an answer may take before another call is made, in seconds.
    #[getter]
    fn delay(&self) -> f64 {
        self.0.delay().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<resil.Hedge delay={}>", self.0.delay().as_secs_f64())
    }
}
