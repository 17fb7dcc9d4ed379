//! Single flight beside a model that is as naive as the contract reads, and held against what it promises.
//!
//! How to repeat a failing run: see `seed`.

#[path = "single_flight/bytes.rs"]
mod bytes;
#[path = "single_flight/clocks.rs"]
mod clocks;
#[path = "damage/mod.rs"]
mod damage;
#[path = "single_flight/driver.rs"]
mod driver;
#[path = "idempotency/gaps.rs"]
mod gaps;
#[path = "single_flight/key.rs"]
mod key;
#[path = "single_flight/model.rs"]
mod model;
#[path = "single_flight/promises.rs"]
mod promises;
#[path = "single_flight/schedule.rs"]
mod schedule;
#[path = "seed/mod.rs"]
mod seed;
#[path = "single_flight/sentences.rs"]
mod sentences;

use proptest::prelude::*;

use driver::Driver;
use gaps::START;
use model::Model;
use schedule::{calm, wild};

proptest! {
    #![proptest_config(seed::config())]

    /// Verdicts, replies, endings, fences, the queue and the next timer; on the machine, on a replica and in its bytes.
    #[test]
    fn a_flight_does_exactly_what_the_contract_says(events in calm()) {
        beside_the_model(&events)?;
    }

    /// Clocks set back, restarts, promotions, deletions.
    #[test]
    fn whatever_happens_the_server_keeps_the_contract(events in wild()) {
        beside_the_model(&events)?;
    }
}

fn beside_the_model(events: &[schedule::Event]) -> Result<(), TestCaseError> {
    let mut driver = Driver::default();
    let mut model = Model::new(START);
    for event in events {
        driver.play_beside(&mut model, event)?;
    }
    Ok(())
}
