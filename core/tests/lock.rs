//! Locks and bulkheads beside a model that is as naive as the contract reads, and held against what they promise.
//!
//! How to repeat a failing run: see `seed`.

#[path = "lock/bytes.rs"]
mod bytes;
#[path = "lock/clocks.rs"]
mod clocks;
#[path = "lock/crowd.rs"]
mod crowd;
#[path = "damage/mod.rs"]
mod damage;
#[path = "lock/driver.rs"]
mod driver;
#[path = "lock/fences.rs"]
mod fences;
#[path = "lock/grace.rs"]
mod grace;
#[path = "lock/key.rs"]
mod key;
#[path = "lock/model.rs"]
mod model;
#[path = "lock/owners.rs"]
mod owners;
#[path = "lock/promises.rs"]
mod promises;
#[path = "lock/queue.rs"]
mod queue;
#[path = "lock/raise.rs"]
mod raise;
#[path = "lock/said.rs"]
mod said;
#[path = "lock/schedule.rs"]
mod schedule;
#[path = "seed/mod.rs"]
mod seed;
#[path = "lock/sessions.rs"]
mod sessions;

use proptest::prelude::*;

use driver::Driver;
use key::START;
use model::Model;
use schedule::{calm, wild};

proptest! {
    #![proptest_config(seed::config())]

    /// Verdicts, replies, endings, fences, the queue and the next timer; on the machine, on a replica and in its bytes.
    #[test]
    fn a_lock_does_exactly_what_the_contract_says(events in calm()) {
        beside_the_model(false, &events)?;
    }

    #[test]
    fn a_bulkhead_does_exactly_what_the_contract_says(events in calm()) {
        beside_the_model(true, &events)?;
    }

    /// Clocks set back, restarts, promotions, deletions.
    #[test]
    fn whatever_happens_the_server_keeps_the_contract(bulkhead: bool, events in wild()) {
        beside_the_model(bulkhead, &events)?;
    }
}

fn beside_the_model(bulkhead: bool, events: &[schedule::Event]) -> Result<(), TestCaseError> {
    let mut driver = Driver::new(bulkhead);
    let mut model = Model::new(bulkhead, START);
    for event in events {
        driver.play_beside(&mut model, event)?;
    }
    Ok(())
}
