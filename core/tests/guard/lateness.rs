//! Time that is over, clocks that are set back, admissions that reach nobody.

use resil_core::Span;
use resil_core::circuit_breaker::Report;
use resil_core::guard::*;
use resil_core::waited::Decision;

use crate::key::*;

const HOUR_MS: i64 = 3_600_000;

/// Asks once a second until the call is admitted.
fn seconds_until_admitted(key: &mut Key) -> i64 {
    for second in 0..60 {
        if key.enter(&format!("after {second}")).is_ok() {
            return second;
        }
        key.later(1_000);
    }
    panic!("never")
}

/// Takes what the limit of two has.
fn use_up(key: &mut Key) {
    for owner in ["one", "two"] {
        key.enter(owner).unwrap();
    }
    assert_eq!(layer(&key.enter("three")), "limit");
}

#[test]
fn a_limit_heals_from_a_clock_that_was_set_back() {
    for kind in ["bucket", "window"] {
        let mut key = Key::with(&format!(r#"{{"rateLimit":{{"kind":"{kind}","limit":2,"period":"1s"}}}}"#));
        use_up(&mut key);
        key.later(-HOUR_MS);
        assert!(seconds_until_admitted(&mut key) <= 2, "{kind}");
    }
}

#[test]
fn a_breaker_heals_from_a_clock_that_was_set_back() {
    let mut key = Key::with(r#"{"breaker":{"consecutiveFailures":1,"openFor":"1s"}}"#);
    let admitted = key.enter("a").unwrap();
    key.exit(admitted.ticket, Report::Fail);
    assert_eq!(layer(&key.enter("b")), "breaker");
    key.later(-HOUR_MS);
    assert!(seconds_until_admitted(&mut key) <= 1);
}

#[test]
fn a_budget_heals_from_a_clock_set_back() {
    let budget = r#"{"ttl":"1s","minPerSecond":1,"percent":0}"#;
    let mut key = Key::with(&format!(r#"{{"retry":{{"jitter":"none","initialBackoff":"1ms","budget":{budget}}}}}"#));
    let fails = |key: &mut Key| {
        let admitted = key.enter(&format!("call {}", key.id())).unwrap();
        let said = key.exit(admitted.ticket, Report::Fail);
        if let Exited::Retry { .. } = said {
            let again = key.retry("again", admitted.ticket).unwrap();
            key.exit(again.ticket, Report::Ok);
        }
        matches!(said, Exited::Retry { .. })
    };
    assert!(fails(&mut key));
    key.later(-HOUR_MS);
    assert!(!fails(&mut key), "it was used just now");
    key.later(2_000);
    assert!(fails(&mut key));
}

#[test]
fn a_restored_policy_heals_from_a_clock_that_was_ahead() {
    let mut key = Key::with(r#"{"rateLimit":{"limit":2,"period":"1s"}}"#);
    use_up(&mut key);
    let mut other = Key::new();
    other.restore(&key.digest());
    other.later(-HOUR_MS);
    assert!(seconds_until_admitted(&mut other) <= 2);
}

#[test]
fn a_refusal_changes_nothing_while_the_clock_runs_on() {
    let mut key = Key::with(r#"{"rateLimit":{"limit":2,"period":"1h"},"breaker":{"consecutiveFailures":1}}"#);
    use_up(&mut key);
    let before = key.digest();
    for _ in 0..10 {
        key.later(700);
        assert_eq!(layer(&key.enter("late")), "limit");
        assert_eq!(key.digest(), before);
    }
}

#[test]
fn an_overdue_retry_is_refused() {
    for policy in [
        r#"{"timeout":{"total":"2500ms"},"retry":{"jitter":"none","initialBackoff":"50ms"}}"#,
        r#"{"timeout":{"attempt":"60s"},"retry":{"jitter":"none","initialBackoff":"50ms","maxElapsed":"2500ms"}}"#,
    ] {
        let mut key = Key::with(policy);
        let first = key.enter("a").unwrap();
        assert!(matches!(key.exit(first.ticket, Report::Fail), Exited::Retry { .. }));
        let before = key.digest();
        key.later(2_501);
        assert_eq!(layer(&key.retry("a", first.ticket)), "ticket", "{policy}");
        assert_eq!(key.digest(), before, "it takes no place and no cell: {policy}");
    }
}

#[test]
fn a_ticket_ends_on_its_second_among_very_many() {
    let mut key = Key::with(r#"{"timeout":{"attempt":"1s"},"breaker":{"consecutiveFailures":1}}"#);
    let tickets: Vec<u64> = (0..1_000).map(|number| key.enter(&format!("call {number}")).unwrap().ticket).collect();
    key.later(2_000);
    let unknown = Exited::Stop { reason: StopReason::Unknown, attempts: 0 };
    assert_eq!(key.exit(tickets[999], Report::Fail), unknown, "its second is over, if not yet tidied up");
    assert!(key.is_to_be_stepped_now(), "the others are ended a few at a time");
    assert_eq!(layer(&key.enter("next")), "admitted", "what nobody counts does not open the circuit");
}

#[test]
fn an_attempt_takes_no_longer_than_its_call_has_left() {
    let mut key =
        Key::with(r#"{"timeout":{"attempt":"2s","total":"3s"},"retry":{"jitter":"none","initialBackoff":"1s"}}"#);
    let first = key.enter("a").unwrap();
    assert_eq!((first.timeout, first.deadline), (Some(Span::from_secs(2)), Some(Span::from_secs(3))));
    key.later(1_000);
    key.exit(first.ticket, Report::Fail);
    key.later(1_000);
    let second = key.retry("a", first.ticket).unwrap();
    assert_eq!((second.timeout, second.deadline), (Some(Span::from_secs(1)), Some(Span::from_secs(1))));
    let alone = Key::with(r#"{"timeout":{"total":"3s"}}"#).enter("a").unwrap();
    assert_eq!(alone.timeout, Some(Span::from_secs(3)));
}

#[test]
fn a_retry_that_reached_nobody_can_be_asked_for_again() {
    let mut key = Key::with(r#"{"retry":{"maxAttempts":3,"jitter":"none","initialBackoff":"50ms"}}"#);
    let first = key.enter("a").unwrap();
    let said = key.exit(first.ticket, Report::Fail);
    let second = key.retry("a", first.ticket).unwrap();
    assert!(key.take_back(second.ticket));
    assert_eq!((key.view().active, key.view().retrying), (0, 1));
    assert_eq!(key.exit(first.ticket, Report::Fail), said, "what was said stands");
    let again = key.retry("a", first.ticket).unwrap();
    assert_eq!(again.attempt, 2);
    assert_eq!(layer(&key.retry("b", first.ticket)), "ticket", "it is good for one ENTER");
    assert!(matches!(key.exit(again.ticket, Report::Fail), Exited::Retry { attempt: 3, .. }));
}

#[test]
fn an_unknown_ticket_is_refused_though_its_owner_is_inside() {
    let mut key = Key::with("{}");
    key.enter("a").unwrap();
    assert_eq!(layer(&key.retry("a", 0)), "ticket");
    assert_eq!(layer(&key.retry("a", 17)), "ticket");
}

#[test]
fn nobody_waits_longer_than_the_policy_lets_them() {
    let mut key = Key::with(r#"{"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":9,"maxWait":"100ms"}}"#);
    key.enter("inside").unwrap();
    assert_eq!(key.ask("long", request(), Some(1_500)), Decision::Queued);
    assert_eq!(key.ask("short", request(), Some(50)), Decision::Queued);
    key.later(50);
    key.tick();
    assert_eq!(key.reported.pop().unwrap().0, key.id());
    key.later(50);
    key.tick();
    assert_eq!(layer(&key.reported.pop().unwrap().1), "bulkhead");
}

#[test]
fn those_who_wait_and_are_refused_are_counted() {
    let mut key = Key::with(r#"{"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":9}}"#);
    key.enter("inside").unwrap();
    for owner in ["a", "b", "c"] {
        assert_eq!(key.ask(owner, request(), Some(100)), Decision::Queued);
    }
    key.later(100);
    key.tick();
    assert_eq!(key.view().refused[Layer::Bulkhead as usize], 3);
}

#[test]
fn a_document_too_long_to_store_is_refused() {
    let partitions: Vec<String> = (0..2_330).map(|n| format!(r#""{n:x}":{{"max_concurrent":1}}"#)).collect();
    let document = format!(r#"{{"bulkhead":{{"partitions":{{{}}}}}}}"#, partitions.join(","));
    assert!(document.len() < DOCUMENT_MAX);
    let wrong = read_policy(&document).expect_err("it is longer in its canonical form").to_string();
    assert!(wrong.starts_with("document must be at most 64 KB as it is stored, got "), "{wrong}");
}

#[test]
fn what_a_deleted_policy_leaves_is_freed_in_parts() {
    let mut key = Key::with(r#"{"timeout":{"attempt":"60s"}}"#);
    for number in 0..5_000 {
        key.enter(&format!("call {number}")).unwrap();
    }
    let full = key.heap_bytes();
    key.delete();
    let mut ticks = 0;
    while key.is_to_be_stepped_now() {
        key.tick();
        ticks += 1;
    }
    assert_eq!(ticks, 3);
    assert!(key.heap_bytes() < full / 20, "{} of {full}", key.heap_bytes());
    key.set("{}");
    assert_eq!(key.view().active, 0);
}
