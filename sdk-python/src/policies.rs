//! Policies by name, from a file that the other languages read as well.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use resil::Client;
use resil::policy::PolicyFile;

use crate::convert::text;
use crate::errors::{wrong_type, wrong_value};
use crate::policy::{PyPolicy, Said, make_of};
use crate::runtime::Generation;
use crate::settings::spelled;

/// Policies by name, as they stand in a file; `client.policies(...)` reads it.
///
/// >>> import resil
/// >>> client = resil.connect("memory://").wait()
/// >>> policies = client.policies(text="{version: 1, policies: {payments: {timeout: {total: 2s}}}}")
/// >>> policies.names, policies.policy("payments").order
/// (['payments'], ['total'])
#[pyclass(module = "resil", name = "Policies", frozen)]
pub struct PyPolicies {
    file: Arc<PolicyFile>,
    client: Client,
    generation: Generation,
}

pub fn read_file(
    client: &Client,
    generation: Generation,
    path: Option<&Bound<'_, PyAny>>,
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyPolicies> {
    let source = match (path, given) {
        (Some(path), None) => {
            let path: PathBuf = path.extract().map_err(|_| wrong_type("path", "a path", path))?;
            std::fs::read_to_string(&path)?
        }
        (None, Some(given)) => text("text", given)?,
        _ => return Err(wrong_value("path", "or text must be there, and not both")),
    };
    // Every JSON is YAML, but what is wrong with its fields is better said by its own reader.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&source).is_ok();
    let file = if is_json { PolicyFile::from_json(&source) } else { PolicyFile::from_yaml(&source) };
    let file = Arc::new(file.map_err(|error| Python::attach(|py| crate::errors::exception(py, &error)))?);
    Ok(PyPolicies { file, client: client.clone(), generation })
}

#[pymethods]
impl PyPolicies {
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.file.policies.keys().map(String::as_str).collect()
    }

    /// Makes one of them.
    #[pyo3(signature = (name, *, on=None, ignore=None))]
    fn policy(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        on: Option<&Bound<'_, PyAny>>,
        ignore: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyPolicy>> {
        self.generation.check()?;
        let settings = spelled(self.file.settings(&text("name", name)?))?;
        make_of(py, &self.client, self.generation, settings, Said { on, ignore })
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        text("name", name).is_ok_and(|name| self.file.policies.contains_key(&name))
    }

    fn __len__(&self) -> usize {
        self.file.policies.len()
    }
}
