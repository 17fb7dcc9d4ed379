//! Arguments as the SDK wants them, each error with the argument's name; and results as Python objects.

use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

use crate::errors::{wrong_type, wrong_value};

/// So deep a structure is a mistake (or a circle).
const DEPTH_MAX: usize = 32;

/// Seconds as a number, a timedelta, or text such as "250ms".
pub fn seconds(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if given.is_instance_of::<PyString>() {
        let said = text(name, given)?;
        let allowed = "must be a duration such as \"250ms\" (units: us, ms, s, m, h, d)";
        return resil::settings::duration(&said).ok_or_else(|| wrong_value(name, format!("{allowed}, got {said:?}")));
    }
    let expected = "a number of seconds, a timedelta, or text such as \"250ms\"";
    let number = seconds_of(given)?.ok_or_else(|| wrong_type(name, expected, given))?;
    Duration::try_from_secs_f64(number).map_err(|_| wrong_value(name, format!("must not be {number} seconds")))
}

pub fn optional_seconds(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    given.map(|given| seconds(name, given)).transpose()
}

fn seconds_of(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if given.is_instance_of::<PyDelta>() {
        return given.call_method0("total_seconds")?.extract().map(Some);
    }
    let is_number = given.is_instance_of::<PyFloat>() || given.is_instance_of::<PyInt>();
    if !is_number || given.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    // An integer beyond any float is no time.
    Ok(Some(given.extract().unwrap_or(f64::INFINITY)))
}

/// A key: text, or bytes as they are.
pub fn key(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if given.is_instance_of::<PyString>() {
        return text(name, given).map(String::into_bytes);
    }
    match given.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(wrong_type(name, "str or bytes", given)),
    }
}

pub fn text(name: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = given.cast::<PyString>().map_err(|_| wrong_type(name, "str", given))?;
    text.extract().map_err(|_| wrong_value(name, "must be text without surrogates"))
}

pub fn optional_text(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    given.map(|given| text(name, given)).transpose()
}

/// A whole number; `bool` is none.
pub fn whole<N: TryFrom<i64> + TryFrom<u64>>(name: &str, given: &Bound<'_, PyAny>) -> PyResult<N> {
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<PyInt>() {
        return Err(wrong_type(name, "int", given));
    }
    let small = given.extract::<i64>().ok().and_then(|number| N::try_from(number).ok());
    let large = || given.extract::<u64>().ok().and_then(|number| N::try_from(number).ok());
    small.or_else(large).ok_or_else(|| wrong_value(name, format!("is out of range: {given}")))
}

/// True or false, and nothing that is only taken for it.
pub fn truth(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let Some(given) = given else { return Ok(false) };
    Ok(given.cast::<PyBool>().map_err(|_| wrong_type(name, "bool", given))?.is_true())
}

/// What was said, for serde to read: durations are seconds as numbers.
pub fn said(path: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    said_within(path, given, 0)
}

fn said_within(path: &str, given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEPTH_MAX {
        return Err(wrong_value(path, "is nested too deeply"));
    }
    let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if given.is_none() {
        Ok(Value::Null)
    } else if let Ok(flag) = given.cast::<PyBool>() {
        Ok(flag.is_true().into())
    } else if given.is_instance_of::<PyInt>() {
        let number = given.extract::<i64>().map(Number::from).or_else(|_| given.extract::<u64>().map(Number::from));
        number.map(Value::Number).map_err(|_| wrong_value(path, format!("is out of range: {given}")))
    } else if let Some(number) = seconds_of(given)? {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| wrong_value(path, format!("must not be {number}")))
    } else if given.is_instance_of::<PyString>() {
        Ok(text(path, given)?.into())
    } else if let Ok(dict) = given.cast::<PyDict>() {
        let mut object = Map::new();
        for (name, value) in dict.iter() {
            let name = text(&format!("a name in {}", if path.is_empty() { "the settings" } else { path }), &name)?;
            let value = said_within(&inside(&name), &value, depth + 1)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    } else if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let element = |(index, value): (usize, PyResult<Bound<'_, PyAny>>)| {
            said_within(&inside(&index.to_string()), &value?, depth + 1)
        };
        given.try_iter()?.enumerate().map(element).collect::<PyResult<Vec<_>>>().map(Value::Array)
    } else {
        Err(wrong_type(path, "a setting (number, text, timedelta, dict, list or None)", given))
    }
}

/// Keyword arguments, for serde to read.
pub fn said_by(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Value> {
    match kwargs {
        Some(kwargs) => said("", kwargs.as_any()),
        None => Ok(Value::Object(Map::new())),
    }
}

/// What serde wrote, as plain Python objects.
pub fn plain(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Bool(flag) => flag.into_py_any(py),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => number.into_py_any(py),
            (_, Some(number), _) => number.into_py_any(py),
            (.., number) => number.unwrap_or(f64::NAN).into_py_any(py),
        },
        Value::String(text) => text.into_py_any(py),
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| plain(py, element)).collect::<PyResult<Vec<_>>>()?;
            elements.into_py_any(py)
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, plain(py, value)?)?;
            }
            dict.into_py_any(py)
        }
    }
}

/// Inside of a future.
pub fn flag(flag: bool) -> PyResult<Py<PyAny>> {
    Python::attach(|py| Ok(flag.into_pyobject(py)?.to_owned().into_any().unbind()))
}
