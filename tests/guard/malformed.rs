//! No input aborts the server, and nothing malformed changes anything.

use resil_harness::{error_text, ok};

use crate::ask;
use crate::driven::{Say, start_driven};

const WORDS: &[&str] = &[
    "p",
    "o",
    "1",
    "0",
    "-1",
    "OK",
    "FAIL",
    "IGNORE",
    "CANCEL",
    "SUBJECT",
    "COST",
    "PRIORITY",
    "critical",
    "low",
    "WAIT",
    "ASYNC",
    "TICKET",
    "CALLER",
    "DURATION",
    "AFTER",
    "FINAL",
    "CORRELATION",
    "1s",
    "9999d",
    "IF",
    "ACTOR",
    "REASON",
    "VERSION",
    "{}",
    r#"{"retry":{}}"#,
    r#"{"retry":{"maxAttempts":0}}"#,
    "[",
    "{\"a\":",
    "99999999999999999999",
    "s",
];

const COMMANDS: &[&str] = &[
    "RES.POLICY SET",
    "RES.POLICY GET",
    "RES.POLICY HISTORY",
    "RES.POLICY DELETE",
    "RES.POLICY CHECK",
    "RES.GUARD ENTER",
    "RES.GUARD EXIT",
    "RES.GUARD STATE",
    "RES.BREAKER ADMIT",
    "RES.BREAKER STATE",
    "RES.BREAKER RESET",
];

#[test]
fn random_words_never_stop_the_server() {
    let mut dice = crate::seed::seeded("random words");
    let (_server, mut connection) = start_driven();
    for round in 0..5_000 {
        let words: Vec<&str> = (0..dice.usize(0..7)).map(|_| WORDS[dice.usize(..WORDS.len())]).collect();
        // A caller that waits would not be answered.
        let line = format!("{} {}", COMMANDS[dice.usize(..COMMANDS.len())], words.join(" ")).replace("WAIT", "WAIT 0");
        let reply = ask(&mut connection, &line);
        assert!(reply != "closed" && reply != "nothing", "{round}: {line}: {reply}");
    }
    assert_eq!(connection.info_number("resil", "internal_errors"), 0);
}

#[test]
fn a_malformed_document_changes_nothing() {
    let (_server, mut connection) = start_driven();
    ask(&mut connection, r#"RES.POLICY SET p {"retry":{"maxAttempts":2}}"#);
    let before = connection.digest("p");
    for (document, path) in [
        ("{", "document"),
        ("[]", "document"),
        ("7", "document"),
        (r#"{"retry":{"maxAttempts":101}}"#, "retry.maxAttempts"),
        (r#"{"retry":{"maxAttempts":2,"max_attempts":2}}"#, "retry.maxAttempts"),
        (r#"{"breaker":{"openFor":0}}"#, "breaker.openFor"),
        (r#"{"nothing":1}"#, "nothing"),
        (r#"{"rateLimit":{"limit":1}}"#, "rateLimit.period"),
        (r#"{"retry":{"retry_on":["x"]}}"#, "retry.retryOn"),
    ] {
        let error = ask(&mut connection, &format!("RES.POLICY SET p {document}"));
        assert!(error.starts_with(&format!("-INVALID {path} ")), "{document}: {error}");
        assert_eq!(connection.digest("p"), before, "{document}");
    }
}

/// The table of core, row by row: stored, it is refused with its path; checked, it says the same.
#[test]
fn two_hundred_malformed_documents_are_refused_by_path() {
    const TABLE: &str = include_str!("../../core/tests/policy/malformed.txt");
    let (_server, mut connection) = start_driven();
    ask(&mut connection, r#"RES.POLICY SET p {"retry":{"maxAttempts":2}}"#);
    let (before, mut refused) = (connection.digest("p"), 0);
    for line in TABLE.lines().skip(1) {
        let mut fields = line.splitn(3, '\t');
        let (Some(path), Some(_), Some(document)) = (fields.next(), fields.next(), fields.next()) else {
            panic!("{line}")
        };
        let error = error_text(&mut connection, &["RES.POLICY", "SET", "p", document]);
        assert!(error.starts_with(&format!("INVALID {path} ")), "{document}: {error}");
        let checked: Vec<String> =
            redis::from_redis_value(ok(&mut connection, &["RES.POLICY", "CHECK", document])).expect("texts");
        assert_eq!((checked[0].as_str(), checked[1].as_str()), ("INVALID", path), "{document}");
        refused += 1;
    }
    assert!(refused >= 200, "{refused}");
    assert_eq!(connection.digest("p"), before);
}
