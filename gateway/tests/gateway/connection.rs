//! The connection to an upstream that speaks gRPC: shared, lost, ended by the upstream, and with TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use resil_gateway::config::Config;
use resil_gateway::demo::EchoUpstream;
use resil_gateway::proto::resil::example::v1::echo_service_server::{EchoService, EchoServiceServer};
use resil_gateway::proto::resil::example::v1::{EchoManyRequest, EchoManyResponse, EchoRequest, EchoResponse};
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::proto::resil::v1::resilience_service_client::ResilienceServiceClient;
use resil_gateway::run::{self, Running};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

use crate::scene::{client, code, config, echo_call, echoed, within};

type Grpc = ResilienceServiceClient<tonic::transport::Channel>;

async fn started(config: Config) -> (Running, Grpc) {
    let running = run::start(config).await.expect("started");
    running.gateway.client.policies().set("plain", r#"{"timeout": {"total": "20s"}}"#).await.expect("valid");
    within("it is known", || async { running.gateway.policies.is_stored("plain") }).await;
    let grpc = client(&format!("http://{}", running.grpc_address));
    (running, grpc)
}

fn text(text: &str) -> proto::ExecuteWithResilienceRequest {
    echo_call(&EchoRequest { text: text.to_owned(), ..Default::default() })
}

fn slow(span: Duration) -> proto::ExecuteWithResilienceRequest {
    let delay = prost_types::Duration::try_from(span).expect("short");
    echo_call(&EchoRequest { text: "slow".to_owned(), delay: Some(delay), ..Default::default() })
}

/// What is between the gateway and an upstream: it counts connections, and cuts them.
struct Counted {
    address: SocketAddr,
    opened: Arc<AtomicUsize>,
    cut: tokio::sync::watch::Sender<u32>,
}

impl Counted {
    async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (opened, cut) = (Arc::new(AtomicUsize::new(0)), tokio::sync::watch::Sender::new(0));
        let (count, cuts) = (Arc::clone(&opened), cut.subscribe());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let mut cuts = cuts.clone();
                tokio::spawn(async move {
                    cuts.borrow_and_update();
                    let mut far = TcpStream::connect(upstream).await.expect("the upstream");
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { address, opened, cut }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_share_one_connection_and_a_lost_one_is_replaced() {
    let stop = CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let between = Counted::before(echo.address).await;
    let (running, grpc) = started(config("memory://shared", &between.address.to_string(), "127.0.0.1:1", "")).await;
    let all = async |what: &str| {
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (mut grpc, what) = (grpc.clone(), format!("{what} {number}"));
            calls.spawn(async move {
                let response = grpc.execute_with_resilience(text(&what)).await.expect("a reply").into_inner();
                assert_eq!(echoed(&response).text, what);
            });
        }
        while let Some(called) = calls.join_next().await {
            called.expect("no panic");
        }
    };
    all("first").await;
    // A caller that does not wait any longer takes nothing from the others.
    let gives_up = proto::ExecuteWithResilienceRequest {
        deadline: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }),
        ..slow(Duration::from_secs(60))
    };
    let late = grpc.clone().execute_with_resilience(gives_up).await.expect_err("its time is over");
    assert_eq!(code(&late), "TIMEOUT", "{late:?}");
    all("second").await;
    assert_eq!(between.opened.load(Relaxed), 1);
    let (mut waiting, begun) = (grpc.clone(), echo.calls.load(Relaxed));
    let cut_off = tokio::spawn(async move { waiting.execute_with_resilience(slow(Duration::from_secs(60))).await });
    within("it has begun", || async { echo.calls.load(Relaxed) > begun }).await;
    between.cut.send_modify(|cuts| *cuts += 1);
    let lost = cut_off.await.expect("no panic").expect_err("its connection is lost");
    assert_eq!((lost.code(), code(&lost)), (Code::Unavailable, "UPSTREAM_BROKEN"), "{lost:?}");
    all("third").await;
    assert_eq!(between.opened.load(Relaxed), 2);
    assert_eq!(running.end().await, 0);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_pass_both_ways() {
    let stop = CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let (running, mut grpc) = started(config("memory://large", &echo.address.to_string(), "127.0.0.1:1", "")).await;
    for size in [0, 1, 16_379, 16_384, 70_000, 3_000_000] {
        let what = "x".repeat(size);
        let response = grpc.execute_with_resilience(text(&what)).await.expect("a reply").into_inner();
        assert!(echoed(&response).text == what, "{size} bytes");
    }
    assert_eq!(running.end().await, 0);
    stop.cancel();
}

struct Echo;

#[tonic::async_trait]
impl EchoService for Echo {
    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        Ok(Response::new(EchoResponse { text: request.into_inner().text, calls: 1 }))
    }

    type EchoManyStream = tokio_stream::Empty<Result<EchoManyResponse, Status>>;

    async fn echo_many(&self, _: Request<EchoManyRequest>) -> Result<Response<Self::EchoManyStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

async fn served(mut server: Server, stop: &CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, stop) = (listener.local_addr().expect("an address"), stop.clone());
    let router = server.add_service(EchoServiceServer::new(Echo));
    let ended = async move { stop.cancelled().await };
    tokio::spawn(router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), ended));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_ends_its_connections_politely_costs_no_call() {
    let stop = CancellationToken::new();
    let upstream = served(Server::builder().max_connection_age(Duration::from_millis(20)), &stop).await;
    let between = Counted::before(upstream).await;
    let (running, grpc) = started(config("memory://polite", &between.address.to_string(), "127.0.0.1:1", "")).await;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..4 {
        let (mut grpc, opened) = (grpc.clone(), Arc::clone(&between.opened));
        callers.spawn(async move {
            let mut number = 0;
            while opened.load(Relaxed) < 10 {
                number += 1;
                let called = grpc.execute_with_resilience(text("again")).await;
                called.unwrap_or_else(|status| panic!("call {number} of {caller}: {status:?}"));
            }
        });
    }
    let all = tokio::time::timeout(Duration::from_secs(60), callers.join_all()).await;
    assert_eq!(all.expect("connections end, and are opened").len(), 4);
    assert_eq!(running.end().await, 0);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_with_tls_proves_who_it_is() {
    let (stop, folder) = (CancellationToken::new(), tempfile::tempdir().expect("a folder"));
    let issued = || {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
    };
    let ((certificate, key), (another, _)) = (issued(), issued());
    let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certificate, &key));
    let upstream = served(Server::builder().tls_config(tls).expect("TLS"), &stop).await;
    for (name, trusted, expected) in
        [("own", certificate, Ok("hello")), ("another", another, Err("UPSTREAM_UNREACHABLE"))]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, trusted).expect("a file");
        let mut config = config(&format!("memory://tls-{name}"), "127.0.0.1:1", "127.0.0.1:1", "");
        let echo = config.upstreams.get_mut("echo").expect("one of them");
        (echo.address, echo.ca_file) = (format!("https://localhost:{}", upstream.port()), Some(path));
        let (running, mut grpc) = started(config).await;
        let called = grpc.execute_with_resilience(text("hello")).await;
        let text = called.as_ref().map(|response| echoed(response.get_ref()).text);
        assert_eq!(text.as_deref().map_err(|status| code(status)), expected, "{called:?}");
        assert_eq!(running.end().await, 0);
    }
    stop.cancel();
}
