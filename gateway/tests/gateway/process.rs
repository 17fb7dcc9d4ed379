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
                    let _ = send.send(event["grpc"].as_str().unwrap_or_default().to_owned());
                }
                kept.lock().expect("no panic").push(line);
            }
        });
        let grpc =
            serves.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("it serves: {:?}", log.lock()));
        Self { child, grpc, log }
    }

    pub fn with_config(folder: &tempfile::TempDir, text: &str, redis_url: &str) -> Self {
        let mut command = gateway();
        command
            .args(["serve", "--config"])
            .arg(config_file(folder, text))
            .env("REDIS_URL", redis_url)
            .env("LOG_LEVEL", "info");
        Self::start(command)
    }

    /// What it has used of the processors, by the kernel's count.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|at| fields[*at].parse::<u64>().ok()).sum();
        // A hundred ticks are a second.
        Duration::from_millis(ticks * 10)
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    }

    fn ended(&mut self) -> Option<i32> {
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
    process.terminate();
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

#[test]
fn a_wrong_configuration_is_named_and_unknown_variables_are_warned_of() {
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
    ] {
        let (code, error) = check(text, &[]);
        assert_eq!(code, Some(2), "{text}");
        assert!(error.contains(said) && !error.contains("hidden"), "{text}: {error}");
    }
    let (code, warned) = check("", &[("RESILIENCE_POTR", "1")]);
    assert!(code == Some(0) && warned.contains("RESILIENCE_POTR is not a variable"), "{warned}");
    assert_eq!(check("", &[("RESILIENCE_PORT", "many")]).0, Some(2));
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

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_asked_for_and_their_identity_is_audited() {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("an authority");
    let issue = |names: Vec<SanType>| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        params.subject_alt_names.extend(names);
        (params.signed_by(&key, &authority).expect("signed").pem(), key.serialize_pem())
    };
    let (certificate, key) = issue(Vec::new());
    let ca = write("ca.pem", &authority.pem());
    let (certificate, key) = (write("server.pem", &certificate), write("server.key", &key));
    let more = format!(
        "tls:
  certificateFile: {certificate}
  keyFile: {key}
  clientCaFile: {ca}
  identities:
    - {{ spiffeId: \"spiffe://shop/*\", role: govern }}
"
    );
    let scene = crate::scene::Scene::start("memory://mtls", &more).await;
    let target = format!("https://localhost:{}", scene.running.grpc_address.port());
    let connect = |identity: Option<(String, String)>| {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()));
        if let Some((certificate, key)) = identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = Endpoint::from_shared(target.clone()).expect("an address").tls_config(tls).expect("TLS");
        proto::resilience_service_client::ResilienceServiceClient::new(endpoint.connect_lazy())
    };
    let spiffe = |id: &str| vec![SanType::URI(id.try_into().expect("ASCII"))];
    let update = || proto::UpdatePolicyRequest {
        name: "p".into(),
        document: "{}".into(),
        actor: "cart".into(),
        ..Default::default()
    };
    assert!(connect(None).update_policy(update()).await.is_err(), "a certificate is needed");
    let mut known = connect(Some(issue(spiffe("spiffe://shop/sa/cart"))));
    known.update_policy(update()).await.expect("it may govern");
    let event = scene.running.gateway.audit.latest(1).pop().expect("an event");
    assert_eq!((event.kind, event.spiffe_id.as_deref()), ("policy.set", Some("spiffe://shop/sa/cart")));
    let mut stranger = connect(Some(issue(spiffe("spiffe://shopkeeper/sa/cart"))));
    assert_eq!(
        stranger.update_policy(update()).await.expect_err("not one of ours").code(),
        tonic::Code::Unauthenticated
    );
}
