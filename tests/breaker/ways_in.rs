//! The ways a client can speak to a breaker: transactions, scripts, both protocols, users with few rights, and help.

use std::collections::BTreeSet;

use redis::Value;
use resil_harness::{error_text, ok};

use crate::asked::{Admission, Breaker, Look, Reply};
use crate::driven::{Say, start_driven};

const SUBCOMMANDS: [&str; 8] = ["admit", "report", "tally", "state", "force", "reset", "config", "help"];

#[test]
fn a_transaction_sees_its_own_steps() {
    let (_server, mut connection) = start_driven();
    for line in [
        "MULTI",
        "RES.BREAKER CONFIG k CONSECUTIVE 2 OPEN 5s",
        "RES.BREAKER TALLY k 0 me 1 OK 0 FAIL 1",
        "RES.BREAKER ADMIT k",
        "RES.BREAKER TALLY k 0 me 2 OK 0 FAIL 1",
        "RES.BREAKER ADMIT k",
        "RES.BREAKER STATE k",
    ] {
        connection.say(line);
    }
    let Value::Array(replies) = connection.say("EXEC") else { panic!("EXEC gives a list") };
    let [config, first, admitted, second, denied, look] = replies.try_into().expect("six replies");
    assert_eq!(config, Value::Int(1));
    assert_eq!(Reply::of(first).said(), ("counted", "closed"));
    assert!(Admission::of(admitted).admitted);
    assert_eq!(Reply::of(second).said(), ("counted", "open"));
    Admission::of(denied).assert_denied("open", 5_000);
    assert_eq!(Look::of(look).state(), "open");
}

#[test]
fn a_refused_call_in_a_transaction_leaves_the_others_alone() {
    let (_server, mut connection) = start_driven();
    connection.say("MULTI");
    for line in ["CONFIG k RATE 20", "CONFIG k RATE 101 PROBES 9", "CONFIG k LEASE 5s"] {
        connection.say(&format!("RES.BREAKER {line}"));
    }
    assert!(connection.outcome("EXEC").contains("RATE"));
    let look = connection.look("k");
    let config = ["config.rate", "config.probes", "config.lease"].map(|field| look.text(field));
    assert_eq!(config, ["20", "3", "5s"]);
}

#[test]
fn a_script_admits_and_reports_in_one_go() {
    let (_server, mut connection) = start_driven();
    let script = "local a = redis.call('RES.BREAKER','ADMIT',KEYS[1],'CALLER','lua') \
                  if a[1] == 0 then return {0, a[2], a[4]} end \
                  local r = redis.call('RES.BREAKER','REPORT',KEYS[1],a[3],ARGV[1]) \
                  return {r[1], r[2], r[4]}";
    let mut run = |outcome: &str| -> (i64, String, i64) {
        redis::from_redis_value(ok(&mut connection, &["EVAL", script, "1", "k", outcome])).expect("three fields")
    };
    assert_eq!(run("OK"), (1, "closed".to_owned(), 0));
    for _ in 0..4 {
        assert_eq!(run("FAIL"), (1, "closed".to_owned(), 0));
    }
    assert_eq!(run("FAIL"), (1, "open".to_owned(), 30_000));
    assert_eq!(run("FAIL"), (0, "open".to_owned(), 30_000), "denied, with a permit that is false");
}

#[test]
fn read_only_scripts_can_only_look() {
    let (_server, mut connection) = start_driven();
    let look = "return redis.call('RES.BREAKER','STATE',KEYS[1])[2]";
    let state = ok(&mut connection, &["EVAL_RO", look, "1", "k"]);
    assert_eq!(redis::from_redis_value::<String>(state).expect("a state"), "closed");
    for call in ["'ADMIT',KEYS[1]", "'FORCE',KEYS[1],'OPEN'", "'RESET',KEYS[1]", "'CONFIG',KEYS[1],'RATE','1'"] {
        let script = format!("return redis.call('RES.BREAKER',{call})");
        let error = error_text(&mut connection, &["EVAL_RO", &script, "1", "k"]);
        assert!(error.to_lowercase().contains("write commands are not allowed"), "{call}: {error}");
    }
}

#[test]
fn both_protocols_agree_and_resp3_has_maps() {
    let (server, mut connection) = start_driven();
    let mut newer = server.connect_resp3();
    connection.config("k CONSECUTIVE 1 OPEN 9s");
    connection.trip("k");
    let (Value::Array(flat), Value::Map(pairs)) =
        (connection.say("RES.BREAKER STATE k"), newer.say("RES.BREAKER STATE k"))
    else {
        panic!("STATE is a list of names and values in RESP2, a map in RESP3");
    };
    assert_eq!(flat.len(), 2 * pairs.len());
    let config = pairs.iter().find(|(name, _)| *name == Value::BulkString(b"config".to_vec()));
    assert!(matches!(config, Some((_, Value::Map(options))) if options.len() == 15), "{config:?}");
    assert_eq!(newer.look("k"), connection.look("k"));
    assert_eq!(newer.admit("k"), connection.admit("k"), "the missing permit is null in both");
    assert_eq!(newer.tally("k 0 me 1 OK 1 FAIL 1"), connection.tally("k 0 me 1 OK 1 FAIL 1"));
    assert_eq!(newer.say("RES.BREAKER HELP"), connection.say("RES.BREAKER HELP"));
}

#[test]
fn a_user_who_may_only_look_only_looks() {
    let (server, mut connection) = start_driven();
    connection.call("k", "FAIL");
    connection.say("ACL SETUSER viewer on >secret ~* resetchannels -@all +res.breaker|state");
    let mut viewer = server.connect();
    viewer.say("AUTH viewer secret");
    assert_eq!(viewer.look("k").number("failures"), 1);
    let before = connection.digest("k");
    for line in [
        "RES.BREAKER ADMIT k",
        "RES.BREAKER REPORT k 0.0.0 FAIL",
        "RES.BREAKER TALLY k 0 me 1 OK 1 FAIL 1",
        "RES.BREAKER FORCE k OPEN",
        "RES.BREAKER RESET k",
        "RES.BREAKER CONFIG k RATE 1",
        "RES.BREAKER HELP",
        "RES.GCRA g 10 1h",
        "GET k",
        "DEL k",
    ] {
        let error = viewer.refusal(line);
        assert!(error.starts_with("NOPERM "), "{line}: {error}");
    }
    assert_eq!(connection.digest("k"), before);
}

#[test]
fn state_says_whether_there_is_such_a_key() {
    let (_server, mut connection) = start_driven();
    let seen = |connection: &mut redis::Connection| {
        let look = connection.look("k");
        (look.text("state").to_owned(), look.number("exists"))
    };
    assert_eq!(seen(&mut connection), ("closed".to_owned(), 0), "a mistyped name is closed, and is not there");
    connection.admit("k");
    assert_eq!(seen(&mut connection), ("closed".to_owned(), 0), "admitting stores nothing");
    connection.call("k", "OK");
    assert_eq!(seen(&mut connection), ("closed".to_owned(), 1));
}

#[test]
fn users_are_held_to_their_keys_and_to_reading_them() {
    let (server, mut connection) = start_driven();
    connection.say("ACL SETUSER service on >secret ~mine:* -@all +res.breaker");
    connection.say("ACL SETUSER operator on >secret %R~* -@all +res.breaker");
    let (mut service, mut operator) = (server.connect(), server.connect());
    service.say("AUTH service secret");
    operator.say("AUTH operator secret");
    assert_eq!(service.call("mine:k", "OK").said(), ("counted", "closed"));
    assert!(service.refusal("RES.BREAKER ADMIT yours:k").starts_with("NOPERM "));
    assert!(service.refusal("RES.BREAKER STATE yours:k").starts_with("NOPERM "));
    assert_eq!(operator.look("mine:k").number("calls"), 1);
    for line in ["ADMIT mine:k", "FORCE mine:k OPEN", "RESET mine:k", "CONFIG mine:k RATE 1"] {
        assert!(operator.refusal(&format!("RES.BREAKER {line}")).starts_with("NOPERM "), "{line}");
    }
}

#[test]
fn the_server_documents_every_subcommand() {
    let (server, _) = start_driven();
    let mut connection = server.connect_resp3();
    let documented = |connection: &mut redis::Connection, name: &str| -> Vec<(Value, Value)> {
        match connection.say(&format!("COMMAND DOCS {name}")) {
            Value::Map(commands) if commands.len() == 1 => match &commands[0].1 {
                Value::Map(fields) => fields.clone(),
                other => panic!("{name}: {other:?}"),
            },
            other => panic!("{name}: {other:?}"),
        }
    };
    let field = |fields: &[(Value, Value)], name: &str| -> Value {
        let found = fields.iter().find(|(field, _)| *field == Value::BulkString(name.as_bytes().to_vec()));
        found.unwrap_or_else(|| panic!("no {name} in {fields:?}")).1.clone()
    };
    let container = documented(&mut connection, "res.breaker");
    let Value::Map(subcommands) = field(&container, "subcommands") else { panic!("subcommands are a map") };
    let names =
        subcommands.into_iter().map(|(name, _)| redis::from_redis_value::<String>(name).unwrap().to_lowercase());
    let expected: BTreeSet<String> = SUBCOMMANDS.iter().map(|name| format!("res.breaker|{name}")).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), expected);
    for name in SUBCOMMANDS {
        let fields = documented(&mut connection, &format!("res.breaker|{name}"));
        let text = |of: &str| redis::from_redis_value::<String>(field(&fields, of)).expect("text");
        assert!(text("summary").ends_with('.') && text("complexity").starts_with("O("), "{name}: {fields:?}");
        assert_eq!((text("since").as_str(), text("module").as_str()), ("0.1.0", "resil"), "{name}");
    }
}

#[test]
fn only_state_is_readonly_and_only_help_touches_no_key() {
    let (_server, mut connection) = start_driven();
    for name in SUBCOMMANDS {
        let Value::Array(facts) = connection.say(&format!("COMMAND INFO res.breaker|{name}")) else { panic!("a list") };
        let Value::Array(facts) = facts.into_iter().next().expect("one command") else { panic!("no facts of {name}") };
        let flags: BTreeSet<String> = redis::from_redis_value(facts[2].clone()).expect("flags");
        assert_eq!(flags.contains("readonly"), name == "state", "{name}: {flags:?}");
        assert_eq!(flags.contains("write"), !["state", "help"].contains(&name), "{name}: {flags:?}");
        assert!(!flags.contains("denyoom"), "{name}: the module decides itself what needs memory");
        assert_eq!(facts[3] == Value::Int(0), name == "help", "{name} has its key at the second place");
    }
}

#[test]
fn help_shows_the_usage_of_every_subcommand_and_every_option() {
    let (_server, mut connection) = start_driven();
    let help: Vec<String> = redis::from_redis_value(connection.say("RES.BREAKER HELP")).expect("lines");
    for name in SUBCOMMANDS.iter().filter(|name| **name != "help") {
        let usage = format!("RES.BREAKER {} key", name.to_uppercase());
        assert!(help.iter().any(|line| line.starts_with(&usage)), "no line begins with {usage}: {help:#?}");
    }
    let all = help.join("\n");
    let look = connection.look("none");
    for option in look.0.keys().filter_map(|name| name.strip_prefix("config.")) {
        assert!(all.contains(&option.to_uppercase()), "{option} is not in HELP");
    }
    assert!(connection.refusal("RES.BREAKER").starts_with("ERR "));
    assert!(connection.refusal("RES.BREAKER NOPE k").contains("unknown subcommand"));
}
