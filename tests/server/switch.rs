//! Where nobody listens, changes are not spelled out. Here somebody begins to listen, at every moment that can be.

use redis::Connection;
use resil_harness::{Options, Server, eventually, wait_for_sync};

use crate::driven::{SOON, driven, info, integer, numbers, say, text, wait_for_rewrite};
use crate::replication::assert_same_keys;
use crate::traffic::Traffic;

/// A replica comes in the midst of traffic, then another.
fn replicas_join_under_load(primary_options: Options, replica_options: Options) {
    let primary = Server::start(primary_options);
    let traffic = Traffic::on(&primary);
    let first = Server::replica_of(&primary, replica_options.clone());
    traffic.wait_for_more();
    let second = Server::replica_of(&primary, replica_options);
    traffic.wait_for_more();
    traffic.stop();
    for replica in [&first, &second] {
        wait_for_sync(&primary, replica);
        assert_same_keys(&mut primary.connect(), &mut replica.connect());
    }
    assert!(integer(&mut first.connect(), "DBSIZE") > 50);
}

#[test]
fn a_replica_that_joins_under_load_ends_equal() {
    replicas_join_under_load(driven(), driven());
}

#[test]
fn a_replica_that_waits_for_its_snapshot_ends_equal() {
    let options = driven().config("repl-diskless-sync-delay", "1");
    replicas_join_under_load(options.clone(), options);
}

#[test]
fn a_replica_that_gets_a_snapshot_from_disk_ends_equal() {
    let options = driven().config("repl-diskless-sync", "no");
    replicas_join_under_load(options.clone(), options);
}

#[test]
fn a_replica_that_keeps_old_data_meanwhile_ends_equal() {
    replicas_join_under_load(driven(), driven().config("repl-diskless-load", "swapdb"));
}

#[test]
fn a_replica_with_snapshot_and_stream_together_ends_equal() {
    let server = Server::start(driven());
    let names = ["dual-channel-replication-enabled", "repl-rdb-channel"];
    let supported = names.iter().find(|name| {
        let found: Vec<String> =
            redis::from_redis_value(say(&mut server.connect(), &format!("CONFIG GET {name}"))).unwrap();
        !found.is_empty()
    });
    let Some(name) = supported else {
        return println!("skipped: this server has no second channel for snapshots");
    };
    let options = driven().config(*name, "yes");
    replicas_join_under_load(options.clone(), options);
}

#[test]
fn a_replica_that_joins_during_a_save_ends_equal() {
    let primary = Server::start(driven().config("repl-diskless-sync", "no"));
    let traffic = Traffic::on(&primary);
    // Half a second for the hundred keys and more that are there.
    say(&mut primary.connect(), "CONFIG SET rdb-key-save-delay 4000");
    say(&mut primary.connect(), "BGSAVE");
    let replica = Server::replica_of(&primary, driven());
    traffic.wait_for_more();
    traffic.stop();
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut primary.connect(), &mut replica.connect());
}

/// Kills the server, which must then come back from its file with what it had.
fn assert_the_file_has_it_all(server: &mut Server) {
    wait_for_rewrite(&mut server.connect());
    say(&mut server.connect(), "CONFIG REWRITE");
    let copy = Server::replica_of(server, driven());
    server.restart_after_kill();
    say(&mut copy.connect(), "REPLICAOF NO ONE");
    assert!(integer(&mut server.connect(), "DBSIZE") > 50);
    assert_same_keys(&mut copy.connect(), &mut server.connect());
}

#[test]
fn a_file_switched_on_under_load_brings_everything_back() {
    let mut server = Server::start(driven());
    let traffic = Traffic::on(&server);
    say(&mut server.connect(), "CONFIG SET appendonly yes");
    traffic.wait_for_more();
    traffic.stop();
    assert_the_file_has_it_all(&mut server);
}

#[test]
fn a_file_switched_under_load_brings_everything_back() {
    let mut server = Server::start(driven().config("appendonly", "yes"));
    let traffic = Traffic::on(&server);
    say(&mut server.connect(), "CONFIG SET appendonly no");
    traffic.wait_for_more();
    say(&mut server.connect(), "CONFIG SET appendonly yes");
    traffic.wait_for_more();
    traffic.stop();
    assert_the_file_has_it_all(&mut server);
}

#[test]
fn a_file_switched_on_during_a_save_brings_everything() {
    let mut server = Server::start(driven());
    let traffic = Traffic::on(&server);
    say(&mut server.connect(), "CONFIG SET rdb-key-save-delay 4000");
    say(&mut server.connect(), "BGSAVE");
    say(&mut server.connect(), "CONFIG SET appendonly yes");
    traffic.wait_for_more();
    wait_for_rewrite(&mut server.connect());
    traffic.wait_for_more();
    traffic.stop();
    assert_the_file_has_it_all(&mut server);
}

#[test]
fn a_promoted_replica_spells_out_changes_to_others() {
    let primary = Server::start(driven());
    let middle = Server::replica_of(&primary, driven());
    let last = Server::replica_of(&middle, driven());
    let traffic = Traffic::on(&primary);
    traffic.stop();
    wait_for_sync(&primary, &middle);
    say(&mut middle.connect(), "REPLICAOF NO ONE");
    let traffic = Traffic::on(&middle);
    // The old primary comes back as a replica of the new one.
    say(&mut primary.connect(), &format!("REPLICAOF 127.0.0.1 {}", middle.port()));
    traffic.wait_for_more();
    traffic.stop();
    for replica in [&last, &primary] {
        wait_for_sync(&middle, replica);
        assert_same_keys(&mut middle.connect(), &mut replica.connect());
    }
    assert_eq!(info(&mut middle.connect(), "stats", "sync_full"), "1", "the last one was not sent a new snapshot");
}

#[test]
fn a_promoted_replicas_sibling_catches_up_from_backlog() {
    let mut primary = Server::start(driven());
    let heir = Server::replica_of(&primary, driven());
    let sibling = Server::replica_of(&primary, driven());
    let traffic = Traffic::on(&primary);
    traffic.stop();
    wait_for_sync(&primary, &heir);
    wait_for_sync(&primary, &sibling);
    primary.kill9();
    say(&mut heir.connect(), "REPLICAOF NO ONE");
    // Nobody follows yet: no snapshot will be made for a newcomer.
    let traffic = Traffic::on(&heir);
    traffic.stop();
    say(&mut sibling.connect(), &format!("REPLICAOF 127.0.0.1 {}", heir.port()));
    wait_for_sync(&heir, &sibling);
    assert_same_keys(&mut heir.connect(), &mut sibling.connect());
    assert_eq!(info(&mut heir.connect(), "stats", "sync_full"), "0", "it came without a snapshot");
}

#[test]
fn a_promoted_replica_without_followers_is_ready_for_one() {
    let mut primary = Server::start(driven());
    let replica = Server::replica_of(&primary, driven());
    primary.kill9();
    say(&mut replica.connect(), "REPLICAOF NO ONE");
    let traffic = Traffic::on(&replica);
    let late = Server::replica_of(&replica, driven());
    traffic.wait_for_more();
    traffic.stop();
    wait_for_sync(&replica, &late);
    assert_same_keys(&mut replica.connect(), &mut late.connect());
}

#[test]
fn a_briefly_absent_replica_catches_up_from_the_backlog() {
    let primary = Server::start(driven());
    let mut replica = Server::replica_of(&primary, driven());
    replica.terminate();
    // Any event makes the module look: the backlog still has to be fed.
    say(&mut primary.connect(), "CONFIG SET hz 11");
    let traffic = Traffic::on(&primary);
    traffic.stop();
    replica.start_again();
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut primary.connect(), &mut replica.connect());
}

fn log_has(server: &Server, text: &str) -> bool {
    server.log().to_lowercase().contains(text)
}

#[test]
fn a_replica_that_returns_without_backlog_ends_equal() {
    let primary = Server::start(driven().config("repl-backlog-ttl", "1"));
    let mut replica = Server::replica_of(&primary, driven());
    replica.terminate();
    eventually("the backlog is let go", SOON, || log_has(&primary, "backlog freed"));
    say(&mut primary.connect(), "CONFIG SET hz 11");
    let traffic = Traffic::on(&primary);
    replica.start_again();
    wait_for_sync(&primary, &replica);
    traffic.wait_for_more();
    traffic.stop();
    wait_for_sync(&primary, &replica);
    assert_same_keys(&mut primary.connect(), &mut replica.connect());
}

#[test]
fn a_writable_replica_keeps_its_own_limits_to_itself() {
    let primary = Server::start(driven());
    let replica = Server::replica_of(&primary, driven().config("replica-read-only", "no"));
    let last = Server::replica_of(&replica, driven());
    let mut connection: Connection = replica.connect();
    assert_eq!(numbers(&mut connection, "RES.GCRA own 10 1h")[..3], [1, 10, 9]);
    numbers(&mut primary.connect(), "RES.GCRA shared 10 1h");
    wait_for_sync(&primary, &replica);
    wait_for_sync(&replica, &last);
    assert_eq!(integer(&mut connection, "EXISTS own shared"), 2);
    assert_eq!(integer(&mut last.connect(), "EXISTS own"), 0);
    assert_eq!(integer(&mut last.connect(), "EXISTS shared"), 1);
    assert_eq!(text(&mut primary.connect(), "PING"), "PONG");
}
