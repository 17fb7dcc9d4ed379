//! Promises that only a fault in the right place shows: a test for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use prost::Message;
use resil_gateway::config::{Config, Secret, TokenConfig};
use resil_gateway::demo::{EchoUpstream, HttpExample};
use resil_gateway::feed::Feed;
use resil_gateway::identity::Peer;
use resil_gateway::proto::resil::example::v1::{EchoManyRequest, EchoRequest};
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::roles::{Access, COOKIE, Role, SESSION_MS};
use resil_gateway::run::{self, Running};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;

use crate::scene::{Scene, client, config, echo_call, http_call, send, within};

/// A gateway on memory:// whose configuration was changed, with the policy `plain`.
struct Changed {
    running: Running,
    echo: EchoUpstream,
    example: HttpExample,
    _stop: DropGuard,
}

impl Changed {
    async fn start(url: &str, change: impl FnOnce(&mut Config)) -> Self {
        let stop = CancellationToken::new();
        let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
        let example = HttpExample::start(Arc::new(AtomicBool::new(false)), stop.clone()).await.expect("a port");
        let mut config = config(url, &echo.address.to_string(), &example.address.to_string(), "");
        change(&mut config);
        let running = run::start(config).await.unwrap_or_else(|error| panic!("{error}"));
        running.gateway.client.policies().set("plain", "{}").await.expect("valid");
        within("the policy is known", || async { running.gateway.policies.is_stored("plain") }).await;
        Self { running, echo, example, _stop: stop.drop_guard() }
    }

    async fn call(&self, call: proto::ExecuteWithResilienceRequest) -> Result<(), Code> {
        let mut grpc = client(&format!("http://{}", self.running.grpc_address));
        grpc.execute_with_resilience(call).await.map(drop).map_err(|status| status.code())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_paths_and_methods_that_are_listed_are_called() {
    let scene = Changed::start("memory://listed", |config| {
        config.upstreams.get_mut("example").expect("it is there").allow = vec!["/items".into()];
        config.upstreams.get_mut("echo").expect("it is there").allow = vec!["resil.example.v1.Other/*".into()];
    })
    .await;
    for path in ["/", "/itemsx", "/other/items"] {
        assert_eq!(scene.call(http_call("example", "GET", path)).await, Err(Code::PermissionDenied), "{path}");
    }
    assert_eq!(scene.call(echo_call(&EchoRequest::default())).await, Err(Code::PermissionDenied));
    assert_eq!(scene.example.calls.load(Ordering::Relaxed) + scene.echo.calls.load(Ordering::Relaxed), 0);
    for path in ["/items", "/items/7", "/items?x=1"] {
        assert_eq!(scene.call(http_call("example", "GET", path)).await, Ok(()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_is_listed_as_streaming_is_not_called() {
    let scene = Changed::start("memory://streams", |config| {
        let method = "resil.example.v1.EchoService/EchoMany".to_owned();
        config.upstreams.get_mut("echo").expect("it is there").streaming = vec![method];
    })
    .await;
    let mut call = echo_call(&EchoRequest::default());
    // It would respond with one message alone.
    let message = EchoManyRequest { text: "x".into(), times: 1 }.encode_to_vec().into();
    let method = "resil.example.v1.EchoService/EchoMany".to_owned();
    call.call = Some(proto::execute_with_resilience_request::Call::Grpc(proto::GrpcCall { method, message }));
    assert_eq!(scene.call(call).await, Err(Code::Unimplemented));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_above_the_limit_is_not_passed_on() {
    let scene = Changed::start("memory://large", |config| {
        config.upstreams.get_mut("echo").expect("it is there").max_response = 1_000;
    })
    .await;
    let text = |length: usize| echo_call(&EchoRequest { text: "x".repeat(length), ..Default::default() });
    assert_eq!(scene.call(text(100)).await, Ok(()));
    assert_eq!(scene.call(text(2_000)).await, Err(Code::OutOfRange));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_of_two_callers_is_two_calls() {
    let tokens = "tokens:
  - { name: shop, role: operate, token: shop-0123456789abcdef }
  - { name: cart, role: operate, token: cart-0123456789abcdef }
";
    let scene = Scene::start("memory://two-callers", tokens).await;
    scene.running.gateway.client.policies().set("plain", "{}").await.expect("valid");
    scene.knows("plain").await;
    for token in ["shop-0123456789abcdef", "cart-0123456789abcdef"] {
        let mut call = echo_call(&EchoRequest { text: "secret".into(), ..Default::default() });
        call.idempotency_key = "7".into();
        let mut request = tonic::Request::new(call);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a value"));
        let response = scene.grpc.clone().execute_with_resilience(request).await.expect("a reply").into_inner();
        assert!(!response.is_replay, "{token}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_too_often_is_asked_to_wait() {
    let scene = Scene::start("memory://often", "limits: { apiPerSecond: 1 }").await;
    let mut statuses = Vec::new();
    for _ in 0..40 {
        let request = Request::get("/api/session").header("authorization", "Bearer a-guess-0123456789");
        statuses.push(send(&scene, request, "").await.0);
    }
    assert_eq!(statuses.last(), Some(&StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK, "an orchestrator may always ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_drains_is_not_ready_and_changes_nothing() {
    let scene = Scene::start("memory://drains", "").await;
    assert_eq!(scene.get("/readyz").await.0, StatusCode::OK);
    scene.running.gateway.drain.begin();
    assert_eq!(scene.get("/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
    let force = json!({ "state": "open", "actor": "ann", "reason": "test" });
    let (status, problem) = scene.post("/api/circuits/k/force", &force).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some("SHUTTING_DOWN")));
}

#[test]
fn a_session_ends_after_its_time() {
    let token = Some(Secret::new("ann-0123456789abcdef"));
    let token = TokenConfig { name: "ann".into(), role: Role::Look, token, token_file: None };
    let access = Access::new(&Config { tokens: vec![token], ..Config::default() });
    let (cookie, ..) = access.begin_session("ann-0123456789abcdef", 1_000).expect("a session");
    let mut headers = http::HeaderMap::new();
    headers.insert("cookie", format!("{COOKIE}={cookie}").parse().expect("a value"));
    let peer = Peer::plain("10.0.0.1:9".parse().expect("an address"));
    assert!(access.caller(&peer, &headers, 1_000 + SESSION_MS - 1).is_some());
    assert!(access.caller(&peer, &headers, 1_000 + SESSION_MS).is_none());
}

#[test]
fn an_error_names_nothing_of_what_is_behind() {
    let error = resil::Error::Internal("redis at 10.1.2.3 said so".into());
    let problem = resil_gateway::errors::Problem::from(&error);
    assert!(!problem.detail.contains("10.1.2.3"), "{}", problem.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_deadline_ends_a_call_of_http() {
    // It takes connections, and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    let scene = Changed::start("memory://silent", |config| {
        config.upstreams.get_mut("example").expect("it is there").address = address;
    })
    .await;
    let mut call = http_call("example", "GET", "/");
    call.deadline = Some(prost_types::Duration { seconds: 0, nanos: 200_000_000 });
    let called = tokio::time::timeout(Duration::from_secs(5), scene.call(call)).await;
    assert_eq!(called, Ok(Err(Code::DeadlineExceeded)));
}

#[test]
fn an_event_id_of_another_gateway_is_a_gap() {
    let (one, other) = (Feed::new(1), Feed::new(1));
    let (_, mut happenings) = one.since(None);
    for feed in [&one, &other] {
        (0..3).for_each(|_| feed.tell("audit", &json!({})));
    }
    let first = happenings.try_recv().expect("it was notified").id;
    assert_eq!(one.since(Some(first)).0.map(|missed| missed.len()), Some(2));
    assert!(other.since(Some(first)).0.is_none(), "what was missed is not known here");
}
