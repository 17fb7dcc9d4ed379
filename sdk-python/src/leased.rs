//! Blocks around something that is held for a time: a lock, a place in a shared bulkhead.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use resil::lock::{Held, Info};

use crate::answer::Answer;
use crate::block::{Enters, Entrant};
use crate::drive::Running;
use crate::entered::{Entered, Who};
use crate::errors::{exception, raised_later};
use crate::held_here::Mark;
use crate::lost::Watch;
use crate::runtime::Generation;
use crate::settings::shown;
use crate::slot::{IsGone, Slot};

/// Something that is held for a time, and on which terms.
pub trait Leased: Clone + Send + Sync + 'static {
    type Guard: Send + 'static;

    fn ask(self) -> impl Future<Output = Result<Self::Guard, resil::Error>> + Send;

    /// How long it was held; None if it is held still.
    fn let_go(guard: Self::Guard) -> impl Future<Output = Result<Option<Duration>, resil::Error>> + Send;

    fn held(guard: &Self::Guard) -> Held;

    /// Who holds it and who waits.
    fn info(self) -> impl Future<Output = Result<Info, resil::Error>> + Send;

    /// The guard as a Python object.
    fn shown(py: Python<'_>, slot: &Arc<Slot<Self::Guard>>, held: Held) -> PyResult<Py<PyAny>>;

    /// Marks the block, if whoever is inside may come in again.
    fn mark(_py: Python<'_>, _slot: &Arc<Slot<Self::Guard>>, _held: Held) -> PyResult<Option<Mark>> {
        Ok(None)
    }
}

/// What a block holds.
struct Hold<G> {
    slot: Arc<Slot<G>>,
    watch: Option<Watch>,
    _mark: Option<Mark>,
}

pub struct Leases<L: Leased> {
    pub leased: L,
    pub generation: Generation,
    keeps_running: bool,
    entered: Arc<Entered<Hold<L::Guard>>>,
}

impl<L: Leased> Leases<L> {
    pub fn new(leased: L, generation: Generation, keeps_running: bool) -> Arc<Self> {
        Arc::new(Self { leased, generation, keeps_running, entered: Arc::default() })
    }

    pub fn info(&self, what: &'static str) -> PyResult<Answer> {
        self.generation.check()?;
        let asking = self.leased.clone().info();
        Ok(Answer::new(what, async move {
            let info = raised_later(asking.await)?;
            Python::attach(|py| shown(py, &info))
        }))
    }

    /// Asks by hand: a guard to let go of.
    pub fn ask<F>(&self, what: &'static str, asking: impl FnOnce(L) -> F) -> PyResult<Answer>
    where
        F: Future<Output = Result<L::Guard, resil::Error>> + Send + 'static,
    {
        self.generation.check()?;
        let asking = asking(self.leased.clone());
        Ok(Answer::new(what, async move {
            let guard = raised_later(asking.await)?;
            let held = L::held(&guard);
            Python::attach(|py| L::shown(py, &Slot::new(guard), held))
        }))
    }
}

/// Lets go by hand.
pub fn let_go<L: Leased>(what: &'static str, slot: &Slot<L::Guard>, gone: &'static str) -> PyResult<Answer> {
    slot.generation().check()?;
    let guard = slot.take().ok_or_else(|| PyRuntimeError::new_err(gone))?;
    Ok(Answer::new(what, async move {
        let held = raised_later(L::let_go(guard).await)?.map(|held| held.as_secs_f64());
        Python::attach(|py| Ok(held.into_pyobject(py)?.into_any().unbind()))
    }))
}

impl<L: Leased> Enters for Arc<Leases<L>> {
    fn enter(&self, py: Python<'_>, entrant: Entrant) -> PyResult<Running> {
        self.generation.check()?;
        let (who, leased, entered) = (Who::is_here(py)?, self.leased.clone(), Arc::clone(&self.entered));
        let watches = entrant == Entrant::Task && !self.keeps_running;
        Ok(Box::pin(async move {
            let guard = raised_later(leased.ask().await)?;
            let held = L::held(&guard);
            let slot = Slot::new(guard);
            Python::attach(|py| {
                let watch = watches.then(|| Watch::begin(py, held.lost())).transpose()?;
                let _mark = L::mark(py, &slot, held.clone())?;
                let shown = L::shown(py, &slot, held)?;
                entered.push(who, Hold { slot, watch, _mark });
                Ok(shown)
            })
        }))
    }

    fn leave(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Option<Running>> {
        let hold = self.entered.pop(Who::is_here(py)?)?;
        if let Err(forked) = hold.slot.generation().check() {
            // A block that was entered before a fork: the parent holds it, and lets go of it.
            std::mem::forget(hold);
            return if error.is_none() { Err(forked) } else { Ok(None) };
        }
        let Hold { slot, watch, .. } = hold;
        let is_ours = watch.map_or(Ok(false), |watch| watch.end(py, error))?;
        // Whoever was not cancelled is told at the end; an error of the block itself comes first.
        let tells = is_ours || (error.is_none() && !self.keeps_running);
        let Some(guard) = slot.give_up() else { return Ok(None) };
        Ok(Some(Box::pin(async move {
            match L::let_go(guard).await {
                Err(lost @ resil::Error::LockLost { .. }) if tells => Err(Python::attach(|py| exception(py, &lost))),
                // What is not answered goes on in the background.
                _ => Python::attach(|py| Ok(py.None())),
            }
        })))
    }
}
