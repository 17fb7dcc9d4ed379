//! A raised fence on replicas and in files.

use resil_harness::{Options, Server, wait_for_sync};

use crate::asked::Asked;
use crate::driven::Say;

fn raised(server: &Server) -> u64 {
    let mut connection = server.connect();
    let fence = connection.hold("k a 1h") + 30_000_000;
    let reply = connection.ask(&format!("RES.LOCK RENEW k a 1h RAISE {fence}"));
    assert!(reply.starts_with(&format!("GRANTED {fence} ")), "{reply}");
    fence
}

fn survives(options: Options, restart: impl FnOnce(&mut Server)) {
    let mut server = Server::start(options);
    let fence = raised(&server);
    let digest = server.connect().say("DEBUG DIGEST-VALUE k");
    restart(&mut server);
    let mut connection = server.connect();
    assert_eq!(connection.say("DEBUG DIGEST-VALUE k"), digest);
    assert!(connection.ask(&format!("RES.LOCK RENEW k a 1h FENCE {fence}")).starts_with("GRANTED"));
    assert!(connection.hold("other b 1h") > fence);
}

#[test]
fn a_raised_fence_survives_a_snapshot() {
    survives(Options::default(), Server::restart_after_save);
}

#[test]
fn a_raised_fence_survives_a_file() {
    survives(
        Options::default().config("appendonly", "yes").config("appendfsync", "always"),
        Server::restart_after_kill,
    );
}

#[test]
fn a_raised_fence_survives_on_the_replica() {
    let primary = Server::start(Options::default());
    let replica = Server::replica_of(&primary, Options::default());
    let fence = raised(&primary);
    wait_for_sync(&primary, &replica);
    let mut connection = replica.connect();
    assert_eq!(connection.say("DEBUG DIGEST-VALUE k"), primary.connect().say("DEBUG DIGEST-VALUE k"));
    assert_eq!(connection.integer(&format!("RES.LOCK CHECK k a FENCE {fence}")), 1);
    connection.say("REPLICAOF NO ONE");
    assert!(connection.hold("other b 1h") > fence);
}
