//! The circuit breaker beside a model that is as naive as the contract reads, and held against what it promises.
//!
//! How to repeat a failing run: see `seed`.

#[path = "breaker/bytes.rs"]
mod bytes;
#[path = "damage/mod.rs"]
mod damage;
#[path = "breaker/driver.rs"]
mod driver;
#[path = "breaker/machine.rs"]
mod machine;
#[path = "breaker/model/mod.rs"]
mod model;
#[path = "breaker/promises.rs"]
mod promises;
#[path = "breaker/regressions.rs"]
mod regressions;
#[path = "breaker/reported.rs"]
mod reported;
#[path = "breaker/schedule.rs"]
mod schedule;
#[path = "seed/mod.rs"]
mod seed;
#[path = "breaker/sentences.rs"]
mod sentences;
#[path = "breaker/service.rs"]
mod service;

use proptest::prelude::*;

use driver::Driver;
use machine::Machine;
use schedule::{steady, unsteady};

proptest! {
    #![proptest_config(seed::config())]

    // Property 1: closed, open, half-open and closed again by the table of transitions, whatever happens.
    /// Verdicts, waits, counts, transitions, generations, configuration; on the machine, on a replica and after every
    /// restart.
    #[test]
    fn it_does_exactly_what_the_contract_says(events in steady()) {
        let mut driver = Driver::default();
        for event in &events {
            driver.play(event)?;
        }
    }

    /// Wherever the clock is set to, in whatever state: an open time, a lease, a ramp, a forced state, a window and
    /// idleness last as long as they would have, and not longer.
    #[test]
    fn no_clock_step_freezes_a_breaker(events in unsteady()) {
        let mut machine = Machine::default();
        for event in &events {
            machine.play(event)?;
            machine.nothing_lasts_longer_than_its_length()?;
        }
    }
}
