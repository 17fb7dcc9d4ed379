//! One port: connections, TLS, and a router behind them.
//!
//! # What holds
//! - At most so many connections are open; one more is closed at once, so that those that are there go on.
//! - A client has a bounded time for its handshake, for its first byte, for its first request, for the head and the body of each request, and to
//!   read what it is sent ([`patience`](crate::patience)).
//! - When the port is closed, no connection is accepted, those that are idle end, and the others end after the responses they wait for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::identity::Peer;
use crate::patience::{Activity, ReadStream, RequestBody, ResponseBody};
use crate::tls::Protocol;

/// After an error of the system (too many open files) the port rests for a moment.
const REST: Duration = Duration::from_millis(50);
const STREAMS_MAX: u32 = 1_000;
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How a port is served.
#[derive(Clone)]
pub struct Port {
    pub protocol: Protocol,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Connections at once.
    pub connections: usize,
    /// For the head of a request, and for a handshake.
    pub head: Duration,
    /// For the body of a request, and for a write that the other end does not take.
    pub body: Duration,
    /// Without a request, after the first.
    pub idle: Duration,
    /// Nothing is accepted any more.
    pub closing: CancellationToken,
    /// Those that are still there are cut off.
    pub cut: CancellationToken,
    /// The connections that are open.
    pub open: TaskTracker,
}

impl Port {
    /// Accepts until the port is closed.
    pub async fn serve(self, listener: TcpListener, router: Router) {
        let places = Arc::new(Semaphore::new(self.connections));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.closing.cancelled() => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                crate::metrics::CONNECTIONS_REFUSED.fetch_add(1, Relaxed);
                continue;
            };
            let (port, router) = (self.clone(), router.clone());
            self.open.spawn(async move {
                port.connection(stream, address, router).await;
                drop(place);
            });
        }
    }

    async fn connection(&self, stream: TcpStream, address: SocketAddr, router: Router) {
        let _ = stream.set_nodelay(true);
        // A client that says nothing is not waited for.
        let spoke = tokio::select! {
            spoke = tokio::time::timeout(self.head, stream.readable()) => matches!(spoke, Ok(Ok(()))),
            () = self.closing.cancelled() => false,
        };
        if !spoke {
            return;
        }
        let stream = ReadStream::new(stream, self.body);
        match &self.tls {
            None => self.exchange(stream, Peer::plain(address), router).await,
            Some(tls) => {
                let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
                let Ok(Ok(stream)) = tokio::time::timeout(self.head, handshake).await else { return };
                let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let peer = match certificate {
                    Some(certificate) => Peer::with_certificate(address, certificate),
                    None => Peer::plain(address),
                };
                self.exchange(stream, peer, router).await;
            }
        }
    }

    async fn exchange(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, router: Router) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder = match self.protocol {
            Protocol::Http1 => builder.http1_only(),
            Protocol::Http2 => builder.http2_only(),
        };
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.head).max_buf_size(64 << 10);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(32 << 10)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        let (activity, body) = (Activity::new(), self.body);
        let counted = activity.clone();
        let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            let (begun, router) = (counted.begin(), router.clone());
            async move {
                let response = router.oneshot(request.map(|own| RequestBody::new(own, body))).await;
                response.map(|response| response.map(|own| ResponseBody::new(own, begun)))
            }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            // Errors of a connection are the client's: it went, or spoke another language.
            _ = connection.as_mut() => return,
            () = self.closing.cancelled() => connection.as_mut().graceful_shutdown(),
            () = activity.idle(self.head, self.idle) => {
                connection.as_mut().graceful_shutdown();
                // It may be in the middle of its very first words.
                let _ = tokio::time::timeout(self.head, connection).await;
                return;
            }
        }
        tokio::select! {
            _ = connection => {}
            () = self.cut.cancelled() => {}
        }
    }
}
