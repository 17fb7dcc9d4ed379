//! One lock: first come first served, never two inside, fences that only grow.

use std::time::Duration;

use serde_json::json;

use crate::fleet::{Fleet, Heard, Monitor, Tag, seeded_chance};
use crate::worker::LANGUAGES;

const KEY: &str = "resil:lock:{stock}";

/// Longer than a hand-over takes: who can come inside beside the holder does so within it.
const LINGER: Duration = Duration::from_millis(3);

/// Lets all who asked in and out, one at a time, and asks again where `next` says so. Gives the order they came in.
fn serve_all(fleet: &mut Fleet, waiting: usize, mut next: impl FnMut(&mut Fleet, usize) -> usize) -> Vec<Tag> {
    let (mut open, mut last_fence, mut order) = (waiting, 0, Vec::new());
    while open > 0 {
        match fleet.hear() {
            (worker, Heard::Inside(tag, seen)) => {
                let fence = seen["fence"].as_u64().expect("a fence");
                assert!(fence > last_fence, "fence {fence} came after {last_fence}");
                last_fence = fence;
                order.push(tag);
                let other = fleet.somebody_enters_within(LINGER);
                assert_eq!(other, None, "inside beside {tag:?} of {:?}", fleet.language(worker));
                fleet.tell(worker, tag, &json!({}));
            }
            (worker, Heard::Done(..)) => {
                open -= 1;
                open += next(fleet, worker);
            }
            (worker, Heard::Failed(_, code)) => panic!("{:?}: {code}", fleet.language(worker)),
        }
    }
    order
}

#[test]
fn a_lock_goes_round_in_order_across_languages() {
    let mut chance = seeded_chance();
    let mut fleet = Fleet::of_each(2);
    for _ in 0..5 {
        let mut order: Vec<usize> = (0..fleet.size()).collect();
        chance.shuffle(&mut order);
        let mut queue = Vec::new();
        for (ahead, &worker) in order.iter().enumerate() {
            queue.push(fleet.ask(worker, &json!({ "do": "lock", "name": "stock" })));
            // Each stands in the queue before the next one asks: this is the order in which the server saw them.
            match ahead {
                0 => fleet.until_info("RES.LOCK", KEY, "holders_total", 1),
                _ => fleet.until_info("RES.LOCK", KEY, "waiters_total", i64::try_from(ahead).unwrap()),
            }
        }
        let waiting = queue.len();
        assert_eq!(serve_all(&mut fleet, waiting, |_, _| 0), queue);
    }
}

#[test]
fn never_are_two_inside_however_hard_all_languages_push() {
    const ROUNDS: usize = 15;
    let mut fleet = Fleet::of_each(2);
    let ask = json!({ "do": "lock", "name": "stock" });
    let size = fleet.size();
    let mut asked = vec![2; size];
    for worker in (0..size).chain(0..size) {
        fleet.ask(worker, &ask);
    }
    let order = serve_all(&mut fleet, 2 * size, |fleet, worker| {
        if asked[worker] == ROUNDS {
            return 0;
        }
        asked[worker] += 1;
        fleet.ask(worker, &ask);
        1
    });
    assert_eq!(order.len(), ROUNDS * size);
}

/// What the server heard, in its order: who began to wait, and who let go.
fn seen_by_monitor(lines: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut waited, mut released) = (Vec::new(), Vec::new());
    for line in lines {
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        match words[..] {
            ["RES.LOCK", "ACQUIRE", _, owner, ..] if words.contains(&"ASYNC") => waited.push(owner.to_owned()),
            ["RES.LOCK", "RELEASE", _, owner, ..] => released.push(owner.to_owned()),
            _ => {}
        }
    }
    (waited, released)
}

/// The judge knows neither the SDKs nor the module's queue: it only reads what the server heard, and when.
#[test]
fn a_mixed_fleet_is_served_in_order_of_arrival() {
    const PROCESSES: usize = 8;
    const CALLERS: usize = 50;
    let mut chance = seeded_chance();
    let mut fleet = Fleet::of(LANGUAGES.into_iter().cycle().take(PROCESSES).collect());
    let monitor = Monitor::start(&fleet.server);
    let mut askers: Vec<usize> = (0..PROCESSES * CALLERS).map(|number| number % PROCESSES).collect();
    chance.shuffle(&mut askers);
    let ask = json!({ "do": "lock", "name": "stock" });
    let mut asking = askers.into_iter();
    for worker in asking.by_ref().take(PROCESSES * CALLERS / 2) {
        fleet.ask(worker, &ask);
    }
    // The others come while the first are served.
    let mut left = PROCESSES * CALLERS;
    while left > 0 {
        match fleet.hear() {
            (worker, Heard::Inside(tag, _)) => fleet.tell(worker, tag, &json!({})),
            (_, Heard::Done(..)) => {
                left -= 1;
                for worker in asking.by_ref().take(chance.usize(1..4)) {
                    fleet.ask(worker, &ask);
                }
            }
            (worker, Heard::Failed(_, code)) => panic!("{:?}: {code}", fleet.language(worker)),
        }
    }
    let (waited, released) = seen_by_monitor(&monitor.stop());
    assert_eq!(released.len(), PROCESSES * CALLERS, "each let go once");
    assert!(waited.len() > PROCESSES * CALLERS / 2, "only {} of them waited", waited.len());
    let served: Vec<&String> = released.iter().filter(|owner| waited.contains(owner)).collect();
    assert_eq!(served, waited.iter().collect::<Vec<_>>(), "first come first served");
}
