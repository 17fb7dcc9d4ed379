//! Workers that will be killed: threads that fail messages, take what is due, settle it, forget it, and cut their connections.
//!
//! Each thread has a journal. What it heard is written there as soon as it was notified, in one write, so that a kill leaves whole
//! lines. It is started by `kills` as another process of this binary; run as a test it does nothing.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use redis::{Client, Connection};

use crate::letters::given;
use crate::scene::{receive, send};

/// `folder process seed threads`, for the process that is started; and `reliable` if it settles all that it takes.
pub const ORDERS: &str = "RESIL_LEDGER_WORKER";
pub const NAME: &str = "worker::as_it_is_asked";
/// In the folder: where the primary listens, and how many replicas have to know before a worker believes a reply.
pub const PRIMARY: &str = "primary";
/// What is in the id of a message that kills its taker.
pub const DEADLY: &str = "deadly";

static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn as_it_is_asked() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Vec<&str> = orders.split(' ').collect();
    let [dir, process, seed, threads, ref more @ ..] = orders[..] else { panic!("four orders at least") };
    let is_reliable = more.contains(&"reliable");
    let mut rng = Rng::with_seed(seed.parse().expect("a seed"));
    thread::scope(|scope| {
        for thread in 0..threads.parse().expect("a number") {
            let name = format!("{process}-{thread}");
            let worker = Worker::new(Path::new(dir), name, is_reliable, rng.fork());
            scope.spawn(move || worker.run());
        }
        // The end of the input is the end of the work.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, Relaxed);
    });
}

/// A connection to the server that is the primary now, if it can be had.
pub fn connect(dir: &Path) -> Option<(Connection, u32)> {
    let text = read_to_string(dir.join(PRIMARY)).ok()?;
    let (port, replicas) = text.split_once(' ')?;
    let client = Client::open(format!("redis://127.0.0.1:{port}/")).ok()?;
    let connection = client.get_connection_with_timeout(Duration::from_millis(500)).ok()?;
    connection.set_read_timeout(Some(Duration::from_secs(3))).ok()?;
    Some((connection, replicas.trim().parse().ok()?))
}

pub struct Worker {
    dir: PathBuf,
    name: String,
    is_reliable: bool,
    rng: Rng,
    journal: File,
    connection: Option<(Connection, u32)>,
    count: u64,
    failed: u64,
}

/// So many messages come from one worker: the ends of all of them must be remembered when they are judged, and a ledger remembers
/// 10,000. The long form replaces some thirty processes of ten workers.
fn failed_max() -> u64 {
    if std::env::var_os("RESIL_SOAK").is_some() { 20 } else { 80 }
}

impl Worker {
    pub fn new(dir: &Path, name: String, is_reliable: bool, rng: Rng) -> Self {
        let path = dir.join(format!("{name}.journal"));
        let journal = OpenOptions::new().create(true).append(true).open(path).expect("a journal");
        Self { dir: dir.to_owned(), name, is_reliable, rng, journal, connection: None, count: 0, failed: 0 }
    }

    fn note(&mut self, line: &str) {
        self.journal.write_all(format!("{line}\n").as_bytes()).expect("a journal can be written");
    }

    pub fn run(mut self) {
        while !STOP.load(Relaxed) {
            if self.connection.is_none() {
                self.connection = connect(&self.dir);
                if self.connection.is_none() {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
            }
            match self.rng.u32(..100) {
                0..40 if self.failed < failed_max() => self.fail_new(),
                0..98 => self.take(),
                // The cable is cut.
                _ => self.connection = None,
            }
            thread::sleep(Duration::from_millis(self.rng.u64(1..12)));
        }
    }

    /// The reply, if there is one to believe: with a replica, only what the replica knows too.
    fn ask(&mut self, line: &str) -> Option<String> {
        let (connection, replicas) = self.connection.as_mut()?;
        send_if_open(connection, line)?;
        let reply = receive(connection);
        let is_lost = |reply: &str| ["closed", "nothing", "-"].iter().any(|start| reply.starts_with(start));
        if is_lost(&reply) {
            self.connection = None;
            return None;
        }
        if *replicas > 0 {
            let line = format!("WAIT {replicas} 1000");
            send_if_open(connection, &line)?;
            let known = receive(connection).parse::<u32>().unwrap_or(0);
            if known < *replicas {
                self.connection = None;
                return None;
            }
        }
        Some(reply)
    }

    fn fail_new(&mut self) {
        self.count += 1;
        self.failed += 1;
        let id = format!("m-{}-{}-{}", self.name, self.count, self.rng.u32(..));
        if let Some(reply) = self.ask(&format!("RES.DLQ FAIL d {id} ERROR e PAYLOAD {id} TYPE t")) {
            assert!(reply.starts_with("[RETRY 1 ") || reply.starts_with("[KNOWN "), "{reply}");
            self.note(&format!("failed {id}"));
        }
    }

    fn take(&mut self) {
        self.count += 1;
        let bound = ["", "BOUND", "BOUND GRACE 300ms"][self.rng.usize(..3)];
        let (count, wait) = (self.rng.u32(1..6), ["", "WAIT 300ms"][self.rng.usize(..2)]);
        let line = format!("RES.DLQ TAKE d t-{}-{} 1s COUNT {count} {wait} {bound}", self.name, self.count);
        let Some(reply) = self.ask(&line) else { return };
        if !reply.starts_with("[TAKEN ") {
            return;
        }
        let entries = given(&reply);
        if entries.iter().any(|(id, _)| id.contains(DEADLY)) {
            self.note("deadly");
            std::process::abort();
        }
        for (id, fence) in entries {
            match self.rng.u32(..if self.is_reliable { 95 } else { 100 }) {
                0..75 => {
                    let is_done = self.ask(&format!("RES.DLQ DONE d {id} {fence}")).as_deref() == Some("[DONE]");
                    if is_done {
                        self.note(&format!("done {id} {fence}"));
                    }
                }
                75..88 => drop(self.ask(&format!("RES.DLQ FAIL d {id} ERROR again FENCE {fence}"))),
                88..95 => drop(self.ask(&format!("RES.DLQ RETURN d {id} {fence}"))),
                // Forgotten.
                _ => {}
            }
        }
    }
}

/// `None` if the connection is known to be closed.
fn send_if_open(connection: &mut Connection, line: &str) -> Option<()> {
    let mut command = redis::Cmd::new();
    line.split_whitespace().for_each(|word| {
        command.arg(word);
    });
    connection.send_packed_command(&command.get_packed_command()).ok()
}

/// For the tests of this target: a line and its reply.
pub fn ask(connection: &mut Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}
