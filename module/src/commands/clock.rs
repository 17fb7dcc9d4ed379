//! `RES._CLOCK`: sets the module's clock. It exists only with the load argument `test-clock`.

use resil_wire::argv::Argv;
use resil_wire::bound::Number;
use resil_wire::command::Page;
use resil_wire::pages;

use crate::call::{Call, Command, Failure};
use crate::{background, clock};

pub struct Clock;

impl Command for Clock {
    const PAGE: &'static Page = &pages::CLOCK;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let mut argv = Argv::new(&args, Self::PAGE);
        let us = Number::new("microseconds", 0..=clock::LATEST_US).take(&mut argv)?;
        argv.finish()?;
        clock::set(us);
        clock::watch();
        background::clock_was_set();
        call.reply_ok();
        Ok(())
    }
}
