//! Random traffic: the replica is equal after it, what is reported is never contradicted, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use redis::Connection;
use resil_harness::{Server, wait_for_sync};

use crate::driven::{Say, driven};
use crate::letters::given;
use crate::scene::{receive, send};
use crate::seed;

const STEPS: usize = 1_500;
const IDS: usize = 60;

struct Walk {
    rng: Rng,
    connection: Connection,
    now_ms: i64,
    /// Fences that were given out, newest last.
    given: Vec<(String, u64)>,
    /// What was accepted and not yet done.
    owed: BTreeSet<String>,
    cases: u64,
    replies: BTreeMap<String, usize>,
}

impl Walk {
    fn ask(&mut self, line: &str) -> String {
        send(&mut self.connection, line);
        let reply = receive(&mut self.connection);
        let word = reply.trim_start_matches('[').split([' ', ']']).next().unwrap_or_default();
        let word = if word.parse::<i64>().is_ok() { "number" } else { word };
        *self.replies.entry(format!("{} {word}", line.split(' ').nth(1).unwrap_or_default())).or_default() += 1;
        reply
    }

    fn some_given(&mut self) -> Option<(String, u64)> {
        let recent = self.given.len().min(8);
        (recent > 0).then(|| self.given[self.given.len() - 1 - self.rng.usize(..recent)].clone())
    }

    fn step(&mut self, number: usize) {
        let id = format!("m{}", self.rng.usize(..IDS));
        let kind = ["pay", "mail"][self.rng.usize(..2)];
        match self.rng.u32(..100) {
            0..25 => {
                let more = ["", "FINAL", "NOCOUNT", "CLASS business", "AFTER 3s", "AGGREGATE acc", "GROUP g"]
                    [self.rng.usize(..7)];
                let reply = self.ask(&format!("RES.DLQ FAIL d {id} ERROR e{number} PAYLOAD p-{id} TYPE {kind} {more}"));
                if reply.starts_with("[RETRY") || reply.starts_with("[DEAD") {
                    self.owed.insert(id);
                } else if !reply.starts_with("[KNOWN done") && !reply.starts_with("[KNOWN resolved") {
                    assert!(self.owed.contains(&id), "{reply} of what was never accepted, or is done");
                }
            }
            25..30 => {
                let reply = self.ask(&format!("RES.DLQ PARK d {id} AGGREGATE acc PAYLOAD p-{id}"));
                if reply.starts_with("[PARKED") {
                    self.owed.insert(id);
                }
            }
            30..55 => {
                let (token, count, lease) = (self.rng.u32(..30), self.rng.u32(1..5), self.rng.u32(1..20));
                let reply = self.ask(&format!("RES.DLQ TAKE d t{token} {lease}s COUNT {count}"));
                if reply.starts_with("[TAKEN") {
                    let entries = given(&reply);
                    assert!(entries.iter().all(|(id, _)| self.owed.contains(id)), "{reply}");
                    self.given.extend(entries);
                }
            }
            55..80 => {
                let Some((id, fence)) = self.some_given() else { return };
                match self.rng.u32(..4) {
                    0 | 1 => {
                        if self.ask(&format!("RES.DLQ DONE d {id} {fence}")) == "[DONE]" {
                            self.owed.remove(&id);
                        }
                    }
                    2 => drop(self.ask(&format!("RES.DLQ FAIL d {id} ERROR again{number} FENCE {fence}"))),
                    _ => drop(self.ask(&format!("RES.DLQ RETURN d DELAY 1s {id} {fence}"))),
                }
            }
            80..84 => {
                let token = self.rng.u32(..30);
                self.ask(&format!("RES.DLQ RENEW d t{token} 10s"));
            }
            84..88 => self.govern(&id, kind),
            _ => {
                self.now_ms += self.rng.i64(1..4_000);
                self.connection.clock_at_ms(self.now_ms);
            }
        }
    }

    fn govern(&mut self, id: &str, kind: &str) {
        let case = self.rng.u64(1..self.cases + 2);
        let groups = self.ask("RES.DLQ INFO d GROUPS LIMIT 3");
        let group = groups.split("[group ").nth(1).and_then(|row| row.split(' ').next()).unwrap_or("g").to_owned();
        match self.rng.u32(..7) {
            0 => {
                let reply = self.ask(&format!("RES.DLQ DIAGNOSE d {group} CATEGORY contract CAUSE c FIX f ACTOR ann"));
                self.cases += u64::from(reply.parse::<u64>().is_ok());
            }
            1 | 2 => drop(self.ask(&format!("RES.DLQ REDRIVE d {case} TYPE {kind} RATE 100 10s ACTOR ann"))),
            3 => drop(self.ask(&format!("RES.DLQ STOP d {case} ACTOR ann"))),
            4 => drop(self.ask(&format!("RES.DLQ CLOSE d {case} ACTOR ann"))),
            5 => drop(self.ask(&format!("RES.DLQ HOLD d {id} ON ACTOR ann"))),
            _ => drop(self.ask(&format!("RES.DLQ HOLD d {id} OFF ACTOR ann"))),
        }
    }
}

#[test]
fn after_random_traffic_replicas_are_equal_and_nothing_lost() {
    let rng = seed::seeded("dead letters, random traffic");
    let primary = Server::start(driven());
    let replica = Server::replica_of(&primary, driven());
    let mut connection = primary.connect();
    connection.clock_at_ms(0);
    let mut walk = Walk {
        rng,
        connection,
        now_ms: 0,
        given: Vec::new(),
        owed: BTreeSet::new(),
        cases: 0,
        replies: BTreeMap::new(),
    };
    for number in 0..STEPS {
        walk.step(number);
        if number % 100 == 99 {
            wait_for_sync(&primary, &replica);
            let digests = (walk.connection.digest("d"), replica.connect().digest("d"));
            assert_eq!(digests.0, digests.1, "after {number} steps");
        }
    }
    for id in walk.owed.clone() {
        let state = walk.ask(&format!("RES.DLQ GET d {id} STATE"));
        assert!(["waiting", "taken", "parked", "dead", "resolved"].contains(&state.as_str()), "{id} is {state}");
    }
    let list = walk.ask("RES.DLQ LIST d LIMIT 5000");
    let listed: Vec<&str> = list.split("[id ").skip(1).filter_map(|row| row.split(' ').next()).collect();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "an id is there once");
    for kind in ["FAIL RETRY", "FAIL DEAD", "FAIL KNOWN", "TAKE TAKEN", "TAKE NONE", "DONE DONE", "DONE LOST"] {
        assert!(walk.replies.contains_key(kind), "the walk never saw {kind}: {:?}", walk.replies);
    }
    walk.connection.say("DEBUG RELOAD");
    let digest = walk.connection.digest("d");
    assert_eq!(digest, replica.connect().digest("d"));
    for server in [&primary, &replica] {
        assert_eq!(server.connect().info_number("resil", "apply_refused"), 0);
        assert_eq!(server.connect().info_number("resil", "internal_errors"), 0);
    }
}
