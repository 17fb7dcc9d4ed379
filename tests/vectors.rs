//! Every conformance vector: typed into a real server, and through the SDK, in memory and on that server. Same file, same
//! verdicts.

use std::collections::BTreeSet;

use redis::Connection;
use resil::testing::{raw, raw_at};
use resil::{Client, Error};
use resil_harness::{Options, Server, ok, reply};
use resil_tests::vectors::{Names, Vector, all};
use resil_wire::reply::Value;

/// 2100: whatever a vector stores, no clock of this machine expires any of it meanwhile.
const BASE_US: i64 = 4_102_444_800_000_000;

/// What runs a call at an instant and gives the reply as JSON, or the error's text.
type Runner<'a> = &'a mut dyn FnMut(&[Vec<u8>], i64) -> Result<serde_json::Value, String>;

/// Plays every vector, and names all that differ at once. `who` is this runner's name in the count of all languages.
fn play_all(who: &str, mut runner: impl FnMut(&[Vec<u8>], i64) -> Result<serde_json::Value, String>) {
    let vectors = all();
    let mut failures = Vec::new();
    let mut played = BTreeSet::new();
    for (index, (file, vector)) in vectors.iter().enumerate() {
        assert!(vector.needs.is_empty(), "{file}: {}: needs {:?}, which nobody has", vector.name, vector.needs);
        assert!(!vector.steps.is_empty(), "{file}: {}: says nothing", vector.name);
        if let Err(failure) = play(vector, &format!("vector:{index}:"), &mut runner) {
            failures.push(format!("{file}: {}\n{failure}", vector.name));
        }
        played.insert((file, &vector.name));
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), vectors.len(), failures.join("\n"));
    assert_eq!(played.len(), vectors.len(), "two vectors of one file have the same name");
    assert!(played.len() >= 190, "only {} vectors were found", played.len());
    tell_what_was_played(who, &played);
}

/// For `scripts/played`, which looks that every runner of every language played every vector.
fn tell_what_was_played(who: &str, played: &BTreeSet<(&String, &String)>) {
    let Some(folder) = std::env::var_os("RESIL_VECTORS_PLAYED") else { return };
    let list = serde_json::to_string(played).expect("texts are JSON");
    std::fs::create_dir_all(&folder).expect("a folder that can be made");
    std::fs::write(std::path::Path::new(&folder).join(format!("{who}.json")), list).expect("a folder to write to");
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

fn server_with_a_clock() -> Server {
    Server::start(Options::default().module_args(["test-clock", "yes"]))
}

fn set_clock(connection: &mut Connection, now_us: i64) {
    ok(connection, &["RES._CLOCK", &now_us.to_string()]);
}

#[test]
fn every_vector_holds_on_a_server() {
    let server = server_with_a_clock();
    for mut connection in [server.connect(), server.connect_resp3()] {
        play_all("rust-words", |words, now_us| {
            set_clock(&mut connection, now_us);
            let value = reply(&mut connection, words).map_err(|error| error.to_string())?;
            json_of_theirs(&value).ok_or_else(|| format!("a reply of another kind: {value:?}"))
        });
        ok(&mut connection, &["FLUSHALL"]);
    }
}

/// Parsed to a typed command, answered by the machines in this process, written as a reply.
#[tokio::test]
async fn every_vector_holds_through_the_sdk_in_memory() {
    let client = resil::connect("memory://").await.expect("memory is always there");
    play_all("rust-memory", |words, now_us| reported(raw_at(&client, words, now_us)));
}

/// The same, encoded for a server, whose reply is read into a typed reply. Its clock is driven beside the client.
#[test]
fn every_vector_holds_through_the_sdk_on_a_server() {
    let server = server_with_a_clock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client: Client = runtime.block_on(resil::connect(&server.url())).expect("the server is there");
    let mut driver = server.connect();
    play_all("rust-server", |words, now_us| {
        set_clock(&mut driver, now_us);
        reported(runtime.block_on(raw(&client, words)))
    });
}

fn reported(got: Result<Value, Error>) -> Result<serde_json::Value, String> {
    let value = got.map_err(|error| format!("{} {error}", error.code().text()))?;
    json_of_ours(&value).ok_or_else(|| format!("a reply of another kind: {value:?}"))
}

fn json_of_ours(value: &Value) -> Option<serde_json::Value> {
    match value {
        Value::Integer(number) => Some((*number).into()),
        Value::Text(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        Value::Null => Some(serde_json::Value::Null),
        Value::Array(elements) => elements.iter().map(json_of_ours).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(name, value)| [json_of_ours(name), json_of_ours(value)]).collect(),
    }
}

fn json_of_theirs(value: &redis::Value) -> Option<serde_json::Value> {
    match value {
        redis::Value::Int(number) => Some((*number).into()),
        redis::Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        redis::Value::SimpleString(text) => Some(text.as_str().into()),
        redis::Value::Nil => Some(serde_json::Value::Null),
        redis::Value::Array(elements) => elements.iter().map(json_of_theirs).collect(),
        redis::Value::Map(pairs) => {
            pairs.iter().flat_map(|(name, value)| [json_of_theirs(name), json_of_theirs(value)]).collect()
        }
        _ => None,
    }
}
