//! What is held for a time (a lock, a permit of a shared bulkhead): its guard, its blocks, and what those who work under it see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resil::lock::Held;

use crate::entered::{Inside, Mark};
use crate::prelude::*;

/// Whether a guard is still held by this process; shared by all who ask.
#[derive(Clone)]
pub struct Presence {
    is_gone: Arc<AtomicBool>,
    /// Since when it is held.
    generation: Generation,
}

impl Presence {
    /// Also in a child of a fork, which holds nothing of its parent's.
    pub fn is_gone(&self) -> bool {
        !self.generation.is_here() || self.is_gone.load(Ordering::Acquire)
    }
}

/// A guard of the SDK's as two share it, the Python object and the block.
pub struct GuardCell<G> {
    guard: OfProcess<Mutex<Option<Arc<G>>>>,
    presence: Presence,
}

impl<G> GuardCell<G> {
    pub fn new(guard: G) -> Arc<Self> {
        let presence = Presence { is_gone: Arc::default(), generation: Generation::now() };
        Arc::new(Self { guard: OfProcess::new(Mutex::new(Some(Arc::new(guard)))), presence })
    }

    /// For a question about it; it stays here.
    pub fn get(&self, gone: &'static str) -> PyResult<Arc<G>> {
        self.presence.generation.check()?;
        self.guard.lock().clone().ok_or_else(|| PyRuntimeError::new_err(gone))
    }

    /// For good, unless a question about it is on its way.
    pub fn take(&self, gone: &'static str) -> PyResult<G> {
        self.presence.generation.check()?;
        let mut guard = self.guard.lock();
        match guard.take().map(Arc::try_unwrap) {
            Some(Ok(taken)) => {
                self.presence.is_gone.store(true, Ordering::Release);
                return Ok(taken);
            }
            Some(Err(shared)) => *guard = Some(shared),
            None => {}
        }
        Err(PyRuntimeError::new_err(gone))
    }

    /// For good. If a question about it is on its way, it is let go in the background after that.
    fn give_up(&self) -> Option<G> {
        self.presence.is_gone.store(true, Ordering::Release);
        self.guard.lock().take().and_then(Arc::into_inner)
    }
}

impl<G> Drop for GuardCell<G> {
    fn drop(&mut self) {
        self.presence.is_gone.store(true, Ordering::Release);
    }
}

/// Something that is held for a time, and on which terms.
pub trait Leased: Clone + Send + Sync + 'static {
    type Guard: Send + Sync + 'static;

    /// Whether the task or thread inside of a block may come in again.
    const IS_REENTRANT: bool;

    fn ask(self) -> impl Future<Output = Result<Self::Guard, Error>> + Send;

    /// How long it was held; None if it is held still.
    fn let_go(guard: Self::Guard) -> impl Future<Output = Result<Option<Duration>, Error>> + Send;

    fn held(guard: &Self::Guard) -> Held;

    /// The guard as a Python object.
    fn shown(py: Python<'_>, cell: &Arc<GuardCell<Self::Guard>>, held: Held) -> PyResult<Object>;
}

/// Asks by hand: a guard to let go of.
pub fn ask<L: Leased>(
    what: &'static str,
    asking: impl Future<Output = Result<L::Guard, Error>> + Send + 'static,
) -> Pending {
    Pending::new(what, async move {
        let guard = raised_later(asking.await)?;
        let held = L::held(&guard);
        Python::attach(|py| L::shown(py, &GuardCell::new(guard), held))
    })
}

/// Lets go by hand.
pub fn let_go<L: Leased>(what: &'static str, cell: &GuardCell<L::Guard>, gone: &'static str) -> PyResult<Pending> {
    let guard = cell.take(gone)?;
    Ok(Pending::ask(what, async move { Ok(L::let_go(guard).await?.map(|held| held.as_secs_f64())) }))
}

/// What a block holds.
struct Hold<G> {
    cell: Arc<GuardCell<G>>,
    watch: Option<Watch>,
    _mark: Option<Mark>,
}

/// Blocks around it.
pub struct Leases<L: Leased> {
    leased: L,
    keeps_running: bool,
    entered: Arc<Entered<Hold<L::Guard>>>,
}

impl<L: Leased> Leases<L> {
    /// With `keeps_running`, a task that loses it is not cancelled.
    pub fn new(leased: L, keeps_running: bool) -> Self {
        Self { leased, keeps_running, entered: Arc::default() }
    }
}

impl<L: Leased> Enters for Leases<L> {
    fn enter(&self, py: Python<'_>, entrant: Entrant) -> PyResult<Running> {
        let (who, leased, entered) = (Who::is_here(py)?, self.leased.clone(), Arc::clone(&self.entered));
        let watches = entrant == Entrant::Task && !self.keeps_running;
        Ok(Box::pin(async move {
            let guard = raised_later(leased.ask().await)?;
            let held = L::held(&guard);
            let cell = GuardCell::new(guard);
            Python::attach(|py| {
                let watch = watches.then(|| Watch::until(py, held.lost().cancelled_owned())).transpose()?;
                let mark = || Mark::new(py, Inside::Lock(held.clone(), cell.presence.clone()));
                let _mark = L::IS_REENTRANT.then(mark).transpose()?;
                let shown = L::shown(py, &cell, held)?;
                entered.push(who, Hold { cell, watch, _mark });
                Ok(shown)
            })
        }))
    }

    fn leave(&self, py: Python<'_>, error: Arg<'_>) -> PyResult<Option<Running>> {
        let hold = self.entered.pop_any(Who::is_here(py)?)?;
        let Hold { cell, watch, .. } = hold;
        let is_ours = watch.map_or(Ok(false), |watch| watch.end(py, error))?;
        // A block that was not cancelled learns it at the end; its own error comes first.
        let tells = is_ours || (error.is_none() && !self.keeps_running);
        let Some(guard) = cell.give_up() else { return Ok(None) };
        // Of one that was entered again the inner block may be the first to learn it, and has nothing to release.
        let lost = L::held(&guard).ensure().err().filter(|_| is_ours);
        Ok(Some(Box::pin(async move {
            match (L::let_go(guard).await, lost) {
                (Err(lost @ Error::LockLost { .. }), _) if tells => raised_later(Err(lost)),
                (_, Some(lost)) => raised_later(Err(lost)),
                // A release without a reply goes on in the background.
                _ => none(),
            }
        })))
    }
}

/// Something that is held for a time. Forgotten, it is let go in the background.
#[pyclass(module = "resil", name = "Held", subclass, frozen)]
pub struct PyHeld {
    presence: Presence,
    held: OfProcess<Held>,
}

impl PyHeld {
    pub fn new<G>(cell: &GuardCell<G>, held: Held) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Self { presence: cell.presence.clone(), held: OfProcess::new(held) })
    }
}

#[pymethods]
impl PyHeld {
    /// Whether this process may believe that it holds it.
    #[getter]
    fn is_held(&self) -> bool {
        !self.presence.is_gone() && self.held.is_held()
    }

    /// What it is called.
    #[getter]
    fn name(&self) -> &str {
        self.held.name()
    }

    /// Its owner, as the server knows it: for `lock.check(owner)`, and for tools that look into it.
    #[getter]
    fn owner(&self) -> String {
        self.held.owner()
    }

    /// Raises LockLostError if it is not held any more: to be asked before each step that must not be done without it.
    fn ensure(&self, py: Python<'_>) -> PyResult<()> {
        self.presence.generation.check()?;
        if self.presence.is_gone() {
            return Err(PyRuntimeError::new_err("it was let go before"));
        }
        raised(py, self.held.ensure())
    }

    /// Whether it was granted while the server was away, as `when_away="open"` says: nothing protects it, and there is no fence.
    #[getter]
    fn is_unprotected(&self) -> bool {
        self.held.is_unprotected()
    }

    /// Seconds until it has to be heard of again.
    #[getter]
    fn remaining(&self) -> f64 {
        if self.presence.generation.is_here() { self.held.remaining().as_secs_f64() } else { 0.0 }
    }

    /// Set when it is lost.
    #[getter]
    fn lost(&self) -> Lost {
        Lost::of_held(self.held.clone_value(), self.presence.generation)
    }
}
