//! Locks over five real servers, of which a minority is killed, frozen or cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil::limiter::Limit;
use resil::lock::{LockSettings, lock_name};
use resil::{Away, Client, ConnectSettings, Error};
use resil_harness::{Options, Relay, Server};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const LEASE: Duration = Duration::from_millis(1_000);
const RETURN_DELAY: Duration = Duration::from_millis(1_500);

/// Five servers: three that forget nothing, two that forget everything and stay out for the delay. Each behind a relay.
pub(super) struct Five {
    pub servers: Vec<Server>,
    relays: Vec<Relay>,
}

impl Five {
    pub fn start() -> Self {
        let servers: Vec<Server> = (0..5)
            .map(|at| {
                let delay = RETURN_DELAY.as_millis().to_string();
                let options = Options::default().module_args(["return-delay", &delay]);
                Server::start(if at < 3 {
                    options.config("appendonly", "yes").config("appendfsync", "always")
                } else {
                    options.config("save", "")
                })
            })
            .collect();
        let relays = servers.iter().map(|server| Relay::to(server.port())).collect();
        let five = Self { servers, relays };
        // The first start has forgotten nothing.
        for server in &five.servers {
            let _: () = redis::cmd("CONFIG")
                .arg(&["SET", "resil.return-delay", "0"])
                .query(&mut server.connect())
                .expect("a directive");
            let _: () = redis::cmd("RES.LOCK")
                .arg(&["ACQUIRE", "first", "a", "10ms"])
                .query(&mut server.connect())
                .map(|_: redis::Value| ())
                .expect("granted");
            let _: () = redis::cmd("CONFIG")
                .arg(&["SET", "resil.return-delay", &RETURN_DELAY.as_millis().to_string()])
                .query(&mut server.connect())
                .expect("a directive");
        }
        five
    }

    fn url(&self) -> String {
        let hosts: Vec<String> = self.relays.iter().map(|relay| format!("127.0.0.1:{}", relay.port())).collect();
        format!("redis+quorum://{}", hosts.join(","))
    }

    pub fn freeze_one_and_close_another(&mut self) {
        self.servers[0].pause();
        self.relays[4].close();
    }

    pub fn bring_back(&mut self) {
        self.servers[0].resume();
        self.relays[4].open();
    }

    pub async fn client(&self) -> Client {
        let client = ConnectSettings::new(self.url()).require_server().connect().await.expect("five servers");
        client.wait_ready(Duration::from_secs(10)).await.expect("a majority");
        client
    }

    /// How many servers say that somebody holds it.
    fn holding(&self, name: &str) -> usize {
        let key = format!("resil:lock:{{{name}}}");
        let holds = |server: &&Server| {
            let info: Vec<redis::Value> =
                redis::cmd("RES.LOCK").arg(&["INFO", &key]).query(&mut server.connect()).expect("a map");
            format!("{info:?}").contains("exclusive")
        };
        self.servers.iter().filter(holds).count()
    }
}

pub(super) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_grants_a_lock_with_growing_fences() {
    let five = Five::start();
    let (one, other) = (five.client().await, five.client().await);
    let settings = || LockSettings::new().wait(ms(3_000));
    let lock = one.lock("stock", settings()).unwrap();
    let guard = lock.acquire().await.expect("free");
    let first = guard.fence().expect("a fence");
    assert!(guard.is_held() && guard.check().await.expect("a majority replies"));
    let busy = other.lock("stock", settings()).unwrap().try_acquire().await;
    assert!(matches!(busy, Err(Error::LockTimeout { .. })), "{busy:?}");
    guard.release().await.expect("released");
    let second = other.lock("stock", settings()).unwrap().acquire().await.expect("free again");
    assert!(second.fence().unwrap() > first);
    drop(second);
    eventually("a lock that was dropped is released everywhere", || five.holding("stock") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_but_exclusive_locks_is_refused_with_a_reason() {
    let five = Five::start();
    let client = five.client().await;
    let refused = |error: Error| {
        let text = error.to_string();
        assert!(text.contains("redis+quorum:// has exclusive locks only"), "{text}");
    };
    refused(client.limiter("l", Limit::per_second(1)).expect_err("a limiter"));
    refused(client.breaker("b", resil::breaker::BreakerSettings::new()).expect_err("a breaker"));
    refused(client.lock("x", LockSettings::new().shared()).expect_err("a shared lock"));
    refused(client.lock("x", LockSettings::new().replicas(1)).expect_err("replicas"));
    refused(client.policies().list().await.expect_err("a list of policies"));
    let twice = resil::connect("redis+quorum://a,b,b").await.expect_err("twice").to_string();
    assert!(twice.contains("twice"), "{twice}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_gone_costs_no_lock() {
    let mut five = Five::start();
    let client = five.client().await;
    let lock = client.lock("stock", LockSettings::new().lease(LEASE)).unwrap();
    five.servers[0].pause();
    five.servers[4].kill9();
    let begun = Instant::now();
    let guard = lock.acquire().await.expect("three of five grant");
    assert!(begun.elapsed() < ms(500), "nobody waited for the frozen one: {:?}", begun.elapsed());
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held(), "three of five renew it");
    five.servers[0].resume();
    five.servers[4].start_again();
    eventually("those that came back hold it, too", || five.holding("stock") == 5).await;
    assert!(guard.is_held());
    guard.release().await.expect("released");
    eventually("released everywhere", || five.holding("stock") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_majority_is_notified_before_others_are_granted() {
    let five = Five::start();
    let client = five.client().await;
    let lock = client.lock("stock", LockSettings::new().lease(LEASE)).unwrap();
    let guard = lock.acquire().await.expect("free");
    (0..3).for_each(|at| five.relays[at].close());
    tokio::time::timeout(LEASE * 3, guard.held().until_lost()).await.expect("reported within its lease");
    let away = lock.acquire_within(ms(100)).await;
    assert!(matches!(away, Err(Error::BackendUnavailable(_))), "{away:?}");
    (0..3).for_each(|at| five.relays[at].open());
    assert!(guard.release().await.is_err(), "it stays lost");
    let later = lock.acquire_within(Duration::from_secs(10)).await;
    assert!(later.is_ok(), "{later:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_attempt_leaves_nothing_behind() {
    let five = Five::start();
    let client = five.client().await;
    for server in &five.servers[..3] {
        let _: redis::Value = redis::cmd("RES.LOCK")
            .arg(&["ACQUIRE", "resil:lock:{stock}", "somebody", "60s"])
            .query(&mut server.connect())
            .expect("granted");
    }
    let lock = client.lock("stock", LockSettings::new().lease(Duration::from_secs(60))).unwrap();
    let taken = lock.try_acquire().await;
    assert!(matches!(taken, Err(Error::LockTimeout { .. })), "{taken:?}");
    let taken = lock.acquire_within(ms(100)).await;
    assert!(matches!(taken, Err(Error::LockTimeout { .. })), "{taken:?}");
    eventually("the two that were free are free again", || five.holding("stock") == 3).await;
}

/// Took three times as long before: each attempt and each release had its own patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_waits_has_its_reply_in_time() {
    let five = Five::start();
    let client = five.client().await;
    let lock = client.lock("stock", LockSettings::new().lease(Duration::from_secs(10))).unwrap();
    lock.acquire().await.expect("free").release().await.expect("released");
    (0..3).for_each(|at| five.relays[at].freeze());
    let begun = Instant::now();
    let away = lock.acquire_within(ms(300)).await;
    assert!(matches!(away, Err(Error::BackendUnavailable(_) | Error::LockTimeout { .. })), "{away:?}");
    assert!(begun.elapsed() < ms(450), "{:?}", begun.elapsed());
    (0..3).for_each(|at| five.relays[at].open());
    eventually("what was granted meanwhile is released", || five.holding("stock") == 0).await;
}

/// Lost before: the last attempt was cut off, which was reported as servers that are away, and opened a lock that somebody held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_replies_are_not_servers_that_are_away() {
    let five = Five::start();
    let client = five.client().await;
    let settings = LockSettings::new().lease(Duration::from_secs(60));
    let guard = client.lock("stock", settings.clone()).unwrap().acquire().await.expect("free");
    five.relays.iter().for_each(|relay| relay.delay(ms(40)));
    for away in [Away::Closed, Away::Open] {
        let lock = client.lock("stock", settings.clone().when_away(away)).unwrap();
        for wait in [ms(60), ms(250), ms(300), ms(350)] {
            let taken = lock.acquire_within(wait).await;
            assert!(matches!(taken, Err(Error::LockTimeout { .. })), "{away:?}, {wait:?}: {taken:?}");
        }
    }
    five.relays.iter().for_each(Relay::open);
    guard.release().await.expect("held all the while");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_an_operator_breaks_is_lost() {
    let five = Five::start();
    let client = five.client().await;
    let lock = client.lock("stock", LockSettings::new().lease(LEASE)).unwrap();
    let guard = lock.acquire().await.expect("free");
    assert_eq!(lock.break_lock("ann", "stuck").await.expect("a majority replies"), 1);
    tokio::time::timeout(LEASE * 2, guard.held().until_lost()).await.expect("reported at the next renewal");
    assert_eq!(guard.held().why_lost(), Some("broken"));
    let released = guard.release().await.expect_err("it stays lost").to_string();
    assert!(released.ends_with("broken"), "{released}");
}

/// Lost before: a release was taken back at the servers that were not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_lock_is_free_at_every_server() {
    let five = Five::start();
    let client = five.client().await;
    let names: Vec<String> = (0..200).map(|at| format!("row:{at}")).collect();
    for name in &names {
        let lock = client.lock(name, LockSettings::new().lease(Duration::from_secs(60))).unwrap();
        lock.acquire().await.expect("free").release().await.expect("released");
    }
    let held = || names.iter().map(|name| five.holding(name)).sum::<usize>();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(held(), 0, "leases that nobody holds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_with_wrong_clocks_costs_no_lock() {
    const DAY_US: i64 = 86_400_000_000;
    for off in [DAY_US, -DAY_US] {
        let servers: Vec<Server> = (0..5)
            .map(|at| {
                let options = Options::default();
                Server::start(if at < 2 { options.module_args(["test-clock", "yes"]) } else { options })
            })
            .collect();
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let clock = i64::try_from(since_1970.as_micros()).expect("a clock") + off;
        for server in &servers[..2] {
            let _: () = redis::cmd("RES._CLOCK").arg(clock).query(&mut server.connect()).expect("a clock to set");
        }
        let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        let client = resil::connect(&format!("redis+quorum://{}", hosts.join(","))).await.expect("five servers");
        client.wait_ready(Duration::from_secs(10)).await.expect("a majority");
        let mut last = 0;
        for round in 0..50 {
            let lock = client.lock("stock", LockSettings::new().lease(LEASE).wait(ms(5_000))).unwrap();
            let guard = lock.acquire().await.unwrap_or_else(|error| panic!("off by {off}, round {round}: {error}"));
            let fence = guard.fence().expect("a fence");
            assert!(fence > last, "off by {off}, round {round}: {fence} after {last}");
            last = fence;
            guard.release().await.expect("released");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_are_all_held_or_none() {
    let (server, five) = (Server::fresh(), Five::start());
    for client in
        [resil::connect("memory://").await.unwrap(), resil::connect(&server.url()).await.unwrap(), five.client().await]
    {
        let name = |id: &str| lock_name("bank", "account", id).unwrap();
        let settings = || LockSettings::new().wait(ms(200));
        let both = client.locks([name("b"), name("a")], settings()).unwrap();
        assert_eq!(both.names(), ["lock:bank:account:a", "lock:bank:account:b"]);
        let held = both.acquire().await.expect("free");
        assert!(held.is_held() && held.guards().iter().all(|guard| guard.fence().is_some()));
        held.release().await.expect("released");
        let second = client.lock(&name("b"), settings()).unwrap().acquire().await.expect("free");
        assert!(matches!(both.acquire().await, Err(Error::LockTimeout { .. })));
        let first = client.lock(&name("a"), settings()).unwrap().try_acquire().await;
        assert!(first.is_ok(), "the one before it was released: {first:?}");
        drop((first, second));
    }
    let client = resil::connect("memory://").await.unwrap();
    assert!(client.locks(["a", "a"], LockSettings::new()).unwrap_err().to_string().contains("twice"));
    assert!(lock_name("bank", "acc:ount", "1").is_err());
}

/// What one caller was notified: held from, until, under which fence.
struct Reported {
    from: Instant,
    to: Instant,
    fence: u64,
}

/// No two overlap, and fences grow in the order of the grants.
fn judge(mut reported: Vec<Reported>) {
    reported.sort_by_key(|reported| reported.from);
    for pair in reported.windows(2) {
        let [before, after] = pair else { continue };
        assert!(after.from >= before.to, "two held for {:?}", before.to - after.from);
        assert!(after.fence > before.fence, "{} after {}", after.fence, before.fence);
    }
}

/// Kills, freezes and cuts off, never more than two at once, until asked to stop.
fn chaos(five: &mut Five, stop: &AtomicBool, played: &AtomicUsize) {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let (one, other) = (rounds % 5, (rounds + 2) % 5);
        match rounds % 3 {
            0 => {
                five.servers[one].pause();
                five.relays[other].close();
                std::thread::sleep(ms(400));
                five.servers[one].resume();
                five.relays[other].open();
            }
            1 => {
                five.servers[one].kill9();
                five.relays[other].freeze();
                std::thread::sleep(ms(100));
                five.servers[one].start_again();
                five.relays[other].open();
                // One that forgot stays out for so long.
                std::thread::sleep(RETURN_DELAY);
            }
            _ => {
                five.relays[one].cut();
                five.relays[other].delay(ms(30));
                std::thread::sleep(ms(300));
                five.relays[other].open();
            }
        }
        rounds += 1;
        played.store(rounds, Ordering::SeqCst);
        // Connections come back within two seconds.
        std::thread::sleep(ms(1_500));
    }
}

/// Each kind of fault, at each server at least once.
const ROUNDS: usize = 6;

async fn acquisitions(count: usize) {
    let mut five = Five::start();
    let (done, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (reported, played) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = five.client().await;
        let (done, reported, played) = (Arc::clone(&done), Arc::clone(&reported), Arc::clone(&played));
        tasks.spawn(async move {
            let settings = LockSettings::new().lease(LEASE).wait(Duration::from_secs(30));
            let lock = client.lock("stock", settings).unwrap();
            while done.load(Ordering::SeqCst) < count || played.load(Ordering::SeqCst) < ROUNDS {
                let Ok(guard) = lock.acquire().await else { continue };
                let (from, fence) = (Instant::now(), guard.fence().expect("a fence"));
                tokio::time::sleep(Duration::from_micros(fence % 3_000)).await;
                // Until when it learned that it holds.
                let left = guard.remaining();
                let to = if guard.is_held() { Instant::now() } else { Instant::now() - ms(1) - left };
                if guard.is_held() {
                    reported.lock().push(Reported { from, to, fence });
                    done.fetch_add(1, Ordering::SeqCst);
                }
                let _ = guard.release().await;
            }
        });
    }
    let ending = Arc::clone(&stop);
    let rounds = Arc::clone(&played);
    let chaos = std::thread::spawn(move || {
        chaos(&mut five, &ending, &rounds);
        five
    });
    let all = async { while tasks.join_next().await.transpose().expect("no panic").is_some() {} };
    let finished = tokio::time::timeout(Duration::from_secs(60 + count as u64 / 10), all).await;
    stop.store(true, Ordering::Relaxed);
    let _five = tokio::task::spawn_blocking(|| chaos.join().expect("no panic")).await.unwrap();
    let rounds = played.load(Ordering::SeqCst);
    assert!(finished.is_ok(), "{} of {count} after {rounds} rounds", done.load(Ordering::SeqCst));
    let reported = std::mem::take(&mut *reported.lock());
    println!("{} acquisitions, {rounds} rounds of faults", reported.len());
    judge(reported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_acquisitions_under_faults_never_overlap() {
    acquisitions(1_000).await;
}

/// `RESIL_SOAK=1` for the long version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_acquisitions_under_faults_never_overlap() {
    if std::env::var_os("RESIL_SOAK").is_none() {
        return println!("soak: not asked for; set RESIL_SOAK=1 to run it");
    }
    acquisitions(20_000).await;
}
