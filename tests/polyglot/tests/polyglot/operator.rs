//! An operator's walk: a fleet of three languages opens a breaker, holds a lock with waiters and is denied a key. Whatever the operator asks
//! tells the same story: `RES.LIST`, `RES.TOP`, `resil … --json`, `/metrics`, events, and the logs, spans and counts of each process, made with the
//! tools of its language. What the operator forces, all three obey.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use resil_harness::{eventually, ok, reply};
use serde_json::{Value as Json, json};

use crate::fleet::{Fleet, Heard, Tag};
use crate::worker::Language;

const BOUND: Duration = Duration::from_secs(20);
/// What a force by the operator may take to reach every process.
const OBEYED_WITHIN: Duration = Duration::from_secs(1);

/// What has happened, as every witness has to tell it.
struct Story {
    breaker: &'static str,
    lock: &'static str,
    holder: String,
    waiters: i64,
    denied_key: &'static str,
}

fn resil() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_polyglot-worker")).with_file_name("resil");
    assert!(path.exists(), "{} is not there: cargo build --workspace --all-features --bin resil", path.display());
    path
}

fn cli(fleet: &Fleet, args: &[&str]) -> Json {
    let ran = Command::new(resil())
        .args(args)
        .arg("--json")
        .env("RESIL_URL", fleet.server.url())
        .output()
        .expect("resil runs");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "resil {args:?}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

struct Exporter {
    process: Child,
    address: String,
}

impl Exporter {
    fn start(fleet: &Fleet) -> Self {
        let mut command = Command::new(resil());
        command.args(["exporter", "--listen", "127.0.0.1:0", "--keys"]).env("RESIL_URL", fleet.server.url());
        let mut process = command.stderr(Stdio::piped()).spawn().expect("resil runs");
        let mut line = String::new();
        BufReader::new(process.stderr.take().expect("piped")).read_line(&mut line).expect("it says where it listens");
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
        Self { process, address }
    }

    fn page(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(BOUND)).expect("a bound");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("answered");
        page
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The trace that a worker's call belongs to.
fn trace_of(worker: usize) -> String {
    format!("{:032x}", 0xabc0 + worker)
}

/// Three workers fail, one of each language, each for a request with a trace of its own; the third failure opens the breaker.
fn open_the_breaker(fleet: &mut Fleet, ask: &Json) {
    let calls: Vec<(usize, Tag)> = (0..3)
        .map(|worker| {
            let mut ask = ask.clone();
            ask["traceparent"] = json!(format!("00-{}-00f067aa0ba902b7-01", trace_of(worker)));
            let tag = fleet.ask(worker, &ask);
            fleet.hear_inside(tag);
            (worker, tag)
        })
        .collect();
    for (worker, tag) in calls {
        fleet.tell(worker, tag, &json!({ "fail": true }));
        assert!(matches!(fleet.hear(), (_, Heard::Failed(_, code)) if code == "OWN"));
    }
}

fn look(fleet: &Fleet, story: &Story, exporter: &Exporter) {
    let mut connection = fleet.server.connect_resp3();
    let list = |connection: &mut redis::Connection, words: &[&str]| format!("{:?}", ok(connection, words));
    let breakers = list(&mut connection, &["RES.LIST", "BREAKER", "STATE", "open"]);
    assert!(breakers.contains(story.breaker), "{breakers}");
    let locks = list(&mut connection, &["RES.LIST", "LOCK", "STATE", "contended"]);
    assert!(locks.contains(story.lock) && locks.contains(&story.holder), "{locks}");
    let denied = list(&mut connection, &["RES.TOP", "DENIED"]);
    assert!(denied.contains(story.denied_key), "{denied}");
    let waiting = list(&mut connection, &["RES.TOP", "WAITING"]);
    assert!(waiting.contains(story.lock), "{waiting}");

    let top = cli(fleet, &["top"]);
    assert_eq!(
        (&top["breakers"][0]["name"], &top["breakers"][0]["state"]),
        (&json!(story.breaker), &json!("open")),
        "{top}"
    );
    assert_eq!(
        (&top["locks"][0]["name"], &top["locks"][0]["waiters"]),
        (&json!(story.lock), &json!(story.waiters)),
        "{top}"
    );
    assert_eq!(top["denied"][0]["key"], json!(story.denied_key), "{top}");
    assert_eq!(cli(fleet, &["breaker", "show", story.breaker])["state"], json!("open"));
    let lock = cli(fleet, &["lock", "show", story.lock]);
    assert_eq!(
        (&lock["holders"][0]["owner"], &lock["waitersTotal"]),
        (&json!(story.holder), &json!(story.waiters)),
        "{lock}"
    );

    let page = exporter.page();
    for line in [
        format!(
            "resil_breaker_not_closed{{breaker=\"{0}\",key=\"resil:breaker:{{{0}}}\",state=\"open\"}} 1",
            story.breaker
        ),
        format!("resil_lock_waiters {}", story.waiters),
        format!("resil_lock_waiters_by_key{{lock=\"{}\"}} {}", story.lock, story.waiters),
    ] {
        assert!(page.lines().any(|own| own == line), "{line} is not in {page}");
    }
    assert!(page.contains(&format!("resil_denied_by_key_estimate{{key=\"{}\"", story.denied_key)), "{page}");
}

/// One worker fails alone, and opens a breaker of its own: the event leads to its request.
fn open_breakers_of_their_own(fleet: &mut Fleet) {
    let mut connection = fleet.server.connect();
    let mut events = connection.as_pubsub();
    events.subscribe("resil:events").expect("subscribed");
    events.set_read_timeout(Some(BOUND)).expect("a bound");
    for worker in 0..3 {
        let (name, trace) = (format!("own-{worker}"), trace_of(worker));
        let parent = format!("00-{trace}-00f067aa0ba902b7-01");
        let tag = fleet.ask(worker, &json!({ "do": "breaker", "name": name, "consecutive": 1, "traceparent": parent }));
        fleet.hear_inside(tag);
        fleet.tell(worker, tag, &json!({ "fail": true }));
        assert!(matches!(fleet.hear(), (_, Heard::Failed(_, code)) if code == "OWN"));
        let event: String = events.get_message().and_then(|message| message.get_payload()).expect("an event");
        let event: Json = serde_json::from_str(&event).expect("JSON");
        let (key, language) = (json!(format!("resil:breaker:{{{name}}}")), fleet.language(worker));
        assert_eq!((&event["service"], &event["new"]), (&key, &json!("open")), "{language:?}: {event}");
        assert_eq!(event["trace_id"], json!(trace), "{language:?}: {event}");
    }
}

/// What a process says about itself, once it has said what it must: listeners hear of a call after it went on.
fn said(fleet: &mut Fleet, worker: usize, is_complete: impl Fn(&Json) -> bool) -> Json {
    let began = Instant::now();
    loop {
        let tag = fleet.ask(worker, &json!({ "do": "said" }));
        let said = match fleet.hear() {
            (_, Heard::Done(own, said)) if own == tag => said,
            other => panic!("{other:?}"),
        };
        if is_complete(&said) {
            return said;
        }
        assert!(began.elapsed() < BOUND, "{:?} does not say it: {said:#}", fleet.language(worker));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The ended spans of a primitive and a name.
fn spans<'a>(said: &'a Json, span: &str, name: &str) -> Vec<&'a Json> {
    let all = said["spans"].as_array().expect("spans").iter();
    all.filter(|own| own["span"] == span && own["name"] == name).collect()
}

/// The calls of this name that failed. In Node a breaker is a policy of one: its call is a span of the policy, with that of the breaker in it.
fn failed<'a>(said: &'a Json, name: &str) -> Vec<&'a Json> {
    let all = ["resil.breaker", "resil.policy"].into_iter().flat_map(|span| spans(said, span, name));
    all.filter(|span| span["outcome"] == "error").collect()
}

fn count(said: &Json, series: &str) -> u64 {
    said["counts"][series].as_u64().unwrap_or(0)
}

/// Logs, spans and counts of each process.
fn listen(fleet: &mut Fleet, story: &Story) {
    let (mut granted, mut denied) = (0, 0);
    for worker in 0..3 {
        let language = fleet.language(worker);
        let is_open = |line: &Json| {
            let text = line.to_string();
            text.contains(story.breaker) && text.contains("open")
        };
        let said = said(fleet, worker, |said| {
            said["logs"].as_array().is_some_and(|lines| lines.iter().any(is_open))
                && failed(said, story.breaker).len() == 1
                && spans(said, "resil.limiter", "api").len() == 1
        });
        assert!(!spans(&said, "resil.breaker", story.breaker).is_empty(), "{language:?}: {said:#}");
        let call = failed(&said, story.breaker)[0];
        if language != Language::Rust {
            assert_eq!(call["trace_id"], json!(trace_of(worker)), "{language:?}: {call}");
        }
        assert_eq!(count(&said, "resil_opened_total{name=bank}"), 1, "{language:?}: {said:#}");

        let limit = spans(&said, "resil.limiter", "api")[0];
        let is_denied = limit["outcome"] == "denied";
        assert_eq!(
            count(&said, "resil_denied_total{name=api,primitive=limiter}"),
            u64::from(is_denied),
            "{language:?}"
        );
        granted += count(&said, "resil_granted_total{name=api,primitive=limiter}");
        denied += u64::from(is_denied);

        // One has the lock, the others wait, which no span has ended for.
        let is_holder = worker == 0;
        let locks = spans(&said, "resil.lock", "default");
        assert_eq!(locks.iter().any(|span| span["outcome"] == "granted"), is_holder, "{language:?}: {locks:?}");
        assert_eq!(
            count(&said, "resil_granted_total{name=default,primitive=lock}"),
            u64::from(is_holder),
            "{language:?}"
        );
        // Keys, and names that are made of them, are the operator's to see, and nobody's to log.
        for hidden in ["user:42", story.lock, &story.holder] {
            assert!(!said.to_string().contains(hidden), "{language:?} says {hidden}: {said:#}");
        }
    }
    assert_eq!((granted, denied), (1, 2), "what the server counted");
}

#[test]
fn an_operator_sees_and_steers_a_fleet_of_three_languages() {
    let mut fleet = Fleet::of_each(1);
    let exporter = Exporter::start(&fleet);
    let breaker = json!({ "do": "breaker", "name": "bank", "consecutive": 3 });
    open_the_breaker(&mut fleet, &breaker);

    // One holds the lock, two wait.
    let lock = json!({ "do": "lock", "name": "stock", "lease_ms": 30_000 });
    let held = fleet.ask(0, &lock);
    fleet.hear_inside(held);
    let waiting: Vec<(usize, Tag)> = (1..3).map(|worker| (worker, fleet.ask(worker, &lock))).collect();
    fleet.until_info("RES.LOCK", "resil:lock:{stock}", "waiters_total", 2);

    // The key has one cell an hour: the first gets it, the others are denied; a service without an SDK asks on and on.
    let limit = json!({ "do": "limit", "name": "api", "key": "user:42" });
    let mut denied = 0;
    for worker in 0..3 {
        fleet.ask(worker, &limit);
        denied += usize::from(matches!(fleet.hear(), (_, Heard::Failed(_, code)) if code == "RATE_LIMIT_EXCEEDED"));
    }
    assert_eq!(denied, 2);
    let mut connection = fleet.server.connect();
    for _ in 0..2_000 {
        reply(&mut connection, &["RES.GCRA", "resil:limit:api:{user:42}", "1", "1h"]).expect("a denial is a reply");
    }

    let holder = cli(&fleet, &["lock", "show", "stock"])["holders"][0]["owner"].as_str().expect("an owner").to_owned();
    let story = Story { breaker: "bank", lock: "stock", holder, waiters: 2, denied_key: "resil:limit:api:{user:42}" };
    look(&fleet, &story, &exporter);
    listen(&mut fleet, &story);

    // Forced closed, all three call again; forced open, none does: each within a second.
    let force = |fleet: &Fleet, to: &str| {
        cli(fleet, &["breaker", "force", "bank", "--to", to, "--for", "10m", "--actor", "ann", "--reason", "the walk"]);
        Instant::now()
    };
    let forced = force(&fleet, "closed");
    for worker in 0..3 {
        until_obeyed(&mut fleet, worker, &breaker, forced, true);
    }
    let forced = force(&fleet, "open");
    for worker in 0..3 {
        until_obeyed(&mut fleet, worker, &breaker, forced, false);
    }
    let shown = cli(&fleet, &["breaker", "show", "bank"]);
    assert_eq!((&shown["state"], &shown["forced"]["by"]), (&json!("forced-open"), &json!("ann")));
    eventually("the page knows", BOUND, || {
        let page = exporter.page();
        page.contains(r#"resil_breaker_not_closed{breaker="bank",key="resil:breaker:{bank}",state="forced-open"} 1"#)
    });

    // Released, the others have it one after the other, and say so.
    fleet.tell(0, held, &json!({ "value": 1 }));
    let mut done = 0;
    while done < 3 {
        match fleet.hear() {
            (worker, Heard::Inside(tag, _)) if waiting.contains(&(worker, tag)) => {
                fleet.tell(worker, tag, &json!({ "value": 1 }));
            }
            (_, Heard::Done(..)) => done += 1,
            other => panic!("{other:?}"),
        }
    }
    for worker in 0..3 {
        said(&mut fleet, worker, |said| count(said, "resil_granted_total{name=default,primitive=lock}") == 1);
    }
    open_breakers_of_their_own(&mut fleet);
}

/// Asks until the worker obeys, which it does in time.
fn until_obeyed(fleet: &mut Fleet, worker: usize, ask: &Json, forced: Instant, admits: bool) {
    loop {
        let asked = Instant::now();
        let tag = fleet.ask(worker, ask);
        let is_admitted = match fleet.hear() {
            (_, Heard::Inside(own, _)) if own == tag => {
                fleet.tell(worker, tag, &json!({ "value": 1 }));
                assert!(matches!(fleet.hear(), (_, Heard::Done(..))));
                true
            }
            (_, Heard::Failed(own, code)) if own == tag && code == "CIRCUIT_OPEN" => false,
            other => panic!("{:?}: {other:?}", fleet.language(worker)),
        };
        if is_admitted == admits {
            return;
        }
        let late = asked.duration_since(forced);
        assert!(late < OBEYED_WITHIN, "{:?} does not obey {late:?} after the force", fleet.language(worker));
    }
}
