//! One artefact for all servers: each one that was fetched runs everything, keeps it, and can follow an older one.

use redis::Connection;
use resil_harness::{Flavor, Options, Server, flavors, wait_for_sync};

use crate::driven::{START_US, driven, info_number, integer, numbers, say, set_clock, text};
use crate::replication::assert_same_keys;
use crate::samples::{assert_all_live_on, fill_all};

/// The server of this name, unless it was not fetched; then the test says so and passes.
fn fetched(name: &str) -> Option<Flavor> {
    let found = flavors().into_iter().find(|flavor| flavor.name() == name);
    if found.is_none() {
        println!("skipped: no {name} in target/servers, run `scripts/servers {name}`");
    }
    found
}

/// One call of every command, with the reply it must have on every server.
fn assert_basics(connection: &mut Connection) {
    set_clock(connection, START_US);
    for (line, reply) in [
        ("RES.GCRA g 10 60s", &[1, 10, 9, 0, 6_000][..]),
        ("RES.GCRA g 10 60s COST 9", &[9, 10, 0, 0, 60_000]),
        ("RES.GCRA g 10 60s", &[0, 10, 0, 6_000, 60_000]),
        ("RES.GCRA g 10 60s RESERVE 10s", &[1, 10, 0, 6_000, 66_000]),
        ("RES.GCRA g 10 60s REFUND 2", &[2, 10, 1, 0, 54_000]),
        ("RES.GCRA.PEEK g 10 60s", &[1, 10, 1, 0, 54_000]),
        ("RES.GCRA t 10 60s AND 5 1s COST 2", &[2, 5, 3, 0, 400, 10, 8, 0, 12_000, 5, 3, 0, 400]),
        ("RES.MGCRA 1 a 10 60s 10 b 10 1s 10", &[1, -1, 10, 9, 0, 6_000, 10, 9, 0, 100]),
        ("RES.WINDOW w 10 60s COST 4", &[4, 10, 6, 0, 60_000]),
        ("RES.WINDOW w 10 60s UPTO 9", &[6, 10, 0, 60_000, 60_000]),
        ("RES.WINDOW.PEEK w 10 60s", &[0, 10, 0, 60_000, 60_000]),
        ("CL.THROTTLE c 15 30 60", &[0, 16, 15, -1, 2]),
        ("CL.THROTTLE c 15 30 60 16", &[1, 16, 15, 2, 2]),
    ] {
        assert_eq!(numbers(connection, line), reply, "{line}");
    }
}

fn assert_everything_works_on(name: &str) {
    let Some(flavor) = fetched(name) else { return };
    let options = driven().flavor(flavor);
    let mut server = Server::start(options.clone());
    let mut connection = server.connect();
    assert_basics(&mut connection);
    say(&mut connection, "FLUSHALL");

    let samples = fill_all(&mut connection);
    let replica = Server::replica_of(&server, options.clone());
    assert_same_keys(&mut connection, &mut replica.connect());
    say(&mut connection, "DEBUG RELOAD");
    server.restart_after_save();
    assert_all_live_on(&mut server.connect(), &samples);

    let mut filed = Server::start(options.config("appendonly", "yes").config("appendfsync", "always"));
    let samples = fill_all(&mut filed.connect());
    filed.restart_after_kill();
    assert_all_live_on(&mut filed.connect(), &samples);
    assert_eq!(info_number(&mut filed.connect(), "resil", "resil_internal_errors"), 0);
}

#[test]
fn everything_works_on_redis_7_0() {
    assert_everything_works_on("redis-7.0");
}

#[test]
fn everything_works_on_redis_8_0() {
    assert_everything_works_on("redis-8.0");
}

#[test]
fn everything_works_on_the_newest_redis() {
    assert_everything_works_on("redis-testing");
}

#[test]
fn everything_works_on_valkey_8_0() {
    assert_everything_works_on("valkey-8.0");
}

#[test]
fn everything_works_on_valkey_8_1() {
    assert_everything_works_on("valkey-8.1");
}

#[test]
fn everything_works_on_the_newest_valkey() {
    assert_everything_works_on("valkey-testing");
}

#[test]
fn no_fetched_server_is_left_out() {
    let tested = ["redis-7.0", "redis-8.0", "redis-testing", "valkey-8.0", "valkey-8.1", "valkey-testing"];
    for flavor in flavors() {
        assert!(tested.contains(&flavor.name()), "{} has no test in this file", flavor.name());
    }
}

#[test]
fn a_client_stays_in_its_database_on_every_server() {
    for flavor in flavors() {
        let server = Server::start(driven().flavor(flavor));
        let mut connection = server.connect();
        for line in
            ["SET s text", "COPY s s DB 9", "COPY s t DB 9", "MOVE s 3", "SET s text", "RENAME s u", "EXPIRE u 9"]
        {
            say(&mut connection, line);
            let client = text(&mut connection, "CLIENT INFO");
            assert!(client.contains(" db=0 "), "{} after {line}: {client}", server.flavor().name());
        }
    }
}

/// An upgrade as it is done: the newer one follows first, then takes over.
fn assert_follows(older: &str, newer: &str) {
    let (Some(older), Some(newer)) = (fetched(older), fetched(newer)) else { return };
    let options = |flavor: Flavor| -> Options { driven().flavor(flavor) };
    let primary = Server::start(options(older));
    let mut connection = primary.connect();
    let before = fill_all(&mut connection);
    let replica = Server::replica_of(&primary, options(newer));
    let mut on_replica = replica.connect();
    assert_same_keys(&mut connection, &mut on_replica);
    for line in ["RES.GCRA late 10 60s", "RES.WINDOW late:w 10 60s", "RES.MGCRA 1 late:a 5 1s 5 late:b 5 1h 5"] {
        numbers(&mut connection, line);
    }
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut connection, &mut on_replica);
    say(&mut on_replica, "REPLICAOF NO ONE");
    assert_all_live_on(&mut on_replica, &before);
    assert_eq!(integer(&mut on_replica, "EXISTS late late:w late:a late:b"), 4);
}

#[test]
fn a_newer_redis_follows_and_takes_over() {
    assert_follows("redis-7.0", "redis-8.0");
    assert_follows("redis-8.0", "redis-testing");
}

#[test]
fn a_newer_valkey_follows_and_takes_over() {
    assert_follows("valkey-8.0", "valkey-8.1");
    assert_follows("valkey-8.1", "valkey-testing");
}

#[test]
fn a_valkey_follows_the_last_common_redis() {
    assert_follows("redis-7.0", "valkey-8.0");
}
