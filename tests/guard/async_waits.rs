//! Waiting for a place without blocking: the verdict comes later, and a place that reached nobody goes on.

use resil_harness::eventually;

use crate::async_client::AsyncClient;
use crate::driven::{SOON, Say, start_driven};
use crate::scene::Caller;
use crate::{ask, ticket};

const ONE_PLACE: &str =
    r#"RES.POLICY SET p {"timeout":{"attempt":"60s"},"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":9}}"#;

#[test]
fn a_waits_verdict_comes_later_in_queue_order() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    let mut client = AsyncClient::new(&server);
    let inside = ticket(&client.ask("RES.GUARD ENTER p a WAIT 1m ASYNC"));
    assert_eq!(client.waits("RES.GUARD ENTER p b WAIT 1m"), 1);
    let mut blocked = Caller::new(&server);
    blocked.send("RES.GUARD ENTER p c WAIT 1m");
    eventually("it waits", SOON, || connection.info_number("resil", "blocked_waiters") == 1);
    assert_eq!(client.ask("RES.GUARD ENTER p d WAIT 1m ASYNC PRIORITY critical"), "[QUEUED 1]");
    assert_eq!(client.ask(&format!("RES.GUARD EXIT p {inside} OK")), "[DONE]");
    let late = client.late();
    assert_eq!((late.kind.as_str(), late.key.as_str(), late.owner.as_str()), ("guard", "p", "d"));
    client.ask(&format!("RES.GUARD EXIT p {} OK", ticket(&late.reply)));
    let late = client.late();
    assert_eq!(late.short(), "b ADMITTED");
    client.ask(&format!("RES.GUARD EXIT p {} OK", ticket(&late.reply)));
    ticket(&blocked.reply());
    client.is_silent();
    blocked.is_in_step();
}

#[test]
fn an_ended_wait_or_policy_is_reported_later() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    let mut client = AsyncClient::new(&server);
    ticket(&client.ask("RES.GUARD ENTER p a"));
    client.waits("RES.GUARD ENTER p b WAIT 5s");
    client.waits("RES.GUARD ENTER p c WAIT 1m");
    connection.clock_at_ms(5_000);
    assert_eq!(client.late().reply, "[REFUSED bulkhead 56000 timeout 1 nil]");
    ask(&mut connection, "RES.POLICY DELETE p");
    assert_eq!(client.notified(), "c -NOPOLICY");
    client.is_silent();
    assert_eq!(connection.info_number("resil", "async_waiters"), 0);
}

#[test]
fn those_who_wait_leave_with_their_connection() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    let inside = ticket(&ask(&mut connection, "RES.GUARD ENTER p a"));
    let mut gone = AsyncClient::new(&server);
    gone.waits("RES.GUARD ENTER p b WAIT 1m");
    gone.waits("RES.GUARD ENTER p c WAIT 1m");
    let mut next = AsyncClient::new(&server);
    next.waits("RES.GUARD ENTER p d WAIT 1m");
    drop(gone);
    eventually("they have left", SOON, || connection.info_number("resil", "async_waiters") == 1);
    assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {inside} OK")), "[DONE]");
    assert_eq!(next.notified(), "d ADMITTED");
}

/// Its connection ends in the step that gives it its place: it was never inside, and nothing is counted for it.
#[test]
fn a_permit_that_reached_nobody_is_handed_on() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, &ONE_PLACE.replace("{\"timeout", "{\"breaker\":{},\"timeout"));
    for is_async in [true, false] {
        let inside = ticket(&ask(&mut connection, "RES.GUARD ENTER p a"));
        let (mut untold, mut blocked, mut next) =
            (AsyncClient::new(&server), Caller::new(&server), AsyncClient::new(&server));
        let id = if is_async {
            untold.waits("RES.GUARD ENTER p b WAIT 1m");
            untold.id
        } else {
            blocked.send("RES.GUARD ENTER p b WAIT 1m");
            eventually("it waits", SOON, || connection.info_number("resil", "blocked_waiters") == 1);
            blocked.id
        };
        next.waits("RES.GUARD ENTER p c WAIT 1m");
        // In one transaction, so that the end comes before anything can be written.
        for line in ["MULTI", &format!("RES.GUARD EXIT p {inside} OK"), &format!("CLIENT KILL ID {id}")] {
            ask(&mut connection, line);
        }
        assert_eq!(ask(&mut connection, "EXEC"), "[[DONE] 1]");
        let late = next.late();
        assert_eq!(late.short(), "c ADMITTED", "async: {is_async}");
        let state = ask(&mut connection, "RES.GUARD STATE p");
        assert!(state.contains("active 1 queued 0"), "{state}");
        ask(&mut connection, &format!("RES.GUARD EXIT p {} OK", ticket(&late.reply)));
        let state = ask(&mut connection, "RES.GUARD STATE p");
        assert!(state.contains("active 0 queued 0"), "{state}");
    }
}
