//! The short way of nearly every call: it is let in at once, it succeeds, and nothing is made for it.
//!
//! A retry, and breakers and bulkheads that can say yes at once, need no future for a call that succeeds: they are asked
//! when it begins and told when it ends; in a rush not even each time, see `loans`. A call that fails goes on in a future from
//! there: what was let in is told, and the retry begins with the failure. Whoever cannot say yes at once is asked by a
//! future from the beginning. Timeouts wait for what still runs when the turn ends, for all calls of a turn together.
//!
//! These functions are without the wrapper around the others, whose bookkeeping costs as much as the whole call: numbers in,
//! a number out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use napi::bindgen_prelude::{Env, Object};
use napi::sys;
use napi_derive::napi;
use resil::{Error, Failure};

use crate::errors::{OwnError, own};
use crate::executor::desk::Done;
use crate::executor::{AGAIN, Answer, FAILED, LENT, QUICK, Running, Word, begin, cancel, settle};
use crate::guard::{Layer, begin_after_failure, begin_call, with_layers};
use crate::loans::{self, Leave};
use crate::thrown::Thrown;

/// Where the key of a loan begins in a word; between it and the code is how many more calls may begin.
const KEY_SHIFT: u32 = 9;

/// Begins a call whichever way it can. `ok` calls of the open loan ended well before.
fn ask_leave(number: u32, ok: u32) -> napi::Result<Word> {
    let leave = with_layers(number, |layers| match layers.may_be_quick {
        true => loans::ask(layers, ok),
        false => Leave::No,
    })?;
    match leave {
        Leave::One { key } => Ok(key << KEY_SHIFT | QUICK),
        Leave::Several { key, more } => Ok(key << KEY_SHIFT | more << 3 | LENT),
        Leave::AfterTheTurn => Ok(AGAIN),
        Leave::No => begin_call(number),
    }
}

/// The turn is over: of the guard's loan so many calls ended well, and so many leaves were not needed.
fn end_turn(number: u32, ok: u32, unused: u32) -> napi::Result<Word> {
    with_layers(number, |layers| loans::end_turn(layers, ok, unused))?;
    Ok(0)
}

/// A call of this loan failed: see `settle_failed`. How it goes on, as one whose attempt 1 has failed.
#[napi]
pub fn quick_failed(key: u32, classes: Vec<f64>, message: String, own_error: Option<OwnError>) -> napi::Result<Word> {
    let failure = match own_error.as_ref().and_then(own) {
        Some(error) => Failure::Resil(error),
        None => {
            let thrown =
                Thrown { classes: Thrown::classes_of(&classes), message: message.into(), ..Thrown::of_attempt(1) };
            Failure::Inner(thrown)
        }
    };
    go_on(loans::fail(key, failure))
}

/// A call of this loan was not over in time. How it goes on.
#[napi]
pub fn quick_overdue(key: u32) -> napi::Result<Word> {
    go_on(loans::fail_late(key))
}

/// Nobody waits for a call of this loan any more.
#[napi]
pub fn quick_abandoned(key: u32) {
    loans::abandon(key);
}

fn go_on(failed: Option<(Arc<[Layer]>, Failure<Thrown>)>) -> napi::Result<Word> {
    match failed {
        Some((layers, failure)) if matches!(layers.first(), Some(Layer::Retry(_))) => {
            begin_after_failure(layers, failure)
        }
        _ => Ok(1 << 3 | FAILED),
    }
}

/// Begins to wait for when calls of this guard that begin now are overdue.
fn begin_deadline(number: u32) -> napi::Result<Word> {
    let timeout = with_layers(number, |layers| loans::shortest(&layers.all).map(|(_, timeout)| timeout.clone()))?;
    let Some(timeout) = timeout else { return Err(napi::Error::from_reason("there is no timeout")) };
    let deadline = timeout.begin();
    begin(true, |_| {
        Running::Ours(Box::pin(async move {
            deadline.passed().await;
            Answer::Failed(Failure::Resil(Error::Timeout { after: timeout.after() }))
        }))
    })
}

/// Nobody has to be told any more.
fn end_deadline(key: u32) -> napi::Result<Word> {
    // What waits for nothing but the time has no orders.
    cancel(key).map(|_| 0)
}

/// Adds them to what the library exports.
#[napi(module_exports)]
pub fn export_quick(mut exports: Object<'_>, env: Env) -> napi::Result<()> {
    type Callback = unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;
    let all: [(&str, Callback); 7] = [
        ("beginDeadline", begin_deadline_raw),
        ("endDeadline", end_deadline_raw),
        ("beginCall", begin_call_raw),
        ("askLeave", ask_leave_raw),
        ("endTurn", end_turn_raw),
        ("quickOk", quick_ok_raw),
        ("settleOk", settle_ok_raw),
    ];
    for (name, callback) in all {
        let mut function = null_mut();
        // SAFETY: `env` is of the call that is under way; the callback is a static function of the right type.
        let status = unsafe {
            sys::napi_create_function(
                env.raw(),
                name.as_ptr().cast(),
                name.len() as isize,
                Some(callback),
                null_mut(),
                &mut function,
            )
        };
        if status != sys::Status::napi_ok {
            return Err(napi::Error::new(napi::Status::from(status), "Node refused to make a function"));
        }
        // SAFETY: the function was just made by this environment.
        let function = unsafe { napi::bindgen_prelude::Unknown::from_raw_unchecked(env.raw(), function) };
        exports.set(name, function)?;
    }
    Ok(())
}

/// The first `N` arguments as numbers. What is no number is 0.
///
/// # Safety
/// `env` and `info` have to be those of the callback that is under way.
unsafe fn numbers<const N: usize>(env: sys::napi_env, info: sys::napi_callback_info) -> [u32; N] {
    let mut values = [null_mut(); N];
    let mut count = N;
    // SAFETY: there is room for `count` values.
    unsafe { sys::napi_get_cb_info(env, info, &mut count, values.as_mut_ptr(), null_mut(), null_mut()) };
    values.map(|value| {
        let mut number = 0;
        // SAFETY: a value of this call; what was not given is undefined.
        unsafe { sys::napi_get_value_uint32(env, value, &mut number) };
        number
    })
}

/// # Safety
/// `env` has to be that of the callback that is under way.
unsafe fn answer(env: sys::napi_env, run: impl FnOnce() -> napi::Result<Word>) -> sys::napi_value {
    let error = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(word)) => {
            let mut value = null_mut();
            // SAFETY: see above.
            unsafe { sys::napi_create_uint32(env, word, &mut value) };
            return value;
        }
        Ok(Err(error)) => error.reason.to_string(),
        Err(panic) => {
            std::mem::forget(panic);
            "a call panicked".to_owned()
        }
    };
    let text = std::ffi::CString::new(error).unwrap_or_default();
    // SAFETY: the text ends with a zero, and is copied.
    unsafe { sys::napi_throw_error(env, c"INTERNAL".as_ptr(), text.as_ptr()) };
    null_mut()
}

unsafe extern "C" fn begin_call_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [number] = numbers(env, info);
        answer(env, || begin_call(number))
    }
}

unsafe extern "C" fn settle_ok_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [key, id] = numbers(env, info);
        answer(env, || settle(key, id, Ok(Done { id, bytes: None })))
    }
}

unsafe extern "C" fn ask_leave_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [number, ok] = numbers(env, info);
        answer(env, || ask_leave(number, ok))
    }
}

unsafe extern "C" fn begin_deadline_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [number] = numbers(env, info);
        answer(env, || begin_deadline(number))
    }
}

unsafe extern "C" fn end_deadline_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [key] = numbers(env, info);
        answer(env, || end_deadline(key))
    }
}

unsafe extern "C" fn end_turn_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [number, ok, unused] = numbers(env, info);
        answer(env, || end_turn(number, ok, unused))
    }
}

unsafe extern "C" fn quick_ok_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [key] = numbers(env, info);
        answer(env, || {
            loans::succeed(key);
            Ok(0)
        })
    }
}
