//! The program itself: its configuration, its signals, its exit code, its demo, TLS.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resil_gateway::demo::EchoUpstream;
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::v1 as proto;
use resil_harness::Server;
use tokio_util::sync::CancellationToken;

use crate::scene::{client, echo_call, echoed, store_policies};

/// A gateway in its own process.
pub struct Process {
    child: Child,
    pub grpc: String,
    pub http: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gateway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resil-gateway"));
    for name in ["REDIS_URL", "LOG_LEVEL", "POLICY_CONFIG_PATH", "OTEL_EXPORTER_OTLP_ENDPOINT", "RESILIENCE_TOKEN"] {
        command.env_remove(name);
    }
    command.env("RESILIENCE_HOST", "127.0.0.1").env("RESILIENCE_PORT", "0").env("RESILIENCE_HTTP_PORT", "0");
    command
}

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the program starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().expect("a pipe")), Arc::clone(&log));
        let (send, serves) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<serde_json::Value>(&line)
                    && event["message"] == "the gateway serves"
                {
                    let port = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
                    let _ = send.send((port("grpc"), port("http")));
                }
                kept.lock().expect("no panic").push(line);
            }
        });
        let (grpc, http) =
            serves.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("it serves: {:?}", log.lock()));
        Self { child, grpc, http, log }
    }

    pub fn with_config(folder: &tempfile::TempDir, text: &str, redis_url: &str) -> Self {
        Self::with_variables(folder, text, redis_url, &[])
    }

    pub fn with_variables(folder: &tempfile::TempDir, text: &str, redis_url: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = gateway();
        command
            .args(["serve", "--config"])
            .arg(config_file(folder, text))
            .env("REDIS_URL", redis_url)
            .env("LOG_LEVEL", "info")
            .envs(variables.iter().copied());
        Self::start(command)
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    }

    pub fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it ends: {:?}", self.log.lock())
    }
}

fn config_file(folder: &tempfile::TempDir, text: &str) -> std::path::PathBuf {
    let path = folder.path().join("gateway.yaml");
    std::fs::File::create(&path).and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_cuts_nothing_off() {
    let server = Server::fresh();
    store_policies(&server.url()).await;
    let stop = CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        format!("upstreams: {{ echo: {{ kind: grpc, address: \"http://{}\", policy: plain }} }}\n", echo.address);
    let mut process = Process::with_config(&folder, &text, &server.url());
    let grpc = client(&format!("http://{}", process.grpc));
    let slow = EchoRequest { text: "x".into(), delay: Some(prost_types::Duration { seconds: 1, nanos: 0 }), status: 0 };
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (mut grpc, call) = (grpc.clone(), echo_call(&slow));
        calls.spawn(
            async move { grpc.execute_with_resilience(call).await.map(|response| echoed(response.get_ref()).text) },
        );
    }
    let begun = Instant::now();
    while echo.calls.load(std::sync::atomic::Ordering::Relaxed) < 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "all have begun");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    process.signal("-TERM");
    // An orchestrator that says it twice changes nothing.
    process.signal("-TERM");
    // What comes now is refused.
    let mut late = grpc.clone();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let refused = late.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect_err("it drains");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    let mut answered = 0;
    while let Some(call) = calls.join_next().await {
        assert_eq!(call.expect("no panic").unwrap_or_else(|status| panic!("cut off: {status:?}")), "x");
        answered += 1;
    }
    assert_eq!((answered, process.ended()), (200, Some(0)));
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_ends_the_gateway_at_once() {
    let server = Server::fresh();
    store_policies(&server.url()).await;
    let stop = CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        format!("upstreams: {{ echo: {{ kind: grpc, address: \"http://{}\", policy: plain }} }}\n", echo.address);
    let mut process = Process::with_config(&folder, &text, &server.url());
    let mut grpc = client(&format!("http://{}", process.grpc));
    let slow = EchoRequest { delay: Some(prost_types::Duration { seconds: 60, nanos: 0 }), ..Default::default() };
    let call = tokio::spawn(async move { grpc.execute_with_resilience(echo_call(&slow)).await });
    crate::scene::within("it has begun", || async { echo.calls.load(std::sync::atomic::Ordering::Relaxed) == 1 }).await;
    process.signal("-INT");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(process.child.try_wait().expect("a child"), None, "the first is a wish to drain");
    process.signal("-INT");
    assert_eq!(process.ended(), Some(3), "it says that a call was cut off");
    assert!(call.await.expect("no panic").is_err());
    stop.cancel();
}

#[test]
fn wrong_configuration_is_named_and_unknown_variables_are_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |text: &str, more: &[(&str, &str)]| {
        let output = gateway()
            .args(["check", "--config"])
            .arg(config_file(&folder, text))
            .envs(more.iter().copied())
            .output()
            .expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check("", &[]), (Some(0), String::new()));
    for (text, said) in [
        ("grcp: {}", "grcp"),
        ("grpc: { port: 99999 }", "grpc.port"),
        ("upstreams: { x: { kind: grpc, address: \"ftp://a\", policy: p } }", "upstreams.x.address"),
        ("upstreams: { x: { kind: http, address: \"http://user:hidden@a\", policy: p } }", "upstreams.x.address"),
        ("upstreams: { x: { kind: http, address: \"http://a\" } }", "upstreams.x.policy"),
        ("services: { s: { probe: grpc, upstream: y } }", "services.s.upstream"),
        ("tokens: [{ name: a, role: look, token: hidden }]", "tokens[0]"),
        ("limits: { calls: 0 }", "limits.calls"),
        ("drain: 5", "drain"),
        ("tokens: [{ name: a, role: king, token: 0123456789abcdef }]", "role"),
        ("redis: { url: \"http://hidden@a\" }", "redis.url"),
        ("redis: { url: \"redis+quorum://:hidden@a,b,c\" }", "redis.url"),
        ("telemetry: { logLevel: warning }", "telemetry.logLevel"),
        // What is around a mistake, or found in place of something else, can be a secret.
        ("redis: \"redis://:hidden@a\"", "redis is wrong: expected"),
        ("tokens: [hidden-0123456789]", "tokens[0] is wrong: expected"),
        ("tokens:\n  - { name: a, role: look, token: hidden-0123456789 }\nupstreams:\n\tx: 1", "line 4"),
    ] {
        let (code, error) = check(text, &[]);
        assert_eq!(code, Some(2), "{text}");
        assert!(error.contains(said) && !error.contains("hidden"), "{text}: {error}");
    }
    let (code, warned) = check("", &[("RESILIENCE_POTR", "1")]);
    assert!(code == Some(0) && warned.contains("RESILIENCE_POTR is not a variable"), "{warned}");
    assert_eq!(check("", &[("RESILIENCE_PORT", "many")]).0, Some(2));
    let (code, error) = check("", &[("RESILIENCE_PORT", "7000"), ("RESILIENCE_HTTP_PORT", "7000")]);
    assert!(code == Some(2) && error.contains("http.port"), "{error}");
    assert_eq!(check("", &[("LOG_LEVEL", "warning")]).0, Some(2), "it would switch off every line");
    assert_eq!(check("", &[("LOG_LEVEL", "info,resil=debug")]).0, Some(0));
    let secret = folder.path().join("token");
    std::fs::write(&secret, "0123456789abcdef\n").expect("a file");
    let path = secret.to_str().expect("a path");
    assert_eq!(check("", &[("RESILIENCE_TOKEN_FILE", path)]).0, Some(0));
    assert_eq!(check("", &[("RESILIENCE_TOKEN_FILE", path), ("RESILIENCE_TOKEN", "fedcba9876543210")]).0, Some(2));
    assert_eq!(check("", &[("REDIS_URL_FILE", "/nowhere")]).0, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_life() {
    let demo = resil_gateway::demo::start(0, 0).await.expect("it starts");
    let gateway = Arc::clone(&demo.running.gateway);
    crate::scene::within("calls are made", || async {
        gateway.calls.total.load(std::sync::atomic::Ordering::Relaxed) > 10
    })
    .await;
    crate::scene::within("services are healthy", || async {
        gateway.health.views().iter().all(|view| view.state.is_some())
    })
    .await;
    let operator = gateway.client.operator();
    let filter = resil::operator::KeyFilter::default();
    assert_eq!(operator.breakers(&filter).await.expect("a list").len(), 2);
    assert_eq!(operator.ledgers(&filter).await.expect("a list")[0].dead, 14);
    assert!(!operator.locks(&filter).await.expect("a list").is_empty());
    let mut grpc = client(&format!("http://{}", demo.running.grpc_address));
    let circuit =
        grpc.get_circuit_state(proto::GetCircuitStateRequest { name: "catalog".into() }).await.expect("a state");
    assert!(circuit.into_inner().circuit.is_some_and(|circuit| circuit.exists));
    assert_eq!(demo.end().await, 0);
}
