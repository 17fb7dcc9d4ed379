//! A server whose clock the test sets, and commands as one types them.
//!
//! The server's own expiry still follows the real clock, so driven time starts far in the future: no key goes by
//! itself while a test looks at it.

use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Options, Server, error_text, ok, reply};

/// The first of January 2100.
pub const START_US: i64 = 4_102_444_800_000_000;
pub const START_MS: i64 = START_US / 1_000;

/// Long beside anything a server does, short beside a hung test.
pub const SOON: Duration = Duration::from_secs(20);

/// Options of a server whose clock `clock_at_ms` can set.
pub fn driven() -> Options {
    Options::default().module_args(["test-clock", "yes"])
}

/// A driven server at `START_US`, and a connection to it.
pub fn start_driven() -> (Server, Connection) {
    start_with(driven())
}

/// The same with further options.
pub fn start_with(options: Options) -> (Server, Connection) {
    let server = Server::start(options);
    let mut connection = server.connect();
    connection.clock_at_ms(0);
    (server, connection)
}

/// What a test says to a server.
pub trait Say {
    /// Sends a line of words that must succeed.
    fn say(&mut self, line: &str) -> Value;
    /// Sends a line of words that must be answered with an error, and gives the error.
    fn refusal(&mut self, line: &str) -> String;
    /// Sends a line of words and shows whatever came, errors too.
    fn outcome(&mut self, line: &str) -> String;
    fn integer(&mut self, line: &str) -> i64;
    fn text(&mut self, line: &str) -> String;
    /// Stops the module's clock so many microseconds after `START_US`.
    fn clock_at_us(&mut self, after_start_us: i64);
    fn clock_at_ms(&mut self, after_start_ms: i64);
    /// DEBUG DIGEST-VALUE of one key; forty zeros if there is no such key.
    fn digest(&mut self, key: &str) -> String;
    /// One field of one section of INFO.
    fn info(&mut self, section: &str, field: &str) -> String;
    /// The same of a number; those of the section `resil` without their prefix.
    fn info_number(&mut self, section: &str, field: &str) -> i64;
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

impl Say for Connection {
    #[track_caller]
    fn say(&mut self, line: &str) -> Value {
        ok(self, &words(line))
    }

    #[track_caller]
    fn refusal(&mut self, line: &str) -> String {
        error_text(self, &words(line))
    }

    fn outcome(&mut self, line: &str) -> String {
        match reply(self, &words(line)) {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("{error}"),
        }
    }

    #[track_caller]
    fn integer(&mut self, line: &str) -> i64 {
        match self.say(line) {
            Value::Int(number) => number,
            other => panic!("{line}: expected an integer, got {other:?}"),
        }
    }

    #[track_caller]
    fn text(&mut self, line: &str) -> String {
        let value = self.say(line);
        redis::from_redis_value(value).unwrap_or_else(|error| panic!("{line}: expected text: {error}"))
    }

    #[track_caller]
    fn clock_at_us(&mut self, after_start_us: i64) {
        ok(self, &["RES._CLOCK", &(START_US + after_start_us).to_string()]);
    }

    #[track_caller]
    fn clock_at_ms(&mut self, after_start_ms: i64) {
        self.clock_at_us(after_start_ms * 1_000);
    }

    #[track_caller]
    fn digest(&mut self, key: &str) -> String {
        let digests: Vec<String> =
            redis::from_redis_value(ok(self, &["DEBUG", "DIGEST-VALUE", key])).expect("digests are text");
        digests.into_iter().next().expect("one key, one digest")
    }

    #[track_caller]
    fn info(&mut self, section: &str, field: &str) -> String {
        let report = self.text(&format!("INFO {section}"));
        let value = report.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("INFO {section} has no {field}:\n{report}")).to_owned()
    }

    #[track_caller]
    fn info_number(&mut self, section: &str, field: &str) -> i64 {
        let field = if section == "resil" { format!("resil_{field}") } else { field.to_owned() };
        let value = self.info(section, &field);
        value.parse().unwrap_or_else(|_| panic!("INFO {section}: {field} is {value}, not a number"))
    }
}
