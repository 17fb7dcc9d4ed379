//! Stored policies: what RES.POLICY and RES.GUARD promise on a real server. The vectors have what a reply says; here is what only
//! a server can show: waiting, copies, access, malformed input, keys of other types, clusters, events.

#[allow(dead_code)]
#[path = "../lock/async_client.rs"]
mod async_client;
#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
#[allow(dead_code)]
#[path = "../lock/scene.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;

mod access;
mod async_waits;
mod copies;
mod malformed;
mod raw_examples;
mod refusals;
mod waiting;

use redis::Connection;

use crate::scene::{receive, send};

/// Sends a line, and shows whatever comes.
fn ask(connection: &mut Connection, line: &str) -> String {
    send(connection, line);
    receive(connection)
}

/// The ticket of an admission.
#[track_caller]
fn ticket(admitted: &str) -> String {
    let mut words = admitted.split([' ', '[', ']']).filter(|word| !word.is_empty());
    assert_eq!(words.next(), Some("ADMITTED"), "{admitted}");
    words.next().expect("a ticket").to_owned()
}
