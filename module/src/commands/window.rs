//! `RES.WINDOW` and `RES.WINDOW.PEEK`.

use resil_core::window::{Window, step};
use resil_wire::command::Page;
use resil_wire::gcra::LimitReply;
use resil_wire::pages;
use resil_wire::window::Windowed;

use super::gcra::count;
use crate::apply::{change_log, publish_log_change};
use crate::call::{Call, Command, Failure, parse};
use crate::clock;
use crate::datatype::Value;
use crate::datatype::boxed::Log;
use crate::info::counters;
use crate::key::Key;

pub struct TakeWindow;

impl Command for TakeWindow {
    const PAGE: &'static Page = &pages::WINDOW;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let request: Windowed<'_> = parse::<Self, _>(&args)?;
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
}

pub struct PeekWindow;

impl Command for PeekWindow {
    const PAGE: &'static Page = &pages::WINDOW_PEEK;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let request: Windowed<'_> = parse::<Self, _>(&args)?;
        let now = clock::now();
        let key = Key::open_to_read(call, call.string(0)?);
        let empty = Window::default();
        let value = key.value::<Log>()?;
        let step = step(value.as_ref().map_or(&empty, Value::get), request.rule, request.ask, now);
        count(&counters().window, request.ask, &step.verdict);
        LimitReply::from(&step.verdict).write(&mut call.reply());
        Ok(())
    }
}
