//! Values on their way between Rust and JavaScript: durations as milliseconds, counters as bigints, settings as JSON.
//!
//! Settings stay JSON until the SDK's own structures read them: nothing is declared here a second time.

use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Env, ToNapiValue};
use resil::settings::{CacheSettings, Dialect, Numbers, Settings, Spelling};
use resil::{Error, Failure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::edge::to_js;
use crate::errors::refuse;
use crate::executor::attempt::Call;
use crate::executor::{Outcome, Word, begin};
use crate::thrown::Thrown;

/// How JavaScript spells settings.
pub const DIALECT: Dialect = Dialect { spelling: Spelling::Camel, numbers: Numbers::Milliseconds };

/// These may pass 2^53: they go as text, and become bigints.
const COUNTERS: [&str; 4] = ["fence", "lastFence", "generation", "version"];

/// Settings of a JSON text.
pub fn settings<T: Settings>(text: &str) -> Result<T, Error> {
    let said: Value = serde_json::from_str(text)
        .map_err(|error| Error::InvalidArgument(format!("the settings are not JSON: {error}")))?;
    DIALECT.read(said)
}

/// A duration of a JSON text: a number of milliseconds, or such as `"250ms"`. `name`: of the argument.
pub fn duration(name: &str, text: &str) -> Result<Duration, Error> {
    let said = serde_json::from_str::<Value>(text).unwrap_or_default();
    // Read as a duration in settings is.
    match DIALECT.read::<CacheSettings>(json!({ "ttl": said })) {
        Ok(CacheSettings { ttl, .. }) => Ok(ttl),
        Err(Error::InvalidPolicy { reason, .. }) => Err(Error::InvalidPolicy { field: name.to_owned(), reason }),
        Err(other) => Err(other),
    }
}

/// The same for an argument that may be omitted.
pub fn optional_duration(name: &str, text: Option<&str>) -> Result<Option<Duration>, Error> {
    text.map(|text| duration(name, text)).transpose()
}

/// Milliseconds, with what is finer behind the point.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// A number that may pass 2^53.
pub fn bigint(number: u64) -> BigInt {
    BigInt::from(number)
}

/// A bigint of JavaScript, if it fits.
pub fn number(name: &str, given: &BigInt) -> Result<u64, Error> {
    match given.get_u64() {
        (false, number, true) => Ok(number),
        _ => Err(Error::InvalidArgument(format!("{name} must be from 0 to 2^64 - 1"))),
    }
}

/// A value of the SDK as JSON, spelled as JavaScript spells it.
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

/// Runs a future that calls no function of JavaScript.
pub fn run<T, F>(future: F) -> napi::Result<Word>
where
    T: ToNapiValue + 'static,
    F: Future<Output = Result<T, Error>> + 'static,
{
    run_with(|_| async move { future.await.map_err(Failure::Resil) })
}

/// The same for one that does.
pub fn run_with<T, F>(make: impl FnOnce(Call) -> F) -> napi::Result<Word>
where
    T: ToNapiValue + 'static,
    F: Future<Output = Result<T, Failure<Thrown>>> + 'static,
{
    begin(true, |call| {
        let future = make(call);
        Box::pin(async move {
            match future.await {
                Ok(value) => Outcome::Value(Box::new(move |env| to_js(env, value))),
                Err(failure) => Outcome::Failed(failure),
            }
        })
    })
}

/// The methods of a class that wait: each is one call of the SDK, on a clone of the handle.
macro_rules! methods {
    ($class:ident($handle:ident) { $(
        $(#[doc = $doc:literal])*
        $name:ident($($arg:ident: $type:ident $(<$of:ident>)?),*) => $call:expr;
    )* }) => {
        #[napi]
        impl $class {
            $(
                $(#[doc = $doc])*
                #[napi]
                pub fn $name(&self, $($arg: $type $(<$of>)?),*) -> napi::Result<$crate::executor::Word> {
                    let $handle = self.0.clone();
                    $crate::convert::run(async move { $call })
                }
            )*
        }
    };
}
pub(crate) use methods;

/// What a client makes of a name and settings: methods of `Client`, in the file of what they make. The file uses `Client`.
macro_rules! makes {
    ($($name:ident($settings:ty) -> $class:ident = $wrap:expr;)*) => {
        #[napi]
        impl Client {
            $(
                #[napi]
                pub fn $name(&self, env: napi::bindgen_prelude::Env, name: String, said: String) -> napi::Result<$class> {
                    let made = $crate::convert::settings(&said).and_then(|said: $settings| self.0.$name(&name, said));
                    $crate::convert::now(&env, made).map($wrap)
                }
            )*
        }
    };
}
pub(crate) use makes;

/// The result of something that does not wait: a value, or the error thrown.
pub fn now<T>(env: &Env, result: Result<T, Error>) -> napi::Result<T> {
    result.map_err(|error| refuse(env, &error))
}
