//! Loading the module, its arguments and directives, and what INFO says of it.

use redis::{Connection, Value};
use resil_harness::{Options, Server, error_text, module_path, reply};

use crate::driven::{info_number, integer, numbers, outcome, refusal, say, start_driven, text};

fn plain() -> Options {
    Options::default().without_module()
}

fn load(server: &Server, args: &[&str]) -> Result<Value, redis::RedisError> {
    let path = module_path();
    let path = path.to_str().expect("a path in text");
    reply(&mut server.connect(), &[&["MODULE", "LOAD", path], args].concat())
}

fn knows(connection: &mut Connection, command: &str) -> bool {
    say(connection, &format!("COMMAND INFO {command}")) != Value::Array(vec![Value::Nil])
}

#[test]
fn the_module_loads_into_a_running_server() {
    let server = Server::start(plain());
    load(&server, &[]).unwrap();
    let mut connection = server.connect();
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s")[..3], [1, 10, 9]);
    assert_eq!(numbers(&mut connection, "CL.THROTTLE c 9 10 60")[..3], [0, 10, 9]);
    assert!(text(&mut connection, "INFO modules").contains("name=resil,"));
}

#[test]
fn bad_arguments_refuse_to_load_and_the_log_says_which() {
    let server = Server::start(plain());
    for (args, said) in [
        (&["cell-compat", "maybe"][..], "cell-compat must be yes or no"),
        (&["cell-compat"], "cell-compat"),
        (&["window-limit-max", "0"], "window-limit-max"),
        (&["window-limit-max", "10000001"], "window-limit-max"),
        (&["window-limit-max", "many"], "window-limit-max"),
        (&["test-clock", "maybe"], "test-clock must be yes, no or an instant in microseconds, got 'maybe'"),
        (&["test-clock", "-1"], "test-clock must be yes, no or an instant"),
        (&["bogus", "1"], "bogus"),
        (&["cell-compat", "no", "window-limit-max", "7", "test-clock", "yes", "surplus"], "surplus"),
    ] {
        let logged_before = server.log().len();
        assert!(load(&server, args).is_err(), "{args:?} was accepted");
        let logged = server.log()[logged_before..].to_owned();
        assert!(logged.lines().any(|line| line.contains("resil") && line.contains(said)), "{args:?}: {logged}");
        assert!(!knows(&mut server.connect(), "RES.GCRA"), "{args:?} left a command behind");
    }
    load(&server, &[]).expect("a failed attempt does not stand in the way of a good one");
    let mut connection = server.connect();
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s")[0], 1);
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 100000 60s")[0], 1, "nor leave its wishes behind");
    assert!(knows(&mut connection, "CL.THROTTLE") && !knows(&mut connection, "RES._CLOCK"));
}

#[test]
fn a_server_with_bad_module_arguments_does_not_start() {
    let outcome = std::panic::catch_unwind(|| Server::start(Options::default().module_args(["window-limit-max", "x"])));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("window-limit-max") && message.contains("ended with"), "{message}");
}

#[test]
fn the_name_of_redis_cell_is_taken_only_if_wanted() {
    let with = Server::fresh();
    assert!(knows(&mut with.connect(), "CL.THROTTLE"));
    assert_eq!(outcome(&mut with.connect(), "CONFIG GET resil.cell-compat").matches("yes").count(), 1);
    for options in
        [Options::default().module_args(["cell-compat", "no"]), Options::default().config("resil.cell-compat", "no")]
    {
        let without = Server::start(options);
        let mut connection = without.connect();
        assert!(!knows(&mut connection, "CL.THROTTLE"));
        assert!(refusal(&mut connection, "CL.THROTTLE k 9 10 60").contains("unknown command"));
        assert!(refusal(&mut connection, "CONFIG SET resil.cell-compat yes").contains("immutable"));
        assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s")[0], 1);
    }
}

#[test]
fn the_clock_can_be_set_only_on_request() {
    let server = Server::fresh();
    assert!(!knows(&mut server.connect(), "RES._CLOCK"));
    assert!(refusal(&mut server.connect(), "RES._CLOCK 1").contains("unknown command"));
    let (driven, mut connection) = start_driven();
    assert!(driven.log().contains("test-clock is on"), "somebody should notice");
    assert!(refusal(&mut connection, "RES._CLOCK -1").starts_with("ERR "));
    assert!(refusal(&mut connection, "RES._CLOCK 99999999999999999").starts_with("ERR "));
}

#[test]
fn loading_twice_is_refused_and_the_first_stays() {
    let server = Server::fresh();
    numbers(&mut server.connect(), "RES.GCRA g 10 60s");
    assert!(load(&server, &[]).is_err());
    // The same file under another name is another library to the system, but not to the server.
    let copy = server.dir().join("copy.so");
    std::fs::copy(module_path(), &copy).unwrap();
    assert!(reply(&mut server.connect(), &["MODULE", "LOAD", copy.to_str().unwrap()]).is_err());
    assert_eq!(numbers(&mut server.connect(), "RES.GCRA g 10 60s")[2], 8);
}

#[test]
fn the_module_cannot_be_unloaded_while_in_use() {
    let server = Server::fresh();
    let mut connection = server.connect();
    numbers(&mut connection, "RES.GCRA g 10 60s");
    let error = error_text(&mut connection, &["MODULE", "UNLOAD", "resil"]);
    assert!(error.contains("data types"), "{error}");
    assert_eq!(numbers(&mut connection, "RES.GCRA g 10 60s")[2], 8);
}

#[test]
fn the_largest_window_can_be_configured_within_bounds() {
    let mut server = Server::fresh();
    let mut connection = server.connect();
    let most = |connection: &mut Connection| {
        let found: Vec<String> = redis::from_redis_value(say(connection, "CONFIG GET resil.window-limit-max")).unwrap();
        found[1].parse::<i64>().unwrap()
    };
    assert_eq!(most(&mut connection), 100_000);
    for bad in ["0", "-1", "10000001", "many", "99999999999999999999"] {
        let error = refusal(&mut connection, &format!("CONFIG SET resil.window-limit-max {bad}"));
        assert!(error.starts_with("ERR "), "{error}");
        assert_eq!(most(&mut connection), 100_000);
    }
    say(&mut connection, "CONFIG SET resil.window-limit-max 5");
    assert!(refusal(&mut connection, "RES.WINDOW w 6 60s").contains("limit"));
    assert!(refusal(&mut connection, "RES.WINDOW.PEEK w 6 60s").contains("limit"));
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 5 60s")[..3], [1, 5, 4]);
    say(&mut connection, "CONFIG SET resil.window-limit-max 10000000");
    assert_eq!(numbers(&mut connection, "RES.WINDOW.PEEK none 10000000 60s")[0], 10_000_000);
    say(&mut connection, "CONFIG SET resil.window-limit-max 77");
    say(&mut connection, "CONFIG REWRITE");
    server.restart_after_kill();
    assert_eq!(most(&mut server.connect()), 77, "a rewritten configuration is read again");
}

#[test]
fn the_largest_window_is_set_at_load_or_by_file() {
    let by_argument = Options::default().module_args(["window-limit-max", "50"]);
    let server = Server::start(by_argument.clone());
    assert!(outcome(&mut server.connect(), "CONFIG GET resil.window-limit-max").contains("50"));
    let server = Server::start(by_argument.config("resil.window-limit-max", "70"));
    assert!(outcome(&mut server.connect(), "CONFIG GET resil.window-limit-max").contains("70"));
    assert_eq!(numbers(&mut server.connect(), "RES.WINDOW w 70 60s")[0], 1);
}

#[test]
fn a_window_over_a_smaller_maximum_stays_valid() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.WINDOW w 1000 60s COST 900");
    say(&mut connection, "CONFIG SET resil.window-limit-max 10");
    assert_eq!(numbers(&mut connection, "RES.WINDOW w 10 60s"), [0, 10, 0, 60_000, 60_000]);
    say(&mut connection, "DEBUG RELOAD");
    assert_eq!(integer(&mut connection, "EXISTS w"), 1);
}

#[test]
fn info_counts_what_was_granted_denied_peeked_and_given_back() {
    let (_server, mut connection) = start_driven();
    for line in [
        "RES.GCRA g 10 60s COST 4",
        "RES.GCRA g 10 60s UPTO 99",
        "RES.GCRA g 10 60s",
        "RES.GCRA g 10 60s REFUND 2",
        "RES.GCRA.PEEK g 10 60s",
        "RES.GCRA.PEEK g 10 60s",
        "RES.MGCRA 3 a 10 60s 10 b 10 60s 10",
        "RES.MGCRA 8 a 10 60s 10 b 10 60s 10",
        "RES.WINDOW w 10 60s COST 10",
        "RES.WINDOW w 10 60s",
        "RES.WINDOW.PEEK w 10 60s",
        "CL.THROTTLE c 9 10 60 7",
        "CL.THROTTLE c 9 10 60 7",
        "CL.THROTTLE c 9 10 60 0",
        "CL.THROTTLE c 9 10 60 -1",
    ] {
        say(&mut connection, line);
    }
    refusal(&mut connection, "RES.GCRA g 0 60s");
    refusal(&mut connection, "RES._APPLY g 1 x");
    for (field, count) in [
        ("gcra_granted", 2),
        ("gcra_denied", 1),
        ("gcra_peeked", 2),
        ("gcra_refunded", 1),
        ("gcra_cells", 10),
        ("mgcra_granted", 1),
        ("mgcra_denied", 1),
        ("mgcra_cells", 6),
        ("window_granted", 1),
        ("window_denied", 1),
        ("window_peeked", 1),
        ("window_cells", 10),
        ("throttle_granted", 1),
        ("throttle_denied", 1),
        ("throttle_peeked", 1),
        ("throttle_refunded", 1),
        ("throttle_cells", 7),
        ("throttle_adopted", 0),
        ("applied", 0),
        ("apply_refused", 1),
        ("apply_unknown_version", 0),
        ("requests_refused", 2),
        ("internal_errors", 0),
        ("eviction_risk", 0),
        ("gcra_keys", 4),
        ("window_keys", 1),
    ] {
        assert_eq!(info_number(&mut connection, "resil", &format!("resil_{field}")), count, "{field}");
    }
    assert!(text(&mut connection, "INFO everything").contains("# resil"));
}
