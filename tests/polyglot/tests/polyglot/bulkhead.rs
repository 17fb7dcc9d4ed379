//! One bulkhead: its places are those of the whole fleet, all of them, and not one more.

use std::time::Duration;

use serde_json::json;

use crate::fleet::{Fleet, Heard, seeded_chance};

const MAX: usize = 3;
/// Of each process, at once: so every one of them alone could fill all places.
const AT_ONCE: usize = 4;
const ROUNDS: usize = 24;
const LINGER: Duration = Duration::from_millis(3);

#[test]
fn all_languages_together_use_exactly_the_permits() {
    let mut chance = seeded_chance();
    let mut fleet = Fleet::of_each(2);
    let ask = json!({ "do": "bulkhead", "name": "reports", "max": MAX });
    let mut asked = vec![AT_ONCE; fleet.size()];
    for worker in (0..fleet.size()).cycle().take(AT_ONCE * fleet.size()) {
        fleet.ask(worker, &ask);
    }
    let (mut inside, mut served, mut done) = (Vec::new(), vec![0; fleet.size()], 0);
    let total = ROUNDS * fleet.size();
    while done < total {
        match fleet.hear() {
            (worker, Heard::Inside(tag, _)) => {
                inside.push((worker, tag));
                served[worker] += 1;
                let left_over = total - done - inside.len();
                assert!(inside.len() <= MAX, "{inside:?} are inside");
                // While others wait, nobody goes before the house is full: so every place is really given.
                if inside.len() == MAX || left_over == 0 {
                    let another = fleet.somebody_enters_within(LINGER);
                    assert_eq!(another, None, "inside beside {inside:?}");
                    let (worker, tag) = inside.swap_remove(chance.usize(..inside.len()));
                    fleet.tell(worker, tag, &json!({}));
                }
            }
            (worker, Heard::Done(..)) => {
                done += 1;
                if asked[worker] < ROUNDS {
                    asked[worker] += 1;
                    fleet.ask(worker, &ask);
                }
                // The last ones have nobody to wait for.
                if total - done == inside.len() {
                    for (worker, tag) in inside.drain(..) {
                        fleet.tell(worker, tag, &json!({}));
                    }
                }
            }
            (worker, Heard::Failed(_, code)) => panic!("{:?}: {code}", fleet.language(worker)),
        }
    }
    assert_eq!(served, vec![ROUNDS; fleet.size()]);
}
