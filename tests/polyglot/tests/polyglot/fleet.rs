//! A server and the processes that share it, heard one message at a time.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::Value;
use resil_harness::{Options, Server, eventually, ok};
use serde_json::{Value as Json, json};

use crate::worker::{LANGUAGES, Language, Worker};

/// For whatever has to happen; nothing in these tests takes a tenth of it.
const BOUND: Duration = Duration::from_secs(30);

pub struct Fleet {
    pub server: Server,
    workers: Vec<Worker>,
    heard: Receiver<(usize, Json)>,
    /// Heard, and not yet handed on.
    kept: VecDeque<(usize, Heard)>,
    last_tag: u64,
}

/// One asking of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(u64);

#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// With what it heard: a fence, an attempt.
    Inside(Tag, Json),
    /// With the value it got.
    Done(Tag, Json),
    /// With the code; `OWN` is its own error.
    Failed(Tag, String),
}

impl Fleet {
    /// `each` processes of every language, languages in turn.
    pub fn of_each(each: usize) -> Self {
        Self::of((0..each).flat_map(|_| LANGUAGES).collect())
    }

    pub fn of(languages: Vec<Language>) -> Self {
        let server = Server::start(Options::default());
        let (sender, heard) = mpsc::channel();
        let start = |(number, language)| Worker::start(language, &server.url(), number, sender.clone());
        let workers: Vec<Worker> = languages.into_iter().enumerate().map(start).collect();
        let mut ready = 0;
        while ready < workers.len() {
            let (number, message) = heard.recv_timeout(BOUND).unwrap_or_else(|_| panic!("only {ready} are ready"));
            let language = format!("{:?}", workers[number].language).to_lowercase();
            assert_eq!(message, json!({ "ready": language }));
            ready += 1;
        }
        Self { server, workers, heard, kept: VecDeque::new(), last_tag: 0 }
    }

    pub fn size(&self) -> usize {
        self.workers.len()
    }

    pub fn language(&self, worker: usize) -> Language {
        self.workers[worker].language
    }

    /// The worker asks; what comes of it is heard later.
    pub fn ask(&mut self, worker: usize, what: &Json) -> Tag {
        self.last_tag += 1;
        let mut line = what.clone();
        line["tag"] = self.last_tag.into();
        self.workers[worker].tell(&line);
        Tag(self.last_tag)
    }

    pub fn tell(&mut self, worker: usize, tag: Tag, word: &Json) {
        self.workers[worker].tell(&json!({ "tag": tag.0, "word": word }));
    }

    /// `STOP` or `CONT`.
    pub fn signal(&self, worker: usize, name: &str) {
        self.workers[worker].signal(name);
    }

    pub fn kill(&mut self, worker: usize) {
        self.workers[worker].kill();
    }

    /// The next message of anybody.
    #[track_caller]
    pub fn hear(&mut self) -> (usize, Heard) {
        let next = self.kept.pop_front().or_else(|| self.hear_within(BOUND));
        next.unwrap_or_else(|| panic!("nobody said anything for {BOUND:?}"))
    }

    /// Whether somebody comes inside within `time`. What else is said meanwhile is heard later.
    pub fn somebody_enters_within(&mut self, time: Duration) -> Option<(usize, Heard)> {
        let deadline = Instant::now() + time;
        while let Some(message) = self.hear_within(deadline.saturating_duration_since(Instant::now())) {
            if matches!(message.1, Heard::Inside(..)) {
                return Some(message);
            }
            self.kept.push_back(message);
        }
        None
    }

    /// The next message of anybody, if there is one within `time`.
    pub fn hear_within(&mut self, time: Duration) -> Option<(usize, Heard)> {
        let (worker, message) = self.heard.recv_timeout(time).ok()?;
        let tag = Tag(message["tag"].as_u64().unwrap_or_else(|| panic!("no tag: {message}")));
        let heard = if let Some(seen) = message.get("inside") {
            Heard::Inside(tag, seen.clone())
        } else if let Some(done) = message.get("done") {
            Heard::Done(tag, done["value"].clone())
        } else {
            let code = message["failed"].as_str().unwrap_or_else(|| panic!("an odd message: {message}"));
            Heard::Failed(tag, code.to_owned())
        };
        Some((worker, heard))
    }

    /// The next message, which says that `tag` is inside.
    #[track_caller]
    pub fn hear_inside(&mut self, tag: Tag) -> Json {
        match self.hear() {
            (_, Heard::Inside(who, seen)) if who == tag => seen,
            other => panic!("{tag:?} is not the next inside: {other:?}"),
        }
    }

    /// Waits until a field of an INFO reply has this value.
    pub fn until_info(&self, command: &str, key: &str, field: &str, wanted: i64) {
        let mut connection = self.server.connect_resp3();
        eventually(&format!("{command} INFO {key} has {field} {wanted}"), BOUND, || {
            let Value::Map(fields) = ok(&mut connection, &[command, "INFO", key]) else { return false };
            fields.contains(&(Value::BulkString(field.into()), Value::Int(wanted)))
                || fields.contains(&(Value::SimpleString(field.into()), Value::Int(wanted)))
        });
    }
}

/// Every command the server gets, as MONITOR shows it.
pub struct Monitor {
    stream: TcpStream,
    lines: JoinHandle<Vec<String>>,
}

impl Monitor {
    pub fn start(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        let mut reader = BufReader::new(stream.try_clone().expect("the same connection"));
        (&stream).write_all(b"MONITOR\r\n").expect("asked");
        let mut first = String::new();
        reader.read_line(&mut first).expect("answered");
        assert_eq!(first, "+OK\r\n");
        let lines = thread::spawn(move || reader.lines().map_while(Result::ok).collect());
        Self { stream, lines }
    }

    /// All that was seen until now.
    pub fn stop(self) -> Vec<String> {
        // What was said before is on its way.
        thread::sleep(Duration::from_millis(300));
        self.stream.shutdown(Shutdown::Both).expect("open until now");
        self.lines.join().expect("no panic")
    }
}

/// Chance whose seed a failing test shows.
pub fn seeded_chance() -> fastrand::Rng {
    let seed = std::env::var("RESIL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("RESIL_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
