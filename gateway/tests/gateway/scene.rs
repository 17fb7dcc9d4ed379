//! A gateway with its upstreams, and clients for both of its ports.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use prost::Message;
use resil_gateway::config::Config;
use resil_gateway::demo::{EchoUpstream, HttpExample};
use resil_gateway::proto::resil::example::v1::{EchoRequest, EchoResponse};
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::proto::resil::v1::resilience_service_client::ResilienceServiceClient;
use resil_gateway::run::{self, Running};
use resil_harness::Server;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint};

pub const ECHO: &str = "resil.example.v1.EchoService/Echo";

pub struct Scene {
    pub running: Running,
    pub grpc: ResilienceServiceClient<Channel>,
    pub echo: EchoUpstream,
    pub example: HttpExample,
    pub is_broken: Arc<AtomicBool>,
    _stop: DropGuard,
}

/// Policies of every test: `plain` has nothing that refuses, `strict` trips at the second failure.
pub async fn store_policies(url: &str) {
    let client = resil::ConnectSettings::new(url).require_server().connect().await.expect("the server is there");
    let policies = client.policies();
    policies.set("plain", r#"{"timeout": {"total": "5s"}}"#).await.expect("valid");
    let strict = r#"{"retry": {"maxAttempts": 2, "initialBackoff": "10ms", "budget": null}, "timeout": {"attempt": "500ms", "total": "2s"},
        "breaker": {"consecutiveFailures": 2, "openFor": "60s"}}"#;
    policies.set("strict", strict).await.expect("valid");
}

pub fn config(url: &str, grpc: &str, http: &str, more: &str) -> Config {
    let text = format!(
        "redis: {{ url: \"{url}\" }}
grpc: {{ port: 0 }}
http: {{ port: 0 }}
upstreams:
  echo: {{ kind: grpc, address: \"http://{grpc}\", policy: plain, allowPolicies: [strict] }}
  example: {{ kind: http, address: \"http://{http}/\", policy: plain, allowPolicies: [strict] }}
  nowhere: {{ kind: http, address: \"http://127.0.0.1:1\", policy: strict }}
health: {{ every: 50ms, timeout: 1s, after: 2 }}
drain: 10s
{more}"
    );
    let text = if more.contains("limits:") { text } else { format!("{text}\nlimits: {{ apiPerSecond: 10000 }}\n") };
    let config = Config::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    config.validate().unwrap_or_else(|error| panic!("{error}\n{text}"));
    config
}

impl Scene {
    pub async fn start(url: &str, more: &str) -> Self {
        let (stop, is_broken) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
        let example = HttpExample::start(Arc::clone(&is_broken), stop.clone()).await.expect("a port");
        let config = config(url, &echo.address.to_string(), &example.address.to_string(), more);
        let running = run::start(config).await.unwrap_or_else(|error| panic!("{error}"));
        let grpc = client(&format!("http://{}", running.grpc_address));
        Self { running, grpc, echo, example, is_broken, _stop: stop.drop_guard() }
    }

    /// On a server of its own, with the policies.
    pub async fn on(server: &Server, more: &str) -> Self {
        store_policies(&server.url()).await;
        let scene = Self::start(&server.url(), more).await;
        scene.knows("strict").await;
        let feed = &scene.running.gateway.feed;
        within("events are heard", || async { *feed.listening().borrow() }).await;
        scene
    }

    pub async fn knows(&self, policy: &str) {
        within("the policy is known", || async { self.running.gateway.policies.is_stored(policy) }).await;
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        let response = send(self, Request::get(path), "").await;
        (response.0, response.2)
    }

    /// As the dashboard: with the CSRF header, from our own page.
    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let csrf = self.get("/api/session").await.1["csrf"].as_str().map(str::to_owned).unwrap_or_default();
        let origin = format!("http://{}", self.running.http_address);
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("x-resil-csrf", csrf)
            .header("origin", origin)
            .header("sec-fetch-site", "same-origin");
        let response = send(self, request, &body.to_string()).await;
        (response.0, response.2)
    }
}

pub fn client(target: &str) -> ResilienceServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(target.to_owned()).expect("an address");
    ResilienceServiceClient::new(endpoint.connect_lazy()).max_decoding_message_size(64 << 20)
}

type HttpClient = hyper_util::client::legacy::Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>;

pub fn http_client() -> HttpClient {
    hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http()
}

/// Sends a request to the HTTP port: status, headers, JSON.
pub async fn send(scene: &Scene, request: http::request::Builder, body: &str) -> (StatusCode, http::HeaderMap, Value) {
    let mut request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let path = request.uri().to_string();
    *request.uri_mut() = format!("http://{}{path}", scene.running.http_address).parse().expect("a path");
    let response: Response<_> = http_client().request(request).await.expect("the port is open");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let value =
        serde_json::from_slice(&body).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).into_owned()));
    (head.status, head.headers, value)
}

pub fn echo_call(request: &EchoRequest) -> proto::ExecuteWithResilienceRequest {
    let call = proto::GrpcCall { method: ECHO.into(), message: request.encode_to_vec().into() };
    proto::ExecuteWithResilienceRequest {
        upstream: "echo".into(),
        call: Some(proto::execute_with_resilience_request::Call::Grpc(call)),
        ..Default::default()
    }
}

pub fn http_call(upstream: &str, method: &str, path: &str) -> proto::ExecuteWithResilienceRequest {
    let call = proto::HttpCall { method: method.into(), path: path.into(), ..Default::default() };
    proto::ExecuteWithResilienceRequest {
        upstream: upstream.into(),
        call: Some(proto::execute_with_resilience_request::Call::Http(call)),
        ..Default::default()
    }
}

pub fn echoed(response: &proto::ExecuteWithResilienceResponse) -> EchoResponse {
    match &response.reply {
        Some(proto::execute_with_resilience_response::Reply::Grpc(reply)) => {
            EchoResponse::decode(reply.message.clone()).expect("an echo")
        }
        other => panic!("not a reply of gRPC: {other:?}"),
    }
}

pub fn replied(response: &proto::ExecuteWithResilienceResponse) -> &proto::HttpReply {
    match &response.reply {
        Some(proto::execute_with_resilience_response::Reply::Http(reply)) => reply,
        other => panic!("not a reply of HTTP: {other:?}"),
    }
}

/// The code of a status of the gateway.
pub fn code(status: &tonic::Status) -> &str {
    status.metadata().get("resil-code").and_then(|value| value.to_str().ok()).unwrap_or("none")
}

/// Waits until something holds, ten seconds at most.
pub async fn within<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    within_time(what, Duration::from_secs(10), holds).await;
}

pub async fn within_time<F: Future<Output = bool>>(what: &str, bound: Duration, holds: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + bound;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "in {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
