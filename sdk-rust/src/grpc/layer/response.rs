//! The response as it comes in: the deadline still holds, and the breaker learns how it went from the first thing that comes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use metrics::Counter;
use pin_project_lite::pin_project;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::breaker::Permit;
use crate::clock::{Clock, Moment, Sleep};
use crate::error::Error;
use crate::grpc::{PUSHBACK_KEY, RetryStatuses};
use crate::policy::Class;

/// Whatever a channel or a body fails with.
pub(super) type AnyError = Box<dyn std::error::Error + Send + Sync>;

const STATUS_KEY: &str = "grpc-status";

/// The status that headers or trailers have, as far as policies need it: code and pushback. `None`: they have none.
pub(super) fn status_in(headers: &HeaderMap) -> Option<Status> {
    let code = Code::from_bytes(headers.get(STATUS_KEY)?.as_bytes());
    let mut metadata = MetadataMap::new();
    for value in headers.get_all(PUSHBACK_KEY) {
        if let Ok(value) = MetadataValue::try_from(value.as_bytes()) {
            metadata.append(PUSHBACK_KEY, value);
        }
    }
    Some(Status::with_metadata(code, "", metadata))
}

/// The status of a response whose headers came: `None` as long as only the trailers can tell.
pub(super) fn status_of<B>(response: &http::Response<B>) -> Option<Status> {
    if let Some(status) = status_in(response.headers()) {
        return Some(status);
    }
    // Not from a gRPC server; somebody in between answered. As gRPC maps them.
    let code = match response.status().as_u16() {
        200 => return None,
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Some(Status::new(code, ""))
}

/// What a status says about the health of the server. The report is made when this is polled, whether or not its end is awaited.
pub(super) async fn report(permit: Permit, status: &Status) {
    match status.code() {
        Code::Ok => permit.success().await,
        _ if RetryStatuses::default().class(status) == Class::Ignore => permit.ignore().await,
        _ => permit.failure().await,
    }
}

/// Until when a response must have ended.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    pub at: Moment,
    /// How long it was from the beginning.
    pub after: Duration,
}

pin_project! {
    /// The body of a response.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        // Gone once the deadline is over: the server learns that nobody listens.
        #[pin]
        body: Option<B>,
        permit: Option<Permit>,
        limit: Option<TimeLimit>,
    }
}

#[derive(Debug)]
struct TimeLimit {
    deadline: Deadline,
    clock: Clock,
    fired: Counter,
    /// Set when the response first has to be waited for.
    sleep: Option<Sleep>,
}

impl<B> ResponseBody<B> {
    /// Nothing more is to be learned from it.
    pub(super) fn known(body: B) -> Self {
        Self { body: Some(body), permit: None, limit: None }
    }

    pub(super) fn coming(
        body: B,
        permit: Option<Permit>,
        deadline: Option<Deadline>,
        clock: &Clock,
        fired: &Counter,
    ) -> Self {
        let limit =
            deadline.map(|deadline| TimeLimit { deadline, clock: clock.clone(), fired: fired.clone(), sleep: None });
        Self { body: Some(body), permit, limit }
    }
}

impl TimeLimit {
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        let left = self.deadline.at.saturating_sub(self.clock.now());
        let sleep = self.sleep.get_or_insert_with(|| self.clock.sleep(left));
        std::task::ready!(Pin::new(sleep).poll(context));
        self.fired.increment(1);
        Poll::Ready(Status::from(Error::Timeout { after: self.deadline.after }))
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<AnyError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let given = match body.poll_frame(context) {
            Poll::Ready(given) => given.map(|frame| frame.map_err(|error| Status::from_error(error.into()))),
            Poll::Pending => {
                let Some(limit) = this.limit else { return Poll::Pending };
                let over = std::task::ready!(limit.poll_over(context));
                this.body.set(None);
                Some(Err(over))
            }
        };
        if let Some(permit) = this.permit.take() {
            let status = match &given {
                Some(Ok(frame)) => match frame.trailers_ref() {
                    None => Status::ok(""),
                    Some(trailers) => status_in(trailers).unwrap_or_else(|| Status::unknown("")),
                },
                Some(Err(status)) => status.clone(),
                None => Status::unknown(""),
            };
            // One poll makes the report; what is left of it goes on in the background.
            let _ = report(permit, &status).now_or_never();
        }
        Poll::Ready(given)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
