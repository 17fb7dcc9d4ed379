//! `RES.WINDOW` and `RES.WINDOW.PEEK`.

use resil_core::window::{Window, step};
use resil_wire::gcra::LimitReply;
use resil_wire::window::Windowed;

use super::gcra::count;
use crate::apply::step_plain;
use crate::call::{Call, Failure};
use crate::clock;
use crate::datatype::boxed::Boxed;
use crate::denials::{self, Refuser};
use crate::info::counters;
use crate::key::Key;

pub fn window(call: &Call<'_>, request: Windowed<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let take = |window: &Window| step(window, request.rule, request.ask, now);
    let verdict = step_plain(call, c"res.window.take", take)?;
    if count(&counters().window, request.ask, &verdict) {
        denials::note(|| call.db(), Refuser::Limit, request.key);
    }
    LimitReply::from(&verdict).write(&mut call.reply());
    Ok(())
}

pub fn window_peek(call: &Call<'_>, request: Windowed<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let key = Key::open_to_read(call, call.string(0)?);
    let step = Boxed::look(&key, |window: &Window| step(window, request.rule, request.ask, now))?;
    count(&counters().window, request.ask, &step.verdict);
    LimitReply::from(&step.verdict).write(&mut call.reply());
    Ok(())
}
