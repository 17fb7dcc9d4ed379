//! All layers or none, on a real server: a random schedule of calls, with and without subjects, in driven time.
//!
//! A refusal leaves the digest of the policy and of every subject as it was. A second EXIT has the same reply, and changes nothing. When all
//! leases are over, every place is free. On the whole an admission takes one cell of its subject, and a refusal none.

use crate::driven::{Say, start_driven};
use crate::{ask, ticket};

const POLICY: &str = r#"{"timeout":{"attempt":"1s"},"breaker":{"consecutiveFailures":3,"openFor":"700ms","probes":1,"successes":1},"rateLimit":{"limit":6,"period":"2s"},"sharedBulkhead":{"maxConcurrentCalls":3},"retry":{"maxAttempts":3,"initialBackoff":"50ms","budget":{"ttl":"2s","minPerSecond":1,"percent":50}},"shedding":{"background":60,"low":60},"chaos":{"kind":"error","percent":10,"until":"2150-01-01T00:00:00Z"}}"#;
const KEYS: [&str; 4] = ["p", "s0", "s1", "s2"];
const PRIORITIES: [&str; 5] = ["background", "low", "normal", "high", "critical"];
const REPORTS: [&str; 4] = ["OK", "FAIL", "IGNORE", "CANCEL"];

#[test]
fn a_refusal_leaves_every_digest_unchanged() {
    let mut dice = crate::seed::seeded("refusals");
    let (_server, mut connection) = start_driven();
    assert_eq!(ask(&mut connection, &format!("RES.POLICY SET p {POLICY}")), "[1 created]");
    let (mut now_ms, mut tickets, mut refused, mut admitted) = (0, Vec::<String>::new(), 0, 0);
    for step in 0..4_000 {
        connection.clock_at_ms(now_ms);
        // What time alone does is done before.
        ask(&mut connection, "RES.GUARD EXIT p 7 OK");
        let digests = KEYS.map(|key| connection.digest(key));
        match dice.usize(0..10) {
            0..=4 => {
                let priority = PRIORITIES[dice.usize(..5)];
                let mut line = format!("RES.GUARD ENTER p o{step} PRIORITY {priority}");
                if dice.bool() {
                    line += &format!(" SUBJECT s{} COST {}", dice.usize(..3), dice.usize(1..3));
                }
                if !tickets.is_empty() && dice.usize(..3) == 0 {
                    line += &format!(" TICKET {}", tickets[dice.usize(..tickets.len())]);
                }
                let entered = ask(&mut connection, &line);
                if entered.starts_with("[ADMITTED") {
                    admitted += 1;
                    tickets.push(ticket(&entered));
                    assert_ne!(connection.digest("p"), digests[0], "{step}: {line}: nothing was taken");
                } else {
                    refused += 1;
                    assert!(entered.starts_with("[REFUSED") || entered.starts_with("-TICKET"), "{line}: {entered}");
                    assert_eq!(KEYS.map(|key| connection.digest(key)), digests, "{step}: {line}: {entered}");
                }
            }
            5..=7 if !tickets.is_empty() => {
                let at = dice.usize(..tickets.len());
                let line = format!("RES.GUARD EXIT p {} {}", tickets[at], REPORTS[dice.usize(..4)]);
                let (said, after) = (ask(&mut connection, &line), connection.digest("p"));
                assert_eq!(ask(&mut connection, &line), said, "{step}: {line}");
                assert_eq!(connection.digest("p"), after, "{step}: {line} counted twice");
                if tickets.len() > 12 {
                    tickets.remove(0);
                }
            }
            _ => now_ms += [3, 40, 300, 1_100][dice.usize(..4)],
        }
    }
    assert!(refused > 200 && admitted > 200, "{refused} refused, {admitted} admitted");
    connection.clock_at_ms(now_ms + 600_000);
    let state = ask(&mut connection, "RES.GUARD STATE p");
    assert!(state.contains("active 0"), "a lost ticket frees its place: {state}");
}

/// Places are full, so every other layer would have agreed.
#[test]
fn a_refusal_takes_no_cell_and_an_admission_one() {
    let (_server, mut connection) = start_driven();
    for kind in ["bucket", "window"] {
        let key = format!("p-{kind}");
        let limit = format!(r#""rateLimit":{{"kind":"{kind}","limit":3,"period":"1h"}}"#);
        ask(
            &mut connection,
            &format!(r#"RES.POLICY SET {key} {{{limit},"sharedBulkhead":{{"maxConcurrentCalls":1}}}}"#),
        );
        let enter = |owner: &str| format!("RES.GUARD ENTER {key} {owner} SUBJECT s-{kind}");
        let inside = ticket(&ask(&mut connection, &enter("a")));
        for _ in 0..5 {
            let full = ask(&mut connection, &enter("b"));
            assert!(full.starts_with("[REFUSED bulkhead"), "{full}");
        }
        ask(&mut connection, &format!("RES.GUARD EXIT {key} {inside} OK"));
        for owner in ["c", "d"] {
            let inside = ticket(&ask(&mut connection, &enter(owner)));
            ask(&mut connection, &format!("RES.GUARD EXIT {key} {inside} OK"));
        }
        let over = ask(&mut connection, &enter("e"));
        assert!(over.starts_with("[REFUSED limit"), "{kind}: {over}");
    }
}
