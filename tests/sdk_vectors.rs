//! Every conformance vector through the SDK: parsed to a typed command, answered by its backend, written as a reply.
//!
//! `memory://` is asked at the instants of the vectors themselves. A server's clock is driven beside the client's
//! connection.

use std::collections::BTreeSet;

use resil::testing::{raw, raw_at};
use resil::{Client, Error};
use resil_harness::{Options, Server, ok};
use resil_tests::vectors::{Names, Vector, all};
use resil_wire::reply::Value;

/// 2100: whatever a vector stores, no clock of this machine expires any of it meanwhile.
const BASE_US: i64 = 4_102_444_800_000_000;

/// What runs a call at an instant and gives the reply as JSON, or the error's text.
type Runner<'a> = &'a mut dyn FnMut(&[Vec<u8>], i64) -> Result<serde_json::Value, String>;

/// Plays every vector, and names all that differ at once.
fn play_all(runner: Runner<'_>) {
    let vectors = all();
    let mut failures = Vec::new();
    let mut played = BTreeSet::new();
    let mut steps = 0;
    for (index, (file, vector)) in vectors.iter().enumerate() {
        assert!(vector.needs.is_empty(), "{file}: {}: needs {:?}, which nobody has", vector.name, vector.needs);
        match play(vector, &format!("sdk-vector:{index}:"), runner) {
            Ok(()) => steps += vector.steps.len(),
            Err(failure) => failures.push(format!("{file}: {}\n{failure}", vector.name)),
        }
        assert!(!vector.steps.is_empty(), "{file}: {}: says nothing", vector.name);
        played.insert((file, &vector.name));
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), vectors.len(), failures.join("\n"));
    assert_eq!(played.len(), vectors.len(), "every vector was played");
    assert!(played.len() >= 160, "only {} vectors were found", played.len());
    println!("{} vectors, {steps} steps", played.len());
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

#[tokio::test]
async fn every_vector_holds_in_memory() {
    let client = resil::connect("memory://").await.expect("memory is always there");
    play_all(&mut |words, now_us| told(raw_at(&client, words, now_us)));
}

#[test]
fn every_vector_holds_on_a_server() {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = format!("redis://127.0.0.1:{}", server.port());
    let client: Client = runtime.block_on(resil::connect(&url)).expect("the server is there");
    let mut driver = server.connect();
    play_all(&mut |words, now_us| {
        ok(&mut driver, &["RES._CLOCK", &now_us.to_string()]);
        told(runtime.block_on(raw(&client, words)))
    });
}

fn told(got: Result<Value, Error>) -> Result<serde_json::Value, String> {
    let value = got.map_err(|error| format!("{} {error}", error.code().text()))?;
    json(&value).ok_or_else(|| format!("a reply of another kind: {value:?}"))
}

fn json(value: &Value) -> Option<serde_json::Value> {
    match value {
        Value::Integer(number) => Some((*number).into()),
        Value::Text(bytes) => Some(String::from_utf8_lossy(bytes).into()),
        Value::Null => Some(serde_json::Value::Null),
        Value::Array(elements) => elements.iter().map(json).collect(),
        Value::Map(_) => None,
    }
}
