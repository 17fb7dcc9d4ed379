//! `RES._CLOCK`: sets the module's clock. It exists only with the load argument `test-clock`.

use resil_wire::argv::Argv;

use crate::call::{Call, Command, Failure};
use crate::{background, clock};

pub struct Clock;

impl Command for Clock {
    const PAGE: &'static str = include_str!("../../../commands/res._clock.json");

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let mut argv = Argv::new(&args, "RES._CLOCK microseconds (0: the real clock)");
        let us = argv.number("microseconds", 0..=clock::LATEST_US)?;
        argv.finish()?;
        clock::set(us);
        background::clock_was_set();
        call.reply_ok();
        Ok(())
    }
}
