//! Stored policies: listed, rolled back, watched; on a server and in memory.

use std::time::Duration;

use resil::clock::Clock;
use resil::policies::{PolicyAction, PolicyEvent, PolicyWatch};
use resil::{Client, ConnectSettings};
use resil_harness::{Relay, Server};
use tokio::time::timeout;

const ONE: &str = r#"{"retry":{"maxAttempts":1}}"#;
const TWO: &str = r#"{"retry":{"maxAttempts":2}}"#;

async fn client(url: &str) -> Client {
    resil::connect(url).await.expect("a server that is there")
}

async fn next(changes: &mut PolicyWatch) -> (String, u64, PolicyAction) {
    let next = timeout(Duration::from_secs(70), changes.next()).await.expect("it is told of within a minute");
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

async fn every_change_is_told_in_order(url: &str) {
    let (operator, watcher) = (client(url).await, client(url).await);
    operator.policies().set("old", ONE).await.unwrap();
    let mut changes = watcher.policies().watch().await.unwrap();
    let policies = operator.policies();
    policies.set("pay", ONE).await.unwrap();
    policies.set("pay", ONE).await.unwrap();
    policies.set("pay", TWO).await.unwrap();
    policies.delete("old").await.unwrap();
    policies.set("old", TWO).await.unwrap();
    let mut told: Vec<(String, u64, PolicyAction)> = Vec::new();
    // Until it is subscribed, two changes of one policy may be found as one: what was deleted and made again has then changed.
    let is_told =
        |told: &[(String, u64, PolicyAction)], wanted| told.iter().any(|(name, v, _)| (name.as_str(), *v) == wanted);
    while !is_told(&told, ("old", 3)) || !is_told(&told, ("pay", 2)) {
        told.push(next(&mut changes).await);
    }
    let of_pay: Vec<_> = told.iter().filter(|(name, ..)| name == "pay").cloned().collect();
    assert_eq!(of_pay.last().map(|(_, version, _)| *version), Some(2));
    assert!(of_pay.is_sorted_by_key(|(_, version, _)| *version), "{told:?}");
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
    all_policies_are_listed_but_deleted_ones, a_rollback_stores_an_old_version_again, every_change_is_told_in_order,
    a_watch_ends_with_its_client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_is_told_after_a_reconnect() {
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
    let mut told = [next(&mut changes).await, next(&mut changes).await, next(&mut changes).await];
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        change("gone", 2, PolicyAction::Deleted),
        change("new", 1, PolicyAction::Created),
        change("pay", 3, PolicyAction::Changed),
    ];
    assert_eq!(told, expected);
}

/// No message is published to a user who may not subscribe: what is stored is compared once a minute.
#[tokio::test]
async fn missed_messages_are_made_up_for_within_a_minute() {
    let server = Server::fresh();
    let words = ["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"];
    resil_harness::ok(&mut server.connect(), &words);
    let clock = Clock::driven();
    let url = format!("redis://deaf:secret@127.0.0.1:{}", server.port());
    let watcher = ConnectSettings::new(url).clock(clock.clone()).connect().await.unwrap();
    let operator = client(&server.url()).await;
    let mut changes = watcher.policies().watch().await.unwrap();
    operator.policies().set("pay", ONE).await.unwrap();
    let telling = tokio::spawn(async move { next(&mut changes).await });
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        clock.advance(Duration::from_secs(1));
    }
    let told = timeout(Duration::from_secs(20), telling).await.expect("it was compared").unwrap();
    assert_eq!(told, change("pay", 1, PolicyAction::Created));
}
