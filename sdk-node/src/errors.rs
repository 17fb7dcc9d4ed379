//! Errors on their way to JavaScript and back.
//!
//! Rust sends the parts of an error; `lib/errors.js` makes the class of it. An error of ours that a user's function throws
//! (a policy inside of a policy) comes back as what it was, so that the policy around it judges it as one of ours.

use std::time::Duration;

use napi::bindgen_prelude::{Buffer, Env, Object};
use resil::{Code, Error, Failure};

use crate::convert::{DIALECT, millis};
use crate::edge::{throw, to_js};
use crate::thrown::Thrown;

/// An error of ours as JavaScript gives it back.
#[napi_derive::napi(object, object_to_js = false)]
pub struct OwnError {
    pub code: String,
    pub message: String,
    pub name: Option<String>,
    pub retry_after_ms: Option<f64>,
}

/// The parts of `error` as an object.
pub fn parts<'env>(env: &'env Env, error: &Error) -> napi::Result<Object<'env>> {
    let error = &DIALECT.spell_error(error.clone());
    let mut object = Object::new(env)?;
    object.set("code", error.code().text())?;
    object.set("message", error.to_string())?;
    object.set("retryable", error.is_retryable())?;
    if let Some(after) = error.retry_after() {
        object.set("retryAfterMs", millis(after))?;
    }
    if let Some(name) = error.resource() {
        object.set("resource", name)?;
    }
    match error {
        Error::RedriveRefused { reason, .. } => object.set("reason", *reason)?,
        Error::InvalidPolicy { field, .. } => object.set("field", field.as_str())?,
        Error::RetryExhausted { attempts } => object.set("attempts", *attempts)?,
        Error::Timeout { after } => object.set("afterMs", millis(*after))?,
        _ => {}
    }
    Ok(object)
}

/// `{attempt}`, `{kept}`, `{recorded}`, `{error}`, or `{attempts, last}`.
pub fn failure<'env>(env: &'env Env, failure: &Failure<Thrown>) -> napi::Result<Object<'env>> {
    let mut object = Object::new(env)?;
    match failure {
        Failure::Inner(Thrown { kept: Some(kept), .. }) => object.set("kept", kept.number)?,
        Failure::Inner(Thrown { id: 0, recorded: Some(bytes), .. }) => {
            object.set("recorded", Buffer::from(bytes.to_vec()))?;
        }
        Failure::Inner(thrown) => object.set("attempt", thrown.id)?,
        Failure::Resil(error) => object.set("error", parts(env, error)?)?,
        Failure::Exhausted { attempts, last } => {
            object.set("attempts", *attempts)?;
            object.set("last", self::failure(env, last)?)?;
        }
    }
    Ok(object)
}

/// An error that is thrown at once: its parts, from which JavaScript makes the class.
pub fn refuse(env: &Env, error: &Error) -> napi::Error {
    parts(env, error).and_then(|parts| to_js(env, parts)).map_or_else(|failed| failed, |parts| throw(env, parts))
}

/// The error that JavaScript gives back; `None` if it is none of ours.
pub fn own(given: &OwnError) -> Option<Error> {
    let code = Code::all().find(|code| code.text() == given.code)?;
    let retry_after = given.retry_after_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok());
    Some(Error::restored(code, given.name.as_deref().unwrap_or_default(), &given.message, retry_after))
}
