//! What the harness promises about servers that belong together. No module needed.

use std::collections::BTreeSet;

use redis::Value;
use resil_harness::{Cluster, Options, Server, error_text, flavors, ok, wait_for_sync};

fn plain() -> Options {
    Options::default().without_module()
}

#[test]
fn a_replica_has_old_data_and_new_after_waits() {
    let primary = Server::start(plain());
    ok(&mut primary.connect(), &["SET", "old", "1"]);
    let replica = Server::replica_of(&primary, plain());
    assert_eq!(ok(&mut replica.connect(), &["EXISTS", "old"]), Value::Int(1));

    for number in 0..100 {
        ok(&mut primary.connect(), &["SET", "new", &number.to_string()]);
    }
    wait_for_sync(&primary, &replica);
    assert_eq!(ok(&mut replica.connect(), &["GET", "new"]), Value::BulkString(b"99".to_vec()));
    assert!(error_text(&mut replica.connect(), &["SET", "new", "x"]).starts_with("READONLY"));
}

#[test]
fn a_restarted_replica_finds_its_primary_again() {
    let primary = Server::start(plain());
    let mut replica = Server::replica_of(&primary, plain());
    replica.kill9();
    ok(&mut primary.connect(), &["SET", "meanwhile", "1"]);
    replica.start_again();
    wait_for_sync(&primary, &replica);
    assert_eq!(ok(&mut replica.connect(), &["EXISTS", "meanwhile"]), Value::Int(1));
}

#[test]
fn a_cluster_forms_and_every_key_has_one_home() {
    let cluster = Cluster::start(3, plain());
    assert_eq!(cluster.nodes().len(), 3);
    let mut homes = BTreeSet::new();
    for number in 0..30 {
        let key = format!("key:{number}");
        let home = cluster.node_for_key(&key);
        ok(&mut home.connect(), &["SET", &key, "here"]);
        homes.insert(home.port());
        for stranger in cluster.nodes().iter().filter(|node| node.port() != home.port()) {
            assert!(error_text(&mut stranger.connect(), &["GET", &key]).starts_with("MOVED"));
        }
    }
    assert_eq!(homes.len(), 3);
    assert_eq!(cluster.slot_of("{tag}a"), cluster.slot_of("{tag}b"));
}

#[test]
fn every_fetched_flavor_starts() {
    for flavor in flavors() {
        let server = Server::start(plain().flavor(flavor.clone()));
        let info: String = redis::from_redis_value(ok(&mut server.connect(), &["INFO", "server"])).unwrap();
        let (major, minor, patch) = flavor.version();
        let field = if flavor.is_valkey() { "valkey_version" } else { "redis_version" };
        assert!(info.contains(&format!("{field}:{major}.{minor}.{patch}")), "{}: {info}", flavor.name());
    }
}
