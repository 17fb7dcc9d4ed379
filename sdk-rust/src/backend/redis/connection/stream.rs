//! What a connection goes over: a TCP or unix socket, encrypted if the URL says so. redis-rs makes the introductions on it (protocol,
//! password, database, name) before it is ours, so passwords and older servers are understood as everywhere else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

use super::super::link::untimed;
use super::super::trouble::{Trouble, of_server};
use super::BROKE;
use super::tls::encrypted;

const NO_SUCH_HOST: &str = "the name of the server is not known";

/// What bytes go over.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(super) type Stream = Box<dyn Io>;

/// A stream that is past its introductions: HELLO, password, name.
pub(super) async fn connect(info: &ConnectionInfo) -> Result<Stream, Trouble> {
    let stream: Stream = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Box::new(reached(host, *port).await?),
        ConnectionAddr::TcpTls { host, port, insecure, .. } => {
            Box::new(encrypted(reached(host, *port).await?, host, *insecure).await?)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await.map_err(RedisError::from)?),
        _ => return Err(Trouble::Gone("there is no way to reach this kind of address")),
    };
    greeted(info, stream).await
}

async fn reached(host: &str, port: u16) -> Result<TcpStream, Trouble> {
    let addresses: Vec<_> = lookup_host((host, port)).await.map_err(|_| Trouble::Gone(NO_SUCH_HOST))?.collect();
    if addresses.is_empty() {
        return Err(Trouble::Gone(NO_SUCH_HOST));
    }
    let attempts = addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)));
    let (stream, _) = select_ok(attempts).await.map_err(RedisError::from)?;
    stream.set_nodelay(true).map_err(RedisError::from)?;
    Ok(stream)
}

/// The same stream, after redis-rs has said who we are and in which protocol.
async fn greeted(info: &ConnectionInfo, stream: Stream) -> Result<Stream, Trouble> {
    let borrowed = BorrowedStream { stream: Arc::new(Mutex::new(Some(stream))), first_line: Arc::default() };
    let (back, first_line) = (Arc::clone(&borrowed.stream), Arc::clone(&borrowed.first_line));
    let greeted = MultiplexedConnection::new_with_config(info.redis_settings(), borrowed, untimed()).await.map(drop);
    if let Err(error) = greeted {
        return Err(turned_away(&first_line.lock()).unwrap_or_else(|| error.into()));
    }
    let stream = back.lock().take();
    stream.ok_or(Trouble::Gone(BROKE))
}

/// A server that takes no more clients says why in one line and closes. redis-rs expects more than one line, and knows only that the
/// connection ended.
fn turned_away(first_line: &[u8]) -> Option<Trouble> {
    let line = std::str::from_utf8(first_line.strip_prefix(b"-")?.split(|byte| *byte == b'\r').next()?).ok()?;
    let (code, text) = line.split_once(' ').unwrap_or((line, ""));
    let is_known = code == "DENIED" || text.starts_with("max number of clients");
    is_known.then(|| of_server(code, text))
}

/// The part of a line that is worth showing.
const FIRST_LINE_BYTES: usize = 64;

/// A stream that redis-rs uses for a while.
struct BorrowedStream {
    stream: Arc<Mutex<Option<Stream>>>,
    /// The beginning of what the server said.
    first_line: Arc<Mutex<Vec<u8>>>,
}

impl BorrowedStream {
    fn with<T>(&self, work: impl FnOnce(Pin<&mut dyn Io>) -> Poll<std::io::Result<T>>) -> Poll<std::io::Result<T>> {
        match &mut *self.stream.lock() {
            Some(stream) => work(Pin::new(&mut **stream)),
            None => Poll::Ready(Err(std::io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for BorrowedStream {
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

impl AsyncWrite for BorrowedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.with(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.with(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
