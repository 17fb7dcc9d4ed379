//! A server whose limits follow a clock that the test sets, and commands as one types them.
//!
//! The server's own expiry still follows the real clock, so driven time starts far in the future: no key goes by
//! itself while a test looks at it.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Options, Server, error_text, eventually, ok, reply};

/// The first of January 2100.
pub const START_US: i64 = 4_102_444_800_000_000;
pub const SECOND_US: i64 = 1_000_000;

/// Long beside anything a server does, short beside a hung test.
pub const SOON: Duration = Duration::from_secs(20);

/// Options of a server whose clock `set_clock` can set.
pub fn driven() -> Options {
    Options::default().module_args(["test-clock", "yes"])
}

/// A driven server at `START_US`, and a connection to it.
pub fn start_driven() -> (Server, Connection) {
    let server = Server::start(driven());
    let mut connection = server.connect();
    set_clock(&mut connection, START_US);
    (server, connection)
}

/// Stops the module's clock at `us`; 0 lets the real one run.
#[track_caller]
pub fn set_clock(connection: &mut Connection, us: i64) {
    ok(connection, &["RES._CLOCK", &us.to_string()]);
}

/// Sends a line of words that must succeed.
#[track_caller]
pub fn say(connection: &mut Connection, line: &str) -> Value {
    ok(connection, &line.split_whitespace().collect::<Vec<_>>())
}

/// Sends a line of words and gives all integers of the reply, nested ones in their order.
#[track_caller]
pub fn numbers(connection: &mut Connection, line: &str) -> Vec<i64> {
    let value = say(connection, line);
    let mut found = Vec::new();
    collect_integers(&value, &mut found);
    found
}

/// Sends a line of words that must be answered with an error, and gives the error.
#[track_caller]
pub fn refusal(connection: &mut Connection, line: &str) -> String {
    error_text(connection, &line.split_whitespace().collect::<Vec<_>>())
}

/// Sends a line of words and shows whatever came, errors too.
pub fn outcome(connection: &mut Connection, line: &str) -> String {
    match reply(connection, &line.split_whitespace().collect::<Vec<_>>()) {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{error}"),
    }
}

#[track_caller]
pub fn integer(connection: &mut Connection, line: &str) -> i64 {
    match say(connection, line) {
        Value::Int(number) => number,
        other => panic!("{line}: expected an integer, got {other:?}"),
    }
}

#[track_caller]
pub fn text(connection: &mut Connection, line: &str) -> String {
    let value = say(connection, line);
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{line}: expected text: {error}"))
}

/// DEBUG DIGEST-VALUE of one key; forty zeros if there is no such key.
#[track_caller]
pub fn digest(connection: &mut Connection, key: &str) -> String {
    let digests = ok(connection, &["DEBUG", "DIGEST-VALUE", key]);
    let digests: Vec<String> = redis::from_redis_value(digests).expect("digests are text");
    digests.into_iter().next().expect("one key, one digest")
}

/// One field of one section of INFO.
#[track_caller]
pub fn info(connection: &mut Connection, section: &str, field: &str) -> String {
    let report = text(connection, &format!("INFO {section}"));
    let value = report.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("INFO {section} has no {field}:\n{report}")).to_owned()
}

#[track_caller]
pub fn info_number(connection: &mut Connection, section: &str, field: &str) -> i64 {
    let value = info(connection, section, field);
    value.parse().unwrap_or_else(|_| panic!("INFO {section}: {field} is {value}, not a number"))
}

/// How often the server ran a command, by INFO commandstats.
#[track_caller]
pub fn calls_of(connection: &mut Connection, command: &str) -> i64 {
    // Commands of a module are shown as they were registered, the server's own in small letters.
    let report = text(connection, "INFO commandstats").to_lowercase();
    let prefix = format!("cmdstat_{}:calls=", command.to_lowercase());
    let line = report.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |rest| rest.split(',').next().and_then(|calls| calls.parse().ok()).expect("calls is a number"))
}

/// Waits until no append-only file is being rewritten or about to be.
#[track_caller]
pub fn wait_for_rewrite(connection: &mut Connection) {
    eventually("the append-only file is rewritten", SOON, || {
        info(connection, "persistence", "aof_rewrite_in_progress") == "0"
            && info(connection, "persistence", "aof_rewrite_scheduled") == "0"
    });
    assert_eq!(info(connection, "persistence", "aof_last_bgrewrite_status"), "ok");
}

fn collect_integers(value: &Value, found: &mut Vec<i64>) {
    match value {
        Value::Int(number) => found.push(*number),
        Value::Array(values) => values.iter().for_each(|value| collect_integers(value, found)),
        other => panic!("expected integers, got {other:?}"),
    }
}
