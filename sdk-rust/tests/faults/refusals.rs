//! A server that is there and is no help: for each reason the three modes hold for every primitive, `health` says why, and
//! everything is as before within two seconds of its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis::Connection;
use resil::breaker::BreakerSettings;
use resil::cache::CacheSettings;
use resil::idempotency::IdempotencySettings;
use resil::limiter::{DecidedBy, Limit};
use resil::lock::LockSettings;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Away, Client, Code, Failure, Status};
use resil_harness::{Options, Server, ok};

use crate::scene::{BOUND, SLACK, eventually, ms, options};

/// After the server is of use again.
const RECOVERY: Duration = Duration::from_secs(2);

/// Names that no call has used before: what is known here of a name would reply without the server.
fn fresh(what: &str, away: Away) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{away:?}-{}", LAST.fetch_add(1, SeqCst))
}

fn is_refused(code: Option<Code>) {
    let codes = [Code::BackendUnavailable, Code::PermissionDenied, Code::ModuleMissing];
    assert!(code.is_some_and(|code| codes.contains(&code)), "{code:?}");
}

/// Every primitive in every mode it has, while the server is no help.
async fn all_modes_hold(client: &Client) {
    for away in [Away::Open, Away::Closed, Away::Local] {
        limits_hold(client, away).await;
        breakers_hold(client, away).await;
        loads_hold(client, away).await;
        if away != Away::Local {
            leases_hold(client, away).await;
        }
    }
}

async fn limits_hold(client: &Client, away: Away) {
    let limiter = client.limiter(&fresh("limit", away), Limit::per_hour(2).when_away(away)).expect("valid");
    for call in 0..3 {
        match (away, limiter.check("ann").await) {
            (Away::Closed, refused) => is_refused(refused.err().map(|error| error.code())),
            (Away::Open, verdict) => {
                let verdict = verdict.expect("let through");
                assert!(verdict.is_granted() && verdict.decided_by == DecidedBy::AwayOpen, "{verdict:?}");
            }
            (Away::Local, verdict) => {
                let verdict = verdict.expect("decided here");
                assert_eq!((verdict.is_granted(), verdict.decided_by), (call < 2, DecidedBy::Local));
            }
        }
    }
}

async fn breakers_hold(client: &Client, away: Away) {
    let options = BreakerSettings::new().consecutive_failures(2).when_away(away);
    let breaker = client.breaker(&fresh("breaker", away), options).expect("valid");
    for call in 0..3 {
        let failed = breaker.call(async || Err::<(), _>("down")).await.expect_err("it fails");
        match away {
            Away::Open => assert_eq!(failed, Failure::Inner("down"), "let through"),
            Away::Closed => is_refused(failed.code()),
            Away::Local if call < 2 => assert_eq!(failed, Failure::Inner("down")),
            Away::Local => assert_eq!(failed.code(), Some(Code::CircuitOpen), "the machine here has tripped"),
        }
    }
}

async fn loads_hold(client: &Client, away: Away) {
    let cached = client.cached(&fresh("cached", away), CacheSettings::new().when_away(away)).expect("valid");
    let loads = Arc::new(AtomicU32::new(0));
    let gets = (0..4).map(|_| {
        let loads = Arc::clone(&loads);
        cached.get("k", move |_| async move {
            loads.fetch_add(1, SeqCst);
            tokio::time::sleep(ms(20)).await;
            Ok::<_, String>(Some(Bytes::from("v")))
        })
    });
    for got in futures_util::future::join_all(gets).await {
        match away {
            Away::Closed => is_refused(got.expect_err("refused").code()),
            _ => assert_eq!(got.expect("loaded").into_value().expect("found"), "v"),
        }
    }
    let wanted = match away {
        Away::Closed => 0,
        Away::Local => 1,
        Away::Open => 4,
    };
    assert_eq!(loads.load(SeqCst), wanted, "{away:?}");
}

async fn leases_hold(client: &Client, away: Away) {
    let (lock, bulkhead, work) = (fresh("lock", away), fresh("bulkhead", away), fresh("work", away));
    let lock = client.lock(&lock, LockSettings::new().when_away(away)).unwrap().try_acquire().await;
    let bulkhead =
        client.shared_bulkhead(&bulkhead, SharedBulkheadSettings::new(1).when_away(away)).unwrap().try_enter().await;
    let work = client.idempotent(&work, IdempotencySettings::new().when_away(away)).expect("valid");
    let ran = work.run("k", b"", async |_| Ok::<_, String>("done")).await;
    if away == Away::Open {
        assert!(lock.expect("let through").held().is_unprotected());
        assert!(bulkhead.expect("let in").held().is_unprotected());
        assert!(!ran.expect("run").recorded);
    } else {
        is_refused(lock.err().map(|error| error.code()));
        is_refused(bulkhead.err().map(|error| error.code()));
        is_refused(ran.err().and_then(|error| error.code()));
    }
}

/// Everything is decided by the server.
async fn is_of_use(client: &Client) -> bool {
    let limiter = client.limiter(&fresh("back", Away::Closed), Limit::per_hour(9).when_away(Away::Closed));
    let decided = limiter.expect("valid").check("ann").await;
    decided.is_ok_and(|verdict| verdict.decided_by == DecidedBy::Server) && client.health().overall == Status::Healthy
}

/// What `health` says while it is no help, and how long it takes until it is as before.
async fn goes_and_comes(client: &Client, reason: &str, comes: impl FnOnce()) {
    eventually("health says why", async || {
        let _ = client.limiter(&fresh("ask", Away::Open), Limit::per_hour(9)).expect("valid").check("ann").await;
        client.health().reason.is_some_and(|text| text.contains(reason))
    })
    .await;
    assert_ne!(client.health().overall, Status::Healthy);
    let since = client.health().since.expect("since when");
    assert!(since.elapsed().is_ok_and(|age| age < BOUND), "{since:?}");
    all_modes_hold(client).await;
    assert!(client.health().reason.is_some_and(|text| text.contains(reason)), "{:?}", client.health());
    comes();
    let back = Instant::now();
    eventually("it is of use again", async || is_of_use(client).await).await;
    assert!(back.elapsed() < RECOVERY + SLACK, "{:?} after its return", back.elapsed());
    assert_eq!((client.health().reason, client.health().since), (None, None));
}

async fn connected(server: &Server) -> (Client, Connection) {
    let client = options(&server.url()).connect().await.expect("a server that is there");
    assert!(is_of_use(&client).await);
    (client, server.connect())
}

fn cut_all(admin: &mut Connection) {
    ok(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_is_an_absence() {
    let server = Server::start(Options::default().config("requirepass", "first"));
    let url = server.url().replace("redis://", "redis://:first@");
    let client = options(&url).connect().await.expect("a server that is there");
    let mut admin = redis::Client::open(url).expect("a URL").get_connection().expect("a connection");
    ok(&mut admin, &["CONFIG", "SET", "requirepass", "second"]);
    cut_all(&mut admin);
    goes_and_comes(&client, "password", || {
        ok(&mut admin, &["CONFIG", "SET", "requirepass", "first"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_module_is_an_absence() {
    let mut server = Server::fresh();
    let (client, _) = connected(&server).await;
    let path = server.dir().join("server.conf");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    let without: String =
        config.lines().filter(|line| !line.starts_with("loadmodule")).map(|l| format!("{l}\n")).collect();
    assert_ne!(without, config);
    server.kill9();
    std::fs::write(&path, without).expect("written");
    server.start_again();
    goes_and_comes(&client, "module", || {
        server.kill9();
        std::fs::write(&path, config).expect("written");
        server.start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission_runs_alone() {
    let server = Server::fresh();
    let mut admin = server.connect();
    ok(&mut admin, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]);
    let url = server.url().replace("redis://", "redis://app:secret@");
    let client = options(&url).connect().await.expect("a server that is there");
    ok(&mut admin, &["ACL", "SETUSER", "app", "-@all", "+ping", "+hello", "+auth"]);
    goes_and_comes(&client, "does not allow this user", || {
        ok(&mut admin, &["ACL", "SETUSER", "app", "+@all"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_does_not_flap_where_only_some_commands_are_refused() {
    let server = Server::fresh();
    let mut admin = server.connect();
    ok(&mut admin, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-res.lock"]);
    let url = server.url().replace("redis://", "redis://app:secret@");
    let client = options(&url).connect().await.expect("a server that is there");
    let limiter = client.limiter("steady", Limit::per_second(1_000)).expect("valid");
    is_refused(client.lock("l", LockSettings::new()).unwrap().try_acquire().await.err().map(|error| error.code()));
    let since = client.health().since.expect("since when");
    for _ in 0..10 {
        for _ in 0..3 {
            let verdict = limiter.check("ann").await.expect("granted");
            assert_eq!(verdict.decided_by, DecidedBy::Server);
            assert_ne!(client.health().overall, Status::Healthy, "what succeeds says nothing about what is refused");
            tokio::time::sleep(ms(20)).await;
        }
        is_refused(client.lock("l", LockSettings::new()).unwrap().try_acquire().await.err().map(|error| error.code()));
        assert_eq!(client.health().since, Some(since), "it is one and the same time");
    }
    ok(&mut admin, &["ACL", "SETUSER", "app", "+@all"]);
    let back = Instant::now();
    eventually("it is well again", async || is_of_use(&client).await).await;
    assert!(back.elapsed() < RECOVERY + SLACK, "{:?}", back.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_data_is_an_absence() {
    let server = Server::start(Options::default().config("loading-process-events-interval-bytes", "1024"));
    let (client, mut admin) = connected(&server).await;
    let many: redis::Value = redis::cmd("EVAL")
        .arg("for i = 1, 20000 do redis.call('SET', 'filler:' .. i, string.rep('x', 200)) end")
        .arg(0)
        .query(&mut admin)
        .expect("filled");
    drop(many);
    // So many microseconds for each key.
    ok(&mut admin, &["CONFIG", "SET", "key-load-delay", "400"]);
    let loading = std::thread::spawn(move || ok(&mut admin, &["DEBUG", "RELOAD"]));
    goes_and_comes(&client, "loading", move || drop(loading.join().expect("loaded"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_server_is_an_absence() {
    let server = Server::fresh();
    let (client, mut admin) = connected(&server).await;
    ok(&mut admin, &["REPLICAOF", "127.0.0.1", "1"]);
    goes_and_comes(&client, "replica", || {
        ok(&mut admin, &["REPLICAOF", "NO", "ONE"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_its_primary_is_an_absence() {
    let server = Server::start(Options::default().config("replica-serve-stale-data", "no"));
    let (client, mut admin) = connected(&server).await;
    ok(&mut admin, &["REPLICAOF", "127.0.0.1", "1"]);
    goes_and_comes(&client, "replica", || {
        ok(&mut admin, &["REPLICAOF", "NO", "ONE"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_free_connections_is_an_absence() {
    let server = Server::fresh();
    let (client, mut admin) = connected(&server).await;
    ok(&mut admin, &["CONFIG", "SET", "maxclients", "1"]);
    cut_all(&mut admin);
    goes_and_comes(&client, "no more connections", || {
        ok(&mut admin, &["CONFIG", "SET", "maxclients", "1000"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_an_absence() {
    let server = Server::start(Options::default().cluster());
    let mut admin = server.connect();
    ok(&mut admin, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let up = |admin: &mut Connection| {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(admin).expect("info");
        info.contains("cluster_state:ok")
    };
    resil_harness::eventually("the cluster is up", BOUND, || up(&mut admin));
    let (client, _) = connected(&server).await;
    ok(&mut admin, &["FLUSHALL"]);
    ok(&mut admin, &["CLUSTER", "FLUSHSLOTS"]);
    goes_and_comes(&client, "cluster is down", || {
        ok(&mut admin, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        resil_harness::eventually("the cluster is up", BOUND, || up(&mut admin));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_is_an_absence() {
    let server = Server::start(Options::default().config("busy-reply-threshold", "20"));
    let (client, mut admin) = connected(&server).await;
    let mut endless = server.connect();
    let script = std::thread::spawn(move || {
        let ended: redis::RedisResult<redis::Value> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut endless);
        ended.expect_err("it is killed");
    });
    goes_and_comes(&client, "busy", || {
        ok(&mut admin, &["SCRIPT", "KILL"]);
        script.join().expect("it ended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_writes_is_an_absence() {
    let server = Server::fresh();
    let (client, mut admin) = connected(&server).await;
    ok(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    goes_and_comes(&client, "too few replicas", || {
        ok(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    })
    .await;
}

/// A service that its health took out of service makes no calls any more, and must come back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_recovers_without_any_call() {
    let server = Server::fresh();
    let (client, mut admin) = connected(&server).await;
    ok(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    is_refused(client.lock("l", LockSettings::new()).unwrap().try_acquire().await.err().map(|error| error.code()));
    assert_eq!(client.health().overall, Status::Unhealthy);
    ok(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually("it is healthy", async || client.health().overall == Status::Healthy).await;
    ok(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let again = std::time::SystemTime::now();
    is_refused(client.lock("l", LockSettings::new()).unwrap().try_acquire().await.err().map(|error| error.code()));
    assert!(client.health().since.is_some_and(|since| since >= again), "another time: {:?}", client.health());
}

/// One attempt a second, more or less, for each client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_server_tries_once_a_second() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, attempts) = (listener.local_addr().expect("bound"), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&attempts);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            counted.fetch_add(1, SeqCst);
            drop(stream);
        }
    });
    let client = options(&format!("redis://{address}")).connect().await.expect("it may come later");
    let before = attempts.load(SeqCst);
    tokio::time::sleep(ms(6_000)).await;
    let made = attempts.load(SeqCst) - before;
    assert!((4..=10).contains(&made), "{made} attempts in six seconds");
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_waits_for_its_server_or_says_why() {
    let mut server = Server::fresh();
    let url = server.url();
    server.kill9();
    let client = options(&url).connect().await.expect("it may come later");
    let refused = client.wait_ready(ms(100)).await.expect_err("nobody is there");
    assert_eq!(refused.code(), Code::BackendUnavailable);
    assert!(refused.to_string().contains("refused"), "{refused}");
    let required = options(&url).require_server().connect().await.map(drop).expect_err("nobody is there");
    assert_eq!(required, refused, "the reason, at once");
    let (ready, back) = (tokio::spawn(async move { client.wait_ready(BOUND).await }), Instant::now());
    server.start_again();
    ready.await.expect("no panic").expect("it is there");
    println!("ready {:?} after the start was begun", back.elapsed());
    options(&url).require_server().connect().await.expect("it is there");
}
