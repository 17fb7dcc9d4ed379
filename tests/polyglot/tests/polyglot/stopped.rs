//! Processes that are stopped and go on, or are killed while they are stopped, in the middle of waits for one lock.
//!
//! The judge sees what every caller says, one message after the other, and which processes ran. Every call ends once. Two are
//! inside at once only if the one with the lower fence was in a process that had been stopped: nothing can interrupt that one.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fleet::{Fleet, Heard, Tag, seeded_chance};

const CALLERS: usize = 8;
const FAULTS: usize = 16;
/// How many processes are killed; the others have to go on.
const KILLED: usize = 2;
const LEASE_MS: u64 = 900;
/// Longer than the longest stop, the lease and a loaded machine together.
const BOUND: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    StoppedUntil(Instant),
    Killed,
}

struct Process {
    state: State,
    /// When it last went on.
    went_on: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Inside {
    worker: usize,
    fence: u64,
    since: Instant,
    leaves: Instant,
}

struct Scene {
    fleet: Fleet,
    chance: fastrand::Rng,
    processes: Vec<Process>,
    /// Who was asked for, and has not ended.
    open: BTreeMap<Tag, usize>,
    inside: BTreeMap<Tag, Inside>,
    fences: HashSet<u64>,
    failed: usize,
    overlaps: usize,
}

impl Scene {
    fn ask(&mut self, worker: usize) {
        let tag = self.fleet.ask(worker, &json!({ "do": "lock", "name": "stock", "lease_ms": LEASE_MS }));
        self.open.insert(tag, worker);
    }

    /// Whether what `inside` believes may be out of date: its process was stopped since it may have been granted.
    fn may_be_late(&self, inside: &Inside) -> bool {
        let process = &self.processes[inside.worker];
        let before = inside.since.checked_sub(Duration::from_secs(4));
        process.state != State::Runs || process.went_on.zip(before).is_some_and(|(went_on, before)| went_on > before)
    }

    fn enters(&mut self, worker: usize, tag: Tag, fence: u64) {
        let since = Instant::now();
        assert_eq!(self.open.get(&tag), Some(&worker), "inside after its end");
        assert!(self.fences.insert(fence), "fence {fence} was given twice");
        let leaves = since + Duration::from_millis(self.chance.u64(0..30));
        let new = Inside { worker, fence, since, leaves };
        for other in self.inside.values() {
            let late = if other.fence < fence { other } else { &new };
            assert!(self.may_be_late(late), "two inside at once: {other:?} and {new:?}");
            self.overlaps += 1;
        }
        assert!(self.inside.insert(tag, new).is_none(), "inside twice");
    }

    fn ends(&mut self, worker: usize, tag: Tag) {
        assert_eq!(self.open.remove(&tag), Some(worker), "{tag:?} ended twice");
        self.inside.remove(&tag);
    }

    fn hear(&mut self, time: Duration) {
        match self.fleet.hear_within(time) {
            None => {}
            // It was said before the kill.
            Some((worker, _)) if self.processes[worker].state == State::Killed => {}
            Some((worker, Heard::Inside(tag, seen))) => {
                self.enters(worker, tag, seen["fence"].as_u64().expect("a fence"));
            }
            Some((worker, Heard::Done(tag, _))) => self.ends(worker, tag),
            Some((worker, Heard::Failed(tag, code))) => {
                let was_stopped = self.processes[worker].went_on.is_some();
                let is_clear = ["LOCK_LOST", "LOCK_TIMEOUT", "BACKEND_UNAVAILABLE"].contains(&code.as_str());
                assert!(was_stopped && is_clear, "{:?}: {code}", self.fleet.language(worker));
                self.failed += 1;
                self.ends(worker, tag);
            }
        }
        self.words();
    }

    /// Those whose time inside is over are asked to go, and from then on others may be inside.
    fn words(&mut self) {
        let now = Instant::now();
        let fleet = &mut self.fleet;
        self.inside.retain(|tag, inside| {
            let stays = inside.leaves > now;
            if !stays {
                fleet.tell(inside.worker, *tag, &json!({}));
            }
            stays
        });
        for worker in 0..self.processes.len() {
            if matches!(self.processes[worker].state, State::StoppedUntil(until) if until <= now) {
                self.fleet.signal(worker, "CONT");
                self.processes[worker] = Process { state: State::Runs, went_on: Some(now) };
            }
        }
    }

    fn running(&mut self) -> Option<usize> {
        let running = (0..self.processes.len()).filter(|worker| self.processes[*worker].state == State::Runs);
        let running: Vec<usize> = running.collect();
        (running.len() > 2).then(|| running[self.chance.usize(..running.len())])
    }

    fn stop(&mut self, worker: usize) {
        let length = Duration::from_millis(self.chance.u64(50..3_000));
        println!("{:?} {worker} is stopped for {length:?}", self.fleet.language(worker));
        self.fleet.signal(worker, "STOP");
        self.processes[worker].state = State::StoppedUntil(Instant::now() + length);
    }

    fn kill(&mut self, worker: usize) {
        println!("{:?} {worker} is stopped and killed", self.fleet.language(worker));
        self.fleet.signal(worker, "STOP");
        std::thread::sleep(Duration::from_millis(self.chance.u64(0..200)));
        self.fleet.kill(worker);
        self.processes[worker].state = State::Killed;
        self.open.retain(|_, of| *of != worker);
        self.inside.retain(|_, inside| inside.worker != worker);
    }
}

#[test]
fn waits_of_stopped_or_killed_processes_lose_no_grant() {
    let chance = seeded_chance();
    let fleet = Fleet::of_each(2);
    let processes = (0..fleet.size()).map(|_| Process { state: State::Runs, went_on: None }).collect();
    let (open, inside, fences) = (BTreeMap::new(), BTreeMap::new(), HashSet::new());
    let mut scene = Scene { fleet, chance, processes, open, inside, fences, failed: 0, overlaps: 0 };
    for fault in 0..FAULTS {
        for worker in 0..scene.processes.len() {
            let is_killed = scene.processes[worker].state == State::Killed;
            let missing = CALLERS.saturating_sub(scene.open.values().filter(|of| **of == worker).count());
            (0..if is_killed { 0 } else { missing }).for_each(|_| scene.ask(worker));
        }
        let until = Instant::now() + Duration::from_millis(scene.chance.u64(20..400));
        while Instant::now() < until {
            scene.hear(Duration::from_millis(2));
        }
        let Some(worker) = scene.running() else { continue };
        if fault % (FAULTS / KILLED) == FAULTS / KILLED - 1 { scene.kill(worker) } else { scene.stop(worker) }
    }
    let deadline = Instant::now() + BOUND;
    while !scene.open.is_empty() {
        assert!(Instant::now() < deadline, "{} calls did not end: {:?}", scene.open.len(), scene.inside);
        scene.hear(Duration::from_millis(2));
    }
    println!("{} were inside, {} failed, {} overlaps", scene.fences.len(), scene.failed, scene.overlaps);
    assert!(scene.fences.len() > 20, "too few to judge: {}", scene.fences.len());
    for field in ["holders_total", "waiters_total"] {
        scene.fleet.until_info("RES.LOCK", "resil:lock:{stock}", field, 0);
    }
}
