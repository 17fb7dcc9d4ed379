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
fn a_mistyped_name_is_reported_by_the_exit_code() {
    let server = Server::fresh();
    let looks: [&[&str]; 7] = [
        &["breaker", "show", "nosuch"],
        &["lock", "show", "nosuch"],
        &["bulkhead", "show", "nosuch"],
        &["dlq", "show", "nosuch"],
        &["dlq", "groups", "nosuch"],
        &["dlq", "alerts", "nosuch"],
        &["dlq", "config", "nosuch"],
    ];
    let changes: [&[&str]; 7] = [
        &["breaker", "force", "nosuch", "--to", "auto", "--reason", "x"],
        &["breaker", "force", "nosuch", "--to", "open", "--reason", "x"],
        &["breaker", "reset", "nosuch", "--reason", "x"],
        &["lock", "break", "nosuch", "--reason", "x"],
        &["dlq", "config", "nosuch", "--pause"],
        &["dlq", "hold", "nosuch", "--aggregate", "a", "--reason", "x"],
        &["dlq", "purge", "nosuch", "--older", "90d", "--reason", "x"],
    ];
    for args in looks.iter().chain(&changes) {
        let ran = run(resil(&server.url(), args));
        assert_eq!(ran.code, 4, "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains("mistyped"), "{args:?}: {}", ran.err);
    }
    let policies: [&[&str]; 3] = [
        &["policy", "show", "nosuch"],
        &["policy", "history", "nosuch"],
        &["policy", "rollback", "nosuch", "--to", "1", "--reason", "x"],
    ];
    for args in policies {
        assert_eq!(run(resil(&server.url(), args)).code, 4, "{args:?}");
    }
    assert_eq!(
        (read(&server.url(), &["breaker", "list"]), read(&server.url(), &["dlq", "list"])),
        (json!([]), json!([]))
    );
    // A ledger that is there, and a case or a group that is not.
    let dead = ["RES.DLQ", "FAIL", "resil:dlq:{orders}", "o-1", "ERROR", "boom", "PAYLOAD", "x", "TYPE", "t", "FINAL"];
    ask(&mut server.connect(), &dead);
    let inside: [&[&str]; 4] = [
        &["dlq", "redrive", "orders", "--case", "7", "--reason", "x"],
        &["dlq", "redrive", "orders", "--case", "7", "--dry-run", "--reason", "x"],
        &["dlq", "close", "orders", "--case", "7", "--reason", "x"],
        &["dlq", "diagnose", "orders", "--group", "nosuch", "--category", "poison", "--cause", "c", "--fix", "f"],
    ];
    for args in inside {
        let ran = run(resil(&server.url(), args));
        assert_eq!(ran.code, 4, "{args:?}: {}{}", ran.out, ran.err);
        assert!(!ran.err.contains("INFO"), "a command of the server is no help here: {}", ran.err);
    }
    let ran = run(resil(&server.url(), &["dlq", "stop", "orders", "--case", "7", "--reason", "x"]));
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    // Who means it says so.
    let forced = read(&server.url(), &["breaker", "force", "soon", "--new", "--to", "open", "--reason", "x"]);
    assert_eq!((&forced["state"], &forced["isNew"]), (&json!("forced-open"), &json!(true)));
    let out = ok(&server.url(), &["breaker", "force", "later", "--new", "--to", "open", "--reason", "x"]);
    assert!(out.contains("no such breaker before"), "{out}");
    ok(&server.url(), &["dlq", "config", "soon", "--new", "--pause"]);
    // A limit is a key only while something was taken.
    let limit = ["limit", "show", "api", "nosuch", "--limit", "10", "--period", "1s"];
    assert_eq!(read(&server.url(), &limit)["isUntouched"], json!(true));
    assert!(ok(&server.url(), &limit).contains("mistyped"));
}

/// A stored policy's breaker has the name of its policy.
#[test]
fn the_alerts_name_of_a_policy_finds_its_breaker() {
    let server = Server::fresh();
    let (url, mut connection) = (server.url(), server.connect());
    let policy = r#"{"breaker":{"consecutiveFailures":2,"openFor":"1h"}}"#;
    ask(&mut connection, &["RES.POLICY", "SET", "resil:policy:{payments}", policy]);
    let enter = || {
        let mut command = redis::cmd("RES.GUARD");
        command.arg(&["ENTER", "resil:policy:{payments}", "me"]);
        command
    };
    for _ in 0..2 {
        let admitted: Vec<redis::Value> = enter().query(&mut connection).expect("admitted");
        let mut exit = redis::cmd("RES.GUARD");
        exit.arg("EXIT")
            .arg("resil:policy:{payments}")
            .arg(redis::from_redis_value::<String>(admitted[1].clone()).expect("a ticket"));
        exit.arg("FAIL").exec(&mut connection).expect("reported");
    }
    let shown = read(&url, &["breaker", "show", "payments"]);
    assert_eq!((&shown["state"], &shown["key"]), (&json!("open"), &json!("resil:policy:{payments}")));
    assert!(ok(&url, &["breaker", "list"]).contains("payments (policy)"));
    let force = ["breaker", "force", "payments", "--to", "closed", "--for", "10m", "--reason", "runbook"];
    assert_eq!(read(&url, &force)["key"], json!("resil:policy:{payments}"));
    let admitted: Vec<redis::Value> = enter().query(&mut connection).expect("admitted again");
    assert_eq!(redis::from_redis_value::<String>(admitted[0].clone()).as_deref(), Ok("ADMITTED"), "{admitted:?}");
    // Where there are both, a change says which, and a look says that there is another one.
    ask(&mut connection, &["RES.BREAKER", "FORCE", "resil:breaker:{payments}", "OPEN"]);
    for change in [&force[..], &["breaker", "reset", "payments", "--reason", "x"]] {
        let refused = run(resil(&url, change));
        assert_eq!(refused.code, 1, "{}", refused.err);
        for key in ["--key resil:breaker:{payments}", "--key resil:policy:{payments}"] {
            assert!(refused.err.contains(key), "{}", refused.err);
        }
    }
    let both = run(resil(&url, &["breaker", "show", "payments"]));
    assert!(both.err.contains("--key resil:policy:{payments}"), "{}", both.err);
    // A key that only looks like the name is shown as what has to be typed.
    ask(&mut connection, &["RES.BREAKER", "FORCE", "payments", "OPEN"]);
    let table = ok(&url, &["breaker", "list"]);
    let firsts: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split("  ").next()).collect();
    assert_eq!(firsts, ["--key payments", "payments", "payments (policy)"], "{table}");
}

#[test]
fn a_wide_name_does_not_push_the_others_apart() {
    let server = Server::fresh();
    let wide = format!("resil:breaker:{{{}}}", "w".repeat(60_000));
    ask(&mut server.connect(), &["RES.BREAKER", "FORCE", &wide, "OPEN"]);
    ask(&mut server.connect(), &["RES.BREAKER", "FORCE", "resil:breaker:{bank}", "OPEN"]);
    for args in [["breaker", "list"], ["top", "--once"]] {
        let table = ok(&server.url(), &args);
        assert!(table.lines().all(|line| line.chars().count() < 300), "{}", table.len());
        assert!(table.contains("w…"), "{args:?}");
    }
    assert_eq!(read(&server.url(), &["breaker", "list"])[1]["key"].as_str().map(str::len), Some(wide.len()));
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
fn runs_and_loads_in_flight_are_listed() {
    let server = Server::fresh();
    let mut connection = server.connect();
    ask(&mut connection, &["RES.IDEMP", "BEGIN", "resil:idemp:pay:{1}", "worker-1", "30s"]);
    ask(&mut connection, &["RES.IDEMP", "BEGIN", "resil:idemp:pay:{2}", "worker-2", "30s"]);
    ask(&mut connection, &["RES.IDEMP", "COMMIT", "resil:idemp:pay:{2}", "worker-2", "1h", "done"]);
    ask(&mut connection, &["RES.SFLIGHT", "JOIN", "resil:cache:users:{7}", "worker-3", "30s"]);
    for (verb, state, key, owner, span) in [
        ("run", "running", "resil:idemp:pay:{1}", "worker-1", "runningMs"),
        ("load", "loading", "resil:cache:users:{7}", "worker-3", "loadingMs"),
    ] {
        let rows = read(&server.url(), &[verb, "list"]);
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
        let row = &rows[0];
        assert_eq!((&row["key"], &row["state"], &row["owner"]), (&json!(key), &json!(state), &json!(owner)));
        assert!(row[span].is_u64() && row["waiters"] == 0 && row["leaseLeftMs"].as_u64() > Some(20_000), "{row}");
        let table = ok(&server.url(), &[verb, "list"]);
        assert!(table.contains(key) && table.contains(owner), "{table}");
        assert_eq!(read(&server.url(), &[verb, "list", "--state", "contended"]), json!([]));
        let wrong = run(resil(&server.url(), &[verb, "list", "--state", "open"]));
        assert_eq!(wrong.code, 2, "{}", wrong.err);
    }
}

#[test]
fn runs_and_loads_of_all_nodes_are_listed() {
    const EACH: usize = 60;
    let cluster = Cluster::start(3, Options::default());
    for number in 0..EACH {
        for (words, key) in [
            (["RES.IDEMP", "BEGIN"], format!("resil:idemp:pay:{{{number}}}")),
            (["RES.SFLIGHT", "JOIN"], format!("resil:cache:users:{{{number}}}")),
        ] {
            let mut home = cluster.node_for_key(&key).connect();
            ask(&mut home, &[words[0], words[1], &key, "worker-1", "1h"]);
        }
    }
    let url = cluster.nodes()[0].url().replace("redis://", "redis+cluster://");
    for verb in ["run", "load"] {
        let all = run(resil(&url, &[verb, "list", "--json"]));
        let keys: std::collections::BTreeSet<String> =
            all.json().as_array().expect("rows").iter().map(|row| row["key"].to_string()).collect();
        assert_eq!((keys.len(), all.err.as_str()), (EACH, ""), "{verb}");
        let few = run(resil(&url, &[verb, "list", "--json", "--limit", "5"]));
        assert_eq!(few.json().as_array().map(Vec::len), Some(5), "{verb}");
        assert!(few.err.contains("there are more than 5"), "{}", few.err);
    }
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
    let first = table.lines().nth(1).and_then(|line| line.split("  ").next()).expect("a row");
    let key = first.strip_prefix("--key ").expect("what has to be typed");
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
fn a_list_has_every_page_of_every_node() {
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
fn a_list_without_one_node_shows_the_others_and_fails() {
    let cluster = Cluster::start(3, Options::default());
    for number in 0..60 {
        let key = format!("resil:breaker:{{b{number}}}");
        ask(&mut cluster.node_for_key(&key).connect(), &["RES.BREAKER", "FORCE", &key, "OPEN"]);
    }
    let url = cluster.nodes()[0].url().replace("redis://", "redis+cluster://");
    assert_eq!(read(&url, &["top", "--once"])["breakersTotal"], json!(60));
    let killed = std::process::Command::new("kill").args(["-9", &cluster.nodes()[2].pid().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let lost = format!("127.0.0.1:{}", cluster.nodes()[2].port());
    for args in [&["breaker", "list", "--json"][..], &["top", "--json"], &["breaker", "list"], &["top", "--once"]] {
        let ran = run(resil(&url, args));
        assert_eq!(ran.code, 3, "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(&lost) && !ran.out.is_empty(), "{args:?}: {}{}", ran.out, ran.err);
    }
    let listed = run(resil(&url, &["breaker", "list", "--json"])).json();
    let count = listed.as_array().map(Vec::len).unwrap_or_default();
    assert!((20..60).contains(&count), "{count}");
    let doctor = run(resil(&url, &["doctor"]));
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    assert!(doctor.out.contains(&lost), "{}", doctor.out);
    let page = crate::exporter::page_of(&url);
    let alive = format!("resil_node_up{{node=\"127.0.0.1:{}\"}} 1", cluster.nodes()[0].port());
    for line in ["resil_up 1", &format!("resil_node_up{{node=\"{lost}\"}} 0"), &alive] {
        assert!(page.lines().any(|own| own == line), "{line} in {page}");
    }
    assert!(page.contains("resil_breaker_not_closed{"), "{page}");
    assert!(!page.contains(&format!("_total{{node=\"{lost}\"}}")), "{page}");
}

/// Counters that were added up would go back when a node goes away or another takes over, and count as new when it is back.
#[test]
fn the_counters_of_a_cluster_are_those_of_each_node() {
    let cluster = Cluster::start(3, Options::default());
    for number in 0..30 {
        let key = format!("limit-{number}");
        ask(&mut cluster.node_for_key(&key).connect(), &["RES.GCRA", &key, "1", "1h"]);
    }
    let url = cluster.nodes()[0].url().replace("redis://", "redis+cluster://");
    let page = crate::exporter::page_of(&url);
    let granted: Vec<u64> = page
        .lines()
        .filter(|line| line.starts_with("resil_gcra_granted_total{node=\"127.0.0.1:"))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert_eq!((granted.len(), granted.iter().sum::<u64>()), (3, 30), "{page}");
    assert!(page.contains("resil_gcra_keys 30\n"), "{page}");
}

#[test]
fn doctor_looks_at_every_node_of_a_cluster() {
    let cluster = Cluster::start(3, Options::default());
    let url = cluster.nodes()[0].url().replace("redis://", "redis+cluster://");
    assert_eq!(run(resil(&url, &["doctor"])).code, 0);
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        ask(&mut cluster.nodes()[1].connect(), &["CONFIG", "SET", name, value]);
    }
    let ran = run(resil(&url, &["doctor", "--json"]));
    assert_eq!(ran.code, 1, "{}", ran.out);
    let node = format!("127.0.0.1:{}", cluster.nodes()[1].port());
    let checks = ran.json()["checks"].clone();
    let failed: Vec<_> = checks.as_array().expect("checks").iter().filter(|row| row["level"] == "fail").collect();
    assert_eq!((failed.len(), &failed[0]["check"]), (1, &json!("eviction")), "{checks}");
    assert!(failed[0]["text"].as_str().is_some_and(|text| text.starts_with(&node)), "{checks}");
}
