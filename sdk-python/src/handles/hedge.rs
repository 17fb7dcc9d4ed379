//! A second call while the first takes long; the first result counts.

use resil::policy::{Hedge, HedgeSettings};

use crate::prelude::*;
use crate::retry::PyBudget;

struct Hedged {
    hedge: Hedge,
    judge: Arc<Judge>,
}

impl Runs for Hedged {
    fn run(&self, _py: Python<'_>, work: Arc<Work>) -> PyResult<Running> {
        let (hedge, judge) = (self.hedge.clone(), Arc::clone(&self.judge));
        Ok(work.running(|work| async move { hedge.around(judge.of(&work), || work.attempt()).await }))
    }

    fn needs(&self) -> Needs {
        Needs::Several
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.judge.traverse(visit)
    }
}

/// Makes the call a second time if the first takes long, and takes the result that comes first. Only for calls that may be
/// made twice. `on` says which errors of one call leave the others a chance.
///
/// >>> import asyncio, resil
/// >>> delays = iter([60, 0])
/// >>> @resil.Hedge(hedging_delay=0.01, on=ConnectionError)
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
    #[pyo3(signature = (*, on, name=None, clock=None, **settings))]
    fn new(
        on: Arg<'_>,
        name: OptArg<'_>,
        clock: OptArg<'_>,
        settings: Option<Kwargs<'_>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let budget = PyBudget::take(settings)?;
        let (judge, settings): (_, HedgeSettings) =
            (Judge::read(Some(on), None, None)?, read_beside(&["on", "name", "clock"], settings)?);
        let hedge = spelled(Hedge::new(&settings))?;
        let hedge = budget.into_iter().fold(hedge, Hedge::with_budget);
        let hedge = optional_text("name", name)?.iter().fold(hedge, |hedge, name| hedge.named(name));
        let hedge = PyClock::read(clock)?.into_iter().fold(hedge, Hedge::with_clock);
        Ok(Around::local(
            "a hedged call",
            format!("delay={}", hedge.delay().as_secs_f64()),
            Hedged { hedge: hedge.clone(), judge },
        )
        .alone(Self(hedge)))
    }

    /// How long a call may take before another call is made, in seconds.
    #[getter]
    fn delay(&self) -> f64 {
        self.0.delay().as_secs_f64()
    }
}
