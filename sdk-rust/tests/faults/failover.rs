//! A cluster whose primary changes: in good order, or because it was killed. What is shared goes on at the new one, and
//! those who wait are sent after it.
//!
//! Everything here lives under the tag `a`, so on one node, and that is the node that goes.

use std::time::Duration;

use bytes::Bytes;
use resil::breaker::{BreakerSettings, CountingMode};
use resil::cache::CacheSettings;
use resil::limiter::{DecidedBy, Limit};
use resil::lock::LockGuard;
use resil::lock::LockSettings;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{Away, Client, Status};
use resil_harness::{Cluster, Options, Server, ok, reply, wait_for_sync};

use crate::scene::{BOUND, eventually, ms, options, timed, waiters};

/// Long enough that a busy machine does not make healthy nodes doubt each other, which is how elections fail; short enough
/// for several of them within the bound of a test.
const NODE_TIMEOUT_MS: &str = "2000";

struct Scene {
    cluster: Cluster,
    replica: Server,
    client: Client,
}

fn id_of(node: &Server) -> String {
    redis::from_redis_value(ok(&mut node.connect(), &["CLUSTER", "MYID"])).expect("a name")
}

/// Whether `node` is connected to the one with this name, and knows what it is.
fn knows(node: &Server, id: &str, role: &str) -> bool {
    let nodes: String = redis::from_redis_value(ok(&mut node.connect(), &["CLUSTER", "NODES"])).expect("text");
    nodes.lines().any(|line| line.starts_with(id) && line.contains(role) && line.contains(" connected"))
}

impl Scene {
    async fn set() -> Self {
        let cluster = Cluster::start(3, Options::default().config("cluster-node-timeout", NODE_TIMEOUT_MS));
        let replica = Server::start(Options::default().config("cluster-node-timeout", NODE_TIMEOUT_MS).cluster());
        let primary = cluster.node_for_key("a");
        for node in cluster.nodes() {
            let (port, bus_port) = (node.port().to_string(), node.cluster_bus_port().to_string());
            ok(&mut replica.connect(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
        }
        resil_harness::eventually("the replica follows", BOUND, || {
            reply(&mut replica.connect(), &["CLUSTER", "REPLICATE", &id_of(primary)]).is_ok()
        });
        wait_for_sync(primary, &replica);
        // Only when all know it as a replica, and it knows all who vote, can it be elected.
        for node in cluster.nodes() {
            let (node_id, replica_id) = (id_of(node), id_of(&replica));
            resil_harness::eventually("they know each other", BOUND, || {
                knows(node, &replica_id, "slave") && knows(&replica, &node_id, "master")
            });
        }
        let nodes: Vec<_> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let options = options(&format!("redis+cluster://{}", nodes.join(","))).command_timeout(ms(1_000));
        let client = options.connect().await.expect("there");
        Self { cluster, replica, client }
    }

    fn primary(&self) -> &Server {
        self.cluster.node_for_key("a")
    }

    fn is_taken_over(&self) -> bool {
        let info: String =
            redis::from_redis_value(ok(&mut self.replica.connect(), &["INFO", "replication"])).expect("text");
        info.contains("role:master")
    }

    fn hand_over(&self) {
        resil_harness::eventually("it takes over", BOUND, || {
            let _ = reply(&mut self.replica.connect(), &["CLUSTER", "FAILOVER"]);
            (0..40).any(|_| {
                std::thread::sleep(ms(50));
                self.is_taken_over()
            })
        });
    }

    /// The last words of those who are left, to see why there was no election.
    fn what_nodes_say(&self) -> String {
        let nodes = self.cluster.nodes().iter().filter(|node| node.port() != self.primary().port());
        let logs = nodes.chain([&self.replica]).map(|node| {
            let log = node.log();
            let is_telling = |line: &&str| !line.contains("MASTER") && !line.contains("on socket");
            let last: Vec<&str> = log.lines().filter(is_telling).rev().take(15).collect();
            last.into_iter().rev().collect::<Vec<_>>().join("\n")
        });
        logs.collect::<Vec<_>>().join("\n--\n")
    }

    async fn kill_primary(&self) {
        let pid = self.primary().pid().to_string();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().expect("a signal").success());
        // Nobody helps: two of three primaries are a majority, and they elect the replica.
        let killed = std::time::Instant::now();
        while !self.is_taken_over() {
            assert!(killed.elapsed() < BOUND, "the replica was not elected\n{}", self.what_nodes_say());
            tokio::time::sleep(ms(20)).await;
        }
        println!("the replica was elected after {:?}", killed.elapsed());
    }
}

/// Each of them once; `Err` names what does not work.
async fn everything_works(client: &Client, round: &str) -> Result<(), String> {
    let closed = Limit::per_second(1_000).when_away(Away::Closed);
    let verdict =
        client.limiter("api", closed).expect("valid").check("a").await.map_err(|error| format!("limit: {error}"))?;
    if verdict.decided_by != DecidedBy::Server {
        return Err(format!("limit: {verdict:?}"));
    }
    let exact = BreakerSettings::new().mode(CountingMode::Exact).when_away(Away::Closed);
    let breaker = client.breaker("a", exact).expect("valid");
    breaker.call(async || Ok::<_, String>(())).await.map_err(|failure| format!("breaker: {failure}"))?;
    let cached = client.cached("user", CacheSettings::new().when_away(Away::Closed)).expect("valid");
    let value = Bytes::from(round.to_owned());
    cached.invalidate("a").await.map_err(|error| format!("invalidate: {error}"))?;
    let got = cached
        .get("a", |_| async move { Ok::<_, String>(Some(value)) })
        .await
        .map_err(|error| format!("load: {error}"))?;
    if got.into_value().as_deref() != Some(round.as_bytes()) {
        return Err("load: another value".to_owned());
    }
    let again = cached.get("a", |_| async { Err("kept") }).await.map_err(|error| format!("hit: {error}"))?;
    if again.into_value().as_deref() != Some(round.as_bytes()) {
        return Err("hit: another value".to_owned());
    }
    let bulkhead = client.shared_bulkhead("a", SharedBulkheadSettings::new(2)).unwrap();
    let guard = bulkhead.enter_within(ms(2_000)).await.map_err(|error| format!("enter: {error}"))?;
    guard.leave().await.map(drop).map_err(|error| format!("leave: {error}"))
}

/// How long after the change everything works again.
async fn works_again(client: &Client, round: &str) -> Duration {
    let begun = std::time::Instant::now();
    loop {
        match timed("a round", everything_works(client, round)).await.0 {
            Ok(()) => return begun.elapsed(),
            Err(failed) => assert!(begun.elapsed() < BOUND, "it does not come back: {failed}"),
        }
        tokio::time::sleep(ms(50)).await;
    }
}

type Waiting = tokio::task::JoinHandle<Result<LockGuard, resil::Error>>;

/// Everything works, one holds a lock, another waits for it, and the replica knows.
async fn held_and_waited_for(scene: &Scene) -> (LockGuard, Waiting) {
    let client = &scene.client;
    works_again(client, "before").await;
    // A failover takes longer than the default grace.
    let lock = client.lock("a", LockSettings::new().lease(ms(30_000)).grace(ms(30_000))).unwrap();
    let held = lock.acquire().await.expect("free");
    let waiting = tokio::spawn({
        let lock = client.lock("a", LockSettings::new().wait(ms(25_000))).unwrap();
        async move { lock.acquire().await }
    });
    eventually("it waits", async || waiters(scene.primary()) == 1).await;
    wait_for_sync(scene.primary(), &scene.replica);
    (held, waiting)
}

/// A caller that waited has it after `held`, and nothing is left behind.
async fn passes_on(client: &Client, held: LockGuard, waiting: Waiting) {
    let fence = held.fence();
    held.release().await.expect("released");
    let next = timed("the wait", waiting).await.0.expect("no panic").expect("granted");
    assert!(next.fence() > fence);
    next.release().await.expect("released");
    // Until the replica was elected commands were refused. Health forgets that a second later, when it is asked again.
    eventually("it is healthy", async || {
        let info = client.lock("a", LockSettings::new()).unwrap().info().await.expect("info");
        assert_eq!((info.holders_total, info.waiters_total), (0, 0));
        client.health().overall == Status::Healthy
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_calls_and_waits_follow_the_primary() {
    let scene = Scene::set().await;
    let client = &scene.client;
    let (held, waiting) = held_and_waited_for(&scene).await;
    scene.hand_over();
    eventually("it waits at the new primary", async || waiters(&scene.replica) == 1).await;
    println!("after a failover everything works within {:?}", works_again(client, "after").await);
    assert!(held.is_held());
    assert_eq!(held.check().await, Ok(true), "in good order nothing is lost");
    passes_on(client, held, waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_primarys_kill_calls_and_waits_follow_its_replica() {
    let scene = Scene::set().await;
    let client = &scene.client;
    let (held, waiting) = held_and_waited_for(&scene).await;
    scene.kill_primary().await;
    println!("after a kill everything works within {:?}", works_again(client, "after").await);
    eventually("it waits at the new primary", async || waiters(&scene.replica) == 1).await;
    assert_eq!(held.check().await, Ok(true), "the replica had it");
    passes_on(client, held, waiting).await;
}
