//! `RES.WINDOW` and `RES.WINDOW.PEEK`.

use std::ffi::c_void;

use resil_core::window::{Window, step};
use resil_wire::command::Page;
use resil_wire::gcra::LimitReply;
use resil_wire::pages;
use resil_wire::window::Windowed;

use super::gcra::count;
use crate::apply::{edit_plain, publish_plain};
use crate::call::{Call, Command, Failure, parse};
use crate::clock;
use crate::datatype::boxed::Boxed;
use crate::edge::replication::notify;
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
        let value = key.value::<Boxed<Window>>()?;
        let empty = Window::default();
        let window = log_or(value, &empty);
        let step = step(window, request.rule, request.ask, now);
        if let Some(change) = step.change {
            if value.is_none() || window.would_grow(&change) {
                call.require_memory()?;
            }
            edit_plain::<Window>(&mut key, value, change);
            publish_plain::<Window>(call, &key, &change, value.is_none());
            notify(call, &key, c"res.window.take");
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
        let step = Boxed::look(&key, |window: &Window| step(window, request.rule, request.ask, now))?;
        count(&counters().window, request.ask, &step.verdict);
        LimitReply::from(&step.verdict).write(&mut call.reply());
        Ok(())
    }
}

fn log_or(value: Option<*mut c_void>, empty: &Window) -> &Window {
    // SAFETY: the value came from a key of this type that is still open; it is read before it is changed.
    value.map_or(empty, |value| unsafe { Boxed::get(value) })
}
