//! Real state of the machines that can be waited for.

use super::guard_calls::DOCUMENTS;
use super::resp::{Client, Reply};
use super::samples::set_clock;
use super::server_state::must;

/// Locks: held, shared, released by many, broken, run out. Bulkheads: full of permits, left. Idempotency: seen once,
/// running, aborted, tried again, done with a result, with a failure, with none, held after a lapse. Flights: led,
/// loaded, stale, stale and led, known to be empty, paused, softened, abandoned, invalidated. Ledgers: configured only, with
/// entries that wait, are taken, parked, dead, held and redriven. Policies: with versions only, with calls inside, waiting for
/// their retries, ended, behind an open breaker, of a full budget.
pub fn waited(client: &mut Client, now_us: i64) -> Vec<&'static str> {
    set_clock(client, now_us);
    let names = [locks(client), work(client), flights(client), ledgers(client), policies(client)].concat();
    set_clock(client, now_us + 2_000_000);
    for line in [
        "RES.DLQ TAKE ledger token 1h COUNT 3 META m",
        "RES.DLQ REDRIVE ledger 1 ACTOR me",
        "RES.DLQ TAKE ledger other 1h",
        "RES.LOCK INFO lock-expired",
        "RES.IDEMP GET idemp-held",
        "RES.IDEMP BEGIN idemp-again second 1h",
        "RES.SFLIGHT JOIN flight-led-stale second 1h",
        "RES.SFLIGHT JOIN flight-lapsed second 1h",
    ] {
        must(client, line);
    }
    names
}

fn ledgers(client: &mut Client) -> Vec<&'static str> {
    must(client, "RES.DLQ CONFIG ledger-configured CRASHES 5 ACTOR me");
    for n in 0..6 {
        must(
            client,
            &format!("RES.DLQ FAIL ledger m{n} ERROR e{n} PAYLOAD p TYPE order AGGREGATE a{} HEADERS h", n % 2),
        );
        must(client, &format!("RES.DLQ FAIL ledger f{n} ERROR no PAYLOAD p TYPE pay AGGREGATE b FINAL"));
    }
    must(client, "RES.DLQ PARK ledger parked AGGREGATE b PAYLOAD p");
    must(client, "RES.DLQ HOLD ledger f1 ON REASON law ACTOR me");
    must(client, "RES.DLQ DIAGNOSE ledger pay/no CATEGORY infrastructure CAUSE c FIX f AUTO 1h ACTOR me");
    vec!["ledger-configured", "ledger"]
}

fn policies(client: &mut Client) -> Vec<&'static str> {
    let names = ["policy-retry", "policy-places", "policy-limit", "policy-all", "policy-slow", "policy-empty"];
    for (name, document) in names.iter().zip(DOCUMENTS) {
        must(client, &format!("RES.POLICY SET {name} {document} ACTOR me REASON first"));
        for number in 0..6 {
            let Reply::Array(entered) = must(client, &format!("RES.GUARD ENTER {name} call-{number} CALLER c{number}"))
            else {
                panic!("an array")
            };
            if number % 2 == 0 && entered[0].text() == "ADMITTED" {
                let outcome = if number == 2 { "OK" } else { "FAIL" };
                must(client, &format!("RES.GUARD EXIT {name} {} {outcome}", entered[1].text()));
            }
        }
    }
    must(client, &format!("RES.POLICY SET policy-retry {} ACTOR you", DOCUMENTS[3]));
    names.to_vec()
}

fn locks(client: &mut Client) -> Vec<&'static str> {
    must(client, "RES.LOCK ACQUIRE lock-held owner 1h META something");
    must(client, "RES.LOCK ACQUIRE lock-expired owner 1s");
    must(client, "RES.LOCK ACQUIRE lock-broken owner 1h");
    must(client, "RES.LOCK BREAK lock-broken");
    for owner in 0..20 {
        must(client, &format!("RES.LOCK ACQUIRE lock-shared owner-{owner} {}s SHARED", 30 + owner));
        must(client, &format!("RES.BULKHEAD ENTER permits owner-{owner} 100 {}s", 30 + owner % 3));
    }
    for owner in 0..10 {
        must(client, &format!("RES.LOCK ACQUIRE lock-ended owner-{owner} 1h"));
        must(client, &format!("RES.LOCK RELEASE lock-ended owner-{owner}"));
        must(client, &format!("RES.BULKHEAD ENTER permits-left owner-{owner} 2 1h"));
        must(client, &format!("RES.BULKHEAD LEAVE permits-left owner-{owner}"));
    }
    must(client, "RES.BULKHEAD ENTER permits-left last 2 1d");
    vec!["lock-held", "lock-expired", "lock-broken", "lock-shared", "lock-ended", "permits", "permits-left"]
}

fn work(client: &mut Client) -> Vec<&'static str> {
    must(client, "RES.IDEMP ONCE idemp-once 1h");
    must(client, "RES.IDEMP ONCE idemp-once-by 1h TOKEN first");
    for name in ["running", "aborted", "done", "failed", "empty", "large"] {
        must(client, &format!("RES.IDEMP BEGIN idemp-{name} first 1h FINGERPRINT print KEEP 2d"));
    }
    for name in ["held", "again"] {
        let on_lapse = if name == "held" { "HOLD" } else { "RUN" };
        must(client, &format!("RES.IDEMP BEGIN idemp-{name} first 1s ONLAPSE {on_lapse}"));
    }
    must(client, "RES.IDEMP ABORT idemp-aborted first");
    must(client, "RES.IDEMP COMMIT idemp-done first 1d result");
    must(client, "RES.IDEMP COMMIT idemp-failed first 1d reason ERROR");
    must(client, &format!("RES.IDEMP COMMIT idemp-large first 1d {}", "x".repeat(5_000)));
    let names = ["once", "once-by", "running", "aborted", "done", "failed", "large", "held", "again"];
    names.map(|name| ["idemp-", name].concat().leak() as &str).to_vec()
}

fn flights(client: &mut Client) -> Vec<&'static str> {
    let loaded = ["fresh", "stale", "led-stale", "empty", "paused", "softened", "abandoned", "invalidated"];
    for name in loaded {
        must(client, &format!("RES.SFLIGHT JOIN flight-{name} first 1h"));
    }
    must(client, "RES.SFLIGHT JOIN flight-led first 1h");
    must(client, "RES.SFLIGHT JOIN flight-lapsed first 1s");
    must(client, "RES.SFLIGHT PUBLISH flight-fresh first 1d VALUE bytes STALE 1h");
    must(client, "RES.SFLIGHT PUBLISH flight-stale first 1s VALUE bytes STALE 1h");
    must(client, "RES.SFLIGHT PUBLISH flight-led-stale first 1s VALUE bytes STALE 1h");
    must(client, "RES.SFLIGHT PUBLISH flight-empty first 1d EMPTY");
    must(client, "RES.SFLIGHT PUBLISH flight-paused first 1h ERROR text");
    must(client, "RES.SFLIGHT PUBLISH flight-softened first 1d VALUE bytes");
    must(client, "RES.SFLIGHT INVALIDATE flight-softened SOFT");
    must(client, "RES.SFLIGHT ABANDON flight-abandoned first RETRY 1h");
    must(client, "RES.SFLIGHT INVALIDATE flight-invalidated");
    let names = loaded.into_iter().chain(["led", "lapsed"]);
    names.map(|name| ["flight-", name].concat().leak() as &str).collect()
}
