//! Stored policies: listed, rolled back, watched; on a server and in memory.

use std::time::Duration;

use resil::clock::Clock;
use resil::policies::{PolicyAction, PolicyEvent, PolicyWatch};
use resil::{Client, Code, ConnectSettings};
use resil_harness::{Relay, Server};
use tokio::time::timeout;

const ONE: &str = r#"{"retry":{"maxAttempts":1}}"#;
const TWO: &str = r#"{"retry":{"maxAttempts":2}}"#;

async fn client(url: &str) -> Client {
    resil::connect(url).await.expect("a server that is there")
}

async fn next(changes: &mut PolicyWatch) -> (String, u64, PolicyAction) {
    let next = timeout(Duration::from_secs(70), changes.next()).await.expect("it is notified of within a minute");
    let PolicyEvent { name, version, action } = next.expect("the client is open");
    (name, version, action)
}

fn change(name: &str, version: u64, action: PolicyAction) -> (String, u64, PolicyAction) {
    (name.to_owned(), version, action)
}

async fn all_policies_are_listed_but_deleted_ones(url: &str) {
    let policies = client(url).await.policies();
    assert_eq!(policies.list().await.unwrap(), []);
    for number in 0..150 {
        policies.set(&format!("p{number:03}"), ONE).await.unwrap();
    }
    policies.delete("p007").await.unwrap();
    let listed = policies.list().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|policy| policy.name.as_str()).collect();
    let expected: Vec<String> = (0..150).filter(|number| *number != 7).map(|number| format!("p{number:03}")).collect();
    assert_eq!(names, expected);
    assert_eq!((listed[0].version, listed[0].policy.as_str()), (1, ONE));
}

async fn a_rollback_stores_an_old_version_again(url: &str) {
    let policies = client(url).await.policies();
    policies.set("pay", ONE).await.unwrap();
    policies.set("pay", TWO).await.unwrap();
    let back = policies.rollback("pay", 1).expecting(2).actor("ann").await.unwrap();
    assert_eq!((back.version, back.action), (3, PolicyAction::Changed));
    assert_eq!(policies.get("pay").await.unwrap().unwrap().policy, ONE);
    let newest = policies.history("pay").await.unwrap().remove(0);
    assert_eq!((newest.actor.as_str(), newest.reason.as_str()), ("ann", "rolled back to version 1"));
    let missing = policies.rollback("pay", 9).await.unwrap_err();
    assert!(missing.to_string().contains("no version 9"), "{missing}");
    policies.rollback("pay", 2).expecting(1).await.expect_err("it has changed since");
}

async fn every_change_is_reported_in_order(url: &str) {
    let (operator, watcher) = (client(url).await, client(url).await);
    operator.policies().set("old", ONE).await.unwrap();
    let mut changes = watcher.policies().watch().await.unwrap();
    let policies = operator.policies();
    policies.set("pay", ONE).await.unwrap();
    policies.set("pay", ONE).await.unwrap();
    policies.set("pay", TWO).await.unwrap();
    policies.delete("old").await.unwrap();
    policies.set("old", TWO).await.unwrap();
    let expected = [
        change("pay", 1, PolicyAction::Created),
        change("pay", 2, PolicyAction::Changed),
        change("old", 2, PolicyAction::Deleted),
        change("old", 3, PolicyAction::Created),
    ];
    for expected in expected {
        assert_eq!(next(&mut changes).await, expected);
    }
    policies.set("pay", ONE).await.unwrap();
    policies.delete("pay").await.unwrap();
    assert_eq!(next(&mut changes).await, change("pay", 3, PolicyAction::Changed));
    assert_eq!(next(&mut changes).await, change("pay", 4, PolicyAction::Deleted));
}

async fn a_watch_ends_with_its_client(url: &str) {
    let client = client(url).await;
    let mut changes = client.policies().watch().await.unwrap();
    let ending = tokio::spawn(async move { changes.next().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.shutdown(Duration::from_secs(5)).await;
    let ended = timeout(Duration::from_secs(20), ending).await.expect("it ends").unwrap();
    assert_eq!(ended, None);
}

macro_rules! on_both {
    ($($promise:ident),*) => {
        mod on_a_server { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let server = super::Server::fresh();
                super::$promise(&server.url()).await;
            }
        )* }
        mod in_memory { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(concat!("memory://watch-", stringify!($promise))).await;
            }
        )* }
    };
}

on_both! {
    all_policies_are_listed_but_deleted_ones, a_rollback_stores_an_old_version_again, every_change_is_reported_in_order,
    a_watch_ends_with_its_client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_is_subscribed_when_it_returns() {
    let server = Server::fresh();
    let mut open = Vec::new();
    for number in 1..=20_i64 {
        let watcher = client(&server.url()).await;
        open.push((watcher.policies().watch().await.unwrap(), watcher.policies().watch().await.unwrap()));
        let subscribed = resil_harness::ok(&mut server.connect(), &["PUBSUB", "NUMSUB", "resil:events"]);
        let (_, count): (String, i64) = redis::from_redis_value(subscribed).expect("a channel and a number");
        assert_eq!(count, number, "one connection for each client");
    }
    client(&server.url()).await.policies().set("pay", ONE).await.unwrap();
    for (first, second) in &mut open {
        assert_eq!(next(first).await, change("pay", 1, PolicyAction::Created));
        assert_eq!(next(second).await, change("pay", 1, PolicyAction::Created));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_is_reported_after_a_reconnect() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let (operator, watcher) =
        (client(&server.url()).await, client(&format!("redis://127.0.0.1:{}", relay.port())).await);
    operator.policies().set("gone", ONE).await.unwrap();
    operator.policies().set("pay", ONE).await.unwrap();
    let mut changes = watcher.policies().watch().await.unwrap();
    operator.policies().set("heard", ONE).await.unwrap();
    assert_eq!(next(&mut changes).await, change("heard", 1, PolicyAction::Created));
    relay.close();
    operator.policies().delete("gone").await.unwrap();
    operator.policies().set("pay", TWO).await.unwrap();
    operator.policies().set("pay", ONE).await.unwrap();
    operator.policies().set("new", ONE).await.unwrap();
    relay.open();
    let mut reported = [next(&mut changes).await, next(&mut changes).await, next(&mut changes).await];
    reported.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        change("gone", 2, PolicyAction::Deleted),
        change("new", 1, PolicyAction::Created),
        change("pay", 3, PolicyAction::Changed),
    ];
    assert_eq!(reported, expected);
}

/// A user who may use everything, but no channel.
fn allow_channels(server: &Server, channels: &[&str]) {
    let words = ["ACL", "SETUSER", "narrow", "on", ">secret", "~*", "resetchannels", "+@all"];
    resil_harness::ok(&mut server.connect(), &[&words, channels].concat());
}

async fn narrow(server: &Server, clock: Clock) -> Client {
    let url = format!("redis://narrow:secret@127.0.0.1:{}", server.port());
    ConnectSettings::new(url).clock(clock).connect().await.expect("a user that is known")
}

/// How often a command was called.
fn calls(server: &Server, command: &str) -> u64 {
    let stats: String =
        redis::from_redis_value(resil_harness::ok(&mut server.connect(), &["INFO", "commandstats"])).expect("a text");
    let stats = stats.to_lowercase();
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")).map(str::to_owned));
    line.map_or(0, |line| line.split(',').next().and_then(|count| count.parse().ok()).expect("a count"))
}

/// A watch whose right to subscribe was taken away: nothing is heard from then on.
async fn deafened(server: &Server, clock: &Clock, rights: &[&str]) -> (Client, PolicyWatch) {
    allow_channels(server, &["&resil:*"]);
    let watcher = narrow(server, clock.clone()).await;
    let changes = watcher.policies().watch().await.unwrap();
    allow_channels(server, rights);
    resil_harness::ok(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "pubsub"]);
    (watcher, changes)
}

/// Drives the clock for a minute while the next change is waited for.
async fn reported_within_a_minute(clock: &Clock, mut changes: PolicyWatch) -> (String, u64, PolicyAction) {
    let telling = tokio::spawn(async move { next(&mut changes).await });
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        clock.advance(Duration::from_secs(1));
    }
    timeout(Duration::from_secs(20), telling).await.expect("it was compared").unwrap()
}

#[tokio::test]
async fn missed_messages_are_made_up_for_within_a_minute() {
    let (server, clock) = (Server::fresh(), Clock::driven());
    let operator = client(&server.url()).await;
    let (_watcher, changes) = deafened(&server, &clock, &[]).await;
    operator.policies().set("pay", ONE).await.unwrap();
    assert_eq!(reported_within_a_minute(&clock, changes).await, change("pay", 1, PolicyAction::Created));
}

/// The server lists its policies: what else it holds costs nothing.
#[tokio::test]
async fn a_new_policys_lost_message_is_found_within_minutes() {
    let (server, clock) = (Server::fresh(), Clock::driven());
    resil_harness::ok(&mut server.connect(), &["DEBUG", "POPULATE", "500000"]);
    let operator = client(&server.url()).await;
    for number in 0..1_500 {
        operator.policies().set(&format!("p{number}"), ONE).await.unwrap();
    }
    let (_watcher, changes) = deafened(&server, &clock, &[]).await;
    operator.policies().set("pay", ONE).await.unwrap();
    assert_eq!(reported_within_a_minute(&clock, changes).await, change("pay", 1, PolicyAction::Created));
    assert_eq!((calls(&server, "scan"), calls(&server, "res.policy|get")), (0, 0), "no key is looked at");
    let listings = calls(&server, "res.list");
    assert!((4..100).contains(&listings), "two listings or three, of 1,501 policies: {listings}");
}

#[tokio::test]
async fn a_user_who_may_not_list_scans() {
    let (server, clock) = (Server::fresh(), Clock::driven());
    let operator = client(&server.url()).await;
    let (_watcher, changes) = deafened(&server, &clock, &["-res.list"]).await;
    operator.policies().set("pay", ONE).await.unwrap();
    assert_eq!(reported_within_a_minute(&clock, changes).await, change("pay", 1, PolicyAction::Created));
    assert!(calls(&server, "scan") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_limited_channels_hears_of_its_own() {
    let server = Server::fresh();
    allow_channels(&server, &["&resil:events:*"]);
    let (operator, service) = (client(&server.url()).await, narrow(&server, Clock::system()).await);
    operator.policies().set("pay", ONE).await.unwrap();
    let policy = service.policy("pay").await.unwrap();
    for _ in 0..2 {
        let refused = service.policies().watch().await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.to_string().contains("&resil:events"), "{refused}");
    }
    operator.policies().set("pay", TWO).await.unwrap();
    let hears = async {
        while policy.version() != Some(2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), hears).await.expect("long before it is compared");
    // Who is let in is heard at once.
    allow_channels(&server, &["&resil:*"]);
    let mut changes = service.policies().watch().await.unwrap();
    operator.policies().set("pay", ONE).await.unwrap();
    assert_eq!(next(&mut changes).await, change("pay", 3, PolicyAction::Changed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_cannot_be_subscribed_fails_in_time() {
    let server = Server::fresh();
    let relay = Relay::to(server.port());
    let paused = client(&server.url()).await;
    let away = client(&format!("redis://127.0.0.1:{}", relay.port())).await;
    server.pause();
    let late = timeout(Duration::from_secs(20), paused.policies().watch()).await.expect("it is bounded").unwrap_err();
    server.resume();
    assert_eq!(late.code(), Code::BackendUnavailable, "{late}");
    relay.close();
    let gone = timeout(Duration::from_secs(20), away.policies().watch()).await.expect("it is bounded").unwrap_err();
    assert_eq!(gone.code(), Code::BackendUnavailable, "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_remade_with_the_same_version_is_reported() {
    let server = Server::fresh();
    let (operator, watcher) = (client(&server.url()).await, client(&server.url()).await);
    operator.policies().set("pay", ONE).await.unwrap();
    let mut changes = watcher.policies().watch().await.unwrap();
    for _ in 0..3 {
        // Versions tell nothing of it: what was stored has another time.
        tokio::time::sleep(Duration::from_millis(5)).await;
        resil_harness::ok(&mut server.connect(), &["FLUSHALL"]);
        operator.policies().set("pay", TWO).await.unwrap();
        assert_eq!(next(&mut changes).await, change("pay", 1, PolicyAction::Created));
    }
    operator.policies().set("pay", ONE).await.unwrap();
    assert_eq!(next(&mut changes).await, change("pay", 2, PolicyAction::Changed), "each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_changes_of_the_own_database_are_reported() {
    let server = Server::fresh();
    let in_db = |db: u8| format!("{}/{db}", server.url().trim_end_matches('/'));
    let (other, own, watcher) = (client(&in_db(0)).await, client(&in_db(3)).await, client(&in_db(3)).await);
    let mut changes = watcher.policies().watch().await.unwrap();
    other.policies().set("of-another", ONE).await.unwrap();
    own.policies().set("own", ONE).await.unwrap();
    other.policies().delete("of-another").await.unwrap();
    own.policies().delete("own").await.unwrap();
    assert_eq!(next(&mut changes).await, change("own", 1, PolicyAction::Created));
    assert_eq!(next(&mut changes).await, change("own", 2, PolicyAction::Deleted));
}
