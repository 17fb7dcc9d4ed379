//! `RES.WINDOW` and `RES.WINDOW.PEEK`.

use resil_core::window::{Window, step};
use resil_wire::command::Page;
use resil_wire::gcra::LimitReply;
use resil_wire::pages;
use resil_wire::window::Windowed;

use super::gcra::count;
use crate::apply::step_plain;
use crate::call::{Call, Command, Failure, parse};
use crate::clock;
use crate::datatype::boxed::Boxed;
use crate::info::counters;
use crate::key::Key;

pub struct TakeWindow;

impl Command for TakeWindow {
    const PAGE: &'static Page = &pages::WINDOW;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let request: Windowed<'_> = parse::<Self, _>(&args)?;
        let now = clock::now();
        let take = |window: &Window| step(window, request.rule, request.ask, now);
        let verdict = step_plain(call, c"res.window.take", take)?;
        count(&counters().window, request.ask, &verdict);
        LimitReply::from(&verdict).write(&mut call.reply());
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
