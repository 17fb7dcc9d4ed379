//! Every reply of RES.DLQ, by both protocols.

use redis::Value;

use crate::driven::Say;
use crate::letters::{ledger, play};
use crate::scene::{Scene, receive, send};

const TAKING: &[(&str, &str)] = &[
    ("RES.DLQ FAIL d m1 ERROR boom PAYLOAD p TYPE order", "[RETRY 1 500]"),
    ("RES.DLQ FAIL d m1 ERROR boom PAYLOAD p", "[KNOWN waiting 1]"),
    ("RES.DLQ FAIL d m1 ERROR again", "[KNOWN waiting 1]"),
    (
        "RES.DLQ FAIL d m1 ERROR boom PAYLOAD q",
        "-CONFLICT other bytes are known under this id; do not acknowledge the message",
    ),
    ("RES.DLQ TAKE d t 10s", "[NONE 500]"),
    ("@499", ""),
    ("RES.DLQ TAKE d t 10s", "[NONE 1]"),
    ("@500", ""),
    (
        "RES.DLQ TAKE d t 10s",
        "[TAKEN 0 10000 [[m1 F+500000 1 0 p [type order class transient group order/boom error boom]]]]",
    ),
    ("@1000", ""),
    // The same token: the same entries and fences, whatever the count, and never a shorter lease.
    (
        "RES.DLQ TAKE d t 1s COUNT 7",
        "[TAKEN 0 9500 [[m1 F+500000 1 0 p [type order class transient group order/boom error boom]]]]",
    ),
    ("RES.DLQ TAKE d other 1s", "[NONE -1]"),
    ("RES.DLQ RENEW d t 20s", "[GRANTED 1 20000]"),
    ("RES.DLQ RENEW d nobody 20s", "[LOST absent]"),
    ("RES.DLQ GET d m1 STATE", "taken"),
    ("RES.DLQ FAIL d m1 ERROR boom PAYLOAD p", "[KNOWN taken 1]"),
    ("RES.DLQ FAIL d m1 ERROR boom FENCE F+500000", "[RETRY 2 1000]"),
    ("RES.DLQ FAIL d m1 ERROR boom FENCE F+500000", "[RETRY 2 1000]"),
    ("RES.DLQ DONE d m1 F+500000", "[LOST released]"),
    ("RES.DLQ RETURN d m1 F+500000", "[LOST released]"),
    ("RES.DLQ DONE d m1 17", "[LOST taken]"),
    ("RES.DLQ DONE d m2 17", "[LOST absent]"),
    ("@2000", ""),
    (
        "RES.DLQ TAKE d t 10s META host:1",
        "[TAKEN 0 10000 [[m1 F+2000000 2 0 p [type order class transient group order/boom error boom]]]]",
    ),
    ("RES.DLQ RETURN d DELAY 300ms m1 F+2000000", "[RETURNED]"),
    ("RES.DLQ RETURN d m1 F+2000000", "[RETURNED]"),
    ("RES.DLQ FAIL d m1 ERROR boom FENCE F+2000000", "[LOST released]"),
    ("RES.DLQ TAKE d t 10s", "[NONE 300]"),
    ("@2300", ""),
    (
        "RES.DLQ TAKE d t 10s",
        "[TAKEN 0 10000 [[m1 F+2300000 2 0 p [type order class transient group order/boom error boom]]]]",
    ),
    ("RES.DLQ DONE d m1 F+2300000", "[DONE]"),
    ("RES.DLQ DONE d m1 F+2300000", "[DONE]"),
    ("RES.DLQ DONE d m1 F+2300000 nope 3", "[[DONE] [LOST absent]]"),
    ("RES.DLQ GET d m1 STATE", "done"),
    ("RES.DLQ GET d m1", "nil"),
    ("RES.DLQ FAIL d m1 ERROR boom PAYLOAD p", "[KNOWN done 0]"),
    (
        "RES.DLQ FAIL d m1 ERROR boom PAYLOAD q",
        "-CONFLICT other bytes are known under this id; do not acknowledge the message",
    ),
    ("RES.DLQ FAIL d m1 ERROR boom FENCE F+2300000", "[LOST done]"),
    ("RES.DLQ FAIL d a ERROR no PAYLOAD a TYPE pay CLASS business AFTER 10m PRIOR 2", "[RETRY 3 600000]"),
    ("RES.DLQ FAIL d b ERROR no NOCOUNT", "[RETRY 0 500]"),
    ("RES.DLQ FAIL d c ERROR no PRIOR 5", "[DEAD 1 unknown/no retries]"),
    ("RES.DLQ FAIL d e ERROR no REF s3://x CLASS external GROUP g AGGREGATE acc:2 FINAL", "[DEAD 1 g final]"),
    ("RES.DLQ FAIL d e ERROR no REF s3://x", "[KNOWN dead 1]"),
    ("RES.DLQ PARK d p1 AGGREGATE acc:2 PAYLOAD x", "[PARKED 1]"),
    ("RES.DLQ PARK d p2 AGGREGATE acc:2 PAYLOAD y", "[PARKED 2]"),
    ("RES.DLQ PARK d p2 AGGREGATE acc:2 PAYLOAD y", "[KNOWN parked 0]"),
    (
        "RES.DLQ PARK d p2 AGGREGATE acc:2 PAYLOAD z",
        "-CONFLICT other bytes are known under this id; do not acknowledge the message",
    ),
    ("RES.DLQ PARK d p3 AGGREGATE acc:9 PAYLOAD z", "[FREE]"),
    ("RES.DLQ GET d p3 STATE", "nil"),
];

const GOVERNING: &[(&str, &str)] = &[
    ("RES.DLQ FAIL d f1 ERROR no PAYLOAD a TYPE pay FINAL", "[DEAD 1 pay/no final]"),
    ("RES.DLQ FAIL d f2 ERROR bad PAYLOAD b TYPE pay FINAL", "[DEAD 1 pay/bad final]"),
    ("@1000", ""),
    ("RES.DLQ DIAGNOSE d pay/no CATEGORY infrastructure CAUSE c FIX f ACTOR ann", "1"),
    ("RES.DLQ DIAGNOSE d pay/bad CATEGORY poison CAUSE c FIX f ACTOR ann", "2"),
    ("RES.DLQ DIAGNOSE d pay/bad CATEGORY business CAUSE c FIX f DECISION d ACTOR ann", "3"),
    (
        "RES.DLQ DIAGNOSE d nope CATEGORY contract CAUSE c FIX f ACTOR ann",
        "-ERR no group is named 'nope'; INFO GROUPS lists them",
    ),
    ("RES.DLQ DIAGNOSE d pay/no CATEGORY business CAUSE c FIX f ACTOR ann", "-ERR CATEGORY business needs a DECISION"),
    ("RES.DLQ REDRIVE d 1 DRYRUN ACTOR ann", "[DRYRUN 1 1 [f1]]"),
    ("RES.DLQ REDRIVE d 2 ACTOR ann", "[REFUSED poison]"),
    ("RES.DLQ REDRIVE d 9 ACTOR ann", "[REFUSED case]"),
    ("RES.DLQ REDRIVE d 1 RATE 1001 1m ACTOR ann", "[REFUSED rate]"),
    ("RES.DLQ REDRIVE d 1 TYPE other ACTOR ann", "[REFUSED nothing]"),
    ("RES.DLQ STOP d 1 ACTOR ann", "-ERR case 1 was never redriven"),
    ("RES.DLQ HOLD d f1 ON REASON law ACTOR ann", "1"),
    ("RES.DLQ REDRIVE d 1 ID f1 ACTOR ann", "[REFUSED held]"),
    ("RES.DLQ HOLD d f1 OFF ACTOR ann", "1"),
    ("RES.DLQ HOLD d nope ON ACTOR ann", "0"),
    ("RES.DLQ REDRIVE d 1 ACTOR ann CORRELATION abc", "[STARTED 1 1 [f1]]"),
    ("RES.DLQ REDRIVE d 1 ACTOR ann", "[REFUSED running]"),
    ("RES.DLQ GET d f1 STATE", "dead"),
    (
        "RES.DLQ TAKE d a 10s",
        "[TAKEN 0 10000 [[f1 F+1000000 0 0 a [type pay class transient group pay/no error no deaths 1 case 1]]]]",
    ),
    (
        "RES.DLQ STOP d 1 ACTOR ann",
        "[phase stopped started_at M+1000 rate 100 period_ms 60000 first 10 oneshot 0 auto 0 given 1 resolved 0 died 0 \
         active 1]",
    ),
    ("RES.DLQ CLOSE d 1 ACTOR ann", "[OPEN 1]"),
    ("RES.DLQ DONE d f1 F+1000000", "[DONE]"),
    ("RES.DLQ GET d f1 STATE", "resolved"),
    ("RES.DLQ CLOSE d 1 ACTOR ann", "[CLOSED]"),
    ("RES.DLQ REDRIVE d 1 ACTOR ann", "[REFUSED closed]"),
    ("RES.DLQ CLOSE d 2 ACTOR ann", "[OPEN 1]"),
    ("RES.DLQ CLOSE d 2 DISCARD ACTOR ann", "[CLOSED]"),
    ("RES.DLQ GET d f2 STATE", "archived"),
    ("RES.DLQ CLOSE d 9 ACTOR ann", "-ERR there is no case 9; INFO CASES lists them"),
    ("RES.DLQ SEEN d 1 ACTOR ann", "0"),
    ("RES.DLQ CONFIG d PAUSED yes FOR 1h ACTOR ann", "OK"),
    ("RES.DLQ TAKE d z 1s", "[NONE -1]"),
    ("RES.DLQ CONFIG d PAUSED no ACTOR ann", "OK"),
];

const ABSENT: &[(&str, &str)] = &[
    ("RES.DLQ GET none x", "nil"),
    ("RES.DLQ GET none x STATE", "nil"),
    ("RES.DLQ LIST none", "[0 []]"),
    ("RES.DLQ INFO none GROUPS", "[0 []]"),
    ("RES.DLQ INFO none CASE 1", "nil"),
    ("RES.DLQ TAKE none t 1s", "[NONE -1]"),
    ("RES.DLQ DONE none x 1", "[LOST absent]"),
    ("RES.DLQ RETURN none x 1", "[LOST absent]"),
    ("RES.DLQ RENEW none t 1s", "[LOST absent]"),
    ("RES.DLQ FAIL none x ERROR e FENCE 7", "[LOST absent]"),
    ("RES.DLQ PARK none x AGGREGATE a PAYLOAD p", "[FREE]"),
    ("RES.DLQ SEEN none 1 ACTOR ann", "0"),
    ("RES.DLQ HOLD none x ON ACTOR ann", "0"),
    ("RES.DLQ REDRIVE none 1 ACTOR ann", "[REFUSED case]"),
    ("EXISTS none", "0"),
];

#[test]
fn every_reply_is_the_same_by_both_protocols() {
    for table in [TAKING, GOVERNING, ABSENT] {
        let mut scene = ledger();
        play(&mut scene, table);
        let mut resp3 = ledger();
        resp3.main = resp3.server.connect_resp3();
        let maps = |line: &str| line.starts_with("RES.DLQ STOP d 1 ");
        let table: Vec<_> =
            table.iter().copied().filter(|(line, wanted)| !maps(line) || wanted.starts_with('-')).collect();
        play(&mut resp3, &table);
    }
}

fn shown(scene: &mut Scene, line: &str) -> String {
    let mut resp3 = scene.server.connect_resp3();
    send(&mut resp3, line);
    receive(&mut resp3)
}

#[test]
fn what_is_shown_is_maps() {
    let mut scene = ledger();
    scene.ask(
        "RES.DLQ FAIL d e ERROR boom-1 PAYLOAD bytes TYPE pay SOURCE q AGGREGATE acc SCHEMA 3 HEADERS h CLASS business",
    );
    scene.main.clock_at_ms(700);
    let taken = scene.ask("RES.DLQ TAKE d t 10s");
    let fence = crate::letters::given(&taken)[0].1;
    assert_eq!(
        scene.ask(&format!("RES.DLQ FAIL d e ERROR boom-22 FENCE {fence} FINAL")),
        "[DEAD 1 pay/boom-<n> final]"
    );
    let start = crate::driven::START_MS;
    let row = format!(
        "id: e, state: dead, attempt: 2, lapses: 0, deaths: 1, reason: final, type: pay, source: q, aggregate: acc, \
         schema: 3, headers: h, ref: nil, class: business, group: pay/boom-<n>, first_error: boom-1, last_error: boom-22, \
         first_at: {start}, last_at: {at}, died_at: {at}, due_at: nil, held: 0, \
         attempts: [[{start} business 500] [{at} business 0]], cases: [], cut: []",
        at = start + 700
    );
    assert_eq!(shown(&mut scene, "RES.DLQ GET d e"), format!("{{{row}, payload: bytes}}"));
    assert_eq!(shown(&mut scene, "RES.DLQ LIST d STATE dead"), format!("[0 [{{{row}}}]]"));
    let info = shown(&mut scene, "RES.DLQ INFO d");
    let counts = "{waiting: 0, taken: 0, parked: 0, dead: 1, resolved: 0, archived: 0, held: 0, entries: 1, bytes: ";
    assert!(info.starts_with(counts), "{info}");
    assert!(info.ends_with(", groups: 1, cases_open: 0, alerts_unseen: 0, paused_until: -1, exists: 1}"), "{info}");
    assert_eq!(
        shown(&mut scene, "RES.DLQ INFO d GROUPS"),
        format!(
            "[0 [{{group: pay/boom-<n>, type: pay, dead: 1, entries: 1, deaths: 1, first_at: {start}, last_at: {}, \
             sample: boom-22, cases: []}}]]",
            start + 700
        )
    );
    scene.main.clock_at_ms(800);
    scene.ask("RES.DLQ DIAGNOSE d pay/boom-<n> CATEGORY contract CAUSE c FIX f ACTOR ann CORRELATION x1");
    let case = format!(
        "{{case: 1, category: contract, cause: c, fix: f, decision: nil, groups: [pay/boom-<n>], user: default, actor: ann, \
         opened_at: {}, closed_at: nil, discarded: 0, auto_until: nil, redrive: nil}}",
        start + 800
    );
    assert_eq!(shown(&mut scene, "RES.DLQ INFO d CASE 1"), case);
    assert_eq!(shown(&mut scene, "RES.DLQ INFO d CASES"), format!("[0 [{case}]]"));
    let audit = shown(&mut scene, "RES.DLQ INFO d AUDIT CURSOR 2");
    assert_eq!(
        audit,
        format!(
            "[0 [{{id: 2, at: {}, user: default, actor: ann, correlation: x1, \
             action: diagnose case 1: contract, 1 groups, cause: c}}]]",
            start + 800
        )
    );
    assert_eq!(
        shown(&mut scene, "RES.DLQ INFO d CONFIG"),
        "{transient_retries: 5, transient_base: 500ms, transient_cap: 30s, business_retries: 3, business_base: 500ms, \
         business_cap: 30s, external_retries: 5, external_base: 500ms, external_cap: 5m, jitter: none, crashes: 3, \
         ratemax: 1000 1m, aftermax: 1h, paused_until: -1}"
    );
}

#[test]
fn nil_and_numbers_are_the_protocols_own() {
    let mut scene = ledger();
    scene.ask("RES.DLQ FAIL d r ERROR e REF s3://x SCHEMA 2");
    scene.main.clock_at_ms(500);
    for mut connection in [scene.server.connect(), scene.server.connect_resp3()] {
        let Value::Array(taken) = connection.say("RES.DLQ TAKE d t 10s") else { panic!("a list") };
        assert!(matches!(taken[..3], [_, Value::Int(0), Value::Int(10_000)]), "{taken:?}");
        let Value::Array(entries) = &taken[3] else { panic!("entries: {taken:?}") };
        let Value::Array(entry) = &entries[0] else { panic!("an entry: {taken:?}") };
        let is_typed = matches!(entry[..5], [_, Value::Int(_), Value::Int(1), Value::Int(0), Value::Nil]);
        assert!(is_typed, "an entry by reference has no payload: {entry:?}");
    }
}

#[test]
fn help_names_every_subcommand() {
    let mut scene = Scene::driven();
    let help = scene.ask("RES.DLQ HELP");
    for word in [
        "FAIL", "TAKE", "DONE", "RENEW", "RETURN", "PARK", "GET", "LIST", "INFO", "DIAGNOSE", "REDRIVE", "STOP",
        "CLOSE", "HOLD", "PURGE", "SEEN", "CONFIG",
    ] {
        assert!(help.contains(&format!("RES.DLQ {word} key")), "{word}");
        let documented = scene.ask(&format!("COMMAND DOCS RES.DLQ|{word}"));
        assert!(documented.contains("summary") && documented.contains("complexity"), "{word}: {documented}");
        let keys = scene.ask(&format!("COMMAND GETKEYS RES.DLQ {word} ledger x y z"));
        assert_eq!(keys, "[ledger]", "{word}");
    }
}
