//! What a lane goes over: a socket on which redis-rs has made the introductions (protocol, password, database, name) before it
//! is ours. So passwords and older servers are understood as everywhere else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};

use super::super::link::untimed;
use super::super::trouble::{Trouble, of_server};
use super::BROKE;

/// Without TLS: that is still left to redis-rs.
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// A connection over which the server has been told who we are.
    pub async fn connect(info: &ConnectionInfo) -> Result<Self, Trouble> {
        greeted(info, reached(info).await?).await
    }

    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }
}

async fn reached(info: &ConnectionInfo) -> Result<Stream, Trouble> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let addresses: Vec<_> =
                lookup_host((host.as_str(), *port)).await.map_err(|_| Trouble::Gone(NO_SUCH_HOST))?.collect();
            if addresses.is_empty() {
                return Err(Trouble::Gone(NO_SUCH_HOST));
            }
            // All at once: one that leads nowhere must not cost the time for the others.
            let attempts = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
            let (stream, _) = select_ok(attempts).await.map_err(redis::RedisError::from)?;
            stream.set_nodelay(true).map_err(redis::RedisError::from)?;
            Ok(Stream::Tcp(stream))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            Ok(Stream::Unix(UnixStream::connect(path).await.map_err(redis::RedisError::from)?))
        }
        _ => Err(Trouble::Gone("this kind of address is reached otherwise")),
    }
}

const NO_SUCH_HOST: &str = "the name of the server is not known";

/// The same stream, after redis-rs has said who we are and in which protocol.
async fn greeted(info: &ConnectionInfo, stream: Stream) -> Result<Stream, Trouble> {
    let lent = Lent { stream: Arc::new(Mutex::new(Some(stream))), first_line: Arc::default() };
    let (back, first_line) = (Arc::clone(&lent.stream), Arc::clone(&lent.first_line));
    // What it returns would go on with the stream if it were polled. It is not.
    let greeted = MultiplexedConnection::new_with_config(info.redis_settings(), lent, untimed()).await.map(drop);
    if let Err(error) = greeted {
        return Err(turned_away(&first_line.lock()).unwrap_or_else(|| error.into()));
    }
    let stream = back.lock().take();
    stream.ok_or(Trouble::Gone(BROKE))
}

/// A server that takes nobody in says why in one line and closes. redis-rs expects more than one line, and knows only that the
/// connection ended.
fn turned_away(first_line: &[u8]) -> Option<Trouble> {
    let line = std::str::from_utf8(first_line.strip_prefix(b"-")?.split(|byte| *byte == b'\r').next()?).ok()?;
    let (code, text) = line.split_once(' ').unwrap_or((line, ""));
    let is_known = code == "DENIED" || text.starts_with("max number of clients");
    is_known.then(|| of_server(code, text))
}

/// As much of a line as tells what it says.
const FIRST_LINE_BYTES: usize = 64;

/// A stream that somebody else uses for a while.
struct Lent {
    stream: Arc<Mutex<Option<Stream>>>,
    /// The beginning of what the server said.
    first_line: Arc<Mutex<Vec<u8>>>,
}

impl Lent {
    fn with<T>(&self, work: impl FnOnce(&mut Stream) -> Poll<std::io::Result<T>>) -> Poll<std::io::Result<T>> {
        match &mut *self.stream.lock() {
            Some(stream) => work(stream),
            None => Poll::Ready(Err(std::io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.with(|stream| stream.poll_read(context, buffer));
        let mut line = self.first_line.lock();
        let missing = FIRST_LINE_BYTES.saturating_sub(line.len());
        line.extend(buffer.filled()[before..].iter().take(missing));
        read
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
