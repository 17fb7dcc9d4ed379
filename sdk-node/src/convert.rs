//! Values on their way between Rust and JavaScript: spans as milliseconds, counters as bigints, settings as JSON.
//!
//! What JavaScript was told stays JSON until the SDK's own structures read it: nothing is declared here a second time.

use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Env, ToNapiValue};
use resil::settings::{CacheSettings, Dialect, Numbers, Settings, Spelling};
use resil::{Error, Failure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::errors::refuse;
use crate::executor::desk::Desk;
use crate::executor::{Answer, Converted, Running, Word, begin};
use crate::thrown::Thrown;

/// How JavaScript says settings.
pub const DIALECT: Dialect = Dialect { spelling: Spelling::Camel, numbers: Numbers::Milliseconds };

/// These may pass 2^53: they go as text, and become bigints.
const COUNTERS: [&str; 4] = ["fence", "lastFence", "generation", "version"];

/// Settings of a JSON text.
pub fn settings<T: Settings>(text: &str) -> Result<T, Error> {
    let said: Value = serde_json::from_str(text)
        .map_err(|error| Error::InvalidArgument(format!("the settings are not JSON: {error}")))?;
    DIALECT.read(said)
}

/// A span of a JSON text: a number of milliseconds, or such as `"250ms"`. `name` is what it is called.
pub fn span(name: &str, text: &str) -> Result<Duration, Error> {
    let said = serde_json::from_str::<Value>(text).unwrap_or_default();
    // Whatever reads spans of settings reads this one.
    match DIALECT.read::<CacheSettings>(json!({ "ttl": said })) {
        Ok(CacheSettings { ttl: Some(span), .. }) => Ok(span),
        Ok(_) => Err(Error::InvalidPolicy { field: name.to_owned(), reason: "must be a duration".to_owned() }),
        Err(Error::InvalidPolicy { reason, .. }) => Err(Error::InvalidPolicy { field: name.to_owned(), reason }),
        Err(other) => Err(other),
    }
}

/// The same, which may not be there.
pub fn optional_span(name: &str, text: Option<&str>) -> Result<Option<Duration>, Error> {
    text.map(|text| span(name, text)).transpose()
}

/// Milliseconds, with what is finer behind the point.
pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

/// A number that may pass 2^53.
pub fn bigint(number: u64) -> BigInt {
    BigInt::from(number)
}

/// What a bigint of JavaScript says, if it fits.
pub fn number(name: &str, given: &BigInt) -> Result<u64, Error> {
    match given.get_u64() {
        (false, number, true) => Ok(number),
        _ => Err(Error::InvalidArgument(format!("{name} must be from 0 to 2^64 - 1"))),
    }
}

/// Something that is shown, as JSON in JavaScript's dialect.
pub fn shown(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    let mut value = DIALECT.show(value)?;
    counters_as_text(&mut value);
    Ok(value.to_string())
}

fn counters_as_text(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(counters_as_text),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::Number(number) if COUNTERS.contains(&name.as_str()) => {
                        *field = Value::String(number.to_string());
                    }
                    other => counters_as_text(other),
                }
            }
        }
        _ => {}
    }
}

/// A value of ours as one of JavaScript.
pub fn value<T: ToNapiValue + 'static>(value: T) -> Answer {
    let convert: Converted = Box::new(move |env: &Env| {
        // SAFETY: called on the thread of `env`, inside of a call.
        unsafe { T::to_napi_value(env.raw(), value) }
    });
    Answer::Value(convert)
}

/// Runs what ends with a value of ours, as a call without a function.
pub fn ours<T, F>(future: F) -> napi::Result<Word>
where
    T: ToNapiValue + 'static,
    F: Future<Output = Result<T, Error>> + 'static,
{
    ours_with(|_| async move { future.await.map_err(Failure::Resil) })
}

/// The same for what also runs functions.
pub fn ours_with<T, F>(make: impl FnOnce(Arc<Desk>) -> F) -> napi::Result<Word>
where
    T: ToNapiValue + 'static,
    F: Future<Output = Result<T, Failure<Thrown>>> + 'static,
{
    begin(true, |desk| {
        let future = make(desk);
        Running::Ours(Box::pin(async move {
            match future.await {
                Ok(done) => value(done),
                Err(failure) => Answer::Failed(failure),
            }
        }))
    })
}

/// What is said at once: a value, or the error thrown.
pub fn now<T>(env: &Env, result: Result<T, Error>) -> napi::Result<T> {
    result.map_err(|error| refuse(env, &DIALECT.spell_error(error)))
}
