//! `make demo`: a server of its own, every command at work, and each reply in plain words.
//!
//! Needs the module (`make module`) and ends by itself.

use std::thread::JoinHandle;
use std::time::Duration;

use redis::{Connection, RedisResult, Value};
use resil_harness::{Server, eventually, ok, reply};

mod tour;

use tour::TOUR;

const WIDTH: usize = 100;
/// Lines shown of a long reply.
const LINES_SHOWN: usize = 8;

fn main() {
    let server = Server::fresh();
    let mut connection = server.connect();
    println!("Resil on {}, {} with {}", server.url(), server.flavor().name(), loaded(&mut connection));
    let mut known = Known::default();
    let mut others = Vec::new();
    for (text, call, meanings) in TOUR {
        if let Some(title) = text.strip_prefix("# ") {
            println!("\n{title}\n{}", "=".repeat(title.len()));
            continue;
        }
        if let Some(ms) = call.strip_prefix('(').and_then(|call| call.strip_suffix(')')) {
            println!("\n{}\n  ... {ms} ms", wrapped(text));
            std::thread::sleep(Duration::from_millis(ms.parse().unwrap_or(0)));
            continue;
        }
        if let Some(waiting) = call.strip_prefix("& ") {
            println!("\n{}\n  > {waiting}\n  (waits)", wrapped(text));
            others.push(wait_elsewhere(&server, waiting));
            continue;
        }
        if *call == "&" {
            println!("\n{}", wrapped(text));
            if let Some(Ok(Ok(value))) = others.pop().map(JoinHandle::join) {
                show(&value, meanings);
            }
            continue;
        }
        let (call, is_refused) = call.strip_prefix("! ").map_or((*call, false), |call| (call, true));
        let call = known.filled_in(call);
        let value = ask(&mut connection, text, &call, meanings);
        assert_eq!(value.is_none(), is_refused, "{call}");
        if let Some(value) = value {
            known.learn(&call, &value);
        }
    }
    show_the_rest(&mut connection);
    println!("\nEvery argument and reply: docs/commands/README.md. A server to play with: make run");
}

/// Calls, and shows the call with its reply or its error.
fn ask(connection: &mut Connection, text: &str, call: &str, meanings: &[&str]) -> Option<Value> {
    println!("\n{}\n{}", wrapped(text), cut(&format!("  > {call}")));
    let value = reply(connection, &call.split(' ').collect::<Vec<_>>());
    match &value {
        Ok(value) => show(value, meanings),
        Err(error) => {
            let line = format!("(error) {} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default());
            println!("{}", indented(&line));
        }
    }
    value.ok()
}

/// Commands that the tour does not have, on an empty server each: with the example of its page, or else with its summary.
fn show_the_rest(connection: &mut Connection) {
    println!("\nThe other commands\n==================");
    for (name, page) in resil_tests::pages() {
        let name = name.replace('|', " ");
        let is_shown = TOUR.iter().any(|(_, call, _)| call.trim_start_matches(['&', '!', ' ']).starts_with(&name));
        if is_shown || name.starts_with("RES._") {
            continue;
        }
        let summary = page["summary"].as_str().unwrap_or_default();
        let Some(call) = page["example"]["call"].as_str() else {
            println!("\n{}\n  > {name} ...", wrapped(summary));
            continue;
        };
        ok(connection, &["FLUSHALL"]);
        assert!(ask(connection, summary, call, &[]).is_some(), "{call}");
    }
}

/// What the server has handed out, for the calls that give it back: `$permit`, `$fence` and `$ticket`.
#[derive(Default)]
struct Known {
    permit: String,
    fence: String,
    ticket: String,
}

impl Known {
    fn filled_in(&self, call: &str) -> String {
        call.replace("$permit", &self.permit).replace("$fence", &self.fence).replace("$ticket", &self.ticket)
    }

    fn learn(&mut self, call: &str, reply: &Value) {
        let Value::Array(elements) = reply else { return };
        if call.starts_with("RES.BREAKER ADMIT") {
            self.permit = elements.get(2).map(plain).unwrap_or_default();
        }
        if call.starts_with("RES.GUARD ENTER") {
            self.ticket = elements.get(1).map(plain).unwrap_or_default();
        }
        // The fence of the first entry that was taken.
        if call.starts_with("RES.DLQ TAKE")
            && let Some(Value::Array(entries)) = elements.get(3)
            && let Some(Value::Array(fields)) = entries.first()
        {
            self.fence = fields.get(1).map(plain).unwrap_or_default();
        }
    }
}

/// Calls on a connection of its own, and leaves it time to get into the queue.
fn wait_elsewhere(server: &Server, call: &str) -> JoinHandle<RedisResult<Value>> {
    let mut connection = server.connect();
    let words: Vec<String> = call.split(' ').map(str::to_owned).collect();
    let waiting = std::thread::spawn(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        reply(&mut connection, &words)
    });
    let mut watching = server.connect();
    eventually("it waits", Duration::from_secs(10), || {
        let report: String = redis::from_redis_value(ok(&mut watching, &["INFO", "resil"])).unwrap_or_default();
        report.contains("resil_blocked_waiters:1")
    });
    waiting
}

/// The module's name and version as the server has it.
fn loaded(connection: &mut Connection) -> String {
    let modules = format!("{:?}", ok(connection, &["MODULE", "LIST"]));
    if modules.contains("resil") { "the module resil".into() } else { "no module".into() }
}

/// One line per element, each with its meaning; long lists are cut short.
fn show(value: &Value, meanings: &[&str]) {
    let elements = match value {
        Value::Array(elements) => elements.as_slice(),
        Value::BulkString(text) => return show_lines(String::from_utf8_lossy(text).lines()),
        single => std::slice::from_ref(single),
    };
    if meanings.is_empty() {
        let flat: Vec<String> = elements.iter().map(plain).collect();
        // A map of an older protocol: name and value in turn.
        let is_text = elements.iter().all(|element| matches!(element, Value::BulkString(_)));
        let lines: Vec<String> = if is_text { flat } else { flat.chunks(2).map(|pair| pair.join(": ")).collect() };
        return show_lines(lines.iter().map(String::as_str));
    }
    for (index, element) in elements.iter().enumerate() {
        let meaning = meanings.get(index).copied().unwrap_or_default();
        match element {
            Value::Array(rows) => {
                for (row, numbers) in rows.iter().enumerate() {
                    let place = if row == 0 { format!("{})", index + 1) } else { String::new() };
                    show_element(&place, &plain(numbers), meaning);
                }
            }
            _ => show_element(&format!("{})", index + 1), &plain(element), meaning),
        }
    }
}

/// An element beside its meaning, or below it if it is long.
fn show_element(place: &str, element: &str, meaning: &str) {
    let line = format!("  {place:<3} {element:<24} {meaning}");
    if line.chars().count() <= WIDTH {
        println!("{}", line.trim_end());
    } else {
        println!("  {place:<3} {meaning}\n{}", indented(element));
    }
}

fn show_lines<'a>(lines: impl Iterator<Item = &'a str>) {
    let lines: Vec<&str> = lines.map(str::trim_end).filter(|line| !line.is_empty()).collect();
    // One line more takes no more room than saying so.
    let shown = if lines.len() <= LINES_SHOWN + 1 { lines.len() } else { LINES_SHOWN };
    for line in &lines[..shown] {
        println!("{}", indented(line));
    }
    if lines.len() > shown {
        println!("      ... and {} lines more", lines.len() - shown);
    }
}

/// A value on one line.
fn plain(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Nil => "(nil)".into(),
        Value::Array(elements) => elements.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}

fn indented(line: &str) -> String {
    cut(&format!("      {line}"))
}

/// At most [`WIDTH`] characters of a queue.
fn cut(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let shown: String = line.chars().take(WIDTH - 3).collect();
    format!("{shown}...")
}

/// Text of at most [`WIDTH`] characters a line.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if line.len() + word.len() + 1 > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
