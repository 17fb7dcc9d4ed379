//! Waiting for a place: blocked, asynchronously, in transactions; and grants that reach nobody.

use resil_harness::{Options, Server, eventually};

use crate::async_client::AsyncClient;
use crate::driven::{SOON, Say, start_driven};
use crate::scene::Caller;
use crate::{ask, ticket};

const ONE_PLACE: &str =
    r#"RES.POLICY SET p {"timeout":{"attempt":"1s"},"sharedBulkhead":{"maxConcurrentCalls":1,"maxQueue":5}}"#;

#[test]
fn an_exit_lets_the_next_in_by_priority() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    let inside = ticket(&ask(&mut connection, "RES.GUARD ENTER p a"));
    let mut callers = Vec::new();
    for (at, class) in ["background", "critical", "normal"].into_iter().enumerate() {
        let mut caller = Caller::new(&server);
        caller.send(&format!("RES.GUARD ENTER p {class} WAIT 10m PRIORITY {class}"));
        eventually("it waits", SOON, || connection.info_number("resil", "blocked_waiters") == at as i64 + 1);
        callers.push(caller);
    }
    assert!(ask(&mut connection, "RES.GUARD STATE p").contains("queued 3"));
    let mut free = inside;
    for at in [1, 2, 0] {
        assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {free} OK")), "[DONE]");
        free = ticket(&callers[at].reply());
    }
    assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {free} OK")), "[DONE]");
}

#[test]
fn a_lost_permit_goes_to_the_waiter_in_time() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    ask(&mut connection, "RES.GUARD ENTER p a");
    let mut caller = Caller::new(&server);
    caller.send("RES.GUARD ENTER p b WAIT 10m");
    eventually("it waits", SOON, || connection.info_number("resil", "blocked_waiters") == 1);
    connection.clock_at_ms(2_000);
    ticket(&caller.reply());
}

#[test]
fn an_ended_wait_is_refused_and_deletion_an_error() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, &ONE_PLACE.replace("1s", "60s"));
    ask(&mut connection, "RES.GUARD ENTER p a");
    let (mut short, mut long) = (Caller::new(&server), Caller::new(&server));
    short.send("RES.GUARD ENTER p b WAIT 5s");
    long.send("RES.GUARD ENTER p c WAIT 10m");
    eventually("they wait", SOON, || connection.info_number("resil", "blocked_waiters") == 2);
    connection.clock_at_ms(5_000);
    assert_eq!(short.reply(), "[REFUSED bulkhead 56000 timeout 1 nil]");
    assert_eq!(ask(&mut connection, "RES.POLICY DELETE p"), "[2 deleted]");
    let error = long.reply();
    assert!(error.starts_with("-NOPOLICY "), "{error}");
}

#[test]
fn a_permit_for_a_lost_caller_goes_on() {
    let (server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    let inside = ticket(&ask(&mut connection, "RES.GUARD ENTER p a"));
    let (mut gone, mut next) = (Caller::new(&server), Caller::new(&server));
    gone.send("RES.GUARD ENTER p b WAIT 10m");
    eventually("one waits", SOON, || connection.info_number("resil", "blocked_waiters") == 1);
    next.send("RES.GUARD ENTER p c WAIT 10m");
    eventually("two wait", SOON, || connection.info_number("resil", "blocked_waiters") == 2);
    drop(gone);
    eventually("one has left", SOON, || connection.info_number("resil", "blocked_waiters") == 1);
    assert_eq!(ask(&mut connection, &format!("RES.GUARD EXIT p {inside} OK")), "[DONE]");
    ticket(&next.reply());
}

/// More than are served in one step.
#[test]
fn everybody_who_waits_learns_that_the_key_is_gone() {
    const MANY: usize = 5_000;
    for way in ["DEL p", "UNLINK p", "RENAME p other", "MOVE p 3", "FLUSHALL", "PEXPIRE p 1", "SET p text"] {
        let server = Server::start(Options::default());
        let mut connection = server.connect();
        ask(&mut connection, &ONE_PLACE.replace("1s", "60s").replace("\"maxQueue\":5", "\"maxQueue\":10000"));
        ask(&mut connection, "RES.GUARD ENTER p a");
        let mut client = AsyncClient::new(&server);
        for number in 0..MANY {
            client.send(&format!("RES.GUARD ENTER p waiter-{number} WAIT 10m ASYNC"));
        }
        for _ in 0..MANY {
            assert!(client.reply().starts_with("[QUEUED "));
        }
        ask(&mut connection, way);
        for _ in 0..MANY {
            let reported = client.late().reply;
            assert!(reported.starts_with("-NOPOLICY ") || reported.starts_with("-TRYAGAIN "), "{way}: {reported}");
        }
        client.is_silent();
    }
}

/// Two servers whose clocks differ by an hour.
#[test]
fn a_subjects_limit_heals_from_clocks_set_back() {
    let (_server, mut connection) = start_driven();
    ask(&mut connection, r#"RES.POLICY SET p {"rateLimit":{"limit":2,"period":"1s"}}"#);
    connection.clock_at_ms(3_600_000);
    for owner in ["one", "two"] {
        ticket(&ask(&mut connection, &format!("RES.GUARD ENTER p {owner} SUBJECT s")));
    }
    connection.clock_at_ms(0);
    assert!(ask(&mut connection, "RES.GUARD ENTER p a SUBJECT s").starts_with("[REFUSED limit "));
    connection.clock_at_ms(2_000);
    ticket(&ask(&mut connection, "RES.GUARD ENTER p a SUBJECT s"));
}

#[test]
fn inside_a_transaction_waiting_means_trying_once() {
    let (_server, mut connection) = start_driven();
    ask(&mut connection, ONE_PLACE);
    ask(&mut connection, "RES.GUARD ENTER p a");
    ask(&mut connection, "MULTI");
    ask(&mut connection, "RES.GUARD ENTER p b WAIT 10m");
    assert_eq!(ask(&mut connection, "EXEC"), "[[REFUSED bulkhead 2000 full 1 nil]]");
}
