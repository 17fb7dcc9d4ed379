//! The two functions that every call goes through, without the wrapper around the others: numbers in, a number out.
//!
//! The wrapper's bookkeeping costs as much as the whole call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use napi::bindgen_prelude::{Env, Object};
use napi::sys;
use napi_derive::napi;

use crate::executor::desk::Done;
use crate::executor::{Word, settle};
use crate::guard::begin_call;

/// Adds them to what the library exports.
#[napi(module_exports)]
pub fn export_quick(mut exports: Object<'_>, env: Env) -> napi::Result<()> {
    type Callback = unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;
    let all: [(&str, Callback); 2] = [("beginCall", begin_call_quickly), ("settleOk", settle_ok_quickly)];
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

unsafe extern "C" fn begin_call_quickly(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [number] = numbers(env, info);
        answer(env, || begin_call(number))
    }
}

unsafe extern "C" fn settle_ok_quickly(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [key, id] = numbers(env, info);
        answer(env, || settle(key, id, Ok(Done { id, bytes: None })))
    }
}
