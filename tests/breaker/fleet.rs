//! The figure a shared breaker is for: how many calls a fleet of fifty makes in vain before all of it stops.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use resil_core::Instant;
use resil_core::circuit_breaker::{Breaker as Machine, Caller, Report, admit, report};

use crate::asked::Breaker;
use crate::driven::{START_US, Say, start_driven};
use crate::seed::say;

const CALLERS: usize = 50;
const THRESHOLD: usize = 5;

#[test]
fn a_failing_fleet_makes_threshold_plus_in_flight_calls() {
    for round in 0..5 {
        let (server, mut connection) = start_driven();
        connection.config(&format!("dead CONSECUTIVE {THRESHOLD} RATE 0"));
        let (start, doomed) = (Barrier::new(CALLERS), AtomicUsize::new(0));
        let caller = |number: usize| {
            let mut mine = server.connect();
            start.wait();
            loop {
                let admission = mine.admit(&format!("dead CALLER {number}"));
                let Some(permit) = &admission.permit else { return };
                doomed.fetch_add(1, SeqCst);
                mine.report("dead", permit, "FAIL");
            }
        };
        let caller = &caller;
        thread::scope(|scope| (0..CALLERS).for_each(|number| drop(scope.spawn(move || caller(number)))));
        let doomed = doomed.into_inner();
        say(&format!(
            "fleet, round {round}: {CALLERS} callers at once made {doomed} doomed calls before all stopped \
             (threshold {THRESHOLD}, {} in flight when it tripped; {} with local breakers)",
            doomed - THRESHOLD,
            CALLERS * THRESHOLD
        ));
        // Whatever did not count was admitted before the trip and reported after it: it was in flight then.
        let counters = ["breaker_admitted", "breaker_reports_counted", "breaker_reports_stale", "breaker_trips"];
        let counters = counters.map(|name| connection.info_number("resil", name) as usize);
        assert_eq!(counters, [doomed, THRESHOLD, doomed - THRESHOLD, 1]);
        assert!(doomed - THRESHOLD < CALLERS, "each caller has one call in flight, and the last to count has none");
    }
}

#[test]
fn a_fleet_that_takes_turns_makes_exactly_the_threshold() {
    let (server, mut connection) = start_driven();
    connection.config(&format!("dead CONSECUTIVE {THRESHOLD} RATE 0"));
    let mut fleet: Vec<_> = (0..CALLERS).map(|_| server.connect()).collect();
    let mut doomed = 0;
    for _ in 0..THRESHOLD {
        for mine in &mut fleet {
            let admission = mine.admit("dead");
            if let Some(permit) = &admission.permit {
                doomed += 1;
                mine.report("dead", permit, "FAIL");
            }
        }
    }
    say(&format!("fleet: {CALLERS} callers in turn made {doomed} doomed calls"));
    assert_eq!(doomed, THRESHOLD);
}

#[test]
fn breakers_in_each_process_multiply_the_threshold() {
    let now = Instant::from_us(START_US);
    let mut fleet: Vec<Machine> = (0..CALLERS).map(|_| Machine::default()).collect();
    assert_eq!(fleet[0].config().consecutive as usize, THRESHOLD);
    let mut doomed = 0;
    for _ in 0..2 * THRESHOLD {
        for machine in &mut fleet {
            let admission = admit(machine, Caller::default(), None, 0, now).expect("no options").verdict;
            if let Some(permit) = admission.permit {
                doomed += 1;
                report(machine, Some(permit), Report::Fail, None, now);
            }
        }
    }
    say(&format!("fleet: {CALLERS} local breakers let {doomed} doomed calls through"));
    assert_eq!(doomed, 250);
}
