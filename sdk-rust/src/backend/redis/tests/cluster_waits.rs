//! Waits in a cluster: over one connection to each node, however many they are, and wherever their keys go.

use std::sync::Arc;

use resil_harness::{Cluster, Options, reply};
use tokio::task::JoinHandle;

use super::clusters::url;
use super::*;

async fn client(cluster: &Cluster) -> Arc<Redis> {
    Arc::new(connect(&url(cluster)).await.expect("a cluster that is there"))
}

fn waits(redis: &Arc<Redis>, key: &str, owner: String) -> JoinHandle<Result<Reply, Error>> {
    let (redis, key) = (Arc::clone(redis), key.to_owned());
    tokio::spawn(async move { redis.wait(&lock(&key, &owner, BOUND)).await })
}

/// The number of waiters of `key`, as its node says it.
pub(super) fn waiters_at(node: &Server, key: &str) -> i64 {
    let Ok(redis::Value::Map(fields)) = reply(&mut node.connect_resp3(), &["RES.LOCK", "INFO", key]) else { return -1 };
    let is_it =
        |name: &redis::Value| redis::from_redis_value::<String>(name.clone()).is_ok_and(|name| name == "waiters_total");
    fields
        .into_iter()
        .find(|(name, _)| is_it(name))
        .and_then(|(_, value)| redis::from_redis_value(value).ok())
        .unwrap_or(-1)
}

/// Connections with a channel of a cluster.
fn listeners(node: &Server) -> usize {
    let list: String = redis::from_redis_value(ok(&mut node.connect(), &["CLIENT", "LIST"])).expect("a text");
    list.lines().filter(|line| word(line, "ssub=") != "0").count()
}

/// `count` wait for `key`, each after the one before.
async fn queue_of(redis: &Arc<Redis>, node: &Server, key: &str, count: usize) -> Vec<JoinHandle<Result<Reply, Error>>> {
    let mut queue = Vec::new();
    for number in 0..count {
        queue.push(waits(redis, key, format!("w{number}")));
        until("it waits", || async { waiters_at(node, key) == queue.len() as i64 }).await;
    }
    queue
}

/// All are granted, in the order they stand in.
async fn are_served_in_order(redis: &Redis, key: &str, queue: Vec<JoinHandle<Result<Reply, Error>>>) {
    for (number, wait) in queue.into_iter().enumerate() {
        let reply = tokio::time::timeout(BOUND, wait).await.expect("in bounded time").expect("no panic");
        assert!(is_granted(&reply), "{number}: {reply:?}");
        release(redis, key, &format!("w{number}")).await;
    }
    assert_eq!(holders_and_waiters(redis, key).await, (0, 0));
}

/// The same where it is not known in which order they asked again. Never are two granted at once.
async fn are_served_in_any_order(redis: &Redis, key: &str, queue: Vec<JoinHandle<Result<Reply, Error>>>) {
    let mut left: Vec<_> = queue.into_iter().enumerate().collect();
    while !left.is_empty() {
        until("one is granted", || async { left.iter().any(|(_, wait)| wait.is_finished()) }).await;
        let at = left.iter().position(|(_, wait)| wait.is_finished()).expect("one is");
        let (number, wait) = left.remove(at);
        let reply = wait.await.expect("no panic");
        assert!(is_granted(&reply), "{number}: {reply:?}");
        assert!(left.iter().all(|(_, wait)| !wait.is_finished()), "one at a time");
        release(redis, key, &format!("w{number}")).await;
    }
    assert_eq!(holders_and_waiters(redis, key).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_waits_of_a_node_share_one_connection() {
    let cluster = Cluster::start(2, Options::default());
    let redis = client(&cluster).await;
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert!(is_granted(&redis.call(&lock(key, "me", Duration::ZERO)).await));
    }
    let mut all = Vec::new();
    for key in &keys {
        all.push((key, queue_of(&redis, cluster.node_for_key(key), key, 5).await));
    }
    for node in cluster.nodes() {
        assert_eq!((listeners(node), clients(node, 'b').len()), (1, 0), "one connection, and nobody is blocked");
    }
    for (key, queue) in all {
        release(&redis, key, "me").await;
        are_served_in_order(&redis, key, queue).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_leaves_the_queue_of_its_node() {
    let cluster = Cluster::start(2, Options::default());
    let (redis, node) = (client(&cluster).await, cluster.node_for_key("a"));
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let mut queue = queue_of(&redis, node, "a", 3).await;
    queue.remove(1).abort();
    until("it has left", || async { waiters_at(node, "a") == 2 }).await;
    // One that goes before it is answered leaves nothing behind, either.
    for number in 0..50 {
        let hasty = waits(&redis, "a", format!("hasty{number}"));
        tokio::task::yield_now().await;
        hasty.abort();
    }
    release(&redis, "a", "me").await;
    assert!(is_granted(&queue.remove(0).await.unwrap()));
    release(&redis, "a", "w0").await;
    assert!(is_granted(&queue.remove(0).await.unwrap()));
    release(&redis, "a", "w2").await;
    until("nothing is left", || async { holders_and_waiters(&redis, "a").await == (0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_are_asked_again_when_their_connection_is_cut() {
    let cluster = Cluster::start(2, Options::default());
    let (redis, node) = (client(&cluster).await, cluster.node_for_key("a"));
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let queue = queue_of(&redis, node, "a", 5).await;
    for _ in 0..3 {
        let list: String = redis::from_redis_value(ok(&mut node.connect(), &["CLIENT", "LIST"])).expect("a text");
        let is_ours = |line: &&str| word(line, "ssub=") != "0";
        let ours: Vec<String> = list.lines().filter(is_ours).map(|line| word(line, "id=").to_owned()).collect();
        assert_eq!(ours.len(), 1);
        kill_clients(node, &ours);
        until("all wait again", || async { waiters_at(node, "a") == 5 }).await;
    }
    release(&redis, "a", "me").await;
    // In which order they asked again is not known.
    are_served_in_any_order(&redis, "a", queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_follow_a_slot_that_moves() {
    let cluster = Cluster::start(2, Options::default());
    let (redis, from) = (client(&cluster).await, cluster.node_for_key("a"));
    let to = cluster.nodes().iter().find(|node| node.port() != from.port()).expect("there are two");
    let id = |node: &Server| redis::from_redis_value::<String>(ok(&mut node.connect(), &["CLUSTER", "MYID"])).unwrap();
    let (from_id, to_id, slot) = (id(from), id(to), cluster.slot_of("a").to_string());
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let queue = queue_of(&redis, from, "a", 5).await;
    let setslot = |node: &Server, how: &str, id: &str| ok(&mut node.connect(), &["CLUSTER", "SETSLOT", &slot, how, id]);
    setslot(to, "IMPORTING", &from_id);
    setslot(from, "MIGRATING", &to_id);
    ok(&mut from.connect(), &["MIGRATE", "127.0.0.1", &to.port().to_string(), "a", "0", "10000"]);
    // The key is there and its slot is not: the old node sends them on, one question at a time.
    let asked_there = || {
        let mut connection = to.connect_resp3();
        ok(&mut connection, &["ASKING"]);
        format!("{:?}", reply(&mut connection, &["RES.LOCK", "INFO", "a"])).contains("w4")
    };
    until("they wait at the new node", || async { asked_there() }).await;
    for node in [to, from] {
        setslot(node, "NODE", &to_id);
    }
    until("all wait at the new node", || async { waiters_at(to, "a") == 5 }).await;
    until("calls find it", || async {
        let call = OwnedCall { key: b"a", owner: b"me", fence: None };
        matches!(redis.call(&Command::LockRelease(call)).await, Ok(Reply::Released(_)))
    })
    .await;
    are_served_in_any_order(&redis, "a", queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stalls_keeps_the_order_of_its_queue() {
    let cluster = Cluster::start(1, Options::default());
    let (redis, node) = (client(&cluster).await, &cluster.nodes()[0]);
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let queue = queue_of(&redis, node, "a", 5).await;
    // Replies come in order: when this one is here, the last of the queue knows that it waits. A wait that is never reported so fails.
    assert!(is_granted(&redis.wait(&lock("{a}b", "me", BOUND)).await));
    node.pause();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    node.resume();
    becomes(&redis, Reach::Here).await;
    until("calls are answered", || async { redis.call(&take(b"k")).await.is_ok() }).await;
    release(&redis, "a", "me").await;
    are_served_in_order(&redis, "a", queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_many_channels_makes_place_for_another() {
    let cluster = Cluster::start(1, Options::default());
    let (redis, node) = (client(&cluster).await, &cluster.nodes()[0]);
    for number in 0..1_005 {
        let key = format!("k{number}");
        assert!(is_granted(&redis.wait(&lock(&key, "me", BOUND)).await));
    }
    until("the first one is closed", || async { listeners(node) == 1 }).await;
    let list: String = redis::from_redis_value(ok(&mut node.connect(), &["CLIENT", "LIST"])).expect("a text");
    let channels = list.lines().find(|line| word(line, "ssub=") != "0").map(|line| word(line, "ssub=").to_owned());
    assert_eq!(channels.as_deref(), Some("5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_may_listen_waits_have_connections_of_their_own() {
    let cluster = Cluster::start(1, Options::default());
    let node = &cluster.nodes()[0];
    let rules = ["ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe"];
    ok(&mut node.connect(), &rules);
    let port = node.port();
    for url in [
        format!("redis+cluster://127.0.0.1:{port}?protocol=resp2"),
        format!("redis+cluster://worker:secret@127.0.0.1:{port}"),
    ] {
        let redis = Arc::new(connect(&url).await.unwrap());
        assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
        let queue = queue_of(&redis, node, "a", 3).await;
        assert_eq!((listeners(node), clients(node, 'b').len()), (0, 3));
        release(&redis, "a", "me").await;
        are_served_in_order(&redis, "a", queue).await;
        redis.close().await;
    }
}
