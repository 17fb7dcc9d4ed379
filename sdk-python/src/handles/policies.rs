//! Policies that are stored in the server, or stand in a file that is watched.

use std::path::PathBuf;

use futures_util::stream;
use pyo3::types::PyString;
use resil::Client;
use resil::policies::{Policies, PolicyChange};
use resil::policy::WatchedPolicies;

use crate::client::PyClient;
use crate::items::{anext, next};
use crate::policy::{PyPolicies, PyPolicy, Says};
use crate::prelude::*;
use crate::taken_letters::RowStream;

/// The policies that are stored in the server: `client.policies`.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> client.policies.set("payments", {"retry": {"maxAttempts": 4}}, reason="the bank asked for it").wait()
/// {'action': 'created', 'version': 1}
/// >>> client.policies.get("payments").wait()["policy"]
/// '{"retry":{"maxAttempts":4}}'
/// >>> [record["reason"] for record in client.policies.history("payments").wait()]
/// ['the bank asked for it']
#[pyclass(module = "resil", name = "StoredPolicies", frozen)]
pub struct PyStoredPolicies(Owned<Client>);

/// JSON as text, or what becomes JSON.
fn document(given: Arg<'_>) -> PyResult<String> {
    if given.is_instance_of::<PyString>() {
        return text("document", given);
    }
    if given.cast::<PyDict>().is_err() {
        return Err(wrong_type("document", "a dict, or JSON as str", given));
    }
    let written = imported!(given.py(), "json", "dumps")?.call1((given,));
    written.map_err(|error| wrong_value("document", format!("cannot become JSON: {error}")))?.extract()
}

fn changed(
    what: &'static str,
    change: PolicyChange,
    expecting: OptArg<'_>,
    actor: OptArg<'_>,
    reason: OptArg<'_>,
) -> PyResult<Pending> {
    let expecting = expecting.map(|given| whole::<u64>("expecting", given)).transpose()?;
    let (actor, reason) = (optional_text("actor", actor)?, optional_text("reason", reason)?);
    let change = expecting.into_iter().fold(change, PolicyChange::expecting);
    let change = actor.into_iter().fold(change, PolicyChange::actor);
    let change = reason.into_iter().fold(change, PolicyChange::reason);
    Ok(Pending::shown(what, change.into_future()))
}

impl PyStoredPolicies {
    fn policies(&self) -> PyResult<Policies> {
        Ok(self.0.get()?.policies())
    }
}

#[pymethods]
impl PyStoredPolicies {
    /// Stores a policy, or changes it: a dict, or JSON. With `expecting`, only if the policy has this version; 0: only if there is none.
    #[pyo3(signature = (name, document, *, expecting=None, actor=None, reason=None))]
    fn set(
        &self,
        name: Arg<'_>,
        document: Arg<'_>,
        expecting: OptArg<'_>,
        actor: OptArg<'_>,
        reason: OptArg<'_>,
    ) -> PyResult<Pending> {
        let change = self.policies()?.set(&text("name", name)?, self::document(document)?);
        changed("policies.set()", change, expecting, actor, reason)
    }

    /// Stores one of the last 20 versions again, as a new version.
    #[pyo3(signature = (name, version, *, expecting=None, actor=None, reason=None))]
    fn rollback(
        &self,
        name: Arg<'_>,
        version: Arg<'_>,
        expecting: OptArg<'_>,
        actor: OptArg<'_>,
        reason: OptArg<'_>,
    ) -> PyResult<Pending> {
        let change = self.policies()?.rollback(&text("name", name)?, whole("version", version)?);
        changed("policies.rollback()", change, expecting, actor, reason)
    }

    /// Deletes a policy and all that lives under it.
    #[pyo3(signature = (name, *, expecting=None, actor=None, reason=None))]
    fn delete(&self, name: Arg<'_>, expecting: OptArg<'_>, actor: OptArg<'_>, reason: OptArg<'_>) -> PyResult<Pending> {
        let change = self.policies()?.delete(&text("name", name)?);
        changed("policies.delete()", change, expecting, actor, reason)
    }

    /// The canonical form of a document, as text. Raises what is wrong with it; nothing is stored.
    fn check(&self, document: Arg<'_>) -> PyResult<Pending> {
        let (policies, document) = (self.policies()?, self::document(document)?);
        Ok(Pending::ask("policies.check()", async move { policies.check(&document).await }))
    }

    /// The policy of this name, or one of its last 20 versions. None if there is none.
    #[pyo3(signature = (name, version=None))]
    fn get(&self, name: Arg<'_>, version: OptArg<'_>) -> PyResult<Pending> {
        let (policies, name) = (self.policies()?, text("name", name)?);
        let version = version.map(|given| whole::<u64>("version", given)).transpose()?;
        Ok(Pending::shown("policies.get()", async move {
            match version {
                None => policies.get(&name).await,
                Some(version) => policies.get_version(&name, version).await,
            }
        }))
    }

    /// All policies there are, by name. A server lists them; one that is too old, or a user who may not list, costs a SCAN of all keys.
    fn list(&self) -> PyResult<Pending> {
        let policies = self.policies()?;
        Ok(Pending::shown("policies.list()", async move { policies.list().await }))
    }

    /// The last 20 versions, the newest first.
    fn history(&self, name: Arg<'_>) -> PyResult<Pending> {
        let (policies, name) = (self.policies()?, text("name", name)?);
        Ok(Pending::shown("policies.history()", async move { policies.history(&name).await }))
    }

    /// Changes of all policies from now on, one by one: `async for change in await client.policies.watch()`. It is there when the server will tell
    /// of them; raises if that takes longer than 5 s, or if this user may not subscribe to `resil:events`.
    fn watch(&self) -> PyResult<Pending> {
        let policies = self.policies()?;
        Ok(Pending::new("policies.watch()", async move {
            let watch = raised_later(policies.watch().await)?;
            let changes = stream::unfold(watch, |mut watch| async move {
                let change = watch.next().await?;
                Some((Python::attach(|py| shown(py, &change)), watch))
            });
            Python::attach(|py| PyPolicyWatch(RowStream::new(changes)).into_py_any(py))
        }))
    }

    /// Policies of a file that is read again when it changes. A file that is not valid changes nothing: the last good one stays.
    fn open(&self, path: Arg<'_>) -> PyResult<PyWatchedPolicies> {
        let file: PathBuf = path.extract().map_err(|_| wrong_type("path", "a path", path))?;
        let client = self.0.get()?;
        let _inside = runtime::enter()?;
        Ok(PyWatchedPolicies(Owned::new(spelled(WatchedPolicies::open(&client, file))?)))
    }

    /// Policies from a file of JSON or YAML, or from its text, read once.
    #[pyo3(signature = (path=None, *, text=None))]
    fn __call__(&self, path: OptArg<'_>, text: OptArg<'_>) -> PyResult<PyPolicies> {
        PyPolicies::read(self.0.get()?, path, text)
    }
}

/// Changes of stored policies as they come. It ends when the client is shut down.
#[pyclass(module = "resil", name = "PolicyWatch", frozen)]
pub struct PyPolicyWatch(RowStream);

#[pymethods]
impl PyPolicyWatch {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Object>> {
        refuse_to_block(py, "use async for")?;
        next(py, self.0.next_row())
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__(&self) -> Pending {
        anext("async for change in changes", self.0.next_row())
    }

    /// Listens no more.
    fn close(&self) -> PyResult<()> {
        self.0.close()
    }

    /// The same, for `contextlib.aclosing`.
    fn aclose(&self) -> PyResult<Pending> {
        self.0.close()?;
        Ok(Pending::new("changes.aclose()", async { none() }))
    }
}

/// Policies of a file that is looked at every second: `client.policies.open(path)`.
#[pyclass(module = "resil", name = "WatchedPolicies", frozen)]
pub struct PyWatchedPolicies(Owned<WatchedPolicies>);

#[pymethods]
impl PyWatchedPolicies {
    #[getter]
    fn names(&self) -> PyResult<Vec<String>> {
        Ok(self.0.get()?.names())
    }

    /// Why the file as it is now was not taken, if it was not.
    #[getter]
    fn problem(&self) -> PyResult<Option<String>> {
        Ok(self.0.get()?.problem().map(|problem| problem.to_string()))
    }

    /// One of them: each call is made under what the file says then. `on` says which exceptions are retried.
    #[pyo3(signature = (name, *, on=None, ignore=None, on_result=None))]
    fn policy(
        &self,
        py: Python<'_>,
        name: Arg<'_>,
        on: OptArg<'_>,
        ignore: OptArg<'_>,
        on_result: OptArg<'_>,
    ) -> PyResult<Py<PyPolicy>> {
        PyPolicy::watched(py, self.0.get()?, &text("name", name)?, Says { on, ignore, on_result })
    }

    /// Looks at the file at once.
    fn look(&self) -> PyResult<()> {
        let _inside = runtime::enter()?;
        self.0.get()?.look();
        Ok(())
    }
}

#[pymethods]
impl PyClient {
    /// The policies that are stored in the server. Called with a path, or with `text=`, it reads those of a file.
    #[getter]
    fn policies(&self) -> PyResult<PyStoredPolicies> {
        Ok(PyStoredPolicies(Owned::new(self.get()?)))
    }
}
