//! Queues of waiters through everything that can happen to a server: failovers, slots that move, restarts, FLUSHALL, cut connections.
//!
//! # The judge
//! Each grant is written down by one clock: its fence, since when it was handed over, and until when it was believed. It knows
//! nothing else but when data were flushed. Two grants never meet, unless FLUSHALL took the first one away in between. Fences
//! grow. Every call ends within its time, granted or with a clear error. Afterwards nobody holds the lock and nobody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil::lock::{Lock, LockSettings};
use resil::policy::Random;
use resil::{Client, Code};
use resil_harness::{Cluster, Options, Server, ok, reply, wait_for_sync};
use tokio::task::JoinSet;

use crate::scene::{BOUND, all_end, careful, eventually, kill_listeners, ms, options};

const CALLERS: usize = 12;
const WAIT: Duration = Duration::from_secs(8);
const LEASE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
struct Grant {
    fence: u64,
    since: Instant,
    until: Instant,
}

#[derive(Default)]
struct Journal {
    grants: Mutex<Vec<Grant>>,
    flushed: Mutex<Vec<Instant>>,
    refused: Mutex<Vec<Code>>,
    is_over: AtomicBool,
}

impl Journal {
    /// One caller: it wants the lock again and again.
    async fn keep(self: Arc<Self>, lock: Lock, random: Random) {
        while !self.is_over.load(SeqCst) {
            let asked = Instant::now();
            let granted = lock.acquire_within(WAIT).await;
            assert!(asked.elapsed() < WAIT + Duration::from_secs(4), "a wait of {WAIT:?} took {:?}", asked.elapsed());
            let guard = match granted {
                Ok(guard) => guard,
                Err(error) => {
                    let is_clear = matches!(error.code(), Code::LockTimeout | Code::BackendUnavailable);
                    assert!(is_clear, "{error:?}");
                    self.refused.lock().push(error.code());
                    continue;
                }
            };
            let (since, fence) = (Instant::now(), guard.fence().expect("a lock that is held"));
            let (hold, mut until) = (ms(20).mul_f64(random.unit()), since);
            while guard.is_held() && since.elapsed() < hold {
                until = Instant::now();
                tokio::time::sleep(ms(1)).await;
            }
            self.grants.lock().push(Grant { fence, since, until });
            // Whether the server heard it is the server's affair: the lease ends, too.
            let _ = guard.release().await;
        }
    }

    fn count(&self) -> usize {
        self.grants.lock().len()
    }

    fn judge(&self) {
        let mut grants = self.grants.lock().clone();
        let flushed = self.flushed.lock().clone();
        grants.sort_by_key(|grant| grant.since);
        for pair in grants.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            // What is flushed is lost at once, and reported a moment later.
            let is_flushed = flushed.iter().any(|at| *at >= first.since - ms(500) && *at <= second.since);
            assert!(first.until < second.since || is_flushed, "two hold it: {first:?}, {second:?}");
            assert!(first.fence < second.fence, "fences fall: {first:?}, {second:?}");
        }
        let refused = self.refused.lock();
        let late = refused.iter().filter(|code| **code == Code::LockTimeout).count();
        println!("{} grants, {} refused, {late} of them for want of time", grants.len(), refused.len());
        assert!(grants.len() > 60, "too few to judge: {}", grants.len());
    }
}

/// Two clients whose callers want the lock while `befall` is called `faults` times.
async fn judged(url: &str, seed: u64, faults: usize, mut befall: impl AsyncFnMut(&Random, &Journal)) -> Client {
    let (journal, random) = (Arc::new(Journal::default()), Random::seeded(seed));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for client_number in 0..2 {
        let client = options(url).command_timeout(ms(1_000)).connect().await.expect("there");
        for number in 0..CALLERS {
            let lock = client.lock("a", LockSettings::new().lease(LEASE).grace(ms(500))).expect("valid");
            let random = Random::seeded(seed ^ (client_number * 1_000 + number + 1) as u64);
            tasks.spawn(Arc::clone(&journal).keep(lock, random));
        }
        clients.push(client);
    }
    for _ in 0..faults {
        tokio::time::sleep(ms(300).mul_f64(random.unit())).await;
        befall(&random, &journal).await;
        let before = journal.count();
        eventually("it goes on", async || journal.count() > before + 5).await;
    }
    journal.is_over.store(true, SeqCst);
    all_end(tasks).await;
    journal.judge();
    let client = clients.swap_remove(0);
    eventually("nobody holds it and nobody waits", async || {
        let lock = client.lock("a", LockSettings::new()).expect("valid");
        lock.info().await.is_ok_and(|info| (info.holders_total, info.waiters_total) == (0, 0))
    })
    .await;
    client
}

fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let given = std::env::var("RESIL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(()) >> 16);
    println!("RESIL_SEED={seed}");
    seed
}

fn flush(server: &Server, journal: &Journal) {
    journal.flushed.lock().push(Instant::now());
    ok(&mut server.connect(), &["FLUSHALL"]);
    journal.flushed.lock().push(Instant::now());
}

fn cut_everybody(server: &Server) {
    let _ = reply(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_of_a_server_survive_restarts_flushes_and_cuts() {
    let mut server = careful();
    let url = server.url();
    judged(&url, seed(), 12, async |random, journal| match (random.unit() * 5.0) as u32 {
        0 => {
            println!("killed and started again");
            server.restart_after_kill();
        }
        1 => {
            println!("flushed");
            flush(&server, journal);
        }
        2 => {
            println!("listeners are cut");
            kill_listeners(&server);
        }
        3 => {
            println!("all are cut");
            cut_everybody(&server);
        }
        _ => {
            let length = ms(1_500).mul_f64(random.unit());
            println!("stopped for {length:?}");
            server.pause();
            tokio::time::sleep(length).await;
            server.resume();
        }
    })
    .await;
}

/// Three primaries, and a replica of the one that has `a` at first.
struct Nodes {
    cluster: Cluster,
    replica: Server,
    slot: String,
}

impl Nodes {
    fn start() -> Self {
        let options = Options::default().config("cluster-node-timeout", "2000");
        let cluster = Cluster::start(3, options.clone());
        let replica = Server::start(options.cluster());
        let nodes = Self { slot: cluster.slot_of("resil:lock:{a}").to_string(), cluster, replica };
        let primary = nodes.cluster.node_for_key("a");
        for node in nodes.cluster.nodes() {
            let (port, bus_port) = (node.port().to_string(), node.cluster_bus_port().to_string());
            ok(&mut nodes.replica.connect(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
        }
        resil_harness::eventually("the replica follows", BOUND, || {
            reply(&mut nodes.replica.connect(), &["CLUSTER", "REPLICATE", &id(primary)]).is_ok()
        });
        wait_for_sync(primary, &nodes.replica);
        let replica = id(&nodes.replica);
        resil_harness::eventually("all know it", BOUND, || {
            nodes
                .all()
                .all(|node| lines(node).iter().any(|line| line.starts_with(&replica) && !line.contains("handshake")))
        });
        nodes
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        self.cluster.nodes().iter().chain([&self.replica])
    }

    /// The port of the node that has the slot, if all agree on it.
    fn agreed(&self) -> Option<u16> {
        let mut owners = self.all().map(|node| owner_of(node, self.slot.parse().ok()?));
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first)
    }

    fn owner(&self) -> &Server {
        let mut owner = None;
        resil_harness::eventually("the nodes agree", BOUND, || {
            owner = self.agreed();
            owner.is_some()
        });
        self.all().find(|node| Some(node.port()) == owner).expect("one of ours")
    }

    /// A replica takes over, in good order. Which of the pair it is depends on what was before.
    fn fail_over(&self) {
        self.owner();
        let replica = self.all().find(|node| role(node) == "slave").expect("one is a replica");
        resil_harness::eventually("it takes over", BOUND, || {
            let _ = reply(&mut replica.connect(), &["CLUSTER", "FAILOVER"]);
            resil_harness::becomes_true(Duration::from_secs(2), || role(replica) == "master")
        });
    }

    /// To another primary, with all it has.
    fn move_slot(&self, random: &Random) {
        let from = self.owner();
        let others: Vec<_> = self.all().filter(|node| role(node) == "master" && node.port() != from.port()).collect();
        let to = others[(random.unit() * others.len() as f64) as usize];
        println!("from {} to {}", from.port(), to.port());
        let (from_id, to_id) = (id(from), id(to));
        let set = |node: &Server, words: &[&str]| {
            let command = [&["CLUSTER", "SETSLOT", &self.slot], words].concat();
            resil_harness::eventually("it is set", BOUND, || reply(&mut node.connect(), &command).is_ok());
        };
        set(to, &["IMPORTING", &from_id]);
        set(from, &["MIGRATING", &to_id]);
        std::thread::sleep(ms(100).mul_f64(random.unit()));
        let port = to.port().to_string();
        resil_harness::eventually("its keys have moved", BOUND, || {
            let keys = ok(&mut from.connect(), &["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            let keys: Vec<String> = redis::from_redis_value(keys).expect("names");
            for key in &keys {
                let _ = reply(&mut from.connect(), &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            }
            keys.is_empty()
        });
        std::thread::sleep(ms(100).mul_f64(random.unit()));
        set(to, &["NODE", &to_id]);
        set(from, &["NODE", &to_id]);
    }
}

fn id(node: &Server) -> String {
    redis::from_redis_value(ok(&mut node.connect(), &["CLUSTER", "MYID"])).expect("a name")
}

fn role(node: &Server) -> String {
    let info: String = redis::from_redis_value(ok(&mut node.connect(), &["INFO", "replication"])).expect("text");
    info.lines().find_map(|line| line.strip_prefix("role:")).expect("a role").trim().to_owned()
}

fn lines(node: &Server) -> Vec<String> {
    let nodes: String = redis::from_redis_value(ok(&mut node.connect(), &["CLUSTER", "NODES"])).expect("text");
    nodes.lines().map(str::to_owned).collect()
}

/// The port of the primary that has `slot`, as `node` sees it.
fn owner_of(node: &Server, slot: u16) -> Option<u16> {
    let has_it = |line: &&String| {
        line.split(' ').skip(8).filter(|word| !word.starts_with('[')).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse::<u16>().is_ok_and(|first| first <= slot) && last.parse::<u16>().is_ok_and(|last| slot <= last)
        })
    };
    let all = lines(node);
    let address = all.iter().find(has_it)?.split(' ').nth(1)?.split('@').next()?.to_owned();
    address.rsplit_once(':')?.1.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_clusters_waiters_survive_failovers_moves_flushes_and_cuts() {
    let nodes = Nodes::start();
    let all: Vec<_> = nodes.all().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis+cluster://{}", all.join(","));
    judged(&url, seed(), 12, async |random, journal| match (random.unit() * 6.0) as u32 {
        0 | 1 => {
            println!("failover");
            tokio::task::block_in_place(|| nodes.fail_over());
        }
        2 | 3 => {
            println!("the slot moves");
            tokio::task::block_in_place(|| nodes.move_slot(random));
        }
        4 => {
            println!("flushed");
            tokio::task::block_in_place(|| flush(nodes.owner(), journal));
        }
        _ => {
            println!("all are cut");
            tokio::task::block_in_place(|| cut_everybody(nodes.owner()));
        }
    })
    .await;
}
