//! What a breaker tells of itself: each change of its state once, and its state as it is.

use proptest::prelude::*;
use resil_core::circuit_breaker::{admit, view};

use super::driver::who;
use super::machine::Machine;
use super::schedule::steady;
use super::seed;

proptest! {
    #![proptest_config(seed::config())]

    // Every change of state is reported exactly once, with the state before and the state after.
    // (The machine that plays the schedule compares what was reported with the states at every step.)
    #[test]
    fn each_change_of_state_is_reported_exactly_once(events in steady()) {
        let mut machine = Machine::default();
        for event in &events {
            machine.play(event)?;
        }
    }

    // Property 22: the state that is shown is the one that decides.
    #[test]
    fn the_state_that_is_shown_is_the_one_that_decides(events in steady()) {
        let mut machine = Machine::default();
        for event in &events {
            machine.play(event)?;
            let shown = view(&machine.breaker, machine.now());
            let mut asked = machine.breaker.clone();
            let decided = admit(&mut asked, who(0), None, 0, machine.now()).expect("no options").verdict;
            prop_assert_eq!(shown.admits, decided.permit.is_some(), "{:?}", machine.breaker);
            prop_assert_eq!(shown.retry_after, decided.retry_after);
            // What ADMIT changes is the state that was shown, or the half-open one that follows an open one.
            let (before, after) = (shown.breaker.name(), asked.name());
            prop_assert!(before == after || shown.admits, "{:?} became {:?}", before, after);
        }
    }
}
