//! A bound lock is never believed by two, whatever happens to connections, networks and processes.
//!
//! Two clients, each behind a network of its own, want the same lock. Connections are reset on both sides or on one, directions are
//! frozen, the server kills connections and is stopped. Each grant is written down, by one clock: since when it was handed over, and
//! until when it was believed. No two may meet. `RESIL_SOAK=1` does more of it, with the default grace and longer freezes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil::lock::LockSettings;
use resil::policy::Random;
use resil_harness::{Server, reply};
use tokio::task::JoinSet;

use crate::proxy::{Proxy, Way};
use crate::scene::{BOUND, all_end, eventually, ms, options, timed};

#[derive(Debug, Clone, Copy)]
struct Belief {
    fence: u64,
    since: Instant,
    until: Instant,
}

/// What is done to the network of one client, or to the server.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Cut(Way),
    Freeze(Way, Duration),
    Kill,
    Stop(Duration),
}

struct Terms {
    grace: Duration,
    lease: Duration,
    faults: usize,
    /// No freeze or stop is longer.
    longest: Duration,
}

struct Scene {
    server: Server,
    networks: [Proxy; 2],
    random: Random,
}

impl Scene {
    fn up_to(&self, most: Duration) -> Duration {
        most.mul_f64(self.random.unit()).max(ms(100).min(most))
    }

    fn fault(&self, longest: Duration) -> Fault {
        let length = self.up_to(longest);
        match (self.random.unit() * 10.0) as u32 {
            0 => Fault::Cut(Way::Both),
            1..=3 => Fault::Cut(Way::ToServer),
            4 => Fault::Cut(Way::ToClient),
            5 => Fault::Freeze(Way::Both, length),
            6 => Fault::Freeze(Way::ToServer, length),
            7 => Fault::Freeze(Way::ToClient, length),
            8 => Fault::Kill,
            _ => Fault::Stop(length),
        }
    }

    async fn befall(&self, fault: Fault) {
        let network = &self.networks[usize::from(self.random.unit() < 0.5)];
        match fault {
            Fault::Cut(side) => network.cut_at(side),
            Fault::Freeze(way, length) => {
                network.freeze_way(way);
                tokio::time::sleep(length).await;
                network.clear_up();
            }
            Fault::Kill => {
                let _ = reply(&mut self.server.connect(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            }
            Fault::Stop(length) => {
                self.server.pause();
                tokio::time::sleep(length).await;
                self.server.resume();
            }
        }
    }
}

/// Plays one scene and returns how many grants there were.
async fn nobody_believes_beside_another(seed: u64, terms: &Terms) -> usize {
    let server = Server::fresh();
    let networks = [Proxy::to(&server).await, Proxy::to(&server).await];
    let scene = Scene { server, networks, random: Random::seeded(seed) };
    let (journal, over) = (Arc::new(Mutex::new(Vec::<Belief>::new())), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for (number, network) in scene.networks.iter().enumerate() {
        let client = options(&network.url()).connect().await.expect("there");
        let lock = client.lock("orders", LockSettings::new().lease(terms.lease).grace(terms.grace)).unwrap();
        let (journal, over, random, grace) =
            (Arc::clone(&journal), Arc::clone(&over), Random::seeded(seed + 1 + number as u64), terms.grace);
        tasks.spawn(async move {
            while !over.load(SeqCst) {
                let Ok(guard) = lock.acquire_within(ms(2_000)).await else { continue };
                let (since, fence) = (Instant::now(), guard.fence().expect("a lock that is held"));
                // Mostly for longer than the grace, so that faults find it held.
                let hold = grace.mul_f64(3.0 * random.unit());
                let mut until = since;
                while since.elapsed() < hold && !over.load(SeqCst) {
                    let now = Instant::now();
                    if !guard.is_held() {
                        break;
                    }
                    // The moment before it was asked: it was believed then.
                    until = now;
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                journal.lock().push(Belief { fence, since, until });
                if !guard.is_held() && since.elapsed() < hold {
                    let reported = tokio::time::timeout(BOUND, guard.lost().cancelled()).await;
                    assert!(reported.is_ok(), "it is lost, and nobody was notified");
                }
                drop(guard);
            }
        });
    }
    for _ in 0..terms.faults {
        tokio::time::sleep(scene.up_to(terms.grace)).await;
        let fault = scene.fault(terms.longest);
        println!("{seed}: {fault:?}");
        scene.befall(fault).await;
    }
    let before = journal.lock().len();
    eventually("it goes on", async || journal.lock().len() > before + 2).await;
    over.store(true, SeqCst);
    // Those that were cut on one side only are notified now.
    scene.networks.iter().for_each(Proxy::cut);
    all_end(tasks).await;
    let mut beliefs = journal.lock().clone();
    beliefs.sort_by_key(|belief| belief.fence);
    for pair in beliefs.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "a fence was given twice: {pair:?}");
        assert!(
            pair[0].until < pair[1].since,
            "two believed at once, for {:?}: {pair:?}",
            pair[0].until - pair[1].since
        );
    }
    beliefs.len()
}

async fn all_scenes(scenes: u64, terms: Terms) {
    let seed = std::env::var("RESIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand_seed);
    println!("RESIL_SEED={seed}");
    let all = (0..scenes).map(|scene| nobody_believes_beside_another(seed.wrapping_add(1_000 * scene), &terms));
    let grants: usize = futures_util::future::join_all(all).await.into_iter().sum();
    println!("{} faults, {grants} grants, no overlap", scenes as usize * terms.faults);
    assert!(grants > 2 * scenes as usize, "too few to judge");
}

fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) >> 16
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bound_lock_is_never_believed_by_two() {
    all_scenes(4, Terms { grace: ms(600), lease: ms(5_000), faults: 27, longest: ms(1_500) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nor_with_the_default_grace_and_freezes_of_ten_seconds() {
    if std::env::var("RESIL_SOAK").is_err() {
        return println!("only with RESIL_SOAK=1");
    }
    all_scenes(6, Terms { grace: ms(3_000), lease: ms(10_000), faults: 40, longest: ms(10_000) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_does_not_cost_the_lock() {
    let server = Server::fresh();
    let proxy = Proxy::to(&server).await;
    // What waits for the shared connection to be given up would wait for too long.
    let client = options(&proxy.url()).command_timeout(ms(2_000)).connect().await.expect("there");
    let guard = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("free");
    let fence = guard.fence();
    for side in [Way::ToServer, Way::ToServer, Way::ToClient] {
        proxy.cut_at(side);
        tokio::time::sleep(ms(4_000)).await;
        assert!(guard.is_held() && !guard.lost().is_cancelled(), "{side:?}: {:?}", guard.held().why_lost());
        eventually("the server agrees", async || guard.check().await == Ok(true)).await;
    }
    assert_eq!(guard.fence(), fence);
}

/// Another process that holds a lock and says whether it believes in it.
struct Holder {
    child: Child,
    stdin: ChildStdin,
    said: BufReader<std::process::ChildStdout>,
}

const HOLDER_URL: &str = "RESIL_TEST_HOLDER_URL";

impl Holder {
    fn of(server: &Server) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "overlaps::holder", "--nocapture", "--include-ignored"])
            .env(HOLDER_URL, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let (stdin, said) = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        let mut holder = Self { child, stdin, said };
        assert_eq!(holder.hear(), "true", "it holds");
        holder
    }

    fn ask(&mut self) {
        self.stdin.write_all(b"?\n").expect("it listens");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).expect("a line") > 0 {
            if let Some((_, said)) = line.rsplit_once("held:") {
                return said.trim().to_owned();
            }
            line.clear();
        }
        panic!("the holder has ended")
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name}");
    }

    /// Returns when none of its threads runs any more: a signal takes a moment on a busy machine.
    async fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_stopped = |status: String| status.lines().any(|line| line.starts_with("State:\tT"));
        eventually("it is stopped", async || {
            std::fs::read_dir(&tasks)
                .expect("it lives")
                .flatten()
                .all(|task| std::fs::read_to_string(task.path().join("status")).is_ok_and(is_stopped))
        })
        .await;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the other process of the two tests below"]
async fn holder() {
    let Ok(url) = std::env::var(HOLDER_URL) else { return };
    let client = options(&url).connect().await.expect("there");
    let guard = client.lock("orders", LockSettings::new().lease(ms(4_000))).unwrap().try_acquire().await.expect("free");
    println!("held:{}", guard.is_held());
    let asking = tokio::task::spawn_blocking(move || {
        for _ in std::io::stdin().lines() {
            println!("held:{}", guard.is_held());
        }
    });
    asking.await.expect("no panic");
}

/// Nothing can interrupt a process that is stopped; but the moment it looks it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stopped_over_its_deadline_knows_it() {
    let server = Server::fresh();
    let other = options(&server.url()).connect().await.expect("there");
    for _ in 0..2 {
        let mut holder = Holder::of(&server);
        holder.ask();
        assert_eq!(holder.hear(), "true");
        holder.stop().await;
        holder.ask();
        // Its connection is still open: it costs the others what is left of its lease.
        let (next, took) =
            timed("the next", other.lock("orders", LockSettings::new()).unwrap().acquire_within(ms(15_000))).await;
        let next = next.expect("the lease ends");
        assert!(took < ms(5_000), "{took:?}");
        holder.signal("-CONT");
        assert_eq!(holder.hear(), "false");
        assert!(next.is_held());
        next.release().await.expect("released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_costs_others_at_most_the_grace() {
    let server = Server::fresh();
    let other = options(&server.url()).connect().await.expect("there");
    let mut holder = Holder::of(&server);
    tokio::time::sleep(ms(1_500)).await;
    holder.child.kill().expect("killed");
    let (next, took) =
        timed("the next", other.lock("orders", LockSettings::new()).unwrap().acquire_within(ms(15_000))).await;
    next.expect("freed").release().await.expect("released");
    println!("a kill cost {took:?}");
    assert!(took < ms(3_000) + crate::scene::SLACK, "{took:?}");
}
