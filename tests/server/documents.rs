//! What the server says of our commands is what their pages in `commands/` say.

use std::collections::BTreeSet;

use redis::{Connection, Value};
use resil_harness::{Server, ok};
use resil_tests::pages;
use serde_json::{Value as Json, json};

use crate::driven::{driven, outcome, refusal, say, start_driven};

/// The commands this server has from us.
fn registered(connection: &mut Connection) -> BTreeSet<String> {
    let names = say(connection, "COMMAND LIST FILTERBY MODULE resil");
    redis::from_redis_value::<Vec<String>>(names).unwrap().into_iter().collect()
}

/// A reply as JSON: a map of RESP3 is an object, a set an array.
fn as_json(value: &Value) -> Json {
    match value {
        Value::Int(number) => json!(number),
        Value::BulkString(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::SimpleString(text) => json!(text),
        Value::Array(values) | Value::Set(values) => values.iter().map(as_json).collect(),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (as_json(key).as_str().unwrap().to_owned(), as_json(value)));
            Json::Object(pairs.collect())
        }
        Value::Nil => Json::Null,
        other => panic!("not expected here: {other:?}"),
    }
}

fn text_set(words: &Json) -> BTreeSet<String> {
    words.as_array().expect("a list").iter().map(|word| word.as_str().expect("text").to_owned()).collect()
}

/// COMMAND DOCS of a command; asked in RESP3, where maps are maps.
fn documentation(connection: &mut Connection, name: &str) -> Json {
    let all = as_json(&ok(connection, &["COMMAND", "DOCS", name]));
    all.as_object().and_then(|all| all.values().next()).unwrap_or_else(|| panic!("no docs of {name}")).clone()
}

/// COMMAND INFO of a command: name, arity, flags, first, last, step, categories, tips, key specs, subcommands.
fn facts(connection: &mut Connection, name: &str) -> Vec<Json> {
    let all = as_json(&ok(connection, &["COMMAND", "INFO", name]));
    all[0].as_array().unwrap_or_else(|| panic!("no facts of {name}")).clone()
}

/// An argument of a page as COMMAND DOCS would show it.
fn shown_argument(page: &Json) -> Json {
    let mut shown = serde_json::Map::new();
    for field in ["name", "type"] {
        shown.insert(field.into(), page[field].clone());
    }
    if page["type"] == "key" {
        // A key behind a word is found by the second specification.
        shown.insert("key_spec_index".into(), json!(i32::from(page.get("token").is_some())));
    }
    if let Some(token) = page.get("token") {
        shown.insert("token".into(), token.clone());
    }
    let flags: Vec<&str> = ["optional", "multiple", "multiple_token"]
        .into_iter()
        .filter(|flag| page.get(*flag) == Some(&json!(true)))
        .collect();
    if !flags.is_empty() {
        shown.insert("flags".into(), json!(flags));
    }
    if let Some(inner) = page.get("arguments") {
        shown.insert("arguments".into(), inner.as_array().unwrap().iter().map(shown_argument).collect());
    }
    Json::Object(shown)
}

/// Newer servers repeat the name as `display_text` where a module gives none.
fn without_display_text(argument: &Json) -> Json {
    match argument {
        Json::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "display_text");
            Json::Object(kept.map(|(name, value)| (name.clone(), without_display_text(value))).collect())
        }
        Json::Array(values) => values.iter().map(without_display_text).collect(),
        other => other.clone(),
    }
}

fn documented_server() -> (Server, Connection) {
    let server = Server::start(driven());
    let connection = server.connect_resp3();
    (server, connection)
}

#[test]
fn every_command_has_a_page_and_every_page_a_command() {
    let (_server, mut connection) = documented_server();
    assert_eq!(registered(&mut connection), pages().into_keys().collect());
}

#[test]
fn command_docs_say_what_the_pages_say() {
    let (_server, mut connection) = documented_server();
    for (name, page) in pages() {
        let docs = documentation(&mut connection, &name);
        for field in ["summary", "since", "complexity"] {
            assert_eq!(docs[field], page[field], "{name}: {field}");
        }
        assert_eq!((&docs["group"], &docs["module"]), (&json!("module"), &json!("resil")), "{name}");
        let arguments: Vec<Json> = page["arguments"].as_array().unwrap().iter().map(shown_argument).collect();
        let shown = docs.get("arguments").map_or(json!([]), without_display_text);
        assert_eq!(shown, json!(arguments), "{name}");
    }
}

#[test]
fn command_info_says_what_the_pages_say() {
    let (_server, mut connection) = documented_server();
    for (name, page) in pages() {
        let facts = facts(&mut connection, &name);
        assert_eq!(facts[0], page["name"]);
        let mut flags = text_set(&page["flags"]);
        flags.insert("module".into());
        if page["keys"]["keyword"].is_string() {
            flags.insert("movablekeys".into());
        }
        assert_eq!(text_set(&facts[2]), flags, "{name}");
        let keys = &page["keys"];
        assert_eq!(json!(facts[3..6]), json!([keys["first"], keys["last"], keys["step"]]), "{name}");
    }
}

#[test]
fn no_command_is_refused_for_want_of_memory() {
    let (_server, mut connection) = documented_server();
    for name in pages().into_keys() {
        assert!(!text_set(&facts(&mut connection, &name)[2]).contains("denyoom"), "{name}");
    }
}

#[test]
fn key_specs_say_what_the_pages_say() {
    let (_server, mut connection) = documented_server();
    for (name, page) in pages() {
        let (facts, keys) = (facts(&mut connection, &name), &page["keys"]);
        let specs = facts[8].as_array().unwrap();
        let (first, last) = (keys["first"].as_i64().unwrap(), keys["last"].as_i64().unwrap());
        if first == 0 {
            assert!(specs.is_empty(), "{name} has no keys");
            continue;
        }
        let flags = if keys["access"] == "read" { json!(["RO", "access"]) } else { json!(["RW", "access", "update"]) };
        let last = if last < 0 { last } else { last - first };
        let range = json!({"lastkey": last, "keystep": keys["step"], "limit": 0});
        let mut expected = vec![json!({
            "flags": flags,
            "begin_search": {"type": "index", "spec": {"index": first}},
            "find_keys": {"type": "range", "spec": range},
        })];
        if let Some(word) = keys["keyword"].as_str() {
            expected.push(json!({
                "flags": flags,
                "begin_search": {"type": "keyword", "spec": {"keyword": word, "startfrom": keys["from"]}},
                "find_keys": {"type": "range", "spec": {"lastkey": 0, "keystep": 1, "limit": 0}},
            }));
        }
        assert_eq!(json!(specs), json!(expected), "{name}");
    }
}

#[test]
fn the_server_finds_the_keys_of_every_call() {
    let (_server, mut connection) = start_driven();
    for (line, keys) in [
        ("RES.GCRA k 10 1s AND 20 1m COST 3", &["k"][..]),
        ("RES.GCRA.PEEK k 10 1s", &["k"]),
        ("RES.MGCRA 1 a 10 1s 10 b 10 1s 10 c 10 1s 10", &["a", "b", "c"]),
        ("RES.WINDOW k 10 1s", &["k"]),
        ("RES.WINDOW.PEEK k 10 1s", &["k"]),
        ("RES._APPLY a 1 x b 1 y", &["a", "b"]),
        ("CL.THROTTLE k 15 30 60", &["k"]),
        ("RES.BREAKER ADMIT k", &["k"]),
        ("RES.BREAKER STATE k", &["k"]),
    ] {
        let found: Vec<String> =
            redis::from_redis_value(say(&mut connection, &format!("COMMAND GETKEYS {line}"))).unwrap();
        assert_eq!(found, keys, "{line}");
    }
}

/// Where modules cannot have categories (before Redis 7.2), commands are allowed by name.
fn has_categories(connection: &mut Connection) -> bool {
    outcome(connection, "ACL CAT resil").starts_with("array")
}

#[test]
fn commands_are_in_the_categories_their_pages_name() {
    let (_server, mut connection) = documented_server();
    if !has_categories(&mut connection) {
        return println!("skipped: this server has no ACL categories for modules");
    }
    for (name, page) in pages() {
        let mut categories = text_set(&page["acl_categories"]);
        categories.insert("resil".into());
        let named: BTreeSet<String> = categories.iter().map(|category| format!("@{category}")).collect();
        assert_eq!(text_set(&facts(&mut connection, &name)[6]), named, "{name}");
    }
}

#[test]
fn a_user_can_be_allowed_our_commands_and_nothing_else() {
    let (server, mut connection) = documented_server();
    let rights = if has_categories(&mut connection) { "+@resil" } else { "+res.gcra +res.gcra.peek" };
    say(&mut connection, &format!("ACL SETUSER limited on >secret ~limit:* {rights}"));
    let mut limited = server.connect();
    say(&mut limited, "AUTH limited secret");
    say(&mut limited, "RES.GCRA limit:a 10 60s");
    say(&mut limited, "RES.GCRA.PEEK limit:a 10 60s");
    assert!(refusal(&mut limited, "RES.GCRA other 10 60s").starts_with("NOPERM"), "keys are checked");
    assert!(refusal(&mut limited, "GET limit:a").starts_with("NOPERM"), "other commands are not allowed");
}

#[test]
fn a_read_only_user_can_peek_and_not_take() {
    let (server, mut connection) = documented_server();
    say(&mut connection, "ACL SETUSER reader on >secret %R~* +res.gcra +res.gcra.peek +res.window +res.window.peek");
    let mut reader = server.connect();
    say(&mut reader, "AUTH reader secret");
    say(&mut reader, "RES.GCRA.PEEK g 10 60s");
    say(&mut reader, "RES.WINDOW.PEEK w 10 60s");
    assert!(refusal(&mut reader, "RES.GCRA g 10 60s").starts_with("NOPERM"));
    assert!(refusal(&mut reader, "RES.WINDOW w 10 60s").starts_with("NOPERM"));
}
