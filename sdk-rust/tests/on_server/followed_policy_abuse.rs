//! Followed policies where everything goes wrong: calls that are dropped, servers that are paused or killed, keys that are taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use resil::health::Status;
use resil::policy::{CallSettings, retry_all};
use resil::{Client, Code, ConnectSettings};
use resil_harness::{Server, ok};
use tokio::time::{sleep, timeout};

const KEY: &str = "resil:policy:{pay}";
/// A ticket that is lost would be inside for a minute.
const WHOLE: &str = r#"{"timeout":{"attempt":"60s"},"retry":{"maxAttempts":3,"initialBackoff":"1ms","maxBackoff":"2ms"},
    "hedge":{"hedgingDelay":"2ms"},"breaker":{"consecutiveFailures":0,"failureRate":100,"minCalls":1000000},
    "sharedBulkhead":{"maxConcurrentCalls":4,"maxWait":"300ms","whenAway":"open"}}"#;

async fn client(url: &str) -> Client {
    ConnectSettings::new(url).command_timeout(Duration::from_millis(300)).connect().await.expect("a server")
}

/// A number of RES.GUARD STATE.
pub fn counted(server: &Server, field: &str) -> i64 {
    let state: Vec<redis::Value> =
        redis::from_redis_value(ok(&mut server.connect(), &["RES.GUARD", "STATE", KEY])).expect("a map");
    let named = redis::Value::BulkString(field.as_bytes().to_vec());
    let at = state.chunks(2).find(|pair| pair[0] == named).expect("a field of STATE");
    redis::from_redis_value(at[1].clone()).expect("a number")
}

/// How many calls are inside, by the server.
fn inside(server: &Server) -> i64 {
    counted(server, "active")
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Calls that hedge, fail, retry, wait for a place and are dropped at any await: each ticket ends, long before its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_anywhere_leaves_no_ticket() {
    let server = Server::fresh();
    let service = client(&server.url()).await;
    service.policies().set("pay", WHOLE).await.unwrap();
    let policy = service.policy("pay").await.unwrap();
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let calls: Vec<_> = (0..400_u64)
        .map(|number| {
            let policy = policy.clone();
            tokio::spawn(async move {
                let odd = seed.rotate_left(number as u32 % 64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number;
                let work = || async move {
                    sleep(Duration::from_millis(odd % 7)).await;
                    if odd.is_multiple_of(3) { Err("down") } else { Ok(()) }
                };
                let options = CallSettings::new().total_timeout(Duration::from_millis(1 + odd % 90));
                let call = policy.call_with(options, retry_all, work);
                let _ = timeout(Duration::from_micros(odd % 40_000), call).await;
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic");
    }
    eventually("a ticket was lost", || inside(&server) == 0).await;
    // All places are free.
    for _ in 0..4 {
        policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("a place");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_comes_and_goes_fails_no_call() {
    let server = Server::fresh();
    let (operator, service) = (client(&server.url()).await, client(&server.url()).await);
    let document = r#"{"timeout":{"attempt":"20s"},"retry":{"maxAttempts":2},"breaker":{"consecutiveFailures":1000}}"#;
    operator.policies().set("pay", document).await.unwrap();
    let policy = service.policy("pay").await.unwrap();
    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (policy, is_over, made) = (policy.clone(), Arc::clone(&is_over), Arc::clone(&made));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    policy.call(retry_all, || async { Ok::<_, &str>(()) }).await.expect("a call failed");
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..60 {
        operator.policies().delete("pay").await.unwrap();
        operator.policies().set("pay", document).await.unwrap();
        ok(&mut server.connect(), &["RENAME", KEY, "elsewhere"]);
        ok(&mut server.connect(), &["SET", KEY, "of another type"]);
        ok(&mut server.connect(), &["RENAME", "elsewhere", KEY]);
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no call fails");
    }
    assert!(made.load(Ordering::Relaxed) > 100, "{made:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_leaves_the_last_good_policy() {
    let server = Server::fresh();
    let service = client(&server.url()).await;
    service.policies().set("pay", WHOLE).await.unwrap();
    let policy = service.policy("pay").await.unwrap();
    ok(&mut server.connect(), &["SET", KEY, "of another type"]);
    assert_eq!(policy.call(retry_all, || async { Ok::<_, &str>(7) }).await, Ok(7));
}

/// Paused in the middle of a call, and killed in the middle of the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_fails_no_call_that_is_inside() {
    let mut server = Server::fresh();
    let service = client(&server.url()).await;
    service.policies().set("pay", WHOLE).await.unwrap();
    let policy = service.policy("pay").await.unwrap();
    let bound = Duration::from_secs(20);
    server.pause();
    let away = timeout(bound, policy.call(retry_all, || async { Ok::<_, &str>(1) })).await.expect("it ends");
    assert_eq!(away, Ok(1), "the breaker is local by default, and places are not counted");
    server.resume();
    eventually("it is reached again", || redis::ConnectionLike::is_open(&server.connect())).await;
    let pausing = || async {
        server.pause();
        Ok::<_, &str>(())
    };
    let paused = timeout(bound, policy.call(retry_all, pausing));
    assert_eq!(paused.await.expect("it ends"), Ok(()));
    server.resume();
    eventually("its ticket ended", || inside(&server) == 0).await;
    let policy_again = policy.clone();
    let call = tokio::spawn(async move {
        let slow = || async {
            sleep(Duration::from_millis(200)).await;
            Ok::<_, &str>(3)
        };
        policy_again.call(retry_all, slow).await
    });
    sleep(Duration::from_millis(50)).await;
    server.kill9();
    assert_eq!(timeout(bound, call).await.expect("it ends").expect("no panic"), Ok(3));
    eventually("it says so", || service.health().overall != Status::Healthy).await;
    assert_eq!(timeout(bound, policy.call(retry_all, || async { Ok::<_, &str>(4) })).await.expect("it ends"), Ok(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_guard_runs_without_it() {
    let server = Server::fresh();
    client(&server.url()).await.policies().set("pay", WHOLE).await.unwrap();
    let words = ["ACL", "SETUSER", "poor", "on", ">secret", "~*", "resetchannels", "+@all", "-res.guard"];
    ok(&mut server.connect(), &words);
    let poor = client(&format!("redis://poor:secret@127.0.0.1:{}", server.port())).await;
    let policy = poor.policy("pay").await.unwrap();
    assert_eq!(policy.call(retry_all, || async { Ok::<_, &str>(7) }).await, Ok(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_policies_are_followed_until_the_client_ends() {
    let server = Server::fresh();
    let (operator, service) = (client(&server.url()).await, client(&server.url()).await);
    let document = |attempts: u32| format!(r#"{{"retry":{{"maxAttempts":{attempts},"budget":null}}}}"#);
    let mut followed = Vec::new();
    for number in 0..1_000 {
        let name = format!("p{number} ü\u{1}");
        operator.policies().set(&name, document(1)).await.unwrap();
        followed.push(service.policy(&name).await.unwrap());
    }
    for number in [0, 500, 999] {
        operator.policies().set(&format!("p{number} ü\u{1}"), document(2)).await.unwrap();
    }
    for number in [0, 500, 999] {
        eventually("the change is heard", || followed[number].version() == Some(2)).await;
    }
    assert_eq!(followed[1].version(), Some(1));
    service.shutdown(Duration::from_secs(5)).await;
    let refused = followed[0].call(retry_all, || async { Ok::<_, &str>(()) }).await.unwrap_err();
    assert_eq!((refused.code(), followed[0].version()), (Some(Code::ShuttingDown), Some(2)));
}
