//! Fifty workers, and everything that can befall them and their servers.
//!
//! The short form takes some fifteen seconds. The long one (`RESIL_SOAK=1`) takes minutes. `RESIL_SEED` repeats the choices of a
//! run, though not its timing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use resil_harness::{Options, Server, eventually, wait_for_sync};
use tempfile::TempDir;

use crate::driven::{SOON, Say};
use crate::judge::{drain, judge, read_journals};
use crate::seed::{say, seeded};
use crate::worker::{NAME, ORDERS, PRIMARY, ask};

const PROCESSES: usize = 5;
const THREADS: usize = 10;

fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("RESIL_SOAK").is_some() { long } else { short }
}

struct Torture {
    rng: Rng,
    folder: TempDir,
    workers: Vec<Child>,
    count: usize,
}

impl Torture {
    fn start(what: &str) -> Self {
        let rng = seeded(what);
        Self { rng, folder: TempDir::with_prefix("ledger-").expect("a folder"), workers: Vec::new(), count: 0 }
    }

    fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Workers that connect from now on come here.
    fn primary_is(&self, server: &Server, replicas: u32) {
        let (path, new): (PathBuf, PathBuf) = (self.dir().join(PRIMARY), self.dir().join("new"));
        fs::write(&new, format!("{} {replicas}", server.port())).expect("a file");
        fs::rename(new, path).expect("a file");
    }

    fn spawn(&mut self) -> Child {
        self.count += 1;
        let seed = self.rng.u64(..);
        let orders = format!("{} {} {seed} {THREADS}", self.dir().display(), self.count);
        let program = std::env::current_exe().expect("this binary");
        let mut command = Command::new(program);
        command.args(["--exact", NAME]).env(ORDERS, orders);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("a process")
    }

    fn employ(&mut self) {
        while self.workers.len() < PROCESSES {
            let worker = self.spawn();
            self.workers.push(worker);
        }
    }

    fn signal(&self, index: usize, signal: i32) {
        let pid = i32::try_from(self.workers[index].id()).expect("a process id");
        // SAFETY: a process that this test started and has not waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Something that befalls workers.
    fn strike_workers(&mut self, server: &Server) {
        let index = self.rng.usize(..self.workers.len());
        match self.rng.u32(..3) {
            0 => {
                let mut dead = self.workers.swap_remove(index);
                dead.kill().expect("it runs");
                dead.wait().expect("it ended");
                self.employ();
            }
            1 => {
                self.signal(index, libc::SIGSTOP);
                // Longer than their leases.
                sleep(Duration::from_millis(1_300));
                self.signal(index, libc::SIGCONT);
            }
            _ => drop(server.connect().outcome("CLIENT KILL TYPE normal SKIPME yes")),
        }
    }

    fn dismiss(&mut self) {
        for mut worker in self.workers.drain(..) {
            drop(worker.stdin.take());
            worker.wait().expect("it ended");
        }
    }

    fn conclude(mut self, server: &Server) {
        self.dismiss();
        let journals = read_journals(self.dir());
        let mut connection = server.connect();
        let drained = drain(&mut connection);
        let states = judge(&journals, &mut connection);
        let (failed, done) = (journals.failed.len(), journals.done.len());
        say(&format!(
            "ledger torture: {failed} failed, {done} reported done, {drained} left over, in the end {states:?}"
        ));
        assert!(failed > 300 && done > 100, "too little to judge: {failed} failed, {done} done");
        assert_eq!(connection.info_number("resil", "internal_errors"), 0);
    }
}

impl Drop for Torture {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn configure(server: &Server) {
    let line = "RES.DLQ CONFIG d CLASS transient BASE 100ms CAP 400ms RETRIES 4 CRASHES 3 ACTOR test";
    assert_eq!(ask(&mut server.connect(), line), "OK");
}

#[test]
fn no_worker_that_dies_loses_or_repeats_a_message() {
    let mut torture = Torture::start("ledger torture, restarts");
    let mut server = Server::start(Options::default().config("appendonly", "yes").config("appendfsync", "always"));
    configure(&server);
    torture.primary_is(&server, 0);
    torture.employ();
    for round in 0..rounds(6, 60) {
        sleep(Duration::from_millis(400));
        torture.strike_workers(&server);
        match round % 3 {
            0 => server.restart_after_kill(),
            1 => {
                // From here on the file begins with a snapshot.
                let mut connection = server.connect();
                connection.say("BGREWRITEAOF");
                eventually("the file is rewritten", SOON, || {
                    connection.info("persistence", "aof_rewrite_in_progress") == "0"
                        && connection.info("persistence", "aof_rewrite_scheduled") == "0"
                });
                server.restart_after_terminate();
            }
            _ => {
                server.pause();
                sleep(Duration::from_millis(1_200));
                server.resume();
            }
        }
        torture.primary_is(&server, 0);
    }
    sleep(Duration::from_millis(500));
    torture.conclude(&server);
}

#[test]
fn what_a_replica_has_acknowledged_survives_every_failover() {
    let mut torture = Torture::start("ledger torture, failovers");
    let mut primary = Server::fresh();
    let mut replica = Server::replica_of(&primary, Options::default());
    configure(&primary);
    wait_for_sync(&primary, &replica);
    torture.primary_is(&primary, 1);
    torture.employ();
    for _ in 0..rounds(4, 40) {
        sleep(Duration::from_millis(600));
        torture.strike_workers(&primary);
        primary.kill9();
        assert_eq!(replica.connect().text("REPLICAOF NO ONE"), "OK");
        primary = replica;
        replica = Server::replica_of(&primary, Options::default());
        torture.primary_is(&primary, 1);
    }
    sleep(Duration::from_millis(500));
    torture.dismiss();
    // Leases of those who were killed still end meanwhile.
    eventually("the replica is equal", SOON, || {
        wait_for_sync(&primary, &replica);
        primary.connect().digest("d") == replica.connect().digest("d")
    });
    torture.conclude(&primary);
}
