//! `RES.WINDOW` and `RES.WINDOW.PEEK`.

use resil_core::window::{Window, step};
use resil_wire::gcra::LimitReply;
use resil_wire::window::Windowed;

use super::gcra::count;
use crate::apply::{change_log, publish_log_change};
use crate::call::{Call, Failure};
use crate::clock;
use crate::datatype::Value;
use crate::datatype::boxed::Log;
use crate::info::counters;
use crate::key::Key;

pub fn window(call: &Call<'_>, request: Windowed<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut key = Key::open_to_write(call, call.string(0)?);
    let value = key.value::<Log>()?;
    let empty = Window::default();
    let window = value.as_ref().map_or(&empty, Value::get);
    let step = step(window, request.rule, request.ask, now);
    if let Some(change) = step.change {
        if value.is_none() || window.would_grow(&change) {
            call.require_memory()?;
        }
        change_log(&mut key, value, &change);
        publish_log_change(call, &key, &change, value.is_none(), c"res.window.take");
    }
    count(&counters().window, request.ask, &step.verdict);
    LimitReply::from(&step.verdict).write(&mut call.reply());
    Ok(())
}

pub fn window_peek(call: &Call<'_>, request: Windowed<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let key = Key::open_to_read(call, call.string(0)?);
    let empty = Window::default();
    let value = key.value::<Log>()?;
    let step = step(value.as_ref().map_or(&empty, Value::get), request.rule, request.ask, now);
    count(&counters().window, request.ask, &step.verdict);
    LimitReply::from(&step.verdict).write(&mut call.reply());
    Ok(())
}
