//! The ways a client can speak: both protocols, transactions, scripts and long pipelines reply the same.

use redis::{Connection, ConnectionLike, Value};
use resil_harness::{Server, error_text, ok, reply};

use crate::driven::{START_US, digest, integer, numbers, outcome, refusal, say, set_clock, start_driven};

/// Granted, denied, peeked, given back and refused calls of every command, in this order.
const CALLS: &[&str] = &[
    "RES.GCRA g 10 60s",
    "RES.GCRA g 10 60s COST 5",
    "RES.GCRA g 10 60s COST 5",
    "RES.GCRA g 10 60s COST 11",
    "RES.GCRA g 10 60s UPTO 9",
    "RES.GCRA g 10 60s RESERVE 1m",
    "RES.GCRA g 10 60s REFUND 3",
    "RES.GCRA t 10 60s AND 5 1s AND 100 1h COST 2",
    "RES.GCRA t 10 60s AND 5 1s AND 100 1h COST 6",
    "RES.GCRA.PEEK t 10 60s AND 5 1s",
    "RES.GCRA.PEEK none 10 60s",
    "RES.MGCRA 2 a 10 60s 10 b 3 60s 3",
    "RES.MGCRA 2 a 10 60s 10 b 3 60s 3",
    "RES.WINDOW w 10 60s COST 4",
    "RES.WINDOW w 10 60s UPTO 9",
    "RES.WINDOW w 10 60s",
    "RES.WINDOW.PEEK w 10 60s",
    "CL.THROTTLE c 15 30 60",
    "CL.THROTTLE c 15 30 60 16",
    "CL.THROTTLE c 15 30 60 -1",
    "RES.GCRA w 10 60s",
    "RES.GCRA g 0 60s",
    "RES.GCRA",
];

fn replies(connection: &mut Connection) -> Vec<String> {
    set_clock(connection, START_US);
    say(connection, "FLUSHALL");
    CALLS.iter().map(|line| outcome(connection, line)).collect()
}

#[test]
fn both_protocols_give_the_same_replies() {
    let (server, mut connection) = start_driven();
    let in_resp2 = replies(&mut connection);
    assert_eq!(replies(&mut server.connect_resp3()), in_resp2);
    assert!(in_resp2.iter().filter(|reply| reply.starts_with("array(")).count() >= CALLS.len() - 3);
}

#[test]
fn a_transaction_gives_the_same_replies() {
    let (_server, mut connection) = start_driven();
    let alone: Vec<String> = replies(&mut connection);
    say(&mut connection, "FLUSHALL");
    let mut packed = redis::cmd("MULTI").get_packed_command();
    for line in CALLS {
        let mut words = line.split_whitespace();
        let mut command = redis::cmd(words.next().expect("a command"));
        words.for_each(|word| {
            command.arg(word);
        });
        packed.extend(command.get_packed_command());
    }
    packed.extend(redis::cmd("EXEC").get_packed_command());
    let all = connection.req_packed_commands(&packed, CALLS.len() + 1, 1).expect("the server replies");
    let Value::Array(together) = &all[0] else { panic!("EXEC gave {all:?}") };
    for ((line, alone), together) in CALLS.iter().zip(alone).zip(together) {
        let together = match together {
            Value::ServerError(error) => error.details().unwrap_or_default().to_owned(),
            value => format!("{value:?}"),
        };
        assert!(alone.contains(&together), "{line}: {together} in a transaction, {alone} alone");
    }
}

#[test]
fn a_script_gets_the_same_replies() {
    let (_server, mut connection) = start_driven();
    let alone: Vec<String> = replies(&mut connection);
    say(&mut connection, "FLUSHALL");
    for (line, alone) in CALLS.iter().zip(alone) {
        let mut words = vec!["EVAL", "return redis.call(unpack(ARGV))", "0"];
        words.extend(line.split_whitespace());
        let in_script = match reply(&mut connection, &words) {
            Ok(value) => format!("{value:?}"),
            // To an error the server adds which script it came from.
            Err(error) => error.to_string().split(" script: ").next().unwrap_or_default().to_owned(),
        };
        assert_eq!(in_script, alone, "{line}");
    }
}

#[test]
fn a_script_can_catch_an_error_and_continue() {
    let (_server, mut connection) = start_driven();
    say(&mut connection, "SET text hello");
    let caught = "local a = redis.pcall('RES.GCRA','text','10','1s') \
                  local b = redis.pcall('RES.GCRA','g','0','1s') \
                  local c = redis.pcall('RES.GCRA','g','10','1s') \
                  return {a.err, b.err, c[1], c[3]}";
    let (wrong, refused, granted, remaining): (String, String, i64, i64) =
        redis::from_redis_value(ok(&mut connection, &["EVAL", caught, "0"])).unwrap();
    assert!(wrong.starts_with("WRONGTYPE "), "{wrong}");
    assert!(refused.starts_with("ERR ") && refused.contains("limit"), "{refused}");
    assert_eq!((granted, remaining), (1, 9));
    let uncaught = ["EVAL", "redis.call('RES.GCRA','g','10','1s') return redis.call('RES.GCRA','text','10','1s')", "0"];
    assert!(error_text(&mut connection, &uncaught).contains("WRONGTYPE"));
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK g 10 1s")[0], 8, "what ran before the error stands");
}

#[test]
fn a_read_only_script_may_peek_and_may_not_take() {
    let (_server, mut connection) = start_driven();
    let peek = ["EVAL_RO", "return redis.call('RES.GCRA.PEEK','g','10','1s')[1]", "0"];
    assert_eq!(ok(&mut connection, &peek), Value::Int(10));
    let take = ["EVAL_RO", "return redis.call('RES.GCRA','g','10','1s')", "0"];
    assert!(error_text(&mut connection, &take).contains("Write commands are not allowed"));
    assert_eq!(integer(&mut connection, "EXISTS g"), 0);
}

#[test]
fn a_watched_limit_fails_the_transaction_when_taken_from() {
    let (server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA g 10 60s");
    say(&mut connection, "WATCH g");
    numbers(&mut server.connect(), "RES.GCRA g 10 60s");
    say(&mut connection, "MULTI");
    say(&mut connection, "RES.GCRA g 10 60s");
    assert_eq!(say(&mut connection, "EXEC"), Value::Nil);
    assert_eq!(numbers(&mut connection, "RES.GCRA.PEEK g 10 60s")[0], 8);
}

#[test]
fn a_discarded_transaction_takes_nothing() {
    let (_server, mut connection) = start_driven();
    for line in ["MULTI", "RES.GCRA g 10 60s", "RES.WINDOW w 10 60s", "DISCARD"] {
        say(&mut connection, line);
    }
    assert_eq!(integer(&mut connection, "DBSIZE"), 0);
}

#[test]
fn a_pipeline_of_ten_thousand_is_answered_in_order() {
    let (_server, mut connection) = start_driven();
    let mut pipeline = redis::pipe();
    for _ in 0..5_000 {
        pipeline.cmd("RES.GCRA").arg("g").arg(3_000).arg("1h");
        pipeline.cmd("RES.WINDOW").arg("w").arg(4_000).arg("1h");
    }
    let replies: Vec<Vec<i64>> = pipeline.query(&mut connection).expect("all are answered");
    assert_eq!(replies.len(), 10_000);
    for (number, pair) in replies.chunks(2).enumerate() {
        let left = |capacity: i64| (capacity - number as i64 - 1).max(0);
        assert_eq!((pair[0][0], pair[0][2]), ((number < 3_000) as i64, left(3_000)), "call {number}");
        assert_eq!((pair[1][0], pair[1][2]), ((number < 4_000) as i64, left(4_000)), "call {number}");
    }
}

#[test]
fn a_client_that_wants_no_replies_still_takes() {
    let (server, mut connection) = start_driven();
    let mut silent = server.connect();
    let off = redis::cmd("CLIENT").arg("REPLY").arg("OFF").get_packed_command();
    silent.send_packed_command(&off).unwrap();
    for _ in 0..4 {
        let take = redis::cmd("RES.GCRA").arg("g").arg(10).arg("60s").get_packed_command();
        silent.send_packed_command(&take).unwrap();
    }
    resil_harness::eventually("all four were taken", crate::driven::SOON, || {
        numbers(&mut connection, "RES.GCRA.PEEK g 10 60s")[0] == 6
    });
}

#[test]
fn errors_name_what_was_wrong_and_change_nothing() {
    let (_server, mut connection) = start_driven();
    numbers(&mut connection, "RES.GCRA g 10 60s");
    let before = digest(&mut connection, "g");
    for (line, said) in [
        ("RES.GCRA g 0 60s", "limit"),
        ("RES.GCRA g 10 60x", "period"),
        ("RES.GCRA g 10 60s COST 0", "COST"),
        ("RES.GCRA g 10 60s BURST -1", "BURST"),
        ("RES.GCRA g 10 60s RESERVE 2d", "RESERVE"),
        ("RES.GCRA g 10 60s AND 20 60s", "AND"),
        ("RES.GCRA g 10", "period"),
        ("RES.GCRA g 10 60s FOO", "FOO"),
        ("RES.WINDOW w 100001 60s", "limit"),
        ("RES.MGCRA 1 g 10 60s", "burst"),
        ("CL.THROTTLE g 15 30", "period_seconds"),
    ] {
        let error = refusal(&mut connection, line);
        assert!(error.starts_with("ERR ") && error.contains(said), "{line}: {error}");
    }
    assert_eq!(digest(&mut connection, "g"), before);
}

#[test]
fn the_real_clock_refills_by_the_microsecond() {
    let server = Server::fresh();
    let mut connection = server.connect();
    assert_eq!(numbers(&mut connection, "RES.GCRA g 1 20ms")[..2], [1, 1]);
    let denied = numbers(&mut connection, "RES.GCRA g 1 20ms");
    // On a machine that stood still for 20 ms the second call is granted too.
    assert!(denied[0] == 1 || (1..=20).contains(&denied[3]), "{denied:?}");
    resil_harness::eventually("the cell is back", crate::driven::SOON, || {
        numbers(&mut connection, "RES.GCRA g 1 20ms")[0] == 1
    });
}
