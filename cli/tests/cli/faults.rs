//! Wrong addresses, wrong passwords, servers without the module, servers that die.

use resil_harness::{Options, Server, ok as ask};

use crate::scene::{Running, ok, resil, run};

const SECRET: &str = "hunter2-never-shown";

#[test]
fn an_unreachable_server_is_exit_code_three() {
    for args in [&["breaker", "list"][..], &["top", "--once"], &["policy", "list"], &["bench", "limit"]] {
        let ran = run(resil("redis://127.0.0.1:1", args));
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{}", ran.err);
    }
    for url in ["nonsense", "http://x", "memory://", "redis+quorum://a,b,c", "redis://:bad port"] {
        let ran = run(resil(url, &["breaker", "list"]));
        assert_eq!(ran.code, 2, "{url}: {}", ran.err);
    }
    assert_eq!(run(resil("redis://127.0.0.1:1", &["doctor"])).code, 1);
}

/// Who forgot to name the server sees which one was tried.
#[test]
fn an_error_names_the_server_that_was_tried() {
    let url = format!("redis://zoe-the-user:{SECRET}@127.0.0.1:1");
    for args in [&["breaker", "list"][..], &["watch", "--for", "300ms"], &["doctor"], &["bench", "limit"]] {
        for more in [&[][..], &["--json"]] {
            let ran = run(resil(&url, &[args, more].concat()));
            let said = format!("{}{}", ran.out, ran.err);
            assert!(
                said.contains("127.0.0.1:1") && !said.contains(SECRET) && !said.contains("zoe-the-user"),
                "{args:?}: {said}"
            );
        }
    }
    let json = run(resil(&url, &["breaker", "list", "--json"]));
    let error: serde_json::Value = serde_json::from_str(&json.err).expect("JSON");
    assert_eq!((&error["server"], &error["exitCode"]), (&"127.0.0.1:1".into(), &3.into()));
}

#[test]
fn errors_of_arguments_are_json_too() {
    for args in [
        &["top", "--json", "--json"][..],
        &["breaker", "force", "x", "--to", "banana", "--reason", "r", "--json"],
        &["breaker", "force", "x", "--to", "open", "--reason", " ", "--json"],
        &["watch", "--event", "banana", "--json"],
        &["nosuch", "--json"],
    ] {
        let ran = run(resil("redis://127.0.0.1:1", args));
        let error: serde_json::Value =
            serde_json::from_str(&ran.err).unwrap_or_else(|error| panic!("{args:?}: {error}: {}", ran.err));
        assert_eq!((ran.code, &error["exitCode"]), (2, &2.into()), "{args:?}");
        assert!(error["error"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    }
}

#[test]
fn watch_refuses_unknown_events_and_names_the_known_ones() {
    let page = std::fs::read_to_string(format!("{}/../docs/events.md", env!("CARGO_MANIFEST_DIR"))).expect("the page");
    let events: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`')).collect();
    assert!(events.len() >= 6, "{events:?}");
    let ran = run(resil("redis://127.0.0.1:1", &["watch", "--event", "banana", "--for", "300ms"]));
    assert_eq!(ran.code, 2, "{}", ran.err);
    for event in &events {
        assert!(ran.err.contains(event), "{event}: {}", ran.err);
    }
    let server = Server::fresh();
    for event in events {
        ok(&server.url(), &["watch", "--event", event, "--for", "1s"]);
    }
    // It never listened.
    assert_eq!(run(resil("redis://127.0.0.1:1", &["watch", "--for", "300ms"])).code, 3);
}

#[test]
fn doctor_fails_where_nothing_could_be_looked_at() {
    let server = Server::fresh();
    let rule = "on >x resetkeys resetchannels -@all +ping +hello +auth +client|id +res.breaker|state";
    let words: Vec<&str> = ["ACL", "SETUSER", "blind"].into_iter().chain(rule.split(' ')).collect();
    ask(&mut server.connect(), &words);
    let mut blind = resil(&server.url(), &["doctor", "--user", "blind"]);
    blind.env("RESIL_PASSWORD", "x");
    let ran = run(blind);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
}

#[test]
fn a_password_is_never_shown() {
    let server = Server::start(Options::default().config("requirepass", "right"));
    let host = format!("127.0.0.1:{}", server.port());
    let plain = format!("redis://{host}");
    let wrong = format!("redis://:{SECRET}@{host}");
    let dead = format!("redis://:{SECRET}@127.0.0.1:1");
    let odd = format!("redis://:{SECRET}@127.0.0.1:x");
    for url in [&wrong, &dead, &odd] {
        for args in
            [&["breaker", "list"][..], &["doctor"], &["doctor", "--json"], &["watch", "--for", "300ms"], &["nosuch"]]
        {
            let ran = run(resil(url, args));
            assert_ne!((ran.code, args[0]), (0, "breaker"), "{}", ran.out);
            assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{args:?}: {}{}", ran.out, ran.err);
        }
    }
    assert_eq!(run(resil(&wrong, &["breaker", "list"])).code, 3);
    assert_eq!(run(resil(&plain, &["breaker", "list"])).code, 3);
    let mut by_env = resil(&plain, &["breaker", "list"]);
    by_env.env("RESIL_PASSWORD", "right");
    assert_eq!(run(by_env).code, 0);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "right\n").expect("it is written");
    let path = file.path().to_str().expect("UTF-8");
    ok(&plain, &["breaker", "list", "--password-file", path]);
    let help = run(resil(&wrong, &["--help"]));
    assert!(!help.out.contains(SECRET), "{}", help.out);
}

#[test]
fn a_server_without_the_module_is_reported() {
    let server = Server::start(Options::default().without_module());
    let ran = run(resil(&server.url(), &["breaker", "list"]));
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("module"), "{}", ran.err);
    let doctor = run(resil(&server.url(), &["doctor", "--json"]));
    assert_eq!(doctor.code, 1);
    assert!(doctor.out.contains("loadmodule"), "{}", doctor.out);
}

#[test]
fn doctor_finds_what_is_wrong() {
    let server =
        Server::start(Options::default().config("maxmemory", "100mb").config("maxmemory-policy", "allkeys-lru"));
    let ran = run(resil(&server.url(), &["doctor", "--json"]));
    assert_eq!(ran.code, 1, "{}", ran.out);
    let checks = ran.json()["checks"].clone();
    let level = |check: &str| {
        checks.as_array().and_then(|all| all.iter().find(|row| row["check"] == check)).map(|row| row["level"].clone())
    };
    assert_eq!(level("eviction"), Some("fail".into()), "{checks}");
    for check in ["server", "module", "clock", "rights"] {
        assert_eq!(level(check), Some("ok".into()), "{check} of {checks}");
    }
    ask(&mut server.connect(), &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(run(resil(&server.url(), &["doctor"])).code, 0);
    // A user who may little is warned of, and nothing breaks.
    let rule = "on >x ~resil:* -@all +ping +hello +auth +client|id +time +res.breaker|state";
    let words: Vec<&str> = ["ACL", "SETUSER", "little"].into_iter().chain(rule.split(' ')).collect();
    ask(&mut server.connect(), &words);
    let mut little = resil(&server.url(), &["doctor", "--user", "little"]);
    little.env("RESIL_PASSWORD", "x");
    let ran = run(little);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("+info"), "{}", ran.out);
}

#[test]
fn watch_goes_on_after_the_server_was_killed() {
    let mut server = Server::fresh();
    let force = |server: &Server, reason: &str| {
        ok(&server.url(), &["breaker", "force", "bank", "--new", "--to", "open", "--reason", reason]);
        ok(&server.url(), &["breaker", "force", "bank", "--to", "auto", "--reason", reason]);
    };
    let mut watch = Running::start(resil(&server.url(), &["watch", "--json"]));
    watch.line("listening");
    force(&server, "first");
    assert!(watch.line("first").contains("\"event\":\"breaker\""));
    server.kill9();
    watch.line("lost");
    server.start_again();
    watch.line("listening again");
    force(&server, "second");
    watch.line("second");
    assert!(watch.is_running());
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let server = Server::fresh();
    let program = crate::scene::binary();
    let line = format!(
        "set -o pipefail; '{}' completion bash | head -c 10 >/dev/null; echo code ${{PIPESTATUS[0]}}",
        program.display()
    );
    let out = std::process::Command::new("bash")
        .args(["-c", &line])
        .env("RESIL_URL", server.url())
        .output()
        .expect("bash runs");
    let (out, err) =
        (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned());
    assert_eq!((out.trim(), err.as_str()), ("code 0", ""));
}

/// Bytes above 0x7f that some terminals obey like ESC [.
#[test]
fn an_error_holds_nothing_that_a_terminal_obeys() {
    let file = "/nowhere/\u{9b}31m\u{202e}\u{7f}\x1b[2J";
    for more in [&[][..], &["--json"]] {
        let ran = run(resil("redis://127.0.0.1:1", &[&["breaker", "list", "--password-file", file], more].concat()));
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("/nowhere/"), "{}", ran.err);
        let obeyed: Vec<char> = ran.err.trim_end().chars().filter(|c| !(' '..='~').contains(c)).collect();
        assert!(obeyed.is_empty(), "{obeyed:?} in {:?}", ran.err);
    }
}

#[test]
fn an_open_breaker_is_seen_beside_very_many_closed_ones() {
    let server = Server::fresh();
    let mut connection = server.connect();
    for from in (0..12_000).step_by(1_000) {
        let mut pipe = redis::pipe();
        for number in from..from + 1_000 {
            let key = format!("resil:breaker:{{calm{number}}}");
            pipe.cmd("RES.BREAKER").arg(&["TALLY", &key, "0", "me", "1", "OK", "9", "FAIL", "0"]).ignore();
        }
        pipe.query::<()>(&mut connection).expect("counted");
    }
    ask(&mut connection, &["RES.BREAKER", "FORCE", "resil:breaker:{zulu}", "OPEN"]);
    let top = crate::scene::json(&server.url(), &["top"]);
    assert_eq!((&top["breakers"][0]["name"], &top["breakers"][0]["state"]), (&"zulu".into(), &"forced-open".into()));
    let page = crate::exporter::page_of(&server.url());
    for line in [
        r#"resil_breaker_not_closed{breaker="zulu",key="resil:breaker:{zulu}",state="forced-open"} 1"#,
        r#"resil_breakers{state="closed"} 12000"#,
        r#"resil_breakers{state="forced-open"} 1"#,
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

/// Payloads, results, values, metadata and passwords: the tool shows that they are there, and never what they are.
#[test]
fn nothing_that_was_stored_is_shown() {
    let server = Server::start(Options::default().config("requirepass", SECRET));
    let url = server.url().replace("redis://", &format!("redis://:{SECRET}@"));
    let mut connection = redis::Client::open(&*url).and_then(|client| client.get_connection()).expect("connected");
    for line in [
        &["RES.DLQ", "FAIL", "resil:dlq:{orders}", "42", "ERROR", "timeout", "PAYLOAD", SECRET][..],
        &["RES.DLQ", "FAIL", "resil:dlq:{orders}", "43", "ERROR", "bad", "FINAL", "PAYLOAD", SECRET],
        &["RES.IDEMP", "BEGIN", "resil:idemp:pay:{1}", "me", "1h"],
        &["RES.IDEMP", "COMMIT", "resil:idemp:pay:{1}", "me", "1h", SECRET],
        &["RES.SFLIGHT", "JOIN", "resil:flight:user:{1}", "me", "1h"],
        &["RES.SFLIGHT", "PUBLISH", "resil:flight:user:{1}", "me", "1h", "VALUE", SECRET],
        &["RES.LOCK", "ACQUIRE", "resil:lock:{stock}", "me", "1h"],
        &["RES.BREAKER", "FORCE", "resil:breaker:{bank}", "OPEN"],
    ] {
        ask(&mut connection, line);
    }
    let verbs: [&[&str]; 12] = [
        &["top", "--once"],
        &["breaker", "list"],
        &["breaker", "show", "bank"],
        &["lock", "list"],
        &["lock", "show", "stock"],
        &["dlq", "list"],
        &["dlq", "show", "orders"],
        &["dlq", "show", "orders", "--id", "42"],
        &["dlq", "groups", "orders"],
        &["dlq", "audit", "orders"],
        &["doctor"],
        &["watch", "--for", "200ms"],
    ];
    for verb in verbs {
        for more in [&[][..], &["--json"]] {
            let ran = run(resil(&url, &[verb, more].concat()));
            assert!(ran.code <= 1, "{verb:?}: {}{}", ran.out, ran.err);
            assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{verb:?}: {}{}", ran.out, ran.err);
        }
    }
    let page = crate::exporter::page_of(&url);
    assert!(page.contains("resil_up 1") && !page.contains(SECRET), "{page}");
    let listed: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).expect("listed");
    assert!(!listed.contains(SECRET), "{listed}");
}
