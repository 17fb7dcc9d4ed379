//! What is promised, one sentence each.

use resil_core::Span;
use resil_core::circuit_breaker::Report;
use resil_core::guard::*;
use resil_core::waited::Decision;

use crate::key::*;

const PLACES: &str = r#"{"timeout":{"attempt":"1s"},"sharedBulkhead":{"maxConcurrentCalls":2,"maxQueue":1}}"#;
const RETRY: &str = r#"{"timeout":{"attempt":"1s","total":"60s"},
    "retry":{"maxAttempts":3,"initialBackoff":"100ms","jitter":"none","budget":{"ttl":"10s","minPerSecond":1,"percent":0}}}"#;

fn stop(reason: StopReason, attempts: u32) -> Exited {
    Exited::Stop { reason, attempts }
}

fn retry(ms: i64, attempt: u32) -> Exited {
    Exited::Retry { delay: Span::from_ms(ms), attempt }
}

#[test]
fn versions_count_from_one_and_a_deletion_takes_one() {
    let mut key = Key::new();
    let done = |version, action| PolicySet::Done { version, action };
    assert_eq!(key.set_if("{}", Some(1)), PolicySet::Version { current: 0 });
    assert_eq!(key.set_if("{}", Some(0)), done(1, SetAction::Created));
    assert_eq!(key.set_if("{ }", Some(9)), done(1, SetAction::Same));
    assert_eq!(key.set_if(PLACES, Some(0)), PolicySet::Version { current: 1 });
    assert_eq!(key.set_if(PLACES, Some(1)), done(2, SetAction::Changed));
    assert_eq!(key.delete(), PolicyDeleted::Done { version: 3 });
    assert_eq!(key.delete(), PolicyDeleted::NoPolicy);
    assert_eq!(layer(&key.enter("a")), "nopolicy");
    assert_eq!(key.set_if(PLACES, Some(0)), done(4, SetAction::Created));
    assert_eq!(key.guard.versions.iter().map(|version| version.version).collect::<Vec<_>>(), [4, 3, 2, 1]);
    for max in 1..=30 {
        key.set(&format!(r#"{{"bulkhead":{{"maxConcurrentCalls":{max}}}}}"#));
    }
    assert_eq!((key.guard.versions.len(), key.guard.version()), (HISTORY_MAX, 34));
}

#[test]
fn places_are_taken_and_freed_and_the_queue_waits() {
    let mut key = Key::with(PLACES);
    let (a, b) = (key.enter("a").unwrap(), key.enter("b").unwrap());
    assert_ne!(a.ticket, b.ticket);
    assert_eq!(key.enter("a").unwrap().ticket, a.ticket, "the same admission");
    assert_eq!(layer(&key.enter("c")), "bulkhead");
    assert_eq!(key.ask("c", request(), Some(5_000)), Decision::Queued);
    let waiter = key.id();
    let Decision::Refused(EnterRefusal::Layer(refused)) = key.ask("d", request(), Some(5_000)) else { panic!() };
    assert_eq!(refused.reason, RefusedFor::Queue);
    assert_eq!(key.exit(a.ticket, Report::Ok), Exited::Done);
    let (id, reported) = key.reported.pop().unwrap();
    assert_eq!((id, reported.unwrap().attempt), (waiter, 1));
    assert_eq!((key.view().active, key.view().queued), (2, 0));
}

#[test]
fn a_critical_waiter_is_served_before_the_others() {
    let mut key = Key::with(r#"{"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":9}}"#);
    let inside = key.enter("inside").unwrap();
    for priority in [Priority::Background, Priority::Critical, Priority::Normal] {
        let asked = EnterRequest { priority, ..request() };
        assert_eq!(key.ask(priority.text(), asked, Some(60_000)), Decision::Queued);
    }
    let mut ticket = inside.ticket;
    for id in [3, 4, 2] {
        key.exit(ticket, Report::Ok);
        let (reported, admitted) = key.reported.pop().unwrap();
        assert_eq!(reported, id);
        ticket = admitted.unwrap().ticket;
    }
}

#[test]
fn a_lost_ticket_frees_its_place_after_its_lease() {
    let mut key = Key::with(PLACES);
    let (a, _) = (key.enter("a").unwrap(), key.enter("b").unwrap());
    key.later(1_999);
    assert_eq!(layer(&key.enter("c")), "bulkhead");
    key.later(1);
    assert!(key.enter("c").is_ok());
    assert_eq!(key.exit(a.ticket, Report::Ok), stop(StopReason::Unknown, 0));
}

#[test]
fn exit_again_is_the_same_reply_and_counts_once() {
    let mut key = Key::with(r#"{"breaker":{"consecutiveFailures":2}}"#);
    let a = key.enter("a").unwrap();
    for _ in 0..5 {
        assert_eq!(key.exit(a.ticket, Report::Fail), stop(StopReason::Attempts, 1));
        key.later(10_000);
    }
    assert_eq!(key.view().breaker.unwrap().text(), "closed");
    key.later(20_000);
    assert_eq!(key.exit(a.ticket, Report::Fail), stop(StopReason::Unknown, 0), "forgotten after a minute");
}

#[test]
fn a_ticket_with_a_retry_is_good_for_one_enter() {
    let mut key = Key::with(RETRY);
    let first = key.enter("a").unwrap();
    assert_eq!(layer(&key.retry("a2", first.ticket)), "ticket", "it is inside");
    assert_eq!(key.exit(first.ticket, Report::Fail), retry(100, 2));
    assert_eq!(key.exit(first.ticket, Report::Ok), retry(100, 2), "it waits");
    let second = key.retry("a", first.ticket).unwrap();
    assert_eq!((second.attempt, second.ticket > first.ticket), (2, true));
    assert_eq!(key.retry("a", first.ticket).unwrap().ticket, second.ticket, "the reply was lost");
    assert_eq!(layer(&key.retry("b", first.ticket)), "ticket");
    assert_eq!(key.exit(first.ticket, Report::Fail), retry(100, 2), "what was said");
    assert_eq!(key.exit(second.ticket, Report::Fail), retry(200, 3));
    key.later(200 + 2_000);
    assert_eq!(layer(&key.retry("a", second.ticket)), "ticket", "overdue");
    assert_eq!(layer(&key.retry("a", 77)), "ticket");
}

#[test]
fn reasons_to_stop_come_in_their_order() {
    let json = r#"{"timeout":{"attempt":"1s","total":"5s"},"breaker":{"consecutiveFailures":1,"openFor":"1h"},
        "retry":{"maxAttempts":2,"initialBackoff":"100ms","jitter":"none","retryAfterMax":"1s","budget":{"minPerSecond":0,"percent":0}}}"#;
    let mut key = Key::with(json);
    let a = key.enter("a").unwrap();
    assert_eq!(key.exit_as(a.ticket, ExitRequest { is_final: true, ..failed() }), stop(StopReason::Final, 1));
    let json = json.replace(r#""consecutiveFailures":1"#, r#""consecutiveFailures":3"#);
    let mut key = Key::with(&json);
    let a = key.enter("a").unwrap();
    let after = Some(Span::from_ms(1_001));
    assert_eq!(key.exit_as(a.ticket, ExitRequest { after, ..failed() }), stop(StopReason::Deadline, 1));
    let b = key.enter("b").unwrap();
    assert_eq!(key.exit(b.ticket, Report::Fail), stop(StopReason::Budget, 1));
    let c = key.enter("c").unwrap();
    assert_eq!(key.exit(c.ticket, Report::Fail), stop(StopReason::Open, 1), "the third in a row");
    assert_eq!(layer(&key.enter("d")), "breaker");
}

#[test]
fn the_deadline_counts_from_the_first_enter() {
    let mut key = Key::with(&RETRY.replace("60s", "2s"));
    let first = key.enter("a").unwrap();
    assert_eq!(first.deadline, Some(Span::from_ms(2_000)));
    key.later(700);
    assert_eq!(key.exit(first.ticket, Report::Fail), retry(100, 2));
    key.later(100);
    let second = key.retry("a", first.ticket).unwrap();
    assert_eq!(second.deadline, Some(Span::from_ms(1_200)));
    key.later(1_000);
    assert_eq!(key.exit(second.ticket, Report::Fail), stop(StopReason::Deadline, 2));
}

#[test]
fn a_retry_that_begins_counts_for_the_whole_window() {
    let mut key = Key::with(RETRY);
    let first = key.enter("a").unwrap();
    key.exit(first.ticket, Report::Fail);
    key.later(100);
    let second = key.retry("a", first.ticket).unwrap();
    key.exit(second.ticket, Report::Ok);
    assert_eq!(key.view().budget_left, Some(9));
    key.later(9_900);
    assert_eq!(key.view().budget_left, Some(9), "within the ten seconds");
    key.later(1_100);
    assert_eq!(key.view().budget_left, Some(10));
}

#[test]
fn a_call_earns_retries_for_no_longer_than_the_window() {
    let mut key = Key::with(
        &RETRY.replace(r#""minPerSecond":1"#, r#""minPerSecond":0"#).replace(r#""percent":0"#, r#""percent":100"#),
    );
    let call = key.enter("a").unwrap();
    key.exit(call.ticket, Report::Ok);
    assert_eq!(key.view().budget_left, Some(1));
    key.later(10_000);
    assert_eq!(key.view().budget_left, Some(0));
}

#[test]
fn a_retry_that_lapses_gives_its_budget_back() {
    let mut key = Key::with(
        &RETRY.replace(r#""minPerSecond":1"#, r#""minPerSecond":0"#).replace(r#""percent":0"#, r#""percent":100"#),
    );
    let (a, b) = (key.enter("a").unwrap(), key.enter("b").unwrap());
    assert_eq!(key.view().budget_left, Some(2));
    key.exit(a.ticket, Report::Fail);
    key.exit(b.ticket, Report::Fail);
    assert_eq!(key.view().budget_left, Some(0));
    key.later(100 + 2_000);
    key.tick();
    assert_eq!(key.view().budget_left, Some(2));
}

#[test]
fn an_open_breaker_half_opens_only_if_all_others_agree() {
    let json = r#"{"breaker":{"consecutiveFailures":1,"openFor":"1s"},"rateLimit":{"limit":1,"period":"1h"}}"#;
    let mut key = Key::with(json);
    let a = key.enter("a").unwrap();
    key.exit(a.ticket, Report::Fail);
    key.later(2_000);
    assert_eq!(layer(&key.enter("b")), "limit");
    assert_eq!(key.view().breaker.unwrap().text(), "open");
    key.set(&json.replace(r#""limit":1"#, r#""limit":9"#));
    let b = key.enter("b").unwrap();
    assert_eq!(key.view().breaker.unwrap().text(), "half-open");
    assert!(key.take_back(b.ticket), "a probe that could not be delivered");
    assert!(key.enter("c").is_ok());
}

#[test]
fn a_change_keeps_what_was_counted() {
    let json = r#"{"breaker":{"consecutiveFailures":3},"rateLimit":{"limit":5,"period":"1h"},"bulkhead":{"maxConcurrentCalls":2}}"#;
    let mut key = Key::with(json);
    for owner in ["a", "b"] {
        let ticket = key.enter(owner).unwrap().ticket;
        key.exit(ticket, Report::Fail);
    }
    let inside = key.enter("c").unwrap();
    key.set(&json.replace(r#""maxConcurrentCalls":2"#, r#""maxConcurrentCalls":1"#));
    assert_eq!(layer(&key.enter("d")), "bulkhead");
    assert_eq!(key.exit(inside.ticket, Report::Fail), stop(StopReason::Attempts, 1));
    assert_eq!(key.view().breaker.unwrap().text(), "open", "the third failure in a row");
}

#[test]
fn shedding_refuses_the_lower_classes_first() {
    let mut key = Key::with(r#"{"bulkhead":{"maxConcurrentCalls":10},"shedding":{}}"#);
    for place in 0..9 {
        key.enter_as(&format!("c{place}"), EnterRequest { priority: Priority::Critical, ..request() }).unwrap();
    }
    for (priority, expected) in [(Priority::Background, "shed"), (Priority::Low, "shed"), (Priority::Normal, "shed")] {
        let refused = key.enter_as("x", EnterRequest { priority, ..request() });
        assert_eq!(layer(&refused), expected, "{}", priority.text());
    }
    assert!(key.enter_as("x", EnterRequest { priority: Priority::High, ..request() }).is_ok());
}

#[test]
fn chaos_strikes_a_subject_by_its_name_or_its_key() {
    for named in ["alice", "resil:limit:{pay}:alice"] {
        let chaos =
            format!(r#"{{"kind":"error","percent":100,"until":"2199-01-01T00:00:00Z","subjects":["{named}"]}}"#);
        let mut key = Key::with(&format!(r#"{{"chaos":{chaos}}}"#));
        assert_eq!(layer(&key.enter_for("1", "resil:limit:{pay}:alice")), "chaos", "{named}");
        for (number, other) in
            ["resil:limit:{pay}:bob", "resil:limit:{pay}:al", "resil:limit:{alice}:bob", "x"].iter().enumerate()
        {
            assert_eq!(layer(&key.enter_for(&format!("other {number}"), other)), "admitted", "{named}, {other}");
        }
        assert_eq!(layer(&key.enter("nobody")), "admitted", "{named}");
    }
}
