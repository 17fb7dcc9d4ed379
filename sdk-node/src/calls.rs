//! The way between JavaScript and the executor: outcomes of attempts in, events out.

use bytes::Bytes;
use napi::bindgen_prelude::{Array, Buffer, Env, Function, Object, ToNapiValue, Undefined};
use napi_derive::napi;
use resil::Failure;
use std::sync::Arc;

use crate::convert::bigint;
use crate::edge::{Signal, to_js};
use crate::errors::{OwnError, failure, own, parts};
use crate::executor::attempt::{Detail, Done};
use crate::executor::queue::Notification;
use crate::executor::{self, Event, Outcome, Word};
use crate::holding::Held;
use crate::thrown::{Kept, Thrown};

/// This thread runs calls from now on; `on_wake` is called when there are messages for it.
#[napi]
pub fn open_thread(env: Env, on_wake: Function<'_, (), Undefined>) -> napi::Result<()> {
    executor::open(env, Signal::new(&env, &on_wake)?)
}

/// The attempt succeeded. `bytes`: its value, if that is stored. `classes`: what the value means to each layer, if it is a failure to any.
#[napi]
pub fn settle(call: u32, attempt: u32, bytes: Option<Buffer>, classes: Option<Vec<f64>>) -> napi::Result<Word> {
    let bytes = bytes.map(|bytes| Bytes::from(bytes.to_vec()));
    executor::settle(
        call,
        attempt,
        Ok(Done {
            id: attempt,
            bytes,
            unfit: classes.map_or_else(Default::default, |classes| Thrown::unfit_of(&classes)),
        }),
    )
}

/// The attempt threw. `classes`: what that means to each layer. `own_error`: it is an error of ours. `recorded`: it is final,
/// and is recorded like this. `kept`: the number under which JavaScript keeps it for others. `cut_short`: it says that nobody knows what
/// the function did.
#[allow(clippy::too_many_arguments)]
#[napi]
pub fn settle_failed(
    call: u32,
    attempt: u32,
    classes: Vec<f64>,
    message: String,
    own_error: Option<OwnError>,
    recorded: Option<Buffer>,
    kept: Option<u32>,
    cut_short: bool,
) -> napi::Result<Word> {
    if cut_short {
        executor::cut_short(call)?;
    }
    // Forgotten with its last owner, also where nobody needs it.
    let queue = executor::queue()?;
    let kept = kept.map(|number| Arc::new(Kept { number, queue }));
    if let Some(error) = own_error.as_ref().and_then(own) {
        return executor::settle(call, attempt, Err(Failure::Resil(error)));
    }
    let recorded = recorded.map(|bytes| Bytes::from(bytes.to_vec()));
    let classes = Thrown::classes_of(&classes);
    let thrown = Thrown { id: attempt, classes, message: message.into(), recorded, kept };
    executor::settle(call, attempt, Err(Failure::Inner(thrown)))
}

/// What JavaScript has to do after a word said so. Four values for each event; see `written`.
#[napi]
pub fn take_events(env: &Env) -> napi::Result<Array<'_>> {
    written(env, executor::take_events()?)
}

/// The same after messages from other threads were read.
#[napi]
pub fn receive(env: &Env) -> napi::Result<Array<'_>> {
    written(env, executor::receive()?)
}

/// The same after a look at a call from inside of one of its functions.
#[napi]
pub fn look(env: &Env, call: u32) -> napi::Result<Array<'_>> {
    written(env, executor::look(call)?)
}

/// The same after a call was cancelled.
#[napi]
pub fn cancel_call(env: &Env, call: u32) -> napi::Result<Array<'_>> {
    written(env, executor::cancel(call)?)
}

/// `0, call, attempt, detail`: start it. `1, call, attempt, reason`: abort it. `2, call, attempt`: abort its signal alone.
/// `3, call, attempt`: ended with its value. `4, call, failure`. `5, call, value`. `6, listener, what`. `7, number`: forget it.
fn written(env: &Env, events: Vec<Event>) -> napi::Result<Array<'_>> {
    let mut all = Writer { env, array: env.create_array(0)?, at: 0 };
    for event in events {
        match event {
            Event::Start(call, attempt, None) => all.push(0, call, attempt, ())?,
            Event::Start(call, attempt, Some(detail)) => all.push(0, call, attempt, described(env, &detail)?)?,
            Event::Abort(call, attempt, reason) => {
                all.push(1, call, attempt, reason.map(|error| parts(env, &error)).transpose()?)?;
            }
            Event::Warn(call, attempt) => all.push(2, call, attempt, ())?,
            Event::End(call, Outcome::Attempt(attempt)) => all.push(3, call, attempt, ())?,
            Event::End(call, Outcome::Failed(failed)) => all.push(4, call, failure(env, &failed)?, ())?,
            Event::End(call, Outcome::Value(convert)) => all.push(5, call, convert(env)?, ())?,
            Event::Notify(listener, what) => all.push(6, listener, happened(env, what)?, ())?,
            Event::Forget(number) => all.push(7, number, (), ())?,
        }
    }
    Ok(all.array)
}

struct Writer<'env> {
    env: &'env Env,
    array: Array<'env>,
    at: u32,
}

impl Writer<'_> {
    fn push(&mut self, kind: u32, number: u32, what: impl ToNapiValue, more: impl ToNapiValue) -> napi::Result<()> {
        self.array.set(self.at, kind)?;
        self.array.set(self.at + 1, number)?;
        self.array.set(self.at + 2, to_js(self.env, what)?)?;
        self.array.set(self.at + 3, to_js(self.env, more)?)?;
        self.at += 4;
        Ok(())
    }
}

fn described<'env>(env: &'env Env, detail: &Detail) -> napi::Result<Object<'env>> {
    let mut object = Object::new(env)?;
    object.set("fence", detail.fence.map(bigint))?;
    object.set("held", detail.held.clone().map(Held::of))?;
    object.set("attempt", Some(detail.attempt).filter(|attempt| *attempt > 0))?;
    object.set("item", detail.item)?;
    object.set("ask", detail.ask)?;
    object.set("status", detail.status)?;
    object.set("kept", detail.kept)?;
    if let Some(failed) = &detail.failure {
        object.set("failure", failure(env, failed)?)?;
        object.set("layer", detail.layer)?;
    }
    Ok(object)
}

fn happened(env: &Env, what: Notification) -> napi::Result<Object<'_>> {
    let mut object = Object::new(env)?;
    match what {
        Notification::Transition(previous, new, generation) => {
            object.set("previous", previous)?;
            object.set("new", new)?;
            object.set("generation", bigint(generation))?;
        }
        Notification::Back { address } => object.set("back", address)?,
        Notification::Outlived { policy, took } => {
            object.set("outlived", &*policy)?;
            object.set("tookMs", took.as_secs_f64() * 1e3)?;
        }
        Notification::SourceAway { name, address, reason } => {
            object.set("source", &*name)?;
            object.set("address", address)?;
            object.set("reason", reason)?;
        }
        Notification::SourceBack { name, address } => {
            object.set("source", &*name)?;
            object.set("back", address)?;
        }
        Notification::Dead { worker, id, deaths, reason } => {
            object.set("worker", &*worker)?;
            object.set("id", id)?;
            object.set("deaths", deaths)?;
            object.set("reason", reason)?;
        }
        Notification::NotRecorded { worker, id, reason } => {
            object.set("worker", &*worker)?;
            object.set("id", id)?;
            object.set("reason", reason)?;
        }
        Notification::Event(event) => return crate::telemetry::shown(env, &event),
        Notification::Calls(calls) => return crate::telemetry::shown_calls(env, &calls),
        Notification::Lost(error) => return parts(env, &error),
        Notification::Away { address, reason } => {
            object.set("address", address)?;
            object.set("reason", reason)?;
        }
        Notification::Refused { address, reason } => {
            object.set("address", address)?;
            object.set("refused", reason)?;
        }
    }
    Ok(object)
}
