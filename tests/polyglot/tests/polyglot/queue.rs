//! One queue for a whole fleet: priorities first, then the order of arrival, and never more than may wait.
//!
//! The judge knows neither the SDKs nor the module's queue. It reads what the server heard, and when, and plays it on a
//! model of its own: one holder, an ordered list, a bound.

use std::collections::BTreeMap;

use resil_harness::ok;
use serde_json::json;

use crate::fleet::{Fleet, Heard, Monitor, seeded_chance};
use crate::worker::LANGUAGES;

const PROCESSES: usize = 8;
const CALLERS: usize = 50;
const QUEUE: usize = 40;

/// What has to come of what the server heard.
#[derive(Default)]
struct Judge {
    holder: Option<String>,
    /// By priority, then by arrival.
    queue: BTreeMap<(u8, usize), String>,
    arrivals: usize,
    waited: usize,
    most: usize,
    served: Vec<String>,
    refused: usize,
}

impl Judge {
    fn hear(&mut self, words: &[&str]) {
        match words {
            ["RES.BULKHEAD", "ENTER", _, owner, rest @ ..] => self.enter(owner, rest),
            ["RES.BULKHEAD", "LEAVE", _, owner, ..] => self.leave(owner),
            _ => {}
        }
    }

    fn enter(&mut self, owner: &str, options: &[&str]) {
        let option = |name: &str| options.iter().position(|word| *word == name).map(|at| options[at + 1]);
        if self.holder.is_none() {
            assert!(self.queue.is_empty(), "free, and somebody waits");
            self.hand_to(owner.to_owned());
        } else if options.contains(&"ASYNC") {
            assert_eq!(option("QUEUE"), Some(QUEUE.to_string().as_str()));
            if self.queue.len() == QUEUE {
                self.refused += 1;
                return;
            }
            let priority = option("PRIORITY").map_or(5, |priority| priority.parse().expect("a number"));
            self.arrivals += 1;
            self.waited += 1;
            self.queue.insert((priority, self.arrivals), owner.to_owned());
            self.most = self.most.max(self.queue.len());
        }
    }

    fn leave(&mut self, owner: &str) {
        let count = self.served.len();
        assert_eq!(self.holder.as_deref(), Some(owner), "who left, as number {count}, is not whose turn it was");
        self.holder = None;
        if let Some((_, next)) = self.queue.pop_first() {
            self.hand_to(next);
        }
    }

    fn hand_to(&mut self, owner: String) {
        self.served.push(owner.clone());
        self.holder = Some(owner);
    }
}

#[test]
fn a_fleet_is_served_by_priority_within_its_bound() {
    let mut chance = seeded_chance();
    let mut fleet = Fleet::of(LANGUAGES.into_iter().cycle().take(PROCESSES).collect());
    // The judge has no clock, so nobody grows older.
    ok(&mut fleet.server.connect(), &["CONFIG", "SET", "resil.ageing", "0"]);
    let monitor = Monitor::start(&fleet.server);
    let mut askers: Vec<usize> = (0..PROCESSES * CALLERS).map(|number| number % PROCESSES).collect();
    chance.shuffle(&mut askers);
    let mut asking = askers.into_iter();
    let mut asked = 0;
    let mut ask_some = |fleet: &mut Fleet, count: usize| {
        for worker in asking.by_ref().take(count) {
            asked += 1;
            let priority = [0, 2, 5, 5, 9][chance.usize(..5)];
            let ask = json!({ "do": "bulkhead", "name": "reports", "max": 1, "queue": QUEUE, "priority": priority });
            fleet.ask(worker, &ask);
        }
        // The others come while these are served, in bursts.
        (asked, [0, 0, 1, 2, 3][chance.usize(..5)])
    };
    let (mut asked, mut burst) = ask_some(&mut fleet, QUEUE + 20);
    let (mut done, mut refused) = (0, 0);
    while done + refused < PROCESSES * CALLERS {
        match fleet.hear() {
            (worker, Heard::Inside(tag, _)) => fleet.tell(worker, tag, &json!({})),
            (_, Heard::Done(..)) => {
                done += 1;
                (asked, burst) = ask_some(&mut fleet, burst);
            }
            (_, Heard::Failed(_, code)) if code == "BULKHEAD_FULL" => refused += 1,
            (worker, Heard::Failed(_, code)) => panic!("{:?}: {code}", fleet.language(worker)),
        }
        if done + refused == asked {
            (asked, burst) = ask_some(&mut fleet, QUEUE + 20);
        }
    }
    let mut judge = Judge::default();
    for line in monitor.stop() {
        judge.hear(&line.split('"').skip(1).step_by(2).collect::<Vec<_>>());
    }
    println!(
        "{} served, {} waited, {} refused, at most {} in the queue",
        judge.served.len(),
        judge.waited,
        refused,
        judge.most
    );
    assert_eq!((judge.served.len(), judge.refused), (done, refused));
    assert_eq!((judge.holder, judge.queue.len()), (None, 0), "nobody is left");
    assert_eq!(judge.most, QUEUE, "the bound was reached");
    assert!(judge.waited > 100 && refused > 20, "{} waited, {refused} were refused", judge.waited);
}
