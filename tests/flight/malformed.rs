//! Requests that make no sense are refused by name and change nothing.

use redis::Value;
use resil_harness::{error_text, ok};

use crate::driven::Say;
use crate::scene::Scene;

const REFUSED: &[(&str, &str)] = &[
    ("RES.IDEMP", "RES.IDEMP"),
    ("RES.IDEMP NOPE KEY", "unknown subcommand"),
    ("RES.IDEMP BEGIN", "key"),
    ("RES.IDEMP BEGIN KEY", "token"),
    ("RES.IDEMP BEGIN KEY a", "lease"),
    ("RES.IDEMP BEGIN KEY a 0", "lease"),
    ("RES.IDEMP BEGIN KEY a 9ms", "lease"),
    ("RES.IDEMP BEGIN KEY a -1", "lease"),
    ("RES.IDEMP BEGIN KEY a 2d", "lease"),
    ("RES.IDEMP BEGIN KEY a 1w", "lease"),
    ("RES.IDEMP BEGIN KEY a 99999999999999999999", "lease"),
    ("RES.IDEMP BEGIN KEY a 1s WAIT", "WAIT"),
    ("RES.IDEMP BEGIN KEY a 1s WAIT -1", "WAIT"),
    ("RES.IDEMP BEGIN KEY a 1s WAIT 11m", "WAIT"),
    ("RES.IDEMP BEGIN KEY a 1s WAIT 1 WAIT 1", "WAIT is given twice"),
    ("RES.IDEMP BEGIN KEY a 1s KEEP", "KEEP"),
    ("RES.IDEMP BEGIN KEY a 1s KEEP 0", "KEEP"),
    ("RES.IDEMP BEGIN KEY a 1s KEEP -1", "KEEP"),
    ("RES.IDEMP BEGIN KEY a 1s KEEP 367d", "KEEP"),
    ("RES.IDEMP BEGIN KEY a 1s KEEP 1s KEEP 1s", "KEEP is given twice"),
    ("RES.IDEMP BEGIN KEY a 1s FINGERPRINT", "FINGERPRINT"),
    ("RES.IDEMP BEGIN KEY a 1s FINGERPRINT f FINGERPRINT f", "FINGERPRINT is given twice"),
    ("RES.IDEMP BEGIN KEY a 1s ONLAPSE", "ONLAPSE"),
    ("RES.IDEMP BEGIN KEY a 1s ONLAPSE WAIT", "ONLAPSE must be RUN or HOLD"),
    ("RES.IDEMP BEGIN KEY a 1s ONLAPSE RUN ONLAPSE RUN", "ONLAPSE is given twice"),
    ("RES.IDEMP BEGIN KEY a 1s BOUND BOUND", "BOUND"),
    ("RES.IDEMP BEGIN KEY a 1s BOUND BOUNDTO 1", "BOUND"),
    ("RES.IDEMP BEGIN KEY a 1s BOUNDTO", "BOUNDTO"),
    ("RES.IDEMP BEGIN KEY a 1s BOUNDTO 0", "BOUNDTO"),
    ("RES.IDEMP BEGIN KEY a 1s BOUNDTO -1", "BOUNDTO"),
    ("RES.IDEMP BEGIN KEY a 1s BOUNDTO 99999999", "BOUNDTO"),
    ("RES.IDEMP BEGIN KEY a 1s SHARED", "SHARED"),
    ("RES.IDEMP COMMIT", "key"),
    ("RES.IDEMP COMMIT KEY", "token"),
    ("RES.IDEMP COMMIT KEY a", "ttl"),
    ("RES.IDEMP COMMIT KEY a 1s", "result"),
    ("RES.IDEMP COMMIT KEY a 0 x", "ttl"),
    ("RES.IDEMP COMMIT KEY a 999us x", "ttl"),
    ("RES.IDEMP COMMIT KEY a -1 x", "ttl"),
    ("RES.IDEMP COMMIT KEY a 367d x", "ttl"),
    ("RES.IDEMP COMMIT KEY a 99999999999999999999 x", "ttl"),
    ("RES.IDEMP COMMIT KEY a 1s x FAILED", "FAILED"),
    ("RES.IDEMP COMMIT KEY a 1s x ERROR surplus", "surplus"),
    ("RES.IDEMP ABORT", "key"),
    ("RES.IDEMP ABORT KEY", "token"),
    ("RES.IDEMP ABORT KEY a surplus", "surplus"),
    ("RES.IDEMP RENEW KEY", "token"),
    ("RES.IDEMP RENEW KEY a", "lease"),
    ("RES.IDEMP RENEW KEY a 9ms", "lease"),
    ("RES.IDEMP RENEW KEY a 1s surplus", "surplus"),
    ("RES.IDEMP ONCE", "key"),
    ("RES.IDEMP ONCE KEY", "ttl"),
    ("RES.IDEMP ONCE KEY 0", "ttl"),
    ("RES.IDEMP ONCE KEY -1", "ttl"),
    ("RES.IDEMP ONCE KEY 367d", "ttl"),
    ("RES.IDEMP ONCE KEY nan", "ttl"),
    ("RES.IDEMP ONCE KEY 1s TOKEN", "TOKEN"),
    ("RES.IDEMP ONCE KEY 1s TOKEN a TOKEN a", "TOKEN is given twice"),
    ("RES.IDEMP ONCE KEY 1s surplus", "surplus"),
    ("RES.IDEMP GET", "key"),
    ("RES.IDEMP GET KEY FINGERPRINT", "FINGERPRINT"),
    ("RES.IDEMP GET KEY surplus", "surplus"),
    ("RES.IDEMP INFO", "key"),
    ("RES.IDEMP INFO KEY surplus", "surplus"),
    ("RES.IDEMP HELP surplus", "surplus"),
    ("RES.SFLIGHT", "RES.SFLIGHT"),
    ("RES.SFLIGHT NOPE KEY", "unknown subcommand"),
    ("RES.SFLIGHT JOIN", "key"),
    ("RES.SFLIGHT JOIN KEY", "token"),
    ("RES.SFLIGHT JOIN KEY a", "lease"),
    ("RES.SFLIGHT JOIN KEY a 0", "lease"),
    ("RES.SFLIGHT JOIN KEY a 9ms", "lease"),
    ("RES.SFLIGHT JOIN KEY a -1", "lease"),
    ("RES.SFLIGHT JOIN KEY a 2d", "lease"),
    ("RES.SFLIGHT JOIN KEY a 1s WAIT", "WAIT"),
    ("RES.SFLIGHT JOIN KEY a 1s WAIT 11m", "WAIT"),
    ("RES.SFLIGHT JOIN KEY a 1s WAIT 1 WAIT 1", "WAIT is given twice"),
    ("RES.SFLIGHT JOIN KEY a 1s BOUNDTO 0", "BOUNDTO"),
    ("RES.SFLIGHT JOIN KEY a 1s KEEP 1s", "KEEP"),
    ("RES.SFLIGHT PUBLISH", "key"),
    ("RES.SFLIGHT PUBLISH KEY", "token"),
    ("RES.SFLIGHT PUBLISH KEY a", "ttl"),
    ("RES.SFLIGHT PUBLISH KEY a 1s", "VALUE, EMPTY or ERROR"),
    ("RES.SFLIGHT PUBLISH KEY a -1 EMPTY", "ttl"),
    ("RES.SFLIGHT PUBLISH KEY a 367d EMPTY", "ttl"),
    ("RES.SFLIGHT PUBLISH KEY a 99999999999999999999 EMPTY", "ttl"),
    ("RES.SFLIGHT PUBLISH KEY a 1s NOTHING", "expected VALUE, EMPTY or ERROR"),
    ("RES.SFLIGHT PUBLISH KEY a 1s VALUE", "VALUE"),
    ("RES.SFLIGHT PUBLISH KEY a 1s VALUE x STALE", "STALE"),
    ("RES.SFLIGHT PUBLISH KEY a 1s VALUE x STALE -1", "STALE"),
    ("RES.SFLIGHT PUBLISH KEY a 1s VALUE x STALE 367d", "STALE"),
    ("RES.SFLIGHT PUBLISH KEY a 1s VALUE x STALE 1s surplus", "surplus"),
    ("RES.SFLIGHT PUBLISH KEY a 1s EMPTY surplus", "surplus"),
    ("RES.SFLIGHT PUBLISH KEY a 1s EMPTY STALE 1s", "STALE"),
    ("RES.SFLIGHT PUBLISH KEY a 1s ERROR", "ERROR"),
    ("RES.SFLIGHT PUBLISH KEY a 1s ERROR text surplus", "surplus"),
    ("RES.SFLIGHT ABANDON KEY", "token"),
    ("RES.SFLIGHT ABANDON KEY a RETRY", "RETRY"),
    ("RES.SFLIGHT ABANDON KEY a RETRY 0", "RETRY"),
    ("RES.SFLIGHT ABANDON KEY a RETRY -1", "RETRY"),
    ("RES.SFLIGHT ABANDON KEY a RETRY 367d", "RETRY"),
    ("RES.SFLIGHT ABANDON KEY a RETRY 1s RETRY 1s", "RETRY is given twice"),
    ("RES.SFLIGHT ABANDON KEY a surplus", "surplus"),
    ("RES.SFLIGHT RENEW KEY a", "lease"),
    ("RES.SFLIGHT RENEW KEY a 9ms", "lease"),
    ("RES.SFLIGHT INVALIDATE", "key"),
    ("RES.SFLIGHT INVALIDATE KEY HARD", "HARD"),
    ("RES.SFLIGHT INVALIDATE KEY SOFT SOFT", "SOFT"),
    ("RES.SFLIGHT GET KEY surplus", "surplus"),
    ("RES.SFLIGHT INFO KEY surplus", "surplus"),
    ("RES.SFLIGHT HELP surplus", "surplus"),
];

#[test]
fn malformed_calls_are_refused_by_name_and_change_nothing() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP BEGIN idemp a 1h");
    scene.ask("RES.SFLIGHT JOIN sflight a 1h");
    let before = [scene.main.digest("idemp"), scene.main.digest("sflight")];
    let dirty = scene.main.info_number("persistence", "rdb_changes_since_last_save");
    for (line, word) in REFUSED {
        let held = if line.starts_with("RES.IDEMP") { "idemp" } else { "sflight" };
        for key in ["none", held] {
            let line = line.replace("KEY", key);
            let error = scene.main.refusal(&line);
            let named = error.contains(word) || error.contains("wrong number of arguments");
            assert!(named && error.starts_with("ERR "), "{line}: {error}");
        }
    }
    assert_eq!(scene.main.integer("DBSIZE"), 2);
    assert_eq!([scene.main.digest("idemp"), scene.main.digest("sflight")], before);
    assert_eq!(scene.main.info_number("persistence", "rdb_changes_since_last_save"), dirty);
    assert_eq!(scene.main.info_number("resil", "sessions"), 0);
    assert_eq!(scene.waiters(), 0);
}

#[test]
fn texts_have_a_length() {
    let mut scene = Scene::driven();
    let (longest, too_long) = ("x".repeat(512), "x".repeat(513));
    for bad in ["", &too_long] {
        for (name, words) in [
            ("token", vec!["RES.IDEMP", "BEGIN", "k", bad, "1s"]),
            ("token", vec!["RES.IDEMP", "COMMIT", "k", bad, "1s", "x"]),
            ("token", vec!["RES.IDEMP", "ABORT", "k", bad]),
            ("token", vec!["RES.IDEMP", "RENEW", "k", bad, "1s"]),
            ("FINGERPRINT", vec!["RES.IDEMP", "BEGIN", "k", "a", "1s", "FINGERPRINT", bad]),
            ("FINGERPRINT", vec!["RES.IDEMP", "GET", "k", "FINGERPRINT", bad]),
            ("TOKEN", vec!["RES.IDEMP", "ONCE", "k", "1s", "TOKEN", bad]),
            ("token", vec!["RES.SFLIGHT", "JOIN", "k", bad, "1s"]),
            ("token", vec!["RES.SFLIGHT", "PUBLISH", "k", bad, "1s", "EMPTY"]),
            ("token", vec!["RES.SFLIGHT", "ABANDON", "k", bad]),
            ("token", vec!["RES.SFLIGHT", "RENEW", "k", bad, "1s"]),
            ("ERROR", vec!["RES.SFLIGHT", "PUBLISH", "k", "a", "1s", "ERROR", bad]),
        ] {
            let error = error_text(&mut scene.main, &words);
            assert!(error.contains(name) && error.contains("512"), "{words:?}: {error}");
        }
    }
    assert_eq!(scene.main.integer("DBSIZE"), 0);
    assert_eq!(scene.verdict(&format!("RES.IDEMP BEGIN k {longest} 1s FINGERPRINT {longest}")), "RUN");
    assert_eq!(scene.verdict(&format!("RES.SFLIGHT JOIN l {longest} 1s")), "LEAD");
    assert_eq!(scene.verdict(&format!("RES.SFLIGHT PUBLISH l {longest} 1s ERROR {longest}")), "PUBLISHED");
}

#[test]
fn results_and_values_may_be_any_bytes_even_none() {
    let mut scene = Scene::driven();
    for (n, bytes) in [&b""[..], b"\x00\xff\r\n", b"$-1\r\n"].into_iter().enumerate() {
        let key = format!("k{n}");
        scene.ask(&format!("RES.IDEMP BEGIN {key} a 1s"));
        ok(&mut scene.main, &[b"RES.IDEMP".as_slice(), b"COMMIT", key.as_bytes(), b"a", b"1h", bytes]);
        let Value::Array(replay) = scene.main.say(&format!("RES.IDEMP GET {key}")) else { panic!("a list") };
        assert_eq!(replay[2], Value::BulkString(bytes.to_vec()));
        let key = format!("v{n}");
        scene.ask(&format!("RES.SFLIGHT JOIN {key} a 1s"));
        ok(&mut scene.main, &[b"RES.SFLIGHT".as_slice(), b"PUBLISH", key.as_bytes(), b"a", b"1h", b"VALUE", bytes]);
        let Value::Array(value) = scene.main.say(&format!("RES.SFLIGHT GET {key}")) else { panic!("a list") };
        assert_eq!(value[1], Value::BulkString(bytes.to_vec()));
    }
}

#[test]
fn a_value_above_the_limit_leaves_the_leader_leading() {
    let mut scene = Scene::driven();
    scene.main.say("CONFIG SET resil.max-value 4");
    scene.ask("RES.SFLIGHT JOIN k a 1s");
    let error = scene.main.refusal("RES.SFLIGHT PUBLISH k a 1s VALUE 12345");
    assert!(error.contains("at most 4 bytes, got 5"), "{error}");
    assert_eq!(scene.ask("RES.SFLIGHT PUBLISH k a 1s VALUE 1234"), "[PUBLISHED 0]");
}

#[test]
fn other_kinds_of_keys_are_left_alone() {
    let mut scene = Scene::driven();
    scene.main.say("SET text x");
    scene.ask("RES.IDEMP BEGIN idemp a 1h");
    scene.ask("RES.SFLIGHT JOIN sflight a 1h");
    let before = [scene.main.digest("idemp"), scene.main.digest("sflight")];
    let idemp = [
        "BEGIN KEY a 1s",
        "BEGIN KEY a 1s WAIT 1s",
        "COMMIT KEY a 1s x",
        "ABORT KEY a",
        "RENEW KEY a 1s",
        "ONCE KEY 1s",
        "GET KEY",
        "INFO KEY",
    ];
    let flight = [
        "JOIN KEY a 1s",
        "JOIN KEY a 1s WAIT 1s",
        "GET KEY",
        "PUBLISH KEY a 1s EMPTY",
        "ABANDON KEY a",
        "RENEW KEY a 1s",
        "INVALIDATE KEY",
        "INFO KEY",
    ];
    for (command, lines, other) in [("RES.IDEMP", idemp, "sflight"), ("RES.SFLIGHT", flight, "idemp")] {
        for line in lines {
            for key in ["text", other] {
                let line = format!("{command} {}", line.replace("KEY", key));
                assert!(scene.main.refusal(&line).starts_with("WRONGTYPE "), "{line}");
            }
        }
    }
    assert_eq!([scene.main.digest("idemp"), scene.main.digest("sflight")], before);
    assert_eq!(scene.main.text("TYPE idemp"), "resil-idm");
    assert_eq!(scene.main.text("TYPE sflight"), "resil-sfl");
}

#[test]
fn once_and_begin_do_not_mix() {
    let mut scene = Scene::driven();
    scene.ask("RES.IDEMP ONCE o 1s");
    scene.ask("RES.IDEMP BEGIN b a 1h");
    let before = [scene.main.digest("o"), scene.main.digest("b")];
    for line in ["RES.IDEMP BEGIN o a 1s", "RES.IDEMP BEGIN o a 1s WAIT 1s", "RES.IDEMP ONCE b 1s"] {
        let error = scene.main.refusal(line);
        assert!(error.starts_with("PHASE "), "{line}: {error}");
    }
    assert_eq!(scene.ask("RES.IDEMP COMMIT o a 1s x"), "[LOST absent]");
    assert_eq!([scene.main.digest("o"), scene.main.digest("b")], before);
    // Until it is forgotten.
    scene.main.clock_at_ms(1_000);
    assert_eq!(scene.verdict("RES.IDEMP BEGIN o a 1s"), "RUN");
}

#[test]
fn an_operator_can_insist_that_nothing_is_evicted() {
    let mut scene = Scene::driven();
    scene.main.say("CONFIG SET resil.require-noeviction yes");
    scene.ask("RES.IDEMP BEGIN k a 1h");
    scene.main.say("CONFIG SET maxmemory-policy allkeys-lru");
    for line in ["RES.IDEMP BEGIN other a 1h", "RES.IDEMP ONCE other 1h"] {
        assert!(scene.main.refusal(line).contains("maxmemory-policy"), "{line}");
    }
    assert_eq!(scene.ask("RES.IDEMP COMMIT k a 1h x"), "[COMMITTED stored]");
    assert_eq!(scene.verdict("RES.SFLIGHT JOIN cache a 1h"), "LEAD", "a cache may be evicted");
}
