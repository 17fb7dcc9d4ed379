//! Idempotency keys beside a model that is as naive as the contract reads, and held against what they promise.
//!
//! How to repeat a failing run: see `seed`.

#[path = "idempotency/bytes.rs"]
mod bytes;
#[path = "idempotency/clocks.rs"]
mod clocks;
#[path = "damage/mod.rs"]
mod damage;
#[path = "idempotency/driver.rs"]
mod driver;
#[path = "idempotency/gaps.rs"]
mod gaps;
#[path = "idempotency/key.rs"]
mod key;
#[path = "idempotency/model.rs"]
mod model;
#[path = "idempotency/promises.rs"]
mod promises;
#[path = "idempotency/schedule.rs"]
mod schedule;
#[path = "seed/mod.rs"]
mod seed;
#[path = "idempotency/sentences.rs"]
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
    fn an_idempotency_key_does_exactly_what_the_contract_says(events in calm()) {
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
