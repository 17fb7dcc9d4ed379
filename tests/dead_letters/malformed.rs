//! What is refused says what is allowed, and changes nothing.

use resil_harness::error_text;

use crate::driven::Say;
use crate::letters::{dies, ledger};
use crate::scene::{receive, send};

/// Lines, and what their refusal says.
const REFUSED: &[(&str, &str)] = &[
    ("RES.DLQ", "wrong number of arguments"),
    ("RES.DLQ NOPE", "unknown subcommand 'NOPE'"),
    ("RES.DLQ FAIL d", "missing id"),
    ("RES.DLQ FAIL d x", "missing ERROR"),
    ("RES.DLQ FAIL d x ERROR", "missing ERROR"),
    ("RES.DLQ FAIL d x PAYLOAD p", "missing ERROR"),
    ("RES.DLQ FAIL d x ERROR e PAYLOAD a REF b", "only one of PAYLOAD and REF"),
    ("RES.DLQ FAIL d x ERROR e NOCOUNT FINAL", "only one of NOCOUNT and FINAL"),
    ("RES.DLQ FAIL d x ERROR e CLASS odd", "CLASS must be one of transient, business, external, got 'odd'"),
    ("RES.DLQ FAIL d x ERROR e AFTER -1", "AFTER must be a duration"),
    ("RES.DLQ FAIL d x ERROR e PRIOR -1", "PRIOR must be a whole number"),
    ("RES.DLQ FAIL d x ERROR e FENCE 0", "FENCE must be a whole number"),
    ("RES.DLQ FAIL d x ERROR e SCHEMA x", "SCHEMA must be a whole number"),
    ("RES.DLQ FAIL d x ERROR e SURPRISE", "unexpected argument 'SURPRISE'"),
    ("RES.DLQ TAKE d", "missing token"),
    ("RES.DLQ TAKE d t", "missing lease"),
    ("RES.DLQ TAKE d t 0", "lease must be a duration"),
    ("RES.DLQ TAKE d t 2d", "lease must be a duration"),
    ("RES.DLQ TAKE d t 1s COUNT 0", "COUNT must be a whole number"),
    ("RES.DLQ TAKE d t 1s WAIT 1h", "WAIT must be"),
    ("RES.DLQ TAKE d t 1s BOUND BOUNDTO 3", "given twice"),
    ("RES.DLQ TAKE d t 1s BOUNDTO 99999", "is not a connection of the same user"),
    ("RES.DLQ DONE d", "missing id"),
    ("RES.DLQ DONE d x", "missing fence"),
    ("RES.DLQ DONE d x 1 y", "missing fence"),
    ("RES.DLQ DONE d x y", "fence must be a whole number"),
    ("RES.DLQ DONE d x 9007199254740992", "fence must be a whole number"),
    ("RES.DLQ RETURN d DELAY 1s", "missing id"),
    ("RES.DLQ RENEW d t", "missing lease"),
    ("RES.DLQ PARK d x AGGREGATE a", "missing PAYLOAD"),
    ("RES.DLQ PARK d x PAYLOAD p", "missing AGGREGATE"),
    ("RES.DLQ GET d x NOW", "unexpected argument 'NOW'"),
    ("RES.DLQ LIST d LIMIT 0", "LIMIT must be a whole number"),
    ("RES.DLQ LIST d STATE gone", "STATE must be one of"),
    ("RES.DLQ LIST d CURSOR x", "CURSOR must be a whole number"),
    ("RES.DLQ INFO d GROUPS ALERTS", "only one of GROUPS"),
    ("RES.DLQ INFO d LIMIT 3", "CURSOR and LIMIT are for lists"),
    ("RES.DLQ INFO d CASE", "missing case"),
    ("RES.DLQ DIAGNOSE d CATEGORY poison CAUSE c FIX f ACTOR x", "missing CATEGORY"),
    ("RES.DLQ DIAGNOSE d t/e CATEGORY odd CAUSE c FIX f ACTOR x", "CATEGORY must be one of"),
    ("RES.DLQ DIAGNOSE d t/e CATEGORY contract FIX f ACTOR x", "missing CAUSE"),
    ("RES.DLQ DIAGNOSE d t/e CATEGORY contract CAUSE c ACTOR x", "missing FIX"),
    ("RES.DLQ DIAGNOSE d t/e CATEGORY business CAUSE c FIX f ACTOR x", "business needs a DECISION"),
    ("RES.DLQ DIAGNOSE d t/e CATEGORY contract CAUSE c FIX f AUTO 1h ACTOR x", "AUTO"),
    ("RES.DLQ REDRIVE d 0 ACTOR x", "case must be a whole number"),
    ("RES.DLQ REDRIVE d 1 RATE 0 1m ACTOR x", "RATE must be a whole number"),
    ("RES.DLQ REDRIVE d 1 FIRST 0 ACTOR x", "FIRST must be a whole number"),
    ("RES.DLQ HOLD d x MAYBE ACTOR x", "HOLD must be ON or OFF"),
    ("RES.DLQ HOLD d x ACTOR x", "HOLD must be ON or OFF"),
    ("RES.DLQ PURGE d ACTOR x", "missing OLDER"),
    ("RES.DLQ PURGE d OLDER 89d ACTOR x", "OLDER must be a duration from 90d"),
    ("RES.DLQ PURGE d OLDER 90d STATE waiting ACTOR x", "STATE must be one of"),
    ("RES.DLQ SEEN d 0 ACTOR x", "alert must be a whole number"),
    ("RES.DLQ CONFIG d ACTOR x", "give at least one of"),
    ("RES.DLQ CONFIG d RETRIES 1 ACTOR x", "unexpected argument 'RETRIES'"),
    ("RES.DLQ CONFIG d CRASHES 0 ACTOR x", "CRASHES must be a whole number"),
    ("RES.DLQ CONFIG d JITTER some ACTOR x", "JITTER"),
];

#[test]
fn a_refusal_names_the_argument_and_changes_nothing() {
    let mut scene = ledger();
    dies(&mut scene, "d", "dead", "t", "e");
    let before = scene.main.digest("d");
    for (line, wanted) in REFUSED {
        let error = scene.ask(line);
        assert!(error.starts_with("-ERR ") && error.contains(wanted), "{line}: {error}");
        assert_eq!(scene.main.digest("d"), before, "{line}");
    }
    assert_eq!(scene.main.integer("EXISTS x"), 0);
}

#[test]
fn texts_are_any_bytes_cut_to_their_limits() {
    let mut scene = ledger();
    let long = |byte: u8, count: usize| vec![byte; count];
    let (error, text) = (long(0xff, 5_000), long(0xfe, 9_999));
    let words: Vec<&[u8]> = vec![
        b"RES.DLQ",
        b"FAIL",
        b"d",
        b"\x00\xff\r\n",
        b"ERROR",
        &error,
        b"PAYLOAD",
        b"",
        b"TYPE",
        &text,
        b"SOURCE",
        &text,
        b"AGGREGATE",
        &text,
        b"HEADERS",
        &text,
        b"GROUP",
        &text,
    ];
    let reply = format!("{:?}", resil_harness::ok(&mut scene.main, &words));
    assert!(reply.contains("RETRY"), "{reply}");
    let entry = scene.main.say("RES.DLQ LIST d");
    let shown = crate::scene::shown(&entry);
    assert!(shown.contains("cut [type source aggregate") && shown.contains("error"), "{}", &shown[shown.len() - 200..]);
    assert!(shown.len() < 80_000, "{} bytes are shown", shown.len());
    for id in [b"".as_slice(), &long(b'i', 513)] {
        let error = error_text(&mut scene.main, &[b"RES.DLQ", b"FAIL".as_slice(), b"d", id, b"ERROR", b"e"]);
        assert!(error.starts_with("ERR id must have from 1 to 512 bytes"), "{error}");
    }
}

#[test]
fn a_payload_above_its_limit_is_refused_with_advice() {
    let mut scene = ledger();
    scene.main.say("CONFIG SET resil.max-payload 10");
    let fits = scene.ask("RES.DLQ FAIL d fits ERROR e PAYLOAD 0123456789");
    assert!(fits.starts_with("[RETRY 1 "), "{fits}");
    for line in
        ["RES.DLQ FAIL d large ERROR e PAYLOAD 0123456789x", "RES.DLQ PARK d large AGGREGATE a PAYLOAD 0123456789x"]
    {
        let error = scene.ask(line);
        assert!(error.starts_with("-TOOBIG ") && error.contains("give REF"), "{error}");
    }
    assert_eq!(scene.ask("RES.DLQ GET d large"), "nil");
}

#[test]
fn a_key_of_another_type_is_left_alone() {
    let mut scene = ledger();
    scene.main.say("SET s text");
    for line in [
        "RES.DLQ FAIL s x ERROR e",
        "RES.DLQ PARK s x AGGREGATE a PAYLOAD p",
        "RES.DLQ TAKE s t 1s",
        "RES.DLQ TAKE s t 1s WAIT 1s",
        "RES.DLQ DONE s x 1",
        "RES.DLQ RENEW s t 1s",
        "RES.DLQ RETURN s x 1",
        "RES.DLQ GET s x",
        "RES.DLQ LIST s",
        "RES.DLQ INFO s",
        "RES.DLQ DIAGNOSE s g CATEGORY contract CAUSE c FIX f ACTOR x",
        "RES.DLQ REDRIVE s 1 ACTOR x",
        "RES.DLQ STOP s 1 ACTOR x",
        "RES.DLQ CLOSE s 1 ACTOR x",
        "RES.DLQ HOLD s x ON ACTOR x",
        "RES.DLQ PURGE s OLDER 90d ACTOR x",
        "RES.DLQ SEEN s 1 ACTOR x",
        "RES.DLQ CONFIG s CRASHES 3 ACTOR x",
    ] {
        let error = scene.ask(line);
        assert!(error.starts_with("-WRONGTYPE "), "{line}: {error}");
    }
    assert!(scene.main.refusal("GET d").starts_with("WRONGTYPE"));
    assert!(scene.main.refusal("RES.LOCK ACQUIRE d a 1s").starts_with("WRONGTYPE"));
    assert_eq!(scene.main.text("GET s"), "text");
}

#[test]
fn no_forged_change_gets_into_a_ledger() {
    let mut scene = ledger();
    dies(&mut scene, "d", "dead", "t", "e");
    let before = scene.main.digest("d");
    let dump: Vec<u8> = redis::from_redis_value(scene.main.say("DUMP d")).expect("bytes");
    let mut other = scene.server.connect();
    for at in 0..dump.len() {
        let mut forged = dump.clone();
        forged[at] ^= 1 << (at % 8);
        let reply = resil_harness::reply(&mut other, &[b"RESTORE".as_slice(), b"d", b"0", &forged, b"REPLACE"]);
        assert!(reply.is_err(), "byte {at} was changed, and it was taken");
    }
    assert_eq!(scene.main.digest("d"), before);
    send(&mut scene.main, "RES._APPLY d 1 junk");
    let reply = receive(&mut scene.main);
    assert!(reply.starts_with('-'), "{reply}");
    assert_eq!(scene.main.digest("d"), before);
}
