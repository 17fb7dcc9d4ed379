//! `RES.LIST RUN` and `RES.LIST LOAD`: what somebody does at the moment for all who ask.

use redis::Connection;
use resil_harness::{Options, Server};

use crate::driven::{info, say, set_clock, start_driven};
use crate::pages::rows;

/// The fields of the one row of a list, or none.
fn row(connection: &mut Connection, line: &str, fields: &[&str]) -> Option<Vec<String>> {
    let rows = rows(connection, line);
    assert!(rows.len() < 2, "{rows:?}");
    rows.first().map(|row| fields.iter().map(|field| row[*field].clone()).collect())
}

#[test]
fn a_run_is_listed_until_it_is_committed() {
    const START_US: i64 = 4_102_444_800_000_000;
    let (_server, mut connection) = start_driven();
    let seen = |connection: &mut Connection| {
        row(connection, "RES.LIST RUN", &["key", "state", "owner", "attempt", "running_ms", "lease_left_ms"])
    };
    let expect = |words: [&str; 6]| Some(words.map(str::to_owned).to_vec());
    say(&mut connection, "RES.IDEMP BEGIN k me 10s");
    say(&mut connection, "RES.IDEMP ONCE seen 1h");
    set_clock(&mut connection, START_US + 1_000_000);
    assert_eq!(seen(&mut connection), expect(["k", "running", "me", "1", "1000", "9000"]));
    say(&mut connection, "RES.IDEMP ABORT k me");
    assert_eq!(seen(&mut connection), None, "aborted");
    say(&mut connection, "RES.IDEMP BEGIN k you 10s ONLAPSE HOLD");
    assert_eq!(seen(&mut connection), expect(["k", "running", "you", "2", "0", "10000"]));
    // The runner is not heard of any more: somebody has to decide.
    set_clock(&mut connection, START_US + 60_000_000);
    assert_eq!(seen(&mut connection), expect(["k", "held", "you", "2", "0", "0"]), "also before anybody asks");
    say(&mut connection, "RES.IDEMP BEGIN k third 10s");
    assert_eq!(seen(&mut connection), expect(["k", "held", "you", "2", "0", "0"]));
    assert_eq!(rows(&mut connection, "RES.LIST RUN STATE running").len(), 0);
    say(&mut connection, "RES.IDEMP COMMIT k you 1h done");
    assert_eq!(seen(&mut connection), None, "committed");
    say(&mut connection, "RES.IDEMP BEGIN k you 10s");
    assert_eq!(seen(&mut connection), None, "a replay is no run");
}

#[test]
fn a_load_is_listed_while_somebody_leads_it() {
    let (server, mut connection) = start_driven();
    let seen = |connection: &mut Connection| {
        row(connection, "RES.LIST LOAD", &["key", "state", "owner", "lease_left_ms", "waiters"])
    };
    say(&mut connection, "RES.SFLIGHT SET other 1h VALUE v");
    say(&mut connection, "RES.SFLIGHT JOIN k me 10s");
    let mut waiter = server.connect();
    let waits = std::thread::spawn(move || say(&mut waiter, "RES.SFLIGHT JOIN k you 10s WAIT 1m"));
    resil_harness::eventually("it waits", std::time::Duration::from_secs(10), || {
        info(&mut connection, "resil", "resil_blocked_waiters") == "1"
    });
    let expect = ["k", "contended", "me", "10000", "1"].map(str::to_owned).to_vec();
    assert_eq!(seen(&mut connection), Some(expect));
    // The one who waited loads next.
    say(&mut connection, "RES.SFLIGHT ABANDON k me");
    waits.join().expect("it leads");
    let expect = ["k", "loading", "you", "10000", "0"].map(str::to_owned).to_vec();
    assert_eq!(seen(&mut connection), Some(expect));
    say(&mut connection, "RES.SFLIGHT PUBLISH k you 1h VALUE v");
    assert_eq!(seen(&mut connection), None);
}

/// A server may have millions of keys that are done: the list of those in flight has no copy of their names.
#[test]
fn a_key_that_is_done_takes_nothing_in_the_list() {
    const KEYS: i64 = 2_000;
    const NAME: i64 = 2_000;
    let server = Server::start(Options::default());
    let mut connection = server.connect();
    let name = |number: i64| format!("{number:0width$}", width = NAME as usize);
    let used =
        |connection: &mut Connection| -> i64 { info(connection, "memory", "used_memory").parse().expect("bytes") };
    // The key itself has the name, and the timer of its lease until that would have ended.
    for (names, lines) in [
        (1, &["RES.IDEMP ONCE KEY 1h"][..]),
        (2, &["RES.IDEMP BEGIN KEY me 1h", "RES.IDEMP COMMIT KEY me 1h done"]),
        (2, &["RES.SFLIGHT JOIN KEY me 1h", "RES.SFLIGHT PUBLISH KEY me 1h VALUE v"]),
        (1, &["RES.SFLIGHT SET KEY 1h VALUE v"]),
    ] {
        let before = used(&mut connection);
        for number in 0..KEYS {
            lines.iter().for_each(|line| drop(say(&mut connection, &line.replace("KEY", &name(number)))));
        }
        let each = (used(&mut connection) - before) / KEYS;
        assert!(each < NAME * names + NAME / 2, "{each} bytes for each key after {lines:?}");
        say(&mut connection, "FLUSHALL SYNC");
    }
}

/// The connection of a runner keeps a lease below a second, which is written down less often than it would have to be.
#[test]
fn a_run_with_a_short_bound_lease_stays_listed() {
    let server = Server::start(Options::default());
    let (mut connection, mut runner) = (server.connect(), server.connect());
    say(&mut runner, "RES.IDEMP BEGIN k me 200ms BOUND");
    let (mut began, end) = (std::time::Instant::now(), std::time::Instant::now() + std::time::Duration::from_secs(60));
    while began.elapsed() < std::time::Duration::from_millis(1_500) {
        assert!(std::time::Instant::now() < end, "the machine never kept up for long enough");
        let heard = std::time::Instant::now();
        say(&mut runner, "RES.HEARTBEAT");
        let listed = rows(&mut connection, "RES.LIST RUN").len();
        let still = say(&mut connection, "RES.IDEMP BEGIN k you 1s");
        if heard.elapsed() > std::time::Duration::from_millis(100) {
            // The machine stood still, and the lease may be over: begin anew.
            say(&mut connection, "FLUSHALL");
            say(&mut runner, "RES.IDEMP BEGIN k me 200ms BOUND");
            began = std::time::Instant::now();
            continue;
        }
        assert!(format!("{still:?}").contains("BUSY"), "{still:?}");
        assert_eq!(listed, 1, "after {:?}", began.elapsed());
    }
}
