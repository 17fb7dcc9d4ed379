//! What `resil-servers` promises to tests in other languages. No module needed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use resil_harness::eventually;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

/// A test in another language, as far as `resil-servers` can tell.
struct Asker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Asker {
    fn new() -> Self {
        Self::with_folders_in(&std::env::temp_dir())
    }

    fn with_folders_in(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_resil-servers"))
            .env("TMPDIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn ask(&mut self, request: Value) -> Value {
        self.ask_line(request.to_string().as_bytes())
    }

    fn ask_line(&mut self, line: &[u8]) -> Value {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).unwrap();
        let mut reply = String::new();
        self.output.read_line(&mut reply).unwrap();
        serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{reply:?}: {error}"))
    }

    fn start(&mut self) -> Value {
        let reply = self.ask(json!({"do": "start", "options": {"without_module": true}}));
        assert!(reply["id"].is_u64(), "{reply}");
        reply
    }

    fn say(&mut self, id: &Value, words: &[&str]) -> Value {
        self.ask(json!({"do": "say", "id": id, "words": words}))
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes two integers, and the child is not reaped yet.
        unsafe { libc::kill(i32::try_from(self.child.id()).unwrap(), signal) };
    }

    fn close(mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().unwrap()
    }
}

/// A dead process that nobody collected is as good as gone: in a container there may be no one to do it.
fn process_exists(pid: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| !text.contains(") Z "))
}

fn error_of(reply: &Value) -> &str {
    reply["error"].as_str().unwrap_or_else(|| panic!("expected an error: {reply}"))
}

#[test]
fn a_started_server_is_there_and_ends_with_input() {
    let folder = tempfile::tempdir().unwrap();
    let mut asker = Asker::with_folders_in(folder.path());
    let server = asker.start();
    assert_eq!(server["url"], json!(format!("redis://127.0.0.1:{}", server["port"])));
    let mut connection = redis::Client::open(server["url"].as_str().unwrap()).unwrap().get_connection().unwrap();
    let info: String = redis::cmd("INFO").arg("server").query(&mut connection).unwrap();
    assert!(info.contains(&format!("process_id:{}\r\n", server["pid"])));
    assert!(asker.close().success());
    assert!(!process_exists(&server["pid"]), "the server outlived the input");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the server's folder was left behind");
}

#[test]
fn replies_come_as_json_of_the_same_shape() {
    let mut asker = Asker::new();
    let id = &asker.start()["id"];
    assert_eq!(asker.say(id, &["SET", "text", "grün"]), json!({"reply": "OK"}));
    assert_eq!(asker.say(id, &["GET", "text"]), json!({"reply": "grün"}));
    assert_eq!(asker.say(id, &["GET", "nothing"]), json!({"reply": null}));
    assert_eq!(asker.say(id, &["INCRBY", "n", "41"]), json!({"reply": 41}));
    assert_eq!(asker.ask(json!({"do": "say", "id": id, "words": ["INCRBY", "n", 1]})), json!({"reply": 42}));
    assert_eq!(asker.say(id, &["MGET", "text", "nothing", "n"]), json!({"reply": ["grün", null, "42"]}));
    let bytes = json!({"base64": "/wD+"});
    assert_eq!(asker.ask(json!({"do": "say", "id": id, "words": ["SET", "b", bytes]})), json!({"reply": "OK"}));
    assert_eq!(asker.say(id, &["GET", "b"]), json!({"reply": bytes}));
    assert_eq!(asker.say(id, &["HSET", "h", "a", "1"]), json!({"reply": 1}));
    let map = asker.ask(json!({"do": "say", "id": id, "words": ["HGETALL", "h"], "resp3": true}));
    assert_eq!(map, json!({"reply": {"a": "1"}}));
}

#[test]
fn a_servers_refusal_is_a_refusal_not_an_error() {
    let mut asker = Asker::new();
    let id = &asker.start()["id"];
    asker.say(id, &["SET", "text", "x"]);
    let refusal = asker.say(id, &["LPUSH", "text", "x"]);
    assert!(refusal["refusal"].as_str().unwrap().starts_with("WRONGTYPE "), "{refusal}");
}

#[test]
fn options_reach_the_server() {
    let mut asker = Asker::new();
    let object = json!({"maxmemory-policy": "allkeys-lru", "timeout": "77"});
    let pairs = json!([["timeout", "1"], ["timeout", "77"]]);
    for config in [object, pairs] {
        let id = &asker.ask(json!({"do": "start", "options": {"without_module": true, "config": config}}))["id"];
        assert_eq!(asker.say(id, &["CONFIG", "GET", "timeout"]), json!({"reply": ["timeout", "77"]}));
    }
}

#[test]
fn a_killed_server_returns_on_its_port_with_data() {
    let mut asker = Asker::new();
    let config = json!({"appendonly": "yes", "appendfsync": "always"});
    let before = asker.ask(json!({"do": "start", "options": {"without_module": true, "config": config}}));
    let id = &before["id"];
    asker.say(id, &["SET", "kept", "1"]);
    assert_eq!(asker.ask(json!({"do": "kill", "id": id})), json!({"id": id}));
    assert!(!process_exists(&before["pid"]));
    assert_eq!(error_of(&asker.say(id, &["PING"])), format!("server {id} does not run"));
    let after = asker.ask(json!({"do": "restart", "id": id}));
    assert_eq!(after["url"], before["url"]);
    assert_ne!(after["pid"], before["pid"]);
    assert_eq!(asker.say(id, &["GET", "kept"]), json!({"reply": "1"}));
    // One that still runs is killed first.
    let again = asker.ask(json!({"do": "restart", "id": id}));
    assert_eq!(again["url"], before["url"]);
    assert_ne!(again["pid"], after["pid"]);
    assert_eq!(asker.say(id, &["GET", "kept"]), json!({"reply": "1"}));
}

#[test]
fn an_orderly_restart_keeps_what_is_saved() {
    let mut asker = Asker::new();
    let options = json!({"without_module": true, "config": {"save": "3600 1"}});
    let before = asker.ask(json!({"do": "start", "options": options}));
    asker.say(&before["id"], &["SET", "kept", "1"]);
    let after = asker.ask(json!({"do": "restart_orderly", "id": before["id"]}));
    assert_eq!(after["url"], before["url"]);
    assert_eq!(asker.say(&before["id"], &["GET", "kept"]), json!({"reply": "1"}));
}

#[test]
fn a_paused_server_replies_nobody_until_it_is_resumed() {
    let mut asker = Asker::new();
    let server = asker.start();
    let id = &server["id"];
    let client = redis::Client::open(server["url"].as_str().unwrap()).unwrap();
    let mut connection = client.get_connection().unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    asker.ask(json!({"do": "pause", "id": id}));
    assert!(redis::cmd("PING").query::<String>(&mut connection).is_err());
    asker.ask(json!({"do": "resume", "id": id}));
    assert_eq!(asker.say(id, &["PING"]), json!({"reply": "PONG"}));
}

#[test]
fn a_replica_is_in_step_and_can_be_awaited_again() {
    let mut asker = Asker::new();
    let primary = asker.start()["id"].clone();
    asker.say(&primary, &["SET", "old", "1"]);
    let replica = asker.ask(json!({"do": "replica", "of": primary, "options": {"without_module": true}}))["id"].clone();
    assert_eq!(asker.say(&replica, &["GET", "old"]), json!({"reply": "1"}));
    asker.say(&primary, &["SET", "new", "2"]);
    assert_eq!(asker.ask(json!({"do": "sync", "id": primary, "replica": replica})), json!({"id": primary}));
    assert_eq!(asker.say(&replica, &["GET", "new"]), json!({"reply": "2"}));
}

#[test]
fn a_stopped_server_is_gone_and_its_number_unknown() {
    let mut asker = Asker::new();
    let (server, other) = (asker.start(), asker.start());
    let id = &server["id"];
    assert_eq!(asker.ask(json!({"do": "stop", "id": id})), json!({"id": id}));
    assert!(!process_exists(&server["pid"]));
    assert_eq!(error_of(&asker.say(id, &["PING"])), format!("there is no server {id}"));
    assert_eq!(asker.say(&other["id"], &["PING"]), json!({"reply": "PONG"}), "another one must not notice");
}

#[test]
fn a_bad_request_gets_an_error_the_next_a_reply() {
    let mut asker = Asker::new();
    for (line, part) in [
        (&br#"{"do":"dance"}"#[..], "dance"),
        (b"not json", "expected"),
        (b"\xff\xfe{", "expected"),
        (b"[]", "`do`"),
        (br#"{"id":1}"#, "`do`"),
        (br#"{"do":"kill"}"#, "`id`"),
        (br#"{"do":"kill","id":"one"}"#, "u64"),
        (br#"{"do":"kill","id":-1}"#, "-1"),
        (br#"{"do":"kill","id":7}"#, "there is no server 7"),
        (br#"{"do":"kill","id":1,"hard":true}"#, "hard"),
        (br#"{"do":"start","options":{"modul_args":[]}}"#, "modul_args"),
        (br#"{"do":"start","options":{"config":{"port":1}}}"#, "config is an object"),
        (br#"{"do":"start","options":{"flavor":"nosuch-1.0","without_module":true}}"#, "nosuch-1.0"),
        (br#"{"do":"start","options":{"without_module":true,"config":{"bogus":"x"}}}"#, "ended with"),
    ] {
        let reply = asker.ask_line(line);
        assert!(error_of(&reply).contains(part), "{reply}, not about {part:?}");
    }
    let id = &asker.start()["id"];
    assert_eq!(error_of(&asker.say(id, &[])), "words are empty");
    let words = json!([{"base64": "%"}]);
    assert!(error_of(&asker.ask(json!({"do": "say", "id": id, "words": words}))).contains("base64"));
    assert!(error_of(&asker.ask(json!({"do": "say", "id": id, "words": [["GET"]]}))).contains("a word is"));
    assert_eq!(asker.say(id, &["PING"]), json!({"reply": "PONG"}));
    assert!(asker.close().success());
}

#[test]
fn the_servers_die_with_a_killed_starter() {
    // A killed one cannot remove the folders of its servers.
    let left_behind = tempfile::tempdir().unwrap();
    let mut asker = Asker::with_folders_in(left_behind.path());
    let pids = [asker.start()["pid"].clone(), asker.start()["pid"].clone()];
    asker.signal(libc::SIGKILL);
    asker.child.wait().unwrap();
    eventually("the orphaned servers are gone", SOON, || !pids.iter().any(process_exists));
}

#[test]
fn a_termination_ends_the_servers_and_removes_their_folders() {
    let folder = tempfile::tempdir().unwrap();
    let mut asker = Asker::with_folders_in(folder.path());
    let pid = asker.start()["pid"].clone();
    asker.signal(libc::SIGTERM);
    assert!(asker.child.wait().unwrap().success());
    assert!(!process_exists(&pid));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_unnoticed_crash_is_reported_by_the_exit_code() {
    let mut asker = Asker::new();
    let server = asker.start();
    let pid = i32::try_from(server["pid"].as_i64().unwrap()).unwrap();
    // SAFETY: kill takes two integers, and the server is a child of a process that did not reap it.
    unsafe { libc::kill(pid, libc::SIGSEGV) };
    eventually("the server is gone", SOON, || {
        asker.say(&server["id"], &["PING"])["error"].as_str().is_some_and(|text| text.ends_with("does not run"))
    });
    assert_eq!(asker.close().code(), Some(1));
}
