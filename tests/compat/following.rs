//! Behind a primary that still runs redis-cell.

use resil_harness::{Options, Server, wait_for_sync};

use crate::engine::fake_primary::FakePrimary;
use crate::engine::resp::{Client, Reply, typed};
use crate::engine::server_state::{assert_no_internal_errors, must};
use crate::redis_cell::{self, now_us, throttle};

/// What every version since 0.3 streams: the call as it came, granted or not.
#[test]
fn calls_that_come_from_a_primary_are_executed() {
    let replica = Server::fresh();
    let mut primary = FakePrimary::of(&replica);
    let tat_ns = (now_us() + 3_600_000_000) * 1_000;
    let stream = [
        "CL.THROTTLE user 15 30 3600 1".to_owned(),
        "CL.THROTTLE user 15 30 3600 4".to_owned(),
        "CL.THROTTLE user 15 30 3600 100".to_owned(),
        "CL.THROTTLE user 15 30 3600 0".to_owned(),
        // What the snapshot before the stream had left, then used.
        format!("SET old {tat_ns}"),
        "CL.THROTTLE old 9 10 36000 2".to_owned(),
        "RPUSH list a".to_owned(),
        "CL.THROTTLE list 15 30 3600 1".to_owned(),
        "CL.THROTTLE malformed".to_owned(),
    ];
    primary.send(&stream.map(|line| typed(&line)));
    primary.wait_until_applied(&replica);
    let mut client = Client::new(&replica);
    let peeked = |client: &mut Client, line: &str| client.typed(line).integers().expect("a verdict")[0];
    assert_eq!(peeked(&mut client, "RES.GCRA.PEEK user 30 1h BURST 16"), 11);
    assert_eq!(peeked(&mut client, "RES.GCRA.PEEK old 10 10h"), 7, "one was owed, two were taken");
    assert_eq!(must(&mut client, "LLEN list"), Reply::Integer(1));
    assert_eq!(must(&mut client, "DBSIZE"), Reply::Integer(3));
    assert_no_internal_errors(&mut client);
    // To its own clients it is a replica: it takes no writes, not from CL.THROTTLE either.
    assert!(client.typed("CL.THROTTLE user 15 30 3600").text().starts_with("READONLY"));
    must(&mut client, "REPLICAOF NO ONE");
    assert_eq!(throttle(&mut client, "user 15 30 3600")[..3], [0, 16, 10]);
}

/// How one moves without a gap: a replica with the new module, then promote it.
#[test]
fn a_promoted_replica_of_redis_cell_keeps_debts() {
    let Some(theirs) = redis_cell::options() else { return };
    let their_primary = Server::start(theirs);
    let mut client = Client::new(&their_primary);
    throttle(&mut client, "user 9 10 36000 4");
    let replica = Server::replica_of(&their_primary, Options::default());
    wait_for_sync(&their_primary, &replica);
    let mut client = Client::new(&replica);
    must(&mut client, "REPLICAOF NO ONE");
    assert_eq!(throttle(&mut client, "user 9 10 36000")[..3], [0, 10, 5]);
    assert_no_internal_errors(&mut client);
}
