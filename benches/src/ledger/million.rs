//! A ledger of a million entries, half of them waiting and half of them dead: its memory, the longest of each command by the
//! server's own SLOWLOG, what a neighbour notices, and snapshots beside a stream of the same bytes.
//!
//! The dead are a hundred days old, so that a purge finds something: the clock of the module is set back for the filling, and then
//! goes on in steps of half a day, because a purge is refused after a jump.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Connection, Value};
use resil_harness::{Options, Server, eventually, ok};

use super::neighbour::{Noticed, during, for_a_while};
use super::{TYPES, bar, connection, fail, id, kind, list_of, own_bytes, send, text_of, with_large_ledgers, xadd};
use crate::bars::{Bar, Verdict};
use crate::figures::median;
use crate::stage::used_memory;

const ENTRIES: usize = 1_000_000;
const ENTRIES_QUICK: usize = 20_000;
const SAVES: usize = 5;
const SAVES_QUICK: usize = 1;
const AT_ONCE: usize = 500;
const HALF_DAY_US: u128 = 12 * 3_600 * 1_000_000;
const HALF_DAYS: u128 = 200;
/// How long each kind of work goes on beside the neighbour.
const WHILE: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(120);
/// How often each command is run.
const TIMES: usize = 20;
/// What takes less is not in the server's log.
const LOGGED_US: &str = "20";

/// Two figures of the ledger and of a stream.
struct Beside {
    ours: f64,
    stream: f64,
    ratio: f64,
}

pub struct Million {
    entries: usize,
    /// Bytes beyond what the caller gave, of one that waits and of one that is dead.
    waiting_bytes: f64,
    dead_bytes: f64,
    stream_bytes: f64,
    save_s: Beside,
    load_s: Beside,
    /// The longest of each command, by name.
    longest_ms: BTreeMap<String, f64>,
    quiet: Noticed,
    noticed: Vec<(&'static str, Noticed)>,
    whole_ms: BTreeMap<String, f64>,
}

struct Scene {
    server: Server,
    control: Connection,
    entries: usize,
}

pub fn measure(quick: bool) -> Million {
    let (entries, saves) = if quick { (ENTRIES_QUICK, SAVES_QUICK) } else { (ENTRIES, SAVES) };
    eprintln!("ledger: {entries} entries");
    // A whole ledger goes over one connection, for DUMP and RESTORE.
    let large =
        |options: Options| options.config("proto-max-bulk-len", "4gb").config("client-query-buffer-limit", "8gb");
    let mut ours = Scene::start(large(with_large_ledgers()), entries);
    let mut plain = Scene::start(large(Options::default().without_module()), entries);
    let (waiting_bytes, dead_bytes) = ours.fill_ledger();
    let before = used_memory(&mut plain.control);
    send(&mut plain.control, (0..entries).map(xadd), AT_ONCE);
    let stream_bytes = (used_memory(&mut plain.control) - before) / entries as f64 - own_bytes() as f64;
    eprintln!(
        "ledger: {waiting_bytes:.0} bytes beyond its own waiting, {dead_bytes:.0} dead, {stream_bytes:.0} in a stream"
    );
    eprintln!("ledger: snapshots");
    let (save_s, load_s) = snapshots(&mut ours, &mut plain, saves);
    drop(plain);
    eprintln!("ledger: the longest calls");
    ours.call_everything();
    let longest_ms = ours.longest_ms();
    eprintln!("ledger: {longest_ms:.2?}");
    eprintln!("ledger: the neighbour");
    let (quiet, noticed) = ours.disturb();
    eprintln!("ledger: DUMP, RESTORE, UNLINK, DEL");
    let whole_ms = ours.move_whole();
    Million { entries, waiting_bytes, dead_bytes, stream_bytes, save_s, load_s, longest_ms, quiet, noticed, whole_ms }
}

/// Saves and loads both, in turns.
fn snapshots(ours: &mut Scene, plain: &mut Scene, turns: usize) -> (Beside, Beside) {
    let (mut saves, mut loads) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        let both = |work: fn(&mut Scene) -> f64, ours: &mut Scene, plain: &mut Scene| {
            let (first, second) = if turn % 2 == 0 { (&mut *ours, &mut *plain) } else { (&mut *plain, &mut *ours) };
            let (first, second) = (work(first), work(second));
            if turn % 2 == 0 { (first, second) } else { (second, first) }
        };
        saves.push(both(Scene::save_s, ours, plain));
        loads.push(both(Scene::load_s, ours, plain));
        let ((save, xsave), (load, xload)) = (saves[turn], loads[turn]);
        eprintln!("ledger: BGSAVE {save:.2} s, stream {xsave:.2} s; load {load:.2} s, stream {xload:.2} s");
    }
    (Beside::of(&saves), Beside::of(&loads))
}

impl Beside {
    fn of(runs: &[(f64, f64)]) -> Self {
        Self {
            ours: median(runs.iter().map(|(ours, _)| *ours)),
            stream: median(runs.iter().map(|(_, stream)| *stream)),
            ratio: median(runs.iter().map(|(ours, stream)| ours / stream)),
        }
    }
}

impl Scene {
    fn start(options: Options, entries: usize) -> Self {
        let server = Server::start(options.measured());
        let control = connection(&server);
        Self { server, control, entries }
    }

    fn dlq(&mut self, words: &str) -> Value {
        let words: Vec<&str> = ["RES.DLQ"].into_iter().chain(words.split(' ')).collect();
        ok(&mut self.control, &words)
    }

    fn set_clock(&mut self, us: u128) {
        ok(&mut self.control, &["RES._CLOCK", &us.to_string()]);
    }

    /// Bytes of a waiting and of a dead entry beyond its own.
    fn fill_ledger(&mut self) -> (f64, f64) {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        self.set_clock(now_us - HALF_DAYS * HALF_DAY_US);
        let half = self.entries / 2;
        let mut fill = |from: usize, last: Option<&str>| {
            let before = used_memory(&mut self.control);
            send(&mut self.control, (from..from + half).map(|number| fail(number, last)), AT_ONCE);
            (used_memory(&mut self.control) - before) / half as f64 - own_bytes() as f64
        };
        let (waiting, dead) = (fill(0, None), fill(half, Some("FINAL")));
        for step in 1..HALF_DAYS {
            self.set_clock(now_us - (HALF_DAYS - step) * HALF_DAY_US);
        }
        self.set_clock(0);
        (waiting, dead)
    }

    fn save_s(&mut self) -> f64 {
        let started = Instant::now();
        ok(&mut self.control, &["BGSAVE"]);
        self.wait_until_saved();
        started.elapsed().as_secs_f64()
    }

    fn wait_until_saved(&mut self) {
        eventually("the snapshot is written", BOUND, || {
            text_of(&ok(&mut self.control, &["INFO", "persistence"])).contains("rdb_bgsave_in_progress:0")
        });
    }

    /// What the server says that loading its snapshot took, when it starts.
    fn load_s(&mut self) -> f64 {
        self.server.restart_after_kill();
        self.control = connection(&self.server);
        let log = self.server.log();
        let said = log.rsplit("DB loaded from disk: ").next().and_then(|rest| rest.split(' ').next());
        said.and_then(|seconds| seconds.parse().ok()).expect("the server says how long it loaded")
    }

    /// Every command, with as much to do as it can have.
    fn call_everything(&mut self) {
        ok(&mut self.control, &["CONFIG", "SET", "slowlog-log-slower-than", LOGGED_US, "slowlog-max-len", "1000000"]);
        ok(&mut self.control, &["SLOWLOG", "RESET"]);
        let batch = (self.entries / 100).min(1_000);
        for time in 0..TIMES {
            let new = self.entries + time;
            send(&mut self.control, [fail(new, None), fail(new, None)].into_iter(), 1);
            self.dlq("LIST ledger LIMIT 1000");
            self.dlq("LIST ledger STATE parked LIMIT 1000");
            self.dlq("LIST ledger STATE dead TYPE nothing LIMIT 1000");
            for aspect in ["", " GROUPS", " CASES", " ALERTS", " AUDIT", " CONFIG"] {
                self.dlq(&format!("INFO ledger{aspect}"));
            }
            self.dlq(&format!("GET ledger {}", id(time)));
            for settle in ["RETURN", "DONE"] {
                let token = format!("{settle}-{time}");
                let taken = self.dlq(&format!("TAKE ledger {token} 10m COUNT {batch}"));
                let entries = list_of(&list_of(&taken)[3]);
                let pair = |entry: &Value| list_of(entry)[..2].iter().map(text_of).collect::<Vec<_>>().join(" ");
                let pairs: Vec<String> = entries.iter().map(pair).collect();
                self.dlq(&format!("RENEW ledger {token} 10m"));
                self.dlq(&format!("{settle} ledger {}", pairs.join(" ")));
            }
            self.dlq(&format!("PARK ledger parked/{time} AGGREGATE nothing PAYLOAD x"));
            self.dlq(&format!("HOLD ledger {} ON ACTOR me", id(self.entries - 1 - time)));
            self.dlq("HOLD ledger AGGREGATE nothing ON ACTOR me");
            self.dlq("CONFIG ledger CRASHES 3 ACTOR me");
            self.dlq("SEEN ledger 1 ACTOR me");
            let case = self.diagnose(0..TYPES, "contract");
            self.dlq(&format!("REDRIVE ledger {case} DRYRUN ACTOR me"));
            self.dlq(&format!("REDRIVE ledger {case} TYPE nothing DRYRUN ACTOR me"));
            self.dlq(&format!("REDRIVE ledger {case} RATE 1000 1m ACTOR me"));
            self.dlq(&format!("TAKE ledger redriven-{time} 1s"));
            self.dlq(&format!("STOP ledger {case} ACTOR me"));
            self.dlq(&format!("CLOSE ledger {case} ACTOR me"));
            self.dlq(&format!("PURGE ledger OLDER 99d STATE dead LIMIT {batch} ACTOR me"));
        }
    }

    /// A case of these types.
    fn diagnose(&mut self, types: std::ops::Range<usize>, category: &str) -> String {
        let groups: Vec<String> = types.map(|number| format!("{}/timeout after <n> ms", kind(number))).collect();
        let words = ["RES.DLQ", "DIAGNOSE", "ledger"].into_iter().chain(groups.iter().map(String::as_str));
        let words = words.chain(["CATEGORY", category, "CAUSE", "c", "FIX", "f", "ACTOR", "me"]);
        text_of(&ok(&mut self.control, &words.collect::<Vec<_>>()))
    }

    /// By command and subcommand, of what is in the server's log.
    fn longest_ms(&mut self) -> BTreeMap<String, f64> {
        let mut longest = BTreeMap::new();
        for row in list_of(&ok(&mut self.control, &["SLOWLOG", "GET", "-1"])) {
            let words: Vec<String> = list_of(&list_of(row)[3]).iter().take(2).map(text_of).collect();
            let ms = text_of(&list_of(row)[2]).parse::<f64>().expect("microseconds") / 1e3;
            let name = if words[0] == "RES.DLQ" { words.join(" ") } else { words[0].clone() };
            let known = longest.entry(name).or_insert(ms);
            *known = ms.max(*known);
        }
        longest
    }

    /// What a neighbour notices of each kind of work; first of a client that asks for nothing much.
    fn disturb(&mut self) -> (Noticed, Vec<(&'static str, Noticed)>) {
        let contract = self.diagnose(0..TYPES, "contract");
        let poison = self.diagnose(0..TYPES / 2, "poison");
        self.dlq(&format!("REDRIVE ledger {contract} RATE 1000 1m FIRST 1000 ACTOR me"));
        let said = |busy: &mut Connection, words: &str| {
            ok(busy, &["RES.DLQ"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
        };
        let repeat =
            |server: &Server, words: &str| during(server, |busy| for_a_while(WHILE, || drop_true(said(busy, words))));
        let server = &self.server;
        let quiet = repeat(server, "GET ledger nothing");
        let mut noticed = vec![
            ("LIST of 1,000", repeat(server, "LIST ledger LIMIT 1000")),
            ("LIST that finds nothing", repeat(server, "LIST ledger TYPE nothing LIMIT 1000")),
            ("INFO", repeat(server, "INFO ledger GROUPS LIMIT 1000")),
            (
                "SCAN",
                during(server, |busy| for_a_while(WHILE, || drop_true(ok(busy, &["SCAN", "0", "COUNT", "1000"])))),
            ),
            ("REDRIVE, DRYRUN", repeat(server, &format!("REDRIVE ledger {contract} TYPE nothing DRYRUN ACTOR me"))),
        ];
        let mut number = 0;
        let redrive = during(server, |busy| {
            for_a_while(WHILE, || {
                number += 1;
                drop_true(said(busy, &format!("TAKE ledger beside-{number} 10m COUNT 100")))
            });
        });
        noticed.push(("REDRIVE running, TAKE of 100", redrive));
        let saved = during(server, |busy| {
            ok(busy, &["BGSAVE"]);
            let saving =
                |busy: &mut Connection| text_of(&ok(busy, &["INFO", "persistence"])).contains("bgsave_in_progress:1");
            for_a_while(BOUND, || {
                std::thread::sleep(Duration::from_millis(5));
                saving(busy)
            });
        });
        noticed.push(("BGSAVE", saved));
        self.dlq(&format!("STOP ledger {contract} ACTOR me"));
        let server = &self.server;
        let discarded = during(server, |busy| {
            said(busy, &format!("CLOSE ledger {poison} DISCARD ACTOR me"));
            let mut before = None;
            for_a_while(BOUND, || {
                std::thread::sleep(Duration::from_millis(50));
                let now = text_of_all(&said(busy, "INFO ledger"));
                before.replace(now.clone()) != Some(now)
            });
        });
        noticed.push(("CLOSE, DISCARD", discarded));
        let purged = during(server, |busy| {
            for_a_while(WHILE, || {
                let purged = said(busy, "PURGE ledger OLDER 99d STATE dead LIMIT 1000 ACTOR me");
                text_of(&list_of(&purged)[0]) != "0"
            });
        });
        noticed.push(("PURGE", purged));
        (quiet, noticed)
    }

    /// The whole ledger at once, filled again.
    fn move_whole(&mut self) -> BTreeMap<String, f64> {
        ok(&mut self.control, &["FLUSHALL", "SYNC"]);
        self.fill_ledger();
        ok(&mut self.control, &["SLOWLOG", "RESET"]);
        let Value::BulkString(dump) = ok(&mut self.control, &["DUMP", "ledger"]) else { panic!("DUMP is bytes") };
        ok(&mut self.control, &[&b"RESTORE"[..], b"copy", b"0", &dump]);
        ok(&mut self.control, &["UNLINK", "copy"]);
        ok(&mut self.control, &["DEL", "ledger"]);
        let mut found = self.longest_ms();
        found.retain(|name, _| ["DUMP", "RESTORE", "UNLINK", "DEL"].contains(&name.as_str()));
        found
    }
}

fn drop_true(_: Value) -> bool {
    true
}

fn text_of_all(value: &Value) -> String {
    format!("{value:?}")
}

impl Million {
    pub fn print(&self) {
        println!("\n### Dead letters: {} entries of 500 bytes, half of them dead\n", self.entries);
        println!("| | ledger | stream | x |\n| --- | ---: | ---: | ---: |");
        println!("| bytes beyond the caller's own, waiting | {:.0} | {:.0} | |", self.waiting_bytes, self.stream_bytes);
        println!("| the same, dead | {:.0} | {:.0} | |", self.dead_bytes, self.stream_bytes);
        for (name, beside) in [("BGSAVE, s", &self.save_s), ("load, s", &self.load_s)] {
            println!("| {name} | {:.2} | {:.2} | {:.2} |", beside.ours, beside.stream, beside.ratio);
        }
        println!("\n| longest, by SLOWLOG | ms |\n| --- | ---: |");
        for (name, ms) in self.longest_ms.iter().chain(&self.whole_ms) {
            println!("| {name} | {ms:.2} |");
        }
        println!("\n| a neighbour's PING during | p99, ms | longest, ms |\n| --- | ---: | ---: |");
        for (name, noticed) in [("GET", self.quiet)].iter().chain(&self.noticed) {
            println!("| {name} | {:.2} | {:.2} |", noticed.p99_ms, noticed.longest_ms);
        }
    }

    pub fn bars(&self) -> Vec<Bar> {
        let bytes = self.waiting_bytes.max(self.dead_bytes);
        let ledgers = self.longest_ms.iter().filter(|(name, _)| name.starts_with("RES.DLQ"));
        let longest = ledgers.max_by(|one, other| one.1.total_cmp(other.1));
        let (longest_name, longest_ms) = longest.map_or(("none", 0.0), |(name, ms)| (name.as_str(), *ms));
        let later = self.noticed.iter().map(|(name, noticed)| (name, noticed.p99_ms - self.quiet.p99_ms));
        let (later_name, later_ms) = later.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((&"none", 0.0));
        let times = |beside: &Beside| format!("{:.2}x", beside.ratio);
        vec![
            bar(
                "a ledger entry takes at most 300 bytes beyond the caller's own",
                format!("{bytes:.0} bytes"),
                Verdict::at_most(bytes, 300.0),
            ),
            bar(
                "every RES.DLQ command at most 5 ms",
                format!("{longest_ms:.2} ms ({longest_name})"),
                Verdict::at_most(longest_ms, 5.0),
            ),
            bar(
                "a neighbour's PING p99 at most 2 ms later",
                format!("{later_ms:+.2} ms ({later_name})"),
                Verdict::at_most(later_ms, 2.0),
            ),
            bar(
                "BGSAVE at most 1.5x a stream of the same bytes",
                times(&self.save_s),
                Verdict::at_most(self.save_s.ratio, 1.5),
            ),
            bar(
                "load at most 1.5x a stream of the same bytes",
                times(&self.load_s),
                Verdict::at_most(self.load_s.ratio, 1.5),
            ),
        ]
    }
}
