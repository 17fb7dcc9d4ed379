//! Calls by chance.

use crate::engine::fuzzing::Fuzz;
use crate::engine::seed::{say, seeded};

const CALLS: usize = 120_000;
/// What an emptied server may grow by: query buffers, the backlog's blocks, fragmentation.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

#[test]
fn no_sequence_of_calls_breaks_a_promise_or_the_server() {
    let mut fuzz = Fuzz::start(seeded("fuzz"));
    fuzz.run(CALLS);
    fuzz.audit();
    let tally = fuzz.tally;
    say(&format!("fuzz: {tally:?}"));
    let met = ["gcra_granted", "gcra_denied", "gcra_refunded", "mgcra_granted", "window_granted", "throttle_adopted"];
    let met = met.into_iter().chain(["breaker_admitted", "breaker_denied", "breaker_reports_counted", "breaker_trips"]);
    let met = met.chain(["lock_granted", "lock_timed_out", "bulkhead_granted"]);
    let met = met.chain(["idemp_granted", "idemp_committed", "idemp_replayed", "sflight_granted", "sflight_published"]);
    let met = met.chain(["dlq_retried", "dlq_died", "dlq_taken", "dlq_done", "dlq_known"]);
    for counter in met {
        let count = fuzz.counter(counter);
        say(&format!("fuzz: {counter} {count}"));
        assert!(count > 50, "{counter}: {count} times is too few to be a test");
    }
    assert!(tally.well_formed * 2 >= tally.calls, "at least half of the calls are well-formed: {tally:?}");
    assert!(tally.wrong_types > 1_000 && tally.refusals > 1_000, "every kind of reply was met: {tally:?}");
    say(&format!("fuzz: {:?}", fuzz.crowd.seen));
    let seen = fuzz.crowd.seen;
    assert!(seen.answered > 1_000 && seen.killed > 50 && seen.closed > 50, "{seen:?}");
    fuzz.everybody_leaves();
    let bytes = fuzz.bytes_when_empty();
    fuzz.run(CALLS / 20);
    fuzz.everybody_leaves();
    let bytes_again = fuzz.bytes_when_empty();
    say(&format!("fuzz: {bytes} bytes when empty, {bytes_again} later"));
    assert!(bytes_again <= bytes + GROWTH_BYTES_MAX, "an empty server grew from {bytes} to {bytes_again} bytes");
    fuzz.run(CALLS / 20);
    fuzz.everybody_leaves();
    fuzz.reload();
}
