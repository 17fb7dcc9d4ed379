//! ExecuteWithResilience, GetCircuitState, UpdatePolicy, HealthCheck: what each promises.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::v1 as proto;
use resil_harness::Server;
use tonic::Code;

use crate::scene::{Scene, code, echo_call, echoed, http_call, replied, within};

fn text(text: &str) -> EchoRequest {
    EchoRequest { text: text.into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_reaches_its_upstream_and_comes_back() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let response =
        scene.grpc.execute_with_resilience(echo_call(&text("hello"))).await.expect("a response").into_inner();
    assert_eq!((echoed(&response).text.as_str(), response.attempts, response.policy.as_str()), ("hello", 1, "plain"));
    assert_eq!((response.policy_version, response.correlation_id.len()), (1, 32));
    let mut call = http_call("example", "POST", "/items/7?x=1");
    call.correlation_id = "order-7".into();
    if let Some(proto::execute_with_resilience_request::Call::Http(http)) = &mut call.call {
        http.headers.insert("x-tenant".into(), "shop".into());
        http.body = "amount=7".into();
    }
    let response = scene.grpc.execute_with_resilience(call).await.expect("a response").into_inner();
    let reply = replied(&response);
    let seen: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(reply.status, 200);
    assert_eq!(
        (seen["method"].as_str(), seen["path"].as_str(), seen["body"].as_str()),
        (Some("POST"), Some("/items/7?x=1"), Some("amount=7"))
    );
    assert_eq!(
        (seen["headers"]["x-tenant"].as_str(), seen["headers"]["x-correlation-id"].as_str()),
        (Some("shop"), Some("order-7"))
    );
    assert_eq!(scene.running.end().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_fails_opens_its_circuit_for_all() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let mut failing = echo_call(&EchoRequest { status: Code::Unavailable as u32, ..text("x") });
    failing.policy = "strict".into();
    let status = scene.grpc.execute_with_resilience(failing.clone()).await.expect_err("it fails");
    assert_eq!((status.code(), code(&status)), (Code::Unavailable, "RETRY_EXHAUSTED"), "{status:?}");
    assert_eq!(scene.echo.calls.load(Ordering::Relaxed), 2, "two attempts");
    let status = scene.grpc.execute_with_resilience(failing).await.expect_err("it is open");
    assert_eq!((status.code(), code(&status)), (Code::Unavailable, "CIRCUIT_OPEN"), "{status:?}");
    let pushback =
        status.metadata().get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
    assert!(pushback.is_some_and(|ms| ms > 0 && ms <= 60_000), "{status:?}");
    assert_eq!(scene.echo.calls.load(Ordering::Relaxed), 2, "no attempt behind an open circuit");
    let name = "strict".to_owned();
    let circuit = scene
        .grpc
        .get_circuit_state(proto::GetCircuitStateRequest { name })
        .await
        .expect("a state")
        .into_inner()
        .circuit
        .expect("a circuit");
    assert_eq!((circuit.state(), circuit.admits, circuit.exists), (proto::CircuitState::Open, false, true));
    assert!(circuit.retry_after.is_some() && circuit.opened_at.is_some());
    // Nothing is cached: what another client does is seen at once.
    let other = resil::connect(&server.url()).await.expect("the server");
    let key = resil::operator::KeyKind::Policy.key("strict").expect("a key");
    other.operator().reset_breaker(&key).await.expect("reset");
    let name = "strict".to_owned();
    let circuit = scene
        .grpc
        .get_circuit_state(proto::GetCircuitStateRequest { name })
        .await
        .expect("a state")
        .into_inner()
        .circuit
        .expect("a circuit");
    assert_eq!(circuit.state(), proto::CircuitState::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_a_call_happen_once() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let mut call = echo_call(&text("pay"));
    call.idempotency_key = "order-42".into();
    let first = scene.grpc.execute_with_resilience(call.clone()).await.expect("a response").into_inner();
    let again = scene.grpc.execute_with_resilience(call.clone()).await.expect("a response").into_inner();
    assert_eq!((first.is_replay, again.is_replay, again.attempts), (false, true, 0));
    assert_eq!(echoed(&first), echoed(&again));
    assert_eq!(scene.echo.calls.load(Ordering::Relaxed), 1);
    let mut other = echo_call(&text("another"));
    other.idempotency_key = "order-42".into();
    let status = scene.grpc.execute_with_resilience(other).await.expect_err("another request");
    assert_eq!((status.code(), code(&status)), (Code::FailedPrecondition, "IDEMPOTENCY_MISMATCH"));
    // Twenty at once are one.
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut grpc = scene.grpc.clone();
        let mut call = echo_call(&text("once"));
        call.idempotency_key = "order-43".into();
        calls.spawn(async move {
            echoed(&grpc.execute_with_resilience(call).await.expect("a response").into_inner()).calls
        });
    }
    while let Some(calls) = calls.join_next().await {
        assert_eq!(calls.expect("no panic"), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_a_key_outlives_its_caller() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let delay = Some(prost_types::Duration { seconds: 0, nanos: 500_000_000 });
    let mut call = echo_call(&EchoRequest { delay, ..text("pay") });
    call.idempotency_key = "order-44".into();
    let (mut grpc, first) = (scene.grpc.clone(), call.clone());
    let hangs_up = tokio::spawn(async move { grpc.execute_with_resilience(first).await });
    within("the upstream is called", || async { scene.echo.calls.load(Ordering::Relaxed) == 1 }).await;
    hangs_up.abort();
    let again = scene.grpc.execute_with_resilience(call).await.expect("the response of the first").into_inner();
    assert!(again.is_replay);
    assert_eq!(scene.echo.calls.load(Ordering::Relaxed), 1, "it is made once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_deadline_ends_a_call() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let slow = EchoRequest { delay: Some(prost_types::Duration { seconds: 30, nanos: 0 }), ..text("slow") };
    let mut call = echo_call(&slow);
    call.deadline = Some(prost_types::Duration { seconds: 0, nanos: 200_000_000 });
    let begun = Instant::now();
    let status = scene.grpc.execute_with_resilience(call).await.expect_err("it is too slow");
    assert_eq!((status.code(), code(&status)), (Code::DeadlineExceeded, "TIMEOUT"));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let mut request = tonic::Request::new(echo_call(&slow));
    request.set_timeout(Duration::from_millis(200));
    assert!(scene.grpc.execute_with_resilience(request).await.is_err());
    within("nothing is in flight", || async { scene.running.gateway.drain.in_flight() == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streaming_methods_are_refused() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let many = |times: u32| {
        use prost::Message;
        let message = resil_gateway::proto::resil::example::v1::EchoManyRequest { text: "x".into(), times };
        let mut call = echo_call(&text(""));
        call.policy = "strict".into();
        let method = "resil.example.v1.EchoService/EchoMany".to_owned();
        call.call = Some(proto::execute_with_resilience_request::Call::Grpc(proto::GrpcCall {
            method,
            message: message.encode_to_vec().into(),
        }));
        call
    };
    let status = scene.grpc.execute_with_resilience(many(3)).await.expect_err("it streams");
    assert_eq!((status.code(), code(&status)), (Code::Unimplemented, "STREAMING_REFUSED"), "{status:?}");
    let state = scene.running.gateway.client.operator().breaker(b"resil:policy:{strict}").await.expect("a state");
    assert_eq!(state.failures, 0, "that is not the upstream's failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_configured_upstreams_methods_and_policies_are_used() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let mut refused = async |call, expected: Code| {
        let status = scene.grpc.execute_with_resilience(call).await.expect_err("refused");
        assert_eq!(status.code(), expected, "{status:?}");
        status.message().to_owned()
    };
    refused(http_call("http://127.0.0.1:6379", "GET", "/"), Code::NotFound).await;
    refused(http_call("", "GET", "/"), Code::NotFound).await;
    for path in [
        "",
        "x",
        "//evil.test/x",
        "/../etc",
        "/a/%2e%2E/b",
        "/a/..%2fb",
        "http://evil.test/",
        "/a b",
        "/a\r\nX: y",
        "/\\evil",
        "/a#b",
        "/é",
    ] {
        refused(http_call("example", "GET", path), Code::InvalidArgument).await;
    }
    refused(http_call("example", "CONNECT", "/"), Code::InvalidArgument).await;
    refused(http_call("example", "get", "/"), Code::InvalidArgument).await;
    refused(http_call("echo", "GET", "/"), Code::InvalidArgument).await;
    let mut call = http_call("example", "GET", "/");
    call.policy = "payments".into();
    refused(call, Code::PermissionDenied).await;
    for header in ["host", "Connection", "transfer-encoding", "bad name", "x\r\ny"] {
        let mut call = http_call("example", "GET", "/");
        if let Some(proto::execute_with_resilience_request::Call::Http(http)) = &mut call.call {
            http.headers.insert(header.into(), "x".into());
        }
        refused(call, Code::InvalidArgument).await;
    }
    for method in ["", "Echo", "a/b/c", "../x/Echo", "a b/c", "resil.example.v1.EchoService/"] {
        let mut call = echo_call(&text("x"));
        if let Some(proto::execute_with_resilience_request::Call::Grpc(grpc)) = &mut call.call {
            grpc.method = method.into();
        }
        refused(call, Code::InvalidArgument).await;
    }
    let said = refused(http_call("nowhere", "GET", "/"), Code::Unavailable).await;
    assert!(!said.contains("127.0.0.1"), "no address: {said}");
    assert_eq!(scene.example.calls.load(Ordering::Relaxed), 0, "nothing of it reached an upstream");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_updated_holds_for_the_next_call() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    let update = |document: &str, expected_version| proto::UpdatePolicyRequest {
        name: "plain".into(),
        document: document.into(),
        expected_version,
        actor: "ann".into(),
        reason: "test".into(),
    };
    let wrong = scene.grpc.update_policy(update("retry: { maxAttempts: 0 }", None)).await.expect_err("invalid");
    assert_eq!((wrong.code(), code(&wrong)), (Code::InvalidArgument, "INVALID_POLICY"));
    assert!(wrong.message().contains("retry.maxAttempts must be from 1 to 100"), "{}", wrong.message());
    let stale = scene.grpc.update_policy(update("timeout: { total: 4s }", Some(9))).await.expect_err("another version");
    assert_eq!((stale.code(), code(&stale)), (Code::Aborted, "VERSION_CONFLICT"), "{stale:?}");
    let stored = scene
        .grpc
        .update_policy(update("timeout: { attempt: 100ms, total: 300ms }", Some(1)))
        .await
        .expect("valid")
        .into_inner();
    assert_eq!((stored.version, stored.action()), (2, proto::PolicyAction::Changed));
    within("it is followed", || async {
        scene.running.gateway.policies.choose("plain").is_ok_and(|chosen| chosen.version == Some(2))
    })
    .await;
    let slow = EchoRequest { delay: Some(prost_types::Duration { seconds: 5, nanos: 0 }), ..text("slow") };
    let status = scene.grpc.execute_with_resilience(echo_call(&slow)).await.expect_err("too slow");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_http_are_passed_on_also_bad_ones() {
    let server = Server::fresh();
    let mut scene = Scene::on(&server, "").await;
    for status in [201, 302, 404, 429, 500, 503] {
        let call = http_call("example", "POST", &format!("/status/{status}"));
        let response = scene.grpc.execute_with_resilience(call).await.expect("a response").into_inner();
        assert_eq!(replied(&response).status, status, "redirects are not followed either");
    }
    let before = scene.example.calls.load(Ordering::Relaxed);
    let mut call = http_call("example", "POST", "/status/500");
    call.policy = "strict".into();
    let response = scene.grpc.execute_with_resilience(call).await.expect("a response").into_inner();
    assert_eq!(response.attempts, 1, "a POST that failed somehow is not made twice");
    scene.running.gateway.client.operator().reset_breaker(b"resil:policy:{strict}").await.expect("reset");
    let mut call = http_call("example", "GET", "/status/500");
    call.policy = "strict".into();
    let response = scene.grpc.execute_with_resilience(call).await.expect("a response").into_inner();
    assert_eq!((replied(&response).status, response.attempts), (500, 2), "a GET is");
    assert_eq!(scene.example.calls.load(Ordering::Relaxed) - before, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_that_of_the_services() {
    let server = Server::fresh();
    let services = "services:
  echo: { probe: grpc, upstream: echo }
  example: { probe: http, upstream: example, path: /items/1 }
  strict: { probe: circuit, circuit: strict }
";
    let mut scene = Scene::on(&server, services).await;
    let look = |grpc: &resil_gateway::proto::resil::v1::resilience_service_client::ResilienceServiceClient<
        tonic::transport::Channel,
    >,
                service: &str| {
        let (mut grpc, service) = (grpc.clone(), service.to_owned());
        async move { grpc.health_check(proto::HealthCheckRequest { service }).await.map(tonic::Response::into_inner) }
    };
    let grpc = scene.grpc.clone();
    within("all are known", || async {
        look(&grpc, "")
            .await
            .is_ok_and(|health| health.services.iter().all(|service| service.status() == proto::HealthStatus::Healthy))
    })
    .await;
    scene.is_broken.store(true, Ordering::Relaxed);
    within("it is unhealthy", || async {
        look(&grpc, "").await.is_ok_and(|health| health.status() == proto::HealthStatus::Unhealthy)
    })
    .await;
    let one = look(&grpc, "echo").await.expect("known");
    assert_eq!((one.status(), one.services.len()), (proto::HealthStatus::Healthy, 1));
    assert_eq!(look(&grpc, "nobody").await.expect_err("unknown").code(), Code::NotFound);
    scene.is_broken.store(false, Ordering::Relaxed);
    within("it is healthy again", || async {
        look(&grpc, "").await.is_ok_and(|health| health.status() == proto::HealthStatus::Healthy)
    })
    .await;
    let _ = &mut scene;
}
