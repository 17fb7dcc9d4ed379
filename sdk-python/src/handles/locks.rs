//! Several locks at once: all of them, or none.

use pyo3::types::PyString;
use resil::lock::{Locks, LocksGuard, lock_name};
use resil::settings::LockSettings;

use crate::client::PyClient;
use crate::prelude::*;

/// Several locks, in the order of their keys; `client.locks(...)` makes it. It holds nothing.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> transfer = client.locks([client.lock_name("bank", "account", id) for id in ("7", "3")])
/// >>> transfer.names
/// ['lock:bank:account:3', 'lock:bank:account:7']
/// >>> held = transfer.acquire().wait()
/// >>> held.is_held, len(held.fences)
/// (True, 2)
/// >>> held.release().wait()
#[pyclass(module = "resil", name = "Locks", frozen)]
pub struct PyLocks(Owned<Locks>);

#[pymethods]
impl PyLocks {
    /// In the order in which they are acquired.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.0.peek().names().into_iter().map(str::to_owned).collect()
    }

    /// Waits for all of them, as long as their `wait` says or `wait` here: a guard to release, or LockTimeoutError.
    #[pyo3(signature = (wait=None))]
    fn acquire(&self, wait: OptArg<'_>) -> PyResult<Pending> {
        let (locks, wait) = (self.0.get()?, optional_seconds("wait", wait)?);
        Ok(shown("locks.acquire()", async move {
            match wait {
                Some(wait) => locks.acquire_within(wait).await,
                None => locks.acquire().await,
            }
        }))
    }

    /// Asks once for each, and does not wait.
    fn try_acquire(&self) -> PyResult<Pending> {
        let locks = self.0.get()?;
        Ok(shown("locks.try_acquire()", async move { locks.try_acquire().await }))
    }
}

fn shown(what: &'static str, asking: impl Future<Output = Result<LocksGuard, Error>> + Send + 'static) -> Pending {
    Pending::new(what, async move {
        let guard = raised_later(asking.await)?;
        let fences = guard.guards().iter().map(|guard| guard.fence()).collect();
        let guard = PyLocksGuard { fences, cell: GuardCell::new(guard) };
        Python::attach(|py| Ok(Py::new(py, guard)?.into_any()))
    })
}

const RELEASED: &str = "these locks were released before";

/// Several locks that are held. Forgotten, they are released in the background. `async with` releases them at its end.
#[pyclass(module = "resil", name = "LocksGuard", frozen)]
pub struct PyLocksGuard {
    /// One for each lock, in the order of their keys.
    #[pyo3(get)]
    fences: Vec<Option<u64>>,
    cell: Arc<GuardCell<LocksGuard>>,
}

#[pymethods]
impl PyLocksGuard {
    /// By the clock, now: all of them.
    #[getter]
    fn is_held(&self) -> bool {
        self.cell.get(RELEASED).is_ok_and(|guard| guard.is_held())
    }

    /// LockLostError if one of them is not held any more.
    fn ensure(&self) -> PyResult<()> {
        spelled(self.cell.get(RELEASED)?.ensure())
    }

    /// Releases them in reverse. LockLostError if one was lost.
    fn release(&self) -> PyResult<Pending> {
        let guard = self.cell.take(RELEASED)?;
        Ok(Pending::done("guard.release()", async move { guard.release().await }))
    }

    fn __aenter__(slf: Py<Self>) -> Pending {
        Pending::new("async with guard", async move { Ok(slf.into_any()) })
    }

    #[pyo3(signature = (*_error))]
    fn __aexit__(&self, _error: &Bound<'_, PyTuple>) -> Pending {
        let guard = self.cell.take(RELEASED).ok();
        Pending::done("async with guard", async move {
            match guard {
                Some(guard) => guard.release().await,
                None => Ok(()),
            }
        })
    }
}

#[pymethods]
impl PyClient {
    /// Several locks at once, in the order of their keys: all of them, or none.
    #[pyo3(signature = (names, **settings))]
    fn locks(&self, names: Arg<'_>, settings: Option<Kwargs<'_>>) -> PyResult<PyLocks> {
        if names.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("names must be a list of names, not one text"));
        }
        let mut each = Vec::new();
        for name in names.try_iter()? {
            each.push(text("names", &name?)?);
        }
        let settings: LockSettings = read(settings)?;
        Ok(PyLocks(Owned::new(spelled(self.get()?.locks(each, settings))?)))
    }

    /// `lock:<domain>:<resource>:<id>`, a name for a lock.
    fn lock_name(&self, domain: Arg<'_>, resource: Arg<'_>, id: Arg<'_>) -> PyResult<String> {
        let (domain, resource, id) = (text("domain", domain)?, text("resource", resource)?, text("id", id)?);
        spelled(lock_name(&domain, &resource, &id))
    }
}
