//! Whether a request can be sent again: only if it is one message at most, and all of it is there already.
//!
//! A unary call's body gives its message and its end when it is asked. A stream's has more to say, or nothing yet. So the
//! body is asked once, and never waited for: what it gave is kept, by reference, and sent before the rest.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::Full;
use tonic::Status;
use tonic::body::Body;

/// A flag, and the length in four bytes.
const PREFIX_LEN: usize = 5;

pub(super) enum OutgoingRequest {
    /// Can be sent any number of times.
    Whole(Whole),
    Stream(http::Request<Body>),
}

#[derive(Clone)]
pub(super) struct Whole {
    parts: Parts,
    message: Bytes,
}

impl Whole {
    /// The request once more.
    pub fn request(&self) -> http::Request<Body> {
        http::Request::from_parts(self.parts.clone(), Body::new(Full::new(self.message.clone())))
    }

    pub fn into_request(self) -> http::Request<Body> {
        http::Request::from_parts(self.parts, Body::new(Full::new(self.message)))
    }
}

/// Asks the body what it has.
pub(super) async fn look(request: http::Request<Body>) -> OutgoingRequest {
    let (parts, mut body) = request.into_parts();
    let mut frames = VecDeque::new();
    let is_whole = poll_fn(|context| Poll::Ready(take_ready(&mut body, &mut frames, context))).await;
    if is_whole {
        return OutgoingRequest::Whole(Whole { parts, message: joined(frames) });
    }
    let body = Rejoined { frames, rest: body };
    OutgoingRequest::Stream(http::Request::from_parts(parts, Body::new(body)))
}

type Given = Result<Frame<Bytes>, Status>;

/// Whether all of it is there, and is one message at most.
fn take_ready(body: &mut Body, frames: &mut VecDeque<Given>, context: &mut Context<'_>) -> bool {
    loop {
        match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
            Poll::Ready(Some(given)) => {
                let is_data = matches!(&given, Ok(frame) if frame.is_data());
                frames.push_back(given);
                if !is_data || has_second_message(frames) {
                    return false;
                }
            }
        }
    }
}

fn has_second_message(frames: &VecDeque<Given>) -> bool {
    let chunks = || frames.iter().filter_map(|given| given.as_ref().ok()?.data_ref());
    let total = chunks().map(Bytes::len).sum::<usize>();
    let mut prefix = [0; PREFIX_LEN];
    let seen = chunks().flatten().zip(&mut prefix).map(|(byte, place)| *place = *byte).count();
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    seen == PREFIX_LEN && total > PREFIX_LEN.saturating_add(length)
}

/// One chunk as it is; several are copied together once.
fn joined(frames: VecDeque<Given>) -> Bytes {
    let mut chunks = frames.into_iter().filter_map(|given| given.ok()?.into_data().ok());
    let (Some(first), second) = (chunks.next(), chunks.next()) else { return Bytes::new() };
    let Some(second) = second else { return first };
    let mut all = BytesMut::from(first);
    all.extend_from_slice(&second);
    chunks.for_each(|chunk| all.extend_from_slice(&chunk));
    all.freeze()
}

/// A body whose beginning was read already.
struct Rejoined {
    frames: VecDeque<Given>,
    rest: Body,
}

impl http_body::Body for Rejoined {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Given>> {
        match self.frames.pop_front() {
            Some(given) => Poll::Ready(Some(given)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.frames.is_empty() { self.rest.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
#[path = "tests/request.rs"]
mod tests;
