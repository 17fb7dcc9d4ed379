//! A client that will be killed: threads that ask, hold, renew, let go, forget, and cut their own connections.
//!
//! It is started by `kills` as another process of this binary; run as a test it does nothing.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::journal::{Asked, Claim, Journal, Line, Verb, Who};
use crate::talk::{Reply, Talk};

/// `folder process seed threads`, for the process that is started.
pub const ORDERS: &str = "RESIL_TORTURE_CLIENT";
pub const NAME: &str = "client::as_it_is_asked";

/// How much later than its WAIT a call may be answered.
pub const PATIENCE_MS: i64 = 2_000;

/// The keys everybody wants, each with what is asked of it: readers and writers for locks, or so many permits.
pub const LOCKS: [&str; 4] = ["lock:a", "lock:b", "lock:c", "lock:d"];
pub const BULKHEADS: [(&str, i64); 3] = [("bulk:1", 1), ("bulk:2", 2), ("bulk:5", 5)];

static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn as_it_is_asked() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Vec<&str> = orders.split(' ').collect();
    let [dir, process, seed, threads] = orders[..] else { panic!("four orders") };
    let (dir, process) = (PathBuf::from(dir), process.parse().expect("a number"));
    let mut rng = Rng::with_seed(seed.parse().expect("a seed"));
    thread::scope(|scope| {
        for thread in 0..threads.parse().expect("a number") {
            let (dir, rng) = (&dir, rng.fork());
            scope.spawn(move || Client::new(dir, Who { process, thread }, rng).run());
        }
        // The end of the input is the end of the work.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, Relaxed);
    });
}

/// Something held, for all this client knows.
struct Held {
    key: String,
    owner: String,
    claim: Claim,
    fence: u64,
}

struct Client {
    dir: PathBuf,
    who: Who,
    rng: Rng,
    journal: Journal,
    talk: Option<Talk>,
    /// Numbers the owners.
    count: u32,
}

impl Client {
    fn new(dir: &Path, who: Who, rng: Rng) -> Self {
        Self { dir: dir.into(), who, rng, journal: Journal::of(dir, who), talk: None, count: 0 }
    }

    fn run(mut self) {
        while !STOP.load(Relaxed) {
            if !self.connect() {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            self.once();
        }
        if let Some(talk) = self.talk.take() {
            self.journal.write(Line::Cut);
            drop(talk);
        }
    }

    /// The port is in a file while the server is there, so that nobody knocks at a port that is not the server's.
    fn connect(&mut self) -> bool {
        if self.talk.is_none() {
            let port = std::fs::read_to_string(self.dir.join("port")).ok().and_then(|port| port.trim().parse().ok());
            self.talk = port.and_then(|port| Talk::to(port).ok());
            if self.talk.is_some() {
                self.journal.write(Line::Connected);
            }
        }
        self.talk.is_some()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn rest(&mut self, most_ms: u64) {
        thread::sleep(Duration::from_micros(self.rng.u64(0..=most_ms * 1_000)));
    }

    /// One life of one owner.
    fn once(&mut self) {
        self.count += 1;
        let Who { process, thread } = self.who;
        let owner = format!("o{process}.{thread}.{}", self.count);
        let (key, claim) = if self.chance(70) {
            let key = LOCKS[self.rng.usize(..LOCKS.len())];
            (key, if self.chance(40) { Claim::Shared } else { Claim::Exclusive })
        } else {
            let (key, max) = BULKHEADS[self.rng.usize(..BULKHEADS.len())];
            (key, Claim::Permit(max))
        };
        let asked = Asked {
            verb: Verb::Acquire,
            key: key.into(),
            owner,
            claim,
            lease_ms: *self.rng.choice(&[60, 300, 1_000, 2_500]).expect("not empty"),
            wait_ms: *self.rng.choice(&[0, 30, 200, 1_000, 1_500]).expect("not empty"),
            bound: self.chance(50),
        };
        if self.chance(4) {
            self.cut_while_asking(&asked);
            // The same owner asks again, on another connection, for what it may have been granted.
            if self.chance(50) && self.connect() {
                self.ask_and_hold(asked);
            }
            return;
        }
        self.ask_and_hold(asked);
    }

    fn cut_while_asking(&mut self, asked: &Asked) {
        self.journal.write(Line::Asked(asked.clone()));
        let Some(mut talk) = self.talk.take() else { return };
        let _ = talk.send(&spelled(asked));
        self.rest(20);
        self.journal.write(Line::Cut);
        talk.cut();
    }

    fn ask_and_hold(&mut self, asked: Asked) {
        let Asked { key, owner, claim, lease_ms, .. } = asked.clone();
        let Some(("GRANTED", fence)) = self.call(asked).as_ref().map(|reported| (reported.0.as_str(), reported.1))
        else {
            return self.rest(3);
        };
        let mut held = Held { key, owner, claim, fence };
        loop {
            self.rest(8);
            match self.rng.u32(0..100) {
                0..5 => {
                    if let Some(talk) = self.talk.take() {
                        self.journal.write(Line::Cut);
                        talk.cut();
                    }
                    // Cut while holding: sometimes it comes back and looks, sometimes it is forgotten.
                    if self.chance(60) || !self.come_back(&held) {
                        return;
                    }
                }
                5..8 => return,
                8..15 => {
                    if self.renew(&held).is_none() && !self.come_back(&held) {
                        return;
                    }
                }
                15..22 => {
                    if self.check(&held).is_none() && !self.come_back(&held) {
                        return;
                    }
                }
                // Sleeps over its lease, now and then.
                22..24 => thread::sleep(Duration::from_millis(lease_ms.min(400) as u64)),
                // What it has, once more.
                24..28 if !matches!(claim, Claim::Permit(_)) => {
                    let asked = Asked { lease_ms: 300, ..self.about(Verb::Acquire, &held) };
                    match self.call(asked) {
                        Some((verdict, fence)) if verdict == "GRANTED" => held.fence = fence,
                        Some(_) => return,
                        None if !self.come_back(&held) => return,
                        None => {}
                    }
                }
                24..40 => {}
                _ => {
                    if self.release(&held).is_none() && self.come_back(&held) {
                        // Whether it was heard is not known; saying it again is harmless.
                        self.release(&held);
                    }
                    return;
                }
            }
        }
    }

    /// After a lost connection: does the server remember what it granted?
    fn come_back(&mut self, held: &Held) -> bool {
        while !STOP.load(Relaxed) {
            if self.connect() {
                return self.check(held).is_some();
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn about(&self, verb: Verb, held: &Held) -> Asked {
        let (key, owner) = (held.key.clone(), held.owner.clone());
        Asked { verb, key, owner, claim: held.claim, lease_ms: 0, wait_ms: 0, bound: false }
    }

    fn renew(&mut self, held: &Held) -> Option<(String, u64)> {
        let lease_ms = *self.rng.choice(&[50, 500, 1_500]).expect("not empty");
        let asked = Asked { lease_ms, ..self.about(Verb::Renew, held) };
        self.fenced(asked, held.fence)
    }

    fn check(&mut self, held: &Held) -> Option<(String, u64)> {
        // A bulkhead cannot be asked without changing it.
        if matches!(held.claim, Claim::Permit(_)) {
            return self.renew(held);
        }
        self.fenced(self.about(Verb::Check, held), held.fence)
    }

    fn release(&mut self, held: &Held) -> Option<(String, u64)> {
        self.fenced(self.about(Verb::Release, held), held.fence)
    }

    fn call(&mut self, asked: Asked) -> Option<(String, u64)> {
        self.fenced(asked, 0)
    }

    /// Asks, naming the fence if there is one, and writes down what came. None: the connection is gone.
    fn fenced(&mut self, asked: Asked, fence: u64) -> Option<(String, u64)> {
        let mut talk = self.talk.take()?;
        let fence = if fence > 0 { format!(" FENCE {fence}") } else { String::new() };
        let line = spelled(&asked) + &fence;
        self.journal.write(Line::Asked(asked.clone()));
        let patience = Duration::from_millis((asked.wait_ms + PATIENCE_MS) as u64);
        match talk.patience(patience).and_then(|()| talk.ask(&line)) {
            Ok(reply) => {
                let line = answered(asked.verb, asked.claim, &reply);
                let reported = match &line {
                    Line::Answered { verdict, fence, .. } => (verdict.clone(), *fence),
                    _ => return None,
                };
                self.journal.write(line);
                self.talk = Some(talk);
                Some(reported)
            }
            Err(error) => {
                let stuck = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                self.journal.write(Line::Unanswered { closed: !stuck });
                None
            }
        }
    }
}

pub fn spelled(asked: &Asked) -> String {
    let Asked { verb, key, owner, claim, lease_ms, wait_ms, bound } = asked;
    let (machine, acquire, release) = match claim {
        Claim::Permit(_) => ("RES.BULKHEAD", "ENTER", "LEAVE"),
        _ => ("RES.LOCK", "ACQUIRE", "RELEASE"),
    };
    match verb {
        Verb::Acquire => {
            let max = if let Claim::Permit(max) = claim { format!(" {max}") } else { String::new() };
            let mut line = format!("{machine} {acquire} {key} {owner}{max} {lease_ms}");
            if *wait_ms > 0 {
                line += &format!(" WAIT {wait_ms}");
            }
            if *wait_ms > 0 && matches!(claim, Claim::Permit(_)) {
                line += " QUEUE 1000";
            }
            if *claim == Claim::Shared {
                line += " SHARED";
            }
            if *bound {
                line += " BOUND";
            }
            line
        }
        Verb::Renew => format!("{machine} RENEW {key} {owner} {lease_ms}"),
        Verb::Release => format!("{machine} {release} {key} {owner}"),
        Verb::Check => format!("{machine} CHECK {key} {owner}"),
        Verb::Break => format!("{machine} BREAK {key}"),
    }
}

pub fn answered(verb: Verb, claim: Claim, reply: &Reply) -> Line {
    let (mut fence, mut lease_ms, mut waited_ms, mut active) = (0, 0, 0, 0);
    let verdict = match reply {
        Reply::Number(number) => number.to_string(),
        _ => reply.verdict().to_owned(),
    };
    if verdict == "GRANTED" {
        match (claim, verb) {
            (Claim::Permit(_), Verb::Acquire) => {
                active = reply.number(1);
                (lease_ms, waited_ms) = (reply.number(3), reply.number(4));
            }
            _ => {
                fence = reply.number(1) as u64;
                (lease_ms, waited_ms) = (reply.number(2), reply.number(3));
            }
        }
    }
    Line::Answered { verdict, fence, lease_ms, waited_ms, active }
}
