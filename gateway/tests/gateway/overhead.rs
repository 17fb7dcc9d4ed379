//! What a call through the gateway costs, beside a direct call and beside a proxy that only passes bytes on, in one run.
//!
//! The bars are for a release build: CPU of the gateway at most 200 µs for a call, and p99 at most 2 ms, or three round trips, above the
//! direct call's. A build for tests is only measured.

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use http_body_util::BodyExt;
use resil_gateway::demo::EchoUpstream;
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::proto::resil::example::v1::echo_service_client::EchoServiceClient;
use resil_gateway::upstream::BytesCodec;
use resil_harness::{Options, Server};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use crate::process::Process;
use crate::scene::{client, echo_call};

const CALLS: usize = 2_000;
const WARM: usize = 300;

/// What passes bytes on and decides nothing.
async fn plain_proxy(upstream: Channel) -> String {
    let pass = async |State(channel): State<Channel>, request: Request| {
        let path = request.uri().path_and_query().cloned().expect("a path");
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.expect("an upstream");
        // The five bytes of the frame are gRPC's own.
        let answer =
            grpc.unary(tonic::Request::new(body.slice(5..)), path, BytesCodec).await.expect("an answer").into_inner();
        let mut framed = Vec::with_capacity(answer.len() + 5);
        framed.push(0);
        framed.extend_from_slice(&u32::try_from(answer.len()).expect("small").to_be_bytes());
        framed.extend_from_slice(&answer);
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a value"));
        let body =
            http_body_util::Full::new(bytes::Bytes::from(framed)).with_trailers(async move { Some(Ok(trailers)) });
        http::Response::builder()
            .header("content-type", "application/grpc")
            .body(axum::body::Body::new(body))
            .expect("a response")
    };
    let router = Router::new().fallback(pass).with_state(upstream);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn channel(target: &str) -> Channel {
    Endpoint::from_shared(target.to_owned()).expect("an address").tcp_nodelay(true).connect_lazy()
}

fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_through_the_gateway_costs_little_more_than_a_direct_one() {
    let server = Server::start(Options::default().measured());
    let store = resil::ConnectSettings::new(server.url()).require_server().connect().await.expect("the server");
    let policy = r#"{"retry": {"maxAttempts": 3}, "timeout": {"attempt": "1s", "total": "3s"}, "breaker": {},
        "rateLimit": {"limit": 1000000, "period": "1s"}}"#;
    store.policies().set("measured", policy).await.expect("valid");
    let stop = CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        format!("upstreams: {{ echo: {{ kind: grpc, address: \"http://{}\", policy: measured }} }}\n", echo.address);
    let gateway = Process::with_config(&folder, &text, &server.url());
    let direct = format!("http://{}", echo.address);
    let proxy = plain_proxy(channel(&direct)).await;
    let (mut direct, mut proxied) = (EchoServiceClient::new(channel(&direct)), EchoServiceClient::new(channel(&proxy)));
    let mut through = client(&format!("http://{}", gateway.grpc));
    let (mut times, mut round_trips) = ([const { Vec::new() }; 3], Vec::new());
    let request = EchoRequest { text: "x".repeat(100), ..Default::default() };
    let mut begun_cpu = Duration::ZERO;
    for number in 0..CALLS + WARM {
        if number == WARM {
            (times, round_trips) = ([const { Vec::new() }; 3], Vec::new());
            begun_cpu = gateway.cpu();
        }
        let begun = Instant::now();
        direct.echo(request.clone()).await.expect("an answer");
        times[0].push(begun.elapsed());
        let begun = Instant::now();
        proxied.echo(request.clone()).await.expect("an answer");
        times[1].push(begun.elapsed());
        let begun = Instant::now();
        through.execute_with_resilience(echo_call(&request)).await.expect("an answer");
        times[2].push(begun.elapsed());
        let begun = Instant::now();
        store.operator().time().await.expect("the server");
        round_trips.push(begun.elapsed());
    }
    let cpu = (gateway.cpu() - begun_cpu) / u32::try_from(CALLS).expect("few");
    let [direct, proxied, through] = times.map(quantiles);
    let round_trip = quantiles(round_trips).0;
    println!(
        "p50, p99: direct {direct:?}, plain proxy {proxied:?}, gateway {through:?}; a round trip to the server {round_trip:?}"
    );
    println!("CPU of the gateway for a call: {cpu:?}");
    let most = Duration::from_millis(2).max(round_trip * 3);
    if !cfg!(debug_assertions) {
        assert!(cpu <= Duration::from_micros(200), "{cpu:?}");
        assert!(through.1 <= direct.1 + most, "{:?} above {:?}", through.1, direct.1 + most);
    }
    stop.cancel();
}
