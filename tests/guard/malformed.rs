//! No input aborts the server, and nothing malformed changes anything.

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
