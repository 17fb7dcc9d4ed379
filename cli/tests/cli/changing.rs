//! What changes something: force, reset, policies, dead letters.

use resil_harness::{Server, ok as ask};
use serde_json::json;

use crate::scene::{json as read, ok, resil, run};

#[test]
fn a_force_needs_a_reason_and_keeps_the_actor() {
    let server = Server::fresh();
    assert_eq!(run(resil(&server.url(), &["breaker", "force", "bank", "--to", "open"])).code, 2);
    for blank in ["", "   "] {
        let ran = run(resil(&server.url(), &["breaker", "force", "bank", "--new", "--to", "open", "--reason", blank]));
        assert_eq!(ran.code, 2, "{:?}: {}", blank, ran.err);
    }
    ok(
        &server.url(),
        &["breaker", "force", "bank", "--new", "--to", "open", "--for", "10m", "--reason", "maintenance"],
    );
    let shown = read(&server.url(), &["breaker", "show", "bank"]);
    assert!(shown["forced"]["by"].as_str().is_some_and(|by| by.starts_with("ann@")), "{shown}");
    assert_eq!(shown["forced"]["reason"], json!("maintenance"));
    assert!(shown["forced"]["until"].is_u64(), "{shown}");
    ok(&server.url(), &["breaker", "force", "bank", "--to", "auto", "--reason", "done"]);
    assert_eq!(read(&server.url(), &["breaker", "show", "bank"])["state"], json!("closed"));
    assert_eq!(read(&server.url(), &["breaker", "reset", "bank", "--reason", "test"])["reset"], json!(true));
}

#[test]
fn a_trip_by_hand_can_end_in_half_open() {
    let server = Server::fresh();
    let force = ["breaker", "force", "bank", "--new", "--to", "open-then-probe", "--reason", "it may be back"];
    let ran = run(resil(&server.url(), &force));
    assert_eq!(ran.code, 2, "for how long? {}{}", ran.out, ran.err);
    ok(&server.url(), &[&force[..], &["--for", "10m"]].concat());
    let shown = read(&server.url(), &["breaker", "show", "bank"]);
    assert_eq!((&shown["state"], &shown["forced"]["endsIn"]), (&json!("forced-open"), &json!("half-open")), "{shown}");
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("it is written");
    file
}

#[test]
fn an_apply_stores_all_or_nothing() {
    let server = Server::fresh();
    let url = server.url();
    let apply = |text: &str, more: &[&str]| {
        let file = file(text);
        let path = file.path().to_str().expect("UTF-8").to_owned();
        run(resil(&url, &[&["policy", "apply", &path, "--reason", "test", "--json"], more].concat()))
    };
    let two = "policies: { a: { retry: { maxAttempts: 3 } }, b: { retry: { maxAttempts: 4 } } }";
    let dry = apply(two, &["--dry-run"]);
    assert_eq!((dry.code, &dry.json()["applied"]), (0, &json!(false)), "{}", dry.err);
    assert_eq!(read(&url, &["policy", "list"]), json!([]));
    let stored = apply(two, &[]);
    assert_eq!((stored.code, &stored.json()["applied"]), (0, &json!(true)), "{}", stored.err);
    assert_eq!(read(&url, &["policy", "list"]).as_array().map(Vec::len), Some(2));
    // One that is wrong: nothing is changed.
    let wrong = apply("policies: { a: { retry: { maxAttempts: 9 } }, c: { retry: { maxAttempts: 0 } } }", &[]);
    assert_eq!(wrong.code, 1, "{}", wrong.err);
    assert!(wrong.err.contains("retry.maxAttempts must be from 1 to 100, got 0"), "{}", wrong.err);
    assert_eq!(read(&url, &["policy", "show", "a"])["policy"]["retry"]["maxAttempts"], json!(3));
}

#[test]
fn a_refused_policy_takes_back_those_before_it() {
    let server = Server::fresh();
    let url = server.url();
    // This user may store a and not b, which shows only when b is stored.
    let rule = "on >secret resetchannels &* ~resil:policy:{a} %R~resil:policy:{b} -@all +ping +hello +auth +client|id +res.policy";
    let words: Vec<&str> = ["ACL", "SETUSER", "half"].into_iter().chain(rule.split(' ')).collect();
    ask(&mut server.connect(), &words);
    let file = file("policies: { a: { retry: { maxAttempts: 3 } }, b: { retry: { maxAttempts: 4 } } }");
    let path = file.path().to_str().expect("UTF-8");
    let mut command = resil(&url, &["policy", "apply", path, "--reason", "test", "--user", "half"]);
    command.env("RESIL_PASSWORD", "secret");
    let ran = run(command);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("nothing was changed"), "{}", ran.err);
    assert_eq!(read(&url, &["policy", "list"]), json!([]));
}

#[test]
fn a_policy_can_be_compared_and_rolled_back() {
    let server = Server::fresh();
    let url = server.url();
    for attempts in [3, 4] {
        let file = file(&format!("{{\"policies\": {{\"pay\": {{\"retry\": {{\"maxAttempts\": {attempts}}}}}}}}}"));
        let path = file.path().to_str().expect("UTF-8");
        assert_eq!(run(resil(&url, &["policy", "diff", path])).code, 1);
        ok(&url, &["policy", "check", path]);
        ok(&url, &["policy", "apply", path, "--reason", "test", "--actor", "bob"]);
        assert_eq!(run(resil(&url, &["policy", "diff", path])).code, 0);
    }
    ok(&url, &["policy", "rollback", "pay", "--to", "1", "--reason", "back"]);
    assert_eq!(read(&url, &["policy", "show", "pay"])["policy"]["retry"]["maxAttempts"], json!(3));
    let history = read(&url, &["policy", "history", "pay"]);
    assert_eq!(
        (history.as_array().map(Vec::len), &history[0]["reason"], &history[1]["actor"]),
        (Some(3), &json!("back"), &json!("bob"))
    );
}

#[test]
fn dead_letters_are_diagnosed_and_redriven() {
    let server = Server::fresh();
    let url = server.url();
    let key = "resil:dlq:{orders}";
    let secret = "payload-4711";
    ask(
        &mut server.connect(),
        &["RES.DLQ", "FAIL", key, "kafka/1", "ERROR", "timeout", "PAYLOAD", secret, "TYPE", "Order", "FINAL"],
    );
    let ledgers = read(&url, &["dlq", "list"]);
    assert_eq!((&ledgers[0]["name"], &ledgers[0]["dead"]), (&json!("orders"), &json!(1)));
    let group = read(&url, &["dlq", "groups", "orders"])[0]["group"].as_str().expect("a group").to_owned();
    let letter = read(&url, &["dlq", "show", "orders", "--id", "kafka/1"]);
    assert_eq!((&letter["state"], &letter["payloadBytes"]), (&json!("dead"), &json!(12)));
    assert!(!letter.to_string().contains(secret), "a payload is not shown");
    assert_eq!(read(&url, &["dlq", "show", "orders", "--state", "dead"])[0]["id"], json!("kafka/1"));
    let diagnose = [
        "dlq",
        "diagnose",
        "orders",
        "--group",
        &group,
        "--category",
        "infrastructure",
        "--cause",
        "net",
        "--fix",
        "cable",
    ];
    let case = read(&url, &diagnose)["case"].to_string();
    let redrive = ["dlq", "redrive", "orders", "--case", &case, "--reason", "fixed"];
    assert_eq!(read(&url, &[&redrive[..], &["--dry-run"]].concat())["matched"], json!(1));
    let worker = std::thread::spawn({
        let mut connection = server.connect();
        move || {
            let taken = ask(&mut connection, &["RES.DLQ", "TAKE", key, "w/1", "30s", "WAIT", "20s"]);
            let text = format!("{taken:?}");
            let fence = text.split("int(").nth(1).and_then(|rest| rest.split(')').next()).map(str::to_owned);
            (text, fence)
        }
    });
    let done = read(&url, &[&redrive[..], &["--no-wait"]].concat());
    assert_eq!(done["matched"], json!(1));
    let (text, _) = worker.join().expect("it is taken");
    assert!(text.contains("kafka/1"), "{text}");
    let stopped = read(&url, &["dlq", "stop", "orders", "--case", &case, "--reason", "enough"]);
    assert!(stopped["phase"].is_string(), "{stopped}");
    ok(&url, &["dlq", "hold", "orders", "--id", "kafka/1", "--reason", "legal"]);
    ok(&url, &["dlq", "config", "orders", "--pause"]);
    assert_eq!(read(&url, &["dlq", "list"])[0]["state"], json!("paused"));
    ok(&url, &["dlq", "config", "orders", "--resume"]);
    assert_eq!(run(resil(&url, &["dlq", "close", "orders", "--case", &case, "--reason", "done"])).code, 1);
    assert_eq!(read(&url, &["dlq", "purge", "orders", "--older", "90d", "--reason", "old"])["purged"], json!(0));
    assert_eq!(run(resil(&url, &["dlq", "seen", "orders", "--alert", "77"])).code, 1);
    let audit = read(&url, &["dlq", "audit", "orders"]);
    assert!(
        audit.as_array().is_some_and(|rows| rows
            .iter()
            .any(|row| row["actor"].as_str().is_some_and(|actor| actor.starts_with("ann@")))),
        "{audit}"
    );
}
