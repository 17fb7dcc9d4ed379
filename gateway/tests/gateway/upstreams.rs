//! Upstreams that misbehave: what they send harms only their own calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::run;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::Code;

use crate::scene::{client, code, config, http_call, replied};

/// What a bad upstream sends to everybody, whatever they ask.
#[derive(Clone)]
enum Sent {
    /// This, and then nothing more; the connection stays open.
    AndWaits(Vec<u8>),
    /// This, and the connection ends.
    AndEnds(Vec<u8>),
    /// This again and again.
    Forever(Vec<u8>),
}

async fn bad_upstream(sent: Sent) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let sent = Arc::new(sent);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sent = Arc::clone(&sent);
            tokio::spawn(async move {
                let mut asked = [0; 4_096];
                let _ = stream.read(&mut asked).await;
                match &*sent {
                    Sent::AndEnds(bytes) => drop(stream.write_all(bytes).await),
                    Sent::AndWaits(bytes) => {
                        let _ = stream.write_all(bytes).await;
                        // Until the gateway has enough of it.
                        let _ = stream.read_to_end(&mut Vec::new()).await;
                    }
                    Sent::Forever(bytes) => while stream.write_all(bytes).await.is_ok() {},
                }
            });
        }
    });
    address
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_misbehaves_harms_only_its_own_calls() {
    let head = |rest: &str| format!("HTTP/1.1 {rest}\r\n").into_bytes();
    let cases = [
        ("says nothing and ends", Sent::AndEnds(Vec::new()), Code::Unavailable),
        ("says nothing", Sent::AndWaits(Vec::new()), Code::DeadlineExceeded),
        ("half a head and ends", Sent::AndEnds(head("200 OK")), Code::Unavailable),
        ("half a body and ends", Sent::AndEnds(OK.to_vec()), Code::Unavailable),
        ("half a body", Sent::AndWaits(OK.to_vec()), Code::DeadlineExceeded),
        ("another language", Sent::AndEnds(b"-ERR unknown command\r\n".to_vec()), Code::Unavailable),
        ("a head without end", Sent::Forever(b"X-A: b\r\n".to_vec()), Code::Unavailable),
        (
            "two lengths",
            Sent::AndEnds(head("200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
            Code::Unavailable,
        ),
        ("a body without end", Sent::Forever(head("200 OK\r\n\r\n")), Code::OutOfRange),
        ("early hints without end", Sent::Forever(head("103 Early Hints\r\n")), Code::DeadlineExceeded),
    ];
    for (what, sent, expected) in cases {
        let address = bad_upstream(sent).await;
        let mut config = config("memory://bad-upstreams", "127.0.0.1:1", &address.to_string(), "");
        config.upstreams.get_mut("example").expect("one of them").max_response = 64 << 10;
        let running = run::start(config).await.expect("started");
        running.gateway.client.policies().set("plain", "{}").await.expect("valid");
        crate::scene::within("it is known", || async { running.gateway.policies.is_stored("plain") }).await;
        let mut grpc = client(&format!("http://{}", running.grpc_address));
        let deadline = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        let call = proto::ExecuteWithResilienceRequest { deadline, ..http_call("example", "POST", "/") };
        let begun = Instant::now();
        let status = grpc.execute_with_resilience(call).await.expect_err(what);
        assert_eq!(status.code(), expected, "{what}: {status:?}");
        assert!(!status.message().contains("127.0.0.1"), "{what}: {status:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {:?}", begun.elapsed());
        assert_eq!(running.end().await, 0, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_cannot_make_a_caller_wait_for_centuries() {
    for after in ["18446744073709551615", "9223372036854775807", "-1", "1e300", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let reply =
            format!("HTTP/1.1 503 No\r\nRetry-After: {after}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let address = bad_upstream(Sent::AndEnds(reply.into_bytes())).await;
        let config = config("memory://centuries", "127.0.0.1:1", &address.to_string(), "");
        let running = run::start(config).await.expect("started");
        let retry = r#"{"retry": {"maxAttempts": 3, "initialBackoff": "1ms"}, "timeout": {"total": "1s"}}"#;
        running.gateway.client.policies().set("plain", retry).await.expect("valid");
        crate::scene::within("it is known", || async { running.gateway.policies.is_stored("plain") }).await;
        let mut grpc = client(&format!("http://{}", running.grpc_address));
        let begun = Instant::now();
        let called = grpc.execute_with_resilience(http_call("example", "GET", "/")).await;
        match called {
            Ok(response) => assert_eq!(replied(response.get_ref()).status, 503, "{after}"),
            Err(status) => assert_eq!(code(&status), "TIMEOUT", "{after}: {status:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{after}: {:?}", begun.elapsed());
        assert_eq!(running.end().await, 0, "{after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_headers_that_reach_elsewhere_are_refused() {
    let scene = crate::scene::Scene::start("memory://elsewhere", "").await;
    scene.running.gateway.client.policies().set("plain", "{}").await.expect("valid");
    scene.knows("plain").await;
    for path in ["/a/..;/admin", "/a/.;x/b", "/..;a=b", "/a/%2e%2e;/b", "/%2E%2e%3b/../x", "/a/..%5cb", "/./a", "/a/."]
    {
        let called = scene.grpc.clone().execute_with_resilience(http_call("example", "GET", path)).await;
        assert_eq!(called.expect_err(path).code(), Code::InvalidArgument, "{path}");
    }
    for name in ["keep-alive", "proxy-connection", "upgrade", "trailer", "TE", "Host", "grpc-timeout", "x-bin"] {
        let mut call = crate::scene::echo_call(&Default::default());
        call.metadata.insert(name.to_owned(), "x".to_owned());
        let called = scene.grpc.clone().execute_with_resilience(call).await;
        assert_eq!(called.expect_err(name).code(), Code::InvalidArgument, "{name}");
    }
    assert_eq!(scene.get("/livez").await.0, StatusCode::OK);
}
