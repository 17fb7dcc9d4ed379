//! What can also be put around a block: `with policy:` and `async with policy:`.
//!
//! A block around something that a client shares is a call in flight: a shutdown waits for it, and lets in what it asks for meanwhile.

use resil::{CallInFlight, Client};

use crate::entered::{Inside, Mark};
use crate::prelude::*;

/// The task or thread that enters: a coroutine can be cancelled there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrant {
    Thread,
    Task,
}

/// A policy, as its blocks see it.
pub trait Enters: Send + Sync + 'static {
    /// Gives what `as` names.
    fn enter(&self, py: Python<'_>, entrant: Entrant) -> PyResult<Running>;

    /// `error` is what the block raised, or None. `None` if there is nothing to wait for.
    fn leave(&self, py: Python<'_>, error: Arg<'_>) -> PyResult<Option<Running>>;
}

/// Something that can be put around a function or a block.
///
/// Besides what every Around does: `with policy:` in a thread, and `async with policy:` in a coroutine.
#[pyclass(module = "resil", extends = Around, subclass, frozen, generic)]
pub struct Block {
    enters: OfProcess<Box<dyn Enters>>,
    /// Whose shutdown waits for its blocks.
    client: Option<Owned<Client>>,
    in_flight: Arc<Entered<BlockInFlight>>,
    what: &'static str,
}

/// A block that a shutdown waits for.
type BlockInFlight = OfProcess<(Mark, Arc<CallInFlight>)>;

impl Block {
    /// `client` is the one that the policy is of, unless it is of this process alone.
    pub fn around(
        what: &'static str,
        client: Option<&Client>,
        enters: impl Enters,
        around: Around,
    ) -> PyClassInitializer<Self> {
        let (enters, client) = (OfProcess::new(Box::new(enters) as Box<dyn Enters>), client.cloned().map(Owned::new));
        PyClassInitializer::from(around).add_subclass(Self { enters, client, in_flight: Arc::default(), what })
    }

    fn enter(slf: &Bound<'_, Self>, entrant: Entrant) -> PyResult<Running> {
        slf.as_super().get().check_process()?;
        let (py, Self { enters, client, in_flight, .. }) = (slf.py(), slf.get());
        let Some(client) = client else { return enters.enter(py, entrant) };
        let (client, who, in_flight) = (client.get()?, Who::is_here(py)?, Arc::clone(in_flight));
        let entering = enters.enter(py, entrant)?;
        Ok(Box::pin(async move {
            let call = Arc::new(raised_later(client.begin_call())?);
            let given = entering.await?;
            let mark = Python::attach(|py| Mark::new(py, Inside::Call(Arc::clone(&call))))?;
            in_flight.push(who, OfProcess::new((mark, call)));
            Ok(given)
        }))
    }

    /// `None` if there is nothing to wait for.
    fn leave(&self, py: Python<'_>, error: Arg<'_>) -> PyResult<Option<Running>> {
        if let Err(forked) = self.client.as_ref().map_or(Ok(()), Owned::check) {
            // A block that was entered before a fork: the parent holds it, and lets go of it.
            return if error.is_none() { Err(forked) } else { Ok(None) };
        }
        // Also if leaving fails: the block is over.
        let in_flight = self.in_flight.pop_any(Who::is_here(py)?).ok();
        let Some(leaving) = self.enters.leave(py, error)? else { return Ok(None) };
        Ok(Some(Box::pin(async move {
            let left = leaving.await;
            drop(in_flight);
            left
        })))
    }
}

#[pymethods]
impl Block {
    fn __enter__(slf: &Bound<'_, Self>) -> PyResult<Object> {
        refuse_to_block(slf.py(), "use async with")?;
        drive(slf.py(), Self::enter(slf, Entrant::Thread)?)
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __exit__(&self, py: Python<'_>, _type: Arg<'_>, value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<()> {
        self.leave(py, value)?.map_or(Ok(()), |leaving| drive(py, leaving).map(drop))
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> PyResult<Pending> {
        Ok(Pending::on_stage(slf.get().what, None, Self::enter(slf, Entrant::Task)?))
    }

    #[pyo3(signature = (_type, value, _traceback, /))]
    fn __aexit__(&self, py: Python<'_>, _type: Arg<'_>, value: Arg<'_>, _traceback: Arg<'_>) -> PyResult<Pending> {
        let leaving = self.leave(py, value)?;
        Ok(Pending::on_stage(self.what, None, leaving.unwrap_or_else(|| Box::pin(async { none() }))))
    }
}
