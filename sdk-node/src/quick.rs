//! The short way of nearly every call: it is let in at once, it succeeds, and nothing is made for it.
//!
//! A retry, and breakers and bulkheads that can say yes at once, need no future for a call that succeeds: they are asked
//! when it begins and told when it ends. A call that fails goes on in a future from there: what was let in is told, and the
//! retry begins with the failure. Whoever cannot say yes at once is asked by a future from the beginning.
//!
//! These functions are without the wrapper around the others, whose bookkeeping costs as much as the whole call: numbers in,
//! a number out.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Arc;

use napi::bindgen_prelude::{Env, Object};
use napi::sys;
use napi_derive::napi;
use resil::Failure;
use resil::breaker::Admission;
use resil::policy::BulkheadPermit;
use smallvec::SmallVec;

use crate::errors::{OwnError, own};
use crate::executor::desk::Done;
use crate::executor::{FAILED, QUICK, Word, settle};
use crate::guard::{Layer, Layers, begin_after_failure, begin_call, with_layers};
use crate::thrown::Thrown;

/// What a layer holds while the function runs.
enum Hold {
    Nothing,
    /// Given back when it is dropped.
    Place {
        _permit: BulkheadPermit,
    },
    Leave(Admission),
}

/// A call on its short way.
struct Quick {
    layers: Arc<[Layer]>,
    /// One for each layer.
    holds: SmallVec<[Hold; 3]>,
}

#[derive(Default)]
struct Calls {
    all: Vec<Option<Quick>>,
    free: Vec<u32>,
}

thread_local! {
    static CALLS: RefCell<Calls> = const { RefCell::new(Calls { all: Vec::new(), free: Vec::new() }) };
}

/// The thread goes away, and what it held is given back.
pub fn close() {
    let calls = CALLS.try_with(RefCell::take);
    drop(calls);
}

/// Lets the call in if every layer can say so at once.
fn enter(layers: &Layers) -> Option<Quick> {
    if !layers.may_be_quick {
        return None;
    }
    let hold = |layer: &Layer| match layer {
        Layer::Retry(_) => Some(Hold::Nothing),
        Layer::Breaker(breaker) => breaker.admit_at_once().map(Hold::Leave),
        Layer::Bulkhead(bulkhead) => {
            // Looked at first: who is refused is counted.
            let metrics = bulkhead.metrics();
            let has_room = metrics.available > 0 && metrics.queued == 0;
            if has_room { bulkhead.try_acquire().ok().map(|_permit| Hold::Place { _permit }) } else { None }
        }
        _ => None,
    };
    let holds = layers.all.iter().map(hold).collect::<Option<_>>()?;
    Some(Quick { layers: Arc::clone(&layers.all), holds })
}

/// Begins the call whichever way it can.
fn begin_quickly(number: u32) -> napi::Result<Word> {
    let Some(quick) = with_layers(number, enter)? else { return begin_call(number) };
    Ok(CALLS.with_borrow_mut(|calls| {
        let key = calls.free.pop().unwrap_or_else(|| {
            calls.all.push(None);
            (calls.all.len() - 1) as u32
        });
        calls.all[key as usize] = Some(quick);
        key << 3 | QUICK
    }))
}

fn take(key: u32) -> Option<Quick> {
    CALLS.with_borrow_mut(|calls| {
        let quick = calls.all.get_mut(key as usize)?.take()?;
        calls.free.push(key);
        Some(quick)
    })
}

impl Quick {
    /// Tells every layer, the innermost first.
    fn tell(self, result: &Result<(), Failure<Thrown>>) {
        for (index, (layer, hold)) in self.layers.iter().zip(self.holds).enumerate().rev() {
            match (layer, hold) {
                (_, Hold::Leave(leave)) => leave.tell(&|thrown: &Thrown| thrown.class(index), result),
                // One that goes on counts the call itself.
                (Layer::Retry(retry), _) if result.is_ok() => {
                    if let Some(budget) = retry.budget() {
                        budget.count_call();
                    }
                }
                (_, hold) => drop(hold),
            }
        }
    }
}

/// The call succeeded.
fn succeed(key: u32) -> napi::Result<Word> {
    if let Some(quick) = take(key) {
        quick.tell(&Ok(()));
    }
    Ok(0)
}

/// The function failed: see `settle_failed`. How the call goes on, as that of attempt 1 having failed.
#[napi]
pub fn quick_failed(key: u32, classes: Vec<f64>, message: String, own_error: Option<OwnError>) -> napi::Result<Word> {
    let Some(quick) = take(key) else { return Ok(FAILED) };
    let failure = match own_error.as_ref().and_then(own) {
        Some(error) => Failure::Resil(error),
        None => {
            let thrown =
                Thrown { classes: Thrown::classes_of(&classes), message: message.into(), ..Thrown::of_attempt(1) };
            Failure::Inner(thrown)
        }
    };
    let layers = Arc::clone(&quick.layers);
    let result = Err(failure);
    quick.tell(&result);
    match (&layers[0], result) {
        (Layer::Retry(_), Err(failure)) => begin_after_failure(layers, failure),
        _ => Ok(1 << 3 | FAILED),
    }
}

/// Adds them to what the library exports.
#[napi(module_exports)]
pub fn export_quick(mut exports: Object<'_>, env: Env) -> napi::Result<()> {
    type Callback = unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;
    let all: [(&str, Callback); 4] = [
        ("beginCall", begin_call_raw),
        ("beginQuickly", begin_quickly_raw),
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

unsafe extern "C" fn begin_quickly_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [number] = numbers(env, info);
        answer(env, || begin_quickly(number))
    }
}

unsafe extern "C" fn quick_ok_raw(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    // SAFETY: called by Node with both.
    unsafe {
        let [key] = numbers(env, info);
        answer(env, || succeed(key))
    }
}
