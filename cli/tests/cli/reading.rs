//! Looking: names, keys, JSON, escapes.

use resil_harness::{Cluster, Options, Server, eventually, ok as ask};
use serde_json::json;

use crate::scene::{BOUND, json as read, ok, resil, run};

#[test]
fn a_breaker_is_found_by_the_name_of_the_sdks() {
    let server = Server::fresh();
    ask(
        &mut server.connect(),
        &["RES.BREAKER", "FORCE", "resil:breaker:{payments}", "OPEN", "ACTOR", "ann", "REASON", "bank"],
    );
    let shown = read(&server.url(), &["breaker", "show", "payments"]);
    assert_eq!(
        (&shown["state"], &shown["exists"], &shown["key"]),
        (&json!("forced-open"), &json!(true), &json!("resil:breaker:{payments}"))
    );
    assert_eq!((&shown["forced"]["by"], &shown["forced"]["reason"]), (&json!("ann"), &json!("bank")));
    assert_eq!(
        read(&server.url(), &["breaker", "show", "--key", "resil:breaker:{payments}"])["name"],
        json!("payments")
    );
    let listed = read(&server.url(), &["breaker", "list"]);
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!("payments"), &json!("forced-open")));
    assert_eq!(read(&server.url(), &["breaker", "list", "--state", "closed"]), json!([]));
}

#[test]
fn a_mistyped_name_is_told_by_the_exit_code() {
    let server = Server::fresh();
    for args in [["breaker", "show", "nosuch"], ["lock", "show", "nosuch"], ["bulkhead", "show", "nosuch"]] {
        let ran = run(resil(&server.url(), &args));
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains("mistyped"), "{}", ran.err);
    }
}

#[test]
fn a_held_lock_shows_its_holder_and_waiters() {
    let server = Server::fresh();
    ask(&mut server.connect(), &["RES.LOCK", "ACQUIRE", "resil:lock:{stock}", "worker-1", "30s"]);
    let mut other = server.connect();
    let waiting = std::thread::spawn(move || {
        drop(resil_harness::reply(
            &mut other,
            &["RES.LOCK", "ACQUIRE", "resil:lock:{stock}", "worker-2", "30s", "WAIT", "20s"],
        ))
    });
    eventually("worker-2 waits", BOUND, || read(&server.url(), &["lock", "list"])[0]["waiters"] == json!(1));
    let shown = read(&server.url(), &["lock", "show", "stock"]);
    assert_eq!(
        (&shown["holders"][0]["owner"], &shown["waiters"][0]["owner"]),
        (&json!("worker-1"), &json!("worker-2"))
    );
    let table = ok(&server.url(), &["lock", "list"]);
    assert!(table.contains("contended") && table.contains("worker-1"), "{table}");
    ok(&server.url(), &["lock", "break", "stock", "--reason", "test"]);
    waiting.join().expect("worker-2 has the lock");
    assert_eq!(read(&server.url(), &["lock", "show", "stock"])["holders"][0]["owner"], json!("worker-2"));
}

#[test]
fn what_a_terminal_obeys_is_escaped() {
    let server = Server::fresh();
    let odd: &[u8] = b"a\x1b[2J\xff\\\xc2\x9b\n";
    let mut force = redis::cmd("RES.BREAKER");
    force.arg("FORCE").arg(odd).arg("OPEN").arg("REASON").arg("\u{1b}]0;x\u{7}");
    force.exec(&mut server.connect()).expect("any key will do");
    for args in [&["breaker", "list"][..], &["breaker", "list", "--json"], &["top", "--once"]] {
        let out = ok(&server.url(), args);
        assert!(out.chars().all(|c| c == '\n' || !c.is_control()), "{out:?}");
    }
    // What the list shows can be given back.
    let table = ok(&server.url(), &["breaker", "list"]);
    let key = table.lines().nth(1).and_then(|line| line.split("  ").next()).expect("a row");
    let shown = read(&server.url(), &["breaker", "show", "--key", key]);
    assert_eq!((&shown["state"], &shown["name"]), (&json!("forced-open"), &json!(null)));
    assert!(shown["key"]["b64"].is_string(), "{shown}");
}

#[test]
fn a_limit_shows_what_is_left_and_takes_nothing() {
    let server = Server::fresh();
    ask(&mut server.connect(), &["RES.GCRA", "resil:limit:api:{user:42}", "10", "1h", "COST", "4"]);
    for _ in 0..2 {
        let shown = read(&server.url(), &["limit", "show", "api", "user:42", "--limit", "10", "--period", "1h"]);
        assert_eq!(shown["remaining"], json!(6), "{shown}");
    }
}

#[test]
fn ten_thousand_breakers_are_listed() {
    let server = Server::fresh();
    let mut pipe = redis::pipe();
    for number in 0..10_000 {
        pipe.cmd("RES.BREAKER").arg("FORCE").arg(format!("resil:breaker:{{b{number:05}}}")).arg("OPEN").ignore();
    }
    pipe.exec(&mut server.connect()).expect("all are forced");
    let all = read(&server.url(), &["breaker", "list", "--limit", "20000"]);
    assert_eq!(all.as_array().map(Vec::len), Some(10_000));
    assert_eq!(read(&server.url(), &["breaker", "list", "--limit", "7"]).as_array().map(Vec::len), Some(7));
    let top = read(&server.url(), &["top"]);
    assert_eq!((&top["breakersTotal"], top["breakers"].as_array().map(Vec::len)), (&json!(10_000), Some(10)));
}

#[test]
fn completions_exist_for_the_shells() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok("redis://127.0.0.1:1", &["completion", shell]).contains("breaker"), "{shell}");
    }
}

#[test]
fn bench_measures_within_its_time() {
    let server = Server::fresh();
    for what in ["limit", "breaker", "lock", "state"] {
        let ran = read(&server.url(), &["bench", what, "--for", "200ms", "--concurrency", "4"]);
        assert!(ran["calls"].as_u64() > Some(0) && ran["p50Us"].as_u64() <= ran["p99Us"].as_u64(), "{ran}");
        assert!(ran["seconds"].as_f64().is_some_and(|seconds| seconds < 20.0), "{ran}");
    }
}

#[test]
fn a_list_has_every_page_of_every_node_of_a_cluster() {
    let cluster = Cluster::start(3, Options::default());
    let mut connections: Vec<_> = cluster.nodes().iter().map(|node| (node.port(), node.connect())).collect();
    for number in 0..3_600 {
        let key = format!("resil:breaker:{{b{number}}}");
        let home = cluster.node_for_key(&key).port();
        let (_, connection) = connections.iter_mut().find(|(port, _)| *port == home).expect("one of the nodes");
        ask(connection, &["RES.BREAKER", "FORCE", &key, "OPEN"]);
    }
    let url = cluster.nodes()[0].url().replace("redis://", "redis+cluster://");
    let all = run(resil(&url, &["breaker", "list", "--json", "--limit", "10000"]));
    let names: std::collections::BTreeSet<String> =
        all.json().as_array().expect("rows").iter().map(|row| row["name"].to_string()).collect();
    assert_eq!((names.len(), all.err.as_str()), (3_600, ""));
    let few = run(resil(&url, &["breaker", "list", "--json", "--limit", "5"]));
    assert_eq!(few.json().as_array().map(Vec::len), Some(5));
    assert!(few.err.contains("there are more than 5"), "{}", few.err);
    assert_eq!(read(&url, &["top", "--once"])["breakersTotal"], json!(3_600));
}

/// What a node that is away would have shown must not be missing without a word, and no other node may speak for it.
#[test]
fn a_list_of_a_cluster_without_one_of_its_nodes_is_an_error() {
    let cluster = Cluster::start(3, Options::default());
    for number in 0..60 {
        let key = format!("resil:breaker:{{b{number}}}");
        ask(&mut cluster.node_for_key(&key).connect(), &["RES.BREAKER", "FORCE", &key, "OPEN"]);
    }
    let url = cluster.nodes()[0].url().replace("redis://", "redis+cluster://");
    assert_eq!(read(&url, &["top", "--once"])["breakersTotal"], json!(60));
    let killed = std::process::Command::new("kill").args(["-9", &cluster.nodes()[2].pid().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    for args in [&["breaker", "list", "--json"][..], &["top", "--json"]] {
        let ran = run(resil(&url, args));
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{args:?}: {}", ran.err);
    }
    let page = crate::exporter::page_of(&url);
    assert!(page.contains("resil_up 0"), "{page}");
}
