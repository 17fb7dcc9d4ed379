//! What only the ledger of dead letters has: calls beside a stream's ([`calls`]) and beside BullMQ's ([`bullmq`]), and a ledger of a
//! million entries ([`million`]): its memory, its longest calls, what a neighbour notices ([`neighbour`]), its snapshots.

mod bullmq;
mod calls;
mod million;
mod neighbour;

use redis::{Connection, ConnectionLike, Value};
use resil_harness::{Options, Server};

use crate::bars::{Bar, Verdict};

/// What selects its parts, as a row's name would.
pub const CALLS: &str = "ledger: calls";
pub const BULLMQ: &str = "ledger: bullmq";
pub const MILLION: &str = "ledger: million";
pub const NAMES: [&str; 3] = [CALLS, BULLMQ, MILLION];

pub struct Ledger {
    calls: Option<calls::Calls>,
    bullmq: Option<Result<bullmq::Beside, String>>,
    million: Option<million::Million>,
}

/// `None` if none of the parts is wanted.
pub fn measure(quick: bool, is_wanted: impl Fn(&str) -> bool) -> Option<Ledger> {
    NAMES.iter().any(|name| is_wanted(name)).then(|| Ledger {
        calls: is_wanted(CALLS).then(|| calls::measure(quick)),
        bullmq: is_wanted(BULLMQ).then(|| bullmq::measure(quick)),
        million: is_wanted(MILLION).then(|| million::measure(quick)),
    })
}

impl Ledger {
    pub fn print(&self) {
        if let Some(calls) = &self.calls {
            calls.print();
        }
        match &self.bullmq {
            Some(Ok(beside)) => beside.print(),
            Some(Err(reason)) => println!("\nBullMQ was left out: {reason}"),
            None => {}
        }
        if let Some(million) = &self.million {
            million.print();
        }
    }

    pub fn bars(&self) -> Vec<Bar> {
        let calls = self.calls.iter().flat_map(calls::Calls::bars);
        let beside = self.bullmq.iter().map(bullmq::bar);
        let million = self.million.iter().flat_map(million::Million::bars);
        calls.chain(beside).chain(million).collect()
    }
}

/// A server whose ledgers can have a million entries of 500 bytes, and a few more.
fn with_large_ledgers() -> Options {
    let limits = ["max-ledger-entries", "1100000", "max-ledger-bytes", "4000000000"];
    Options::default().module_args(limits).module_args(["test-clock", "yes"])
}

/// A message of a source: 500 bytes of JSON, half of it different from one to the next.
const PAYLOAD_BYTES: usize = 500;
const ERROR: &str = "timeout after 3000 ms";
const TYPES: usize = 20;

fn id(number: usize) -> String {
    format!("orders/{number:010}")
}

fn kind(number: usize) -> String {
    format!("order.type-{:02}", number % TYPES)
}

/// Bytes of a message that are the caller's own: id, payload, type and error text.
fn own_bytes() -> usize {
    id(0).len() + PAYLOAD_BYTES + kind(0).len() + ERROR.len()
}

fn payload(number: usize) -> String {
    let mut state = number as u64;
    let mut text = String::with_capacity(PAYLOAD_BYTES + 64);
    text.push('{');
    while text.len() < PAYLOAD_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text += &format!("\"customer\":\"{state:016x}\",\"amount\":{},", (state >> 33) % 10_000);
    }
    text.truncate(PAYLOAD_BYTES - 1);
    text.push('}');
    text
}

fn fail(number: usize, last: Option<&str>) -> Vec<u8> {
    let (id, kind, payload) = (id(number), kind(number), payload(number));
    let words = ["RES.DLQ", "FAIL", "ledger", &id, "ERROR", ERROR, "PAYLOAD", &payload, "TYPE", &kind];
    packed(words.into_iter().chain(last))
}

fn xadd(number: usize) -> Vec<u8> {
    let (id, kind, payload) = (id(number), kind(number), payload(number));
    packed(["XADD", "stream", "*", "id", &id, "error", ERROR, "payload", &payload, "type", &kind])
}

fn packed<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.get_packed_command()
}

/// The replies to these commands, sent so many at once. An error ends the run.
fn send(connection: &mut Connection, commands: impl Iterator<Item = Vec<u8>>, at_once: usize) -> Vec<Value> {
    let mut replies = Vec::new();
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for command in commands.by_ref().take(at_once) {
            bytes.extend_from_slice(&command);
            count += 1;
        }
        let said = connection.req_packed_commands(&bytes, 0, count).expect("the server replies");
        replies.extend(said.into_iter().map(|value| value.extract_error().expect("a reply that is no error")));
    }
    replies
}

fn text_of(value: &Value) -> String {
    redis::from_redis_value(value.clone()).expect("a text or a number")
}

fn list_of(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        other => panic!("a list was expected, not {other:?}"),
    }
}

fn connection(server: &Server) -> Connection {
    let connection = server.connect();
    connection.set_read_timeout(None).expect("a TCP socket");
    connection
}

fn bar(promise: &'static str, measured: String, verdict: Verdict) -> Bar {
    Bar { promise, measured: Some(measured), verdict }
}
