//! The only file with unsafe code: the calls of Node-API that the wrapper does not offer.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use napi::bindgen_prelude::{Env, Function, JsValue, ToNapiValue, Uint32Array, Undefined, Unknown};
use napi::sys;
use parking_lot::Mutex;

/// Calls a function of JavaScript on its own thread, from any thread. The wrapper's threadsafe function cannot start and stop
/// keeping the process alive.
pub struct Signal(Mutex<Option<Threadsafe>>);

struct Threadsafe(sys::napi_threadsafe_function);

// SAFETY: a threadsafe function exists to be called from every thread.
unsafe impl Send for Threadsafe {}

impl Signal {
    pub fn new(env: &Env, function: &Function<'_, (), Undefined>) -> napi::Result<Self> {
        let (mut name, mut made) = (null_mut(), null_mut());
        let (env, function, nothing) = (env.raw(), function.raw(), null_mut());
        // SAFETY: `env` and `function` belong to the current call; the pointers are to locals.
        unsafe {
            check(sys::napi_create_string_utf8(env, c"resil".as_ptr(), 5, &mut name))?;
            let make = sys::napi_create_threadsafe_function;
            check(make(env, function, nothing, name, 0, 1, null_mut(), None, null_mut(), None, &mut made))?;
            check(sys::napi_unref_threadsafe_function(env, made))?;
        }
        Ok(Self(Mutex::new(Some(Threadsafe(made)))))
    }

    /// Nothing happens once the thread is closing.
    pub fn send(&self) {
        if let Some(function) = &*self.0.lock() {
            // SAFETY: the function exists until `close`, which takes the same lock.
            unsafe { sys::napi_call_threadsafe_function(function.0, null_mut(), 1) };
        }
    }

    /// Whether the process has to stay because of this thread. Called on that thread.
    pub fn keep_alive(&self, env: &Env, stays: bool) {
        let Some(function) = &*self.0.lock() else { return };
        // SAFETY: called on the thread of `env`, with a function that still exists.
        unsafe {
            if stays {
                sys::napi_ref_threadsafe_function(env.raw(), function.0);
            } else {
                sys::napi_unref_threadsafe_function(env.raw(), function.0);
            }
        }
    }

    pub fn close(&self) {
        self.0.lock().take();
    }
}

fn check(status: sys::napi_status) -> napi::Result<()> {
    match status {
        sys::Status::napi_ok => Ok(()),
        other => Err(napi::Error::new(napi::Status::from(other), "Node refused to make a threadsafe function")),
    }
}

/// Throws `value`, which need not be an error. What it returns makes the current call end.
pub fn throw(env: &Env, value: Unknown<'_>) -> napi::Error {
    // SAFETY: `env` and `value` belong to the current call.
    unsafe { sys::napi_throw(env.raw(), value.raw()) };
    napi::Error::new(napi::Status::PendingException, String::new())
}

/// `value` as a value of JavaScript.
pub fn to_js<'env>(env: &'env Env, value: impl ToNapiValue) -> napi::Result<Unknown<'env>> {
    // SAFETY: an `Env` exists only on its thread and within a call; the value is made by it.
    unsafe { Ok(Unknown::from_raw_unchecked(env.raw(), ToNapiValue::to_napi_value(env.raw(), value)?)) }
}

/// A number as JavaScript sees it at any time, in an array of one: with `Atomics`, because other threads change it.
pub fn shared_number(number: &Arc<AtomicU32>) -> Uint32Array {
    let kept = Arc::clone(number);
    // SAFETY: the memory is that of an atomic, which may change behind a shared pointer, and is kept until JavaScript has let go of it.
    unsafe { Uint32Array::with_external_data(kept.as_ptr(), 1, move |_, _| drop(kept)) }
}
