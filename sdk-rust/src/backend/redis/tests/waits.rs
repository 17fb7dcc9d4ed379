//! Waits: in the queue, given up, cut off, and many more of them than connections.

use std::sync::Arc;

use super::super::supervisor::LOOK_EVERY;
use super::*;
use crate::error::Code;

async fn with_waiting(server: &Server, connections: usize) -> Arc<Redis> {
    let options = ConnectSettings::new(server.url()).waiting_connections(connections);
    Arc::new(Redis::connect(&options).await.unwrap())
}

fn waiting(
    redis: &Arc<Redis>,
    key: &'static str,
    owner: &'static str,
    wait: Duration,
) -> tokio::task::JoinHandle<Result<Reply, Error>> {
    let redis = redis.clone();
    tokio::spawn(async move {
        let call = AcquireCall { bind: redis.bind(), ..acquire(key, owner, wait) };
        redis.wait(&Command::LockAcquire(call)).await
    })
}

async fn held_with_one_in_the_queue(redis: &Arc<Redis>) -> tokio::task::JoinHandle<Result<Reply, Error>> {
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let you = waiting(redis, "a", "you", BOUND);
    until("one waits", || async { holders_and_waiters(redis, "a").await == (1, 1) }).await;
    you
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_holds_up_no_calls_and_is_granted() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    let you = held_with_one_in_the_queue(&redis).await;
    works(&redis, "k").await;
    release(&redis, "a", "me").await;
    assert!(is_granted(&you.await.unwrap()));
    assert_eq!(holders_and_waiters(&redis, "a").await, (1, 0));
    let short = redis.wait(&lock("a", "them", Duration::from_millis(50))).await;
    assert!(matches!(short, Ok(Reply::Acquired(Acquired::Timeout(_)))), "{short:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_used_again() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    for number in 0..20 {
        assert!(is_granted(&redis.wait(&lock(&format!("l{number}"), "me", BOUND)).await));
    }
    assert_eq!(clients(&server, 'N').len(), 2, "the shared one, and one that waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_idle_connection_does_not_disturb_the_next_waiter() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    assert!(is_granted(&redis.wait(&lock("a", "me", BOUND)).await));
    let shared = shared_id(&redis);
    let unused: Vec<_> = clients(&server, 'N').into_iter().filter(|id| *id != shared).collect();
    assert_eq!(unused.len(), 1);
    kill_clients(&server, &unused);
    assert!(is_granted(&redis.wait(&lock("b", "me", BOUND)).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_wait_leaves_the_queue() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    let you = held_with_one_in_the_queue(&redis).await;
    you.abort();
    until("nobody waits", || async { holders_and_waiters(&redis, "a").await == (1, 0) }).await;
    release(&redis, "a", "me").await;
    assert_eq!(holders_and_waiters(&redis, "a").await, (0, 0), "and nothing was granted to nobody");
    assert!(is_granted(&redis.wait(&lock("a", "them", BOUND)).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_connection_is_cut_is_asked_again() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    let you = held_with_one_in_the_queue(&redis).await;
    for _ in 0..3 {
        let blocked = clients(&server, 'b');
        assert_eq!(blocked.len(), 1);
        kill_clients(&server, &blocked);
        until("another connection waits", || async {
            let now = clients(&server, 'b');
            now.len() == 1 && now != blocked
        })
        .await;
    }
    release(&redis, "a", "me").await;
    assert!(is_granted(&you.await.unwrap()));
    assert_eq!(*redis.reach().borrow(), Reach::Here, "the shared connection had nothing to do with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_shared_connection_is_replaced_waits_hang_on() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    let you = held_with_one_in_the_queue(&redis).await;
    let first_in_the_queue = clients(&server, 'b');
    let old = shared_id(&redis);
    kill_clients(&server, std::slice::from_ref(&old));
    until("another connection waits", || async {
        let now = clients(&server, 'b');
        now.len() == 1 && now != first_in_the_queue
    })
    .await;
    assert_eq!(holders_and_waiters(&redis, "a").await, (1, 1), "the place moved over");
    release(&redis, "a", "me").await;
    assert!(is_granted(&you.await.unwrap()));
    // Had it been bound to the connection that is gone, it would end at once.
    tokio::time::sleep(LOOK_EVERY).await;
    assert_eq!(holders_and_waiters(&redis, "a").await, (1, 0));
    kill_clients(&server, &[shared_id(&redis)]);
    becomes(&redis, Reach::Away).await;
    becomes(&redis, Reach::Here).await;
    until("it ends with the new one", || async { holders_and_waiters(&redis, "a").await == (0, 0) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_fails_when_the_server_stays_away() {
    let mut server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    let you = held_with_one_in_the_queue(&redis).await;
    let begun = Instant::now();
    server.kill9();
    let error = tokio::time::timeout(BOUND, you).await.expect("in bounded time").unwrap().unwrap_err();
    assert_eq!(error.code(), Code::BackendUnavailable);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "not for as long as it was ready to wait: {:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_queue_fails_when_the_server_stays_away() {
    let mut server = Server::fresh();
    let redis = with_waiting(&server, 2).await;
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    let owners: Vec<&'static str> = vec!["p", "q", "r", "s", "t", "u", "v", "w", "x", "y"];
    let queue: Vec<_> = owners.into_iter().map(|owner| waiting(&redis, "a", owner, BOUND * 2)).collect();
    until("two wait", || async { holders_and_waiters(&redis, "a").await == (1, 2) }).await;
    let begun = Instant::now();
    server.kill9();
    for wait in queue {
        assert_eq!(wait.await.unwrap().unwrap_err().code(), Code::BackendUnavailable);
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "one after another: {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_bounded_when_the_server_is_frozen() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
    assert!(is_granted(&redis.wait(&lock("b", "me", BOUND)).await), "so that a connection is there");
    let you = waiting(&redis, "a", "you", Duration::from_millis(500));
    until("one waits", || async { holders_and_waiters(&redis, "a").await == (1, 1) }).await;
    let begun = Instant::now();
    server.pause();
    let error = tokio::time::timeout(BOUND, you).await.expect("in bounded time").unwrap().unwrap_err();
    assert_eq!(error.code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    server.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_waits_over_four_connections_are_all_answered() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 4).await;
    let tasks: Vec<_> = (0..500)
        .map(|number| {
            let redis = redis.clone();
            tokio::spawn(async move {
                let owner = format!("owner{number}");
                assert!(is_granted(&redis.wait(&lock("a", &owner, BOUND)).await));
                release(&redis, "a", &owner).await;
            })
        })
        .collect();
    until("somebody works", || async {
        clients(&server, 'b').len() >= 2 || tasks.iter().all(|task| task.is_finished())
    })
    .await;
    assert!(clients(&server, 'b').len() <= 4);
    for task in tasks {
        tokio::time::timeout(BOUND, task).await.expect("in bounded time").unwrap();
    }
    assert!(clients(&server, 'N').len() <= 5);
    assert_eq!(holders_and_waiters(&redis, "a").await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_a_connection_learns_who_has_them() {
    let server = Server::fresh();
    let redis = with_waiting(&server, 1).await;
    let you = held_with_one_in_the_queue(&redis).await;
    let begun = Instant::now();
    let late = redis.wait(&lock("a", "them", Duration::from_millis(100))).await;
    let Ok(Reply::Acquired(Acquired::Taken(taken))) = late else { panic!("{late:?}") };
    assert_eq!((taken.holder.as_deref(), taken.waiters), (Some(b"me".as_slice()), 1));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    let free = redis.wait(&lock("b", "them", Duration::from_millis(100))).await;
    assert!(is_granted(&free), "what is free is had all the same");
    you.abort();
}
