//! Calls by chance.

use crate::engine::fuzzing::Fuzz;
use crate::engine::seed::{say, seeded};

const CALLS: usize = 120_000;

#[test]
fn no_sequence_of_calls_breaks_a_promise_or_the_server() {
    let mut fuzz = Fuzz::start(seeded("fuzz"));
    fuzz.run(CALLS);
    fuzz.audit();
    let tally = fuzz.tally;
    say(&format!("fuzz: {tally:?}"));
    let met = ["gcra_granted", "gcra_denied", "gcra_refunded", "mgcra_granted", "window_granted", "throttle_adopted"];
    let met = met.into_iter().chain(["breaker_admitted", "breaker_denied", "breaker_reports_counted", "breaker_trips"]);
    for counter in met {
        let count = fuzz.counter(counter);
        say(&format!("fuzz: {counter} {count}"));
        assert!(count > 50, "{counter}: {count} times is too few to be a test");
    }
    assert!(tally.well_formed * 2 >= tally.calls, "at least half of the calls are well-formed: {tally:?}");
    assert!(tally.wrong_types > 1_000 && tally.refusals > 1_000, "every kind of answer was met: {tally:?}");
    fuzz.bytes_when_empty();
    fuzz.run(CALLS / 20);
    fuzz.reload();
}
