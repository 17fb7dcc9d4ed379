//! A server that has nothing to do does nothing, whatever its keys wait for.

use std::time::Duration;

use redis::Connection;
use resil_harness::{Options, Server, eventually};

use crate::driven::{info, say, set_clock, start_driven};

/// What the server works within a second, in milliseconds.
fn worked_ms(connection: &mut Connection) -> f64 {
    let used = |connection: &mut Connection| -> f64 {
        let part = |connection: &mut Connection, field| info(connection, "cpu", field).trim().parse::<f64>().unwrap();
        (part(connection, "used_cpu_user") + part(connection, "used_cpu_sys")) * 1_000.0
    };
    let before = used(connection);
    // Nothing can be driven here: it is the server's own loop that is watched.
    std::thread::sleep(Duration::from_secs(1));
    used(connection) - before
}

#[test]
fn a_long_lease_beside_a_short_one_does_not_keep_the_server_busy() {
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    say(&mut connection, "RES.LOCK ACQUIRE far owner 1h");
    say(&mut connection, "RES.LOCK ACQUIRE near owner 20ms");
    eventually("the short lease ends", Duration::from_secs(20), || {
        info(&mut connection, "resil", "resil_lock_lost").trim() == "1"
    });
    let worked = worked_ms(&mut connection);
    assert!(worked < 60.0, "an idle server worked {worked} ms within a second");
}

#[test]
fn a_clock_that_is_set_back_does_not_keep_the_server_busy() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "RES.LOCK ACQUIRE far owner 1h");
    say(&mut connection, "RES.BULKHEAD ENTER places owner 3 1h");
    // By decades, as on a machine whose clock was wrong.
    set_clock(&mut connection, 0);
    let worked = worked_ms(&mut connection);
    assert!(worked < 60.0, "an idle server worked {worked} ms within a second");
}
