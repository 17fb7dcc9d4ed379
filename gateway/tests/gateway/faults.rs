//! What breaks around the gateway: the server, an upstream, a file of policies, its clients.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::StatusCode;
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::v1 as proto;
use resil_harness::Server;
use tonic::Code;

use crate::scene::{Scene, code, echo_call, http_call, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_survived_and_found_again() {
    let mut server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("an answer");
    server.kill9();
    let state = || proto::GetCircuitStateRequest { name: "strict".into() };
    // Policies go on by themselves; what only the server knows is refused.
    let begun = Instant::now();
    let status = scene.grpc.get_circuit_state(state()).await.expect_err("away");
    assert_eq!((status.code(), begun.elapsed() < Duration::from_secs(5)), (Code::Unavailable, true), "{status:?}");
    let mut answered = 0;
    for _ in 0..20 {
        answered += usize::from(scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.is_ok());
    }
    assert_eq!(answered, 20, "calls under a policy without a shared part are made");
    let mut keyed = echo_call(&EchoRequest::default());
    keyed.idempotency_key = "k".into();
    let status = scene.grpc.execute_with_resilience(keyed).await.expect_err("nobody could vouch for it");
    assert_eq!(code(&status), "BACKEND_UNAVAILABLE", "{status:?}");
    let (status, problem) = scene.get("/api/circuits").await;
    assert_eq!(
        (status, problem["code"].as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, Some("BACKEND_UNAVAILABLE")),
        "{problem}"
    );
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    assert_eq!(scene.get("/readyz").await.0, StatusCode::OK, "it has been ready, and serves what it can");
    assert_eq!(scene.get("/health").await.1["checks"]["redis"][0]["status"], "warn");
    server.start_again();
    let grpc = scene.grpc.clone();
    within("the server is found again", || async { grpc.clone().get_circuit_state(state()).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_without_its_server_and_is_ready_when_it_was_there() {
    let mut server = Server::fresh();
    let url = server.url();
    crate::scene::store_policies(&url).await;
    server.kill9();
    let scene = Scene::start(&url, "").await;
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    assert_eq!(scene.get("/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    server.start_again();
    within("it is ready", || async { scene.get("/readyz").await.0 == StatusCode::OK }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_upstream_and_a_slow_one_cost_only_their_own_calls() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let status = scene.grpc.execute_with_resilience(http_call("nowhere", "GET", "/")).await.expect_err("dead");
    assert_eq!(status.code(), Code::Unavailable);
    let slow = EchoRequest { delay: Some(prost_types::Duration { seconds: 3, nanos: 0 }), ..Default::default() };
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (mut grpc, mut call) = (scene.grpc.clone(), echo_call(&slow));
        call.deadline = Some(prost_types::Duration { seconds: 0, nanos: 700_000_000 });
        calls.spawn(async move { grpc.execute_with_resilience(call).await.is_err() });
    }
    let begun = Instant::now();
    let call = http_call("example", "GET", "/items/1");
    scene.grpc.execute_with_resilience(call).await.expect("the other one answers");
    assert!(begun.elapsed() < Duration::from_millis(600), "{:?}", begun.elapsed());
    while let Some(failed) = calls.join_next().await {
        assert!(failed.expect("no panic"), "each ends at its deadline");
    }
    within("nothing is left", || async {
        scene.running.gateway.drain.in_flight() == 0 && scene.running.gateway.calls.count() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_policy_file_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policies.yaml");
    // The seeds' default, verbatim.
    let good = "policies:
  default:
    circuit_breaker: { failure_threshold: 5, success_threshold: 3, timeout: 30s }
    retry: { max_attempts: 3, base_delay: 100ms, max_delay: 10s, multiplier: 2.0, jitter_percent: 0.1 }
    timeout: { default: 5s }
    bulkhead: { max_concurrent: 100, max_queue: 50, queue_timeout: 5s }
";
    std::fs::write(&path, good).expect("a file");
    let more = format!("policies: {{ file: {}, default: default }}\n", path.display());
    let scene = Scene::start("memory://policy-file", &more).await;
    let mut call = http_call("example", "GET", "/items/1");
    call.policy = "default".into();
    // The upstream's own policy is not in this file; a caller may not name another that is not allowed.
    let gateway = &scene.running.gateway;
    assert!(gateway.policies.choose("default").is_ok());
    std::fs::write(&path, "policies: { default: { retry: { max_attempts: 0 } } }").expect("a file");
    within("it is noticed", || async { gateway.policies.file_problem().is_some() }).await;
    assert!(gateway.policies.choose("default").is_ok(), "the last good one stays");
    assert_eq!(scene.get("/health").await.1["checks"]["policies"][0]["status"], "warn");
    let (_, shown) = scene.get("/api/policies").await;
    assert!(shown["file"]["problem"].as_str().is_some_and(|text| text.contains("maxAttempts")), "{shown}");
    std::fs::write(&path, good).expect("a file");
    within("and that it is good again", || async { gateway.policies.file_problem().is_none() }).await;
    let bad = folder.path().join("bad.yaml");
    std::fs::write(&bad, "policies: [").expect("a file");
    let config = crate::scene::config(
        "memory://",
        "127.0.0.1:1",
        "127.0.0.1:1",
        &format!("policies: {{ file: {} }}\n", bad.display()),
    );
    assert!(resil_gateway::run::start(config).await.is_err(), "the first time it has to be valid");
    let _ = call;
}

/// Open files of this process: a socket has two ends here.
fn may_open() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok()).unwrap_or(1_024)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_slow_clients_hold_up_nobody() {
    use tokio::io::AsyncWriteExt;
    let server = Server::fresh();
    let scene = Scene::on(&server, "").await;
    let each = (may_open().saturating_sub(400) / 4).min(5_000);
    let mut slow = Vec::new();
    for number in 0..each * 2 {
        let address = if number % 2 == 0 { scene.running.http_address } else { scene.running.grpc_address };
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        // Some say nothing, some begin a request and never end it.
        if number % 3 == 0 {
            stream.write_all(b"GET / HT").await.expect("sent");
        }
        slow.push(stream);
    }
    let mut waits = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        scene.grpc.clone().execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("an answer");
        waits.push(begun.elapsed());
        assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    }
    waits.sort();
    println!("{} slow clients; calls beside them: p50 {:?}, p99 {:?}", slow.len(), waits[50], waits[98]);
    assert!(waits[98] < Duration::from_secs(1), "{:?}", waits[98]);
    assert_eq!(scene.echo.calls.load(Ordering::Relaxed), 100);
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_allowed_are_shed_and_the_others_are_made() {
    let scene_limits = "";
    let server = Server::fresh();
    let mut scene = Scene::on(&server, scene_limits).await;
    let passes: Vec<_> = std::iter::from_fn(|| scene.running.gateway.drain.enter().ok()).collect();
    assert_eq!(passes.len(), scene.running.gateway.config.limits.calls);
    let status = scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect_err("shed");
    assert_eq!((status.code(), code(&status)), (Code::ResourceExhausted, "OVERLOADED"));
    drop(passes);
    scene.grpc.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("an answer");
}
