//! A process killed with -9 while it holds: another one, in another language, takes over.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::fleet::{Fleet, Heard, Tag};
use crate::worker::{LANGUAGES, Language};

/// Every language is killed once, and every language takes over once.
fn pairs() -> impl Iterator<Item = (Language, Language)> {
    LANGUAGES.into_iter().zip(LANGUAGES.into_iter().cycle().skip(1))
}

/// One is inside and is killed; then the other comes inside. How long that took, what it heard, and its tag.
fn handed_over(fleet: &mut Fleet, ask: &Json, is_in_line: impl Fn(&Fleet)) -> (Duration, Json, Tag) {
    let (victim, heir) = (0, 1);
    let holding = fleet.ask(victim, ask);
    fleet.hear_inside(holding);
    let waiting = fleet.ask(heir, ask);
    is_in_line(fleet);
    let killed = Instant::now();
    fleet.kill(victim);
    let seen = fleet.hear_inside(waiting);
    (killed.elapsed(), seen, waiting)
}

fn finish(fleet: &mut Fleet, tag: Tag, value: &Json) {
    fleet.tell(1, tag, &json!({ "value": value }));
    assert_eq!(fleet.hear(), (1, Heard::Done(tag, value.clone())));
}

#[test]
fn a_killed_processs_lock_is_handed_on_early() {
    for (victim, heir) in pairs() {
        let mut fleet = Fleet::of(vec![victim, heir]);
        let ask = json!({ "do": "lock", "name": "stock" });
        let (took, seen, _) = handed_over(&mut fleet, &ask, |fleet| {
            fleet.until_info("RES.LOCK", "resil:lock:{stock}", "waiters_total", 1);
        });
        assert!(took < Duration::from_secs(5), "{victim:?} to {heir:?} took {took:?} of a lease of 10 s");
        assert!(seen["fence"].as_u64().is_some_and(|fence| fence > 1), "{seen}");
    }
}

#[test]
fn a_killed_processs_permit_is_free_early() {
    for (victim, heir) in pairs() {
        let mut fleet = Fleet::of(vec![victim, heir]);
        let ask = json!({ "do": "bulkhead", "name": "reports", "max": 1 });
        let (took, _, _) = handed_over(&mut fleet, &ask, |fleet| {
            fleet.until_info("RES.BULKHEAD", "resil:bulkhead:{reports}", "waiters_total", 1);
        });
        assert!(took < Duration::from_secs(5), "{victim:?} to {heir:?} took {took:?} of a lease of 10 s");
    }
}

#[test]
fn a_killed_processs_load_is_taken_by_a_waiter() {
    for (victim, heir) in pairs() {
        let mut fleet = Fleet::of(vec![victim, heir]);
        let ask = json!({ "do": "cached", "name": "user", "key": "1", "codec": "json" });
        let (_, _, tag) = handed_over(&mut fleet, &ask, |fleet| {
            fleet.until_info("RES.SFLIGHT", "resil:cache:user:{1}", "followers", 1);
        });
        finish(&mut fleet, tag, &json!({ "by": "the heir" }));
    }
}

#[test]
fn a_killed_processs_run_is_taken_by_a_knowing_waiter() {
    for (victim, heir) in pairs() {
        let mut fleet = Fleet::of(vec![victim, heir]);
        let ask = json!({ "do": "idempotent", "name": "pay", "key": "1", "codec": "json", "lease_ms": 500 });
        let (_, seen, tag) = handed_over(&mut fleet, &ask, |fleet| {
            fleet.until_info("RES.IDEMP", "resil:idemp:pay:{1}", "waiters", 1);
        });
        assert_eq!(seen["attempt"], 2, "{victim:?} may have done the work; {heir:?} must know");
        finish(&mut fleet, tag, &json!({ "by": "the heir" }));
    }
}
