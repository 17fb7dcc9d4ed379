//! Arguments and settings as the SDK wants them, each error with the argument's name; and results as Python objects.
//!
//! Python says names with underscores and durations as seconds. The SDK reads settings, and knows every default.

use std::time::Duration;

use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString};
use resil::settings::{Dialect, Numbers, Settings, Spelling};
use serde_json::{Map, Number, Value};

use crate::prelude::*;

/// An argument as it was given.
pub type Arg<'a> = &'a Bound<'a, PyAny>;
/// One that may be left out, or None.
pub type OptArg<'a> = Option<Arg<'a>>;
/// Positional arguments of a function of the user's.
pub type Args<'a> = &'a Bound<'a, PyTuple>;
/// Keyword arguments: settings, or those of a function of the user's.
pub type Kwargs<'a> = &'a Bound<'a, PyDict>;

pub const PYTHON: Dialect = Dialect { spelling: Spelling::Snake, numbers: Numbers::Seconds };

/// A structure deeper than this is a mistake (or a circle).
const DEPTH_MAX: usize = 32;

/// Seconds as a number, a timedelta, or text such as "250ms".
pub fn seconds(name: &str, given: Arg<'_>) -> PyResult<Duration> {
    if given.is_instance_of::<PyString>() {
        let given = text(name, given)?;
        let allowed = "must be a duration such as \"250ms\" (units: us, ms, s, m, h, d)";
        return resil::settings::duration(&given).ok_or_else(|| wrong_value(name, format!("{allowed}, got {given:?}")));
    }
    let expected = "a number of seconds, a timedelta, or text such as \"250ms\"";
    let number = seconds_of(given)?.ok_or_else(|| wrong_type(name, expected, given))?;
    Duration::try_from_secs_f64(number).map_err(|_| wrong_value(name, format!("must not be {number} seconds")))
}

pub fn optional_seconds(name: &str, given: OptArg<'_>) -> PyResult<Option<Duration>> {
    given.map(|given| seconds(name, given)).transpose()
}

/// Not pyo3's own check, which panics where the module cannot be imported any more: while the interpreter ends.
fn is_timedelta(given: Arg<'_>) -> PyResult<bool> {
    given.is_instance(imported!(given.py(), "datetime", "timedelta")?)
}

/// A timedelta as text, so that it is no number where one is meant.
fn timedelta_text(given: Arg<'_>) -> PyResult<String> {
    let part = |name: &str| given.getattr(name)?.extract::<i64>();
    let seconds = part("days")?.saturating_mul(86_400).saturating_add(part("seconds")?);
    Ok(format!("{}us", seconds.saturating_mul(1_000_000).saturating_add(part("microseconds")?)))
}

fn seconds_of(given: Arg<'_>) -> PyResult<Option<f64>> {
    if is_timedelta(given)? {
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
pub fn key(name: &str, given: Arg<'_>) -> PyResult<Vec<u8>> {
    if given.is_instance_of::<PyString>() {
        return text(name, given).map(String::into_bytes);
    }
    match given.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => Err(wrong_type(name, "str or bytes", given)),
    }
}

pub fn text(name: &str, given: Arg<'_>) -> PyResult<String> {
    let text = given.cast::<PyString>().map_err(|_| wrong_type(name, "str", given))?;
    text.extract().map_err(|_| wrong_value(name, "must be text without surrogates"))
}

pub fn optional_text(name: &str, given: OptArg<'_>) -> PyResult<Option<String>> {
    given.map(|given| text(name, given)).transpose()
}

/// A whole number; `bool` is none.
pub fn whole<N: TryFrom<i64> + TryFrom<u64>>(name: &str, given: Arg<'_>) -> PyResult<N> {
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<PyInt>() {
        return Err(wrong_type(name, "int", given));
    }
    let small = given.extract::<i64>().ok().and_then(|number| N::try_from(number).ok());
    let large = || given.extract::<u64>().ok().and_then(|number| N::try_from(number).ok());
    small.or_else(large).ok_or_else(|| wrong_value(name, format!("is out of range: {given}")))
}

/// True or false, and nothing that only counts as such.
pub fn truth(name: &str, given: OptArg<'_>) -> PyResult<bool> {
    let Some(given) = given else { return Ok(false) };
    Ok(given.cast::<PyBool>().map_err(|_| wrong_type(name, "bool", given))?.is_true())
}

/// For serde to read: durations are seconds as numbers.
fn given_within(path: &str, given: Arg<'_>, depth: usize) -> PyResult<Value> {
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
    } else if is_timedelta(given)? {
        Ok(timedelta_text(given)?.into())
    } else if let Some(number) = seconds_of(given)? {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| wrong_value(path, format!("must not be {number}")))
    } else if given.is_instance_of::<PyString>() {
        Ok(text(path, given)?.into())
    } else if let Ok(dict) = given.cast::<PyDict>() {
        let mut object = Map::new();
        for (name, value) in dict.iter() {
            let name = text(&format!("a name in {}", if path.is_empty() { "the settings" } else { path }), &name)?;
            let value = given_within(&inside(&name), &value, depth + 1)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    } else if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let element = |(index, value): (usize, PyResult<Bound<'_, PyAny>>)| {
            given_within(&inside(&index.to_string()), &value?, depth + 1)
        };
        given.try_iter()?.enumerate().map(element).collect::<PyResult<Vec<_>>>().map(Value::Array)
    } else {
        Err(wrong_type(path, "a setting (number, text, timedelta, dict, list or None)", given))
    }
}

/// One argument as JSON, for what reads it to judge.
pub fn json_value(name: &str, given: Arg<'_>) -> PyResult<Value> {
    given_within(name, given, 0)
}

/// Settings from keyword arguments.
pub fn read<T: Settings>(kwargs: Option<Kwargs<'_>>) -> PyResult<T> {
    read_beside(&[], kwargs)
}

/// The same where the function takes more keywords than those: the error for an unknown one lists all there are.
pub fn read_beside<T: Settings>(own: &[&str], kwargs: Option<Kwargs<'_>>) -> PyResult<T> {
    let given = kwargs.map_or_else(|| Ok(Value::Object(Map::new())), |kwargs| given_within("", kwargs.as_any(), 0))?;
    spelled(PYTHON.read(given).map_err(|error| match error {
        Error::InvalidPolicy { field, reason } if !own.is_empty() && !field.contains('.') => {
            let reason = reason.replacen("known: ", &format!("known: {}, ", own.join(", ")), 1);
            Error::InvalidPolicy { field, reason }
        }
        other => other,
    }))
}

/// An error with its field as it is called here.
pub fn spelled<T>(result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| Python::attach(|py| exception(py, &PYTHON.spell_error(error))))
}

/// As Python writes it.
pub fn python_bool(flag: bool) -> &'static str {
    if flag { "True" } else { "False" }
}

/// Something of the SDK's as dicts, lists, numbers and texts.
pub fn shown(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<Object> {
    let written = spelled(PYTHON.show(value))?.to_string();
    imported!(py, "json", "loads")?.call1((written,)).map(Bound::unbind)
}
