//! How long a connection is waited for: a client that does nothing, sends slowly or does not read holds nothing for long.
//!
//! # What holds
//! - A connection without a request ends: early if it never had one, after a while if it had.
//! - The body of a request is there within a bounded time, however it trickles.
//! - A write that the other end does not take for long ends the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What one connection has to do.
#[derive(Debug, Clone)]
pub struct Activity(Arc<State>);

#[derive(Debug)]
struct State {
    opened: Instant,
    /// Requests whose response has not ended.
    out: AtomicUsize,
    /// When the last one ended, in milliseconds after `opened`. 0: there was none.
    ended_ms: AtomicU64,
}

/// A request, until its response has ended.
#[derive(Debug)]
pub struct Begun(Arc<State>);

impl Drop for Begun {
    fn drop(&mut self) {
        let ms = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.0.ended_ms.store(ms, Release);
        self.0.out.fetch_sub(1, AcqRel);
    }
}

impl Activity {
    pub fn new() -> Self {
        Self(Arc::new(State { opened: Instant::now(), out: AtomicUsize::new(0), ended_ms: AtomicU64::new(0) }))
    }

    pub fn begin(&self) -> Begun {
        self.0.out.fetch_add(1, AcqRel);
        Begun(Arc::clone(&self.0))
    }

    /// Returns when nothing was asked within `first`, or nothing more within `later` after the last response.
    pub async fn idle(&self, first: Duration, later: Duration) {
        loop {
            // Looked at now and then: a request should not have to wake anybody.
            let wait = match (self.0.out.load(Acquire), self.0.ended_ms.load(Acquire)) {
                (0, 0) => first.checked_sub(self.0.opened.elapsed()),
                (0, ended_ms) => (Duration::from_millis(ended_ms) + later).checked_sub(self.0.opened.elapsed()),
                _ => Some(later),
            };
            match wait.filter(|wait| !wait.is_zero()) {
                Some(wait) => sleep(wait).await,
                None => return,
            }
        }
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

/// A response that counts as one until it is gone.
pub struct ResponseBody {
    body: axum::body::Body,
    _begun: Begun,
}

impl ResponseBody {
    pub fn new(body: axum::body::Body, begun: Begun) -> Self {
        Self { body, _begun: begun }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request took too long.
#[derive(Debug, Clone, Copy)]
pub struct TooSlow(pub Duration);

impl std::fmt::Display for TooSlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the body was not there within {:?}", self.0)
    }
}

impl std::error::Error for TooSlow {}

impl TooSlow {
    /// Whether this is among the causes of an error.
    pub fn caused(mut error: Option<&(dyn std::error::Error + 'static)>) -> bool {
        while let Some(cause) = error {
            if cause.is::<Self>() {
                return true;
            }
            error = cause.source();
        }
        false
    }
}

/// The body of a request, which has a bounded time from when it is first waited for.
pub struct RequestBody {
    body: Incoming,
    within: Duration,
    ends: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    pub fn new(body: Incoming, within: Duration) -> Self {
        Self { body, within, ends: None }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let within = self.within;
        ready!(self.ends.get_or_insert_with(|| Box::pin(sleep(within))).as_mut().poll(cx));
        Poll::Ready(Some(Err(TooSlow(within).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose other end has to read: a write that waits longer than `within` is an error.
pub struct ReadStream<T> {
    inner: T,
    within: Duration,
    waits: Option<Pin<Box<Sleep>>>,
}

impl<T> ReadStream<T> {
    pub fn new(inner: T, within: Duration) -> Self {
        Self { inner, within, waits: None }
    }

    fn bounded<R>(&mut self, polled: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.waits = None;
            return polled;
        }
        let within = self.within;
        ready!(self.waits.get_or_insert_with(|| Box::pin(sleep(within))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.bounded(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, parts);
        self.bounded(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.bounded(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.bounded(polled, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const FIRST: Duration = Duration::from_millis(20);
    const LATER: Duration = Duration::from_millis(60);

    #[tokio::test]
    async fn a_connection_without_a_request_is_idle_soon() {
        let begun = Instant::now();
        Activity::new().idle(FIRST, Duration::from_secs(60)).await;
        assert!(begun.elapsed() >= FIRST);
    }

    #[tokio::test]
    async fn a_connection_with_a_request_is_not_idle() {
        let activity = Activity::new();
        let request = activity.begin();
        let idle = activity.idle(FIRST, LATER);
        tokio::pin!(idle);
        assert!(tokio::time::timeout(LATER * 3, &mut idle).await.is_err(), "one is out");
        drop(request);
        tokio::time::timeout(Duration::from_secs(10), idle).await.expect("nothing is left to do");
    }

    #[tokio::test]
    async fn an_end_that_does_not_read_ends_the_stream() {
        // Nobody reads the other end, which is kept.
        let (near, _far) = tokio::io::duplex(16);
        let mut stream = ReadStream::new(near, FIRST);
        let written = tokio::time::timeout(Duration::from_secs(10), stream.write_all(&[0; 64])).await;
        assert_eq!(written.expect("bounded").expect_err("not taken").kind(), io::ErrorKind::TimedOut);
    }
}
