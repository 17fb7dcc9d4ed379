//! The examples of docs/cli.md and the rules of docs/operations.md, as they stand there.

use std::process::{Command, Stdio};

use resil_harness::{Server, ok as ask};

use crate::scene::{binary, resil, run};

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"))).expect("the page")
}

/// The lines of the blocks of this kind.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let (mut lines, mut is_inside) = (Vec::new(), false);
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(label) => is_inside = !is_inside && label == kind,
            None if is_inside => lines.push(line.to_owned()),
            None => {}
        }
    }
    lines
}

#[test]
fn the_examples_of_the_page_run() {
    let server = Server::fresh();
    let mut connection = server.connect();
    ask(&mut connection, &["RES.LOCK", "ACQUIRE", "resil:lock:{stock}", "worker-1", "60s"]);
    ask(&mut connection, &["RES.BULKHEAD", "ENTER", "resil:bulkhead:{reports}", "job-1", "10", "60s"]);
    ask(&mut connection, &["RES.BREAKER", "TALLY", "resil:breaker:{payments}", "0", "me", "1", "OK", "9", "FAIL", "0"]);
    let fail = [
        "RES.DLQ",
        "FAIL",
        "resil:dlq:{orders}",
        "kafka/42",
        "ERROR",
        "timeout",
        "PAYLOAD",
        "x",
        "TYPE",
        "OrderCreated",
        "FINAL",
    ];
    ask(&mut connection, &fail);
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("policies.yaml"), "policies: { payments: { retry: { maxAttempts: 4 } } }")
        .expect("written");
    let path =
        format!("{}:{}", binary().parent().expect("a folder").display(), std::env::var("PATH").unwrap_or_default());
    let examples = blocks(&page("cli.md"), "sh");
    assert!(examples.len() > 40, "{examples:#?}");
    for example in examples {
        let (line, comment) = example.split_once("   # ").unwrap_or((&example, ""));
        let wanted = comment.strip_prefix("exits ").map_or(0, |code| code.parse().expect("a code"));
        let mut bash = Command::new("bash");
        bash.args(["-c", line])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("RESIL_URL", server.url())
            .stdin(Stdio::null());
        let ran = run(bash);
        assert_eq!(ran.code, wanted, "{line}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn every_verb_has_an_example() {
    let page = page("cli.md");
    for (verb, subverbs) in [
        ("breaker", "list show force reset"),
        ("lock", "list show break"),
        ("bulkhead", "list show"),
        ("run", "list"),
        ("load", "list"),
        ("limit", "show"),
        ("policy", "list show apply check diff history rollback"),
        ("dlq", "list show groups diagnose redrive stop close hold purge alerts seen audit config"),
    ] {
        for subverb in subverbs.split(' ') {
            assert!(
                page.contains(&format!("\nresil {verb} {subverb} "))
                    || page.contains(&format!("\nresil {verb} {subverb}\n")),
                "{verb} {subverb}"
            );
        }
    }
    for verb in ["top", "doctor", "watch", "bench", "exporter", "completion"] {
        assert!(page.contains(&format!("resil {verb}")), "{verb}");
    }
}

#[test]
fn every_alert_has_its_runbook() {
    let rules = std::fs::read_to_string(format!("{}/../deploy/prometheus/alerts.yaml", env!("CARGO_MANIFEST_DIR")))
        .expect("rules");
    let page = page("operations.md");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 10);
    for alert in alerts {
        assert!(page.contains(&format!("### {alert}\n")), "{alert}");
        assert!(rules.contains(&format!("#{}", alert.to_lowercase())), "{alert}");
    }
}

#[test]
fn the_rules_of_the_page_give_what_they_say() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let rules: Vec<String> =
        blocks(&page("operations.md"), "text").into_iter().filter(|line| line.starts_with("ACL SETUSER")).collect();
    assert_eq!(rules.len(), 3);
    for rule in &rules {
        let words: Vec<&str> = rule.split(' ').collect();
        ask(&mut connection, &words);
    }
    ask(&mut connection, &["RES.BREAKER", "FORCE", "resil:breaker:{bank}", "OPEN"]);
    ask(&mut connection, &["RES.LOCK", "ACQUIRE", "resil:lock:{stock}", "worker-1", "60s"]);
    let as_user = |user: &str, args: &[&str]| {
        let mut command = resil(&server.url(), &[args, &["--user", user]].concat());
        command.env("RESIL_PASSWORD", "secret");
        run(command)
    };
    let force = ["breaker", "force", "bank", "--to", "auto", "--reason", "test"];
    for (user, args, code) in [
        ("exporter", &["breaker", "list"][..], 0),
        ("exporter", &["top", "--once"], 0),
        ("exporter", &force, 1),
        ("looker", &["breaker", "show", "bank"], 0),
        ("looker", &["doctor"], 0),
        ("looker", &["watch", "--for", "200ms"], 0),
        ("looker", &force, 1),
        ("looker", &["lock", "break", "stock", "--reason", "x"], 1),
        ("steerer", &["policy", "list"], 0),
        ("steerer", &force, 0),
    ] {
        let ran = as_user(user, args);
        assert_eq!(ran.code, code, "{user} {args:?}: {}{}", ran.out, ran.err);
    }
    // A connection without a name would be a line of this log each time.
    let log: redis::Value = redis::cmd("ACL").arg("LOG").query(&mut connection).expect("the log");
    assert!(!format!("{log:?}").contains("client|setname"), "{log:?}");
}
