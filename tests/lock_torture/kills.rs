//! Clients and servers die, again and again, while everybody wants the same few keys. What counts is what was reported.
//!
//! The short form takes some twenty seconds. The long one (`RESIL_SOAK=1`) kills 200 clients and 20 servers, and waits
//! until the last key is gone. `RESIL_SEED` repeats the choices of a run, though not its timing. `RESIL_TORTURE_DIR`
//! keeps the journals there; `RESIL_TORTURE_JUDGE` only judges those of an earlier run.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use resil_harness::{Options, Server, eventually};
use tempfile::TempDir;

use crate::client::{BULKHEADS, LOCKS, NAME, ORDERS, answered, spelled};
use crate::journal::{Asked, Claim, Journal, KILLER, Line, Verb, read_all};
use crate::judge::judge;
use crate::talk::{Reply, Talk};

const PROCESSES: usize = 6;

/// How often what happens.
struct Plan {
    /// Calls that each process has in flight at once.
    threads: usize,
    client_kills: usize,
    server_kills: usize,
    pauses: usize,
    breaks: usize,
    /// The least of all cuts and kills of clients together, and of calls.
    deaths: usize,
    calls: usize,
    waits_for_the_last_key: bool,
}

const SHORT: Plan = Plan {
    threads: 8,
    client_kills: 20,
    server_kills: 3,
    pauses: 3,
    breaks: 3,
    deaths: 40,
    calls: 1_000,
    waits_for_the_last_key: false,
};

const LONG: Plan = Plan {
    // A thousand of all processes together.
    threads: 170,
    client_kills: 200,
    server_kills: 20,
    pauses: 20,
    breaks: 20,
    deaths: 400,
    calls: 10_000,
    waits_for_the_last_key: true,
};

#[test]
fn no_death_tells_anybody_what_does_not_hold() {
    if let Some(dir) = std::env::var_os("RESIL_TORTURE_JUDGE") {
        return judge(&read_all(&PathBuf::from(dir))).must_be_clean();
    }
    let plan = if std::env::var_os("RESIL_SOAK").is_some() { LONG } else { SHORT };
    let seed = std::env::var("RESIL_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    say(&format!("lock_torture kills: RESIL_SEED={seed}"));
    Torture::start(Rng::with_seed(seed), plan.threads).run(&plan);
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

struct Torture {
    rng: Rng,
    server: Server,
    dir: PathBuf,
    _folder: Option<TempDir>,
    journal: Journal,
    clients: Vec<(u32, Child)>,
    threads: usize,
    /// Numbers the processes.
    count: u32,
    began: Instant,
}

impl Torture {
    fn start(mut rng: Rng, threads: usize) -> Self {
        let (dir, folder) = match std::env::var_os("RESIL_TORTURE_DIR") {
            Some(dir) => (PathBuf::from(dir), None),
            None => {
                let folder = TempDir::with_prefix("torture-").expect("a folder");
                (folder.path().to_owned(), Some(folder))
            }
        };
        fs::create_dir_all(&dir).expect("a folder for the journals");
        let server = Server::start(Options::default().config("appendonly", "yes").config("appendfsync", "always"));
        let journal = Journal::of(&dir, KILLER);
        let began = Instant::now();
        let mut torture = Self {
            rng: rng.fork(),
            server,
            dir,
            _folder: folder,
            journal,
            clients: Vec::new(),
            threads,
            count: 0,
            began,
        };
        torture.open();
        (0..PROCESSES).for_each(|_| torture.start_client());
        torture
    }

    /// Tells the clients where the server is.
    fn open(&self) {
        let (port, draft) = (self.dir.join("port"), self.dir.join("port.new"));
        fs::write(&draft, self.server.port().to_string()).expect("the folder is writable");
        fs::rename(draft, port).expect("the folder is writable");
    }

    fn start_client(&mut self) {
        self.count += 1;
        let orders = format!("{} {} {} {}", self.dir.display(), self.count, self.rng.u64(..), self.threads);
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args([NAME, "--exact", "--quiet"]).env(ORDERS, orders);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        // SAFETY: between fork and exec one system call is made, with integers.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        self.clients.push((self.count, command.spawn().expect("a client can be started")));
    }

    fn run(mut self, plan: &Plan) {
        let mut deeds: Vec<fn(&mut Self)> = Vec::new();
        deeds.extend(vec![Self::kill_client as fn(&mut Self); plan.client_kills]);
        deeds.extend(vec![Self::kill_server as fn(&mut Self); plan.server_kills]);
        deeds.extend(vec![Self::pause_client as fn(&mut Self); plan.pauses]);
        deeds.extend(vec![Self::break_lock as fn(&mut Self); plan.breaks]);
        self.rng.shuffle(&mut deeds);
        for deed in deeds {
            thread::sleep(Duration::from_millis(self.rng.u64(50..450)));
            deed(&mut self);
        }
        thread::sleep(Duration::from_millis(500));
        self.end_clients();
        self.everything_comes_to_rest(plan);
        self.judge(plan);
    }

    fn kill_client(&mut self) {
        let (process, mut child) = self.clients.swap_remove(self.rng.usize(..self.clients.len()));
        self.journal.write(Line::Killed { process });
        child.kill().expect("SIGKILL");
        child.wait().expect("it ended");
        self.start_client();
    }

    /// Beside what the clients hold, something is held for sure: it must still be there.
    fn kill_server(&mut self) {
        self.count += 1;
        let about = |verb: Verb, owner: String, lease_ms: i64| {
            let (key, claim) = ("lock:kept".to_owned(), Claim::Exclusive);
            Asked { verb, key, owner, claim, lease_ms, wait_ms: 0, bound: false }
        };
        let owner = format!("kept.{}", self.count);
        assert_eq!(self.ask(about(Verb::Acquire, owner.clone(), 20_000)).verdict(), "GRANTED");
        fs::remove_file(self.dir.join("port")).expect("it was there");
        self.journal.write(Line::ServerKilled);
        self.server.kill9();
        self.server.start_again();
        self.journal.write(Line::ServerBack);
        self.open();
        self.ask(about(Verb::Check, owner.clone(), 0));
        self.ask(about(Verb::Release, owner, 0));
    }

    fn ask(&mut self, asked: Asked) -> Reply {
        let (line, verb, claim) = (spelled(&asked), asked.verb, asked.claim);
        let mut talk = Talk::to(self.server.port()).expect("the server is there");
        self.journal.write(Line::Asked(asked));
        let reply = talk.say(&line);
        self.journal.write(answered(verb, claim, &reply));
        reply
    }

    /// Frozen longer than most leases.
    fn pause_client(&mut self) {
        let (process, child) = &self.clients[self.rng.usize(..self.clients.len())];
        let signal = |signal: i32| {
            // SAFETY: the child is ours and not waited for yet, so the number is still its own.
            unsafe { libc::kill(child.id() as i32, signal) };
        };
        self.journal.write(Line::Paused { process: *process });
        signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(self.rng.u64(100..800)));
        signal(libc::SIGCONT);
        self.journal.write(Line::Resumed { process: *process });
    }

    fn break_lock(&mut self) {
        let key = LOCKS[self.rng.usize(..LOCKS.len())].to_owned();
        let (owner, claim) = ("-".to_owned(), Claim::Exclusive);
        self.ask(Asked { verb: Verb::Break, key, owner, claim, lease_ms: 0, wait_ms: 0, bound: false });
    }

    /// The end of their input: they finish what they do, and go. A caller that waits waits no longer than it said.
    fn end_clients(&mut self) {
        for (_, child) in &mut self.clients {
            child.stdin = None;
        }
        for (process, mut child) in self.clients.drain(..) {
            let mut status = None;
            eventually(&format!("client {process} ends"), Duration::from_secs(10), || {
                status = child.try_wait().expect("a child of ours");
                status.is_some()
            });
            assert!(status.is_some_and(|status| status.success()), "client {process}: {status:?}");
        }
    }

    fn everything_comes_to_rest(&self, plan: &Plan) {
        let mut talk = Talk::to(self.server.port()).expect("the server is there");
        let mut gauge = |name: &str| gauge(&mut talk, name);
        for name in ["resil_blocked_waiters", "resil_sessions", "resil_bound"] {
            eventually(&format!("{name} is 0"), Duration::from_secs(3), || gauge(name) == 0);
        }
        assert_eq!(gauge("resil_internal_errors"), 0);
        // Leases of those who died: the longest is 2.5 s.
        let keys = LOCKS.iter().map(|key| ("RES.LOCK", *key)).chain(BULKHEADS.map(|(key, _)| ("RES.BULKHEAD", key)));
        for (machine, key) in keys {
            eventually(&format!("nobody holds {key}"), Duration::from_secs(4), || {
                let info = talk.say(&format!("{machine} INFO {key}"));
                field(&info, "holders") == Some(&Reply::List(Vec::new()))
            });
            let ttl_ms = talk.say(&format!("PTTL {key}")).number(0);
            assert!((1..=132_000).contains(&ttl_ms), "{key} is not collected: PTTL {ttl_ms}");
        }
        if plan.waits_for_the_last_key {
            eventually("all keys are gone", Duration::from_secs(140), || {
                thread::sleep(Duration::from_millis(500));
                talk.say("DBSIZE") == Reply::Number(0)
            });
            assert_eq!(gauge_of_keys(&mut talk), (0, 0));
        }
    }

    fn judge(self, plan: &Plan) {
        let judgement = judge(&read_all(&self.dir));
        let seconds = self.began.elapsed().as_secs();
        let faults = judgement.faults.len();
        say(&format!(
            "lock_torture kills on {}: {seconds} s, {} calls, {} grants ({} after waiting, {} asked again), {} clients \
             killed, {} connections cut, {} clients paused, {} servers killed, {} calls unanswered, {} grants outlived a \
             server, slowest reply {} ms over its WAIT, most at once {:?}, verdicts {:?}, {faults} faults",
            self.server.flavor().name(),
            judgement.calls,
            judgement.grants,
            judgement.waited,
            judgement.asked_again,
            judgement.killed,
            judgement.cuts,
            judgement.paused,
            judgement.server_killed,
            judgement.unanswered,
            judgement.survived,
            judgement.slowest_ms,
            judgement.peaks,
            judgement.verdicts,
        ));
        judgement.must_be_clean();
        // It was as bad a day as it was meant to be.
        assert!(judgement.calls >= plan.calls && judgement.grants >= plan.calls / 4, "{judgement:?}");
        assert!(judgement.killed + judgement.cuts >= plan.deaths, "{judgement:?}");
        assert_eq!((judgement.killed, judgement.server_killed), (plan.client_kills, plan.server_kills));
        assert!(judgement.survived >= plan.server_kills, "{judgement:?}");
        assert!(judgement.waited > 0 && judgement.asked_again > 0, "{judgement:?}");
        for (key, max) in BULKHEADS {
            assert_eq!(judgement.peaks.get(key).copied(), Some(max as usize), "{key} was full, and never fuller");
        }
        assert!(LOCKS.iter().any(|key| judgement.peaks.get(*key).is_some_and(|most| *most > 1)), "readers shared");
    }
}

fn gauge_of_keys(talk: &mut Talk) -> (i64, i64) {
    (gauge(talk, "resil_lock_keys"), gauge(talk, "resil_bulkhead_keys"))
}

pub fn gauge(talk: &mut Talk, name: &str) -> i64 {
    let Reply::Text(info) = talk.say("INFO everything") else { panic!("INFO is text") };
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in INFO"))
}

/// A field of a map as RESP2 has it: names and values in turn.
pub fn field<'r>(reply: &'r Reply, name: &str) -> Option<&'r Reply> {
    let Reply::List(elements) = reply else { return None };
    let mut pairs = elements.chunks_exact(2);
    pairs.find_map(|pair| matches!(&pair[0], Reply::Text(text) if text == name).then_some(&pair[1]))
}
