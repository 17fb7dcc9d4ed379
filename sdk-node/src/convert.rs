//! Values on their way between Rust and JavaScript: spans as milliseconds, counters as bigints, settings as JSON.

use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Env, ToNapiValue};
use resil::{Error, Failure};

use crate::errors::refuse;
use crate::executor::desk::Desk;
use crate::executor::{Answer, Converted, Running, Word, begin};
use std::sync::Arc;

/// Milliseconds, with what is finer behind the point.
pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

/// A span of so many milliseconds; `name` is what it is called.
pub fn span(name: &str, ms: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(ms / 1_000.0)
        .map_err(|_| Error::InvalidArgument(format!("{name} must be a number of milliseconds, got {ms}")))
}

pub fn optional_span(name: &str, ms: Option<f64>) -> Result<Option<Duration>, Error> {
    ms.map(|ms| span(name, ms)).transpose()
}

/// A number that may pass 2^53.
pub fn bigint(number: u64) -> BigInt {
    BigInt::from(number)
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
pub fn ours<T, F>(make: impl FnOnce() -> F) -> napi::Result<Word>
where
    T: ToNapiValue + 'static,
    F: Future<Output = Result<T, Error>> + 'static,
{
    ours_with(|_| {
        let future = make();
        async move { future.await.map_err(Failure::Resil) }
    })
}

/// The same for what also runs functions.
pub fn ours_with<T, F>(make: impl FnOnce(Arc<Desk>) -> F) -> napi::Result<Word>
where
    T: ToNapiValue + 'static,
    F: Future<Output = Result<T, Failure<crate::thrown::Thrown>>> + 'static,
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
    result.map_err(|error| refuse(env, &error))
}
