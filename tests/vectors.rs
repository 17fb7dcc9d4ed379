//! Every conformance vector, against the machines in this process and against a real server. Same file, same verdicts.

use std::collections::BTreeSet;

use redis::Connection;
use resil_core::Instant;
use resil_harness::{Options, Server, ok, reply};
use resil_tests::memory::Memory;
use resil_tests::vectors::{Names, Vector, all};
use resil_wire::reply::Value;

/// 2100: whatever a vector stores, the server's own clock expires none of it meanwhile.
const BASE_US: i64 = 4_102_444_800_000_000;

/// What runs a call at an instant and gives the reply as JSON, or the error's text.
type Runner<'a> = &'a mut dyn FnMut(&[Vec<u8>], i64) -> Result<serde_json::Value, String>;

/// Plays every vector, and names all that differ at once.
fn play_all(mut runner: impl FnMut(&[Vec<u8>], i64) -> Result<serde_json::Value, String>) {
    let vectors = all();
    let mut failures = Vec::new();
    let mut played = BTreeSet::new();
    for (index, (file, vector)) in vectors.iter().enumerate() {
        assert!(vector.needs.is_empty(), "{file}: {}: needs {:?}, which nobody has", vector.name, vector.needs);
        if let Err(failure) = play(vector, &format!("vector:{index}:"), &mut runner) {
            failures.push(format!("{file}: {}\n{failure}", vector.name));
        }
        played.insert((file, &vector.name));
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), vectors.len(), failures.join("\n"));
    assert_eq!(played.len(), vectors.len(), "two vectors of one file have the same name");
    assert!(played.len() >= 40, "only {} vectors were found", played.len());
}

fn play(vector: &Vector, prefix: &str, runner: Runner<'_>) -> Result<(), String> {
    let mut names = Names::new();
    for step in &vector.steps {
        let got = runner(&step.words(prefix, &names), BASE_US + step.at_us);
        if !step.is_met_by(&got, &mut names) {
            return Err(format!("  {:?} at {} us: got {got:?}, not {:?}", step.call, step.at_us, step.expected));
        }
    }
    Ok(())
}

#[test]
fn every_vector_holds_in_memory() {
    let mut memory = Memory::default();
    play_all(|words, now_us| {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let value = memory.call(&words, Instant::from_us(now_us))?;
        json_of_ours(&value).ok_or_else(|| format!("a reply of another kind: {value:?}"))
    });
}

#[test]
fn every_vector_holds_on_a_server() {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    for mut connection in [server.connect(), server.connect_resp3()] {
        play_all(|words, now_us| on_server(&mut connection, words, now_us));
        ok(&mut connection, &["FLUSHALL"]);
    }
}

fn on_server(connection: &mut Connection, words: &[Vec<u8>], now_us: i64) -> Result<serde_json::Value, String> {
    ok(connection, &["RES._CLOCK", &now_us.to_string()]);
    let value = reply(connection, words).map_err(|error| error.to_string())?;
    json_of_theirs(&value).ok_or_else(|| format!("a reply of another kind: {value:?}"))
}

fn json_of_ours(value: &Value) -> Option<serde_json::Value> {
    match value {
        Value::Integer(number) => Some((*number).into()),
        Value::Text(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        Value::Null => Some(serde_json::Value::Null),
        Value::Array(elements) => elements.iter().map(json_of_ours).collect(),
        Value::Map(_) => None,
    }
}

fn json_of_theirs(value: &redis::Value) -> Option<serde_json::Value> {
    match value {
        redis::Value::Int(number) => Some((*number).into()),
        redis::Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        redis::Value::SimpleString(text) => Some(text.as_str().into()),
        redis::Value::Nil => Some(serde_json::Value::Null),
        redis::Value::Array(elements) => elements.iter().map(json_of_theirs).collect(),
        _ => None,
    }
}
