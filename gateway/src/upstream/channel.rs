//! The connection to an upstream that speaks gRPC: opened by the first call, shared by all, and opened anew after it was lost.
//!
//! A call queues its frames itself and is woken by the task of the connection, and by nobody else. With tonic's own channel four more tasks are
//! between the two; they wake the next thread for each call, which costs more than the rest of the way (docs/decisions/0034).
//!
//! # What holds
//! - Of callers that find no connection one opens it, and all get what came of it: the connection, or why there is none.
//! - A caller that goes away ends its stream, and neither the connection nor the opening of it.
//! - A call that could not be handed to a connection, or that the upstream says it did not take, was not made. It goes to the next connection; after a few
//!   of them it fails with [`NotConnected`].
//! - A connection that owes responses and leaves a ping without a reply is given up.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use h2::client::SendRequest;
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tower::{Service, ServiceExt};

const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// What an upstream may send before it is read, for a call and for all of a connection.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;
const HEADERS_MAX: u32 = 16 << 10;
/// How many connections may end under a call that none of them took.
const CONNECTIONS_MAX: usize = 3;
const USER_AGENT: &str = concat!("resil-gateway/", env!("CARGO_PKG_VERSION"));

type Connector = HttpsConnector<HttpConnector>;
type AnyError = Box<dyn Error + Send + Sync>;

/// There is no connection, so nothing was sent.
#[derive(Debug, Clone)]
pub struct NotConnected(Arc<str>);

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection: {}", self.0)
    }
}

impl Error for NotConnected {}

/// A connection, while it is used.
#[derive(Clone)]
struct Open {
    sender: SendRequest<Bytes>,
    /// The connection has one, and so has each call that it owes a response.
    owed: Weak<()>,
}

type Opening = Shared<BoxFuture<'static, Result<Open, NotConnected>>>;

#[derive(Clone)]
pub struct GrpcChannel(Arc<Inner>);

struct Inner {
    address: Uri,
    connector: Connector,
    now: Mutex<Option<Opening>>,
}

impl GrpcChannel {
    pub fn new(address: Uri, connector: Connector) -> Self {
        Self(Arc::new(Inner { address, connector, now: Mutex::new(None) }))
    }

    /// The connection that there is, or that is being opened; else a new one.
    fn current(&self) -> Opening {
        let mut now = self.0.now.lock();
        match &*now {
            Some(opening) if !matches!(opening.peek(), Some(Err(_))) => opening.clone(),
            _ => now.insert(self.open()).clone(),
        }
    }

    /// A task of its own: a caller that does not wait any longer leaves it to the others.
    fn open(&self) -> Opening {
        let opened = tokio::spawn(opened(self.0.connector.clone(), self.0.address.clone()));
        let opened = async { opened.await.unwrap_or_else(|_| Err(NotConnected("it was given up".into()))) };
        opened.boxed().shared()
    }

    fn forget(&self, lost: &Opening) {
        let mut now = self.0.now.lock();
        if now.as_ref().is_some_and(|now| now.ptr_eq(lost)) {
            *now = None;
        }
    }

    /// A call that an ending connection did not take is made on the next one.
    async fn send(self, request: Request<tonic::body::Body>) -> Result<Response<UpstreamBody>, AnyError> {
        let (mut head, body) = request.into_parts();
        head.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let message = body.collect().await?.to_bytes();
        for _ in 0..CONNECTIONS_MAX {
            let opening = self.current();
            let Open { sender, owed } = opening.clone().await?;
            let (Ok(mut sender), Some(owed)) = (sender.ready().await, owed.upgrade()) else {
                self.forget(&opening);
                continue;
            };
            let (response, mut stream) = match sender.send_request(Request::from_parts(head.clone(), ()), false) {
                Ok(begun) => begun,
                // It ended after it was ready.
                Err(error) if error.is_go_away() || error.is_io() => {
                    self.forget(&opening);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // Why the message is not taken is said in place of a response.
            let _ = stream.send_data(message.clone(), true);
            match response.await {
                Ok(response) => {
                    return Ok(response.map(|stream| UpstreamBody { stream, part: Part::Data, _owed: owed }));
                }
                Err(error) if was_not_taken(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(NotConnected("the upstream ends its connections".into()).into())
    }
}

/// The upstream says that it did not look at the request: it refused the stream, or the stream came after the last one that it names as it ends the connection.
fn was_not_taken(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM))
}

async fn opened(connector: Connector, address: Uri) -> Result<Open, NotConnected> {
    let refused = |error: AnyError| NotConnected(error.to_string().into());
    let stream = connector.oneshot(address).await.map_err(refused)?;
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_MAX)
        .enable_push(false);
    let opened = builder.handshake(TokioIo::new(stream)).await;
    let (sender, mut connection) = opened.map_err(|error| refused(error.into()))?;
    let (owed, pings) = (Arc::new(()), connection.ping_pong());
    let open = Open { sender, owed: Arc::downgrade(&owed) };
    tokio::spawn(async move {
        tokio::select! {
            // Why it ended is said to those who wait for responses.
            _ = connection => {}
            () = unanswered(pings, &owed) => {}
        }
    });
    Ok(open)
}

/// Ends when a ping is not answered. A connection that owes nothing is not asked: upstreams end those that ping for nothing.
async fn unanswered(pings: Option<PingPong>, owed: &Arc<()>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PING_EVERY).await;
        let owes = Arc::strong_count(owed) > 1;
        if owes && !matches!(tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

impl Service<Request<tonic::body::Body>> for GrpcChannel {
    type Response = Response<UpstreamBody>;
    type Error = AnyError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// What comes back; dropped, it ends the stream.
pub struct UpstreamBody {
    stream: RecvStream,
    part: Part,
    _owed: Arc<()>,
}

#[derive(Clone, Copy)]
enum Part {
    Data,
    Trailers,
    Over,
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Part::Data = self.part {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // It has said all, and does not want to hear the rest.
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => self.part = Part::Over,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.part = Part::Trailers,
            }
        }
        if let Part::Trailers = self.part {
            let trailers = ready!(self.stream.poll_trailers(cx));
            self.part = Part::Over;
            return Poll::Ready(trailers.transpose().map(|trailers| trailers.map(Frame::trailers)));
        }
        Poll::Ready(None)
    }
}
