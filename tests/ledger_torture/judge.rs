//! Judges a run by the replies to workers, and by what the ledger says in the end.
//!
//! 1. Whatever was failed, as a worker was notified, is in the ledger in the end, or its end is remembered: nothing is lost.
//! 2. What a worker learned to be done is done, by one fence alone.
//! 3. An id is in the ledger once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redis::Connection;

use crate::letters::given;
use crate::worker::ask;

#[derive(Default)]
pub struct Journals {
    pub failed: BTreeSet<String>,
    pub done: BTreeMap<String, BTreeSet<u64>>,
    pub deadly: usize,
}

pub fn read_journals(dir: &Path) -> Journals {
    let mut journals = Journals::default();
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "journal") {
            continue;
        }
        let text = fs::read_to_string(entry.path()).expect("a journal is text");
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["failed", id] => drop(journals.failed.insert(id.to_owned())),
                ["done", id, fence] => {
                    let fence = fence.parse().expect("a fence");
                    journals.done.entry(id.to_owned()).or_default().insert(fence);
                }
                ["deadly"] => journals.deadly += 1,
                _ => panic!("no line of a journal: {line:?}"),
            }
        }
    }
    journals
}

/// Takes and ends everything that can be taken, until nothing waits.
pub fn drain(connection: &mut Connection) -> usize {
    let mut ended = 0;
    for round in 0.. {
        assert!(round < 3_000, "the ledger is not empty in the end");
        let reply = ask(connection, &format!("RES.DLQ TAKE d drain-{round} 10s COUNT 1000 WAIT 1500ms"));
        if reply.starts_with("[TIMEOUT -1") {
            break;
        }
        if !reply.starts_with("[TAKEN") {
            continue;
        }
        let entries = given(&reply);
        let pairs: Vec<String> = entries.iter().map(|(id, fence)| format!("{id} {fence}")).collect();
        let done = ask(connection, &format!("RES.DLQ DONE d {}", pairs.join(" ")));
        assert_eq!(done.matches("DONE").count(), entries.len(), "{done}");
        ended += entries.len();
    }
    ended
}

/// Every entry of the ledger, by state.
fn listed(connection: &mut Connection) -> BTreeMap<String, String> {
    let (mut cursor, mut all) = ("0".to_owned(), BTreeMap::new());
    loop {
        let page = ask(connection, &format!("RES.DLQ LIST d LIMIT 1000 CURSOR {cursor}"));
        for row in page.split("[id ").skip(1) {
            let mut words = row.split(' ');
            let (id, state) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
            assert_eq!(all.insert(id.to_owned(), state.to_owned()), None, "{id} is there twice");
        }
        cursor = page.trim_start_matches('[').split(' ').next().unwrap_or("0").to_owned();
        if cursor == "0" {
            return all;
        }
    }
}

/// Panics with what does not hold.
pub fn judge(journals: &Journals, connection: &mut Connection) -> BTreeMap<String, usize> {
    let listed = listed(connection);
    let mut states = BTreeMap::new();
    let mut wrong = Vec::new();
    for id in journals.failed.iter().chain(journals.done.keys()).collect::<BTreeSet<_>>() {
        let state = ask(connection, &format!("RES.DLQ GET d {id} STATE"));
        *states.entry(state.clone()).or_default() += 1;
        let fences = journals.done.get(id);
        if fences.is_some() && state != "done" {
            wrong.push(format!("{id} was done as a worker learned, and is {state}"));
        }
        if fences.is_some_and(|fences| fences.len() > 1) {
            wrong.push(format!("{id} was done by {fences:?}"));
        }
        if !["done", "dead"].contains(&state.as_str()) {
            wrong.push(format!("{id} was failed, and is {state} in the end"));
        }
        if (state == "dead") != listed.contains_key(id) {
            wrong.push(format!("{id} is {state}, and listed: {:?}", listed.get(id)));
        }
    }
    assert!(wrong.is_empty(), "{} promises are broken:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    states
}
