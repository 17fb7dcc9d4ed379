//! Upstreams to try things with: one speaks gRPC, one HTTP. Tests use them too.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use futures_util::{Stream, stream};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};

use crate::proto::resil::example::v1::echo_service_server::{EchoService, EchoServiceServer};
use crate::proto::resil::example::v1::{EchoManyRequest, EchoManyResponse, EchoRequest, EchoResponse};

async fn serve(router: Router, stop: CancellationToken) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let ended = async move { stop.cancelled().await };
        let _ = axum::serve(listener, router).with_graceful_shutdown(ended).await;
    });
    Ok(address)
}

/// An upstream that speaks gRPC.
pub struct EchoUpstream {
    pub address: SocketAddr,
    pub calls: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Echo(Arc<AtomicU64>);

#[tonic::async_trait]
impl EchoService for Echo {
    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let calls = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let EchoRequest { text, delay, status } = request.into_inner();
        if let Some(delay) = delay.and_then(|delay| Duration::try_from(delay).ok()) {
            tokio::time::sleep(delay).await;
        }
        match i32::try_from(status).map(Code::from_i32) {
            Ok(Code::Ok) => Ok(Response::new(EchoResponse { text, calls })),
            Ok(code) => Err(Status::new(code, "asked to fail")),
            Err(_) => Err(Status::invalid_argument("status")),
        }
    }

    type EchoManyStream = Pin<Box<dyn Stream<Item = Result<EchoManyResponse, Status>> + Send>>;

    async fn echo_many(&self, request: Request<EchoManyRequest>) -> Result<Response<Self::EchoManyStream>, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let EchoManyRequest { text, times } = request.into_inner();
        let messages = (0..times.min(1_000)).map(move |_| Ok(EchoManyResponse { text: text.clone() }));
        Ok(Response::new(Box::pin(stream::iter(messages))))
    }
}

impl EchoUpstream {
    pub async fn start(stop: CancellationToken) -> io::Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let (health, check) = tonic_health::server::health_reporter();
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let service = EchoServiceServer::new(Echo(Arc::clone(&calls)));
        let router = tonic::service::Routes::new(service).add_service(check).prepare().into_axum_router();
        let address = serve(router, stop).await?;
        Ok(Self { address, calls })
    }
}

/// An upstream that speaks HTTP. `/items/N` responds, `/slow` takes a second, `/status/N` returns N; `/echo` shows what came.
pub struct HttpExample {
    pub address: SocketAddr,
    pub calls: Arc<AtomicU64>,
}

impl HttpExample {
    /// While `is_broken`, everything is 500.
    pub async fn start(is_broken: Arc<AtomicBool>, stop: CancellationToken) -> io::Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let router = Router::new().fallback(any(reply)).with_state((Arc::clone(&calls), is_broken));
        let address = serve(router, stop).await?;
        Ok(Self { address, calls })
    }
}

type Example = (Arc<AtomicU64>, Arc<AtomicBool>);

async fn reply(
    State((calls, is_broken)): State<Example>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: bytes::Bytes,
) -> (StatusCode, String) {
    let calls = calls.fetch_add(1, Ordering::Relaxed) + 1;
    if is_broken.load(Ordering::Relaxed) {
        return (StatusCode::INTERNAL_SERVER_ERROR, "broken on purpose".to_owned());
    }
    if uri.path() == "/slow" {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    if let Some(status) = uri.path().strip_prefix("/status/").and_then(|status| status.parse().ok()) {
        return (StatusCode::from_u16(status).unwrap_or(StatusCode::OK), String::new());
    }
    let shown: serde_json::Map<String, serde_json::Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned().into()))
        .collect();
    let body = json!({"method": method.as_str(), "path": uri.to_string(), "headers": shown, "body": String::from_utf8_lossy(&body), "calls": calls});
    (StatusCode::OK, body.to_string())
}
