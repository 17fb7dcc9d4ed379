//! Writes the files of a version for the target `upgrade`: one key of every kind and shape, at an instant far ahead, so that
//! no server ever finds one of them expired.

use std::fs;
use std::path::Path;

use resil_harness::{Options, Server, ok};
use resil_tests::old_files::{Seen, shown};

/// The year 2090.
const CLOCK_US: i64 = 3_787_000_000_000_000;

/// What is done, and how it is looked at. `$permit` is the third element of the reply before; `+ms` moves the clock on.
const KEYS: &[(&[&str], &str)] = &[
    (&["RES.GCRA gcra 10 1m COST 3"], "RES.GCRA.PEEK gcra 10 1m"),
    (&["RES.GCRA burst 7 1s BURST 1000 COST 999"], "RES.GCRA.PEEK burst 7 1s BURST 1000"),
    (&["RES.GCRA tiers 10 1m AND 100 1h AND 1000 1d COST 4"], "RES.GCRA.PEEK tiers 10 1m AND 100 1h AND 1000 1d"),
    (&["RES.GCRA reserved 1 1m", "RES.GCRA reserved 1 1m RESERVE 10m"], "RES.GCRA.PEEK reserved 1 1m"),
    (&["RES.MGCRA 2 {m}1 10 1m 10 {m}2 20 1h 30"], "RES.GCRA.PEEK {m}2 20 1h BURST 30"),
    (&["CL.THROTTLE throttled 15 30 60 2"], "RES.GCRA.PEEK throttled 30 1m BURST 16"),
    (&["RES.WINDOW window 5 1h", "RES.WINDOW window 5 1h COST 2"], "RES.WINDOW.PEEK window 5 1h"),
    (&["RES.BREAKER ADMIT counted", "RES.BREAKER REPORT counted $permit FAIL"], "RES.BREAKER STATE counted"),
    (
        &[
            "RES.BREAKER ADMIT timed WINDOW TIME 1m SLOW 100ms SLOWRATE 50",
            "RES.BREAKER TALLY timed 0 c 1 OK 4 FAIL 1 SLOW 2",
        ],
        "RES.BREAKER STATE timed",
    ),
    (&["RES.BREAKER TALLY open 0 c 1 OK 0 FAIL 5 RUN 5"], "RES.BREAKER STATE open"),
    (
        &[
            "RES.BREAKER CONFIG probing CONSECUTIVE 2 OPEN 1s FACTOR 2 MAX 1m PROBES 2 SUCCESSES 2 LEASE 1h RAMP 10s",
            "RES.BREAKER TALLY probing 0 c 1 OK 0 FAIL 2 RUN 2",
            "+2000",
            "RES.BREAKER ADMIT probing CALLER me",
        ],
        "RES.BREAKER STATE probing",
    ),
    (&["RES.BREAKER FORCE forced OPEN FOR 1d ACTOR ann REASON why"], "RES.BREAKER STATE forced"),
    (&["RES.BREAKER CONFIG configured VERSION 3 RATE 20 MINCALLS 50 QUORUM 2"], "RES.BREAKER STATE configured"),
    (&["RES.LOCK ACQUIRE held a 10d META deploy"], "RES.LOCK INFO held"),
    (
        &[
            "RES.LOCK ACQUIRE shared a 1d SHARED",
            "RES.LOCK ACQUIRE shared b 2d SHARED META b",
            "RES.LOCK ACQUIRE shared c 3d SHARED",
        ],
        "RES.LOCK INFO shared",
    ),
    (&["RES.LOCK ACQUIRE released a 1d", "RES.LOCK RELEASE released a"], "RES.LOCK INFO released"),
    (&["RES.LOCK ACQUIRE broken a 1d", "RES.LOCK BREAK broken ACTOR ann"], "RES.LOCK INFO broken"),
    (
        &["RES.LOCK ACQUIRE again a 1d", "RES.LOCK RELEASE again a", "RES.LOCK ACQUIRE again b 1d"],
        "RES.LOCK CHECK again b",
    ),
    (&["RES.BULKHEAD ENTER bulkhead a 3 1d", "RES.BULKHEAD ENTER bulkhead b 3 2d"], "RES.BULKHEAD INFO bulkhead"),
    (&["RES.BULKHEAD ENTER left a 3 1d", "RES.BULKHEAD LEAVE left a"], "RES.BULKHEAD INFO left"),
    (&["RES.IDEMP BEGIN running t 1d FINGERPRINT f KEEP 2d ONLAPSE HOLD"], "RES.IDEMP INFO running"),
    (
        &["RES.IDEMP BEGIN done t 1m FINGERPRINT f", "RES.IDEMP COMMIT done t 10d result"],
        "RES.IDEMP GET done FINGERPRINT f",
    ),
    (&["RES.IDEMP BEGIN failed t 1m", "RES.IDEMP COMMIT failed t 10d why ERROR"], "RES.IDEMP GET failed"),
    (&["RES.IDEMP BEGIN aborted t 1m FINGERPRINT f", "RES.IDEMP ABORT aborted t"], "RES.IDEMP GET aborted"),
    (&["RES.IDEMP ONCE once 10d TOKEN t"], "RES.IDEMP INFO once"),
    (&["RES.SFLIGHT JOIN leading t 1d"], "RES.SFLIGHT INFO leading"),
    (&["RES.SFLIGHT JOIN value t 1m", "RES.SFLIGHT PUBLISH value t 10d VALUE bytes STALE 1d"], "RES.SFLIGHT GET value"),
    (&["RES.SFLIGHT JOIN empty t 1m", "RES.SFLIGHT PUBLISH empty t 10d EMPTY"], "RES.SFLIGHT GET empty"),
    (&["RES.SFLIGHT JOIN error t 1m", "RES.SFLIGHT PUBLISH error t 1d ERROR down"], "RES.SFLIGHT GET error"),
    (
        &[
            "RES.SFLIGHT JOIN soft t 1m",
            "RES.SFLIGHT PUBLISH soft t 1d VALUE v STALE 2d",
            "RES.SFLIGHT INVALIDATE soft SOFT",
        ],
        "RES.SFLIGHT INFO soft",
    ),
    (
        &[
            "RES.DLQ CONFIG ledger CLASS business RETRIES 2 BASE 1s CAP 10s JITTER none ACTOR ann",
            "RES.DLQ FAIL ledger taken ERROR late PAYLOAD p2 TYPE order AFTER 1ms",
            "RES.DLQ FAIL ledger retried ERROR late PAYLOAD p1 TYPE order AGGREGATE a1 SOURCE s SCHEMA 3 HEADERS h",
            "RES.DLQ FAIL ledger dead ERROR no-such-7 PAYLOAD p3 TYPE order AGGREGATE a2 FINAL",
            "RES.DLQ FAIL ledger elsewhere ERROR late REF s3://p4 CLASS business PRIOR 1",
            "RES.DLQ PARK ledger parked AGGREGATE a2 PAYLOAD p5",
            "RES.DLQ HOLD ledger dead ON REASON audit ACTOR ann",
            "RES.DLQ FAIL ledger poison ERROR broken PAYLOAD p6 TYPE other FINAL",
            "RES.DLQ DIAGNOSE ledger other/broken CATEGORY poison CAUSE c FIX none ACTOR ann",
            "RES.DLQ CLOSE ledger 1 DISCARD ACTOR ann",
            "RES.DLQ FAIL ledger again ERROR down PAYLOAD p7 TYPE late FINAL",
            "RES.DLQ DIAGNOSE ledger late/down CATEGORY infrastructure CAUSE c FIX f ACTOR ann",
            "+500",
            "RES.DLQ TAKE ledger token 1d META worker",
        ],
        "RES.DLQ LIST ledger",
    ),
    (&[], "RES.DLQ GET ledger retried"),
    (&[], "RES.DLQ GET ledger dead"),
    (&[], "RES.DLQ GET ledger elsewhere"),
    (&[], "RES.DLQ GET ledger parked"),
    (&[], "RES.DLQ GET ledger poison"),
    (&[], "RES.DLQ INFO ledger GROUPS"),
    (&[], "RES.DLQ INFO ledger CASES"),
    (&[], "RES.DLQ INFO ledger AUDIT"),
    (&[], "RES.DLQ INFO ledger CONFIG"),
    (
        &[
            r#"RES.POLICY SET policy {"breaker":{}} ACTOR ann REASON first"#,
            r#"RES.POLICY SET policy {"timeout":{"attempt":"5m"},"retry":{"maxAttempts":3},"breaker":{},"rateLimit":{"limit":10,"period":"1m"},"sharedBulkhead":{"maxConcurrentCalls":5}} IF 1"#,
            "RES.GUARD ENTER policy me",
            "RES.GUARD ENTER policy you COST 2",
            "RES.BREAKER TALLY policy 0 c 1 OK 4 FAIL 1",
        ],
        "RES.GUARD STATE policy",
    ),
    (&[], "RES.POLICY GET policy"),
    (&[], "RES.POLICY GET policy VERSION 1"),
    (&[], "RES.POLICY HISTORY policy"),
    (
        &[r#"RES.POLICY SET deleted {"breaker":{}}"#, "RES.POLICY DELETE deleted ACTOR ann"],
        "RES.POLICY HISTORY deleted",
    ),
];

fn main() {
    let folder = std::env::args().nth(1).expect("the folder to write to");
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).expect("the folder can be made");
    let options = Options::default()
        .module_args(["test-clock", "yes", "max-lease", "2592000000"])
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", "no");
    let server = Server::start(options);
    let mut connection = server.connect_resp3();
    let mut clock_us = CLOCK_US;
    let mut set = |connection: &mut redis::Connection, by_ms: i64| {
        clock_us += by_ms * 1_000;
        ok(connection, &["RES._CLOCK", &clock_us.to_string()]);
        clock_us
    };
    set(&mut connection, 0);
    for (commands, _) in KEYS {
        let mut permit = String::new();
        for command in *commands {
            if let Some(ms) = command.strip_prefix('+') {
                set(&mut connection, ms.parse().expect("milliseconds"));
                continue;
            }
            let command = command.replace("$permit", &permit);
            let reply = shown(ok(&mut connection, &command.split(' ').collect::<Vec<_>>()));
            permit = reply.get(2).and_then(|permit| permit.as_str()).unwrap_or_default().to_owned();
        }
    }
    let clock_us = set(&mut connection, 0);
    let replies = KEYS
        .iter()
        .map(|(_, look)| ((*look).to_owned(), shown(ok(&mut connection, &look.split(' ').collect::<Vec<_>>()))));
    let replies = replies.collect();
    let keys = match ok(&mut connection, &["DBSIZE"]) {
        redis::Value::Int(keys) => keys,
        other => panic!("DBSIZE is a number, not {other:?}"),
    };
    ok(&mut connection, &["SAVE"]);
    let seen = Seen { clock_us, keys, replies };
    fs::write(folder.join("seen.json"), serde_json::to_vec_pretty(&seen).expect("it can be written"))
        .expect("seen.json");
    fs::copy(server.dir().join("dump.rdb"), folder.join("snapshot.bin")).expect("the snapshot is there");
    let changes = fs::read_dir(server.dir().join("appendonlydir")).expect("the folder of changes is there");
    let changes =
        changes.map(|entry| entry.expect("an entry").path()).find(|path| path.to_string_lossy().contains("incr"));
    fs::copy(changes.expect("a file of changes"), folder.join("changes.bin")).expect("the changes are there");
    println!("{keys} keys in {}", folder.display());
}
