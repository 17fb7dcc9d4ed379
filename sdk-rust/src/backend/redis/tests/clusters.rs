//! A cluster: calls and waits find their node, also after a failover.

use std::sync::Arc;

use resil_harness::{Cluster, Options, wait_for_sync};

use super::cluster_waits::waiters_at;
use super::*;
use crate::error::Code;

pub(super) fn url(cluster: &Cluster) -> String {
    let nodes: Vec<_> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis+cluster://{}", nodes.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_waits_find_the_node_of_their_key() {
    let cluster = Cluster::start(3, Options::default());
    let redis = Arc::new(connect(&url(&cluster)).await.unwrap());
    assert_eq!(redis.bind(), Bind::None);
    for number in 0..30 {
        let key = format!("key{number}");
        works(&redis, &format!("limit{number}")).await;
        assert!(is_granted(&redis.wait(&lock(&key, "me", BOUND)).await));
        assert_eq!(holders_and_waiters(&redis, &key).await, (1, 0));
    }
    let you = tokio::spawn({
        let redis = redis.clone();
        async move { redis.wait(&lock("key7", "you", BOUND)).await }
    });
    until("one waits", || async { holders_and_waiters(&redis, "key7").await == (1, 1) }).await;
    release(&redis, "key7", "me").await;
    assert!(is_granted(&you.await.unwrap()));
    // What is known may be out of date: the node that is asked says where the key is.
    let (slot, owner) = (cluster.slot_of("key8") as u16, cluster.node_for_key("key8").port());
    let wrong = cluster.nodes().iter().map(Server::port).find(|port| *port != owner).expect("there are three");
    redis.shared.waiting.slots.learn(slot, format!("127.0.0.1:{wrong}"));
    release(&redis, "key8", "me").await;
    assert!(is_granted(&redis.wait(&lock("key8", "you", BOUND)).await));
    redis.close().await;
    for node in cluster.nodes() {
        until("all connections are closed", || async { clients(node, 'N').is_empty() }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_module_is_distinguished_from_none() {
    let plain = Server::start(Options::default().without_module());
    assert_eq!(
        connect(&format!("redis+cluster://127.0.0.1:{}", plain.port())).await.unwrap_err(),
        Error::ModuleMissing
    );
    let server = Server::fresh();
    let error = connect(&format!("redis+cluster://127.0.0.1:{}", server.port())).await.map(|_| ());
    assert!(!format!("{error:?}").contains("127.0.0.1"), "{error:?}");
    if let Err(error) = error {
        assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_moves_calls_and_waits_to_the_new_primary() {
    let cluster = Cluster::start(3, Options::default());
    let primary = cluster.node_for_key("a");
    let replica = Server::start(Options::default().cluster());
    let (port, bus_port) = (primary.port().to_string(), primary.cluster_bus_port().to_string());
    ok(&mut replica.connect(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
    let id: String = redis::from_redis_value(ok(&mut primary.connect(), &["CLUSTER", "MYID"])).unwrap();
    resil_harness::eventually("the replica follows", BOUND, || {
        resil_harness::reply(&mut replica.connect(), &["CLUSTER", "REPLICATE", &id]).is_ok()
    });
    wait_for_sync(primary, &replica);
    let redis = Arc::new(connect(&url(&cluster)).await.unwrap());
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let you = tokio::spawn({
        let redis = redis.clone();
        async move { redis.wait(&lock("a", "you", BOUND)).await }
    });
    until("one waits", || async { holders_and_waiters(&redis, "a").await == (1, 1) }).await;
    // Only when the whole cluster knows it is a replica may it take over.
    resil_harness::eventually("it takes over", BOUND, || {
        let _ = resil_harness::reply(&mut replica.connect(), &["CLUSTER", "FAILOVER"]);
        std::thread::sleep(Duration::from_millis(300));
        let info: String = redis::from_redis_value(ok(&mut replica.connect(), &["INFO", "replication"])).unwrap();
        info.contains("role:master")
    });
    until("who waited waits there", || async { waiters_at(&replica, "a") == 1 }).await;
    until("calls find it", || async {
        let call = OwnedCall { key: b"a", owner: b"me", fence: None };
        matches!(redis.call(&Command::LockRelease(call)).await, Ok(Reply::Released(_)))
    })
    .await;
    assert!(is_granted(&you.await.unwrap()), "and is granted by the new primary");
    assert_eq!(*redis.reach().borrow(), Reach::Here);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_a_dead_node_serves_other_keys() {
    let cluster = Cluster::start(3, Options::default().config("cluster-require-full-coverage", "no"));
    let redis = connect(&url(&cluster)).await.unwrap();
    let dead = cluster.node_for_key("a");
    let is_elsewhere = |key: &String| cluster.node_for_key(key).port() != dead.port();
    let other = (0..100).map(|number| format!("k{number}")).find(is_elsewhere).expect("keys are spread");
    works(&redis, "a").await;
    works(&redis, &other).await;
    dead.pause();
    let begun = Instant::now();
    assert_eq!(redis.call(&take(b"a")).await.unwrap_err().code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    for _ in 0..5 {
        until("the others are served", || async { redis.call(&take(other.as_bytes())).await.is_ok() }).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(*redis.reach().borrow(), Reach::Here);
    dead.resume();
    until("it is back", || async { redis.call(&take(b"a")).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_which_nobody_replies_is_away() {
    let cluster = Cluster::start(3, Options::default());
    let redis = connect(&url(&cluster)).await.unwrap();
    cluster.nodes().iter().for_each(Server::pause);
    becomes(&redis, Reach::Away).await;
    let begun = Instant::now();
    assert_eq!(redis.call(&take(b"a")).await.unwrap_err().code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    cluster.nodes().iter().for_each(Server::resume);
    becomes(&redis, Reach::Here).await;
    until("it works again", || async { redis.call(&take(b"a")).await.is_ok() }).await;
}
