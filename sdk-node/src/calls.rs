//! What JavaScript says about calls that are under way: an attempt is settled, a call is cancelled, orders are taken.

use bytes::Bytes;
use napi::bindgen_prelude::{Array, Buffer, Env, Float64ArraySlice, Function, JsValue, Object, Undefined, Unknown};
use napi_derive::napi;
use resil::Failure;

use crate::convert::bigint;
use crate::errors::{OwnError, failure, own, parts};
use crate::executor::desk::{Detail, Done, Order};
use crate::executor::mailbox::Event;
use crate::executor::news::{News, read_letters};
use crate::executor::{self, Answer, Numbers, Word, cancel, open, settle, take, take_forgotten};
use crate::holding::Held;
use crate::thrown::{Kept, Thrown};
use std::sync::Arc;

/// This thread runs calls from now on; `on_wake` is called when there is news.
#[napi]
pub fn open_thread(env: Env, on_wake: Function<'_, (), Undefined>) -> napi::Result<()> {
    open(env.raw(), on_wake.raw())
}

/// The same with the value as it is to be stored; `None`: there is none.
#[napi]
pub fn settle_bytes(key: u32, id: u32, bytes: Option<Buffer>) -> napi::Result<Word> {
    let bytes = bytes.map(|bytes| Bytes::from(bytes.to_vec()));
    settle(key, id, Ok(Done { id, bytes }))
}

/// The attempt threw. `classes`: what that means to each layer. `own`: it is an error of ours. `recorded`: it is final, and
/// this is how it is recorded. `kept`: the number under which JavaScript keeps it for others.
#[napi]
pub fn settle_failed(
    key: u32,
    id: u32,
    classes: Vec<f64>,
    message: String,
    own_error: Option<OwnError>,
    recorded: Option<Buffer>,
    kept: Option<u32>,
) -> napi::Result<Word> {
    if let Some(error) = own_error.as_ref().and_then(own) {
        return settle(key, id, Err(Failure::Resil(error)));
    }
    let recorded = recorded.map(|bytes| Bytes::from(bytes.to_vec()));
    let mailbox = crate::executor::mailbox()?;
    let kept = kept.map(|number| Arc::new(Kept { number, mailbox }));
    let thrown = Thrown { id, classes: Thrown::classes_of(&classes), message: message.into(), recorded, kept };
    settle(key, id, Err(Failure::Inner(thrown)))
}

/// Nobody waits for it any more. What is to be aborted because of that, and what is to be forgotten.
#[napi]
pub fn cancel_call<'env>(env: &'env Env, key: u32) -> napi::Result<Array<'env>> {
    let orders = cancel(key)?;
    let mut both = env.create_array(0)?;
    both.insert(written(env, orders)?)?;
    both.insert(take_forgotten())?;
    Ok(both)
}

/// The numbers under which JavaScript keeps what nobody will ask for any more.
#[napi]
pub fn forgotten() -> Vec<u32> {
    take_forgotten()
}

/// `[orders, answer]` of a call.
#[napi]
pub fn take_orders<'env>(env: &'env Env, key: u32) -> napi::Result<Array<'env>> {
    let (orders, answer) = take(key)?;
    both(env, orders, answer)
}

/// The same of a call that a function of its own looks at: what ends its attempts. `null`: nothing.
#[napi]
pub fn look<'env>(env: &'env Env, key: u32) -> napi::Result<Option<Array<'env>>> {
    let (orders, answer) = executor::look(key)?;
    if orders.is_empty() && answer.is_none() {
        return Ok(None);
    }
    both(env, orders, answer).map(Some)
}

/// Whether nobody waits for this load any more.
#[napi]
pub fn is_load_over(key: u32, id: u32) -> napi::Result<bool> {
    executor::is_aborting(key, id)
}

fn both<'env>(env: &'env Env, orders: Vec<Order>, answer: Option<Answer>) -> napi::Result<Array<'env>> {
    let mut both = env.create_array(0)?;
    both.insert(written(env, orders)?)?;
    if let Some(answer) = answer {
        both.insert(answered(env, answer)?)?;
    }
    Ok(both)
}

/// Everything that came in from other threads: `[kind, number, orders or event, answer]` each. But calls that ended with
/// numbers are put on the tray: how many first, then of each its key and its numbers.
#[napi]
pub fn read_news<'env>(env: &'env Env, mut tray: Float64ArraySlice<'_>) -> napi::Result<Array<'env>> {
    // SAFETY: nothing of JavaScript runs before this returns, so nobody else looks at it.
    let tray = unsafe { tray.as_mut() };
    let mut all = env.create_array(0)?;
    let (count, mut places) = match tray.split_first_mut() {
        Some((count, rest)) => (count, rest.chunks_exact_mut(1 + size_of::<Numbers>() / size_of::<f64>())),
        None => return Err(napi::Error::from_reason("there is no tray")),
    };
    *count = 0.0;
    for news in read_letters()? {
        if let News::Call { key, answer: Some(Answer::Numbers(numbers)), .. } = &news
            && let Some(place) = places.next()
        {
            place[0] = f64::from(*key);
            place[1..].copy_from_slice(numbers);
            *count += 1.0;
            continue;
        }
        let mut one = env.create_array(0)?;
        match news {
            News::Call { key, orders, answer } => {
                one.insert(0)?;
                one.insert(key)?;
                one.insert(written(env, orders)?)?;
                if let Some(answer) = answer {
                    one.insert(answered(env, answer)?)?;
                }
            }
            News::Load { key, orders } => {
                one.insert(1)?;
                one.insert(key)?;
                one.insert(written(env, orders)?)?;
            }
            News::Event(number, event) => {
                one.insert(2)?;
                one.insert(number)?;
                one.insert(happened(env, event)?)?;
            }
            News::Forget(number) => {
                one.insert(3)?;
                one.insert(number)?;
            }
        }
        all.insert(one)?;
    }
    Ok(all)
}

/// `[0, id, detail]`: start it. `[1, id]`: abort it. `[2, id]`: abort its signal, and wait for it.
fn written<'env>(env: &'env Env, orders: Vec<Order>) -> napi::Result<Array<'env>> {
    let mut all = env.create_array(0)?;
    for order in orders {
        let mut one = env.create_array(0)?;
        match order {
            Order::Start(id, detail) => {
                one.insert(0)?;
                one.insert(id)?;
                if let Some(detail) = detail {
                    one.insert(told(env, &detail)?)?;
                }
            }
            Order::Abort(id) => {
                one.insert(1)?;
                one.insert(id)?;
            }
            Order::Warn(id) => {
                one.insert(2)?;
                one.insert(id)?;
            }
        }
        all.insert(one)?;
    }
    Ok(all)
}

fn told<'env>(env: &'env Env, detail: &Detail) -> napi::Result<Object<'env>> {
    let mut object = Object::new(env)?;
    if let Some(fence) = detail.fence {
        object.set("fence", bigint(fence))?;
    }
    if let Some(held) = &detail.held {
        object.set("held", Held::of(held.clone()))?;
    }
    if detail.attempt > 0 {
        object.set("attempt", detail.attempt)?;
    }
    if let Some(item) = detail.item {
        object.set("item", item)?;
    }
    if let Some(kept) = detail.kept {
        object.set("kept", kept)?;
    }
    if let Some(failed) = &detail.failure {
        object.set("failure", failure(env, failed)?)?;
        object.set("layer", detail.layer)?;
    }
    Ok(object)
}

/// `[0, id]`: the value of that attempt. `[1, failure]`. `[2, value]`.
fn answered<'env>(env: &'env Env, answer: Answer) -> napi::Result<Array<'env>> {
    let mut one = env.create_array(0)?;
    match answer {
        Answer::Attempt(id) => {
            one.insert(0)?;
            one.insert(id)?;
        }
        Answer::Failed(failed) => {
            one.insert(1)?;
            one.insert(failure(env, &failed)?)?;
        }
        Answer::Value(convert) => {
            one.insert(2)?;
            // SAFETY: the value was made by this environment, in this call.
            one.insert(unsafe { Unknown::from_raw_unchecked(env.raw(), convert(env)?) })?;
        }
        Answer::Numbers(numbers) => {
            one.insert(2)?;
            one.insert(numbers.to_vec())?;
        }
    }
    Ok(one)
}

fn happened<'env>(env: &'env Env, event: Event) -> napi::Result<Object<'env>> {
    match event {
        Event::Transition(previous, new, generation) => {
            let mut object = Object::new(env)?;
            object.set("previous", previous)?;
            object.set("new", new)?;
            object.set("generation", bigint(generation))?;
            Ok(object)
        }
        Event::Lost(error) => parts(env, &error),
        Event::Away { address, reason } => {
            let mut object = Object::new(env)?;
            object.set("address", address)?;
            object.set("reason", reason)?;
            Ok(object)
        }
    }
}
