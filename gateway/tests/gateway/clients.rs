//! Clients that are slow, silent, half gone or do not read: each is let go, and nobody waits for them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use resil_gateway::demo::EchoUpstream;
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_gateway::upstream::BytesCodec;
use resil_harness::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::process::Process;
use crate::scene::{Scene, client, echo_call, store_policies, within};

/// The beginning of every HTTP/2 connection, with settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
const SHORT: &str = "limits: { apiPerSecond: 10000, head: 200ms, body: 300ms, idle: 400ms }\n";

/// What a gateway says to somebody who sends this and nothing more, until it ends the connection.
async fn said_until_closed(address: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(sent).await.expect("sent");
    let mut said = Vec::new();
    // A reset is an end as well.
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "let go: {:?}", String::from_utf8_lossy(sent));
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_in_the_middle_is_let_go() {
    let scene = Scene::start("memory://stops", SHORT).await;
    let (grpc, http) = (scene.running.grpc_address, scene.running.http_address);
    for sent in [&b""[..], &PREFACE[..10], &PREFACE[..24], PREFACE, b"GET / HTTP/1.1\r\n\r\n"] {
        said_until_closed(grpc, sent).await;
    }
    for sent in [&b""[..], b"G", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "] {
        said_until_closed(http, sent).await;
    }
    let begun =
        "POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n";
    let csrf = scene.get("/api/session").await.1["csrf"].as_str().expect("a text").to_owned();
    let begun = format!("{begun}X-Resil-Csrf: {csrf}\r\n\r\n{{\"token\":");
    let said = said_until_closed(http, begun.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("REQUEST_TIMEOUT"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_readable_in_two_ways_is_refused() {
    let scene = Scene::start("memory://two-ways", SHORT).await;
    let post = "POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let smuggled = "0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (what, sent, status) in [
        ("two lengths", format!("{post}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"), 400),
        ("two encodings", format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n{smuggled}"), 400),
        (
            "a length and an encoding",
            format!("{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"),
            403,
        ),
        ("a folded header", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n".into(), 400),
        ("a space before the colon", "GET /livez HTTP/1.1\r\nHost : localhost\r\n\r\n".into(), 400),
        ("a NUL", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n".into(), 400),
        ("two hosts", "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n".into(), 421),
        ("no host", "GET / HTTP/1.0\r\n\r\n".into(), 421),
        ("a target elsewhere", "GET http://evil.test/ HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 421),
        ("a thousand headers", format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(1_000)), 431),
        ("a path of 100 kB", format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "y".repeat(100_000)), 414),
    ] {
        let said = said_until_closed(scene.running.http_address, sent.as_bytes()).await;
        let replies: Vec<&str> = said.lines().filter(|line| line.starts_with("HTTP/1.")).collect();
        assert_eq!(replies.len(), 1, "{what}: one request, one reply: {said:.500}");
        assert!(replies[0][9..].starts_with(&status.to_string()), "{what}: {}", replies[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_grpc_that_never_ends_is_refused() {
    let scene = Scene::start("memory://never-ends", SHORT).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", scene.running.grpc_address)).expect("an address");
    let mut grpc = tonic::client::Grpc::new(endpoint.connect_lazy());
    grpc.ready().await.expect("the port is open");
    let path = "/resil.v1.ResilienceService/ExecuteWithResilience".parse().expect("a path");
    let nothing = tonic::Request::new(tokio_stream::pending::<Bytes>());
    let called = tokio::time::timeout(Duration::from_secs(10), grpc.client_streaming(nothing, path, BytesCodec)).await;
    assert!(called.expect("bounded").is_err(), "half a request is none");
    within("no call is left", || async { scene.running.gateway.drain.in_flight() == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_in_use_is_kept() {
    let scene = Scene::start("memory://in-use", SHORT).await;
    let mut reader = TcpStream::connect(scene.running.http_address).await.expect("a connection");
    reader.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    // Longer than every limit: a stream that is read is no idle connection.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    scene.running.gateway.feed.tell("audit", &serde_json::json!({"mark": "still here"}));
    let mut said = Vec::new();
    let heard = async {
        while !String::from_utf8_lossy(&said).contains("still here") {
            assert_ne!(reader.read_buf(&mut said).await.expect("open"), 0, "{}", String::from_utf8_lossy(&said));
        }
    };
    tokio::time::timeout(Duration::from_secs(10), heard).await.expect("it hears");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_events_that_never_reads_is_let_go() {
    let scene = Scene::start("memory://never-reads", SHORT).await;
    let feed = &scene.running.gateway.feed;
    let mut reader = TcpStream::connect(scene.running.http_address).await.expect("a connection");
    reader.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    within("it watches", || async { feed.watching() == 1 }).await;
    let much = serde_json::json!({"text": "x".repeat(64 << 10)});
    // What the kernel holds for it is full some day; then it has as long as a body.
    within("it is let go", || async {
        feed.tell("audit", &much);
        feed.watching() == 0
    })
    .await;
    drop(reader);
}

/// The ways to be slow, by turns.
async fn slow_client(number: usize, grpc: SocketAddr, http: SocketAddr) -> TcpStream {
    let (address, sent): (_, &[u8]) = match number % 6 {
        0 => (http, b""),
        1 => (grpc, b""),
        2 => (http, b"GET / HT"),
        3 => (grpc, &PREFACE[..16]),
        4 => (http, b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"),
        _ => (grpc, PREFACE),
    };
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(sent).await.expect("sent");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_slow_clients_hold_up_nobody() {
    const SLOW: usize = 10_000;
    let server = Server::fresh();
    store_policies(&server.url()).await;
    let stop = CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "upstreams: {{ echo: {{ kind: grpc, address: \"http://{}\", policy: plain }} }}\nlimits: {{ head: 60s, body: 60s }}\n",
        echo.address
    );
    // In a process of its own: each end of a connection is an open file.
    let gateway = Process::with_config(&folder, &text, &server.url());
    let (grpc, http) = (gateway.grpc.parse().expect("an address"), gateway.http.parse().expect("an address"));
    let before = gateway.memory();
    let mut slow = Vec::with_capacity(SLOW);
    for number in 0..SLOW {
        slow.push(slow_client(number, grpc, http).await);
    }
    let used = gateway.memory().saturating_sub(before);
    let mut through = client(&format!("http://{grpc}"));
    let mut waits = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        through.execute_with_resilience(echo_call(&EchoRequest::default())).await.expect("a reply");
        waits.push(begun.elapsed());
    }
    let mut live = TcpStream::connect(http).await.expect("a connection");
    live.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.expect("sent");
    let mut said = String::new();
    tokio::time::timeout(Duration::from_secs(10), live.read_to_string(&mut said))
        .await
        .expect("in time")
        .expect("text");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    waits.sort();
    println!(
        "{SLOW} slow clients, {} KiB for each; calls beside them: p50 {:?}, p99 {:?}",
        used / SLOW as u64 / 1_024,
        waits[100],
        waits[197]
    );
    assert!(waits[197] < Duration::from_secs(1), "{:?}", waits[197]);
    assert!(used < SLOW as u64 * 100 * 1_024, "{used} bytes for {SLOW}");
    drop(slow);
    stop.cancel();
}
