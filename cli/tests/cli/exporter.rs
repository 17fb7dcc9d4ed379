//! `/metrics`, by hand and by a real Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use resil_harness::{Server, eventually, ok as ask};
use serde_json::Value;

use crate::scene::{BOUND, Running, ok, resil};

/// An exporter on a free port, and its address.
fn exporter(url: &str, more: &[&str]) -> (Running, String) {
    let running = Running::start(resil(url, &[&["exporter", "--listen", "127.0.0.1:0"], more].concat()));
    let line = running.line("metrics on http://");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    (running, address)
}

fn get(address: &str, path: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(BOUND)).expect("a bound");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n").expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

/// What an exporter of this server shows.
pub fn page_of(url: &str) -> String {
    let (_running, address) = exporter(url, &[]);
    get(&address, "/metrics", "")
}

/// The value of a series.
fn series(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn metrics_tell_what_the_server_counts() {
    let server = Server::fresh();
    let mut connection = server.connect();
    ask(&mut connection, &["RES.BREAKER", "FORCE", "resil:breaker:{payments}", "OPEN"]);
    ask(&mut connection, &["RES.LOCK", "ACQUIRE", "resil:lock:{person-4711}", "w", "30s"]);
    for _ in 0..3 {
        ask(&mut connection, &["RES.GCRA", "k", "1", "1h"]);
    }
    let (_running, address) = exporter(&server.url(), &[]);
    let page = get(&address, "/metrics", "");
    assert!(page.contains("text/plain; version=0.0.4"), "{page}");
    for (name, value) in [
        ("resil_up", 1.0),
        ("resil_gcra_granted_total", 1.0),
        ("resil_gcra_denied_total", 2.0),
        ("resil_breakers{state=\"forced-open\"}", 1.0),
        ("resil_breaker_not_closed{breaker=\"payments\",key=\"resil:breaker:{payments}\",state=\"forced-open\"}", 1.0),
        ("resil_locks", 1.0),
        ("resil_lock_wait_seconds_count", 0.0),
    ] {
        assert_eq!(series(&page, name), Some(value), "{name} in {page}");
    }
    assert!(!page.contains("4711"), "keys of locks are not exported");
    for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = family.split(' ').next().unwrap_or_default();
        assert_eq!(page.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
        assert_eq!(page.matches(&format!("# HELP {name} ")).count(), 1, "{name}");
    }
    assert!(get(&address, "/nosuch", "").starts_with("HTTP/1.1 404"));
    let body = page.split("\r\n\r\n").nth(1).unwrap_or_default();
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    check.stdin.take().expect("piped").write_all(body.as_bytes()).expect("read");
    let checked = check.wait_with_output().expect("it ends");
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
    // A field that the tool has no words for is one that it does not know.
    let wordless: Vec<&str> =
        page.lines().filter(|line| line.starts_with("# HELP") && line.ends_with("of INFO resil.")).collect();
    assert!(wordless.is_empty(), "{wordless:#?}");
}

/// INFO counts it until the breaker is called again; a board must not show for hours what is over.
#[test]
fn a_force_that_has_ended_is_not_counted_any_more() {
    let server = Server::fresh();
    let mut connection = server.connect();
    for number in 0..20 {
        let key = format!("resil:breaker:{{b{number}}}");
        ask(&mut connection, &["RES.BREAKER", "FORCE", &key, "OPEN", "FOR", "300ms"]);
    }
    let (_running, address) = exporter(&server.url(), &[]);
    let count = |state: &str| series(&get(&address, "/metrics", ""), &format!("resil_breakers{{state=\"{state}\"}}"));
    eventually("all are closed", BOUND, || count("closed") == Some(20.0));
    assert_eq!(count("forced-open"), Some(0.0));
}

/// A breaker, a policy's and a key that is neither may be shown by one name: each is a series of its own, with the value that alerts compare.
#[test]
fn things_of_one_name_are_series_of_their_own() {
    let server = Server::fresh();
    let mut connection = server.connect();
    let policy = r#"{"breaker":{"consecutiveFailures":2}}"#;
    ask(&mut connection, &["RES.POLICY", "SET", "resil:policy:{payments}", policy]);
    for key in ["resil:breaker:{payments}", "payments", "resil:policy:{payments}"] {
        ask(&mut connection, &["RES.BREAKER", "FORCE", key, "OPEN"]);
    }
    for key in ["resil:dlq:{orders}", "orders"] {
        ask(&mut connection, &["RES.DLQ", "FAIL", key, "1", "ERROR", "e", "FINAL"]);
    }
    let page = page_of(&server.url());
    for key in ["resil:breaker:{payments}", "payments", "resil:policy:{payments}"] {
        let name = format!("resil_breaker_not_closed{{breaker=\"payments\",key=\"{key}\",state=\"forced-open\"}}");
        assert_eq!(series(&page, &name), Some(1.0), "{name} in {page}");
    }
    for key in ["resil:dlq:{orders}", "orders"] {
        assert_eq!(series(&page, &format!("resil_dlq_dead{{ledger=\"orders\",key=\"{key}\"}}")), Some(1.0), "{page}");
    }
}

#[test]
fn a_scrape_ends_in_time_whatever_the_server_does() {
    let mut server = Server::fresh();
    let (mut running, address) = exporter(&server.url(), &[]);
    assert_eq!(series(&get(&address, "/metrics", ""), "resil_up"), Some(1.0));
    server.pause();
    let began = Instant::now();
    let page = get(&address, "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 1\r\n");
    let took = began.elapsed();
    server.resume();
    assert_eq!(series(&page, "resil_up"), Some(0.0), "{page}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    server.kill9();
    eventually("it is down", BOUND, || series(&get(&address, "/metrics", ""), "resil_up") == Some(0.0));
    server.start_again();
    eventually("it is back", BOUND, || series(&get(&address, "/metrics", ""), "resil_up") == Some(1.0));
    assert!(running.is_running());
}

/// Commands of this name that a server has seen.
fn calls(connection: &mut redis::Connection, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection).expect("INFO");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn scrapes_at_once_share_one_look_at_the_server() {
    const SCRAPES: usize = 40;
    let server = Server::fresh();
    let (_running, address) = exporter(&server.url(), &["--scrape-timeout", "20s", "--timeout", "20s"]);
    assert_eq!(series(&get(&address, "/metrics", ""), "resil_up"), Some(1.0));
    let of_one = calls(&mut server.connect(), "RES.LIST");
    server.pause();
    let scrapes: Vec<_> = (0..SCRAPES)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || get(&address, "/metrics", ""))
        })
        .collect();
    // All have asked, and wait for a server that stands still.
    std::thread::sleep(Duration::from_millis(700));
    server.resume();
    for scrape in scrapes {
        assert_eq!(series(&scrape.join().expect("a page"), "resil_up"), Some(1.0));
    }
    let looks = calls(&mut server.connect(), "RES.LIST") / of_one - 1;
    assert!((1..=4).contains(&looks), "{looks} looks for {SCRAPES} scrapes");
}

#[test]
fn half_a_request_does_not_keep_the_exporter_from_ending() {
    let server = Server::fresh();
    let (mut running, address) = exporter(&server.url(), &[]);
    let mut half = TcpStream::connect(&address).expect("it listens");
    half.write_all(b"GET /metr").expect("half a request");
    assert_eq!(series(&get(&address, "/metrics", ""), "resil_up"), Some(1.0));
    running.signal("TERM");
    let began = Instant::now();
    eventually("it ends", Duration::from_secs(10), || running.exit_code().is_some());
    assert_eq!(running.exit_code(), Some(0), "after {:?}", began.elapsed());
}

#[test]
fn an_exporter_says_once_why_it_has_nothing_to_show() {
    let server = Server::fresh();
    ask(&mut server.connect(), &["ACL", "SETUSER", "blind", "on", ">x", "~*", "-@all", "+ping", "+hello", "+auth"]);
    let url = server.url().replace("redis://", "redis://blind:x@");
    let (running, address) = exporter(&url, &[]);
    for _ in 0..3 {
        assert_eq!(series(&get(&address, "/metrics", ""), "resil_up"), Some(0.0));
    }
    let why = running.line("resil_up is 0");
    assert!(why.contains("allow"), "{why}");
    ask(&mut server.connect(), &["ACL", "SETUSER", "blind", "+@all"]);
    eventually("it may look", BOUND, || series(&get(&address, "/metrics", ""), "resil_up") == Some(1.0));
    let said = running.line("resil_up is");
    assert!(said.contains("again"), "the reason is said once: {said}");
}

fn rules(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus").join(name).display().to_string()
}

#[test]
fn the_alert_rules_pass_promtool() {
    for args in [["check", "rules", &rules("alerts.yaml")], ["test", "rules", &rules("alerts.test.yaml")]] {
        let ran = Command::new("promtool").args(args).output().expect("promtool runs");
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{args:?}: {out}{err}");
    }
}

/// Every expression of the board and of the rules names series that a page has.
#[test]
fn the_board_and_the_rules_name_series_that_exist() {
    let server = Server::fresh();
    ask(&mut server.connect(), &["RES.BREAKER", "FORCE", "resil:breaker:{payments}", "OPEN"]);
    ask(&mut server.connect(), &["RES.DLQ", "FAIL", "resil:dlq:{orders}", "1", "ERROR", "e", "PAYLOAD", "x"]);
    let (_running, address) = exporter(&server.url(), &[]);
    let page = get(&address, "/metrics", "");
    let board = std::fs::read_to_string(rules("grafana.json")).expect("the board");
    let parsed: Value = serde_json::from_str(&board).expect("it is JSON");
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() >= 6));
    let texts = board + &std::fs::read_to_string(rules("alerts.yaml")).expect("the rules");
    let mut names = std::collections::BTreeSet::new();
    for part in texts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if part.starts_with("resil_") {
            names.insert(part);
        }
    }
    // What only a module that ranks exports.
    names.remove("resil_denied_top_estimate");
    // What only a cluster has.
    names.remove("resil_node_up");
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(page.lines().any(|line| line.starts_with(name)), "{name} is not in {page}");
    }
}

struct Prometheus {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    fn start(target: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let config = format!(
            "global: {{ scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms }}\nrule_files: [\"{}\"]\n\
             scrape_configs: [{{ job_name: resil, static_configs: [{{ targets: [\"{target}\"] }}] }}]\n",
            rules("alerts.yaml")
        );
        std::fs::write(dir.path().join("prometheus.yml"), config).expect("written");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus starts: scripts/setup --brokers");
        Self { child, port, _dir: dir }
    }

    fn query(&self, expression: &str) -> Option<String> {
        TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let page = get(&format!("127.0.0.1:{}", self.port), &format!("/api/v1/query?query={expression}"), "");
        let reply: Value =
            page.find('{').and_then(|at| serde_json::from_str(page[at..page.rfind('}')? + 1].trim()).ok())?;
        reply["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    }
}

#[test]
fn a_real_prometheus_scrapes_a_running_server() {
    let server = Server::fresh();
    let (_running, address) = exporter(&server.url(), &[]);
    let prometheus = Prometheus::start(&address);
    eventually("it is scraped", BOUND, || prometheus.query("resil_up").as_deref() == Some("1"));
    ok(&server.url(), &["breaker", "force", "payments", "--new", "--to", "open", "--reason", "test"]);
    let expression = "resil_breaker_not_closed%7Bbreaker=%22payments%22%7D";
    eventually("the forced breaker is seen", BOUND, || prometheus.query(expression).as_deref() == Some("1"));
    eventually("the alert is pending", BOUND, || {
        prometheus.query("ALERTS%7Balertname=%22ResilBreakerForced%22%7D").as_deref() == Some("1")
    });
}
